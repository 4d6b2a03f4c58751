"""Write or check the golden vectors of the order, ``spec/vectors/order.json`` (ORD-12).

python -m model.golden            writes the file
python -m model.golden --check    exits 1 if the file differs
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from model.order import Order

PATH = Path(__file__).resolve().parent.parent / "spec" / "vectors" / "order.json"

LARGEST = 2**63 - 1
SEEDS = (0, 1, 100003, LARGEST)
EPOCHS = (0, 1, LARGEST)

# Whole sequences: every N where a wrong half, round count or walk shows at once, and clumps that divide, do not divide, and exceed N.
WHOLE_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 17)
WHOLE_KEYS = ((0, 0), (0, 1), (1, 0), (100003, 0), (100003, 1), (LARGEST, LARGEST))
WHOLE_CLUMPS = (None, 1, 2, 3, 5, 20)

# Chosen positions: on both sides of the change of rounds (ORD-5), odd and even bit lengths, a prime, the largest N (ORD-11).
LARGE_ROWS = (65536, 65537, 10**6, 2**31, 10**9 + 7, LARGEST)
LARGE_CLUMPS = (None, 3, 1000)


def positions(order: Order) -> list[int]:
    """The chosen positions of a large order: both ends, the middle, and both ends of the short last clump (ORD-8)."""
    rows = order.rows
    chosen = {0, 1, 2, 3, rows // 3, rows // 2, 2 * (rows // 3), rows - 3, rows - 2, rows - 1}
    # The last row is the last one of the last clump, wherever that stands.
    end = order.position(rows - 1)
    clump = 1 if order.clump is None else order.clump
    start = end - (rows - 1) % clump
    for position in (start - 1, start, end, end + 1):
        if 0 <= position < rows:
            chosen.add(position)
    return sorted(chosen)


def vectors() -> list[dict[str, Any]]:
    """All vectors, always in the same sequence."""
    made: list[dict[str, Any]] = []
    for rows in WHOLE_ROWS:
        for clump in WHOLE_CLUMPS:
            for seed, epoch in WHOLE_KEYS:
                order = Order(rows, True, seed, epoch, clump)
                whole = [order.row(position) for position in range(rows)]
                made.append({"rows": rows, "seed": seed, "epoch": epoch, "clump": clump, "whole": whole})
    for rows in LARGE_ROWS:
        for clump in LARGE_CLUMPS:
            for seed in SEEDS:
                for epoch in EPOCHS:
                    order = Order(rows, True, seed, epoch, clump)
                    at = [[position, order.row(position)] for position in positions(order)]
                    made.append({"rows": rows, "seed": seed, "epoch": epoch, "clump": clump, "at": at})
    return made


def text() -> str:
    """The file: one vector per line, so that a diff shows which ones changed."""
    lines = [json.dumps(vector, separators=(",", ":")) for vector in vectors()]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main(arguments: list[str] | None = None, path: Path = PATH) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m model.golden", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file differs")
    check = parser.parse_args(arguments).check
    made = text()
    if not check:
        path.write_text(made, encoding="utf-8", newline="\n")
        return 0
    if path.exists() and path.read_bytes() == made.encode("utf-8"):
        return 0
    print(f"{path} differs from the order of model/order.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

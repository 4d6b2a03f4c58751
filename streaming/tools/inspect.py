"""``inspect``: what a state says, how far its epoch is, where it can resume, and whether it fits a table (TOL-3, TOL-4)."""

from __future__ import annotations

import argparse
import json
import math
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import numpy as np

from streaming import checkpoint
from streaming.checkpoint import Saved
from streaming.identity import Identity
from streaming.tools.fit import Fit, judge
from streaming.tools.statefile import Found, read_state
from streaming.tools.terminal import aligned, bar, counted, emit, listed, plain

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def run(arguments: argparse.Namespace) -> bool:
    """Print what a file's state says; return False where it does not fit the table that was given.

    Raises
    ------
    UnreadableError, NoStateError
        The file or the table cannot be read; the file holds no valid state.
    """
    found = read_state(arguments.file, arguments.key, arguments.skew)
    fit = None if arguments.table is None else judge(found.saved, *arguments.table)
    facts = summary(found.saved)
    if arguments.json:
        verdict = {
            "fits": None if fit is None else fit.fits,
            "differing": [] if fit is None else list(fit.differing),
            "reason": None if fit is None else fit.reason,
        }
        emit(json.dumps({"file": str(arguments.file), **facts, **verdict}))
    else:
        emit(_report(str(arguments.file), found, facts, fit))
    return fit is None or fit.fits


def summary(saved: Saved) -> dict[str, Any]:
    """What a state says, by the JSON keys of TOL-3, but for the file and the fit.

    Parameters
    ----------
    saved : Saved
        The state.
    """
    own, cursor = saved.identity, saved.cursor
    length = own.selected_rows // own.num_splits
    rows = own.num_splits * length
    received = cursor.cycle * own.num_splits + len(cursor.served)
    sizes = divisors(own.num_splits)
    return {
        "epoch": cursor.epoch,
        "completed_cycles": cursor.cycle,
        "cycles": length,
        "rows_per_epoch": rows,
        "rows_received": received,
        "rows_remaining": rows - received,
        "rows_replayed": len(cursor.served),
        "rows_left_out": own.selected_rows - rows,
        "epoch_completed": cursor.cycle == length,
        "world_sizes": sizes,
        "world_sizes_exact": _exact(saved, sizes),
        "state": checkpoint.encode(own, saved.world_size, cursor),
    }


def divisors(number: int) -> list[int]:
    """All divisors, ascending: the world sizes that a number of splits can be dealt to (ASG-5)."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


def _exact(saved: Saved, sizes: list[int]) -> list[int]:
    """The world sizes on which every rank would own equally many unserved splits (RES-4)."""
    served = np.zeros(saved.identity.num_splits, dtype=bool)
    served[list(saved.cursor.served)] = True
    return [size for size in sizes if np.ptp(served.reshape(size, -1).sum(axis=1)) == 0]


# ---- for people


def _report(file: str, found: Found, facts: dict[str, Any], fit: Fit | None) -> str:
    saved = found.saved
    own, served = saved.identity, facts["rows_replayed"]
    origin = [plain(file)]
    if found.key is not None:
        origin.append(f"key {plain(found.key)}")
    if found.ranks is not None:
        origin.append(f"merged from {counted(found.ranks, 'rank')}")
    cycles = f"{facts['completed_cycles']:,} of {facts['cycles']:,} completed"
    if served:
        cycles += f", and {served:,} of the {own.num_splits:,} splits served in the next one"
    again = f'{counted(served, "row")} again on resume with partial_cycle="replay", none with "exact"' if served else "no row comes again"
    entries = [
        ("epoch", _epochs(facts)),
        ("progress", bar(facts["rows_received"], facts["rows_per_epoch"])),
        ("received", f"{facts['rows_received']:,} of {facts['rows_per_epoch']:,} rows, {facts['rows_remaining']:,} remain"),
        ("cycles", cycles),
        ("replay", again),
        ("left out", f"{facts['rows_left_out']:,} of {facts['rows_per_epoch'] + facts['rows_left_out']:,} selected rows in each epoch"),
        ("saved by", counted(saved.world_size, "rank")),
        *_world_sizes(facts),
        ("order", _order(own)),
        ("filter", "none" if own.filter is None else repr(own.filter)),
        ("table", f"{own.table_name!r} version {own.table_version}, written {_moment(own.table_version_created_us)}"),
        ("schema", own.schema_fingerprint),
    ]
    lines = [", ".join(origin), "", *aligned(entries, 2)]
    if fit is not None:
        verdict = fit.message if fit.fits else f"NO, {fit.reason}: {fit.message}"
        lines += ["", *aligned([("fits", f"yes, {verdict}" if fit.fits else verdict)], 9)]
    return "\n".join(lines)


def _epochs(facts: dict[str, Any]) -> str:
    epoch = facts["epoch"]
    standing = f"{epoch} {'completed' if facts['epoch_completed'] else 'running' if facts['rows_received'] else 'not begun'}"
    if epoch == 0:
        return standing
    earlier = "epoch 0 is" if epoch == 1 else f"epochs 0 to {epoch - 1} are"
    return f"{standing}; {earlier} over, as far as the run began with epoch 0"


def _world_sizes(facts: dict[str, Any]) -> list[tuple[str, str]]:
    sizes, exact = facts["world_sizes"], facts["world_sizes_exact"]
    if sizes == exact:
        return [("resumes on", f"a world size of {listed(sizes)}")]
    return [("resumes on", f"a world size of {listed(sizes)}"), ("  exact on", listed(exact))]


def _order(own: Identity) -> str:
    if not own.shuffle:
        return f"storage order, not shuffled (order version {own.order_version})"
    clumps = "" if own.shuffle_clump_size is None else f" in clumps of {counted(own.shuffle_clump_size, 'row')}"
    return f"shuffled{clumps} with seed {own.shuffle_seed} (order version {own.order_version})"


def _moment(microseconds: int | None) -> str:
    if microseconds is None:
        return "at a time that the state does not know"
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat().replace("+00:00", "Z")
    except OverflowError:  # a legal number (CKP-6), behind the year 9999
        return f"{microseconds} us after 1970"

"""Start-up, bytes per message and throughput of workers. By hand: ``python -m tests.benchmark.workers [--rows N] [--repeats N]``.

A fresh process per configuration, their order shuffled in each repeat; the median and the range are printed as a Markdown table.
Nothing here is a test: timings are noisy, compare ratios within one run.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa

from streaming import StreamingDataLoader, StreamingDataset

BATCH = 64


def burn(batch: pa.RecordBatch) -> list[int]:
    """A transform of about a millisecond of Python per row."""
    return [sum(i * i for i in range(15_000)) % 7 + row for row in batch["id"].to_pylist()]


def measure(uri: str, workers: int, sharding: str) -> dict[str, float]:
    """One configuration in this process."""
    dataset = StreamingDataset(lancedb.connect(uri).open_table("t"), num_splits=8, shuffle_seed=1, transform=burn)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers, worker_sharding=sharding)
    began = time.perf_counter()
    iterator = iter(loader)
    item = next(iterator._inner)
    iterator._delivery.commit(item[1], item[2])
    rows = item[2]
    first = time.perf_counter()
    rest = sum(len(batch) for batch in iterator)
    ended = time.perf_counter()
    assert rows + rest == len(dataset), "an epoch is an epoch"
    message = len(pickle.dumps(item)) - len(pickle.dumps(item[0]))
    return {
        "first batch (s)": first - began,
        "rows/s": rest / (ended - first),
        "rows/s with start-up": (rows + rest) / (ended - began),
        "envelope (bytes)": message,
    }


def main() -> None:
    """Run every configuration, each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        uri, workers, sharding = arguments.one
        print(json.dumps(measure(uri, int(workers), sharding)))
        return
    configurations = [(0, "splits"), (1, "splits"), (2, "splits"), (4, "splits"), (2, "batches"), (4, "batches")]
    results: dict[tuple[int, str], list[dict[str, float]]] = {configuration: [] for configuration in configurations}
    with tempfile.TemporaryDirectory() as uri:
        lancedb.connect(uri).create_table("t", pa.table({"id": range(arguments.rows)}))
        for _ in range(arguments.repeats):
            for workers, sharding in random.sample(configurations, len(configurations)):
                command = [sys.executable, "-m", "tests.benchmark.workers", "--one", uri, str(workers), sharding]
                shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
                results[workers, sharding].append(json.loads(shown.stdout.splitlines()[-1]))
    print(table(results))


def table(results: dict[Any, list[dict[str, float]]]) -> str:
    """Medians and ranges as Markdown."""
    names = list(next(iter(results.values()))[0])
    lines = ["| workers | sharding | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for (workers, sharding), runs in results.items():
        cells = []
        for name in names:
            values = [run[name] for run in runs]
            cells.append(f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})")
        lines.append(f"| {workers} | {sharding} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

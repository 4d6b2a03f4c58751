"""What slow storage costs: each read takes 100 ms longer. By hand: ``python -m tests.benchmark.delay [--tables ..] [--repeats N]``.

The delay is injected below our reads, and below the peer's, as an object store's first byte would come late; bandwidth stays that of the
disk. It shows how far windows that are read at the same time hide it, and what a larger budget adds. A fresh process per configuration.
"""

from __future__ import annotations

import argparse
import importlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb

from streaming import StreamingDataset
from streaming.source import Source
from tests.benchmark import report
from tests.benchmark.fresh import Figures, MeasurementError, answer, launch
from tests.benchmark.loaders import BUDGET, Contender, Steps, Work, batches, ours
from tests.benchmark.measure import CONTENDERS, timed
from tests.benchmark.tables import HOME, TABLES, make

# Settings of our dataset; the first of each is without delay.
_OURS: dict[str, dict[str, int]] = {
    "ours, no delay": {},
    "ours, one read at a time": {"io_queue_depth": 1},
    "ours": {},
    f"ours, {8 * BUDGET // 2**20} MiB": {"read_ahead_bytes": 8 * BUDGET},
}
_PEERS = ("peer-default", "peer-tuned")
_COLUMNS: report.Columns = (
    ("rows/s", "rows_per_s", report.rate),
    ("with start-up", "rows_per_s_with_start", report.rate),
    ("first batch", "first_batch_s", report.milliseconds),
    ("rows per read", "rows_per_read", "{:.0f}".format),
    ("reads at a time", "reads_at_a_time", "{:.2f}".format),
    ("waiting", "waiting", "{:.0%}".format),
)


def delayed(read: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """A read that comes late."""

    def late(*wanted: Any) -> Any:
        time.sleep(seconds)
        return read(*wanted)

    return late


def measure(home: str, table: str, label: str, delay: float, seconds: float, rows: int | None) -> Figures:
    """One configuration, with this delay below every read."""
    stored = make(Path(home), table, rows)
    work = Work(lancedb.connect(home).open_table(stored), rows or TABLES[table].rows, TABLES[table].row_bytes, table == "ragged")
    if label in CONTENDERS:
        peer: Any = importlib.import_module("lancedb.permutation").Permutation
        peer.__getitems__ = delayed(peer.__getitems__, delay)
        return timed(CONTENDERS[label], work, seconds)
    # Under the type checker's eyes a method cannot be assigned to.
    setattr(Source, "take", delayed(Source.take, delay))  # noqa: B010
    settings = _OURS[label]
    datasets: list[StreamingDataset] = []

    def epoch(work: Work) -> Steps:
        datasets.append(ours(work, **settings))
        return batches(datasets[-1], format="torch")

    def ahead(work: Work) -> float:
        return min(settings.get("read_ahead_bytes", BUDGET) / work.row_bytes, 9 * work.window)

    began = time.perf_counter()
    figures = timed(Contender(label, epoch, ahead), work, seconds)
    elapsed = time.perf_counter() - began
    stats = [dataset.stats() for dataset in datasets]
    reads = sum(of.reads for of in stats)
    return {
        **figures,
        "rows_per_read": sum(of.bytes_loaded for of in stats) / work.row_bytes / reads,
        "reads_at_a_time": sum(of.read_seconds for of in stats) / elapsed,
        "waiting": sum(of.wait_seconds for of in stats) / elapsed,
    }


def main() -> None:
    """Measure every configuration, each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=["tab", "emb"])
    parser.add_argument("--delay", type=float, default=0.1, help="seconds")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, default=HOME)
    parser.add_argument("--rows", type=int)
    chosen = parser.parse_args()
    labels = [*_OURS, *(name for name in _PEERS if not CONTENDERS[name].missing())]
    print(f"# {chosen.delay * 1000:g} ms later per read")
    for table in chosen.tables:
        make(chosen.data, table, chosen.rows)
        runs: dict[str, list[Figures]] = {label: [] for label in labels}
        for _ in range(chosen.repeats):
            for label in random.sample(labels, len(labels)):
                setting = {"home": str(chosen.data), "table": table, "label": label, "seconds": chosen.seconds, "rows": chosen.rows}
                try:
                    runs[label].append(launch(__spec__.name, {**setting, "delay": 0.0 if "no delay" in label else chosen.delay}))
                except MeasurementError as error:
                    print(f"{label} on {table}: {error}")
        print(f"\n## {table}\n{report.summary(runs, _COLUMNS)}", flush=True)


if __name__ == "__main__" and not answer(measure):
    main()

"""What must not grow with rows and splits. By hand: ``python -m tests.benchmark.scale [--sections order filter splits] [--repeats N]``.

Order arithmetic and schedules at up to 10**9 rows, without a table; filters over 10**7 rows; first batch, fresh and resumed at half of an
epoch, and the cost of a state, at 8 to 4,096 splits. A fresh process per configuration.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa

from streaming import StreamingDataLoader, StreamingDataset
from streaming.cycle import Cursor, RankSequence
from streaming.order import Order
from streaming.schedule import Schedule
from streaming.topology import Topology
from tests.benchmark import report
from tests.benchmark.fresh import Figures, answer, launch
from tests.benchmark.loaders import BATCH, CLUMP, SEED, SPLITS
from tests.benchmark.tables import HOME, TABLES, make
from tests.support import edited

_MANY = 32_768
_FILTERS = {"no filter": None, "every second row": "id % 2 = 0", "one row in 1,000": "id % 1000 = 0"}


_COLUMNS: dict[str, report.Columns] = {
    "order": (
        ("construct", "construct_s", report.microseconds),
        (f"{_MANY} rows at positions", "row_s", report.milliseconds),
        ("positions of rows", "position_s", report.milliseconds),
        ("seek to the middle", "seek_s", report.microseconds),
        ("schedule: one step", "step_s", report.microseconds),
        ("schedule: one row", "due_s", report.microseconds),
        ("memory", "memory_bytes", report.megabytes),
    ),
    "filter": (
        ("dataset built", "built_s", report.milliseconds),
        ("selected rows", "rows", "{:.0f}".format),
        ("kept", "kept_bytes", report.megabytes),
        ("bits per row of the table", "bits", "{:.2f}".format),
        ("first batch", "first_batch_s", report.milliseconds),
        ("take", "take_s", report.milliseconds),
        ("of that, the selection", "offsets_s", report.milliseconds),
    ),
    "splits": (
        ("first batch", "first_batch_s", report.milliseconds),
        ("of that, dataset built", "built_s", report.milliseconds),
        ("state_dict between cycles", "boundary_s", report.microseconds),
        ("after the first batch", "state_s", report.microseconds),
        ("state as JSON", "state_bytes", "{:.0f} bytes".format),
    ),
}


def took(call: Callable[[], Any], times: int = 7) -> float:
    """Seconds of a call, the median."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def order(rows: int, clump: int | None) -> Figures:
    """Order and schedule of so many rows, which no table needs to have."""
    places = np.linspace(0, rows - 1, _MANY).astype(np.uint64)
    length = rows // SPLITS
    chosen = Order(rows, True, SEED, 0, clump)
    schedule = Schedule(rows=rows, num_splits=SPLITS, world_size=1, batch_size=BATCH, shuffle_seed=SEED, shuffle_clump_size=clump)

    def seek() -> Any:
        sequence = RankSequence(Topology(SPLITS, 1, 0), length, Cursor(0, length // 2))
        return Order(rows, True, SEED, 0, clump).row(sequence.positions(0, BATCH))

    figures = {
        "construct_s": took(lambda: Order(rows, True, SEED, 0, clump)),
        "row_s": took(lambda: chosen.row(places)),
        "position_s": took(lambda: chosen.position(places)),
        "seek_s": took(seek),
        "step_s": took(lambda: schedule.step_rows(schedule.steps // 2, 0)),
        "due_s": took(lambda: schedule.due(rows // 2)),
    }
    tracemalloc.start()
    Order(rows, True, SEED, 0, clump).row(places)
    seek()
    schedule.due(rows // 2)
    return {**figures, "memory_bytes": tracemalloc.get_traced_memory()[1]}


def filtered(home: str, table: str, label: str) -> Figures:
    """A dataset over the rows that pass a predicate."""
    opened = lancedb.connect(home).open_table(table)
    began = time.perf_counter()
    dataset = StreamingDataset(opened, num_splits=SPLITS, shuffle_seed=SEED, filter=_FILTERS[label])
    built = time.perf_counter() - began
    began = time.perf_counter()
    _first_batch(dataset)
    first = time.perf_counter() - began
    source = dataset._position.standing.source
    selection = source._selection
    wanted = np.random.default_rng(SEED).choice(source.rows, min(_MANY, source.rows), replace=False).astype(np.uint64)
    kept = 0 if selection is None else selection.nbytes
    return {
        "built_s": built,
        "rows": source.rows,
        "kept_bytes": kept,
        "bits": 8 * kept / opened.count_rows(),
        "first_batch_s": first,
        "take_s": took(lambda: source.take(wanted)),
        "offsets_s": 0.0 if selection is None else took(lambda: selection.offsets(wanted)),
    }


def splits(home: str, table: str, num_splits: int, state: dict[str, Any] | None = None) -> Figures:
    """Start with so many splits, at a state or afresh; and the cost of states, in mid-cycle too where a batch is less than a cycle."""
    opened = lancedb.connect(home).open_table(table)
    began = time.perf_counter()
    dataset = StreamingDataset(opened, num_splits=num_splits, shuffle_seed=SEED)
    built = time.perf_counter() - began
    if state is not None:
        dataset.load_state_dict(state)
    _first_batch(dataset)
    first = time.perf_counter() - began
    saved = dataset.state_dict()
    middle = edited(saved, samples_consumed_per_split=[len(dataset) // num_splits // 2] * num_splits, partial_cycle_splits=[])
    return {
        "first_batch_s": first,
        "built_s": built,
        "boundary_s": took(StreamingDataset(opened, num_splits=num_splits, shuffle_seed=SEED).state_dict, 101),
        "state_s": took(dataset.state_dict, 101),
        "state_bytes": len(json.dumps(saved)),
        "middle": middle,
    }


def _first_batch(dataset: StreamingDataset) -> None:
    """Receive one batch."""
    with closing(iter(StreamingDataLoader(dataset, batch_size=BATCH, format="torch"))) as batches:
        next(batches)


def measure(section: str, **setting: Any) -> Figures:
    """One configuration of a section."""
    sections: dict[str, Callable[..., Figures]] = {"order": order, "filter": filtered, "splits": splits}
    return sections[section](**setting)


def main() -> None:
    """Measure every configuration, each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sections", nargs="+", choices=_COLUMNS, default=list(_COLUMNS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, default=HOME)
    parser.add_argument("--rows", type=int, default=10**7, help="rows under the filter")
    parser.add_argument("--tab-rows", type=int, default=TABLES["tab"].rows, help="rows under the splits")
    chosen = parser.parse_args()
    home = str(chosen.data)
    settings: dict[str, dict[str, dict[str, Any]]] = {section: {} for section in chosen.sections}
    if "order" in settings:
        for clump in (None, CLUMP):
            label = "" if clump is None else f", clump {clump}"
            settings["order"] |= {f"{rows:.0e} rows{label}": {"rows": rows, "clump": clump} for rows in (10**5, 10**6, 10**7, 10**8, 10**9)}
    if "filter" in settings:
        table = f"numbers_{chosen.rows}"
        if not (chosen.data / f"{table}.lance").exists():
            lancedb.connect(home).create_table(table, pa.table({"id": np.arange(chosen.rows)}))
        settings["filter"] = {label: {"home": home, "table": table, "label": label} for label in _FILTERS}
    if "splits" in settings:
        table = make(chosen.data, "tab", chosen.tab_rows)
        for number in (8, 64, 512, 4096):
            fresh = {"home": home, "table": table, "num_splits": number}
            middle = launch(__spec__.name, {"section": "splits", **fresh})["middle"]
            settings["splits"] |= {f"{number} splits, fresh": fresh, f"{number} splits, resumed at half": {**fresh, "state": middle}}
    for section, variants in settings.items():
        runs: dict[str, list[Figures]] = {label: [] for label in variants}
        for _ in range(chosen.repeats):
            for label in random.sample(list(variants), len(variants)):
                runs[label].append(launch(__spec__.name, {"section": section, **variants[label]}))
        print(f"\n## {section}\n{report.summary(runs, _COLUMNS[section])}", flush=True)


if __name__ == "__main__" and not answer(measure):
    main()

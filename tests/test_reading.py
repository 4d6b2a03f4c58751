"""What reading costs (spec/reading.md): real traces of the reader, under chosen schedules and sizes of rows, before the model's judge."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import reading
from streaming import StreamingDataLoader, StreamingDataset, pipeline
from streaming.pipeline import Cutter, ReadAhead, WindowReader
from streaming.stats import Meter
from streaming.window import Window


@dataclass(frozen=True)
class Weighed(Window):
    """A window that is said to be as large as the test wants."""

    weight: int

    @property
    def nbytes(self) -> int:
        return self.weight


class Stage:
    """A clock, threads and queues that do what the test says, and a list of what the reader did."""

    def __init__(self, sizes: list[int], seconds: Callable[[int], float]) -> None:
        self.sizes, self.seconds = sizes, seconds
        self.clock = 0.0
        self.events: list[reading.Event] = []
        self.jobs: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self.begun = self.done = 0

    # the supply

    def __len__(self) -> int:
        return len(self.sizes)

    def read(self, begin: int, end: int) -> Window:
        window = self.done
        batch = pa.record_batch({"id": range(begin, end)})
        rows = Weighed(batch, np.arange(end - begin), batch.schema, sum(self.sizes[begin:end]))
        self.clock += self.seconds(window)
        self.events.append(reading.Arrived(window, rows.nbytes, self.seconds(window)))
        return rows

    # the pool of threads

    def submit(self, job: Callable[..., None], *arguments: Any) -> None:
        _, _, begin, end = arguments
        self.events.append(reading.Begun(end - begin))
        self.jobs.append((self.begun, job, arguments))
        self.begun += 1

    def shutdown(self, **_: Any) -> None:
        self.jobs.clear()

    def work(self, which: int = 0) -> None:
        """Do one of the reads under way."""
        if self.jobs:
            self.jobs.rotate(-(which % len(self.jobs)))
            number, job, arguments = self.jobs.popleft()
            self.jobs = deque(sorted(self.jobs, key=lambda entry: entry[0]))
            self.done = number
            job(*arguments)


def run(stage: Stage, ahead: ReadAhead, batch: int | None, choose: Callable[[], int], patch: pytest.MonkeyPatch) -> list[int]:
    """Consume everything; which reads are done before the consumer asks is `choose`'s."""

    class Arrival(deque[Any]):
        def empty(self) -> bool:
            return not self

        put = deque.append

        def get(self) -> Any:
            while not self:
                stage.work()
            return self.popleft()

    patch.setattr(pipeline, "SimpleQueue", Arrival)
    patch.setattr(pipeline, "ThreadPoolExecutor", lambda *_, **__: stage)
    patch.setattr(pipeline, "perf_counter", lambda: stage.clock)
    windows = WindowReader(stage, ahead, Meter(), batch)  # type: ignore[arg-type]
    ids: list[int] = []
    window = 0
    while True:
        for _ in range(choose() % 4):
            stage.work(choose())
        if window:
            stage.events.append(reading.Released(window - 1))
        stage.events.append(reading.Asked(window))
        before = len(stage.events)
        taken = windows.next_window()
        if taken is None:
            stage.events.pop()
            return ids
        # Taken before what it then begins to read.
        begun = [i for i, event in enumerate(stage.events) if i >= before and isinstance(event, reading.Begun)]
        stage.events.insert(begun[0] if begun else len(stage.events), reading.Taken(window))
        ids += taken.rows(0, len(taken))["id"].to_pylist()
        window += 1


@given(st.data())
def test_windows_keep_to_the_clauses(data: st.DataObject) -> None:
    """REA-1 to REA-5, DLV-10: sampled over sizes of rows, speeds, schedules, budgets, batches and bounds, before the model's judge."""
    rows = data.draw(st.integers(1, 3000))
    period = data.draw(st.lists(st.sampled_from([0, 1, 8, 100, 5000, 100_000]), min_size=1, max_size=6))
    run_length = data.draw(st.sampled_from([1, 50, 1000]))
    sizes = [period[i // run_length % len(period)] for i in range(rows)]
    slow = data.draw(st.sampled_from([0.001, 0.1]))
    batch = data.draw(st.none() | st.sampled_from([1, 2, 5, 16, 100, 700]))
    bound, depth = data.draw(st.none() | st.sampled_from([1, 7, 300])), data.draw(st.none() | st.integers(1, 3))
    splits = data.draw(st.sampled_from([1, 4]))
    budget = data.draw(st.sampled_from([1, 1000, 100_000, 2**26]))
    stage = Stage(sizes, lambda _: slow)
    with pytest.MonkeyPatch.context() as patch:
        ids = run(stage, pipeline.resolve(budget, bound, depth, splits), batch, lambda: data.draw(st.integers(0, 7)), patch)
    assert ids == list(range(rows))
    reader = reading.Reader(budget, rows, owned=splits, batch=batch, read_batch_size=bound, io_queue_depth=depth)
    assert reading.judge(reader, stage.events) == []


@pytest.mark.parametrize(
    ("seconds", "size", "depth", "most"),
    [
        (0.001, 100, None, 1),
        (0.001, 1000, None, 1),
        (0.001, 40_000, None, 2),
        (0.1, 100, None, 8),
        (0.1, 100, 3, 3),
        (0.1, 100, 99, 8),
        (0.1, 40_000, 1, 1),
    ],
)
def test_slow_storage_gets_more_reads(seconds: float, size: int, depth: int | None, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """REA-4, REA-5: one read ahead, two of large rows, up to 8 or `io_queue_depth` where storage is slow and the consumer waits."""
    stage = Stage([size] * (400_000 if size <= 1000 else 4000), lambda _: seconds)
    waiting = []
    submit = stage.submit
    monkeypatch.setattr(stage, "submit", lambda *arguments: (submit(*arguments), waiting.append(len(stage.jobs))))
    assert run(stage, pipeline.resolve(2**26, None, depth, 8), 256, lambda: 0, monkeypatch) == list(range(len(stage)))
    assert max(waiting) == most
    reader = reading.Reader(2**26, len(stage), owned=8, batch=256, io_queue_depth=depth)
    assert reading.judge(reader, stage.events) == []


def test_a_batch_may_be_made_of_several_windows() -> None:
    """REA-3: batches are whole whatever the windows; the last one is shorter."""
    for budget in (1, 500, 2**20):
        stage = table_of(50)
        source = StreamingDataset(stage, shuffle=False, read_ahead_bytes=budget)
        batches = [batch["id"].tolist() for batch in StreamingDataLoader(source, batch_size=8, format="numpy")]
        assert [len(batch) for batch in batches] == [8] * 6 + [2]
        assert [i for batch in batches for i in batch] == list(range(50))


def table_of(rows: int) -> Any:
    return lancedb.connect("memory://").create_table("t", pa.table({"id": range(rows), "x": [b"x" * 100] * rows}))


def threads(name: str) -> int:
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


def settled(name: str) -> int:
    deadline = time.monotonic() + 10
    while threads(name) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return threads(name)


@pytest.mark.parametrize("end", ["close", "drop", "fail", "exhaust"])
def test_threads_end_with_the_pass(end: str) -> None:
    """REA-6: at most one for each concurrent read and `transform_parallelism` more; none is left, and nothing is held."""
    table = table_of(400)

    def transform(batch: pa.RecordBatch) -> list[int]:
        if end == "fail" and 300 in batch["id"].to_pylist():
            raise ValueError("bad row")
        return batch["id"].to_pylist()  # type: ignore[no-any-return]

    dataset = StreamingDataset(table, shuffle=False, transform=transform, transform_parallelism=2, read_ahead_bytes=20_000)
    iterator = iter(dataset)
    assert next(iterator) == 0
    assert threads("streaming-read") <= 8
    assert 1 <= threads("streaming-transform") <= 2
    assert dataset.stats().bytes_buffered > 0
    if end == "close":
        iterator.close()
    elif end == "fail":
        with pytest.raises(ValueError, match="bad row"):
            list(iterator)
    elif end == "exhaust":
        assert len(list(iterator)) == 399
    del iterator
    assert settled("streaming-read") == settled("streaming-transform") == 0
    assert dataset.stats().bytes_buffered == 0


def test_nothing_grows_with_a_slow_consumer() -> None:
    """REA-2: what is held stays within the budget while the consumer sleeps."""
    dataset = StreamingDataset(table_of(5000), shuffle_seed=1, read_ahead_bytes=100_000)
    iterator = iter(dataset)
    for _ in range(700):
        next(iterator)
    held = [dataset.stats().bytes_buffered]
    deadline = time.monotonic() + 20
    while len(held) < 20 or len(set(held[-20:])) > 1:  # until nothing arrives any more
        assert time.monotonic() < deadline
        time.sleep(0.01)
        held.append(dataset.stats().bytes_buffered)
    assert 0 < max(held) <= 100_000
    reads = dataset.stats().reads
    time.sleep(0.05)
    assert (dataset.stats().reads, dataset.stats().bytes_buffered) == (reads, held[-1])


def test_neighbours_are_read_in_storage_order() -> None:
    """REA-1: every read asks for ascending rows, so that clumps (ORD-8) are ranges; and never for one twice."""
    dataset = StreamingDataset(table_of(1000), num_splits=4, shuffle_seed=1, shuffle_clump_size=10)
    source = dataset._position.standing.source
    honest = source._handle
    asked: list[list[int]] = []

    class Recording:
        def take_offsets(self, offsets: list[int]) -> Any:
            asked.append(offsets)
            return honest.take_offsets(offsets)

    source._handle = Recording()
    assert sorted(row["id"] for row in dataset) == list(range(1000))
    assert len(asked) > 2
    assert all(offsets == sorted(offsets) for offsets in asked)
    assert sorted(offset for offsets in asked for offset in offsets) == list(range(1000))
    runs = [np.count_nonzero(np.diff(offsets) != 1) + 1 for offsets in asked[1:]]
    assert sum(runs) < 1000 / 4, "neighbours come together"


def test_cutting_exactly() -> None:
    """A cutter joins what windows divide, and ends with what is left."""
    stage = Stage([1] * 30, lambda _: 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_GROWTH", 1)
        cutter = Cutter(WindowReader(stage, ReadAhead(2**20, most_rows=4), Meter()))  # type: ignore[arg-type]
        sizes = []
        while (batch := cutter.exactly_one(7)) is not None:
            sizes.append(batch.num_rows)
    assert sizes == [7, 7, 7, 7, 2]
    cutter.close()

"""What reading costs (spec/reading.md): real traces of the reader, under chosen schedules and sizes of rows, before the model's judge."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import reading
from streaming import StreamingDataLoader, StreamingDataset, pipeline, supply
from streaming.pipeline import Cutter, ReadAhead, WindowReader
from streaming.stats import Meter
from streaming.width import fixed_bytes
from streaming.window import Window
from tests.support import numbered_table


@dataclass(frozen=True)
class Weighed(Window):
    """A window that is said to be as large as the test wants."""

    weight: int

    @property
    def nbytes(self) -> int:
        return self.weight


class Stage:
    """A clock, threads and queues that do what the test says, and a list of what the reader did."""

    def __init__(self, sizes: list[int], seconds: Callable[[int], float], row_bytes: float | None = None) -> None:
        self.sizes, self.seconds, self.row_bytes = sizes, seconds, row_bytes
        self.clock = 0.0
        self.events: list[reading.Event] = []
        self.jobs: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self.spans: list[tuple[int, int]] = []
        self.done = 0

    # the supply

    def __len__(self) -> int:
        return len(self.sizes)

    def read(self, begin: int, end: int, most_bytes: int | None) -> tuple[Window, float]:
        window = self.done
        asked, end = end, self.seen(begin, end, most_bytes)
        batch = pa.record_batch({"id": range(begin, end)})
        rows = Weighed(batch, np.arange(end - begin), batch.schema, sum(self.sizes[begin:end]))
        self.clock += self.seconds(window)
        self.events.append(reading.Arrived(window, rows.nbytes, self.seconds(window)))
        return rows, self.rest_bytes(end, asked)

    def seen(self, begin: int, end: int, most_bytes: int | None) -> int:
        """Where a window ends if all of its rows were looked at."""
        if most_bytes is None or sum(self.sizes[begin:end]) <= most_bytes:
            return end
        fits = begin + 1
        while sum(self.sizes[begin : fits + 1]) <= most_bytes // 2:
            fits += 1
        return fits

    def needs_looks(self, rows: int, largest: int) -> bool:
        return self.row_bytes is None and rows > 16

    def rest_bytes(self, begin: int, end: int) -> float:
        return sum(self.sizes[begin:end]) / max(end - begin, 1)

    # the pool of threads

    def submit(self, job: Callable[..., None], *arguments: Any) -> Stage:
        slot = arguments[0]
        self.spans = [(begin, end) for begin, end in self.spans if begin < slot.begin]
        self.jobs = deque(entry for entry in self.jobs if entry[0] < len(self.spans))
        self.events.append(reading.Begun(slot.end - slot.begin))
        self.jobs.append((len(self.spans), job, arguments))
        self.spans.append((slot.begin, slot.end))
        return self

    def cancel(self) -> None:
        """Windows behind rows that were given back; the next one that is begun forgets them."""

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
        begin, end = stage.spans[window]
        fewer, rest = (len(taken), Fraction(stage.rest_bytes(begin + len(taken), end))) if begin + len(taken) < end else (None, None)
        # Taken before what it then begins to read.
        begun = [i for i, event in enumerate(stage.events) if i >= before and isinstance(event, reading.Begun)]
        stage.events.insert(begun[0] if begun else len(stage.events), reading.Taken(window, rows=fewer, foreseen=rest))
        ids += taken.rows(0, len(taken))["id"].to_pylist()
        window += 1


@given(st.data())
def test_windows_keep_to_the_clauses(data: st.DataObject) -> None:
    """REA-1 to REA-5, DLV-10: sampled over sizes of rows, speeds, schedules, budgets, batches and bounds, before the model's judge."""
    rows = data.draw(st.integers(1, 3000))
    period = data.draw(st.lists(st.sampled_from([0, 1, 8, 100, 5000, 100_000]), min_size=1, max_size=6))
    run_length = data.draw(st.sampled_from([1, 50, 1000]))
    varying = data.draw(st.booleans())
    sizes = [period[i // run_length % len(period)] if varying else period[0] for i in range(rows)]
    slow = data.draw(st.sampled_from([0.001, 0.1]))
    batch = data.draw(st.none() | st.sampled_from([1, 2, 5, 16, 100, 700]))
    bound, depth = data.draw(st.none() | st.sampled_from([1, 7, 300])), data.draw(st.none() | st.integers(1, 3))
    splits = data.draw(st.sampled_from([1, 4]))
    budget = data.draw(st.sampled_from([1, 1000, 100_000, 2**26]))
    stage = Stage(sizes, lambda _: slow, None if varying else float(period[0]))
    with pytest.MonkeyPatch.context() as patch:
        ids = run(stage, pipeline.resolve(budget, bound, depth, splits), batch, lambda: data.draw(st.integers(0, 7)), patch)
    assert ids == list(range(rows))
    known = () if varying else (Fraction(period[0]),)
    reader = reading.Reader(budget, rows, splits, batch, read_batch_size=bound, io_queue_depth=depth, known=known, varying=varying)
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
    reader = reading.Reader(2**26, len(stage), owned=8, batch=256, io_queue_depth=depth, varying=True)
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
    """REA-1: every read asks for ascending rows, so that clumps (ORD-8) are ranges; and, without looks (REA-2), never for one twice."""
    dataset = StreamingDataset(numbered_table(1000), num_splits=4, shuffle_seed=1, shuffle_clump_size=10)
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


SMALL, LARGE, BUDGET = 10, 10_000, 400_000


@pytest.fixture(scope="module", params=[(600, 3000), (400, 0)])
def skewed(request: pytest.FixtureRequest) -> Any:
    """3,000 small rows, large ones that are many times the budget, and small ones or the end."""
    large, rest = request.param
    rows = [b"x" * SMALL] * 3000 + [b"x" * LARGE] * large + [b"x" * SMALL] * rest
    return lancedb.connect("memory://").create_table("skewed", pa.table({"id": range(len(rows)), "x": rows}))


@pytest.mark.parametrize("order", [{"shuffle": False}, {"shuffle_seed": 1, "shuffle_clump_size": 1000}])
@pytest.mark.parametrize("splits", [1, 4])
def test_large_neighbours_are_seen_before_they_are_read(skewed: Any, splits: int, order: dict[str, Any]) -> None:
    """REA-2: where neighbours grow suddenly, no read brings more than the budget; and each row comes once."""
    # One read at a time: what slow storage gets beside it may be begun before anything is seen.
    dataset = StreamingDataset(skewed, num_splits=splits, read_ahead_bytes=BUDGET, io_queue_depth=1, **order)
    source = dataset._position.standing.source
    brought, take = [], source.take

    def taken(rows: Any) -> Window:
        window = take(rows)
        brought.append(window.nbytes)
        return window

    source.take = taken  # type: ignore[method-assign]
    ids = [i for batch in StreamingDataLoader(dataset, batch_size=64, format="torch") for i in batch["id"].tolist()]
    assert sorted(ids) == list(range(skewed.count_rows()))
    assert max(brought) <= BUDGET
    assert len(brought) < 90, "small rows are still read many at a time"


def test_the_first_row_is_read_alone_where_it_may_have_any_size() -> None:
    """REA-2, REA-3: where types say it, a batch or as many as half the budget holds."""
    varying = Stage([10] * 900, lambda _: 0.0)
    fixed = {size: Stage([size] * 900, lambda _: 0.0, float(size)) for size in (10, 1000)}
    for stage in (varying, *fixed.values()):
        with pytest.MonkeyPatch.context() as patch:
            run(stage, ReadAhead(100_000), 256, lambda: 0, patch)
    first = {name: [end - begin for begin, end in stage.spans[:2]] for name, stage in {"varying": varying, **fixed}.items()}
    assert first == {"varying": [1, 255], 10: [256, 644], 1000: [50, 50]}


def test_a_read_that_the_engine_cannot_hold_is_cut() -> None:
    """REA-2: more than 2 GiB of a column are no read for the engine; any other error of it comes through."""
    dataset = StreamingDataset(table_of(600), num_splits=1, shuffle=False)
    source = dataset._position.standing.source
    take, words = source.take, "lance error: Offset overflow error: 2160000000"

    def taken(rows: Any) -> Window:
        if len(rows) > 5:
            raise RuntimeError(words)
        return take(rows)

    source.take = taken  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supply, "judged_bytes", lambda _, rows, __: np.ones(len(rows)))
        assert [row["id"] for row in dataset] == list(range(600))
        words = "no such file"
        with pytest.raises(RuntimeError, match=words):
            list(StreamingDataset.__iter__(dataset))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int64(), 8),
        (pa.bool_(), 1 / 8),
        (pa.timestamp("us"), 8),
        (pa.decimal128(5, 2), 16),
        (pa.binary(7), 7),
        (pa.null(), 0),
        (pa.list_(pa.float16(), 3), 6),
        (pa.struct([("a", pa.int8()), ("b", pa.list_(pa.list_(pa.int64(), 2), 2))]), 33),
        *((kind, None) for kind in (pa.string(), pa.large_binary(), pa.list_(pa.int8()), pa.map_(pa.int8(), pa.int8()))),
        *((kind, None) for kind in (pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.string(), 2))),
        (pa.struct([("a", pa.int8()), ("b", pa.string())]), None),
    ],
)
def test_bytes_that_types_say(kind: pa.DataType, expected: float | None) -> None:
    """REA-2."""
    assert fixed_bytes(pa.schema([("x", kind)])) == expected
    assert fixed_bytes(pa.schema([("x", kind), ("y", pa.int32())])) == (None if expected is None else expected + 4)


def test_cutting_exactly() -> None:
    """A cutter joins what windows divide, and ends with what is left."""
    stage = Stage([1] * 30, lambda _: 0.0, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_GROWTH", 1)
        cutter = Cutter(WindowReader(stage, ReadAhead(2**20, most_rows=4), Meter()))  # type: ignore[arg-type]
        sizes = []
        while (batch := cutter.exactly_one(7)) is not None:
            sizes.append(batch.num_rows)
    assert sizes == [7, 7, 7, 7, 2]
    cutter.close()

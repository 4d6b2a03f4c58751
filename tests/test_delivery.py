"""What counts as received, under bare iteration and a plain DataLoader; failures, interrupts, the lease (spec/delivery.md)."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset

from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import (
    ArgumentValueError,
    ForkedError,
    IteratorAliveError,
    IteratorFailedError,
    IteratorSupersededError,
    PartialCycleStartError,
    TransformError,
)
from tests.support import connection, ids, numbered_table

ROWS = 24


class Boom(Exception):
    """A failure of user code."""


def make(**arguments: Any) -> StreamingDataset:
    return StreamingDataset(numbered_table(ROWS), **{"num_splits": 4, "shuffle": False, **arguments})


SEQUENCE = ids(make())


def column(batch: pa.RecordBatch) -> list[int]:
    values: list[int] = batch.column(0).to_pylist()
    return values


def raising(error: BaseException, bad: int) -> Callable[[pa.RecordBatch], list[int]]:
    """A transform that fails on the row with this number, while ``armed`` holds anything."""

    def transform(batch: pa.RecordBatch) -> list[int]:
        if transform.armed and bad in column(batch):  # type: ignore[attr-defined]
            raise error
        return column(batch)

    transform.armed = [True]  # type: ignore[attr-defined]
    return transform


def received(dataset: StreamingDataset) -> int:
    return len(dataset) - dataset.samples_remaining


def live_readers() -> int:
    """Reading threads that are not on their way to their end."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("streaming-read")]
    for thread in threads:
        thread.join(timeout=10)
    return sum(thread.is_alive() for thread in threads)


# ---- failures


@pytest.mark.parametrize("bad", range(ROWS))
@pytest.mark.parametrize(
    "error", [Boom("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit(), StopIteration(), TypeError("not iterable")], ids=repr
)
def test_a_failing_transform_ends_the_pass_and_loses_nothing(bad: int, error: BaseException) -> None:
    transform = raising(error, bad)
    dataset = make(transform=transform)
    iterator = iter(dataset)
    rows = []
    with pytest.raises(TransformError if isinstance(error, StopIteration) else type(error)) as failure:
        while True:
            rows.append(next(iterator))
    if isinstance(error, Exception):
        assert rows == SEQUENCE[: SEQUENCE.index(bad)], "every row before the bad one arrives (DLV-7)"
    assert received(dataset) == len(rows)
    for _ in range(2):
        with pytest.raises(IteratorFailedError):
            next(iterator)
    transform.armed.clear()  # type: ignore[attr-defined]
    assert rows + list(dataset) == SEQUENCE, "a new iterator continues, though the exception and the old iterator are kept (DLV-4, DLV-6)"
    del failure


@pytest.mark.parametrize("batch_size", range(1, 8))
@pytest.mark.parametrize("bad", range(0, ROWS, 5))
def test_a_failing_transform_under_a_dataloader(batch_size: int, bad: int) -> None:
    transform = raising(Boom(), bad)
    dataset = make(transform=transform)
    batches = iter(DataLoader(dataset, batch_size=batch_size, collate_fn=list))
    rows: list[int] = []
    with pytest.raises(Boom):
        for batch in batches:
            rows += batch
    assert rows == SEQUENCE[: SEQUENCE.index(bad) // batch_size * batch_size]
    assert received(dataset) == len(rows)
    with pytest.raises(IteratorFailedError):
        next(batches)
    assert received(dataset) == len(rows)
    transform.armed.clear()  # type: ignore[attr-defined]
    rows += itertools.chain.from_iterable(DataLoader(dataset, batch_size=3, collate_fn=list))
    assert rows == SEQUENCE


@given(
    batch_size=st.integers(1, 9),
    bad=st.integers(0, ROWS - 1),
    error=st.sampled_from([Boom, KeyboardInterrupt, SystemExit, StopIteration]),
    keep=st.booleans(),
    resume=st.integers(1, 9),
)
def test_a_failing_collate_fn_loses_nothing(batch_size: int, bad: int, error: type[BaseException], keep: bool, resume: int) -> None:
    """Not the rows of the batch that never arrived, not by going on with the same iterator, not by keeping it and its exception."""
    armed = [True]

    def collate(rows: list[dict[str, int]]) -> list[int]:
        if armed and bad in ids(rows):
            raise error
        return ids(rows)

    dataset = make()
    batches = iter(DataLoader(dataset, batch_size=batch_size, collate_fn=collate))
    rows: list[int] = []
    failure = None
    try:
        for batch in batches:
            rows += batch
    except BaseException as caught:
        assert isinstance(caught, TransformError if error is StopIteration else error)
        failure = caught
    assert rows == SEQUENCE[: SEQUENCE.index(bad) // batch_size * batch_size]
    state = dataset.state_dict()
    assert received(dataset) == len(rows)
    armed.clear()
    with pytest.raises(IteratorFailedError):
        next(batches)
    assert dataset.state_dict() == state
    if not keep:
        del batches, failure
    fresh = make(partial_cycle="exact")
    fresh.load_state_dict(state)
    for continued in (dataset, fresh):
        rest = list(itertools.chain.from_iterable(DataLoader(continued, batch_size=resume, collate_fn=ids)))
        assert rows + rest == SEQUENCE


def test_moves_are_refused_while_a_batch_is_being_made() -> None:
    """DLV-4: from inside collate_fn, and from another thread, the iterator is alive; the run goes on undisturbed."""
    dataset = make()
    state = dataset.state_dict()
    moves = [lambda: iter(dataset), lambda: dataset.load_state_dict(state), lambda: dataset.set_epoch(3), dataset.rewind]
    refused: list[str] = []

    def try_all() -> None:
        for move in moves:
            try:
                move()
            except IteratorAliveError as error:
                refused.append(error.code)

    def collate(rows: Any) -> list[int]:
        try_all()
        thread = threading.Thread(target=try_all)
        thread.start()
        thread.join()
        return ids(rows)

    assert list(itertools.chain.from_iterable(DataLoader(dataset, batch_size=5, collate_fn=collate))) == SEQUENCE
    assert len(refused) == 5 * 8


def test_an_iterator_that_was_overtaken_is_over() -> None:
    """Interrupted before the first row of a batch, so that nothing is lost; a newer iterator takes over; the old one must not go on."""
    dataset = make()
    batches = iter(DataLoader(dataset, batch_size=4, collate_fn=ids))
    received = next(batches)
    interrupted = []

    class Interrupting:
        def fetch(self, index: Any) -> Any:
            interrupted.append(index)
            raise KeyboardInterrupt

    fetcher = batches._dataset_fetcher  # type: ignore[attr-defined]
    batches._dataset_fetcher = Interrupting()  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    batches._dataset_fetcher = fetcher  # type: ignore[attr-defined]
    newer = iter(dataset)
    with pytest.raises(IteratorFailedError):
        next(batches)
    assert received + ids(newer) == SEQUENCE
    assert len(interrupted) == 1


@pytest.mark.parametrize("rows", range(1, 8))
@pytest.mark.parametrize("batch_size", range(1, 5))
@pytest.mark.parametrize("collected", range(4))
def test_interrupted_between_two_rows_of_a_batch(rows: int, batch_size: int, collected: int) -> None:
    """Ctrl-C in torch's own loop after so many rows of a batch, tails included: the same iterator must not lose them (TRM-8)."""
    dataset = StreamingDataset(numbered_table(rows), num_splits=1, shuffle=False)
    for batches_before in range(rows // batch_size + 1):
        dataset.rewind()
        batches = iter(DataLoader(dataset, batch_size=batch_size, collate_fn=ids))
        received = [row for _ in range(batches_before) for row in next(batches)]

        def interrupt(frame: Any, event: str, argument: Any) -> Any:
            if frame.f_code.co_name != "fetch":
                return None

            def at_line(frame: Any, event: str, argument: Any) -> Any:
                if event == "line" and len(frame.f_locals.get("data", ())) == collected:
                    sys.settrace(None)
                    raise KeyboardInterrupt
                return at_line

            return at_line

        previous = sys.gettrace()
        sys.settrace(interrupt)
        try:
            received += next(batches, [])
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(previous)
        if interrupted and collected:
            assert dataset.samples_remaining == rows - len(received)
            with pytest.raises(IteratorFailedError):
                next(batches)
        del batches
        assert dataset.samples_remaining == rows - len(received)
        if len(received) < rows:
            assert received + ids(dataset) == list(range(rows))


class Frame(list[str]):
    """What pandas and polars have in common: iteration goes over the names of columns, here as many as rows."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        super().__init__(name for name, values in columns.items() for _ in values)

    @property
    def columns(self) -> list[str]:
        return list(self)


@pytest.mark.parametrize(
    "result",
    [
        lambda b: b,
        lambda b: b.to_pydict(),
        lambda b: "x" * b.num_rows,
        lambda b: b"x" * b.num_rows,
        lambda b: None,
        lambda b: 3,
        lambda b: column(b)[1:],
        lambda b: [*column(b), 1],
        lambda b: b.column(0),
        lambda b: set(column(b)),
        lambda b: [column(b)],
        pa.table,
        lambda b: np.array(column(b)[0]),
        lambda b: torch.tensor(column(b)[0]),
        lambda b: Frame(b.to_pydict()),
    ],
    ids=["batch", "dict", "str", "bytes", "none", "int", "short", "long", "array", "set", "collated", "table", "scalar", "item", "frame"],
)
def test_a_transform_that_breaks_its_contract(result: Any) -> None:
    dataset = make(transform=result)
    with pytest.raises(TransformError, match="one output per row"):
        next(iter(dataset))
    assert received(dataset) == 0


@pytest.mark.parametrize("convert", [tuple, iter, torch.tensor, lambda v: (x for x in v)], ids=["tuple", "iterator", "tensor", "generator"])
def test_transforms_may_return_any_iterable(convert: Any) -> None:
    assert [int(row) for row in make(transform=lambda b: convert(column(b)))] == SEQUENCE


def test_a_failure_that_does_not_come_again_is_not_forgiven() -> None:
    """DLV-7: no row is bad by itself, so the exception is raised and no row of the batch is delivered; the next pass delivers them."""
    calls = []

    def flaky(batch: pa.RecordBatch) -> list[int]:
        calls.append(batch.num_rows)
        if len(calls) == 2:
            raise OSError("network")
        return column(batch)

    dataset = StreamingDataset(numbered_table(1000), num_splits=1, shuffle=False, transform=flaky)
    rows = []
    with pytest.raises(OSError, match="network"):
        for row in dataset:
            rows.append(row)
    assert len(rows) == calls[0]
    assert rows + list(dataset) == list(range(1000))


def test_a_transform_sees_consecutive_rows_in_order() -> None:
    seen: list[int] = []
    dataset = StreamingDataset(numbered_table(1000), num_splits=4, shuffle_seed=1, transform=lambda b: seen.extend(column(b)) or column(b))  # type: ignore[func-returns-value]
    rows = list(dataset)
    assert seen == rows
    assert len(set(rows)) == 1000


def test_a_failing_read_ends_the_pass() -> None:
    dataset = make(num_splits=1)
    take = dataset._position.standing.source.take

    def failing(rows: Any) -> Any:
        if rows[0] >= 16:
            raise OSError("storage is gone")
        return take(rows)

    dataset._position.standing.source.take = failing  # type: ignore[method-assign]
    rows = []
    with pytest.raises(OSError, match="storage is gone"):
        for row in dataset:
            rows.append(row["id"])
    assert rows == SEQUENCE_OF_ONE_SPLIT[:16]
    dataset._position.standing.source.take = take  # type: ignore[method-assign]
    assert rows + ids(dataset) == SEQUENCE_OF_ONE_SPLIT


SEQUENCE_OF_ONE_SPLIT = list(range(ROWS))


# ---- a plain DataLoader


@pytest.mark.parametrize("stopping", [1, 3, 6])
@pytest.mark.parametrize("kind", [StreamingDataLoader, DataLoader, partial(DataLoader, drop_last=True)], ids=["ours", "plain", "drop_last"])
def test_a_collate_fn_that_raises_stop_iteration_loses_no_row(stopping: int, kind: Any) -> None:
    """DLV-5, DLV-6: torch's loop would end without a word. It is an error, and the next pass, or a resume, begins with that batch."""
    calls = itertools.count(1)

    def collate(rows: list[dict[str, int]]) -> list[int]:
        if next(calls) == stopping:
            raise StopIteration
        return ids(rows)

    dataset = make()
    loader = kind(dataset, batch_size=4, collate_fn=collate)
    first: list[int] = []
    with pytest.raises(TransformError, match="collate_fn raised StopIteration"):
        for batch in loader:
            first += batch
    assert first == SEQUENCE[: 4 * (stopping - 1)]
    assert dataset.samples_remaining == len(SEQUENCE) - len(first) > 0
    resumed = make()
    resumed.load_state_dict(dataset.state_dict())
    assert first + ids(resumed) == SEQUENCE
    assert first + [row for batch in loader for row in batch] == SEQUENCE
    assert dataset.samples_remaining == 0


@pytest.mark.parametrize("batch_size", [None, *range(1, 26)])
def test_the_same_batches_as_torch_would_make(batch_size: int | None) -> None:
    table = connection().create_table(
        "typed", pa.table({"i": range(ROWS), "x": [i / 2 for i in range(ROWS)], "s": [str(i) for i in range(ROWS)]}), mode="overwrite"
    )
    arguments = {"num_splits": 4, "shuffle_seed": 3}
    rows = list(StreamingDataset(table, **arguments))

    class Plain(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(rows)

    ours = list(DataLoader(StreamingDataset(table, **arguments), batch_size=batch_size))
    for batch, expected in itertools.zip_longest(ours, DataLoader(Plain(), batch_size=batch_size)):
        assert repr(batch) == repr(expected)


@pytest.mark.parametrize("batch_size", range(1, 26))
def test_a_dropped_tail_counts_with_the_end(batch_size: int) -> None:
    """DLV-2: with drop_last the epoch ends, and the next pass is the next epoch, not the tail again and for ever."""
    dataset = make()
    loader = DataLoader(dataset, batch_size=batch_size, drop_last=True, collate_fn=ids)
    for epoch in range(3):
        rows = []
        for batch in loader:
            rows += batch
            assert received(dataset) == (len(rows) if ROWS - len(rows) >= batch_size else ROWS)
        assert rows == SEQUENCE[: ROWS // batch_size * batch_size]
        assert dataset.epoch == epoch
        assert received(dataset) == ROWS


@pytest.mark.parametrize("batch_size", range(1, 9))
@pytest.mark.parametrize("stop", range(6))
def test_a_break_keeps_the_delivered_batches_only(batch_size: int, stop: int) -> None:
    dataset = make()
    rows: list[int] = []
    for batch in itertools.islice(DataLoader(dataset, batch_size=batch_size, collate_fn=ids), stop):
        rows += batch
    assert received(dataset) == len(rows) == min(stop * batch_size, ROWS)
    rest = list(itertools.chain.from_iterable(DataLoader(dataset, batch_size=5, collate_fn=ids)))
    assert rest == SEQUENCE[len(rows) :] or (len(rows) == ROWS and rest == SEQUENCE and dataset.epoch == 1)


def test_the_state_inside_collate_fn_and_from_another_thread() -> None:
    """Only what was handed over counts (DLV-8, scenario 11)."""
    dataset = make()
    inside: list[int] = []

    def collate(rows: Any) -> Any:
        thread = threading.Thread(target=lambda: inside.append(received(dataset)))
        thread.start()
        thread.join()
        inside.append(received(dataset))
        assert dataset.state_dict()["partial_cycle_splits"] == [0, 1, 2, 3][: received(dataset) % 4]
        return rows

    list(DataLoader(dataset, batch_size=6, collate_fn=collate))
    assert inside == [0, 0, 6, 6, 12, 12, 18, 18]


def test_wrapped_datasets_count_rows_as_they_are_taken() -> None:
    """DLV-3: through a wrapper batches are not ours to count; nothing breaks, and nothing is counted twice."""
    dataset = make()

    class Wrapper(IterableDataset[Any]):
        def __iter__(self) -> Any:
            for row in dataset:
                if row["id"] % 2:
                    yield row

    batches = iter(DataLoader(Wrapper(), batch_size=3, collate_fn=ids))
    rows = next(batches)
    assert rows == [i for i in SEQUENCE if i % 2][:3]
    assert received(dataset) == SEQUENCE.index(rows[-1]) + 1


def test_a_torch_without_the_known_shape_counts_rows_handed_out(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """DLV-3 (c), and it is said."""
    known = torch.utils.data.dataloader._SingleProcessDataLoaderIter
    monkeypatch.setattr(torch.utils.data.dataloader, known.__name__, type("_Renamed", (known,), {}))
    dataset = make()
    batches = iter(DataLoader(dataset, batch_size=5, collate_fn=ids))
    next(batches)
    assert received(dataset) == 5
    assert [row for batch in batches for row in batch] == SEQUENCE[5:]
    assert "unknown shape" in caplog.text


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_a_forked_worker_is_refused_at_the_first_row() -> None:
    """WRK-16: a fork before the error is torch's doing; Lance is not touched in the child."""
    with pytest.raises(ForkedError, match="StreamingDataLoader"):
        next(iter(DataLoader(make(), batch_size=2, num_workers=1, multiprocessing_context="fork")))


# ---- one iterator


def test_moves_are_refused_while_a_pass_has_rows_left() -> None:
    """DLV-4: and not before its first row, nor after its last one."""
    dataset = make()
    state = dataset.state_dict()
    moves = (lambda: dataset.load_state_dict(state), lambda: dataset.set_epoch(0), dataset.rewind)
    first = iter(dataset)
    for move in moves:
        move()
    assert [next(first)["id"] for _ in range(3)] == SEQUENCE[:3]
    for move in moves:
        with pytest.raises(IteratorAliveError, match="close"):
            move()
    first.close()
    assert next(first, "over") == "over"
    assert ids(dataset) == SEQUENCE[3:]
    second = iter(dataset)
    assert [next(second)["id"] for _ in range(ROWS)] == SEQUENCE
    for move in moves:
        move()


TRANSPORTS: dict[str, Callable[[StreamingDataset], Any]] = {
    "bare": lambda dataset: ([row["id"]] for row in dataset),
    "plain": lambda dataset: iter(DataLoader(dataset, batch_size=2, collate_fn=ids)),
    "plain, drop_last": lambda dataset: iter(DataLoader(dataset, batch_size=2, collate_fn=ids, drop_last=True)),
    "plain, rows": lambda dataset: iter(DataLoader(dataset, batch_size=None, collate_fn=lambda row: [row["id"]])),
    "ours": lambda dataset: iter(StreamingDataLoader(dataset, batch_size=2, collate_fn=ids)),
}
HELD = {name: transport for name, transport in TRANSPORTS.items() if name != "bare"} | {"bare": iter}


def rows_of(item: Any) -> list[int]:
    return [item["id"]] if isinstance(item, dict) else item


@pytest.mark.parametrize("older", HELD)
@pytest.mark.parametrize("newer", HELD)
def test_newest_wins(older: str, newer: str, caplog: pytest.LogCaptureFixture) -> None:
    """DLV-4, across transports: the newer pass goes on behind the rows received, the older iterator says so for ever."""
    dataset = make()
    first = HELD[older](dataset)
    rows = [*rows_of(next(first)), *rows_of(next(first))]
    before = len(rows)
    second = HELD[newer](dataset)
    assert len([record for record in caplog.records if "ended by a newer iterator" in record.message]) == 1
    state = dataset.state_dict()
    for _ in range(2):
        with pytest.raises(IteratorSupersededError, match="0 rows"):
            next(first)
    assert dataset.state_dict() == state
    more = rows_of(next(second))
    with pytest.raises(IteratorSupersededError, match=f"{len(more)} rows"):
        next(first)
    rows += more
    for item in second:
        rows += rows_of(item)
    assert rows == SEQUENCE
    with pytest.raises(IteratorSupersededError, match=f"{ROWS - before} rows"):
        next(first)
    assert next(second, None) is None


@pytest.mark.parametrize("transport", HELD)
def test_an_iterator_that_was_never_asked_holds_and_uses_up_nothing(transport: str, caplog: pytest.LogCaptureFixture) -> None:
    """DLV-4: not the place, no thread, and no request of set_epoch."""
    dataset = make()
    assert len(ids(dataset)) == ROWS
    dataset.set_epoch(0)
    unasked = HELD[transport](dataset)
    assert live_readers() == 0
    again = HELD[transport](dataset)
    with pytest.raises(IteratorSupersededError):
        next(unasked)
    assert next(again, None) is None, "the epoch that was asked for is completed"
    assert dataset.epoch == 0
    waiting = HELD[transport](dataset)
    dataset.set_epoch(5)
    assert rows_of(next(waiting)) == SEQUENCE[: len(rows_of(next(HELD[transport](make()))))]
    assert dataset.epoch == 5
    assert not [record for record in caplog.records if "ended by a newer iterator" in record.message]


@pytest.mark.parametrize("transport", HELD)
def test_a_pass_with_nothing_left_is_over_at_once(transport: str) -> None:
    """DLV-4: `for _ in range(len(loader)): next(it)`, and then the next epoch, though nobody has heard StopIteration."""
    dataset = make()
    iterators = []
    for epoch in range(3):
        iterators.append(HELD[transport](dataset))
        rows: list[int] = []
        while len(rows) < ROWS:
            rows += rows_of(next(iterators[-1]))
        assert rows == SEQUENCE
        assert (dataset.epoch, dataset.samples_remaining) == (epoch, 0)
        dataset.load_state_dict(dataset.state_dict())
    assert [next(iterator, None) for iterator in iterators] == [None] * 3, "also after newer passes"
    assert live_readers() == 0


def test_a_tail_that_torch_drops_is_nothing_left() -> None:
    """DLV-4, with drop_last: seven rows, batches of three."""
    dataset = StreamingDataset(numbered_table(7), num_splits=1, shuffle=False)
    batches = iter(DataLoader(dataset, batch_size=3, collate_fn=ids, drop_last=True))
    assert [next(batches), next(batches)] == [[0, 1, 2], [3, 4, 5]]
    dataset.set_epoch(1)
    assert next(iter(DataLoader(dataset, batch_size=3, collate_fn=ids, drop_last=True))) == [0, 1, 2]
    assert next(batches, None) is None


def test_a_refused_iterator_ends_nothing() -> None:
    """DLV-4: all checks come first."""
    dataset = make(epoch=2**63 - 1)
    last = iter(dataset)
    rows = [next(last)["id"] for _ in range(ROWS)]
    with pytest.raises(ArgumentValueError, match="epoch"):
        iter(dataset)
    assert rows == SEQUENCE
    dataset = make(num_splits=4)
    loader = StreamingDataLoader(dataset, batch_size=1, collate_fn=ids)
    batches = iter(loader)
    received_rows = next(batches)
    refused = StreamingDataLoader(dataset, batch_size=1, num_workers=2, collate_fn=ids)
    with pytest.raises(PartialCycleStartError):
        iter(refused)
    for batch in batches:
        received_rows += batch
    assert received_rows == SEQUENCE


def test_closing_the_loader_or_the_dataset_ends_the_pass() -> None:
    dataset = make()
    loader = StreamingDataLoader(dataset, batch_size=2, collate_fn=ids)
    loader.close()
    rows = []
    for close in (loader.close, dataset.close):
        batches = iter(loader)
        rows += next(batches)
        close()
        dataset.load_state_dict(dataset.state_dict())
        assert next(batches, None) is None
    plain = iter(DataLoader(dataset, batch_size=2, collate_fn=ids))
    rows += next(plain)
    dataset.close()
    dataset.set_epoch(0)
    assert next(plain, None) is None
    assert len(rows) == 6


def test_a_kept_exception_does_not_hold_the_place() -> None:
    kept: list[BaseException] = []

    def train(dataset: StreamingDataset, batches: Any) -> None:
        for _ in batches:
            raise Boom

    dataset = make()
    for batches in (dataset, DataLoader(dataset, batch_size=3)):
        try:
            train(dataset, batches)
        except Boom as error:
            kept.append(error)
    first = iter(dataset)
    next(first)
    try:
        dataset.rewind()
    except IteratorAliveError as error:
        kept.append(error)
    del first
    dataset.set_epoch(0)
    assert ids(dataset) == SEQUENCE[5:]
    assert len(kept) == 3


def test_looking_at_the_stack_keeps_nothing_alive() -> None:
    """Neither a creation nor a refused move prolongs the life of a caller's variables; judged without the garbage collector."""
    dataset = make()
    gc.collect()
    gc.disable()
    try:

        def collate(rows: Any) -> Any:
            with pytest.raises(IteratorAliveError):
                dataset.set_epoch(1)
            return len(rows)

        def use() -> list[weakref.ref[Any]]:
            batches = iter(DataLoader(dataset, batch_size=5, collate_fn=collate))
            next(batches)
            kept = weakref.ref(batches)
            del batches
            rows = iter(dataset)
            next(rows)
            with pytest.raises(IteratorAliveError):
                dataset.rewind()
            marker = threading.Event()
            rows.close()
            another = iter(dataset)
            next(another)
            return [kept, weakref.ref(marker), weakref.ref(rows), weakref.ref(another)]

        assert [reference() for reference in use()] == [None] * 4
        assert len(ids(dataset)) == ROWS - 7
    finally:
        gc.enable()


def test_no_thread_outlives_its_pass() -> None:
    gc.collect()
    dataset = StreamingDataset(numbered_table(5000), num_splits=4, shuffle_seed=1, transform=raising(Boom(), -1))
    for end in ("exhaust", "break", "close", "drop"):
        iterator = iter(dataset)
        next(iterator)
        if end == "exhaust":
            list(iterator)
        elif end == "close":
            iterator.close()
        for thread in [t for t in threading.enumerate() if t.name.startswith("streaming-read")]:
            if end in ("exhaust", "close"):
                thread.join(timeout=10)
        del iterator
        for thread in [t for t in threading.enumerate() if t.name.startswith("streaming-read")]:
            thread.join(timeout=10)
        assert live_readers() == 0, end


def test_an_interrupt_while_the_reader_starts_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the exception is kept: at exit nobody would wake the thread."""
    submit = ThreadPoolExecutor.submit

    def interrupted(*arguments: Any) -> Any:
        submit(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    dataset = make()
    with pytest.raises(KeyboardInterrupt) as kept:
        next(iter(dataset))
    for thread in [t for t in threading.enumerate() if t.name.startswith("streaming-read")]:
        thread.join(timeout=10)
    assert live_readers() == 0
    monkeypatch.undo()
    assert ids(dataset) == SEQUENCE
    del kept

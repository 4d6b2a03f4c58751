"""Real worker processes: the simulation is right about them, they fail and end as promised (WRK-14 to WRK-19)."""

from __future__ import annotations

import copy
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest
from torch.utils.data import ChainDataset, DataLoader

from model import workers as pool
from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import (
    IteratorFailedError,
    PickleError,
    ShardedTwiceError,
    TransformError,
    UnknownPlaceError,
    VersionError,
    WorkerFailedError,
)
from streaming.loader import _worker_died
from tests.frameworks import DataLoaderDispatcher, IterableDatasetShard
from tests.integration import jobs
from tests.support import numbered_table, settings
from tests.test_batches import same

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore:This DataLoader will create")]
ROWS = 24


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Any:
    """No process and no thread outlives a test; the forkserver and its tracker stay for the next one."""
    yield
    deadline = time.monotonic() + 10
    while (left := processes_and_threads()) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert left == []


def processes_and_threads() -> list[str]:
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith(("streaming-read", "QueueFeeder"))]
    return threads + [process.name for process in multiprocessing.active_children()]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return lancedb.connect(tmp_path).create_table("t", pa.table({"id": range(ROWS)}))


def make(table: Any = None, **arguments: Any) -> StreamingDataset:
    return StreamingDataset(numbered_table(ROWS) if table is None else table, **{"num_splits": 4, "shuffle_seed": 1, **arguments})


@pytest.mark.parametrize(
    ("method", "mode"),
    [("forkserver", "splits"), ("forkserver", "batches"), ("spawn", "splits"), ("fork", "batches"), (None, "splits")],
)
def test_real_workers_do_what_the_model_says(method: str | None, mode: str, table: Any) -> None:
    """As the simulation does in tests/test_workers.py: batches, states and turn, across a break; fork is never taken."""
    filtered = make(table, filter="id >= 0", columns=["id"])
    model = pool.start(pool.open_pool(settings(ROWS, num_splits=4)), 2, mode, 5)
    context = None if method is None else multiprocessing.get_context(method)
    processes = set()
    for stop in (3, 99):
        loader = StreamingDataLoader(
            filtered, batch_size=5, num_workers=2, worker_sharding=mode, collate_fn=jobs.with_process, multiprocessing_context=context
        )
        for batch, process in itertools.islice(loader, stop):
            processes.add(process)
            model, expected = pool.deliver(model)
            assert tuple(batch) == expected
            if model.place is None:
                ours, theirs = filtered.state_dict(), pool.save(model)
                assert {key: ours[key] for key in ("samples_consumed_per_split", "partial_cycle_splits")} == {
                    key: theirs[key] for key in ("samples_consumed_per_split", "partial_cycle_splits")
                }
        if stop == 3:
            model = pool.start(pool.close(model), 2, mode, 5)
    assert pool.deliver(model)[1] is None
    assert os.getpid() not in processes
    assert len(processes) == 4, "two workers, twice"


def test_in_memory_tables_travel_as_their_rows() -> None:
    deleted = lancedb.connect("memory://").create_table("gaps", pa.table({"id": range(40)}))
    deleted.delete("id % 5 = 0")
    deleted.add(pa.table({"id": range(100, 104)}))
    pinned = StreamingDataset(deleted, num_splits=4, shuffle_seed=1, filter="id % 2 = 0", version=3)
    deleted.delete("id > 10")
    expected = [row["id"] for row in pinned]
    assert len(expected) == 16
    pinned.rewind()
    loader = StreamingDataLoader(pinned, batch_size=3, num_workers=2, worker_sharding="batches", collate_fn=jobs.with_process)
    assert [row for batch, _ in loader for row in batch] == expected


def test_rows_alone_init_function_and_factory(tmp_path: Path, table: Any) -> None:
    dataset = make(table, connection_factory=jobs.Reopen(str(tmp_path)))
    loader = StreamingDataLoader(dataset, batch_size=None, num_workers=2, collate_fn=jobs.process_of_row)
    rows = list(loader)
    assert len(loader) == len(rows) == ROWS
    assert {row for row, _ in rows} == set(range(ROWS))
    loader = StreamingDataLoader(dataset, batch_size=6, num_workers=2, worker_init_fn=jobs.seen_by_init, collate_fn=jobs.with_environment)
    assert list(loader) == ["0", "1", "0", "1"]


@pytest.mark.parametrize(
    ("mode", "collate", "error"),
    [
        ("splits", jobs.raise_value_error, ValueError),
        ("splits", jobs.raise_system_exit, WorkerFailedError),
        ("batches", jobs.raise_keyboard_interrupt, WorkerFailedError),
        ("batches", jobs.raise_stop_iteration, TransformError),
        ("splits", jobs.kill_itself, WorkerFailedError),
        ("batches", jobs.cannot_be_sent, TypeError),
        ("batches", jobs.raise_stupid_error, RuntimeError),
    ],
)
def test_failures_in_workers(mode: str, collate: Any, error: type[Exception], table: Any) -> None:
    """A clear error in seconds; the batches before arrive, unless a killed process takes its own with it; nothing is lost."""
    dataset = make(table)
    arguments = {"batch_size": 4, "num_workers": 2, "worker_sharding": mode}
    received: list[int] = []
    began = time.monotonic()
    iterator = iter(StreamingDataLoader(dataset, collate_fn=collate, **arguments))
    with pytest.raises(error) as failure:
        while True:
            received += next(iterator)[0]
    assert time.monotonic() - began < 60
    assert (failure.type is WorkerFailedError) == (error is WorkerFailedError)
    assert 10 not in received
    with pytest.raises(IteratorFailedError):
        next(iterator)
    assert dataset.samples_remaining == ROWS - len(received)
    assert multiprocessing.active_children() == [], "ended, though exception and iterator are kept"
    floor = dataset.floor_state_dict()
    received += [row for batch, _ in StreamingDataLoader(dataset, collate_fn=jobs.with_process, **arguments) for row in batch]
    assert sorted(received) == list(range(ROWS))
    other = make(table)
    other.load_state_dict(floor)
    assert len(list(other)) == ROWS - 4 * floor["samples_consumed_per_split"][0]
    del failure


@pytest.mark.parametrize("mode", ["splits", "batches"])
def test_a_last_batch_that_cannot_be_sent_is_not_skipped(mode: str, table: Any) -> None:
    """WRK-14: torch drops what its queue cannot pickle, and goes on with the next worker; nothing behind it may be counted."""
    dataset = make(table)
    received: list[int] = []
    with pytest.raises(TypeError, match="cannot be sent"):
        for batch, _ in StreamingDataLoader(dataset, batch_size=11, num_workers=2, worker_sharding=mode, collate_fn=jobs.cannot_be_sent):
            received += batch
    assert dataset.samples_remaining == ROWS - len(received)
    rest = StreamingDataLoader(dataset, batch_size=11, num_workers=2, worker_sharding=mode, collate_fn=jobs.with_process)
    received += [row for batch, _ in rest for row in batch]
    assert sorted(received) == list(range(ROWS))
    with pytest.raises(RuntimeError, match="requires"):
        next(iter(StreamingDataLoader(make(table), batch_size=3, num_workers=1, collate_fn=jobs.needs_gradient)))


def test_a_failing_transform_in_a_worker(table: Any) -> None:
    """The rows before the bad one are delivered as far as they fill batches (DLV-7)."""
    dataset = make(table, transform=jobs.transform_10_fails)
    order = [row["id"] for row in make(table)]
    received: list[int] = []
    with pytest.raises(ValueError, match="bad row"):
        for batch, _ in StreamingDataLoader(dataset, batch_size=2, num_workers=1, collate_fn=jobs.with_process):
            received += batch
    assert received == order[: order.index(10) // 2 * 2]


def test_a_timeout_and_an_interrupt(table: Any) -> None:
    dataset = make(table)
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=2, collate_fn=jobs.sleep, timeout=2, worker_sharding="batches")
    received: list[int] = []
    with pytest.raises(RuntimeError, match="timed out"):
        for batch, _ in loader:
            received += batch
    timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=2, collate_fn=jobs.sleep, worker_sharding="batches")
    with pytest.raises(KeyboardInterrupt):
        for batch, _ in loader:
            received += batch
    timer.join()
    assert received == [row["id"] for row in make(table)][: len(received)]
    assert dataset.state_dict()["samples_consumed_per_split"] == [len(received) // 4] * 4
    received += [row["id"] for row in dataset]
    assert sorted(received) == list(range(ROWS))


def test_a_collate_fn_that_holds_the_dataset_does_not_hide_the_place(table: Any) -> None:
    dataset = make(table)
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=1, collate_fn=jobs.HoldsDataset(dataset))
    next(iter(loader))
    assert dataset.state_dict()["samples_consumed_per_split"] == [1] * 4


def test_another_table_under_the_same_name_is_noticed(tmp_path: Path, table: Any) -> None:
    """ARG-17."""
    other = tmp_path / "other"
    lancedb.connect(other).create_table("t", pa.table({"id": range(100, 100 + ROWS + 1)}))
    dataset = make(table, connection_factory=jobs.Reopen(str(other)))
    with pytest.raises(ValueError, match="another table"):
        next(iter(StreamingDataLoader(dataset, batch_size=4, num_workers=1, collate_fn=jobs.with_process)))


def test_workers_that_ignore_sigterm_end_too(table: Any) -> None:
    arguments = {"batch_size": 4, "num_workers": 1, "timeout": 3, "worker_init_fn": jobs.ignore_sigterm}
    with pytest.raises(RuntimeError, match="timed out"):
        list(StreamingDataLoader(make(table), collate_fn=jobs.sleep, **arguments))


def test_what_cannot_travel_is_named(table: Any) -> None:
    for arguments, name in (({"collate_fn": lambda rows: rows}, "collate_fn"), ({"worker_init_fn": lambda number: None}, "worker_init_fn")):
        with pytest.raises(PickleError, match=name):
            iter(StreamingDataLoader(make(table), num_workers=2, **arguments))
    with pytest.raises(PickleError, match="transform"):
        iter(StreamingDataLoader(make(table, transform=lambda batch: batch.to_pylist()), num_workers=2))


def test_a_wrapped_dataset_travels_too(table: Any) -> None:
    """WRK-19 through torch's own wrapper; a dataset that only a collate_fn holds delivers nothing there."""
    dataset, bystander = make(table), make(table)
    wrapped = DataLoader(
        ChainDataset([dataset]), batch_size=3, num_workers=1, collate_fn=jobs.HoldsDataset(bystander), multiprocessing_context="forkserver"
    )
    assert len(list(wrapped)) == ROWS // 3
    with pytest.raises(UnknownPlaceError):
        dataset.state_dict()
    assert bystander.state_dict() == make(table).state_dict()


def test_a_plain_iterator_that_lives_on_is_not_forgotten(table: Any) -> None:
    """WRK-19: it delivers what its workers have, whatever the dataset was asked for in the meantime."""
    dataset = make(table)
    arguments: dict[str, Any] = {
        "batch_size": 4,
        "num_workers": 1,
        "collate_fn": jobs.with_process,
        "multiprocessing_context": "forkserver",
    }
    plain, persistent = DataLoader(dataset, **arguments), DataLoader(dataset, persistent_workers=True, **arguments)
    list(persistent)
    held = iter(plain)
    for loader, epoch in ((persistent, 1), (held, 2)):
        dataset.set_epoch(epoch)
        next(iter(loader))
        for place in (dataset, pickle.loads(pickle.dumps(dataset))):
            with pytest.raises(UnknownPlaceError, match="persistent_workers"):
                place.state_dict()
    list(held)
    del loader, persistent
    with pytest.raises(UnknownPlaceError):  # what they delivered since the last move is not counted
        dataset.state_dict()
    dataset.set_epoch(3)
    assert dataset.state_dict()["epoch"] == 3


def test_wrappers_that_divide_among_ranks_are_seen_with_workers(table: Any) -> None:
    """ASG-7: one iterates the dataset in the worker, the other lets it travel there."""
    dataset = make(table, rank=0, world_size=2)
    arguments = {"batch_size": 2, "num_workers": 1, "collate_fn": jobs.with_process, "multiprocessing_context": "forkserver"}
    for wrapped in (DataLoader(IterableDatasetShard(dataset, 2), **arguments), DataLoaderDispatcher(dataset, **arguments)):
        with pytest.raises(ShardedTwiceError, match=r"rank=0, world_size=1"):
            next(iter(wrapped))
    dataset.set_epoch(0)
    assert len(list(dataset)) == ROWS // 2


def test_a_table_made_again_is_not_read_by_workers(tmp_path: Path) -> None:
    """WRK-17: workers open the table by its place, where another one may lie by the next epoch."""
    database = lancedb.connect(tmp_path)
    dataset = make(database.create_table("t", pa.table({"id": range(ROWS)})), filter="id < 1000")
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=1, collate_fn=jobs.with_process)
    assert len(list(loader)) == ROWS // 4
    database.drop_table("t")
    database.create_table("t", pa.table({"id": range(5000, 5000 + ROWS)}))
    with pytest.raises(VersionError, match="another table"):
        next(iter(loader))


def test_a_plain_dataloader_with_workers(table: Any) -> None:
    """WRK-19: documented order; the place is unknown until something makes it known (CAL-5)."""
    ours = [
        row for batch, _ in StreamingDataLoader(make(table), batch_size=3, num_workers=2, collate_fn=jobs.with_process) for row in batch
    ]
    dataset = make(table)
    before = dataset.state_dict()
    plain = DataLoader(dataset, batch_size=3, num_workers=2, collate_fn=jobs.with_process, multiprocessing_context="forkserver")
    assert [row for batch, _ in plain for row in batch] == ours
    with pytest.raises(UnknownPlaceError, match="StreamingDataLoader"):
        dataset.state_dict()
    assert dataset.floor_state_dict() == before
    dataset.set_epoch(0)
    assert dataset.state_dict() == before
    list(plain)
    for travelled in (copy.copy(dataset), pickle.loads(pickle.dumps(dataset))):
        with pytest.raises(UnknownPlaceError):
            travelled.state_dict()
    dataset.load_state_dict(before)
    assert dataset.state_dict() == before
    list(plain)
    assert next(iter(dataset))["id"] == ours[0]
    assert dataset.samples_remaining == ROWS - 1


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="file descriptors are counted through /proc")
def test_no_file_descriptor_leaks(table: Any) -> None:
    """After the first pass, which starts the forkserver, every further pass leaves as many as it found; ended, broken off or failed."""
    dataset = make(table)
    counts = []
    for batches in (99, 2, 99, 2, 99):
        loader = StreamingDataLoader(dataset, batch_size=4, num_workers=2, worker_sharding="batches", collate_fn=jobs.with_process)
        list(itertools.islice(loader, batches))
        gc.collect()
        deadline = time.monotonic() + 10
        # Threads of queues and of torch close theirs a moment later.
        while (count := len(os.listdir("/proc/self/fd"))) > min(counts[1:2] or [count]) and time.monotonic() < deadline:
            time.sleep(0.1)
        counts.append(count)
    assert max(counts[1:]) == counts[1], counts
    shared = [name for name in os.listdir("/dev/shm") if name.startswith("torch_")] if Path("/dev/shm").exists() else []
    assert [name for name in shared if f"torch_{os.getpid()}_" in name] == []


@pytest.mark.parametrize("layout", ["python", "torch", "numpy", "arrow"])
def test_formats_arrive_from_real_workers(layout: str, tmp_path: Path) -> None:
    """LAW-13, STA-2, BAT-8: the batches of W = 0, writable, and statistics of both workers."""
    rows = {
        "id": range(40),
        "v": [[float(i), 0.5] for i in range(40)],
        "s": [f"row {i}" for i in range(40)],
        "b": [b"x" * i for i in range(40)],
    }
    schema = pa.schema({"id": pa.int32(), "v": pa.list_(pa.float32(), 2), "s": pa.string(), "b": pa.binary()})
    stored = lancedb.connect(tmp_path).create_table("formats", pa.table(rows, schema))
    batches = {}
    for workers in (0, 2):
        dataset = StreamingDataset(stored, num_splits=4, shuffle_seed=1)
        loader = StreamingDataLoader(dataset, batch_size=6, num_workers=workers, worker_sharding="batches", format=layout)
        batches[workers] = list(loader)
        stats = loader.stats()
        assert stats.rows_received == 40
        assert stats.reads >= max(workers, 1)
        assert stats.bytes_buffered == 0
    assert len(batches[2]) == 7
    for ours, theirs in zip(batches[2], batches[0], strict=True):
        if layout == "arrow":
            assert ours.equals(theirs)
        elif layout == "numpy":
            assert [(column.dtype, column.tolist()) for column in ours.values()] == [(c.dtype, c.tolist()) for c in theirs.values()]
        else:
            assert same(ours, theirs)
        if layout != "arrow":
            ours["id"][:] = -1
            assert ours["id"].tolist() == [-1] * len(ours["id"])


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), EOFError(), FileNotFoundError(), RuntimeError("DataLoader worker (pid 3) exited")]
)
def test_what_a_dead_worker_looks_like(error: Exception) -> None:
    """WRK-14: also where the last thing that it sent cannot be fetched from it any more; not what a user's function raised there."""
    assert _worker_died(error, True)
    assert not _worker_died(error, False), "without workers it is what a user's function raised (DLV-5)"
    assert not _worker_died(type(error)("Caught it in DataLoader worker process 0."), True)

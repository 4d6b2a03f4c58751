"""Workers that die, at any moment: the trainer never waits for them, and loses nothing (WRK-14)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import SharedMemoryError, WorkerFailedError
from tests.integration import jobs

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs POSIX signals"),
]
ROWS = 24


@pytest.fixture
def dataset(tmp_path: Path) -> StreamingDataset:
    table = lancedb.connect(tmp_path).create_table("t", pa.table({"id": range(ROWS)}))
    return StreamingDataset(table, num_splits=4, shuffle_seed=1)


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Give up what would last for ever."""

    def give_up(number: int, frame: Any) -> None:
        pytest.fail("it hangs")  # no Exception, which torch would take for news of its queue

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_worker_killed_while_it_sends_a_large_batch(dataset: StreamingDataset) -> None:
    """The batches that were there arrive or not, then `worker.failed`; again and again, and every row came once."""
    received: list[int] = []
    deaths = 0
    while dataset.samples_remaining:
        iterator = iter(StreamingDataLoader(dataset, batch_size=4, num_workers=1, prefetch_factor=4, collate_fn=jobs.heavy))
        try:
            with within(120):
                rows, process, _ = next(iterator)
                received += rows
                time.sleep(0.3)  # the next batches fill the pipe, if they go through it
                with suppress(ProcessLookupError):  # with the last batch the worker ended
                    os.kill(process, signal.SIGKILL)
                for rows, _, _ in iterator:
                    received += rows
        except WorkerFailedError:
            deaths += 1
        assert dataset.samples_remaining == ROWS - len(received)
    assert deaths > 0
    assert sorted(received) == list(range(ROWS))


def test_a_dead_worker_is_noticed_long_before_the_timeout(dataset: StreamingDataset) -> None:
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=1, collate_fn=jobs.kill_itself, timeout=1000)
    with within(120), pytest.raises(WorkerFailedError):
        list(loader)


def test_a_worker_that_dies_after_its_last_batch(dataset: StreamingDataset) -> None:
    """Nothing is missing: that is the end, not a failure."""
    iterator = iter(StreamingDataLoader(dataset, batch_size=ROWS, num_workers=1, prefetch_factor=1, collate_fn=jobs.dies_when_idle))
    iterator.begin()
    (worker,) = iterator._inner._workers
    worker.join(120)
    assert worker.exitcode == -signal.SIGKILL
    with within(120):
        assert [sorted(batch) for batch in iterator] == [list(range(ROWS))]
    assert dataset.samples_remaining == 0
    assert dataset.state_dict()["samples_consumed_per_split"] == [ROWS // 4] * 4


def test_a_batch_for_which_there_is_no_memory(dataset: StreamingDataset) -> None:
    """An error in its place, not a bus error."""
    received: list[int] = []
    arguments = {"batch_size": 4, "num_workers": 1}
    with within(120), pytest.raises(SharedMemoryError, match="fewer rows in a batch"):
        for rows, _ in StreamingDataLoader(dataset, collate_fn=jobs.heavy_at_10, worker_init_fn=jobs.little_memory, **arguments):
            received += rows
    assert received
    assert 10 not in received
    for rows, _ in StreamingDataLoader(dataset, collate_fn=jobs.heavy_at_10, **arguments):
        received += rows
    assert sorted(received) == list(range(ROWS))


def test_a_long_error_arrives(dataset: StreamingDataset) -> None:
    with within(120), pytest.raises(ValueError, match=r"bad row x{300000}"):
        list(StreamingDataLoader(dataset, batch_size=4, num_workers=1, collate_fn=jobs.long_error))

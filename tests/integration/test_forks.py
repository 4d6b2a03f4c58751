"""A forked child holds copies of the iterators: they are over there, and what it does leaves the trainer's pass alone (WRK-16)."""

from __future__ import annotations

import itertools
import multiprocessing
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from streaming import StreamingDataLoader, StreamingDataset, StreamingError
from tests.integration import jobs
from tests.integration.test_exits import run_script

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:lancedb fork support:RuntimeWarning"),
    pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this platform"),
]
ROWS = 16  # one read: nothing is read in the background while the tests fork


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return lancedb.connect(tmp_path).create_table("t", pa.table({"id": range(ROWS)}))


def start(kind: str, table: Any) -> Any:
    """A pass that gives lists of ids."""
    dataset = StreamingDataset(table, num_splits=4, shuffle_seed=1)
    if kind == "bare":
        return map(jobs.id_alone, iter(dataset))
    if kind == "plain":
        return iter(DataLoader(dataset, batch_size=4, collate_fn=jobs.ids))
    return iter(StreamingDataLoader(dataset, batch_size=4, num_workers=int(kind), collate_fn=jobs.ids))


def in_the_child(holder: list[Any], answer: Any) -> None:
    iterator = holder.pop()
    try:
        answer.send(next(iterator))
    except StreamingError as error:
        answer.send(error.code)
    del iterator


@pytest.mark.parametrize("kind", ["bare", "plain", "0", "1", "2"])
def test_an_iterator_is_over_in_a_forked_child_and_goes_on_in_the_trainer(kind: str, table: Any) -> None:
    """Of every transport: `next()` is refused in the child, where the iterator is also dropped and the exit hooks run."""
    expected = sorted(range(ROWS))
    iterator = start(kind, table)
    received = next(iterator)
    for _ in range(2):
        answer, question = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(target=in_the_child, args=([iterator], question))
        child.start()
        assert answer.poll(30), "the child waits for a batch"
        assert answer.recv() == "process.forked"
        child.join(30)
        assert child.exitcode == 0
        received += next(iterator)
    received += itertools.chain.from_iterable(iterator)
    assert sorted(received) == expected


def test_an_ordinary_dataloader_of_forked_workers_in_mid_pass(table: Any) -> None:
    """For validation data that fit into memory, with torch's default start method."""
    received = []
    validation = DataLoader(TensorDataset(torch.arange(8)), num_workers=2, multiprocessing_context="fork")
    for batch in start("2", table):
        received += batch
        assert len(list(validation)) == 8
    assert sorted(received) == list(range(ROWS))


def test_a_forked_child_that_ends_as_a_script_does(tmp_path: Path, table: Any) -> None:
    """By `sys.exit()` after a bare `os.fork()`: then multiprocessing's own hook ends, and waits for, what it takes for its children.

    The child runs no other hook, because those of native libraries may hang after a fork.
    """
    shown = run_script(
        tmp_path,
        """
        import os, warnings
        from multiprocessing import util
        warnings.simplefilter("ignore")
        if __name__ == "__main__":
            received, processes = [], set()
            for batch, process in loader:
                received += batch
                processes.add(process)
                child = os.fork()
                if child == 0:
                    del dataset, loader
                    util._exit_function()
                    os._exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            print(sorted(received) == list(range(16)), len(processes))
        """,
    )
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "True 2\n", "")

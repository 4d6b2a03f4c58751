"""Loaders of other frameworks around a dataset, played by stand-ins: none of them loses rows silently (WRK-19).

The frameworks are not installed where these tests run. A stand-in has the name of the real class, and calls the dataset where and
as the real one does; tried by hand against torchdata 0.11.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.fetch import _IterableDatasetFetcher

from streaming import StreamingDataset
from streaming.errors import UnknownPlaceError
from tests.support import ids, numbered_table

ROWS = 24


def make(**arguments: Any) -> StreamingDataset:
    return StreamingDataset(numbered_table(ROWS), **{"num_splits": 4, "shuffle_seed": 1, **arguments})


def flat(batches: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(batches))


class StatefulWorker:
    """A worker of torchdata's StatefulDataLoader: it loads a state before it asks for rows, and makes one behind each batch."""

    def __init__(self, dataset: StreamingDataset, batch_size: int, state: Any = None, drop_last: bool = False) -> None:
        if state is not None:
            dataset.load_state_dict(state)
        self.dataset, self.indices = dataset, [None] * batch_size
        self.fetcher = _IterableDatasetFetcher(dataset, True, ids, drop_last)
        self.states = [dataset.state_dict()]

    def run(self, most: int = ROWS) -> list[list[int]]:
        batches = []
        try:
            while len(batches) < most:
                batches.append(self.fetcher.fetch(self.indices))
                self.states.append(self.dataset.state_dict())
        except StopIteration:
            self.states.append(self.dataset.state_dict())
        return batches


@pytest.fixture
def in_worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Play worker w of W of torchdata's loader, which uses torch's own record of it: ``in_worker(w, W)``."""

    def enter(number: int, workers: int) -> None:
        info = torch_worker.WorkerInfo(id=number, num_workers=workers, seed=0, dataset=None)
        monkeypatch.setattr(torch_worker, "_worker_info", info)

    return enter


@pytest.mark.parametrize("number", [0, 1])
def test_one_of_several_stateful_workers_does_not_know_the_place(number: int, in_worker: Any) -> None:
    """WRK-19: torchdata's first snapshot fails, before any row; so does every later one."""
    in_worker(number, 2)
    dataset = make()
    with pytest.raises(UnknownPlaceError, match=r"StatefulDataLoader.*use StreamingDataLoader"):
        StatefulWorker(dataset, 2)
    assert len(ids(dataset)) == ROWS // 2
    with pytest.raises(UnknownPlaceError):
        dataset.state_dict()


@pytest.mark.parametrize("batch_size", [1, 3, 4, 5, 7, 24, 99])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_only_stateful_worker_is_exact(batch_size: int, drop_last: bool, in_worker: Any) -> None:
    """WRK-19: however far it is ahead of the trainer, the state that travels with a batch is that of the rows up to it."""
    in_worker(0, 1)
    whole = ids(make())
    size = ROWS // batch_size * batch_size if drop_last else ROWS
    worker = StatefulWorker(make(), batch_size, drop_last=drop_last)
    batches = worker.run()
    assert flat(batches) == whole[:size]
    for count, state in enumerate(worker.states[: len(batches) + 1]):
        if count * batch_size < size:
            resumed = StatefulWorker(make(partial_cycle="exact"), batch_size, state, drop_last)
            assert flat(batches[:count] + resumed.run()) == whole[:size]
    assert worker.dataset.samples_remaining == 0

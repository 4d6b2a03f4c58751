"""Loaders of other frameworks around a dataset, played by the stand-ins of `tests.frameworks`: no rows go missing silently."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torch.utils.data._utils import worker as torch_worker

from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import ArgumentValueError, IteratorFailedError, ShardedTwiceError, UnknownPlaceError
from tests.frameworks import DataLoaderDispatcher, IterableDatasetShard, Passing, StatefulWorker
from tests.stateful_dataloader import StatefulDataLoader
from tests.support import ids, numbered_table

ROWS = 24


def make(**arguments: Any) -> StreamingDataset:
    return StreamingDataset(numbered_table(ROWS), **{"num_splits": 4, "shuffle_seed": 1, **arguments})


# ---- torchdata


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
    size = ROWS // batch_size * batch_size if drop_last else ROWS
    whole = ids(make())[:size]
    worker = StatefulWorker(make(), batch_size, drop_last=drop_last)
    assert worker.run() == whole
    for count, state in enumerate(worker.states):
        if count * batch_size < size:
            resumed = StatefulWorker(make(partial_cycle="exact"), batch_size, state, drop_last)
            assert whole[: count * batch_size] + resumed.run() == whole
    assert worker.dataset.samples_remaining == 0


def stateful(dataset: StreamingDataset, batch_size: int, state: Any = None) -> Any:
    loader = StatefulDataLoader(dataset, batch_size=batch_size, collate_fn=ids)
    if state is not None:
        loader.load_state_dict(state)
    return loader


@pytest.mark.parametrize("batch_size", [1, 3, 4, 5, 7, 24, 99])
def test_a_stateful_loader_without_workers_is_exact(batch_size: int) -> None:
    """DLV-2: at every batch, at the end of the data and behind it, where the next pass is the next epoch's."""
    whole, following = ids(make()), ids(make(epoch=1))
    loader = stateful(make(), batch_size)
    states = [loader.state_dict()]
    for batch in loader:
        assert batch == whole[(len(states) - 1) * batch_size :][:batch_size]
        states.append(json.loads(json.dumps(loader.state_dict())))
    for count, state in enumerate([*states, loader.state_dict()]):
        resumed = stateful(make(partial_cycle="exact"), batch_size, state)
        rows = [row for batch in resumed for row in batch]
        if count * batch_size < ROWS:
            assert rows == whole[count * batch_size :]
        elif rows:
            assert rows == following
        else:  # torchdata has seen the end of the data, but not said so yet
            assert [row for batch in resumed for row in batch] == following


def test_a_batch_that_failed_in_a_stateful_loader_is_not_received() -> None:
    """DLV-2, DLV-5."""
    whole, armed = ids(make()), [True]

    def collate(rows: Any) -> list[int]:
        if armed and whole[7] in ids(rows):
            raise ValueError("bad batch")
        return ids(rows)

    dataset = make()
    loader = StatefulDataLoader(dataset, batch_size=4, collate_fn=collate)
    batches = iter(loader)
    assert next(batches) == whole[:4]
    with pytest.raises(ValueError, match="bad batch"):
        next(batches)
    state = loader.state_dict()
    with pytest.raises(IteratorFailedError):
        next(batches)
    armed.clear()
    assert loader.state_dict() == state
    assert [row for batch in stateful(make(), 4, state) for row in batch] == whole[4:]


def test_what_a_stateful_loader_keeps_stands_in_nobodys_way() -> None:
    """DLV-4: the iterator of an early state, and that of a broken pass, which the loader itself holds on to."""
    dataset = make()
    loader = stateful(dataset, 4)
    loader.state_dict()
    dataset.set_epoch(2)  # as Accelerate does
    whole = ids(make(epoch=2))
    for batch in loader:
        assert batch == whole[:4]
        break
    assert [row for batch in loader for row in batch] == whole[4:]


# ---- Accelerate and transformers


def sharded(dataset: Any, rank: int = 0, ranks: int = 2) -> Any:
    return DataLoader(IterableDatasetShard(dataset, 3, ranks, rank), batch_size=3, collate_fn=ids)


def dispatched(dataset: Any, ranks: int = 2) -> Any:
    return DataLoaderDispatcher(dataset, ranks, batch_size=3, collate_fn=ids)


def dispatched_by_stateful(dataset: Any) -> Any:
    return DataLoaderDispatcher(dataset, stateful=True, batch_size=3, collate_fn=ids)


@pytest.mark.parametrize(
    "wrap",
    [
        sharded,
        dispatched,
        dispatched_by_stateful,
        lambda dataset: sharded(Passing(dataset)),
        lambda dataset: dispatched(Passing(dataset)),
        lambda dataset: IterableDatasetShard(StreamingDataLoader(dataset, batch_size=3, collate_fn=ids), 1),
    ],
    ids=["shard", "dispatcher", "stateful dispatcher", "shard of a wrapper", "dispatcher of a wrapper", "shard of our loader"],
)
def test_a_rank_is_not_divided_once_more(wrap: Any) -> None:
    """ASG-7: an error before the first row, and the dataset stands where it stood."""
    dataset = make(rank=1, world_size=2)
    before = dataset.state_dict()
    with pytest.raises(ShardedTwiceError, match=r"(IterableDatasetShard|DataLoaderDispatcher).*rank=0, world_size=1"):
        list(wrap(dataset))
    assert dataset.state_dict() == before
    assert ids(dataset) == ids(make(rank=1, world_size=2))


def test_what_divides_among_one_rank_is_let_through() -> None:
    """ASG-7: ranks that a framework does not know of are the user's."""
    whole = ids(make(rank=1, world_size=2))
    for wrapped in (sharded(make(rank=1, world_size=2), 0, 1), dispatched(make(rank=1, world_size=2), 1)):
        assert [row for batch in wrapped for row in batch] == whole


def test_a_framework_may_divide_what_is_not_divided() -> None:
    """ASG-7, the remedy: each row on one rank."""
    rows = [row for rank in range(2) for batch in sharded(make(rank=0, world_size=1), rank) for row in batch]
    assert sorted(rows) == list(range(ROWS))
    assert [row for batch in dispatched(make(rank=0, world_size=1)) for row in batch] == ids(make())


def test_a_framework_does_not_divide_orders_that_differ() -> None:
    """ASG-7: each process would draw a seed of its own and keep its share of another order; where rank 0 reads for all, one seed does."""
    with pytest.raises(ArgumentValueError, match="shuffle_seed") as caught:
        list(sharded(make(shuffle_seed=None)))
    assert caught.value.argument == "shuffle_seed"
    for wrapped in (
        sharded(make(shuffle=False, shuffle_seed=None), 0, 1),
        sharded(make(shuffle_seed=None), 0, 1),
        dispatched(make(shuffle_seed=None)),
    ):
        assert sorted(row for batch in wrapped for row in batch) == list(range(ROWS))
    assert len(list(sharded(make(shuffle=False, shuffle_seed=None)))) == ROWS // 6


def test_looking_for_wrappers_keeps_nothing_alive() -> None:
    """A user's generator on the stack can still let go of its variables; judged without the garbage collector."""
    marker = threading.Event()
    gone = weakref.ref(marker)
    rows = iter(Passing(make(rank=0, world_size=2), marker))
    del marker
    gc.disable()
    try:
        next(rows)
        assert gone() is None
    finally:
        gc.enable()

"""StreamingDataLoader against the model, with simulated workers (spec/workers.md).

Exhaustive: N = 13 (S = 6) and N = 8 (S = 4), every R, W 0 to 4 that is legal, both modes, batch sizes 1 to 7, every interruption;
every resuming (R, W, mode) for N = 8, a third of them in turn for N = 13. Sampled: schedules, prefetch, breaks, chains, failures,
orders of calls.
"""

from __future__ import annotations

import itertools
import math
import pickle
from collections import Counter
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torch.utils.data._utils import worker as torch_worker

from model import loader as model_loader
from streaming import StreamingDataLoader, StreamingDataset
from streaming import loader as streaming_loader
from streaming.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    IteratorAliveError,
    IteratorFailedError,
    IteratorSupersededError,
    MidStepStartError,
    PartialCycleStartError,
    TransformError,
    WorkerFailedError,
)
from tests.pool_twin import PoolTwin
from tests.simulation import simulate
from tests.support import divisors, ids, numbered_table, settings

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
MODES = ("splits", "batches")


def legal(splits: int, world_size: int, mode: str, most: int = 4) -> list[int]:
    """Worker counts that a rank may have."""
    return [w for w in range(most + 1) if mode == "batches" or w == 0 or (splits // world_size) % w == 0]


def in_turn(count: int) -> int:
    """A schedule without surprises."""
    return 0


@pytest.mark.parametrize(("rows", "splits"), [(8, 4), (13, 6)])
@pytest.mark.parametrize("mode", MODES)
def test_every_worker_count_batch_size_and_interruption(rows: int, splits: int, mode: str) -> None:
    """States, floors and batches are the model's after every batch; invariant mode does not depend on W at all (WRK-4)."""
    with pytest.MonkeyPatch.context() as patch:
        simulate(patch, in_turn)
        for world_size in divisors(splits):
            for rank in {0, world_size - 1}:
                reference: dict[tuple[int | None, int], Any] = {}
                for workers, batch_size in itertools.product(legal(splits, world_size, mode), [None, 1, 2, 3, 4, 5, 7]):
                    one = PoolTwin(settings(rows, num_splits=splits, world_size=world_size, rank=rank))
                    assert one.start(workers, mode, batch_size) is None
                    for number in itertools.count():
                        batch = one.deliver()
                        if mode == "batches":
                            seen = (batch, one.dataset.state_dict())
                            assert reference.setdefault((batch_size, number), seen) == seen
                        if batch is None:
                            break
                    assert one.dataset.samples_remaining == 0


@pytest.mark.parametrize(("rows", "splits"), [(8, 4), (13, 6)])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 5])
def test_every_resume_of_every_state(rows: int, splits: int, batch_size: int) -> None:
    """Saved by W workers on R ranks at every legal batch, resumed by W' on R': every row once, apart from the floor's and the replay's."""
    with pytest.MonkeyPatch.context() as patch:
        simulate(patch, in_turn)
        worlds = [
            (r, m, w) for r in divisors(splits) for m in MODES for w in legal(splits, r, m) if w != 1 and not (w == 0 and m == "batches")
        ]
        resumed = 0
        for world_size, mode, workers in worlds:
            ranks = [PoolTwin(settings(rows, num_splits=splits, world_size=world_size, rank=r)) for r in range(world_size)]
            for one in ranks:
                assert one.start(workers, mode, batch_size) is None
            received: list[int] = []
            while True:
                floors = [one.dataset.floor_state_dict() for one in ranks]
                assert all(state == floors[0] for state in floors), "ranks at one step (LAW-3)"
                mid_step = ranks[0].model.place is not None
                state = floors[0] if mid_step else ranks[0].dataset.state_dict()
                step = 1 if rows == 8 else 3
                for other in worlds[resumed % step :: step]:
                    resumed += 1
                    resume(rows, splits, batch_size, state, received, other)
                batches = [one.deliver() for one in ranks]
                if batches[0] is None:
                    assert batches == [None] * world_size
                    break
                received += [row for batch in batches for row in batch or ()]
            assert len(set(received)) == len(received) == rows // splits * splits
        assert resumed > 100


def resume(rows: int, splits: int, batch_size: int, state: dict[str, Any], received: list[int], world: tuple[int, str, int]) -> None:
    world_size, mode, workers = world
    rest: list[int] = []
    for rank in range(world_size):
        one = PoolTwin(settings(rows, num_splits=splits, world_size=world_size, rank=rank))
        one.change("load_state_dict", state)
        if one.dataset.samples_remaining == 0:
            continue
        assert one.start(workers, mode, batch_size) is None
        while (batch := one.deliver()) is not None:
            rest += batch
    completed = state["samples_consumed_per_split"][0] * splits
    assert len(rest) == rows // splits * splits - completed
    assert len(set(rest)) == len(rest)
    assert len(set(received) | set(rest)) == rows // splits * splits, "nothing is lost"
    assert len(set(received) & set(rest)) == len(received) - completed, "what comes twice lies beyond the completed cycles"


@given(st.data())
def test_orders_of_calls(data: st.DataObject) -> None:
    """Chains of passes with breaks, other worker counts, modes, batch sizes, schedules, prefetch; old states, epochs (WRK-8 to WRK-12)."""
    splits = data.draw(st.sampled_from([1, 2, 4, 6, 12]), label="splits")
    rows = data.draw(st.integers(splits, splits * 6 + 3), label="rows")
    world_size = data.draw(st.sampled_from(divisors(splits)), label="world_size")
    policy = data.draw(st.sampled_from(["replay", "exact"]), label="policy")
    rank = data.draw(st.integers(0, world_size - 1), label="rank")
    with pytest.MonkeyPatch.context() as patch:
        simulate(patch, lambda count: data.draw(st.integers(0, count - 1), label="schedule"))
        one = PoolTwin(settings(rows, num_splits=splits, world_size=world_size, rank=rank, partial_cycle=policy))
        states = [one.dataset.state_dict()]
        for _ in range(data.draw(st.integers(1, 6), label="passes")):
            action = data.draw(st.sampled_from(["pass", "pass", "pass", "load", "set_epoch", "rewind", "older"]), label="action")
            if action == "load":
                one.change("load_state_dict", data.draw(st.sampled_from(states), label="state"))
            elif action == "set_epoch":
                one.change("set_epoch", data.draw(st.integers(0, 2), label="epoch"))
            elif action == "rewind":
                one.change("rewind")
            elif action == "older":
                event(f"older {one.pull_older()}")
            else:
                workers = data.draw(st.integers(0, 4), label="workers")
                mode = data.draw(st.sampled_from(MODES), label="mode")
                size = data.draw(st.none() | st.integers(1, 5), label="batch_size")
                prefetch = data.draw(st.integers(1, 4), label="prefetch") if workers else None
                refusal = one.start(workers, mode, size, prefetch_factor=prefetch)
                event(f"start {refusal}")
                # Without a batch taken the iterator waits; a move may come between it and its first batch, which is then refused (CAL-4).
                if refusal is None and data.draw(st.booleans(), label="moved meanwhile"):
                    one.change("load_state_dict", data.draw(st.sampled_from(states), label="state"))
                    event(f"first batch {one.refused()}")
                if refusal is None and one.refused() is None:
                    for _ in range(data.draw(st.integers(0, 12), label="batches")):
                        if one.deliver() is None:
                            break
                    if one.model.running is not None:
                        assert one.change("set_epoch", 0) == "error iterator.alive"
                # What is left alive is superseded by the next pass.
                if one.iterator is not None and data.draw(st.booleans(), label="close"):
                    one.close(drop=data.draw(st.booleans(), label="drop"))
            states.append(one.dataset.floor_state_dict())
            if one.model.place is None:
                states.append(one.dataset.state_dict())


def test_asking_for_an_epoch_between_step_boundaries_lasts_one_pass() -> None:
    """EPO-4, WRK-11: the pass goes on where it stopped, and the one after it moves on."""
    with pytest.MonkeyPatch.context() as patch:
        simulate(patch, in_turn)
        one = PoolTwin(settings(24, num_splits=4))
        assert one.start(2, "splits", 5) is None
        one.deliver()
        one.close()
        assert one.change("set_epoch", 0) is None
        for epoch in (0, 1):
            assert one.start(2, "splits", 5) is None
            while one.deliver() is not None:
                pass
            assert one.dataset.epoch == epoch


@given(st.integers(1, 6), st.integers(2, 4), st.integers(1, 9), st.integers(1, 7), st.data())
def test_the_promised_number_of_batches(k: int, workers: int, batch_size: int, length: int, data: st.DataObject) -> None:
    """WRK-9: the message's number, the formula written here once more, and taking the batches agree, tails included."""
    splits = k * workers
    with pytest.MonkeyPatch.context() as patch:
        simulate(patch, in_turn)
        dataset = StreamingDataset(numbered_table(splits * length), num_splits=splits, shuffle=False)
        loader = StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers, collate_fn=ids)
        iterator = iter(loader)
        delivered = data.draw(st.integers(1, len(loader)), label="delivered")
        for _ in range(delivered):
            next(iterator)
        q, p, last = delivered // workers, k // math.gcd(batch_size, k), math.ceil(splits * length / (workers * batch_size))
        promised = workers * min((q // p + 1) * p, last) - delivered
        try:
            dataset.state_dict()
            event("boundary")
            return
        except RuntimeError as error:
            assert f"take {promised} more batches" in str(error)
        for step in range(promised):
            with pytest.raises(RuntimeError, match=f"take {promised - step} more"):
                loader.state_dict()
            next(iterator)
        assert loader.state_dict()["partial_cycle_splits"] == []


@pytest.fixture
def in_worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Play worker w of W of torch's plain DataLoader: ``in_worker(w, W)``."""

    def enter(number: int, workers: int) -> None:
        info = torch_worker.WorkerInfo(id=number, num_workers=workers, seed=0, dataset=None)
        monkeypatch.setattr(torch_worker, "_worker_info", info)

    return enter


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6, 7])
def test_the_rows_of_a_plain_dataloaders_workers(world_size: int, workers: int, in_worker: Any) -> None:
    """WRK-19: those of a rank of a world of R*W ranks; workers that do not divide the splits of the rank are refused."""
    for number in range(workers):
        in_worker(number, workers)
        dataset = StreamingDataset(numbered_table(30), num_splits=12, shuffle_seed=1, world_size=world_size, rank=world_size - 1)
        if (12 // world_size) % workers:
            with pytest.raises(ArgumentValueError, match=f"num_workers={workers} must divide"):
                iter(dataset)
            continue
        ranks = world_size * workers
        finer = {"world_size": ranks, "rank": (world_size - 1) * workers + number}
        one = model_loader.start(model_loader.open_loader(settings(30, num_splits=12, **finer)))
        expected = []
        for _ in range(model_loader.length(one)):
            one, row = model_loader.pull(one)
            expected.append(row)
        assert ids(dataset) == expected


def test_a_plain_dataloaders_workers_do_not_begin_in_a_partial_cycle(in_worker: Any) -> None:
    dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=1)
    next(iter(dataset))
    in_worker(0, 2)
    with pytest.raises(PartialCycleStartError):
        iter(dataset)
    in_worker(0, 1)
    assert len(ids(dataset)) == 23


def test_a_pass_of_several_workers_is_not_continued_by_others(in_worker: Any) -> None:
    """WRK-11, and the remedy (CAL-4)."""
    with pytest.MonkeyPatch.context() as patch:
        simulate(patch, in_turn)
        dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=1)
        next(iter(StreamingDataLoader(dataset, batch_size=4, num_workers=2, collate_fn=ids)))
        for call in (
            lambda: iter(dataset),
            lambda: iter(StreamingDataLoader(dataset, batch_size=4)),
            lambda: iter(StreamingDataLoader(dataset, batch_size=4, num_workers=4)),
            lambda: iter(StreamingDataLoader(dataset, batch_size=4, num_workers=2, worker_sharding="batches")),
        ):
            with pytest.raises(MidStepStartError, match="2 workers"):
                call()
        travelled = pickle.loads(pickle.dumps(dataset))
        in_worker(0, 2)
        with pytest.raises(MidStepStartError, match="2 workers"):
            iter(travelled)
        in_worker(0, 1)
        dataset.load_state_dict(dataset.floor_state_dict())
        assert len(ids(dataset)) == 24


class Overridden(StreamingDataset):
    def __iter__(self) -> Any:
        return iter(())


class Extended(StreamingDataset):
    pass


@pytest.mark.parametrize(
    ("args", "kwargs", "name"),
    [
        ((), {"drop_last": True}, "drop_last"),
        ((), {"drop_last": 1}, "drop_last"),
        ((1, None, None, None, 0, None, False, True), {}, "drop_last"),
        ((), {"persistent_workers": True, "num_workers": 2}, "persistent_workers"),
        ((), {"persistent_workers": "yes"}, "persistent_workers"),
        ((), {"in_order": False}, "in_order"),
        ((), {"in_order": 0}, "in_order"),
        ((), {"in_order": None}, "in_order"),
        ((), {"shuffle": True}, "shuffle"),
        ((1, True), {}, "shuffle"),
        ((), {"sampler": [1]}, "sampler"),
        ((1, None, [1]), {}, "sampler"),
        ((), {"batch_sampler": [[1]]}, "batch_sampler"),
        ((), {"worker_sharding": "rows"}, "worker_sharding"),
        ((), {"worker_sharding": None}, "worker_sharding"),
        ((), {"num_workers": 3}, "num_workers"),
    ],
)
def test_refused_arguments_in_every_spelling(args: Any, kwargs: dict[str, Any], name: str) -> None:
    dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=1)
    with pytest.raises((ArgumentValueError, ArgumentTypeError), match=name) as refused:
        StreamingDataLoader(dataset, *args, **kwargs)
    assert refused.value.argument == name


def test_datasets_that_are_refused_and_arguments_that_are_not() -> None:
    arguments = {"num_splits": 4, "shuffle_seed": 1}
    for dataset in (range(4), None, Overridden(numbered_table(24), **arguments)):
        with pytest.raises(ArgumentTypeError, match="dataset"):
            StreamingDataLoader(dataset)
    dataset = Extended(numbered_table(24), **arguments)
    falsy = {"drop_last": False, "shuffle": False, "persistent_workers": None, "in_order": 1, "sampler": None, "pin_memory": False}
    loader = StreamingDataLoader(
        dataset, 5, None, None, None, 0, ids, **{k: v for k, v in falsy.items() if k not in ("shuffle", "sampler")}
    )
    assert loader.dataset is dataset
    assert [len(batch) for batch in loader] == [5, 5, 5, 5, 4]
    with pytest.raises(ValueError, match="prefetch_factor"):
        StreamingDataLoader(dataset, prefetch_factor=2)
    with pytest.raises(TypeError):
        StreamingDataLoader(dataset, no_such_argument=1)


@pytest.mark.parametrize("batch_size", [None, 1, 5, 24, 99])
def test_the_same_batches_as_torchs_own_loader(batch_size: int | None) -> None:
    arguments = {"num_splits": 4, "shuffle_seed": 1}
    ours = StreamingDataLoader(StreamingDataset(numbered_table(24), **arguments), batch_size=batch_size)
    torchs = DataLoader(StreamingDataset(numbered_table(24), **arguments), batch_size=batch_size)
    assert repr(list(ours)) == repr(list(torchs))
    assert len(ours) == len(torchs)


def test_the_loader_speaks_for_its_dataset() -> None:
    dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=1)
    loader = StreamingDataLoader(dataset, batch_size=3, collate_fn=ids)
    state = loader.state_dict()
    first = list(loader)
    assert loader.state_dict() == dataset.state_dict() != state
    loader.load_state_dict(state)
    assert list(loader) == first
    assert loader.floor_state_dict() == dataset.floor_state_dict()
    loader.set_epoch(1)
    assert list(loader) != first
    assert dataset.epoch == 1


@pytest.mark.parametrize(("workers", "mode"), [(0, "splits"), (2, "splits"), (2, "batches")])
def test_a_newer_iterator_ends_the_workers_of_the_older_one(workers: int, mode: str) -> None:
    """DLV-4, WRK-11: what they prefetched is not counted, and in documented mode the turn is kept."""
    with pytest.MonkeyPatch.context() as patch:
        made = simulate(patch, in_turn)

        def loader(dataset: StreamingDataset) -> StreamingDataLoader:
            return StreamingDataLoader(dataset, batch_size=3, num_workers=workers, worker_sharding=mode, collate_fn=ids)

        expected = list(loader(StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=1)))
        dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=1)
        batches = loader(dataset)
        made.clear()
        older = iter(batches)
        received = [next(older)]
        for call in (lambda: batches.load_state_dict({}), lambda: batches.set_epoch(1)):
            with pytest.raises(IteratorAliveError):
                call()
        newer = iter(batches)
        assert [one.closed for one in made] == [True] * (workers > 0)
        with pytest.raises(IteratorSupersededError, match="0 rows"):
            next(older)
        received += list(newer)
        assert received == expected
        with pytest.raises(IteratorSupersededError, match="21 rows"):
            next(older)
        assert [next(iterator, None) for iterator in (newer, newer)] == [None] * 2
        assert len(made) == 2 * (workers > 0), "workers start with the first next()"


@pytest.mark.parametrize("splits", [4, 4096])
def test_a_message_has_constant_size(splits: int) -> None:
    """WRK-6: what travels with a batch does not grow with the number of splits."""
    dataset = StreamingDataset(numbered_table(4096), num_splits=splits, shuffle_seed=1)
    with pytest.MonkeyPatch.context() as patch:
        made = simulate(patch, in_turn)
        iterator = iter(StreamingDataLoader(dataset, batch_size=1, num_workers=2, worker_sharding="batches", collate_fn=nothing))
        next(iterator)
        assert len(pickle.dumps(next(made[0]))) < 120


def nothing(rows: Any) -> None:
    return None


# ---- failures


@pytest.mark.parametrize(("workers", "mode"), [(0, "splits"), (2, "splits"), (2, "batches")])
def test_a_batch_that_is_interrupted_after_its_count_is_uncounted(workers: int, mode: str) -> None:
    """DLV-3: the hole is not the commit itself, but what lies between it and the return."""
    with pytest.MonkeyPatch.context() as patch:
        simulate(patch, in_turn)
        dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=1)
        loader = StreamingDataLoader(dataset, batch_size=5, num_workers=workers, worker_sharding=mode, collate_fn=ids)
        iterator = iter(loader)
        received = next(iterator)
        delivery = dataset._position.standing.delivery
        commit = delivery.commit

        def interrupted(worker: int, count: int) -> None:
            commit(worker, count)
            raise KeyboardInterrupt

        patch.setattr(delivery, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert dataset.samples_remaining == 24 - 5
        received += [row for batch in loader for row in batch]
        assert sorted(received) == list(range(24))


ARMED: list[int] = []
RAISED: list[type[BaseException]] = [ValueError]


def collate(rows: list[dict[str, int]]) -> list[int]:
    if set(ARMED) & set(ids(rows)):
        raise RAISED[0]("bad row")
    return ids(rows)


@given(st.sampled_from(MODES), st.integers(0, 4), st.integers(1, 5), st.integers(0, 23), st.data())
def test_a_failing_batch_arrives_in_its_place(mode: str, workers: int, batch_size: int, bad: int, data: st.DataObject) -> None:
    """The batches before it are delivered, whatever the timing; then the iterator is over, and a new one continues (WRK-14, WRK-15)."""
    ARMED.clear()
    workers = workers if mode == "batches" or workers != 3 else 2
    RAISED[0] = data.draw(st.sampled_from([ValueError, StopIteration, KeyboardInterrupt, SystemExit]), label="error")
    with pytest.MonkeyPatch.context() as patch:
        made = simulate(patch, lambda count: data.draw(st.integers(0, count - 1), label="schedule"))
        arguments = {"batch_size": batch_size, "num_workers": workers, "worker_sharding": mode, "collate_fn": collate}
        dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=5)
        expected = list(StreamingDataLoader(StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=5), **arguments))
        ARMED[:] = [bad]
        good = list(itertools.takewhile(lambda batch: bad not in batch, expected))
        iterator = iter(StreamingDataLoader(dataset, **arguments))
        batches = []
        in_worker = RAISED[0] if RAISED[0] is ValueError else WorkerFailedError
        with pytest.raises(TransformError if RAISED[0] is StopIteration else in_worker if workers else RAISED[0]):
            while True:
                batches.append(next(iterator))
        ARMED.clear()
        assert batches == good
        with pytest.raises(IteratorFailedError):
            next(iterator)
        assert all(one.closed for one in made[-1:] if workers)
        assert dataset.samples_remaining == 24 - sum(map(len, good))
        batches += list(StreamingDataLoader(dataset, **arguments))
        assert Counter(row for batch in batches for row in batch) == Counter(range(24))
        if workers <= 1 or mode == "batches" or len(good) % workers == 0:
            return
        event("continued between step boundaries")
        assert batches == expected, "the turn of the workers is kept (WRK-11)"


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_that_is_missing_is_noticed_before_the_next_is_counted(mode: str) -> None:
    """WRK-14: had torch lost a batch on the way, the batch behind it must not be counted in its place."""
    with pytest.MonkeyPatch.context() as patch:
        made = simulate(patch, in_turn)
        dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=5)
        iterator = iter(StreamingDataLoader(dataset, batch_size=6, num_workers=2, worker_sharding=mode, collate_fn=ids, prefetch_factor=1))
        next(iterator)
        made[0].workers[0].iterator = iter(())
        next(iterator)
        with pytest.raises(WorkerFailedError, match="a batch of worker 0 is missing"):
            next(iterator)
        assert dataset.samples_remaining == 12


@pytest.mark.parametrize("error", [EOFError, ConnectionResetError, BrokenPipeError])
def test_a_forkserver_that_was_killed_is_started_anew(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    made = simulate(monkeypatch, in_turn)
    start = streaming_loader.DataLoader.__iter__
    starts: list[int] = []

    def start_again(self: Any) -> Any:
        starts.append(1)
        if len(starts) == 1:
            raise error
        return start(self)

    monkeypatch.setattr(streaming_loader.DataLoader, "__iter__", start_again)
    dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=5)
    batches = list(StreamingDataLoader(dataset, batch_size=3, num_workers=2, collate_fn=ids))
    assert sorted(row for batch in batches for row in batch) == list(range(24))
    assert (len(starts), len(made)) == (2, 1)


def test_a_worker_that_ends_early_is_a_failure() -> None:
    """WRK-14: data that stops before its end never looks like the end."""
    with pytest.MonkeyPatch.context() as patch:
        made = simulate(patch, in_turn)
        dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=5)
        iterator = iter(StreamingDataLoader(dataset, batch_size=3, num_workers=2, collate_fn=ids))
        next(iterator)
        for worker in made[0].workers:
            worker.iterator = iter(())
            made[0].results.clear()
        with pytest.raises(WorkerFailedError, match="rows before the end"):
            list(iterator)
        with pytest.raises(IteratorFailedError):
            next(iterator)

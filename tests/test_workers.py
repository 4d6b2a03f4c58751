"""StreamingDataLoader against the model, with simulated workers (spec/workers.md).

Exhaustive: N = 13 (S = 6) and N = 8 (S = 4), every R, W 0 to 4 that is legal, both modes, batch sizes 1 to 7, every interruption;
a third of the resuming (R, W, mode) for each state, in turn. Sampled: schedules, prefetch, breaks, chains, failures, orders of calls.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import IteratorFailedError, WorkerFailedError
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
                for other in worlds[resumed % 3 :: 3]:
                    resumed += 1
                    resume(rows, splits, batch_size, state, received, other)
                batches = [one.deliver() for one in ranks]
                if batches[0] is None:
                    assert batches == [None] * world_size
                    break
                received += [row for batch in batches for row in batch or ()]
            assert len(set(received)) == len(received) == rows // splits * splits
        assert resumed > 50


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
            action = data.draw(st.sampled_from(["pass", "pass", "pass", "load", "set_epoch", "rewind"]), label="action")
            if action == "load":
                one.change("load_state_dict", data.draw(st.sampled_from(states), label="state"))
            elif action == "set_epoch":
                one.change("set_epoch", data.draw(st.integers(0, 2), label="epoch"))
            elif action == "rewind":
                one.change("rewind")
            else:
                workers = data.draw(st.integers(0, 4), label="workers")
                mode = data.draw(st.sampled_from(MODES), label="mode")
                size = data.draw(st.none() | st.integers(1, 5), label="batch_size")
                prefetch = data.draw(st.integers(1, 4), label="prefetch") if workers else None
                refusal = one.start(workers, mode, size, prefetch_factor=prefetch)
                event(f"start {refusal}")
                if refusal is None:
                    for _ in range(data.draw(st.integers(0, 12), label="batches")):
                        if one.deliver() is None:
                            break
                    if one.iterator is not None:
                        assert one.change("set_epoch", 0) == "error iterator.alive"
                        one.close()
            states.append(one.dataset.floor_state_dict())
            if one.model.place is None:
                states.append(one.dataset.state_dict())


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


# ---- failures

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
        ends_workers = RAISED[0] is StopIteration or (workers > 0 and RAISED[0] is not ValueError)
        with pytest.raises(WorkerFailedError if ends_workers else RAISED[0]):
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


def test_a_worker_that_ends_early_is_a_failure() -> None:
    """WRK-14: data that stops before its end never looks like the end."""
    with pytest.MonkeyPatch.context() as patch:
        made = simulate(patch, in_turn)
        dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=5)
        iterator = iter(StreamingDataLoader(dataset, batch_size=3, num_workers=2, collate_fn=ids))
        next(iterator)
        made[0].workers[1].iterator = iter(())
        with pytest.raises(WorkerFailedError, match="rows before the end"):
            list(iterator)
        with pytest.raises(IteratorFailedError):
            next(iterator)

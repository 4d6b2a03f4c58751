"""Whole jobs, all ranks with (simulated) workers: exact resumes over changing worlds, and epochs after a resume (RES-4, EPO-2).

Sampled. The judge is the ids that reached the trainers, nothing else.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from streaming import StreamingDataLoader, StreamingDataset, merge_state_dicts
from streaming.errors import PartialCycleError, PartialCycleStartError
from tests.simulation import simulate
from tests.support import divisors, ids, numbered_table

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

# (world size, workers, mode, batch size); several workers of documented mode must divide the splits of a rank.
World = tuple[int, int, str, int]


@st.composite
def worlds(draw: st.DrawFn, splits: int) -> World:
    world_size = draw(st.sampled_from(divisors(splits)))
    mode = draw(st.sampled_from(["splits", "batches"]))
    workers = draw(st.sampled_from([0, *divisors(splits // world_size)]) if mode == "splits" else st.integers(0, 3))
    return world_size, workers, mode, draw(st.integers(1, 5))


def job(rows: int, splits: int, world: World, state: dict[str, Any] | None, **arguments: Any) -> list[StreamingDataLoader]:
    """The loaders of all ranks, at the place of a state."""
    world_size, workers, mode, batch_size = world
    loaders = []
    for rank in range(world_size):
        dataset = StreamingDataset(numbered_table(rows), num_splits=splits, shuffle_seed=3, rank=rank, world_size=world_size, **arguments)
        if state is not None:
            dataset.load_state_dict(state)
        loaders.append(StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers, worker_sharding=mode, collate_fn=ids))
    return loaders


@given(st.data())
def test_exact_resumes_over_changing_worlds_and_workers_give_every_row_once(data: st.DataObject) -> None:
    """Interrupted again and again, within partial cycles too; refused where the clause says so, and only there (RES-4, WRK-12)."""
    splits = data.draw(st.sampled_from([4, 6, 8, 12]), label="splits")
    rows = data.draw(st.integers(splits, splits * 5 + 3), label="rows")
    state: dict[str, Any] | None = None
    received: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        simulate(patch, lambda count: data.draw(st.integers(0, count - 1), label="schedule"))
        for hop in itertools.count():
            world = data.draw(worlds(splits), label="world") if hop < 8 else (1, 0, "splits", 1)
            served = state["partial_cycle_splits"] if state else []
            block = splits // world[0]
            uneven = len({sum(split // block == rank for split in served) for rank in range(world[0])}) > 1
            try:
                loaders = job(rows, splits, world, state, partial_cycle="exact")
            except PartialCycleError:
                event("refused: unequally many unserved splits")
                assert uneven
                continue
            assert not uneven
            try:
                iterators = [iter(loader) for loader in loaders]
            except PartialCycleStartError:
                event("refused: several workers in documented mode")
                assert served
                assert world[1] > 1
                assert world[2] == "splits"
                continue
            cut = data.draw(st.integers(0, 4), label="cut") if hop < 8 else rows
            states: list[dict[str, Any]] | None = None
            for _ in range(cut):
                batches = [next(iterator, None) for iterator in iterators]
                assert len({batch is None for batch in batches}) == 1, "no rank ends before another"
                received += [row for batch in batches for row in batch or ()]
                if batches[0] is None:
                    break
            while states is None:
                try:
                    states = [loader.state_dict() for loader in loaders]
                except RuntimeError:  # between the step boundaries of several workers: on to the next
                    received += [row for iterator in iterators for row in next(iterator)]
            if served:
                event("went on from a partial cycle")
            state = merge_state_dicts(states)
            if state["samples_consumed_per_split"][0] == rows // splits:
                break
    assert sorted(set(received)) == sorted(received)
    assert len(received) == rows // splits * splits


@given(st.data())
def test_three_passes_after_a_resume_are_the_rest_and_two_whole_epochs(data: st.DataObject) -> None:
    """Whatever the worlds before and after: the rest of the saved epoch, then the next two, each in its own order."""
    splits = data.draw(st.sampled_from([4, 6]), label="splits")
    rows = data.draw(st.integers(splits, splits * 4 + 3), label="rows")
    first_epoch = data.draw(st.integers(0, 3), label="epoch")
    cycles = data.draw(st.integers(0, rows // splits), label="cycles")
    asked = data.draw(st.booleans(), label="set_epoch")
    before, after = data.draw(worlds(splits), label="before"), data.draw(worlds(splits), label="after")
    with pytest.MonkeyPatch.context() as patch:
        simulate(patch, lambda count: 0)
        whole = {
            epoch: {row for loader in job(rows, splits, after, None, epoch=epoch) for batch in loader for row in batch}
            for epoch in range(first_epoch, first_epoch + 4)
        }
        saving = job(rows, splits, (before[0], 0, "splits", splits // before[0]), None, epoch=first_epoch)
        received = set()
        for loader in saving:
            received |= {row for batch in itertools.islice(loader, cycles) for row in batch}
        state = merge_state_dicts([loader.state_dict() for loader in saving])
        loaders = job(rows, splits, after, state)
        done = cycles == rows // splits
        for number in range(3):
            epoch = first_epoch + number + done
            if asked:
                for loader in loaders:
                    loader.set_epoch(epoch)
            found = [row for loader in loaders for batch in loader for row in batch]
            assert {loader.dataset.epoch for loader in loaders} == {epoch}
            rest = whole[epoch] - received if number == 0 and not done else whole[epoch]
            assert sorted(found) == sorted(rest)

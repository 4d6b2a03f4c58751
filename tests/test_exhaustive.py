"""Model and implementation agree on every small world, exhaustively to the bounds written here (LAW-1 to LAW-3, LAW-6, LAW-7).

Bounds: all N <= 12, S <= 6, every R dividing S, every rank, every interruption point, every resuming R and rank, both
policies, shuffled; unshuffled and clumped orders likewise for N <= 6. Every batch size under a plain DataLoader for N <= 12.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
from torch.utils.data import DataLoader

from model import loader
from streaming import StreamingDataLoader, StreamingDataset
from tests.pool_twin import batch_ids
from tests.support import Twin, divisors, ids, numbered_table, settings

WORLDS = [(rows, splits) for rows in range(1, 13) for splits in range(1, min(rows, 6) + 1)]
SHUFFLED: dict[str, Any] = {"shuffle": True}
ORDERS: list[dict[str, Any]] = [{"shuffle": False}, {"shuffle": True, "shuffle_clump_size": 2}, {"shuffle": True, "shuffle_clump_size": 4}]
CASES = [(*world, SHUFFLED) for world in WORLDS] + [(*world, order) for world in WORLDS if world[0] <= 6 for order in ORDERS]


class World:
    """All datasets of one (N, S, order), built once; loading and rewinding makes them fresh."""

    def __init__(self, rows: int, splits: int, order: dict[str, Any]) -> None:
        self.splits = splits

        @cache
        def twins(world_size: int, policy: str) -> list[Twin]:
            common = {"num_splits": splits, "world_size": world_size, "partial_cycle": policy, **order}
            return [Twin(settings(rows, rank=rank, **common)) for rank in range(world_size)]

        self.twins = twins

    def uninterrupted(self) -> list[int]:
        """One epoch of one rank, as it was received."""
        (one,) = self.twins(1, "exact")
        one.change("set_epoch", 0)
        one.change("rewind")
        return one.pull_all()

    def resume(
        self, state: dict[str, Any], world_size: int, policy: str, received: list[int], unfinished: list[int], epoch: list[int]
    ) -> None:
        """Load the state on every rank of another world, run to the end, and judge by the rows received."""
        ranks = self.twins(world_size, policy)
        refusals = {one.change("load_state_dict", state) for one in ranks}
        assert len(refusals) == 1, "all ranks refuse, or none"
        if refusals != {None}:
            assert policy == "exact"
            assert unfinished, "a cycle boundary is never refused"
            return
        replayed = sum(one.dataset.samples_to_replay for one in ranks)
        remaining = [one.dataset.samples_remaining for one in ranks]
        if not remaining[0]:
            assert sorted(received) == sorted(epoch)
            for one in ranks:
                one.change("set_epoch", state["epoch"])
        resumed = [one.pull_all() for one in ranks]
        assert [len(rows) for rows in resumed] == remaining == remaining[:1] * world_size, "all ranks end alike (LAW-6)"
        twice = unfinished if policy == "replay" else []
        assert replayed == len(twice)
        assert Counter(received) + Counter(row for rows in resumed for row in rows) == Counter(epoch) + Counter(twice)


@pytest.mark.parametrize(("rows", "splits", "order"), CASES, ids=lambda value: str(value).replace(" ", ""))
def test_every_interruption_and_every_resume(rows: int, splits: int, order: dict[str, Any]) -> None:
    world = World(rows, splits, order)
    epoch = world.uninterrupted()
    assert len(set(epoch)) == len(epoch) == rows // splits * splits
    for saving in divisors(splits):
        steps: list[list[int | None]] = []
        for step in range(rows // splits * splits // saving + 1):
            received = [row for rows_of_step in steps for row in rows_of_step if row is not None]
            boundary = step // (splits // saving) * (splits // saving)
            unfinished = [row for rows_of_step in steps[boundary:] for row in rows_of_step if row is not None]
            savers = [Twin(settings(rows, num_splits=splits, world_size=saving, rank=rank, **order)) for rank in range(saving)]
            for one, rank_rows in zip(savers, zip(*steps, strict=True) if steps else [()] * saving, strict=True):
                assert [one.pull() for _ in range(step)] == list(rank_rows)
            states = [one.dataset.state_dict() for one in savers]
            assert all(state == states[0] for state in states), "ranks at one step save equal states (LAW-3)"
            for resuming in divisors(splits):
                for policy in ("replay", "exact"):
                    world.resume(states[0], resuming, policy, received, unfinished, epoch)
            steps.append([one.pull() for one in savers])
        assert steps.pop() == [None] * saving, "all ranks end alike (LAW-6)"
        assert Counter(row for rows_of_step in steps for row in rows_of_step) == Counter(epoch)


PATHS: dict[str, Any] = {
    "plain": lambda dataset, size: DataLoader(dataset, batch_size=size, collate_fn=ids),
    "columns": lambda dataset, size: StreamingDataLoader(dataset, batch_size=size, format="numpy"),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("rows", "splits"), WORLDS)
def test_every_batch_size(rows: int, splits: int, path: str) -> None:
    """Under a plain DataLoader, and with batches of columns, the state after each batch is the model's (DLV-2, BAT-1, LAW-13)."""
    for world_size in divisors(splits):
        for rank in {0, world_size - 1}:
            world = settings(rows, num_splits=splits, world_size=world_size, rank=rank)
            arguments = {"num_splits": splits, "world_size": world_size, "rank": rank, "shuffle_seed": world.shuffle_seed}
            dataset = StreamingDataset(numbered_table(rows), **arguments)
            for batch_size in range(1, len(dataset) + 2):
                twin = loader.start(loader.open_loader(world))
                dataset.set_epoch(0)
                dataset.rewind()
                batches = PATHS[path](dataset, batch_size)
                assert len(batches) == -(-len(dataset) // batch_size)
                for batch in batches:
                    for row in batch_ids(batch):
                        twin, expected = loader.pull(twin)
                        assert row == expected
                    assert dataset.state_dict() == loader.save(twin)
                assert loader.remaining(twin) == 0
                assert dataset.state_dict() == loader.save(twin)

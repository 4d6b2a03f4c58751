"""Which steps of a run are legal checkpoints, and what a crash behind each replays: by the model, before anything is run."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Final

from model import workers
from model.conformance.adapter import World
from model.conformance.reference import settings_of
from model.errors import ModelError

# Steps that are listed; a longer period is summed up.
LISTED: Final = 24


@dataclass(frozen=True)
class Checkpoint:
    """A step behind which a state could be saved.

    Attributes
    ----------
    step : int
        Batches that each rank has received, from 1.
    legal : bool
        Whether `state_dict()` gives a state there; else only `floor_state_dict()` does.
    replayed : int
        Rows of all ranks that come twice if the run goes on from there (with ``partial_cycle="replay"``).
    """

    step: int
    legal: bool
    replayed: int


def plan(world: World, most: int = LISTED) -> list[Checkpoint]:
    """The first steps of an epoch as checkpoints, by the model: one period of them, or as many as asked for (WRK-9, RES-3).

    Examples
    --------
    >>> for one in plan(World(24, 4, world_size=1, batch_size=3)):
    ...     print(one.step, one.legal, one.replayed)
    1 True 3
    2 True 2
    3 True 1
    4 True 0
    """
    pool = workers.start(workers.open_pool(settings_of(world)), world.num_workers, world.worker_sharding, world.batch_size)
    found: list[Checkpoint] = []
    received = 0
    for step in range(1, min(period(world), most) + 1):
        pool, batch = workers.deliver(pool)
        if batch is None:
            break
        received += len(batch) * world.world_size
        try:
            state, legal = workers.save(pool), True
        except ModelError:
            state, legal = workers.floor_state(pool), False
        completed = state["samples_consumed_per_split"][0] * world.num_splits
        found.append(Checkpoint(step, legal, received - completed))
    return found


def period(world: World) -> int:
    """The number of steps from one cycle boundary of all splits to the next, away from the end of the epoch (WRK-9, CYC-6)."""
    splits = world.num_splits // world.world_size
    if world.worker_sharding == "splits" and world.num_workers > 1:
        splits //= world.num_workers
        return world.num_workers * (splits // gcd(world.batch_size, splits))
    return splits // gcd(world.batch_size, splits)


def legal_steps(world: World, before: int) -> list[int]:
    """All steps before this one behind which a state is legal; that one where there are none: the last of an epoch always is."""
    every = period(world)
    offsets = [one.step for one in plan(world, every) if one.legal]
    steps = [start + offset for start in range(0, before, every) for offset in offsets]
    return [step for step in steps if step < before] or [before]

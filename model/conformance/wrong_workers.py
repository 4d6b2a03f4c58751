"""Wrong workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from model import workers
from model.conformance.adapter import Refused, World
from model.conformance.reference import Handle
from model.conformance.wrong import Foreign, move, wrong


@wrong("WRK-2")
class ServesWorkersInReverse(Foreign):
    """Delivers the last worker's batch first."""

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """Begin with the last one."""
        world, pool = handle.world, handle.pool
        if not handle.held and pool.place is None and world.num_workers > 1:
            pool = workers.begin(workers.start(pool, world.num_workers, world.worker_sharding, world.batch_size))
            if world.worker_sharding == "splits" and pool.running is not None:
                handle.pool, handle.held = replace(pool, running=replace(pool.running, turn=world.num_workers - 1)), True
        return super().pull(handle)


@wrong("WRK-4")
class ShardsInTheInvariantMode(Foreign):
    """Gives each worker splits of its own where batches were to be dealt out, if they can be divided."""

    def open(self, world: World) -> Handle:
        """In the other mode."""
        handle = super().open(world)
        if world.num_workers > 1 and world.num_splits // world.world_size % world.num_workers == 0:
            handle.world = replace(world, worker_sharding="splits")
        return handle


@wrong("WRK-9")
class RefusesStatesWhileWorkersRun(Foreign):
    """Refuses a state at step boundaries too, as long as workers run."""

    def save(self, handle: Handle) -> dict[str, Any]:
        """Not now."""
        if handle.world.num_workers > 1 and handle.world.worker_sharding == "splits" and handle.pool.running is not None:
            raise Refused("state.mid_step")
        return super().save(handle)


@wrong("WRK-9")
class SavesBetweenStepBoundaries(Foreign):
    """Gives the completed cycles as a state between step boundaries, although they were not asked for."""

    def save(self, handle: Handle) -> dict[str, Any]:
        """What is completed."""
        return super().save(handle) if handle.pool.place is None else workers.floor_state(handle.pool)


@wrong("WRK-11")
class ForgetsWhoseTurnItWas(Foreign):
    """Begins with the first worker again after a break between step boundaries."""

    def close(self, handle: Handle) -> None:
        """Turn 0."""
        super().close(handle)
        place = handle.pool.place
        if place is not None:
            handle.pool = replace(handle.pool, place=replace(place, turn=0))


@wrong("WRK-6")
class ForgetsWorkersAtResume(Foreign):
    """Resumes as if there were no workers."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Without workers from now on."""
        super().resume(handle, state)
        handle.world = replace(handle.world, num_workers=0)


@wrong("WRK-6")
class BindsStatesToTheNumberOfWorkers(Foreign):
    """Takes a state of several workers with as many, with one or with none; with others it begins anew."""

    def save(self, handle: Handle) -> dict[str, Any]:
        """With the number beside it."""
        return {"workers": handle.world.num_workers, "state": super().save(handle)}

    def resume(self, handle: Handle, state: Any) -> None:
        """Compare the numbers."""
        wrapped, world = isinstance(state, dict) and state.keys() == {"workers", "state"}, handle.world
        super().resume(handle, state["state"] if wrapped else state)
        others = wrapped and min(state["workers"], world.num_workers) > 1 and state["workers"] != world.num_workers
        if others and world.worker_sharding == "splits":
            move(handle, cycle=0, served=())

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """Without the numbers."""
        return {"workers": 0, "state": super().merge([state["state"] for state in states], skew)}


@wrong("WRK-6", "WRK-4")
class CountsWhatWorkersPrepared(Foreign):
    """Counts one batch of each worker that is prepared and not received."""

    def save(self, handle: Handle) -> dict[str, Any]:
        """The place one round further."""
        pool = handle.pool
        for _ in range(handle.world.num_workers if handle.world.num_workers > 1 and pool.running is not None else 0):
            pool, _ = workers.deliver(pool)
        return super().save(replace(handle, pool=pool))

"""Wrong states and resumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from model.conformance.adapter import Refused, World
from model.conformance.adapters.example import ListLoader
from model.conformance.reference import Handle
from model.conformance.wrong import Foreign, is_state, move, wrong

# ---- places


@wrong("RES-8")
class LosesThePartialCycle(Foreign):
    """Neither replays nor finishes the partial cycle: what the other ranks or splits had not received of it is lost."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Go on with the next cycle."""
        super().resume(handle, state)
        if state["partial_cycle_splits"] and handle.world.partial_cycle == "replay":
            move(handle, cycle=handle.pool.loader.cursor.cycle + 1)


@wrong("RES-8")
class LosesTheSecondPartialCycle(Foreign):
    """Goes on with the next cycle where a resumed run is interrupted within a cycle again."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Look who saved it."""
        resumed = is_state(state.get("of a resumed run")) if isinstance(state, dict) else False
        super().resume(handle, state["of a resumed run"] if resumed else state)
        vars(handle)["resumed"] = True
        if resumed and state["of a resumed run"]["partial_cycle_splits"] and handle.world.partial_cycle == "replay":
            move(handle, cycle=handle.pool.loader.cursor.cycle + 1)

    def save(self, handle: Handle) -> dict[str, Any]:
        """Say so."""
        state = super().save(handle)
        return {"of a resumed run": state} if "resumed" in vars(handle) else state

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """As if nobody had been resumed."""
        return super().merge([state.get("of a resumed run", state) for state in states], skew)


@wrong("RES-3")
class FinishesThePartialCycle(Foreign):
    """Finishes the partial cycle where it was to be replayed: nothing is lost."""

    def open(self, world: World) -> Handle:
        """With the other policy."""
        return super().open(replace(world, partial_cycle="exact"))


@wrong("RES-3", "LAW-4")
class ReplaysOneCycleTooMany(Foreign):
    """Goes back by one completed cycle at every resume."""

    def resume(self, handle: Handle, state: Any) -> None:
        """One cycle less."""
        super().resume(handle, state)
        move(handle, cycle=max(handle.pool.loader.cursor.cycle - 1, 0))


@wrong("RES-3", "CKP-2")
class KeepsCyclesInThreeBits(ListLoader):
    """Counts cycles modulo 8, which only longer splits than those of the exhaustive layer show."""

    def save(self, handle: Any) -> Any:
        """Cut off."""
        state = super().save(handle)
        return {**state, "cycles": state["cycles"] % 8}


@wrong("RES-3", "DLV-4")
class TakesTheSecondLoadForAContinuation(Foreign):
    """Adds the place of a load to that of the load before, where one loader loads twice: only long histories show it."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Count on from the last load."""
        super().resume(handle, state)
        before: int = vars(handle).get("loaded", 0)
        vars(handle)["loaded"] = cycle = handle.pool.loader.cursor.cycle
        settings = handle.pool.loader.settings
        move(handle, cycle=min(before + cycle, settings.rows // settings.num_splits), served=())


@wrong("RES-3")
class RedrawsTheSeedAtResume(Foreign):
    """Shuffles with another seed once it has resumed."""

    def resume(self, handle: Handle, state: Any) -> None:
        """The next seed."""
        super().resume(handle, state)
        loader = handle.pool.loader
        settings = replace(loader.settings, shuffle_seed=(loader.settings.shuffle_seed or 0) + 1)
        handle.pool = replace(handle.pool, loader=replace(loader, settings=settings))


@wrong("RES-8")
class ForgetsTheWorldSizeOfTheState(ListLoader):
    """Keeps the rows of one rank in the state, and reads them with the world size that resumes."""

    def save(self, handle: Any) -> Any:
        """Rows instead of cycles."""
        state = super().save(handle)
        world: World = handle["world"]
        return {**state, "cycles": state["cycles"] * (world.num_splits // world.world_size)}

    def resume(self, handle: Any, state: Any) -> None:
        """Cycles, as this world size has them."""
        super().resume(handle, state)
        world: World = handle["world"]
        handle["first"] = min(handle["first"] // (world.num_splits // world.world_size), world.rows // world.num_splits)


@wrong("RES-3")
class BindsStatesToARank(ListLoader):
    """Takes rank 0's state on rank 0 only; on other ranks it begins anew."""

    def save(self, handle: Any) -> Any:
        """With the rank."""
        return [handle["world"].rank, super().save(handle)]

    def resume(self, handle: Any, state: Any) -> None:
        """The same rank, or nothing."""
        rank, own = state if isinstance(state, list) and len(state) == 2 else (0, state)
        super().resume(handle, own)
        if rank != handle["world"].rank:
            handle["first"] = 0


@wrong("CKP-2")
class SavesARankDependentState(ListLoader):
    """Counts one cycle more on all ranks but the first."""

    def save(self, handle: Any) -> Any:
        """Rank 0's is right."""
        state, world = super().save(handle), handle["world"]
        more = world.rank > 0 and state["cycles"] < world.rows // world.num_splits
        return {**state, "cycles": state["cycles"] + more}


@wrong("RES-3", "CKP-2")
class ForgetsTheBatchSizeOfTheState(ListLoader):
    """Keeps batches in the state, and reads them with the batch size that resumes."""

    def save(self, handle: Any) -> Any:
        """In units of this batch size."""
        state = super().save(handle)
        return {**state, "cycles": state["cycles"] / handle["world"].batch_size}

    def resume(self, handle: Any, state: Any) -> None:
        """In units of that one."""
        super().resume(handle, state)
        world: World = handle["world"]
        handle["first"] = min(round(handle["first"] * world.batch_size), world.rows // world.num_splits)


@wrong("CKP-1")
class RefusesAStateBeforeTheFirstBatch(ListLoader):
    """Gives no state before a batch was received."""

    def save(self, handle: Any) -> Any:
        """Refuse the beginning."""
        if handle["received"] == handle["first"] == 0:
            raise Refused
        return super().save(handle)


@wrong("DLV-1")
class StatesThatLiveOn(ListLoader):
    """Hands out its own dict as the state, which later batches change."""

    def save(self, handle: Any) -> Any:
        """The same object always."""
        shared: dict[str, Any] = handle.setdefault("shared", {})
        shared.update(super().save(handle))
        return shared

    def pull(self, handle: Any) -> Sequence[int] | None:
        """Move on, and the state with it."""
        batch = super().pull(handle)
        if "shared" in handle:
            self.save(handle)
        return batch


@wrong("DLV-1")
class CountsRowsReadAhead(ListLoader):
    """Counts the batch that was read ahead while a pass is under way."""

    def save(self, handle: Any) -> Any:
        """One batch further."""
        world: World = handle["world"]
        total = world.rows // world.num_splits * (world.num_splits // world.world_size)
        left = total - handle["first"] * (world.num_splits // world.world_size) - handle["received"]
        ahead = min(world.batch_size, left) if handle["pass"] == "live" else 0
        return super().save({**handle, "received": handle["received"] + ahead})


@wrong("RES-7")
class GoesBackWhereNothingWasReceived(ListLoader):
    """Saves one cycle less where no row was received since the load."""

    def resume(self, handle: Any, state: Any) -> None:
        """Remember it."""
        super().resume(handle, state)
        handle["loaded"] = True

    def pull(self, handle: Any) -> Sequence[int] | None:
        """From now on states are right."""
        handle["loaded"] = False
        return super().pull(handle)

    def save(self, handle: Any) -> Any:
        """One less."""
        state = super().save(handle)
        return {**state, "cycles": max(state["cycles"] - handle.get("loaded", False), 0)}


@wrong("RES-4")
class ReplaysAlthoughExact(Foreign):
    """Replays the partial cycle where it was to be finished."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Forget what was served."""
        super().resume(handle, state)
        move(handle, served=())


@wrong("RES-6")
class KeepsItsOwnEpoch(Foreign):
    """Goes on in the epoch that it was opened with."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Its own epoch at the place of the state."""
        epoch = handle.pool.loader.cursor.epoch
        super().resume(handle, state)
        move(handle, epoch=epoch)

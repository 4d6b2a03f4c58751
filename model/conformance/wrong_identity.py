"""Wrong refusals, identities, versions and merges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from model import checkpoint, tables
from model.conformance.adapter import Refused, World
from model.conformance.adapters.example import ListLoader
from model.conformance.reference import Handle, Reference
from model.conformance.wrong import Foreign, edited, is_state, move, wrong

# ---- refusals


@wrong("RES-5")
class MovesBeforeItRefuses(Foreign):
    """Takes the place of a state before it looks whether the state fits."""

    def resume(self, handle: Handle, state: Any) -> None:
        """First the place."""
        try:
            super().resume(handle, state)
        except Refused as refused:
            if is_state(state) and refused.code == "state.mismatch":
                settings = handle.pool.loader.settings
                cycle = min(state["samples_consumed_per_split"][0], settings.rows // settings.num_splits)
                move(handle, epoch=state["epoch"], cycle=cycle, served=())
            raise


@wrong("RES-5")
class BeginsAnewWhereItRefuses(Foreign):
    """Stands at the beginning of the epoch after a refused load."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Reset, then look."""
        try:
            super().resume(handle, state)
        except Refused as refused:
            if refused.code != "iterator.alive":
                move(handle, cycle=0, served=())
            raise


@wrong("CKP-6")
class TakesGarbage(ListLoader):
    """Takes what is no state for none, and begins anew."""

    def resume(self, handle: Any, state: Any) -> None:
        """Say nothing."""
        if isinstance(state, dict) and state.keys() == {"identity", "epoch", "cycles"}:
            super().resume(handle, state)


@wrong("CKP-6")
class DoesNotCheckTheDigest(Foreign):
    """Takes a state whose digest is not that of its values for one of another table: codes tell."""

    def describe(self) -> Any:
        """With codes."""
        found = super().describe()
        return replace(found, capabilities=found.capabilities | {"codes"})

    def resume(self, handle: Handle, state: Any) -> None:
        """Sign whatever comes."""
        super().resume(handle, edited(state) if is_state(state) else state)


@wrong("IDN-6")
class TakesOtherNumbersOfSplits(ListLoader):
    """Takes a state of another number of splits."""

    def resume(self, handle: Any, state: Any) -> None:
        """Look at table and rows only."""
        world: World = handle["world"]
        if isinstance(state, dict) and "identity" in state and state["identity"][::2] == [world.rows, world.table]:
            state = {**state, "identity": [world.rows, world.num_splits, world.table]}
        super().resume(handle, state)


@wrong("IDN-6")
class TakesOtherSeeds(Foreign):
    """Takes a state of another seed, in its own order."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Put its own seed into the state."""
        settings = handle.pool.loader.settings
        if is_state(state) and state["shuffle"] and settings.shuffle:
            state = edited(state, shuffle_seed=settings.shuffle_seed)
        super().resume(handle, state)


@wrong("IDN-6")
class TakesOtherClumps(Reference):
    """Takes a state of another clump size, in its own order."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Put its own clump size into the state."""
        settings = handle.pool.loader.settings
        if is_state(state) and state["shuffle"] and settings.shuffle:
            state = edited(state, shuffle_clump_size=settings.shuffle_clump_size)
        super().resume(handle, state)


@wrong("IDN-8")
class TakesOtherTables(ListLoader):
    """Takes a state of another table that has as many rows."""

    def resume(self, handle: Any, state: Any) -> None:
        """Look at numbers only."""
        world: World = handle["world"]
        if isinstance(state, dict) and "identity" in state and state["identity"][:2] == [world.rows, world.num_splits]:
            state = {**state, "identity": [world.rows, world.num_splits, world.table]}
        super().resume(handle, state)


# ---- versions


@wrong("IDN-7")
class TakesTheLatestVersion(Foreign):
    """Resumes on the newest version of the table, not on the recorded one."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Put its own version into the state."""
        pinned = handle.pool.loader.settings.pinned()
        home = tables.find(self._store, handle.made_us)
        if is_state(state) and home is not None and tables.open_version(home, state["table_version"]) is not None:
            state = edited(
                state,
                table_version=pinned.number,
                table_version_created_us=pinned.created_us,
                selected_rows=pinned.rows,
                schema_fingerprint=pinned.fingerprint,
            )
        super().resume(handle, state)


@wrong("IDN-7")
class RecordsTheLatestVersion(Foreign):
    """Reads the recorded version, but its own states record the newest one."""

    def save(self, handle: Handle) -> dict[str, Any]:
        """With the version that the next resume must not take."""
        home = tables.find(self._store, handle.made_us)
        assert home is not None
        settings = handle.pool.loader.settings.standing_on(tables.newest(home))
        return edited(super().save(handle), **settings.identity())


@wrong("DLV-12")
class ReadsTheTableAsItGrows(Foreign):
    """Divides the newest version of the table anew at every batch."""

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """Look at the table first."""
        pool, home = handle.pool, tables.find(self._store, handle.made_us)
        if home is not None and pool.running is not None:
            settings = pool.loader.settings.standing_on(tables.newest(home))
            running = replace(pool.running, division=replace(pool.running.division, settings=settings))
            handle.pool = replace(pool, loader=replace(pool.loader, settings=settings), running=running)
        return super().pull(handle)


# ---- merging


@wrong("MRG-2")
class MergesToTheMaximum(Foreign):
    """Merges ranks at different steps to the one that is furthest: the others lose rows."""

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """The largest place."""
        merged = super().merge(states, skew)
        return merged if skew == "refuse" else checkpoint.floor(max(states, key=checkpoint.place))


@wrong("MRG-2")
class MergesToTheLastRank(Foreign):
    """Merges ranks at different steps to the last one in the list."""

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """Whatever that is."""
        merged = super().merge(states, skew)
        return merged if skew == "refuse" else checkpoint.floor(states[-1])


@wrong("MRG-2")
class MergesByCyclesAlone(Foreign):
    """Merges ranks at different steps to the least cycle, of whatever epoch."""

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """Blind to epochs."""
        merged = super().merge(states, skew)
        least = min(states, key=lambda state: int(state["samples_consumed_per_split"][0]))
        return merged if skew == "refuse" else checkpoint.floor(least)


@wrong("MRG-2")
class MergesATornSet(Foreign):
    """Merges ranks at different steps without having been asked to."""

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """Always as with replay."""
        del skew
        return super().merge(states, "replay")


@wrong("MRG-2")
class KeepsThePartialCycleOfATornSet(Foreign):
    """Merges ranks within one cycle to the one whose partial cycle is longest: an exact resume then loses rows of the others."""

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """The smallest cycles, but the largest partial cycle."""
        merged = super().merge(states, skew)
        among = [state for state in states if checkpoint.place(state) == checkpoint.place(merged)]
        return edited(merged, partial_cycle_splits=max((state["partial_cycle_splits"] for state in among), key=len))


@wrong("MRG-1")
class MergesAnyNumber(Foreign):
    """Merges the states of more ranks than there were."""

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """As many as the first one says."""
        return super().merge(list(states)[: states[0]["world_size"]], skew)


@wrong("MRG-1")
class MergesStatesOfTwoRuns(Foreign):
    """Merges states of different settings to the first of them."""

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """Ask only if they agree."""
        agree = all(state["shuffle_seed"] == states[0]["shuffle_seed"] for state in states)
        return super().merge(states, skew) if agree or len(states) != states[0]["world_size"] else states[0]

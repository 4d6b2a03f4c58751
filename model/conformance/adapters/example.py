"""A loader over a list, in some forty lines: how an adapter is written, and how little a loader needs to be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model.conformance.adapter import Adapter, Description, Refused, World


class ListLoader(Adapter):
    """Rows 0, 1, .. N-1 in storage order; a handle is a dict that says where it stands: completed cycles, and rows of this rank since."""

    def describe(self) -> Description:
        """It can be left and continued, and merges states."""
        return Description("a list", "1", frozenset({"break"}))

    def open(self, world: World) -> Any:
        """Refuse what cannot be; stand at the beginning."""
        if world.num_splits < 1 or world.world_size < 1 or world.num_splits % world.world_size:
            raise Refused("argument.value")
        if not 0 <= world.rank < world.world_size or world.rows < world.num_splits:
            raise Refused("argument.value")
        return {"world": world, "epoch": world.epoch, "received": 0, "first": 0, "pass": None}

    def pull(self, handle: Any) -> Sequence[int] | None:
        """Rows of this rank since `first` completed cycles; split s holds the rows s*L .. s*L + L-1."""
        world: World = handle["world"]
        owned, length = world.num_splits // world.world_size, world.rows // world.num_splits
        left = (length - handle["first"]) * owned - handle["received"]
        if handle["pass"] == "over":
            handle["pass"] = None
            return None
        if left == 0:  # a pass over a completed epoch is one over the next
            handle.update(epoch=handle["epoch"] + 1, first=0, received=0)
            left = length * owned
        numbers = range(handle["received"], handle["received"] + min(world.batch_size, left))
        handle["received"] += len(numbers)
        handle["pass"] = "live" if left > len(numbers) else "over"  # with its last row, before it has said so
        return [(world.rank * owned + j % owned) * length + handle["first"] + j // owned for j in numbers]

    def save(self, handle: Any) -> Any:
        """Completed cycles only: what was received of the next one comes again."""
        world: World = handle["world"]
        owned = world.num_splits // world.world_size
        identity = [world.rows, world.num_splits, world.table]
        return {"identity": identity, "epoch": handle["epoch"], "cycles": handle["first"] + handle["received"] // owned}

    def resume(self, handle: Any, state: Any) -> None:
        """Refuse other tables and settings, what is no state, and a load under a pass with rows left."""
        world: World = handle["world"]
        if handle["pass"] == "live":
            raise Refused("iterator.alive")
        if not isinstance(state, dict) or state.keys() != {"identity", "epoch", "cycles"}:
            raise Refused("state.malformed")
        if state["identity"] != [world.rows, world.num_splits, world.table]:
            raise Refused("state.mismatch")
        handle.update(epoch=state["epoch"], first=state["cycles"], received=0)

    def kill(self, handle: Any) -> None:
        """Nothing is held."""

    def close(self, handle: Any) -> None:
        """Leave the pass."""
        handle["pass"] = None

"""What a step of a scenario exercises, as an edge of an abstract loader: where it stood, what was asked, what came, where it stands then.

The generated vectors (`model.conformance.vectors`) hold each edge that the checks reach at least once. An edge is text, so that it can
be read; concrete sizes are left out of it, and whatever else two steps may differ in without a reader calling them different.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from model.conformance.adapter import World
from model.conformance.reference import Handle, Reference
from model.conformance.scenario import NOT_OF_WORLDS, USUAL_CLAUSE, Side, Step
from model.settings import Settings

# What of the world a state was saved on can fit or not fit the world it is loaded on.
_BINDING = ("rows", "num_splits", "world_size", "shuffle", "shuffle_seed", "partial_cycle", "table")


class Recorder:
    """Does scenarios on the model, and says of each step what was observed and which edge it was."""

    def __init__(self) -> None:
        """A fresh model without tables."""
        self.side = Side(Reference(_order))
        # By state: the place and the world of the loader that saved it. By loader: what it was loaded with. Tables that grew.
        self.saved: dict[str, tuple[str, World]] = {}
        self.resumed: dict[str, str] = {}
        self.grown: set[str] = set()

    def do(self, step: Step) -> tuple[Any, str]:
        """Do a step; returns the observation and the edge."""
        verb = next(iter(step))
        name = step[verb] if verb not in ("merge", "append") else None
        before = self._place(name)
        asked = getattr(self, f"_ask_{verb}", _nothing)(step)
        observed = self.side.do(step)
        if verb == "save" and observed is None:
            self.saved[step["as"]] = (self._place(name), self.side.handles[step["save"]].world)
        elif verb == "merge" and observed is None:
            self.saved[step["as"]] = (f"merged {self._places(step)}", self.saved[step["merge"][0]][1])
        elif verb == "open" and observed is None:
            self.resumed.pop(step["open"], None)
        elif verb == "load" and observed is None:
            self.resumed[step["load"]] = self.saved[step["state"]][0].partition(",")[0]
        elif verb == "append":
            self.grown.add(step["append"])
        edge = [before, verb, asked, kind(observed), self._place(name), step.get("clause", USUAL_CLAUSE[verb])]
        return observed, " | ".join(edge)

    def _place(self, name: str | None) -> str:
        handle = self.side.handles.get(name) if name is not None else None
        if name is None or handle is None:
            return "-"
        return place(handle) + (f", loaded {self.resumed[name]}" if name in self.resumed else "")

    def _places(self, step: Step) -> list[str]:
        return [self.saved[name][0].partition(",")[0] for name in step["merge"]]

    def _ask_open(self, step: Step) -> str:
        try:
            world = World(**{key: value for key, value in step.items() if key not in NOT_OF_WORLDS})
            owned = world.num_splits // world.world_size
            left_over = "left over" if world.rows % world.num_splits else "even"
        except ZeroDivisionError:
            return "impossible"
        cut = "whole" if world.batch_size % max(owned, 1) == 0 else "partial"
        large = [key for key in ("rows", "shuffle_seed", "epoch") if getattr(world, key) > 64]
        return f"{left_over}, batches of {cut} cycles, large {large}"

    def _ask_pull(self, step: Step) -> str:
        return f"batches {min(step.get('batches', 1), 2)}"

    def _ask_drain(self, step: Step) -> str:
        # The order is independent of the place: to see it where rows are drained is enough.
        world = self.side.handles[step["drain"]].world
        return f"{'shuffled' if world.shuffle else ''} {'clumps' if world.shuffle_clump_size else ''}"

    def _ask_load(self, step: Step) -> str:
        if "garbage" in step:
            return f"garbage {json.dumps(step['garbage'])}"
        where, saver = self.saved[step["state"]]
        loader = self.side.handles[step["load"]].world
        differing = [key for key in _BINDING if getattr(saver, key) != getattr(loader, key)]
        grown = " grown" if loader.table.rsplit("-", 1)[0] in self.grown else ""
        return f"saved at {where}, differing in {differing}{grown}"

    def _ask_merge(self, step: Step) -> str:
        places = [self.saved[name] for name in step["merge"]]
        counted = len(places) - places[0][1].world_size
        settings = len({(world.shuffle, world.shuffle_seed) for _, world in places})
        return f"{counted} too many, {self._places(step)}, {settings} settings, skew {step.get('skew')}"

    def _ask_length(self, step: Step) -> str:
        world = self.side.handles[step["length"]].world
        rows = world.rows // world.num_splits * (world.num_splits // world.world_size)
        return "a shorter batch last" if rows % world.batch_size else "whole batches"

    def _ask_set_epoch(self, step: Step) -> str:
        return "same" if step["epoch"] == self.side.handles[step["set_epoch"]].pool.loader.cursor.epoch else "other"

    def _ask_fault(self, step: Step) -> str:
        return "none" if step["row"] is None else "row"


def _order(world: World, epoch: int) -> Sequence[int]:
    """The order of chapter order, each computed once: thousands of scenarios share a few."""
    return _sequence(world.rows, world.shuffle_seed, epoch, world.shuffle_clump_size)


@cache
def _sequence(rows: int, seed: int, epoch: int, clump: int | None) -> tuple[int, ...]:
    order = Settings(rows, 1, shuffle_seed=seed, shuffle_clump_size=clump).order(epoch)
    return tuple(order.row(position) for position in range(rows))


def _nothing(step: Step) -> str:
    del step
    return ""


def place(handle: Handle) -> str:
    """Where a loader of the model stands, without numbers."""
    world, pool = handle.world, handle.pool
    cursor, settings = pool.loader.cursor, pool.loader.settings
    length = settings.rows // settings.num_splits
    if cursor.cycle == length:
        found = ["completed"]
    elif cursor.served:
        found = ["within a cycle"]
    else:
        found = ["between cycles" if cursor.cycle else "beginning"]
    flags = {
        "mid-step": pool.place is not None,
        "waiting": pool.waiting is not None,
        "live": pool.running is not None,
        "failed": pool.loader.newest == "failed",
        f"older {pool.loader.older}": pool.loader.older != "ended",
        "over, not said": handle.held and pool.loader.newest == "ended",
        "asked": pool.loader.asked,
        "later epoch": cursor.epoch > world.epoch,
        "faulty": handle.fault is not None,
        "ranks": world.world_size > 1,
        "exact": world.partial_cycle == "exact",
        f"workers {world.worker_sharding}": world.num_workers > 1,
    }
    return ", ".join([*found, *(flag for flag, holds in flags.items() if holds)])


def kind(observed: Any) -> str:
    """What sort of observation it is."""
    if isinstance(observed, dict):
        return json.dumps(observed)
    if not isinstance(observed, list):
        return "done" if observed is None else "a number"
    rows: Sequence[list[int]] = [one for one in observed if isinstance(one, list)]
    short = "a shorter one last" if len({len(one) for one in rows}) > 1 else "of one size"
    ends = [json.dumps(one) for one in observed if not isinstance(one, list)]
    return f"{min(len(rows), 2)} batches {short} {sorted(set(ends))}"

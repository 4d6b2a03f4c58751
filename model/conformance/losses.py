"""RES-8, whether a resume within a cycle loses rows: the rows of all ranks, before it and after it, are judged together.

Nothing else is: how a loader deals with the partial cycle (it may replay it, finish it, or begin the epoch again), in which order rows
come, and how often. So this needs no model, only uninterrupted epochs of the loader itself: what they lack is not lost by a resume.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from model.conformance.adapter import Adapter
from model.conformance.checks import Bound, Scenarios, check, divisors, mid_cycle, opened, resumed, worlds
from model.conformance.scenario import NOT_OF_WORLDS, Side, Step, Violation

CLAUSE: Final = "RES-8"


class Losses:
    """Does scenarios on a loader, and looks for the rows that none of its ranks received.

    Parameters
    ----------
    adapter : Adapter
        The loader.
    """

    def __init__(self, adapter: Adapter) -> None:
        """No epoch has been seen yet."""
        self.adapter = adapter
        self._epochs: dict[str, frozenset[int] | None] = {}

    def run(self, steps: Sequence[Step], note: str = "", judged: Counter[str] | None = None) -> Violation | None:
        """Do a scenario; a refusal, a failure or a crash is what other clauses are about, and then nothing is judged here."""
        try:
            whole, received = self._whole(steps), self._received(steps)
        except Exception:
            return None
        if not whole or received is None:
            return None
        missing = sorted(whole - received)
        if missing:
            last = {**steps[-1], "clause": CLAUSE}
            return Violation(CLAUSE, {"never received": []}, {"never received": missing}, (*steps[:-1], last), note)
        if judged is not None:
            judged[CLAUSE] += 1
        return None

    def _whole(self, steps: Sequence[Step]) -> frozenset[int] | None:
        """The rows that all ranks receive without an interruption, in each world of the scenario; None where one cannot be had."""
        worlds = [{key: value for key, value in step.items() if key not in (*NOT_OF_WORLDS, "rank")} for step in steps if "open" in step]
        epochs = [self._epoch(world) for world in worlds]
        return None if None in epochs else frozenset.intersection(*(rows for rows in epochs if rows is not None))

    def _epoch(self, world: dict[str, Any]) -> frozenset[int] | None:
        """The rows of an uninterrupted epoch of all ranks of a world."""
        key = json.dumps(world, sort_keys=True)
        if key not in self._epochs:
            passes = [[opened("a", world, rank=rank), {"drain": "a"}] for rank in range(world.get("world_size", 1))]
            self._epochs[key] = self._received([step for one in passes for step in one])
        return self._epochs[key]

    def _received(self, steps: Sequence[Step]) -> frozenset[int] | None:
        """The rows of all loaders of a scenario; None where something else than a batch or the end came."""
        rows: set[int] = set()
        side = Side(self.adapter, most=max(step.get("rows", 0) for step in steps) + 2)
        try:
            for step in steps:
                seen: Any = side.do(step)
                batches = seen if isinstance(seen, list) else [seen]
                if not all(batch is None or isinstance(batch, list) for batch in batches):
                    return None
                rows.update(row for batch in batches for row in batch or ())
        finally:
            side.release()
        return frozenset(rows)


@check(CLAUSE, whole=True)
def resumes_within_cycles(bound: Bound) -> Scenarios:
    """All ranks cut at each step within a cycle: each resumes its own state, once and twice; other worlds one merged, or one rank's."""
    for common, world_size, batches in worlds(bound):
        ranks = range(world_size)
        own = [f"s{rank}" for rank in ranks]
        for cut in range(batches):
            if not mid_cycle(common, cut):
                continue
            saving: list[Step] = []
            for rank in ranks:
                saving += [opened("a", common, rank=rank), {"pull": "a", "batches": cut}, {"save": "a", "as": f"s{rank}"}, {"kill": "a"}]
            yield saving + resumed(common, own, CLAUSE)
            if cut + 1 < batches:
                again: list[Step] = []
                for rank in ranks:
                    again += [opened("a", common, rank=rank), {"load": "a", "state": f"s{rank}"}, {"pull": "a"}]
                    again += [{"save": "a", "as": f"t{rank}"}, {"kill": "a"}]
                yield saving + again + resumed(common, [f"t{rank}" for rank in ranks], CLAUSE)
            for other in divisors(common["num_splits"]):
                elsewhere = {**common, "world_size": other}
                if other != world_size:
                    yield saving + resumed(elsewhere, own[-1:] * other, CLAUSE)
                if other != world_size > 1:
                    yield [*saving, {"merge": own, "as": "m"}, *resumed(elsewhere, ["m"] * other, CLAUSE)]

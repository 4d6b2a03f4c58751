"""Search every short history of loaders with workers for one that breaks a clause (chapter workers).

    python -m model.explore_workers --rows 8 --splits 4 --workers 4 --prefetch 2

Breadth first, so that the first violation found is a shortest. What can happen, and what is judged, is in ``model.world_workers``;
what is right, by the rows received alone, in ``model.ghost_workers``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from dataclasses import dataclass, field

from model.table_workers import MODEL, Bound, BrokenClause, Event, WorkerSystem, World
from model.world_workers import Explorer

HELD = (
    "committed is what was delivered, however far workers ran ahead (WRK-6, LAW-7)",
    "a state is refused exactly where splits of the rank differ (WRK-8, WRK-9)",
    "the number of batches to the next boundary, tails included (WRK-9)",
    "the floor (WRK-10)",
    "a break or a failure keeps place and turn, and nothing else continues there (WRK-11, WRK-12, WRK-14, WRK-15)",
    "an iterator that was never asked changes nothing, and one that was superseded gives nothing (DLV-4, CAL-3)",
    "every batch is the one that is due: documented mode (WRK-2, WRK-3), invariant mode as W = 0 (WRK-4, WRK-5)",
    "nothing is lost, and nothing comes twice but what replay or floor promise (LAW-1, LAW-2)",
)


@dataclass(frozen=True)
class Violation:
    """A shortest history that breaks a clause."""

    clause: str
    text: str
    opened: dict[str, object]
    events: tuple[Event, ...]

    def steps(self) -> list[dict[str, object]]:
        """The history as JSON values; the last step is the one that breaks the clause."""
        return [self.opened, *(event.step() for event in self.events)]


@dataclass
class Result:
    """What a search did and found."""

    states: int = 0
    transitions: int = 0
    seconds: float = 0.0
    violation: Violation | None = None
    counts: dict[str, int] = field(default_factory=dict)


def explore(bound: Bound, system: WorkerSystem = MODEL, progress: bool = False) -> Result:
    """Search to a bound; stops at the first violation, which is a shortest."""
    began = time.monotonic()
    explorer = Explorer(bound, system)
    result = Result(counts=explorer.counts)
    # How each world was first reached.
    reached: dict[World, tuple[World, Event] | None] = {explorer.fresh(size): None for size in bound.worlds()}
    waiting = deque(reached)
    while waiting and result.violation is None:
        world = waiting.popleft()
        try:
            for event, after in explorer.successors(world):
                result.transitions += 1
                if after not in reached:
                    explorer.judge(after, event)
                    reached[after] = (world, event)
                    waiting.append(after)
                    if progress and len(reached) % 100_000 == 0:
                        print(f"{len(reached)} states, {time.monotonic() - began:.0f} s", file=sys.stderr)
        except BrokenClause as broken:
            result.violation = found_violation(bound, reached, world, broken)
    result.states = len(reached)
    result.seconds = time.monotonic() - began
    return result


def found_violation(bound: Bound, reached: dict[World, tuple[World, Event] | None], world: World, broken: BrokenClause) -> Violation:
    """Walk back to the beginning."""
    events = [broken.event]
    step = reached[world]
    while step is not None:
        world, event = step
        events.insert(0, event)
        step = reached[world]
    opened = {"event": "open", "rows": bound.rows, "num_splits": bound.splits, "world_size": len(world.pools), "seed": bound.seed}
    return Violation(broken.clause, broken.text, opened, tuple(events))


def parse(arguments: list[str] | None) -> tuple[list[Bound], argparse.Namespace]:
    """The bounds to search, one per pair of N and S."""
    parser = argparse.ArgumentParser(prog="python -m model.explore_workers", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, required=True, help="N")
    parser.add_argument("--splits", type=int, required=True, help="S")
    parser.add_argument("--workers", type=int, default=4, help="the largest W; 0 and both modes are always tried")
    parser.add_argument("--prefetch", type=int, default=2, help="the most batches that a worker runs ahead")
    parser.add_argument("--batch-size", type=int, default=4, help="the largest B")
    parser.add_argument("--crashes", type=int, default=1, help="the most crashes in one history")
    parser.add_argument("--ranks", type=int, default=4, help="the largest world size")
    parser.add_argument("--epochs", type=int, default=1, help="epochs of a run")
    parser.add_argument("--seed", type=int, default=None, help="shuffle with this seed")
    parser.add_argument("--up-to", action="store_true", help="every 1 <= S <= splits and S <= N <= rows, not just these two")
    given = parser.parse_args(arguments)
    sizes = [(given.rows, given.splits)]
    if given.up_to:
        sizes = [(rows, splits) for splits in range(1, given.splits + 1) for rows in range(splits, given.rows + 1)]
    rest = (given.workers, given.prefetch, given.batch_size, given.crashes, given.ranks, given.epochs, given.seed)
    return [Bound(rows, splits, *rest) for rows, splits in sizes], given


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    bounds, given = parse(arguments)
    states, transitions, seconds, counts = 0, 0, 0.0, dict[str, int]()
    for bound in bounds:
        result = explore(bound, progress=True)
        states, transitions, seconds = states + result.states, transitions + result.transitions, seconds + result.seconds
        counts = {name: counts.get(name, 0) + count for name, count in result.counts.items()}
        if result.violation is not None:
            print("[\n" + ",\n".join(" " + json.dumps(step) for step in result.violation.steps()) + "\n]")
            print(f"{result.violation.clause} broken: {result.violation.text}")
            return 1
    print(f"{states} states, {transitions} transitions, {seconds:.1f} s; {counts}")
    sizes = [(bound.rows, bound.splits) for bound in bounds]
    print(
        f"bound: (N, S) in {sizes}; W <= {given.workers}, both modes, prefetch <= {given.prefetch}, B <= {given.batch_size}, "
        f"crashes <= {given.crashes}, R <= {given.ranks}, epochs {given.epochs}, seed {given.seed}"
    )
    for line in HELD:
        print(f"held everywhere: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

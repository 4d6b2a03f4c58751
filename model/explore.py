"""Search every short history of a distributed run for one that breaks a law (chapter laws).

    python -m model.explore --rows 6 --splits 4 --crashes 2

Breadth first, so that the first violation found is a shortest. What can happen, and what is judged, is in ``model.world``; what
is right, by the rows received alone, in ``model.ghost``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from dataclasses import dataclass, field

from model.counterexample import Event, describe, narrate
from model.scenario import MODEL, System, render
from model.world import Bound, BrokenLaw, Explorer, World

LAWS = ("LAW-1", "LAW-2", "LAW-3", "LAW-6", "LAW-9", "DLV-4")


@dataclass(frozen=True)
class Violation:
    """A shortest history that breaks a law, and the same as a scenario (``vectors/README.md``)."""

    law: str
    text: str
    events: tuple[Event, ...]
    scenario: dict[str, object]


@dataclass
class Result:
    """What a search did and found."""

    states: int = 0
    transitions: int = 0
    seconds: float = 0.0
    violation: Violation | None = None
    counts: dict[str, int] = field(default_factory=dict)


def explore(bound: Bound, system: System = MODEL, progress: bool = False) -> Result:
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
                    reached[after] = (world, event)
                    waiting.append(after)
                    if progress and len(reached) % 100_000 == 0:
                        print(f"{len(reached)} states, {time.monotonic() - began:.0f} s", file=sys.stderr)
        except BrokenLaw as broken:
            result.violation = found_violation(explorer, reached, world, broken)
    result.states = len(reached)
    result.seconds = time.monotonic() - began
    return result


def found_violation(explorer: Explorer, reached: dict[World, tuple[World, Event] | None], world: World, broken: BrokenLaw) -> Violation:
    """Walk back to the beginning, and tell the history as a scenario."""
    events = [broken.event]
    step = reached[world]
    while step is not None:
        world, event = step
        events.insert(0, event)
        step = reached[world]
    bound = explorer.bound
    law = broken.law if broken.law is not None else describe(events)
    settings = [bound.settings(len(world.ranks), rank, "replay") for rank in range(len(world.ranks))]
    scenario = narrate(settings, events, explorer.system, law, broken.text)
    return Violation(law, broken.text, tuple(events), scenario)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m model.explore", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, required=True, help="N")
    parser.add_argument("--splits", type=int, required=True, help="S")
    parser.add_argument("--crashes", type=int, default=1, help="the most crashes in one history")
    parser.add_argument("--epochs", type=int, default=1, help="epochs of a run")
    parser.add_argument("--ranks", type=int, default=8, help="the largest world size")
    parser.add_argument("--seed", type=int, default=None, help="shuffle with this seed")
    parser.add_argument("--up-to", action="store_true", help="every 1 <= S <= splits and S <= N <= rows, not just these two")
    given = parser.parse_args(arguments)
    sizes = [(given.rows, given.splits)]
    if given.up_to:
        sizes = [(rows, splits) for splits in range(1, given.splits + 1) for rows in range(splits, given.rows + 1)]
    states, transitions, seconds, counts = 0, 0, 0.0, dict[str, int]()
    for rows, splits in sizes:
        if not 1 <= splits <= rows:
            parser.error(f"--splits must lie in [1, {rows}], the number of rows, got {splits}")
        result = explore(Bound(rows, splits, given.crashes, given.epochs, given.ranks, given.seed), progress=True)
        states, transitions, seconds = states + result.states, transitions + result.transitions, seconds + result.seconds
        counts = {name: counts.get(name, 0) + count for name, count in result.counts.items()}
        if result.violation is not None:
            print(render(result.violation.scenario))
            print(f"{result.violation.law} broken: {result.violation.text}")
            return 1
    print(f"{states} states, {transitions} transitions, {seconds:.1f} s; {counts}")
    print(f"bound: (N, S) in {sizes}; crashes <= {given.crashes}, epochs {given.epochs}, R <= {given.ranks}, seed {given.seed}")
    print(f"held everywhere: {', '.join(LAWS)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

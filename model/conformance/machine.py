"""Longer histories: drawn by Hypothesis, which also shrinks them, and drawn at random on larger tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from model.conformance.checks import divisors
from model.conformance.scenario import Step, Violation, needs

Run = Callable[[Sequence[Step]], Violation | None]


class Found(Exception):
    """A history that the loader does not pass."""

    def __init__(self, violation: Violation) -> None:
        """Remember it."""
        super().__init__(violation.clause)
        self.violation = violation


@st.composite
def histories(draw: st.DrawFn, capabilities: frozenset[str]) -> list[Step]:
    """Loaders of one table and order, one after the other on any rank of any world; each pulls, saves, loads, breaks, fails."""
    splits = draw(st.sampled_from([1, 2, 4, 6]))
    rows = draw(st.integers(splits, splits * 5 + 2))
    common: dict[str, Any] = {"rows": rows, "num_splits": splits}
    if "shuffle" in capabilities and draw(st.booleans()):
        common |= {"shuffle": True, "shuffle_seed": draw(st.integers(0, 3))}
    steps: list[Step] = []
    saved = 0
    verbs = ["pull", "pull", "pull", "save", "load", "drain", "open"]
    verbs += ["close"] * ("break" in capabilities) + ["set_epoch"] * ("epochs" in capabilities)
    context = "CYC-1"
    alive = False
    for _ in range(draw(st.integers(1, 14))):
        verb = "open" if not steps else draw(st.sampled_from(verbs))
        if verb == "open":
            world_size = draw(st.sampled_from(divisors(splits)))
            world = {
                **common,
                "world_size": world_size,
                "rank": draw(st.integers(0, world_size - 1)),
                "batch_size": draw(st.integers(1, 3)),
            }
            if "exact" in capabilities:
                world["partial_cycle"] = draw(st.sampled_from(["replay", "exact"]))
            if "invariant" in capabilities:
                workers = draw(st.sampled_from([0, 0, 0, 2]))
                world |= {"num_workers": workers, "worker_sharding": "batches"} if workers else {}
            steps.append({"open": "a", **world})
            context, alive = "CYC-1", False
        elif verb == "pull":
            steps.append({"pull": "a", "batches": draw(st.integers(1, 3)), "clause": context})
            alive = True
        elif verb == "drain":
            steps.append({"drain": "a", "clause": context})
            context, alive = "EPO-2", False
        elif verb == "save":
            steps.append({"save": "a", "as": f"s{saved}"})
            saved += 1
        elif verb == "load" and saved:
            steps.append({"load": "a", "state": f"s{draw(st.integers(0, saved - 1))}", "clause": "DLV-4" if alive else "RES-3"})
            context = context if alive else "RES-3"
        elif verb == "close":
            steps.append({"close": "a"})
            context, alive = "DLV-4" if context == "CYC-1" else context, False
        elif verb == "set_epoch":
            steps.append({"set_epoch": "a", "epoch": draw(st.integers(0, 2)), "clause": "DLV-4" if alive else "EPO-4"})
            context = context if alive else "EPO-4"
    assume(needs(steps) <= capabilities)
    return steps


def search(run: Run, capabilities: frozenset[str], known: frozenset[str], examples: int) -> tuple[Violation | None, int]:
    """Draw histories until one breaks a clause that is not known to be broken; returns the shrunk violation and the number drawn."""
    done = 0

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(histories(capabilities))
    def attempt(steps: list[Step]) -> None:
        nonlocal done
        done += 1
        violation = run(steps)
        if violation is not None:
            assume(violation.clause not in known)
            raise Found(violation)

    try:
        attempt()
    except Found as found:
        return found.violation, done
    return None, done


def stress(count: int, seed: int = 0) -> Iterator[list[Step]]:
    """Runs on larger tables that crash at random and go on elsewhere, to the end of the epoch."""
    draw = random.Random(seed)
    for _ in range(count):
        splits = draw.choice([6, 12, 24, 48])
        rows = draw.randrange(splits * 10, splits * 30)
        common = {"rows": rows, "num_splits": splits}
        steps: list[Step] = []
        received = 0
        for hop in range(8):
            world_size = draw.choice(divisors(splits))
            batch_size = splits // world_size
            steps.append({"open": "a", **common, "world_size": world_size, "rank": draw.randrange(world_size), "batch_size": batch_size})
            if hop:
                steps.append({"load": "a", "state": "s"})
            cycles = draw.randrange(rows // splits - received) if received < rows // splits - 1 else 0
            received += cycles
            steps += [{"pull": "a", "batches": cycles, "clause": "RES-3" if hop else "CYC-1"}, {"save": "a", "as": "s"}]
        steps.append({"drain": "a", "clause": "RES-3"})
        yield steps

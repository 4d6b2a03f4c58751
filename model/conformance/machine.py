"""Longer histories: drawn by Hypothesis, which also shrinks them, and drawn at random on larger tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

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
def worlds(draw: st.DrawFn, common: dict[str, Any], capabilities: frozenset[str]) -> Step:
    """An open step of any rank of any world."""
    world_size = draw(st.sampled_from(divisors(common["num_splits"])))
    world: dict[str, Any] = {"world_size": world_size, "rank": draw(st.integers(0, world_size - 1)), "batch_size": draw(st.integers(1, 3))}
    if "exact" in capabilities:
        world["partial_cycle"] = draw(st.sampled_from(["replay", "exact"]))
    if "invariant" in capabilities:
        workers = draw(st.sampled_from([0, 0, 0, 2]))
        world |= {"num_workers": workers, "worker_sharding": "batches"} if workers else {}
    return {"open": "a", **common, **world}


@st.composite
def histories(draw: st.DrawFn, capabilities: frozenset[str]) -> list[Step]:
    """Loaders of one table and order, one after the other; each pulls, saves, loads, breaks, crashes."""
    splits = draw(st.sampled_from([1, 2, 4, 6]))
    common: dict[str, Any] = {"rows": draw(st.integers(splits, splits * 5 + 2)), "num_splits": splits}
    if "shuffle" in capabilities and draw(st.booleans()):
        common |= {"shuffle": True, "shuffle_seed": draw(st.integers(0, 3))}
    verbs = ["pull", "pull", "pull", "save", "crash", "crash", "load", "drain", "open"]
    verbs += ["iterate"] * ("newest" in capabilities)
    verbs += ["close"] * ("break" in capabilities) + ["set_epoch"] * ("epochs" in capabilities)
    steps: list[Step] = [draw(worlds(common, capabilities))]
    history = _History("CYC-1")
    # Short histories would be most of those drawn, and tell little; what is found is shrunk afterwards.
    for _ in range(draw(st.integers(6, 14))):
        verb = draw(st.sampled_from(verbs))
        if verb == "open":
            steps.append(draw(worlds(common, capabilities)))
            history.moved("CYC-1")
        elif verb == "crash":
            # The process is lost at some moment after a save; another world goes on.
            if not history.saved or draw(st.booleans()):
                steps.append(history.save())
            steps += [draw(worlds(common, capabilities)), {"load": "a", "state": f"s{history.saved - 1}"}]
            history.moved("RES-3")
        elif verb == "load" and history.saved:
            if history.alive and "close" in verbs and draw(st.booleans()):
                # Most loads would be refused otherwise.
                steps.append({"close": "a"})
                history.alive = False
            state = f"s{draw(st.integers(0, history.saved - 1))}"
            steps.append({"load": "a", "state": state, "clause": "DLV-4" if history.alive else "RES-3"})
            history.asked("RES-3")
        elif verb == "set_epoch":
            epoch = draw(st.integers(0, 2))
            steps.append({"set_epoch": "a", "epoch": epoch, "clause": "DLV-4" if history.alive else "EPO-4"})
            history.asked("EPO-4")
        elif verb == "save":
            steps.append(history.save())
        elif verb != "load":
            steps.append(history.rows(verb, draw(st.integers(1, 3))))
            steps += history.older(draw(st.sampled_from(["never", "at once", "later"]))) if verb == "iterate" else []
    assume(needs(steps) <= capabilities)
    return steps


@dataclass
class _History:
    """What the newest loader of a history has done: what its next rows are about, whether a pass is under way, the states so far."""

    context: str
    alive: bool = False
    saved: int = 0

    def moved(self, context: str) -> None:
        """No pass is under way, and the next rows are about this clause."""
        self.context, self.alive = context, False

    def asked(self, context: str) -> None:
        """The same, where the call was not refused."""
        if not self.alive:
            self.context = context

    def save(self) -> Step:
        """One more state."""
        self.saved += 1
        return {"save": "a", "as": f"s{self.saved - 1}"}

    def rows(self, verb: str, batches: int) -> Step:
        """Pull, drain, close or iterate."""
        about = self.context
        if verb == "pull":
            self.alive = True
            return {"pull": "a", "batches": batches, "clause": about}
        if verb == "drain":
            self.moved("EPO-2")
            return {"drain": "a", "clause": about}
        self.moved("DLV-4" if about == "CYC-1" else about)
        return {verb: "a"}

    def older(self, when: str) -> list[Step]:
        """The iterator before a newer one is asked at once, or behind the newer one's first batch, or not at all."""
        first = [self.rows("pull", 1)] if when == "later" else []
        return [*first, {"older": "a"}] if when != "never" else []


def search(run: Run, capabilities: frozenset[str], known: frozenset[str], examples: int) -> tuple[Violation | None, int]:
    """Draw histories until one breaks a clause that is not known to be broken; returns the shrunk violation and the number drawn."""
    done = 0
    newest: Violation | None = None

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
        nonlocal done, newest
        done += 1
        violation = run(steps)
        if violation is not None:
            assume(violation.clause not in known)
            newest = violation
            raise Found(violation)

    try:
        attempt()
    except Found as found:
        return found.violation, done
    except Flaky:
        # A loader that does not do the same twice cannot be shrunk; what it did the first time is violation enough.
        return newest, done
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
            # Every batch ends a cycle: one rank's state serves all.
            batch_size = splits // world_size
            steps.append({"open": "a", **common, "world_size": world_size, "rank": draw.randrange(world_size), "batch_size": batch_size})
            if hop:
                steps.append({"load": "a", "state": "s"})
            cycles = draw.randrange(rows // splits - received) if received < rows // splits - 1 else 0
            received += cycles
            steps += [{"pull": "a", "batches": cycles, "clause": "CKP-2" if hop else "CYC-1"}, {"save": "a", "as": "s"}]
        steps.append({"drain": "a", "clause": "CKP-2"})
        yield steps

"""Scenarios: steps done on a loader and on the model side by side. A scenario is plain JSON, and says all that is needed to do it again.

| step | meaning |
|---|---|
| ``{"open": a, ...world}`` | a new loader called a; keys are those of ``World`` |
| ``{"pull": a, "batches": k}`` | the next k batches (default 1), fewer where the pass ends or fails |
| ``{"drain": a}`` | all batches to the end of the pass |
| ``{"iterate": a}``, ``{"older": a}`` | a newer iterator, asked for nothing; one ``next()`` on the one before it |
| ``{"close": a}``, ``{"kill": a}`` | leave the pass; lose the process |
| ``{"save": a, "as": s}``, ``{"load": a, "state": s}`` | save, load; ``{"load": a, "garbage": g}`` a state that no loader has saved |
| ``{"merge": [s, ..], "as": m, "skew": k}`` | merge; ``"skew"`` default "refuse" |
| ``{"set_epoch": a, "epoch": e}``, ``{"length": a}`` | the calls of these names |
| ``{"fault": a, "row": i}`` | the transform raises for this row from now on; null: for none |
| ``{"append": t, "rows": n}`` | table t grows |

Any step may carry ``"clause"``, what is violated where the two differ there. Rows of a pass that follows a whole one are about EPO-2,
whatever the step says.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from model.conformance.adapter import Adapter, Failed, Refused, World
from model.conformance.watchdog import Watched

Step = dict[str, Any]
# More batches than any pass of a scenario has.
MOST_BATCHES = 100_000
# A loader that never ends is stopped so many batches behind the end that the specification gives.
_BEYOND_THE_END = 3
# What the rows of a pass are about that is the first of its loader, or the first after a load.
_OF_ONE_PASS = ("CYC-1", "RES-3", "LAW-4", "DLV-4")

# What a step of a vector expects to observe (spec/vectors/README.md); nothing here reads it.
EXPECTING = ("expect", "valid", "code")
# Keys of an open step that are no arguments.
NOT_OF_WORLDS = ("open", "clause", *EXPECTING)
_SALTS = itertools.count()

# What a step observes where the transform raised.
BROKEN = {"failed": "transform"}

# The clause of a step that names none. A loader that does not open, or whose end fails, serves no rank of that world.
USUAL_CLAUSE = {
    "open": "CYC-1",
    "pull": "CYC-1",
    "drain": "CYC-1",
    "iterate": "DLV-4",
    "older": "DLV-4",
    "close": "DLV-4",
    "kill": "CYC-1",
    "save": "CKP-1",
    "load": "RES-3",
    "merge": "MRG-2",
    "set_epoch": "EPO-4",
    "length": "WRK-13",
    "fault": "DLV-5",
    "append": "DLV-12",
}


@dataclass(frozen=True)
class Violation:
    """Where a loader and the specification part.

    Parameters
    ----------
    clause : str
        What the step is about.
    expected, actual : object
        Observations: rows, None for the end, or a refusal.
    steps : list of Step
        The scenario up to there.
    note : str
        What the check wanted to know.
    """

    clause: str
    expected: Any
    actual: Any
    steps: tuple[Step, ...]
    note: str = ""


@dataclass
class Side:
    """One of the two that do a scenario: an adapter, its handles and states by name.

    Tables that grow are made anew for every run: `salt` is part of their names. At `most` batches a drain is stopped.
    """

    adapter: Adapter
    salt: str = ""
    most: int = MOST_BATCHES
    tables: dict[str, str] = field(default_factory=dict)
    handles: dict[str, Any] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)

    def do(self, step: Step) -> Any:
        """Do one step; returns what is observed: a JSON value."""
        verb = next(iter(step))
        if isinstance(self.adapter, Watched):
            self.adapter.steps.append(step)
        try:
            return getattr(self, f"_{verb}")(step[verb], step)
        except Refused as refused:
            return {"refused": refused.code}
        except Failed:
            return dict(BROKEN)

    def release(self) -> None:
        """Kill what was opened."""
        for handle in self.handles.values():
            self.adapter.kill(handle)
        self.handles.clear()
        if isinstance(self.adapter, Watched):
            self.adapter.steps.clear()

    def _open(self, name: str, step: Step) -> None:
        world = World(**{key: value for key, value in step.items() if key not in NOT_OF_WORLDS})
        self.tables[world.table] = f"{world.table}-{world.rows}{self.salt}"
        handle = self.adapter.open(replace(world, table=self.tables[world.table]))
        if name in self.handles:
            self.adapter.kill(self.handles.pop(name))
        self.handles[name] = handle

    def _pull(self, name: str, step: Step) -> Any:
        return self._batches(name, step.get("batches", 1))

    def _drain(self, name: str, _: Step) -> Any:
        found = self._batches(name, self.most)
        if len(found) == self.most and isinstance(found[-1], list):
            found.append("and so on without an end")
        return found

    def _batches(self, name: str, most: int) -> list[Any]:
        """Batches until the pass ends or fails; those before a failure have been delivered, and are observed."""
        found: list[Any] = []
        for _ in range(most):
            found.append(_batch(lambda: self.adapter.pull(self.handles[name])))
            if not isinstance(found[-1], list):
                break
        return found

    def _iterate(self, name: str, _: Step) -> None:
        self.adapter.iterate(self.handles[name])

    def _older(self, name: str, _: Step) -> list[Any]:
        return [_batch(lambda: self.adapter.pull_older(self.handles[name]))]

    def _close(self, name: str, _: Step) -> None:
        self.adapter.close(self.handles[name])

    def _kill(self, name: str, _: Step) -> None:
        self.adapter.kill(self.handles.pop(name))

    def _save(self, name: str, step: Step) -> None:
        self.states[step["as"]] = self.adapter.save(self.handles[name])

    def _load(self, name: str, step: Step) -> None:
        state = step["garbage"] if "garbage" in step else self.states[step["state"]]
        self.adapter.resume(self.handles[name], state)

    def _merge(self, names: Sequence[str], step: Step) -> None:
        self.states[step["as"]] = self.adapter.merge([self.states[name] for name in names], step.get("skew", "refuse"))

    def _set_epoch(self, name: str, step: Step) -> None:
        self.adapter.set_epoch(self.handles[name], step["epoch"])

    def _length(self, name: str, _: Step) -> int:
        return self.adapter.length(self.handles[name])

    def _fault(self, name: str, step: Step) -> None:
        self.adapter.fault(self.handles[name], step["row"])

    def _append(self, table: str, step: Step) -> None:
        self.adapter.append(self.tables[table], step["rows"])


def _batch(pull: Callable[[], Sequence[int] | None]) -> Any:
    """What one ``next()`` comes to."""
    try:
        return plain(pull())
    except Refused as refused:
        return {"refused": refused.code}
    except Failed:
        return dict(BROKEN)


def plain(batch: Sequence[int] | None) -> list[int] | None:
    """A batch as JSON has it."""
    return None if batch is None else [int(row) for row in batch]


def run(
    steps: Sequence[Step],
    subject: Adapter,
    reference: Adapter,
    note: str = "",
    judged: Counter[str] | None = None,
    *,
    watch: Callable[[int, Any, Any], None] | None = None,
) -> Violation | None:
    """Do a scenario on both; returns the first difference.

    An exception that is neither `Refused` nor `Failed` is a crash of the loader, and a difference too. `judged` counts, by clause, the
    steps in which both agreed; `watch` is told the number of each step and what both observed.
    """
    salt = salted(steps)
    return compare(steps, subject, Side(reference, salt).do, note, judged, salt=salt, watch=watch)


def salted(steps: Sequence[Step]) -> str:
    """What is made part of the names of tables: another text each time where a table grows."""
    return f"-{next(_SALTS)}" if any("append" in step for step in steps) else ""


def compare(
    steps: Sequence[Step],
    subject: Adapter,
    expect: Callable[[Step], Any],
    note: str = "",
    judged: Counter[str] | None = None,
    *,
    salt: str = "",
    watch: Callable[[int, Any, Any], None] | None = None,
) -> Violation | None:
    """As `run`; what is expected of each step says `expect`, whoever that is: for whatever pulls it must be a list."""
    theirs = Side(subject, salt)
    codes = "codes" in subject.describe().capabilities
    about: dict[str, str] = {}
    try:
        for number, step in enumerate(steps):
            verb = next(iter(step))
            expected = expect(step)
            theirs.most = len(expected) + _BEYOND_THE_END if verb == "drain" else MOST_BATCHES
            clause = step.get("clause", USUAL_CLAUSE[verb])
            if verb in ("pull", "drain"):
                clause = _about(about.get(step[verb]), clause)
            _note(about, verb, step, expected)
            try:
                actual = theirs.do(step)
            except Exception as error:
                actual = {"crashed": f"{type(error).__name__}: {error}"}
            if watch is not None:
                watch(number, expected, actual)
            if not agree(expected, actual, codes):
                return Violation(clause, expected, actual, tuple(steps[: number + 1]), note)
            if judged is not None:
                judged[clause] += 1
    finally:
        theirs.release()
    return None


def _about(since: str | None, clause: str) -> str:
    """What rows are about, given what their loader has done since it was opened: a step cannot know whether a pass had ended before it."""
    if since == "EPO-2" and clause in _OF_ONE_PASS:
        return since
    return "RES-3" if since == "RES-3" and clause in ("CYC-1", "DLV-4") else clause


def _note(about: dict[str, str], verb: str, step: Step, expected: Any) -> None:
    """Keep what the next rows of a loader are about: of a pass after a whole one EPO-2, after a load RES-3."""
    if verb in ("pull", "drain") and expected[-1:] == [None]:
        about[step[verb]] = "EPO-2"
    elif verb == "load" and expected is None:
        about[step[verb]] = "RES-3"
    elif verb in ("open", "set_epoch") and expected is None:
        about.pop(step[verb], None)


def needs(steps: Sequence[Step]) -> frozenset[str]:
    """The capabilities without which a scenario cannot be done."""
    found = {NEEDED_BY_VERB[verb] for step in steps for verb in NEEDED_BY_VERB if verb in step}
    for step in steps:
        if "open" in step:
            found |= {"shuffle"} if step.get("shuffle") else set()
            found |= {"exact"} if step.get("partial_cycle") == "exact" else set()
            if step.get("num_workers", 0) > 1:
                found.add("invariant" if step.get("worker_sharding") == "batches" else "workers")
    return frozenset(found)


NEEDED_BY_VERB = {
    "close": "break", "iterate": "newest", "older": "newest", "fault": "faults", "set_epoch": "epochs", "merge": "merge",
    "length": "length", "append": "append",
}  # fmt: skip


def agree(expected: Any, actual: Any, codes: bool) -> bool:
    """Whether two observations are the same; codes of refusals count only for loaders that carry them."""
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(agree(one, other, codes) for one, other in zip(expected, actual, strict=True))
    if isinstance(expected, dict) and isinstance(actual, dict) and not codes:
        return expected.keys() == actual.keys()
    return bool(expected == actual)

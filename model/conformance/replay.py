"""Scenarios from outside: read, checked so that nothing in them can surprise the engine, and done again step by step."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Final

from model.conformance import losses, orders
from model.conformance.adapter import Adapter, World
from model.conformance.checks import Bound
from model.conformance.clauses import CLAUSES
from model.conformance.learned import Learned
from model.conformance.reference import Reference
from model.conformance.scenario import USUAL_CLAUSE, Step, Violation, needs, run
from model.conformance.screen import sentence, words

# What each verb wants beside its subject, and what it may have.
_WANTED: Final[dict[str, dict[str, type]]] = {
    "open": {"rows": int, "num_splits": int},
    "pull": {},
    "drain": {},
    "iterate": {},
    "older": {},
    "close": {},
    "kill": {},
    "save": {"as": str},
    "load": {},
    "merge": {"as": str},
    "set_epoch": {"epoch": int},
    "length": {},
    "fault": {"row": object},
    "append": {"rows": int},
}
_OPTIONAL: Final[dict[str, dict[str, type]]] = {
    "open": {one.name: type(one.default) for one in fields(World)} | {"shuffle_clump_size": object},
    "pull": {"batches": int},
    "load": {"state": str, "garbage": object},
    "merge": {"skew": str},
}
# What any step may carry: the clause, and what vectors expect.
_ANY: Final = {"clause": str, "expect": object, "valid": bool, "code": str}


class ScenarioError(ValueError):
    """This is no scenario that can be done; the message is one line that says why."""


def parse(written: str, clause: str | None = None) -> list[Step]:
    """The steps of a scenario: a list of steps, an object with ``steps``, or a JSON report of which `clause` names the violation."""
    try:
        found = json.loads(written)
    except ValueError as error:
        raise ScenarioError(f"no JSON: {error}") from error
    if isinstance(found, dict) and isinstance(found.get("clauses"), dict):
        found = _of_report(found["clauses"], clause)
    elif isinstance(found, dict):
        found = found.get("steps")
    steps = checked(found)
    if clause is not None and "clause" not in steps[-1]:
        steps[-1]["clause"] = clause
    return steps


def checked(found: Any) -> list[Step]:
    """Steps that can be done: each has one verb, as its first key, all it needs, and names that exist at that point."""
    if not isinstance(found, list) or not found:
        raise ScenarioError('a scenario is a list of steps, or an object with "steps"')
    steps = [_verb_first(number, step) for number, step in enumerate(found, 1)]
    _check_names(steps)
    return steps


def _of_report(clauses: dict[str, Any], clause: str | None) -> Any:
    failed = {name: one["violation"] for name, one in clauses.items() if isinstance(one, dict) and isinstance(one.get("violation"), dict)}
    if clause is None and len(failed) == 1:
        (clause,) = failed
    if clause not in failed:
        raise ScenarioError(f"the report has violations of {', '.join(failed) or 'no clause'}: choose one with --clause")
    return failed[clause].get("steps")


def _verb_first(number: int, step: Any) -> Step:
    """A checked step, its verb as first key: JSON objects have no order."""
    if not isinstance(step, dict):
        raise ScenarioError(f"step {number} is no object: {json.dumps(step)[:80]}")
    verbs = [verb for verb in _WANTED if verb in step]
    if len(verbs) != 1:
        raise ScenarioError(f"step {number} must have one verb of {', '.join(_WANTED)}: {json.dumps(step)[:80]}")
    verb = verbs[0]
    subject = list if verb == "merge" else str
    allowed = {verb: subject, **_WANTED[verb], **_OPTIONAL.get(verb, {}), **_ANY, **_WANTED[verb]}
    for key, value in step.items():
        if key not in allowed:
            raise ScenarioError(f"step {number}, {verb}: there is no {key!r}")
        kind = allowed[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ScenarioError(f"step {number}, {verb}: {key} must be of type {kind.__name__}, not {json.dumps(value)[:40]}")
    lacking = [key for key in _WANTED[verb] if key not in step]
    if verb == "load" and ("state" in step) == ("garbage" in step):
        lacking = ["state (or garbage, but not both)"]
    if lacking:
        raise ScenarioError(f"step {number}, {verb}: lacks {', '.join(lacking)}")
    for key in ("row", "shuffle_clump_size"):
        if step.get(key) is not None and (not isinstance(step[key], int) or isinstance(step[key], bool)):
            raise ScenarioError(f"step {number}, {verb}: {key} must be an int or null")
    if step.get("clause", USUAL_CLAUSE[verb]) not in CLAUSES:
        raise ScenarioError(f"step {number}, {verb}: there is no clause {step['clause']!r}")
    return {verb: step[verb], **step}


def _check_names(steps: Sequence[Step]) -> None:
    """Every loader, state and table is named before it is used."""
    loaders: set[str] = set()
    states: set[str] = set()
    tables: set[str] = set()
    for number, step in enumerate(steps, 1):
        verb = next(iter(step))
        subject = step[verb]
        used: list[tuple[str, Any, set[str]]] = []
        if verb == "append":
            used.append(("table", subject, tables))
        elif verb == "merge":
            used += [("state", one, states) for one in subject]
        elif verb != "open":
            used.append(("loader", subject, loaders))
        if "state" in step:
            used.append(("state", step["state"], states))
        for kind, name, known in used:
            if not isinstance(name, str) or name not in known:
                raise ScenarioError(f"step {number}, {verb}: there is no {kind} {name!r} at this point")
        if verb == "open":
            loaders.add(subject)
            tables.add(step.get("table", "t"))
        elif verb == "kill":
            loaders.discard(subject)
        if "as" in step:
            states.add(step["as"])


def replay(steps: Sequence[Step], adapter: Adapter, tell: Callable[[str], None]) -> Violation | None:
    """Do a scenario on a loader and on the model, telling what both observe, step by step; returns the first difference.

    Parameters
    ----------
    steps : sequence of Step
        As `parse` returns them. ORD-6 and ORD-3 compare whole epochs of the loader with each other, RES-8 asks which rows never came,
        none of them the model: where the last step names one of them, this is done.
    adapter : Adapter
        The loader.
    tell : callable
        Gets the lines.

    Raises
    ------
    ScenarioError
        The loader lacks a capability that the scenario needs.
    """
    who = adapter.describe()
    lacking = needs(steps) - who.capabilities
    if lacking:
        raise ScenarioError(f"{who.name} does not have what this scenario needs: {', '.join(sorted(lacking))}")
    if steps[-1].get("clause") in ("ORD-3", "ORD-6", losses.CLAUSE):
        return _whole(steps, adapter, tell)
    codes = "codes" in who.capabilities
    learned = None if "order" in who.capabilities else Learned(adapter)

    def watch(number: int, expected: Any, actual: Any) -> None:
        tell(f"{number + 1:>3}  {sentence(steps[number])}")
        if (expected, actual) != (None, None):
            tell(f"       model   {words(expected, actual, codes)}")
            tell(f"       loader  {words(actual, expected)}")

    found = run(steps, adapter, Reference(learned), watch=watch)
    _conclude(found, len(steps), tell)
    return found


def _whole(steps: Sequence[Step], adapter: Adapter, tell: Callable[[str], None]) -> Violation | None:
    world = next(step for step in steps if "open" in step)
    for number, step in enumerate(steps, 1):
        tell(f"{number:>3}  {sentence(step)}")
    if steps[-1]["clause"] == losses.CLAUSE:
        found = losses.Losses(adapter).run(steps)
    elif steps[-1]["clause"] == "ORD-6":
        bound = Bound(((world["rows"], world["num_splits"]),), (world.get("batch_size", 1),), shuffle=world.get("shuffle", False))
        found = orders.permutations(adapter, bound)
    else:
        found = orders.seeds_and_epochs(adapter)
    if found is not None:
        tell(f"       wanted  {words(found.expected, found.actual)}")
        tell(f"       loader  {words(found.actual, found.expected)}")
    _conclude(found, len(steps), tell)
    return found


def _conclude(found: Violation | None, count: int, tell: Callable[[str], None]) -> None:
    if found is None:
        tell(f"loader and specification agree in all {count} steps")
    else:
        tell(f"they differ: {found.clause}: {CLAUSES[found.clause].says}")

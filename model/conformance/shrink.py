"""Violations made small enough to be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from model.conformance.scenario import Step, Violation
from model.conformance.witness import shows


def shrink(found: Violation, again: Callable[[Sequence[Step]], Violation | None]) -> Violation:
    """Leave out steps and batches as long as the same clause is violated where the same was expected: else another fault takes over.

    A step that the clause is about stays (`model.conformance.witness`).

    What is judged by a whole run (RES-8, ORD-6, ORD-3) stays as it is: `again` goes step by step, and expects something else.
    """
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(found.steps):
            try:
                other = again(candidate)
            except KeyError:  # a name that no step defines any more
                continue
            if (
                other is not None
                and (other.clause, other.expected) == (found.clause, found.expected)
                and shows(other.clause, other.steps)
                and _size(other.steps) < _size(found.steps)
            ):
                found, smaller = other, True
                break
    return found


def _smaller(steps: tuple[Step, ...]) -> list[tuple[Step, ...]]:
    without = [steps[:number] + steps[number + 1 :] for number in range(len(steps) - 1)]
    fewer = [
        (*steps[:number], {**step, "batches": step["batches"] - 1}, *steps[number + 1 :])
        for number, step in enumerate(steps)
        if step.get("batches", 1) > 1
    ]
    return without + fewer


def _size(steps: Sequence[Step]) -> int:
    return sum(1 + int(step.get("batches", 1)) for step in steps)


def begins_well(steps: Sequence[Step]) -> bool:
    """Whether every name is defined before it is used; shrinking leaves out steps blindly."""
    loaders: set[Any] = set()
    states: set[Any] = set()
    for step in steps:
        verb = next(iter(step))
        if verb == "open":
            loaders.add(step["open"])
        elif verb == "merge":
            if not set(step["merge"]) <= states:
                return False
        elif verb != "append" and step[verb] not in loaders:
            return False
        if "state" in step and step["state"] not in states:
            return False
        if "as" in step:
            states.add(step["as"])
        if verb == "kill":
            loaders.discard(step["kill"])
    return True

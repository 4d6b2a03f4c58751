"""A violation on one screen: the clause, what was expected and what came, the steps to it, and the command that does it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from model.conformance.adapter import World
from model.conformance.clauses import CLAUSES
from model.conformance.scenario import BROKEN, EXPECTING, USUAL_CLAUSE, Step, Violation

# One screen: characters of an observation, steps of a scenario, characters of a command.
_WIDE, _MOST_STEPS, _COMMAND = 400, 14, 1500


def failure(found: Violation, impl: str = "X", codes: bool = True) -> str:
    """A violation on one screen: the clause, what was expected and what came, the steps to it, the command that does it again.

    `impl` is what ``--impl`` was, `codes` whether the loader's refusals carry them.
    """
    clause = CLAUSES[found.clause]
    lines = [f"{clause.id} FAILED: {clause.says} ({clause.whose})"]
    lines += [f"  found by  {found.note}"] if found.note else []
    lines += [
        f"  expected  {words(found.expected, found.actual, codes)}",
        f"  actual    {words(found.actual, found.expected)}",
        "  scenario",
    ]
    return "\n".join([*lines, *_numbered(found.steps), f"  replay    {replay_command(found, impl)}"])


def hang(call: str, seconds: float, world: World | None, steps: Sequence[Step], impl: str = "X") -> str:
    """A call that has not returned, on one screen."""
    lines = [f"{call} has not returned within {seconds:g} s: a loader that hangs cannot be judged"]
    if not steps:
        opened = {} if world is None else {"open": "a", **world.to_json()}
        return "\n".join([*lines, f"  loader    {sentence(opened) if opened else 'not yet opened'}"])
    last = Violation(steps[-1].get("clause", USUAL_CLAUSE[next(iter(steps[-1]))]), None, None, tuple(steps))
    return "\n".join([*lines, "  scenario", *_numbered(steps), f"  replay    {replay_command(last, impl)} (with --timeout)"])


def _numbered(steps: Sequence[Step]) -> list[str]:
    lines = [f"    {number:>2}  {sentence(step)}" for number, step in enumerate(steps, 1)]
    if len(lines) > _MOST_STEPS:
        half = _MOST_STEPS // 2
        lines = [*lines[:half], f"        .. {len(lines) - 2 * half} more steps ..", *lines[-half:]]
    if lines:
        lines[-1] += "    <- here"
    return lines


def replayable(found: Violation) -> list[Step]:
    """The steps of a violation; the last one names the clause, where it would not be the usual one."""
    *before, last = (terse(step) for step in found.steps)
    if last.get("clause", USUAL_CLAUSE[next(iter(last))]) != found.clause:
        last["clause"] = found.clause
    return [*before, last]


def replay_command(found: Violation, impl: str) -> str:
    """A line for any POSIX shell."""
    command = f"python -m model.conformance replay --impl {shlex.quote(impl)}"
    steps = json.dumps(replayable(found), separators=(",", ":"), default=str)
    if len(steps) > _COMMAND:
        return f"{command} --clause {found.clause} REPORT, a report that `run --report json` wrote"
    # Not echo: some shells read backslashes.
    return f"printf %s {shlex.quote(steps)} | {command} -"


def sentence(step: Step) -> str:
    """A step as people say it."""
    verb = next(iter(step))
    subject = step[verb]
    world = ", ".join(f"{key}={value!r}" for key, value in terse(step).items() if key not in ("open", "clause", *EXPECTING))
    count = step.get("batches", 1)
    said = {
        "open": lambda: f"{subject} = open({world})",
        "pull": lambda: f"pull {count} batch{'es' * (count != 1)} from {subject}",
        "drain": lambda: f"pull from {subject} to the end of the pass",
        "iterate": lambda: f"create a newer iterator of {subject}",
        "older": lambda: f"pull once from the iterator of {subject} before the newest",
        "close": lambda: f"leave the pass of {subject}",
        "kill": lambda: f"kill {subject}",
        "save": lambda: f"{step['as']} = state of {subject}",
        "load": lambda: f"load {json.dumps(step['garbage']) if 'garbage' in step else step['state']} into {subject}",
        "merge": lambda: f"{step['as']} = merge {', '.join(subject)}" + (f" (skew: {step['skew']})" if "skew" in step else ""),
        "set_epoch": lambda: f"set_epoch({step['epoch']}) of {subject}",
        "length": lambda: f"len({subject})",
        "fault": lambda: (
            f"from now on the transform of {subject} raises for {'no row' if step['row'] is None else 'row ' + str(step['row'])}"
        ),
        "append": lambda: f"table {subject} grows by {step['rows']} rows",
    }
    return said[verb]()


def terse(step: Step) -> Step:
    """A copy without the arguments of open that have their defaults."""
    defaults = {one.name: one.default for one in fields(World)} if "open" in step else {}
    return {key: value for key, value in step.items() if key not in defaults or value != defaults[key]}


def words(value: Any, other: Any, codes: bool = True) -> str:
    """What was expected, or what came, for people; without `codes` any refusal is as good as the expected one.

    Examples
    --------
    >>> words([[0, 1], None], [None]), words(None, None), words({"refused": "state.mismatch"}, None, codes=False)
    ('[[0, 1], end of pass]', 'accepted', 'any refusal')
    """
    return "accepted" if value is None else around(value, other, codes=codes)


def _written(value: Any, codes: bool) -> str:
    """As JSON, but for what is said in words: observations that are no rows, alone or among batches."""
    if isinstance(value, list):
        return f"[{', '.join('end of pass' if one is None else _written(one, codes) for one in value)}]"
    if isinstance(value, dict) and len(value) == 1:
        ((kind, said),) = value.items()
        if kind == "refused" and not codes:
            return "any refusal"
        if kind in ("refused", "crashed"):
            # On one line, whatever a crash says.
            return f"{kind}: {json.dumps(str(said))[1:-1]}".replace('\\"', '"')
    if value == BROKEN:
        return "the transform's exception"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def around(value: Any, other: Any, wide: int = _WIDE, codes: bool = True) -> str:
    """An observation that is not None in words; a long list is abbreviated around its first difference from the other one.

    Examples
    --------
    >>> around([[row] for row in range(40)], [[row] for row in range(30)], wide=80)
    '[.. 28 before, [28], [29], [30], [31], [32], .. 7 after]'
    """
    written = _written(value, codes)
    if len(written) <= wide:
        return written
    if not isinstance(value, list):
        return written[:wide] + " .."
    others = other if isinstance(other, list) else []
    first = next((number for number, pair in enumerate(zip(value, others, strict=False)) if pair[0] != pair[1]), len(others))
    low = max(0, min(first, len(value) - 1) - 2)
    shown = value[low : low + 5]
    inside = [
        "end of pass"
        if one is None
        else around(one, others[low + number] if low + number < len(others) else None, max(wide // 4, 20), codes)
        for number, one in enumerate(shown)
    ]
    before = [f".. {low} before"] * (low > 0)
    after = [f".. {len(value) - low - 5} after"] * (len(value) - low > 5)
    return f"[{', '.join([*before, *inside, *after])}]"

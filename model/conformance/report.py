"""What a run found, for people and for machines: text, JSON, JUnit XML, Markdown; a failure fits on one screen."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final
from xml.etree import ElementTree as Xml

from model.conformance.adapter import World
from model.conformance.clauses import CLAUSES, DOCUMENTED, EXPECTED, OURS
from model.conformance.engine import FAILED, NOT_IMPLEMENTED, PASSED, UNCOVERED, Result
from model.conformance.scenario import EXPECTING, USUAL_CLAUSE, Step, Violation

# How a clause counts: the first three are fine.
FINE: Final = ("passed", "known gap", "skipped")
BAD: Final = ("failed", "stale gap", "cut short")

_HEADINGS: Final = {
    DOCUMENTED: "What LanceDB documents",
    EXPECTED: "What it does not say, and whoever resumes a run counts on",
    OURS: "Where this specification goes further",
}
# One screen: characters of an observation, steps of a scenario, characters of a command.
_WIDE, _MOST_STEPS, _COMMAND = 400, 14, 1500


@dataclass(frozen=True)
class Verdict:
    """How a clause counts, known gaps considered.

    Parameters
    ----------
    kind : str
        Of `FINE` or `BAD`.
    reason : str
        In one line; empty for a pass.
    """

    kind: str
    reason: str = ""


def verdict(result: Result, clause: str) -> Verdict:
    """How a clause counts."""
    status, gap = result.status(clause), result.gaps.get(clause)
    if clause in result.stale:
        return Verdict("stale gap", f"the clause is {status}, but the gaps file says: {gap}")
    if status == FAILED and gap is not None:
        return Verdict("known gap", _line(gap))
    if status == FAILED:
        found = result.violations[clause]
        return Verdict("failed", f"expected {around(found.expected, found.actual)}, got {around(found.actual, found.expected)}")
    if status == UNCOVERED and clause in result.truncated:
        return Verdict("cut short", "time was up before all of its scenarios were done")
    if status == PASSED:
        return Verdict("passed")
    lacking = ", ".join(sorted(CLAUSES[clause].needs - result.description.capabilities))
    return Verdict(
        "skipped", f"the loader does not have: {lacking}" if lacking else "nothing that was run, with what the loader can do, judges it"
    )


# ---- a failure


def failure(found: Violation, impl: str = "X") -> str:
    """A violation on one screen: the clause, what was expected and what came, the steps to it, the command that does it again.

    `impl` is what ``--impl`` was.
    """
    clause = CLAUSES[found.clause]
    lines = [f"{clause.id} FAILED: {clause.says} ({clause.whose})"]
    lines += [f"  found by  {found.note}"] if found.note else []
    lines += [f"  expected  {around(found.expected, found.actual)}", f"  actual    {around(found.actual, found.expected)}", "  scenario"]
    numbered = [f"    {number:>2}  {sentence(step)}" for number, step in enumerate(found.steps, 1)]
    if len(numbered) > _MOST_STEPS:
        half = _MOST_STEPS // 2
        numbered = [*numbered[:half], f"        .. {len(numbered) - 2 * half} more steps ..", *numbered[-half:]]
    if numbered:
        numbered[-1] += "    <- here"
    return "\n".join([*lines, *numbered, f"  replay    {replay_command(found, impl)}"])


def replayable(found: Violation) -> list[Step]:
    """The steps of a violation; the last one names the clause, where it would not be the usual one."""
    *before, last = (terse(step) for step in found.steps)
    if last.get("clause", USUAL_CLAUSE[next(iter(last))]) != found.clause:
        last["clause"] = found.clause
    return [*before, last]


def replay_command(found: Violation, impl: str) -> str:
    """A line for bash."""
    command = f"python -m model.conformance replay --impl {shlex.quote(impl)}"
    steps = json.dumps(replayable(found), separators=(",", ":"), default=str)
    if len(steps) > _COMMAND:
        return f"{command} --clause {found.clause} REPORT, a report that `run --report json` wrote"
    return f"{command} - <<< {shlex.quote(steps)}"


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


def around(value: Any, other: Any, wide: int = _WIDE) -> str:
    """An observation as JSON; a long list is abbreviated around its first difference from the other one.

    Examples
    --------
    >>> around([[row] for row in range(40)], [[row] for row in range(30)], wide=80)
    '[.. 28 before, [28], [29], [30], [31], [32], .. 7 after]'
    """
    written = json.dumps(value, default=str)
    if len(written) <= wide:
        return written
    if not isinstance(value, list):
        return written[:wide] + " .."
    others = other if isinstance(other, list) else []
    first = next((number for number, pair in enumerate(zip(value, others, strict=False)) if pair[0] != pair[1]), len(others))
    low = max(0, min(first, len(value) - 1) - 2)
    shown = value[low : low + 5]
    inside = [
        around(one, others[low + number] if low + number < len(others) else None, max(wide // 4, 20)) for number, one in enumerate(shown)
    ]
    before = [f".. {low} before"] * (low > 0)
    after = [f".. {len(value) - low - 5} after"] * (len(value) - low > 5)
    return f"[{', '.join([*before, *inside, *after])}]"


# ---- all clauses


def text(result: Result, impl: str = "X") -> str:
    """For people: a line per clause, the failures, the counts."""
    lines = [headline(result), ""]
    if result.sane is not None:
        return "\n".join([*lines, f"the adapter does not work, so nothing was judged: {_line(result.sane)}"])
    for whose, heading in _HEADINGS.items():
        lines.append(heading)
        for clause in _of(whose):
            found = verdict(result, clause)
            reason = f"; {found.kind}: {found.reason}" if found.kind not in ("passed", "failed") else ""
            lines.append(f"  {result.status(clause):<15}  {clause:<7} {CLAUSES[clause].says} ({whose}{reason})")
        lines.append("")
    for violation in _unknown(result):
        lines += [failure(violation, impl), ""]
    return "\n".join([*lines, counted(result)])


def headline(result: Result) -> str:
    """Who was checked, and how much was done."""
    who = result.description
    return f"{who.name} {who.version}: {result.scenarios} scenarios and histories in {result.seconds:.1f} s"


def counted(result: Result) -> str:
    """The last line: how many clauses of each kind."""
    kinds = Counter(verdict(result, clause).kind for clause in CLAUSES)
    return ", ".join(f"{kinds[kind]} {kind}" for kind in (*FINE, *BAD) if kinds[kind] or kind in ("passed", "failed"))


def to_json(result: Result, impl: str = "X") -> str:
    """For machines; spec/conformance.md documents the keys."""
    who = result.description
    statuses = Counter(result.statuses().values())
    clauses: dict[str, Any] = {}
    for name, clause in CLAUSES.items():
        found, judgement = result.violations.get(name), verdict(result, name)
        clauses[name] = {
            "status": result.status(name),
            "verdict": judgement.kind,
            "reason": judgement.reason or None,
            "says": clause.says,
            "whose": clause.whose,
            "needs": sorted(clause.needs),
            "judged": result.judged[name],
            "violation": None if found is None else {
                "found_by": found.note,
                "expected": found.expected,
                "actual": found.actual,
                "steps": replayable(found),
                "replay": replay_command(found, impl),
            },
        }  # fmt: skip
    document = {
        "format": 1,
        "implementation": {"name": who.name, "version": who.version, "capabilities": sorted(who.capabilities)},
        "sane": result.sane,
        "exit_code": result.exit_code,
        "scenarios": result.scenarios,
        "seconds": round(result.seconds, 3),
        "counts": {status: statuses[status] for status in (PASSED, FAILED, NOT_IMPLEMENTED, UNCOVERED)},
        "clauses": {} if result.sane is not None else clauses,
    }
    return json.dumps(document, indent=1, default=str)


def junit(result: Result, impl: str = "X") -> str:
    """JUnit XML: a test case per clause; what is no pass and no failure is skipped, with the reason."""
    cases = []
    if result.sane is not None:
        case = Xml.Element("testcase", classname="conformance", name="adapter")
        Xml.SubElement(case, "error", message=_legal(result.sane))
        cases.append(case)
    for name, clause in CLAUSES.items() if result.sane is None else ():
        case = Xml.Element("testcase", classname=f"conformance.{clause.whose}", name=f"{name} {clause.says}", time="0")
        found = verdict(result, name)
        if found.kind in BAD:
            element = Xml.SubElement(case, "failure", type=found.kind, message=_legal(found.reason))
            element.text = _legal(failure(result.violations[name], impl)) if found.kind == "failed" else None
        elif found.kind != "passed":
            Xml.SubElement(case, "skipped", type=found.kind, message=_legal(f"{result.status(name)}: {found.reason}"))
        cases.append(case)
    tags = Counter(child.tag for case in cases for child in case)
    suite = Xml.Element(
        "testsuite",
        name=_legal(f"conformance of {result.description.name} {result.description.version}"),
        tests=str(len(cases)),
        failures=str(tags["failure"]),
        errors=str(tags["error"]),
        skipped=str(tags["skipped"]),
        time=f"{result.seconds:.3f}",
    )
    suite.extend(cases)
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, encoding="unicode")


def markdown(result: Result, impl: str = "X") -> str:
    """For a pull request or a README."""
    lines = [f"# Conformance of {headline(result)}", ""]
    if result.sane is not None:
        return "\n".join([*lines, f"The adapter does not work, so nothing was judged: {_cell(result.sane)}"])
    lines += [counted(result), ""]
    for whose, heading in _HEADINGS.items():
        lines += [f"## {heading}", "", "| status | clause | what it says | |", "|---|---|---|---|"]
        for clause in _of(whose):
            found = verdict(result, clause)
            reason = f"{found.kind}: {found.reason}" if found.kind not in ("passed", "failed") else ""
            lines.append(f"| {result.status(clause)} | {clause} | {_cell(CLAUSES[clause].says)} | {_cell(reason)} |")
        lines.append("")
    for violation in _unknown(result):
        lines += ["```text", failure(violation, impl), "```", ""]
    return "\n".join(lines)


FORMATS: Final[dict[str, Callable[[Result, str], str]]] = {"text": text, "json": to_json, "junit": junit, "markdown": markdown}


def _of(whose: str) -> list[str]:
    return [name for name, clause in CLAUSES.items() if clause.whose == whose]


def _unknown(result: Result) -> Sequence[Violation]:
    """The violations that are no known gaps, in the order of the clauses."""
    return [result.violations[clause] for clause in CLAUSES if verdict(result, clause).kind == "failed"]


def _line(written: str) -> str:
    return " ".join(written.split())


def _cell(written: str) -> str:
    return _line(written).replace("|", "\\|")


def _legal(written: str) -> str:
    """Without what XML cannot hold: a crash may say anything."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", written)

"""What a run found, for people and for machines: text, JSON, JUnit XML, Markdown."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree as Xml

from model.conformance.clauses import CLAUSES, DOCUMENTED, EXPECTED, OURS
from model.conformance.result import FAILED, NOT_IMPLEMENTED, PASSED, UNCOVERED, Result
from model.conformance.scenario import Violation
from model.conformance.screen import failure, replay_command, replayable, words

# How a clause counts: the first three are fine.
FINE: Final = ("passed", "known gap", "skipped")
BAD: Final = ("failed", "stale gap", "cut short")

_HEADINGS: Final = {
    DOCUMENTED: "What LanceDB documents",
    EXPECTED: "What it does not say, and whoever resumes a run counts on",
    OURS: "Where this specification goes further",
}


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
        wanted = words(found.expected, found.actual, "codes" in result.description.capabilities)
        return Verdict("failed", _line(f"expected {wanted}, got {words(found.actual, found.expected)}"))
    if status == UNCOVERED and clause in result.truncated:
        return Verdict("cut short", "time was up before all of its scenarios were done")
    if status == PASSED:
        return Verdict("passed")
    lacking = ", ".join(sorted(CLAUSES[clause].needs - result.description.capabilities))
    return Verdict(
        "skipped", f"the loader does not have: {lacking}" if lacking else "nothing that was run, with what the loader can do, judges it"
    )


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
    lines += _first(result)
    for violation in _unknown(result):
        lines += [_failure(result, violation, impl), ""]
    return "\n".join([*lines, counted(result)])


def headline(result: Result) -> str:
    """Who was checked, how much was done, and which layers were not."""
    who = result.description
    lacking = "".join(f"; the layer {layer} was not run: {_line(reason)}" for layer, reason in result.not_run.items())
    return f"{who.name} {who.version}: {result.scenarios} scenarios and histories in {result.seconds:.1f} s{lacking}"


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
        "not_run": result.not_run,
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
            element.text = _legal(_failure(result, result.violations[name], impl)) if found.kind == "failed" else None
        elif found.kind != "passed":
            Xml.SubElement(case, "skipped", type=found.kind, message=_legal(f"{result.status(name)}: {found.reason}"))
        cases.append(case)
    for layer, reason in result.not_run.items():
        case = Xml.Element("testcase", classname="conformance.layer", name=layer, time="0")
        Xml.SubElement(case, "skipped", type="not run", message=_legal(reason))
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
    lines += _first(result)
    for violation in _unknown(result):
        lines += ["```text", _failure(result, violation, impl), "```", ""]
    return "\n".join(lines)


FORMATS: Final[dict[str, Callable[[Result, str], str]]] = {"text": text, "json": to_json, "junit": junit, "markdown": markdown}


def _of(whose: str) -> list[str]:
    return [name for name, clause in CLAUSES.items() if clause.whose == whose]


def _unknown(result: Result) -> Sequence[Violation]:
    """The violations that are no known gaps: in the sequence of the table, of each kind the shortest scenario first."""
    found = [result.violations[clause] for whose in _HEADINGS for clause in _of(whose) if verdict(result, clause).kind == "failed"]
    kinds = list(_HEADINGS)
    return sorted(found, key=lambda one: (kinds.index(CLAUSES[one.clause].whose), len(one.steps)))


def _failure(result: Result, found: Violation, impl: str) -> str:
    return failure(found, impl, "codes" in result.description.capabilities)


def _first(result: Result) -> list[str]:
    return ["The first is the place to begin: later ones may follow from it.", ""] if len(_unknown(result)) > 1 else []


def _line(written: str) -> str:
    return " ".join(written.split())


def _cell(written: str) -> str:
    return _line(written).replace("|", "\\|")


def _legal(written: str) -> str:
    """Without what XML cannot hold: a crash may say anything."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", written)

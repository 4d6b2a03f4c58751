"""Reports: a line per clause, a failure on one screen, documented keys; what a known gap, a stale one and a search cut short count as."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from model.conformance import Description, Result, check_loader
from model.conformance.adapters.example import ListLoader
from model.conformance.checks import SMOKE
from model.conformance.clauses import CLAUSES
from model.conformance.report import FORMATS, verdict
from model.conformance.scenario import USUAL_CLAUSE, Violation
from model.conformance.screen import around, failure, replayable, sentence, words

CHAPTER = (Path(__file__).parents[2] / "spec" / "conformance.md").read_text(encoding="utf-8")


class RepeatsACycle(ListLoader):
    """States are one cycle behind."""

    def save(self, handle: Any) -> Any:
        """Go back."""
        state = super().save(handle)
        return {**state, "cycles": max(state["cycles"] - 1, 0)}


@pytest.fixture(scope="module")
def wrong() -> Result:
    return check_loader(RepeatsACycle, layers=["small"], bound=SMOKE)


def result(**changes: Any) -> Result:
    found = Result(Description("some | loader", "1", frozenset({"break"})))
    found.judged.update(dict.fromkeys(CLAUSES, 1))
    for key, value in changes.items():
        setattr(found, key, value)
    return found


CRASH = Violation(
    "CYC-1", [[0], None], {"crashed": "E: \x00 | <&>\nmore"}, ({"open": "a", "rows": 2, "num_splits": 1}, {"drain": "a"}), "n"
)


def test_text_has_a_line_per_clause_and_ends_with_the_counts(wrong: Result) -> None:
    lines = FORMATS["text"](wrong, "m:f").splitlines()
    ours = lines.index("Where this specification goes further")
    for name, clause in CLAUSES.items():
        (number,) = [number for number, line in enumerate(lines) if re.match(rf"  [A-Z_]+ +{name} ", line)]
        assert clause.says in lines[number]
        assert lines[number].split()[0] == wrong.status(name)
        assert (number > ours) == (clause.whose == "ours")
    statuses = Counter(wrong.statuses().values())
    assert statuses["FAILED"] > 0
    assert lines[-1].endswith(f" {statuses['FAILED']} failed")


def test_a_failure_says_all_on_one_screen(wrong: Result) -> None:
    shown = failure(wrong.violations["RES-3"], "m:f").splitlines()
    assert len(shown) <= 24
    assert CLAUSES["RES-3"].says in shown[0]
    assert [line.split()[0] for line in shown[1:5]] == ["found", "expected", "actual", "scenario"]
    assert shown[-1].startswith("  replay    printf %s '[")
    assert shown[-1].endswith("]' | python -m model.conformance replay --impl m:f -")
    assert shown[-2].endswith("<- here")


def test_long_things_are_abbreviated() -> None:
    rows = [[number] for number in range(3000)]
    lost = [*rows[:1500], *rows[1501:]]
    steps = ({"open": "a", "rows": 3000, "num_splits": 1}, *[{"pull": "a", "batches": 7}] * 200, {"drain": "a"})
    shown = failure(Violation("CYC-1", [*rows, None], [*lost, None], steps), "x y")
    assert len(shown.splitlines()) <= 24
    assert len(shown) < 2500
    assert ".. 1498 before, [1498], [1499], [1500]," in shown
    assert ".. 1498 before, [1498], [1499], [1501]," in shown
    assert "more steps" in shown
    assert "--impl 'x y' --clause CYC-1 REPORT" in shown


def test_around_shows_a_list_that_stops_early_and_the_inside_of_a_batch() -> None:
    assert around([[1]], [[1], [2]]) == "[[1]]"
    assert around([[one] for one in range(99)], [[one] for one in range(99)][:50], wide=60).startswith("[.. 48 before, [48], [49], [50]")
    assert ".. 298 before, 298, 299, 300" in around([list(range(999))], [[*range(300), -1]])
    assert len(around("x" * 9999, None)) < 500


OBSERVED: list[tuple[Any, bool, str]] = [
    (None, True, "accepted"),
    ([[0, 1], None], True, "[[0, 1], end of pass]"),
    ([None], True, "[end of pass]"),
    ({"refused": "state.mismatch"}, True, "refused: state.mismatch"),
    ({"refused": "state.mismatch"}, False, "any refusal"),
    ([[0], {"refused": "x"}], True, "[[0], refused: x]"),
    ([[0], {"failed": "transform"}], True, "[[0], the transform's exception]"),
    ({"crashed": 'KeyError: "a\nb"'}, False, 'crashed: KeyError: "a\\nb"'),
    ({"never received": [3]}, True, '{"never received": [3]}'),
    ("4 different ids", True, "4 different ids"),
    (3, True, "3"),
]


@pytest.mark.parametrize(("value", "codes", "said"), OBSERVED)
def test_observations_are_words(value: Any, codes: bool, said: str) -> None:
    assert words(value, None, codes) == said


@pytest.mark.parametrize(("codes", "wanted"), [({"codes"}, "refused: state.mismatch"), (set(), "any refusal")])
def test_a_refusal_of_any_code_is_expected_of_loaders_without_codes(codes: set[str], wanted: str) -> None:
    steps: Any = ({"open": "a", "rows": 4, "num_splits": 2}, {"load": "a", "garbage": {}})
    broken = {
        "CKP-6": Violation("CKP-6", {"refused": "state.mismatch"}, None, steps),
        "RES-3": Violation("RES-3", None, {"refused": "odd"}, steps),
    }
    found = result(violations=broken, description=Description("a loader", "1", frozenset(codes)))
    assert verdict(found, "CKP-6").reason == f"expected {wanted}, got accepted"
    assert verdict(found, "RES-3").reason == "expected accepted, got refused: odd"
    for name in ("text", "junit", "markdown"):
        shown = FORMATS[name](found, "x")
        assert f"  expected  {wanted}\n  actual    accepted\n" in shown
        assert "null" not in shown


def test_every_step_can_be_said() -> None:
    extra = {"as": "s", "state": "s", "epoch": 1, "row": 1, "rows": 2}
    said = {sentence({verb: ["s"] if verb == "merge" else "a", **extra}) for verb in USUAL_CLAUSE}
    assert len(said) == len(USUAL_CLAUSE)


def test_what_is_replayed_names_the_clause_and_no_defaults() -> None:
    steps = ({"open": "a", "rows": 2, "num_splits": 1, "rank": 0, "world_size": 1}, {"drain": "a", "clause": "CYC-6"})
    assert replayable(Violation("CYC-6", 1, 2, steps)) == [{"open": "a", "rows": 2, "num_splits": 1}, steps[1]]
    assert replayable(Violation("ORD-6", 1, 2, (steps[0], {"drain": "a"})))[-1] == {"drain": "a", "clause": "ORD-6"}


VERDICTS: list[tuple[str, dict[str, Any], str, int]] = [
    ("CYC-1", {}, "passed", 0),
    ("CYC-1", {"violations": {"CYC-1": CRASH}}, "failed", 1),
    ("CYC-1", {"violations": {"CYC-1": CRASH}, "gaps": {"CYC-1": "known\nto all"}}, "known gap", 0),
    ("CYC-1", {"gaps": {"CYC-1": "once"}}, "stale gap", 1),
    ("MRG-1", {"gaps": {"MRG-1": "cannot"}}, "stale gap", 1),
    ("CYC-1", {"judged": Counter(), "gaps": {"CYC-1": "not looked at"}}, "skipped", 0),
    ("CYC-1", {"truncated": {"CYC-1"}}, "cut short", 1),
    ("MRG-1", {"truncated": {"MRG-1"}}, "skipped", 0),
    ("MRG-1", {}, "skipped", 0),
]


@pytest.mark.parametrize(("clause", "changes", "kind", "exit_code"), VERDICTS)
def test_verdicts_in_every_format(clause: str, changes: dict[str, Any], kind: str, exit_code: int) -> None:
    found = result(**changes)
    judgement = verdict(found, clause)
    assert (judgement.kind, found.exit_code) == (kind, exit_code)
    assert "\n" not in judgement.reason
    assert bool(judgement.reason) == (kind != "passed")

    document = json.loads(FORMATS["json"](found, "x"))
    assert document["exit_code"] == exit_code
    assert document["clauses"][clause]["verdict"] == kind

    (case,) = [case for case in Xml.fromstring(FORMATS["junit"](found, "x")).iter("testcase") if case.get("name", "").startswith(clause)]
    tags = {"passed": [], "skipped": ["skipped"], "known gap": ["skipped"]}
    assert [child.tag for child in case] == tags.get(kind, ["failure"])

    (line,) = [line for line in FORMATS["markdown"](found, "x").splitlines() if f" | {clause} | " in line]
    assert re.sub(r"\\\|", "", line).count("|") == 5


@pytest.mark.parametrize("name", ["text", "markdown"])
def test_details_come_in_the_sequence_of_the_table_and_the_shortest_scenario_of_a_kind_first(name: str) -> None:
    longer = (*CRASH.steps[:1], *CRASH.steps)
    lengths = {"ORD-12": CRASH.steps, "RES-3": longer, "CKP-1": longer, "DLV-1": CRASH.steps, "RES-7": longer, "RES-5": longer}
    found = result(violations={clause: Violation(clause, 1, 2, steps) for clause, steps in lengths.items()})
    shown = FORMATS[name](found, "x")
    assert re.findall(r"^(\S+) FAILED:", shown, re.MULTILINE) == ["DLV-1", "CKP-1", "RES-5", "RES-7", "ORD-12", "RES-3"]
    (line,) = [
        number
        for number, line in enumerate(shown.splitlines())
        if line == "The first is the place to begin: later ones may follow from it."
    ]
    assert any(below.startswith("DLV-1 FAILED") for below in shown.splitlines()[line + 1 : line + 4])
    assert "place to begin" not in FORMATS[name](result(violations={"CYC-1": CRASH}), "x"), "where there is one only"


def test_junit_counts_and_takes_any_character(wrong: Result) -> None:
    suite = Xml.fromstring(FORMATS["junit"](wrong, "x"))[0]
    tags = Counter(child.tag for case in suite for child in case)
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (
        str(len(CLAUSES)),
        str(tags["failure"]),
        str(tags["skipped"]),
    )
    assert {case.get("classname") for case in suite} == {"conformance.documented", "conformance.expected", "conformance.ours"}
    (found,) = Xml.fromstring(FORMATS["junit"](result(violations={"CYC-1": CRASH}), "x")).iter("failure")
    assert "| <&>" in str(found.get("message"))
    assert "<- here" in str(found.text)


def test_json_has_the_documented_keys_and_takes_any_value(wrong: Result) -> None:
    (written,) = re.findall(r"\*\*JSON report\*\*.*?(?=\n\n)", CHAPTER, re.DOTALL)
    documented = set(re.findall(r"`(\w+)`", written))
    wrong = result(violations={"CYC-1": Violation("CYC-1", 1, object(), CRASH.steps)})
    document = json.loads(FORMATS["json"](wrong, "x"))
    clause = document["clauses"]["CYC-1"]
    assert documented == {*document, *document["implementation"], *clause, *clause["violation"]}
    assert sum(document["counts"].values()) == len(CLAUSES)


@pytest.mark.parametrize("name", FORMATS)
def test_an_adapter_that_does_not_work_is_said_in_every_format(name: str) -> None:
    shown = FORMATS[name](result(sane="it cannot\nbegin"), "x")
    assert "it cannot" in shown
    assert "PASSED  " not in shown
    if name == "junit":
        assert [child.tag for child in Xml.fromstring(shown).iter() if child.tag == "error"] == ["error"]


def test_the_chapter_quotes_the_adapter() -> None:
    source = (Path(__file__).parents[2] / "model" / "conformance" / "adapter.py").read_text(encoding="utf-8")
    quoted = [line for block in re.findall(r"```python\n(.*?)```", CHAPTER, re.DOTALL) for line in block.splitlines()]
    at = 0
    for line in quoted:
        at = source.index(f"{line}\n", at)
    methods = re.findall(r"    def ([a-z]\w+)\(self", source.partition("class Adapter(ABC)")[2])
    assert [line.split("(")[0].split()[1] for line in quoted if " def " in line] == methods

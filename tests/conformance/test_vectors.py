"""The generated vectors: what the model says, whole, valid by their schema, and a test of a loader without the model."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from model.conformance import vectors
from model.conformance.adapters.example import ListLoader
from model.conformance.cli import main
from model.conformance.edges import Recorder
from model.conformance.reference import Reference
from model.conformance.scenario import USUAL_CLAUSE

SPEC = Path(__file__).parents[2] / "spec" / "vectors"
SCENARIOS = vectors.read(SPEC / "generated")


def test_the_files_are_what_the_model_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vectors", "--check", str(SPEC / "generated")]) == 0, capsys.readouterr().out


def test_every_edge_that_the_checks_reach_is_in_a_scenario() -> None:
    covered = set()
    for scenario in SCENARIOS:
        recorder = Recorder()
        covered |= {recorder.do(step)[1] for step in scenario["steps"]}
    assert len(covered) == vectors.generate().edges


def test_they_are_not_many_and_their_ids_are_unique() -> None:
    assert sum(path.stat().st_size for path in (SPEC / "generated").glob("*.json")) < 1_000_000
    assert len({scenario["id"] for scenario in SCENARIOS}) == len(SCENARIOS)
    assert {_verb(step) for scenario in SCENARIOS for step in scenario["steps"]} == USUAL_CLAUSE.keys()


def _verb(step: dict[str, Any]) -> str:
    return next(iter(step))


@pytest.mark.parametrize("make", [Reference, ListLoader])
def test_loaders_that_are_right_pass(make: type[Any]) -> None:
    done, skipped, failures = vectors.run_files(SPEC / "generated", make())
    assert failures == []
    assert done > 100
    assert done + skipped == len(SCENARIOS)
    assert (skipped == 0) == (make is Reference)


def test_every_observation_matters() -> None:
    """Changed, each fails, in one scenario per check."""
    checked = 0
    for scenario in {scenario["check"]: scenario for scenario in SCENARIOS}.values():
        for number, step in enumerate(scenario["steps"]):
            changed = copy.deepcopy(scenario)
            target = changed["steps"][number]
            if "expect" in step:
                target["expect"] = step["expect"] + 1 if isinstance(step["expect"], int) else [*step["expect"], [0]]
            elif "valid" in step:
                target["code"] = "another.code"
            elif _verb(step) in ("save", "open", "close"):
                target |= {"valid": False, "code": "argument.value"}
            else:
                continue
            checked += 1
            found = vectors.run_vector(changed, Reference())
            assert found is not None
            assert len(found.steps) == number + 1
    assert checked > 100


class RepeatsACycle(ListLoader):
    """States are one cycle behind."""

    def save(self, handle: Any) -> Any:
        """Go back."""
        state = super().save(handle)
        return {**state, "cycles": max(state["cycles"] - 1, 0)}


class Crashing(Reference):
    """Raises what no loader means to raise."""

    def append(self, table: str, rows: int) -> None:
        """Boom."""
        raise KeyError(table)


@pytest.mark.parametrize("make", [RepeatsACycle, Crashing])
def test_loaders_that_are_wrong_fail(make: type[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.conformance.cli.find_factory", lambda _: make)
    assert main(["vectors", "--run", "--impl", "wrong", str(SPEC / "generated")]) == 1
    shown = capsys.readouterr().out
    assert "FAILED" in shown
    assert " 0 failed" not in shown


# ---- the files


def test_the_schema_takes_them() -> None:
    """Of steps with the same keys one is enough, for a schema that has no conditions between values."""
    schema = json.loads((SPEC / "scenario.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    shapes = {json.dumps([[key, type(value).__name__] for key, value in step.items()]): step for one in SCENARIOS for step in one["steps"]}
    document = [{**one, "steps": one["steps"][:1]} for one in SCENARIOS[::20]] + [{**SCENARIOS[0], "steps": list(shapes.values())}]
    assert [error.message for error in validator.iter_errors(document)] == []
    for wrong in (
        {}, {"jump": "a"}, {"close": "a", "pull": "a", "expect": []}, {"open": "a", "rows": 4},
        {"open": "a", "rows": 4, "num_splits": 2, "size": 1}, {"pull": "a"}, {"pull": "a", "expect": [["0"]]}, {"length": "a"},
        {"drain": "a", "expect": [{"crashed": "x"}]}, {"load": "a"}, {"load": "a", "state": "s", "garbage": 1}, {"save": "a"},
        {"merge": "s", "as": "m"}, {"close": "a", "valid": False}, {"close": "a", "code": "argument.value"},
        {"close": "a", "valid": True, "code": "argument.value"}, {"close": "a", "clause": "dlv"},
    ):  # fmt: skip
        assert not validator.is_valid([{**SCENARIOS[0], "steps": [wrong]}]), wrong


def test_the_readme_explains_every_step_and_default() -> None:
    written = (SPEC / "README.md").read_text(encoding="utf-8").partition("generated/*.json")[2]
    for verb in USUAL_CLAUSE:
        assert f'{{"{verb}": ' in written
    for key in {key for one in SCENARIOS for step in one["steps"] if "open" in step for key in step}:
        assert f"`{key}`" in written or f'"{key}"' in written, key


def test_check_notices_what_differs(tmp_path: Path) -> None:
    copied = tmp_path / "generated"
    shutil.copytree(SPEC / "generated", copied)
    (copied / "merge.json").unlink()
    (copied / "more.json").write_text("[]")
    path = copied / "order.json"
    path.write_text(path.read_text(encoding="utf-8").replace("[1]", "[2]", 1), encoding="utf-8")
    found = vectors.check(copied)
    assert [Path(line.split(": ")[0]).name for line in found] == ["merge.json", "more.json", "order.json"]
    vectors.write(copied)
    assert [Path(line.split(": ")[0]).name for line in vectors.check(copied)] == ["more.json"]


@pytest.mark.parametrize("written", ["", "{}", "[]", "[1]", '[{"id": "a", "needs": [], "steps": [{"jump": 1}]}]'])
def test_files_that_cannot_be_used(tmp_path: Path, written: str) -> None:
    (tmp_path / "a.json").write_text(written)
    with pytest.raises(vectors.VectorsError):
        vectors.read(tmp_path)

"""The generated vectors: what the model says, whole, valid by their schema, and a test of a loader without the model."""

from __future__ import annotations

import copy
import io
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from model.conformance import check_loader, vectors
from model.conformance.adapters.example import ListLoader
from model.conformance.clauses import CLAUSES
from model.conformance.cli import main
from model.conformance.edges import Recorder
from model.conformance.reference import Reference
from model.conformance.report import FORMATS
from model.conformance.result import FAILED, NOT_IMPLEMENTED, PASSED, UNCOVERED
from model.conformance.scenario import USUAL_CLAUSE
from model.conformance.screen import failure
from model.conformance.wrong_running import NeverEnds

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "spec" / "vectors"
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


# ---- the layer


def test_the_layer_gives_every_clause_its_status() -> None:
    """Credited as by the other layers: what a loader cannot do is left out, and judged by nothing."""
    model, some = check_loader(Reference, layers=["vectors"]), check_loader(ListLoader, layers=["vectors"])
    assert {clause for clause, status in model.statuses().items() if status == PASSED} == CLAUSES.keys() - {"ORD-3", "RES-8"}
    assert model.scenarios == len(SCENARIOS) > some.scenarios > 100
    expected = {clause: PASSED if told.needs <= {"break"} else NOT_IMPLEMENTED for clause, told in CLAUSES.items()}
    assert some.statuses() == expected | {"RES-8": UNCOVERED}
    assert (model.exit_code, some.exit_code, model.not_run) == (0, 0, {})


def test_a_failure_of_the_layer_is_on_one_screen_and_can_be_done_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.conformance.cli.find_factory", lambda _: RepeatsACycle)
    found = check_loader(RepeatsACycle, layers=["vectors"])
    assert found.exit_code == 1
    for clause in ("LAW-4", "RES-3", "CKP-2"):
        shown = failure(found.violations[clause], "wrong")
        assert len(shown.splitlines()) <= 24
        assert f"{clause} FAILED" in shown
        assert "found by  vector " in shown
        monkeypatch.setattr("sys.stdin", io.StringIO(shlex.split(shown.splitlines()[-1])[3]))
        assert main(["replay", "--impl", "wrong", "-"]) == 1
        assert f"they differ: {clause}:" in capsys.readouterr().out


def test_rows_of_a_later_pass_are_about_it_in_vectors_too() -> None:
    """As in every layer: what a step says of a first pass does not hold for the second."""
    steps = [{"open": "a", "rows": 2, "num_splits": 2}, {"drain": "a", "expect": [[0], [1], None]}, {"pull": "a", "expect": [[7]]}]
    found = vectors.run_vector({"id": "x", "steps": steps}, ListLoader())
    assert found is not None
    assert (found.clause, found.steps[-1]) == ("EPO-2", {"pull": "a"})


def test_a_loader_that_never_ends_is_stopped() -> None:
    found = check_loader(NeverEnds, layers=["vectors"]).violations["RES-3"]
    assert len(found.actual) < 20


def test_a_search_that_was_cut_short_passes_nothing() -> None:
    result = check_loader(ListLoader, layers=["vectors"], seconds=0.0)
    assert (result.status("CYC-1"), result.exit_code) == (UNCOVERED, 1)
    early = check_loader(RepeatsACycle, layers=["vectors"], until=frozenset({"LAW-4"}))
    assert early.status("LAW-4") == FAILED
    assert early.scenarios < 200


def test_files_are_found_from_any_directory(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "model.conformance", "run", "--impl", "list", "--layers", "vectors"]
    shown = subprocess.run(command, check=False, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0, shown.stderr
    assert "0 violations" in shown.stderr


def test_files_that_are_not_there_are_said_to_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("engine", "cli"):
        monkeypatch.setattr(f"model.conformance.{module}.BESIDE", tmp_path / "nowhere")
    result = check_loader(ListLoader, layers=["vectors"])
    assert result.not_run == {"vectors": f"there is no {tmp_path / 'nowhere'}"}
    assert {status for clause, status in result.statuses().items() if clause != "ORD-6"} == {UNCOVERED, NOT_IMPLEMENTED}
    for name, render in FORMATS.items():
        assert "nowhere" in render(result, "list"), name
    assert 'name="vectors" time="0"><skipped type="not run"' in "".join(FORMATS["junit"](result, "list").split("\n")).replace("  ", "")
    run = ["run", "--impl", "list", "--quiet", "--bound", "smoke", "--examples", "1"]
    assert main(run) == 0
    assert "the layer vectors was not run: there is no" in capsys.readouterr().out.splitlines()[0]
    assert main([*run, "--layers", "smoke,vectors"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main([*run, "--layers", "smoke,vectors", "--vectors", str(SPEC / "generated")]) == 0
    with pytest.raises(vectors.VectorsError):
        check_loader(ListLoader, layers=["vectors"], vectors=tmp_path)


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


OPEN = {"open": "a", "rows": 2, "num_splits": 2}
UNUSABLE = [[{"jump": 1}], [OPEN, {"drain": "a"}], [OPEN, {"pull": "a", "expect": 1}], [{**OPEN, "valid": False}]]


@pytest.mark.parametrize("written", ["", "{}", "[]", "[1]", *(json.dumps([{"id": "a", "needs": [], "steps": one}]) for one in UNUSABLE)])
def test_files_that_cannot_be_used(tmp_path: Path, written: str) -> None:
    (tmp_path / "a.json").write_text(written)
    with pytest.raises(vectors.VectorsError):
        vectors.read(tmp_path)

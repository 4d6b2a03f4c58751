"""The model passes every scenario worked out by hand, and the runner fails where it should."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from model.scenario import ScenarioFailure, main, render, run

HAND = Path(__file__).resolve().parents[2] / "spec" / "vectors" / "hand"
SCENARIOS: list[dict[str, Any]] = [
    scenario for path in sorted(HAND.glob("*.json")) for scenario in json.loads(path.read_text(encoding="utf-8"))
]


def test_there_are_scenarios() -> None:
    """An empty folder would pass every test below; ids are unique."""
    assert len(SCENARIOS) >= 21
    assert len({scenario["id"] for scenario in SCENARIOS}) == len(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario["id"] for scenario in SCENARIOS])
def test_hand_vector(scenario: dict[str, Any]) -> None:
    """The model does what the scenario says (run raises otherwise), and leaves the scenario as it was."""
    before = copy.deepcopy(scenario)
    bench = run(scenario)
    assert set(bench.loaders) == {step["open"] for step in scenario["steps"] if "open" in step and step.get("valid", True)}
    assert scenario == before


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario["id"] for scenario in SCENARIOS])
def test_every_observation_is_checked(scenario: dict[str, Any]) -> None:
    """Each row, value and refusal of a scenario matters: changed by one, the runner fails. A runner that checks nothing would not."""
    changed = 0
    for number, step in enumerate(scenario["steps"]):
        wrong = copy.deepcopy(scenario)
        target = wrong["steps"][number]
        if "fields" in step:
            target["fields"] = step["fields"][:-1]
        elif step.get("valid") is False:
            target["valid"] = True
        elif "accept" in step:
            target["accept"] = []
        elif step.get("rows") and "pull" in step:
            target["rows"][-1] += 1
        elif step.get("checks"):
            key = next(iter(step["checks"]))
            target["checks"][key] = "something else"
        elif "check" in step:
            key = next(key for key in step if key != "check")
            target[key] += 1
        elif "end" in step:
            wrong["steps"][number] = {"pull": step["end"], "rows": [0], "older": step.get("older", False)}
            # A pass that ended may be followed by another step that needs the end; only this step is of interest.
            wrong["steps"] = wrong["steps"][: number + 1]
        else:
            continue
        changed += 1
        with pytest.raises(ScenarioFailure):
            run(wrong)
    assert changed > 0


@pytest.mark.parametrize("fields", [[], ["num_splits"], ["filter", "num_splits"], ["num_splits", "filter", "shuffle"]], ids=str)
def test_wrong_fields_are_a_failure(fields: list[str]) -> None:
    """IDN-9: neither fewer nor more than those that the error names, and in its sequence."""
    steps: list[dict[str, Any]] = [
        {"open": "a", "num_splits": 2},
        {"save": "a", "as": "s"},
        {"open": "b", "num_splits": 4, "filter": "id > 1"},
    ]
    refused = {
        "load": "b",
        "state": "s",
        "valid": False,
        "code": "state.mismatch",
        "fields": ["num_splits", "filter"],
    }
    run({"id": "x", "rows": 8, "steps": [*steps, refused]})
    with pytest.raises(ScenarioFailure, match="names"):
        run({"id": "x", "rows": 8, "steps": [*steps, {**refused, "fields": fields}]})


def test_wrong_code_is_a_failure() -> None:
    """A refusal with another code is no pass."""
    scenario = {"id": "x", "rows": 4, "steps": [{"open": "a", "num_splits": 5, "valid": False, "code": "argument.value"}]}
    with pytest.raises(ScenarioFailure, match=r"data\.too_few_rows"):
        run(scenario)


def test_printed_scenarios_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``render`` loses nothing, and the command line tells pass from failure."""
    for scenario in SCENARIOS:
        assert json.loads(render(scenario)) == scenario
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(render(SCENARIOS[0]), encoding="utf-8")
    broken = {"id": "broken", "rows": 2, "steps": [{"open": "a"}, {"pull": "a", "rows": [1]}]}
    bad.write_text(json.dumps([broken]), encoding="utf-8")
    assert main([str(good)]) == 0
    assert main([str(good), str(bad)]) == 1
    assert "FAIL broken" in capsys.readouterr().out

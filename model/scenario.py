"""Run and print scenarios in the format of ``spec/vectors/README.md``.

python -m model.scenario spec/vectors/hand/*.json    runs them against the model
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from model.bench import MODEL, Bench, ScenarioFailure, State, Step, System
from model.errors import ModelError
from model.steps import run_step

# What others may take from here although it is defined elsewhere.
__all__ = ["MODEL", "Bench", "ScenarioFailure", "State", "Step", "System"]


def run(scenario: dict[str, Any], system: System = MODEL) -> Bench:
    """Do all steps of a scenario in sequence; ``ScenarioFailure`` at the first that does not hold."""
    bench = Bench(scenario["rows"], system)
    for number, step in enumerate(scenario["steps"]):
        where = f"{scenario['id']}, step {number} {json.dumps(step)}"
        refused: str | None = None
        fields: list[str] = []
        try:
            run_step(bench, step)
        except ModelError as error:
            refused, fields = error.code, list(error.fields)
        except ScenarioFailure as failure:
            raise ScenarioFailure(f"{where}: {failure}") from None
        expected = None if step.get("valid", True) else step["code"]
        if refused != expected:
            raise ScenarioFailure(f"{where}: refused with {refused}, expected {expected}")
        if fields != step.get("fields", fields):
            raise ScenarioFailure(f"{where}: names {fields}, expected {step['fields']}")
    return bench


def render(scenario: dict[str, Any]) -> str:
    """A scenario as the hand vectors are written: one step per line."""
    head = json.dumps({key: value for key, value in scenario.items() if key != "steps"})
    steps = ",\n".join("  " + json.dumps(step) for step in scenario["steps"])
    return head[:-1] + ', "steps": [\n' + steps + "\n ]}"


def main(paths: list[str]) -> int:
    """Run the scenarios of some files; returns the exit status."""
    failures = 0
    for path in paths:
        loaded = json.loads(Path(path).read_text(encoding="utf-8"))
        for scenario in loaded if isinstance(loaded, list) else [loaded]:
            try:
                run(scenario)
                print(f"pass {scenario['id']}")
            except ScenarioFailure as failure:
                failures += 1
                print(f"FAIL {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The hand-worked scenarios, run against the implementation (tests/model runs them against the model)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streaming import StreamingDataset, StreamingError, merge_state_dicts
from tests.support import numbered_table

HAND = Path(__file__).parents[1] / "spec" / "vectors" / "hand"
SCENARIOS = [scenario for path in sorted(HAND.glob("*.json")) for scenario in json.loads(path.read_text())]


class Runner:
    """Interprets the steps of spec/vectors/README.md."""

    def __init__(self, rows: int) -> None:
        self.table = numbered_table(rows)
        self.datasets: dict[str, StreamingDataset] = {}
        self.iterators: dict[str, Any] = {}
        self.states: dict[str, Any] = {}

    def step(self, step: dict[str, Any]) -> None:
        step = dict(step)
        verb, name = next(iter(step.items()))
        del step[verb]
        getattr(self, verb)(name, **step)

    def open(self, name: str, **arguments: Any) -> None:
        self.datasets[name] = StreamingDataset(self.table, **{"world_size": 1, "rank": 0, "shuffle": False, **arguments})
        self.iterators.pop(name, None)

    def pull(self, name: str, rows: list[int]) -> None:
        iterator = self.iterators.setdefault(name, None) or iter(self.datasets[name])
        self.iterators[name] = iterator
        assert [next(iterator)["id"] for _ in rows] == rows

    def end(self, name: str) -> None:
        iterator = self.iterators.pop(name, None) or iter(self.datasets[name])
        assert next(iterator, "the end") == "the end"

    def close(self, name: str) -> None:
        del self.iterators[name]

    def save(self, name: str, checks: dict[str, Any] | None = None, **to: str) -> None:
        self.keep(self.datasets[name].state_dict(), to, checks)

    def load(self, name: str, state: str, edit: dict[str, Any] | None = None, drop: tuple[str, ...] = ()) -> None:
        edited = {**self.states[state], **(edit or {})}
        self.datasets[name].load_state_dict({key: value for key, value in edited.items() if key not in drop})

    def set_epoch(self, name: str, epoch: int) -> None:
        self.datasets[name].set_epoch(epoch)

    def rewind(self, name: str) -> None:
        self.datasets[name].rewind()

    def merge(self, names: list[str], skew: str = "refuse", checks: dict[str, Any] | None = None, **to: str) -> None:
        self.keep(merge_state_dicts([self.states[name] for name in names], skew=skew), to, checks)

    def keep(self, state: dict[str, Any], to: dict[str, str], checks: dict[str, Any] | None) -> None:
        assert {key: state[key] for key in checks or {}} == (checks or {})
        self.states[to["as"]] = state

    def check(self, name: str, **values: int) -> None:
        dataset = self.datasets[name]
        assert {key: len(dataset) if key == "len" else getattr(dataset, key) for key in values} == values


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario["id"] for scenario in SCENARIOS])
def test_hand_worked_scenario(scenario: dict[str, Any]) -> None:
    runner = Runner(scenario["rows"])
    for step in scenario["steps"]:
        expected = step.pop("code", None)
        if step.pop("valid", True):
            runner.step(step)
        else:
            with pytest.raises(StreamingError) as refused:
                runner.step(step)
            assert refused.value.code == expected, step

"""The hand-worked scenarios, run against the implementation (tests/model runs them against the model)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import lancedb
import pyarrow as pa
import pytest

from streaming import StreamingDataset, StreamingError, checkpoint, merge_state_dicts, ranks
from streaming.ranks import Contribution

HAND = Path(__file__).parents[1] / "spec" / "vectors" / "hand"
SCENARIOS = [scenario for path in sorted(HAND.glob("*.json")) for scenario in json.loads(path.read_text())]


class Runner:
    """Interprets the steps of spec/vectors/README.md on real tables, on disk."""

    def __init__(self, rows: int, folder: Path) -> None:
        self.folder = folder
        self.database = lancedb.connect(folder)
        self.make("t", rows)
        self.datasets: dict[str, StreamingDataset] = {}
        # The newest two iterators of each dataset, and which of the datasets have one that was not closed and has not said its end.
        self.iterators: dict[str, list[Any]] = {}
        self.held: set[str] = set()
        self.states: dict[str, Any] = {}

    def step(self, step: dict[str, Any]) -> None:
        step = dict(step)
        verb, name = next(iter(step.items()))
        del step[verb]
        getattr(self, verb)(name, **step)

    # ---- tables

    def make(self, name: str, rows: int) -> None:
        if (self.folder / f"{name}.lance").exists():
            self.database.drop_table(name)
        self.database.create_table(name, numbers(0, rows))

    def append(self, name: str, rows: int) -> None:
        table = self.table(name)
        table.add(numbers(table.count_rows(), table.count_rows() + rows))

    def add_column(self, name: str) -> None:
        self.table(name).add_columns({"more": "id + 1"})

    def move(self, name: str, to: str) -> None:
        (self.folder / f"{name}.lance").rename(self.folder / f"{to}.lance")

    def clean(self, name: str) -> None:
        # optimize() would also add a version. Manifests of newer versions come first by name.
        for manifest in sorted((self.folder / f"{name}.lance" / "_versions").glob("*.manifest"))[1:]:
            manifest.unlink()

    # ---- datasets

    def open(self, name: str, table: str = "t", **arguments: Any) -> None:
        arguments = {"world_size": 1, "rank": 0, "shuffle": False, **arguments}
        self.datasets[name] = StreamingDataset(self.table(table), **arguments)
        self.iterators[name] = []
        self.held.discard(name)

    def iter(self, name: str) -> None:
        created = iter(self.datasets[name])
        self.iterators[name] = [*self.iterators[name][-1:], created]
        self.held.add(name)

    def iterator(self, name: str, older: bool) -> Any:
        if not older and name not in self.held:
            self.iter(name)
        return self.iterators[name][-2 if older else -1]

    def pull(self, name: str, rows: list[int], older: bool = False) -> None:
        iterator = self.iterator(name, older)
        assert [next(iterator)["id"] for _ in rows] == rows

    def end(self, name: str, older: bool = False) -> None:
        assert next(self.iterator(name, older), "the end") == "the end"
        if not older:
            self.held.discard(name)

    def close(self, name: str) -> None:
        self.iterators[name][-1].close()
        self.held.discard(name)

    def save(self, name: str, checks: dict[str, Any] | None = None, **to: str) -> None:
        self.keep(self.datasets[name].state_dict(), to, checks)

    def load(
        self, name: str, state: str, edit: dict[str, Any] | None = None, sign: bool = True, drop: tuple[str, ...] = (), accept: Any = ()
    ) -> None:
        edited = {**self.states[state], **(edit or {})}
        edited = checkpoint.signed(edited) if edit and sign else edited
        self.datasets[name].load_state_dict({key: value for key, value in edited.items() if key not in drop}, accept=accept)

    def state(self, name: str, **to: Any) -> None:
        self.states[name] = to["is"]

    def set_epoch(self, name: str, epoch: int) -> None:
        self.datasets[name].set_epoch(epoch)

    def rewind(self, name: str) -> None:
        self.datasets[name].rewind()

    def merge(self, names: list[str], skew: str = "refuse", checks: dict[str, Any] | None = None, **to: str) -> None:
        self.keep(merge_state_dicts([self.states[name] for name in names], skew=skew), to, checks)

    def gather(self, pairs: list[Any], skew: str = "refuse", checks: dict[str, Any] | None = None, **to: str) -> None:
        sent = [Contribution(rank, self.states[name]["world_size"], self.states[name]) for rank, name in pairs]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranks, "_exchange", lambda mine, group: sorted(sent, key=lambda one: one.rank))
            self.keep(ranks.gather(sent[0], None, skew), to, checks)

    def check_ranks(self, sent: list[Any]) -> None:
        all_of_them = [
            Contribution(rank, self.states[name]["world_size"], self.states[name], None, settings) for rank, name, settings in sent
        ]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranks, "_exchange", lambda mine, group: sorted(all_of_them, key=lambda one: one.rank))
            ranks.check(all_of_them[0], None)

    def keep(self, state: dict[str, Any], to: dict[str, str], checks: dict[str, Any] | None) -> None:
        assert {key: state[key] for key in checks or {}} == (checks or {})
        self.states[to["as"]] = state

    def check(self, name: str, **values: int) -> None:
        dataset = self.datasets[name]
        assert {key: len(dataset) if key == "len" else getattr(dataset, key) for key in values} == values

    def table(self, name: str) -> Any:
        return self.database.open_table(name)


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop), pa.int64())})


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario["id"] for scenario in SCENARIOS])
def test_hand_worked_scenario(scenario: dict[str, Any], tmp_path: Path) -> None:
    runner = Runner(scenario["rows"], tmp_path)
    for step in scenario["steps"]:
        keys = {key: value for key, value in step.items() if key not in ("valid", "code", "fields")}
        if step.get("valid", True):
            runner.step(keys)
            continue
        with pytest.raises(StreamingError) as refused:
            runner.step(keys)
        assert refused.value.code == step["code"], step
        if "fields" in step:
            assert list(refused.value.fields) == step["fields"], step


def test_the_scenarios_have_the_form_that_their_schema_says() -> None:
    """spec/vectors/hand.schema.json, which must also refuse what has another form."""
    schema = json.loads((HAND.parent / "hand.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    for path in sorted(HAND.glob("*.json")):
        validator.validate(json.loads(path.read_text()))
    right = SCENARIOS[0]
    for step in (
        {"pull": "a"},
        {"open": "a", "rows": 3},
        {"load": "a", "state": "s", "valid": False},
        {"fly": "a"},
        {"end": "a", "close": "a"},
        {"close": "a", "older": True},
        {"pull": "a", "rows": []},
    ):
        assert not validator.is_valid([{**right, "steps": [step]}]), step

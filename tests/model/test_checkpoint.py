"""Chapter checkpoint on the model: every clause of the form and of the identity, by one wrong value each; merging."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from model import checkpoint, loader
from model.checkpoint import IDENTITY, KEYS
from model.cycle import Cursor
from model.errors import CODES, ModelError
from model.loader import Settings

SPEC = Path(__file__).resolve().parents[2] / "spec"
SETTINGS = Settings(17, 4, 2, 0, True, 5, 3, "replay", "id > 3", "t", 7, "ab" * 32)


def state_of(cycle: int = 1, served: tuple[int, ...] = (0, 2), epoch: int = 2) -> dict[str, Any]:
    """A well formed state of two ranks and four splits, L = 4."""
    return checkpoint.save(SETTINGS.identity(), Cursor(epoch, cycle, served), 2)


def code_of(state: object, settings: Settings = SETTINGS) -> str | None:
    """The code with which a load is refused; None where it is not."""
    try:
        checkpoint.load(state, settings.identity(), settings.world_size, settings.partial_cycle, settings.seed_drawn)
    except ModelError as error:
        return error.code
    return None


def test_codes_are_those_of_the_spec() -> None:
    """The model raises no code that spec/errors.md does not list."""
    listed = (SPEC / "errors.md").read_text(encoding="utf-8")
    assert all(f"| `{code}` |" in listed for code in CODES)
    with pytest.raises(AssertionError):
        ModelError("state.unheard")


def test_keys_are_those_of_the_schema() -> None:
    """CKP-1, CKP-2: exactly these, plain JSON, and a fresh copy each time."""
    schema = json.loads((SPEC / "state.schema.json").read_text(encoding="utf-8"))
    state = state_of()
    assert set(state) == set(schema["required"]) == set(schema["properties"]) == set(KEYS)
    assert json.loads(json.dumps(state)) == state
    assert state["samples_consumed_per_split"] == [1, 1, 1, 1]
    assert state["partial_cycle_splits"] == [0, 2]
    assert (state["epoch"], state["world_size"], state["schema_version"], state["order_version"]) == (2, 2, 1, 1)
    assert "rank" not in state


MALFORMED: list[tuple[str, Any]] = [
    *[(key, value) for key in ("num_splits", "order_version", "epoch", "world_size") for value in (True, 1.0, "1", None, [1])],
    *[(key, value) for key in ("table_version", "selected_rows") for value in (True, 17.0, None)],
    *[("schema_version", value) for value in (True, 1.0, "1", None)],
    *[(key, value) for key in ("shuffle_seed", "shuffle_clump_size") for value in (True, 5.0, "5")],
    *[("shuffle", value) for value in (0, 1, None, "yes")],
    *[(key, value) for key in ("table_name", "schema_fingerprint") for value in (None, 3, b"t")],
    ("filter", 3),
    ("filter", ["id > 3"]),
    ("num_splits", 0),
    ("num_splits", -4),
    ("num_splits", 2),
    ("selected_rows", 3),
    ("selected_rows", 0),
    ("world_size", 0),
    ("world_size", -2),
    ("world_size", 3),
    ("world_size", 8),
    ("world_size", 4),
    ("epoch", -1),
    ("epoch", 2**63),
    ("shuffle_seed", -1),
    ("shuffle_seed", 2**63),
    ("shuffle_seed", None),
    ("shuffle", False),
    ("shuffle_clump_size", 0),
    ("table_version", 0),
    *[("samples_consumed_per_split", value) for value in (1, None, "1111", {0: 1}, [], [1], [1] * 5, [1, 1, 1, 2], [5] * 4, [-1] * 4)],
    *[("samples_consumed_per_split", value) for value in ([True] * 4, [1.0] * 4, ["1"] * 4, [None] * 4, [[1]] * 4, [4] * 4)],
    *[("partial_cycle_splits", value) for value in (0, None, "02", {0, 2}, [0], [0, 1], [2, 0], [0, 0], [2, 2], [0, 4], [-1, 2])],
    *[("partial_cycle_splits", value) for value in ([0, 1, 2, 3], [0, 1, 2], [False, 2], [0.0, 2.0], [[0], [2]])],
]


@pytest.mark.parametrize(("key", "value"), MALFORMED, ids=[f"{key}={value!r}" for key, value in MALFORMED])
def test_malformed(key: str, value: object) -> None:
    """CKP-6: one wrong value is enough; a tuple for a list is not wrong."""
    assert code_of(state_of()) is None
    assert code_of({**state_of(), key: value}) == "state.malformed"


def test_well_formed_edges() -> None:
    """CKP-6 at the right side of its edges."""
    assert code_of({**state_of(4, ()), "epoch": 2**63 - 1}) is None
    assert code_of({**state_of(0, ()), "world_size": 1}) is None
    assert code_of({**state_of(), "samples_consumed_per_split": (1, 1, 1, 1), "partial_cycle_splits": (1, 3)}) is None
    assert code_of({**state_of(), "world_size": 1, "partial_cycle_splits": [0, 1, 3]}) is None


@pytest.mark.parametrize("value", [None, [], 3, "state", {}, [("epoch", 1)]], ids=repr)
def test_no_state_at_all(value: object) -> None:
    """CKP-7: not a mapping, or an empty one."""
    assert code_of(value) == "state.malformed"


@pytest.mark.parametrize("key", KEYS)
def test_missing_and_surplus_keys(key: str) -> None:
    """CKP-6: exactly the keys of CKP-1."""
    state = state_of()
    del state[key]
    assert code_of(state) == "state.malformed"
    assert code_of({**state_of(), key.upper(): 1}) == "state.malformed"


DIFFERENT = {
    "num_splits": Settings(17, 2, 2, 0, True, 5, 3, "replay", "id > 3", "t", 7, "ab" * 32),
    "shuffle": Settings(17, 4, 2, 0, False, 5, None, "replay", "id > 3", "t", 7, "ab" * 32),
    "shuffle_seed": Settings(17, 4, 2, 0, True, 6, 3, "replay", "id > 3", "t", 7, "ab" * 32),
    "shuffle_clump_size": Settings(17, 4, 2, 0, True, 5, None, "replay", "id > 3", "t", 7, "ab" * 32),
    "filter": Settings(17, 4, 2, 0, True, 5, 3, "replay", None, "t", 7, "ab" * 32),
    "table_name": Settings(17, 4, 2, 0, True, 5, 3, "replay", "id > 3", "u", 7, "ab" * 32),
    "table_version": Settings(17, 4, 2, 0, True, 5, 3, "replay", "id > 3", "t", 8, "ab" * 32),
    "selected_rows": Settings(18, 4, 2, 0, True, 5, 3, "replay", "id > 3", "t", 7, "ab" * 32),
    "schema_fingerprint": Settings(17, 4, 2, 0, True, 5, 3, "replay", "id > 3", "t", 7, "cd" * 32),
}


@pytest.mark.parametrize("field", [field for field in IDENTITY if field != "order_version"])
def test_other_identity(field: str) -> None:
    """RES-1: each field by itself is a mismatch; where the state stands is not part of the identity."""
    assert code_of(state_of(), DIFFERENT[field]) == "state.mismatch"


def test_other_order_version_and_other_world() -> None:
    """RES-1: ``order_version`` belongs to the identity, world size and rank do not."""
    assert code_of({**state_of(), "order_version": 2}) == "state.mismatch"
    assert code_of(state_of(), Settings(17, 4, 4, 3, True, 5, 3, "replay", "id > 3", "t", 7, "ab" * 32)) is None


def test_sequence_of_checks() -> None:
    """CKP-7: schema version before form, form before identity, identity before the partial cycle."""
    exact = Settings(17, 4, 4, 0, True, 5, 3, "exact", "id > 3", "t", 7, "ab" * 32)
    state = state_of()
    assert code_of(state, exact) == "state.partial_cycle"
    state["filter"] = "other"
    assert code_of(state, exact) == "state.mismatch"
    state["epoch"] = -1
    assert code_of(state, exact) == "state.malformed"
    state["schema_version"] = 2
    assert code_of(state, exact) == "state.schema_version"
    del state["world_size"]
    assert code_of(state, exact) == "state.schema_version"


def test_drawn_seed_adopts_the_saved_one() -> None:
    """RES-1: but not a given one."""
    drawn = Settings(17, 4, 1, 0, True, 99, 3, "replay", "id > 3", "t", 7, "ab" * 32, seed_drawn=True)
    after = loader.load(loader.open_loader(drawn), state_of())
    assert after.settings.shuffle_seed == 5
    assert loader.save(after)["shuffle_seed"] == 5


def test_load_does_not_touch_or_keep_its_argument() -> None:
    """RES-5, CKP-1: nor does save share a list with anything."""
    state = state_of()
    before = copy.deepcopy(state)
    cursor = checkpoint.load(state, SETTINGS.identity(), 2, "exact")
    assert state == before
    state["partial_cycle_splits"].append(3)
    assert cursor == Cursor(2, 1, (0, 2))
    form = checkpoint.check_form(before)
    form["partial_cycle_splits"].clear()
    form["samples_consumed_per_split"].clear()
    assert before == state_of()


def test_policies() -> None:
    """RES-3, RES-4, RES-7."""
    identity = SETTINGS.identity()
    assert checkpoint.load(state_of(), identity, 2, "replay") == Cursor(2, 1, ())
    assert checkpoint.load(state_of(), identity, 2, "exact") == Cursor(2, 1, (0, 2))
    assert checkpoint.load(state_of(), identity, 1, "exact") == Cursor(2, 1, (0, 2))
    assert checkpoint.load(state_of(1, ()), identity, 4, "exact") == Cursor(2, 1, ())


def test_floor() -> None:
    """CKP-4: the same but for the partial cycle."""
    assert checkpoint.floor(state_of()) == {**state_of(), "partial_cycle_splits": []}


def merge_code(states: list[object], skew: str = "refuse") -> str | None:
    """The code with which a merge is refused."""
    try:
        checkpoint.merge(states, skew)
    except ModelError as error:
        return error.code
    return None


def test_merge_equal_states() -> None:
    """MRG-2: a copy, partial cycle included, whatever ``skew`` says."""
    for skew in ("refuse", "replay"):
        states = [state_of(), state_of()]
        merged = checkpoint.merge(states, skew)
        assert merged == state_of()
        merged["partial_cycle_splits"].clear()
        assert states == [state_of(), state_of()]


TORN = [state_of(1, (0, 2)), state_of(2, ()), state_of(0, (0, 2), epoch=3), state_of(4, ())]


@pytest.mark.parametrize("ahead", TORN, ids=["served", "C", "epoch", "L"])
def test_merge_torn_sets(ahead: dict[str, Any]) -> None:
    """MRG-2: refused by default; else the smallest (epoch, C) in either sequence, with an empty partial cycle."""
    behind = state_of(1, ())
    if ahead["partial_cycle_splits"] == [0, 2] and ahead["epoch"] == 2:
        behind = state_of(1, (1, 3))
    for states in ([ahead, behind], [behind, ahead]):
        assert merge_code(list(states)) == "merge.skew"
        assert checkpoint.merge(states, "replay") == state_of(1, ())


def test_merge_refusals() -> None:
    """MRG-1: number, form and agreement; the place need not agree."""
    assert merge_code([]) == "merge.count"
    assert merge_code([state_of()]) == "merge.count"
    assert merge_code([state_of()] * 3) == "merge.count"
    assert merge_code([state_of(), {**state_of(), "epoch": -1}]) == "state.malformed"
    assert merge_code([state_of(), None]) == "state.malformed"
    assert merge_code([state_of(), {**state_of(), "schema_version": 3}]) == "state.schema_version"
    assert merge_code([state_of(), {**state_of(), "filter": None}], "replay") == "state.mismatch"
    assert merge_code([state_of(), {**state_of(), "table_version": 8}], "replay") == "state.mismatch"
    assert merge_code([state_of(), state_of()], "newest") == "argument.value"

"""Chapter checkpoint on the model: every clause of the form by one wrong value each, the digest, resuming, merging."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from model import checkpoint, loader
from model.checkpoint import KEYS, sign
from model.cycle import Cursor
from model.errors import CODES, WORKER_CODES, ModelError
from model.loader import Settings

SPEC = Path(__file__).resolve().parents[2] / "spec"
SETTINGS = Settings(17, 4, 2, 0, True, 5, 3, "replay", "id > 3", "t", 7, "ab" * 32, table_version_created_us=99)


def state_of(cycle: int = 1, served: tuple[int, ...] = (0, 2), epoch: int = 2) -> dict[str, Any]:
    """A well formed state of two ranks and four splits, L = 4."""
    return checkpoint.save(SETTINGS.identity(), Cursor(epoch, cycle, served), 2)


def edited(state: dict[str, Any], **values: object) -> dict[str, Any]:
    """A copy with other values, signed anew, unless a value cannot be written as JSON and so never be signed."""
    changed = {**state, **values}
    try:
        return sign(changed)
    except TypeError:
        return changed


def code_of(state: object, settings: Settings = SETTINGS) -> str | None:
    """The code with which a load is refused; None where it is not."""
    try:
        loader.load(loader.open_loader(settings), state)
    except ModelError as error:
        return error.code
    return None


def test_codes_are_those_of_the_spec() -> None:
    """The model raises no code that spec/errors.md does not list."""
    listed = (SPEC / "errors.md").read_text(encoding="utf-8")
    assert all(f"| `{code}` |" in listed for code in (*CODES, *WORKER_CODES))
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


def test_digest_is_that_of_the_text() -> None:
    """CKP-8: over the text written here by hand, without the digest itself; whatever else is written, it is another."""
    settings = Settings(8, 2, shuffle=False, table_name="t\u00e4 \U0001f680", schema_fingerprint="cd" * 32, table_version_created_us=None)
    state = checkpoint.save(settings.identity(), Cursor(3, 2, (0,)), 1)
    text = (
        '{"epoch":3,"filter":null,"num_splits":2,"order_version":1,"partial_cycle_splits":[0],"samples_consumed_per_split":[2,2],'
        f'"schema_fingerprint":"{"cd" * 32}","schema_version":1,"selected_rows":8,"shuffle":false,"shuffle_clump_size":null,'
        '"shuffle_seed":null,"table_name":"t\\u00e4 \\ud83d\\ude80","table_version":1,"table_version_created_us":null,"world_size":1}'
    )
    assert state["digest"] == hashlib.sha256(text.encode("ascii")).hexdigest()
    assert sign({**state, "digest": "anything"}) == state
    assert list(sign(dict(reversed(state.items())))) != list(state)
    assert sign(dict(reversed(state.items()))) == state


@pytest.mark.parametrize("key", KEYS)
def test_values_of_two_states_are_no_state(key: str) -> None:
    """CKP-8, MRG-5: a well formed state with one value of another well formed state; only a value that both share is none too many."""
    other = Settings(23, 4, 1, 0, False, None, None, "replay", None, "u", 8, "cd" * 32, table_version_created_us=None)
    ahead = checkpoint.save(other.identity(), Cursor(3, 2, (1,)), 1)
    shared = key in ("schema_version", "num_splits", "order_version")
    assert code_of({**state_of(), key: ahead[key]}) == (None if shared else "state.malformed")


MALFORMED: list[tuple[str, Any]] = [
    *[(key, value) for key in ("num_splits", "order_version", "epoch", "world_size") for value in (True, 1.0, "1", None, [1])],
    *[(key, value) for key in ("table_version", "selected_rows") for value in (True, 17.0, None)],
    *[("schema_version", value) for value in (True, 1.0, "1", None)],
    *[(key, value) for key in ("shuffle_seed", "shuffle_clump_size", "table_version_created_us") for value in (True, 5.0, "5", -1, 2**63)],
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
    ("shuffle_seed", None),
    ("shuffle", False),
    ("shuffle_clump_size", 0),
    ("table_version", 0),
    ("order_version", 0),
    ("filter", ""),
    *[("schema_fingerprint", value) for value in ("", "ab" * 31, "ab" * 33, "AB" * 32, "g" * 64)],
    *[("samples_consumed_per_split", value) for value in (1, None, "1111", {0: 1}, [], [1], [1] * 5, [1, 1, 1, 2], [5] * 4, [-1] * 4)],
    *[("samples_consumed_per_split", value) for value in ([True] * 4, [1.0] * 4, ["1"] * 4, [None] * 4, [[1]] * 4, [4] * 4)],
    *[("partial_cycle_splits", value) for value in (0, None, "02", {0, 2}, [0], [0, 1], [2, 0], [0, 0], [2, 2], [0, 4], [-1, 2])],
    *[("partial_cycle_splits", value) for value in ([0, 1, 2, 3], [0, 1, 2], [False, 2], [0.0, 2.0], [[0], [2]])],
]


@pytest.mark.parametrize(("key", "value"), MALFORMED, ids=[f"{key}={value!r}" for key, value in MALFORMED])
def test_malformed(key: str, value: object) -> None:
    """CKP-6: one wrong value is enough; a tuple for a list is not wrong."""
    assert code_of(state_of()) is None
    assert code_of(edited(state_of(), **{key: value})) == "state.malformed"


@pytest.mark.parametrize("value", [None, 1, b"ab", "", "0" * 64])
def test_malformed_digest(value: object) -> None:
    """CKP-6, CKP-8."""
    assert code_of({**state_of(), "digest": value}) == "state.malformed"
    assert code_of({**state_of(), "digest": state_of()["digest"].upper()}) == "state.malformed"


def test_well_formed_edges() -> None:
    """CKP-6 at the right side of its edges; a tuple is written as a list is (CKP-8)."""
    assert code_of(edited(state_of(4, ()), epoch=2**63 - 1)) is None
    assert code_of(edited(state_of(0, ()), world_size=1)) is None
    assert code_of(edited(state_of(), samples_consumed_per_split=(1, 1, 1, 1), partial_cycle_splits=(1, 3))) is None
    assert code_of(edited(state_of(), world_size=1, partial_cycle_splits=[0, 1, 3])) is None
    assert checkpoint.check_form(edited(state_of(), table_version_created_us=0))["table_version_created_us"] == 0
    assert checkpoint.check_form(edited(state_of(), table_version_created_us=None))["table_version_created_us"] is None


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
    assert code_of(edited(state_of(), **{key.upper(): 1})) == "state.malformed"


def test_sequence_of_checks() -> None:
    """CKP-7: accept, iterator, schema version, form, digest, identity, partial cycle: each hides those after it."""
    exact = loader.open_loader(Settings(17, 4, 4, 0, True, 5, 3, "exact", "id > 3", "t", 7, "ab" * 32, table_version_created_us=99))

    def refusal(state: dict[str, Any], accept: object = (), alive: bool = False) -> str | None:
        try:
            loader.load(loader.pull(loader.start(exact))[0] if alive else exact, state, accept)
        except ModelError as error:
            return error.code
        return None

    state = state_of()
    assert refusal(state) == "state.partial_cycle"
    state = edited(state, filter="other")
    assert refusal(state) == "state.mismatch"
    state["selected_rows"] = 18
    assert refusal(state) == "state.malformed"
    state = edited(state, epoch=-1)
    assert refusal(state) == "state.malformed"
    state["schema_version"] = 2
    assert refusal(state) == "state.schema_version"
    del state["world_size"]
    assert refusal(state) == "state.schema_version"
    assert refusal(state, alive=True) == "iterator.alive"
    assert refusal(state, ["epoch"], alive=True) == "argument.value"


def test_load_does_not_touch_or_keep_its_argument() -> None:
    """RES-5, CKP-1: nor does save share a list with anything."""
    state = state_of()
    before = copy.deepcopy(state)
    cursor = checkpoint.load(state, 2, "exact")
    assert state == before
    state["partial_cycle_splits"].append(3)
    assert cursor == Cursor(2, 1, (0, 2))
    form = checkpoint.check_form(before)
    form["partial_cycle_splits"].clear()
    form["samples_consumed_per_split"].clear()
    assert before == state_of()


def test_policies() -> None:
    """RES-3, RES-4, RES-7."""
    assert checkpoint.load(state_of(), 2, "replay") == Cursor(2, 1, ())
    assert checkpoint.load(state_of(), 2, "exact") == Cursor(2, 1, (0, 2))
    assert checkpoint.load(state_of(), 1, "exact") == Cursor(2, 1, (0, 2))
    assert checkpoint.load(state_of(1, ()), 4, "exact") == Cursor(2, 1, ())


def test_floor() -> None:
    """CKP-4: the same but for the partial cycle."""
    assert checkpoint.floor(state_of()) == edited(state_of(), partial_cycle_splits=[]) == state_of(1, ())


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
    """MRG-1, MRG-2: number, form and agreement, in this sequence; the place need not agree, nor does the digest."""
    assert merge_code([]) == "merge.count"
    assert merge_code([state_of()]) == "merge.count"
    assert merge_code([state_of()] * 3) == "merge.count"
    assert merge_code([state_of(), edited(state_of(), epoch=-1)]) == "state.malformed"
    assert merge_code([state_of(), {**state_of(), "epoch": 3}]) == "state.malformed"
    assert merge_code([state_of(), None]) == "state.malformed"
    assert merge_code([state_of(), None, state_of()]) == "state.malformed"
    assert merge_code([state_of(), edited(state_of(), schema_version=3)]) == "state.schema_version"
    assert merge_code([state_of(), edited(state_of(), world_size=1, filter=None)]) == "merge.count"
    assert merge_code([state_of(), state_of()], "newest") == "argument.value"
    assert merge_code([], "newest") == "argument.value"
    with pytest.raises(ModelError, match=r"argument\.type"):
        checkpoint.merge([], None)  # type: ignore[arg-type]


def test_merge_names_what_differs() -> None:
    """MRG-1: all fields, whatever the place says; a moment that only one rank knows is a difference, one that none knows is not."""
    other = edited(state_of(2, ()), filter=None, table_version=8, shuffle_seed=6)
    with pytest.raises(ModelError) as caught:
        checkpoint.merge([state_of(), other], "replay")
    assert (caught.value.code, caught.value.fields) == ("state.mismatch", ("shuffle_seed", "filter", "table_version"))
    unknown = edited(state_of(), table_version_created_us=None)
    assert merge_code([state_of(), unknown]) == "state.mismatch"
    assert checkpoint.merge([unknown, unknown]) == unknown


def test_states_of_a_single_split() -> None:
    """MRG-2, IDN-11 with S = 1: there is one count, and that is the place."""
    alone = Settings(rows=7, num_splits=1, shuffle=False)
    states = [checkpoint.save(alone.identity(), Cursor(epoch, 2, ()), 1) for epoch in (1, 1)]
    assert checkpoint.merge(states[:1]) == states[0]
    assert checkpoint.place(states[1]) == (1, 2)
    shorter = Settings(rows=5, num_splits=1, shuffle=False)
    moved = loader.load(loader.open_loader(shorter), states[0], ["selected_rows"])
    assert moved.cursor == Cursor(1, 2, ())
    assert code_of(states[0], shorter) == "state.mismatch"


@pytest.mark.parametrize("letter", ["X", "g", "A", " "])
def test_fingerprints_are_lower_case_hexadecimal(letter: str) -> None:
    """CKP-6."""
    assert code_of(sign({**state_of(), "schema_fingerprint": letter * 64})) == "state.malformed"

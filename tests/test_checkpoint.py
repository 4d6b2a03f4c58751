"""States: form, schema, containers, identity, versions (spec/checkpoint.md). Form and merging are also drawn by tests/test_machine.py."""

from __future__ import annotations

import collections
import enum
import io
import json
import logging
import pickle
import types
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from streaming import StreamingDataset, errors, merge_state_dicts
from streaming.errors import MalformedStateError, PartialCycleError, SchemaVersionError, StateMismatchError, StreamingError
from tests.support import FINGERPRINT, edited, ids, numbered_table, written_us

SCHEMA = json.loads((Path(__file__).parents[1] / "spec" / "state.schema.json").read_text())
KEYS = ["samples_consumed_per_split", "partial_cycle_splits"]


def make(**arguments: Any) -> StreamingDataset:
    return StreamingDataset(numbered_table(24), **{"num_splits": 4, "shuffle_seed": 1, **arguments})


def saved(rows: int = 6, **arguments: Any) -> dict[str, Any]:
    dataset = make(**arguments)
    iterator = iter(dataset)
    for _ in range(rows):
        next(iterator)
    return dataset.state_dict()


def test_the_state_has_the_keys_of_the_schema_at_every_moment() -> None:
    """CKP-1, CKP-3."""
    dataset = make(filter="id >= 0", shuffle_clump_size=2)
    moments = [dataset.state_dict()]
    for _ in dataset:
        moments.append(dataset.state_dict())
    moments += [dataset.state_dict(), dataset.floor_state_dict(), make(shuffle=False, shuffle_seed=None).state_dict()]
    for state in moments:
        jsonschema.validate(state, SCHEMA)
        assert list(state) == list(moments[0])
        assert set(state) == set(SCHEMA["properties"]) == set(SCHEMA["required"])
        assert json.loads(json.dumps(state)) == state
        assert [type(value) for value in state.values() if not isinstance(value, (int, str, bool, list, type(None)))] == []
    assert moments[0]["schema_fingerprint"] == FINGERPRINT
    assert (moments[0]["table_name"], moments[0]["table_version"], moments[0]["selected_rows"]) == ("t24", 1, 24)
    assert moments[0]["table_version_created_us"] == written_us(numbered_table(24), 1)
    for state in moments:
        assert state == edited(state)  # the digest, computed by hand (CKP-8)


def test_a_state_is_a_copy_that_never_changes() -> None:
    dataset = make()
    iterator = iter(dataset)
    next(iterator)
    state = dataset.state_dict()
    frozen = json.dumps(state)
    state_again = dataset.state_dict()
    state_again["samples_consumed_per_split"][0] = 99
    state_again["partial_cycle_splits"].append(3)
    next(iterator)
    assert json.dumps(state) == frozen
    assert dataset.state_dict()["samples_consumed_per_split"] == [0, 0, 0, 0]
    assert dataset.state_dict()["partial_cycle_splits"] == [0, 1]


def through_torch(state: Any) -> Any:
    buffer = io.BytesIO()
    torch.save({"dataset": state}, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)["dataset"]


class Listish(collections.UserList):  # type: ignore[type-arg]
    """Stands for the list classes of configuration libraries."""


def integers(convert: Any) -> Any:
    return lambda state: {k: convert(v) if isinstance(v, int) and not isinstance(v, bool) else v for k, v in state.items()}


def lists(convert: Any) -> Any:
    return lambda state: {k: convert(v) if isinstance(v, list) else v for k, v in state.items()}


CONTAINERS = {
    "json": lambda s: json.loads(json.dumps(s)),
    "pickle": lambda s: pickle.loads(pickle.dumps(s)),
    "torch": through_torch,
    "ordered": collections.OrderedDict,
    "mapping": types.MappingProxyType,
    "numpy ints": integers(np.int64),
    "0-d arrays": integers(np.array),
    "0-d tensors": integers(torch.tensor),
    "tuples": lists(tuple),
    "list classes": lists(Listish),
    "arrays": lists(lambda v: np.array(v, dtype=np.int32)),
    "tensors": lists(lambda v: torch.tensor(v, dtype=torch.int64)),
    "lists of tensors": lists(lambda v: [torch.tensor(i) for i in v]),
    "numpy bools": lambda s: {**s, "shuffle": np.bool_(s["shuffle"])},
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_round_trips_continue_alike(name: str) -> None:
    state = saved()
    expected = make()
    expected.load_state_dict(state)
    dataset = make()
    dataset.load_state_dict(CONTAINERS[name](state))
    assert dataset.state_dict() == expected.state_dict()
    assert ids(dataset) == ids(expected)
    assert merge_state_dicts([CONTAINERS[name](state)]) == state


BAD = [1.0, True, None, "1", -1, 2**63, [1], {}, np.float64(2), np.bool_(True), torch.tensor(1.5), torch.tensor(True), b"1", float("nan")]


@pytest.mark.parametrize("key", [k for k, v in SCHEMA["properties"].items() if k not in KEYS and v.get("type") == "integer"])
@pytest.mark.parametrize("value", BAD, ids=repr)
def test_malformed_integers_are_named(key: str, value: Any) -> None:
    dataset = make()
    with pytest.raises(MalformedStateError, match=key):
        dataset.load_state_dict({**saved(), key: value})
    assert dataset.state_dict() == make().state_dict()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "value", [None, 1, "0123", b"0123", {}, {0, 1}, [0.0] * 4, [None] * 4, [[0]] * 4, np.zeros((2, 2), int), torch.tensor(3)], ids=repr
)
def test_malformed_lists_are_named(key: str, value: Any) -> None:
    with pytest.raises(MalformedStateError, match=key):
        make().load_state_dict({**saved(), key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("table_version_created_us", 1.5),
        ("table_version_created_us", -1),
        ("digest", None),
        ("digest", "0" * 64),
        ("shuffle", 1),
        ("shuffle", "True"),
        ("filter", 3),
        ("table_name", None),
        ("schema_fingerprint", 5),
        ("shuffle_seed", 0.5),
    ],
)
def test_other_malformed_values_are_named(key: str, value: Any) -> None:
    with pytest.raises(MalformedStateError, match=key):
        make().load_state_dict({**saved(), key: value})


class Fails:
    """Something in the place of a number whose reading fails."""

    def tolist(self) -> Any:
        raise RuntimeError("no values here")


class FailsToShow(int):
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Kind(enum.IntEnum):
    FIFTH = 5


@pytest.mark.parametrize("key", ["epoch", "num_splits", "samples_consumed_per_split", "filter", "digest"])
@pytest.mark.parametrize(
    "value",
    [10**5000, [10**5000] * 4, torch.empty(3, device="meta"), Fails(), [Fails()], FailsToShow(-1), "x" * 10**6],
    ids=["huge", "huge list", "meta", "fails", "list that fails", "repr fails", "long"],
)
def test_values_that_cannot_even_be_shown_are_malformed(key: str, value: Any) -> None:
    with pytest.raises(MalformedStateError) as refused:
        make().load_state_dict({**saved(), key: value})
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("version", [2, 0, -1, 2**63, -(2**70), 10**5000], ids=["2", "0", "-1", "2**63", "-2**70", "huge"])
def test_other_schema_versions_are_refused_as_such(version: int) -> None:
    with pytest.raises(SchemaVersionError, match="release that wrote it"):
        make().load_state_dict({**saved(), "schema_version": version})


def test_enumerations_become_plain_ints() -> None:
    dataset = make()
    dataset.load_state_dict(edited(saved(), epoch=Kind.FIFTH))
    assert type(dataset.state_dict()["epoch"]) is int
    assert dataset.epoch == 5


def test_another_epoch_is_adopted_with_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    dataset = make(epoch=4)
    with caplog.at_level(logging.INFO, "streaming"):
        dataset.load_state_dict(saved(epoch=7))
    assert dataset.epoch == 7
    assert [record.getMessage() for record in caplog.records] == ["the state's epoch 7 replaces epoch 4"]


def test_exact_is_refused_with_the_remedy() -> None:
    state = saved(9, num_splits=4)
    dataset = make(num_splits=4, world_size=2, rank=0, partial_cycle="exact")
    with pytest.raises(PartialCycleError, match='partial_cycle="replay"') as refused:
        dataset.load_state_dict(state)
    assert str(refused.value).endswith("or one of the world sizes [1]")


def test_merging_copies() -> None:
    state = saved()
    merged = merge_state_dicts([state])
    assert merged == state
    merged["partial_cycle_splits"].append(3)
    assert merged != state
    assert StreamingDataset.merge_state_dicts(iter([state])) == state
    for bad in ([3], [{}], [None]):
        with pytest.raises(MalformedStateError):
            merge_state_dicts(bad)
    for skew in (None, "drop"):
        with pytest.raises(StreamingError) as refused:
            merge_state_dicts([state], skew=skew)
        assert refused.value.argument == "skew"


def test_merging_names_every_field_in_which_states_differ() -> None:
    """MRG-1: also where the second state differs in one field and the third in another."""
    state = edited(saved(num_splits=3), world_size=3)
    with pytest.raises(StateMismatchError) as refused:
        merge_state_dicts([state, edited(state, selected_rows=25), edited(state, shuffle_seed=8, selected_rows=26)])
    assert refused.value.fields == ("shuffle_seed", "selected_rows")
    assert "selected_rows: state 25, the first state 24" in str(refused.value)


def test_every_error_code_of_the_spec_has_a_class_and_the_other_way_round() -> None:
    text = (Path(__file__).parents[1] / "spec" / "errors.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    spec = {(row[1].strip(" `"), row[2].strip(), row[3].strip(" `")) for row in rows}
    classes = [getattr(errors, name) for name in errors.__all__ if name != "StreamingError"]
    builtin = (TypeError, ValueError, RuntimeError)
    assert {(c.code, next(b for b in builtin if issubclass(c, b)).__name__, c.__name__) for c in classes} == spec
    for kind in classes:
        assert str(kind("a message alone")) == "a message alone"

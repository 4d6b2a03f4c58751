"""IDN-3 to IDN-5, IDN-7 on the model: tables with versions, and what datasets that were opened on them see later."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from model import tables
from model.bench import Bench
from model.scenario import run
from model.tables import Store


def test_fingerprint() -> None:
    """IDN-5: name, type, nullable, of all columns in sequence, without spaces, escaped."""
    assert tables.fingerprint([("id", "int64", True)]) == hashlib.sha256(b'[["id","int64",true]]').hexdigest()
    text = b'[["\\u00e4","list<item: string>",false],["\\ud83d\\ude80","int64",true]]'
    columns = [("ä", "list<item: string>", False), ("\U0001f680", "int64", True)]
    assert tables.fingerprint(columns) == hashlib.sha256(text).hexdigest()
    assert tables.fingerprint(columns) != tables.fingerprint(columns[::-1])


def test_fingerprint_of_extension_types() -> None:
    """IDN-5: the clause's example, and how a text counts that libraries write in several ways."""
    clause = next(line for line in Path("spec/identity.md").read_text().splitlines() if "Example: a nullable int64 `id`" in line)
    example, digest = clause.split("give `")[1].removesuffix("`.").split("`, hence `")
    tensor = tables.extension([], "arrow.fixed_shape_tensor", '{"shape": [2, 3]}')
    columns: list[tables.Column] = [("id", "int64", True), ("t", "fixed_size_list<item: float>[6]", True, (tensor,))]
    assert tables.fingerprint(columns) == digest == hashlib.sha256(example.encode()).hexdigest()
    assert tables.extension([0, 1], "arrow.x", '{"b": "\u00e4", "a": []}') == ((0, 1), "arrow.x", '{"a":[],"b":"\\u00e4"}')
    assert tables.extension([], "lance.json", "{ }") == tables.extension([], "lance.json") == ((), "lance.json", "")
    for name, text in (("my.own", '{"b": 1}'), ("arrow.x", "[1, 2]"), ("arrow.x", "no JSON"), ("lancet", "{}")):
        assert tables.extension([], name, text) == ((), name, text)


def test_versions_of_a_table() -> None:
    """IDN-3: every write is another version at another moment; moving and cleaning change no version; nothing changes in place."""
    made = tables.make(Store(), "x", 8)
    grown = tables.add_column(tables.append(made, "x", 4), "x")
    first, second, third = grown.tables["x"].versions
    assert [(one.number, one.rows) for one in (first, second, third)] == [(1, 8), (2, 12), (3, 12)]
    assert first.created_us is not None
    assert first.fingerprint == second.fingerprint != third.fingerprint
    assert len({first.created_us, second.created_us, third.created_us}) == 3
    assert made.tables["x"].versions == (first,)
    assert third.fingerprint == tables.fingerprint([("id", "int64", True), ("column1", "int64", True)])
    assert set(tables.drop(tables.make(made, "y", 1), "x").tables) == {"y"}

    moved = tables.move(grown, "x", "y")
    assert (set(moved.tables), moved.tables["y"]) == ({"y"}, grown.tables["x"])
    cleaned = tables.clean(moved, "y")
    assert cleaned.tables["y"].versions == (third,)
    assert tables.append(cleaned, "y", 1).tables["y"].versions[-1].number == 4
    assert tables.open_version(cleaned.tables["y"], 2) is None
    assert tables.open_version(grown.tables["x"], 2) == second


def test_a_table_made_again_is_another() -> None:
    """IDN-3: it has no moment of the first, by which a dataset knows its table."""
    first = tables.append(tables.make(Store(), "x", 8), "x", 1)
    again = tables.append(tables.make(first, "x", 8), "x", 1)
    assert tables.make(tables.drop(first, "x"), "x", 8) == tables.make(first, "x", 8)
    moments = {version.created_us for store in (first, again) for version in store.tables["x"].versions}
    assert len(moments) == 4
    old = first.tables["x"].made_us
    assert tables.find(first, old) == first.tables["x"]
    assert tables.find(again, old) is None
    assert tables.find(tables.move(first, "x", "y"), old) == first.tables["x"]


def test_misused_tables() -> None:
    """A scenario that asks for what cannot be is wrong itself."""
    both = tables.make(tables.make(Store(), "x", 1), "y", 1)
    with pytest.raises(ValueError, match="y"):
        tables.move(both, "x", "y")
    with pytest.raises(ValueError, match="z"):
        tables.drop(both, "z")


# --- and datasets ------------------------------------------------------------------------------------------------------------------


def history(*steps: dict[str, Any]) -> Bench:
    """A table x of 8 rows, a dataset a of it, and steps."""
    first: list[dict[str, Any]] = [{"make": "x", "rows": 8}, {"open": "a", "table": "x", "num_splits": 2}]
    return run({"id": "history", "rows": 8, "steps": [*first, *steps]})


def test_moment_is_asked_for_with_the_first_state() -> None:
    """IDN-4: then it is remembered, whatever becomes of the version; before, it may be too late, and the next state asks again."""
    gone: list[dict[str, Any]] = [{"append": "x", "rows": 1}, {"clean": "x"}, {"save": "a", "as": "late"}]
    bench = history({"save": "a", "as": "early"}, *gone)
    assert bench.states["late"] == bench.states["early"]
    assert bench.states["late"]["table_version_created_us"] == tables.FIRST_MOMENT
    assert history(*gone).states["late"]["table_version_created_us"] is None
    assert history({"make": "x", "rows": 8}, *gone[2:]).states["late"]["table_version_created_us"] is None


def test_a_dataset_keeps_its_own_table() -> None:
    """IDN-7: versions are looked for in the table that it was opened on, as it is at the load, wherever it moved."""
    save: list[dict[str, Any]] = [{"append": "x", "rows": 2}, {"open": "b", "table": "x", "num_splits": 2}, {"save": "b", "as": "s"}]
    load: dict[str, Any] = {"load": "a", "state": "s"}
    refused = {**load, "valid": False, "code": "data.version"}
    bench = history(*save, load, {"check": "a", "version": 2, "len": 10})
    assert bench.loaders["a"].settings.versions == (bench.store.tables["x"].versions[0],)
    history(*save, {"move": "x", "to": "y"}, load, {"check": "a", "version": 2})
    history(*save, {"append": "x", "rows": 1}, {"clean": "x"}, refused, {"check": "a", "version": 1, "len": 8})
    history(*save, {"make": "x", "rows": 8}, {"append": "x", "rows": 2}, refused)

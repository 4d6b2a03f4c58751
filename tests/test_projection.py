"""Which columns are read, by which names: fields of structs, row ids, names the engine stumbles over, names in SQL (ARG-9, ARG-10)."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import ArgumentValueError, BatchError, StreamingError, UnknownColumnError
from streaming.sql import quoted

ROWS = 40


def made(columns: dict[str, Any], where: Any = "memory://") -> Any:
    return lancedb.connect(where).create_table("t", pa.table(columns), mode="overwrite")


def make(table: Any, **arguments: Any) -> StreamingDataset:
    return StreamingDataset(table, **{"num_splits": 4, "shuffle_seed": 1, **arguments})


def refusal(table: Any, **arguments: Any) -> StreamingError:
    with pytest.raises(StreamingError) as refused:
        make(table, **arguments)
    return refused.value


# ---- names that the engine cannot read


@pytest.mark.parametrize("name", ["*", "", "back`tick", "`"])
def test_columns_that_the_engine_cannot_read_are_refused(name: str) -> None:
    """ARG-9: by the constructor, asked for or not, with what helps; the other columns can be read."""
    table = made({name: range(ROWS), "id": range(ROWS)})
    for arguments in ({}, {"columns": [name]}, {"columns": ["id", name]}):
        error = refusal(table, **arguments)
        assert (error.code, error.argument) == ("argument.value", "columns")
        assert repr(name) in str(error)
        assert "leave it out (columns=" in str(error)
    assert sorted(row["id"] for row in make(table, columns=["id"], filter="id >= 0")) == list(range(ROWS))
    if "rename it" in str(error):
        table.alter_columns({"path": str(error).split('"path": ')[1].split(",")[0][1:-1], "rename": "fine"})
        assert sorted(row["fine"] for row in make(table)) == list(range(ROWS))
    else:
        assert name == "", "the engine cannot rename it"


def test_a_star_is_no_column() -> None:
    assert "pass None for all columns" in str(refusal(made({"id": range(ROWS)}), columns=["*"]))


# ---- names in SQL

NAMES = [
    "id",
    "Upper",
    "with space",
    "sel-ect",
    "select",
    "order",
    "null",
    "true",
    "current_date",
    "1a",
    'quo"te',
    "q'uote",
    "ümlaut",
    "a,b",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_remedy_is_a_filter_that_the_engine_takes(name: str) -> None:
    """BAT-4: what a refusal advises, done to the letter."""
    table = made({name: [None if i % 4 == 0 else i for i in range(ROWS)]})
    with pytest.raises(BatchError) as refused:
        list(StreamingDataLoader(make(table), batch_size=10, format="torch"))
    predicate = str(refused.value).split('(filter="')[1].split('"),')[0]
    assert quoted(name) in predicate
    batches = list(StreamingDataLoader(make(table, filter=predicate, num_splits=1), batch_size=10, format="torch"))
    assert sorted(value for batch in batches for value in batch[name].tolist()) == [i for i in range(ROWS) if i % 4]


NAME = st.text(st.characters(exclude_characters="`.\0", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(lambda name: name != "*")


@given(NAME)
def test_every_name_can_be_read_and_quoted(name: str) -> None:
    """ARG-9, ARG-10: a column's and a field's. Sampled over all of Unicode; what the engine does not take as a name is left out."""
    try:
        table = made({name: range(8), "its fields": [{name: i} for i in range(8)]})
    except Exception:
        return
    path = f"its fields.{name}"
    rows = list(make(table, columns=[name, path], num_splits=1, filter=f"{quoted(name)} > 3 AND {quoted(path)} < 7"))
    assert sorted((row[name], row[path]) for row in rows) == [(i, i) for i in range(4, 7)]


# ---- fields of structs


def test_fields_of_structs() -> None:
    """ARG-9: a path reads one field, under that name."""
    rows = [{"b": i, "C d": {"E": f"text {i}"}} if i % 5 else None for i in range(ROWS)]
    table = made({"id": range(ROWS), "a": pa.array(rows, pa.struct([("b", pa.int64()), ("C d", pa.struct([("E", pa.string())]))]))})
    for arguments in ({}, {"filter": "`a`.`b` > 20"}):
        found = list(make(table, columns=["a.C d.E", "id", "a.b"], **arguments))
        assert found
        for row in found:
            i = row["id"]
            assert list(row.items()) == [("a.C d.E", f"text {i}" if i % 5 else None), ("id", i), ("a.b", i if i % 5 else None)]
    (batch,) = StreamingDataLoader(make(table, columns=["a.b"], filter="a.b > 0"), batch_size=ROWS, format="torch")
    assert sorted(batch["a.b"].tolist()) == [i for i in range(ROWS) if i % 5]
    state = make(table, columns=["a.b"]).state_dict()
    make(table).load_state_dict(state)  # columns are no identity


def test_fields_that_are_not_there() -> None:
    """ARG-9: to the letter; the message says what is."""
    table = made({"a": [{"b": 1, "p.q": 2, "b`t": 3, "": 4}] * ROWS, "l": [[{"e": 1}]] * ROWS, "n": range(ROWS)})
    for name, words in {
        "a.c": "'a' has the fields 'b', 'p.q'",
        "aa.b": "the nearest one is 'a'",
        "a.B": "'a' has the fields",
        "a.p.q": "a dot in its own name",
        "l.e": "'l' is of type list<",
        "n.x": "'n' is of type int64",
        "a.b.c": "'a' has the fields",
        ".": "the nearest one",
    }.items():
        error = refusal(table, columns=[name])
        assert isinstance(error, UnknownColumnError), name
        assert words in str(error), str(error)
    for name in ("a.b`t", "a."):
        error = refusal(table, columns=[name])
        assert type(error) is ArgumentValueError
        assert "read the whole struct 'a'" in str(error)
    assert next(iter(make(table, columns=["a"])))["a"] == {"b": 1, "p.q": 2, "b`t": 3, "": 4}


# ---- row ids


def fetched(table: Any, version: int, row_ids: list[int]) -> dict[int, int]:
    """The ids that the engine finds under row ids in that version."""
    there = table.branches.checkout("main", version)
    found = there.take_row_ids(row_ids).select(["id", "_rowid"]).to_arrow().to_pylist()
    return {row["_rowid"]: row["id"] for row in found}


def grown(where: Any) -> Any:
    """A table of several fragments, with deletions, so that a row's id is not its place."""
    table = made({"id": range(ROWS)}, where)
    table.add(pa.table({"id": range(ROWS, 2 * ROWS)}))
    table.delete("id % 7 = 3")
    return table


@pytest.mark.parametrize("place", ["disk", "memory"])
@pytest.mark.parametrize("arguments", [{}, {"filter": "id % 3 <> 1"}, {"shuffle": False}, {"shuffle_clump_size": 4}], ids=str)
def test_row_ids_name_the_rows_of_the_pinned_version(place: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    """ARG-9: what is logged can be looked up in that version, also behind a compaction, and by a copy in another process."""
    table = grown(tmp_path if place == "disk" else "memory://")
    dataset = make(table, columns=["_rowid", "id"], **arguments)
    rows = list(pickle.loads(pickle.dumps(dataset)))
    assert rows == list(dataset)
    assert [list(row) for row in rows] == [["_rowid", "id"]] * len(rows)
    assert len({row["_rowid"] for row in rows}) == len(rows) > 30
    pinned = table.version
    table.optimize()
    assert fetched(table, pinned, [row["_rowid"] for row in rows]) == {row["_rowid"]: row["id"] for row in rows}
    assert [row["_rowid"] for row in rows] == [row["_rowid"] for row in make(table, columns=["_rowid"], version=pinned, **arguments)]


def test_row_ids_alone_do_not_vouch_for_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IDN-4: the engine makes them without reading anything, so a late listing reads a column."""
    table = made({"id": range(ROWS)}, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(type(table), "list_versions", lambda self: {}["no version"])
        dataset = make(table, columns=["_rowid"])
        assert dataset.state_dict()["table_version_created_us"] is None
    lancedb.connect(tmp_path).drop_table("t")
    made({"id": range(ROWS)}, tmp_path)
    assert dataset.state_dict()["table_version_created_us"] is None


@pytest.mark.processes
@pytest.mark.parametrize("layout", ["torch", "arrow"])
def test_row_ids_from_workers(layout: str, tmp_path: Path) -> None:
    table = grown(tmp_path)
    loader = StreamingDataLoader(make(table, columns=["id", "_rowid"], filter="id % 3 <> 1"), batch_size=5, num_workers=2, format=layout)
    rows = {}
    for batch in loader:
        columns = batch.to_pydict() if layout == "arrow" else {name: values.tolist() for name, values in batch.items()}
        rows.update(zip(columns["_rowid"], columns["id"], strict=True))
    assert len(rows) > 30
    assert fetched(table, table.version, list(rows)) == rows


# ---- messages


def test_messages_about_many_columns_are_short() -> None:
    """ARG-9, ARG-10."""
    table = made({f"column_{i}": range(ROWS) for i in range(3000)})
    for arguments in ({"columns": ["colunm_1234"]}, {"columns": ["c" * 10_000]}, {"filter": "colunm_1234 > 3"}, {"filter": "x" * 10_000}):
        error = refusal(table, **arguments)
        assert len(str(error)) < 700, len(str(error))
    error = refusal(table, columns=["colunm_1234"])
    assert "'column_1234'" in str(error)
    assert "3000" in str(error)

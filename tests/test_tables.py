"""Real tables (TRM-1, DLV-11, DLV-12).

Fragments, deletions, updates, compaction, changes while iterating, filters, projections, nulls, nested types, on disk and in memory.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import StreamingDataset
from streaming.errors import ReadError
from streaming.order import Order
from streaming.source import Source
from tests.support import connection, ids, numbered_table


def rows_between(start: int, stop: int) -> pa.Table:
    return pa.table(
        {"id": range(start, stop), "kind": [i % 5 for i in range(start, stop)], "name": [f"row {i}" for i in range(start, stop)]}
    )


def scan(table: Any, where: str | None = None) -> list[int]:
    """What a full scan of lancedb returns, in its order: the storage order, by the engine's own word."""
    query = table.search().select(["id"])
    found: list[int] = (query if where is None else query.where(where)).to_arrow().column("id").to_pylist()
    return found


def split_sequence(rows: list[int], splits: int) -> list[int]:
    """Round robin over equal blocks of a scan, written here once more by hand."""
    length = len(rows) // splits
    return [rows[s * length + i] for i in range(length) for s in range(splits)]


Change = Callable[[Any, int], None]
CHANGES: dict[str, Change] = {
    "append": lambda t, k: t.add(rows_between(1000 * k, 1000 * k + 37)),
    "delete": lambda t, k: t.delete(f"id % 7 = {k % 7}"),
    "update": lambda t, k: t.update(where=f"id % 11 = {k % 11}", values={"name": f"changed {k}"}),
    "optimize": lambda t, k: t.optimize(),
    "index": lambda t, k: t.create_scalar_index("id"),
}


@pytest.fixture(params=["disk", "memory"])
def new_table(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[pa.Table], Any]:
    database = lancedb.connect(tmp_path if request.param == "disk" else "memory://")
    return lambda data: database.create_table("t", data)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("where", [None, "id % 3 <> 1", "name LIKE 'row 1%'", "kind IN (1, 2) AND id > 20"])
@pytest.mark.parametrize(
    "changes",
    [
        [],
        ["append"] * 3,
        ["append", "delete", "append"],
        ["append", "delete", "update", "append"],
        ["append", "delete", "update", "optimize", "append", "delete", "index"],
    ],
    ids="-".join,
)
def test_storage_order_survives_every_history(new_table: Any, changes: list[str], where: str | None) -> None:
    table = new_table(rows_between(0, 60))
    for k, change in enumerate(changes, start=1):
        CHANGES[change](table, k)
    expected = scan(table, where)
    assert len(expected) > 8
    arguments = {"num_splits": 4, "filter": where}
    assert ids(StreamingDataset(table, shuffle=False, **arguments)) == split_sequence(expected, 4)
    shuffled = Order(len(expected), True, 5, 2).row(np.arange(len(expected), dtype=np.uint64))
    dataset = StreamingDataset(table, shuffle_seed=5, epoch=2, **arguments)
    assert ids(dataset) == split_sequence([expected[i] for i in shuffled], 4)
    for rank in range(2):
        half = StreamingDataset(table, shuffle=False, world_size=2, rank=rank, **arguments)
        length = len(expected) // 4
        assert ids(half) == split_sequence(expected[rank * 2 * length : (rank + 1) * 2 * length], 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_changes_during_a_pass_do_not_change_it(new_table: Any, change: str) -> None:
    table = new_table(rows_between(0, 3000))
    expected = split_sequence(list(range(3000)), 3)
    dataset = StreamingDataset(table, shuffle=False, num_splits=3, read_ahead_bytes=2000)
    version = dataset.version
    received = []
    for count, row in enumerate(dataset):
        if count in (1, 1500):
            CHANGES[change](table, count)
        assert row["name"] == f"row {row['id']}"
        received.append(row["id"])
    assert received == expected
    assert dataset.version == version
    assert ids(dataset) == expected, "the next epoch reads the same version"


def test_the_callers_handle_is_never_moved(new_table: Any) -> None:
    table = new_table(rows_between(0, 20))
    table.add(rows_between(20, 40))
    dataset = StreamingDataset(table, num_splits=2, shuffle=False, version=1)
    assert (len(dataset), len(ids(dataset))) == (20, 20)
    assert (table.version, table.count_rows()) == (2, 40)
    table.add(rows_between(40, 50))
    assert table.count_rows() == 50
    table.checkout(1)
    assert len(StreamingDataset(table, num_splits=2, shuffle=False)) == 20, "a handle that shows an old version pins that one"
    table.checkout_latest()
    table.tags.create("gold", 2)
    assert StreamingDataset(table, num_splits=2, shuffle=False, version="gold").version == 2


def test_columns_are_projected_in_the_order_asked_for() -> None:
    table = connection().create_table("projected", rows_between(0, 6), mode="overwrite")
    dataset = StreamingDataset(table, num_splits=1, shuffle=False, columns=["name", "id"], filter="kind = 2")
    assert [list(row.items()) for row in dataset] == [[("name", "row 2"), ("id", 2)]]
    assert list(next(iter(StreamingDataset(table, num_splits=1)))) == ["id", "kind", "name"]


def test_values_are_those_of_arrow() -> None:
    """Nulls, strings, binaries, dates, lists, fixed lists, structs, lists of structs, dictionaries, decimals: as to_pylist gives them."""
    fields: dict[str, pa.Array] = {
        "id": pa.array([0, 1, 2, None], pa.int64()),
        "text": pa.array(["a", None, "", "ö"]),
        "blob": pa.array([b"", b"\x00", None, b"x" * 10]),
        "flag": pa.array([True, None, False, True]),
        "small": pa.array([1.5, None, 2.5, 3.5], pa.float32()),
        "half": pa.array(np.array([1, 2, 3, 4], np.float16)),
        "day": pa.array([datetime.date(2026, 1, 1), None, datetime.date(1969, 1, 1), datetime.date(2000, 2, 29)]),
        "time": pa.array([datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc), None, None, None], pa.timestamp("us", "UTC")),
        "ragged": pa.array([[1, 2], [], None, [3, None]], pa.list_(pa.int32())),
        "vector": pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float32(), 2)),
        "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 3, "b": "z"}, {"a": 4, "b": ""}]),
        "structs": pa.array([[{"a": 1}], [], [{"a": 2}, {"a": 3}], [{"a": None}]]),
    }
    data = pa.table(fields)
    table = connection().create_table("typed_values", data)
    for reading in (slice(0, 2), slice(2, 4)):
        table.add(data.slice(reading.start, 2))
    expected = data.to_pylist() + data.to_pylist()
    stored = table.to_arrow().to_pylist()
    assert [row["text"] for row in stored] == [row["text"] for row in expected]
    assert list(StreamingDataset(table, num_splits=1, shuffle=False)) == stored
    shuffled = StreamingDataset(table, num_splits=2, shuffle_seed=3)
    order = Order(8, True, 3, 0).row(np.arange(8, dtype=np.uint64))
    assert list(shuffled) == split_sequence([stored[i] for i in order], 2)
    batches: list[pa.RecordBatch] = []
    list(StreamingDataset(table, num_splits=1, shuffle=False, transform=lambda b: batches.append(b) or b.to_pylist()))  # type: ignore[func-returns-value]
    assert batches[0].schema.equals(data.schema)


@given(st.lists(st.integers(0, 499), unique=True, min_size=1, max_size=60))
def test_a_read_keeps_the_order_asked_for(rows: list[int]) -> None:
    source = Source.open(numbered_table(500), None, None, "id % 2 = 0 OR id > 0")
    assert taken(source, np.array(rows, dtype=np.uint64)) == rows


def taken(source: Source, wanted: Any) -> list[int]:
    window = source.take(wanted)
    assert window.read.schema.names == ["id"]
    ids: list[int] = window.rows(0, len(window)).column("id").to_pylist()
    return ids


def test_the_order_in_which_a_take_returns_rows_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's answer is shuffled, cut short and doubled behind our back: order is restored, other rows are an error."""
    source = Source.open(numbered_table(100), None, None, None)
    honest = source._handle
    wanted = np.array([7, 90, 3, 55], dtype=np.uint64)

    class Lying:
        def __init__(self, pick: list[int]) -> None:
            self.pick = pick

        def take_offsets(self, offsets: list[int]) -> Any:
            self.query = honest.take_offsets(offsets)
            return self

        def select(self, columns: list[str]) -> Any:
            self.query = self.query.select(columns)
            return self

        def to_arrow(self) -> Any:
            return self.query.to_arrow().take(pa.array(self.pick, pa.int64()))

    for pick in ([3, 1, 0, 2], [2, 3, 1, 0]):
        source._handle = Lying(pick)
        assert taken(source, wanted) == [7, 90, 3, 55]
    for pick in ([0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 3, 3], []):
        source._handle = Lying(pick)
        with pytest.raises(ReadError):
            source.take(wanted)


def test_a_filter_costs_the_only_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Construction, a load and a pass without a filter never scan."""
    table = connection().create_table("unscanned", rows_between(0, 100), mode="overwrite")
    scans: list[Any] = []
    search = type(table).search
    monkeypatch.setattr(type(table), "search", lambda self, *a, **k: scans.append(1) or search(self, *a, **k))
    dataset = StreamingDataset(table, num_splits=4, shuffle_seed=1)
    dataset.load_state_dict(dataset.state_dict())
    assert len(ids(dataset)) == 100
    assert scans == []
    StreamingDataset(table, num_splits=4, shuffle_seed=1, filter="id > 3")
    assert len(scans) == 1

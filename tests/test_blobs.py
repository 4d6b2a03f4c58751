"""Blob columns (REA-8)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import ArgumentValueError
from tests.support import ids


def content(i: int) -> bytes | None:
    """Bytes of row i: null, empty, inline, and those that the engine puts into files of their own."""
    return None if i % 5 == 3 else bytes([65 + i % 26]) * (i % 5 * 30_000)


def blob_table(path: Path | str, rows: int = 20) -> Any:
    schema = pa.schema([pa.field("id", pa.int64()), lancedb.blob("image"), pa.field("text", pa.string())])
    table = lancedb.connect(path).create_table("blobs", schema=schema)
    table.add([{"id": i, "image": content(i), "text": f"row {i}"} for i in range(rows)])
    return table


def legacy_table(path: Path) -> Any:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("image", pa.large_binary(), metadata={"lance-encoding:blob": "true"})])
    data = pa.table([pa.array(range(20)), pa.array([content(i) for i in range(20)], pa.large_binary())], schema=schema)
    return lancedb.connect(path).create_table("legacy", data, storage_options={"new_table_data_storage_version": "2.1"})


def nested_table(path: Path) -> Any:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("image", pa.struct([pa.field("width", pa.int32()), lancedb.blob("bytes")]))])
    table = lancedb.connect(path).create_table("nested", schema=schema)
    values = [None if content(i) is None else {"data": content(i)} for i in range(20)]
    table.add([{"id": i, "image": {"width": i, "bytes": value}} for i, value in enumerate(values)])
    return table


@pytest.mark.parametrize("make", [legacy_table, nested_table])
def test_a_blob_column_that_cannot_be_fetched_is_refused_by_name(make: Callable[[Path], Any], tmp_path: Path) -> None:
    """REA-8: when the dataset is built, never descriptors; without the column the table can be read. Not those that can be fetched."""
    table = make(tmp_path)
    for columns in (None, ["image"], ["id", "image"]):
        with pytest.raises(ArgumentValueError, match=r"'image' .*columns=\['id'") as refusal:
            StreamingDataset(table, num_splits=2, columns=columns)
        assert refusal.value.argument == "columns"
    assert sorted(ids(StreamingDataset(table, num_splits=2, columns=["id"]))) == list(range(20))


def test_a_release_that_does_not_read_blobs_faithfully_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """REA-8: releases before 0.38."""
    table = blob_table(tmp_path)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.37.1")
    with pytest.raises(ArgumentValueError, match=r"'image' .*lancedb 0.37.1 .*columns=\['id', 'text'\].* 0.38 or later"):
        StreamingDataset(table, num_splits=2)
    assert len(StreamingDataset(table, num_splits=2, columns=["id"])) == 20
    for release in ("0.38.0", "1.0.0b2"):
        monkeypatch.setattr("importlib.metadata.version", lambda name, release=release: release)
        assert contents(StreamingDataset(table, num_splits=2)) == EXPECTED


def test_a_blob_of_a_struct_is_read_by_its_path(tmp_path: Path) -> None:
    """REA-8, ARG-9; beside the row id that a user asks for."""
    dataset = StreamingDataset(nested_table(tmp_path), num_splits=2, columns=["image.bytes", "_rowid", "id"])
    rows = list(dataset)
    assert all(list(row) == ["image.bytes", "_rowid", "id"] for row in rows)
    assert {row["id"]: row["image.bytes"] for row in rows} == EXPECTED
    assert {row["_rowid"] for row in rows} == set(range(20))


def contents(rows: Any) -> dict[int, Any]:
    return {row["id"]: row["image"] for row in rows}


EXPECTED = {i: content(i) for i in range(20)}


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_rows_hold_the_bytes(place: str, tmp_path: Path) -> None:
    """REA-8: null, empty, in the table's file and beside it; alone, and in the order of the columns."""
    table = blob_table(tmp_path if place == "disk" else "memory://")
    assert contents(StreamingDataset(table, num_splits=2, shuffle_seed=4)) == EXPECTED
    alone = list(StreamingDataset(table, num_splits=1, shuffle=False, columns=["image"]))
    assert alone == [{"image": value} for value in EXPECTED.values()]
    turned = next(iter(StreamingDataset(table, num_splits=2, columns=["text", "image", "id"])))
    assert list(turned) == ["text", "image", "id"]
    chosen = StreamingDataset(table, num_splits=1, shuffle_seed=4, filter="id % 3 = 1")
    assert contents(chosen) == {i: content(i) for i in range(1, 20, 3)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("stable", ["false", "true"])
def test_bytes_are_those_of_the_pinned_version(stable: str, tmp_path: Path) -> None:
    """REA-8, DLV-12: rows are known by other numbers after deletes, updates and compaction; each row has its own bytes, of its version."""
    database = lancedb.connect(tmp_path)
    options = {"new_table_enable_stable_row_ids": stable}
    schema = pa.schema([pa.field("id", pa.int64()), lancedb.blob("image")])
    table = database.create_table("blobs", schema=schema, storage_options=options)
    for begin in range(0, 20, 5):
        table.add([{"id": i, "image": content(i)} for i in range(begin, begin + 5)])
    table.delete("id in (0, 6, 7, 13)")
    old = StreamingDataset(table, num_splits=2, shuffle_seed=1, read_ahead_bytes=1)
    expected = {i: content(i) for i in range(20) if i not in (0, 6, 7, 13)}
    rows = iter(old)
    received = contents([next(rows) for _ in range(3)])
    table.delete("id < 9")
    table.add([{"id": i, "image": b"new"} for i in range(30, 40)])
    table.optimize()
    received.update(contents(rows))
    assert received == expected
    now = {i: value for i, value in expected.items() if i >= 9} | dict.fromkeys(range(30, 40), b"new")
    assert contents(StreamingDataset(table, num_splits=1, shuffle_seed=1)) == now
    assert contents(StreamingDataset(table, num_splits=1, shuffle_seed=1, version=old.version)) == expected
    kept = StreamingDataset(table, num_splits=1, shuffle_seed=1, filter="id % 2 = 0")
    assert contents(kept) == {i: value for i, value in now.items() if i % 2 == 0}


def sizes(batch: pa.RecordBatch) -> list[Any]:
    assert batch.schema.field("image").type == pa.large_binary()
    return [(i, None if image is None else len(image)) for i, image in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def test_formats_and_transforms_have_the_bytes(tmp_path: Path) -> None:
    """REA-8, BAT-4: a list of values, an object array, an Arrow column; null where the format can hold it."""
    table = blob_table(tmp_path)
    chosen: dict[str, Any] = {"num_splits": 1, "shuffle": False, "columns": ["id", "image"]}
    lists = {}
    for layout in ("python", "torch", "numpy", "arrow"):
        batch = next(iter(StreamingDataLoader(StreamingDataset(table, **chosen), 7, format=layout)))
        lists[layout] = batch["image"].to_pylist() if layout == "arrow" else list(batch["image"])
    assert list(lists.values()) == [[content(i) for i in range(7)]] * 4
    lengths = [(i, None if value is None else len(value)) for i, value in EXPECTED.items()]
    assert list(StreamingDataset(table, transform=sizes, **chosen)) == lengths


def test_bytes_that_were_fetched_count(tmp_path: Path) -> None:
    """REA-2: windows are sized by them, and so are the statistics."""
    table = blob_table(tmp_path, rows=200)
    dataset = StreamingDataset(table, num_splits=1, shuffle=False, read_ahead_bytes=300_000)
    for _ in dataset:
        assert dataset.stats().bytes_buffered < 2_000_000
    total = sum(len(content(i) or b"") for i in range(200))
    stats = dataset.stats()
    assert total < stats.bytes_loaded < total + 100 * 200
    assert stats.reads > 30


@pytest.mark.processes
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_workers_fetch_the_bytes(place: str, tmp_path: Path) -> None:
    """REA-8, WRK-17: in a process that has registered no type, and of a table in memory, whose rows travel."""
    table = blob_table(tmp_path if place == "disk" else "memory://")
    dataset = StreamingDataset(table, num_splits=2, shuffle_seed=2, filter="id > 2")
    loader = StreamingDataLoader(dataset, 4, format="torch", num_workers=2, worker_sharding="batches", multiprocessing_context="spawn")
    received = {i: image for batch in loader for i, image in zip(batch["id"].tolist(), batch["image"], strict=True)}
    # 17 rows fill two splits of 8.
    assert len(received) == 16
    assert received.items() <= {i: content(i) for i in range(3, 20)}.items()

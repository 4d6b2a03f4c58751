"""Blob columns (REA-8)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from streaming import StreamingDataset
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


@pytest.mark.parametrize("make", [blob_table, legacy_table, nested_table])
def test_a_blob_column_is_refused_by_name(make: Callable[[Path], Any], tmp_path: Path) -> None:
    """REA-8: when the dataset is built, never descriptors; without the column the table can be read."""
    table = make(tmp_path)
    for columns in (None, ["image"], ["id", "image"]):
        with pytest.raises(ArgumentValueError, match=r"'image' .*columns=\['id'") as refusal:
            StreamingDataset(table, num_splits=2, columns=columns)
        assert refusal.value.argument == "columns"
    assert sorted(ids(StreamingDataset(table, num_splits=2, columns=["id"]))) == list(range(20))

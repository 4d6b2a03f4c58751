"""Batches larger than their types can count: every row arrives, in every format (BAT-17).

The limit of 2**31 - 1 is lowered here, or reached by lists of values without bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import StreamingDataLoader, StreamingDataset, joining
from streaming.batches import FORMATS, make_batch
from streaming.errors import BatchError, ReadError
from streaming.source import Source
from tests.test_batches import columns

TINY = 100
NOTHING = pa.Array.from_buffers(pa.binary(0), 2**30, [None, pa.py_buffer(b"")])


@pytest.fixture
def tiny_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_MOST_BYTES", TINY)


def pieces(column: pa.Array, sizes: Iterator[int]) -> pa.Table:
    """A table of one column, cut into pieces."""
    chunks, begin = [], 0
    while begin < len(column):
        size = next(sizes)
        chunks.append(column[begin : begin + size])
        begin += size
    return pa.table({"x": pa.chunked_array(chunks, column.type)})


@given(columns(), st.lists(st.integers(1, 3), min_size=5, max_size=5), st.sampled_from([0, 20, 2**31 - 1]))
def test_pieces_are_one_batch(column: pa.Array, sizes: list[int], limit: int) -> None:
    """BAT-17: the same rows whatever the pieces and the limit; in their own types below it. Sampled over types, nulls, slices."""
    table = pieces(column, iter(sizes))
    expected = pa.record_batch({"x": column})
    if "null" in str(column.type):
        limit = 2**31 - 1  # Arrow cannot cast lists of null
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "_MOST_BYTES", limit)
        whole = joining.whole(table)
        whole.validate(full=True)
        assert whole.num_rows == len(column)
        assert str(whole.to_pylist()) == str(expected.to_pylist())
        if whole.schema != expected.schema:
            assert whole.schema.types == [joining.large(column.type)]
            assert column.nbytes > limit
        for layout in FORMATS[:3]:
            try:
                other = make_batch(expected, layout)
            except BatchError:
                with pytest.raises(BatchError, match="'x'"):
                    make_batch(table, layout)
            else:
                assert str(make_batch(table, layout)) == str(other)
    narrow = joining.fitted(whole, expected.schema)
    narrow.validate(full=True)
    assert narrow.schema == expected.schema
    assert str(narrow.to_pylist()) == str(expected.to_pylist())


def test_offsets_that_overflow() -> None:
    """BAT-17: 3 lists of 2**30 values, through joining and back."""
    one = pa.ListArray.from_arrays(pa.array([0, 2**30], pa.int32()), NOTHING)
    table = pa.table({"n": pa.chunked_array([one] * 3), "i": pa.chunked_array([[1], [2], [3]])})
    batch = make_batch(table, "arrow")
    assert batch.num_rows == 3
    assert batch.column(0).type == pa.large_list(pa.binary(0))
    assert batch.column(0).value_lengths().to_pylist() == [2**30] * 3
    assert joining.fitted(batch, table.schema).schema == batch.schema
    small = joining.fitted(batch.slice(0, 1), table.schema)
    assert small.schema == table.schema
    again = joining.below([small, batch])
    assert (again.num_rows, again.schema) == (4, batch.schema)


def test_a_type_without_a_large_twin_is_refused() -> None:
    """BAT-17: `batch.column`, naming column and remedy."""
    half = pa.MapArray.from_arrays(pa.array([0, 2**30], pa.int32()), NOTHING, NOTHING)
    table = pa.table({"m": pa.chunked_array([half] * 3)})
    for layout in FORMATS:
        with pytest.raises(BatchError, match=r"'m'.*batch_size") as refusal:
            make_batch(table, layout)
        assert refusal.value.column == "m"


def test_a_join_that_loses_rows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """BAT-17: never another count."""
    monkeypatch.setattr(joining, "whole_column", lambda _, column: column.chunk(0))
    with pytest.raises(ReadError, match="2 rows became 1"):
        joining.whole(pa.table({"x": pa.chunked_array([[1], [2]])}))


@pytest.fixture(scope="module")
def table() -> Any:
    rows = pa.table({"id": range(40), "b": [bytes([i]) * 30 for i in range(40)], "s": [f"row {i}" * 4 for i in range(40)]})
    return lancedb.connect("memory://").create_table("large", rows)


LARGE = [pa.int64(), pa.large_binary(), pa.large_string()]


@pytest.mark.parametrize("budget", [1, 2**26])
def test_only_large_batches_have_large_types(table: Any, budget: int, tiny_limit: None) -> None:
    """BAT-17: whatever the windows; to `format="arrow"` and to a columnar transform."""
    kinds: list[list[pa.DataType]] = []
    for size, expected in ((40, LARGE), (2, table.schema.types)):
        dataset = StreamingDataset(table, shuffle=False, num_splits=1, read_ahead_bytes=budget)
        batches = list(StreamingDataLoader(dataset, batch_size=size, format="arrow"))
        assert [row for batch in batches for row in batch.to_pylist()] == table.to_arrow().to_pylist()
        assert all(batch.schema.types == expected for batch in batches)
        transform = {"columnar_transform": lambda batch: kinds.append(batch.schema.types) or {"id": batch["id"].to_numpy()}}
        dataset = StreamingDataset(table, shuffle=False, num_splits=1, read_ahead_bytes=budget, **transform)  # type: ignore[arg-type]
        assert [i for batch in StreamingDataLoader(dataset, batch_size=size) for i in batch["id"].tolist()] == list(range(40))
        assert kinds[-1] == expected


@pytest.mark.parametrize("predicate", [None, "id % 2 = 0"])
def test_a_large_table_that_travels(table: Any, predicate: str | None, tiny_limit: None) -> None:
    """BAT-17, WRK-17: rows of an in-memory table have their own types in a worker too."""
    source = Source.open(table, None, None, predicate)
    expected = table.to_arrow().to_pylist()[:: 1 if predicate is None else 2]
    copy = Source.__new__(Source)
    vars(copy).update(source.__getstate__())
    for wanted in (np.arange(source.rows, dtype=np.uint64), np.array([7, 3], dtype=np.uint64)):
        rows = copy.take(wanted).rows(0, len(wanted))
        assert rows.to_pylist() == [expected[i] for i in wanted]
    assert rows.schema.equals(table.schema)


def test_a_dictionary_stands_for_more_bytes_than_it_has() -> None:
    """BAT-17: old releases of Arrow overflow without a word where its values are written out in a type that cannot count them."""
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array(["text"]))
    decoded = make_batch(pa.record_batch({"x": column}), "torch", travels=True)["x"].arguments[0]
    assert decoded.type == pa.large_string()
    assert decoded.to_pylist() == ["text"] * 2

"""Pieces joined to one record batch, whatever its size (BAT-17).

Arrow's strings, binaries and lists count to 2**31 - 1; what is longer needs their large twins. Arrow itself does not choose them: a table
comes out of `combine_chunks` in several pieces, and `RecordBatch.take` and `dictionary_decode` of old releases overflow without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyarrow import types

from streaming.errors import BatchError, ReadError

_MOST_BYTES: Final = 2**31 - 1


def whole(table: pa.Table) -> pa.RecordBatch:
    """All rows in one piece; columns that are too large for their types have the large twins of those.

    Raises
    ------
    BatchError
        A column is too large, and its type has no large twin.
    """
    columns = [whole_column(name, column) for name, column in zip(table.schema.names, table.columns, strict=True)]
    batch = _batch(columns, table.schema)
    if batch.num_rows != table.num_rows:
        raise ReadError(f"{table.num_rows} rows became {batch.num_rows} when their pieces were joined")
    return batch


def whole_column(name: str, column: pa.ChunkedArray) -> pa.Array:
    """As `whole`, for one column."""
    if column.nbytes <= _MOST_BYTES:
        try:
            return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        except pa.ArrowInvalid:  # more entries than bytes: lists of bits
            pass
    try:
        return column.cast(large(column.type)).combine_chunks()
    except pa.ArrowException as error:
        raise BatchError(
            f"column {name!r} of type {column.type} has {column.nbytes} bytes in one batch, too many for its type: {error}. "
            "Lower batch_size, or leave the column out (columns=)",
            name,
        ) from error


def below(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """A table of record batches, of which some may have large twins of the others' types."""
    first = batches[0].schema
    if all(batch.schema.equals(first) for batch in batches):
        return pa.Table.from_batches(batches)
    schema = pa.schema([field.with_type(large(field.type)) for field in first], first.metadata)
    return pa.concat_tables([pa.Table.from_batches([batch]).cast(schema) for batch in batches])


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the types of a schema, or in their large twins where they cannot hold it."""
    if batch.schema.equals(schema) and batch.nbytes <= _MOST_BYTES:
        return batch
    return _batch([_fitted(column, kind) for column, kind in zip(batch.columns, schema.types, strict=True)], schema)


def _batch(columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    if any(column.type != kind for column, kind in zip(columns, schema.types, strict=True)):
        fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
        schema = pa.schema(fields, schema.metadata)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.nbytes <= _MOST_BYTES:
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:  # more entries than bytes
            pass
    return column.cast(large(kind))


def large(kind: pa.DataType) -> pa.DataType:
    """The type with large strings, binaries and lists in place of the others, to any depth."""
    if types.is_string(kind):
        return pa.large_string()
    if types.is_binary(kind):
        return pa.large_binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.large_list(_large_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_large_field(kind.value_field), kind.list_size)
    if types.is_struct(kind):
        return pa.struct([_large_field(kind[i]) for i in range(kind.num_fields)])
    return kind


def _large_field(field: pa.Field) -> pa.Field:
    return field.with_type(large(field.type))

"""Columns of extension types as columns of ordinary ones: what rows, tensors and arrays hold of them (BAT-14)."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streaming.extension import TEXT, any_extension, children, extension_name, has_extension, storage_type, with_children

TENSOR: Final = "arrow.fixed_shape_tensor"
_BFLOAT16: Final = "lance.bfloat16"
_BOOL8: Final = "arrow.bool8"

# Maps among them. Lance stores no other nested type.
_LISTS: Final = (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)


def plain(rows: pa.RecordBatch | pa.Table, bits: bool = False) -> Any:
    """The same rows without extension types, whether or not this process has registered them.

    Parameters
    ----------
    rows : pyarrow.RecordBatch or pyarrow.Table
        As they were read.
    bits : bool
        Whether bfloat16 becomes int16 of the same bits, for `streaming.batches` to make tensors of, instead of float32.
    """
    if not any_extension(rows.schema):
        return rows
    columns = [_column(column, field, bits) for field, column in zip(rows.schema, rows.columns, strict=True)]
    return type(rows).from_arrays(columns, names=rows.schema.names)


def python_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts of Python values (DLV-11), tensors as arrays (BAT-14)."""
    if not any_extension(rows.schema):
        dicts: list[dict[str, Any]] = rows.to_pylist()
        return dicts
    columns = [python_values(column, field) for field, column in zip(rows.schema, rows.columns, strict=True)]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def python_values(array: pa.Array, field: pa.Field) -> list[Any]:
    """The values of a column in rows, each in memory of its own."""
    if not has_tensor(field):
        values: list[Any] = _array(array, field, False).to_pylist()
        return values
    if extension_name(field) == TENSOR:
        found = blocks(array, field)
        if found is None:
            nested: list[Any] = _array(array, field, False).to_pylist()
            return nested
        each = iter(found)
        return [next(each).copy() if valid else None for valid in array.is_valid().to_pylist()]
    stored = storage(array)
    inner = children(stored.type)
    if types.is_struct(stored.type):
        columns = [python_values(stored.field(i), child) for i, child in enumerate(inner)]
        rows = [dict(zip([child.name for child in inner], row, strict=True)) for row in zip(*columns, strict=True)]
        return [row if valid else None for row, valid in zip(rows, stored.is_valid().to_pylist(), strict=True)]
    return [None if row is None else python_values(row, inner[0]) for row in (item.values for item in stored)]


def is_bfloat16(field: pa.Field) -> bool:
    """Whether the field is bfloat16."""
    return extension_name(field) == _BFLOAT16 and bool(storage_type(field) == pa.binary(2))


def has_tensor(field: pa.Field) -> bool:
    """Whether the field is a tensor of fixed shape, or holds one in lists or structs."""
    if extension_name(field) == TENSOR:
        return True
    kind = storage_type(field)
    return not types.is_map(kind) and any(map(has_tensor, children(kind)))


def blocks(tensors: pa.Array | pa.ChunkedArray, field: pa.Field) -> npt.NDArray[Any] | None:
    """The tensors that are not null, one above the other; None where their entries are no numbers, or some are null."""
    if isinstance(tensors, pa.ChunkedArray):
        tensors = tensors.combine_chunks()
    stored = storage(tensors)
    entries = _array(stored.flatten(), stored.type.value_field, False)
    if entries.null_count or not (types.is_integer(entries.type) or types.is_floating(entries.type) or types.is_boolean(entries.type)):
        return None
    shape, order = _shape(field)
    whole: npt.NDArray[Any] = entries.to_numpy(zero_copy_only=False).reshape(len(tensors) - tensors.null_count, *shape)
    return whole.transpose(0, *(1 + i for i in order)) if order else whole


def _column(column: pa.Array | pa.ChunkedArray, field: pa.Field, bits: bool) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_array(chunk, field, bits) for chunk in column.chunks])
    return _array(column, field, bits)


def _array(array: pa.Array, field: pa.Field, bits: bool) -> pa.Array:
    name = extension_name(field)
    if name is not None:
        stored = storage(array)
        inner = _array(stored, pa.field(field.name, stored.type), bits)
        if is_bfloat16(field):
            return _halves(inner, bits)
        return _tensors(inner, *_shape(field)) if name == TENSOR else pc.not_equal(inner, 0) if name == _BOOL8 else inner
    inside = children(field.type)
    if not any(map(has_extension, inside)):
        return array
    if types.is_struct(field.type):
        parts = [_array(array.field(i), child, bits) for i, child in enumerate(inside)]
        named = [_retyped(child, part) for child, part in zip(inside, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=named, mask=array.is_null() if array.null_count else None)
    if isinstance(array, _LISTS):
        entries = _array(array.values, inside[0], bits)
        return _around(array, with_children(field.type, [_retyped(inside[0], entries)]), entries)
    return array


def storage(array: pa.Array) -> pa.Array:
    """The column in its storage type."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _around(array: pa.Array, kind: pa.DataType, entries: pa.Array) -> pa.Array:
    """The lists with other entries, which are the lists' own, those before and behind a slice included."""
    own = array.buffers()[: 1 if types.is_fixed_size_list(kind) else 2]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, [entries])


def _retyped(field: pa.Field, values: pa.Array) -> pa.Field:
    return pa.field(field.name, values.type, field.nullable)


def _tensors(lists: pa.Array, shape: list[int], order: list[int]) -> pa.Array:
    """Lists nested as the shape says, the permutation carried out."""
    if not shape:
        return pc.list_element(lists, 0)
    entries = lists.values
    if order and order != sorted(order):
        size = lists.type.list_size
        within = np.arange(size).reshape(shape).transpose(order).ravel()
        entries = entries.take(pa.array((np.arange(0, len(entries), size)[:, None] + within).ravel()))
        shape = [shape[i] for i in order]
    for length in reversed(shape[1:]):
        entries = pa.FixedSizeListArray.from_arrays(entries, length)
    return _around(lists, pa.list_(entries.type, shape[0]), entries)


def _shape(field: pa.Field) -> tuple[list[int], list[int]]:
    """Shape and permutation, the latter empty where there is none."""
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        return list(kind.shape), list(kind.permutation or ())
    parameters = json.loads(field.metadata[TEXT])
    return parameters["shape"], parameters.get("permutation") or []


def _halves(binaries: pa.Array, bits: bool) -> pa.Array:
    """Numbers of the same value: float32 holds every bfloat16. Or int16 of the same bits."""
    validity, data = binaries.buffers()
    kind = pa.int16()
    if not bits:
        kind = pa.float32()
        data = pa.py_buffer((np.frombuffer(data or b"", np.uint16).astype(np.uint32) << 16).view(np.float32))
    return pa.Array.from_buffers(kind, len(binaries), [validity, data], binaries.null_count, binaries.offset)

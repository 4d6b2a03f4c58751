"""Batches straight from Arrow columns, without a Python object per row (spec/batches.md, BAT-1 to BAT-8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from pyarrow import types
from torch.utils.data import default_collate

from streaming.errors import BatchError
from streaming.extension import children, extension_name, storage_type
from streaming.joining import large, whole, whole_column
from streaming.plain import TENSOR, blocks, has_tensor, is_bfloat16, plain, python_values, storage
from streaming.sql import quoted

FORMATS: Final = ("python", "torch", "numpy", "arrow")

# What Python values of these types become; of float16, releases of pyarrow make different ones.
_WIDE: Final[dict[pa.DataType, Any]] = {
    **dict.fromkeys([pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], np.int64),
    pa.float16(): default_collate(pa.array([np.float16(0)]).to_pylist()).numpy().dtype,
    **dict.fromkeys([pa.float32(), pa.float64()], np.float64),
    pa.bool_(): np.bool_,
}
_TEXT: Final = (
    types.is_string,
    types.is_large_string,
    types.is_string_view,
    types.is_binary,
    types.is_large_binary,
    types.is_fixed_size_binary,
    types.is_binary_view,
)

Numbers: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Deferred:
    """Many Python objects that are still a few arrays: it travels to another process as those, and arrives as the objects.

    Parameters
    ----------
    function, arguments
        What makes the objects.
    """

    function: Callable[..., list[Any]]
    arguments: tuple[Any, ...]

    def objects(self) -> list[Any]:
        """The objects."""
        return self.function(*self.arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


def _views(whole: torch.Tensor) -> list[Any]:
    """The tensors along the last dimension, in lists as deep as the others."""
    parts = whole.unbind(0)
    return list(parts) if whole.ndim == 2 else [_views(part) for part in parts]


def _pieces(whole: torch.Tensor, lengths: list[int]) -> list[torch.Tensor]:
    """Tensors of these lengths, one behind the other."""
    return list(torch.split(whole, lengths))


def _texts(column: pa.Array) -> list[Any]:
    """Strings or binaries."""
    values: list[Any] = column.to_pylist()
    return values


def make_batch(rows: pa.RecordBatch | pa.Table, layout: str, travels: bool = False) -> Any:
    """A batch of rows in one of `FORMATS`.

    Parameters
    ----------
    rows : pyarrow.RecordBatch or pyarrow.Table
        In memory that nobody else uses, in one piece or in several.
    layout : str
        The format.
    travels : bool
        Whether the batch is pickled next: then lists of many objects are left `Deferred`.

    Raises
    ------
    BatchError
        A column that the format cannot hold (BAT-4 to BAT-6).
    """
    if layout == "arrow":
        return whole(rows) if isinstance(rows, pa.Table) else rows
    batch = {}
    stored, rows = rows, plain(rows, bits=layout == "torch")
    for i, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        try:
            value = _BUILDERS[layout](_whole(name, column)) if rows is stored else _of_extension(stored, i, column, layout)
            batch[name] = value if travels else _unpacked(value)
        except BatchError:
            raise
        except _REFUSALS as error:
            raise BatchError(_refusal(name, column, layout, error), name) from error
    return batch


def _of_extension(stored: pa.RecordBatch | pa.Table, i: int, column: pa.Array | pa.ChunkedArray, layout: str) -> Any:
    """Column `i` of rows some of whose columns have extension types, `column` in ordinary ones (BAT-14)."""
    field = stored.schema.field(i)
    if layout == "python" and has_tensor(field):
        return _tensors(stored.column(i), field)
    if layout == "numpy" and has_tensor(field):
        return _arrays(stored.column(i), column, field)
    value = _BUILDERS[layout](_whole(field.name, column))
    return _with_halves(value, field) if layout == "torch" else value


def _whole(name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column in one piece, where its pieces are not made objects one by one."""
    return whole_column(name, column) if isinstance(column, pa.ChunkedArray) and not _is_text(column.type) else column


def _refusal(name: str, column: pa.Array | pa.ChunkedArray, layout: str, error: Exception) -> str:
    """What is wrong, and the formats that would do, found by trying them."""
    why = "it has null" if column.null_count else str(error)
    others = [f'"{other}"' for other in ("torch", "numpy") if other != layout and _takes(other, name, column)]
    arrow = '"arrow"'
    without_null = f' select rows without null (filter="{quoted(name)} IS NOT NULL"),' if column.null_count else ""
    return (
        f"column {name!r} of type {column.type} cannot be batched with format={layout!r}: {why}. "
        f"Take format={' or '.join([*others, arrow])},{without_null} convert it (columnar_transform=, collate_fn=), "
        "or leave it out (columns=)"
    )


def _takes(layout: str, name: str, column: pa.Array | pa.ChunkedArray) -> bool:
    try:
        _BUILDERS[layout](_whole(name, column))
    except _REFUSALS:
        return False
    return True


# ImportError: some releases of pyarrow want pandas for nanoseconds.
_REFUSALS: Final = (TypeError, ValueError, RuntimeError, OverflowError, ImportError, pa.ArrowException)


def _unpacked(value: Any) -> Any:
    if isinstance(value, Deferred):
        return value.objects()
    if isinstance(value, dict):
        return {name: _unpacked(item) for name, item in value.items()}
    return [_unpacked(item) for item in value] if isinstance(value, list) else value


# ---- python: what default_collate makes of rows


def _python(column: pa.Array) -> Any:
    """As `default_collate` has it, which is asked itself about all but the commonest types, and about what it refuses."""
    column = _plain(column)
    kind = column.type
    if _is_text(kind) and column[0].is_valid:
        return Deferred(_texts, (column,))
    if column.null_count == 0:
        if types.is_struct(kind) and _distinct(kind):
            return {field.name: _python(child) for field, child in zip(kind, column.flatten(), strict=True)}
        numbers = _numbers(column)
        if numbers is not None and _fits_int64(numbers):
            # Lists come out transposed: the i-th tensor holds the i-th entry of every row.
            tensor = torch.from_numpy(np.moveaxis(numbers, 0, -1).astype(_WIDE[_entry_type(kind)], order="C"))
            return tensor if numbers.ndim == 1 else Deferred(_views, (tensor,))
        length = _common_length(column) if _is_list(kind) and _holds_numbers(kind) else None
        if numbers is None and length is not None:
            entries = column.flatten()
            places = np.arange(len(column)) * length
            return [_python(entries.take(pa.array(places + i))) for i in range(length)]
    return default_collate(column.to_pylist())


def _entry_type(kind: pa.DataType) -> pa.DataType:
    while _is_list(kind):
        kind = kind.value_type
    return kind


def _fits_int64(numbers: Numbers) -> bool:
    return numbers.dtype != np.uint64 or numbers.size == 0 or bool(numbers.max() < 2**63)


def _holds_numbers(kind: pa.DataType) -> bool:
    """Numbers in lists and structs, to any depth."""
    kind = _entry_type(kind)
    if types.is_dictionary(kind):
        return _is_number(kind.value_type)
    return _is_number(kind) or (types.is_struct(kind) and _distinct(kind) and all(_holds_numbers(field.type) for field in kind))


def _tensors(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> Any:
    """Tensors of fixed shape (BAT-14), which are arrays in rows, or what holds them."""
    found = blocks(column, field) if extension_name(field) == TENSOR and column.null_count == 0 else None
    if found is not None:
        return torch.from_numpy(found.copy(order="C"))
    pieces = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return default_collate([value for piece in pieces for value in python_values(piece, field)])


def _arrays(stored: Any, column: Any, field: pa.Field) -> Any:
    """The same in NumPy: where the values are objects, tensors in them are arrays too."""
    stored, column = _whole(field.name, stored), _whole(field.name, column)
    if types.is_struct(column.type) and _distinct(column.type):
        inner = children(storage_type(field))
        parts = zip(storage(stored).flatten(), column.flatten(), inner, strict=True)
        return {child.name: _arrays(below, plain_one, child) for below, plain_one, child in parts}
    if _is_numeric(column.type) or not has_tensor(field):
        return _BUILDERS["numpy"](column)
    objects = np.empty(len(column), dtype=object)
    for row, value in enumerate(python_values(stored, field)):
        objects[row] = value  # at once, NumPy would make one array of arrays
    return objects


# ---- torch and numpy: native types


@dataclass(frozen=True)
class _Native:
    """How a format holds a column in its own type.

    Parameters
    ----------
    leaf : callable
        Numbers, in memory of their own.
    ragged : callable
        Lists of numbers, one behind the other, and their lengths.
    text : callable
        Strings or binaries.
    other : callable
        Every other type.
    """

    leaf: Callable[[Numbers], Any]
    ragged: Callable[[Numbers, list[int]], Any]
    text: Callable[[pa.Array], Any]
    other: Callable[[pa.Array], Any]

    def build(self, column: pa.Array) -> Any:
        """The column."""
        column = _plain(column)
        kind = column.type
        if types.is_dictionary(kind):
            # The values may be more bytes than the dictionary.
            values = column.dictionary.cast(large(kind.value_type))
            return self.build(pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode())
        if _is_text(kind):
            return self.text(column)
        if types.is_struct(kind) and _distinct(kind):
            # Where the struct is null, so are its entries.
            return {field.name: self.build(child) for field, child in zip(kind, column.flatten(), strict=True)}
        return self._numeric(column) if _is_numeric(kind) else self.other(column)

    def _numeric(self, column: pa.Array) -> Any:
        _no_nulls(column)
        numbers = _numbers(column)
        if numbers is not None:
            return self.leaf(numbers.copy())
        entries = _numbers(column.flatten())
        if entries is not None and entries.ndim == 1:
            return self.ragged(entries.copy(), column.value_lengths().to_pylist())
        return [self.leaf(_dense(row.values)) for row in column]


def _dense(entries: pa.Array) -> Numbers:
    numbers = _numbers(entries)
    if numbers is None:
        raise TypeError("lists of different lengths inside one row")
    return numbers.copy()


def _no_type(column: pa.Array) -> Any:
    raise TypeError(f"torch has no type for {column.type}")


def _objects(column: pa.Array) -> Numbers:
    """Python values, or dates and times as NumPy has them."""
    if types.is_timestamp(column.type) or types.is_date(column.type) or types.is_duration(column.type):
        return np.array(column.to_numpy(zero_copy_only=False))
    objects = np.empty(len(column), dtype=object)
    objects[:] = column.to_pylist()
    return objects


_BUILDERS: Final[dict[str, Callable[[pa.Array], Any]]] = {
    "python": _python,
    "torch": _Native(
        leaf=torch.from_numpy,
        ragged=lambda entries, lengths: Deferred(_pieces, (torch.from_numpy(entries), lengths)),
        text=lambda column: Deferred(_texts, (column,)),
        other=_no_type,
    ).build,
    "numpy": _Native(
        leaf=lambda numbers: numbers,
        ragged=lambda entries, lengths: np.split(entries, np.cumsum(lengths)[:-1]),
        text=_objects,
        other=_objects,
    ).build,
}


def _with_halves(value: Any, field: pa.Field) -> Any:
    """What was made of a column, int16 that are the bits of bfloat16 (BAT-14) as such."""
    if is_bfloat16(field):
        return _halves(value)
    inner = children(storage_type(field))
    if isinstance(value, dict):
        return {child.name: _with_halves(value[child.name], child) for child in inner}
    return _with_halves(value, inner[0]) if len(inner) == 1 else value


def _halves(value: Any) -> Any:
    if isinstance(value, Deferred):
        return Deferred(value.function, (_halves(value.arguments[0]), *value.arguments[1:]))
    return [_halves(row) for row in value] if isinstance(value, list) else value.view(torch.bfloat16)


# ---- Arrow


def _numbers(column: pa.Array) -> Numbers | None:
    """Numbers as an array of as many dimensions as the lists are deep; None for other types, nulls, and lists of different lengths."""
    kind = column.type
    if column.null_count:
        return None
    if _is_number(kind):
        numbers: Numbers = column.to_numpy(zero_copy_only=False)
        return numbers
    if not _is_list(kind) or not _is_numeric(kind):
        return None
    if len(column) == 0:
        return _nothing(kind)
    length = _common_length(column)
    if length is None:
        return None
    entries = _numbers(column.flatten())
    return None if entries is None else entries.reshape(len(column), length, *entries.shape[1:])


def _common_length(column: pa.Array) -> int | None:
    """The length of every list of a column that has some, None of them null; None where it differs."""
    if types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    offsets = column.offsets.to_numpy()
    length = int(offsets[1] - offsets[0])
    return None if (np.diff(offsets) != length).any() else length


def _nothing(kind: pa.DataType) -> Numbers:
    """No lists: those below are as long as their type says, else empty."""
    shape = [0]
    while _is_list(kind):
        shape.append(kind.list_size if types.is_fixed_size_list(kind) else 0)
        kind = kind.value_type
    return np.empty(shape, dtype=pa.array([], type=kind).to_numpy(zero_copy_only=False).dtype)


def _plain(column: pa.Array) -> pa.Array:
    """Numbers instead of a dictionary of them, in lists too."""
    entry = _entry_type(column.type)
    is_encoded = types.is_dictionary(entry) and _is_number(entry.value_type)
    return column.cast(_plain_type(column.type)) if is_encoded else column


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if not _is_list(kind):
        return kind.value_type
    entries = kind.value_field.with_type(_plain_type(kind.value_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(entries, kind.list_size)
    return pa.large_list(entries) if types.is_large_list(kind) else pa.list_(entries)


def _is_text(kind: pa.DataType) -> bool:
    return any(is_text(kind) for is_text in _TEXT)


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_numeric(kind: pa.DataType) -> bool:
    """A number or a list of numbers, to any depth."""
    while _is_list(kind):
        kind = kind.value_type
    return _is_number(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _distinct(kind: pa.StructType) -> bool:
    names = [field.name for field in kind]
    return 0 < len(names) == len(set(names))


def _no_nulls(column: pa.Array) -> None:
    """Refuse null, in the column or in the lists of it."""
    while True:
        if column.null_count:
            raise TypeError("it has null")
        if not _is_list(column.type):
            return
        column = column.flatten()

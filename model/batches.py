"""Batches as values (chapter batches): what each format makes of rows. Transforms are in ``model/transforms.py``.

Rows are dicts of Python values (DLV-11). A column has one Arrow type: numbers of one kind, entries of one type. A batch is made of dicts,
lists and tuples as torch makes them, and of ``Tensor``. Whose memory they stand in (BAT-8) is no matter of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from math import prod
from typing import Any

from model.errors import ModelError

Row = dict[str, Any]
Type = tuple[Any, ...]
"""The type of a column: ``("int16",)`` and the others of ``NATIVE``; ``("string",)``, ``("binary",)``; ``("list", item)`` and, of fixed
size, ``("list", item, size)``; ``("struct", {name: type})``; ``("tensor", item, *shape)`` and ``("bfloat16",)`` (BAT-14);
``("date", unit)``, ``("timestamp", unit)`` and ``("duration", unit)`` with the units of NumPy; ``("other",)`` for all that the chapter
does not name."""

NATIVE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64", "bool")
MOMENTS = {"date": "datetime64", "timestamp": "datetime64", "duration": "timedelta64"}
MICROSECONDS = {"D": 86_400_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Tensor:
    """A tensor of torch, or the array of NumPy that stands for one in ``numpy_batch``.

    Parameters
    ----------
    dtype : str
        As both write it: ``"int64"``; arrays also ``"object"``, ``"datetime64[us]"`` and the like, with None for null (NaT).
    shape : tuple of int
        Empty for a single value.
    values : tuple
        Python values, in row-major sequence. Moments are counts of their unit.
    """

    dtype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        """As many values as the shape says."""
        assert prod(self.shape) == len(self.values)

    def part(self, start: int, stop: int) -> Tensor:
        """Entries of the first dimension."""
        size = prod(self.shape[1:])
        return Tensor(self.dtype, (stop - start, *self.shape[1:]), self.values[start * size : stop * size])

    def entry(self, index: int) -> Tensor:
        """One entry of the first dimension, without it."""
        return Tensor(self.dtype, self.shape[1:], self.part(index, index + 1).values)


def stack(tensors: Sequence[Tensor]) -> Tensor:
    """Equally large tensors, one above the other."""
    return Tensor(tensors[0].dtype, (len(tensors), *tensors[0].shape), tuple(value for tensor in tensors for value in tensor.values))


def refusal(column: str, why: str) -> ModelError:
    """What cannot be a batch (BAT-4, BAT-5)."""
    return ModelError("batch.column", f"{column}: {why}", (column,))


def path(
    batch_size: int | None = None,
    collate_fn: bool = False,
    transform: bool = False,
    columnar_transform: bool = False,
    format: str = "python",
) -> str:
    """``"columns"`` or ``"rows"`` (BAT-1), or a refusal (BAT-2, BAT-9). ``collate_fn``: one is given, other than torch's own."""
    if format not in ("python", "torch", "numpy", "arrow"):
        raise ModelError("argument.value", "format")
    if columnar_transform and (transform or format == "arrow"):
        raise ModelError("argument.value", "columnar_transform")
    columns = batch_size is not None and not collate_fn and not transform
    if format != "python" and not columns:
        raise ModelError("argument.value", "format")
    return "columns" if columns else "rows"


# --- formats ------------------------------------------------------------------------------------------------------------------------


def python_batch(rows: Sequence[Row]) -> Row:
    """``format="python"`` (BAT-3, BAT-4). Of several columns that cannot be collated the first is named."""
    return {name: collate([row[name] for row in rows], name) for name in rows[0]}


def collate(values: Sequence[Any], column: str = "") -> Any:
    """torch's ``default_collate``: the first value says of what kind all are, so a null is refused where it is first, and among numbers.

    After a string anything is kept. What is transposed is a list of what its tuples become, so that strings are a list in a column and a
    tuple below a list.
    """
    first = values[0]
    if isinstance(first, Tensor):
        if any(not isinstance(value, Tensor) or (value.dtype, value.shape) != (first.dtype, first.shape) for value in values):
            raise refusal(column, "tensors of different kinds")
        return stack(values)
    if isinstance(first, (float, int)):
        return numbers(values, column)
    if isinstance(first, (str, bytes)):
        return values
    if isinstance(first, dict):
        if first and any(not isinstance(value, dict) or not first.keys() <= value.keys() for value in values):
            raise refusal(column, "a struct is null")
        return {name: collate([value[name] for value in values], column) for name in first}
    if isinstance(first, (list, tuple)):
        if any(value is None or len(value) != len(first) for value in values):
            raise refusal(column, "lists of different lengths")
        return [collate(entries, column) for entries in zip(*values, strict=True)]
    raise refusal(column, f"a value of type {type(first).__name__}")


def numbers(values: Sequence[Any], column: str) -> Tensor:
    """Numbers of one kind (BAT-3): float64, bool, or int64, which unsigned ones may exceed."""
    if any(not isinstance(value, (float, int)) for value in values):
        raise refusal(column, "a null among numbers")
    if isinstance(values[0], float):
        return Tensor("float64", (len(values),), tuple(float(value) for value in values))
    assert not any(isinstance(value, float) for value in values), "numbers of different kinds in one column"
    if all(isinstance(value, bool) for value in values):
        return Tensor("bool", (len(values),), tuple(values))
    if any(value not in INT64 for value in values):
        raise refusal(column, "an integer beyond int64")
    return Tensor("int64", (len(values),), tuple(int(value) for value in values))


def torch_batch(rows: Sequence[Row], types: Mapping[str, Type]) -> Row:
    """``format="torch"`` (BAT-5)."""
    return {name: native([row[name] for row in rows], kind, name, arrays=False) for name, kind in types.items()}


def numpy_batch(rows: Sequence[Row], types: Mapping[str, Type]) -> Row:
    """``format="numpy"`` (BAT-6)."""
    return {name: native([row[name] for row in rows], kind, name, arrays=True) for name, kind in types.items()}


def carried(extension: str, storage: Type, shape: Sequence[int] = ()) -> Type:
    """The type that a column of an extension type is like in rows and batches, but in ``format="arrow"`` (BAT-14).

    The shape is the one that is meant, after the permutation. In a row a tensor is a ``Tensor``.
    """
    if extension == "arrow.fixed_shape_tensor":
        return ("tensor", storage[1], *shape)
    return {"lance.bfloat16": ("bfloat16",), "arrow.bool8": ("bool",)}.get(extension, storage)


def native(values: Sequence[Any], kind: Type, column: str, arrays: bool) -> Any:
    """A column in its own type (BAT-5, BAT-6). Where a struct is null, so are its entries."""
    if element(kind) in NATIVE:
        blocks = [block(value, kind, column, arrays) for value in values]
        return stack(blocks) if len({tensor.shape for tensor in blocks}) == 1 else blocks
    if kind[0] == "struct":
        entries = {name: [None if value is None else value[name] for value in values] for name in kind[1]}
        return {name: native(entries[name], child, column, arrays) for name, child in kind[1].items()}
    if not arrays and kind[0] in ("string", "binary"):
        return list(values)
    if not arrays:
        raise refusal(column, f"the type {kind[0]}")
    if kind[0] in MOMENTS:
        return Tensor(f"{MOMENTS[kind[0]]}[{kind[1]}]", (len(values),), tuple(ticks(value, kind[1]) for value in values))
    return Tensor("object", (len(values),), tuple(values))


def element(kind: Type) -> str:
    """What a type is below all its lists."""
    while kind[0] in ("list", "tensor"):
        kind = kind[1]
    return str(kind[0])


def block(value: Any, kind: Type, column: str, arrays: bool) -> Tensor:
    """A number, or a list of numbers of any depth, of one row.

    Lists of different lengths inside one row are no "list of B tensors", so BAT-5 does not name them: "any other type".
    """
    if value is None:
        raise refusal(column, "a null in or among numbers")
    # NumPy has no bfloat16; every one is a float32.
    dtype = "float32" if arrays and element(kind) == "bfloat16" else element(kind)
    if kind[0] == "tensor":
        assert isinstance(value, Tensor)
        return replace(value, dtype=dtype)
    if kind[0] != "list":
        return Tensor(dtype, (), (value,))
    parts = [block(entry, kind[1], column, arrays) for entry in value]
    if not parts:
        return Tensor(dtype, empty(kind), ())
    if len({part.shape for part in parts}) > 1:
        raise refusal(column, "lists of different lengths inside one row")
    return stack(parts)


def empty(kind: Type) -> tuple[int, ...]:
    """The shape of an empty list: lists below it are as long as their type says, else 0."""
    sizes: list[int] = []
    while kind[0] == "list":
        sizes.append(kind[2] if len(kind) > 2 else 0)
        kind = kind[1]
    return (0, *sizes[1:], *(kind[2:] if kind[0] == "tensor" else ()))


def ticks(value: Any, unit: str) -> int | None:
    """A moment or a duration as the count of its unit since 1970, UTC; counts and None as they are (BAT-6)."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
    elif isinstance(value, datetime):
        micros = (value.replace(tzinfo=value.tzinfo or timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(
            microseconds=1
        )
    else:
        assert isinstance(value, date)
        micros = (value - date(1970, 1, 1)) // timedelta(microseconds=1)
    return micros * 1000 if unit == "ns" else micros // MICROSECONDS[unit]

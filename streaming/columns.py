"""Columns that a transform returns: checked, cut into rows, joined, and made into a batch (BAT-9 to BAT-11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from streaming.errors import BatchError, TransformError

Columns = dict[str, Any]


def check_columns(result: object, rows: int) -> Columns:
    """The columns that a columnar transform returned, all of `rows` entries.

    Raises
    ------
    TransformError
        They are not (BAT-10).
    """
    if not isinstance(result, Mapping) or not result:
        raise TransformError(
            f"columnar_transform must return a mapping of names to columns, got {type(result).__name__} ({len_of(result)})"
        )
    for name, column in result.items():
        if not isinstance(name, str):
            raise TransformError(f"columnar_transform must name columns by strings, got {name!r}")
        if not isinstance(column, (np.ndarray, torch.Tensor, list)):
            raise TransformError(f"column {name!r} of columnar_transform must be an array, a tensor or a list, got {type(column).__name__}")
        if len_of(column) != str(rows):
            raise TransformError(f"column {name!r} of columnar_transform must have one entry per row: got {len_of(column)} for {rows} rows")
    return dict(result)


def len_of(value: Any) -> str:
    """How many entries, for a message."""
    try:
        return str(len(value))
    except TypeError:  # a number, an array without dimensions
        return "no entries"


def cut(columns: Columns, row: int) -> dict[str, Any]:
    """One row, in bare iteration."""
    return {name: column[row] for name, column in columns.items()}


def one_row(value: object) -> Columns:
    """A row that stands in for a failing one, as columns of one entry."""
    if not isinstance(value, Mapping):
        raise TransformError(f"transform_fill must be, or return, a mapping with an entry for each column, got {type(value).__name__}")
    return _StandIn({name: _one_entry(entry) for name, entry in value.items()})


def concatenate(pieces: Sequence[Columns]) -> Columns:
    """Columns of one row each, below each other. Rows that stand in follow the others, which must be alike.

    Raises
    ------
    TransformError
        They do not fit together.
    """
    real = [piece for piece in pieces if not isinstance(piece, _StandIn)]
    names = list((real or pieces)[0])
    for piece in pieces:
        if set(names) - set(piece) or (set(piece) - set(names) and not isinstance(piece, _StandIn)):
            whose = "transform_fill has" if isinstance(piece, _StandIn) else "a row by itself has"
            raise TransformError(f"{whose} the columns {sorted(map(str, piece))}, other rows {sorted(map(str, names))}")
    return {name: _below(name, [piece[name] for piece in pieces], [piece[name] for piece in real]) for name in names}


def batch_of(columns: Columns, numpy: bool) -> dict[str, Any]:
    """The batch that columns are (BAT-9).

    Raises
    ------
    BatchError
        Torch, or NumPy, cannot hold one.
    """
    made = {}
    for name, column in columns.items():
        try:
            made[name] = _array(column) if numpy else _tensor(column)
        except (TypeError, ValueError, RuntimeError) as error:
            remedy = (
                "detach tensors, or return arrays"
                if numpy
                else 'pad lists to one length, or take format="numpy", which leaves them as they are'
            )
            raise BatchError(f"column {name!r} of columnar_transform cannot be batched: {error}. Remedy: {remedy}", name) from error
    return made


def _array(column: Any) -> Any:
    if isinstance(column, torch.Tensor):
        return column.numpy()
    return column if isinstance(column, list) or column.flags.writeable else column.copy()


def _tensor(column: Any) -> Any:
    if isinstance(column, torch.Tensor):
        if column.layout != torch.strided:
            raise TypeError(f"its layout is {column.layout}")
        return column
    if isinstance(column, np.ndarray) and column.dtype.kind in "biufc":
        native = column.astype(column.dtype.newbyteorder("="), order="C", copy=not column.flags.writeable)
        return torch.from_numpy(native)
    return default_collate(list(column))


class _StandIn(Columns):
    """A row that is not the transform's: it may hold more columns."""


class _Entry(list[Any]):
    """One entry that has no type of its own yet: it takes that of its column."""


def _one_entry(entry: Any) -> Any:
    if isinstance(entry, torch.Tensor):
        return entry[None]
    return entry[None] if isinstance(entry, np.ndarray) else _Entry([entry])


def _below(name: str, entries: list[Any], real: list[Any]) -> Any:
    kinds = {_kind(entry) for entry in real}
    if len(kinds) > 1:
        raise TransformError(_UNFITTING.format(name, f"rows by themselves are {' and '.join(sorted(map(str, kinds)))}"))
    like = (real or entries)[0]
    if not isinstance(like, (torch.Tensor, np.ndarray)):
        return [value for entry in entries for value in entry]
    if isinstance(like, torch.Tensor):
        return torch.cat([_fitting(name, entry, like) for entry in entries])
    return np.concatenate([_fitting(name, entry, like) for entry in entries])


def _kind(entry: Any) -> tuple[str, str, tuple[int, ...]]:
    if not isinstance(entry, (torch.Tensor, np.ndarray)):
        return ("list", "", ())
    kind = entry.dtype.kind if isinstance(entry, np.ndarray) and entry.dtype.kind in "US" else entry.dtype
    return (type(entry).__name__, str(kind), tuple(entry.shape[1:]))


def _fitting(name: str, entry: Any, like: Any) -> Any:
    """One entry in the type of its column, of its shape, and not another value for it."""
    try:
        given: Any = np.asarray(entry) if isinstance(entry, list) or isinstance(like, np.ndarray) else entry
        if isinstance(like, torch.Tensor):
            given = torch.as_tensor(given)
            cast = given.to(like.dtype)
        elif given.dtype.kind == like.dtype.kind and given.dtype.kind in "US":
            cast = given  # arrays of texts become as wide as their longest one
        else:
            cast = given.astype(like.dtype)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TransformError(_UNFITTING.format(name, error)) from error
    if cast.shape[1:] != like.shape[1:]:
        raise TransformError(_UNFITTING.format(name, f"its shape is {tuple(cast.shape[1:])}, not {tuple(like.shape[1:])}"))
    # Not where nothing was cast: NaT is not equal to itself.
    if given.dtype != like.dtype and not _is_floating(like) and not (cast == given).all():
        raise TransformError(_UNFITTING.format(name, f"{like.dtype} cannot hold its value"))
    return cast


def _is_floating(column: Any) -> bool:
    if isinstance(column, torch.Tensor):
        return column.is_floating_point() or column.is_complex()
    return column.dtype.kind in "fcO"


_UNFITTING = (
    "column {!r}: a row by itself, or transform_fill, does not fit the other rows: {}. What columnar_transform makes of a row must not "
    "depend on the rows beside it (pad to a fixed length), and transform_fill must be of its type and shape"
)

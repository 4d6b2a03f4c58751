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
    """Columns of one row each, below each other; each column as the first piece that has a real one says.

    Raises
    ------
    TransformError
        They do not fit together.
    """
    if not pieces:
        return {}
    names = list(next((piece for piece in pieces if not isinstance(piece, _StandIn)), pieces[0]))
    for piece in pieces:
        if not piece.keys() >= set(names):
            raise TransformError(f"rows have other columns: {sorted(map(str, piece))} and {sorted(map(str, names))}")
    try:
        return {name: _below([piece[name] for piece in pieces]) for name in names}
    except (TypeError, ValueError, RuntimeError) as error:
        raise TransformError(f"rows do not fit together: {error}") from error


def batch_of(columns: Columns, numpy: bool) -> dict[str, Any]:
    """The batch that columns are (BAT-9)."""
    if numpy:
        return {name: column.numpy() if isinstance(column, torch.Tensor) else column for name, column in columns.items()}
    return {name: _collated(name, column) for name, column in columns.items()}


def _collated(name: str, column: Any) -> Any:
    if isinstance(column, torch.Tensor):
        return column
    try:
        if isinstance(column, np.ndarray) and column.dtype.kind in "biufc":
            return torch.from_numpy(column if column.flags.writeable and column.flags.c_contiguous else column.copy())
        return default_collate(list(column))
    except (TypeError, ValueError, RuntimeError) as error:
        raise BatchError(f"column {name!r} of columnar_transform cannot be made a tensor: {error}", name) from error


class _StandIn(Columns):
    """A row that is not the transform's: it may hold more columns."""


class _Entry(list[Any]):
    """One entry that has no type of its own yet: it takes that of its column."""


def _one_entry(entry: Any) -> Any:
    if isinstance(entry, torch.Tensor):
        return entry[None]
    return entry[None] if isinstance(entry, np.ndarray) else _Entry([entry])


def _below(entries: list[Any]) -> Any:
    like = next((entry for entry in entries if not isinstance(entry, _Entry)), entries[0])
    if isinstance(like, torch.Tensor):
        return torch.cat(
            [torch.as_tensor(np.asarray(e) if isinstance(e, list) else e, dtype=like.dtype).reshape(1, *like.shape[1:]) for e in entries]
        )
    if isinstance(like, np.ndarray):
        return np.concatenate([np.asarray(e, dtype=like.dtype).reshape(1, *like.shape[1:]) for e in entries])
    return [value for entry in entries for value in entry]

"""Which columns a read returns: names, fields of structs and the row id, as one version of a table has them (ARG-9)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
from pyarrow import types

from streaming.arguments import shown
from streaming.errors import ArgumentValueError, UnknownColumnError

ROW_ID: Final = "_rowid"
_FEW: Final = 8  # names in one message


def resolve(columns: Sequence[str] | None, schema: pa.Schema, where: str, remedy: str = "") -> list[str]:
    """Return the names to read.

    Parameters
    ----------
    columns : sequence of str or None
        Names, or paths into structs (``"a.b"``). None: all columns.
    schema : pyarrow.Schema
        Of the version.
    where, remedy : str
        Which version that is, and what else a refusal should say.

    Raises
    ------
    UnknownColumnError
        The version has no such column.
    ArgumentValueError
        It has one that the engine cannot read by its name.
    """
    names = list(schema.names if columns is None else columns)
    for name in names:
        if name != ROW_ID and field_of(schema, name) is None:
            raise UnknownColumnError(f"columns: {where} has no column {shown(name)}; {_nearest(name, schema)}{remedy}", "columns")
        if _unreadable(name):
            raise ArgumentValueError(f"columns: the engine cannot read the column {shown(name)} of {where}: {_without(name)}", "columns")
    return names


def field_of(schema: pa.Schema, name: str) -> pa.Field | None:
    """The column of a name, or the field of a path through structs, to the letter; None if there is none."""
    if name in schema.names:
        return schema.field(name)
    head, *path = name.split(".")
    field = schema.field(head) if head in schema.names else None
    for step in path:
        if field is None or not types.is_struct(field.type) or field.type.get_field_index(step) < 0:
            return None
        field = field.type.field(step)
    return field


def listing(names: Sequence[str], say: Callable[[str], str] = shown) -> str:
    """Names for a message: all of a few, and of many the first ones."""
    few = ", ".join(map(say, names[:_FEW]))
    return few if len(names) <= _FEW else f"{few} and {len(names) - _FEW} more"


def _nearest(name: str, schema: pa.Schema) -> str:
    if name == "*":
        return "pass None for all columns"
    names = schema.names
    head, _, path = name.partition(".")
    if path and head in names and types.is_struct(schema.field(head).type):
        children = [field.name for field in schema.field(head).type]
        return f"{shown(head)} has the fields {listing(children)} (one with a dot in its own name is read with the whole column)"
    if path and head in names:
        return f"{shown(head)} is of type {shown(str(schema.field(head).type))[1:-1]}, and only of a struct can one field be read"
    near = difflib.get_close_matches((head if path else name)[:200], names, n=1 if len(names) <= _FEW else 3, cutoff=0)
    return (
        f"the nearest one is {shown(near[0]) if near else None} of {names}"
        if len(names) <= _FEW
        else (f"the nearest ones of its {len(names)} are {listing(near)}")
    )


def _unreadable(name: str) -> bool:
    """Whether the engine would not find a column by its own name, or find all of them."""
    return name == "*" or "`" in name or not all(name.split("."))


def _without(name: str) -> str:
    leave = "leave it out (columns=[...])"
    if "." in name:
        return f"read the whole struct {shown(name.partition('.')[0])}, or {leave}"
    if not name:
        return leave
    path = "`" + name.replace("`", "``") + "`" if "`" in name else name
    return f'{leave}, or rename it: table.alter_columns({{"path": {path!r}, "rename": ...}})'

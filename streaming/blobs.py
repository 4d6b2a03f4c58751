"""Blob columns: the engine keeps their bytes apart, and a query returns only where they are; they are fetched (REA-8)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final

import pyarrow as pa

from streaming.arguments import shown
from streaming.errors import ArgumentValueError, ReadError
from streaming.extension import BLOB, children, extension_name
from streaming.projection import ROW_ID, field_of

# Before it empty blobs came as null, and takes with row ids lacked rows.
_FIRST_RELEASE: Final = (0, 38)
# The older kind of blob column: a binary field with this in its metadata.
_LEGACY: Final = b"lance-encoding:blob"


def blob_columns(schema: pa.Schema, columns: Sequence[str]) -> list[str]:
    """Those of the columns that are blobs; their bytes can be fetched.

    Raises
    ------
    ArgumentValueError
        One is a blob of the older kind, or holds one: their bytes cannot. Or this release of lancedb does not read them faithfully.
    """
    found = []
    for name in columns:
        field = field_of(schema, name)
        if field is None or not _has_blob(field):
            continue
        release = metadata.version("lancedb")
        if _is_blob(field) and tuple(map(int, re.findall(r"\d+", release)[:2])) >= _FIRST_RELEASE:
            found.append(name)
            continue
        if _is_blob(field):
            why = f"is a blob column, which lancedb {release} does not read faithfully (empty ones come as null, or rows are missing)"
            remedy = f"use lancedb {_FIRST_RELEASE[0]}.{_FIRST_RELEASE[1]} or later"
        else:
            why = "is an older kind of blob column, or holds blobs inside: the engine would return where their bytes are, not the bytes"
            remedy = "read a blob of a struct by its path, or copy them into a column made by lancedb.blob"
        others = [other for other in schema.names if not _has_blob(schema.field(other))]
        raise ArgumentValueError(f"columns: {name!r} {why}. Leave it out (columns={shown(others)}), or {remedy}", "columns")
    return found


def with_bytes(handle: Any, read: pa.Table, blobs: Sequence[str]) -> pa.Table:
    """What was read, with its `ROW_ID` column, and the bytes of these blob columns of the same rows.

    Raises
    ------
    ReadError
        There are not as many.
    """
    for name in blobs:
        found = handle.fetch_blobs(name, read.column(ROW_ID).to_pylist())
        if len(found) != read.num_rows:
            raise ReadError(f"fetching column {name!r} of {read.num_rows} rows of {handle.name!r} returned {len(found)}")
        read = read.append_column(name, found)
    return read


def _has_blob(field: pa.Field) -> bool:
    legacy = (field.metadata or {}).get(_LEGACY, b"").lower() == b"true"
    return _is_blob(field) or legacy or any(map(_has_blob, children(field.type)))


def _is_blob(field: pa.Field) -> bool:
    """Whether the field itself is a blob of the kind that can be fetched."""
    return extension_name(field) == BLOB

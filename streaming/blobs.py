"""Blob columns: the engine keeps their bytes apart, and a query returns only where they are (REA-8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from streaming.errors import ArgumentValueError
from streaming.extension import BLOB, children, extension_name
from streaming.projection import field_of

# The older kind of blob column: a binary field with this in its metadata.
_LEGACY: Final = b"lance-encoding:blob"


def check_blobs(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Refuse columns that are blobs, or hold one (REA-8).

    Raises
    ------
    ArgumentValueError
        The first such column.
    """
    for name in columns:
        field = field_of(schema, name)
        if field is not None and _has_blob(field):
            others = [other for other in schema.names if not _has_blob(schema.field(other))]
            raise ArgumentValueError(
                f"columns: {name!r} is a blob column, or holds one: the engine would return where its bytes are, not the bytes. "
                f"Leave it out (columns={others}), or copy the bytes into a binary column",
                "columns",
            )


def _has_blob(field: pa.Field) -> bool:
    return is_blob(field) or is_legacy_blob(field) or any(map(_has_blob, children(field.type)))


def is_blob(field: pa.Field) -> bool:
    """Whether the field itself is a blob of the kind that can be fetched."""
    return extension_name(field) == BLOB


def is_legacy_blob(field: pa.Field) -> bool:
    """Whether the field itself is a blob of the older kind."""
    return bool((field.metadata or {}).get(_LEGACY, b"").lower() == b"true")

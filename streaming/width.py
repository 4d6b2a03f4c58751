"""How many bytes a row has, where its types say so (REA-2)."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types


def fixed_bytes(schema: pa.Schema) -> float | None:
    """Bytes of a row of these types; None where they differ from row to row."""
    widths = [_width(kind) for kind in schema.types]
    return None if None in widths else sum(width for width in widths if width is not None)


def _width(kind: pa.DataType) -> float | None:
    if isinstance(kind, pa.BaseExtensionType):
        return _width(kind.storage_type)
    if types.is_struct(kind):
        return fixed_bytes(pa.schema(list(kind)))
    if types.is_fixed_size_list(kind):
        width = _width(kind.value_type)
        return None if width is None else kind.list_size * width
    if types.is_null(kind):
        return 0
    return kind.bit_width / 8 if types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind) else None

"""Extension types, whether or not this process has registered them (IDN-5)."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

NAME: Final = b"ARROW:extension:name"
TEXT: Final = b"ARROW:extension:metadata"
BLOB: Final = "lance.blob.v2"

# As long as the keys, so that a serialized schema stays one. pyarrow makes no type of these.
_HIDDEN: Final = {NAME: b"*****:extension:name", TEXT: b"*****:extension:metadata"}


def extension_name(field: pa.Field) -> str | None:
    """The name of the field's extension type, if it has one, known to this process or not."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    name = (field.metadata or {}).get(NAME)
    return None if name is None else name.decode()


def any_extension(schema: pa.Schema) -> bool:
    """Whether a column, or a field inside one, may have an extension type: for every batch, so without a walk."""
    return NAME in schema.serialize().to_pybytes()


def has_extension(field: pa.Field) -> bool:
    """Whether the field, or one inside it, has an extension type."""
    return extension_name(field) is not None or any(map(has_extension, children(field.type)))


def storage_type(field: pa.Field) -> pa.DataType:
    """The field's type, that below its extension type if it has one."""
    return field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type


def children(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a nested type."""
    return [kind.field(i) for i in range(kind.num_fields)]


def counted(schema: pa.Schema) -> list[list[Any]]:
    """The columns as the schema fingerprint counts them (IDN-5)."""
    if not any(map(has_extension, schema)):
        return [[field.name, str(field.type), field.nullable] for field in schema]
    columns = []
    for field in _stored(schema):
        found: list[list[Any]] = []
        noted = _noted(field, [], found)
        columns.append([field.name, str(noted.type), field.nullable, found] if found else [field.name, str(field.type), field.nullable])
    return columns


def _stored(schema: pa.Schema) -> pa.Schema:
    """The schema in storage types, with what it says of extension types under the keys of `_HIDDEN`.

    Only a serialized schema tells the texts of types that are registered; those that pyarrow itself registers have no method for it.
    """
    serialized = schema.serialize().to_pybytes()
    for key, hidden in _HIDDEN.items():
        # A string of a flatbuffer: its length before it, zero behind it.
        length = len(key).to_bytes(4, "little")
        serialized = serialized.replace(length + key + b"\0", length + hidden + b"\0")
    return pa.ipc.read_schema(pa.py_buffer(serialized))


def _noted(field: pa.Field, path: list[int], found: list[list[Any]]) -> pa.Field:
    """The field in the type that counts; extension types in it are added to `found`."""
    metadata = field.metadata or {}
    if _HIDDEN[NAME] in metadata:
        name = metadata[_HIDDEN[NAME]].decode()
        found.append([path, name, _text(name, metadata.get(_HIDDEN[TEXT], b"").decode())])
        if name == BLOB:
            return field.with_type(pa.large_binary())
    inner = [_noted(child, [*path, i], found) for i, child in enumerate(children(field.type))]
    return field.with_type(with_children(field.type, inner))


def _text(name: str, text: str) -> str:
    """What libraries write in several ways, in one."""
    if not name.startswith(("arrow.", "lance.")):
        return text
    try:
        parameters = json.loads(text)
    except ValueError:
        return text
    if not isinstance(parameters, dict):
        return text
    return json.dumps(parameters, sort_keys=True, separators=(",", ":")) if parameters else ""


def with_children(kind: pa.DataType, inner: list[pa.Field]) -> pa.DataType:
    """The nested type with other fields; a type of another sort as it is."""
    if types.is_struct(kind):
        return pa.struct(inner)
    if types.is_list(kind):
        return pa.list_(inner[0])
    if types.is_large_list(kind):
        return pa.large_list(inner[0])
    if types.is_fixed_size_list(kind):
        return pa.list_(inner[0], kind.list_size)
    if types.is_map(kind):
        key, item = children(inner[0].type)
        return pa.map_(key, item, kind.keys_sorted)
    return kind

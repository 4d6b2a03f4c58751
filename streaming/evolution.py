"""How the columns of two versions of a table differ, in words (IDN-9)."""

from __future__ import annotations

import pyarrow as pa

from streaming.arguments import shown
from streaming.projection import listing
from streaming.source import Source, fingerprint


def of_versions(recorded: int, fingerprint_then: str, source: Source) -> str:
    """What a state's version and a dataset's have of different columns; the dataset's own where the state's cannot be opened.

    Parameters
    ----------
    recorded : int
        The version that the state records.
    fingerprint_then : str
        Its schema fingerprint: another table's version of this number is not the one.
    source : Source
        What the dataset reads.
    """
    own, then = source.schema(), source.schema(recorded)
    if own is None:
        return ""
    if then is None or fingerprint(then) != fingerprint_then:
        return f"the dataset's columns: {listing(own.names)}"
    return differences(then, own)


def differences(then: pa.Schema, now: pa.Schema) -> str:
    """Columns that only one has, or of another type; else their order."""
    common = [name for name in then.names if name in now.names]

    def both(name: str) -> str:
        return f"{shown(name)} ({_kind(then.field(name))} in the state's, {_kind(now.field(name))} in the dataset's)"

    parts = {
        "only the state's version has": listing([name for name in then.names if name not in now.names]),
        "only the dataset's has": listing([name for name in now.names if name not in then.names]),
        "of another type:": listing([name for name in common if _print(then, name) != _print(now, name)], both),
    }
    said = [f"{words} {names}" for words, names in parts.items() if names]
    return f"columns: {'; '.join(said)}" if said else "the columns are in another order"


def _print(schema: pa.Schema, name: str) -> str:
    return fingerprint(pa.schema([schema.field(name)]))


def _kind(field: pa.Field) -> str:
    return shown(str(field.type))[1:-1] + (" or null" if field.nullable else "")

"""Tables with versions, as values (chapter identity: IDN-3, IDN-5).

A store holds tables by name. Every write makes another version of one table at another moment of the store's clock, which never
stands still and never goes back: so a moment belongs to one version of one table for ever, as in an engine whose clock is fine
enough. The rows of a version are not stored: the row number is all that a row of the model carries, and a version of n rows has
the rows 0 .. n - 1.

A table is known by the moment at which it was made, not by its name: a name that is dropped and made again names another table,
and a table that moved is still the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

# Where below its column, extension name, text (IDN-5)
Extension = tuple[tuple[int, ...], str, str]

# name, type as pyarrow prints it, whether it may be null, and for a column that holds extension types, these (IDN-5)
Column = tuple[str, str, bool] | tuple[str, str, bool, tuple[Extension, ...]]

ID_COLUMN: Column = ("id", "int64", True)

# 2020-09-13, in microseconds: far from the small numbers that somebody may write into a state by hand.
FIRST_MOMENT = 1_600_000_000_000_000


@dataclass(frozen=True)
class Version:
    """One version of a table, as far as a state speaks of it (IDN-2).

    Parameters
    ----------
    number : int
        ``table_version``, at least 1.
    created_us : int or None
        ``table_version_created_us`` (IDN-3); None where nobody could tell.
    rows : int
        ``selected_rows``.
    fingerprint : str
        ``schema_fingerprint`` (IDN-5).
    """

    number: int
    created_us: int | None
    rows: int
    fingerprint: str


@dataclass(frozen=True)
class Table:
    """A table.

    Parameters
    ----------
    made_us : int
        The moment at which it was made, by which it is known.
    columns : tuple of Column
        The columns of the newest version.
    versions : tuple of Version
        Those that can be opened, ascending; the newest is last and always there.
    """

    made_us: int
    columns: tuple[Column, ...]
    versions: tuple[Version, ...]


@dataclass(frozen=True)
class Store:
    """Tables by name, and the moment of the next write."""

    tables: Mapping[str, Table] = field(default_factory=dict)
    clock_us: int = FIRST_MOMENT


def fingerprint(columns: Sequence[Column]) -> str:
    """``schema_fingerprint`` of these columns (IDN-5)."""
    text = json.dumps([list(column) for column in columns], separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def extension(path: Sequence[int], name: str, metadata: str = "") -> Extension:
    """An extension type as its column counts it (IDN-5): what libraries write anew is written in one way."""
    text = metadata
    if name.startswith(("arrow.", "lance.")):
        try:
            parameters = json.loads(metadata)
        except ValueError:
            parameters = None
        if isinstance(parameters, dict):
            text = json.dumps(parameters, sort_keys=True, separators=(",", ":"), ensure_ascii=True) if parameters else ""
    return (tuple(path), name, text)


# --- looking ------------------------------------------------------------------------------------------------------------------------


def find(store: Store, made_us: int) -> Table | None:
    """The table that was made at a moment, whatever its name is now; None where it was dropped."""
    for table in store.tables.values():
        if table.made_us == made_us:
            return table
    return None


def open_version(table: Table, number: int) -> Version | None:
    """A version of a table; None where it cannot be opened (any more)."""
    for version in table.versions:
        if version.number == number:
            return version
    return None


def newest(table: Table) -> Version:
    """The newest version of a table."""
    return table.versions[-1]


# --- writing ------------------------------------------------------------------------------------------------------------------------


def make(store: Store, name: str, rows: int) -> Store:
    """A new table, version 1, with one column ``id``; one that has its name is dropped first."""
    columns = (ID_COLUMN,)
    first = Version(1, store.clock_us, rows, fingerprint(columns))
    table = Table(store.clock_us, columns, (first,))
    return Store({**store.tables, name: table}, store.clock_us + 1)


def append(store: Store, name: str, rows: int) -> Store:
    """Another version, with more rows."""
    table = store.tables[name]
    return write(store, name, table.columns, newest(table).rows + rows)


def add_column(store: Store, name: str) -> Store:
    """Another version, with one more column and the same rows."""
    table = store.tables[name]
    added: Column = (f"column{len(table.columns)}", "int64", True)
    return write(store, name, (*table.columns, added), newest(table).rows)


def write(store: Store, name: str, columns: tuple[Column, ...], rows: int) -> Store:
    """Another version of a table, written now."""
    table = store.tables[name]
    version = Version(newest(table).number + 1, store.clock_us, rows, fingerprint(columns))
    after = Table(table.made_us, columns, (*table.versions, version))
    return Store({**store.tables, name: after}, store.clock_us + 1)


def move(store: Store, name: str, to: str) -> Store:
    """Rename a table; its versions keep their moments (IDN-3). The new name must be free."""
    if to in store.tables:
        raise ValueError(f"there is a table {to}")
    others = {key: table for key, table in store.tables.items() if key != name}
    return replace(store, tables={**others, to: store.tables[name]})


def clean(store: Store, name: str) -> Store:
    """Forget all versions but the newest; its number stays."""
    table = store.tables[name]
    return replace(store, tables={**store.tables, name: replace(table, versions=(newest(table),))})


def drop(store: Store, name: str) -> Store:
    """A table is gone, with all its versions."""
    if name not in store.tables:
        raise ValueError(f"there is no table {name}")
    return replace(store, tables={key: table for key, table in store.tables.items() if key != name})

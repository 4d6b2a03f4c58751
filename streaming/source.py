"""Access to one pinned version of a table: what is selected, and reads by selected row number.

Only methods that lancedb's embedded and remote tables share are called (remote tables are untried). The key of
a row is its offset in storage order: ``_rowoffset``, which scans and takes can both return, so that nothing
here relies on the order in which rows come back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streaming.arguments import brief, integer, shown
from streaming.blobs import blob_columns, with_bytes
from streaming.engine import KEEP_VERSIONS, reading, refuse_if_gone
from streaming.errors import ArgumentTypeError, FilterError, ReadError, VersionError
from streaming.extension import counted
from streaming.joining import whole
from streaming.moment import Moment
from streaming.order import Positions
from streaming.projection import ROW_ID, field_of, resolve
from streaming.recipe import ConnectionFactory, Recipe
from streaming.selection import Selection
from streaming.width import fixed_bytes
from streaming.window import Window

_KEY: Final = "_rowoffset"


class Source:
    """The selected rows of one pinned version.

    Build it with `Source.open`; what it reads never changes afterwards, and the caller's handle is never moved (DLV-12). It can be
    pickled: a copy opens the table again at its first read, and a copy of an in-memory table holds its rows (WRK-17).

    Attributes
    ----------
    name : str
        Table name.
    version : int
        The pinned version.
    rows : int
        Selected rows (N).
    fingerprint : str
        Schema fingerprint (IDN-5).
    row_bytes : float or None
        Bytes of a row, where its types say so.
    """

    def __init__(
        self, handle: Any, moment: Moment, factory: ConnectionFactory | None, columns: Sequence[str], selection: Selection | None
    ) -> None:
        self._handle, self._factory = handle, factory
        self._recipe: Recipe | None = None
        self._columns = [*columns, _KEY]
        self._blobs = blob_columns(handle.schema, columns)
        self._selection = selection
        self._held: tuple[pa.RecordBatch, pa.Schema] | None = None
        self.name: str = handle.name
        self.version = int(handle.version)
        self.branch: str = handle.current_branch() or "main"
        self.rows = int(handle.count_rows()) if selection is None else len(selection)
        self.fingerprint = fingerprint(handle.schema)
        fields = [field_of(handle.schema, name) or pa.field(name, pa.uint64()) for name in columns]  # the row id has no field
        self.row_bytes = None if self._blobs else fixed_bytes(pa.schema(fields))
        self._moment: Moment | None = moment
        self._created_us: int | None = None
        self._warned = self._verified = False

    @classmethod
    def open(
        cls,
        table: Any,
        version: int | str | None,
        columns: Sequence[str] | None,
        predicate: str | None,
        factory: ConnectionFactory | None = None,
    ) -> Source:
        """Pin a version and select its rows; the only step that scans, and only with a predicate.

        Raises
        ------
        VersionError, UnknownColumnError, ArgumentValueError, FilterError
            The version, a column or the predicate does not fit the table.
        """
        handle = _pin(table, version)
        moment = Moment(handle)  # before the scan, which may take long
        where, remedy = f"version {handle.version} of table {handle.name!r}", older_version(version, handle.version)
        names = resolve(columns, handle.schema, where, remedy)
        blob_columns(handle.schema, names)  # before the scan
        selection = None if predicate is None else _select(handle, moment, predicate, where, remedy)
        return cls(handle, moment, factory, names, selection)

    def at(self, version: int, columns: Sequence[str] | None, predicate: str | None) -> Source:
        """Pin another version of the same table and branch (IDN-7).

        Raises
        ------
        VersionError
            It cannot be opened; an in-memory table that travelled here has one version only.
        """
        if self._held is not None:
            raise VersionError(f"in-memory table {self.name!r} cannot be opened in another process, so nor can its other versions")
        return Source.open(self._opened(), version, columns, predicate, self._factory)

    def created_us(self) -> int | None:
        """When the engine wrote the version, in microseconds of UTC since 1970; None where it does not tell (IDN-3, IDN-4)."""
        if self._created_us is None and self._held is None:
            moment = self._moment or Moment(self._opened(), self._data_column())
            self._created_us, self._moment = moment.microseconds(), None
            if self._created_us is None and not self._warned:
                self._warned = True
                moment.warn()
        return self._created_us

    def schema(self, version: int | None = None) -> pa.Schema | None:
        """All columns of the pinned version, or of another one; None where it cannot be opened."""
        if version is None or version == self.version:
            return self._opened().schema if self._held is None else None
        try:
            return None if self._held is not None else _pin(self._opened(), version, self.branch).schema
        except VersionError:
            return None

    def _data_column(self) -> str:
        """A column that is read from the table's files, as the row id is not."""
        names = [name for name in self._columns[:-1] if name != ROW_ID]
        return names[0] if names else str(self._opened().schema.names[0])

    def take(self, rows: Positions) -> Window:
        """Read these selected rows, distinct and in any order; the window has them in the order given.

        Raises
        ------
        ReadError, VersionError
            It failed, or other rows came back; the version went away (DLV-5).
        """
        if self._held is not None:
            batch, schema = self._held
            return Window(batch, rows.astype(np.int64), schema)
        handle = self._opened()
        offsets = rows if self._selection is None else self._selection.offsets(rows)
        ascending = np.argsort(offsets)
        wanted = offsets[ascending]
        # Ascending, so that neighbours are read as ranges.
        with self._reading(f"a read of {len(wanted)} rows"):
            table = handle.take_offsets(wanted.tolist()).select(self._asked()).to_arrow()
        found = table.column(_KEY).to_numpy()
        self._verify()
        by_key = np.argsort(found, kind="stable")
        if not np.array_equal(found[by_key], wanted):
            raise ReadError(
                f"a read of {len(wanted)} rows of {self.name!r} version {self.version} returned {len(found)} rows, or other ones"
            )
        index = np.empty_like(ascending)
        index[ascending] = by_key
        with self._reading(f"fetching blobs of {len(wanted)} rows"):
            table = with_bytes(handle, table, self._blobs)
        table = table.select(self._columns[:-1])
        return Window(whole(table), index, table.schema)

    def _asked(self) -> list[str]:
        """What a query is asked for: the key, and where there are blobs the row id instead of them."""
        names = [name for name in self._columns if name not in self._blobs]
        return [*names, ROW_ID] if self._blobs and ROW_ID not in names else names

    def _opened(self) -> Any:
        """The handle; in a process that the source travelled to, the pinned version opened again, if it still is what it was."""
        if self._handle is None and self._recipe is not None:
            handle = _pin(self._recipe.open(), self.version, self.branch)
            if fingerprint(handle.schema) != self.fingerprint or (self._selection is None and handle.count_rows() != self.rows):
                raise self._another_table()
            self._moment, self._handle = Moment(handle), handle
        return self._handle

    def _reading(self, what: str) -> AbstractContextManager[None]:
        """What the engine raises meanwhile says which table and version it is about (DLV-5)."""
        return reading(self._handle, what, self._written_us)

    def _written_us(self) -> int | None:
        moment = self._moment  # another thread may let go of it meanwhile
        return self._created_us if self._created_us is not None or moment is None else moment.microseconds()

    def _verify(self) -> None:
        """Nothing that was read may be given away before the table, opened again, is known to be the old one (WRK-17)."""
        if not self._verified and self._recipe is not None and self._moment is not None:
            found = self._moment.microseconds()
            if None not in (found, self._created_us) and found != self._created_us:
                raise self._another_table()
        self._verified = True

    def _another_table(self) -> VersionError:
        return VersionError(f"table {self.name!r} version {self.version}, opened again, is another table than the one that was pinned")

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open handle behind; take the rows along where no other process can open them."""
        created_us = self.created_us()
        state = {**vars(self), "_handle": None, "_moment": None, "_created_us": created_us, "_verified": False}
        if self._handle is not None:
            state["_recipe"] = Recipe.of(self._handle, self._factory)
            if state["_recipe"].in_memory:
                state["_held"] = self._all_rows()
                state["_selection"] = None
        return state

    def _all_rows(self) -> tuple[pa.RecordBatch, pa.Schema]:
        """All selected rows in their order, and the types of a few of them."""
        with self._reading("a read of all rows"):
            table = self._handle.search().select(self._asked()).to_arrow()
            stored = np.argsort(table.column(_KEY).to_numpy())
            table = with_bytes(self._handle, table, self._blobs)
        wanted = stored if self._selection is None else stored[self._selection.all().astype(np.int64)]
        table = table.select(self._columns[:-1])
        return whole(table).take(pa.array(wanted)), table.schema


def check_table(table: object) -> None:
    """Refuse what is not a synchronous lancedb table (ARG-2)."""
    from lancedb.table import Table  # noqa: PLC0415  importing lancedb starts threads: only where a table exists already

    if not isinstance(table, Table):
        raise ArgumentTypeError(
            f"table must be a lancedb table, as lancedb.connect(uri).open_table(name) returns it, got {type(table).__name__}", "table"
        )


def check_version(version: object) -> int | str | None:
    """Return a version number or tag name (ARG-8)."""
    return version if version is None or isinstance(version, str) else integer("version", version, 1)


def fingerprint(schema: pa.Schema) -> str:
    """SHA-256 over names, types and nullability of the top-level columns, whatever types this process has registered (IDN-5)."""
    return hashlib.sha256(json.dumps(counted(schema), separators=(",", ":")).encode()).hexdigest()


def _pin(table: Any, version: int | str | None, branch: str | None = None) -> Any:
    """Open a second handle on the version; the caller's handle stays where it is."""
    asked = "the version" if version is None else f"version {version!r}"
    try:
        if isinstance(version, str):
            version = table.tags.get_version(version)
        branch = branch or table.current_branch() or "main"
        return table.branches.checkout(branch, int(table.version) if version is None else version)
    except (RuntimeError, ValueError) as error:
        raise VersionError(
            f"{asked} of table {table.name!r} cannot be opened: there is no such version or tag, or it was cleaned up. "
            f"{KEEP_VERSIONS} The engine says: {brief(error)}."
        ) from error


def older_version(asked: int | str | None, pinned: int) -> str:
    """What else a refusal should say where the newest version was pinned unasked: a state may need another one."""
    if asked is not None or pinned == 1:
        return ""
    return "; to resume a run on an older version, pass version= what its state says (table_version)"


def _select(handle: Any, moment: Moment, predicate: str, where: str, remedy: str) -> Selection:
    """The rows that pass the predicate (TRM-1): one scan."""
    # In parentheses, so that nothing can follow the predicate: the engine would ignore "id > 3 LIMIT 5" behind the 3.
    query = handle.search().where(f"({predicate})").select([_KEY])
    try:
        return Selection((batch.column(0).to_numpy().astype(np.uint64) for batch in query.to_batches()), handle.count_rows())
    except Exception as error:  # whatever the engine raises on a predicate that it cannot plan or carry out, its panics included
        if not isinstance(error, ValueError):
            refuse_if_gone(handle, f"the scan for the filter {shown(predicate)}", moment.microseconds, error)
        raise FilterError(
            f"filter {shown(predicate)} cannot be carried out on {where}; the engine says: {brief(error)}{remedy}", "filter"
        ) from error

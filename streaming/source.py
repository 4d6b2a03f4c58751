"""Access to one pinned version of a table: what is selected, and reads by selected row number.

Only methods that lancedb's embedded and remote tables share are called (remote tables are untried). The key of
a row is its offset in storage order: ``_rowoffset``, which scans and takes can both return, so that nothing
here relies on the order in which rows come back.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streaming.arguments import integer, known_columns
from streaming.errors import ArgumentTypeError, FilterError, ReadError, VersionError
from streaming.order import Positions
from streaming.recipe import ConnectionFactory, Recipe

_KEY: Final = "_rowoffset"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

_log = logging.getLogger(__name__)


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
    """

    def __init__(self, handle: Any, factory: ConnectionFactory | None, columns: Sequence[str], offsets: Positions | None) -> None:
        self._handle, self._factory = handle, factory
        self._recipe: Recipe | None = None
        self._columns = [*columns, _KEY]
        self._offsets = offsets
        self._held: pa.Table | None = None
        self.name: str = handle.name
        self.version = int(handle.version)
        self.branch: str = handle.current_branch() or "main"
        self.rows = int(handle.count_rows()) if offsets is None else len(offsets)
        self.fingerprint = fingerprint(handle.schema)
        self._created_us: int | None = None
        self._warned = False

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
        VersionError, UnknownColumnError, FilterError
            The version, a column or the predicate does not fit the table.
        """
        handle = _pin(table, version)
        existing = handle.schema.names
        if columns is not None:
            known_columns("columns", columns, existing)
        offsets = None if predicate is None else _select(handle, predicate)
        return cls(handle, factory, existing if columns is None else columns, offsets)

    def created_us(self) -> int | None:
        """When the engine wrote the version, in microseconds of UTC since 1970; None where it does not tell (IDN-3, IDN-4).

        The first call lists the table's versions and reads one row; an answer is remembered.
        """
        if self._created_us is None:
            try:
                handle = self._opened()
                written = {int(entry["version"]): entry["timestamp"] for entry in handle.list_versions()}
                # A table dropped and made again in the meantime would be listed under the same name. What can still be read
                # after the listing was not dropped before it.
                handle.take_offsets([0]).select(self._columns[:1]).to_arrow()
                self._created_us = _microseconds(written[self.version])
            except Exception as error:  # whatever the engine raises: a state without the moment is worth more than none
                if not self._warned:
                    self._warned = True
                    _log.warning(
                        "the creation time of version %d of table %r cannot be read (%r): states say None for it, and fit only with "
                        'accept=["table_version_created_us"]',
                        self.version,
                        self.name,
                        error,
                    )
        return self._created_us

    def take(self, rows: Positions) -> pa.RecordBatch:
        """Read these selected rows, distinct and in any order; the batch has them in the order given.

        Raises
        ------
        ReadError
            Other rows came back.
        """
        if self._held is not None:
            return _one_batch(self._held.take(rows))
        handle = self._opened()
        offsets = rows if self._offsets is None else self._offsets[rows]
        ascending = np.argsort(offsets)
        wanted = offsets[ascending]
        table = handle.take_offsets(wanted.tolist()).select(self._columns).to_arrow().combine_chunks()
        found = table.column(_KEY).to_numpy()
        by_key = np.argsort(found)
        if not np.array_equal(found[by_key], wanted):
            raise ReadError(
                f"a read of {len(wanted)} rows of {self.name!r} version {self.version} returned {len(found)} rows, or other ones"
            )
        index = np.empty_like(ascending)
        index[ascending] = by_key
        return _one_batch(table.drop_columns([_KEY]).take(index))

    def _opened(self) -> Any:
        """The handle; in a process that the source travelled to, the pinned version opened again, if it still is what it was."""
        if self._handle is None and self._recipe is not None:
            self._handle = self._reopened(self._recipe)
        return self._handle

    def _reopened(self, recipe: Recipe) -> Any:
        handle = _pin(recipe.open(), self.version, self.branch)
        if fingerprint(handle.schema) != self.fingerprint or (self._offsets is None and handle.count_rows() != self.rows):
            raise VersionError(
                f"table {self.name!r} version {self.version}, opened again in a worker, is another table than in the trainer"
            )
        return handle

    def open_table(self) -> Any:
        """Open the table again, in a process that the source travelled to.

        Raises
        ------
        VersionError
            An in-memory table lives in its own process only.
        """
        if self._recipe is None or self._recipe.in_memory:
            raise VersionError(f"in-memory table {self.name!r} cannot be opened in another process, so nor can its other versions")
        return self._recipe.open()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open handle behind; take the rows along where no other process can open them."""
        state = {**vars(self), "_handle": None}
        if self._handle is not None:
            state["_recipe"] = Recipe.of(self._handle, self._factory)
            if state["_recipe"].in_memory:
                state["_created_us"] = self.created_us()
                state["_held"] = self._all_rows()
                state["_offsets"] = None
        return state

    def _all_rows(self) -> pa.Table:
        """All selected rows in their order."""
        table = self._handle.search().select(self._columns).to_arrow()
        table = table.sort_by(_KEY).drop_columns([_KEY])
        return table if self._offsets is None else table.take(self._offsets)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]


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


def _microseconds(moment: datetime) -> int:
    """Since 1970, of a time with a zone, or of one without, which the engine's client gives in this machine's zone."""
    return (moment.astimezone(timezone.utc) - _EPOCH) // timedelta(microseconds=1)


def fingerprint(schema: pa.Schema) -> str:
    """SHA-256 over names, types and nullability of the top-level columns (IDN-5)."""
    fields = [[field.name, str(field.type), field.nullable] for field in schema]
    return hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()


def _pin(table: Any, version: int | str | None, branch: str | None = None) -> Any:
    """Open a second handle on the version; the caller's handle stays where it is."""
    try:
        if isinstance(version, str):
            version = table.tags.get_version(version)
        branch = branch or table.current_branch() or "main"
        return table.branches.checkout(branch, int(table.version) if version is None else version)
    except (RuntimeError, ValueError) as error:
        raise VersionError(
            f"version {version!r} of table {table.name!r} cannot be opened: there is no such version or tag, or it was cleaned up. "
            f"Keep versions in use by a tag (table.tags.create). The engine says: {error}"
        ) from error


def _select(handle: Any, predicate: str) -> Positions:
    """Offsets of the rows that pass the predicate, ascending (TRM-1): one scan."""
    # In parentheses, so that nothing can follow the predicate: the engine would ignore "id > 3 LIMIT 5" behind the 3.
    query = handle.search().where(f"({predicate})").select([_KEY])
    try:
        batches = [batch.column(0).to_numpy() for batch in query.to_batches()]
    except Exception as error:  # whatever the engine raises on a predicate that it cannot plan or carry out, its panics included
        raise FilterError(f"filter {predicate!r} cannot be carried out; the engine says: {error}", "filter") from error
    return np.sort(np.concatenate([np.empty(0, dtype=np.uint64), *batches]).astype(np.uint64))

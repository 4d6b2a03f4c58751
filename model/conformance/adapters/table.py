"""A table of the user's own under the kit: `streaming` on its real rows, which are known by a column of unique values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from model.conformance.adapter import CAPABILITIES, Description, World
from model.conformance.adapters.streaming import Streaming, arguments_of, asked
from streaming import StreamingDataLoader, StreamingDataset
from streaming.tools.fit import open_table
from streaming.tools.statefile import UnreadableError


class TableProblem(Exception):
    """The table cannot be checked; the message says why, and what to do."""


class TableLoader(Streaming):
    """Worlds over one real table; what a world says of rows and tables is ignored.

    Parameters
    ----------
    uri, name : str
        Where the table is.
    id_column : str
        A column whose values are unique among the selected rows; they are scanned once.
    predicate, version
        `filter` and `version` of the dataset.

    Raises
    ------
    TableProblem
        There is no such table or column, its values are not unique, or nothing is selected.
    """

    capabilities = frozenset(CAPABILITIES) - {"append", "faults"}

    def __init__(self, uri: str, name: str, id_column: str, predicate: str | None = None, version: int | None = None) -> None:
        """Open the table and number its selected rows."""
        super().__init__()
        try:
            self.table = open_table(uri, name)
        except UnreadableError as error:
            raise TableProblem(str(error)) from error
        if id_column not in self.table.schema.names:
            raise TableProblem(f"there is no column {id_column!r}; pass --id with one of {self.table.schema.names}, of unique values")
        kind = self.table.schema.field(id_column).type
        if pa.types.is_nested(kind):
            words = "by which no row is known: pass --id with a column of unique numbers or strings"
            raise TableProblem(f"column {id_column!r} holds {kind}, {words}")
        self.arguments: dict[str, Any] = {"columns": [id_column], "filter": predicate, "version": version}
        self.id_column = id_column
        # One rank, one split, no shuffle: storage order (ORD-1), by the loader that is judged; that it is complete is checked by the count.
        rows = [row[id_column] for row in asked(lambda: StreamingDataset(self.table, num_splits=1, shuffle=False, **self.arguments))]
        self.numbers = {value: number for number, value in enumerate(rows)}
        if len(self.numbers) != len(rows):
            raise TableProblem(
                f"column {id_column!r} has {len(rows)} values, {len(self.numbers)} different ones: pass --id with a unique one"
            )
        expected = self.table.count_rows(predicate) if version is None else len(rows)
        if expected != len(rows):
            raise TableProblem(f"a scan gives {len(rows)} rows, the table counts {expected}")
        self.rows = len(rows)

    def describe(self) -> Description:
        """All but faults and growth: the user's table is only read."""
        return Description(f"streaming on {self.table.name}", super().describe().version, self.capabilities)

    def open(self, world: World) -> Any:
        """A loader on the table."""
        return asked(lambda: _TableHandle(self, world))

    def pull(self, handle: Any) -> Sequence[int] | None:
        """The next batch, by row numbers."""
        batch = super().pull(handle)
        # A value that was not scanned is no row of this version: -1 is no row of the model's either.
        return None if batch is None else [self.numbers.get(value, -1) for value in batch]


class _TableHandle:
    """As the handle of `Streaming`, over the table."""

    def __init__(self, loader: TableLoader, world: World) -> None:
        self.iterator: Any = None
        self.newest: Any = None
        self.older: Any = None
        dataset = StreamingDataset(loader.table, **arguments_of(world), **loader.arguments)
        self.loader = StreamingDataLoader(
            dataset,
            batch_size=world.batch_size,
            num_workers=world.num_workers,
            worker_sharding=world.worker_sharding,
            collate_fn=_Values(loader.id_column),
        )


class _Values:
    """Collates a batch to the values of one column; it travels to workers."""

    def __init__(self, column: str) -> None:
        self.column = column

    def __call__(self, rows: list[dict[str, Any]]) -> list[Any]:
        return [row[self.column] for row in rows]

"""This project's own `streaming` under the kit: in-memory tables, StreamingDataLoader, states through JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import lancedb
import pyarrow as pa

from model.conformance.adapter import CAPABILITIES, Adapter, Description, Failed, Refused, World
from streaming import StreamingDataLoader, StreamingDataset, StreamingError, merge_state_dicts


class BadRow(Exception):
    """What the transform raises for the row of `fault`."""


class Handle:
    """One loader, its two newest iterators as far as they are held, and the row that fails.

    ``iterator`` is the newest, unless it has said its end.
    """

    def __init__(self, table: Any, world: World) -> None:
        """Build dataset and loader."""
        self.bad: int | None = None
        self.iterator: Any = None
        self.newest: Any = None
        self.older: Any = None
        # Workers need a transform that pickles; none of their scenarios has a bad row.
        dataset = StreamingDataset(table, transform=None if world.num_workers else self._transform, **arguments_of(world))
        self.loader = StreamingDataLoader(
            dataset,
            batch_size=world.batch_size,
            num_workers=world.num_workers,
            worker_sharding=world.worker_sharding,
            collate_fn=_ids,
        )

    def _transform(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = batch.to_pylist()
        if any(row["id"] == self.bad for row in rows):
            raise BadRow
        return rows


class Streaming(Adapter):
    """`streaming` without worker processes, which cost seconds each (see `StreamingWithWorkers`)."""

    capabilities = frozenset(CAPABILITIES) - {"workers", "invariant"}

    def __init__(self) -> None:
        """A database of its own."""
        self.database = lancedb.connect("memory://")
        self.tables: dict[str, Any] = {}

    def describe(self) -> Description:
        """All but workers."""
        try:
            release = version("lockstep-streaming")
        except PackageNotFoundError:
            release = "not installed"
        return Description("streaming", release, self.capabilities)

    def open(self, world: World) -> Handle:
        """A new dataset and loader."""
        if world.table not in self.tables:
            self.tables[world.table] = self.database.create_table(world.table, numbers(0, world.rows))
        handle: Handle = asked(lambda: Handle(self.tables[world.table], world))
        return handle

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """The next batch of the iterator; after the end of a pass the next pull begins another."""

        if handle.iterator is None:
            self.iterate(handle)
        batch = next_batch(handle.iterator)
        if batch is None:
            handle.iterator = None
        return batch

    def iterate(self, handle: Handle) -> None:
        """One more."""
        created = asked(lambda: iter(handle.loader))
        handle.iterator, handle.newest, handle.older = created, created, handle.newest

    def pull_older(self, handle: Handle) -> Sequence[int] | None:
        """Ask the one before the newest, if it was not dropped."""
        return None if handle.older is None else next_batch(handle.older)

    def save(self, handle: Handle) -> Any:
        """The state as JSON text."""
        return json.dumps(asked(handle.loader.state_dict))

    def resume(self, handle: Handle, state: Any) -> None:
        """Load a state, or what is none."""
        try:
            loaded = json.loads(state) if isinstance(state, str) else state
        except ValueError:
            loaded = state
        asked(lambda: handle.loader.load_state_dict(loaded))

    def kill(self, handle: Handle) -> None:
        """Drop everything."""
        handle.iterator = handle.newest = handle.older = None

    def close(self, handle: Handle) -> None:
        """Drop the iterator."""
        handle.iterator = handle.newest = None

    def fault(self, handle: Handle, row: int | None) -> None:
        """Tell the transform."""
        handle.bad = row

    def set_epoch(self, handle: Handle, epoch: int) -> None:
        """Pass on."""
        asked(lambda: handle.loader.set_epoch(epoch))

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """Merge JSON texts."""
        return json.dumps(asked(lambda: merge_state_dicts([json.loads(state) for state in states], skew=skew)))

    def length(self, handle: Handle) -> int:
        """Batches."""
        return len(handle.loader)

    def append(self, table: str, rows: int) -> None:
        """Another version."""
        count = self.tables[table].count_rows()
        self.tables[table].add(numbers(count, count + rows))


class StreamingWithWorkers(Streaming):
    """The same with real worker processes for worlds that have workers: seconds for each scenario."""

    capabilities = frozenset(CAPABILITIES)


def arguments_of(world: World) -> dict[str, Any]:
    """The arguments of a dataset of this world."""
    return {
        "num_splits": world.num_splits,
        "shuffle": world.shuffle,
        "shuffle_seed": world.shuffle_seed,
        "shuffle_clump_size": world.shuffle_clump_size,
        "epoch": world.epoch,
        "rank": world.rank,
        "world_size": world.world_size,
        "partial_cycle": world.partial_cycle,
    }


def numbers(start: int, stop: int) -> pa.Table:
    """Rows whose id is their number."""
    return pa.table({"id": pa.array(range(start, stop), pa.int64())})


def _ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def next_batch(iterator: Any) -> Sequence[int] | None:
    """One batch; None at the end."""
    try:
        batch: Sequence[int] | None = asked(lambda: next(iterator, None))
    except BadRow as error:
        raise Failed from error
    return batch


def asked(call: Any) -> Any:
    """The outcome of a call of `streaming`, its own errors as refusals."""
    try:
        return call()
    except StreamingError as error:
        raise Refused(error.code) from error

"""The model as an adapter: what the specification says a loader does. The kit compares every observation with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from model import checkpoint, tables, workers
from model.conformance.adapter import CAPABILITIES, Adapter, Description, Failed, Refused, World
from model.errors import ModelError
from model.order import Order
from model.pool import Pool
from model.settings import Settings
from model.tables import Store, Table

# The sequence of an epoch that a loader was seen to have: world and epoch to ids by position.
Learn = Callable[[World, int], Sequence[int]]


@dataclass(frozen=True)
class LearnedOrder(Order):
    """An order that was observed, not computed: position to row."""

    sequence: tuple[int, ...] = ()

    def row(self, position: int) -> int:
        """The row at a position."""
        return self.sequence[position]


@dataclass(frozen=True)
class LearnedSettings(Settings):
    """Settings whose order is what a loader was seen to have."""

    learn: Callable[[int, int], Sequence[int]] | None = field(default=None, compare=False)

    def order(self, epoch: int) -> Order:
        """The order of an epoch."""
        own = super().order(epoch)
        if self.learn is None:
            return own
        return LearnedOrder(own.rows, own.shuffle, own.seed, own.epoch, own.clump, tuple(self.learn(self.rows, epoch)))


def settings_of(world: World, **data: Any) -> LearnedSettings:
    """The model's settings of a world; `data` is what they say of the table besides."""
    return LearnedSettings(
        rows=world.rows,
        num_splits=world.num_splits,
        world_size=world.world_size,
        rank=world.rank,
        shuffle=world.shuffle,
        shuffle_seed=world.shuffle_seed,
        shuffle_clump_size=world.shuffle_clump_size,
        partial_cycle=world.partial_cycle,
        **data,
    )


@dataclass
class Handle:
    """One loader of the model: its world, its state, the row that fails, the table it was opened on.

    ``held``: whether there is an iterator that was not closed and has not said its end; else the next pull creates one.
    """

    world: World
    pool: Pool
    made_us: int
    fault: int | None = None
    held: bool = False


class Reference(Adapter):
    """The model.

    Parameters
    ----------
    learn : callable or None
        For loaders with shuffled orders of their own: the sequence that a whole epoch was seen to have.
    """

    def __init__(self, learn: Learn | None = None) -> None:
        """No table exists yet."""
        self._learn = learn
        self._store = Store()

    def describe(self) -> Description:
        """The model can do everything."""
        return Description("model", "1", frozenset(CAPABILITIES))

    def open(self, world: World) -> Handle:
        """A new pool."""
        if world.table not in self._store.tables:
            self._store = tables.make(self._store, world.table, world.rows)
        table = self._store.tables[world.table]
        pinned = tables.newest(table)
        learned = self._learn

        def learn(rows: int, epoch: int) -> Sequence[int]:
            # A load may have changed the number of rows: it is that of the recorded version (IDN-7).
            assert learned is not None
            return learned(replace(world, rows=rows), epoch)

        def build() -> Pool:
            settings = settings_of(
                replace(world, rows=pinned.rows),
                table_name=world.table,
                table_version=pinned.number,
                table_version_created_us=pinned.created_us,
                schema_fingerprint=pinned.fingerprint,
                learn=learn if learned is not None and world.shuffle else None,
            )
            return workers.open_pool(settings, world.epoch)

        pool = _asked(build)
        # A loader is built whole, or not at all: arguments of the loader are judged here too (WRK-2).
        _asked(lambda: workers.start(pool, world.num_workers, world.worker_sharding, world.batch_size))
        return Handle(world, pool, table.made_us)

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """One batch."""
        if not handle.held:
            handle.pool = _started(handle)
            handle.held = True
        after, batch = _asked(lambda: workers.deliver(handle.pool))
        if batch is not None and handle.fault in batch:
            handle.pool = workers.kill(handle.pool)
            raise Failed
        handle.pool, handle.held = after, batch is not None
        return batch

    def iterate(self, handle: Handle) -> None:
        """A newer iterator."""
        handle.pool, handle.held = _started(handle), True

    def pull_older(self, handle: Handle) -> Sequence[int] | None:
        """What the one before it says."""
        _asked(lambda: workers.pull_older(handle.pool))
        return None

    def save(self, handle: Handle) -> dict[str, Any]:
        """The state."""
        state: dict[str, Any] = _asked(lambda: workers.save(handle.pool))
        return state

    def resume(self, handle: Handle, state: Any) -> None:
        """Load."""
        home = tables.find(self._store, handle.made_us)
        pool = _seeing(handle.pool, home)
        handle.pool = _asked(lambda: workers.load(pool, state))

    def kill(self, handle: Handle) -> None:
        """Nothing is held."""

    def close(self, handle: Handle) -> None:
        """Leave the pass; a failed one can be left too."""
        handle.pool, handle.held = workers.close(handle.pool), False

    def fault(self, handle: Handle, row: int | None) -> None:
        """Remember the bad row."""
        handle.fault = row

    def set_epoch(self, handle: Handle, epoch: int) -> None:
        """Ask for an epoch."""
        handle.pool = _asked(lambda: workers.set_epoch(handle.pool, epoch))

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """Merge."""
        return _asked(lambda: checkpoint.merge(states, skew))

    def length(self, handle: Handle) -> int:
        """Batches of an epoch."""
        world = handle.world
        return workers.length(handle.pool.loader.settings, world.num_workers, world.worker_sharding, world.batch_size)

    def append(self, table: str, rows: int) -> None:
        """Another version."""
        self._store = tables.append(self._store, table, rows)


def _started(handle: Handle) -> Pool:
    """With a newer iterator."""
    world = handle.world
    pool: Pool = _asked(lambda: workers.start(handle.pool, world.num_workers, world.worker_sharding, world.batch_size))
    return pool


def _seeing(pool: Pool, table: Table | None) -> Pool:
    """The pool, with the versions that its table has by now (IDN-7)."""
    settings = pool.loader.settings
    versions = () if table is None else tuple(one for one in table.versions if one.number != settings.table_version)
    return replace(pool, loader=replace(pool.loader, settings=replace(settings, versions=versions)))


def _asked(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ModelError as error:
        raise Refused(error.code) from error

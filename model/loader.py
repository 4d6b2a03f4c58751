"""A dataset as a transition system (chapters delivery and checkpoint).

Each transition is a function: its guard raises ``ModelError``, its effect is the loader that it returns, its
observation, where there is one, comes beside it. Nothing changes in place, so a refusal changes nothing (RES-5, LAW-8).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from model import checkpoint, cycle
from model.assignment import sequence_position
from model.cycle import Cursor
from model.errors import ModelError
from model.order import ORDER_VERSION, Order

LARGEST = 2**63 - 1


def check_int(name: str, value: object, low: int, high: int = LARGEST) -> None:
    """Refuse what is no int (bool is none) or lies outside ``[low, high]`` (ARG-1); none exceeds 2**63 - 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ModelError("argument.type", name)
    if value < low or value > high:
        raise ModelError("argument.value", name)


@dataclass(frozen=True)
class Settings:
    """The arguments of a dataset, and what it sees of its table. Checked when made (ASG-1, ASG-2, chapter arguments).

    Parameters
    ----------
    rows : int
        N, the selected rows of the pinned version.
    num_splits, world_size, rank : int
        S, R and r.
    shuffle : bool
        Whether the order is shuffled.
    shuffle_seed : int or None
        The seed. The model draws none: whoever drew one passes it, with ``seed_drawn=True``.
    shuffle_clump_size : int or None
        c, only with shuffle.
    partial_cycle : str
        ``"replay"`` or ``"exact"``.
    filter, table_name, table_version, schema_fingerprint
        The rest of the identity (CKP-3); the model only compares them.
    seed_drawn : bool
        Whether ``shuffle_seed`` was drawn, not given (ARG-5, RES-1).
    """

    rows: int
    num_splits: int
    world_size: int = 1
    rank: int = 0
    shuffle: bool = True
    shuffle_seed: int | None = None
    shuffle_clump_size: int | None = None
    partial_cycle: str = "replay"
    filter: str | None = None
    table_name: str = "table"
    table_version: int = 1
    schema_fingerprint: str = "0" * 64
    seed_drawn: bool = False

    def __post_init__(self) -> None:
        """Refuse what the constructor refuses."""
        self._check_world()
        self._check_order()
        if not isinstance(self.partial_cycle, str):
            raise ModelError("argument.type", "partial_cycle")
        if self.partial_cycle not in ("replay", "exact"):
            raise ModelError("argument.value", "partial_cycle")
        if self.filter is not None and not isinstance(self.filter, str):
            raise ModelError("argument.type", "filter")
        if self.filter == "":
            raise ModelError("argument.value", "filter")
        # Last, because arguments are checked before anything is read (chapter arguments).
        if self.rows < self.num_splits:
            raise ModelError("data.too_few_rows", f"{self.rows} rows, {self.num_splits} splits")

    def _check_world(self) -> None:
        """ARG-3, ARG-7, ASG-2."""
        check_int("num_splits", self.num_splits, 1)
        check_int("world_size", self.world_size, 1)
        check_int("rank", self.rank, 0, self.world_size - 1)
        if self.num_splits % self.world_size != 0:
            raise ModelError("argument.value", "num_splits is no multiple of world_size")

    def _check_order(self) -> None:
        """ARG-4, ARG-5, ARG-11."""
        if not isinstance(self.shuffle, bool):
            raise ModelError("argument.type", "shuffle")
        if self.shuffle_seed is not None:
            check_int("shuffle_seed", self.shuffle_seed, 0)
        if self.shuffle and self.shuffle_seed is None:
            raise ModelError("argument.value", "shuffle_seed: the model draws none")
        if self.seed_drawn and self.world_size != 1:
            raise ModelError("argument.value", "shuffle_seed: drawn only with one rank")
        if self.shuffle_clump_size is not None:
            check_int("shuffle_clump_size", self.shuffle_clump_size, 1)
            if not self.shuffle:
                raise ModelError("argument.value", "shuffle_clump_size without shuffle")

    def identity(self) -> dict[str, Any]:
        """The values of ``checkpoint.IDENTITY`` (CKP-3)."""
        return {
            "num_splits": self.num_splits,
            "shuffle": self.shuffle,
            "shuffle_seed": self.shuffle_seed,
            "shuffle_clump_size": self.shuffle_clump_size,
            "order_version": ORDER_VERSION,
            "filter": self.filter,
            "table_name": self.table_name,
            "table_version": self.table_version,
            "selected_rows": self.rows,
            "schema_fingerprint": self.schema_fingerprint,
        }

    def order(self, epoch: int) -> Order:
        """The order of an epoch."""
        return Order(self.rows, self.shuffle, self.shuffle_seed, epoch, self.shuffle_clump_size)


@dataclass(frozen=True)
class Loader:
    """One dataset and its newest iterator.

    Parameters
    ----------
    settings : Settings
        Never changes, except that a drawn seed gives way to that of a loaded state (RES-1).
    cursor : Cursor
        The rows received (DLV-1).
    alive : bool
        Whether an iterator is alive (DLV-4).
    failed : bool
        Whether the newest iterator ended by a failure (DLV-5).
    asked : bool
        Whether ``set_epoch`` asked for the cursor's epoch and no pass began since (EPO-4).
    moving : bool
        Whether the pass is one over the epoch after the cursor's, of which no row is received yet (EPO-2).
    replay : int
        ``samples_to_replay`` (RES-3, EPO-7).
    """

    settings: Settings
    cursor: Cursor
    alive: bool = False
    failed: bool = False
    asked: bool = False
    moving: bool = False
    replay: int = 0


# --- observations -------------------------------------------------------------------------------------------------------------------


def length(loader: Loader) -> int:
    """``len()``: the rows of a fresh epoch (CYC-5)."""
    settings = loader.settings
    return cycle.length(settings.rows, settings.num_splits, settings.world_size)


def remaining(loader: Loader) -> int:
    """``samples_remaining`` (CYC-5)."""
    settings = loader.settings
    return cycle.remaining(loader.cursor, settings.rows, settings.num_splits, settings.world_size, settings.rank)


def samples_to_replay(loader: Loader) -> int:
    """The rows of the last load's partial cycle which this rank receives again (RES-3, EPO-7)."""
    return loader.replay


def save(loader: Loader) -> dict[str, Any]:
    """``state_dict()``, at any moment (CKP-1, DLV-8)."""
    return checkpoint.save(loader.settings.identity(), loader.cursor, loader.settings.world_size)


def floor_state(loader: Loader) -> dict[str, Any]:
    """``floor_state_dict()`` (CKP-4)."""
    return checkpoint.floor(save(loader))


# --- iterating ----------------------------------------------------------------------------------------------------------------------


def open_loader(settings: Settings, epoch: int = 0) -> Loader:
    """A new dataset (EPO-1, ARG-6)."""
    check_int("epoch", epoch, 0)
    return Loader(settings, Cursor(epoch, 0, ()))


def guard_not_alive(loader: Loader) -> None:
    """At most one iterator, and no change of place under it (DLV-4)."""
    if loader.alive:
        raise ModelError("iterator.alive")


def start(loader: Loader) -> Loader:
    """Create an iterator (DLV-4). On a completed epoch its pass is one over the next (EPO-2), unless that one was asked for (EPO-4)."""
    guard_not_alive(loader)
    begun = replace(loader, alive=True, failed=False, asked=False, moving=False)
    if remaining(loader) > 0 or loader.asked:
        return begun
    check_int("epoch", loader.cursor.epoch + 1, 0)
    return replace(begun, moving=True)


def pull(loader: Loader) -> tuple[Loader, int | None]:
    """``next()`` on the iterator: the selected row number of one row, received with the return (DLV-1).

    Returns
    -------
    Loader
        After the row; no longer alive where the pass has ended.
    int or None
        None means StopIteration: the pass has ended, now or earlier.
    """
    if loader.failed:
        raise ModelError("iterator.failed")
    if not loader.alive:
        return loader, None
    if loader.moving:
        # The first row of the next epoch is about to be received: only now does the cursor move (EPO-2, EPO-7).
        loader = replace(loader, cursor=Cursor(loader.cursor.epoch + 1, 0, ()), moving=False, replay=0)
    if remaining(loader) == 0:
        return replace(loader, alive=False), None
    settings, cursor = loader.settings, loader.cursor
    split = cycle.next_split(cursor, settings.num_splits, settings.world_size, settings.rank)
    position = sequence_position(settings.rows, settings.num_splits, split, cursor.cycle)
    row = settings.order(cursor.epoch).row(position)
    return replace(loader, cursor=cycle.advance(cursor, settings.num_splits, settings.world_size)), row


def close(loader: Loader) -> Loader:
    """Close or drop the iterator; a later one continues where it stopped (DLV-4)."""
    return replace(loader, alive=False)


def fail(loader: Loader) -> Loader:
    """A transform, a read or an interrupt fails inside ``next()``: the row on its way is not received (DLV-5, DLV-6)."""
    if not loader.alive:
        return loader
    return replace(loader, alive=False, failed=True)


# --- moving -------------------------------------------------------------------------------------------------------------------------


def load(loader: Loader, state: object) -> Loader:
    """``load_state_dict(state)`` (CKP-7, RES-1 to RES-6, EPO-6)."""
    guard_not_alive(loader)
    settings = loader.settings
    cursor = checkpoint.load(state, settings.identity(), settings.world_size, settings.partial_cycle, settings.seed_drawn)
    copy = checkpoint.check_form(state)
    replay = 0
    if settings.partial_cycle == "replay":
        served = tuple(copy["partial_cycle_splits"])
        replay = cycle.owned_served(served, settings.num_splits, settings.world_size, settings.rank)
    if settings.seed_drawn:
        settings = replace(settings, shuffle_seed=copy["shuffle_seed"])
    return replace(loader, settings=settings, cursor=cursor, asked=False, replay=replay)


def set_epoch(loader: Loader, epoch: int) -> Loader:
    """``set_epoch(epoch)``: another epoch starts at its beginning, the current one keeps its cursor (EPO-4, EPO-7, ARG-15)."""
    check_int("epoch", epoch, 0)
    guard_not_alive(loader)
    if epoch == loader.cursor.epoch:
        return replace(loader, asked=True)
    return replace(loader, cursor=Cursor(epoch, 0, ()), asked=True, replay=0)


def rewind(loader: Loader) -> Loader:
    """``rewind()``: to the beginning of the current epoch (EPO-5, EPO-7)."""
    guard_not_alive(loader)
    return replace(loader, cursor=Cursor(loader.cursor.epoch, 0, ()), replay=0)

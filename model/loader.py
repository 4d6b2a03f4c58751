"""A dataset as a transition system (chapters delivery, checkpoint and calls).

Each transition is a function: its guard raises ``ModelError``, its effect is the loader that it returns, its
observation, where there is one, comes beside it. Nothing changes in place, so a refusal changes nothing (RES-5, LAW-8).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from model import checkpoint, cycle, identity
from model.assignment import sequence_position
from model.cycle import Cursor
from model.errors import ModelError
from model.settings import Settings, check_int

# What others may take from here although it is defined elsewhere.
__all__ = ["Loader", "Settings"]


@dataclass(frozen=True)
class Loader:
    """One dataset and its newest iterator.

    Parameters
    ----------
    settings : Settings
        A load may change the seed, where it was drawn (IDN-6), and the version that the dataset stands on (IDN-7); nothing else does.
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


def load(loader: Loader, state: object, accept: object = ()) -> Loader:
    """``load_state_dict(state, accept=...)`` (CKP-7, RES-3 to RES-7, IDN-6 to IDN-11, EPO-6).

    Parameters
    ----------
    loader : Loader
        Its ``settings.versions`` are the versions that its table has now.
    state : object
        Anything; it is neither changed nor kept.
    accept : list, tuple or set of str
        The differences that are no refusal (IDN-11).
    """
    accepted = identity.check_accept(accept)
    guard_not_alive(loader)
    copy = checkpoint.check_form(state)
    settings = loader.settings
    standing = identity.fit(
        copy,
        settings.identity(),
        settings.pinned(),
        {version.number: version for version in settings.versions},
        version_given=settings.version_given,
        seed_drawn=settings.seed_drawn,
        accept=accepted,
    )
    settings = settings.standing_on(standing)
    if settings.seed_drawn and copy["shuffle"]:
        settings = replace(settings, shuffle_seed=copy["shuffle_seed"])
    cursor = checkpoint.load(copy, settings.world_size, settings.partial_cycle)
    replay = 0
    if settings.partial_cycle == "replay":
        served = tuple(copy["partial_cycle_splits"])
        replay = cycle.owned_served(served, settings.num_splits, settings.world_size, settings.rank)
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

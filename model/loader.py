"""A dataset as a transition system (chapters delivery, checkpoint and calls).

Each transition is a function: its guard raises ``ModelError``, its effect is the loader that it returns, its
observation, where there is one, comes beside it. Nothing changes in place, so a refusal changes nothing (RES-5, LAW-8).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from model import checkpoint, cycle, identity
from model.assignment import sequence_position
from model.cycle import Cursor
from model.errors import ModelError
from model.settings import Settings, check_int

# What others may take from here although it is defined elsewhere.
__all__ = ["Loader", "Settings"]

Stage = Literal["waiting", "live", "ended", "failed", "superseded"]
"""Of one iterator (CAL-3): waiting for its first ``next()``, its pass has rows left, or one of three ends; an end stays."""


@dataclass(frozen=True)
class Loader:
    """One dataset and its two newest iterators; those before them stay as they are.

    Parameters
    ----------
    settings : Settings
        A load may change the seed, where it was drawn (IDN-6), and the version that the dataset stands on (IDN-7); nothing else does.
    cursor : Cursor
        The rows received (DLV-1).
    newest, older : Stage
        Of the newest iterator and of the one before it; "ended" where there is none yet. Only the newest can be waiting or live (DLV-4).
    asked : bool
        Whether ``set_epoch`` asked for the cursor's epoch and no pass began since (EPO-4).
    replay : int
        ``samples_to_replay`` (RES-3, EPO-7).
    """

    settings: Settings
    cursor: Cursor
    newest: Stage = "ended"
    older: Stage = "ended"
    asked: bool = False
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


def origin(loader: Loader) -> Cursor:
    """Where a pass begins that begins now: in the next epoch, if this one is completed (EPO-2) and was not asked for (EPO-4)."""
    if remaining(loader) > 0 or loader.asked:
        return loader.cursor
    check_int("epoch", loader.cursor.epoch + 1, 0)
    return Cursor(loader.cursor.epoch + 1, 0, ())


def may_deliver(stage: Stage) -> bool:
    """Whether ``next()`` on an iterator can still give a row."""
    return stage in ("waiting", "live")


def start(loader: Loader) -> Loader:
    """``iter()``: a newer iterator, that waits; the one before it is superseded where it could still deliver (DLV-4).

    That an iterator is inside its ``next()``, where this is refused, has no counterpart here: a transition is indivisible.
    """
    origin(loader)
    return replace(loader, newest="waiting", older="superseded" if may_deliver(loader.newest) else loader.newest)


def refuse_over(stage: Stage) -> None:
    """What ``next()`` raises, every time, on an iterator whose end was no end of a pass (CAL-3)."""
    if stage in ("failed", "superseded"):
        raise ModelError(f"iterator.{stage}")


def pull(loader: Loader) -> tuple[Loader, int | None]:
    """``next()`` on the newest iterator: the selected row number of one row, received with the return (DLV-1).

    The first one begins the pass, at the place of now (DLV-4).

    Returns
    -------
    Loader
        After the row; its pass is over where that was the last.
    int or None
        None means StopIteration: the pass has ended, now or earlier.
    """
    if not may_deliver(loader.newest):
        refuse_over(loader.newest)
        return loader, None
    settings, cursor = loader.settings, origin(loader) if loader.newest == "waiting" else loader.cursor
    if remaining(replace(loader, cursor=cursor)) == 0:
        # The pass that set_epoch asked for is empty (EPO-4).
        return replace(loader, newest="ended", asked=False), None
    split = cycle.next_split(cursor, settings.num_splits, settings.world_size, settings.rank)
    position = sequence_position(settings.rows, settings.num_splits, split, cursor.cycle)
    row = settings.order(cursor.epoch).row(position)
    return received(loader, cycle.advance(cursor, settings.num_splits, settings.world_size)), row


def received(loader: Loader, cursor: Cursor) -> Loader:
    """The place after some rows: in another epoch nothing is to be replayed (EPO-7), and with the last row the pass is over (DLV-4)."""
    replay = loader.replay if cursor.epoch == loader.cursor.epoch else 0
    after = replace(loader, newest="live", cursor=cursor, asked=False, replay=replay)
    return after if remaining(after) > 0 else replace(after, newest="ended")


def pull_older(loader: Loader) -> tuple[Loader, None]:
    """``next()`` on the iterator before the newest: it never gives a row, and changes nothing (CAL-3)."""
    refuse_over(loader.older)
    return loader, None


def close(loader: Loader) -> Loader:
    """Close or drop the newest iterator; a later one continues where it stopped (DLV-4)."""
    return replace(loader, newest="ended") if may_deliver(loader.newest) else loader


def fail(loader: Loader) -> Loader:
    """A transform, a read or an interrupt fails inside ``next()``: the row on its way is not received (DLV-5, DLV-6)."""
    return replace(loader, newest="failed", asked=False) if may_deliver(loader.newest) else loader


# --- moving -------------------------------------------------------------------------------------------------------------------------


def guard_not_live(loader: Loader) -> None:
    """The place moves neither under a pass with rows left nor inside a ``next()``; a waiting iterator is no pass (DLV-4)."""
    if loader.newest == "live":
        raise ModelError("iterator.alive")


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
    guard_not_live(loader)
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
    guard_not_live(loader)
    if epoch == loader.cursor.epoch:
        return replace(loader, asked=True)
    return replace(loader, cursor=Cursor(epoch, 0, ()), asked=True, replay=0)


def rewind(loader: Loader) -> Loader:
    """``rewind()``: to the beginning of the current epoch (EPO-5, EPO-7)."""
    guard_not_live(loader)
    return replace(loader, cursor=Cursor(loader.cursor.epoch, 0, ()), replay=0)

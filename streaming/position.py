"""Where a dataset stands, and the one pass that may be under way (TRM-9, WRK-8, EPO-1 to EPO-7, DLV-4).

Everything that makes up the place is one immutable `Standing`, and every move is one assignment: an interrupt leaves the place
before the move or after it, and another thread sees the one or the other.
"""

from __future__ import annotations

import logging
import weakref
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from streaming.arguments import integer
from streaming.cycle import Cursor, RankSequence
from streaming.delivery import Delivery, ShardedDelivery
from streaming.errors import IteratorAliveError, MidStepError, MidStepStartError, PartialCycleStartError, UnknownPlaceError
from streaming.identity import Identity
from streaming.sharding import Shards
from streaming.source import Source
from streaming.topology import Topology

_log = logging.getLogger(__name__)


class Handle(Protocol):
    """What is to be known of an iterator."""

    @property
    def begun(self) -> bool:
        """Whether it was ever asked for a row."""

    @property
    def inside(self) -> bool:
        """Whether some thread is inside its ``next()``."""

    @property
    def over(self) -> bool:
        """Whether it has ended, for good."""

    def supersede(self) -> None:
        """End it because there is a newer one."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Standing:
    """A place, what it is a place in, and how rows received since are counted.

    Parameters
    ----------
    source, identity
        The data.
    sequence : RankSequence
        The rank's rows from where the pass began (or will begin) to the end of the epoch.
    delivery : Delivery
        Counts what was received of them.
    completed : Cursor or None
        The end of the epoch before, while a pass over the next one is under way (EPO-2).
    replay : int
        Rows that come a second time because of the last load (EPO-7).
    asked : bool
        Whether ``set_epoch`` asked for this epoch (EPO-4).
    travelled : bool
        Whether a copy went to a plain DataLoader's worker, or this is a copy in one of several (WRK-19).
    """

    source: Source
    identity: Identity
    sequence: RankSequence
    delivery: Delivery = field(default_factory=Delivery)
    completed: Cursor | None = None
    replay: int = 0
    asked: bool = False
    travelled: bool = False

    @property
    def split_length(self) -> int:
        """Rows of a split (L)."""
        return self.identity.selected_rows // self.identity.num_splits

    def cursor(self) -> Cursor | None:
        """The cursor; None between step boundaries (WRK-8)."""
        progress = self.delivery.progress()
        if isinstance(progress, Shards):
            return self._waiting(progress.rows_received) or progress.boundary()
        return self._waiting(progress) or self.sequence.cursor(progress)

    def floor(self) -> Cursor:
        """The completed cycles only (CKP-4, WRK-10)."""
        progress = self.delivery.progress()
        if isinstance(progress, Shards):
            return self._waiting(progress.rows_received) or progress.floor()
        return replace(self._waiting(progress) or self.sequence.cursor(progress), served=())

    def remaining(self) -> int:
        """Rows left in the current epoch."""
        received = self.delivery.received
        return 0 if self._waiting(received) else len(self.sequence) - received

    def replaying(self) -> int:
        """`replay`, until the first row of the next epoch."""
        return self.replay if self.completed is None or self._waiting(self.delivery.received) else 0

    def _waiting(self, received: int) -> Cursor | None:
        """The completed epoch's end, as long as nothing of the next epoch is received (EPO-2)."""
        return self.completed if received == 0 else None


class Position:
    """The place of one rank, and its moves.

    Parameters
    ----------
    topology : Topology
        Splits and ranks.
    source, identity
        The data.
    epoch : int
        The first epoch.
    """

    def __init__(self, topology: Topology, source: Source, identity: Identity, epoch: int) -> None:
        self._topology = topology
        self._newest: weakref.ref[Handle] | None = None
        self._taken_before = 0
        self._elsewhere: tuple[weakref.ref[Any], ...] = ()
        self._standing = self._at(Cursor(epoch), source, identity)

    @property
    def standing(self) -> Standing:
        """Everything about the place at one moment; take it once and read from it."""
        return self._standing

    @property
    def rows_taken(self) -> int:
        """Rows received in all passes since the dataset was built."""
        return self._taken_before + self._standing.delivery.received

    def checkpoint(self) -> tuple[Standing, Cursor]:
        """What a state is made from, both of one moment.

        Raises
        ------
        MidStepError
            The splits of this rank have different counts (WRK-9).
        UnknownPlaceError
            A plain DataLoader delivers in worker processes, or this is one of several such workers (WRK-19).
        """
        standing = self._standing
        if standing.travelled:
            raise UnknownPlaceError(
                "worker processes of a plain DataLoader (several ones of a StatefulDataLoader) deliver rows that this dataset does not "
                "see, so its place is not known: use StreamingDataLoader, or end that loader's iterator (del it; no persistent_workers), "
                "then call load_state_dict or set_epoch"
            )
        cursor = standing.cursor()
        if cursor is None:
            raise MidStepError(
                f"the splits of this rank have different counts: take {standing.delivery.batches_to_boundary()} more batches to the next "
                "step boundary, or save floor_state_dict(), which replays what lies beyond the completed cycles"
            )
        return standing, cursor

    # ---- moves

    def go_to(self, cursor: Cursor, source: Source, identity: Identity, replay: int = 0) -> None:
        """Stand at a cursor; `replay` rows of this rank come again."""
        self._install(self._at(cursor, source, identity, replay))

    def ask_for(self, epoch: int) -> None:
        """EPO-4: another epoch starts at its beginning, the current one keeps its place."""
        now = self._standing
        current, remaining = now.floor().epoch, now.remaining()
        if epoch == current:
            self._standing = replace(now, asked=True, travelled=bool(self._delivering()))
            return
        begun = self._at(Cursor(epoch), now.source, now.identity)
        if 0 < remaining < len(begun.sequence):
            _log.warning("set_epoch(%d) leaves epoch %d with %d rows of this rank not received", epoch, current, remaining)
        self._install(replace(begun, asked=True))

    def rewind(self) -> None:
        """EPO-5."""
        now = self._standing
        self._install(self._at(Cursor(now.floor().epoch), now.source, now.identity))

    def travel(self, taking: object = None, *, away: bool = True) -> None:
        """Workers of a plain DataLoader deliver what is not seen here, in the trainer or in one of several of them (WRK-19).

        Parameters
        ----------
        taking : object
            In the trainer, torch's iterator that takes a copy there. While it lives the place is not known, whatever moves.
        away : bool
            False in an only worker, which sees everything.
        """
        if taking is not None:
            self._elsewhere = (*self._delivering(), weakref.ref(taking))
        self._standing = replace(self._standing, travelled=away)

    # ---- passes

    def refuse_if_alive(self, what: str) -> None:
        """Refuse a move under a pass with rows left (DLV-4)."""
        # Nothing in this frame may refer to the iterator: whoever keeps the exception would keep it alive.
        self._refuse_inside(what)
        if self._is_alive():
            raise IteratorAliveError(
                f"{what} while a pass of this dataset is alive: exhaust it, close() it (loader.close(), dataset.close()), or drop every "
                "reference to its iterator"
            )

    def supersede(self, iterator: Handle, workers: int = 1, *, continuing: bool = True) -> None:
        """Guards and effect of creating an iterator (DLV-4). Its pass begins later, with `begin`, which has the same guards.

        Parameters
        ----------
        iterator : Handle
            The new one.
        workers, continuing
            As for `begin`.
        """
        self._refuse_inside("a second iterator")
        self._next_standing(Delivery(), workers, 1, continuing)
        alive = self._is_alive()
        older = self._newest() if self._newest is not None else None
        if older is not None:
            older.supersede()
        self._newest = weakref.ref(iterator)
        if alive:
            _log.warning(
                "a pass of this dataset with %d rows left is ended by a newer iterator, which goes on behind it. If the newer one is not "
                "for training, a state saved from now on counts rows that training never saw",
                self._standing.remaining(),
            )

    def begin(self, delivery: Delivery, workers: int = 1, batch_size: int = 1, *, continuing: bool = True) -> Standing:
        """Guards and effect of beginning a pass (EPO-2, EPO-4, WRK-11, WRK-12).

        Parameters
        ----------
        delivery : Delivery
            Counts the rows of the pass, unless several workers do.
        workers : int
            Workers that own splits of their own; 1 for everything but documented mode with several.
        batch_size : int
            Rows of a batch, with several workers.
        continuing : bool
            Whether several workers may go on where as many stopped.

        Returns
        -------
        Standing
            The place at which the pass begins.
        """
        now = self._standing
        begun = self._next_standing(delivery, workers, batch_size, continuing)
        if now.asked and not begun.remaining():
            _log.warning("set_epoch(%d) asked for an epoch that is already completed: this pass is empty", now.floor().epoch)
        self._elsewhere = ()
        self._install(begun)
        return begun

    def close(self) -> None:
        """End the newest iterator, if it is not over."""
        newest = self._newest() if self._newest is not None else None
        if newest is not None:
            newest.close()

    # ---- inside

    def __getstate__(self) -> dict[str, object]:
        """A copy has no iterator, and counts by itself; where the place is not known, it does not know it either."""
        standing = replace(self._standing, delivery=copy(self._standing.delivery))
        return {**vars(self), "_standing": standing, "_newest": None, "_elsewhere": ()}

    def _at(self, cursor: Cursor, source: Source, identity: Identity, replay: int = 0) -> Standing:
        sequence = RankSequence(self._topology, identity.selected_rows // identity.num_splits, cursor)
        return Standing(source, identity, sequence, replay=replay)

    def _next_standing(self, delivery: Delivery, workers: int, batch_size: int, continuing: bool) -> Standing:
        """Where a pass would begin now, or why it cannot."""
        now = self._standing
        cursor = now.cursor()
        if cursor is None:
            shards = now.delivery.progress()
            if not isinstance(shards, Shards) or workers != shards.workers or not continuing:
                stopped = shards.workers if isinstance(shards, Shards) else 0
                raise MidStepStartError(
                    f"the last pass stopped between step boundaries of {stopped} workers: continue with as many, or load floor_state_dict()"
                )
            return replace(now, delivery=ShardedDelivery(shards, batch_size), asked=False, travelled=False)
        if workers > 1 and cursor.served:
            raise PartialCycleStartError(
                f"{workers} workers cannot begin in a partial cycle: finish it with num_workers <= 1 or "
                'worker_sharding="batches", or resume with partial_cycle="replay"'
            )
        begun = self._begun(now, cursor)
        if workers > 1:
            splits, rows = self._topology.splits_per_rank // workers, len(begun.sequence) // workers
            delivery = ShardedDelivery(Shards(begun.sequence.start, splits, rows, (0,) * workers), batch_size)
        return replace(begun, delivery=delivery)

    def _begun(self, now: Standing, cursor: Cursor) -> Standing:
        """The start of a pass from a cursor, or over the next epoch (EPO-2)."""
        if now.remaining() or now.asked:
            return self._at(cursor, now.source, now.identity, now.replaying())
        following = Cursor(integer("epoch", cursor.epoch + 1, 0))
        return replace(self._at(following, now.source, now.identity, now.replaying()), completed=cursor)

    def _install(self, standing: Standing) -> None:
        """Move. What a plain DataLoader's iterator that lives on delivers after the move is not counted either (WRK-19)."""
        taken = self.rows_taken - standing.delivery.received
        self._standing = replace(standing, travelled=True) if self._delivering() else standing
        self._taken_before = taken

    def _delivering(self) -> tuple[weakref.ref[Any], ...]:
        """Iterators of plain DataLoaders that may still deliver from their workers."""
        return tuple(reference for reference in self._elsewhere if not getattr(reference(), "_shutdown", reference() is None))

    def _refuse_inside(self, what: str) -> None:
        newest = self._newest() if self._newest is not None else None
        if newest is not None and newest.inside:
            newest = None
            raise IteratorAliveError(f"{what} while an iterator of this dataset is inside its next(), in this thread or another one")

    def _is_alive(self) -> bool:
        """Whether there is a pass with rows left."""
        newest = self._newest() if self._newest is not None else None
        return newest is not None and newest.begun and not newest.over and self._standing.remaining() > 0

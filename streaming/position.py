"""Where a dataset stands, and the one pass that may be under way (TRM-9, WRK-8, EPO-1 to EPO-7, DLV-4)."""

from __future__ import annotations

import logging
import weakref
from copy import copy
from typing import Protocol

from streaming.arguments import integer
from streaming.cycle import Cursor, RankSequence
from streaming.delivery import Delivery, ShardedDelivery
from streaming.errors import IteratorAliveError, MidStepError, MidStepStartError, PartialCycleStartError, UnknownPlaceError
from streaming.sharding import Shards
from streaming.topology import Topology

_log = logging.getLogger("streaming")


class Pass(Protocol):
    """What the lease needs to know of an iterator."""

    @property
    def alive(self) -> bool:
        """Whether it may still deliver."""


class Position:
    """The place of one rank, and its moves. Rows received are counted by the delivery of the pass.

    Parameters
    ----------
    topology : Topology
        Splits and ranks.
    split_length : int
        Rows of a split (L).
    cursor : Cursor
        The first place.
    """

    def __init__(self, topology: Topology, split_length: int, cursor: Cursor) -> None:
        self._topology = topology
        self._delivery = Delivery()
        self._iterator: weakref.ref[Pass] | None = None
        self.go_to(cursor, split_length)

    # ---- observations

    @property
    def sequence(self) -> RankSequence:
        """The rank's rows from where the pass began, to the end of the epoch."""
        return self._sequence

    @property
    def epoch(self) -> int:
        """The epoch that the place belongs to."""
        return self.floor().epoch

    @property
    def remaining(self) -> int:
        """Rows left in the current epoch."""
        return 0 if self._resting else len(self._sequence) - self._delivery.received

    @property
    def replay(self) -> int:
        """Rows that come a second time because of the last load (EPO-7)."""
        return self._replay if self._completed is None or self._resting else 0

    def cursor(self) -> Cursor:
        """The place as a cursor.

        Raises
        ------
        MidStepError
            The splits of this rank have different counts (WRK-9).
        UnknownPlaceError
            A plain DataLoader delivers in worker processes (WRK-19).
        """
        if self._travelled:
            raise UnknownPlaceError(
                "a plain DataLoader with workers delivers rows that this dataset does not see, so its place is not known: "
                "use StreamingDataLoader, or call load_state_dict or set_epoch"
            )
        cursor = self._known_cursor()
        if cursor is None:
            raise MidStepError(
                f"the splits of this rank have different counts: take {self._delivery.batches_to_boundary()} more batches to the next step "
                "boundary, or save floor_state_dict(), which replays what lies beyond the completed cycles"
            )
        return cursor

    def floor(self) -> Cursor:
        """The completed cycles only (CKP-4, WRK-10)."""
        if self._completed is not None and self._resting:
            return self._completed
        return self._delivery.floor(self._sequence)

    # ---- moves

    def go_to(self, cursor: Cursor, split_length: int, replay: int = 0) -> None:
        """Stand at a cursor; `replay` rows of this rank come again."""
        self._split_length, self._replay = split_length, replay
        self._stand(cursor)

    def ask_for(self, epoch: int) -> None:
        """EPO-4: another epoch starts at its beginning, the current one keeps its place."""
        if epoch != self.epoch:
            if 0 < self.remaining < len(self._whole()):
                _log.warning("set_epoch(%d) leaves epoch %d with %d rows of this rank not received", epoch, self.epoch, self.remaining)
            self.go_to(Cursor(epoch), self._split_length)
        self._asked, self._travelled = True, False

    def rewind(self) -> None:
        """EPO-5."""
        self.go_to(Cursor(self.epoch), self._split_length)

    def travel(self) -> None:
        """A copy goes to a worker of a plain DataLoader: what it delivers is not seen here (WRK-19)."""
        self._travelled = True

    # ---- passes

    def refuse_if_alive(self, what: str) -> None:
        """Refuse a second iterator, and a move under a live one (DLV-4)."""
        # Nothing in this frame may refer to the iterator: whoever keeps the exception would keep it alive.
        if self._iterator_alive():
            raise IteratorAliveError(
                f"{what} while an iterator of this dataset is alive: exhaust it, close() it, or drop every reference to it "
                "(del the iterator of a plain DataLoader)"
            )

    def begin(self, workers: int = 1, batch_size: int = 1, *, continuing: bool = True) -> Shards | None:
        """Guards and effect of creating an iterator (DLV-4, EPO-2, EPO-4, WRK-11, WRK-12).

        Parameters
        ----------
        workers : int
            Workers that own splits of their own; 1 for everything but documented mode with several.
        batch_size : int
            Rows of a batch, with several workers.
        continuing : bool
            Whether several workers may go on where as many stopped.

        Returns
        -------
        Shards or None
            The place of the workers, where there are several.
        """
        self.refuse_if_alive("a second iterator")
        cursor = self._known_cursor()
        if cursor is None:
            shards = self._delivery.shards
            if shards is None or workers != shards.workers or not continuing:
                raise MidStepStartError(
                    f"the last pass stopped between step boundaries of {0 if shards is None else shards.workers} workers: "
                    "continue with as many, or load floor_state_dict()"
                )
            return self._share(shards, batch_size)
        if workers > 1 and cursor.served:
            raise PartialCycleStartError(
                f"{workers} workers cannot begin in a partial cycle: finish it with num_workers <= 1 or "
                'worker_sharding="batches", or resume with partial_cycle="replay"'
            )
        completed = None
        if self.remaining == 0:
            if self._asked:
                _log.warning("set_epoch(%d) asked for an epoch that is already completed: this pass is empty", cursor.epoch)
            else:
                completed, cursor = cursor, Cursor(integer("epoch", cursor.epoch + 1, 0))
        self._replay = self.replay
        self._stand(cursor, completed)
        if workers == 1:
            return None
        rows = len(self._sequence) // workers
        return self._share(Shards(cursor, self._topology.splits_per_rank // workers, rows, (0,) * workers), batch_size)

    def attach(self, iterator: Pass, delivery: Delivery | None = None) -> None:
        """Lease the place to an iterator; rows that it delivers count by its delivery."""
        self._iterator = weakref.ref(iterator)
        if delivery is not None:
            self._delivery = delivery

    @property
    def delivery(self) -> Delivery:
        """What counts the rows of the pass."""
        return self._delivery

    # ---- inside

    def _whole(self) -> RankSequence:
        """The rank's rows of a fresh epoch."""
        return RankSequence(self._topology, self._split_length, Cursor(0))

    def __getstate__(self) -> dict[str, object]:
        """A copy has no iterator, and counts by itself."""
        return {**vars(self), "_delivery": copy(self._delivery), "_iterator": None, "_travelled": False}

    @property
    def _resting(self) -> bool:
        """Whether a pass over the next epoch has begun, of which no row is received yet (EPO-2)."""
        return self._completed is not None and self._delivery.received == 0

    def _known_cursor(self) -> Cursor | None:
        if self._completed is not None and self._resting:
            return self._completed
        return self._delivery.cursor(self._sequence)

    def _stand(self, cursor: Cursor, completed: Cursor | None = None) -> None:
        """Stand at a cursor, with no iterator and no rows received since, and nothing asked for."""
        self._completed = completed
        self._sequence = RankSequence(self._topology, self._split_length, cursor)
        self._delivery.fence()
        self._delivery = Delivery()
        self._iterator = None
        self._asked = self._travelled = False

    def _share(self, shards: Shards, batch_size: int) -> Shards:
        self._delivery.fence()
        self._delivery = ShardedDelivery(shards, batch_size)
        self._iterator = None
        self._asked = self._travelled = False
        return shards

    def _iterator_alive(self) -> bool:
        """Whether an iterator may still deliver; one whose batch never arrived can only fail (DLV-4)."""
        iterator = self._iterator() if self._iterator is not None else None
        return iterator is not None and iterator.alive and not self._delivery.in_flight

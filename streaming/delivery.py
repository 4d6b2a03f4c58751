"""What counts as received (spec/delivery.md): counting at the trainer's end of each transport."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

from streaming.cycle import Cursor, RankSequence
from streaming.errors import IteratorFailedError
from streaming.sharding import Shards


class Delivery:
    """Rows of one pass under bare iteration: a row that is handed out is received (DLV-1)."""

    def __init__(self) -> None:
        self.handed = 0
        self.exhausted = False
        self._fenced = False

    @property
    def received(self) -> int:
        """Rows that the trainer holds, counted from the start of the pass."""
        return self.handed

    @property
    def in_flight(self) -> bool:
        """Whether rows are handed out that have not arrived."""
        return self.handed > self.received

    @property
    def shards(self) -> Shards | None:
        """The place of several workers in documented mode, else None (WRK-8)."""
        return None

    def cursor(self, sequence: RankSequence) -> Cursor | None:
        """The place of the rows received of this sequence; None between step boundaries."""
        return sequence.cursor(self.received)

    def floor(self, sequence: RankSequence) -> Cursor:
        """The completed cycles only (CKP-4)."""
        return replace(sequence.cursor(self.received), served=())

    def commit(self, worker: int, count: int) -> None:  # noqa: ARG002
        """Count a batch of a StreamingDataLoader, as it is returned to the trainer (WRK-6)."""
        self.check()
        self.handed += count

    def batches_to_boundary(self) -> int:
        """Batches to the next step boundary (WRK-9)."""
        return 0

    def fence(self) -> None:
        """End this pass for good: a newer iterator or a load has taken over the place it stood at."""
        self._fenced = True

    def check(self) -> None:
        """Raise IteratorFailedError if the next row must not be handed out (DLV-5)."""
        if self._fenced:
            raise IteratorFailedError("this iterator was replaced after one of its batches never arrived; use the newer one")


class ShardedDelivery(Delivery):
    """Rows of one pass in documented mode with several workers (WRK-8)."""

    def __init__(self, shards: Shards, batch_size: int) -> None:
        super().__init__()
        self._shards, self._batch_size = shards, batch_size

    @property
    def received(self) -> int:
        """Rows committed since the workers' origin."""
        return sum(self._shards.received)

    @property
    def in_flight(self) -> bool:
        """Nothing is handed out before it is committed."""
        return False

    @property
    def shards(self) -> Shards | None:
        """The place of the workers."""
        return self._shards

    def cursor(self, sequence: RankSequence) -> Cursor | None:  # noqa: ARG002
        """The cursor at a step boundary, else None."""
        return self._shards.boundary()

    def floor(self, sequence: RankSequence) -> Cursor:  # noqa: ARG002
        """Cycles completed over all splits of the rank (WRK-10)."""
        return self._shards.floor()

    def commit(self, worker: int, count: int) -> None:
        """Count a batch of this worker."""
        self.check()
        self._shards = self._shards.after(worker, count)

    def batches_to_boundary(self) -> int:
        """Batches to the next step boundary (WRK-9)."""
        return self._shards.batches_to_boundary(self._batch_size)


class BatchDelivery(Delivery):
    """Rows of one pass under torch's DataLoader without workers: they are received as batches (DLV-2).

    torch adds 1 to its iterator's ``_num_yielded`` after a batch is collated and just before it is returned. That attribute is
    replaced by an int that reports the addition here; the iterator itself is not referred to, so its life is not prolonged.
    """

    def __init__(self, torch_iterator: Any) -> None:
        super().__init__()
        self._batch_size = int(torch_iterator._index_sampler.batch_size) if torch_iterator._auto_collation else 1
        self._drop_last = bool(torch_iterator._drop_last) and bool(torch_iterator._auto_collation)
        self._batches = 0
        torch_iterator._num_yielded = _ReportingCount(self)

    @property
    def received(self) -> int:
        """Rows in delivered batches; a tail dropped by ``drop_last`` is received with the end."""
        arrived = self._batches * self._batch_size
        if self.exhausted and self._drop_last and self.handed - arrived < self._batch_size:
            return self.handed
        return min(self.handed, arrived)

    def check(self) -> None:
        """Also refuse to begin a batch when the one before never arrived."""
        super().check()
        if self.handed % self._batch_size == 0 and self.handed != self._batches * self._batch_size:
            raise IteratorFailedError(_LOST_BATCH)

    def batch_arrived(self) -> None:
        """Count a batch, unless rows before it are missing."""
        super().check()
        arrived = (self._batches + 1) * self._batch_size
        if self.handed != arrived and not (self.exhausted and 0 <= arrived - self.handed < self._batch_size):
            raise IteratorFailedError(_LOST_BATCH)
        self._batches += 1


_LOST_BATCH = (
    "a batch of this iterator never arrived (its transform or collate_fn failed, or it was interrupted), so the iterator is over; "
    "its rows are not counted as received: a new iterator starts with them"
)


class _ReportingCount(int):
    """Number of delivered batches, as torch counts them, which reports each addition."""

    _delivery: BatchDelivery

    def __new__(cls, delivery: BatchDelivery, value: int = 0) -> _ReportingCount:
        self = super().__new__(cls, value)
        self._delivery = delivery
        return self

    def __iadd__(self, other: int) -> _ReportingCount:
        # Counted last: an interrupt before leaves the batch uncounted.
        count = _ReportingCount(self._delivery, int(self) + other)
        self._delivery.batch_arrived()
        return count


def watch(dataset: object) -> Delivery:
    """Delivery for an iterator that is being created: called from the dataset's ``__iter__`` (DLV-1 to DLV-3).

    Looks up the call stack. Only when torch's own fetcher asks for the iterator of this very dataset are its rows
    the rows of torch's batches; through a wrapper they need not be.
    """
    frame: FrameType | None = sys._getframe(2)
    fetcher = frame.f_locals if frame else {}
    if type(fetcher.get("self")).__name__ != "_IterableDatasetFetcher" or fetcher.get("dataset") is not dataset:
        return Delivery()
    for _ in range(3):
        frame = frame.f_back if frame else None
        torch_iterator = frame.f_locals.get("self") if frame else None
        if type(torch_iterator).__name__ == "_SingleProcessDataLoaderIter":
            known = {"_num_yielded", "_drop_last", "_auto_collation", "_index_sampler"} <= vars(torch_iterator).keys()
            return BatchDelivery(torch_iterator) if known else Delivery()
    return Delivery()

"""What counts as received (spec/delivery.md): counting at the trainer's end of each transport."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

from streaming.errors import IteratorFailedError, WorkerFailedError
from streaming.sharding import Shards


class Delivery:
    """Rows of one pass: a row that is handed out is received (DLV-1), a batch when it is committed (WRK-6)."""

    def __init__(self) -> None:
        self.handed = 0
        self.exhausted = False
        self._fenced = False

    @property
    def received(self) -> int:
        """Rows that the trainer holds, counted from the start of the pass."""
        return self.handed

    def progress(self) -> int | Shards:
        """What was received: rows of the rank's sequence, or of each of several workers (WRK-8)."""
        return self.received

    @property
    def busy(self) -> bool:
        """Whether a batch is being made now, whose rows are handed out and have not arrived."""
        return False

    @property
    def dead(self) -> bool:
        """Whether this pass can only fail, unless it is `busy`."""
        return self._fenced

    def batches_to_boundary(self) -> int:
        """Batches to the next step boundary (WRK-9)."""
        return 0

    def fence(self) -> None:
        """End this pass for good: a newer iterator or a load has taken over the place it stood at."""
        self._fenced = True

    def check(self) -> None:
        """Raise IteratorFailedError if the pass was fenced off (DLV-5)."""
        if self._fenced:
            raise IteratorFailedError("this iterator was replaced after it failed, or while it was in mid-batch; use the newer one")

    def commit(self, worker: int, count: int) -> None:
        """Count a batch of a StreamingDataLoader, as it is returned to the trainer (WRK-6).

        Raises
        ------
        WorkerFailedError
            Another worker's batch was due: one is missing, and counting on would lose it.
        """
        self.check()
        if worker != self._due():
            raise WorkerFailedError(f"a batch of worker {self._due()} is missing: worker {worker}'s came in its place")
        self._count(worker, count)

    def _due(self) -> int:
        """The worker whose batch comes next."""
        return 0

    def _count(self, worker: int, count: int) -> None:  # noqa: ARG002
        self.handed += count

    def restore(self, progress: int | Shards) -> None:
        """Uncount a batch that did not arrive after all; the pass is over then."""
        if isinstance(progress, int):
            self.handed = progress


class DealtDelivery(Delivery):
    """Rows of one pass whose batches are dealt out to several workers in turn (WRK-4)."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self._workers, self._batches = workers, 0

    def _due(self) -> int:
        return self._batches % self._workers

    def _count(self, worker: int, count: int) -> None:  # noqa: ARG002
        self._batches += 1
        self.handed += count


class ShardedDelivery(Delivery):
    """Rows of one pass in documented mode with several workers (WRK-8)."""

    def __init__(self, shards: Shards, batch_size: int) -> None:
        super().__init__()
        self._shards, self._batch_size = shards, batch_size

    @property
    def received(self) -> int:
        """Rows committed since the workers' origin."""
        return self._shards.rows_received

    def progress(self) -> int | Shards:
        """The place of the workers."""
        return self._shards

    def _due(self) -> int:
        return self._shards.next_worker()

    def _count(self, worker: int, count: int) -> None:
        self._shards = self._shards.after(worker, count)

    def restore(self, progress: int | Shards) -> None:
        """Uncount a batch that did not arrive after all."""
        if isinstance(progress, Shards):
            self._shards = progress

    def batches_to_boundary(self) -> int:
        """Batches to the next step boundary (WRK-9)."""
        return self._shards.batches_to_boundary(self._batch_size)


class BatchDelivery(Delivery):
    """Rows of one pass under torch's DataLoader without workers: they are received as batches (DLV-2).

    torch's iterator takes an index from its ``_sampler_iter`` before it makes a batch, and adds 1 to its ``_num_yielded`` after it has
    collated it, just before it returns it. Both attributes are replaced by ones that also report here. The iterator
    itself is referred to weakly, so that its life is not prolonged.
    """

    def __init__(self, torch_iterator: Any) -> None:
        super().__init__()
        self._batch_size = int(torch_iterator._index_sampler.batch_size) if torch_iterator._auto_collation else 1
        self._drop_last = bool(torch_iterator._drop_last) and bool(torch_iterator._auto_collation)
        self._batches = 0
        self._begun = False
        self._torch_iterator: weakref.ref[Any] | None = weakref.ref(torch_iterator)
        torch_iterator._sampler_iter = _ReportingSampler(self, torch_iterator._sampler_iter)
        torch_iterator._num_yielded = _ReportingCount(self)

    @property
    def received(self) -> int:
        """Rows in delivered batches; a tail dropped by ``drop_last`` is received with the end."""
        arrived = self._batches * self._batch_size
        if self.exhausted and self._drop_last and self.handed - arrived < self._batch_size:
            return self.handed
        return min(self.handed, arrived)

    @property
    def dead(self) -> bool:
        """Also where a batch was begun and, unless the pass is `busy` with it, never arrived."""
        return super().dead or self._begun

    def batch_begins(self) -> None:
        """Refuse to begin a batch when the one before never arrived: its rows would be lost (DLV-5)."""
        self.check()
        if self.received != self.handed:
            raise IteratorFailedError(
                "a batch of this iterator never arrived (its transform or collate_fn failed, or it was interrupted), so the iterator "
                "is over; its rows are not counted as received: a new iterator starts with them"
            )
        self._begun = True

    def batch_arrives(self) -> None:
        """Count a batch."""
        self.check()
        self._begun = False
        self._batches += 1

    @property
    def busy(self) -> bool:
        """Whether torch's iterator is at work in some thread, rather than held by an exception that somebody keeps."""
        torch_iterator = self._torch_iterator() if self._begun and self._torch_iterator is not None else None
        if torch_iterator is None:
            return False
        frame: FrameType | None = None
        top: FrameType | None = None
        try:
            for top in sys._current_frames().values():
                frame = top
                while frame is not None:
                    if frame.f_code.co_name == "_next_data" and frame.f_locals.get("self") is torch_iterator:
                        return True
                    frame = frame.f_back
            return False
        finally:
            # This frame is one of them: if it held itself, the variables of all its callers would live on.
            frame = top = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_torch_iterator": None}


class _ReportingSampler(Iterator[Any]):
    """torch's iterator over indices, which reports that a batch begins."""

    def __init__(self, delivery: BatchDelivery, indices: Iterator[Any]) -> None:
        self._delivery, self._indices = delivery, indices

    def __next__(self) -> Any:
        index = next(self._indices)
        self._delivery.batch_begins()
        return index


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
        self._delivery.batch_arrives()
        return count


def watch(dataset: object) -> Delivery:
    """Delivery for an iterator that is being created: called from the dataset's ``__iter__`` (DLV-1 to DLV-3).

    Looks up the call stack. Only when torch's own fetcher asks for the iterator of this very dataset are its rows
    the rows of torch's batches; through a wrapper they need not be.
    """
    frame: FrameType | None = sys._getframe(2)
    # Only torch's frames are asked for their locals: the answer is kept with the frame, and would prolong the life of a user's variables.
    if frame is None or frame.f_code.co_name != "__init__" or not frame.f_code.co_filename.endswith("fetch.py"):
        return Delivery()
    if type(frame.f_locals.get("self")).__name__ != "_IterableDatasetFetcher" or frame.f_locals.get("dataset") is not dataset:
        return Delivery()
    for _ in range(3):
        frame = frame.f_back
        if frame is None or not frame.f_code.co_filename.endswith(("fetch.py", "dataloader.py")):
            break
        torch_iterator = frame.f_locals.get("self")
        if type(torch_iterator).__name__ == "_SingleProcessDataLoaderIter":
            needed = {"_num_yielded", "_sampler_iter", "_drop_last", "_auto_collation", "_index_sampler"}
            return BatchDelivery(torch_iterator) if needed <= vars(torch_iterator).keys() else Delivery()
    return Delivery()

"""What counts as received (spec/delivery.md): counting at the trainer's end of each transport."""

from __future__ import annotations

from streaming.errors import WorkerFailedError
from streaming.sharding import Shards


class Delivery:
    """Rows of one pass: a row that is handed out is received (DLV-1), a batch when it is committed (WRK-6)."""

    def __init__(self) -> None:
        self.handed = 0

    @property
    def received(self) -> int:
        """Rows that the trainer holds, counted from the start of the pass."""
        return self.handed

    def progress(self) -> int | Shards:
        """What was received: rows of the rank's sequence, or of each of several workers (WRK-8)."""
        return self.received

    def batches_to_boundary(self) -> int:
        """Batches to the next step boundary (WRK-9)."""
        return 0

    def commit(self, worker: int, count: int) -> None:
        """Count a batch of a StreamingDataLoader, as it is returned to the trainer (WRK-6).

        Raises
        ------
        WorkerFailedError
            Another worker's batch was due: one is missing, and counting on would lose it.
        """
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

    Parameters
    ----------
    batch_size : int
        Rows of a batch.
    drop_last : bool
        Whether torch throws away an incomplete batch at the end.
    """

    def __init__(self, batch_size: int, drop_last: bool) -> None:
        super().__init__()
        self.batches = 0
        self.rows = 0  # of the pass, once it has begun
        self.exhausted = False  # whether torch has said that there are no more batches
        self._batch_size, self._drop_last = batch_size, drop_last

    @property
    def received(self) -> int:
        """Rows in delivered batches; a tail dropped by ``drop_last`` is received with the batch before it."""
        return self.after(self.batches)

    def after(self, batches: int) -> int:
        """Rows received with so many batches."""
        arrived = min(self.handed, batches * self._batch_size)
        tail_is_dropped = self._drop_last and (batches > 0 or self.exhausted) and self.rows - arrived < self._batch_size
        return self.rows if tail_is_dropped else arrived

"""How the workers of one rank share its rows (spec/workers.md): sequences per worker, and the place between step boundaries."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streaming.cycle import Cursor, RankSequence
from streaming.errors import ArgumentValueError
from streaming.order import Positions
from streaming.topology import Topology


def worker_topology(topology: Topology, worker: int, workers: int) -> Topology:
    """The worker as a rank of a world of ``world_size * workers`` ranks (WRK-2)."""
    return Topology(topology.num_splits, topology.world_size * workers, topology.rank * workers + worker)


def check_workers(topology: Topology, workers: int) -> None:
    """Refuse workers that do not divide the splits of a rank (WRK-2)."""
    splits = topology.splits_per_rank
    if workers > 1 and splits % workers:
        raise ArgumentValueError(
            f"num_workers={workers} must divide the {splits} splits of a rank (num_splits // world_size); "
            'or use StreamingDataLoader with worker_sharding="batches"',
            "num_workers",
        )


class StridedSequence:
    """Every `stride`-th batch of a sequence, beginning with batch `first` (WRK-4).

    Examples
    --------
    >>> whole = RankSequence(Topology(num_splits=1, world_size=1, rank=0), split_length=7, start=Cursor(0))
    >>> odd = StridedSequence(whole, batch_size=2, first=1, stride=2)
    >>> odd.positions(0, len(odd)).tolist()
    [2, 3, 6]
    """

    def __init__(self, whole: RankSequence, batch_size: int, first: int, stride: int) -> None:
        self._whole, self._batch, self._first, self._stride = whole, batch_size, first, stride

    def __len__(self) -> int:
        batches, rest = divmod(len(self._whole), self._batch)
        mine = max(-(-(batches - self._first) // self._stride), 0)
        return mine * self._batch + (rest if batches % self._stride == self._first else 0)

    def positions(self, begin: int, end: int) -> Positions:
        """Positions of the rows ``begin <= j < end`` of this worker, an array of shape (end - begin,)."""
        batch, row = np.divmod(np.arange(begin, end, dtype=np.uint64), np.uint64(self._batch))
        return self._whole.at((batch * np.uint64(self._stride) + np.uint64(self._first)) * np.uint64(self._batch) + row)


@dataclass(frozen=True)
class Shards:
    """A rank's place in documented mode with several workers (WRK-8).

    Parameters
    ----------
    origin : Cursor
        The cycle boundary at which sharding began.
    splits : int
        Splits of each worker (k).
    rows : int
        Rows of each worker from the origin to the end of the epoch.
    received : tuple of int
        Rows committed of each worker since the origin.
    turn : int
        The worker that delivers next.
    """

    origin: Cursor
    splits: int
    rows: int
    received: tuple[int, ...]
    turn: int = 0

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.received)

    @property
    def rows_received(self) -> int:
        """Rows committed of all workers."""
        return sum(self.received)

    def next_worker(self) -> int:
        """The worker whose batch comes next: the first from the turn on that has rows left (WRK-3)."""
        order = [(self.turn + step) % self.workers for step in range(self.workers)]
        return next((worker for worker in order if self.received[worker] < self.rows), self.turn)

    def after(self, worker: int, count: int) -> Shards:
        """The place after a batch of this worker."""
        received = tuple(rows + count * (w == worker) for w, rows in enumerate(self.received))
        return replace(self, received=received, turn=(worker + 1) % self.workers)

    def boundary(self) -> Cursor | None:
        """The cursor at a step boundary, else None (WRK-8)."""
        rows = self.received[0]
        if rows % self.splits or any(other != rows for other in self.received):
            return None
        return replace(self.origin, cycle=self.origin.cycle + rows // self.splits)

    def floor(self) -> Cursor:
        """Cycles completed over all splits of the rank (WRK-10)."""
        return replace(self.origin, cycle=self.origin.cycle + min(self.received) // self.splits)

    def batches_to_boundary(self, batch_size: int) -> int:
        """How many more batches to take until the next step boundary (WRK-9), found by taking them."""
        place, batches = self, 0
        while place.boundary() is None:
            worker = place.next_worker()
            place = place.after(worker, min(batch_size, self.rows - place.received[worker]))
            batches += 1
        return batches

    def sequence(self, topology: Topology, split_length: int, worker: int) -> RankSequence:
        """What this worker still has to yield."""
        own = worker_topology(topology, worker, self.workers)
        whole = RankSequence(own, split_length, self.origin)
        return RankSequence(own, split_length, whole.cursor(self.received[worker]))

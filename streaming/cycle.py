"""The round-robin sequence of one rank (spec/cycle.md): cursors, what follows, what is left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming.order import Positions
from streaming.topology import Topology


@dataclass(frozen=True)
class Cursor:
    """A place in the stream, common to all ranks (TRM-9).

    Parameters
    ----------
    epoch : int
        Epoch.
    cycle : int
        Completed cycles C.
    served : tuple of int
        Splits, over all ranks and strictly ascending, already received in cycle C; never all of them.
    """

    epoch: int
    cycle: int = 0
    served: tuple[int, ...] = ()


class RankSequence:
    """What one rank yields from a cursor to the end of the epoch (CYC-2).

    The sequence has a ragged start, the unserved owned splits of the partial cycle, and then whole cycles.
    Row numbers j count from the cursor.

    Parameters
    ----------
    topology : Topology
        Splits and ranks.
    split_length : int
        Rows of a split (L).
    start : Cursor
        Where the sequence begins; `served` leaves every rank equally many splits (RES-4).

    Examples
    --------
    >>> sequence = RankSequence(Topology(num_splits=4, world_size=2, rank=1), split_length=2, start=Cursor(0, 0, (0, 2)))
    >>> sequence.positions(0, len(sequence)).tolist()
    [6, 5, 7]
    >>> sequence.cursor(1)
    Cursor(epoch=0, cycle=1, served=())
    """

    def __init__(self, topology: Topology, split_length: int, start: Cursor) -> None:
        self._topology = topology
        self._length = split_length
        self._start = start
        served = set(start.served)
        splits = range(topology.first_split, topology.first_split + topology.splits_per_rank)
        self._ragged = [s for s in splits if s not in served] if served else []
        # Whole cycles begin here.
        self._cycle = start.cycle + bool(served)

    @property
    def start(self) -> Cursor:
        """Where the sequence begins."""
        return self._start

    def __len__(self) -> int:
        """Rows from the cursor to the end of the epoch (CYC-5)."""
        return len(self._ragged) + (self._length - self._cycle) * self._topology.splits_per_rank

    def positions(self, begin: int, end: int) -> Positions:
        """Positions (ASG-4) of the rows ``begin <= j < end``, an array of shape (end - begin,)."""
        return self.at(np.arange(begin, end, dtype=np.uint64))

    def at(self, j: Positions) -> Positions:
        """Positions of these rows of the sequence, an array of the shape of `j`."""
        ragged = np.uint64(len(self._ragged))
        cycle, split = np.divmod(np.maximum(j, ragged) - ragged, np.uint64(self._topology.splits_per_rank))
        split += np.uint64(self._topology.first_split)
        cycle += np.uint64(self._cycle)
        if self._ragged:
            early = j < ragged
            split[early] = np.array(self._ragged, dtype=np.uint64)[j[early]]
            cycle[early] = np.uint64(self._start.cycle)
        return split * np.uint64(self._length) + cycle

    def cursor(self, received: int) -> Cursor:
        """Cursor after this rank, and so every rank, received that many rows (CYC-3, CYC-4)."""
        epoch = self._start.epoch
        if received < len(self._ragged):
            return Cursor(epoch, self._start.cycle, self._served_further(received))
        cycles, splits = divmod(received - len(self._ragged), self._topology.splits_per_rank)
        # The first splits of every block; vectorised, because a state must be cheap with thousands of splits.
        blocks = np.arange(self._topology.num_splits if splits else 0).reshape(-1, self._topology.splits_per_rank)
        served = blocks[:, :splits].ravel().tolist()
        return Cursor(epoch, self._cycle + cycles, tuple(served))

    def _served_further(self, received: int) -> tuple[int, ...]:
        """Splits of the partial cycle after every rank received so many of its unserved ones."""
        served = np.zeros(self._topology.num_splits, dtype=bool)
        served[list(self._start.served)] = True
        blocks = served.reshape(-1, self._topology.splits_per_rank)
        # The first unserved splits of every block.
        blocks |= np.cumsum(~blocks, axis=1) <= received
        return tuple(np.flatnonzero(served).tolist())

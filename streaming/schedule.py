"""Which rows a step holds, and when a row is due: a pure view of a fresh epoch (spec/cycle.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streaming.arguments import boolean, clump, integer
from streaming.cycle import Cursor, RankSequence
from streaming.errors import TooFewRowsError
from streaming.order import Order
from streaming.topology import resolve


@dataclass(frozen=True)
class Due:
    """Where and when a row comes in an epoch (CYC-7).

    Attributes
    ----------
    split, cycle : int
        The split, and the index of the row in it: the cycle that serves it.
    rank : int
        The rank that receives it.
    step : int
        That rank's batch, counted from the start of the epoch.
    index : int
        The row's index in the batch.
    """

    split: int
    cycle: int
    rank: int
    step: int
    index: int


@dataclass(frozen=True)
class Schedule:
    """A whole epoch of all ranks, without a table.

    Rows are *selected row numbers*: the k-th row of a scan of the pinned version, counted after the filter (TRM-1).
    Nothing here costs time or memory that grows with `rows`.

    Parameters
    ----------
    rows : int
        Selected rows N.
    num_splits, world_size, batch_size : int
        Splits; ranks; rows of one batch on one rank.
    shuffle, shuffle_seed, epoch, shuffle_clump_size
        As for `StreamingDataset`; a seed is required with shuffle.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, TooFewRowsError
        An argument has a wrong type or value; fewer rows than splits.

    Examples
    --------
    >>> schedule = Schedule(rows=12, num_splits=4, world_size=2, batch_size=2, shuffle=False)
    >>> schedule.steps
    3
    >>> schedule.step_rows(1, rank=0).tolist(), schedule.step_rows(1, rank=1).tolist()
    ([1, 4], [7, 10])
    >>> schedule.due(10)
    Due(split=3, cycle=1, rank=1, step=1, index=1)
    """

    rows: int
    num_splits: int
    world_size: int
    batch_size: int
    shuffle: bool = True
    shuffle_seed: int | None = None
    epoch: int = 0
    shuffle_clump_size: int | None = None
    _order: Order = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked = {name: integer(name, getattr(self, name), 1) for name in ("rows", "num_splits", "world_size", "batch_size")}
        checked["epoch"] = integer("epoch", self.epoch, 0)
        if boolean("shuffle", self.shuffle) or self.shuffle_seed is not None:
            checked["shuffle_seed"] = integer("shuffle_seed", self.shuffle_seed, 0)
        size = clump("shuffle_clump_size", self.shuffle_clump_size, self.shuffle)
        resolve(self.num_splits, 0, self.world_size)
        # NumPy integers would overflow in the arithmetic below.
        for name, value in {**checked, "shuffle_clump_size": size}.items():
            object.__setattr__(self, name, value)
        if self.rows < self.num_splits:
            raise TooFewRowsError(f"{self.rows} rows cannot fill num_splits={self.num_splits}")
        order = Order(self.rows, self.shuffle, self.shuffle_seed, self.epoch, self.shuffle_clump_size)
        object.__setattr__(self, "_order", order)

    @property
    def split_length(self) -> int:
        """Rows of each split (L)."""
        return self.rows // self.num_splits

    @property
    def steps(self) -> int:
        """Batches of each rank in the epoch, a short last one included."""
        return -(-self.split_length * self._splits_per_rank // self.batch_size)

    def step_rows(self, step: int, rank: int) -> npt.NDArray[np.uint64]:
        """Selected row numbers of one batch, in order, an array of shape (batch_size,) or shorter at the end (CYC-6).

        Raises
        ------
        ArgumentTypeError, ArgumentValueError
            `step` lies outside ``[0, steps)``, or `rank` outside ``[0, world_size)``.
        """
        begin = integer("step", step, 0, self.steps - 1) * self.batch_size
        topology = resolve(self.num_splits, integer("rank", rank, 0, self.world_size - 1), self.world_size)
        sequence = RankSequence(topology, self.split_length, Cursor(self.epoch))
        return self._order.row(sequence.positions(begin, min(begin + self.batch_size, len(sequence))))

    def due(self, row: int) -> Due | None:
        """Where and when a selected row comes; None if this epoch leaves it out (CYC-7, TRM-3).

        Raises
        ------
        ArgumentTypeError, ArgumentValueError
            `row` lies outside ``[0, rows)``.
        """
        number = integer("row", row, 0, self.rows - 1)
        position = int(self._order.position(np.array([number], dtype=np.uint64))[0])
        split, cycle = divmod(position, self.split_length)
        if split >= self.num_splits:
            return None
        rank, nth = divmod(split, self._splits_per_rank)
        step, index = divmod(cycle * self._splits_per_rank + nth, self.batch_size)
        return Due(split, cycle, rank, step, index)

    @property
    def _splits_per_rank(self) -> int:
        return self.num_splits // self.world_size

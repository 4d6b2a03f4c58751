"""The rows of a sequence as they are read: windows, cut short where they would bring too many bytes (REA-2).

The engine reads a window whole or not at all, and tells no sizes before. Where types do not say how large a row is, rows spread over a
window are read first: large neighbours, as at the seam of two sources in one table, are seen before all of them are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from streaming.order import Order, Positions
from streaming.source import Source
from streaming.window import Window

_FEWEST_LOOKS: Final = 8
_FEWEST_ROWS: Final = 16
_NEIGHBOURS: Final = 512
_SEAM: Final = 8  # times as large


class RowSequence(Protocol):
    """Which positions come, in order."""

    def __len__(self) -> int: ...

    def positions(self, begin: int, end: int) -> Positions:
        """Positions of the rows ``begin <= j < end``."""


@dataclass(frozen=True)
class Supply:
    """The rows of a sequence, to be read.

    Parameters
    ----------
    source, order, sequence
        Where rows are, which row is at a position, and which positions come.
    """

    source: Source
    order: Order
    sequence: RowSequence

    def __len__(self) -> int:
        return len(self.sequence)

    @property
    def row_bytes(self) -> float | None:
        """Bytes of a row, where its types say so."""
        return self.source.row_bytes

    def needs_looks(self, rows: int, largest: int) -> bool:
        """Whether rows of a window are to be looked at, where the largest before it had so many.

        Where all rows are shuffled, more of them are as large as those before.
        """
        if self.row_bytes is not None or rows <= _FEWEST_ROWS:
            return False
        return rows > 4 * largest or (rows >= _NEIGHBOURS and self.order.keeps_neighbours)

    def read(self, begin: int, end: int, most_bytes: int | None) -> tuple[Window, float]:
        """Read the rows ``begin <= j < end``, or fewer of them, and judge how many bytes each of the others has.

        With `most_bytes`, rows are looked at first, and no more are read than seem to fit.
        """
        rows = self.order.row(self.sequence.positions(begin, end))
        fits, judged = len(rows), np.zeros(0)
        if most_bytes is not None:
            judged = judged_bytes(self.source.take, rows, most_bytes)
            if judged.sum() > most_bytes:
                fits = max(1, int(np.searchsorted(np.cumsum(judged), most_bytes // 2, "right")))
        while True:
            try:
                window = self.source.take(rows[:fits])
                return window, float(judged[fits:].mean()) if len(judged) > fits else window.nbytes / fits
            except RuntimeError as error:
                # The engine cannot hold more than 2 GiB of a column; what it says of that is all that tells.
                if fits == 1 or "overflow" not in str(error):
                    raise
                fits //= 2


def judged_bytes(take: Callable[[Positions], Window], rows: Positions, most_bytes: int) -> npt.NDArray[np.float64]:
    """Bytes of each row, judged by the larger of the two that were looked at before and behind it in storage.

    Parameters
    ----------
    take : callable
        What reads rows.
    rows : array of shape (n,)
        Selected row numbers, more than 16.
    most_bytes : int
        Where few looks come to more, there are no further ones.

    Returns
    -------
    array of shape (n,)
    """
    stored = np.sort(rows)
    # Few at first: where all rows are large, the looks themselves cost most.
    for looks in sorted({_FEWEST_LOOKS, max(len(rows) // _NEIGHBOURS, _FEWEST_LOOKS)}):
        places = np.linspace(0, len(rows) - 1, looks).astype(np.int64)
        sizes = _looked_at(take, stored[places])
        if _between(places, sizes).sum() > most_bytes:
            break
    # Then where large rows begin and end.
    while _between(places, sizes).sum() > most_bytes:
        seams = np.flatnonzero((np.diff(places) > _FEWEST_ROWS) & (_larger(sizes) > _SEAM * -_larger(-sizes)))
        if not 0 < len(seams) <= _FEWEST_LOOKS:
            break
        between = (places[seams] + places[seams + 1]) // 2
        sizes = np.insert(sizes, seams + 1, _looked_at(take, stored[between]))
        places = np.insert(places, seams + 1, between)
    judged = np.empty(len(rows))
    judged[np.argsort(rows)] = _between(places, sizes)
    return judged


def _looked_at(take: Callable[[Positions], Window], rows: Positions) -> npt.NDArray[np.float64]:
    """Bytes of these rows."""
    seen = take(rows)
    return np.array([seen.read.slice(place, 1).nbytes for place in seen.index.tolist()], dtype=np.float64)


def _larger(sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of each two neighbours."""
    return np.maximum(sizes[:-1], sizes[1:])


def _between(places: npt.NDArray[np.int64], sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Bytes of every row from the first place to the last."""
    spans = np.diff(places)
    spans[-1] += 1
    return np.repeat(_larger(sizes), spans)

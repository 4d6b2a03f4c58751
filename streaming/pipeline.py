"""Read-ahead: the rows of a rank's sequence, window by window, from one background thread.

A window holds the rows of the next cycles over all owned splits together: one sorted read, however many
splits there are. At most two windows exist at a time, the one being consumed and the one being read.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol

import pyarrow as pa

from streaming.order import Order, Positions
from streaming.source import Source

_FIRST_ROWS: Final = 16
_GROWTH: Final = 8
_MOST_ROWS: Final = 32768


class RowSequence(Protocol):
    """Which positions come, in order."""

    def __len__(self) -> int: ...

    def positions(self, begin: int, end: int) -> Positions:
        """Positions of the rows ``begin <= j < end``."""


class WindowReader:
    """Windows of a sequence, in order.

    Parameters
    ----------
    source, order, sequence
        Where rows are, which row is at a position, and which positions come.
    read_ahead_bytes : int
        Bound on the Arrow bytes of both windows, judged by the mean row of the window before; a window holds at least one row, the
        first one at most 16.
    """

    def __init__(self, source: Source, order: Order, sequence: RowSequence, read_ahead_bytes: int) -> None:
        self._source, self._order, self._sequence = source, order, sequence
        self._window_bytes = max(read_ahead_bytes // 2, 1)
        self._submitted = 0
        self._reading: Future[pa.RecordBatch] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="streaming-read")
        self._submit(_FIRST_ROWS)

    def next_window(self) -> pa.RecordBatch | None:
        """Return the next window, at least one row, or None at the end; raises what the read raised."""
        if self._reading is None:
            return None
        window = self._reading.result()
        affordable = self._window_bytes * window.num_rows // max(window.nbytes, 1)
        self._submit(max(1, min(affordable, window.num_rows * _GROWTH, _MOST_ROWS)))
        return window

    def close(self) -> None:
        """Stop reading; a read in progress ends by itself."""
        self._reading = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self, rows: int) -> None:
        begin, end = self._submitted, min(self._submitted + rows, len(self._sequence))
        self._submitted = end
        # The work holds no reference to this reader, so that dropping an iterator ends it at once.
        self._reading = None if begin == end else self._thread.submit(_read, self._source, self._order, self._sequence, begin, end)


def _read(source: Source, order: Order, sequence: RowSequence, begin: int, end: int) -> pa.RecordBatch:
    return source.take(order.row(sequence.positions(begin, end)))

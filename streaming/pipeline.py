"""Read-ahead: the rows of a rank's sequence, window by window, from one background thread.

A window holds the rows of the next cycles over all owned splits together: one sorted read, however many
splits there are. At most two windows exist at a time, the one being consumed and the one being read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from streaming.order import Order, Positions
from streaming.source import Source

_FIRST_ROWS: Final = 16
_GROWTH: Final = 8
_MOST_ROWS: Final = 32768


Windows: TypeAlias = "SimpleQueue[pa.RecordBatch | BaseException]"


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
        Bound on the Arrow bytes of both windows. How large rows will be is judged by those of the windows before, so where rows
        grow suddenly one window exceeds its half by as much. A window holds 1 to 32768 rows, the first one at most 16.
    """

    def __init__(self, source: Source, order: Order, sequence: RowSequence, read_ahead_bytes: int) -> None:
        self._source, self._order, self._sequence = source, order, sequence
        self._window_bytes = max(read_ahead_bytes // 2, 1)
        self._row_bytes = 1.0
        self._submitted = 0
        # In C, unlike Future.result(): an interrupt while waiting leaves no lock behind in an odd state.
        self._windows: Windows = SimpleQueue()
        self._reading = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="streaming-read")
        self._submit(_FIRST_ROWS)

    def next_window(self) -> pa.RecordBatch | None:
        """Return the next window, at least one row, or None at the end; raises what the read raised."""
        if not self._reading:
            return None
        window = self._windows.get()
        if isinstance(window, BaseException):
            raise window
        # Large rows are remembered for a while.
        self._row_bytes = max(window.nbytes / window.num_rows, self._row_bytes / 2)
        affordable = int(self._window_bytes / self._row_bytes)
        self._submit(max(1, min(affordable, window.num_rows * _GROWTH, _MOST_ROWS)))
        return window

    def close(self) -> None:
        """Stop reading; a read in progress ends by itself."""
        self._reading = False
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self, rows: int) -> None:
        begin, end = self._submitted, min(self._submitted + rows, len(self._sequence))
        self._submitted, self._reading = end, begin < end
        if self._reading:
            try:
                # The work holds no reference to this reader, so that dropping an iterator ends it at once.
                self._thread.submit(_read, self._windows, self._source, self._order, self._sequence, range(begin, end))
            except BaseException:
                # Interrupted while the thread started: whoever keeps the exception would keep it waiting, at exit too.
                self.close()
                raise


def _read(windows: Windows, source: Source, order: Order, sequence: RowSequence, wanted: range) -> None:
    try:
        windows.put(source.take(order.row(sequence.positions(wanted.start, wanted.stop))))
    except BaseException as error:
        windows.put(error)

"""Read-ahead: the rows of a sequence, window by window, from background threads (spec/reading.md).

A window holds the next rows of all owned splits together: one sorted read, however many splits there are. One is consumed while
the next is read; where storage answers slowly, more are read at a time, within the same budget of bytes.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter
from typing import Final

import numpy as np
import pyarrow as pa

from streaming import arguments
from streaming.joining import below, whole
from streaming.stats import Meter
from streaming.supply import Supply
from streaming.window import Window

_FIRST_ROWS: Final = 16
_FIRST_MOST_ROWS: Final = 256
_GROWTH: Final = 8
_MOST_ROWS: Final = 32768
_MOST_BYTES: Final = 8 * 2**20
# Larger rows are read in smaller windows, two at a time: what costs then is new memory, not the read.
_LARGE_ROW_BYTES: Final = 32 * 2**10
_LARGE_ROWS_MOST_BYTES: Final = 4 * 2**20
_MOST_READS: Final = 8
_SLOW_SECONDS: Final = 0.05
_FREED_BYTES: Final = 16 * 2**20


@dataclass(frozen=True)
class ReadAhead:
    """What reading may cost (REA-2 to REA-5); it travels to workers.

    Parameters
    ----------
    budget : int
        Arrow bytes held and being read.
    most_rows : int
        Rows of a window.
    most_reads : int
        Reads at a time.
    """

    budget: int
    most_rows: int = _MOST_ROWS
    most_reads: int = _MOST_READS


def resolve(read_ahead_bytes: int, read_batch_size: int | None, io_queue_depth: int | None, splits: int) -> ReadAhead:
    """Check the arguments of a dataset whose rank owns so many splits (ARG-14, ARG-23, ARG-24).

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        One is wrong.
    """
    budget = arguments.integer("read_ahead_bytes", read_ahead_bytes, 1)
    rows, reads = _MOST_ROWS, _MOST_READS
    if read_batch_size is not None:
        rows = min(arguments.integer("read_batch_size", read_batch_size, 1) * splits, rows)
    if io_queue_depth is not None:
        reads = min(arguments.integer("io_queue_depth", io_queue_depth, 1), reads)
    return ReadAhead(budget, rows, reads)


class _Slot:
    """A window that is being read: its place in the sequence of windows."""

    def __init__(self, begin: int, end: int, judged: int) -> None:
        # In C, unlike Future.result(): an interrupt while waiting leaves no lock behind in an odd state.
        self.arrival: SimpleQueue[tuple[Window, float, float] | BaseException] = SimpleQueue()
        self.begin, self.end, self.judged = begin, end, judged
        self.nbytes = 0  # once it has arrived
        self.read: Future[None] | None = None


class WindowReader:
    """Windows of a sequence, in order.

    Parameters
    ----------
    supply : Supply
        The rows.
    ahead : ReadAhead
        Bounds.
    meter : Meter
        Where reads are counted.
    batch_rows : int or None
        Rows of the batches that will be made, if any (REA-3).
    """

    def __init__(self, supply: Supply, ahead: ReadAhead, meter: Meter, batch_rows: int | None = None) -> None:
        self._supply, self._ahead, self._meter = supply, ahead, meter
        self._batch_rows = batch_rows or 1
        self._row_bytes = supply.row_bytes or 0.0
        # Until this row no row is judged to be smaller than that.
        self._wary_until, self._wary_bytes = 0, 0.0
        self._largest = 0
        self._submitted = 0
        self._depth = 1
        self._quickest = float("inf")
        self._slots: deque[_Slot] = deque()
        self._held = 0
        self._threads = ThreadPoolExecutor(max_workers=ahead.most_reads, thread_name_prefix="streaming-read")
        meter.buffered = self.buffered
        # glibc gives memory back to the system at once until a piece as large has been freed; then windows use it again.
        np.empty(_FREED_BYTES, np.uint8)
        # Of rows that may have any size the first is read alone.
        self._submit(1 if supply.row_bytes is None else self._affordable(self._first_rows))

    def next_window(self) -> Window | None:
        """Return the next window, at least one row, or None at the end; raises what the read raised."""
        self._held = 0
        if not self._slots:
            return None
        slot = self._slots.popleft()
        waits = slot.arrival.empty()
        began = perf_counter()
        arrived = slot.arrival.get()
        meter = self._meter
        meter.wait_seconds += perf_counter() - began
        if isinstance(arrived, BaseException):
            raise arrived
        window, seconds, rest_bytes = arrived
        self._held = slot.nbytes
        meter.reads += 1
        meter.bytes_loaded += slot.nbytes
        meter.read_seconds += seconds
        self._quickest = min(self._quickest, seconds)
        if waits and self._quickest > _SLOW_SECONDS:
            self._depth = min(self._depth + 1, self._ahead.most_reads)
        self._largest = max(self._largest, len(window))
        # Large rows are remembered for a while.
        self._row_bytes = max(slot.nbytes / len(window), self._row_bytes / 2)
        if slot.begin + len(window) < slot.end:
            self._give_back(slot.begin + len(window), rest_bytes)
        self._fill()
        return window

    @property
    def ready(self) -> bool:
        """Whether `next_window` would return at once."""
        return not self._slots or not self._slots[0].arrival.empty()

    def buffered(self) -> int:
        """Arrow bytes held now."""
        return self._held + sum(slot.nbytes for slot in list(self._slots))

    def close(self) -> None:
        """Stop reading; reads in progress end by themselves."""
        self._slots.clear()
        self._held = 0
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _give_back(self, begin: int, row_bytes: float) -> None:
        """Read these rows again, as large ones, and with them what was to come behind them."""
        for slot in self._slots:
            if slot.read is not None:
                slot.read.cancel()
        self._slots.clear()
        self._wary_until, self._wary_bytes = self._submitted, row_bytes
        self._submitted = begin

    @property
    def _first_rows(self) -> int:
        return min(max(self._batch_rows, _FIRST_ROWS), _FIRST_MOST_ROWS)

    def _judged(self) -> float:
        """Bytes of a row that is read next."""
        return max(self._row_bytes, self._wary_bytes) if self._submitted < self._wary_until else self._row_bytes

    def _most_bytes(self) -> int:
        most = _LARGE_ROWS_MOST_BYTES if self._judged() > _LARGE_ROW_BYTES else _MOST_BYTES
        return min(self._ahead.budget // 2, most)

    def _affordable(self, rows: int) -> int:
        """So many rows, or as many of them as a window may have bytes."""
        row_bytes = self._judged()
        return max(1, min(int(self._most_bytes() / row_bytes) if row_bytes else _MOST_ROWS, rows))

    def _fill(self) -> None:
        """Read on, as far as depth and budget allow."""
        row_bytes = self._judged()
        rows = self._affordable(min(max(self._largest * _GROWTH, self._first_rows), self._ahead.most_rows))
        depth = min(max(self._depth, 1 + (row_bytes > _LARGE_ROW_BYTES)), self._ahead.most_reads)
        while len(self._slots) < depth and self._submitted < len(self._supply):
            ahead = sum(slot.nbytes or slot.judged for slot in self._slots)
            if self._slots and self._held + ahead + rows * row_bytes > self._ahead.budget:
                return
            self._submit(rows)

    def _submit(self, rows: int) -> None:
        begin = self._submitted
        end = min(begin + max(1, min(rows, self._ahead.most_rows)), len(self._supply))
        whole = end - end % self._batch_rows
        if whole > begin and end < len(self._supply):
            end = whole
        if begin == end:
            return
        slot = _Slot(begin, end, int((end - begin) * self._judged()))
        self._submitted = end
        looks = self._supply.needs_looks(end - begin, self._largest)
        self._slots.append(slot)
        try:
            # The work holds no reference to this reader, so that dropping an iterator ends it at once.
            slot.read = self._threads.submit(_read, slot, self._supply, self._ahead.budget if looks else None)
        except BaseException:
            # Interrupted while the thread started: whoever keeps the exception would keep it waiting, at exit too.
            self.close()
            raise


class Cutter:
    """Windows cut into record batches."""

    def __init__(self, windows: WindowReader) -> None:
        self._windows = windows
        self._window: Window | None = None
        self._taken = 0

    @property
    def ready(self) -> bool:
        """Whether rows are there without waiting."""
        return self._left > 0 or self._windows.ready

    @property
    def _left(self) -> int:
        return 0 if self._window is None else len(self._window) - self._taken

    def some(self, most: int) -> pa.RecordBatch | None:
        """The next 1 to `most` rows, of one window; None at the end."""
        if not self._left:
            self._window, self._taken = None, 0  # let go of the old one before waiting for the next
            self._window = self._windows.next_window()
        if self._window is None:
            return None
        begin, self._taken = self._taken, min(self._taken + most, len(self._window))
        return self._window.rows(begin, self._taken)

    def exactly(self, rows: int) -> pa.RecordBatch | pa.Table | None:
        """The next `rows` rows, fewer at the end; None after it. A table where they come of several windows."""
        parts = []
        while rows and (part := self.some(rows)) is not None:
            parts.append(part)
            rows -= part.num_rows
        if len(parts) <= 1:
            return parts[0] if parts else None
        return below(parts)

    def exactly_one(self, rows: int) -> pa.RecordBatch | None:
        """As `exactly`, but always in one piece."""
        found = self.exactly(rows)
        return whole(found) if isinstance(found, pa.Table) else found

    def close(self) -> None:
        """Let go of everything."""
        self._window = None
        self._windows.close()


def _read(slot: _Slot, supply: Supply, most_bytes: int | None) -> None:
    began = perf_counter()
    try:
        window, rest_bytes = supply.read(slot.begin, slot.end, most_bytes)
        slot.nbytes = window.nbytes
        slot.arrival.put((window, perf_counter() - began, rest_bytes))
    except BaseException as error:
        slot.arrival.put(error)

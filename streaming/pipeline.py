"""Read-ahead: the rows of a sequence, window by window, from background threads (spec/reading.md).

A window holds the next rows of all owned splits together: one sorted read, however many splits there are. One is consumed while
the next is read; where storage answers slowly, more are read at a time, within the same budget of bytes.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter
from typing import Final, Protocol

import pyarrow as pa

from streaming import arguments
from streaming.joining import below, whole
from streaming.order import Order, Positions
from streaming.source import Source
from streaming.stats import Meter
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

    def read(self, begin: int, end: int) -> Window:
        """Read the rows ``begin <= j < end``."""
        return self.source.take(self.order.row(self.sequence.positions(begin, end)))


class _Slot:
    """A window that is being read: its place in the sequence of windows."""

    def __init__(self, judged: int) -> None:
        # In C, unlike Future.result(): an interrupt while waiting leaves no lock behind in an odd state.
        self.arrival: SimpleQueue[tuple[Window, float] | BaseException] = SimpleQueue()
        self.judged = judged
        self.nbytes = 0  # once it has arrived


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
        self._row_bytes = 0.0
        self._largest = 0
        self._submitted = 0
        self._depth = 1
        self._quickest = float("inf")
        self._slots: deque[_Slot] = deque()
        self._held = 0
        self._threads = ThreadPoolExecutor(max_workers=ahead.most_reads, thread_name_prefix="streaming-read")
        meter.buffered = self.buffered
        self._submit(min(max(batch_rows or 1, _FIRST_ROWS), _FIRST_MOST_ROWS))

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
        window, seconds = arrived
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

    def _fill(self) -> None:
        """Read on, as far as depth and budget allow."""
        large = self._row_bytes > _LARGE_ROW_BYTES
        most_bytes = min(self._ahead.budget // 2, _LARGE_ROWS_MOST_BYTES if large else _MOST_BYTES)
        affordable = int(most_bytes / self._row_bytes) if self._row_bytes else _MOST_ROWS
        rows = max(1, min(affordable, self._largest * _GROWTH, self._ahead.most_rows))
        depth = min(max(self._depth, 1 + large), self._ahead.most_reads)
        while len(self._slots) < depth and self._submitted < len(self._supply):
            ahead = sum(slot.nbytes or slot.judged for slot in self._slots)
            if self._slots and self._held + ahead + rows * self._row_bytes > self._ahead.budget:
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
        self._submitted = end
        slot = _Slot(int((end - begin) * self._row_bytes))
        self._slots.append(slot)
        try:
            # The work holds no reference to this reader, so that dropping an iterator ends it at once.
            self._threads.submit(_read, slot, self._supply, begin, end)
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


def _read(slot: _Slot, supply: Supply, begin: int, end: int) -> None:
    began = perf_counter()
    try:
        window = supply.read(begin, end)
        slot.nbytes = window.nbytes
        slot.arrival.put((window, perf_counter() - began))
    except BaseException as error:
        slot.arrival.put(error)

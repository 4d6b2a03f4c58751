"""The iterator over rows: windows cut into rows, transforms applied, every exit accounted for (spec/delivery.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from streaming.delivery import Delivery
from streaming.ending import EndingIterator
from streaming.errors import TransformError
from streaming.order import Order
from streaming.pipeline import RowSequence, WindowReader
from streaming.source import Source

Transform = Callable[[pa.RecordBatch], Any]

# Rows converted to Python objects, or passed to a transform, at a time.
_CHUNK_ROWS: Final = 256


@dataclass(frozen=True)
class Reading:
    """How rows are read and turned into what the user gets; it travels to workers.

    Parameters
    ----------
    source, order
        Where rows are, and which row is at a position.
    transform : callable or None
        DLV-7.
    read_ahead_bytes : int
        See `WindowReader`.
    """

    source: Source
    order: Order
    transform: Transform | None
    read_ahead_bytes: int

    def rows(self, sequence: RowSequence, delivery: Delivery) -> RowIterator:
        """An iterator over the rows of a sequence."""
        return RowIterator(WindowReader(self.source, self.order, sequence, self.read_ahead_bytes), self.transform, delivery)


class RowIterator(EndingIterator):
    """One pass over the rows of a rank, from its cursor to the end of the epoch."""

    def __init__(self, windows: WindowReader, transform: Transform | None, delivery: Delivery) -> None:
        self._windows = windows
        self._transform = transform
        self._delivery = delivery
        self._window: pa.RecordBatch | None = None
        self._rows: deque[Any] = deque()
        self._bad_row: Exception | None = None
        self._over = None

    def __next__(self) -> Any:
        """Return the next row (DLV-11), or the transform's output for it.

        Raises
        ------
        IteratorFailedError
            The iterator failed earlier, or a batch never arrived (DLV-5).
        """
        if self._over is not None:
            self._raise_over()
        handed = self._delivery.handed
        try:
            self._delivery.check()
            if not self._rows and not self._refill():
                self._delivery.exhausted = True
                self.close()
                raise StopIteration
            row = self._rows.popleft()
            self._delivery.handed = handed + 1
        except BaseException:
            if self._over is None:
                # An interrupt may come after the count: the row does not arrive.
                self._delivery.handed = handed
                self._end("failed")
            raise
        return row

    def _release(self) -> None:
        self._rows.clear()
        self._window = self._bad_row = None
        self._windows.close()

    def _refill(self) -> bool:
        """Make rows available; False at the end of the epoch."""
        if self._bad_row is not None:
            raise self._bad_row
        chunk = self._next_chunk()
        if chunk is None:
            return False
        if self._transform is None:
            self._rows.extend(chunk.to_pylist())
            return True
        rows, self._bad_row = _outputs(self._transform, chunk)
        self._rows.extend(rows)
        return bool(rows) or self._refill()

    def _next_chunk(self) -> pa.RecordBatch | None:
        if self._window is None or self._window.num_rows == 0:
            self._window = self._windows.next_window()
        if self._window is None:
            return None
        chunk = self._window.slice(0, _CHUNK_ROWS)
        self._window = self._window.slice(_CHUNK_ROWS)
        return chunk


def _outputs(transform: Transform, batch: pa.RecordBatch) -> tuple[list[Any], Exception | None]:
    """Outputs of the rows before the first bad one, and its exception (DLV-7)."""
    try:
        return _one_per_row(transform, batch), None
    except TransformError as error:
        return [], error
    except Exception as error:
        failure = _not_the_end(error)
    rows: list[Any] = []
    for i in range(batch.num_rows if batch.num_rows > 1 else 0):
        try:
            rows += _one_per_row(transform, batch.slice(i, 1))
        except Exception as error:
            return rows, _not_the_end(error)
    # No row is bad by itself: the failure is not forgiven, and no row of the batch is delivered.
    return [], failure


def _one_per_row(transform: Transform, batch: pa.RecordBatch) -> list[Any]:
    result = transform(batch)
    if not isinstance(result, Iterable) or isinstance(result, _NO_ROWS):
        raise TransformError(f"transform must return one output per row in a list, got {type(result).__name__}")
    rows = list(result)
    if len(rows) != batch.num_rows:
        raise TransformError(f"transform must return one output per row: got {len(rows)} for {batch.num_rows} rows")
    return rows


# Iterable, but not over rows, or not in their order.
_NO_ROWS: Final = (Mapping, Set, str, bytes, pa.RecordBatch, pa.Table, pa.Array, pa.ChunkedArray)


def _not_the_end(error: Exception) -> Exception:
    """StopIteration would end the data silently; it becomes an error, anything else stays as it is (DLV-5)."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = TransformError("transform raised StopIteration, which would have ended the data silently")
    wrapped.__cause__ = error
    return wrapped

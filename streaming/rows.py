"""What is read becomes rows or batches: windows cut, transforms applied, every exit accounted for (spec/delivery.md, spec/batches.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from streaming.batches import make_batch
from streaming.columns import batch_of
from streaming.delivery import Delivery
from streaming.ending import EndingIterator
from streaming.order import Order
from streaming.pipeline import Cutter, ReadAhead, RowSequence, Supply, WindowReader
from streaming.source import Source
from streaming.stats import Meter
from streaming.transforms import Outcomes, Transforming

# Rows converted to Python objects, or passed to a transform, at a time; fewer where several threads are to share them.
_CHUNK_ROWS: Final = 256
_SHARED_CHUNK_ROWS: Final = 64


@dataclass(frozen=True)
class Reading:
    """How rows are read and turned into what the user gets; it travels to workers.

    Parameters
    ----------
    source, order
        Where rows are, and which row is at a position.
    transforming : Transforming or None
        DLV-7, BAT-9.
    ahead : ReadAhead
        What reading may cost.
    """

    source: Source
    order: Order
    transforming: Transforming | None
    ahead: ReadAhead

    def rows(self, sequence: RowSequence, delivery: Delivery, batch_rows: int | None = None) -> RowIterator:
        """An iterator over the rows of a sequence, which are to be batched so many at a time."""
        meter = Meter()
        windows = WindowReader(Supply(self.source, self.order, sequence), self.ahead, meter, batch_rows)
        return RowIterator(Cutter(windows), self.transforming, delivery, meter)

    def batches(self, sequence: RowSequence, batch_rows: int, layout: str, travels: bool) -> BatchIterator:
        """An iterator over the batches of a sequence, made of columns (BAT-1)."""
        meter = Meter()
        windows = WindowReader(Supply(self.source, self.order, sequence), self.ahead, meter, batch_rows)
        return BatchIterator(Cutter(windows), self.transforming, meter, batch_rows, layout=layout, travels=travels)


class RowIterator(EndingIterator):
    """One pass over the rows of a rank, from its cursor to the end of the epoch."""

    def __init__(self, cutter: Cutter, transforming: Transforming | None, delivery: Delivery, meter: Meter) -> None:
        self.meter = meter
        self._cutter = cutter
        self._outcomes: Outcomes | None = None
        if transforming is not None:
            chunk = _SHARED_CHUNK_ROWS if transforming.threads else _CHUNK_ROWS
            self._outcomes = Outcomes(lambda: cutter.some(chunk), lambda: cutter.ready, transforming, meter)
        self._delivery = delivery
        self._rows: deque[Any] = deque()
        self._made = 0
        self._bad_row: Exception | None = None
        self._begin()

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
        self._bad_row = None
        if self._outcomes is not None:
            self._outcomes.close()
        self._cutter.close()

    def _refill(self) -> bool:
        """Make rows available; False at the end of the epoch."""
        if self._bad_row is not None:
            raise self._bad_row
        if self._outcomes is None:
            with self.meter.batching():
                chunk = self._cutter.some(_CHUNK_ROWS)
                if chunk is not None:
                    self._rows.extend(chunk.to_pylist())
            return chunk is not None
        with self.meter.batching():
            outcome = self._outcomes.next()
            if outcome is None:
                return False
            self.meter.fill(self._made, outcome.filled)
            self._made += outcome.count
            self._bad_row = outcome.failure
            self._rows.extend(outcome.outputs())
        return bool(self._rows) or self._refill()


class BatchIterator(Iterator[Any]):
    """Batches of a sequence of rows, each with its row count, made of columns and not yet counted as received.

    Parameters
    ----------
    layout : str
        One of ``streaming.batches.FORMATS``.
    travels : bool
        Whether batches are pickled next.
    """

    def __init__(
        self, cutter: Cutter, transforming: Transforming | None, meter: Meter, batch_rows: int, *, layout: str, travels: bool
    ) -> None:
        self.meter = meter
        self._cutter, self._batch_rows, self._layout, self._travels = cutter, batch_rows, layout, travels
        self._outcomes: Outcomes | None = None
        if transforming is not None:
            self._outcomes = Outcomes(lambda: cutter.exactly_one(batch_rows), lambda: cutter.ready, transforming, meter)
        self._made = 0

    def __next__(self) -> tuple[Any, int]:
        """Return the next batch and its row count."""
        with self.meter.batching():
            if self._outcomes is None:
                rows = self._cutter.exactly(self._batch_rows)
                if rows is None:
                    raise StopIteration
                batch, count = make_batch(rows, self._layout, self._travels), rows.num_rows
            else:
                outcome = self._outcomes.next()
                if outcome is None:
                    raise StopIteration
                if outcome.failure is not None:
                    raise outcome.failure
                self.meter.fill(self._made, outcome.filled)
                batch, count = batch_of(outcome.columns(), self._layout == "numpy"), outcome.count
        self._made += count
        return batch, count

    def close(self) -> None:
        """Stop reading and let go of what was read."""
        if self._outcomes is not None:
            self._outcomes.close()
        self._cutter.close()

"""What is read becomes rows or batches: windows cut, transforms applied, every exit accounted for (spec/delivery.md, spec/batches.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from streaming.batches import make_batch
from streaming.columns import batch_of
from streaming.delivery import BatchDelivery, Delivery
from streaming.ending import EndingIterator
from streaming.order import Order
from streaming.pipeline import Cutter, ReadAhead, WindowReader
from streaming.plain import python_rows
from streaming.position import Position
from streaming.source import Source
from streaming.stats import Meter
from streaming.supply import RowSequence, Supply
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

    def rows(self, sequence: RowSequence, batch_rows: int | None = None) -> RowReader:
        """The rows of a sequence, which are to be batched so many at a time."""
        meter = Meter()
        windows = WindowReader(Supply(self.source, self.order, sequence), self.ahead, meter, batch_rows)
        return RowReader(Cutter(windows), self.transforming, meter)

    def batches(self, sequence: RowSequence, batch_rows: int, layout: str, travels: bool) -> BatchIterator:
        """An iterator over the batches of a sequence, made of columns (BAT-1)."""
        meter = Meter()
        windows = WindowReader(Supply(self.source, self.order, sequence), self.ahead, meter, batch_rows)
        return BatchIterator(Cutter(windows), self.transforming, meter, batch_rows, layout=layout, travels=travels)


class RowReader(Iterator[Any]):
    """Rows of a sequence, or the transform's outputs for them, not yet counted as received.

    Attributes
    ----------
    ready : deque
        Rows that can be taken from the left without reading on.
    """

    def __init__(self, cutter: Cutter, transforming: Transforming | None, meter: Meter) -> None:
        self.meter = meter
        self.ready: deque[Any] = deque()
        self._cutter = cutter
        self._outcomes: Outcomes | None = None
        if transforming is not None:
            chunk = _SHARED_CHUNK_ROWS if transforming.threads else _CHUNK_ROWS
            self._outcomes = Outcomes(lambda: cutter.some(chunk), lambda: cutter.ready, transforming, meter)
        self._made = 0
        self._bad_row: Exception | None = None

    def __next__(self) -> Any:
        if not self.ready and not self.refill():
            raise StopIteration
        return self.ready.popleft()

    def close(self) -> None:
        """Stop reading and let go of what was read."""
        self.ready.clear()
        self._bad_row = None
        if self._outcomes is not None:
            self._outcomes.close()
        self._cutter.close()

    def refill(self) -> bool:
        """Make rows ready; False at the end of the epoch."""
        if self._bad_row is not None:
            raise self._bad_row
        if self._outcomes is None:
            with self.meter.batching():
                chunk = self._cutter.some(_CHUNK_ROWS)
                if chunk is not None:
                    self.ready.extend(python_rows(chunk))
            return chunk is not None
        with self.meter.batching():
            outcome = self._outcomes.next()
            if outcome is None:
                return False
            self.meter.fill(self._made, outcome.filled)
            self._made += outcome.count
            self._bad_row = outcome.failure
            self.ready.extend(outcome.outputs())
        return bool(self.ready) or self.refill()


class RowIterator(EndingIterator):
    """One pass over the rows of a rank, from its place to the end of the epoch.

    Parameters
    ----------
    position : Position
        The dataset's place.
    delivery : Delivery
        What counts its rows.
    begin : callable
        Begins the pass; returns the number of its rows, and what starts the reader.

    Attributes
    ----------
    drained : bool
        Whether all rows were handed out, and the end was said.
    """

    def __init__(self, position: Position, delivery: Delivery, begin: Callable[[], tuple[int, Callable[[], RowReader]]]) -> None:
        self.delivery = delivery
        self.drained = False
        self._by_batches = isinstance(delivery, BatchDelivery)
        self._begin, self._rows = begin, 0
        self._reader: RowReader | None = None
        self._wait(position)

    def __next__(self) -> Any:
        """Return the next row (DLV-11), or the transform's output for it.

        Raises
        ------
        IteratorFailedError
            The iterator failed earlier, or a batch never arrived (DLV-5).
        IteratorSupersededError
            There is a newer iterator (DLV-4).
        """
        if self._over is not None:
            self.raise_over()
        inside, delivery = self.inside, self.delivery
        handed = delivery.handed
        try:
            self.inside = True
            self.begin()
            reader: Any = self._reader
            if reader is None or (not reader.ready and not reader.refill()):
                self._drain()
                raise StopIteration
            row = reader.ready.popleft()
            if handed + 1 == self._rows and not self._by_batches:
                self.end("ended")
            delivery.handed = handed + 1
            self.inside = inside
        except BaseException as error:
            self.inside = inside
            if self.begun and not (isinstance(error, StopIteration) and self.drained):
                # An interrupt may come after the count: the row does not arrive.
                delivery.handed = handed
                self.fail()
            raise
        return row

    def _take_place(self) -> None:
        self._rows, self._open = self._begin()

    def _start(self) -> None:
        self._reader = self._open()

    def _drain(self) -> None:
        """Nothing is left to be handed out. Where batches are counted, the pass lasts until the last one has arrived."""
        self._release()
        self.drained = True
        if not self._by_batches:
            self.end("ended")

    def _release(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


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

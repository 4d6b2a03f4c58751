"""Where the time and the memory of reading go (spec/reading.md, STA-1 to STA-3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from time import perf_counter

from streaming.delivery import Delivery

# Figures of one reader, as they travel with a batch: those of Stats from `rows_filled` on, of constant size (WRK-6).
Figures = tuple[float, ...]


@dataclass(frozen=True)
class Stats:
    """Counts since a dataset was built, summed over workers (STA-1).

    Parameters
    ----------
    rows_received, rows_filled : int
        Rows that the trainer has; those among them that `transform_fill` stands in for.
    reads, bytes_loaded : int
        Windows read, and their Arrow bytes.
    read_seconds, transform_seconds, batch_seconds : float
        Spent in reads and transforms, over all threads and workers, and in making batches.
    wait_seconds : float
        That the consumer spent waiting in ``next()``.
    bytes_buffered : int
        Arrow bytes held now.
    """

    rows_received: int = 0
    rows_filled: int = 0
    reads: int = 0
    bytes_loaded: int = 0
    read_seconds: float = 0.0
    transform_seconds: float = 0.0
    batch_seconds: float = 0.0
    wait_seconds: float = 0.0
    bytes_buffered: int = 0

    def plus(self, rows: int, figures: Figures) -> Stats:
        """With the figures of one reader."""
        return Stats(*(mine + theirs for mine, theirs in zip(astuple(self), (rows, *figures), strict=True)))


NOTHING: Figures = tuple(0 for _ in fields(Stats))[1:]


class Meter:
    """Figures of one reader. Only the thread that consumes its rows writes here."""

    def __init__(self) -> None:
        self.reads = self.bytes_loaded = 0
        self.read_seconds = self.transform_seconds = self.batch_seconds = self.wait_seconds = 0.0
        self.own_transform_seconds = 0.0  # those of transform_seconds that were the consumer's own
        self.buffered: Callable[[], int] = int
        self._filled, self._filled_ahead = 0, deque[int]()

    def fill(self, before: int, rows: Iterable[int]) -> None:
        """Note which of the rows that follow so many others are filled."""
        self._filled_ahead.extend(before + row for row in rows)

    def batching(self) -> _Batching:
        """Count the time of a ``with`` block, but for that which it waits or transforms, in `batch_seconds`."""
        return _Batching(self)

    @property
    def elsewhere(self) -> float:
        """Seconds of the consumer that are no making of batches."""
        return self.wait_seconds + self.own_transform_seconds

    def figures(self, received: int) -> Figures:
        """All figures, when so many rows of the pass are received."""
        while self._filled_ahead and self._filled_ahead[0] < received:
            self._filled_ahead.popleft()
            self._filled += 1
        return (
            self._filled,
            self.reads,
            self.bytes_loaded,
            self.read_seconds,
            self.transform_seconds,
            self.batch_seconds,
            self.wait_seconds,
            self.buffered(),
        )


class _Batching:
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def __enter__(self) -> None:
        self._began, self._elsewhere = perf_counter(), self._meter.elsewhere

    def __exit__(self, *_: object) -> None:
        meter = self._meter
        meter.batch_seconds += perf_counter() - self._began - (meter.elsewhere - self._elsewhere)


class Account:
    """Statistics of a dataset over its passes, and over the workers of each."""

    def __init__(self) -> None:
        self._past = Stats()
        self._delivery = Delivery()
        self._earlier = 0
        self._meter: Meter | None = None
        self._newest: dict[int, Figures] = {}
        self._waited = 0.0
        self._over = False

    def begin(self, delivery: Delivery, meter: Meter | None = None) -> None:
        """Count another pass: by its meter, or by the figures that arrive with batches."""
        self._past = self._sum(over=True)
        self._delivery, self._earlier, self._meter, self._newest = delivery, delivery.received, meter, {}
        self._waited, self._over = 0.0, False

    def arrived(self, worker: int, figures: Figures, waited: float | None) -> None:
        """Keep the newest figures of a worker; where it is a process, its own waiting is not the consumer's."""
        if waited is not None:
            self._waited += waited
            figures = (*figures[:-2], 0, figures[-1])
        self._newest[worker] = figures

    def end(self, delivery: Delivery) -> None:
        """Nothing of this pass is held any more."""
        if delivery is self._delivery:
            self._over = True

    def stats(self) -> Stats:
        """Everything up to now."""
        return self._sum(over=self._over)

    def _sum(self, over: bool) -> Stats:
        received = self._delivery.received - self._earlier
        readers = list(self._newest.values()) if self._meter is None else [self._meter.figures(received)]
        total = self._past.plus(received, NOTHING)
        for figures in readers:
            total = total.plus(0, (*figures[:-1], 0 if over else figures[-1]))
        return total.plus(0, (*NOTHING[:-2], self._waited, 0))

"""Chapter reading as a judge of traces: what a pass did, event by event, and which clauses it broke. Statistics: ``model/stats.py``.

How rows are read is free, so a judge says only what no permitted reader does. What it cannot know, it does not hold against a trace:

- How large an unread row will be "is judged by those read before" (REA-2, REA-3). Any estimate between the smallest and the largest mean
  (bytes of a window / its rows) of the windows that had arrived is accepted. So a read is too large where even the smallest mean says so,
  and a whole batch fits where even the largest mean says so. Before anything has arrived nothing is said of bytes. A reader that judges by
  something finer than means of windows, its smallest row say, is outside; one that judges larger than the largest mean may read less than
  whole batches, and is then accused wrongly: REA-3 asks for "the same judgement".
- Nothing is judged when bytes arrive: rows that grew are no fault of the reader (REA-2). The next read that it begins is. Nor is asked
  whether it looked at rows, only what it made of that: what it gives back counts as one more estimate.
- One window held and one being read are excused from the budget, not from REA-3. Before the first arrives, that is two being read.
- That a reader reads ahead at all, and more where storage is slow, is not asked of it: a trace shows only what was begun.
- Where ``read_batch_size`` is smaller than a batch, a batch may hold more rows of one split than it allows (partial cycles, workers in
  invariant mode): windows that are smaller than a batch are then not accused.

Events stand in the sequence in which the reader knew of them: what it begins is judged by what had arrived before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

LARGEST_ROWS = 32768
LARGEST_BYTES = 8 * 2**20
LARGE_ROW = 32 * 2**10
LARGE_ROWS_BYTES = 4 * 2**20
FIRST_ROWS = 16
FIRST_MOST_ROWS = 256
GROWTH = 8
LARGEST_AHEAD = 8
SLOW = 0.050


@dataclass(frozen=True)
class Reader:
    """Who reads: a rank, or one of its workers (REA-1).

    Parameters
    ----------
    read_ahead_bytes : int
        The budget (REA-2).
    rows : int
        Those of the pass.
    owned : int
        The splits that it owns.
    batch : int or None
        Rows of a batch; None in bare iteration.
    read_batch_size, io_queue_depth : int or None
        b and q (REA-5); None where not given.
    known : tuple of Fraction
        Bytes of a row, smallest and largest, where passes before this one have read, or types say it; else empty.
    varying : bool
        Whether types do not say how large a row is (REA-2).
    """

    read_ahead_bytes: int
    rows: int
    owned: int = 1
    batch: int | None = None
    read_batch_size: int | None = None
    io_queue_depth: int | None = None
    known: tuple[Fraction, ...] = ()
    varying: bool = False

    def largest_bytes(self, row: Fraction) -> Fraction:
        """Of one window (REA-3), where rows are that large."""
        return min(Fraction(LARGE_ROWS_BYTES if row > LARGE_ROW else LARGEST_BYTES), Fraction(self.read_ahead_bytes, 2))


# --- events -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begun:
    """The read of the next window begins. ``of_split``: the most of its rows that are of one split; None: the least that they can be."""

    rows: int
    of_split: int | None = None


@dataclass(frozen=True)
class Arrived:
    """The read of a window is done, after so many seconds. Windows are counted from 0, in the sequence of their reads."""

    window: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Asked:
    """The consumer turns to a window, whether it is there or not. A trace may leave it out where nothing is begun until it is taken."""

    window: int


@dataclass(frozen=True)
class Taken:
    """The consumer begins to consume a window; whether it had to wait for it.

    With ``rows``, the window has only so many: the others, and all that was begun behind them, are given back and read anew, and a row of
    them is judged to have ``foreseen`` bytes (REA-2).
    """

    window: int
    waited: bool = False
    rows: int | None = None
    foreseen: Fraction | None = None


@dataclass(frozen=True)
class Released:
    """A window is held no longer."""

    window: int


@dataclass(frozen=True)
class Ended:
    """The pass is over."""


Event = Begun | Arrived | Asked | Taken | Released | Ended


# --- the judge ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What a trace has come to.

    Parameters
    ----------
    begun : tuple of int
        The rows of each window.
    arrived : dict
        Bytes of each that arrived.
    released : frozenset of int
        Those held no longer.
    current : int
        The window that the consumer consumes or that it will ask for.
    asked : int or None
        That which it asked for and has not taken.
    waits : frozenset of int
        Those for which it had to wait while storage was slow.
    quickest : float or None
        Seconds of the quickest read of this pass.
    ended : bool
        Whether the pass is over.
    foreseen : tuple of Fraction
        Bytes of rows that were given back.
    """

    begun: tuple[int, ...] = ()
    arrived: Mapping[int, int] = field(default_factory=dict)
    released: frozenset[int] = frozenset()
    current: int = 0
    asked: int | None = None
    waits: frozenset[int] = frozenset()
    quickest: float | None = None
    ended: bool = False
    foreseen: tuple[Fraction, ...] = ()

    def reading(self) -> list[int]:
        """The windows of which reads are under way."""
        return [window for window in range(len(self.begun)) if window not in self.arrived]

    def held(self) -> list[int]:
        """The windows that are there (REA-2)."""
        return [window for window in self.arrived if window not in self.released]

    def means(self, reader: Reader) -> list[Fraction]:
        """Bytes of a row, window by window."""
        return [*reader.known, *self.foreseen, *(Fraction(size, self.begun[window]) for window, size in self.arrived.items())]

    def waiting(self, window: int | None) -> Seen:
        """The consumer has to wait for a window; counted where storage is slow (REA-4)."""
        slow = self.quickest is not None and self.quickest > SLOW
        return self if window is None or not slow else replace(self, waits=self.waits | {window})


def after(seen: Seen, event: Event) -> Seen:
    """What a trace has come to with one more event. An event that cannot be is no trace (AssertionError)."""
    if isinstance(event, Begun):
        assert event.rows > 0
        return replace(seen, begun=(*seen.begun, event.rows))
    if isinstance(event, Arrived):
        assert event.window in seen.reading()
        awaited = seen.asked if seen.asked not in seen.arrived else None
        quickest = event.seconds if seen.quickest is None else min(seen.quickest, event.seconds)
        return replace(seen, arrived={**seen.arrived, event.window: event.bytes}, quickest=quickest).waiting(awaited)
    if isinstance(event, Asked):
        asked = replace(seen, asked=event.window, current=max(seen.current, event.window))
        return asked if event.window in seen.arrived else asked.waiting(event.window)
    if isinstance(event, Taken):
        assert event.window in seen.held()
        taken = replace(seen, asked=None, current=max(seen.current, event.window))
        if event.rows is not None:
            assert 0 < event.rows < seen.begun[event.window]
            begun = (*seen.begun[: event.window], event.rows)
            arrived = {window: size for window, size in seen.arrived.items() if window < len(begun)}
            foreseen = seen.foreseen if event.foreseen is None else (*seen.foreseen, event.foreseen)
            taken = replace(taken, begun=begun, arrived=arrived, foreseen=foreseen)
        return taken.waiting(event.window) if event.waited else taken
    if isinstance(event, Released):
        assert event.window in seen.held()
        return replace(seen, released=seen.released | {event.window}, current=max(seen.current, event.window + 1))
    return replace(seen, ended=True)


def judge(reader: Reader, trace: Iterable[Event]) -> list[str]:
    """What a trace breaks of REA-2 to REA-6, event by event; each begins with its clause. Empty: nothing that can be seen."""
    broken: list[str] = []
    seen = Seen()
    for event in trace:
        if isinstance(event, Begun):
            window = len(seen.begun)
            checks = (*budget(reader, seen, event), *size(reader, seen, event), *concurrency(reader, seen), *arguments(reader, seen, event))
            broken += [f"{problem} (window {window}, {event.rows} rows)" for problem in checks]
        seen = after(seen, event)
    return broken


def budget(reader: Reader, seen: Seen, event: Begun) -> Iterable[str]:
    """REA-2, when a read begins."""
    held, reading, means = seen.held(), seen.reading(), seen.means(reader)
    if sum(seen.begun) + event.rows > reader.rows:
        yield "REA-1: more rows than the pass has"
    if reader.varying and not seen.begun and event.rows > 1:
        yield "REA-2: more than the first row, and nothing says how large it is"
    if not means or len(held) + len(reading) <= 1:
        return
    total = sum(seen.arrived[window] for window in held) + min(means) * (sum(seen.begun[window] for window in reading) + event.rows)
    if total > reader.read_ahead_bytes:
        yield f"REA-2: at least {float(total):.0f} bytes of {reader.read_ahead_bytes}"


def size(reader: Reader, seen: Seen, event: Begun) -> Iterable[str]:
    """REA-3, when a read begins."""
    means, start, batch = seen.means(reader), sum(seen.begun), reader.batch
    bounded = reader.read_batch_size is not None and batch is not None and reader.read_batch_size < batch
    first = min(max(batch or FIRST_ROWS, FIRST_ROWS), FIRST_MOST_ROWS)
    if not seen.begun and not reader.varying:
        if event.rows > first:
            yield f"REA-3: more than {first} rows in the first window"
        if batch is not None and event.rows < min(batch, FIRST_MOST_ROWS, reader.rows) and not bounded and not reader.known:
            yield f"REA-3: less than the batch of {batch} rows in the first window"
        return
    most = min(max(GROWTH * max(seen.begun, default=0), first if reader.varying else 0), LARGEST_ROWS)
    if event.rows > most:
        yield f"REA-3: more than {most} rows"
    if event.rows > 1 and means and min(means) * event.rows > reader.largest_bytes(min(means)):
        yield f"REA-3: at least {float(min(means) * event.rows):.0f} bytes"
    if not seen.begun or batch is None or (start + event.rows) % batch == 0 or start + event.rows == reader.rows:
        return
    fits = False
    if means and not bounded:
        used = sum(seen.arrived[window] for window in seen.held()) + max(means) * sum(seen.begun[window] for window in seen.reading())
        fits = batch <= most and max(means) * batch <= min(reader.largest_bytes(max(means)), reader.read_ahead_bytes - used)
    if fits or event.rows >= batch:
        yield f"REA-3: ends inside a batch of {batch} rows, although one fits"


def concurrency(reader: Reader, seen: Seen) -> Iterable[str]:
    """REA-4, when a read begins: two ahead where any estimate that is accepted says that rows are large."""
    ahead = len(seen.begun) - seen.current
    large = max(seen.means(reader), default=Fraction(0)) > LARGE_ROW
    allowed = max(min(1 + len(seen.waits), LARGEST_AHEAD), 1 + large)
    if ahead > allowed:
        yield f"REA-4: {ahead} windows ahead of the one consumed, at most {allowed}"
    if len(seen.reading()) + 1 > LARGEST_AHEAD:
        yield f"REA-4: more than {LARGEST_AHEAD} reads at a time"


def arguments(reader: Reader, seen: Seen, event: Begun) -> Iterable[str]:
    """REA-5, and REA-6 behind the end, when a read begins."""
    of_split = -(-event.rows // reader.owned) if event.of_split is None else event.of_split
    if reader.read_batch_size is not None and of_split > reader.read_batch_size:
        yield f"REA-5: {of_split} rows of one split, at most {reader.read_batch_size}"
    if reader.io_queue_depth is not None and len(seen.reading()) + 1 > reader.io_queue_depth:
        yield f"REA-5: more than {reader.io_queue_depth} reads at a time"
    if seen.ended:
        yield "REA-6: begun after the end of the pass"

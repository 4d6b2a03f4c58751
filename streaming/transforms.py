"""Users' transforms: called on record batches, in threads if asked for, failing rows isolated (spec/batches.md, DLV-7)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Final

import pyarrow as pa

from streaming import arguments
from streaming.columns import Columns, check_columns, concatenate, cut, one_row
from streaming.errors import ArgumentValueError, TransformError
from streaming.plain import python_rows
from streaming.stats import Meter

Transform = Callable[[pa.RecordBatch], Any]


@dataclass
class Outcome:
    """What became of some consecutive rows.

    Parameters
    ----------
    rows : list or dict
        One output per row, or columns, of the rows before the first bad one.
    pieces : list of dict, optional
        Instead of columns, where rows were tried one by one: columns of one entry each.
    count : int
        How many rows those are.
    filled : list of int
        Which of them are filled (BAT-11).
    failure : Exception or None
        What the first bad row raised.
    """

    rows: Any
    count: int
    pieces: list[Columns] | None = None
    filled: list[int] = field(default_factory=list)
    failure: Exception | None = None
    seconds: float = 0.0

    def outputs(self) -> list[Any]:
        """One output per row, in bare iteration."""
        if self.pieces is not None:
            return [cut(piece, 0) for piece in self.pieces]
        return [cut(self.rows, i) for i in range(self.count)] if isinstance(self.rows, dict) else list(self.rows)

    def columns(self) -> Columns:
        """The columns of a batch.

        Raises
        ------
        TransformError
            Rows that were tried one by one do not fit together (BAT-12).
        """
        columns: Columns = self.rows if self.pieces is None else concatenate(self.pieces)
        return columns


@dataclass(frozen=True)
class Transforming:
    """A transform, and what is done where it fails; it travels to workers.

    Parameters
    ----------
    function : callable
        ``transform`` or, if `columnar`, ``columnar_transform``.
    fills : bool
        ``on_transform_error="fill"``, with `fill`, a value or a callable.
    threads, queue_depth : int
        BAT-13.
    """

    function: Transform
    columnar: bool
    fills: bool = False
    fill: Any = None
    threads: int = 0
    queue_depth: int = 0

    def __call__(self, batch: pa.RecordBatch) -> Outcome:
        """Outputs of these rows; it raises no Exception."""
        began = perf_counter()
        try:
            outcome = Outcome(self._outputs(batch), batch.num_rows)
        except TransformError as error:
            outcome = self._none(error)
        except Exception as error:
            outcome = self._row_by_row(batch, error)
        outcome.seconds = perf_counter() - began
        return outcome

    def _outputs(self, batch: pa.RecordBatch) -> Any:
        result = self.function(batch)
        return check_columns(result, batch.num_rows) if self.columnar else _one_per_row(result, batch.num_rows)

    def _row_by_row(self, batch: pa.RecordBatch, failure: Exception) -> Outcome:
        """Every row alone (BAT-11, BAT-12)."""
        pieces: list[Any] = []
        filled: list[int] = []
        bad: Exception | None = None
        for i in range(batch.num_rows):
            row = batch.slice(i, 1)
            try:
                if batch.num_rows == 1:
                    raise failure
                pieces.append(self._outputs(row))
            except Exception as error:
                bad = error
                if not self.fills or isinstance(error, TransformError):
                    break
                try:
                    pieces.append(self._stand_in(row, error))
                except Exception as second:
                    bad = second
                    break
                filled.append(i)
        else:
            # Where no row is bad by itself, the failure is not forgiven, and no row of the batch is delivered.
            bad = None if filled else failure
            if bad is not None:
                return self._none(bad)
        rows = [] if self.columnar else [row for piece in pieces for row in piece]
        return Outcome(rows, len(pieces), pieces if self.columnar else None, filled, _not_the_end(bad))

    def _stand_in(self, row: pa.RecordBatch, error: Exception) -> Any:
        value = self.fill(python_rows(row)[0], error) if callable(self.fill) else self.fill
        return one_row(value) if self.columnar else [value]

    def _none(self, failure: Exception) -> Outcome:
        return Outcome({} if self.columnar else [], 0, failure=_not_the_end(failure))


class Outcomes:
    """A transform applied to one record batch after the other, in order, some of them at a time (BAT-13).

    Parameters
    ----------
    batches : callable
        The next record batch, or None at the end.
    ready : callable
        Whether the next one is there without waiting.
    transforming : Transforming
        What to apply.
    meter : Meter
        Where its seconds are counted.
    """

    def __init__(
        self, batches: Callable[[], pa.RecordBatch | None], ready: Callable[[], bool], transforming: Transforming, meter: Meter
    ) -> None:
        self._batches, self._ready, self._transforming, self._meter = batches, ready, transforming, meter
        self._calls: deque[SimpleQueue[Outcome | BaseException]] = deque()
        self._more = True
        self._threads = ThreadPoolExecutor(transforming.threads, thread_name_prefix="streaming-transform") if transforming.threads else None

    def next(self) -> Outcome | None:
        """The next outcome, or None at the end."""
        if self._threads is None:
            batch = self._batches()
            if batch is None:
                return None
            outcome = self._transforming(batch)
            self._meter.transform_seconds += outcome.seconds
            self._meter.own_transform_seconds += outcome.seconds
            return outcome
        # The one that is waited for is not ahead.
        while self._more and len(self._calls) <= self._transforming.queue_depth and (not self._calls or self._ready()):
            self._call(self._threads)
        if not self._calls:
            return None
        began = perf_counter()
        arrived = self._calls.popleft().get()
        self._meter.wait_seconds += perf_counter() - began
        if isinstance(arrived, BaseException):
            raise arrived
        self._meter.transform_seconds += arrived.seconds
        return arrived

    def close(self) -> None:
        """Begin no further call; those in progress end by themselves."""
        self._calls.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _call(self, threads: ThreadPoolExecutor) -> None:
        arrival: SimpleQueue[Outcome | BaseException] = SimpleQueue()
        try:
            batch = self._batches()
            if batch is None:
                self._more = False
                return
            threads.submit(_apply, self._transforming, batch, arrival)
        except Exception as error:  # of a read: it comes behind the rows before it
            self._more = False
            arrival.put(error)
        self._calls.append(arrival)


def resolve(
    *,
    transform: Transform | None,
    columnar_transform: Transform | None,
    on_transform_error: str,
    transform_fill: Any,
    transform_parallelism: int,
    transform_queue_depth: int | None,
) -> Transforming | None:
    """Check the arguments of a dataset (ARG-12, ARG-18 to ARG-22); None without a transform.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        One is wrong, or two do not fit together.
    """
    arguments.function("transform", transform)
    arguments.function("columnar_transform", columnar_transform)
    fills = arguments.choice("on_transform_error", on_transform_error, ("raise", "fill")) == "fill"
    threads = arguments.integer("transform_parallelism", transform_parallelism, 0)
    depth = 2 * threads if transform_queue_depth is None else arguments.integer("transform_queue_depth", transform_queue_depth, 1)
    if transform is not None and columnar_transform is not None:
        raise ArgumentValueError("columnar_transform and transform exclude each other: give one", "columnar_transform")
    function = transform or columnar_transform
    if fills and function is None:
        raise ArgumentValueError(
            'on_transform_error="fill" needs a transform or columnar_transform whose rows can fail', "on_transform_error"
        )
    if fills is (transform_fill is None):
        raise ArgumentValueError(
            'transform_fill and on_transform_error="fill" need each other: give what a failing row becomes, or a function that makes it '
            "(which may return None)",
            "transform_fill",
        )
    if function is None:
        return None
    return Transforming(function, columnar_transform is not None, fills, transform_fill, threads, depth)


def _apply(transforming: Transforming, batch: pa.RecordBatch, arrival: SimpleQueue[Outcome | BaseException]) -> None:
    try:
        arrival.put(transforming(batch))
    except BaseException as error:
        arrival.put(error)


def _one_per_row(result: object, rows: int) -> list[Any]:
    # Arrays without dimensions say that they are iterable; data frames are, but over the names of their columns.
    no_rows = isinstance(result, _NO_ROWS) or getattr(result, "ndim", 1) == 0 or hasattr(type(result), "columns")
    if not isinstance(result, Iterable) or no_rows:
        hint = "; for a mapping of columns use columnar_transform" if isinstance(result, Mapping) else ""
        raise TransformError(f"transform must return one output per row in a list, got {type(result).__name__}{hint}")
    outputs = list(result)
    if len(outputs) != rows:
        raise TransformError(f"transform must return one output per row: got {len(outputs)} for {rows} rows")
    return outputs


# Iterable, but not over rows, or not in their order.
_NO_ROWS: Final = (Mapping, Set, str, bytes, pa.RecordBatch, pa.Table, pa.Array, pa.ChunkedArray)


def _not_the_end(error: Exception | None) -> Exception | None:
    """StopIteration becomes an error, anything else stays as it is."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = ended_silently("transform")
    wrapped.__cause__ = error
    return wrapped


def ended_silently(function: str) -> TransformError:
    """What StopIteration of a user's function becomes, wherever it is called (DLV-5)."""
    return TransformError(f"{function} raised StopIteration, which would have ended the data silently")

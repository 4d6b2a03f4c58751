"""What is delivered of rows that a transform may refuse (BAT-9 to BAT-13, DLV-7).

A transform is a pure function here, of a tuple of rows. Threads (BAT-13) are the sequence in which its calls come to an end: what is
delivered is a function of the calls, whatever that sequence is. Exceptions that are no ``Exception`` (interrupts) are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model.batches import Row, Tensor, collate, stack
from model.errors import ModelError

UNORDERED = (Mapping, set, frozenset, str, bytes, Tensor)
"""Iterables that are no outputs, one per row (DLV-7); ``Tensor`` stands for Arrow containers."""


@dataclass(frozen=True)
class Transform:
    """A transform and what is to happen where it fails.

    Parameters
    ----------
    call : callable
        Maps a tuple of rows to an ordered iterable of outputs (DLV-7) or, ``columnar``, to a mapping of names to columns, each a
        ``Tensor`` or a list (BAT-9).
    columnar : bool
        Whether it is a ``columnar_transform``.
    on_transform_error : str
        ``"raise"`` or ``"fill"`` (BAT-11).
    transform_fill : object
        A value, or a callable of a row and its error.
    """

    call: Callable[[tuple[Row, ...]], Any]
    columnar: bool = False
    on_transform_error: str = "raise"
    transform_fill: Any = None


@dataclass(frozen=True)
class Output:
    """What a row became; with a columnar transform, columns of one entry, or the mapping that fills its place."""

    value: Any
    filled: bool = False


@dataclass(frozen=True)
class Delivered:
    """What the trainer gets.

    Parameters
    ----------
    items : tuple
        Outputs, or batches of them.
    rows, filled : int
        The rows received, and those among them that were filled (STA-1, STA-2).
    error : Exception or None
        What is raised behind the last item; None where the rows end.
    """

    items: tuple[Any, ...]
    rows: int
    filled: int
    error: Exception | None = None


def failed(why: str) -> ModelError:
    """What can be laid on no single row (BAT-12)."""
    return ModelError("transform.failed", why)


# --- one call -----------------------------------------------------------------------------------------------------------------------


def attempt(transform: Transform, rows: tuple[Row, ...]) -> tuple[list[Any], Exception | None]:
    """Call once: the outputs, or the exception of the transform itself; what it must not return is raised (DLV-7, BAT-10).

    An iterable that fails while it is walked is a transform that raises by itself. StopIteration is wrapped (DLV-5).
    """
    try:
        made = transform.call(rows)
        walked: Any = made if transform.columnar or isinstance(made, UNORDERED) or not isinstance(made, Iterable) else list(made)
    except StopIteration:
        return [], failed("StopIteration in a transform")
    except Exception as error:
        return [], error
    if transform.columnar:
        check_columns(walked, len(rows))
        return [{name: part(column, index) for name, column in walked.items()} for index in range(len(rows))], None
    if not isinstance(walked, list) or len(walked) != len(rows):
        raise failed("other than one output per row")
    return walked, None


def check_columns(made: object, rows: int) -> None:
    """A mapping of strings to columns of so many entries (BAT-10)."""
    if not isinstance(made, Mapping) or not made or not all(isinstance(name, str) for name in made):
        raise failed("no mapping of strings to columns")
    for name, column in made.items():
        if not isinstance(column, (Tensor, list)):
            raise failed(f"{name} is no column")
        if (column.shape[:1] if isinstance(column, Tensor) else (len(column),)) != (rows,):
            raise failed(f"{name} has other than {rows} entries")


def part(column: Tensor | list[Any], index: int) -> Tensor | list[Any]:
    """One entry of a column, as a column."""
    return column.part(index, index + 1) if isinstance(column, Tensor) else [column[index]]


def outputs(transform: Transform, rows: tuple[Row, ...]) -> tuple[list[Output], Exception | None]:
    """What a call's rows become, up to the error that ends them (DLV-7, BAT-11, BAT-12).

    A row that, tried alone, makes another count than one, or for which ``transform_fill`` raises, is bad like others: the rows before it
    are delivered first. The exception of a bad row is the one that it raised alone.
    """
    done: list[Output] = []
    try:
        made, first = attempt(transform, rows)
        if first is None:
            return [Output(value) for value in made], None
        for row in rows:
            alone, error = attempt(transform, (row,))
            if error is None:
                done.append(Output(alone[0]))
            elif transform.on_transform_error == "raise":
                return done, error
            else:
                done.append(Output(fill_of(transform, row, error), filled=True))
    except StopIteration:
        return done, failed("StopIteration in transform_fill")
    except Exception as error:
        return done, error
    return (done, None) if any(output.filled for output in done) else ([], first)


def fill_of(transform: Transform, row: Row, error: Exception) -> Any:
    """What stands in a failed row's place (BAT-11)."""
    made = transform.transform_fill(row, error) if callable(transform.transform_fill) else transform.transform_fill
    if transform.columnar and not (isinstance(made, Mapping) and made and all(isinstance(name, str) for name in made)):
        raise failed("transform_fill is no mapping of strings to entries")
    return made


# --- batches of columns -------------------------------------------------------------------------------------------------------------


def bare(transform: Transform, output: Output) -> Any:
    """What bare iteration gives for a row (BAT-9: ``{name: column[i]}``)."""
    if not transform.columnar or output.filled:
        return output.value
    return {name: column.entry(0) if isinstance(column, Tensor) else column[0] for name, column in output.value.items()}


def columnar_batch(made: Sequence[Output], arrays: bool) -> Row:
    """The rows of one call as a batch (BAT-9): lists are collated, or, as ``arrays``, left as they are.

    The columns are those of the rows that did not fail. A fill must have an entry for each of them (BAT-11); what fits no column, and
    columns that differ from row to row, which only rows tried one by one can have, are ``transform.failed``.
    """
    names = next((output.value for output in made if not output.filled), made[0].value)
    if any(name not in output.value for output in made for name in names):
        raise failed("a row without an entry for each column")
    columns = {name: join([(output.value[name], output.filled) for output in made]) for name in names}
    return {name: column if arrays or isinstance(column, Tensor) else collate(column, name) for name, column in columns.items()}


def join(entries: Sequence[tuple[Any, bool]]) -> Tensor | list[Any]:
    """One column of its entries; beside each whether it fills. Fills take the type of the column."""
    kinds = {(value.dtype, value.shape) if isinstance(value, Tensor) else None for value, filled in entries if not filled}
    if kinds <= {None}:
        return [value if filled else value[0] for value, filled in entries]
    kind = kinds.pop()
    if kinds or kind is None:
        raise failed("columns of different kinds")
    return stack([like(value, *kind) if filled else value.entry(0) for value, filled in entries])


def like(value: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """A fill as an entry of a column of tensors."""
    if isinstance(value, Tensor) and (value.dtype, value.shape) == (dtype, shape[1:]):
        return value
    if not isinstance(value, (int, float)) or shape != (1,):
        raise failed("transform_fill fits no entry of its column")
    cast = bool(value) if dtype == "bool" else float(value) if dtype.startswith("float") else int(value)
    if not dtype.startswith("float") and (cast != value or not holds(dtype, int(value))):
        raise failed("transform_fill is no value of its column")
    return Tensor(dtype, (), (cast,))


def holds(dtype: str, value: int) -> bool:
    """Whether an integer type, or bool, has this value."""
    if dtype == "bool":
        return value in (0, 1)
    bits = int(dtype.lstrip("uint"))
    low, high = (0, 1 << bits) if dtype.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
    return low <= value < high


# --- what is delivered --------------------------------------------------------------------------------------------------------------


def deliver(
    rows: Sequence[Row],
    calls: Sequence[int],
    transform: Transform,
    *,
    batch_size: int | None = None,
    arrays: bool = False,
    finished: Iterable[int] | None = None,
) -> Delivered:
    """What a pass over rows gives, and how it ends (BAT-9 to BAT-13, DLV-7).

    Parameters
    ----------
    rows : sequence of dict
        Those of the pass, in sequence.
    calls : sequence of int
        With how many rows the transform is called, call by call. Free, but for a columnar transform in the loader: its batches (BAT-9).
    transform : Transform
        And what happens where it fails.
    batch_size : int or None
        That of the loader; None for single outputs (bare iteration, WRK-7).
    arrays : bool
        Whether ``format="numpy"`` (BAT-9).
    finished : iterable of int, optional
        In which sequence the calls come to an end (BAT-13). Nothing depends on it.
    """
    cuts = [sum(calls[:index]) for index in range(len(calls) + 1)]
    assert cuts[-1] == len(rows)
    ends = {index: outputs(transform, tuple(rows[cuts[index] : cuts[index + 1]])) for index in finished or range(len(calls))}
    done: list[Output] = []
    error: Exception | None = None
    for index in range(len(calls)):
        made, error = ends[index]
        done += made
        if error is not None:
            break
    if batch_size is None:
        return Delivered(tuple(bare(transform, output) for output in done), len(done), sum(output.filled for output in done), error)
    assert not transform.columnar or all(size == batch_size for size in calls[:-1])
    assert not transform.columnar or all(size <= batch_size for size in calls)
    return batches(transform, done, error, batch_size, arrays)


def batches(transform: Transform, done: Sequence[Output], error: Exception | None, batch_size: int, arrays: bool) -> Delivered:
    """Whole batches before an error, and the shorter last one where there is none (BAT-11). None is delivered that cannot be collated."""
    items: list[Any] = []
    received: list[Output] = []
    for start in range(0, len(done), batch_size):
        made = done[start : start + batch_size]
        if len(made) < batch_size and error is not None:
            break
        try:
            items.append(columnar_batch(made, arrays) if transform.columnar else collate([output.value for output in made]))
        except ModelError as refused:
            error = refused
            break
        received += made
    return Delivered(tuple(items), len(received), sum(output.filled for output in received), error)


def calls_ahead(trace: Iterable[tuple[str, int]], threads: int, depth: int | None = None) -> Iterator[str]:
    """Judge ``("begin", call)`` and ``("take", call)``, as they happen: what breaks BAT-13.

    The call that the consumer waits for is not ahead of it; a trace need not say whether it waits, so the next one never counts.
    """
    limit = 0 if threads == 0 else 2 * threads if depth is None else depth
    begun = taken = 0
    for event, call in trace:
        if event == "begin":
            begun += 1
            if call - taken > limit:
                yield f"BAT-13: call {call} begun, {call - taken} ahead of {taken}, at most {limit}"
        elif call != taken or begun <= taken:
            yield f"BAT-13: call {call} taken, the next is {taken}, {begun} begun"
        else:
            taken += 1

"""BAT-9 to BAT-13 and DLV-7 on the model: judged row by row, by words; wrong variants are seen."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model import transforms
from model.batches import Row, Tensor
from model.errors import ModelError
from model.transforms import Delivered, Output, Transform, calls_ahead, deliver, like

ROWS = [{"id": number} for number in range(12)]


class Bad(Exception):
    """What a row does to a transform."""


def mapper(bad: Sequence[int], kind: type[Exception] = Bad) -> Callable[[tuple[Row, ...]], Any]:
    """A transform that fails with each of these rows."""

    def call(rows: tuple[Row, ...]) -> list[int]:
        for row in rows:
            if row["id"] in bad:
                raise kind(row["id"])
        return [row["id"] * 10 for row in rows]

    return call


def columnar(bad: Sequence[int]) -> Callable[[tuple[Row, ...]], Any]:
    """The same with columns: an array, and a list of strings."""
    inner = mapper(bad)

    def call(rows: tuple[Row, ...]) -> dict[str, Any]:
        values = inner(rows)
        return {"x": Tensor("int16", (len(values),), tuple(values)), "s": [str(value) for value in values]}

    return call


def fill(row: Row, error: Exception) -> Any:
    """A fill that is made."""
    return -row["id"] - 100 * len(error.args)


def columnar_fill(row: Row, error: Exception) -> Any:
    """A fill that is made, of columns."""
    return {"x": fill(row, error), "s": "filled"}


def cut(rng: random.Random, total: int) -> list[int]:
    """So many rows in calls of any size."""
    sizes: list[int] = []
    while sum(sizes) < total:
        sizes.append(rng.randrange(1, min(5, total - sum(sizes)) + 1))
    return sizes


def told(bad: Sequence[int], filling: bool, size: int | None) -> tuple[list[Any], int, int, int | None]:
    """By words: items, rows received, rows filled, and the row whose exception ends it. No word about calls: nothing depends on them."""
    end = min(bad, default=None) if not filling else None
    rows = [row["id"] for row in ROWS[:end]]
    values = [-number - 100 if number in bad else number * 10 for number in rows]
    if size is None:
        return values, len(rows), sum(number in bad for number in rows), end
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    if end is not None and len(rows) % size:
        groups.pop()
    received = rows[: sum(len(group) for group in groups)]
    return [Tensor("int64", (len(group),), tuple(group)) for group in groups], len(received), sum(n in bad for n in received), end


Deliver = Callable[..., Delivered]


def check(rng: random.Random, made_by: Deliver) -> bool:
    """Whether one random pass, transformed row by row, is what the words say."""
    bad = [number for number in range(12) if rng.random() < rng.choice([0.0, 0.1, 0.4])]
    size = rng.choice([None, 1, 2, 3, 5, 12, 20])
    calls = cut(rng, len(ROWS))
    finished = list(range(len(calls)))
    if rng.random() < 0.7:
        rng.shuffle(finished)
    filling = rng.random() < 0.5
    transform = Transform(mapper(bad), False, "fill" if filling else "raise", fill)
    made = made_by(ROWS, calls, transform, batch_size=size, finished=finished)
    items, rows, filled, end = told(bad, filling, size)
    error = made.error.args[0] if isinstance(made.error, Bad) else made.error
    return (list(made.items), made.rows, made.filled, error) == (items, rows, filled, end)


@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=False))
def test_delivered_rows_depend_on_rows_alone(rng: random.Random) -> None:
    """DLV-7, BAT-11, BAT-13: not on how rows are cut into calls, nor on which call ends first."""
    assert check(rng, deliver)


def changed(**parts: Any) -> Deliver:
    """``deliver`` with other parts inside."""

    def made(*arguments: Any, **named: Any) -> Delivered:
        with pytest.MonkeyPatch.context() as patch:
            for name, part in parts.items():
                patch.setattr(transforms, name, part)
            return deliver(*arguments, **named)

    return made


def lost_rows(transform: Transform, rows: tuple[Row, ...]) -> tuple[list[Output], Exception | None]:
    """Nothing of a call that fails is delivered."""
    made, error = OUTPUTS(transform, rows)
    return ([], error) if error else (made, None)


def filled_calls(transform: Transform, rows: tuple[Row, ...]) -> tuple[list[Output], Exception | None]:
    """All rows of a call that fails are filled."""
    made, error = OUTPUTS(transform, rows)
    if any(output.filled for output in made):
        return [Output(fill(row, Bad(row)), filled=True) for row in rows], error
    return made, error


def skipped_rows(transform: Transform, rows: tuple[Row, ...]) -> tuple[list[Output], Exception | None]:
    """Bad rows are left out."""
    made, error = OUTPUTS(replace(transform, on_transform_error="fill"), rows)
    return [output for output in made if not output.filled], error


def short_batches(transform: Transform, done: Sequence[Output], error: Exception | None, *rest: Any) -> Delivered:
    """The rows before the bad one, in a batch that is not whole."""
    return replace(BATCHES(transform, done, None, *rest), error=error)


def counted_ahead(transform: Transform, done: Sequence[Output], *rest: Any) -> Delivered:
    """Rows count where they were filled, not where they were received."""
    return replace(BATCHES(transform, done, *rest), filled=sum(output.filled for output in done))


def first_to_end(rows: Sequence[Row], calls: Sequence[int], transform: Transform, finished: Any = None, **rest: Any) -> Delivered:
    """Rows in the sequence in which their calls ended."""
    starts = [sum(calls[:index]) for index in range(len(calls))]
    mixed = [row for index in finished for row in rows[starts[index] : starts[index] + calls[index]]]
    return deliver(mixed, [calls[index] for index in finished], transform, **rest)


OUTPUTS, BATCHES = transforms.outputs, transforms.batches
WRONG: dict[str, Deliver] = {
    "rows of a failed call are lost": changed(outputs=lost_rows),
    "whole calls are filled": changed(outputs=filled_calls),
    "bad rows are skipped": changed(outputs=skipped_rows),
    "batches that are not whole": changed(batches=short_batches),
    "whichever call ends first": first_to_end,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_deliveries_are_seen(wrong: str) -> None:
    """DLV-7, BAT-11, BAT-13: what the comparison is good for; sampled."""
    assert not all(check(random.Random(seed), WRONG[wrong]) for seed in range(200))


def once(row: Row, error: Exception) -> int:
    """A fill that fails itself with row 3."""
    if row["id"] == 3:
        raise KeyError("fill")
    return 0


def test_what_cannot_be_isolated() -> None:
    """BAT-12, DLV-7: raised in either mode; what fails only together delivers none of its rows, a fill that fails those before it."""

    def together(rows: tuple[Row, ...]) -> list[int]:
        if len(rows) > 1:
            raise Bad("together")
        return [0]

    for mode in ("raise", "fill"):
        made = deliver(ROWS[:5], [1, 4], Transform(together, False, mode, 0))
        assert (made.items, made.filled, repr(made.error)) == ((0,), 0, repr(Bad("together")))
    made = deliver(ROWS[:5], [5], Transform(mapper([1, 3]), False, "fill", once))
    assert (made.items, made.rows, made.filled, type(made.error)) == ((0, 0, 20), 3, 1, KeyError)


@pytest.mark.parametrize(("made_by", "filled"), [(deliver, 0), (changed(batches=counted_ahead), 1)])
def test_fills_count_with_their_batch(made_by: Deliver, filled: int) -> None:
    """BAT-11, STA-2: a row that was filled, in a batch that is not delivered; a wrong variant counts it."""
    made = made_by(ROWS[:4], [4], Transform(mapper([2, 3]), False, "fill", once), batch_size=4)
    assert (made.rows, made.filled, type(made.error)) == (0, filled, KeyError)


@pytest.mark.parametrize("made", [[1], [1, 2, 3], {1: 1, 2: 2}, {1, 2}, "ab", b"ab", None, 7, Tensor("int8", (2,), (1, 2)), iter([1])])
def test_other_outputs_are_refused_at_once(made: Any) -> None:
    """DLV-7, BAT-12: none of the call's rows, in either mode, and no row is tried alone."""
    for mode in ("raise", "fill"):
        calls: list[int] = []

        def call(rows: tuple[Row, ...], calls: list[int] = calls) -> Any:
            calls.append(len(rows))
            return made

        done = deliver(ROWS[:2], [2], Transform(call, False, mode, 0))
        assert (done.items, getattr(done.error, "code", None), calls) == ((), "transform.failed", [2])


def test_lazy_outputs_and_stop_iteration() -> None:
    """DLV-5, DLV-7: a generator fails by itself where it is walked; StopIteration is wrapped, and belongs to its row."""
    lazy = Transform(lambda rows: (1 // row["id"] for row in reversed(rows)))
    assert isinstance(deliver(ROWS[:2][::-1], [2], lazy).error, ZeroDivisionError)
    assert deliver(ROWS[:2][::-1], [2], lazy).items == (1,)
    stop = Transform(mapper([1], StopIteration))
    assert getattr(deliver(ROWS[:3], [3], stop).error, "code", None) == "transform.failed"
    assert deliver(ROWS[:3], [3], replace(stop, on_transform_error="fill", transform_fill=5)).items == (0, 5, 20)


# --- columns ------------------------------------------------------------------------------------------------------------------------


def test_columns_in_the_loader_and_in_bare_iteration() -> None:
    """BAT-9: the result is the batch; bare, row i is ``{name: column[i]}``."""
    plain = Transform(columnar([]), True)
    first, last = deliver(ROWS[:3], [2, 1], plain, batch_size=2).items
    assert first == {"x": Tensor("int16", (2,), (0, 10)), "s": ["0", "10"]}
    assert last == {"x": Tensor("int16", (1,), (20,)), "s": ["20"]}
    assert deliver(ROWS[:2], [1, 1], plain).items == (
        {"x": Tensor("int16", (), (0,)), "s": "0"},
        {"x": Tensor("int16", (), (10,)), "s": "10"},
    )
    lists = Transform(lambda rows: {"n": [row["id"] for row in rows], "v": [[1, 2] for _ in rows]}, True)
    assert deliver(ROWS[:2], [2], lists, batch_size=2).items[0] == {
        "n": Tensor("int64", (2,), (0, 1)),
        "v": [Tensor("int64", (2,), (1, 1)), Tensor("int64", (2,), (2, 2))],
    }
    assert deliver(ROWS[:2], [2], lists, batch_size=2, arrays=True).items[0] == {"n": [0, 1], "v": [[1, 2], [1, 2]]}


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_columns_are_what_their_rows_would_be(rng: random.Random) -> None:
    """BAT-9, BAT-11: in the loader, batch by batch, as a transform of rows whose entries are collated; failures and counts too."""
    bad = [number for number in range(12) if rng.random() < rng.choice([0.0, 0.1, 0.4])]
    size, mode = rng.choice([1, 2, 5, 12, 20]), rng.choice(["raise", "fill"])

    def entries(value: int, text: str) -> Row:
        return {"x": Tensor("int16", (), (value,)), "s": text}

    def by_rows(rows: tuple[Row, ...]) -> list[Row]:
        return [entries(value, str(value)) for value in mapper(bad)(rows)]

    def filler(row: Row, error: Exception) -> Row:
        return entries(-row["id"], "filled")

    batches = [min(size, 12 - start) for start in range(0, 12, size)]
    columns = deliver(ROWS, batches, Transform(columnar(bad), True, mode, filler), batch_size=size)
    rows = deliver(ROWS, cut(rng, 12), Transform(by_rows, False, mode, filler), batch_size=size)
    assert replace(columns, error=None) == replace(rows, error=None)
    assert repr(columns.error) == repr(rows.error)
    bare = deliver(ROWS, cut(rng, 12), Transform(columnar(bad), True, mode, filler))
    assert bare.items == deliver(ROWS, [12], Transform(by_rows, False, mode, filler)).items


def test_failing_rows_among_columns() -> None:
    """BAT-11: filled with a mapping, in the type of the column; raised, nothing of its batch, bare the rows before."""
    filling = Transform(columnar([1, 2, 3]), True, "fill", columnar_fill)
    made = deliver(ROWS[:4], [2, 2], filling, batch_size=2)
    assert made == Delivered(
        (
            {"x": Tensor("int16", (2,), (0, -101)), "s": ["0", "filled"]},
            {"x": Tensor("int64", (2,), (-102, -103)), "s": ["filled", "filled"]},
        ),
        4,
        3,
    )
    bare = deliver(ROWS[:2], [2], filling)
    assert bare.items == ({"x": Tensor("int16", (), (0,)), "s": "0"}, {"x": -101, "s": "filled"})
    raising = replace(filling, on_transform_error="raise")
    assert deliver(ROWS[:4], [1, 3], raising).rows == 1
    done = deliver(ROWS[:4], [2, 2], replace(raising, call=columnar([3])), batch_size=2)
    assert (done.rows, repr(done.error)) == (2, repr(Bad(3)))


@pytest.mark.parametrize(
    "made", [None, [1, 2], {}, {1: [1, 2]}, {"x": [1]}, {"x": (1, 2)}, {"x": "ab"}, {"x": Tensor("int8", (), (1,))}, {"x": [1, 2], "y": []}]
)
def test_other_columns_are_refused(made: Any) -> None:
    """BAT-10."""
    for mode in ("raise", "fill"):
        done = deliver(ROWS[:3], [1, 2], Transform(lambda rows: {"x": [1]} if len(rows) == 1 else made, True, mode, {"x": 0}))
        assert (done.rows, getattr(done.error, "code", None)) == (1, "transform.failed")


@pytest.mark.parametrize("value", [None, 3, {}, {1: 2}, {"x": 1}, {"x": "text", "s": ""}, {"x": Tensor("int8", (), (1,)), "s": ""}])
def test_fills_that_are_no_row(value: Any) -> None:
    """BAT-11, BAT-12: an entry for each column, that fits it."""
    done = deliver(ROWS[:2], [2], Transform(columnar([1]), True, "fill", value), batch_size=2)
    assert (done.rows, getattr(done.error, "code", None)) == (0, "transform.failed")


def test_columns_that_do_not_fit_each_other() -> None:
    """BAT-12: rows tried one by one may become columns of other shapes, as where a transform pads to the longest row of its call."""

    def padded(rows: tuple[Row, ...]) -> Row:
        width = max(row["id"] for row in rows)
        mapper([2])(rows)
        return {"x": Tensor("int8", (len(rows), width), (0,) * len(rows) * width)}

    done = deliver(ROWS[:4], [4], Transform(padded, True, "fill", {"x": 0}), batch_size=4)
    assert (done.rows, getattr(done.error, "code", None)) == (0, "transform.failed")
    assert deliver(ROWS[:2], [2], Transform(padded, True), batch_size=2).items == ({"x": Tensor("int8", (2, 1), (0, 0))},)


def test_a_fill_that_stops() -> None:
    """DLV-5, BAT-12: StopIteration of ``transform_fill`` is wrapped."""
    done = deliver(ROWS[:2], [2], Transform(mapper([1]), False, "fill", lambda row, error: next(iter(()))))
    assert (done.items, getattr(done.error, "code", None)) == ((0,), "transform.failed")


def test_a_batch_that_cannot_be_collated() -> None:
    """BAT-4: no row of it is received, and the batches before it are."""
    tensors = Transform(lambda rows: [Tensor("int8", (row["id"],), (0,) * row["id"]) for row in rows])
    assert [deliver(ROWS[:2], [2], tensors, batch_size=size).rows for size in (1, 2)] == [2, 0]
    made = deliver(ROWS[:4], [4], Transform(lambda rows: [row["id"] if row["id"] < 3 else None for row in rows]), batch_size=2)
    assert (made.rows, isinstance(made.error, ModelError)) == (2, True)


@pytest.mark.parametrize(
    ("threads", "depth", "trace", "broken"),
    [
        (0, None, "b0 t0 b1 t1", 0),
        (0, None, "b0 b1 t0 t1", 1),
        (2, None, "b0 b1 b2 b3 b4 t0 b5", 0),
        (2, None, "b0 b1 b2 b3 b4 b5", 1),
        (1, 1, "b0 b1 t0 b2 t1 t2", 0),
        (1, 1, "b0 b1 t1", 1),
    ],
)
def test_calls_ahead(threads: int, depth: int | None, trace: str, broken: int) -> None:
    """BAT-13: calls are taken in their sequence, and few are ahead."""
    events = [("begin" if part[0] == "b" else "take", int(part[1:])) for part in trace.split()]
    assert len(list(calls_ahead(events, threads, depth))) == broken


@pytest.mark.parametrize(
    ("dtype", "value", "held"),
    [
        ("uint8", 255, True),
        ("uint8", 256, False),
        ("uint8", -1, False),
        ("int8", -128, True),
        ("int8", 128, False),
        ("int64", -1.5, False),
        ("int64", 2.0, True),
        ("bool", True, True),
        ("bool", 2, False),
        ("float32", 0.1, True),
    ],
)
def test_a_fill_is_a_value_of_its_column(dtype: str, value: Any, held: bool) -> None:
    """BAT-11: not another number in its place."""
    if held:
        assert like(value, dtype, (1,)).values == (value,)
    else:
        with pytest.raises(ModelError, match=r"transform\.failed"):
            like(value, dtype, (1,))

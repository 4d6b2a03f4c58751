"""Chapter batches on the model: against torch's own default_collate, against NumPy and torch, and by hand."""

from __future__ import annotations

import datetime
import decimal
import random
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from model.batches import Row, Tensor, Type, collate, numpy_batch, path, python_batch, torch_batch
from model.errors import BATCH_CODES, ModelError

Make = Callable[[random.Random], Any]
Batch = Callable[[list[Row]], Any]

MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 1, 500)
LEAVES: tuple[Make, ...] = (
    lambda rng: rng.randrange(-9, 9),
    lambda rng: rng.choice([-(2**63), 2**63 - 1, 2**63 if rng.random() < 0.2 else 5]),
    lambda rng: rng.random() < 0.5,
    lambda rng: rng.choice([0.0, -0.0, 1.5, float("inf"), float("nan"), 1e300]),
    lambda rng: rng.choice(string.ascii_letters),
    lambda rng: b"ab",
    lambda rng: (1, 2, 3),  # an interval
)
REFUSED: tuple[Make, ...] = (
    lambda rng: None,
    lambda rng: MOMENT,
    lambda rng: MOMENT.date(),
    lambda rng: datetime.timedelta(1),
    lambda rng: decimal.Decimal(1),
)


def random_kind(rng: random.Random, depth: int) -> Make:
    """A type: what makes values of it, nulls and lists of other lengths among them now and then."""
    nulls = rng.choice([0.0, 0.0, 0.0, 0.05, 0.3])

    def nullable(make: Make) -> Make:
        return lambda rng: None if rng.random() < nulls else make(rng)

    chosen = rng.random()
    if depth == 0 or chosen < 0.5:
        return nullable(rng.choice(LEAVES if rng.random() < 0.95 else REFUSED))
    child = random_kind(rng, depth - 1)
    if chosen < 0.8:
        size, loose = rng.randrange(4), rng.random() < 0.1
        return nullable(lambda rng: [child(rng) for _ in range(rng.randrange(4) if loose else size)])
    if chosen < 0.85:
        return nullable(lambda rng: [(rng.choice("ab"), child(rng))])  # a map of one entry
    children = {name: random_kind(rng, depth - 1) for name in "xyz"[: rng.randrange(4)]}
    return nullable(lambda rng: {name: make(rng) for name, make in children.items()})


def random_rows(rng: random.Random) -> list[Row]:
    """A batch of rows."""
    columns = {name: random_kind(rng, 3) for name in "abc"[: rng.randrange(1, 4)]}
    return [{name: make(rng) for name, make in columns.items()} for _ in range(rng.randrange(1, 5))]


def seen(made: Any) -> Any:
    """What can be compared, to the bit: of torch, of NumPy and of the model."""
    if isinstance(made, torch.Tensor):
        return str(made.dtype).removeprefix("torch."), tuple(made.shape), repr(made.flatten().tolist())
    if isinstance(made, Tensor):
        return made.dtype, made.shape, repr(list(made.values))
    if isinstance(made, dict):
        return {name: seen(value) for name, value in made.items()}
    if isinstance(made, (list, tuple)):
        return type(made).__name__, [seen(value) for value in made]
    return repr(made)


def outcome(batch: Batch, rows: list[Row]) -> Any:
    """What a batch is, or that it is refused."""
    try:
        return seen(batch(rows))
    except Exception:
        return "refused"


@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=False))
def test_python_is_what_torch_collates(rng: random.Random) -> None:
    """BAT-3, BAT-4: values, dtypes, structure and refusals are torch's, and the column that is named is one that torch refuses."""
    rows = random_rows(rng)
    assert outcome(python_batch, rows) == outcome(default_collate, rows)
    try:
        python_batch(rows)
    except ModelError as error:
        assert error.code == "batch.column"
        (column,) = error.fields
        refused = [name for name in rows[0] if outcome(default_collate, [{name: row[name]} for row in rows]) == "refused"]
        assert column == refused[0]


def replaced(made: Any, change: Callable[[Any], Any]) -> Any:
    """A batch with something changed at each place."""
    if isinstance(made, dict):
        made = {name: replaced(value, change) for name, value in made.items()}
    elif isinstance(made, (list, tuple)):
        made = type(made)([replaced(value, change) for value in made])
    return change(made)


def no_nulls(rows: list[Row]) -> Row:
    """Refuses nulls everywhere, also among strings."""

    def check(made: Any) -> Any:
        if made is None:
            raise ModelError("batch.column")
        return made

    replaced([list(row.values()) for row in rows], check)
    return python_batch(rows)


def shortest(rows: list[Row]) -> Any:
    """Lists of different lengths are cut."""

    def cut(name: str) -> list[Any]:
        values = [row[name] for row in rows]
        size = min((len(value) for value in values if isinstance(value, list)), default=0)
        return [value[:size] if isinstance(value, list) else value for value in values]

    return {name: collate(cut(name), name) for name in rows[0]}


def first_only(rows: list[Row]) -> Row:
    """Judges a column by its first value alone."""
    return python_batch([row if index == 0 or None not in row.values() else rows[0] for index, row in enumerate(rows)])


def wrapped(rows: list[Row]) -> Any:
    """Integers beyond int64 as they would stand in int64."""
    return python_batch(replaced(rows, lambda made: made - 2**64 if type(made) is int and made >= 2**63 else made))


WRONG: dict[str, Batch] = {
    "tuples everywhere": lambda rows: replaced(python_batch(rows), lambda made: tuple(made) if isinstance(made, list) else made),
    "lists everywhere": lambda rows: replaced(python_batch(rows), lambda made: list(made) if isinstance(made, tuple) else made),
    "bool as int64": lambda rows: replaced(
        python_batch(rows), lambda made: Tensor("int64", made.shape, tuple(map(int, made.values))) if isinstance(made, Tensor) else made
    ),
    "float32": lambda rows: replaced(
        python_batch(rows),
        lambda made: Tensor("float32", made.shape, made.values) if isinstance(made, Tensor) and made.dtype == "float64" else made,
    ),
    "no nulls among strings": no_nulls,
    "lists are cut": shortest,
    "nulls after the first are skipped": first_only,
    "unsigned integers wrap": wrapped,
    "columns sorted by length of value": lambda rows: {name: collate(sorted((row[name] for row in rows), key=repr)) for name in rows[0]},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_batches_differ_from_torch(wrong: str) -> None:
    """BAT-3, BAT-4: what the comparison is good for; sampled."""
    samples = [random_rows(random.Random(seed)) for seed in range(1500)]
    assert any(outcome(WRONG[wrong], rows) != outcome(default_collate, rows) for rows in samples)


def test_python_by_hand() -> None:
    """BAT-3 in its own words."""
    rows: list[Row] = [
        {"i": 1, "f": 0.5, "b": True, "s": "x", "l": [1, 2], "d": {"t": b"a"}},
        {"i": 2, "f": 1, "b": False, "s": None, "l": [3, 4], "d": {"t": None}},
    ]
    assert python_batch(rows) == {
        "i": Tensor("int64", (2,), (1, 2)),
        "f": Tensor("float64", (2,), (0.5, 1.0)),
        "b": Tensor("bool", (2,), (True, False)),
        "s": ["x", None],
        "l": [Tensor("int64", (2,), (1, 3)), Tensor("int64", (2,), (2, 4))],
        "d": {"t": [b"a", None]},
    }
    assert python_batch([{"l": ["a"]}, {"l": [None]}]) == {"l": [("a", None)]}


@pytest.mark.parametrize(
    "values",
    [[1, None], [None, 1], [None, "a"], [[1], []], [2**63, 1], [MOMENT], [[MOMENT]], [{"x": 1}, None], [[1], None], [[{"x": None}]]],
)
def test_refused_columns_are_named(values: list[Any]) -> None:
    """BAT-4."""
    rows = [{"good": 1, "bad": value, "worse": None} for value in values]
    with pytest.raises(ModelError) as error:
        python_batch(rows)
    assert (error.value.code, error.value.fields) == ("batch.column", ("bad",))


def test_codes_are_those_of_the_chapter() -> None:
    """BAT-4, BAT-10."""
    chapter = (Path(__file__).parents[2] / "spec" / "batches.md").read_text(encoding="utf-8")
    assert all(f"`{code}`" in chapter for code in BATCH_CODES)


# --- torch and NumPy ----------------------------------------------------------------------------------------------------------------


def random_dense(rng: random.Random) -> tuple[str, Any, Type]:
    """Numbers, in lists of any depth, equally long: a dtype, what makes a row, and the type."""
    dtype = rng.choice(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bool"])
    choices: dict[str, list[Any]] = {"b": [True, False], "u": [0, 200], "f": [0.5, -2.0, float("inf"), float("nan")]}
    values = choices.get(dtype[0], [-100, 100])
    kind: Type = (dtype,)
    make: Make = lambda rng: rng.choice(values)  # noqa: E731
    for _ in range(rng.randrange(3)):
        size = rng.randrange(1, 4)
        kind = ("list", kind, size) if rng.random() < 0.5 else ("list", kind)
        make = lambda rng, make=make, size=size: [make(rng) for _ in range(size)]  # type: ignore[misc] # noqa: E731
    return dtype, make, kind


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_numbers_in_their_own_width(rng: random.Random) -> None:
    """BAT-5, BAT-6: as torch makes tensors and NumPy arrays of the same values, and refused with a null at any place."""
    dtype, make, kind = random_dense(rng)
    values = [make(rng) for _ in range(rng.randrange(1, 5))]
    expected = seen(torch.tensor(values, dtype=getattr(torch, dtype)))
    array = numpy.array(values, dtype)
    rows, types = [{"x": value} for value in values], {"x": kind}
    assert seen(torch_batch(rows, types)) == {"x": expected}
    made = numpy_batch(rows, types)["x"]
    assert seen(made) == (str(array.dtype), array.shape, repr(array.flatten().tolist()))
    hole = rng.randrange(len(values))
    rows[hole] = {"x": None if kind[0] != "list" or rng.random() < 0.5 else [None, *values[hole][1:]]}
    for batch in (torch_batch, numpy_batch):
        with pytest.raises(ModelError, match=r"batch\.column: x"):
            batch(rows, types)


def column(values: Sequence[Any], kind: Type, arrays: bool = False) -> Any:
    """A column by itself; the code where it is refused."""
    try:
        return (numpy_batch if arrays else torch_batch)([{"x": value} for value in values], {"x": kind})["x"]
    except ModelError as error:
        assert error.fields == ("x",)
        return error.code


def test_lists_of_different_lengths() -> None:
    """BAT-5: a list of B tensors; inside one row it is no type that the clause names."""
    assert column([[1], [], [2, 3]], ("list", ("int8",))) == [
        Tensor("int8", (1,), (1,)),
        Tensor("int8", (0,), ()),
        Tensor("int8", (2,), (2, 3)),
    ]
    nested = ("list", ("list", ("bool",)))
    assert column([[[True], [False]], [[True]]], nested) == [Tensor("bool", (2, 1), (True, False)), Tensor("bool", (1, 1), (True,))]
    assert column([[[True], []]], nested) == "batch.column"
    assert column([[], []], nested) == Tensor("bool", (2, 0, 0), ())
    assert column([[], []], ("list", ("list", ("bool",), 3))) == Tensor("bool", (2, 0, 3), ())
    assert column([[], []], ("list", ("list", ("list", ("bool",), 2), 3))) == Tensor("bool", (2, 0, 3, 2), ())


def test_what_is_no_number() -> None:
    """BAT-5, BAT-6."""
    for name in ("string", "binary"):
        assert column(["a", None], (name,)) == ["a", None]
        assert column(["a", None], (name,), arrays=True) == Tensor("object", (2,), ("a", None))
    others: list[tuple[Type, list[Any]]] = [
        (("other",), [decimal.Decimal(1), None]),
        (("list", ("string",)), [["a"], None]),
        (("list", ("struct", {})), [[{}], []]),
    ]
    for kind, values in others:
        assert column(values, kind) == "batch.column"
        assert column(values, kind, arrays=True) == Tensor("object", (2,), tuple(values))
    struct = ("struct", {"s": ("string",), "t": ("struct", {"i": ("int8",)})})
    assert column([{"s": None, "t": {"i": 1}}], struct) == {"s": [None], "t": {"i": Tensor("int8", (1,), (1,))}}
    assert column([{"s": None, "t": None}], struct) == "batch.column"
    assert column([None], ("struct", {"s": ("string",)})) == {"s": [None]}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (("date", "D"), MOMENT.date()),
        (("date", "ms"), MOMENT.date()),
        (("timestamp", "s"), MOMENT.replace(microsecond=0)),
        (("timestamp", "us"), MOMENT),
        (("timestamp", "ns"), datetime.datetime(1901, 1, 1)),
        (("timestamp", "us"), MOMENT.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))),
        (("duration", "ms"), datetime.timedelta(days=-1, milliseconds=1)),
    ],
)
def test_moments_in_their_unit(kind: Type, value: Any) -> None:
    """BAT-6: as NumPy converts them, NaT for null; a list of them is an object."""
    made = column([value, None], kind, arrays=True)
    plain = value.astimezone(datetime.timezone.utc).replace(tzinfo=None) if getattr(value, "tzinfo", None) else value
    array = numpy.array([plain, None], made.dtype)
    assert made.dtype == str(array.dtype)
    assert made.values == (int(array.view("int64")[0]), None)
    assert numpy.isnat(array[1])
    assert column([value], kind) == "batch.column"
    assert column([[value]], ("list", kind), arrays=True) == Tensor("object", (1,), ([value],))
    assert column([made.values[0]], kind, arrays=True).values == made.values[:1]


def test_which_path() -> None:
    """BAT-1, BAT-2, BAT-9: exhaustive over what is given."""
    for bits in range(16):
        batch_size = 8 if bits & 1 else None
        flags = {"collate_fn": bool(bits & 2), "transform": bool(bits & 4), "columnar_transform": bool(bits & 8)}
        plain = batch_size is not None and not flags["collate_fn"] and not flags["transform"]
        for kind in ("python", "torch", "numpy", "arrow", "pandas"):
            try:
                made = path(batch_size, format=kind, **flags)
            except ModelError as error:
                made = error.code
            both = flags["columnar_transform"] and (flags["transform"] or kind == "arrow")
            refused = kind == "pandas" or both or (kind != "python" and not plain)
            assert made == ("argument.value" if refused else "columns" if plain else "rows")

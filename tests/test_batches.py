"""Batches made of columns are those that torch makes of rows, and native formats hold the same values (BAT-1 to BAT-8, LAW-13)."""

from __future__ import annotations

import datetime
import itertools
import math
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from model.batches import NATIVE, Tensor, numpy_batch, torch_batch
from model.errors import ModelError
from streaming import StreamingDataLoader, StreamingDataset, batches
from streaming.batches import FORMATS, make_batch
from streaming.errors import ArgumentTypeError, ArgumentValueError, BatchError
from streaming.parcel import Parcel

INTEGERS = {kind: (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}
UNSIGNED = {kind: (0, 2**kind.bit_width - 1) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())}
MOMENT = st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2100, 1, 1))

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **{kind: st.integers(*bounds) for kind, bounds in {**INTEGERS, **UNSIGNED}.items()},
    pa.float16(): st.floats(width=16).map(np.float16),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=3),
    pa.large_string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.binary(2): st.binary(min_size=2, max_size=2),
    pa.date32(): st.dates(datetime.date(1970, 1, 1), datetime.date(2100, 1, 1)),
    pa.timestamp("us"): MOMENT,
    pa.timestamp("us", "UTC"): MOMENT,
    pa.decimal128(5, 2): st.decimals(-9, 9, places=2),
    pa.null(): st.none(),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["a", "b"]),
    pa.dictionary(pa.int8(), pa.int16()): st.integers(-9, 9),
}


def of_kind(kind: pa.DataType, rows: int, nulls: bool) -> st.SearchStrategy[list[Any]]:
    """Values of a column; lists of equal lengths, or not."""
    if pa.types.is_struct(kind):
        columns = st.tuples(*(of_kind(field.type, rows, nulls) for field in kind))
        names = [field.name for field in kind]
        values = columns.map(lambda c: [dict(zip(names, row, strict=True)) for row in zip(*c, strict=True)])
    elif pa.types.is_fixed_size_list(kind):
        values = st.lists(of_kind(kind.value_type, kind.list_size, nulls), min_size=rows, max_size=rows)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = st.one_of(
            st.integers(0, 3).map(lambda length: [length] * rows), st.lists(st.integers(0, 3), min_size=rows, max_size=rows)
        )
        values = lengths.flatmap(lambda each: st.tuples(*(of_kind(kind.value_type, length, nulls) for length in each)).map(list))
    else:
        values = st.lists(VALUES[kind], min_size=rows, max_size=rows)
    if not nulls:
        return values
    missing = st.sets(st.integers(0, max(rows - 1, 0)), max_size=1)
    return st.tuples(values, missing).map(lambda both: [None if i in both[1] else value for i, value in enumerate(both[0])])


FLAT = st.sampled_from(list(VALUES))
KINDS = st.recursive(
    FLAT,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.list_(kind, 2)),
        st.lists(inner, min_size=1, max_size=2).map(lambda kinds: pa.struct([pa.field(f"f{i}", kind) for i, kind in enumerate(kinds)])),
    ),
    max_leaves=3,
)


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """A column of 1 to 5 rows, which may be a slice of a longer one."""
    kind, rows, nulls = draw(KINDS), draw(st.integers(1, 5)), draw(st.sampled_from([False, False, True]))
    values = draw(of_kind(kind, rows, nulls))
    begin = draw(st.integers(0, 2))
    return pa.array(values[:1] * begin + values, kind)[begin:]


def same(ours: Any, theirs: Any) -> bool:
    """Equal in types, structure, dtypes and values; NaN is NaN."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, torch.Tensor):
        return ours.dtype == theirs.dtype and ours.shape == theirs.shape and torch.equal(ours.nan_to_num(7.5), theirs.nan_to_num(7.5))
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs) or (isinstance(ours, float) and math.isnan(ours) and math.isnan(theirs))


LIST, PAIR = pa.list_(pa.int32()), pa.list_(pa.int32(), 2)


@example(pa.array([1, 2**63], pa.uint64()), False)
@example(pa.array([1, 2**63 - 1], pa.uint64()), False)
@example(pa.array([[1, None], [2, 3]], LIST), False)
@example(pa.array([[1, None], [2, 3]], PAIR), False)
@example(pa.array([[1, 2], None], PAIR), False)
@example(pa.array([[], []], LIST), True)
@example(pa.array([{"s": "a"}, None]), False)
@example(pa.array(["a", None]), True)
@example(pa.array([None, "a"]), True)
@given(columns(), st.booleans())
def test_the_default_batch_is_what_torch_collates_of_rows(column: pa.Array, travels: bool) -> None:
    """BAT-3, BAT-4: equal in values, dtypes and structure, or refused by both. Sampled over types, nulls, nesting, lengths, slices."""
    batch = pa.record_batch({"x": column})
    try:
        expected = default_collate(batch.to_pylist())
    except (TypeError, ValueError, RuntimeError, OverflowError):
        with pytest.raises(BatchError, match="'x'") as refusal:
            make_batch(batch, "python")
        assert refusal.value.column == "x"
        assert isinstance(refusal.value, TypeError)
        return
    ours = make_batch(batch, "python", travels)
    if travels:
        ours = pickle.loads(bytes(ForkingPickler.dumps(Parcel(ours))))
    assert same(ours, expected)


NUMBERS = [*INTEGERS, *UNSIGNED, pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.dictionary(pa.int8(), pa.int16())]
NESTED = {
    "number": lambda kind: kind,
    "list": pa.list_,
    "large list": pa.large_list,
    "vector": lambda kind: pa.list_(kind, 2),
    "cube": lambda kind: pa.list_(pa.large_list(pa.list_(kind, 2))),
    "struct": lambda kind: pa.struct([("a", kind), ("b", pa.list_(kind))]),
    "structs": lambda kind: pa.list_(pa.struct([("a", kind)]), 2),
}


@pytest.mark.parametrize("nesting", NESTED)
@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_no_number_becomes_an_object(kind: pa.DataType, nesting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """BAT-3: of no numeric type, in no nesting; also where lists differ inside a row, but not from row to row."""
    whole, values = NESTED[nesting](kind), np.array([True, False]) if kind == pa.bool_() else np.array([3, 5])
    if kind == pa.float16():
        values = values.astype(np.float16)
    entries = list(values)
    rows = {
        "number": entries,
        "list": [entries, entries[::-1]],
        "large list": [entries, entries[::-1]],
        "vector": [entries, entries[::-1]],
        "cube": [[[entries], [entries, entries]], [[entries[::-1]], [entries, entries]]],
        "struct": [{"a": value, "b": entries} for value in entries],
        "structs": [[{"a": value}] * 2 for value in entries],
    }[nesting]
    batch = pa.record_batch({"x": pa.array(rows, whole)})
    expected = default_collate(batch.to_pylist())
    monkeypatch.setattr(batches, "default_collate", None)
    assert same(make_batch(batch, "python"), expected)


def described(kind: pa.DataType) -> Any:
    """The model's description of a type."""
    if pa.types.is_struct(kind):
        return ("struct", {field.name: described(field.type) for field in kind})
    if pa.types.is_dictionary(kind):
        return described(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return ("list", described(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ("list", described(kind.value_type))
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return ("timestamp", kind.unit) if pa.types.is_timestamp(kind) else ("date", "D")
    names = {"halffloat": "float16", "float": "float32", "double": "float64", "large_string": "string"}
    name = names.get(str(kind), str(kind))
    return (name if name in {*NATIVE, "string"} else "binary" if name.startswith(("binary", "fixed_size_binary")) else "other",)


def as_model(value: Any) -> Any:
    """A batch in a native format as the model writes it."""
    if isinstance(value, torch.Tensor):
        return Tensor(str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.flatten().tolist()))
    if isinstance(value, np.ndarray) and value.dtype.kind == "M":
        ticks = [None if np.isnat(moment) else int(moment.astype(np.int64)) for moment in value]
        return Tensor(str(value.dtype), value.shape, tuple(ticks))
    if isinstance(value, np.ndarray):
        return Tensor(str(value.dtype), value.shape, tuple(value.flatten().tolist()))
    if isinstance(value, dict):
        return {name: as_model(item) for name, item in value.items()}
    return [as_model(item) for item in value] if isinstance(value, list) else value


@given(columns(), st.sampled_from(["torch", "numpy"]), st.booleans())
def test_native_formats_are_those_of_the_model(column: pa.Array, layout: str, travels: bool) -> None:
    """BAT-5, BAT-6: types, shapes, values and refusals. Sampled over types, nulls, nesting, lengths, slices."""
    batch = pa.record_batch({"x": column})
    make = torch_batch if layout == "torch" else numpy_batch
    try:
        expected = make(batch.to_pylist(), {"x": described(column.type)})
    except ModelError as refusal:
        assert (refusal.code, refusal.fields) == ("batch.column", ("x",))
        with pytest.raises(BatchError, match="'x'"):
            make_batch(batch, layout)
        return
    ours = make_batch(batch, layout, travels)
    if travels:
        ours = pickle.loads(bytes(ForkingPickler.dumps(Parcel(ours))))
    assert repr(as_model(ours)) == repr(expected)  # NaN is NaN


def test_shapes_of_native_formats() -> None:
    """BAT-5, BAT-6: stacked where lengths are equal, else a list; strings, binaries, structs, dates."""
    batch = pa.record_batch(
        {
            "vector": pa.array([[1, 2, 3], [4, 5, 6]], pa.list_(pa.float32(), 3)),
            "even": pa.array([[1, 2], [3, 4]], pa.list_(pa.int16())),
            "ragged": pa.array([[1], [2, 3]], pa.list_(pa.int32())),
            "cube": pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], pa.list_(pa.list_(pa.uint8()))),
            "text": pa.array(["a", None]),
            "inner": pa.array([{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]),
        }
    )
    tensors, arrays = make_batch(batch, "torch"), make_batch(batch, "numpy")
    for made, module in ((tensors, torch), (arrays, np)):
        assert made["vector"].shape == (2, 3)
        assert made["vector"].dtype == module.float32  # type: ignore[attr-defined]
        assert made["even"].shape == (2, 2)
        assert made["cube"].shape == (2, 2, 2)
        assert [part.tolist() for part in made["ragged"]] == [[1], [2, 3]]
        assert made["inner"]["n"].tolist() == [1, 2]
    assert tensors["text"] == ["a", None]
    assert arrays["text"].tolist() == ["a", None]
    assert arrays["text"].dtype == object
    assert make_batch(batch, "arrow") is batch
    moments = pa.record_batch({"t": pa.array([1, None], pa.timestamp("ms")), "d": pa.array([1, 2], pa.date32())})
    dated = make_batch(moments, "numpy")
    assert dated["t"].dtype == np.dtype("datetime64[ms]")
    assert np.isnat(dated["t"]).tolist() == [False, True]
    assert dated["d"].dtype == np.dtype("datetime64[D]")
    for name in ("t", "d"):
        with pytest.raises(BatchError, match=repr(name)):
            make_batch(moments.select([name]), "torch")


@pytest.fixture(scope="module")
def table() -> Any:
    rows = [{"id": i, "v": [float(i), i + 0.5], "s": f"row {i}", "n": {"a": i}} for i in range(40)]
    schema = pa.schema(
        {"id": pa.int32(), "v": pa.list_(pa.float32(), 2), "s": pa.string(), "n": pa.struct({"a": pa.int16()})},
    )
    return lancedb.connect("memory://").create_table("batches", pa.Table.from_pylist(rows, schema))


def collate_rows(rows: Any) -> Any:
    return default_collate(rows)


def test_both_paths_deliver_the_same_batches(table: Any) -> None:
    """BAT-1: a collate_fn that does what torch's does, the default, and torch's own DataLoader."""
    made = {}
    for name, arguments in {
        "columns": {},
        "named": {"collate_fn": default_collate},
        "rows": {"collate_fn": collate_rows},
    }.items():
        dataset = StreamingDataset(table, num_splits=4, shuffle_seed=3)
        batches = []
        for batch in StreamingDataLoader(dataset, batch_size=7, **arguments):
            batches.append((batch, dataset.state_dict()))
        made[name] = batches
    plain_torch = list(torch.utils.data.DataLoader(StreamingDataset(table, num_splits=4, shuffle_seed=3), batch_size=7))
    for columns_, named, rows, plain_ in zip(made["columns"], made["named"], made["rows"], plain_torch, strict=True):
        assert same(columns_[0], rows[0])
        assert same(columns_[0], named[0])
        assert same(columns_[0], plain_)
        assert columns_[1] == rows[1] == named[1]


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("budget", [1, 3000, 2**26])
def test_a_batch_is_the_trainers_own(table: Any, layout: str, budget: int) -> None:
    """BAT-8: writing into a batch changes no other; it keeps no other row alive. At every size of windows."""
    dataset = StreamingDataset(table, num_splits=4, shuffle_seed=3, read_ahead_bytes=budget)
    seen, kept = [], []
    for batch in StreamingDataLoader(dataset, batch_size=6, format=layout):
        seen += batch["id"].tolist() if layout != "arrow" else batch["id"].to_pylist()
        kept.append(batch)
        if layout != "arrow":
            batch["id"][:] = -1
        else:
            assert batch.nbytes < 6 * 60
    assert sorted(seen) == list(range(40))
    if layout == "torch":
        assert all(batch["id"].untyped_storage().nbytes() == batch["id"].nbytes for batch in kept)
        assert all((batch["id"] == -1).all() for batch in kept)


@pytest.mark.parametrize("arguments", [{"batch_size": None}, {"batch_size": 4, "collate_fn": list}])
@pytest.mark.parametrize("layout", FORMATS[1:])
def test_formats_need_batches_of_columns(table: Any, layout: str, arguments: dict[str, Any]) -> None:
    """BAT-2."""
    with pytest.raises(ArgumentValueError, match="format") as refusal:
        StreamingDataLoader(StreamingDataset(table), format=layout, **arguments)
    assert refusal.value.argument == "format"
    with pytest.raises(ArgumentValueError, match="columnar_transform"):
        StreamingDataLoader(StreamingDataset(table, transform=len), batch_size=4, format=layout)


def test_an_unknown_format_is_refused(table: Any) -> None:
    with pytest.raises(ArgumentValueError, match="'python' or 'torch' or 'numpy' or 'arrow'"):
        StreamingDataLoader(StreamingDataset(table), format="jax")
    with pytest.raises(ArgumentTypeError):
        StreamingDataLoader(StreamingDataset(table), format=None)  # type: ignore[arg-type]


def test_a_refused_column_loses_nothing(table: Any) -> None:
    """BAT-4: the batches before it arrive, the place is theirs, and another format goes on there."""
    rows = pa.table({"id": range(20), "x": pa.array([None if i == 13 else i for i in range(20)], pa.int32())})
    dataset = StreamingDataset(lancedb.connect("memory://").create_table("holes", rows), shuffle=False)
    batches = iter(StreamingDataLoader(dataset, batch_size=4))
    seen = [next(batches)["id"].tolist() for _ in range(3)]
    with pytest.raises(BatchError, match="'x' of type int32"):
        next(batches)
    rest = [batch["id"].to_pylist() for batch in StreamingDataLoader(dataset, batch_size=4, format="arrow")]
    assert list(itertools.chain(*seen, *rest)) == list(range(20))

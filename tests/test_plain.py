"""What rows and batches hold of extension types, whether or not this process has registered them (BAT-14)."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from model.batches import Tensor, carried, numpy_batch, torch_batch
from streaming import StreamingDataLoader, StreamingDataset
from streaming.batches import make_batch
from streaming.errors import BatchError
from streaming.parcel import Parcel
from streaming.plain import python_rows
from tests.test_batches import as_model, collate_rows, same
from tests.test_extension import raw, registered

__all__ = ["registered"]


def halves(number: float) -> bytes:
    return np.float32(number).tobytes()[2:]


TENSORS: dict[str, tuple[pa.DataType, tuple[int, ...], tuple[int, ...], str]] = {
    "floats": (pa.float32(), (2, 3), (0, 1), '{"shape":[2,3]}'),
    "vector": (pa.uint16(), (2,), (0,), '{"shape": [2]}'),
    "turned": (pa.int16(), (2, 2, 3), (1, 2, 0), '{"shape":[2,2,3],"permutation":[1,2,0],"dim_names":["a","b","c"]}'),
    "flags": (pa.bool_(), (1, 2), (1, 0), '{"shape":[1,2],"permutation":[1,0]}'),
}
# Storage type, extension name, its text, ordinary type; and values in storage with what they mean.
LEAVES: dict[str, tuple[pa.DataType, str, str, pa.DataType]] = {
    "own": (pa.int32(), "tests.celsius", "scale=1", pa.int32()),
    "bfloat16": (pa.binary(2), "lance.bfloat16", "", pa.float32()),
    "bool8": (pa.int8(), "arrow.bool8", "", pa.bool_()),
    "json": (pa.string(), "arrow.json", "", pa.string()),
    "uuid": (pa.binary(16), "arrow.uuid", "", pa.binary(16)),
}
VALUES: dict[str, st.SearchStrategy[tuple[Any, Any]]] = {
    "own": st.integers(-9, 9).map(lambda i: (i, i)),
    "bfloat16": st.sampled_from([0.0, -1.5, 3e38, float("inf")]).map(
        lambda f: (halves(f), np.frombuffer(b"\0\0" + halves(f), np.float32)[0])
    ),
    "bool8": st.integers(-3, 3).map(lambda i: (i, i != 0)),
    "json": st.sampled_from(["{}", "[1]"]).map(lambda s: (s, s)),
    "uuid": st.binary(min_size=16, max_size=16).map(lambda b: (b, b)),
    "int": st.integers(-9, 9).map(lambda i: (i, i)),
}


def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """Without pandas, which pyarrow's own `to_pandas_dtype` needs in some releases."""
    return pa.array([], kind).to_numpy(zero_copy_only=False).dtype


def tensor(name: str, first: int) -> tuple[Any, Any]:
    """A tensor in storage, and as nested lists."""
    kind, shape, order, _ = TENSORS[name]
    dtype = numpy_type(kind)
    meant = (np.arange(np.prod(shape)) + first).astype(dtype).reshape([shape[i] for i in order])
    return meant.transpose(np.argsort(order)).ravel().tolist(), meant.tolist()


Kind = Any


def field_of(kind: Kind, name: str = "x") -> pa.Field:
    """As a process has it that knows no extension type."""
    if kind == "int":
        return pa.field(name, pa.int8())
    if kind in TENSORS:
        entry, shape, _, text = TENSORS[kind]
        return raw(name, pa.list_(entry, int(np.prod(shape))), "arrow.fixed_shape_tensor", text)
    if kind in LEAVES:
        storage, extension, text, _ = LEAVES[kind]
        return raw(name, storage, extension, text)
    if kind[0] == "struct":
        return pa.field(name, pa.struct([field_of(child, f"f{i}") for i, child in enumerate(kind[1:])]))
    item = field_of(kind[1], "item")
    return pa.field(name, {"list": pa.list_, "large": pa.large_list, "pair": lambda each: pa.list_(each, 2)}[kind[0]](item))


def ordinary(kind: Kind) -> pa.DataType:
    """The type that BAT-14 says it is like."""
    if kind == "int":
        return pa.int8()
    if kind in TENSORS:
        entry, shape, order, _ = TENSORS[kind]
        for i in reversed(order):
            entry = pa.list_(entry, shape[i])
        return entry
    if kind in LEAVES:
        return LEAVES[kind][3]
    if kind[0] == "struct":
        return pa.struct([(f"f{i}", ordinary(child)) for i, child in enumerate(kind[1:])])
    item = ordinary(kind[1])
    return {"list": pa.list_, "large": pa.large_list, "pair": lambda each: pa.list_(each, 2)}[kind[0]](item)


def values_of(kind: Kind, nulls: bool) -> st.SearchStrategy[tuple[Any, Any]]:
    """A value in storage, and what it means."""
    if kind in TENSORS:
        found: st.SearchStrategy[tuple[Any, Any]] = st.integers(0, 9).map(lambda first: tensor(kind, first))
    elif isinstance(kind, str):
        found = VALUES[kind]
    elif kind[0] == "struct":
        found = st.tuples(*(values_of(child, nulls) for child in kind[1:])).map(
            lambda parts: tuple({f"f{i}": part[side] for i, part in enumerate(parts)} for side in (0, 1))  # type: ignore[arg-type, return-value]
        )
    else:
        least, most = (2, 2) if kind[0] == "pair" else (0, 3)
        found = st.lists(values_of(kind[1], nulls), min_size=least, max_size=most).map(
            lambda parts: ([part[0] for part in parts], [part[1] for part in parts])
        )
    return st.one_of(found, found, st.just((None, None))) if nulls else found


KINDS = st.recursive(
    st.sampled_from([*LEAVES, *TENSORS]),
    lambda inner: st.one_of(
        *(st.tuples(st.just(name), inner) for name in ("list", "large", "pair")),
        st.tuples(st.just("struct"), inner, st.just("int")),
        st.tuples(st.just("struct"), inner, inner),
    ),
    max_leaves=3,
)


@st.composite
def columns(draw: st.DrawFn) -> tuple[Kind, pa.RecordBatch, pa.RecordBatch, bool]:
    """A kind, rows of it, perhaps a slice of more, in storage types and in ordinary ones; whether a table in two pieces is made of them."""
    kind = draw(KINDS)
    values = draw(st.lists(values_of(kind, draw(st.sampled_from([False, False, True]))), min_size=1, max_size=5))
    begin = draw(st.integers(0, len(values) - 1))
    field = field_of(kind)
    stored = pa.record_batch([pa.array([value[0] for value in values], field.type)], schema=pa.schema([field]))
    plain = pa.record_batch([pa.array([value[1] for value in values], ordinary(kind))], names=["x"])
    return kind, stored.slice(begin), plain.slice(begin), draw(st.booleans())


def known(rows: pa.RecordBatch) -> pa.RecordBatch:
    """As a process has it that has registered the types."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def in_pieces(rows: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([rows.slice(0, len(rows) // 2), rows.slice(len(rows) // 2)])


def holds(kind: Kind, names: Any) -> bool:
    return kind in names if isinstance(kind, str) else any(holds(child, names) for child in kind[1:])


def as_bfloat16(kind: Kind, batch: Any) -> Any:
    """Float32 tensors of the column become bfloat16 where the kind is."""
    if kind == "bfloat16":
        return [as_bfloat16(kind, part) for part in batch] if isinstance(batch, list) else batch.to(torch.bfloat16)
    if isinstance(kind, str):
        return batch
    if kind[0] == "struct" and isinstance(batch, dict):
        return {f"f{i}": as_bfloat16(child, batch[f"f{i}"]) for i, child in enumerate(kind[1:])}
    return as_bfloat16(kind[1], batch) if kind[0] != "struct" else batch


def described(kind: Kind) -> Any:
    """The model's description of a kind."""
    if kind == "int":
        return ("int8",)
    if kind in TENSORS:
        entry, shape, order, _ = TENSORS[kind]
        storage = ("list", (str(entry).replace("float", "float32"),), int(np.prod(shape)))
        return carried("arrow.fixed_shape_tensor", storage, [shape[i] for i in order])
    if kind in LEAVES:
        storage_type, name, _, _ = LEAVES[kind]
        return carried(name, ("binary",) if pa.types.is_fixed_size_binary(storage_type) else (str(storage_type),))
    if kind[0] == "struct":
        return ("struct", {f"f{i}": described(child) for i, child in enumerate(kind[1:])})
    return ("list", described(kind[1]), *([2] if kind[0] == "pair" else []))


def as_model_row(kind: Kind, value: Any) -> Any:
    """A value with tensors as the model has them, of nested lists."""
    if value is None or kind in LEAVES or kind == "int":
        return value
    if kind in TENSORS:
        return as_model(np.array(value, numpy_type(TENSORS[kind][0])))
    if kind[0] == "struct":
        return {f"f{i}": as_model_row(child, value[f"f{i}"]) for i, child in enumerate(kind[1:])}
    return [as_model_row(kind[1], item) for item in value]


def as_model_batch(value: Any) -> Any:
    """A batch as the model writes it, also in arrays of objects."""
    if isinstance(value, dict):
        return {name: as_model_batch(item) for name, item in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return Tensor("object", value.shape, tuple(map(as_model_batch, value)))
    if isinstance(value, list):
        return [as_model_batch(item) for item in value]
    return as_model(value)


def as_lists(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return as_lists(list(value)) if value.dtype == object else value.tolist()
    if isinstance(value, dict):
        return {name: as_lists(item) for name, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, list) else value


@pytest.mark.usefixtures("registered")
@given(columns(), st.sampled_from(["torch", "numpy"]), st.booleans())
def test_native_formats_are_those_of_ordinary_columns(drawn: Any, layout: str, travels: bool) -> None:
    """BAT-14: equal to what BAT-5 and BAT-6 make of the ordinary type, or refused like it. Sampled over types, nesting, nulls, slices."""
    kind, stored, plain, split = drawn
    for one in (stored, known(stored)):
        rows = in_pieces(one) if split and len(one) > 1 else one
        try:
            expected = make_batch(plain, layout)
        except BatchError:
            with pytest.raises(BatchError, match="'x'"):
                make_batch(rows, layout)
            continue
        ours = make_batch(rows, layout, travels)
        if travels:
            ours = pickle.loads(bytes(ForkingPickler.dumps(Parcel(ours))))
        modelled = [{"x": as_model_row(kind, row["x"])} for row in plain.to_pylist()]
        assert repr(as_model_batch(ours)) == repr((torch_batch if layout == "torch" else numpy_batch)(modelled, {"x": described(kind)}))
        if layout == "torch":
            expected = {"x": as_bfloat16(kind, expected["x"])}
            assert same(ours, expected)
        else:
            assert as_lists(ours) == as_lists(expected)


@pytest.mark.usefixtures("registered")
@given(columns())
def test_rows_are_those_of_ordinary_columns_with_tensors_as_arrays(drawn: Any) -> None:
    """BAT-14, DLV-11, BAT-3: and the default format is what torch collates of them."""
    kind, stored, plain, split = drawn
    for one in (stored, known(stored)):
        made = python_rows(one)
        assert [as_lists(row) for row in made] == plain.to_pylist()
        if kind in TENSORS:
            entry, shape, order, _ = TENSORS[kind]
            for array in (row["x"] for row in made if row["x"] is not None):
                assert (array.dtype, array.shape) == (numpy_type(entry), tuple(shape[i] for i in order))
                assert array.flags.writeable
                assert array.base is None
        rows = in_pieces(one) if split and len(one) > 1 else one
        try:
            expected = default_collate(made)
        except (TypeError, ValueError, RuntimeError):
            with pytest.raises(BatchError, match="'x'"):
                make_batch(rows, "python")
            continue
        assert same(make_batch(rows, "python"), expected)


def test_tensors_in_arrays_of_objects_are_arrays() -> None:
    """BAT-14: as in rows."""
    field = field_of(("struct", ("list", ("struct", "turned", "int")), "int"))
    value = {"f0": [{"f0": tensor("turned", 3)[0], "f1": 1}], "f1": 2}
    rows = known(pa.record_batch([pa.array([value], field.type)], schema=pa.schema([field])))
    found = make_batch(rows, "numpy")["x"]["f0"][0][0]["f0"]
    assert isinstance(found, np.ndarray)
    assert found.tolist() == tensor("turned", 3)[1]


@pytest.mark.parametrize("kind", [*TENSORS, "bfloat16"])
@pytest.mark.parametrize("layout", ["python", "torch", "numpy"])
def test_a_batch_is_written_to_without_harm(kind: str, layout: str) -> None:
    """BAT-8."""
    field = field_of(kind)
    value = halves(1) if kind == "bfloat16" else tensor(kind, 1)[0]
    rows = known(pa.record_batch([pa.array([value, value], field.type)], schema=pa.schema([field])))
    before = rows.column(0).to_pylist()
    make_batch(rows, layout)["x"][:] = 0
    assert rows.column(0).to_pylist() == before


def everything(path: Path) -> Any:
    """A table of 24 rows with a column of every type, as a process wrote it that knows none."""
    fields = [field_of(kind, kind) for kind in (*LEAVES, *TENSORS)]
    fields += [
        field_of(("list", "bfloat16"), "halves"),
        field_of(("list", "floats"), "pairs"),
        field_of(("struct", "uuid", "turned"), "both"),
    ]
    values = [
        {
            "id": i,
            "own": i,
            "bfloat16": halves(i),
            "bool8": i % 3,
            "json": f'{{"i":{i}}}',
            "uuid": bytes([i]) * 16,
            **{name: tensor(name, i)[0] for name in TENSORS},
            "halves": [halves(j) for j in range(i % 3)],
            "pairs": [tensor("floats", i)[0], tensor("floats", -i)[0]],
            "both": {"f0": bytes([i]) * 16, "f1": tensor("turned", i)[0]},
        }
        for i in range(24)
    ]
    rows = pa.Table.from_pylist(values, pa.schema([pa.field("id", pa.int64()), *fields]))
    return lancedb.connect(path).create_table("everything", known(rows.combine_chunks().to_batches()[0]))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("types")


@pytest.fixture(scope="module")
def table(place: Path) -> Any:
    return everything(place)


def even(table: Any) -> list[str]:
    """The columns without lists of different lengths, which the default format refuses."""
    return [name for name in table.schema.names if name != "halves"]


def test_shapes_and_types_of_a_batch(table: Any) -> None:
    """BAT-14, on a real table: the table of the clause."""
    tensors, arrays, python = (
        next(iter(StreamingDataLoader(StreamingDataset(table, shuffle=False, columns=names), 4, format=layout)))
        for layout, names in (("torch", None), ("numpy", None), ("python", even(table)))
    )
    for made, module in ((tensors, torch), (arrays, np), (python, torch)):
        assert (made["floats"].shape, made["floats"].dtype) == ((4, 2, 3), module.float32)  # type: ignore[attr-defined]
        assert (made["turned"].shape, made["turned"].dtype) == ((4, 2, 3, 2), module.int16)  # type: ignore[attr-defined]
        assert made["both"]["f1"].shape == (4, 2, 3, 2)
        assert made["bool8"].tolist() == [False, True, True, False]
        assert list(made["uuid"]) == [bytes([i]) * 16 for i in range(4)]
    assert tensors["bfloat16"].dtype == torch.bfloat16
    assert tensors["bfloat16"].tolist() == [0, 1, 2, 3]
    assert [part.dtype for part in tensors["halves"]] == [torch.bfloat16] * 4
    assert tensors["pairs"].shape == (4, 2, 2, 3)
    assert [part.shape for part in python["pairs"]] == [(4, 2, 3)] * 2
    assert arrays["bfloat16"].dtype == np.float32
    assert python["bfloat16"].dtype == torch.float64
    assert tensors["json"] == [f'{{"i":{i}}}' for i in range(4)]
    assert tensors["own"].dtype == torch.int32


def rows_as_they_come(batch: pa.RecordBatch) -> list[Any]:
    """A transform: it gets the engine's own columns."""
    assert isinstance(batch["floats"], pa.FixedShapeTensorArray)
    return [{"id": i, "shape": batch["floats"].to_numpy_ndarray().shape[1:]} for i in batch["id"].to_pylist()]


def failing(batch: pa.RecordBatch) -> list[Any]:
    raise ValueError


def fill(row: dict[str, Any], error: Exception) -> Any:
    return (row["id"], row["floats"].shape, row["bool8"], row["uuid"], row["bfloat16"], row["both"]["f1"].shape)


def test_transforms_get_arrow_and_fills_get_rows(table: Any) -> None:
    """BAT-14."""
    rows = list(StreamingDataset(table, shuffle=False, transform=rows_as_they_come))
    assert rows == [{"id": i, "shape": (2, 3)} for i in range(24)]
    filled = StreamingDataset(table, shuffle=False, transform=failing, on_transform_error="fill", transform_fill=fill)
    assert list(filled)[5] == (5, (2, 3), True, bytes([5]) * 16, 5.0, (2, 3, 2))
    batch = next(iter(StreamingDataLoader(StreamingDataset(table, shuffle=False), 4, format="arrow")))
    assert batch.schema.field("floats").type == pa.fixed_shape_tensor(pa.float32(), [2, 3])
    assert batch.schema.field("bfloat16").metadata[b"ARROW:extension:name"] == b"lance.bfloat16"


@pytest.mark.usefixtures("registered")
def test_both_paths_agree_and_a_process_that_knows_the_types_has_the_same(table: Any, place: Path) -> None:
    """BAT-1, BAT-14: columns, rows and torch's own DataLoader."""
    knowing = lancedb.connect(place).open_table("everything")
    assert isinstance(knowing.schema.field("own").type, pa.BaseExtensionType)
    ways: list[dict[str, Any]] = [{}, {"collate_fn": default_collate}, {"collate_fn": collate_rows}]
    names = even(table)
    made = [list(StreamingDataLoader(StreamingDataset(table, shuffle_seed=3, columns=names), 7, **way)) for way in ways]
    made += [list(StreamingDataLoader(StreamingDataset(knowing, shuffle_seed=3, columns=names), 7, **way)) for way in ways]
    made.append(list(torch.utils.data.DataLoader(StreamingDataset(table, shuffle_seed=3, columns=names), 7)))
    for other in made[1:]:
        assert len(other) == len(made[0]) == 4
        assert all(map(same, other, made[0]))


@pytest.mark.processes
@pytest.mark.parametrize("layout", ["python", "torch", "numpy", "arrow"])
def test_workers_bring_the_same(table: Any, layout: str) -> None:
    """BAT-14 through worker processes, which have registered nothing; bfloat16 is no type of NumPy's."""
    columns = even(table) if layout == "python" else None

    def batches(workers: int) -> list[Any]:
        dataset = StreamingDataset(table, shuffle_seed=3, columns=columns)
        return list(StreamingDataLoader(dataset, 5, format=layout, num_workers=workers, worker_sharding="batches"))

    for ours, theirs in zip(batches(2), batches(0), strict=True):
        assert ours.equals(theirs) if layout == "arrow" else repr(ours) == repr(theirs) if layout == "numpy" else same(ours, theirs)


@pytest.mark.parametrize("layout", ["python", "torch", "numpy"])
def test_a_null_among_tensors_is_refused_by_name(layout: str, tmp_path: Path) -> None:
    """BAT-4 to BAT-6."""
    values = pa.array([tensor("floats", 0)[0], None], pa.list_(pa.float32(), 6))
    rows = pa.table({"id": [0, 1], "t": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2, 3]), values)})
    table = lancedb.connect(tmp_path).create_table("holes", rows)
    dataset = StreamingDataset(table, shuffle=False)
    with pytest.raises(BatchError, match=r"'t' .*IS NOT NULL") as refusal:
        next(iter(StreamingDataLoader(dataset, 2, format=layout)))
    assert refusal.value.column == "t"
    first, second = StreamingDataset(table, shuffle=False)
    assert first["t"].tolist() == tensor("floats", 0)[1]
    assert second["t"] is None

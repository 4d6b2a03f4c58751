"""Extension types: the fingerprint is that of the table, whatever types a process has registered (IDN-5)."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from model import tables
from streaming import StreamingDataLoader, StreamingDataset
from streaming.source import fingerprint


class Celsius(pa.ExtensionType):
    """A user's own type."""

    def __init__(self) -> None:
        super().__init__(pa.int32(), "tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"scale=1"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        return cls()


def raw(name: str, storage: pa.DataType, extension: str, text: str | None = "", nullable: bool = True) -> pa.Field:
    """A field of an extension type as a process has it that does not know the type."""
    metadata = {"ARROW:extension:name": extension, **({} if text is None else {"ARROW:extension:metadata": text})}
    return pa.field(name, storage, nullable, metadata)


@pytest.fixture
def registered() -> Iterator[None]:
    pa.register_extension_type(Celsius())
    yield
    pa.unregister_extension_type("tests.celsius")


FLOATS = pa.list_(pa.float32(), 6)
TENSOR = '{"shape":[2,3]}'
LAYOUTS = [
    pa.struct([("data", pa.large_binary()), ("uri", pa.string())]),
    pa.struct([("data", pa.large_binary()), ("uri", pa.string()), ("position", pa.uint64()), ("size", pa.uint64())]),
]

# What a process knows as a type, what another knows as metadata, and how IDN-5 counts it.
TYPES: dict[str, tuple[Callable[[], pa.Field], pa.Field, Any]] = {
    "own": (
        lambda: pa.field("x", Celsius()),
        raw("x", pa.int32(), "tests.celsius", "scale=1"),
        ("int32", [[[], "tests.celsius", "scale=1"]]),
    ),
    "list": (
        lambda: pa.field("x", pa.list_(pa.field("y", Celsius(), nullable=False))),
        pa.field("x", pa.list_(raw("y", pa.int32(), "tests.celsius", "scale=1", nullable=False))),
        ("list<y: int32 not null>", [[[0], "tests.celsius", "scale=1"]]),
    ),
    "struct": (
        lambda: pa.field("x", pa.struct([("a", pa.int8()), ("b", pa.list_(Celsius(), 2)), ("c", Celsius())])),
        pa.field(
            "x",
            pa.struct(
                [
                    pa.field("a", pa.int8()),
                    pa.field("b", pa.list_(raw("item", pa.int32(), "tests.celsius", "scale=1"), 2)),
                    raw("c", pa.int32(), "tests.celsius", "scale=1"),
                ]
            ),
        ),
        (
            "struct<a: int8, b: fixed_size_list<item: int32>[2], c: int32>",
            [[[1, 0], "tests.celsius", "scale=1"], [[2], "tests.celsius", "scale=1"]],
        ),
    ),
    "map": (
        lambda: pa.field("x", pa.map_(pa.string(), Celsius())),
        pa.field("x", pa.map_(pa.string(), raw("value", pa.int32(), "tests.celsius", "scale=1"))),
        ("map<string, int32>", [[[0, 1], "tests.celsius", "scale=1"]]),
    ),
    "tensor": (
        lambda: pa.field("x", pa.fixed_shape_tensor(pa.float32(), [2, 3])),
        raw("x", FLOATS, "arrow.fixed_shape_tensor", '{ "shape" : [2, 3] }'),
        ("fixed_size_list<item: float>[6]", [[[], "arrow.fixed_shape_tensor", TENSOR]]),
    ),
    "named tensors": (
        lambda: pa.field("x", pa.large_list(pa.fixed_shape_tensor(pa.float32(), [2, 3], ["ä", "b"], [1, 0]))),
        pa.field(
            "x", pa.large_list(raw("item", FLOATS, "arrow.fixed_shape_tensor", '{"permutation":[1,0],"dim_names":["ä","b"],"shape":[2,3]}'))
        ),
        (
            "large_list<item: fixed_size_list<item: float>[6]>",
            [[[0], "arrow.fixed_shape_tensor", '{"dim_names":["\\u00e4","b"],"permutation":[1,0],"shape":[2,3]}']],
        ),
    ),
    "json": (lambda: pa.field("x", pa.json_()), raw("x", pa.string(), "arrow.json", "{}"), ("string", [[[], "arrow.json", ""]])),
    "uuid": (
        lambda: pa.field("x", pa.uuid()),
        raw("x", pa.binary(16), "arrow.uuid", None),
        ("fixed_size_binary[16]", [[[], "arrow.uuid", ""]]),
    ),
    "bool8": (lambda: pa.field("x", pa.bool8()), raw("x", pa.int8(), "arrow.bool8"), ("int8", [[[], "arrow.bool8", ""]])),
    "opaque": (
        lambda: pa.field("x", pa.opaque(pa.int8(), "point", "somebody")),
        raw("x", pa.int8(), "arrow.opaque", '{"vendor_name": "somebody", "type_name": "point"}'),
        ("int8", [[[], "arrow.opaque", '{"type_name":"point","vendor_name":"somebody"}']]),
    ),
    "blob": (lambda: lancedb.blob("x"), raw("x", LAYOUTS[0], "lance.blob.v2"), ("large_binary", [[[], "lance.blob.v2", ""]])),
    "nested blob": (
        lambda: pa.field("x", pa.struct([lancedb.blob("b")])),
        pa.field("x", pa.struct([raw("b", LAYOUTS[1], "lance.blob.v2")])),
        ("struct<b: large_binary>", [[[0], "lance.blob.v2", ""]]),
    ),
}
NEEDS = {"json": "json_", "uuid": "uuid", "bool8": "bool8", "opaque": "opaque"}


@pytest.mark.parametrize("name", TYPES)
def test_a_process_that_knows_a_type_has_the_fingerprint_of_one_that_does_not(name: str, registered: None) -> None:
    """IDN-5: the same hash, that of the clause's list; another with any other extension type, or without."""
    if not hasattr(pa, NEEDS.get(name, "field")):
        pytest.skip(f"this pyarrow does not know {name}")
    make, unknown, (kind, extensions) = TYPES[name]
    known = make()
    assert known.equals(unknown) is False
    columns: list[Any] = [["id", "int64", True], ["x", kind, True, extensions]]
    text = json.dumps(columns, separators=(",", ":"))
    first = pa.field("id", pa.int64())
    found = fingerprint(pa.schema([first, known]))
    assert found == fingerprint(pa.schema([first, unknown]))
    assert found == hashlib.sha256(text.encode()).hexdigest()
    assert found == tables.fingerprint([("id", "int64", True), ("x", kind, True, tuple(map(tuple, extensions)))])  # type: ignore[arg-type]
    assert found != tables.fingerprint([("id", "int64", True), ("x", kind, True)])
    assert found != fingerprint(pa.schema([first, known.with_name("z")]))
    assert found != fingerprint(pa.schema([first, known.with_nullable(False)]))


def test_what_an_extension_says_counts() -> None:
    """IDN-5: its name, its text as it is written, where it stands; nothing else that is said of a field."""
    of = [
        raw("x", pa.int32(), "a.b", "1"),
        raw("x", pa.int32(), "a.b", "2"),
        raw("x", pa.int32(), "a.b", '{"k":1}'),
        raw("x", pa.int32(), "a.b", '{"k": 1}'),
        raw("x", pa.int32(), "a.c", "1"),
        raw("x", pa.int64(), "a.b", "1"),
        pa.field("x", pa.int32()),
        pa.field("x", pa.struct([raw("y", pa.int8(), "a.b"), ("z", pa.int8())])),
        pa.field("x", pa.struct([("y", pa.int8()), raw("z", pa.int8(), "a.b")])),
        raw("x", pa.struct([raw("y", pa.int8(), "a.b")]), "a.b"),
    ]
    assert len({fingerprint(pa.schema([field])) for field in of}) == len(of)
    for field in of:
        more = {**(field.metadata or {}), b"unit": b"m", b"lance-encoding:blob": b"true", b"ARROW:extension:metadata2": b"x"}
        assert fingerprint(pa.schema([field.with_metadata(more)], {"table": "metadata"})) == fingerprint(pa.schema([field]))


def test_without_extension_types_nothing_has_changed() -> None:
    """IDN-5: also where another column has one."""
    kinds = {
        "a": (pa.map_(pa.string(), pa.int8()), "map<string, int8>"),
        "b": (pa.list_(pa.field("ARROW:extension:name", pa.int8(), nullable=False)), "list<ARROW:extension:name: int8 not null>"),
        "c": (pa.dictionary(pa.int8(), pa.string()), "dictionary<values=string, indices=int8, ordered=0>"),
        "d": (pa.timestamp("us", "UTC"), "timestamp[us, tz=UTC]"),
    }
    schema = pa.schema([pa.field(name, kind, metadata={"unit": "m"}) for name, (kind, _) in kinds.items()])
    columns = [[name, text, True] for name, (_, text) in kinds.items()]
    assert fingerprint(schema) == hashlib.sha256(json.dumps(columns, separators=(",", ":")).encode()).hexdigest()
    del kinds["b"]
    columns = [[name, text, True] for name, (_, text) in kinds.items()]
    both = schema.remove(1).append(raw("e", pa.int8(), "a.b"))
    text = json.dumps([*columns, ["e", "int8", True, [[[], "a.b", ""]]]], separators=(",", ":"))
    assert fingerprint(both) == hashlib.sha256(text.encode()).hexdigest()


def celsius_table(path: Path) -> Any:
    """Ten rows of a type of the user's own, by itself and in a list; the caller has registered it."""
    degrees = pa.ExtensionArray.from_storage(Celsius(), pa.array(range(10), pa.int32()))
    lists = pa.ListArray.from_arrays(pa.array(range(11), pa.int32()), degrees)
    tensors = pa.fixed_shape_tensor(pa.float32(), [2, 1])
    shaped = pa.ExtensionArray.from_storage(tensors, pa.array([[i, -i] for i in range(10)], tensors.storage_type))
    data = pa.table({"id": range(10), "degrees": degrees, "lists": lists, "shaped": shaped})
    return lancedb.connect(path).create_table("celsius", data)


def test_a_state_fits_after_registering_and_unregistering(tmp_path: Path, registered: None) -> None:
    """IDN-5, IDN-8: on an untouched table a state of either process loads in the other."""
    table = celsius_table(tmp_path)
    knowing = StreamingDataset(table, num_splits=2, shuffle_seed=1)
    saved = knowing.state_dict()
    pa.unregister_extension_type("tests.celsius")
    try:
        unknowing = StreamingDataset(lancedb.connect(tmp_path).open_table("celsius"), num_splits=2, shuffle_seed=1)
        assert unknowing.state_dict() == saved
        unknowing.load_state_dict(saved)
    finally:
        pa.register_extension_type(Celsius())
    knowing.load_state_dict(unknowing.state_dict())


RESUME = """
import json, sys
import lancedb
import streaming
import pyarrow as pa

dataset = streaming.StreamingDataset(lancedb.connect(sys.argv[1]).open_table("celsius"), num_splits=2, shuffle_seed=1)
dataset.load_state_dict(json.loads(sys.argv[2]))
assert not isinstance(dataset._position.standing.source._opened().schema.field("degrees").type, pa.BaseExtensionType)
print(json.dumps({"ids": [row["id"] for row in dataset], "state": dataset.state_dict()}))
"""


@pytest.mark.processes
def test_a_process_that_does_not_know_the_type_resumes(tmp_path: Path, registered: None) -> None:
    """IDN-5, WRK-17: a second process and workers, which register nothing, take the table for what it is."""
    table = celsius_table(tmp_path)
    dataset = StreamingDataset(table, num_splits=2, shuffle_seed=1)
    rows = iter(dataset)
    received = [next(rows)["id"] for _ in range(4)]
    saved = dataset.state_dict()
    rows.close()
    there = subprocess.run(
        [sys.executable, "-c", RESUME, str(tmp_path), json.dumps(saved)], capture_output=True, text=True, timeout=120, check=True
    )
    answer = json.loads(there.stdout.splitlines()[-1])
    assert sorted(received + answer["ids"]) == list(range(10))
    batches = StreamingDataLoader(dataset, batch_size=2, num_workers=1, worker_sharding="batches", multiprocessing_context="spawn")
    assert [i for batch in batches for i in batch["id"].tolist()] == answer["ids"]
    assert dataset.state_dict() == answer["state"]

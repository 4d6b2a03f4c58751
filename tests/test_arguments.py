"""Every constructor argument: what is refused, with which code and name, and what stands for what (spec/arguments.md, ASG-5, ASG-6)."""

from __future__ import annotations

import copy
import logging
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from streaming import StreamingDataset, StreamingError
from streaming.errors import ArgumentTypeError, ArgumentValueError, TooFewRowsError, UnknownColumnError, VersionError
from tests.support import connection, ids, numbered_table

VALUE, TYPE = "argument.value", "argument.type"
INTEGERS = {
    "num_splits": 1,
    "epoch": 0,
    "world_size": 1,
    "rank": 0,
    "shuffle_seed": 0,
    "shuffle_clump_size": 1,
    "version": 1,
    "read_ahead_bytes": 1,
    "transform_parallelism": 0,
    "transform_queue_depth": 1,
    "read_batch_size": 1,
    "io_queue_depth": 1,
}
NOT_INTEGERS = [True, 1.0, "1", [1], np.float64(1), np.bool_(True), float("nan")]


def refusal(table: Any = None, **arguments: Any) -> StreamingError:
    good = {"num_splits": 4, "shuffle_seed": 1}
    with pytest.raises(StreamingError) as refused:
        StreamingDataset(numbered_table(24) if table is None else table, **{**good, **arguments})
    return refused.value


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("value", NOT_INTEGERS, ids=repr)
def test_what_is_no_integer(name: str, value: object) -> None:
    """ARG-1, ARG-3, ARG-5, ARG-6, ARG-7, ARG-11, ARG-14, ARG-21 to ARG-24."""
    if (name, value) == ("version", "1"):
        assert refusal(version=value).code == "data.version", "a str is the name of a tag"
        return
    error = refusal(**{name: value})
    assert (error.code, error.argument) == (TYPE, name)
    assert isinstance(error, TypeError)
    assert name in str(error)


@pytest.mark.parametrize(("name", "low"), INTEGERS.items())
def test_integers_out_of_range(name: str, low: int) -> None:
    """ARG-1, ARG-3, ARG-5, ARG-6, ARG-7, ARG-11, ARG-14, ARG-21 to ARG-24."""
    for value in (low - 1, -(2**64), 2**63, 2**64 - 1, 2**64, 10**30):
        error = refusal(**{name: value})
        assert (error.code, error.argument) == (VALUE, name)
        assert isinstance(error, ValueError)
        assert str(low) in str(error)


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint64])
def test_numpy_integers_are_stored_as_int(kind: type) -> None:
    arguments = {
        "num_splits": 4,
        "epoch": 3,
        "world_size": 2,
        "rank": 1,
        "shuffle_seed": 5,
        "shuffle_clump_size": 2,
        "read_ahead_bytes": 100,
        "transform_parallelism": 2,
        "transform_queue_depth": 3,
        "read_batch_size": 4,
        "io_queue_depth": 5,
    }
    dataset = StreamingDataset(numbered_table(24), **{name: kind(value) for name, value in arguments.items()})
    plain = StreamingDataset(numbered_table(24), **arguments)
    assert dataset.state_dict() == plain.state_dict()
    assert all(type(value) in (int, bool, str, list, type(None)) for value in dataset.state_dict().values())
    assert ids(dataset) == ids(plain)


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        ({"num_splits": 5, "world_size": 2, "rank": 0}, VALUE, "num_splits"),
        ({"num_splits": 4, "world_size": 8, "rank": 0}, VALUE, "num_splits"),
        ({"world_size": 4, "rank": 4}, VALUE, "rank"),
        ({"world_size": 4}, VALUE, "rank"),
        ({"rank": 1}, VALUE, "rank"),
        ({"shuffle": 1}, TYPE, "shuffle"),
        ({"shuffle": None}, TYPE, "shuffle"),
        ({"shuffle": "yes"}, TYPE, "shuffle"),
        ({"world_size": 2, "rank": 0, "shuffle_seed": None}, VALUE, "shuffle_seed"),
        ({"shuffle": False, "shuffle_clump_size": 2}, VALUE, "shuffle_clump_size"),
        ({"shuffle": False, "shuffle_seed": -1}, VALUE, "shuffle_seed"),
        ({"columns": "id"}, TYPE, "columns"),
        ({"columns": [1]}, TYPE, "columns"),
        ({"columns": {"id": 1}}, TYPE, "columns"),
        ({"columns": []}, VALUE, "columns"),
        ({"columns": ["id", "id"]}, VALUE, "columns"),
        ({"columns": ["idd"]}, "argument.column", "columns"),
        ({"columns": ["_rowoffset"]}, "argument.column", "columns"),
        ({"filter": 3}, TYPE, "filter"),
        ({"filter": ""}, VALUE, "filter"),
        ({"filter": "  "}, VALUE, "filter"),
        ({"filter": "id >>> 3 ("}, "argument.filter", "filter"),
        ({"filter": "nothing > 3"}, "argument.filter", "filter"),
        ({"filter": "id + 3"}, "argument.filter", "filter"),
        ({"transform": "f"}, TYPE, "transform"),
        ({"columnar_transform": 3}, TYPE, "columnar_transform"),
        ({"columnar_transform": len, "transform": len}, VALUE, "columnar_transform"),
        ({"on_transform_error": "skip", "transform": len}, VALUE, "on_transform_error"),
        ({"on_transform_error": None, "transform": len}, TYPE, "on_transform_error"),
        ({"on_transform_error": "fill"}, VALUE, "on_transform_error"),
        ({"transform_fill": 3, "transform": len}, VALUE, "transform_fill"),
        ({"on_transform_error": "fill", "transform": len}, VALUE, "transform_fill"),
        ({"connection_factory": "f"}, TYPE, "connection_factory"),
        ({"partial_cycle": "skip"}, VALUE, "partial_cycle"),
        ({"partial_cycle": None}, TYPE, "partial_cycle"),
    ],
)
def test_other_bad_arguments(arguments: dict[str, Any], code: str, name: str) -> None:
    """ARG-1, ARG-4, ARG-5, ARG-9, ARG-10, ARG-11, ARG-12, ARG-13, ARG-17, ARG-18, ARG-19, ARG-20."""
    error = refusal(**arguments)
    assert (error.code, error.argument) == (code, name)
    assert name in str(error)
    assert isinstance(error, TypeError if code == TYPE else ValueError)


@pytest.mark.parametrize("table", [pa.table({"id": [1]}), "t24", None, [{"id": 1}]], ids=["arrow", "name", "none", "list"])
def test_what_is_no_table(table: object) -> None:
    """ARG-2."""
    with pytest.raises(ArgumentTypeError, match="table must be a lancedb table") as refused:
        StreamingDataset(table, num_splits=1)
    assert refused.value.argument == "table"


def test_too_few_rows() -> None:
    empty = connection().create_table("empty", schema=pa.schema([("id", pa.int64())]))
    for table, arguments in [
        (empty, {}),
        (numbered_table(3), {}),
        (numbered_table(24), {"filter": "id > 99"}),
        (numbered_table(24), {"filter": "id < 3"}),
    ]:
        error = refusal(table, **arguments)
        assert isinstance(error, TooFewRowsError)
        assert isinstance(error, ValueError)
        assert "num_splits=4" in str(error)


def test_the_nearest_column_is_named() -> None:
    """ARG-9."""
    table = connection().create_table("wide", [{"caption": "a", "image": 1, "label": 2}])
    with pytest.raises(UnknownColumnError, match="'lable'; the nearest one is 'label' of \\['caption', 'image', 'label'\\]"):
        StreamingDataset(table, columns=["image", "lable"])


def test_unknown_versions_and_tags() -> None:
    """ARG-8."""
    for version in (99, "no such tag"):
        with pytest.raises(VersionError, match="tag"):
            StreamingDataset(numbered_table(24), version=version, num_splits=4)


def test_positional_and_unknown_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        StreamingDataset(numbered_table(24), 4)
    with pytest.raises(TypeError):
        StreamingDataset(numbered_table(24), splits=4)


def test_a_drawn_seed_is_drawn_anew_and_recorded() -> None:
    seeds = {StreamingDataset(numbered_table(24)).state_dict()["shuffle_seed"] for _ in range(5)}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert StreamingDataset(numbered_table(24), shuffle=False, world_size=2, rank=0).shuffle_seed is None


def test_num_splits_defaults_to_the_world_size(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "streaming"):
        dataset = StreamingDataset(numbered_table(24), world_size=3, rank=2, shuffle_seed=1)
    assert dataset.num_splits == 3
    assert ["num_splits defaults to world_size=3" in record.getMessage() for record in caplog.records] == [True]


def test_rank_and_world_size_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    dataset = StreamingDataset(numbered_table(24), num_splits=8, shuffle_seed=1)
    assert (dataset.rank, dataset.world_size) == (2, 4)
    dataset = StreamingDataset(numbered_table(24), num_splits=8, shuffle_seed=1, world_size=8)
    assert (dataset.rank, dataset.world_size) == (2, 8)
    dataset = StreamingDataset(numbered_table(24), num_splits=8, shuffle_seed=1, rank=0)
    assert (dataset.rank, dataset.world_size) == (0, 4)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert refusal().argument == "rank"
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert refusal().argument == "world_size"


def test_the_process_group_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        dataset = StreamingDataset(numbered_table(24), num_splits=8)
        assert (dataset.rank, dataset.world_size) == (0, 1)
    finally:
        torch.distributed.destroy_process_group()


def test_set_epoch_is_checked_like_epoch() -> None:
    """ARG-15."""
    dataset = StreamingDataset(numbered_table(24))
    with pytest.raises(ArgumentTypeError):
        dataset.set_epoch(1.5)
    with pytest.raises(ArgumentValueError):
        dataset.set_epoch(-1)
    assert dataset.epoch == 0


def test_filters_must_be_predicates_that_select_the_same_rows_twice() -> None:
    """ARG-10."""
    for predicate in (
        "id > 3 LIMIT 5",
        "id > 3 ORDER BY id",
        "id > 3; DROP TABLE t24",
        "id > 3 -- x",
        "id > 3)",
        "(id > 3",
        "id > 3) OR (id < 1",
        "random() > 0.5",
        "id > 3 AND NOW() > x",
        "CURRENT_DATE > x",
    ):
        assert refusal(filter=predicate).code == "argument.filter", predicate
    table = connection().create_table("named", [{"now": "random()", "id": i} for i in range(8)])
    assert len(StreamingDataset(table, num_splits=1, filter="`now` = 'random()' AND id > 3")) == 4
    assert len(StreamingDataset(numbered_table(24), num_splits=1, filter="(id > 3) AND ((id < 9) OR (id < 1))")) == 5


def test_copies_stand_where_the_original_stood() -> None:
    """DLV-9."""
    dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=1, filter="id > 2")
    iterator = iter(dataset)
    for _ in range(7):
        next(iterator)
    for copier in (copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))):
        twin = copier(dataset)
        assert twin.state_dict() == dataset.state_dict()
        assert ids(twin) == ids(copier(dataset))
        assert len(ids(copier(dataset))) == 20 - 7
    assert dataset.samples_remaining == 20 - 7


@pytest.mark.parametrize(("arguments", "code"), [((0,), VALUE), ((1.5,), TYPE), ((True,), TYPE), ((2, -1), VALUE), ((2, "1"), TYPE)])
def test_schedules_are_asked_for_with_checked_arguments(arguments: tuple[Any, ...], code: str) -> None:
    """ARG-16."""
    dataset = StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=1, epoch=3)
    with pytest.raises(StreamingError) as refused:
        dataset.schedule(*arguments)
    assert refused.value.code == code
    assert dataset.schedule(2).epoch == 3

"""What lies in storage goes away under a pass: `data.version` and `data.read`, on real tables (DLV-5, IDN-7)."""

from __future__ import annotations

import itertools
import shutil
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import FilterError, IteratorFailedError, ReadError, VersionError
from tests.support import edited, ids

ROWS = 4000


def rows(first: int = 0) -> pa.Table:
    return pa.table({"id": range(first, first + ROWS), "text": [f"{i:0>100}" for i in range(ROWS)]})


def clean_up(table: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)


def drop(database: Any, table: Any, place: Path) -> None:
    database.drop_table("t")


def clean_up_behind_an_update(database: Any, table: Any, place: Path) -> None:
    table.update(where="id >= 0", values={"text": "'changed'"})
    clean_up(table)


def clean_up_behind_a_compaction(database: Any, table: Any, place: Path) -> None:
    table.add(rows(ROWS))
    clean_up(table)


def delete_the_directory(database: Any, table: Any, place: Path) -> None:
    shutil.rmtree(place / "t.lance")


def make_again(database: Any, table: Any, place: Path) -> None:
    database.drop_table("t")
    database.create_table("t", rows())


WAYS: dict[Callable[..., None], str] = {
    drop: "dropped",
    clean_up_behind_an_update: "cleaned up",
    clean_up_behind_a_compaction: "cleaned up",
    delete_the_directory: "dropped",
    make_again: "dropped",
}


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return lancedb.connect(tmp_path).create_table("t", rows())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("before", [0, 40])
def test_a_version_that_goes_away_is_a_clear_error(table: Any, tmp_path: Path, way: Any, warm: bool, before: int) -> None:
    """DLV-5, DLV-6: table, version, remedy and the engine's own error; the place is that of the rows received."""
    dataset = StreamingDataset(table, num_splits=2, shuffle_seed=1, read_ahead_bytes=10_000)
    if warm:
        assert len(ids(dataset)) == ROWS
        dataset.rewind()
    iterator = iter(dataset)
    received = [row["id"] for row in itertools.islice(iterator, before)]
    dataset.state_dict()  # by now it is known when the version was written
    way(lancedb.connect(tmp_path), table, tmp_path)
    with pytest.raises(VersionError, match=f"version 1 of table 't'.*{WAYS[way]}.*tag") as refused:
        received += [row["id"] for row in iterator]
    assert isinstance(refused.value.__cause__, RuntimeError), "the engine's"
    with pytest.raises(IteratorFailedError):
        next(iterator)
    assert before <= dataset.state_dict()["samples_consumed_per_split"][0] * 2 < ROWS
    assert ROWS - dataset.samples_remaining >= before
    with pytest.raises(VersionError):
        list(dataset)


def test_a_table_made_again_is_told_from_the_old_one(table: Any, tmp_path: Path) -> None:
    """The version is listed, but was written at another moment."""
    dataset = StreamingDataset(table, num_splits=2, shuffle_seed=1)
    dataset.state_dict()
    make_again(lancedb.connect(tmp_path), table, tmp_path)
    with pytest.raises(VersionError, match="another table made in its place"):
        list(dataset)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_batches_and_filters_say_so_too(table: Any, tmp_path: Path, way: Any) -> None:
    """Columns, and a filter's scan: what went away is no fault of the predicate."""
    loader = StreamingDataLoader(StreamingDataset(table, num_splits=2, shuffle_seed=1, read_ahead_bytes=10_000), batch_size=10)
    handle = lancedb.connect(tmp_path).open_table("t")
    handle.checkout(1)
    batches = iter(loader)
    next(batches)
    loader.state_dict()
    way(lancedb.connect(tmp_path), table, tmp_path)
    with pytest.raises(VersionError, match="version 1 of table 't'"):
        list(batches)
    if way is not make_again:  # else the handle's version can be opened, as that of the other table
        with pytest.raises(VersionError):
            StreamingDataset(handle, filter="id > 3")


@pytest.mark.processes
def test_workers_say_so_too(table: Any, tmp_path: Path) -> None:
    loader = StreamingDataLoader(
        StreamingDataset(table, num_splits=2, shuffle_seed=1, read_ahead_bytes=10_000), batch_size=10, num_workers=2, prefetch_factor=1
    )
    batches = iter(loader)
    next(batches), next(batches)  # of each worker one: both have opened the table
    drop(lancedb.connect(tmp_path), table, tmp_path)
    with pytest.raises(VersionError, match="version 1 of table 't'"):
        list(batches)


def test_a_table_that_is_just_being_dropped(table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data is gone, and its versions are listed for a moment."""
    dataset = StreamingDataset(table, num_splits=2, shuffle_seed=1)
    dataset.state_dict()
    shutil.rmtree(tmp_path / "t.lance" / "data")
    listing, asked = type(table).list_versions, []

    def going(self: Any) -> Any:
        asked.append(listing(self))
        if len(asked) == 3:
            shutil.rmtree(tmp_path / "t.lance")
        return asked[-1]

    monkeypatch.setattr(type(table), "list_versions", going)
    with pytest.raises(VersionError, match="dropped"):
        list(dataset)
    assert [len(versions) for versions in asked[:2]] == [1, 1]


def test_missing_files_of_a_version_that_stays(table: Any, tmp_path: Path) -> None:
    dataset = StreamingDataset(table, num_splits=2, shuffle_seed=1)
    shutil.rmtree(tmp_path / "t.lance" / "data")
    with pytest.raises(ReadError, match="Not found"):
        list(dataset)


def test_a_version_that_is_still_there_and_cannot_be_read(table: Any, tmp_path: Path) -> None:
    """`data.read`: damaged files, or a storage out of reach."""
    dataset = StreamingDataset(table, num_splits=2, shuffle_seed=1, read_ahead_bytes=10_000)
    (file,) = (tmp_path / "t.lance" / "data").iterdir()
    good = file.read_bytes()
    file.write_bytes(b"not this")
    with pytest.raises(ReadError, match="of version 1 of table 't' failed") as refused:
        list(dataset)
    assert isinstance(refused.value.__cause__, RuntimeError)
    file.write_bytes(good)
    assert len(ids(dataset)) == ROWS, "the next pass reads again, from the last received row"


def test_errors_of_other_kinds_stay_what_they_are(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory, and an interrupt, are nothing that a table did."""
    dataset = StreamingDataset(table, num_splits=2, shuffle_seed=1)
    for error in (MemoryError, KeyboardInterrupt):
        with monkeypatch.context() as patch:
            patch.setattr(dataset._position.standing.source, "_handle", Raising(error))
            with pytest.raises(error):
                next(iter(dataset))


class Raising:
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def take_offsets(self, offsets: list[int]) -> Any:
        raise self.error


def test_a_fault_of_the_predicate_stays_one(table: Any) -> None:
    for predicate in ("nothing > 3", "1 / (id - 3) > 0", "id >>> 3 ("):
        with pytest.raises(FilterError):
            StreamingDataset(table, filter=predicate)


def test_how_to_clean_up_around_tags(table: Any) -> None:
    """What the advice in README, IDN-7 and errors rests on: the engine's clean-up refuses as a whole while an old version is tagged."""
    dataset = StreamingDataset(table, num_splits=2, shuffle_seed=1)
    table.tags.create("run-7", dataset.version)
    received = [row["id"] for row in itertools.islice(dataset, 100)]
    state = dataset.state_dict()
    table.add(rows(ROWS))
    table.delete("id < 10")
    before = {version["version"] for version in table.list_versions()}
    with pytest.raises(RuntimeError, match="run-7"):
        clean_up(table)
    assert before <= {version["version"] for version in table.list_versions()}, "nothing was deleted"
    table.optimize(cleanup_older_than=timedelta(days=36500))
    resumed = StreamingDataset(table, num_splits=2, shuffle_seed=1)
    resumed.load_state_dict(state)
    assert sorted(received + ids(resumed)) == list(range(ROWS))
    table.tags.delete("run-7")
    clean_up(table)
    assert [version["version"] for version in table.list_versions()] == [table.version]
    with pytest.raises(VersionError, match=r"tags.create.*tags.delete"):
        StreamingDataset(table, num_splits=2, shuffle_seed=1).load_state_dict(edited(state))

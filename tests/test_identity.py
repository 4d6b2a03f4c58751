"""What a state is bound to, on real tables (spec/identity.md). See also tests/test_machine.py and the hand vectors `identity`."""

from __future__ import annotations

import copy
import itertools
import json
import logging
import os
import pickle
import re
import shutil
import threading
import time
import warnings
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from streaming import StreamingDataset
from streaming.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    FilterError,
    StateMismatchError,
    TooFewRowsError,
    UnknownColumnError,
    VersionError,
)
from streaming.moment import microseconds
from tests.support import connection, edited, ids, numbered_table, written_us


def make(table: Any, **arguments: Any) -> StreamingDataset:
    return StreamingDataset(table, **{"num_splits": 3, "shuffle_seed": 1, **arguments})


def after(dataset: StreamingDataset, rows: int) -> tuple[list[int], dict[str, Any]]:
    """The ids of so many rows, and the state behind them."""
    return [row["id"] for row in itertools.islice(dataset, rows)], dataset.state_dict()


def refusal(dataset: StreamingDataset, state: dict[str, Any], accept: Any = ()) -> StateMismatchError:
    """The mismatch that a load ends in; nothing may change (RES-5)."""
    before = dataset.state_dict()
    with pytest.raises(StateMismatchError) as refused:
        dataset.load_state_dict(state, accept=accept)
    assert dataset.state_dict() == before
    return refused.value


def forget_old_versions(table: Any) -> None:
    """The engine refuses while one is tagged. Compaction may add versions of the same rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return lancedb.connect(tmp_path / "here").create_table("t", pa.table({"id": range(12)}))


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "streaming"):
        yield caplog


# ---- settings (IDN-1, IDN-6)


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        ({"num_splits": 4}, ["num_splits"]),
        ({"shuffle_seed": 2}, ["shuffle_seed"]),
        ({"shuffle": False}, ["shuffle"]),
        ({"shuffle_clump_size": 2}, ["shuffle_clump_size"]),
        ({"filter": "id >= 0"}, ["filter"]),
        ({"filter": "id > 3", "shuffle_seed": 3}, ["shuffle_seed", "filter", "selected_rows"]),
    ],
)
def test_other_settings_are_refused_by_name(table: Any, other: dict[str, Any], fields: list[str]) -> None:
    _, state = after(make(table), 4)
    dataset = make(table, **other)
    after(dataset, 1)
    error = refusal(dataset, state)
    assert list(error.fields) == fields
    own = dataset.state_dict()
    for name in fields:
        assert f"{name}: state {state[name]!r}, dataset {own[name]!r}" in str(error)


def test_what_may_differ(table: Any) -> None:
    """World size, rank, policy at a boundary, transform and columns are no identity (IDN-10)."""
    _, state = after(make(table), 6)
    other = {"world_size": 3, "rank": 1, "partial_cycle": "exact", "columns": ["id"], "read_ahead_bytes": 1}
    dataset = make(table, transform=lambda batch: batch.column(0).to_pylist(), **other)
    dataset.load_state_dict(state)
    expected = make(table, world_size=3, rank=1)
    expected.load_state_dict(state)
    assert list(dataset) == ids(expected)


def test_a_drawn_seed_gives_way_to_the_states(table: Any) -> None:
    rows, state = after(make(table, shuffle_seed=None), 7)
    second = make(table, shuffle_seed=None, partial_cycle="exact")
    second.load_state_dict(state)
    assert second.shuffle_seed == state["shuffle_seed"]
    assert sorted(rows + ids(second)) == list(range(12))
    assert refusal(make(table), state).fields == ("shuffle_seed",)


# ---- the creation time (IDN-3, IDN-4)


def test_the_creation_time_is_that_of_the_pinned_version(table: Any) -> None:
    time.sleep(0.002)
    table.add(pa.table({"id": range(12, 24)}))
    first, second = written_us(table, 1), written_us(table, 2)
    assert first < second
    assert make(table, version=1).state_dict()["table_version_created_us"] == first
    assert make(table).state_dict()["table_version_created_us"] == second
    assert abs(second - time.time() * 1e6) < 60e6


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="this system cannot change its time zone in a running process")
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu", "UTC"])
def test_the_creation_time_does_not_depend_on_the_time_zone(table: Any, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state = make(table).state_dict()
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert make(table).state_dict() == state
    finally:
        monkeypatch.undo()
        time.tzset()


def test_versions_are_listed_once_and_nothing_but_states_waits_for_it(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listings = []
    listing, go_on = type(table).list_versions, threading.Event()

    def slow(self: Any) -> Any:
        listings.append(self)
        assert go_on.wait(60)
        return listing(self)

    monkeypatch.setattr(type(table), "list_versions", slow)
    dataset = make(table)
    iterator = iter(dataset)
    next(iterator)
    assert len(dataset) == 12
    go_on.set()
    state = dataset.state_dict()
    dataset.floor_state_dict()
    iterator.close()
    dataset.load_state_dict(state)
    dataset.state_dict()
    assert len(listings) == 1


def test_a_listing_that_fails_costs_a_warning_and_no_state(
    table: Any, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    def fail(self: Any) -> Any:
        raise OSError("no route to the store")

    rows, good = after(make(table), 6)
    with monkeypatch.context() as patch:
        patch.setattr(type(table), "list_versions", fail)
        other = make(table)
        rows_again, state = after(other, 6)
        assert rows_again == rows
        assert state == edited(good, table_version_created_us=None)
        other.floor_state_dict()
        assert [record.levelname for record in said.records] == ["WARNING"]
        assert "no route to the store" in said.text
        assert refusal(make(table), state).fields == ("table_version_created_us",), "None equals nothing, not even None"
    assert other.state_dict() == good, "asked again, with success"
    error = refusal(make(table), state)
    assert "accept" in str(error)
    third = make(table)
    third.load_state_dict(state, accept=["table_version_created_us"])
    assert sorted(rows + ids(third)) == list(range(12))


def listed() -> None:
    """Wait for listings that began with their datasets, without asking for a state: no test may depend on who is faster."""
    for thread in threading.enumerate():
        if thread.name == "streaming-moment":
            thread.join()


def test_a_listing_that_a_cleanup_disturbs_is_asked_again(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listing, failures = type(table).list_versions, iter([OSError("not found"), OSError("not found")])

    def fail_twice(self: Any) -> Any:
        for error in failures:
            raise error
        return listing(self)

    monkeypatch.setattr(type(table), "list_versions", fail_twice)
    assert make(table).state_dict()["table_version_created_us"] == written_us(table, 1)


@pytest.mark.parametrize("place", ["disk", "memory"])
@pytest.mark.parametrize("late", [False, True])
def test_a_table_made_again_before_the_first_state_does_not_lend_its_moment(
    place: str, late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine lists by place: what it lists may be another table by now. Asked late, what could be listed must also be readable."""
    database = lancedb.connect(tmp_path if place == "disk" else "memory://")
    rows = pa.table({"id": range(12)})
    table = database.create_table("t", rows)
    written = written_us(table, 1)
    with monkeypatch.context() as patch:
        if late:
            patch.setattr(type(table), "list_versions", lambda self: {}["no version"])
        dataset = make(table)
        if late:
            assert dataset.state_dict()["table_version_created_us"] is None
        listed()
    database.drop_table("t")
    again = database.create_table("t", rows)
    state = dataset.state_dict()
    assert state["table_version_created_us"] == (None if late else written)
    assert refusal(make(again), state).fields == ("table_version_created_us",)


def test_constant_columns_and_surviving_files_lend_nothing_either(table: Any) -> None:
    """The engine answers for constant columns from its cache, and a history may be replaced behind a file that survives."""
    database = lancedb.connect("memory://")
    constant = make(database.create_table("t", pa.table({"label": ["train"] * 12, "id": range(12)})))
    rows = [row["id"] for row in itertools.islice(constant, 6)]
    listed()
    database.drop_table("t")
    again = make(database.create_table("t", pa.table({"label": ["train"] * 12, "id": range(100, 112)})))
    assert len(rows) == 6
    assert refusal(again, constant.state_dict()).fields == ("table_version_created_us",)
    branch = table.branches.create("b")
    branch.add(pa.table({"id": range(92, 95)}))
    dataset = make(branch)
    listed()
    table.branches.delete("b")
    branch = table.branches.create("b")
    branch.add(pa.table({"id": range(52, 55)}))
    assert refusal(make(branch), dataset.state_dict()).fields == ("table_version_created_us",)


def test_a_copy_in_another_process_knows_the_creation_time() -> None:
    """Pickled, an in-memory table has its rows only, and one on disk opens again."""
    for table in (numbered_table(12), connection().create_table("pickled", pa.table({"id": range(12)}))):
        dataset = make(table)
        travelled = pickle.loads(pickle.dumps(dataset))
        assert travelled.state_dict() == dataset.state_dict()
        assert travelled.state_dict()["table_version_created_us"] == written_us(table, 1)


COPIES = {"pickle": lambda d: pickle.loads(pickle.dumps(d)), "copy": copy.copy, "deepcopy": copy.deepcopy}


@pytest.mark.parametrize("way", COPIES)
def test_copies_load_one_version_after_another(table: Any, way: str) -> None:
    """A copy has the table's branch and its other versions (IDN-7)."""
    branch = table.branches.create("b")
    states = []
    for number in range(3):
        branch.add(pa.table({"id": range(100 * number, 100 * number + 3)}))
        states.append(after(make(branch), 6)[1])
        table.add(pa.table({"id": range(900, 903)}))
    travelled = COPIES[way](make(branch))
    assert travelled.state_dict() == make(branch).state_dict()
    for state in [*states, *reversed(states)]:
        travelled.load_state_dict(state)
        expected = make(branch)
        expected.load_state_dict(state)
        assert travelled.state_dict() == expected.state_dict() == state
        assert ids(COPIES[way](travelled)) == ids(expected)


@pytest.mark.parametrize("predicate", [None, "id < 12"])
def test_a_copy_does_not_read_a_table_that_was_made_again(tmp_path: Path, predicate: str | None) -> None:
    """The same schema and number of rows, under the same name: only the moment tells (WRK-17)."""
    database = lancedb.connect(tmp_path)
    dataset = make(database.create_table("t", pa.table({"id": range(12)})), filter=predicate)
    travelling = pickle.dumps(dataset)
    database.drop_table("t")
    database.create_table("t", pa.table({"id": range(1000, 1012)}))
    with pytest.raises(VersionError, match="another table"):
        list(pickle.loads(travelling))
    database.drop_table("t")
    for call in (list, lambda d: d.load_state_dict(edited(dataset.state_dict(), table_version=2))):
        with pytest.raises(VersionError, match="cannot be opened again"):
            call(pickle.loads(travelling))


# ---- versions (IDN-7)


def test_a_grown_table_is_reopened_at_the_recorded_version(table: Any, said: pytest.LogCaptureFixture) -> None:
    rows, state = after(make(table), 6)
    table.add(pa.table({"id": range(100, 160)}))
    table.delete("id < 3")
    second = make(table)
    assert (len(second), second.version) == (69, 3)
    second.load_state_dict(state)
    assert (len(second), second.version) == (12, 1)
    assert [record.getMessage() for record in said.records] == ["table 't': reading version 1, which the state records, not 3"]
    assert second.state_dict() == state
    assert sorted(rows + ids(second)) == list(range(12))
    assert table.version == 3


def test_a_table_that_shrank_below_num_splits_is_opened_at_the_recorded_version(table: Any) -> None:
    """ASG-1, ARG-9: a dataset that cannot be built cannot load; the message says with which argument it can."""
    rows, state = after(make(table), 6)
    table.delete("id > 1")
    table.add_columns({"e": "id"})
    table.drop_columns(["e"])
    for arguments in ({}, {"filter": "id < 99"}):
        with pytest.raises(TooFewRowsError, match=r"2 rows of table 't' version 4.*version="):
            make(table, **arguments)
    with pytest.raises(UnknownColumnError, match=r"version 4 of table 't' has no column 'e'.*version="):
        make(table, columns=["id", "e"], num_splits=1)
    with pytest.raises(FilterError, match=r"version 4 of table 't'.*version="):
        make(table, filter="e > 3", num_splits=1)
    with pytest.raises(TooFewRowsError) as refused:
        make(table, version=2)
    assert "state" not in str(refused.value), "it was asked for"
    assert make(table, version=3, columns=["id", "e"], num_splits=1, filter="e < 3").version == 3
    second = make(table, version=1)
    second.load_state_dict(state)
    assert sorted(rows + ids(second)) == list(range(12))


def test_a_column_that_the_recorded_version_has_not(table: Any, said: pytest.LogCaptureFixture) -> None:
    """IDN-7, ARG-9: added since, or renamed: both versions are named, and an accept that does take the newer one."""
    rows, state = after(make(table), 6)
    table.add_columns({"e": "id * 2"})
    table.alter_columns({"path": "id", "rename": "number"})
    dataset = make(table, columns=["number", "e"])
    with pytest.raises(UnknownColumnError, match=r"saved on version 1, .* built on version 3.*has no column 'number'") as refused:
        dataset.load_state_dict(state)
    assert refused.value.argument == "columns"
    accept = '["table_version", "schema_fingerprint"]'
    assert f"accept={accept} stay" in str(refused.value)
    assert dataset.version == 3
    dataset.load_state_dict(state, accept=json.loads(accept))
    assert sorted(rows + [row["number"] for row in dataset]) == list(range(12))
    assert "only the state's version has 'id'; only the dataset's has 'number', 'e'" in said.text
    said.clear()
    dataset = make(table)
    dataset.load_state_dict(state)
    assert list(next(iter(dataset))) == ["id"]
    assert "not 3; columns: only the state's version has 'id'; only the dataset's has 'number', 'e'" in said.text
    filtered = make(table, filter="number >= 0")
    with pytest.raises(FilterError, match=r"saved on version 1, .* built on version 3.*number"):
        filtered.load_state_dict(edited(state, filter="id >= 0"), accept=["filter"])


def test_schemas_that_differ_are_told_by_their_columns(table: Any) -> None:
    """IDN-9: of both versions where both can be opened, else the dataset's."""
    _, state = after(make(table), 6)
    table.add_columns({"e": "id * 2", "f": "id * 3"})
    table.alter_columns({"path": "id", "nullable": False})
    error = refusal(make(table), state, accept=["table_version"])
    assert error.fields == ("schema_fingerprint",)
    assert "columns: only the dataset's has 'e', 'f'; of another type: 'id' (int64 or null in the state's, int64 in the dataset's)" in str(
        error
    )
    forget_old_versions(table)
    assert "the dataset's columns: 'id', 'e', 'f'" in str(refusal(make(table), state, accept=["table_version"]))
    wide = connection().create_table("three_thousand", pa.table({"id": range(12), **{f"c{i}": range(12) for i in range(3000)}}))
    error = refusal(make(wide), state)
    assert "the dataset's columns: 'id', 'c0'" in str(error)
    assert "and 2993 more" in str(error)
    with pytest.raises(VersionError, match=r'accept=\["table_version", "schema_fingerprint"\]'):
        make(table).load_state_dict(state)


def test_versions_that_speak_against_the_state(table: Any) -> None:
    _, state = after(make(table), 6)
    table.add(pa.table({"id": range(100, 160)}))
    assert refusal(make(table, version=2), state).fields == ("table_version",)
    dataset = make(table)
    for edit in ({"selected_rows": 13}, {"schema_fingerprint": "0" * 64}, {"table_version_created_us": 7}):
        assert list(refusal(dataset, edited(state, **edit)).fields) == list(edit)
    with pytest.raises(VersionError, match="tag"):
        dataset.load_state_dict(edited(state, table_version=77))
    assert len(ids(dataset)) == 72


@pytest.mark.parametrize("grows", [False, True])
def test_a_version_that_was_cleaned_up_is_a_clear_error(table: Any, grows: bool) -> None:
    """IDN-7, IDN-11: with the way out that loses no row, and no other: a table that grew has another order."""
    rows, state = after(make(table), 6)
    if grows:
        table.add(pa.table({"id": range(12, 24)}))
    else:
        table.update(where="id = 100", values={"id": 0})
    forget_old_versions(table)
    dataset = make(table)
    with pytest.raises(VersionError, match="cleaned up") as refused:
        dataset.load_state_dict(state)
    assert refused.value.code == "data.version"
    offered = re.search(r"accept=(\[.*?\])", str(refused.value))
    assert (offered is None) == grows
    if offered is not None:
        dataset.load_state_dict(state, accept=json.loads(offered[1]))
        assert sorted(rows + ids(dataset)) == list(range(12))
        return
    assert "selects 24 rows, the state's selected 12" in str(refused.value)
    dataset.set_epoch(state["epoch"] + 1)
    assert sorted(ids(dataset)) == list(range(24))


def test_a_tag_keeps_the_recorded_version(table: Any) -> None:
    rows, state = after(make(table), 6)
    table.tags.create("run-1", 1)
    table.add(pa.table({"id": range(12, 24)}))
    with pytest.raises(RuntimeError, match="run-1"):
        forget_old_versions(table)
    second = make(table)
    second.load_state_dict(state)
    assert sorted(rows + ids(second)) == list(range(12))


# ---- which table (IDN-8)


def test_another_table_is_refused(table: Any) -> None:
    _, state = after(make(table), 6)
    for name, data, fields in (
        ("same", {"id": range(12)}, ("table_name", "table_version_created_us")),
        ("wider", {"id": range(12), "x": range(12)}, ("table_name", "table_version_created_us", "schema_fingerprint")),
        ("shorter", {"id": range(11)}, ("table_name", "table_version_created_us", "selected_rows")),
    ):
        assert refusal(make(connection().create_table(name, pa.table(data))), state).fields == fields


def test_a_table_made_again_is_another_table(tmp_path: Path) -> None:
    """The same name, version, rows and columns: only the moment tells. So is it for tables in memory, made in each process."""
    for place in (tmp_path, "memory://"):
        rows, state = after(make(lancedb.connect(place).create_table("t", pa.table({"id": range(12)}))), 6)
        shutil.rmtree(tmp_path / "t.lance", ignore_errors=True)
        again = make(lancedb.connect(place).create_table("t", pa.table({"id": range(12)})))
        error = refusal(again, state)
        assert error.fields == ("table_version_created_us",)
        assert "accept" in str(error)
        again.load_state_dict(state, accept=["table_version_created_us"])
        assert sorted(rows + ids(again)) == list(range(12))


def test_a_moved_copied_or_renamed_table_fits(table: Any, tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    rows, state = after(make(table), 6)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    os.utime(tmp_path / "there" / "t.lance")
    copied = make(lancedb.connect(tmp_path / "there").open_table("t"))
    copied.load_state_dict(state)
    assert copied.state_dict() == state
    assert said.records == []
    shutil.move(tmp_path / "there" / "t.lance", tmp_path / "there" / "renamed.lance")
    shutil.rmtree(tmp_path / "here")
    renamed = make(lancedb.connect(tmp_path / "there").open_table("renamed"))
    renamed.load_state_dict(state)
    assert [record.getMessage() for record in said.records] == ["the state was saved from table 't', which is 'renamed' now"]
    assert renamed.state_dict() == edited(state, table_name="renamed")
    assert sorted(rows + ids(renamed)) == list(range(12))


def test_copies_that_went_separate_ways_are_told_apart(table: Any, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    other = lancedb.connect(tmp_path / "there").open_table("t")
    table.add(pa.table({"id": range(12, 15)}))
    other.add(pa.table({"id": range(92, 95)}))
    _, state = after(make(table), 6)
    assert refusal(make(other), state).fields == ("table_version_created_us",)


def test_a_branch_is_not_its_trunk(table: Any) -> None:
    branch = table.branches.create("b")
    table.add(pa.table({"id": range(12, 15)}))
    branch.add(pa.table({"id": range(92, 95)}))
    rows, state = after(make(branch), 6)
    assert refusal(make(table), state).fields == ("table_version_created_us",)
    again = make(table.branches.checkout("b"))
    again.load_state_dict(state)
    assert sorted(rows + ids(again)) == [*range(12), 92, 93, 94]


# ---- accept (IDN-11)


def test_what_is_accepted_is_a_warning_with_both_values(table: Any, said: pytest.LogCaptureFixture) -> None:
    rows, state = after(make(table), 6)
    table.add(pa.table({"id": range(12, 24)}))
    forget_old_versions(table)
    dataset = make(table, shuffle=False, shuffle_seed=1)
    assert refusal(dataset, state, accept=["table_version", "selected_rows"]).fields == ("shuffle",)
    dataset = make(table)
    assert refusal(dataset, state, accept=["table_version"]).fields == ("selected_rows",)
    assert said.records == []
    dataset.load_state_dict(state, accept={"table_version", "selected_rows"})
    (record,) = said.records
    assert record.levelname == "WARNING"
    assert f"table_version: state 1, dataset {table.version}; selected_rows: state 12, dataset 24" in record.getMessage()
    assert dataset.samples_remaining == 24 - 6
    assert dataset.state_dict() == edited(make(table).state_dict(), samples_consumed_per_split=[2, 2, 2])
    assert rows != ids(dataset)[:6]


def test_a_needless_accept_is_silent(table: Any, said: pytest.LogCaptureFixture) -> None:
    _, state = after(make(table), 6)
    make(table).load_state_dict(state, accept=("table_version", "table_version_created_us", "filter"))
    assert said.records == []


def test_a_recorded_version_with_too_few_rows_is_refused(table: Any) -> None:
    """Only a state that lies about its rows, and is believed, can ask for one."""
    table.add(pa.table({"id": range(12, 24)}))
    dataset = make(table, num_splits=24)
    state = edited(dataset.state_dict(), table_version=1, table_version_created_us=written_us(table, 1))
    assert refusal(dataset, state).fields == ("selected_rows",)
    with pytest.raises(TooFewRowsError, match="12 rows"):
        dataset.load_state_dict(state, accept=["selected_rows"])
    assert len(dataset) == 24


def test_an_accepted_version_is_not_reopened(table: Any) -> None:
    _, state = after(make(table), 6)
    table.add(pa.table({"id": range(12, 24)}))
    dataset = make(table)
    dataset.load_state_dict(state, accept=["table_version", "selected_rows"])
    assert dataset.version == 2


@pytest.mark.parametrize("accept", ["filter", b"filter", None, 3, {"filter": True}, [3], {1: 2}.items()], ids=repr)
def test_accept_takes_collections_of_names(table: Any, accept: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="accept"):
        make(table).load_state_dict({}, accept=accept)


@pytest.mark.parametrize(
    "name", ["num_splits", "shuffle", "shuffle_seed", "shuffle_clump_size", "order_version", "epoch", "digest", "names"]
)
def test_what_cannot_be_accepted(table: Any, name: str) -> None:
    dataset = make(table)
    with pytest.raises(ArgumentValueError, match=name):
        dataset.load_state_dict({}, accept=["filter", name])


def test_the_moment_of_a_time_with_a_zone() -> None:
    """Releases of the engine's client may add the zone some day."""
    assert microseconds(datetime(2026, 11, 29, 19, 0, 0, 250_001, timezone.utc)) == 1_795_978_800_250_001
    assert microseconds(datetime(2026, 11, 29, 20, 0, 0, 0, timezone(timedelta(hours=1)))) == 1_795_978_800_000_000

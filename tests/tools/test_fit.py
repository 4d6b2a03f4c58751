"""Whether a state fits a table (TOL-4): every kind of change to a real one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from streaming.checkpoint import signed
from tests.tools.support import INSPECT_KEYS, asked, call, refused, saved, table, written


def everything(path: Path) -> dict[str, bytes]:
    return {str(found): found.read_bytes() for found in path.rglob("*") if found.is_file()}


def test_a_state_fits_its_own_table_and_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "db"
    arguments: list[dict[str, Any]] = [{}, {"shuffle": False, "shuffle_seed": None}, {"shuffle_clump_size": 3, "filter": "id > 1"}]
    data = table(database)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.chdir(tmp_path)
    for number, chosen in enumerate(arguments):
        path = written(tmp_path / f"{number}.json", {"dataset": saved(data, **chosen)})
        before = everything(tmp_path)
        for uri in (database, f"{database}/", "db", f"file://{database}", f"file:{database}"):
            answer = asked("inspect", path, "--table", uri, "numbers")
            assert (answer["fits"], answer["differing"], answer["reason"]) == (True, [], None)
        assert "fits        yes, the state fits this table\n" in call("inspect", path, "--table", database, "numbers")[1]
        assert everything(tmp_path) == before


def test_tables_that_grew_moved_or_are_others(tmp_path: Path) -> None:
    database, elsewhere = tmp_path / "db", tmp_path / "elsewhere"
    data = table(database)
    path = written(tmp_path / "state.json", saved(data))

    def verdict(uri: Path, name: str = "numbers") -> tuple[Any, Any, Any]:
        code = call("inspect", path, "--table", uri, name)[0]
        answer = asked("inspect", path, "--table", uri, name, code=code)
        assert code == (0 if answer["fits"] else 1)
        assert list(answer) == INSPECT_KEYS
        return answer["fits"], answer["differing"], answer["reason"]

    data.add(pa.table({"id": range(5)}))
    assert verdict(database) == (True, [], None)
    assert "which is at version 2 now, at the recorded version 1" in call("inspect", path, "--table", database, "numbers")[1]
    shutil.copytree(database, elsewhere)
    (elsewhere / "numbers.lance").rename(elsewhere / "renamed.lance")
    assert verdict(elsewhere, "renamed") == (True, [], None)
    later = written(tmp_path / "later.json", saved(data))
    table(tmp_path / "young")
    assert asked("inspect", later, "--table", tmp_path / "young", "numbers", code=1)["reason"] == "data.version"

    lancedb.connect(database).drop_table("numbers")
    table(database)
    assert verdict(database) == (False, ["table_version_created_us"], "state.mismatch")
    table(database, name="other", kind=pa.float32())
    assert verdict(database, "other") == (False, ["table_name", "table_version_created_us", "schema_fingerprint"], "state.mismatch")
    table(database, rows=27, name="more")
    assert verdict(database, "more") == (False, ["table_name", "table_version_created_us", "selected_rows"], "state.mismatch")
    table(database, rows=3, name="few")
    assert verdict(database, "few") == (False, [], "data.too_few_rows")

    code, out, err = call("inspect", path, "--table", database, "more")
    assert (code, err) == (1, "")
    assert "fits        NO, state.mismatch: " in out
    told = " ".join(out.split())
    created = json.loads(path.read_text())["table_version_created_us"]
    for words in (
        "table_name: state 'numbers', dataset 'more'",
        f"table_version_created_us: state {created}",
        "selected_rows: state 26, dataset 27",
    ):
        assert words in told


@pytest.mark.parametrize(
    ("changes", "differing", "reason"),
    [
        ({"filter": "nothing > 1"}, [], "argument.filter"),
        ({"filter": "id > random()"}, [], "argument.filter"),
        ({"filter": " "}, [], "argument.value"),
        ({"order_version": 2}, ["order_version"], "state.mismatch"),
        ({"table_version": 9}, [], "data.version"),
        ({"table_version_created_us": None}, ["table_version_created_us"], "state.mismatch"),
    ],
)
def test_why_a_state_does_not_fit(tmp_path: Path, changes: dict[str, Any], differing: list[str], reason: str) -> None:
    path = written(tmp_path / "state.json", signed({**saved(table(tmp_path / "db")), **changes}))
    answer = asked("inspect", path, "--table", tmp_path / "db", "numbers", code=1)
    assert (answer["fits"], answer["differing"], answer["reason"]) == (False, differing, reason)
    assert f"NO, {reason}: " in call("inspect", path, "--table", tmp_path / "db", "numbers")[1]


def test_a_table_that_cannot_be_read_is_exit_code_2_and_nothing_is_made(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LANCEDB_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    data = table(tmp_path / "db")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for uri, name, words in [
        (tmp_path / "nowhere" / "db", "numbers", "there is no directory"),
        ("nowhere", "numbers", "there is no directory nowhere"),
        (f"file://{tmp_path}/nowhere", "numbers", "there is no directory"),
        (f"file:{tmp_path}/nowhere", "numbers", "there is no directory"),
        ("file:db", "numbers", "there is no directory"),  # to lancedb a relative path with a colon
        ("~nobody-at-all/x", "numbers", "cannot be read"),
        ("a\0b", "numbers", "a\\x00b"),
        (file, "numbers", "there is no directory"),
        (tmp_path / "empty", "numbers", "the tables there: none"),
        (tmp_path / "db", "number", "the tables there: numbers"),
        (tmp_path / "db", "../db/numbers", "cannot be opened"),
        (tmp_path / "db", "", "cannot be opened"),
        ("memory://", "numbers", "cannot be opened"),
        ("db://somewhere", "numbers", "api_key"),
        ("weird://somewhere", "numbers", "cannot be opened"),
    ]:
        for options in ((), ("--json",)):
            said = refused(2, "inspect", file, "--table", uri, name, *options)
            assert said.startswith("could not run: ")
            assert words in said
    assert sorted(tmp_path.rglob("*")) == before
    path = written(tmp_path / "state.json", saved(data, filter="id > 0"))
    for found in (tmp_path / "db" / "numbers.lance").rglob("*.manifest"):
        found.write_bytes(b"damaged")
    assert "cannot be" in refused(2, "inspect", path, "--table", tmp_path / "db", "numbers")


def test_an_engine_that_fails_midway_is_exit_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "state.json", saved(table(tmp_path / "db")))

    def fail(*_: Any) -> None:
        raise RuntimeError("lost\n  the connection")

    monkeypatch.setattr("streaming.source.fingerprint", fail)
    assert "lost the connection" in refused(2, "inspect", path, "--table", tmp_path / "db", "numbers")

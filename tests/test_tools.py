"""The tools inspect and trace (spec/tools.md): on real files and tables, against the model, and against what really arrives."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections import OrderedDict
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model import tools as model_tools
from streaming import StreamingDataset
from streaming.checkpoint import signed
from streaming.cli import main
from streaming.tools import terminal
from tests.support import connection, divisors, ids, numbered_table

INSPECT_KEYS = [
    *("file", "epoch", "completed_cycles", "cycles", "rows_per_epoch", "rows_received", "rows_remaining", "rows_replayed"),
    *("rows_left_out", "epoch_completed", "world_sizes", "world_sizes_exact", "state", "fits", "differing", "reason"),
]
TRACE_KEYS = ["row", "epoch", "status", "split", "cycle", "rank", "step", "index", "resumed_batch"]


def call(*words: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = main([str(word) for word in words])
        except SystemExit as exit_:
            code = exit_.code
    assert "Traceback" not in err.getvalue()
    return code, out.getvalue(), err.getvalue()


def asked(*words: object, code: int = 0) -> dict[str, Any]:
    """The JSON object, alone on standard output (TOL-2)."""
    actual, out, err = call(*words, "--json")
    assert (actual, err) == (code, "")
    answer: dict[str, Any] = json.loads(out)
    return answer


def refused(code: int, *words: object) -> str:
    """What standard error says; standard output says nothing."""
    actual, out, err = call(*words)
    assert (actual, out) == (code, ""), err
    assert 0 < len(err.splitlines()) <= 5
    return err


def state(**changes: Any) -> dict[str, Any]:
    """A state of 26 rows in 4 splits on 2 ranks, in epoch 3, cycle 2, after each rank's first split of that cycle."""
    values = {
        "schema_version": 1,
        "num_splits": 4,
        "shuffle": True,
        "shuffle_seed": 7,
        "shuffle_clump_size": None,
        "order_version": 1,
        "filter": None,
        "table_name": "numbers",
        "table_version": 1,
        "table_version_created_us": 1_700_000_000_123_456,
        "selected_rows": 26,
        "schema_fingerprint": "ab" * 32,
        "world_size": 2,
        "epoch": 3,
        "partial_cycle_splits": [0, 2],
        "samples_consumed_per_split": [2] * 4,
    }
    return signed({**values, **changes})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(state()))
    return path


def written(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


# ---- TOL-1: files


def through_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2))


def through_json_with_a_mark(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8-sig")


def through_torch(path: Path, content: Any) -> None:
    torch.save(content, path)


def through_old_torch(path: Path, content: Any) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


WRITERS = [through_json, through_json_with_a_mark, through_torch, through_old_torch]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    ("content", "key"),
    [
        (state(), None),
        ({"dataset": state(), "step": 4}, None),
        ({"dataset": state(), "step": 4}, "dataset"),
        ({"step": 4, "run": {"a": {"dataset": state()}, "b": [1, {"c": 2}], "c": {}}}, None),
        ({"run": {"dataset": state(), "other": state(epoch=9)}, "dataset": state(epoch=8)}, "run.dataset"),
        ({"run.dataset": state(), "run": {"other": state(epoch=9)}}, "run.dataset"),
        ({"run": 4, "run.a": {"dataset": state(), "x": 1}}, "run.a.dataset"),
        ([state(), state()], None),
        ({"dataset": [state(), state()], "step": 1}, None),
        ({"ranks": {"dataset": [state(), state()]}}, "ranks.dataset"),
    ],
)
def test_a_state_is_found_wherever_it_lies(tmp_path: Path, write: Any, content: Any, key: str | None) -> None:
    path = tmp_path / "file"
    write(path, content)
    answer = asked("inspect", path, *(() if key is None else ("--key", key)))
    assert answer["state"] == state()
    assert answer["file"] == str(path)
    assert asked("trace", path, "--row", 5, *(() if key is None else ("--key", key)))["epoch"] == 3


def test_a_checkpoint_of_a_trainer_is_read_without_its_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    as_tensors = {
        **state(),
        "epoch": torch.tensor(3),
        "samples_consumed_per_split": torch.tensor([2] * 4),
        "partial_cycle_splits": (0, torch.tensor(2)),
    }
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": OrderedDict(dataset=as_tensors), 5: "five"}
    options: list[dict[str, Any]] = []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *words, **named: (options.append(named), load(*words, **named))[1])
    for write in (through_torch, through_old_torch):
        write(tmp_path / "ck.pt", content)
        assert asked("inspect", tmp_path / "ck.pt")["state"] == state()
    assert [named["mmap"] for named in options] == [True, False]
    assert all(named["weights_only"] and named["map_location"] == "cpu" for named in options)


def test_a_number_may_be_a_key(tmp_path: Path) -> None:
    torch.save({0: {"dataset": state()}, 1: {"dataset": state(epoch=9)}}, tmp_path / "ck.pt")
    assert asked("inspect", tmp_path / "ck.pt", "--key", "1.dataset")["epoch"] == 9


@pytest.mark.parametrize("write", [through_json, through_torch])
def test_a_pipe_is_read_once(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "file", {"dataset": state(), "filling": "x" * 100_000})
    os.mkfifo(tmp_path / "pipe")
    thread = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes((tmp_path / "file").read_bytes()), daemon=True)
    thread.start()
    assert asked("inspect", tmp_path / "pipe")["state"] == state()
    thread.join(10)


def itself() -> dict[str, Any]:
    loop: dict[str, Any] = {"a": 1}
    loop["loop"] = loop
    return loop


@pytest.mark.parametrize(
    ("content", "key", "words"),
    [
        ({"model": {"w": 1}, "step": 3}, None, ["no state", "schema_version", "model, step"]),
        ({}, None, ["no state", "empty"]),
        ({str(i): i for i in range(40)}, None, ["0, 1, 2", "40 in all"]),
        ({"a": state(), "b": {"c": state()}}, None, ["2 states", "--key", "a or b.c"]),
        ({"model": 1, "data": {"set": state()}}, "dataset", ["dataset", "no such key", "model, data", "try --key data.set"]),
        ({"model": {"w": 1}, "data": state()}, "model", ["--key model", "the keys w", "try --key data"]),
        ({"model": {"w": 1}}, "model", ["--key model", "no other key"]),
        ({"model": 3}, "model", ["type int"]),
        (state(), "dataset", ["leave --key out"]),
        ([state(), state()], "dataset", ["leave --key out"]),
        ([], None, ["no states to merge", "merge.count"]),
        ({"dataset": []}, "dataset", ["merge.count"]),
        ([1, 2], None, ["state.malformed"]),
        ([state()], None, ["world_size 2", "merge.count"]),
        ([state(), {"x": 1}], None, ["state.malformed"]),
        ([state(), state(shuffle_seed=8)], None, ["shuffle_seed", "7", "8", "state.mismatch"]),
        ([state(), state(partial_cycle_splits=[])], None, ["different steps", "--skew replay", "merge.skew"]),
        ({**state(), "epoch": 4}, None, ["digest", "state.malformed"]),
        ({**state(), "own": 4}, None, ["own", "state.malformed"]),
        (signed({**state(), "schema_version": 2}), None, ["schema_version 2", "state.schema_version"]),
        ({"schema_version": 1}, None, ["lacks the keys", "state.malformed"]),
    ],
)
def test_no_valid_state_is_exit_code_1(tmp_path: Path, content: Any, key: str | None, words: list[str]) -> None:
    path = written(tmp_path / "file.json", content)
    options = () if key is None else ("--key", key)
    for command in (("inspect", path, *options), ("inspect", path, *options, "--json"), ("trace", path, "--row", "1", *options)):
        said = refused(1, *command)
        assert said.startswith("no valid state: ")
        for word in [*words, str(path)]:
            assert word in said


def test_a_pickle_that_holds_itself_is_searched_once(tmp_path: Path) -> None:
    torch.save(itself(), tmp_path / "loop.pt")
    assert "the keys a, loop" in refused(1, "inspect", tmp_path / "loop.pt")
    torch.save({**itself(), "dataset": state()}, tmp_path / "loop.pt")
    assert asked("inspect", tmp_path / "loop.pt")["state"] == state()
    torch.save(torch.ones(3), tmp_path / "tensor.pt")
    assert "type Tensor" in refused(1, "inspect", tmp_path / "tensor.pt")


def test_torn_ranks_go_back_with_skew_replay(tmp_path: Path) -> None:
    path = written(tmp_path / "torn.json", [state(), state(samples_consumed_per_split=[1] * 4, partial_cycle_splits=[1, 3])])
    answer = asked("inspect", path, "--skew", "replay")
    assert answer["state"] == state(samples_consumed_per_split=[1] * 4, partial_cycle_splits=[])
    assert "merged from 2 ranks" in call("inspect", path, "--skew", "replay")[1]
    assert asked("trace", path, "--row", 1, "--skew", "replay")["epoch"] == 3
    assert "invalid choice" in refused(2, "inspect", path, "--skew", "newest")


def truncated(path: Path) -> None:
    torch.save({"dataset": state(), "w": torch.ones(500)}, path)
    path.write_bytes(path.read_bytes()[:-600])


def npz(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "text")


BAD_FILES: dict[str, tuple[Any, str]] = {
    "missing": (lambda path: None, "No such file"),
    "directory": (lambda path: path.mkdir(), "is a directory"),
    "distributed": (lambda path: (path.mkdir(), (path / ".metadata").touch()), "dcp_to_torch_save"),
    "empty": (lambda path: path.touch(), "is empty"),
    "blank": (lambda path: path.write_text(" \n"), "neither JSON"),
    "word": (lambda path: path.write_text("3"), "neither JSON"),
    "garbage": (lambda path: path.write_bytes(bytes(range(200, 256)) * 50), "neither JSON"),
    "cut": (lambda path: path.write_text(json.dumps(state())[:-9]), "not whole JSON"),
    "latin": (lambda path: path.write_bytes(b'{"a": "\xe9"}'), "not whole JSON"),
    "deep": (lambda path: path.write_text("[" * 200_000), "nested too deeply"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps(state())), "not what torch.save wrote"),
    "cut torch": (truncated, "not what torch.save wrote"),
    "zip": (npz, "not what torch.save wrote"),
    "code": (lambda path: torch.save({"dataset": state(), "args": SimpleNamespace(a=1)}, path), "(types.SimpleNamespace)"),
    "old code": (lambda path: through_old_torch(path, {"args": SimpleNamespace(a=1)}), "(types.SimpleNamespace)"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_cannot_be_read_is_exit_code_2(tmp_path: Path, kind: str) -> None:
    make, words = BAD_FILES[kind]
    path = tmp_path / "file"
    make(path)
    for command in (("inspect", path), ("trace", path, "--row", "1"), ("inspect", path, "--json", "--key", "dataset")):
        said = refused(2, *command)
        assert said.startswith("could not run: ")
        assert words in said
        assert str(path) in said
        assert len(said.splitlines()) == 1


def test_a_file_without_permission_and_a_path_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be read" in refused(2, "inspect", tmp_path / ("x" * 300))
    assert refused(2, "inspect", "a\0b").startswith("could not run: a\\x00b cannot be read")

    def deny(self: Path, mode: str) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)
    assert "Permission denied" in refused(2, "inspect", tmp_path / "file")


# ---- TOL-2: arguments and exit codes


@pytest.mark.parametrize(
    "words",
    [
        ["inspect"],
        ["inspect", "FILE", "--table", "uri"],
        ["inspect", "FILE", "--row", "1"],
        ["trace", "FILE"],
        ["trace", "FILE", "--row", "one"],
        ["trace", "FILE", "--row", "-1"],
        ["trace", "FILE", "--row", "26"],
        ["trace", "FILE", "--row", "9" * 30],
        ["trace", "FILE", "--row", "1", "--batch-size", "0"],
        ["trace", "FILE", "--row", "1", "--epoch", "-1"],
        ["trace", "FILE", "--row", "1", "--epoch", str(2**63)],
        ["trace", "FILE", "--row", "1", "--world-size", "3"],
        ["trace", "FILE", "--row", "1", "--world-size", "0"],
        ["trace", "FILE", "--row", "1", "--world-size", "-2"],
        ["trace", "FILE", "--row", "1", "--table", "a", "b"],
    ],
)
def test_wrong_arguments_are_exit_code_2(file: Path, words: list[str]) -> None:
    said = refused(2, *(file if word == "FILE" else word for word in words))
    assert f"python -m streaming {words[0]}: error: " in said


def test_arguments_out_of_range_are_told_with_the_range(file: Path) -> None:
    assert "[0, 25], got 26" in refused(2, "trace", file, "--row", 26)
    assert "choose 1, 2 or 4" in refused(2, "trace", file, "--row", 1, "--world-size", 3)


def test_an_interrupt_is_exit_code_130(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streaming.checkpoint.decode", interrupt)
    assert call("inspect", file) == (130, "", "interrupted\n")


@pytest.mark.processes
def test_neither_help_nor_a_state_alone_waits_for_the_engine(file: Path) -> None:
    program = (
        "import sys; from streaming.cli import main\n"
        f"assert main(['inspect', {str(file)!r}]) == main(['trace', {str(file)!r}, '--row', '1']) == 0\n"
        "assert not {'lancedb', 'model'} & set(sys.modules)\n"
        "main(['inspect', '--help'])"
    )
    shown = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, cwd=Path(__file__).parents[1], timeout=60)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"exit codes: 0 read" in shown.stdout


# ---- TOL-3: inspect


def test_every_key_of_inspect_by_hand(file: Path) -> None:
    answer = asked("inspect", file)
    assert list(answer) == INSPECT_KEYS
    assert answer == {
        "file": str(file),
        "epoch": 3,
        "completed_cycles": 2,
        "cycles": 6,
        "rows_per_epoch": 24,
        "rows_received": 10,
        "rows_remaining": 14,
        "rows_replayed": 2,
        "rows_left_out": 2,
        "epoch_completed": False,
        "world_sizes": [1, 2, 4],
        "world_sizes_exact": [1, 2],
        "state": state(),
        "fits": None,
        "differing": [],
        "reason": None,
    }


def test_the_keys_are_those_of_the_clauses() -> None:
    clauses = (Path(__file__).parents[1] / "spec" / "tools.md").read_text().split("JSON keys: ")
    assert re.findall(r"`(\w+)`", clauses[1].split(".\n")[0]) == INSPECT_KEYS
    without_values = re.sub(r"\(.*?\)", "", clauses[2].split(";")[0])
    assert re.findall(r"`(\w+)`", without_values) == TRACE_KEYS


def test_what_people_read(file: Path, tmp_path: Path) -> None:
    code, out, err = call("inspect", file)
    assert (code, err) == (0, "")
    for words in [
        *(str(file), "3 running; epochs 0 to 2 are over, as far as the run began with epoch 0", "41.6 %", "10 of 24 rows, 14 remain"),
        *("2 of 6 completed, and 2 of the 4 splits", "2 rows again", "2 of 26 selected", "2 ranks", "world size of 1, 2 or 4", "1 or 2"),
        *("seed 7", "filter      none", "'numbers' version 1, written 2023-11-14T22:13:20.123456Z", "ab" * 32),
    ]:
        assert words in out
    assert "fits" not in out
    fresh = state(epoch=0, samples_consumed_per_split=[0] * 4, partial_cycle_splits=[], shuffle=False, table_version_created_us=None)
    out = call("inspect", written(tmp_path / "fresh", {"dataset": fresh}))[1]
    for words in ("key dataset", "0 not begun\n", " 0.0 %", "no row comes again", "storage order", "does not know"):
        assert words in out
    assert "exact on" not in out
    over = state(
        epoch=1, samples_consumed_per_split=[6] * 4, partial_cycle_splits=[], shuffle_clump_size=3, table_version_created_us=2**63 - 1
    )
    out = call("inspect", written(tmp_path / "over", over))[1]
    for words in ("1 completed; epoch 0 is over", "100.0 %", "in clumps of 3 rows", f"{2**63 - 1} us after 1970"):
        assert words in out


def test_the_report_fits_a_terminal(tmp_path: Path) -> None:
    huge = state(
        filter="id in (" + ", ".join(map(str, range(3000))) + ") or name = '\x1b[2J\nümlaut'",
        table_name="t" * 3000,
        num_splits=5040,
        world_size=7,
        selected_rows=2**63 - 1,
        samples_consumed_per_split=[(2**63 - 1) // 5040 - 1] * 5040,
        partial_cycle_splits=[720 * rank for rank in range(7)],
        shuffle_seed=2**63 - 1,
    )
    path = written(tmp_path / "huge", {"nested": {"dataset": huge}})
    for words in (("inspect", path), ("trace", path, "--row", 2**62, "--batch-size", 2**40)):
        out = call(*words)[1]
        assert len(out.splitlines()) <= 25
        assert max(map(len, out.splitlines())) <= 100
        assert "\x1b" not in out
    out = call("inspect", path)[1]
    assert " 99.9 %" in out
    assert "(9,223,372" not in out
    answer = asked("inspect", path)
    assert (answer["rows_remaining"], answer["world_sizes"], answer["state"]) == (5040 - 7, divisors(5040), huge)


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "██"), ("ascii", "##"), ("latin-1", "##"), (None, "##")])
def test_output_is_printable_in_every_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str | None, shown: str) -> None:
    path = written(tmp_path / "état", state(table_name="数"))
    raw = io.BytesIO()
    stream: Any = io.StringIO() if encoding is None else io.TextIOWrapper(raw, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["inspect", str(path)]) == 0
    text = stream.getvalue() if encoding is None else raw.getvalue().decode(str(encoding))
    assert shown in text
    assert ("数" if encoding == "utf-8" else "\\u6570") in text


def test_a_reader_that_has_gone_is_no_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, sender = os.pipe()
    os.close(receiver)
    with os.fdopen(sender, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["inspect", str(file)]) == 0
        terminal.emit("more")


# ---- TOL-4: fit


def table(path: Path, rows: int = 26, name: str = "numbers", kind: Any = None) -> Any:
    return lancedb.connect(path).create_table(name, pa.table({"id": pa.array(range(rows), kind or pa.int64())}), mode="overwrite")


def saved(data: Any, rows: int = 7, **arguments: Any) -> dict[str, Any]:
    dataset = StreamingDataset(data, **{"num_splits": 4, "shuffle_seed": 7, "rank": 0, "world_size": 2, **arguments})
    iterator = iter(dataset)
    for _ in range(rows):
        next(iterator)
    return dataset.state_dict()


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


# ---- TOL-5: trace


def test_every_key_of_trace_by_hand(tmp_path: Path) -> None:
    # Without shuffle: row k is in split k // 6, cycle k % 6; ranks own the splits 0, 1 and 2, 3; 24 and 25 are left out.
    path = written(tmp_path / "state.json", state(shuffle=False))
    nowhere = dict.fromkeys(("split", "cycle", "rank", "step", "index", "resumed_batch"))
    for row, options, expected in [
        (7, (), ("received", 1, 1, 0, 3, 0, None)),
        (2, (), ("replayed", 0, 2, 0, 4, 0, 0)),
        (14, ("--batch-size", 3), ("replayed", 2, 2, 1, 1, 1, 0)),
        (20, ("--batch-size", 2), ("due", 3, 2, 1, 2, 1, 0)),
        (21, ("--batch-size", 2), ("due", 3, 3, 1, 3, 1, 1)),
        (21, ("--batch-size", 2, "--world-size", 1), ("due", 3, 3, 0, 7, 1, 3)),
        (21, ("--epoch", 2), ("received", 3, 3, 1, 7, 0, None)),
        (21, ("--epoch", 4), ("due", 3, 3, 1, 7, 0, None)),
        (7, ("--epoch", 4), ("due", 1, 1, 0, 3, 0, None)),
    ]:
        answer = asked("trace", path, "--row", row, *options)
        assert list(answer) == TRACE_KEYS
        epoch = options[1] if options[:1] == ("--epoch",) else 3
        assert answer == {"row": row, "epoch": epoch, **dict(zip(TRACE_KEYS[2:], expected, strict=True))}
    for row, epoch in ((24, 3), (25, 0), (24, 9)):
        assert asked("trace", path, "--row", row, "--epoch", epoch) == {"row": row, "epoch": epoch, "status": "left_out", **nowhere}


@pytest.mark.parametrize(
    ("row", "options", "words"),
    [
        (7, (), ["Row 7 was received in epoch 3.", "cycle 1 of 6 and split 1 of 4", "rank 0, step 3, index 0", "does not bring it again"]),
        (2, (), ["not finished", 'with partial_cycle="replay" brings it again, in batch 0', 'with "exact" does not']),
        (21, ("--batch-size", 2), ["has not been received in epoch 3.", "on 2 ranks with batch size 2", "batch 1 of the resumed pass"]),
        (21, ("--world-size", 1), ["on 1 rank with batch size 1"]),
        (21, ("--epoch", 2), ["was received in epoch 2, as far as the run went through it: the state stands in epoch 3"]),
        (21, ("--epoch", 4), ["has not been received in epoch 4, which has not begun", "changes nothing"]),
        (24, (), ["Row 24 is left out of epoch 3", "2 of the 26 selected rows", "No rank receives it", "nor in any other"]),
    ],
)
def test_what_people_read_of_a_row(tmp_path: Path, row: int, options: Any, words: list[str]) -> None:
    path = written(tmp_path / "state.json", state(shuffle=False))
    code, out, err = call("trace", path, "--row", row, *options)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    for word in words:
        assert word in " ".join(out.split())


def test_an_order_of_another_release_is_not_guessed_at(tmp_path: Path) -> None:
    path = written(tmp_path / "state.json", state(order_version=2))
    assert "order_version 2" in refused(1, "trace", path, "--row", 1)
    assert asked("inspect", path)["state"]["order_version"] == 2


Step = dict[int, tuple[int, int, int]]


def arrivals(rows: int, world_size: int, batch_size: int, settings: dict[str, Any], resume: Any = None, epoch: int = 0) -> Step:
    """(rank, batch, index) of every row that really arrives on some rank."""
    found: Step = {}
    for rank in range(world_size):
        dataset = StreamingDataset(numbered_table(rows), rank=rank, world_size=world_size, epoch=epoch, **settings)
        if resume is not None:
            dataset.load_state_dict(resume)
        for j, row in enumerate(ids(dataset)):
            assert row not in found
            found[row] = (rank, j // batch_size, j % batch_size)
    return found


@pytest.mark.parametrize(
    ("rows", "settings", "saving", "taken", "world_size", "batch_size"),
    [
        (14, {"num_splits": 4, "shuffle_seed": 3}, 2, 3, 4, 2),
        (14, {"num_splits": 4, "shuffle_seed": 3}, 1, 3, 2, 3),
        (14, {"num_splits": 4, "shuffle_seed": 5}, 4, 0, 1, 5),
        (14, {"num_splits": 4, "shuffle_seed": 5}, 4, 3, 2, 2),
        (23, {"num_splits": 6, "shuffle_seed": 1, "shuffle_clump_size": 4}, 3, 3, 2, 4),
        (23, {"num_splits": 6, "shuffle": False}, 2, 8, 6, 1),
    ],
)
def test_trace_says_what_really_happens(
    tmp_path: Path, rows: int, settings: dict[str, Any], saving: int, taken: int, world_size: int, batch_size: int
) -> None:
    received, states = set(), []
    for rank in range(saving):
        dataset = StreamingDataset(numbered_table(rows), rank=rank, world_size=saving, epoch=2, **settings)
        iterator = iter(dataset)
        received |= {next(iterator)["id"] for _ in range(taken)}
        states.append(dataset.state_dict())
    path = written(tmp_path / "ranks.json", states)
    over = states[0]["samples_consumed_per_split"][0] == rows // settings["num_splits"]
    # A pass that starts on a completed epoch is one over the next (EPO-2).
    resumed = {} if over else arrivals(rows, world_size, batch_size, settings, states[0])
    options = ("--world-size", world_size, "--batch-size", batch_size)
    statuses = set()
    for epoch in (1, 2, 3):
        whole = arrivals(rows, world_size, batch_size, settings, epoch=epoch)
        for row in range(rows):
            answer = asked("trace", path, "--row", row, "--epoch", epoch, *options)
            assert (answer["rank"], answer["step"], answer["index"]) == whole.get(row, (None, None, None))
            here = epoch == 2
            assert answer["resumed_batch"] == (resumed[row][1] if here and row in resumed else None)
            if row not in whole:
                expected = "left_out"
            elif here:
                expected = {(True, False): "received", (True, True): "replayed", (False, True): "due"}[row in received, row in resumed]
            else:
                expected = "received" if epoch == 1 else "due"
            assert answer["status"] == expected
            statuses.add(expected)
            if here and row in resumed:
                assert resumed[row][0] == answer["rank"]
    assert statuses >= {"left_out", "received", "due"}
    assert ("replayed" in statuses) == bool(states[0]["partial_cycle_splits"])


def test_a_filter_counts_the_rows_that_pass(tmp_path: Path) -> None:
    data = connection().create_table("odd", pa.table({"id": range(16)}), mode="overwrite")
    dataset = StreamingDataset(data, num_splits=2, shuffle_seed=4, filter="id % 2 = 1", rank=0, world_size=1)
    arrived = [row // 2 for row in ids(dataset)]
    path = written(tmp_path / "state.json", dataset.state_dict())
    assert [asked("trace", path, "--row", k)["step"] for k in arrived] == list(range(8))
    refused(2, "trace", path, "--row", 8)


# ---- the model says the same


@st.composite
def states(draw: st.DrawFn) -> dict[str, Any]:
    world_size, n = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    splits = world_size * n
    length = draw(st.integers(1, 6))
    shuffle = draw(st.booleans())
    cycle = draw(st.integers(0, length))
    per_rank = draw(st.integers(0, n - 1)) if cycle < length else 0
    served = [rank * n + split for rank in range(world_size) for split in draw(st.permutations(range(n)))[:per_rank]]
    return state(
        num_splits=splits,
        world_size=world_size,
        selected_rows=splits * length + draw(st.integers(0, splits - 1)),
        shuffle=shuffle,
        shuffle_seed=draw(st.integers(0, 2**63 - 1)) if shuffle else None,
        shuffle_clump_size=draw(st.none() | st.integers(1, 9)) if shuffle else None,
        epoch=draw(st.integers(0, 3) | st.just(2**63 - 1)),
        samples_consumed_per_split=[cycle] * splits,
        partial_cycle_splits=sorted(served),
    )


FILES = count()


@given(states(), st.data())
def test_the_model_says_the_same(tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any], data: st.DataObject) -> None:
    path = written(tmp_path_factory.getbasetemp() / f"drawn-{next(FILES)}.json", drawn)
    answer = asked("inspect", path)
    summary = model_tools.summary(drawn)
    assert {key: answer[key] for key in INSPECT_KEYS[1:-3]} == {key: summary[key] for key in INSPECT_KEYS[1:-3]}
    row = data.draw(st.integers(0, drawn["selected_rows"] - 1))
    batch_size = data.draw(st.integers(1, 9))
    world_size = data.draw(st.none() | st.sampled_from(divisors(drawn["num_splits"])))
    epoch = data.draw(st.none() | st.integers(max(0, drawn["epoch"] - 1), min(2**63 - 1, drawn["epoch"] + 1)))
    options = [("--batch-size", batch_size), ("--world-size", world_size), ("--epoch", epoch)]
    words = [word for name, value in options if value is not None for word in (name, value)]
    assert asked("trace", path, "--row", row, *words) == model_tools.trace(drawn, row, batch_size, world_size=world_size, epoch=epoch)
    path.unlink()


def test_numpy_keys_are_shown() -> None:
    assert terminal.plain(np.int64(3)) == "3"
    assert terminal.plain("a\nb") == "a\\nb"


def test_states_in_lists_are_found_by_position(tmp_path: Path) -> None:
    """TOL-1: positions are keys too."""
    path, own = tmp_path / "file.json", state()
    for content, keys in (
        ({"trainer": {"loops": [{"data": own}]}}, [None, "trainer.loops.0.data"]),
        ([{"data": own}], [None, "0.data"]),
        ({"loops": [1, own]}, ["loops.1"]),
    ):
        path.write_text(json.dumps(content))
        for key in keys:
            assert asked("inspect", path, *([] if key is None else ["--key", key]))["state"] == own

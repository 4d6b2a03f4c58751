"""Files of states, arguments and exit codes (TOL-1, TOL-2)."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from streaming.checkpoint import signed
from tests.tools.support import asked, call, refused, state, written


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
    shown = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, cwd=Path(__file__).parents[2], timeout=60)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"exit codes: 0 read" in shown.stdout


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

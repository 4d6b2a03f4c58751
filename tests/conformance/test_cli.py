"""The command line: exit codes, one line for every mistake, and a violation that is found can be done again."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from model.conformance import cli
from model.conformance.adapter import World
from model.conformance.adapters.example import ListLoader
from model.conformance.checks import CHECKS
from model.conformance.clauses import CLAUSES
from model.conformance.engine import LAYERS
from model.conformance.screen import words
from model.conformance.watchdog import Watched

ROOT = Path(__file__).parents[2]

LOADERS = """
import time
from model.conformance import Description, Refused
from model.conformance.adapters.example import ListLoader

class RepeatsACycle(ListLoader):
    def save(self, handle):
        print("noise")
        state = super().save(handle)
        return {**state, "cycles": max(state["cycles"] - 1, 0)}

class Shuffling(ListLoader):
    def describe(self):
        return Description("shuffling", "1", frozenset({"break", "shuffle"}))

class Repeats(Shuffling):
    def pull(self, handle):
        batch = super().pull(handle)
        return [0] * len(batch) if batch and handle["world"].shuffle else batch

class Crashes(ListLoader):
    def open(self, world):
        if world.rank:
            raise KeyError("boom")
        return super().open(world)

class Skips(ListLoader):
    def save(self, handle):
        partial = handle["received"] % (handle["world"].num_splits // handle["world"].world_size) > 0
        state = super().save(handle)
        return {**state, "cycles": state["cycles"] + partial}

class HangsAtTheSecondResume(ListLoader):
    def resume(self, handle, state):
        super().resume(handle, state)
        handle["world"].world_size == 2 and time.sleep(60)

class HangsAtOnce(ListLoader):
    def pull(self, handle):
        time.sleep(60)

class Insane(ListLoader):
    def pull(self, handle):
        return [1]

def raises():
    raise OSError("no\\ndisk")

nothing = None
"""


@pytest.fixture
def loaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of wrong loaders, under a name of its own."""
    name = "loaders_" + re.sub(r"\W", "_", tmp_path.name)
    (tmp_path / f"{name}.py").write_text(LOADERS)
    monkeypatch.syspath_prepend(tmp_path)
    return name


Do = Callable[..., tuple[int, str, str]]


@pytest.fixture
def do(capsys: pytest.CaptureFixture[str]) -> Do:
    """Do a command; exit status, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.main(arguments)
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


QUICK = ("--layers", "small", "--bound", "smoke", "--quiet")


def test_exit_codes(do: Do, loaders: str) -> None:
    assert do("run", "--impl", "list", *QUICK)[0] == 0
    status, out, err = do("run", "--impl", f"{loaders}:RepeatsACycle", *QUICK, "--report", "json")
    assert status == 1
    assert json.loads(out)["exit_code"] == 1, "what the loader prints must not get into the report"
    assert "noise" in err
    assert do("run", "--impl", f"{loaders}:Insane", *QUICK)[0] == 2
    assert do("run", "--impl", "list", *QUICK, "--seconds", "1e-9")[0] == 1, "a search that was cut short is no pass"


def test_progress_goes_to_stderr(do: Do) -> None:
    _, out, err = do("run", "--impl", "list", "--layers", "small", "--bound", "smoke")
    assert "whole_epochs" in err
    assert "whole_epochs" not in out
    assert do("run", "--impl", "list", *QUICK)[2] == ""


MISTAKES = [
    "",
    "nothing",
    "run",
    "run --impl nobody",
    "run --impl :f",
    "run --impl no.such:f",
    "run --impl {loaders}:no",
    "run --impl {loaders}:nothing",
    "run --impl {loaders}:raises",
    "run --impl list --layers all",
    "run --impl list --layers ,",
    "run --impl list --vectors no-such-directory",
    "run --impl list --seconds nan",
    "run --impl list --timeout 0",
    "run --impl list --seconds -1",
    "run --impl list --examples 0",
    "run --impl list --bound huge",
    "run --impl list --report pdf",
    "run --impl list --gaps no-such-file",
    "replay --impl list no-such-file",
    "replay --impl list --clause NONSENSE no-such-file",
    "vectors --run",
    "vectors --impl list",
    "vectors --run --impl list no-such-directory",
    "vectors --write a --check b",
    "vectors --write {file}/below",
]


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line(do: Do, loaders: str, tmp_path: Path, line: str) -> None:
    (tmp_path / "file").touch()
    status, out, err = do(*line.format(loaders=loaders, file=tmp_path / "file").split())
    assert (status, out) == (2, "")
    assert re.fullmatch(r"python -m model\.conformance: [^\n]+\n", err)


GAPS = [
    ('{"RES-3": "as released", "CKP-2": "x"}', 1),
    ("[]", 2),
    ("{", 2),
    ('{"NONSENSE": "x"}', 2),
    ('{"RES-3": " "}', 2),
    ('{"RES-3": 1}', 2),
    ('{"RES-3": "a", "RES-3": "b"}', 2),
]


@pytest.mark.parametrize(("written", "expected"), GAPS)
def test_gaps_that_cannot_be_used(do: Do, loaders: str, tmp_path: Path, written: str, expected: int) -> None:
    path = tmp_path / "gaps.json"
    path.write_text(written)
    assert do("run", "--impl", f"{loaders}:RepeatsACycle", *QUICK, "--gaps", str(path))[0] == expected


def test_known_gaps_are_allowed_and_stale_ones_are_not(do: Do, loaders: str, tmp_path: Path) -> None:
    _, out, _ = do("run", "--impl", f"{loaders}:RepeatsACycle", *QUICK, "--report", "json")
    failed = [clause for clause, one in json.loads(out)["clauses"].items() if one["status"] == "FAILED"]
    path = tmp_path / ("gaps.toml" if sys.version_info >= (3, 11) else "gaps.json")
    written = dict.fromkeys(failed, "as released")

    def dump() -> str:
        return "\n".join(f'{key} = "{value}"' for key, value in written.items()) if path.suffix == ".toml" else json.dumps(written)

    path.write_text(dump())
    status, out, _ = do("run", "--impl", f"{loaders}:RepeatsACycle", *QUICK, "--gaps", str(path))
    assert status == 0
    assert out.rstrip().endswith(", 0 failed")
    written["ORD-6"] = "was wrong once"
    path.write_text(dump())
    status, out, _ = do("run", "--impl", f"{loaders}:RepeatsACycle", *QUICK, "--gaps", str(path))
    assert status == 1
    assert "was wrong once" in out


# ---- replaying


@pytest.mark.parametrize(
    ("name", "clause"), [("RepeatsACycle", "RES-3"), ("Repeats", "ORD-6"), ("Shuffling", "ORD-3"), ("Crashes", "CYC-1"), ("Skips", "RES-8")]
)
def test_a_violation_can_be_replayed(do: Do, loaders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, clause: str) -> None:
    """By the command in the report, from the report itself, and no longer on a loader that is right."""
    impl = f"{loaders}:{name}"
    _, out, _ = do("run", "--impl", impl, *QUICK, "--report", "json")
    (tmp_path / "report.json").write_text(out)
    violation = json.loads(out)["clauses"][clause]["violation"]
    command = shlex.split(violation["replay"])
    assert command[:2] == ["printf", "%s"]
    assert command[3:7] == ["|", "python", "-m", "model.conformance"]
    monkeypatch.setattr(sys, "stdin", io.StringIO(command[2]))
    status, out, _ = do(*command[7:])
    assert status == 1
    assert f"they differ: {clause}:" in out
    assert all(f"  {number}  " in out for number in range(1, len(violation["steps"]) + 1))
    assert ("never received" in out) == (clause == "RES-8")
    if clause == "RES-3":
        assert words(violation["expected"], None) in out
        assert words(violation["actual"], None) in out
    assert "null" not in out

    assert do("replay", "--impl", impl, "--clause", clause, str(tmp_path / "report.json"))[0] == 1
    status, out, _ = do("replay", "--impl", "model", "--clause", clause, str(tmp_path / "report.json"))
    assert status == 0
    assert "agree" in out


def test_the_printed_command_works_in_a_shell(do: Do, loaders: str, tmp_path: Path) -> None:
    _, out, _ = do("run", "--impl", f"{loaders}:RepeatsACycle", *QUICK)
    command = re.findall(r"replay +(printf .*)", out)[0]
    shown = subprocess.run(
        ["sh", "-c", command.replace("python -m", f"{shlex.quote(sys.executable)} -m")],
        check=False, cwd=tmp_path, env={"PYTHONPATH": f"{ROOT}:{tmp_path}"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert shown.returncode == 1, shown.stderr
    assert "they differ" in shown.stdout


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("run --layers small --bound smoke --quiet --impl {}:HangsAtTheSecondResume", "resume has not returned within 0.5 s"),
        ("run --layers smoke --quiet --impl {}:HangsAtOnce", "loader    a = open(rows=4, num_splits=2)"),
        ("vectors --run {vectors} --impl {}:HangsAtTheSecondResume", "into b"),
    ],
)
def test_a_call_that_hangs_ends_the_command(loaders: str, tmp_path: Path, command: str, shown: str) -> None:
    """With what was called and the scenario up to it; the printed command hangs at the same place."""
    line = command.format(loaders, vectors=ROOT / "spec" / "vectors" / "generated")
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}

    def execute(written: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", written], check=False, env=environment, capture_output=True, text=True, timeout=50)

    python = f"{shlex.quote(sys.executable)} -m model.conformance"
    found = execute(f"{python} {line} --timeout 0.5")
    assert (found.returncode, found.stdout) == (2, "")
    assert shown in found.stderr
    if "smoke " not in line:
        (again,) = re.findall(r"replay +(printf .*) \(with --timeout\)", found.stderr)
        found = execute(again.replace("python -m model.conformance replay ", f"{python} replay --timeout 0.5 "))
        assert (found.returncode, "resume has not returned" in found.stderr) == (2, True)


def test_only_calls_are_timed_and_what_hangs_is_told_once() -> None:
    """Not the time between them, in which the model works."""
    told: list[Any] = []
    finish = threading.Event()

    class Slow(ListLoader):
        def save(self, handle: Any) -> Any:
            finish.wait(0.8)

    watched = Watched(Slow(), 0.2, lambda *what: told.append(what))
    handle = watched.open(World(4, 2))
    watched.pull(handle)
    finish.wait(0.6)
    assert told == []
    watched.save(handle)
    assert told == [("save", World(4, 2), [])]


def test_a_time_limit_that_is_kept_changes_nothing(do: Do) -> None:
    free, limited = (do("run", "--impl", "model", *QUICK, "--report", "json", *more) for more in ((), ("--timeout", "30")))
    assert [json.loads(one[1])["clauses"] for one in (limited, free)] == [json.loads(free[1])["clauses"]] * 2
    assert limited[0] == free[0] == 0


OPEN = {"open": "a", "rows": 4, "num_splits": 2}
NO_SCENARIOS: list[Any] = [
    [], 3, {}, {"steps": 1}, [1], [{}], {"clauses": {}}, {"clauses": {"RES-3": {"violation": None}}},
    [{"pull": "a"}], [{"append": "t", "rows": 1}], [{"open": "a", "rows": 4}],
    [{**OPEN, "rows": "4"}], [{**OPEN, "rows": True}], [{**OPEN, "size": 1}], [{**OPEN, "shuffle_clump_size": "x"}],
    [OPEN, {"pull": "a", "drain": "a"}], [OPEN, {"kill": "a"}, {"pull": "a"}], [OPEN, {"pull": "a", "clause": "NONSENSE"}],
    [OPEN, {"load": "a"}], [OPEN, {"load": "a", "state": "s"}], [OPEN, {"load": "a", "state": "s", "garbage": 1}],
    [OPEN, {"merge": "s", "as": "m"}], [OPEN, {"merge": [1], "as": "m"}],
    [OPEN, {"fault": "a", "row": "x"}], [OPEN, {"fault": "a", "row": 1}],
]  # fmt: skip


@pytest.mark.parametrize("scenario", NO_SCENARIOS, ids=[json.dumps(one)[:60] for one in NO_SCENARIOS])
def test_what_is_no_scenario_is_refused_in_one_line(do: Do, tmp_path: Path, scenario: Any) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(scenario))
    status, out, err = do("replay", "--impl", "list", str(path))
    assert (status, out, err.count("\n")) == (2, "", 1)


def test_the_verb_need_not_be_the_first_key(do: Do, tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps({"steps": [{"rows": 4, "num_splits": 2, "open": "a"}, {"clause": "CYC-6", "drain": "a"}]}))
    assert do("replay", "--impl", "list", str(path))[0] == 0


# ---- the rest


def test_list_names_every_clause_and_check(do: Do) -> None:
    status, out, _ = do("list")
    assert status == 0
    assert all(re.search(rf"^  {name} ", out, re.MULTILINE) for name in [*CLAUSES, *(check.name for check in CHECKS)])


@pytest.mark.parametrize(("name", "arguments"), [("selftest", ["--streaming"]), ("verify", ["--anything", "-x"])])
def test_commands_of_other_modules(do: Do, monkeypatch: pytest.MonkeyPatch, name: str, arguments: list[str]) -> None:
    given: list[Any] = []
    fake = SimpleNamespace(
        selftest=lambda tell, streaming: tell("looked") or bool(given.append(streaming)), main=lambda argv: given.append(argv) or 1
    )
    monkeypatch.setitem(sys.modules, f"model.conformance.{name}", fake)
    assert do(name, *arguments)[0] == 1
    assert given == [True if name == "selftest" else arguments]
    monkeypatch.setitem(sys.modules, f"model.conformance.{name}", None)
    status, _, err = do(name, *arguments)
    assert (status, err.count("\n")) == (2, 1)


@pytest.mark.parametrize("impl", cli.KNOWN)
def test_the_loaders_that_the_kit_brings_along_are_there(impl: str) -> None:
    assert callable(cli.find_factory(impl))


def test_the_package_alone_imports_no_engine() -> None:
    """Hypothesis, and the engine, are imported where they are used; the layers that draw nothing do without Hypothesis."""
    program = """
import sys
sys.modules["hypothesis"] = None
import model.conformance, model.conformance.plugin
assert "model.conformance.engine" not in sys.modules
assert {"Adapter", "World", "Description", "Refused", "Failed", "Result", "check_loader"} == set(model.conformance.__all__)
assert all(getattr(model.conformance, name) for name in model.conformance.__all__)
from model.conformance.adapters.example import ListLoader
from model.conformance.checks import SMOKE
assert model.conformance.check_loader(ListLoader, layers=["small"], bound=SMOKE).exit_code == 0
from model.conformance.cli import main
sys.exit(main(["run", "--impl", "list", "--layers", "machine"]))
"""
    shown = subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert shown.returncode == 2, shown.stderr
    assert "Hypothesis" in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_the_chapter_names_options_that_exist() -> None:
    chapter = (ROOT / "spec" / "conformance.md").read_text(encoding="utf-8")
    sources = "".join(
        (ROOT / "model" / "conformance" / name).read_text(encoding="utf-8") for name in ("cli.py", "plugin.py", "verify_options.py")
    )
    named = set(re.findall(r"--[a-z][a-z-]*[a-z]", chapter))
    assert len(named) > 8
    assert [option for option in named if f'"{option}"' not in sources] == []
    for layer in LAYERS:
        assert f"| `{layer}` |" in chapter

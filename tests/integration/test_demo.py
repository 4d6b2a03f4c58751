"""The demo: its judge must reject every kind of wrong run, and the demo itself must run, pass, fail and clean up."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streaming import cli
from streaming.demo import checkpoints, judge, logs, report
from streaming.demo.judge import Evidence, Run, Verdict
from streaming.demo.logs import Record
from streaming.demo.settings import MIN_ROWS, Settings

ROOT = Path(__file__).resolve().parents[2]

REFERENCE_ROWS = "uninterrupted run: every row once"
KILLED = "killed in mid-epoch"
RESUMED_ROWS = "killed and resumed: every row once"
STEPS = "same rows in every global step"
TEXTS = "text of every row is the table's"
APPENDED = "rows appended after the kill stay out"
LOSSES = "loss curve is the uninterrupted one"
LEARNS = "the model learns"
ALL = {REFERENCE_ROWS, KILLED, RESUMED_ROWS, STEPS, TEXTS, APPENDED, LOSSES, LEARNS}


# ---- hand-made logs: 17 rows, 4 splits, 4 rows a step; row 16 is left out; checkpoint before step 2, killed after step 2


def digest(number: int) -> int:
    return 1000 + number


def record(step: int, *ids: int) -> Record:
    return Record(step, list(ids), [digest(number) for number in ids], 5.0 - step)


def good() -> Evidence:
    return Evidence(
        table={number: digest(number) for number in range(17)},
        appended={17, 18, 19},
        num_splits=4,
        reference=[
            [record(0, 3, 7), record(1, 1, 9), record(2, 0, 2), record(3, 5, 15)],
            [record(0, 4, 8), record(1, 6, 10), record(2, 11, 12), record(3, 13, 14)],
        ],
        interrupted=[
            [record(0, 3, 7), record(1, 1, 9), record(2, 0, 2)],
            [record(0, 4, 8), record(1, 6, 10), record(2, 11, 12)],
        ],
        resumed_from=2,
        resumed=[[record(2, 0, 11, 2, 12), record(3, 5, 13, 15, 14)]],
        exit_codes=[-9, -9],
    )


def changed(run: Run, rank: int, index: int, **change: object) -> Run:
    """The run with other values in one record."""
    ranks = [list(records) for records in run]
    ranks[rank][index] = replace(ranks[rank][index], **change)  # type: ignore[arg-type]
    return ranks


def failed(evidence: Evidence) -> dict[str, Verdict]:
    verdicts = judge.judge(evidence)
    assert {verdict.check for verdict in verdicts} == ALL
    return {verdict.check: verdict for verdict in verdicts if not verdict.passed}


def test_a_good_run_passes_every_check() -> None:
    assert not failed(good())


def resumed(**change: object) -> Callable[[Evidence], Evidence]:
    return lambda e: replace(e, resumed=changed(e.resumed, 0, 1, **change))


def reference(rank: int, index: int, **change: object) -> Callable[[Evidence], Evidence]:
    return lambda e: replace(e, reference=changed(e.reference, rank, index, **change))


def digests(*ids: int) -> list[int]:
    return [digest(number) for number in ids]


WRONG: dict[str, tuple[Callable[[Evidence], Evidence], set[str], str]] = {
    "a row is lost": (resumed(ids=[5, 13, 15], digests=digests(5, 13, 15)), {RESUMED_ROWS, STEPS}, "lost: [14 (due in step 3)]"),
    "a row comes twice": (
        resumed(ids=[5, 13, 15, 14, 3], digests=digests(5, 13, 15, 14, 3)),
        {RESUMED_ROWS, STEPS},
        "3 (steps [0, 3])",
    ),
    "a row comes twice in one step": (
        resumed(ids=[5, 13, 15, 14, 14], digests=digests(5, 13, 15, 14, 14)),
        {RESUMED_ROWS, STEPS},
        "14 (steps [3])",
    ),
    "the row that was left out comes instead of another": (
        resumed(ids=[5, 13, 15, 16], digests=digests(5, 13, 15, 16)),
        {RESUMED_ROWS, STEPS},
        "not of the uninterrupted run's rows: [16]",
    ),
    "two steps swap a row": (
        lambda e: replace(
            e,
            resumed=[
                [
                    record(2, 0, 11, 2, 13),
                    record(3, 5, 12, 15, 14),
                ]
            ],
        ),
        {STEPS},
        "step 2: missing [12], instead [13]",
    ),
    "an early step of the interrupted run has other rows": (
        lambda e: replace(e, interrupted=[[record(0, 3, 9), record(1, 1, 7), record(2, 0, 2)], e.interrupted[1]]),
        {STEPS},
        "step 0: missing [7], instead [9]",
    ),
    "a step is missing": (lambda e: replace(e, resumed=[e.resumed[0][:1]]), {RESUMED_ROWS, STEPS, LOSSES}, "step 3: loss []"),
    "a step comes after the end": (
        lambda e: replace(e, resumed=[[*e.resumed[0], Record(4, [], [], 0.5)]]),
        {LOSSES},
        "step 4: loss [0.5], uninterrupted []",
    ),
    "a loss differs": (resumed(loss=2.0 + 1e-6), {LOSSES}, "step 3: loss [2.000001], uninterrupted [2.0]"),
    "a loss is not a number": (resumed(loss=float("nan")), {LOSSES, LEARNS}, "step 3: loss [nan]"),
    "one rank of the reference has another loss": (reference(1, 3, loss=2.5), {LOSSES}, "step 3"),
    "an appended row comes": (
        resumed(ids=[5, 13, 15, 17], digests=digests(5, 13, 15, 17)),
        {RESUMED_ROWS, STEPS, APPENDED},
        "appended rows were received: [17]",
    ),
    "nothing was appended": (lambda e: replace(e, appended=set()), {APPENDED}, "no row was appended"),
    "a text belongs to another row": (resumed(digests=digests(5, 13, 14, 15)), {TEXTS}, "step 3: the text of [14, 15] is not the table's"),
    "the interrupted run ended by itself": (lambda e: replace(e, exit_codes=[0, 0]), {KILLED}, "exit codes [0, 0]"),
    "one rank ended by itself": (lambda e: replace(e, exit_codes=[-9, 1]), {KILLED}, "exit codes [-9, 1]"),
    "nothing was killed": (lambda e: replace(e, exit_codes=[]), {KILLED}, "exit codes []"),
    "killed at the checkpoint": (
        lambda e: replace(e, interrupted=[rank[:2] for rank in e.interrupted]),
        {KILLED},
        "no row was received between the checkpoint and the kill",
    ),
    "killed at the end": (lambda e: replace(e, interrupted=e.reference), {KILLED}, "not in mid-epoch"),
    "resumed from the beginning": (lambda e: replace(e, resumed_from=0, resumed=e.reference), {KILLED}, "not in mid-epoch"),
    "the reference loses a row": (
        reference(1, 3, ids=[13], digests=digests(13)),
        {REFERENCE_ROWS, RESUMED_ROWS, STEPS},
        "15 rows came, not 16; never received: [14, 16]",
    ),
    "the reference has a row twice": (
        reference(1, 3, ids=[13, 13], digests=digests(13, 13)),
        {REFERENCE_ROWS, RESUMED_ROWS, STEPS},
        "13 (steps [3])",
    ),
    "the reference has a foreign row": (
        reference(1, 3, ids=[13, 99], digests=digests(13, 99)),
        {REFERENCE_ROWS, RESUMED_ROWS, STEPS},
        "ids that are not in the table: [99]",
    ),
    "nothing is learnt": (
        lambda e: replace(
            e,
            reference=[[replace(r, loss=5.0) for r in rank] for rank in e.reference],
            interrupted=[[replace(r, loss=5.0) for r in rank] for rank in e.interrupted],
            resumed=[[replace(r, loss=5.0) for r in rank] for rank in e.resumed],
        ),
        {LEARNS},
        "",
    ),
    "all logs are empty": (
        lambda e: replace(e, reference=[[], []], interrupted=[[], []], resumed=[[]]),
        {REFERENCE_ROWS, KILLED, STEPS, TEXTS, LOSSES, LEARNS},
        "0 rows came, not 16",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_run_is_rejected_by_the_right_checks(case: str) -> None:
    spoil, checks, words = WRONG[case]
    verdicts = failed(spoil(good()))
    assert verdicts.keys() == checks
    assert words in "\n".join(difference for verdict in verdicts.values() for difference in verdict.differences)


def test_every_check_is_made_to_fail() -> None:
    assert set().union(*(checks for _, checks, _ in WRONG.values())) == ALL


def test_rounding_is_tolerated_and_reported() -> None:
    evidence = resumed(loss=2.0 + 4e-15)(good())
    assert not failed(evidence)
    before, after = judge.loss_differences(evidence)
    assert before == 0
    assert 0 < after < 1e-14
    assert "bit for bit equal (2 ranks in both runs)" in report.how_equal(before, after, 2, 1).replace("\n", " ")
    assert "adds them up in another order" in report.how_equal(before, after, 2, 1).replace("\n", " ")


def test_a_difference_is_not_explained_away() -> None:
    assert report.how_equal(0.0, 1e-3, 2, 1) == "Loss curves: NOT equal."


def test_the_page_names_what_differs() -> None:
    page = report.table(judge.judge(WRONG["two steps swap a row"][0](good())))
    assert "\nFAILED: same rows in every global step\n  step 2: missing [12], instead [13]\n" in page


@pytest.mark.parametrize("name", ["judge", "logs"])
def test_the_judge_asks_nothing_of_the_dataset(name: str) -> None:
    tree = ast.parse((ROOT / "streaming" / "demo" / f"{name}.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {module for module in imported if module.split(".")[0] not in sys.stdlib_module_names} <= {"streaming.demo.logs"}


# ---- logs and checkpoints


def test_logs_come_back_bit_for_bit_and_a_torn_line_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.jsonl"
    records = [Record(0, [3, 2**62], [1, 2], 0.1 + 0.2), Record(1, [5], [6], 1 / 3)]
    assert logs.last_step(path) == -1
    with path.open("w") as log:
        for one in records:
            logs.append(log, one)
    assert logs.read(path) == records
    with path.open("a") as log:
        log.write('{"step": 2, "ids": [')
    assert logs.read(path, killed=True) == records
    assert logs.last_step(path) == 1
    with pytest.raises(ValueError, match="middle of a line"):
        logs.read(path)


def test_the_latest_checkpoint_is_the_last_complete_one(tmp_path: Path) -> None:
    assert checkpoints.latest(tmp_path) is None
    for step in (5, 10):
        checkpoints.save(tmp_path, step, {"dataset": {"epoch": 0}})
    (tmp_path / "unfinished").write_bytes(b"half a file")
    found = checkpoints.latest(tmp_path)
    assert found is not None
    assert found[0] == 10
    assert checkpoints.load(found[1]) == {"step": 10, "dataset": {"epoch": 0}}


# ---- the command line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", "959"], "--rows must be an int >= 960"),
        (["--rows", "many"], "--rows: invalid int value"),
        (["--world-size", "5"], "--world-size must divide the 12 splits, so be one of 1, 2, 3, 4, 6, 12; got 5"),
        (["--resume-world-size", "0"], "--resume-world-size must divide the 12 splits"),
        (["--seed", "-1"], "--seed must be an int >= 0"),
        (["--colour", "red"], "unrecognized arguments: --colour"),
    ],
)
def test_bad_arguments_exit_2_and_are_named(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", *arguments])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_more_rows_than_the_library_has_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--rows", "100000000"]) == 2
    assert "--rows must be at most about" in capsys.readouterr().err


def test_no_command_exits_2() -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([])
    assert stop.value.code == 2


def test_help_names_every_argument(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--help"])
    assert stop.value.code == 0
    page = capsys.readouterr().out
    assert all(name in page for name in ("--rows", "--world-size", "--resume-world-size", "--seed", "exit codes"))


def test_the_kill_lies_in_mid_epoch_between_checkpoints() -> None:
    for rows in range(MIN_ROWS, 20_000, 37):
        settings = Settings(rows, 3, 2, 0)
        every, kill = settings.checkpoint_every, settings.kill_after_step
        assert 0 < kill // every * every <= kill < settings.steps - every
        assert kill % every == every // 2


# ---- the real thing


def demo(tmp_path: Path, *arguments: str, first_on_path: Path | None = None) -> subprocess.Popen[str]:
    path = os.pathsep.join(str(entry) for entry in (first_on_path, ROOT) if entry is not None)
    return subprocess.Popen(
        [sys.executable, "-m", "streaming", "demo", "--rows", str(MIN_ROWS + 7), *arguments],
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def sabotage(tmp_path: Path, code: str) -> Path:
    """A folder which, put first on the path, changes streaming in every process of the demo."""
    folder = tmp_path / "sabotage"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("from streaming import StreamingDataset\nfrom streaming.checkpoint import signed\n" + code)
    return folder


@pytest.mark.processes
def test_the_demo_passes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = demo(tmp_path, "--world-size", "2", "--resume-world-size", "1", "--seed", "3")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    for check in ALL:
        assert f"{check:<37}  passed  " in out
    assert "960 of 967 rows in 20 steps; 7 left out" in out
    assert out.endswith("All checks passed.\n")
    assert [line.split(":")[0] for line in err.splitlines()] == [
        "table",
        "1/3 uninterrupted, 2 ranks",
        "2/3 to be killed, 2 ranks",
        "3/3 resumed, 1 rank",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_a_resume_that_loses_rows_exits_1(tmp_path: Path) -> None:
    code = """
load = StreamingDataset.load_state_dict
def skip_a_cycle(self, state):
    counts = [count + 1 for count in state["samples_consumed_per_split"]]
    load(self, signed({**state, "samples_consumed_per_split": counts}))
StreamingDataset.load_state_dict = skip_a_cycle
"""
    process = demo(tmp_path, "--world-size", "1", "--resume-world-size", "2", first_on_path=sabotage(tmp_path, code))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, out + err
    assert f"{RESUMED_ROWS:<37}  FAILED  948 of 960 rows; 12 lost, 0 twice, 0 foreign" in out
    assert f"FAILED: {STEPS}\n  step " in out
    assert out.endswith("NOT all checks passed.\n")


@pytest.mark.processes
def test_a_rank_that_dies_exits_2_with_its_last_words(tmp_path: Path) -> None:
    code = """
def fail(self):
    raise RuntimeError("the disk is on fire")
StreamingDataset.__iter__ = fail
"""
    process = demo(tmp_path, "--world-size", "2", first_on_path=sabotage(tmp_path, code))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2, out + err
    assert "ended by itself with exit code 1" in err
    assert "RuntimeError: the disk is on fire" in err
    assert [path.name for path in tmp_path.iterdir()] == ["sabotage"]


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("ps") is None, reason="ps, which lists processes, is not installed")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_ended_demo_leaves_no_process(tmp_path: Path, number: signal.Signals, code: int) -> None:
    deadline = time.monotonic() + 120
    with demo(tmp_path, "--rows", "50000", "--world-size", "1") as process:
        try:
            while not list(tmp_path.glob("lockstep-demo-*/reference/rank-0.jsonl")):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert processes_naming(tmp_path)
            process.send_signal(number)
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == code
    while processes_naming(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if number != signal.SIGKILL:  # which nobody outlives to clean up
        assert list(tmp_path.iterdir()) == []


def processes_naming(path: Path) -> list[str]:
    """Command lines of the running processes that mention a path."""
    listing = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listing.splitlines() if str(path) in line]

"""`python -m model.conformance verify`: the plan is right, real tables pass, and a loader that loses rows does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from model.conformance import cli, verify, verify_options
from model.conformance.adapter import World
from model.conformance.plan import period, plan
from model.conformance.verify import main
from streaming import StreamingDataLoader, StreamingDataset
from tests.simulation import simulate
from tests.support import ids, numbered_table

ROWS = 50
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def _rows(names: list[str], twice: list[int]) -> pa.Table:
    nested = {"list": [[number] for number in twice], "struct": [{"a": number} for number in twice]}
    return pa.table({"id": names, "twice": twice, **nested})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    table = lancedb.connect(tmp_path).create_table("t", _rows([f"row {i}" for i in range(ROWS)], [i // 2 for i in range(ROWS)]))
    table.add(_rows(["more"], [99]))
    return str(tmp_path)


@pytest.mark.parametrize(("world_size", "batch_size", "workers"), [(1, 3, 0), (2, 3, 0), (2, 5, 2), (4, 1, 0), (1, 2, 3), (3, 8, 4)])
def test_the_plan_is_what_really_happens(world_size: int, batch_size: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Legal or refused, and what a resume receives twice, by running all ranks (with the workers played in this process)."""
    simulate(monkeypatch, lambda count: 0)
    world = World(60, 12, world_size, batch_size=batch_size, num_workers=workers, shuffle=True)

    def loader(rank: int, state: Any = None) -> StreamingDataLoader:
        dataset = StreamingDataset(numbered_table(60), num_splits=12, shuffle_seed=0, rank=rank, world_size=world_size)
        if state is not None:
            dataset.load_state_dict(state)
        return StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers, collate_fn=ids)

    listed = plan(world, 8)
    assert len(listed) == min(period(world), 8)
    for one in listed:
        loaders = [loader(rank) for rank in range(world_size)]
        iterators = [iter(each) for each in loaders]
        before = [row for iterator in iterators for _ in range(one.step) for row in next(iterator)]
        try:
            state, legal = loaders[0].state_dict(), True
        except RuntimeError:
            state, legal = loaders[0].floor_state_dict(), False
        # A completed epoch is followed by the next one, which repeats nothing.
        over = state["samples_consumed_per_split"][0] == 60 // 12
        after = [] if over else [row for rank in range(world_size) for batch in loader(rank, state) for row in batch]
        assert legal == one.legal
        assert len(set(before) & set(after)) == one.replayed
        assert set(before) | set(after) == set(range(60))


def test_a_period_ends_where_nothing_is_replayed() -> None:
    for batch_size in range(1, 9):
        listed = plan(World(480, 12, 2, batch_size=batch_size))
        assert [one.step for one in listed if one.replayed == 0] == [len(listed)]


def test_a_real_table_holds(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [uri, "t", "--num-splits", "6", "--world-size", "3", "--batch-size", "4", "--resume-world-size", "3", "1", "2"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "51 rows, 6 splits, 3 ranks x 0 workers (splits), batches of 4: 4 steps an epoch, 3 rows left out of each" in out
    assert "Held (sampled): 5 interruptions" in out
    assert "no row lost" in out
    assert main([*arguments, "--json", "--filter", "twice < 10", "--version", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["held"], found["missing"], found["violation"], found["world"]["rows"]) == (True, 0, None, 20)
    assert [resumed for _, resumed in found["interruptions"]] == [3, 1, 2, 3, 1]
    assert main([*arguments, "--whole-epochs-up-to", "1"]) == 0
    assert "followed for 40 batches on every rank" in capsys.readouterr().out


def test_a_loader_that_loses_a_row_does_not_hold(uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    load = StreamingDataset.load_state_dict

    def skipping(self: StreamingDataset, state: Any, **options: Any) -> None:
        load(self, state, **options)
        next(iter(self))

    monkeypatch.setattr(StreamingDataset, "load_state_dict", skipping)
    assert main([uri, "t", "--num-splits", "6", "--world-size", "3", "--batch-size", "4"]) == 1
    assert "FAILED: interrupted behind step 1, resumed on 3 ranks: RES-3" in capsys.readouterr().out


LONG = ["t", "--num-splits", "3", "--world-size", "3", "--batch-size", "1", "--whole-epochs-up-to", "1"]


def test_a_long_epoch_is_looked_at_in_the_middle_and_at_the_end(
    uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """17 cycles, windows of four: from cycles 0, 8 and 13; what lies between is said not to have been looked at."""
    ends: set[tuple[int, str]] = set()
    right = verify.run

    def spy(steps: Any, loader: Any, *others: Any) -> Any:
        ends.add((loader.cycle, next(iter(steps[-1]))))
        return right(steps, loader, *others)

    monkeypatch.setattr(verify, "run", spy)
    monkeypatch.setattr(verify, "_WINDOW", 4)
    assert main([uri, *LONG, "--resume-world-size", "1", "3"]) == 0
    assert ends == {(0, "pull"), (8, "pull"), (13, "drain")}
    out = capsys.readouterr().out
    assert "runs begun behind cycle 0, 8, 13 of 17" in out
    assert "from cycle 8 (on 3)" in out
    assert "the last ones to the end of the epoch" in out
    assert main([uri, *LONG, "--interruptions", "2"]) == 0
    assert "nor was the end of the epoch" in capsys.readouterr().out
    assert main([uri, *LONG, "--json", "--num-workers", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["behind_cycles"][:3] == [0, 8, 13]


@pytest.mark.parametrize(("first", "last", "found"), [(1, 7, "1,"), (9, 12, "cycle 8,"), (14, 17, "cycle 13,")])
def test_a_row_lost_late_in_a_long_epoch_is_found(
    uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, first: int, last: int, found: str
) -> None:
    """By the window that it is in: an interruption there loses a row, one elsewhere none."""
    load = StreamingDataset.load_state_dict

    def skipping(self: StreamingDataset, state: Any, **options: Any) -> None:
        load(self, state, **options)
        if first <= state["samples_consumed_per_split"][0] <= last:
            next(iter(self))

    monkeypatch.setattr(verify, "_WINDOW", 4)
    monkeypatch.setattr(StreamingDataset, "load_state_dict", skipping)
    assert main([uri, *LONG]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAILED")]
    assert f"{found} resumed on 3 ranks: RES-3" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--world-size", "4"], "argument.value: --world-size is 4, and must divide --num-splits (6): 1, 2, 3, 6"),
        (["--resume-world-size", "3", "5"], "argument.value: --resume-world-size is 5, and must divide --num-splits (6): 1, 2, 3, 6"),
        (["--interruptions", "0"], "argument.value: --interruptions is 0, and must be an int >= 1: nothing else is looked at"),
        (["--batch-size", "0"], "argument.value: --batch-size is 0, and must be an int >= 1"),
        (["--world-size", "0"], "argument.value: --world-size is 0, and must be an int >= 1"),
        (["--num-splits", "-6"], "argument.value: --num-splits is -6, and must be an int >= 1"),
        (["--resume-world-size", "0"], "argument.value: --resume-world-size is 0, and must be an int >= 1"),
        (["--num-workers", "-1"], "argument.value: --num-workers is -1, and must be an int >= 0"),
        (["--shuffle-seed", str(2**63)], f"argument.value: --shuffle-seed is {2**63}, and must be an int in [0, 2**63 - 1]"),
        (["--shuffle-clump-size", "0"], "argument.value: --shuffle-clump-size is 0, and must be an int >= 1"),
        (
            ["--shuffle-clump-size", "2", "--no-shuffle"],
            "argument.value: --shuffle-clump-size is 2, and must be left out with --no-shuffle",
        ),
        (["--version", "0"], "argument.value: --version is 0, and must be an int >= 1"),
        (["--whole-epochs-up-to", "-1"], "argument.value: --whole-epochs-up-to is -1, and must be an int >= 0"),
        (
            ["--id", "list"],
            "column 'list' holds list<item: int64>, by which no row is known: pass --id with a column of unique numbers or strings",
        ),
        (["--id", "struct"], "column 'struct' holds struct<a: int64>, by which no row is known"),
        (["--id", "twice"], "pass --id with a unique one"),
        (["--id", "nothing"], "there is no column 'nothing'"),
        (
            ["--num-workers", "4", "--world-size", "2"],
            "argument.value: --num-workers is 4, and must be 0 or divide the splits of a rank (6 / 2): 1, 3 (or pass --worker",
        ),
        (["--filter", "id >"], "argument.filter"),
        (["--filter", "twice > 1000"], "too_few_rows"),
    ],
)
def test_what_cannot_be_tried_is_said(uri: str, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([uri, "t", "--num-splits", "6", "--batch-size", "4", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert len(captured.err.splitlines()) == 1


def test_one_is_no_plural(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [uri, "t", "--num-splits", "3", "--batch-size", "50", "--filter", "twice < 2", "--interruptions", "1"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "4 rows, 3 splits, 1 rank x 0 workers (splits), batches of 50: 1 step an epoch, 1 row left out of each" in out
    assert "Held (sampled): 1 interruption behind step 1 (on 1)" in out


def test_every_option_has_a_help_text() -> None:
    parsers = [verify_options.parser(), cli._parser()]
    for parser in parsers:
        for action in parser._actions:
            if isinstance(action.choices, dict) and action.dest == "command":
                parsers += action.choices.values()
                assert [one.dest for one in action._choices_actions if not one.help] == []
            else:
                assert action.help, action.dest


def test_a_table_that_does_not_exist_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere"), "t", "--num-splits", "6", "--batch-size", "4"]) == 2
    assert "there is no directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_real_workers_hold(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([uri, "t", "--num-splits", "6", "--batch-size", "2", "--num-workers", "2", "--interruptions", "1"]) == 0
    assert "1 rank x 2 workers" in capsys.readouterr().out

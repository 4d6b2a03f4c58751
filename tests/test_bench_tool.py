"""The tool bench (TOL-6): what it measures and prints, what it refuses, and what its hint says of made-up figures. No time is asserted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from streaming import StreamingDataLoader
from streaming.errors import BatchError
from streaming.stats import Stats
from streaming.tools import bench
from streaming.tools.hints import KEYS, Figures, Measured, figures, hint
from tests.test_tools import asked, call, refused

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
ROWS = 100
QUICK = ("--seconds", 0.1)
SETTINGS: dict[str, Any] = {
    "batch_size": 16,
    "num_splits": 4,
    "num_workers": 0,
    "worker_sharding": "splits",
    "columns": None,
    "filter": None,
    "shuffle": True,
    "shuffle_clump_size": None,
    "format": "python",
    "read_ahead_bytes": 64 * 2**20,
}
SHARES = ("share_waiting", "share_batches", "share_transform", "share_rest")
OPTIONS = ("--batch-size", 16, "--num-splits", 4, *QUICK)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables `numbers`, `dates` (which torch has no type for) and `holes` (which only a filter can make a batch of)."""
    path = tmp_path_factory.mktemp("bench") / "db"
    tables = lancedb.connect(path)
    numbers = {"id": range(ROWS), "half": [n / 2 for n in range(ROWS)], "word": [str(n) for n in range(ROWS)]}
    tables.create_table("numbers", pa.table(numbers))
    tables.create_table("dates", pa.table({"id": range(ROWS), "when": [datetime(2020, 1, 1)] * ROWS}))
    tables.create_table("holes", pa.table({"id": range(ROWS), "hole": pa.array([None, *range(1, ROWS)], pa.int64())}))
    return path


@pytest.fixture
def without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variant with workers, which starts processes, is a test of its own."""
    whole = bench.Plan.variants

    def variants(plan: bench.Plan) -> Iterator[tuple[str, bench.Plan]]:
        return ((name, variant) for name, variant in whole(plan) if not variant.num_workers)

    monkeypatch.setattr(bench.Plan, "variants", variants)


def files(home: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


# ---- what is measured


def check(one: dict[str, Any]) -> None:
    """What holds of the figures of any configuration that was measured."""
    assert list(one) == ["name", "settings", "refused", *KEYS]
    assert list(one["settings"]) == list(SETTINGS)
    assert one["refused"] is None
    assert sum(one[share] for share in SHARES) == pytest.approx(1)
    assert all(0 <= one[share] <= 1 for share in SHARES)
    for key in ("rows_per_second", "first_batch_seconds", "seconds", "reads", "rows_per_read", "seconds_per_read"):
        assert one[key] > 0
    assert math.isfinite(one["rows_per_second"])
    assert one["mb_per_second"] >= 0
    assert one["bytes_buffered"] >= 0, "none where all is received"


@pytest.mark.usefixtures("without_workers")
def test_every_key_of_bench(home: Path) -> None:
    before = files(home)
    answer = asked("bench", home, "numbers", *OPTIONS)
    assert list(answer) == ["table", "version", "rows", "configurations", "hint"]
    assert (answer["table"], answer["version"], answer["rows"]) == ("numbers", 1, ROWS)
    given, *variants = answer["configurations"]
    assert (given["name"], given["settings"]) == ("as given", SETTINGS)
    assert [(one["name"], one["settings"]) for one in variants] == [
        ('format="torch"', {**SETTINGS, "format": "torch"}),
        ("shuffle_clump_size=64", {**SETTINGS, "shuffle_clump_size": 64}),
    ]
    for one in answer["configurations"]:
        check(one)
        assert one["share_transform"] == 0, "the tool has none"
        assert one["rows_per_read"] <= ROWS
    assert answer["hint"]
    assert files(home) == before, "nothing is changed"


def test_the_keys_are_those_of_the_clause() -> None:
    clause = (Path(__file__).parents[1] / "spec" / "tools.md").read_text().split("**TOL-6")[1]
    whole, one = re.search(r"JSON keys: (.*?)\. Keys of a configuration: (.*?)\.\n", clause).groups()  # type: ignore[union-attr]
    assert re.findall(r"`(\w+)`", whole) == ["table", "version", "rows", "configurations", "hint"]
    assert re.findall(r"`(\w+)`", one) == ["name", "settings", "refused", *KEYS]


def test_every_option_reaches_dataset_and_loader(home: Path) -> None:
    (one,) = asked(
        *("bench", home, "numbers", "--only-this", "--batch-size", 7, "--num-splits", 3, "--worker-sharding", "batches"),
        *(
            "--columns",
            "id,half",
            "--filter",
            "id >= 40",
            "--shuffle-clump-size",
            5,
            "--format",
            "arrow",
            "--read-ahead-bytes",
            12345,
            *QUICK,
        ),
    )["configurations"]
    check(one)
    assert one["settings"] == {
        "batch_size": 7,
        "num_splits": 3,
        "num_workers": 0,
        "worker_sharding": "batches",
        "columns": ["id", "half"],
        "filter": "id >= 40",
        "shuffle": True,
        "shuffle_clump_size": 5,
        "format": "arrow",
        "read_ahead_bytes": 12345,
    }
    plan = bench.Plan(**one["settings"])
    dataset = plan.open(lancedb.connect(home).open_table("numbers"), 9)
    loader = plan.loader(dataset)
    batch = next(iter(loader))
    assert (batch.num_rows, batch.schema.names) == (7, ["id", "half"])
    own = dataset.state_dict()
    assert [own[key] for key in ("num_splits", "shuffle_seed", "shuffle_clump_size", "filter", "world_size")] == [3, 9, 5, "id >= 40", 1]
    assert loader._sharding == "batches"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ['format="torch"', "shuffle_clump_size=64", "num_workers=2"]),
        ({"format": "torch"}, ["shuffle_clump_size=64", "num_workers=2"]),
        ({"shuffle_clump_size": 64}, ['format="torch"', "num_workers=2"]),
        ({"shuffle": False}, ['format="torch"', "num_workers=2"]),
        ({"num_workers": 1}, ['format="torch"', "shuffle_clump_size=64"]),
        ({"num_workers": 4, "format": "torch", "shuffle": False}, []),
    ],
)
def test_variants_change_one_knob_and_are_not_what_is_given(changes: dict[str, Any], expected: list[str]) -> None:
    plan = bench.Plan(**{**SETTINGS, **changes})
    found = dict(plan.variants())
    assert list(found) == expected
    for name, variant in found.items():
        changed = {key for key, value in asdict(variant).items() if value != asdict(plan)[key]}
        assert changed == ({"num_workers", "worker_sharding"} if name.startswith("num_workers") else {name.partition("=")[0]})


@pytest.mark.usefixtures("without_workers")
def test_each_configuration_has_a_seed_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []
    whole = bench.Plan.open

    def opened(plan: bench.Plan, table: Any, seed: int) -> Any:
        seeds.append(seed)
        return whole(plan, table, seed)

    monkeypatch.setattr(bench.Plan, "open", opened)
    asked("bench", home, "numbers", *OPTIONS)
    assert seeds == [0, 1, 2, 3], "the first is that of the warm-up"


def test_an_epoch_of_one_batch_is_measured_from_its_beginning(home: Path) -> None:
    (one,) = asked("bench", home, "numbers", "--only-this", "--batch-size", 256, "--no-shuffle", *QUICK)["configurations"]
    check(one)
    assert one["epoch_ended"]
    assert one["seconds"] == one["first_batch_seconds"]
    assert one["rows_per_second"] * one["seconds"] == pytest.approx(96)


def test_a_measurement_ends_in_mid_epoch(home: Path) -> None:
    (one,) = asked("bench", home, "numbers", "--only-this", "--batch-size", 1, "--seconds", 1e-9)["configurations"]
    check(one)
    assert not one["epoch_ended"]


@pytest.mark.processes
def test_workers_are_measured_from_their_first_batch(home: Path) -> None:
    answer = asked("bench", home, "numbers", *OPTIONS, "--format", "torch", "--no-shuffle")
    assert [one["name"] for one in answer["configurations"]] == ["as given", "num_workers=2"]
    workers = answer["configurations"][1]
    check(workers)
    assert workers["settings"] == {
        **SETTINGS,
        "format": "torch",
        "shuffle": False,
        "num_workers": 2,
        "worker_sharding": "batches",
    }
    assert workers["share_batches"] == workers["share_transform"] == 0, "made at the workers' time"
    said = refused_by(asked("bench", home, "dates", *OPTIONS, "--num-workers", 2, "--only-this", code=1)["configurations"][0])
    assert said.startswith("column 'when' of type timestamp[us]"), "without torch's traceback of the worker"


def test_shares_of_made_up_statistics() -> None:
    before = Stats(
        rows_received=10, reads=1, bytes_loaded=1000, read_seconds=1.0, batch_seconds=0.5, transform_seconds=0.25, wait_seconds=1
    )
    after = Stats(
        rows_received=110, reads=4, bytes_loaded=5_001_000, read_seconds=3, batch_seconds=1, transform_seconds=1.25, wait_seconds=2
    )
    how: dict[str, Any] = {"seconds": 4.0, "first_batch_seconds": 0.5, "epoch_ended": True, "buffered": 77}
    found = figures(before, after, workers=0, **how)
    assert found == Figures(
        rows_per_second=25.0,
        mb_per_second=1.25,
        first_batch_seconds=0.5,
        seconds=4.0,
        epoch_ended=True,
        share_waiting=0.25,
        share_batches=0.125,
        share_transform=0.25,
        share_rest=0.375,
        bytes_buffered=77,
        reads=4,
        rows_per_read=27.5,
        seconds_per_read=0.75,
    )
    assert figures(before, after, workers=2, **how) == replace(found, share_batches=0.0, share_transform=0.0, share_rest=0.75)
    # Clocks that disagree: the parts are still those of a whole.
    short = figures(before, after, workers=0, **{**how, "seconds": 2.0})
    assert (short.share_waiting, short.share_batches, short.share_transform, short.share_rest) == (0.4, 0.2, 0.4, 0)


# ---- what is refused


def refused_by(one: dict[str, Any]) -> str:
    """Why; there are no figures then."""
    assert list(one) == ["name", "settings", "refused", *KEYS]
    assert all(one[key] is None for key in KEYS)
    why: str = one["refused"]
    return why


def test_a_column_that_the_given_format_refuses_is_exit_code_1(home: Path) -> None:
    answer = asked("bench", home, "dates", *OPTIONS, code=1)
    assert [one["name"] for one in answer["configurations"]] == ["as given", 'format="torch"'], "none is refused alike"
    assert all("'when'" in refused_by(one) for one in answer["configurations"])
    assert "--columns" in answer["hint"]
    assert "--format numpy" in answer["hint"]
    code, out, err = call("bench", home, "dates", *OPTIONS)
    assert (code, err) == (1, "")
    assert "refused     as given: column 'when'" in out
    assert "rows/s" not in out
    for options in (("--columns", "id"), ("--format", "numpy"), ("--format", "arrow")):
        check(asked("bench", home, "dates", "--only-this", *options, *OPTIONS)["configurations"][0])
    assert "'hole'" in refused_by(asked("bench", home, "holes", "--only-this", *OPTIONS, code=1)["configurations"][0])
    check(asked("bench", home, "holes", "--only-this", "--filter", "hole is not null", *OPTIONS)["configurations"][0])


@pytest.mark.usefixtures("without_workers")
def test_a_variant_that_is_refused_or_fails_does_not_cost_the_others(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = asked("bench", home, "dates", *OPTIONS, "--format", "numpy")
    given, torch, clumps = answer["configurations"]
    check(given)
    check(clumps)
    assert "column 'when' of type timestamp[us]" in refused_by(torch)
    out = call("bench", home, "dates", *OPTIONS, "--format", "numpy")[1]
    assert "refused     format=\"torch\": column 'when'" in out
    assert "rows/s" in out
    whole = bench.Plan.loader

    def loader(plan: bench.Plan, dataset: Any) -> StreamingDataLoader:
        if plan.shuffle_clump_size:
            raise MemoryError("no  room\n at all")
        return whole(plan, dataset)

    monkeypatch.setattr(bench.Plan, "loader", loader)
    answer = asked("bench", home, "numbers", *OPTIONS)
    check(answer["configurations"][1])
    assert "no room at all" in refused_by(answer["configurations"][2])


def test_reasons_are_one_printable_line() -> None:
    assert bench._reason(BatchError("one\n two \x1b[2J")) == "one two \\x1b[2J"
    assert bench._reason(KeyError()) == "KeyError"
    traceback = "Caught BatchError in DataLoader worker process 0.\nOriginal Traceback\n  raise\nstreaming.errors.BatchError: column 'a'\n"
    assert bench._reason(BatchError(traceback)) == "column 'a'"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--batch-size", 0), "batch_size"),
        (("--batch-size", "x"), "--batch-size"),
        (("--num-splits", 0), "num_splits"),
        (("--num-splits", 101), "num_splits=101"),
        (("--num-workers", -1), "num_workers"),
        (("--num-workers", 3), "num_workers"),
        (("--worker-sharding", "rows"), "--worker-sharding"),
        (("--columns", ""), "columns"),
        (("--columns", "id,id"), "columns"),
        (("--columns", "id,hal"), "columns: the table has no column 'hal'; the nearest one is 'half'"),
        (("--filter", " "), "filter"),
        (("--filter", "nothing > 3"), "filter"),
        (("--filter", "id < 3"), "num_splits"),
        (("--shuffle-clump-size", 0), "shuffle_clump_size"),
        (("--shuffle-clump-size", 4, "--no-shuffle"), "shuffle_clump_size"),
        (("--format", "pandas"), "--format"),
        (("--read-ahead-bytes", 0), "read_ahead_bytes"),
        *((("--seconds", seconds), "seconds") for seconds in (0, -1, "nan", "inf", "x")),
        (("--key", "a"), "unrecognized arguments: --key a"),
    ],
)
def test_bad_arguments_are_named_with_exit_code_2(home: Path, options: tuple[object, ...], words: str) -> None:
    code, out, err = call("bench", home, "numbers", *options)
    assert (code, out) == (2, "")
    assert f"bench: error: {'argument ' if words.startswith('--') else ''}" in err
    assert words in err.splitlines()[-1]


def test_a_table_that_cannot_be_opened_or_read_is_exit_code_2(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for uri, name, words in (
        (tmp_path / "nowhere", "numbers", "there is no directory"),
        (home, "number", "the tables there: dates, holes, numbers"),
        ("memory://", "numbers", "cannot be opened"),
    ):
        for options in ((), ("--json",)):
            said = refused(2, "bench", uri, name, *options)
            assert said.startswith("could not run: ")
            assert words in said
    assert not (tmp_path / "nowhere").exists()

    def fail(*_: Any) -> None:
        raise RuntimeError("lost\n  the connection")

    monkeypatch.setattr("streaming.source.Source.take", fail)
    said = refused(2, "bench", home, "numbers", *OPTIONS)
    assert said.startswith("could not run: table numbers at ")
    assert "cannot be read: lost the connection" in said


# ---- what people read


@pytest.mark.usefixtures("without_workers")
def test_the_report_is_an_aligned_table_that_fits_a_terminal(home: Path) -> None:
    code, out, err = call("bench", home, "numbers", *OPTIONS)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "table 'numbers' version 1, 100 rows; batches of 16, 0.1 s each" in lines[0]
    top = lines.index("") + 1
    table = lines[top : lines.index("", top)]
    assert table[0].split() == ["as", "given", 'format="torch"', "shuffle_clump_size=64"]
    assert len({len(line) for line in table}) == 1
    labels = [line[:17].strip() for line in table[1:]]
    assert labels[:7] == ["rows/s", "MB/s", "first batch", "waiting", "making batches", "transform", "the rest"]
    words = " ".join(out.split())
    assert "within 20 % of each other are equal" in words
    assert "hint Too short to tell: the whole epoch took" in words


def test_the_widest_report_fits_a_terminal() -> None:
    """Four columns of large figures, and reasons of any length."""
    wide = Figures(1e9, 1e6, 1000.0, 10000.0, True, 1.0, 1.0, 1.0, 1.0, 2**40, 10**9, 32768.0, 1000.0)
    names = ["as given", *(name for name, _ in bench.Plan(**SETTINGS).variants())]
    configurations = [Measured(name, {**SETTINGS, "num_workers": 2 * name.startswith("num")}, wide) for name in names]
    configurations.append(Measured("other", SETTINGS, refused="why " * 1000))
    report = bench._report({"table": "t" * 500 + "\n", "version": 10**9, "rows": 10**12}, 1e9, configurations, "word " * 100)
    assert max(map(len, report.splitlines())) <= 100
    assert 'num_workers=2 is with worker_sharding="batches"' in " ".join(report.split())
    assert "Without shuffle" not in report
    alone = bench._report({"table": "t", "version": 1, "rows": 1}, 1, [Measured("as given", {**SETTINGS, "shuffle": False}, wide)], "")
    assert "Without shuffle" in alone
    assert "Workers" not in alone


# ---- the hint, of made-up figures


USUAL = Figures(
    rows_per_second=1000.0,
    mb_per_second=10.0,
    first_batch_seconds=0.1,
    seconds=3.0,
    epoch_ended=False,
    share_waiting=0.2,
    share_batches=0.2,
    share_transform=0.0,
    share_rest=0.6,
    bytes_buffered=10**6,
    reads=10,
    rows_per_read=5000.0,
    seconds_per_read=0.01,
)
WAITING = replace(USUAL, share_waiting=0.7, share_batches=0.2, share_rest=0.1)
MAKING = replace(USUAL, share_waiting=0.1, share_batches=0.8, share_rest=0.1)
SLOW = replace(WAITING, seconds_per_read=0.3, rows_per_read=100.0)
TORCH, CLUMPS, WORKERS = 'format="torch"', "shuffle_clump_size=64", "num_workers=2"


def told(given: Figures | None, rates: dict[str, float | None] | None = None, **settings: Any) -> str:
    """The hint for these figures and variants of them with other rates; None is refused."""
    own = {**SETTINGS, **settings}
    variants = []
    for name, rate in (rates or {}).items():
        theirs = None if rate is None else replace(USUAL, rows_per_second=rate)
        variants.append(Measured(name, own, theirs, None if theirs is not None else "why"))
    said = hint([Measured("as given", own, given, None if given is not None else "why"), *variants])
    assert said == hint([Measured("as given", own, given, None if given is not None else "why"), *variants]), "a function"
    return said


def test_the_best_variant_is_named_where_it_gains_more_than_noise() -> None:
    said = told(WAITING, {TORCH: 1500, CLUMPS: 2400, WORKERS: 900})
    assert said.startswith(f"Most of the time (70%) is waiting for reads. {CLUMPS} has 2.4 times the rows per second")
    assert TORCH not in said
    assert told(MAKING, {TORCH: 3000}).startswith(f"Most of the time (80%) is making batches. {TORCH} has 3.0 times")
    assert f"{WORKERS} has 1.5 times" in told(MAKING, {TORCH: None, WORKERS: 1500})
    # Where the most of the time is does not decide: what was measured does.
    assert f"{TORCH} has 1.3 times" in told(USUAL, {TORCH: 1300})


def test_within_noise_there_is_nothing_to_gain() -> None:
    said = told(WAITING, {TORCH: 1199, CLUMPS: 1190, WORKERS: 100})
    assert "No variant gains more than 20 %: nothing to gain here. A batch comes every 16 ms" in said
    assert "nothing to gain" in told(MAKING, {TORCH: 1100, CLUMPS: 1000, WORKERS: 900})
    said = told(replace(USUAL, share_waiting=0.3, share_batches=0.25, share_rest=0.45), {CLUMPS: 1000})
    assert said.startswith("The largest part of the time (45%) is neither waiting nor making batches. No variant gains")
    said = told(USUAL)
    assert said.startswith("Most of the time (60%) is neither waiting nor making batches. No variant was measured. A batch")
    assert "the transform" in told(replace(USUAL, share_transform=0.6, share_rest=0.0))


def test_slow_storage_asks_for_more_read_ahead() -> None:
    said = told(SLOW, read_ahead_bytes=2**20)
    assert "0.30 s for a read of 100 rows" in said
    assert "--read-ahead-bytes, 4,194,304 instead of 1,048,576" in said
    assert "67,108,864 instead of 33,554,432" in told(SLOW, read_ahead_bytes=2**25), "as much as is of any use"
    for enough in (2**26, 2**30):
        said = told(SLOW, read_ahead_bytes=enough)
        assert "--read-ahead-bytes" not in said
        assert "--num-workers" in said
    said = told(SLOW, {CLUMPS: 3000}, read_ahead_bytes=2**20)
    assert said.index(f"{CLUMPS} has 3.0 times") < said.index("--read-ahead-bytes")
    for other in (replace(SLOW, seconds_per_read=0.04), replace(SLOW, rows_per_read=2000.0), replace(SLOW, share_batches=0.8)):
        assert "--read-ahead-bytes" not in told(other)


def test_knobs_that_were_not_measured_are_suggested() -> None:
    said = told(MAKING)
    assert "Try --format torch, numpy or arrow" in said
    assert "or more --num-workers" in said
    said = told(MAKING, {TORCH: None, CLUMPS: 1000, WORKERS: 1000})
    assert "numpy or arrow" in said
    assert "--num-workers" not in said
    said = told(MAKING, {CLUMPS: 1000}, format="torch")
    assert "--format" not in said
    assert "Try more --num-workers" in said
    assert told(WAITING, {TORCH: 1000}, num_workers=2).startswith(
        "Most of the time (70%) is waiting for workers. Try a larger --num-workers"
    )


def test_what_is_too_short_is_not_judged() -> None:
    said = told(replace(MAKING, seconds=0.01, epoch_ended=True), {TORCH: 9000})
    assert said == "Too short to tell: the whole epoch took 0.010 s. Measure on a larger table."
    assert told(replace(MAKING, seconds=0.1)) == "Too short to tell: it was measured for 0.100 s. Give it more --seconds."


def test_a_refused_configuration_has_its_hint() -> None:
    assert told(None, {TORCH: 1000}) == f"The configuration as given is refused; {TORCH} is not."
    assert "leave the column out with --columns" in told(None, {TORCH: None})
    assert "--format numpy or arrow" in told(None)


def test_json_is_what_any_parser_reads(home: Path) -> None:
    """No NaN and no Infinity, which JSON does not have."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    out = call("bench", home, "numbers", "--only-this", "--json", *OPTIONS)[1]
    json.loads(out, parse_constant=refuse)

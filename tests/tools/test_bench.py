"""The tool bench (TOL-6) on tables: what it measures and prints, and what it refuses. No time is asserted."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from streaming import StreamingDataLoader
from streaming.tools import bench, hints
from streaming.tools.hints import KEYS
from tests.tools.support import asked, call, refused
from tests.tools.test_hints import SETTINGS

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
ROWS = 100
QUICK = ("--seconds", 0.1)
SHARES = ("share_waiting", "share_batches", "share_transform", "share_rest")
OPTIONS = ("--batch-size", 16, "--num-splits", 4, *QUICK)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables `numbers`, `dates` (which torch has no type for), `holes` (with null), and `mixed`, which has both and lists."""
    path = tmp_path_factory.mktemp("bench") / "db"
    tables = lancedb.connect(path)
    tables.create_table("numbers", pa.table({"id": range(ROWS), "half": [n / 2 for n in range(ROWS)], "word": ["word"] * ROWS}))
    tables.create_table("dates", pa.table({"id": range(ROWS), "when": [datetime(2020, 1, 1)] * ROWS}))
    tables.create_table("holes", pa.table({"id": range(ROWS), "hole": pa.array([None, *range(1, ROWS)], pa.int64())}))
    mixed = {"id": range(ROWS), "a b": range(ROWS), "when": [datetime(2020, 1, 1)] * ROWS, "list": [[1] * (n % 3) for n in range(ROWS)]}
    tables.create_table("mixed", pa.table({**mixed, "late": pa.array([*range(ROWS - 1), None], pa.int64())}))
    return path


@pytest.fixture(autouse=True)
def long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are small."""
    monkeypatch.setattr(hints, "TOO_SHORT_SECONDS", 0)


@pytest.fixture
def without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variant with workers, which starts processes, is a test of its own."""
    whole = bench.Plan.variants
    monkeypatch.setattr(bench.Plan, "variants", lambda plan: ((name, one) for name, one in whole(plan) if not one.num_workers))


def files(home: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


# ---- what is measured


def check(one: dict[str, Any]) -> None:
    """What holds of the figures of any configuration that was measured."""
    assert list(one) == ["name", "settings", "refused", "refused_columns", *KEYS]
    assert list(one["settings"]) == list(SETTINGS)
    assert one["refused"] is one["refused_columns"] is None
    assert sum(one[share] for share in SHARES) == pytest.approx(1)
    assert all(0 <= one[share] <= 1 for share in SHARES)
    for key in ("rows_per_second", "first_batch_seconds", "seconds", "reads", "rows_per_read", "seconds_per_read"):
        assert one[key] > 0
    assert math.isfinite(one["rows_per_second"])
    assert min(one["mb_per_second"], one["bytes_buffered"]) >= 0, "none where all is received"


@pytest.mark.usefixtures("without_workers")
def test_every_key_of_bench(home: Path) -> None:
    before = files(home)
    answer = asked("bench", home, "numbers", *OPTIONS)
    assert list(answer) == ["table", "version", "rows", "configurations", "hint"]
    assert (answer["table"], answer["version"], answer["rows"]) == ("numbers", 1, ROWS)
    given, *variants = answer["configurations"]
    assert (given["name"], given["settings"]) == ("as given", SETTINGS)
    assert [one["name"] for one in variants] == ['format="torch"', "shuffle_clump_size=64"]
    assert [one["settings"] for one in variants] == [{**SETTINGS, "format": "torch"}, {**SETTINGS, "shuffle_clump_size": 64}]
    for one in answer["configurations"]:
        check(one)
        assert one["share_transform"] == 0, "the tool has none"
        assert one["rows_per_read"] <= ROWS
    assert answer["hint"]
    assert files(home) == before, "nothing is changed"


def test_the_keys_are_those_of_the_clause() -> None:
    clause = (Path(__file__).parents[2] / "spec" / "tools.md").read_text().split("**TOL-6")[1]
    whole, one = re.search(r"JSON keys: (.*?)\. Keys of a configuration: (.*?)\.\n", clause).groups()  # type: ignore[union-attr]
    assert re.findall(r"`(\w+)`", whole) == ["table", "version", "rows", "configurations", "hint"]
    assert re.findall(r"`(\w+)`", one) == ["name", "settings", "refused", "refused_columns", *KEYS]


def test_every_option_reaches_dataset_and_loader(home: Path) -> None:
    (one,) = asked(
        *("bench", home, "numbers", "--only-this", "--batch-size", 7, "--num-splits", 3, "--worker-sharding", "batches", *QUICK),
        *("--columns", "id,half", "--filter", "id >= 40", "--shuffle-clump-size", 5, "--format", "arrow", "--read-ahead-bytes", 12345),
    )["configurations"]
    check(one)
    assert list(one["settings"].values()) == [7, 3, 0, "batches", ["id", "half"], "id >= 40", True, 5, "arrow", 12345]
    plan = bench.Plan(**one["settings"])
    dataset = plan.open(lancedb.connect(home).open_table("numbers"), 9)
    batch = next(iter(loader := plan.loader(dataset)))
    assert (batch.num_rows, batch.schema.names) == (7, ["id", "half"])
    own = dataset.state_dict()
    assert [own[key] for key in ("num_splits", "shuffle_seed", "shuffle_clump_size", "filter", "world_size")] == [3, 9, 5, "id >= 40", 1]
    assert loader._sharding == "batches"


@pytest.mark.usefixtures("without_workers")
def test_each_configuration_has_a_seed_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    whole = bench.Plan.open
    monkeypatch.setattr(bench.Plan, "open", lambda plan, table, seed: seeds.append(seed) or whole(plan, table, seed))
    asked("bench", home, "numbers", *OPTIONS)
    assert seeds == [0, 1, 2, 3], "the first is that of the warm-up"


def test_rates_are_those_behind_the_first_batch(home: Path) -> None:
    (one,) = asked("bench", home, "numbers", "--only-this", "--batch-size", 32, "--no-shuffle", *QUICK)["configurations"]
    check(one)
    assert one["epoch_ended"]
    assert one["rows_per_second"] * one["seconds"] == pytest.approx(96 - 32)


def test_an_epoch_of_one_batch_has_no_rates(home: Path) -> None:
    (one,) = asked("bench", home, "numbers", "--only-this", "--batch-size", 256, *QUICK)["configurations"]
    # The first row is read alone, because the types do not say how large it is.
    assert [one[key] for key in ("refused", "seconds", "epoch_ended", "reads", "rows_per_read")] == [None, 0, True, 2, 48]
    assert one["first_batch_seconds"] > 0
    assert all(one[key] is None for key in ("rows_per_second", "mb_per_second", *SHARES))


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
    assert workers["settings"] == {**SETTINGS, "format": "torch", "shuffle": False, "num_workers": 2, "worker_sharding": "batches"}
    assert workers["share_batches"] == workers["share_transform"] == 0, "made at the workers' time"
    (one,) = asked("bench", home, "mixed", *OPTIONS, "--num-workers", 2, "--only-this", code=1)["configurations"]
    assert re.match(r"column '(when|list|late)' of type", refused_by(one)), "without torch's traceback of the worker"
    assert one["refused_columns"] == ["when", "list", "late"]


# ---- what is refused


def refused_by(one: dict[str, Any]) -> str:
    """Why; there are no figures then."""
    assert list(one) == ["name", "settings", "refused", "refused_columns", *KEYS]
    assert all(one[key] is None for key in KEYS)
    return str(one["refused"])


def test_all_columns_that_the_given_format_refuses_are_named_with_exit_code_1(home: Path) -> None:
    answer = asked("bench", home, "mixed", *OPTIONS, code=1)
    assert [one["name"] for one in answer["configurations"]] == ["as given", 'format="torch"'], "none is refused alike"
    assert [one["refused_columns"] for one in answer["configurations"]] == [["when", "list", "late"], ["when", "late"]]
    assert all(re.match("column '(when|list|late)' of type", refused_by(one)) for one in answer["configurations"])
    assert answer["hint"] == "Leave out 'when', 'list' and 'late' with --columns 'id,a b' or keep all columns with --format arrow."
    code, out, err = call("bench", home, "mixed", *OPTIONS)
    assert (code, err) == (1, "")
    words = " ".join(out.split())
    assert "as given: 3 of 5 columns: 'when' (timestamp[us]), 'list' (list<" in words
    assert "'late' (int64 with null)" in words
    assert "rows/s" not in out


@pytest.mark.parametrize("table", ["mixed", "dates", "holes"])
@pytest.mark.parametrize("layout", ["python", "torch", "numpy"])
def test_what_the_hint_says_goes(home: Path, table: str, layout: str) -> None:
    code, out, _ = call("bench", home, table, "--only-this", "--json", "--format", layout, *OPTIONS)
    said = json.loads(out)["hint"]
    assert (code == 0) == ((table, layout) == ("dates", "numpy"))
    if code:
        typed = re.search(r"--columns (?:'(.*?)'|(\S+))", said)
        assert typed, said
        ways = [("--columns", typed[1] or typed[2], "--format", layout)]
        ways += [("--format", name) for name in re.findall(r"\w+", said.rpartition("--format ")[2]) if name != "or"]
        assert ("numpy" in said) == (table == "dates"), "only where it takes all"
        for way in ways:
            check(asked("bench", home, table, "--only-this", *way, *OPTIONS)["configurations"][0])


@pytest.mark.usefixtures("without_workers")
def test_a_variant_that_is_refused_or_fails_does_not_cost_the_others(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, torch, clumps = asked("bench", home, "dates", *OPTIONS, "--format", "numpy")["configurations"]
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
    _, torch, clumps = asked("bench", home, "numbers", *OPTIONS)["configurations"]
    check(torch)
    assert "no room at all" in refused_by(clumps)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(((option, 0), option[2:].replace("-", "_")) for option in ("--batch-size", "--num-splits", "--shuffle-clump-size")),
        *(((option, "x"), option) for option in ("--batch-size", "--worker-sharding", "--format", "--seconds")),
        (("--num-splits", 101), "num_splits=101"),
        *((("--num-workers", workers), "num_workers") for workers in (-1, 3)),
        *((("--columns", names), f"--columns: there is an empty name in {names!r}") for names in ("", "id,", ",id", "id,,half")),
        (("--columns", "id,id"), "columns"),
        (("--columns", "id,hal"), "has no column 'hal'; the nearest one is 'half'"),
        *((("--filter", sql), "filter") for sql in (" ", "nothing > 3")),
        (("--filter", "id < 3"), "num_splits"),
        (("--shuffle-clump-size", 4, "--no-shuffle"), "shuffle_clump_size"),
        (("--read-ahead-bytes", 0), "read_ahead_bytes"),
        *((("--seconds", seconds), "seconds") for seconds in (0, -1, "nan", "inf")),
        (("--key", "a"), "unrecognized arguments: --key a"),
    ],
)
def test_bad_arguments_are_named_with_exit_code_2(home: Path, options: tuple[object, ...], words: str) -> None:
    code, out, err = call("bench", home, "numbers", *options)
    assert (code, out) == (2, "")
    assert f"bench: error: {'argument ' if words.startswith('--') else ''}" in err
    usage, said = err.splitlines()
    assert usage.endswith(" bench [OPTIONS] URI TABLE"), "a short one"
    assert words in said


def test_a_table_that_cannot_be_opened_or_read_is_exit_code_2(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for uri, name, words in (
        (tmp_path / "nowhere", "numbers", "there is no directory"),
        (home, "number", "the tables there: dates, holes, mixed, numbers"),
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
    assert [line[:17].strip() for line in table[1:8]] == [
        "first batch",
        "rows/s",
        "MB/s",
        "waiting",
        "making batches",
        "transform",
        "the rest",
    ]
    words = " ".join(out.split())
    assert "within 20 % of each other are equal" in words
    assert re.search(r"hint (Most|The largest part) of the time", words)


def test_json_is_what_any_parser_reads(home: Path) -> None:
    """No NaN and no Infinity, which JSON does not have."""
    out = call("bench", home, "numbers", "--only-this", "--json", *OPTIONS)[1]
    assert not re.search("NaN|Infinity", out)

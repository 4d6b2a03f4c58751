"""Variants, figures, hint and report of the tool bench: of made-up configurations and statistics."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from streaming.errors import BatchError
from streaming.stats import Stats
from streaming.tools import bench
from streaming.tools.hints import KEYS, Figures, Look, Measured, Rates, figures, hint

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


def test_reasons_are_one_printable_line() -> None:
    assert bench._reason(BatchError("one\n two \x1b[2J")) == "one two \\x1b[2J"
    assert bench._reason(KeyError()) == "KeyError"
    traceback = "Caught BatchError in DataLoader worker process 0.\nOriginal Traceback\n  raise\nstreaming.errors.BatchError: column 'a'\n"
    assert bench._reason(BatchError(traceback)) == "column 'a'"


# ---- figures


def test_rates_of_made_up_statistics() -> None:
    before = Stats(
        rows_received=10, reads=1, bytes_loaded=1000, read_seconds=1.0, batch_seconds=0.5, transform_seconds=0.25, wait_seconds=1
    )
    after = Stats(
        rows_received=110, reads=4, bytes_loaded=5_001_000, read_seconds=3, batch_seconds=1, transform_seconds=1.25, wait_seconds=2
    )
    how: dict[str, Any] = {"seconds": 4.0, "first_batch_seconds": 0.5, "epoch_ended": True, "buffered": 77}
    found = figures(before, after, workers=0, **how)
    rates = Rates(25.0, 1.25, share_waiting=0.25, share_batches=0.125, share_transform=0.25, share_rest=0.375)
    assert found == Figures(
        rates=rates,
        first_batch_seconds=0.5,
        seconds=4.0,
        epoch_ended=True,
        bytes_buffered=77,
        reads=4,
        rows_per_read=27.5,
        seconds_per_read=0.75,
    )
    assert list(found.flat()) == list(KEYS)
    assert (found.flat()["share_rest"], found.flat()["reads"]) == (0.375, 4)
    elsewhere = replace(rates, share_batches=0.0, share_transform=0.0, share_rest=0.75)
    assert figures(before, after, workers=2, **how) == replace(found, rates=elsewhere)
    # Clocks that disagree: the parts are still those of a whole.
    short = figures(before, after, workers=0, **{**how, "seconds": 2.0}).rates
    assert short is not None
    assert (short.share_waiting, short.share_batches, short.share_transform, short.share_rest) == (0.4, 0.2, 0.4, 0)


def test_what_is_too_short_has_no_rates() -> None:
    one, more = Stats(rows_received=10, reads=2, read_seconds=1.0), Stats(rows_received=20, reads=2, read_seconds=1.0)
    for after, seconds in ((one, 0.0), (one, 9.0), (more, 0.29)):
        found = figures(one, after, seconds=seconds, first_batch_seconds=0.5, epoch_ended=True, buffered=7, workers=0)
        assert found.rates is None
        assert (found.first_batch_seconds, found.seconds, found.seconds_per_read) == (0.5, seconds, 0.5)
        assert list(found.flat()) == list(KEYS)
        assert found.flat()["rows_per_second"] is found.flat()["share_rest"] is None
    assert figures(one, more, seconds=0.3, first_batch_seconds=0.5, epoch_ended=True, buffered=7, workers=0).rates is not None


# ---- the hint


USUAL = Figures(
    rates=Rates(1000.0, 10.0, share_waiting=0.2, share_batches=0.2, share_transform=0.0, share_rest=0.6),
    first_batch_seconds=0.1,
    seconds=3.0,
    epoch_ended=False,
    bytes_buffered=10**6,
    reads=10,
    rows_per_read=5000.0,
    seconds_per_read=0.01,
)


def changed(figures: Figures, rates: dict[str, float], **others: Any) -> Figures:
    assert figures.rates is not None
    return replace(figures, rates=replace(figures.rates, **rates), **others)


WAITING = changed(USUAL, {"share_waiting": 0.7, "share_batches": 0.2, "share_rest": 0.1})
MAKING = changed(USUAL, {"share_waiting": 0.1, "share_batches": 0.8, "share_rest": 0.1})
SLOW = replace(WAITING, seconds_per_read=0.3, rows_per_read=100.0)
SHORT = replace(USUAL, rates=None, seconds=0.1)
TORCH, CLUMPS, WORKERS = 'format="torch"', "shuffle_clump_size=64", "num_workers=2"


def told(given: Figures | None, rates: dict[str, float | Figures | None] | None = None, look: Look | None = None, **settings: Any) -> str:
    """The hint for these figures and variants of them with other rates; None is refused."""
    own = {**SETTINGS, **settings}
    configurations = [Measured("as given", own, given, None if given is not None else "why")]
    for name, rate in (rates or {}).items():
        theirs = changed(USUAL, {"rows_per_second": rate}) if isinstance(rate, (int, float)) else rate
        its = {**own, "format": "torch"} if name == TORCH else own
        configurations.append(Measured(name, its, theirs, None if theirs is not None else "why"))
    said = hint(configurations, look)
    assert said == hint(configurations, look), "a function"
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
    said = told(changed(USUAL, {"share_waiting": 0.3, "share_batches": 0.25, "share_rest": 0.45}), {CLUMPS: 1000})
    assert said.startswith("The largest part of the time (45%) is neither waiting nor making batches. No variant gains")
    said = told(USUAL)
    assert said.startswith("Most of the time (60%) is neither waiting nor making batches. No variant was measured. A batch")
    assert "the transform" in told(changed(USUAL, {"share_transform": 0.6, "share_rest": 0.0}))


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
    busy = changed(SLOW, {"share_batches": 0.8})
    for other in (replace(SLOW, seconds_per_read=0.04), replace(SLOW, rows_per_read=2000.0), busy):
        assert "--read-ahead-bytes" not in told(other)


def test_knobs_that_were_not_measured_are_suggested() -> None:
    said = told(MAKING)
    assert "Try --format torch, numpy or arrow" in said
    assert "or more --num-workers" in said
    said = told(MAKING, {TORCH: None, CLUMPS: 1000, WORKERS: 1000})
    assert "Try --format arrow, which" in said, "numpy was not tried"
    assert "--num-workers" not in said
    said = told(MAKING, {CLUMPS: 1000}, format="torch")
    assert "--format" not in said
    assert "Try more --num-workers" in said
    assert told(WAITING, {TORCH: 1000}, num_workers=2).startswith(
        "Most of the time (70%) is waiting for workers. Try a larger --num-workers"
    )


def test_what_is_too_short_is_not_judged() -> None:
    said = told(replace(SHORT, epoch_ended=True), {TORCH: 9000})
    assert said == "Too short to tell: behind the first batch the whole epoch took 0.100 s. Measure on a larger table."
    said = told(replace(SHORT, epoch_ended=True, seconds=0.0))
    assert said.startswith("Too short to tell: the whole epoch is one batch.")
    assert told(SHORT) == "Too short to tell: it was measured for 0.100 s. Give it more --seconds."
    said = told(USUAL, {TORCH: SHORT, CLUMPS: SHORT, WORKERS: 1000})
    assert said.endswith(f"Too short to tell of {TORCH} and {CLUMPS}: measure on a larger table.")
    assert "No variant" not in said
    said = told(USUAL, {TORCH: SHORT, WORKERS: 2000})
    assert said.index(f"{WORKERS} has 2.0 times") < said.index(f"Too short to tell of {TORCH}: measure")


def test_columns_that_are_refused_have_a_hint_that_goes() -> None:
    def look(*, torch: dict[str, str], numpy: dict[str, str], python: dict[str, str], **changes: Any) -> Look:
        return replace(Look(("id", "a", "b"), {"python": python, "torch": torch, "numpy": numpy}, 1234, True), **changes)

    a, b = {"a": "list"}, {"b": "double"}
    both = {**a, **b}
    found = look(python=both, torch=both, numpy=b)
    assert told(None, look=found) == "Leave out 'a' and 'b' with --columns id or keep all columns with --format arrow."
    assert told(None, look=found, format="numpy") == "Leave out 'b' with --columns id,a or keep all columns with --format arrow."
    found = look(python=a, torch={}, numpy={})
    assert told(None, {TORCH: SHORT}, found).endswith("with --columns id,b or keep all columns with --format torch, numpy or arrow.")
    assert told(None, {TORCH: None}, found).endswith("with --format numpy or arrow."), "what failed does not go"
    assert told(None, look=replace(found, whole=False)).endswith("or arrow. So far as the first 1,234 rows show.")
    assert told(None, look=replace(found, columns=("a",))) == "Keep all columns with --format torch, numpy or arrow.", "none is left"
    # Its column was not found again.
    assert told(None, look=look(python={}, torch={}, numpy={}, whole=False)) == "Keep all columns with --format arrow."


def test_names_of_columns_are_as_they_are_typed() -> None:
    def said(*columns: str, refused: tuple[str, ...] = ("x",)) -> str:
        return told(None, look=Look((*columns, *refused), {"python": dict.fromkeys(refused, "t")}, 1, True))

    assert "with --columns 'a b,c' or keep" in said("a b", "c")
    assert "with --columns=-a,c or keep" in said("-a", "c")
    assert said("a,b", "c") == said("", "c") == said("a\nb", "c") == "Keep all columns with --format arrow."
    many = tuple(f"column_{n}" for n in range(50))
    assert said(*many).startswith("Leave out 'x' with --columns and the other 50 names or keep")
    assert said("a", refused=many).startswith("Leave out the 50 refused columns with --columns a or keep")


def test_what_fails_for_another_reason_has_no_hint_of_columns() -> None:
    assert told(None, {TORCH: 1000, WORKERS: None}) == f"The configuration as given fails; {TORCH} did not."
    assert told(None) == "The configuration as given fails."


def test_the_look_ends_in_time_with_the_column_that_was_refused() -> None:
    columns = {"id": range(100), "late": pa.array([*range(99), None], pa.int64())}
    table = lancedb.connect("memory://").create_table("late", pa.table(columns))
    plan = bench.Plan(**{**SETTINGS, "shuffle": False, "num_splits": 1})
    look = bench.look_at_columns(table, plan, 1, 0.0, "late")
    assert (look.columns, look.rows, look.whole) == (("id", "late"), 16, False)
    assert look.refused == {"python": {"late": "int64"}, "torch": {}, "numpy": {}}
    look = bench.look_at_columns(table, plan, 1, 0.0)
    assert look.rows == 100, "where a worker has lost its name, it looks on until it is found"
    assert look.refused == {layout: {"late": "int64 with null"} for layout in ("python", "torch", "numpy")}


# ---- what people read


def test_the_widest_report_fits_a_terminal() -> None:
    """Four columns of large figures, and reasons of any length."""
    wide = Figures(Rates(1e9, 1e6, 1.0, 1.0, 1.0, 1.0), 1000.0, 10000.0, True, 2**40, 10**9, 32768.0, 1000.0)
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
    assert "short" not in report + alone


def test_the_report_has_no_rates_of_what_is_too_short() -> None:
    configurations = [Measured("as given", SETTINGS, SHORT), Measured(CLUMPS, SETTINGS, USUAL)]
    lines = bench._report({"table": "t", "version": 1, "rows": 1}, 1, configurations, "").splitlines()
    cells = {line[:17].strip(): line[17:].split() for line in lines if line}
    assert cells["rows/s"] == ["too", "short", "1,000"]
    assert all(cells[label][0] == "-" for label in ("MB/s", "waiting", "making batches", "transform", "the rest"))
    assert cells["first batch"] == ["0.100", "s", "0.100", "s"]
    assert "Under 0.3 s of it are too short" in " ".join(" ".join(lines).split())


def test_the_report_names_all_refused_columns() -> None:
    refused = {f"c{n}": "double with null" for n in range(10)}
    look = Look(("id", *refused), {"python": refused, "torch": {}}, 1, True)
    configurations = [
        Measured("as given", SETTINGS, refused="the first"),
        Measured(TORCH, {**SETTINGS, "format": "torch"}, refused="memory"),
    ]
    report = " ".join(bench._report({"table": "t", "version": 1, "rows": 1}, 1, configurations, "", look).split())
    assert "as given: 10 of 11 columns: 'c0' (double with null), 'c1' (double with null)," in report
    assert "'c7' (double with null) and 2 more refused" in report
    assert report.endswith(f"refused {TORCH}: memory"), "for another reason"
    assert [bench._as_json(one, look)["refused_columns"] for one in configurations] == [list(refused), []]

"""The explorer is clean on the model, and finds what is wrong with systems that are wrong on purpose.

Every broken system below breaks one function. A search that misses one of them is worth nothing, whatever it says about the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from model import checkpoint, cycle, loader
from model.assignment import owned_splits
from model.cycle import Cursor
from model.errors import ModelError
from model.explore import LAWS, explore, main
from model.loader import Loader
from model.scenario import MODEL, ScenarioFailure, State, System, render, run
from model.world import Bound


@pytest.mark.parametrize(
    "bound",
    [
        Bound(4, 4, crashes=2),
        Bound(6, 3, crashes=2),
        Bound(7, 3, crashes=2, seed=5),
        Bound(8, 4, crashes=2, ranks=2),
        Bound(8, 4, crashes=1, seed=100003),
        Bound(5, 2, crashes=2, epochs=2, seed=1),
    ],
    ids=str,
)
def test_model_breaks_no_law(bound: Bound) -> None:
    """LAW-1, LAW-2, LAW-3, LAW-6, LAW-9, DLV-4, exhaustive to these bounds; and the bounds contain what the laws are about."""
    result = explore(bound)
    assert result.violation is None
    for what in ("pull", "newer", "end", "save", "resume", "torn", "exact refused"):
        assert result.counts[what] > 0, f"no {what} within the bound: the laws held for want of anything to judge"


# --- systems that are wrong -----------------------------------------------------------------------------------------------------------


def merge_takes_largest(states: Sequence[object], skew: str) -> State:
    """The fastest rank decides."""
    try:
        return checkpoint.merge(states, "refuse")
    except ModelError:
        if skew == "refuse":
            raise
        return checkpoint.floor(max((checkpoint.check_form(state) for state in states), key=checkpoint.place))


def merge_keeps_partial(states: Sequence[object], skew: str) -> State:
    """The first of the slowest ranks decides, and its partial cycle is kept although another may have served less of it."""
    try:
        return checkpoint.merge(states, "refuse")
    except ModelError:
        if skew == "refuse":
            raise
        return min((checkpoint.check_form(state) for state in states), key=checkpoint.place)


def merge_never_refuses(states: Sequence[object], skew: str) -> State:
    """A torn set passes without a word."""
    return checkpoint.merge(states, "replay")


def merge_drops_partial(states: Sequence[object], skew: str) -> State:
    """Equal states lose their partial cycle."""
    return checkpoint.floor(checkpoint.merge(states, skew))


def merge_replays_equal_states(states: Sequence[object], skew: str) -> State:
    """``skew="replay"`` drops the partial cycle of equal states too (MRG-2)."""
    merged = checkpoint.merge(states, skew)
    return checkpoint.floor(merged) if skew == "replay" else merged


def load_loses_partial(current: Loader, state: object) -> Loader:
    """The rows of the partial cycle count as consumed with the whole cycle."""
    after = loader.load(current, state)
    served = checkpoint.check_form(state)["partial_cycle_splits"]
    return replace(after, cursor=Cursor(after.cursor.epoch, after.cursor.cycle + 1, ())) if served else after


def load_forgets_served(current: Loader, state: object) -> Loader:
    """Exact replays."""
    after = loader.load(current, state)
    return replace(after, cursor=Cursor(after.cursor.epoch, after.cursor.cycle, ()))


def load_replays_nothing(current: Loader, state: object) -> Loader:
    """Replay resumes exactly."""
    after = loader.load(current, state)
    served = tuple(checkpoint.check_form(state)["partial_cycle_splits"])
    whole = checkpoint.even(served, current.settings.num_splits, current.settings.world_size)
    return replace(after, cursor=Cursor(after.cursor.epoch, after.cursor.cycle, served)) if whole else after


def load_counts_all_ranks(current: Loader, state: object) -> Loader:
    """``samples_to_replay`` counts the splits of all ranks."""
    after = loader.load(current, state)
    served = checkpoint.check_form(state)["partial_cycle_splits"]
    return replace(after, replay=len(served)) if current.settings.partial_cycle == "replay" else after


def load_accepts_uneven(current: Loader, state: object) -> Loader:
    """Exact is never refused."""
    try:
        return loader.load(current, state)
    except ModelError:
        copy = checkpoint.check_form(state)
        return replace(current, cursor=Cursor(copy["epoch"], copy["samples_consumed_per_split"][0], tuple(copy["partial_cycle_splits"])))


def load_always_refuses_partial(current: Loader, state: object) -> Loader:
    """Exact is refused wherever a cycle is unfinished."""
    if current.settings.partial_cycle == "exact" and checkpoint.check_form(state)["partial_cycle_splits"]:
        raise ModelError("state.partial_cycle")
    return loader.load(current, state)


def load_restarts_next_epoch(current: Loader, state: object) -> Loader:
    """A completed epoch resumes at its beginning."""
    after = loader.load(current, state)
    return replace(after, cursor=Cursor(after.cursor.epoch, 0, ())) if loader.remaining(after) == 0 else after


def pull_advances_twice(current: Loader) -> tuple[Loader, int | None]:
    """The cursor is one row ahead of what was received (but for the last row of an epoch)."""
    after, row = loader.pull(current)
    if row is None or loader.remaining(after) == 0:
        return after, row
    settings = after.settings
    return loader.received(after, cycle.advance(after.cursor, settings.num_splits, settings.world_size)), row


def pull_serves_own_splits_only(current: Loader) -> tuple[Loader, int | None]:
    """``served`` gets the rank's own split and not those of the others (CYC-3, CYC-4)."""
    after, row = loader.pull(current)
    if row is None or not after.cursor.served:
        return after, row
    owner = owned_splits(after.settings.num_splits, after.settings.world_size, after.settings.rank)
    own = tuple(split for split in after.cursor.served if split in owner or split in current.cursor.served)
    return replace(after, cursor=replace(after.cursor, served=own)), row


def pull_ends_early(current: Loader) -> tuple[Loader, int | None]:
    """Rank 1 drops its last row."""
    if current.settings.rank == 1 and loader.remaining(current) == 1:
        return replace(current, newest="ended"), None
    return loader.pull(current)


def pull_reads_next_cycle(current: Loader) -> tuple[Loader, int | None]:
    """A split serves the row of the cycle after."""
    after, row = loader.pull(current)
    return after, None if row is None else (row + 1) % current.settings.rows


def save_counts_one_too_many(current: Loader) -> State:
    """The row that is on its way counts as received."""
    if loader.remaining(current) == 0:
        return loader.save(current)
    cursor = cycle.advance(current.cursor, current.settings.num_splits, current.settings.world_size)
    return loader.save(replace(current, cursor=cursor))


def save_knows_its_rank(current: Loader) -> State:
    """States of ranks at one step differ."""
    return checkpoint.sign({**loader.save(current), "table_version": current.settings.rank + 1})


def start_repeats_epoch(current: Loader) -> Loader:
    """A pass over a completed epoch is empty."""
    return loader.start(replace(current, asked=True))


def start_moves_on(current: Loader) -> Loader:
    """A newer iterator begins behind the row that was prepared for the one before it."""
    live, after = current.newest == "live", loader.start(current)
    return replace(after, cursor=cycle.advance(after.cursor, after.settings.num_splits, after.settings.world_size)) if live else after


def pull_skips_what_was_prepared(current: Loader) -> tuple[Loader, int | None]:
    """So does the first row of a newer one, but the state does not say so."""
    after, row = loader.pull(current)
    return loader.pull(after) if current.newest == "waiting" and current.older == "superseded" else (after, row)


def pull_older_goes_on(current: Loader) -> tuple[Loader, int | None]:
    """A superseded iterator gives the row that is next."""
    return loader.pull(current) if current.older == "superseded" else loader.pull_older(current)


def pull_older_goes_on_later(current: Loader) -> tuple[Loader, int | None]:
    """So it does, once the newer one has given a row."""
    return pull_older_goes_on(current) if current.newest == "live" else loader.pull_older(current)


def pull_older_ends(current: Loader) -> tuple[Loader, int | None]:
    """A superseded iterator says that its pass has ended."""
    return current, None


# The system, the laws that may be named (which one depends on what a shortest history is), and the most events that one needs.
BROKEN: list[tuple[str, System, set[str], int]] = [
    ("merge_takes_largest", replace(MODEL, merge=merge_takes_largest), {"LAW-9"}, 6),
    ("merge_keeps_partial", replace(MODEL, merge=merge_keeps_partial), {"LAW-9", "LAW-6"}, 4),
    ("merge_never_refuses", replace(MODEL, merge=merge_never_refuses), {"LAW-9"}, 4),
    ("merge_drops_partial", replace(MODEL, merge=merge_drops_partial), {"LAW-2"}, 3),
    ("merge_replays_equal_states", replace(MODEL, merge=merge_replays_equal_states), {"LAW-3"}, 3),
    ("load_loses_partial", replace(MODEL, load=load_loses_partial), {"LAW-1", "LAW-2"}, 6),
    ("load_forgets_served", replace(MODEL, load=load_forgets_served), {"LAW-1"}, 4),
    ("load_replays_nothing", replace(MODEL, load=load_replays_nothing), {"LAW-2"}, 7),
    ("load_counts_all_ranks", replace(MODEL, load=load_counts_all_ranks), {"LAW-2"}, 3),
    ("load_accepts_uneven", replace(MODEL, load=load_accepts_uneven), {"LAW-6"}, 3),
    ("load_always_refuses_partial", replace(MODEL, load=load_always_refuses_partial), {"LAW-6"}, 3),
    ("load_restarts_next_epoch", replace(MODEL, load=load_restarts_next_epoch), {"LAW-1", "LAW-2"}, 7),
    ("pull_advances_twice", replace(MODEL, pull=pull_advances_twice), {"LAW-1", "LAW-2"}, 3),
    ("pull_serves_own_splits_only", replace(MODEL, pull=pull_serves_own_splits_only), {"LAW-1", "LAW-2", "LAW-3"}, 4),
    ("pull_ends_early", replace(MODEL, pull=pull_ends_early), {"LAW-1", "LAW-6"}, 3),
    ("pull_reads_next_cycle", replace(MODEL, pull=pull_reads_next_cycle), {"LAW-1", "LAW-2"}, 3),
    ("save_counts_one_too_many", replace(MODEL, save=save_counts_one_too_many), {"LAW-2"}, 2),
    ("save_knows_its_rank", replace(MODEL, save=save_knows_its_rank), {"LAW-3"}, 2),
    ("start_moves_on", replace(MODEL, start=start_moves_on), {"DLV-4"}, 2),
    ("pull_skips_what_was_prepared", replace(MODEL, pull=pull_skips_what_was_prepared), {"LAW-1", "LAW-2", "LAW-6", "DLV-4"}, 4),
    ("pull_older_goes_on", replace(MODEL, pull_older=pull_older_goes_on), {"DLV-4"}, 2),
    ("pull_older_goes_on_later", replace(MODEL, pull_older=pull_older_goes_on_later), {"DLV-4"}, 2),
    ("pull_older_ends", replace(MODEL, pull_older=pull_older_ends), {"DLV-4"}, 2),
    ("start_repeats_epoch", replace(MODEL, start=start_repeats_epoch), {"LAW-1", "LAW-6"}, 4),
]


@pytest.mark.parametrize(("system", "laws", "most"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_broken_system_is_caught(system: System, laws: set[str], most: int) -> None:
    """A shortest history that breaks a law is found; it reproduces on the broken system, and the model does otherwise."""
    found = explore(Bound(4, 2, crashes=1, epochs=2, seed=1), system)
    if found.violation is None:
        found = explore(Bound(4, 4, crashes=1), system)
    violation = found.violation
    assert violation is not None
    assert violation.law in laws
    assert len(violation.events) <= most
    scenario = json.loads(render(violation.scenario))
    assert scenario["clauses"] == [violation.law]
    reproduced = run(scenario, system)
    assert len(reproduced.loaders) == len([step for step in scenario["steps"] if "open" in step])
    with pytest.raises(ScenarioFailure):
        run(scenario)


@pytest.mark.parametrize(
    ("system", "law", "text"),
    [
        (replace(MODEL, pull=pull_ends_early), "LAW-6", r"ranks ended epoch 0 after \[1, 2\] rows"),
        (replace(MODEL, save=save_counts_one_too_many), "LAW-2", r"partial_cycle_splits is \[0\], received were \[\]"),
        (replace(MODEL, pull=pull_advances_twice), "LAW-1", r"rows \[2, 3\] did not come"),
    ],
    ids=["lockstep", "partial", "missing"],
)
def test_each_judgement_is_made(system: System, law: str, text: str) -> None:
    """What one check would miss another may catch; these are the words of the check that must speak first."""
    violation = explore(Bound(4, 2, crashes=1 if law == "LAW-2" else 0), system).violation
    assert violation is not None
    assert violation.law == law
    assert re.search(text, violation.text)


def test_counterexample_reads_like_a_hand_vector() -> None:
    """The shortest torn set that is merged to its largest place, step for step."""
    violation = explore(Bound(4, 2, crashes=1), replace(MODEL, merge=merge_takes_largest)).violation
    assert violation is not None
    ahead = {"epoch": 0, "samples_consumed_per_split": [2, 2], "partial_cycle_splits": []}
    behind = {"epoch": 0, "samples_consumed_per_split": [0, 0], "partial_cycle_splits": []}
    assert violation.law == "LAW-9"
    assert violation.scenario == {
        "id": "counterexample",
        "clauses": ["LAW-9"],
        "rows": 4,
        "note": "LAW-9 broken: the loader is in epoch 1 while epoch 0 is not over.",
        "steps": [
            {"open": "a0", "num_splits": 2, "world_size": 2, "rank": 0},
            {"open": "a1", "num_splits": 2, "world_size": 2, "rank": 1},
            {"pull": "a0", "rows": [0, 1]},
            {"save": "a0", "as": "s1", "checks": ahead},
            {"save": "a1", "as": "s2", "checks": behind},
            {"merge": ["s1", "s2"], "as": "m1", "skew": "replay", "checks": ahead},
            {"open": "b0", "num_splits": 2},
            {"load": "b0", "state": "m1"},
            {"check": "b0", "samples_to_replay": 0},
            {"pull": "b0", "rows": [0]},
            {"check": "b0", "epoch": 1},
        ],
    }


def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what was searched, and exits 1 with a scenario and the law where a law is broken."""
    assert main(["--rows", "3", "--splits", "2", "--crashes", "1", "--up-to"]) == 0
    told = capsys.readouterr().out
    assert all(law in told for law in LAWS)
    assert "(N, S) in [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2)]; crashes <= 1" in told

    monkeypatch.setattr(cycle, "advance", lambda cursor, num_splits, world_size: Cursor(cursor.epoch, cursor.cycle + 1, ()))
    assert main(["--rows", "4", "--splits", "2", "--crashes", "1"]) == 1
    scenario, _, verdict = capsys.readouterr().out.rstrip().rpartition("\n")
    assert json.loads(scenario)["id"] == "counterexample"
    assert verdict.startswith("LAW-")

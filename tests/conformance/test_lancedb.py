"""The released peer under the kit: what spec/gaps-lancedb.json says is what happens, and what spec/verdict-lancedb.md says is so."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lancedb
import pytest

from model.conformance.adapter import World
from model.conformance.adapters.lancedb_streaming import Hung, LanceDB, LanceDBLoader
from model.conformance.checks import Bound, divisors
from model.conformance.engine import check_loader
from model.conformance.gaps import read_gaps
from model.conformance.result import FAILED

JUDGED = "0.40.0"
pytestmark = pytest.mark.skipif(lancedb.__version__ != JUDGED, reason=f"the verdict is on lancedb {JUDGED}, this is {lancedb.__version__}")

GAPS = Path(__file__).parents[2] / "spec" / "gaps-lancedb.json"
# Batches of three rows over two splits end within cycles, and one of them can die there; four cycles leave some after two interruptions.
QUICK = Bound(((8, 2),), (3,), ())
ROWS, SPLITS = 12, 4


def test_the_known_gaps_are_all_gaps_and_each_is_one() -> None:
    gaps = read_gaps(GAPS)
    result = check_loader(LanceDB, layers=["small"], bound=QUICK, gaps=gaps)
    assert result.sane is None
    assert not result.truncated
    assert result.stale == []
    assert {clause: result.status(clause) for clause in gaps} == dict.fromkeys(gaps, FAILED)
    assert result.exit_code == 0


def test_a_gap_that_is_none_any_more_is_red() -> None:
    result = check_loader(LanceDB, layers=["smoke"], gaps={"ORD-6": "orders are no permutations"})
    assert (result.stale, result.exit_code) == (["ORD-6"], 1)


def received(adapter: LanceDB, handle: Any, batches: int | None = None) -> list[int]:
    rows: list[int] = []
    while batches is None or batches > 0:
        batch = adapter.pull(handle)
        if batch is None:
            break
        rows += batch
        batches = None if batches is None else batches - 1
    return rows


def run(adapter: LanceDB, world_size: int, state: Any = None, batches: int | None = None) -> tuple[list[list[int]], list[Any]]:
    """One job: the rows of each rank from a state, and the state of each rank afterwards."""
    handles = [adapter.open(World(ROWS, SPLITS, world_size, rank)) for rank in range(world_size)]
    for handle in handles:
        if state is not None:
            adapter.resume(handle, state)
    rows = [received(adapter, handle, batches) for handle in handles]
    states = [adapter.save(handle) for handle in handles]
    for handle in handles:
        adapter.kill(handle)
    return rows, states


def flat(rows: Sequence[Sequence[int]]) -> list[int]:
    return [row for one in rows for row in one]


@pytest.mark.parametrize("make", [LanceDB, LanceDBLoader])
def test_merged_states_of_one_step_lose_and_repeat_nothing(make: type[LanceDB]) -> None:
    """What it does well: cuts in and between cycles, from every world size to every world size and back, in one epoch."""
    adapter = make()
    for before in divisors(SPLITS):
        for cut in (1, ROWS // before // 2):
            first, states = run(adapter, before, batches=cut)
            for after in divisors(SPLITS):
                merged = adapter.merge(states, "refuse")
                second, later = run(adapter, after, merged, batches=1)
                third, _ = run(adapter, before, adapter.merge(later, "refuse"))
                assert sorted(flat(first) + flat(second) + flat(third)) == list(range(ROWS)), (before, cut, after)


def test_the_state_of_one_rank_serves_all_only_in_a_fresh_dataloader() -> None:
    for make, resumed, expected in (
        (LanceDB, False, []), (LanceDB, True, [6, 7, 9, 10]), (LanceDBLoader, False, [6, 7, 9, 10]), (LanceDBLoader, True, [6, 7, 9, 10]),
    ):  # fmt: skip
        adapter = make()
        start = run(adapter, 2, batches=0)[1][0] if resumed else None
        before, states = run(adapter, 2, start, batches=4)
        after, _ = run(adapter, 2, states[0])
        assert sorted(set(flat(before)) & set(flat(after))) == expected, (make, resumed)


def test_a_partial_cycle_resumed_on_another_world_size_ends_earlier_on_some_ranks() -> None:
    adapter = LanceDB()
    _, states = run(adapter, 1, batches=2)
    rows, _ = run(adapter, 4, states[0])
    assert [len(one) for one in rows] == [2, 2, 3, 3]


def test_merging_ranks_of_different_steps_loses_rows() -> None:
    adapter = LanceDB()
    ahead, states = run(adapter, 2, batches=6)
    behind, others = run(adapter, 2, batches=2)
    after, _ = run(adapter, 2, adapter.merge([states[0], others[1]], "refuse"))
    assert sorted(set(range(ROWS)) - set(ahead[0]) - set(behind[1]) - set(flat(after))) == [7, 8, 10, 11]


def test_a_call_that_never_returns_is_ended() -> None:
    class Endless(LanceDB):
        tuning = {"read_batch_size": 0}  # noqa: RUF012
        patience_s = 0.5

    threads = threading.active_count()
    adapter = Endless()
    handle = adapter.open(World(4, 2))
    for _ in range(2):
        with pytest.raises(Hung):
            adapter.pull(handle)
    adapter.kill(handle)
    stop = time.monotonic() + 10
    while threading.active_count() > threads and time.monotonic() < stop:
        time.sleep(0.05)
    assert threading.active_count() <= threads

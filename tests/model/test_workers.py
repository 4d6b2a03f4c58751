"""The loader with workers (chapter workers): numbers worked out by hand, and every small case against rows counted apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from model import loader, workers
from model.checkpoint import KEYS, sign
from model.cycle import Cursor
from model.errors import WORKER_CODES, ModelError
from model.loader import Settings
from model.pool import Place, Pool

ROOT = Path(__file__).parents[2]


def code_of(call: Callable[[], object]) -> str | None:
    """The code with which a call is refused; None where it is not."""
    try:
        call()
    except ModelError as error:
        return error.code
    return None


def plain(rows: int, splits: int, world: int = 1, rank: int = 0, policy: str = "exact") -> Settings:
    """Unshuffled settings: the i-th row of split s is row s*L + i."""
    return Settings(rows, splits, world, rank, shuffle=False, partial_cycle=policy)


def opened(rows: int, splits: int, count: int, size: int, mode: str = "splits") -> Pool:
    """A pass that has begun on one rank; none of it is received."""
    return workers.begin(workers.start(workers.open_pool(plain(rows, splits)), count, mode, size))


def took(pool: Pool, count: int) -> Pool:
    """The pool after that many batches."""
    for _ in range(count):
        pool, batch = workers.deliver(pool)
        assert batch is not None
    return pool


def rest(pool: Pool) -> tuple[Pool, list[tuple[int, ...]]]:
    """All batches to the end of the pass, and the pool after it."""
    batches: list[tuple[int, ...]] = []
    while True:
        pool, batch = workers.deliver(pool)
        if batch is None:
            return pool, batches
        batches.append(batch)


def consumed(state: dict[str, Any]) -> tuple[int, list[int]]:
    """C and the partial cycle."""
    assert set(state) == set(KEYS)
    assert len(set(state["samples_consumed_per_split"])) == 1
    return state["samples_consumed_per_split"][0], state["partial_cycle_splits"]


def test_codes_are_those_of_the_chapter() -> None:
    """Every code of the model's is named where its clause is."""
    chapter = (ROOT / "spec" / "workers.md").read_text(encoding="utf-8")
    assert all(f"`{code}`" in chapter for code in WORKER_CODES)


# --- who delivers what ----------------------------------------------------------------------------------------------------------------


def test_batches_by_hand() -> None:
    """WRK-2, WRK-3: 4 splits of 3 rows; worker 0 has splits 0 and 1, worker 1 has 2 and 3."""
    expected = [(0, 3, 1), (6, 9, 7), (4, 2, 5), (10, 8, 11)]
    assert rest(opened(12, 4, 2, 3))[1] == expected
    # B = 4: each worker's last batch is shorter.
    assert rest(opened(12, 4, 2, 4))[1] == [(0, 3, 1, 4), (6, 9, 7, 10), (2, 5), (8, 11)]
    assert rest(opened(12, 4, 4, 2))[1] == [(0, 1), (3, 4), (6, 7), (9, 10), (2,), (5,), (8,), (11,)]


def test_second_rank_by_hand() -> None:
    """WRK-2: worker w of rank r is rank r*W + w; on the second of two ranks worker 1 has split 3 of 4."""
    pool = workers.start(workers.open_pool(plain(8, 4, 2, 1)), 2, "splits", 1)
    assert rest(pool)[1] == [(4,), (6,), (5,), (7,)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7])
def test_invariant_mode_by_hand(count: int) -> None:
    """WRK-4, WRK-5: the batches of W = 0 for every W, states as well; more workers than batches included."""
    pool = opened(7, 2, count, 4, "batches")
    assert consumed(workers.save(pool)) == (0, [])
    pool, first = workers.deliver(pool)
    assert first == (0, 3, 1, 4)
    assert consumed(workers.save(pool)) == (2, [])
    pool, batches = rest(pool)
    assert batches == [(2, 5)]
    pool = opened(7, 2, count, 3, "batches")
    pool, first = workers.deliver(pool)
    assert first == (0, 3, 1)
    assert consumed(workers.save(pool)) == (1, [0])
    assert rest(workers.start(workers.close(pool), count, "batches", 2))[1] == [(4, 2), (5,)]


@pytest.mark.parametrize("mode", ["splits", "batches"])
@pytest.mark.parametrize(("rows", "splits", "world"), [(7, 3, 1), (12, 4, 2), (13, 6, 2), (12, 6, 3), (16, 8, 2)])
def test_one_worker_is_the_rank_sequence(rows: int, splits: int, world: int, mode: str) -> None:
    """WRK-4, WRK-5: what W <= 1 and the invariant mode deliver, and every state on the way, is that of ``model.loader``."""
    for rank in range(world):
        settings = Settings(rows, splits, world, rank, True, 5, None, "exact")
        for count in range(2 if mode == "splits" else 5):
            for size in range(1, 6):
                reference = loader.start(loader.open_loader(settings))
                pool = workers.start(workers.open_pool(settings), count, mode, size)
                while True:
                    pool, batch = workers.deliver(pool)
                    for row in batch or ():
                        reference, expected = loader.pull(reference)
                        assert row == expected
                    assert workers.save(pool) == loader.save(reference)
                    assert workers.remaining(pool) == loader.remaining(reference)
                    if batch is None:
                        break
                assert loader.remaining(reference) == 0


def test_partial_cycle_is_finished_first() -> None:
    """WRK-5, CYC-2: a plain cursor with splits 0 and 2 of 4 served; documented mode with two workers has to wait (WRK-12)."""
    state = sign({**workers.save(workers.open_pool(plain(12, 4))), "samples_consumed_per_split": [1] * 4, "partial_cycle_splits": [0, 2]})
    loaded = workers.load(workers.open_pool(plain(12, 4)), state)
    assert rest(workers.start(loaded, 1, "splits", 3))[1] == [(4, 10, 2), (5, 8, 11)]
    assert rest(workers.start(loaded, 3, "batches", 4))[1] == [(4, 10, 2, 5), (8, 11)]
    assert code_of(lambda: workers.start(loaded, 2, "splits", 1)) == "workers.partial_cycle"
    finished = workers.close(took(workers.start(loaded, 0, "splits", 2), 1))
    assert rest(workers.start(finished, 2, "splits", 2))[1] == [(2, 5), (8, 11)]
    replayed = workers.load(workers.open_pool(plain(12, 4, policy="replay")), state)
    assert replayed.loader.replay == 2
    assert rest(workers.start(replayed, 2, "splits", 4))[1] == [(1, 4, 2, 5), (7, 10, 8, 11)]


@pytest.mark.parametrize("count", range(2, 7))
def test_groups_are_batches_of_one_process(count: int) -> None:
    """WRK-3, WRK-13: W batches hold the rows of one of W*B rows with W = 0, at the end too, where k divides B; not elsewhere."""
    for rows, splits in [(count, count), (3 * count + 1, count), (4 * count, 2 * count), (13 * count, 4 * count), (9 * count, 3 * count)]:
        for size in range(1, 9):
            batches = rest(opened(rows, splits, count, size))[1]
            whole = rest(opened(rows, splits, 0, size * count))[1]
            groups = [sorted(sum(batches[at : at + count], ())) for at in range(0, len(batches), count)]
            alike = groups == [sorted(batch) for batch in whole]
            assert alike == (size % (splits // count) == 0 or len(whole) == 1)
            assert len(batches) == workers.length(plain(rows, splits), count, "splits", size)
            assert len(whole) == workers.length(plain(rows, splits), 0, "splits", size * count)


def test_length_by_hand() -> None:
    """WRK-13: S = 6, L = 3, B = 4: 18 rows in 5 batches; two workers with 9 rows each in 3 + 3; R = 2 has half the rows."""
    settings = plain(20, 6)
    assert [workers.length(settings, count, "splits", 4) for count in (0, 1, 2, 3, 6)] == [5, 5, 6, 6, 6]
    assert [workers.length(settings, count, "batches", 4) for count in (0, 1, 2, 5)] == [5, 5, 5, 5]
    assert workers.length(plain(20, 6, 2), 3, "splits", 2) == 6
    assert workers.length(settings, 2, "splits", None) == 18


# --- arguments and guards -------------------------------------------------------------------------------------------------------------


def test_refused_arguments() -> None:
    """WRK-2, WRK-7, WRK-20: before anything else, an iterator that is alive included."""
    pool = workers.open_pool(plain(12, 6, 2))
    alive = workers.start(pool, 3, "splits", None)
    assert rest(alive)[1][:4] == [(0,), (2,), (4,), (1,)]
    for refused in (pool, alive):
        assert code_of(partial(workers.start, refused, 2, "splits", 1)) == "argument.value"
        assert code_of(partial(workers.start, refused, 6, "splits", 1)) == "argument.value"
        assert code_of(partial(workers.start, refused, 1, "rows", 1)) == "argument.value"
        assert code_of(partial(workers.start, refused, 1, "splits", 0)) == "argument.value"
        assert code_of(partial(workers.start, refused, True, "splits", 1)) == "argument.type"
    assert code_of(lambda: workers.start(pool, 2, "batches", 1)) is None
    assert code_of(lambda: workers.length(plain(12, 6, 2), 2, "splits", 1)) == "argument.value"


def test_nothing_moves_under_a_pass() -> None:
    """DLV-4: while a pass has rows left; not under an iterator that was never asked, and not behind the last row."""
    live = took(opened(12, 4, 2, 1), 1)
    floor = workers.floor_state(live)
    moves = (
        lambda pool: workers.load(pool, floor),
        lambda pool: workers.set_epoch(pool, 0),
        lambda pool: workers.set_epoch(pool, 1),
        workers.rewind,
    )
    for move in (*moves, lambda pool: workers.load(pool, {})):
        assert code_of(partial(move, live)) == "iterator.alive"
    over = took(live, 11)
    assert (over.running, over.loader.newest) == (None, "ended")
    for move in moves:
        for free in (over, workers.start(live, 2, "splits", 1), workers.close(live), workers.kill(live)):
            assert code_of(partial(move, free)) is None
    assert workers.deliver(over) == workers.pull_older(over) == (over, None)


def test_the_newest_wins() -> None:
    """DLV-4, WRK-11: superseding is a break: turn and place are kept, and what was prepared comes again, uncounted."""
    whole = rest(opened(12, 4, 2, 3))[1]
    live = workers.fetch(workers.fetch(took(opened(12, 4, 2, 3), 1), 1), 0)
    newer = workers.start(live, 2, "splits", 3)
    assert (newer.place, newer.running) == (live.place, None)
    broken = workers.begin(workers.start(workers.close(live), 2, "splits", 3))
    assert workers.begin(newer) == replace(broken, loader=replace(broken.loader, older="superseded"))
    assert code_of(lambda: workers.pull_older(newer)) == "iterator.superseded"
    over, batches = rest(newer)
    assert batches == whole[1:]
    assert code_of(lambda: workers.pull_older(over)) == "iterator.superseded"
    assert code_of(lambda: workers.pull_older(workers.start(workers.kill(newer), 2, "splits", 3))) == "iterator.failed"


@pytest.mark.parametrize(("count", "code"), [(4, "workers.mid_step"), (0, "workers.mid_step"), (5, "argument.value")])
def test_a_refused_iterator_supersedes_nothing(count: int, code: str) -> None:
    """DLV-4, WRK-11: all checks come first; the pass goes on with what is due."""
    live = took(opened(12, 4, 2, 3), 1)
    assert code_of(lambda: workers.start(live, count, "splits", 3)) == code
    assert workers.deliver(live)[1] == (6, 9, 7)


def test_what_iter_refuses_the_first_next_refuses() -> None:
    """CAL-4: the place moved while the iterator waited; it waits on, and begins once the place is one that it can begin at."""
    partial_cycle = sign({**workers.save(workers.open_pool(plain(12, 4))), "partial_cycle_splits": [0]})
    waiting = workers.load(workers.start(workers.open_pool(plain(12, 4)), 2, "splits", 2), partial_cycle)
    assert code_of(lambda: workers.deliver(waiting)) == "workers.partial_cycle"
    assert consumed(workers.save(waiting)) == (0, [0])
    assert rest(workers.rewind(waiting))[1] == [(0, 3), (6, 9), (1, 4), (7, 10), (2, 5), (8, 11)]


def test_an_iterator_that_was_never_asked_changes_nothing() -> None:
    """DLV-4, EPO-4, WRK-9: whatever its arguments, before its first ``next()``."""
    stopped = workers.close(took(opened(16, 4, 2, 4), 1))
    waiting = workers.start(stopped, 2, "splits", 1)
    assert seen(waiting)[:-1] == seen(stopped)[:-1]
    assert workers.batches_to_boundary(workers.begin(waiting)) != workers.batches_to_boundary(stopped)
    for done in (workers.fetch, workers.fail):
        assert done(waiting, 0) == waiting, "it has no workers yet"
    asked = workers.set_epoch(rest(opened(12, 4, 2, 3))[0], 0)
    again = workers.start(workers.close(workers.start(asked, 2, "splits", 3)), 2, "splits", 3)
    empty, batch = workers.deliver(again)
    assert (batch, empty.loader.cursor) == (None, Cursor(0, 3, ()))
    assert workers.start(empty, 2, "splits", 3).loader.asked is False


# --- boundaries -----------------------------------------------------------------------------------------------------------------------

# d, W, k, B, T and the batches to the next boundary, each worked out by hand.
PROMISED = [
    # S/R = 6, W = 2, so k = 3. B = 2: a worker's rows after q groups are 2q; 3 divides them for q = 3: 6 batches.
    (0, 2, 3, 2, 24, 6),
    (1, 2, 3, 2, 24, 5),
    (5, 2, 3, 2, 24, 1),
    (6, 2, 3, 2, 24, 6),
    (7, 2, 3, 2, 24, 5),
    # T = 18: 9 rows per worker in batches of 2, 2, 2, 2, 1. After the boundary at 6 rows (3 groups) only 2 groups are left.
    (6, 2, 3, 2, 18, 4),
    (9, 2, 3, 2, 18, 1),
    # T = 6: 3 rows per worker, in 2 and 1: the end is the only boundary.
    (0, 2, 3, 2, 6, 4),
    (2, 2, 3, 2, 6, 2),
    (3, 2, 3, 2, 6, 1),
    # B = 3: each group is a cycle.
    (0, 2, 3, 3, 18, 2),
    (1, 2, 3, 3, 18, 1),
    (2, 2, 3, 3, 18, 2),
    # B = 4: 4, 8, 12: three groups; but with T = 12 (6 rows per worker: 4 and 2) two.
    (1, 2, 3, 4, 60, 5),
    (1, 2, 3, 4, 12, 3),
    # B = 9: three cycles at once; B = 100: the epoch at once.
    (1, 2, 3, 9, 36, 1),
    (1, 2, 3, 100, 36, 1),
    # k = 4, B = 6: gcd 2; 6, 12: two groups of W = 3.
    (1, 3, 4, 6, 120, 5),
    (4, 3, 4, 6, 120, 2),
    # k = 1: every group is a boundary whatever B.
    (1, 4, 1, 5, 40, 3),
    (5, 4, 1, 5, 40, 3),
]


@pytest.mark.parametrize(("delivered", "count", "splits", "size", "rows_left", "more"), PROMISED)
def test_boundary_formula_by_hand(delivered: int, count: int, splits: int, size: int, rows_left: int, more: int) -> None:
    """WRK-9."""
    assert workers.promised_batches(delivered, count, splits, size, rows_left) == more


def split_counts(settings: Settings, batches: list[tuple[int, ...]]) -> list[int]:
    """The rows received of each split of an unshuffled rank."""
    length = settings.rows // settings.num_splits
    counts = [0] * settings.num_splits
    for row in sum(batches, ()):
        counts[row // length] += 1
    owned = settings.num_splits // settings.world_size
    return counts[settings.rank * owned : (settings.rank + 1) * owned]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_place_by_counting(count: int) -> None:
    """WRK-8 to WRK-10 at every batch: refused exactly where splits differ, the number right, the floor the least count."""
    refused = 0
    for splits, world in [(count, 1), (2 * count, 1), (2 * count, 2), (3 * count, 1), (4 * count, 1)]:
        for rows in (splits, 2 * splits + 1, 3 * splits, 5 * splits):
            for size in range(1, 8):
                settings = plain(rows, splits, world, world - 1)
                pool, promise = workers.start(workers.open_pool(settings), count, "splits", size), 0
                batches: list[tuple[int, ...]] = []
                total = workers.length(settings, count, "splits", size)
                for number in range(total + 1):
                    counts = split_counts(settings, batches)
                    assert consumed(workers.floor_state(pool)) == (min(counts), [])
                    assert workers.remaining(pool) == rows // splits * len(counts) - sum(counts)
                    more = workers.batches_to_boundary(pool)
                    assert more == workers.count_to_boundary(pool)
                    assert promise in (0, more + 1)
                    if len(set(counts)) > 1:
                        refused += 1
                        assert more > 0
                        assert code_of(partial(workers.save, pool)) == "state.mid_step"
                    else:
                        assert more == 0
                        assert consumed(workers.save(pool)) == (counts[0], [])
                    promise = more
                    pool, batch = workers.deliver(pool)
                    assert (batch is None) == (number == total)
                    batches.append(batch or ())
    assert refused > 400


@pytest.mark.parametrize("size", range(1, 6))
def test_one_size_is_never_counted(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """WRK-9: with one batch size the number is that of the formula, tails included, also after a break; stepping is for other passes."""

    def refuse(pool: Pool) -> int:
        raise AssertionError(f"counted at {pool.place}")

    monkeypatch.setattr(workers, "count_to_boundary", refuse)
    for rows, splits, count in [(18, 6, 2), (18, 6, 3), (20, 4, 2), (8, 8, 4)]:
        pool = opened(rows, splits, count, size)
        for left in reversed(range(workers.length(plain(rows, splits), count, "splits", size))):
            pool = took(workers.start(workers.close(pool), count, "splits", size), 1)
            assert 0 <= workers.batches_to_boundary(pool) <= left


def test_boundaries_of_a_resumed_iterator() -> None:
    """WRK-9 counts from the boundary at which the iterator started: k = 3, B = 2, resumed at C = 1 of 4 with 9 rows per worker."""
    state = sign({**workers.save(workers.open_pool(plain(24, 6))), "samples_consumed_per_split": [1] * 6})
    pool = workers.start(workers.load(workers.open_pool(plain(24, 6)), state), 2, "splits", 2)
    numbers = []
    for _ in range(10):
        pool = took(pool, 1)
        numbers.append(workers.batches_to_boundary(pool))
    assert numbers == [5, 4, 3, 2, 1, 0, 3, 2, 1, 0]
    assert consumed(workers.save(pool)) == (4, [])


def test_place_by_hand() -> None:
    """WRK-8, WRK-10: k = 2, B = 3, L = 4: worker 0 has 3 rows, then worker 1, then 6 against 3; C = min // k."""
    pool = took(opened(16, 4, 2, 3), 1)
    assert pool.place == Place(Cursor(0, 0, ()), 2, (3, 0), 1)
    pool = took(pool, 1)
    assert pool.place == Place(Cursor(0, 0, ()), 2, (3, 3), 0)
    assert code_of(lambda: workers.save(pool)) == "state.mid_step"
    assert consumed(workers.floor_state(pool)) == (1, [])
    pool = took(pool, 1)
    assert pool.place == Place(Cursor(0, 0, ()), 2, (6, 3), 1)
    assert workers.remaining(pool) == 7
    pool = took(pool, 1)
    assert (pool.place, pool.loader.cursor) == (None, Cursor(0, 3, ()))


# --- breaks ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [workers.close, workers.kill], ids=["close", "kill"])
@pytest.mark.parametrize(("rows", "splits", "count"), [(12, 4, 2), (13, 6, 3), (18, 6, 2), (16, 8, 4), (8, 8, 4)])
def test_break_keeps_the_turn(rows: int, splits: int, count: int, end: Callable[[Pool], Pool]) -> None:
    """WRK-11, WRK-15: broken after any batch, twice, a pass continues with what it would have delivered; number and rows stay."""
    for size in range(1, 6):
        whole = rest(opened(rows, splits, count, size))[1]
        for number in range(len(whole)):
            pool = took(opened(rows, splits, count, size), number)
            stopped = end(pool)
            assert stopped.place == pool.place
            assert workers.batches_to_boundary(stopped) == workers.batches_to_boundary(pool)
            pool, batch = workers.deliver(workers.start(stopped, count, "splits", size))
            assert batch == whole[number]
            if number + 1 < len(whole):
                pool, batches = rest(workers.start(end(pool), count, "splits", size))
                assert batches == whole[number + 1 :]
            assert workers.remaining(pool) == 0


def test_nothing_else_continues_there() -> None:
    """WRK-11: another W, no workers, one worker, the other mode; a load, another epoch and ``rewind`` leave the place."""
    stopped = workers.close(took(opened(12, 4, 2, 3), 1))
    for count, mode in [(0, "splits"), (1, "splits"), (4, "splits"), (2, "batches"), (0, "batches"), (1, "batches")]:
        assert code_of(partial(workers.start, stopped, count, mode, 3)) == "workers.mid_step"
    floor = workers.floor_state(stopped)
    moved = sign({**floor, "table_version_created_us": None})
    assert code_of(partial(workers.load, stopped, moved)) == "state.mismatch"
    assert workers.load(stopped, moved, ["table_version_created_us"]) == workers.load(stopped, floor)
    assert rest(workers.start(workers.load(stopped, floor), 4, "splits", 3))[1][0] == (0, 1, 2)
    assert rest(workers.start(workers.rewind(stopped), 0, "splits", 12))[1] == [(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11)]
    other = workers.set_epoch(stopped, 3)
    assert (other.place, workers.save(other)["epoch"]) == (None, 3)
    assert code_of(lambda: workers.start(other, 4, "splits", 3)) is None


def test_set_epoch_to_the_current_one_keeps_the_place() -> None:
    """WRK-11, EPO-4."""
    stopped = workers.close(took(opened(12, 4, 2, 3), 1))
    same = workers.set_epoch(stopped, 0)
    assert code_of(lambda: workers.save(same)) == "state.mid_step"
    assert code_of(lambda: workers.start(same, 4, "splits", 3)) == "workers.mid_step"
    pool, batches = rest(workers.start(same, 2, "splits", 3))
    assert batches == [(6, 9, 7), (4, 2, 5), (10, 8, 11)]
    # It was no longer asked for when that pass ended: the next pass moves on.
    assert took(workers.start(pool, 2, "splits", 3), 1).place == Place(Cursor(1, 0, ()), 2, (3, 0), 1)


def test_another_batch_size_continues() -> None:
    """WRK-11 names W and the mode only: worker 0 is 3 rows ahead, and after B = 1 it is spent first and passed over."""
    stopped = workers.close(took(opened(12, 4, 2, 3), 1))
    pool = workers.begin(workers.start(stopped, 2, "splits", 1))
    assert workers.batches_to_boundary(pool) == 9
    assert workers.count_to_boundary(pool) == 9
    turns = [place.turn for place in (took(pool, number).place for number in range(9)) if place is not None]
    assert turns == [1, 0, 1, 0, 1, 0, 1, 1, 1], "the turn is that of a worker with rows left"
    pool, batches = rest(pool)
    assert batches == [(6,), (4,), (9,), (2,), (7,), (5,), (10,), (8,), (11,)]
    assert consumed(workers.save(pool)) == (3, [])
    # Worker 0 has 4 of its 8 rows, worker 1 none: (4, 2), (6, 2), (6, 4), (8, 4), (8, 6), (8, 8) are 6 batches of 2.
    pool = workers.begin(workers.start(workers.close(took(opened(16, 4, 2, 4), 1)), 2, "splits", 2))
    assert [workers.batches_to_boundary(took(pool, number)) for number in range(6)] == [6, 5, 4, 3, 2, 1]


def test_boundary_within_a_group() -> None:
    """WRK-8: batches of 2, 4 and 2 make (2, 0), (2, 4), (4, 4): a boundary after worker 0. The iterator goes on with worker 1,
    but of a broken pass the turn is worker 0's."""
    pool = workers.close(took(opened(16, 4, 2, 2), 1))
    pool = workers.close(took(workers.start(pool, 2, "splits", 4), 1))
    assert pool.place == Place(Cursor(0, 0, ()), 2, (2, 4), 0)
    pool = took(workers.start(pool, 2, "splits", 2), 1)
    assert (pool.place, pool.loader.cursor) == (None, Cursor(0, 2, ()))
    assert workers.deliver(pool)[1] == (10, 14)
    assert workers.deliver(workers.start(workers.close(pool), 2, "splits", 2))[1] == (2, 6)
    # Counting d from here in whole groups would be wrong: worker 1 is first.
    pool = took(pool, 1)
    assert pool.place == Place(Cursor(0, 2, ()), 2, (0, 2), 0)
    assert workers.batches_to_boundary(pool) == workers.count_to_boundary(pool) == 1


def test_rows_come_once_whatever_the_batch_sizes() -> None:
    """WRK-11: broken after every batch, each time with another size, the epoch's rows still come once each."""
    for sizes in [(1, 2), (3, 1, 2), (2, 5), (4, 1, 1)]:
        pool = workers.open_pool(plain(30, 6))
        batches: list[tuple[int, ...]] = []
        while workers.remaining(pool) > 0:
            pool = workers.start(pool, 3, "splits", sizes[len(batches) % len(sizes)])
            assert workers.batches_to_boundary(pool) == workers.count_to_boundary(pool)
            pool, batch = workers.deliver(pool)
            assert batch is not None
            batches.append(batch)
            counts = split_counts(pool.loader.settings, batches)
            assert (pool.place is None) == (len(set(counts)) == 1)
            assert consumed(workers.floor_state(pool))[0] == min(counts)
            pool = workers.close(pool)
        assert sorted(sum(batches, ())) == list(range(30))


# --- running ahead and failing --------------------------------------------------------------------------------------------------------


def seen(pool: Pool) -> tuple[object, ...]:
    """All that a trainer can ask."""
    state = workers.save(pool) if pool.place is None else "state.mid_step"
    return state, workers.floor_state(pool), workers.remaining(pool), workers.batches_to_boundary(pool), pool.place, pool.loader


@pytest.mark.parametrize(("count", "mode"), [(2, "splits"), (4, "splits"), (3, "batches"), (1, "splits")])
def test_running_ahead_changes_nothing(count: int, mode: str) -> None:
    """LAW-7, WRK-6: whatever workers prepared, in any sequence, what is seen and delivered is the same."""
    whole = rest(opened(18, 4, count, 3, mode))[1]
    pool = opened(18, 4, count, 3, mode)
    for number, expected in enumerate(whole):
        before = seen(pool)
        for step in range(number + 2):
            pool = workers.fetch(pool, (step * 3 + number) % count)
            assert seen(pool) == before
        pool, batch = workers.deliver(pool)
        assert batch == expected
    for worker in range(count):
        assert workers.fetch(pool, worker) == pool, "spent workers prepare nothing"
    assert workers.deliver(pool)[1] is None


def test_failure_in_its_place() -> None:
    """WRK-14, WRK-15, DLV-5: the batches before it arrive, it is raised, the iterator is over, a new one continues exactly there."""
    whole = rest(opened(12, 4, 2, 2))[1]
    assert len(whole) == 6
    pool = workers.fetch(workers.fetch(opened(12, 4, 2, 2), 1), 1)
    pool = workers.fail(pool, 1)
    assert workers.fetch(pool, 1) == pool
    for expected in whole[:5]:
        pool, batch = workers.deliver(pool)
        assert batch == expected
    before = seen(pool)
    assert code_of(lambda: workers.deliver(pool)) == "worker.raised"
    over = workers.kill(pool)
    assert code_of(lambda: workers.deliver(over)) == "iterator.failed"
    assert seen(over)[:5] == before[:5]
    assert rest(workers.start(over, 2, "splits", 2))[1] == whole[5:]


def test_failure_at_once_and_of_a_spent_worker() -> None:
    """WRK-14: without anything prepared the worker's next batch fails; a worker with nothing left cannot fail."""
    pool = took(workers.fail(opened(12, 4, 2, 3), 1), 1)
    assert code_of(lambda: workers.deliver(pool)) == "worker.raised"
    assert workers.kill(pool).place == Place(Cursor(0, 0, ()), 2, (3, 0), 1)
    ended = workers.fetch(opened(4, 4, 2, 2), 0)
    assert workers.fail(ended, 0) == ended
    assert len(rest(workers.fail(ended, 0))[1]) == 2
    invariant = took(workers.fail(opened(12, 4, 3, 3, "batches"), 2), 2)
    assert code_of(lambda: workers.deliver(invariant)) == "worker.raised"
    assert consumed(workers.save(workers.kill(invariant))) == (1, [0, 1])


def test_prepared_batches_are_lost_with_the_iterator() -> None:
    """WRK-15: what was ready and not delivered comes again; after ``close`` and after the end it is StopIteration (DLV-5)."""
    pool = took(workers.fetch(workers.fetch(opened(12, 4, 2, 3), 0), 1), 1)
    closed = workers.close(pool)
    assert workers.deliver(closed) == (closed, None)
    assert rest(workers.start(closed, 2, "splits", 3))[1][0] == (6, 9, 7)
    assert workers.kill(closed) == closed
    ended, _ = rest(pool)
    assert workers.deliver(ended) == (ended, None)
    assert ended.loader.newest == "ended"


# --- epochs ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "mode"), [(0, "splits"), (2, "splits"), (3, "batches")])
def test_epochs(count: int, mode: str) -> None:
    """EPO-2, EPO-3, EPO-4, EPO-7: the place moves to the next epoch with its first batch; an epoch asked for may be empty."""
    settings = Settings(9, 4, 1, 0, True, 7)
    pool, orders = workers.open_pool(settings), []
    for epoch in range(3):
        before = workers.save(pool)
        pool = workers.start(pool, count, mode, 3)
        assert workers.save(pool) == before, "not before the first batch"
        pool = took(pool, 1)
        assert pool.loader.cursor.epoch == epoch
        assert workers.floor_state(pool)["epoch"] == epoch
        pool, batches = rest(pool)
        orders.append(batches)
        assert consumed(workers.save(pool)) == (2, [])
    assert len({str(order) for order in orders}) == 3
    empty = workers.set_epoch(pool, 2)
    ended, batch = workers.deliver(workers.start(empty, count, mode, 3))
    assert batch is None
    assert took(workers.start(ended, count, mode, 3), 1).loader.cursor.epoch == 3


def test_load_cancels_what_was_asked_and_replay_ends_with_the_epoch() -> None:
    """EPO-6, EPO-7, RES-3: with workers as without."""
    state = sign({**workers.save(workers.open_pool(plain(8, 4))), "samples_consumed_per_split": [1] * 4, "partial_cycle_splits": [0, 1]})
    pool = workers.load(workers.set_epoch(workers.open_pool(plain(8, 4, policy="replay")), 5), state)
    assert (pool.loader.asked, pool.loader.replay, workers.remaining(pool)) == (False, 2, 4)
    pool, batches = rest(workers.start(pool, 2, "splits", 2))
    assert (batches, pool.loader.replay) == ([(1, 3), (5, 7)], 2)
    pool = workers.start(pool, 2, "splits", 2)
    assert pool.loader.replay == 2
    assert took(pool, 1).loader.replay == 0


def test_ranks_at_one_step_save_equal_states() -> None:
    """LAW-3, LAW-6, CKP-2: no rank in a state, refused on all ranks alike, and one state serves every world."""
    for count, size in [(2, 3), (2, 2), (4, 1), (0, 3)]:
        pools = [workers.start(workers.open_pool(plain(25, 8, 2, rank)), count, "splits", size) for rank in range(2)]
        for _ in range(workers.length(plain(25, 8, 2), count, "splits", size)):
            pools = [took(pool, 1) for pool in pools]
            assert workers.floor_state(pools[0]) == workers.floor_state(pools[1])
            assert (pools[0].place is None) == (pools[1].place is None)
            if pools[0].place is None:
                assert workers.save(pools[0]) == workers.save(pools[1])
        assert [workers.remaining(pool) for pool in pools] == [0, 0]


def test_a_pool_begins_in_its_epoch_and_ends_with_its_iterator() -> None:
    """EPO-1, WRK-15."""
    pool = workers.open_pool(plain(8, 4), 3)
    assert workers.save(pool)["epoch"] == 3
    begun = workers.begin(workers.start(pool, 2, "splits", 1))
    assert begun.running is not None
    assert workers.begin(begun) == begun
    for killed in (workers.kill(begun), workers.kill(workers.start(pool, 2, "splits", 1))):
        assert (killed.running, killed.waiting) == (None, None)
        assert code_of(partial(workers.deliver, killed)) == "iterator.failed"
    promised = workers.promised_batches(3, 2, 4, 3, 2**60)
    assert (promised, type(promised)) == (5, int)

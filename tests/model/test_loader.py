"""Chapters delivery and arguments on the model: guards, iterators, failures, epochs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from model import loader
from model.checkpoint import sign
from model.cycle import Cursor
from model.errors import ModelError
from model.loader import Loader, Settings

PLAIN = Settings(8, 2, shuffle=False)
LARGEST = 2**63 - 1


def code_of(call: Callable[[], object]) -> str | None:
    """The code with which a call is refused; None where it is not."""
    try:
        call()
    except ModelError as error:
        return error.code
    return None


def pulled(current: Loader, count: int) -> tuple[Loader, list[int]]:
    """A loader after some rows, and the rows."""
    rows = []
    for _ in range(count):
        current, row = loader.pull(current)
        assert row is not None
        rows.append(row)
    return current, rows


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"num_splits": 0}, "argument.value"),
    ({"num_splits": True}, "argument.type"),
    ({"num_splits": 2.0}, "argument.type"),
    ({"num_splits": None}, "argument.type"),
    ({"world_size": 0}, "argument.value"),
    ({"world_size": 3}, "argument.value"),
    ({"world_size": True}, "argument.type"),
    ({"rank": 1}, "argument.value"),
    ({"rank": -1}, "argument.value"),
    ({"rank": "0"}, "argument.type"),
    ({"world_size": 2, "rank": 2}, "argument.value"),
    ({"shuffle": 1}, "argument.type"),
    ({"shuffle": True}, "argument.value"),
    ({"shuffle": True, "shuffle_seed": -1}, "argument.value"),
    ({"shuffle": True, "shuffle_seed": LARGEST + 1}, "argument.value"),
    ({"shuffle": True, "shuffle_seed": 1.0}, "argument.type"),
    ({"shuffle": True, "shuffle_seed": 1, "shuffle_clump_size": 0}, "argument.value"),
    ({"shuffle": True, "shuffle_seed": 1, "shuffle_clump_size": True}, "argument.type"),
    ({"shuffle": True, "shuffle_seed": 1, "world_size": 2, "seed_drawn": True}, "argument.value"),
    ({"shuffle_clump_size": 2}, "argument.value"),
    ({"shuffle": True, "shuffle_seed": 1, "shuffle_clump_size": LARGEST + 1}, "argument.value"),
    ({"num_splits": LARGEST + 1}, "argument.value"),
    ({"num_splits": LARGEST + 1, "world_size": LARGEST + 1}, "argument.value"),
    ({"partial_cycle": "skip"}, "argument.value"),
    ({"partial_cycle": None}, "argument.type"),
    ({"filter": ""}, "argument.value"),
    ({"filter": 1}, "argument.type"),
    ({"rows": 1}, "data.too_few_rows"),
    ({"rows": 0}, "data.too_few_rows"),
    ({"rows": 1, "world_size": 3}, "argument.value"),
]


@pytest.mark.parametrize(("change", "code"), REFUSED, ids=[str(change) for change, _ in REFUSED])
def test_refused_settings(change: dict[str, Any], code: str) -> None:
    """ARG-1 to ARG-13, ASG-1, ASG-2: arguments before data."""
    right: dict[str, Any] = {"rows": 8, "num_splits": 2, "shuffle": False}
    assert code_of(lambda: Settings(**right)) is None
    assert code_of(lambda: Settings(**{**right, **change})) == code


@pytest.mark.parametrize(("epoch", "code"), [(0, None), (LARGEST, None), (-1, "argument.value"), (LARGEST + 1, "argument.value")])
def test_epoch_range(epoch: int, code: str | None) -> None:
    """ARG-6, ARG-15, bools included."""
    assert code_of(lambda: loader.open_loader(PLAIN, epoch)) == code
    assert code_of(lambda: loader.set_epoch(loader.open_loader(PLAIN), epoch)) == code
    assert code_of(lambda: loader.open_loader(PLAIN, True)) == "argument.type"


def test_nothing_moves_under_a_pass() -> None:
    """DLV-4, CKP-7: while a pass has rows left nothing else moves the place, and the check comes before those of the state."""
    live, _ = pulled(loader.start(loader.open_loader(PLAIN)), 7)
    moves: list[Callable[[Loader], Loader]] = [
        lambda current: loader.load(current, loader.save(current)),
        lambda current: loader.set_epoch(current, 0),
        lambda current: loader.set_epoch(current, 1),
        loader.rewind,
    ]
    for move in (*moves, lambda current: loader.load(current, {})):
        assert code_of(lambda move=move: move(live)) == "iterator.alive"
    over, _ = pulled(live, 1)
    for move in moves:
        for free in (over, loader.close(live), loader.fail(live), loader.start(live)):
            assert code_of(lambda move=move, free=free: move(free)) is None
    closed = loader.close(live)
    assert loader.pull(closed) == (closed, None)


def test_an_iterator_that_was_never_asked_holds_nothing() -> None:
    """DLV-4: its pass begins with its first ``next()``, at the place of then."""
    waiting = loader.start(loader.open_loader(PLAIN))
    assert replace(waiting, newest="ended") == loader.open_loader(PLAIN)
    moved = loader.set_epoch(waiting, 4)
    assert pulled(moved, 1)[0].cursor == Cursor(4, 0, (0,))
    assert pulled(loader.load(waiting, loader.save(Loader(PLAIN, Cursor(2, 3, ())))), 2)[1] == [3, 7]
    assert code_of(lambda: loader.load(moved, {})) == "state.malformed"
    closed = loader.close(waiting)
    assert loader.pull(closed) == (closed, None)


def test_end_of_pass() -> None:
    """EPO-3, DLV-4: a pass is over with its last row, before it has said so, and stays over."""
    current, rows = pulled(loader.start(loader.open_loader(PLAIN)), 8)
    assert rows == [0, 4, 1, 5, 2, 6, 3, 7]
    assert current.newest == "ended"
    assert loader.pull(current) == (current, None)
    newer, _ = pulled(loader.start(current), 1)
    assert newer.cursor == Cursor(1, 0, (0,))
    assert loader.pull_older(newer) == (newer, None)


def test_the_newest_wins() -> None:
    """DLV-4, CAL-3: it goes on behind the rows received; of the one before it never a row comes again."""
    live, rows = pulled(loader.start(loader.open_loader(PLAIN)), 3)
    newer = loader.start(live)
    assert loader.save(newer) == loader.save(live)
    assert code_of(lambda: loader.pull_older(newer)) == "iterator.superseded"
    newer, rest = pulled(newer, 5)
    assert rows + rest == [0, 4, 1, 5, 2, 6, 3, 7]
    assert code_of(lambda: loader.pull_older(loader.close(newer))) == "iterator.superseded"
    twice = loader.start(loader.start(newer))
    assert code_of(lambda: loader.pull_older(twice)) == "iterator.superseded", "never asked, but it could deliver"


ENDS: list[tuple[str, Callable[[Loader], Loader], str | None]] = [
    ("never asked", lambda current: current, "iterator.superseded"),
    ("asked", lambda current: pulled(current, 1)[0], "iterator.superseded"),
    ("over, not said", lambda current: pulled(current, 8)[0], None),
    ("over", lambda current: loader.pull(pulled(current, 8)[0])[0], None),
    ("closed", lambda current: loader.close(pulled(current, 1)[0]), None),
    ("closed unasked", loader.close, None),
    ("failed", lambda current: loader.fail(pulled(current, 1)[0]), "iterator.failed"),
    ("failed at once", loader.fail, "iterator.failed"),
    ("failed, closed", lambda current: loader.close(loader.fail(current)), "iterator.failed"),
    ("closed, failed", lambda current: loader.fail(loader.close(current)), None),
    ("superseded, closed", lambda current: loader.close(loader.start(current)), None),
]


@pytest.mark.parametrize(("end", "code"), [end[1:] for end in ENDS], ids=[end[0] for end in ENDS])
def test_the_first_end_of_an_iterator_stays(end: Callable[[Loader], Loader], code: str | None) -> None:
    """CAL-3, DLV-5: whatever a newer one does, the one before it says the same every time, and changes nothing."""
    newer = loader.start(end(loader.start(loader.open_loader(PLAIN))))
    some, _ = pulled(newer, 1)
    moved = loader.rewind(newer)
    for later in (newer, some, loader.close(some), loader.fail(some), loader.close(newer), moved, pulled(moved, 8)[0]):
        assert code_of(lambda later=later: loader.pull_older(later)) == code
        if code is None:
            assert loader.pull_older(later) == (later, None)


def test_a_refused_iterator_supersedes_nothing() -> None:
    """DLV-4, CAL-4, EPO-2: all checks come first; what iter refuses the first ``next()`` refuses too, and the iterator waits on."""
    last = Loader(PLAIN, Cursor(LARGEST, 4, ()))
    assert code_of(lambda: loader.start(last)) == "argument.value"
    waiting = loader.load(loader.start(loader.open_loader(PLAIN)), loader.save(last))
    assert code_of(lambda: loader.start(waiting)) == "argument.value"
    assert code_of(lambda: loader.pull(waiting)) == "argument.value"
    assert pulled(loader.rewind(waiting), 1)[0].cursor == Cursor(LARGEST, 0, (0,))


def test_failure() -> None:
    """DLV-5, DLV-6: the row on its way is not received, the iterator stays failed, a new one continues exactly there."""
    current, rows = pulled(loader.start(loader.open_loader(PLAIN)), 3)
    failed = loader.fail(current)
    assert loader.save(failed) == loader.save(current)
    assert code_of(lambda: loader.pull(failed)) == "iterator.failed"
    assert code_of(lambda: loader.pull(loader.close(failed))) == "iterator.failed"
    again, rest = pulled(loader.start(failed), 5)
    assert rows + rest == [0, 4, 1, 5, 2, 6, 3, 7]
    assert loader.remaining(again) == 0
    assert loader.fail(again) == again, "over: there is no row that could fail"
    assert loader.fail(loader.start(again)).cursor == Cursor(0, 4, ()), "no row of the next epoch is received (EPO-2)"


def test_epochs_of_a_shuffled_run_differ() -> None:
    """EPO-2: three passes, three orders, each of all rows; the order is that of the cursor's epoch."""
    settings = Settings(9, 3, 1, 0, True, 4)
    current = loader.open_loader(settings, 6)
    orders = []
    for _ in range(3):
        current, rows = pulled(loader.start(current), 9)
        assert sorted(rows) == list(range(9))
        current, end = loader.pull(current)
        assert end is None
        orders.append(rows)
    assert current.cursor.epoch == 8
    assert len({tuple(rows) for rows in orders}) == 3
    assert orders[1] == [settings.order(7).row(split * 3 + cycle) for cycle in range(3) for split in range(3)]


def test_asked_for_lasts_one_pass() -> None:
    """EPO-4, EPO-6: and a load, but not a rewind, makes it void; rewind leaves nothing of it to see."""
    done = loader.load(loader.open_loader(PLAIN), loader.save(Loader(PLAIN, Cursor(5, 4, ()))))
    asked = loader.set_epoch(done, 5)
    unused = loader.close(loader.start(loader.start(loader.start(asked))))
    assert unused.asked, "iterators that were never asked use nothing up (DLV-4)"
    empty, row = loader.pull(loader.start(unused))
    assert (row, empty.cursor) == (None, Cursor(5, 4, ()))
    assert code_of(lambda: loader.pull_older(empty)) is None
    assert loader.start(empty).cursor == Cursor(5, 4, ()), "the cursor moves with the first row, not before (EPO-2)"
    assert pulled(loader.start(empty), 1)[0].cursor == Cursor(6, 0, (0,))
    assert pulled(loader.start(loader.load(asked, loader.save(asked))), 1)[0].cursor == Cursor(6, 0, (0,))
    middle = loader.set_epoch(Loader(PLAIN, Cursor(5, 3, (0,))), 5)
    ended, _ = loader.pull(pulled(loader.start(middle), 1)[0])
    assert pulled(loader.start(ended), 1)[0].cursor == Cursor(6, 0, (0,))


def test_samples_to_replay_belongs_to_the_last_load() -> None:
    """RES-3, EPO-7: it stays through the pass and a ``set_epoch`` to the same epoch, and goes with the epoch."""
    state = loader.save(Loader(PLAIN, Cursor(5, 3, (0,))))
    loaded = loader.load(loader.open_loader(PLAIN), state)
    assert loader.samples_to_replay(loaded) == 1
    assert loader.samples_to_replay(loader.set_epoch(loaded, 5)) == 1
    assert loader.samples_to_replay(loader.set_epoch(loaded, 6)) == 0
    assert loader.samples_to_replay(loader.rewind(loaded)) == 0
    assert loader.rewind(loaded).cursor == Cursor(5, 0, ())
    current, rows = pulled(loader.start(loaded), 2)
    assert rows == [3, 7]
    assert loader.samples_to_replay(current) == 1
    resting = loader.start(loader.pull(current)[0])
    assert loader.samples_to_replay(resting) == 1
    assert loader.samples_to_replay(loader.pull(resting)[0]) == 0
    exact = Settings(8, 2, shuffle=False, partial_cycle="exact")
    assert loader.samples_to_replay(loader.load(loader.open_loader(exact), state)) == 0


def test_no_epoch_after_the_last() -> None:
    """The spec is silent on the epoch after 2**63 - 1; the model refuses rather than save what it could not load."""
    last = Loader(PLAIN, Cursor(LARGEST, 4, ()))
    assert code_of(lambda: loader.start(last)) == "argument.value"
    assert code_of(lambda: loader.load(loader.open_loader(PLAIN), loader.save(last))) is None


def test_floor_state() -> None:
    """CKP-4: callable at any time, and loadable."""
    current, _ = pulled(loader.start(loader.open_loader(PLAIN)), 3)
    floor = loader.floor_state(current)
    assert floor == sign({**loader.save(current), "partial_cycle_splits": []})
    assert loader.load(loader.open_loader(PLAIN), floor).cursor == Cursor(0, 1, ())
    assert (loader.length(current), loader.remaining(current)) == (8, 5)

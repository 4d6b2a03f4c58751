"""Chapters delivery and arguments on the model: guards, iterators, failures, epochs."""

from __future__ import annotations

from collections.abc import Callable
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


def test_one_iterator() -> None:
    """DLV-4, CKP-7: while one is alive nothing else moves the place, and the check comes before those of the state."""
    alive = loader.start(loader.open_loader(PLAIN))
    for call in (
        lambda: loader.start(alive),
        lambda: loader.load(alive, loader.save(alive)),
        lambda: loader.load(alive, {}),
        lambda: loader.set_epoch(alive, 0),
        lambda: loader.set_epoch(alive, 1),
        lambda: loader.rewind(alive),
    ):
        assert code_of(call) == "iterator.alive"
    closed = loader.close(alive)
    assert code_of(lambda: loader.start(closed)) is None
    assert loader.pull(closed) == (closed, None)


def test_end_of_pass() -> None:
    """EPO-3: the state after the last row is that after StopIteration; an ended iterator stays ended."""
    current, rows = pulled(loader.start(loader.open_loader(PLAIN)), 8)
    assert rows == [0, 4, 1, 5, 2, 6, 3, 7]
    before = loader.save(current)
    assert current.alive
    ended, row = loader.pull(current)
    assert row is None
    assert not ended.alive
    assert loader.save(ended) == before
    assert loader.pull(ended) == (ended, None)


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
    empty, row = loader.pull(loader.start(asked))
    assert (row, empty.cursor) == (None, Cursor(5, 4, ()))
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

"""TOL-3, TOL-5 on the model: by hand, and against what ranks that really run receive."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from model import checkpoint, loader, tools
from model.checkpoint import sign
from model.cycle import Cursor
from model.errors import ModelError
from model.loader import Settings
from model.order import Order

# N = 14, S = 4, L = 3: two rows are left out.
PLAIN = Settings(14, 4, 2, 0, shuffle=False)


def state_of(settings: Settings, epoch: int, cycle: int, served: tuple[int, ...]) -> dict[str, Any]:
    """The state of a cursor."""
    return checkpoint.save(settings.identity(), Cursor(epoch, cycle, served), settings.world_size)


def code_of(call: Callable[[], object]) -> str | None:
    """The code with which a call is refused; None where it is not."""
    try:
        call()
    except ModelError as error:
        return error.code
    return None


def test_summary() -> None:
    """TOL-3, in the middle of cycle 1: splits 0 and 2 are served."""
    state = state_of(PLAIN, 5, 1, (0, 2))
    assert tools.summary(state) == {
        "epoch": 5,
        "completed_cycles": 1,
        "cycles": 3,
        "rows_per_epoch": 12,
        "rows_received": 6,
        "rows_remaining": 6,
        "rows_replayed": 2,
        "rows_left_out": 2,
        "epoch_completed": False,
        "world_sizes": [1, 2, 4],
        "world_sizes_exact": [1, 2],
        "state": state,
    }


def test_summary_of_a_completed_epoch() -> None:
    """TOL-3 at a cycle boundary, where every world can resume either way."""
    done = tools.summary(state_of(PLAIN, 5, 3, ()))
    assert done["epoch_completed"]
    assert (done["rows_received"], done["rows_remaining"], done["rows_replayed"]) == (12, 0, 0)
    assert done["world_sizes_exact"] == done["world_sizes"] == [1, 2, 4]
    few = tools.summary(state_of(Settings(11, 4, shuffle=False), 0, 2, ()))
    assert (few["cycles"], few["rows_per_epoch"], few["rows_left_out"]) == (2, 8, 3)
    assert code_of(lambda: tools.summary({**state_of(PLAIN, 5, 3, ()), "epoch": 6})) == "state.malformed"


def test_summary_agrees_with_the_loader() -> None:
    """TOL-3: the world sizes are those whose ranks load, and the rows remaining those that all ranks have left."""
    for cycle, served in itertools.product(range(3), ((), (0, 3), (1, 2, 4, 5), (2, 5))):
        state = state_of(Settings(20, 6, 2, 0, shuffle=False), 0, cycle, served)
        said = tools.summary(state)
        for policy, key in (("replay", "world_sizes"), ("exact", "world_sizes_exact")):
            loads = []
            for size in (1, 2, 3, 6):
                fresh = [loader.open_loader(Settings(20, 6, size, rank, False, partial_cycle=policy)) for rank in range(size)]
                if all(code_of(partial(loader.load, one, state)) is None for one in fresh):
                    loads.append(size)
                    left = sum(loader.remaining(loader.load(one, state)) for one in fresh)
                    assert left == said["rows_remaining"] + (said["rows_replayed"] if policy == "replay" else 0)
            assert said[key] == loads


def traced(row: int, **arguments: Any) -> tuple[Any, ...]:
    """What ``trace`` says of a row of the state (5, 1, (0, 2)), in short."""
    said = tools.trace(state_of(PLAIN, 5, 1, (0, 2)), row, **arguments)
    return tuple(said[key] for key in ("status", "split", "cycle", "rank", "step", "index", "resumed_batch"))


def test_trace() -> None:
    """TOL-5, unshuffled: split s holds the rows 3s, 3s + 1, 3s + 2."""
    assert traced(3) == ("received", 1, 0, 0, 1, 0, None)
    assert traced(6) == ("received", 2, 0, 1, 0, 0, None)
    assert traced(1) == ("replayed", 0, 1, 0, 2, 0, 0)
    assert traced(7) == ("replayed", 2, 1, 1, 2, 0, 0)
    assert traced(4) == ("due", 1, 1, 0, 3, 0, 1)
    assert traced(11) == ("due", 3, 2, 1, 5, 0, 3)
    assert traced(12) == traced(13) == ("left_out", None, None, None, None, None, None)
    assert traced(11, batch_size=4) == ("due", 3, 2, 1, 1, 1, 0)
    assert traced(11, batch_size=3) == ("due", 3, 2, 1, 1, 2, 1)
    assert traced(11, world_size=1) == ("due", 3, 2, 0, 11, 0, 7)
    assert traced(11, world_size=4, batch_size=2) == ("due", 3, 2, 3, 1, 0, 0)


def test_trace_of_other_epochs() -> None:
    """TOL-5: earlier ones are received, later ones due; nothing of them comes in the resumed pass."""
    assert traced(11, epoch=5) == traced(11)
    assert traced(11, epoch=4) == ("received", 3, 2, 1, 5, 0, None)
    assert traced(1, epoch=6) == ("due", 0, 1, 0, 2, 0, None)
    assert traced(13, epoch=4)[0] == "left_out"
    assert tools.trace(state_of(PLAIN, 5, 1, ()), 11, epoch=4) == {
        "row": 11,
        "epoch": 4,
        "status": "received",
        "split": 3,
        "cycle": 2,
        "rank": 1,
        "step": 5,
        "index": 0,
        "resumed_batch": None,
    }
    assert list(tools.trace(state_of(PLAIN, 5, 1, ()), 13)) == list(tools.trace(state_of(PLAIN, 5, 1, ()), 0))


@pytest.mark.parametrize("epoch", [3, 4])
def test_trace_of_a_shuffled_state(epoch: int) -> None:
    """TOL-5: the order is that of the epoch asked about, of the state's seed and clumps."""
    settings = Settings(14, 4, 2, 0, True, 77, 3)
    order = Order(14, True, 77, epoch, 3)
    state = state_of(settings, 3, 1, ())
    for position in range(14):
        said = tools.trace(state, order.row(position), epoch=epoch)
        assert (said["split"], said["cycle"]) == ((None, None) if position >= 12 else (position // 3, position % 3))
    assert [order.row(p) for p in range(14)] != [Order(14, True, 77, 7 - epoch, 3).row(p) for p in range(14)]


@pytest.mark.parametrize(("cycle", "served", "batch_size"), [(1, (0, 2), 3), (0, (), 4), (2, (1, 3), 1), (1, (), 5)])
def test_trace_says_what_ranks_receive(cycle: int, served: tuple[int, ...], batch_size: int) -> None:
    """TOL-5 against two ranks that run the epoch, and two that resume with replay from the state."""
    settings = [Settings(14, 4, 2, rank, True, 9) for rank in range(2)]
    state = state_of(settings[0], 6, cycle, served)
    for rank, one in enumerate(settings):
        for resumed in (False, True):
            current = loader.open_loader(one, 6)
            current = loader.start(loader.load(current, state) if resumed else current)
            for number in range(loader.remaining(current)):
                current, row = loader.pull(current)
                assert row is not None
                said = tools.trace(state, row, batch_size)
                assert said["rank"] == rank
                if resumed:
                    assert said["resumed_batch"] == number // batch_size
                    assert said["status"] != "received"
                else:
                    assert (said["step"], said["index"]) == (number // batch_size, number % batch_size)
                    assert (said["resumed_batch"] is None) == (said["status"] == "received")
    statuses = [tools.trace(state, row)["status"] for row in range(14)]
    counts = tools.summary(state)
    assert statuses.count("left_out") == counts["rows_left_out"]
    assert statuses.count("replayed") == counts["rows_replayed"]
    assert statuses.count("received") + statuses.count("replayed") == counts["rows_received"]
    assert statuses.count("due") == counts["rows_remaining"]


def test_trace_refusals() -> None:
    """TOL-5, ARG-1: rows, batches, worlds and epochs that do not exist; a state that is none; an order that nobody here knows."""
    state = state_of(PLAIN, 5, 1, (0, 2))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"row": -1}, "argument.value"),
        ({"row": 14}, "argument.value"),
        ({"row": True}, "argument.type"),
        ({"row": 0, "batch_size": 0}, "argument.value"),
        ({"row": 0, "world_size": 0}, "argument.value"),
        ({"row": 0, "world_size": 3}, "argument.value"),
        ({"row": 0, "world_size": 8}, "argument.value"),
        ({"row": 0, "epoch": -1}, "argument.value"),
        ({"row": 0, "epoch": 2**63}, "argument.value"),
    ]
    for arguments, code in refused:
        assert code_of(partial(tools.trace, state, **arguments)) == code
    assert code_of(lambda: tools.trace({}, 0)) == "state.malformed"
    assert code_of(lambda: tools.trace({**state, "epoch": 4}, 0)) == "state.malformed"
    assert code_of(lambda: tools.trace(sign({**state, "order_version": 2}), 0)) == "state.mismatch"
    assert code_of(lambda: tools.summary(sign({**state, "order_version": 2}))) is None
    with pytest.raises(ModelError) as refused_order:
        tools.trace(sign({**state, "order_version": 2}), 0)
    assert refused_order.value.fields == ("order_version",)
    assert tools.trace(state, 0, epoch=0)["epoch"] == 0


def test_one_split_and_numbers_beyond_floating_point() -> None:
    """TOL-3, TOL-5: with one split there is one count; places near 2**60 are exact."""
    alone = state_of(Settings(rows=7, num_splits=1, shuffle=False), 0, 3, ())
    assert (tools.summary(alone)["rows_received"], tools.trace(alone, 3)["status"], tools.trace(alone, 5, 2)["resumed_batch"]) == (
        3,
        "due",
        1,
    )
    large = state_of(Settings(rows=2**60 + 1, num_splits=1, shuffle=False), 0, 1, ())
    assert tools.trace(large, 2**60, 3)["resumed_batch"] == (2**60 - 1) // 3

"""What a saved state means: ``inspect`` and ``trace`` as far as the state alone tells (TOL-3, TOL-5).

Both take anything and refuse what is no well formed state (CKP-6). Files, tables and printing are the business of production.
"""

from __future__ import annotations

from typing import Any

from model import checkpoint, cycle
from model.assignment import split_length, splits_per_rank
from model.errors import ModelError
from model.order import ORDER_VERSION, Order
from model.settings import check_int


def divisors(number: int) -> list[int]:
    """All divisors of a number, ascending."""
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


def summary(state: object) -> dict[str, Any]:
    """What ``inspect`` says of a state, by its JSON keys, without those that need a file or a table (TOL-3).

    Parameters
    ----------
    state : object
        A state; it is neither changed nor kept.
    """
    copy = checkpoint.check_form(state)
    num_splits, rows = copy["num_splits"], copy["selected_rows"]
    cycles = split_length(rows, num_splits)
    completed = copy["samples_consumed_per_split"][0]
    served = copy["partial_cycle_splits"]
    received = completed * num_splits + len(served)
    worlds = divisors(num_splits)
    return {
        "epoch": copy["epoch"],
        "completed_cycles": completed,
        "cycles": cycles,
        "rows_per_epoch": num_splits * cycles,
        "rows_received": received,
        "rows_remaining": num_splits * cycles - received,
        "rows_replayed": len(served),
        "rows_left_out": rows - num_splits * cycles,
        "epoch_completed": completed == cycles,
        "world_sizes": worlds,
        "world_sizes_exact": [size for size in worlds if checkpoint.even(served, num_splits, size)],
        "state": copy,
    }


def trace(state: object, row: int, batch_size: int = 1, world_size: int | None = None, epoch: int | None = None) -> dict[str, Any]:
    """Where and when a selected row is due, and whether it was received, by the JSON keys of ``trace`` (TOL-5).

    Parameters
    ----------
    state : object
        A state; it is neither changed nor kept.
    row : int
        A selected row number (TRM-1).
    batch_size : int
        B.
    world_size : int or None
        R; None is the saved one.
    epoch : int or None
        E, the epoch asked about; None is the state's.
    """
    copy = checkpoint.check_form(state)
    num_splits, rows = copy["num_splits"], copy["selected_rows"]
    asked = copy["epoch"] if epoch is None else epoch
    world = copy["world_size"] if world_size is None else world_size
    check_int("row", row, 0, rows - 1)
    check_int("batch_size", batch_size, 1)
    check_int("epoch", asked, 0)
    check_int("world_size", world, 1)
    if num_splits % world != 0:
        raise ModelError("argument.value", "world_size does not divide num_splits")
    if copy["order_version"] != ORDER_VERSION:
        # Well formed, but of an order that nobody here can compute.
        raise ModelError("state.mismatch", fields=("order_version",))

    order = Order(rows, copy["shuffle"], copy["shuffle_seed"], asked, copy["shuffle_clump_size"])
    due = cycle.due(order, num_splits, world, batch_size, row)
    if due is None:
        nowhere = dict.fromkeys(("split", "cycle", "rank", "step", "index", "resumed_batch"))
        return {"row": row, "epoch": asked, "status": "left_out", **nowhere}
    return {
        "row": row,
        "epoch": asked,
        "status": status(copy, asked, due),
        "split": due.split,
        "cycle": due.cycle,
        "rank": due.rank,
        "step": due.step,
        "index": due.index,
        "resumed_batch": resumed_batch(copy, asked, due, world, batch_size),
    }


def status(state: dict[str, Any], epoch: int, due: cycle.Due) -> str:
    """Whether a row that has a place in an epoch was received (TOL-5)."""
    completed = state["samples_consumed_per_split"][0]
    if epoch < state["epoch"]:
        return "received"
    if epoch > state["epoch"]:
        return "due"
    if due.cycle < completed:
        return "received"
    if due.cycle == completed and due.split in state["partial_cycle_splits"]:
        return "replayed"
    return "due"


def resumed_batch(state: dict[str, Any], epoch: int, due: cycle.Due, world_size: int, batch_size: int) -> int | None:
    """The batch, counted from 0, of a pass resumed with replay that holds the row; None where it does not come in that pass (TOL-5)."""
    completed = state["samples_consumed_per_split"][0]
    if epoch != state["epoch"] or due.cycle < completed:
        return None
    n = splits_per_rank(state["num_splits"], world_size)
    return int(((due.cycle - completed) * n + due.split % n) // batch_size)

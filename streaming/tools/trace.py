"""``trace``: whether a row was received, when, and by whom, and what a resume does with it (TOL-5)."""

from __future__ import annotations

import argparse
import json
from typing import Any

from streaming.checkpoint import Saved
from streaming.errors import ArgumentValueError
from streaming.order import ORDER_VERSION
from streaming.schedule import Schedule
from streaming.tools.inspect import divisors
from streaming.tools.statefile import NoStateError, read_state
from streaming.tools.terminal import emit, filled, listed


def run(arguments: argparse.Namespace) -> bool:
    """Print what a file's state says of a row; always True.

    Raises
    ------
    UnreadableError, NoStateError
        The file cannot be read, or holds no valid state.
    ArgumentTypeError, ArgumentValueError
        Row, epoch, batch size or world size lie outside their range.
    """
    saved = read_state(arguments.file, arguments.key, arguments.skew).saved
    world_size = saved.world_size if arguments.world_size is None else arguments.world_size
    found = trace(saved, arguments.row, arguments.batch_size, world_size, arguments.epoch)
    emit(json.dumps(found) if arguments.json else filled(_answer(saved, found, arguments.batch_size, world_size)))
    return True


def trace(saved: Saved, row: int, batch_size: int, world_size: int, epoch: int | None = None) -> dict[str, Any]:
    """Say where a row comes in an epoch and what became of it, by the JSON keys of TOL-5.

    Parameters
    ----------
    saved : Saved
        The state.
    row : int
        Selected row number (TRM-1).
    batch_size, world_size : int
        Of the run whose steps are counted.
    epoch : int, optional
        Default: the state's.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        An argument lies outside its range.
    NoStateError
        The state has an order that this release does not know.
    """
    own, cursor = saved.identity, saved.cursor
    if own.order_version != ORDER_VERSION:
        raise NoStateError(
            f"order_version {own.order_version} is not {ORDER_VERSION}, the one this release knows: use the release that wrote the state "
            "[state.mismatch]"
        )
    epoch = cursor.epoch if epoch is None else epoch
    if world_size < 1 or own.num_splits % world_size:
        raise ArgumentValueError(
            f"world_size {world_size} does not divide the state's num_splits {own.num_splits}: choose {listed(divisors(own.num_splits))}",
            "world_size",
        )
    schedule = Schedule(
        own.selected_rows, own.num_splits, world_size, batch_size, own.shuffle, own.shuffle_seed, epoch, own.shuffle_clump_size
    )
    due = schedule.due(row)
    places = {"split": None, "cycle": None, "rank": None, "step": None, "index": None} if due is None else vars(due)
    if due is None:
        status = "left_out"
    elif (epoch, due.cycle) < (cursor.epoch, cursor.cycle):
        status = "received"
    elif (epoch, due.cycle) == (cursor.epoch, cursor.cycle) and due.split in cursor.served:
        status = "replayed"
    else:
        status = "due"
    resumed = None
    if due is not None and epoch == cursor.epoch and due.cycle >= cursor.cycle:
        per_rank = own.num_splits // world_size
        resumed = ((due.cycle - cursor.cycle) * per_rank + due.split % per_rank) // batch_size
    return {"row": row, "epoch": epoch, "status": status, **places, "resumed_batch": resumed}


# ---- for people


def _answer(saved: Saved, found: dict[str, Any], batch_size: int, world_size: int) -> str:
    """Was this row received, when and by whom, and what does a resume do with it."""
    row, epoch, status = found["row"], found["epoch"], found["status"]
    own, cursor = saved.identity, saved.cursor
    length = own.selected_rows // own.num_splits
    if status == "left_out":
        others = "other rows are left out of other epochs" if own.shuffle else "nor in any other"
        return (
            f"Row {row} is left out of epoch {epoch}: {own.num_splits} splits of {length} rows have no place for "
            f"{own.selected_rows % own.num_splits} of the {own.selected_rows} selected rows.\n"
            f"No rank receives it in this epoch; {others}."
        )
    if status == "received" and epoch < cursor.epoch:
        verdict = (
            f"was received in epoch {epoch}, as far as the run went through it: the state stands in epoch {cursor.epoch} and does not say "
            "where the run began"
        )
    else:
        verdict = {
            "received": f"was received in epoch {epoch}",
            "replayed": f"was received in epoch {epoch}, in the cycle that was not finished",
            "due": f"has not been received in epoch {epoch}" + (", which has not begun" if epoch > cursor.epoch else ""),
        }[status]
    place = (
        f"Its place there is cycle {found['cycle']} of {length} and split {found['split']} of {own.num_splits}: on {world_size} "
        f"{'rank' if world_size == 1 else 'ranks'} with batch size {batch_size}, that is rank {found['rank']}, step {found['step']}, "
        f'index {found["index"]} in the batch (all counted from 0; steps without workers, or with worker_sharding="batches").'
    )
    batch = f"batch {found['resumed_batch']} of the resumed pass"
    resume = {
        "received": "A resume does not bring it again in that epoch.",
        "replayed": f'A resume with partial_cycle="replay" brings it again, in {batch}; one with "exact" does not.',
        "due": f"After a resume with replay it comes in {batch}." if epoch == cursor.epoch else "A resume changes nothing about that.",
    }[status]
    return f"Row {row} {verdict}.\n{place}\n{resume}"

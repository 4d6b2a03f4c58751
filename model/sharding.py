"""Who prepares what: the batches of every worker in one pass (chapter workers, WRK-1 to WRK-5, WRK-13)."""

from __future__ import annotations

from dataclasses import dataclass

from model import cycle
from model.assignment import owned_splits, sequence_position, split_length, splits_per_rank
from model.cycle import Cursor
from model.errors import ModelError
from model.settings import Settings, check_int

MODES = ("splits", "batches")
"""The documented mode and the invariant mode (WRK-1)."""

Batch = tuple[int, ...]
"""Selected row numbers."""


@dataclass(frozen=True)
class Division:
    """What does not change during a pass: its rows and how they are divided.

    Parameters
    ----------
    settings : Settings
        Those of the dataset.
    workers, mode, batch_size : int, str, int
        W, ``worker_sharding`` and B.
    origin : Cursor
        Documented mode with W >= 2: C0, the cycle boundary at which sharding began (WRK-8). Else: where the pass begins.
    begun : tuple of int
        The rows of each worker since ``origin`` that were received before the pass began: zeros but for a place of WRK-11.
    """

    settings: Settings
    workers: int
    mode: str
    batch_size: int
    origin: Cursor
    begun: tuple[int, ...]


def ceil_divide(number: int, by: int) -> int:
    """The least integer that is no less than ``number / by``."""
    return (number + by - 1) // by


def is_sharded(workers: int, mode: str) -> bool:
    """Whether every worker serves splits of its own: documented mode with W >= 2 (WRK-2, WRK-5)."""
    return mode == "splits" and workers >= 2


def team_size(workers: int) -> int:
    """How many prepare batches; with W = 0 it is the trainer's own process."""
    return max(workers, 1)


def splits_per_worker(settings: Settings, workers: int) -> int:
    """k, the splits of one worker in documented mode (WRK-2)."""
    return splits_per_rank(settings.num_splits, settings.world_size) // team_size(workers)


def check_arguments(settings: Settings, workers: int, mode: str, batch_size: int | None) -> int:
    """Refuse what the loader's constructor refuses (WRK-2, WRK-20); gives B, which is 1 for ``batch_size=None`` (WRK-7)."""
    check_int("num_workers", workers, 0)
    if batch_size is not None:
        check_int("batch_size", batch_size, 1)
    if mode not in MODES:
        raise ModelError("argument.value", "worker_sharding")
    if is_sharded(workers, mode) and splits_per_rank(settings.num_splits, settings.world_size) % workers != 0:
        raise ModelError("argument.value", "num_workers does not divide num_splits // world_size")
    return 1 if batch_size is None else batch_size


def length(settings: Settings, workers: int, mode: str, batch_size: int | None) -> int:
    """``len(loader)``: the batches of a fresh epoch (WRK-13)."""
    size = check_arguments(settings, workers, mode, batch_size)
    rows = cycle.length(settings.rows, settings.num_splits, settings.world_size)
    if is_sharded(workers, mode):
        return workers * ceil_divide(rows // workers, size)
    return ceil_divide(rows, size)


def rows_of_worker(settings: Settings, origin: Cursor, workers: int) -> int:
    """The rows of each worker from a cycle boundary to the end of the epoch, documented mode: k per cycle (WRK-2)."""
    return splits_per_worker(settings, workers) * (split_length(settings.rows, settings.num_splits) - origin.cycle)


def batches_of_worker(division: Division, worker: int) -> int:
    """How many batches a worker prepares in the whole pass; the last one may be shorter (WRK-2, WRK-4)."""
    settings, origin = division.settings, division.origin
    if is_sharded(division.workers, division.mode):
        left = rows_of_worker(settings, origin, division.workers) - division.begun[worker]
        return ceil_divide(left, division.batch_size)
    rows = cycle.remaining(origin, settings.rows, settings.num_splits, settings.world_size, settings.rank)
    batches = ceil_divide(rows, division.batch_size)
    # Of the numbers below ``batches`` those that leave ``worker`` when divided by W.
    return ceil_divide(max(batches - worker, 0), team_size(division.workers))


def worker_batch(division: Division, worker: int, number: int) -> Batch:
    """The rows of a worker's batch, numbered from the beginning of the pass."""
    size = division.batch_size
    if is_sharded(division.workers, division.mode):
        first = division.begun[worker] + number * size
        end = min(first + size, rows_of_worker(division.settings, division.origin, division.workers))
        return tuple(sharded_row(division, worker, index) for index in range(first, end))
    settings, origin = division.settings, division.origin
    first = (worker + number * team_size(division.workers)) * size
    end = min(first + size, cycle.remaining(origin, settings.rows, settings.num_splits, settings.world_size, settings.rank))
    return tuple(plain_row(settings, origin, index) for index in range(first, end))


def sharded_row(division: Division, worker: int, index: int) -> int:
    """The index-th row since ``origin`` of worker w: that of rank ``r*W + w`` in a world of ``R*W`` (WRK-2)."""
    settings, workers = division.settings, division.workers
    number = division.origin.cycle * splits_per_worker(settings, workers) + index
    order = settings.order(division.origin.epoch)
    return cycle.rank_row(order, settings.num_splits, settings.world_size * workers, settings.rank * workers + worker, number)


def plain_row(settings: Settings, origin: Cursor, index: int) -> int:
    """The index-th row of the rank's sequence from a cursor: the unserved splits of its cycle, then whole cycles (CYC-2)."""
    owned = owned_splits(settings.num_splits, settings.world_size, settings.rank)
    unserved = [split for split in owned if split not in origin.served]
    if index < len(unserved):
        split, in_cycle = unserved[index], origin.cycle
    else:
        behind = index - len(unserved)
        split, in_cycle = owned[behind % len(owned)], origin.cycle + 1 + behind // len(owned)
    position = sequence_position(settings.rows, settings.num_splits, split, in_cycle)
    return settings.order(origin.epoch).row(position)

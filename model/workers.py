"""StreamingDataLoader as a transition system: one rank's loader, its dataset and its workers (chapter workers).

As in ``model.loader`` each transition is a function: its guard raises ``ModelError``, its effect is the pool that it returns,
its observation comes beside it. What workers do (``fetch``) changes nothing that can be observed; only ``deliver`` commits.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

from model import checkpoint, cycle, loader
from model.cycle import Cursor
from model.errors import ModelError
from model.loader import Settings
from model.pool import Arguments, Place, Pool, Running, Worker
from model.sharding import (
    Batch,
    Division,
    batches_of_worker,
    ceil_divide,
    check_arguments,
    is_sharded,
    length,
    rows_of_worker,
    splits_per_worker,
    team_size,
    worker_batch,
)

# What others may take from here although it is defined elsewhere.
__all__ = ["Arguments", "Place", "Pool", "Running", "Worker", "length"]


# --- observations -------------------------------------------------------------------------------------------------------------------


def remaining(pool: Pool) -> int:
    """The rows of the epoch that this rank has not received (CYC-5), away from a boundary too."""
    place = pool.place
    if place is None:
        return loader.remaining(pool.loader)
    return place.workers * rows_of_worker(pool.loader.settings, place.origin, place.workers) - sum(place.received)


def save(pool: Pool) -> dict[str, Any]:
    """``state_dict()``: refused away from a step boundary, and nowhere else (WRK-9, LAW-7)."""
    if pool.place is not None:
        raise ModelError("state.mid_step", f"take {batches_to_boundary(pool)} more batches, or floor_state_dict()")
    return loader.save(pool.loader)


def floor_state(pool: Pool) -> dict[str, Any]:
    """``floor_state_dict()``: the cycles completed over all splits of the rank (WRK-10, CKP-4)."""
    if pool.place is None:
        return loader.floor_state(pool.loader)
    settings, place = pool.loader.settings, pool.place
    cycles = place.origin.cycle + min(place.received) // splits_per_worker(settings, place.workers)
    return checkpoint.save(settings.identity(), Cursor(place.origin.epoch, cycles, ()), settings.world_size)


# --- the number of WRK-9 ------------------------------------------------------------------------------------------------------------


def promised_batches(delivered: int, workers: int, splits: int, batch_size: int, rows_left: int) -> int:
    """How many more batches lead to the next step boundary (WRK-9).

    Parameters
    ----------
    delivered : int
        d, the batches committed since the iterator started at a step boundary.
    workers, splits, batch_size : int
        W, k (the splits of one worker) and B.
    rows_left : int
        T, the rows that the rank had left at that start.
    """
    groups = delivered // workers
    period = splits // gcd(batch_size, splits)
    last = ceil_divide(rows_left, workers * batch_size)
    return workers * min((groups // period + 1) * period, last) - delivered


def batches_to_boundary(pool: Pool) -> int:
    """How many more batches, of the newest iterator's size, lead to a step boundary; 0 at one (WRK-9).

    Where the batches since the boundary were not all of that size (WRK-11), the formula says nothing, and they are counted.
    """
    if pool.place is None:
        return 0
    settings, place, size = pool.loader.settings, pool.place, pool.batch_size
    rows = rows_of_worker(settings, place.origin, place.workers)
    delivered = sum(ceil_divide(received, size) for received in place.received)
    # What the workers have given after that many batches of one size: the first ones one batch more than the others.
    batches = [ceil_divide(max(delivered - worker, 0), place.workers) for worker in range(place.workers)]
    uniform = tuple(min(number * size, rows) for number in batches)
    if place.received != uniform or place.turn != delivered % place.workers:
        return count_to_boundary(pool)
    splits = splits_per_worker(settings, place.workers)
    return promised_batches(delivered, place.workers, splits, size, place.workers * rows)


def count_to_boundary(pool: Pool) -> int:
    """The same by stepping: deliver until the place is a step boundary."""
    count = 0
    if pool.place is None:
        return count
    stepping = start(close(pool), pool.place.workers, "splits", pool.batch_size)
    while stepping.place is not None:
        stepping, _ = deliver(stepping)
        count += 1
    return count


# --- iterating ----------------------------------------------------------------------------------------------------------------------


def open_pool(settings: Settings, epoch: int = 0) -> Pool:
    """A new dataset and its loader (EPO-1)."""
    return Pool(loader.open_loader(settings, epoch))


def divide(pool: Pool, arguments: Arguments) -> Running:
    """The pass that begins now with these arguments; refused where none can (EPO-2, WRK-11, WRK-12)."""
    settings, place = pool.loader.settings, pool.place
    workers, mode, size = arguments.workers, arguments.mode, arguments.batch_size
    origin = loader.origin(pool.loader)
    sharded = is_sharded(workers, mode)
    if place is not None and not (sharded and workers == place.workers):
        raise ModelError("workers.mid_step", f"num_workers={place.workers} in documented mode, or load floor_state_dict()")
    if sharded and origin.served:
        raise ModelError("workers.partial_cycle", "finish the cycle with one worker or none, or resume with replay")

    team = tuple(Worker() for _ in range(team_size(workers)))
    if place is not None:
        return Running(Division(settings, workers, mode, size, place.origin, place.received), team, place.turn)
    return Running(Division(settings, workers, mode, size, origin, tuple(0 for _ in team)), team, 0)


def start(pool: Pool, workers: int, mode: str, batch_size: int | None) -> Pool:
    """``iter()`` of a loader with these arguments: all checks, then the iterator before it ends (DLV-4, WRK-2, WRK-11, WRK-12)."""
    arguments = Arguments(workers, mode, check_arguments(pool.loader.settings, workers, mode, batch_size))
    divide(pool, arguments)
    return replace(pool, loader=loader.start(pool.loader), waiting=arguments, running=None)


def begin(pool: Pool) -> Pool:
    """The first ``next()`` of a waiting iterator is asked: its pass begins at the place of now, and its workers start (DLV-4)."""
    if pool.waiting is None:
        return pool
    running = divide(pool, pool.waiting)
    begun = replace(pool, waiting=None, running=running, batch_size=pool.waiting.batch_size)
    if next_worker(running, running.turn) is None:
        # The pass that set_epoch asked for is empty (EPO-4).
        return replace(begun, loader=replace(pool.loader, newest="ended", asked=False), running=None)
    return replace(begun, loader=replace(pool.loader, newest="live", asked=False))


def with_worker(running: Running, index: int, worker: Worker) -> Running:
    """The iterator with one worker replaced."""
    return replace(running, team=(*running.team[:index], worker, *running.team[index + 1 :]))


def next_worker(running: Running, turn: int) -> int | None:
    """The first worker from ``turn`` on, round robin, that has a batch to deliver; None where the pass is over (WRK-3)."""
    size = len(running.team)
    for step in range(size):
        worker = (turn + step) % size
        if running.team[worker].given < batches_of_worker(running.division, worker):
            return worker
    return None


def prepared(running: Running, worker: int) -> int:
    """The batches that a worker has prepared in this pass, delivered or not."""
    return running.team[worker].given + len(running.team[worker].ready)


def fetch(pool: Pool, worker: int) -> Pool:
    """A worker prepares its next batch. Nothing that can be observed changes (LAW-7); one that fails or is spent does nothing."""
    running = pool.running
    if running is None or running.team[worker].failing:
        return pool
    number = prepared(running, worker)
    if number == batches_of_worker(running.division, worker):
        return pool
    member = running.team[worker]
    ready = (*member.ready, worker_batch(running.division, worker, number))
    return replace(pool, running=with_worker(running, worker, replace(member, ready=ready)))


def deliver(pool: Pool) -> tuple[Pool, Batch | None]:
    """``next()`` on the newest iterator: the next batch in order, committed with the return (WRK-3, WRK-6).

    A batch that is not prepared yet is waited for: its worker prepares it now. Where that worker fails, ``worker.raised`` stands
    for its exception, which ends the iterator (WRK-14, WRK-15): the pool after it is ``kill(pool)``.

    Returns
    -------
    Pool
        After the batch; its pass is over where that was the last.
    tuple of int or None
        The selected row numbers. None means StopIteration: the pass has ended, now or earlier.
    """
    pool = begin(pool)
    if pool.running is None:
        loader.refuse_over(pool.loader.newest)
        return pool, None
    worker = next_worker(pool.running, pool.running.turn)
    assert worker is not None, "a pass that is alive has rows left"
    if not pool.running.team[worker].ready:
        pool = fetch(pool, worker)
    running = pool.running
    assert running is not None, "to prepare a batch does not end the pass"
    member = running.team[worker]
    if not member.ready:
        raise ModelError("worker.raised", f"worker {worker}")
    running = with_worker(running, worker, replace(member, given=member.given + 1, ready=member.ready[1:]))
    # A spent worker is passed over now: the turn of the place is that of a worker with rows left.
    after = next_worker(running, (worker + 1) % len(running.team))
    running = replace(running, turn=0 if after is None else after)
    return commit(replace(pool, running=running), running, worker, len(member.ready[0])), member.ready[0]


def pull_older(pool: Pool) -> tuple[Pool, None]:
    """``next()`` on the iterator before the newest: it never gives a batch, and changes nothing (CAL-3)."""
    loader.refuse_over(pool.loader.older)
    return pool, None


def commit(pool: Pool, running: Running, worker: int, count: int) -> Pool:
    """A batch of that many rows of a worker counts as received (WRK-6, WRK-8); with the last one the pass is over (DLV-4)."""
    settings, division = pool.loader.settings, running.division
    # Only now does the cursor move to the epoch of the pass (EPO-2).
    cursor = pool.loader.cursor if pool.loader.cursor.epoch == division.origin.epoch else division.origin
    if not is_sharded(division.workers, division.mode):
        for _ in range(count):
            cursor = cycle.advance(cursor, settings.num_splits, settings.world_size)
        return standing(pool, cursor, None)

    before = pool.place.received if pool.place is not None else (0,) * division.workers
    received = (*before[:worker], before[worker] + count, *before[worker + 1 :])
    splits = splits_per_worker(settings, division.workers)
    if all(rows == received[0] for rows in received) and received[0] % splits == 0:
        return standing(pool, Cursor(cursor.epoch, cursor.cycle + received[0] // splits, ()), None)
    return standing(pool, cursor, Place(cursor, division.workers, received, running.turn))


def standing(pool: Pool, cursor: Cursor, place: Place | None) -> Pool:
    """The pool at a place that rows were received to."""
    after = loader.received(pool.loader, cursor)
    return replace(pool, loader=after, place=place, running=pool.running if after.newest == "live" else None)


def fail(pool: Pool, worker: int) -> Pool:
    """The batch that a worker prepares next will fail; those before it, in the order of delivery, still arrive (WRK-14)."""
    running = pool.running
    if running is None or prepared(running, worker) == batches_of_worker(running.division, worker):
        return pool
    return replace(pool, running=with_worker(running, worker, replace(running.team[worker], failing=True)))


def kill(pool: Pool) -> Pool:
    """A worker has died, a timeout, an interrupt, or what ``deliver`` raised: the iterator is over, the place is kept (WRK-15)."""
    return replace(pool, loader=loader.fail(pool.loader), waiting=None, running=None)


def close(pool: Pool) -> Pool:
    """Break, close or drop the newest iterator; a later one continues where it stopped (DLV-4, WRK-11)."""
    return replace(pool, loader=loader.close(pool.loader), waiting=None, running=None)


# --- moving -------------------------------------------------------------------------------------------------------------------------


def load(pool: Pool, state: object, accept: object = ()) -> Pool:
    """``load_state_dict(state, accept=...)``: leaves a place away from a boundary as any other (CKP-7, WRK-11)."""
    return replace(pool, loader=loader.load(pool.loader, state, accept), place=None)


def set_epoch(pool: Pool, epoch: int) -> Pool:
    """``set_epoch(epoch)``: the current epoch keeps its place, another starts at its beginning (EPO-4, WRK-11)."""
    after = loader.set_epoch(pool.loader, epoch)
    return replace(pool, loader=after, place=pool.place if epoch == pool.loader.cursor.epoch else None)


def rewind(pool: Pool) -> Pool:
    """``rewind()``: to the beginning of the current epoch (EPO-5, WRK-11)."""
    return replace(pool, loader=loader.rewind(pool.loader), place=None)

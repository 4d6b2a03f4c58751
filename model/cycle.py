"""The sequence of one rank, the cursor, steps and their inverse (chapter cycle)."""

from __future__ import annotations

from dataclasses import dataclass

from model.assignment import first_split, owned_splits, owner, sequence_position, split_length, splits_per_rank
from model.order import Order


@dataclass(frozen=True)
class Cursor:
    """A dataset's place (TRM-9).

    Parameters
    ----------
    epoch : int
        The epoch that the place belongs to.
    cycle : int
        C, the completed cycles, ``0 <= C <= L``.
    served : tuple of int
        The splits, over all ranks, already received in cycle C: strictly ascending, never all S, empty where ``C == L``.
    """

    epoch: int
    cycle: int
    served: tuple[int, ...]


@dataclass(frozen=True)
class Due:
    """Where and when a row is due in an epoch (CYC-7).

    Parameters
    ----------
    split, cycle : int
        The split that serves the row, and the cycle in which it does.
    rank, number : int
        The rank that receives it, and its number j in that rank's sequence.
    step, index : int
        The batch of that rank which holds it, and its index in the batch.
    """

    split: int
    cycle: int
    rank: int
    number: int
    step: int
    index: int


def next_split(cursor: Cursor, num_splits: int, world_size: int, rank: int) -> int:
    """The split that serves the next row of a rank: its first unserved one (CYC-2).

    There always is one: all ranks own equally many unserved splits (RES-4, CYC-3), and ``served`` never holds all (TRM-9).
    """
    served = set(cursor.served)
    for split in owned_splits(num_splits, world_size, rank):
        if split not in served:
            return split
    raise AssertionError("every rank owns an unserved split")


def advance(cursor: Cursor, num_splits: int, world_size: int) -> Cursor:
    """The common cursor after every rank has received one more row (CYC-3).

    A rank alone calls this too: its cursor is the one that all ranks have at its step (CYC-4).
    """
    added = [next_split(cursor, num_splits, world_size, rank) for rank in range(world_size)]
    served = tuple(sorted(list(cursor.served) + added))
    if len(served) == num_splits:
        return Cursor(cursor.epoch, cursor.cycle + 1, ())
    return Cursor(cursor.epoch, cursor.cycle, served)


def owned_served(served: tuple[int, ...], num_splits: int, world_size: int, rank: int) -> int:
    """How many splits of ``served`` a rank owns."""
    return len([split for split in served if owner(num_splits, world_size, split) == rank])


def remaining(cursor: Cursor, rows: int, num_splits: int, world_size: int, rank: int) -> int:
    """The rows that a rank has not yet received in the cursor's epoch (CYC-5)."""
    return rows_left(rows, num_splits, world_size, cursor.cycle, owned_served(cursor.served, num_splits, world_size, rank))


def rows_left(rows: int, num_splits: int, world_size: int, cycle: int, served: int) -> int:
    """The rows left of an epoch on a rank that has received, in this cycle, the rows of that many splits of its own (CYC-5)."""
    return splits_per_rank(num_splits, world_size) * (split_length(rows, num_splits) - cycle) - served


def length(rows: int, num_splits: int, world_size: int) -> int:
    """The rows of a fresh epoch on every rank (CYC-5)."""
    return splits_per_rank(num_splits, world_size) * split_length(rows, num_splits)


def rank_row(order: Order, num_splits: int, world_size: int, rank: int, number: int) -> int:
    """The selected row number of row j of a fresh rank (CYC-1)."""
    n = splits_per_rank(num_splits, world_size)
    split = first_split(num_splits, world_size, rank) + number % n
    return order.row(sequence_position(order.rows, num_splits, split, number // n))


def step_numbers(rows: int, num_splits: int, world_size: int, batch_size: int, step: int) -> tuple[int, int]:
    """The number of the first row of step t in a rank's sequence, and the number after its last (CYC-6)."""
    end = length(rows, num_splits, world_size)
    return min(step * batch_size, end), min((step + 1) * batch_size, end)


def step_rows(order: Order, num_splits: int, world_size: int, rank: int, batch_size: int, step: int) -> tuple[int, ...]:  # noqa: PLR0917
    """The selected row numbers of step t of a rank in a fresh epoch; empty after the last step (CYC-6)."""
    first, end = step_numbers(order.rows, num_splits, world_size, batch_size, step)
    return tuple(rank_row(order, num_splits, world_size, rank, number) for number in range(first, end))


def due(order: Order, num_splits: int, world_size: int, batch_size: int, row: int) -> Due | None:
    """Where and when a selected row is due in a fresh epoch; None where it is left out (CYC-7)."""
    n = splits_per_rank(num_splits, world_size)
    size = split_length(order.rows, num_splits)
    position = order.position(row)
    if position >= num_splits * size:
        return None
    split = position // size
    cycle = position % size
    number = cycle * n + split % n
    return Due(split, cycle, owner(num_splits, world_size, split), number, number // batch_size, number % batch_size)

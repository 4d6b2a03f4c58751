"""Splits and ranks: who owns what (chapter assignment).

Plain ints in, plain ints out, without a branch or a loop, so that z3 can run these very functions on symbols. They
assume ASG-1 and ASG-2 (checked in ``model.loader.Settings``): ``1 <= S <= N``, R divides S, ``0 <= r < R``.
"""

from __future__ import annotations


def split_length(rows: int, num_splits: int) -> int:
    """L, the rows of one split (TRM-3)."""
    return rows // num_splits


def splits_per_rank(num_splits: int, world_size: int) -> int:
    """n, the splits of one rank (ASG-3)."""
    return num_splits // world_size


def first_split(num_splits: int, world_size: int, rank: int) -> int:
    """The first split of a rank's block (ASG-3)."""
    return rank * (num_splits // world_size)


def owner(num_splits: int, world_size: int, split: int) -> int:
    """The rank that owns a split (ASG-3)."""
    return split // (num_splits // world_size)


def sequence_position(rows: int, num_splits: int, split: int, cycle: int) -> int:
    """The position, in the epoch's sequence, of the row that a split serves in a cycle (ASG-4)."""
    return split * (rows // num_splits) + cycle


def owned_splits(num_splits: int, world_size: int, rank: int) -> range:
    """The splits of a rank, ascending (ASG-3)."""
    first = first_split(num_splits, world_size, rank)
    return range(first, first + splits_per_rank(num_splits, world_size))

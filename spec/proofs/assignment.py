"""Chapter assignment, and WRK-2: splits, ranks and workers own blocks that overlap nowhere and leave nothing out."""

# Functions that stand in for others have the same arguments, used or not.
# ruff: noqa: ARG005
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from model import assignment, sharding
from spec.proofs.check import Check
from spec.proofs.lemma import Lemma, Mutant


def splits_and_ranks(check: Check) -> tuple[int, int, int]:
    """Any S and R with ASG-2, and n."""
    num_splits, world_size = check.integers("S R")
    check.given(num_splits >= 1, world_size >= 1)
    check.given(num_splits % world_size == 0)
    n = assignment.splits_per_rank(num_splits, world_size)
    check.product(n, 0, world_size)
    check.have(n >= 1, num_splits == world_size * n)
    return num_splits, world_size, n


def rows_of(check: Check, num_splits: int) -> tuple[int, int]:
    """Any N with ASG-1, and L."""
    (rows,) = check.integers("N")
    check.given(rows >= num_splits)
    size = assignment.split_length(rows, num_splits)
    check.product(size, 0, num_splits)
    check.have(size >= 1)
    return rows, size


def worker_splits(check: Check, num_splits: int, world_size: int, n: int) -> tuple[int, int]:
    """Any W with WRK-2, and k."""
    (workers,) = check.integers("W")
    check.given(workers >= 1)
    check.given(n % workers == 0)
    settings: Any = SimpleNamespace(num_splits=num_splits, world_size=world_size)
    k = sharding.splits_per_worker(settings, workers)
    check.product(k, 0, workers)
    check.have(k >= 1, n == workers * k)
    return workers, k


def blocks_cover(check: Check) -> None:
    """Every split lies in the block of the rank that ``owner`` names, and that rank exists."""
    num_splits, world_size, n = splits_and_ranks(check)
    (split,) = check.integers("s")
    check.given(split >= 0, split < num_splits)
    rank = assignment.owner(num_splits, world_size, split)
    check.product(world_size, rank, n)
    check.claim("the owner is a rank", (rank >= 0) & (rank < world_size))
    first = assignment.first_split(num_splits, world_size, rank)
    check.claim("its block has the split", (first <= split) & (split < first + assignment.splits_per_rank(num_splits, world_size)))


def blocks_disjoint(check: Check) -> None:
    """A split in the block of a rank exists, and ``owner`` names that rank: so no split lies in two blocks."""
    num_splits, world_size, n = splits_and_ranks(check)
    rank, split = check.integers("r s")
    check.given(rank >= 0, rank < world_size, split >= rank * n, split < (rank + 1) * n)
    check.product(0, rank, n)
    check.product(rank + 1, world_size, n)
    check.claim("the split exists", (split >= 0) & (split < num_splits))
    check.quotient(split, n, rank)
    check.claim("its owner is this rank", assignment.owner(num_splits, world_size, split) == rank)
    check.claim("the block begins there", assignment.first_split(num_splits, world_size, rank) == rank * n)


def worker_blocks(check: Check) -> None:
    """Each split of a rank belongs to one worker, rank ``r*W + w`` of a world of ``R*W``: the w-th sub-block of k splits."""
    num_splits, world_size, n = splits_and_ranks(check)
    workers, k = worker_splits(check, num_splits, world_size, n)
    rank, split = check.integers("r s")
    first = assignment.first_split(num_splits, world_size, rank)
    check.given(rank >= 0, rank < world_size, split >= first, split < first + n)
    check.product(0, rank, n)
    check.product(1, world_size * workers, k)
    check.product(1, world_size, workers)
    check.quotient(num_splits, world_size * workers, k)
    check.claim("R*W divides S", num_splits % (world_size * workers) == 0)
    check.claim("k is n of that world", assignment.splits_per_rank(num_splits, world_size * workers) == k)
    member = assignment.owner(num_splits, world_size * workers, split)
    check.product(member + 1, rank * workers, k)
    check.product((rank + 1) * workers, member, k)
    check.quotient(member, workers, rank)
    check.claim("the member is one of this rank", member // workers == rank)
    worker = member % workers
    check.claim("it is a worker", (worker >= 0) & (worker < workers))
    own = assignment.first_split(num_splits, world_size * workers, rank * workers + worker)
    check.claim("its sub-block is the w-th", own == first + worker * k)
    check.claim("which has the split", (own <= split) & (split < own + k))


def positions_forth(check: Check) -> None:
    """Row i of split s stands at a position below S*L, and split and row are found from it again."""
    num_splits, _, _ = splits_and_ranks(check)
    rows, size = rows_of(check, num_splits)
    split, cycle = check.integers("s i")
    check.given(split >= 0, split < num_splits, cycle >= 0, cycle < size)
    position = assignment.sequence_position(rows, num_splits, split, cycle)
    check.product(0, split, size)
    check.product(split + 1, num_splits, size)
    check.claim("it is one of the first S*L", (position >= 0) & (position < num_splits * size))
    check.claim("it is one of the N, and fewer than S are left out", (num_splits * size <= rows) & (rows < num_splits * size + num_splits))
    check.quotient(position, size, split)
    check.claim("the split is found again", position // size == split)
    check.claim("the row is found again", position % size == cycle)


def positions_back(check: Check) -> None:
    """Each position below S*L is that of a row of a split."""
    num_splits, _, _ = splits_and_ranks(check)
    rows, size = rows_of(check, num_splits)
    (position,) = check.integers("p")
    check.given(position >= 0, position < num_splits * size)
    split, cycle = position // size, position % size
    check.product(num_splits, split, size)
    check.claim("the split exists", (split >= 0) & (split < num_splits))
    check.claim("the row exists", (cycle >= 0) & (cycle < size))
    check.claim("it stands there", assignment.sequence_position(rows, num_splits, split, cycle) == position)


LEMMAS = (
    Lemma(
        "every split has an owner",
        ("ASG-3",),
        blocks_cover,
        Mutant(assignment.owner, lambda num_splits, world_size, split: split // world_size, "owner: s // R"),
    ),
    Lemma(
        "no split has two owners",
        ("ASG-3",),
        blocks_disjoint,
        Mutant(assignment.first_split, lambda num_splits, world_size, rank: rank * (num_splits // world_size) + 1, "first_split: r*n + 1"),
    ),
    Lemma(
        "workers share a rank's block",
        ("WRK-2", "ASG-3"),
        worker_blocks,
        Mutant(assignment.owner, lambda num_splits, world_size, split: (split + 1) // (num_splits // world_size), "owner: (s + 1) // n"),
    ),
    Lemma(
        "positions of splits",
        ("ASG-4", "TRM-3"),
        positions_forth,
        Mutant(
            assignment.sequence_position,
            lambda rows, num_splits, split, cycle: split * (rows // num_splits) + cycle + 1,
            "sequence_position: s*L + i + 1",
        ),
    ),
    Lemma(
        "splits of positions",
        ("ASG-4", "TRM-3"),
        positions_back,
        Mutant(
            assignment.sequence_position,
            lambda rows, num_splits, split, cycle: split + cycle * num_splits,
            "sequence_position: s + i*S",
        ),
    ),
)

"""What a pass with workers must deliver, by a witness who only counts rows (for ``model.world_workers``).

The witness of ``model.ghost`` knows what is still owed. From that alone follows every batch of the next pass: which rows each worker
has left, how they are cut, and whose turn it is. No cursor, no place and no count of batches is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from model.ghost import Debt, Plan
from model.sharding import Batch

Course = tuple[Batch, ...]
"""The batches of one rank's pass, in order of delivery, as items (see ``model.ghost``)."""


@dataclass(frozen=True)
class Share:
    """The arguments of a loader: W, the mode and B."""

    workers: int
    mode: str
    batch_size: int

    @property
    def sharded(self) -> bool:
        """Whether each worker has splits of its own."""
        return self.mode == "splits" and self.workers > 1

    @property
    def team(self) -> int:
        """How many prepare batches."""
        return 1 if self.workers == 0 else self.workers


@dataclass(frozen=True)
class Standing:
    """What follows from a debt.

    Parameters
    ----------
    start : int
        The first global cycle of which an item is owed.
    served : tuple of int
        The splits whose item of that cycle is not owed any more.
    left : tuple of int
        For each split the items of that cycle's epoch that are owed.
    """

    start: int
    served: tuple[int, ...]
    left: tuple[int, ...]


def stand(plan: Plan, debt: Debt) -> Standing:
    """Look at a debt; a run that is over counts as one in the epoch after its last."""
    length = plan.rows // plan.num_splits
    owed = [cycle for cycle, count in zip(plan.cycle_of, debt, strict=True) if cycle is not None and count > 0]
    start = min(owed, default=plan.cycles)
    served, left = set(range(plan.num_splits)), [0] * plan.num_splits
    for item, count in enumerate(debt):
        split, cycle = plan.split_of[item], plan.cycle_of[item]
        if split is None or cycle is None or count == 0:
            continue
        if cycle == start:
            served.discard(split)
        if cycle // length == start // length:
            left[split] += 1
    return Standing(start, tuple(sorted(served)) if owed else (), tuple(left))


def rank_of(plan: Plan, item: int, world_size: int) -> int:
    """The rank of a world that owns an item, by proportion (ASG-3); with R*W for R, the worker (WRK-2)."""
    split = plan.split_of[item]
    assert split is not None, "an item that the epoch leaves out belongs to nobody"
    return split * world_size // plan.num_splits


def cut(items: list[int], size: int) -> list[Batch]:
    """Batches of that size, the last one shorter."""
    return [tuple(items[at : at + size]) for at in range(0, len(items), size)]


def course_of(plan: Plan, debt: Debt, world_size: int, rank: int, share: Share, turn: int) -> Course:  # noqa: PLR0917
    """The batches that a pass from here delivers (WRK-2, WRK-3, WRK-4, CYC-2)."""
    length = plan.rows // plan.num_splits
    epoch = stand(plan, debt).start // length
    owed = []
    for item, count in enumerate(debt):
        cycle, split = plan.cycle_of[item], plan.split_of[item]
        if cycle is not None and count > 0 and cycle // length == epoch and rank_of(plan, item, world_size) == rank:
            owed.append((cycle, split, item))
    items = [item for _, _, item in sorted(owed)]
    if not share.sharded:
        return tuple(cut(items, share.batch_size))

    piles = []
    for worker in range(share.workers):
        mine = [item for item in items if rank_of(plan, item, world_size * share.workers) == rank * share.workers + worker]
        piles.append(cut(mine, share.batch_size))
    course = []
    worker = turn
    while any(piles):
        if piles[worker]:
            course.append(piles[worker].pop(0))
        worker = (worker + 1) % share.workers
    return tuple(course)


def worker_of(plan: Plan, course: Course, at: int, world_size: int, rank: int, share: Share) -> int:  # noqa: PLR0917
    """The worker that prepares a batch of a course."""
    if share.sharded:
        return rank_of(plan, course[at][0], world_size * share.workers) - rank * share.workers
    return at % share.team


def batches_of(plan: Plan, course: Course, at: int, world_size: int, rank: int, share: Share, worker: int) -> list[int]:  # noqa: PLR0917
    """Where in a course, from ``at`` on, the batches of one worker are."""
    return [index for index in range(at, len(course)) if worker_of(plan, course, index, world_size, rank, share) == worker]

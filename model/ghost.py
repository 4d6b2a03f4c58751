"""What a run owes its trainer, kept beside the system by a witness who only counts rows (for ``model.world``).

The witness knows the sequence of every epoch (TRM-2, TRM-3), which rows each rank has received, and which of them were
in the weights when a rank saved. It never looks at a cursor or into a state, so it can judge both.

An *item* is a row of an epoch, as the number ``epoch * N + row``. A *global cycle* counts cycles through all epochs:
``epoch * L + cycle``. The *debt* has one count per item: how often it must still be received, 0 for the rows left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from model.loader import Settings

Debt = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What an uninterrupted run receives, written out.

    Parameters
    ----------
    rows, num_splits, epochs : int
        N, S, and how many epochs the run has.
    cycle_of : tuple
        For each item its global cycle, None for a row that the epoch leaves out (TRM-3).
    split_of : tuple
        For each item its split, None likewise.
    """

    rows: int
    num_splits: int
    epochs: int
    cycle_of: tuple[int | None, ...]
    split_of: tuple[int | None, ...]

    @property
    def cycles(self) -> int:
        """The global cycles of the whole run; also the global cycle of a run that is over."""
        return self.epochs * (self.rows // self.num_splits)


def make_plan(settings: Settings, epochs: int) -> Plan:
    """Write the sequences down, epoch by epoch, split by split (TRM-3, TRM-4)."""
    size = settings.rows // settings.num_splits
    cycle_of: list[int | None] = [None] * (epochs * settings.rows)
    split_of: list[int | None] = [None] * (epochs * settings.rows)
    for epoch in range(epochs):
        order = settings.order(epoch)
        for split in range(settings.num_splits):
            for cycle in range(size):
                item = epoch * settings.rows + order.row(split * size + cycle)
                cycle_of[item] = epoch * size + cycle
                split_of[item] = split
    return Plan(settings.rows, settings.num_splits, epochs, tuple(cycle_of), tuple(split_of))


def first_debt(plan: Plan) -> Debt:
    """The debt of a fresh run: every row of every epoch once, but those left out."""
    return tuple(0 if cycle is None else 1 for cycle in plan.cycle_of)


def pay(debt: Debt, received: Iterable[tuple[int, ...]]) -> Debt:
    """The debt after some ranks received some items."""
    left = list(debt)
    for items in received:
        for item in items:
            left[item] -= 1
    return tuple(left)


def incomplete_cycle(plan: Plan, debt: Debt) -> int:
    """The first global cycle of which an item is still owed; ``plan.cycles`` where nothing is."""
    owed = [cycle for cycle, count in zip(plan.cycle_of, debt, strict=True) if cycle is not None and count > 0]
    return min(owed, default=plan.cycles)


def owe_again(plan: Plan, debt: Debt) -> Debt:
    """The debt after a replay: every item of the first incomplete cycle and of all later ones once, the others not again.

    Of one consistent set of states nothing beyond the incomplete cycle was received, so what comes twice is the partial
    cycle and nothing else (LAW-2). Of a torn set it is whatever a rank had received beyond the slowest (LAW-9).
    """
    start = incomplete_cycle(plan, debt)
    return tuple(0 if cycle is None or cycle < start else 1 for cycle in plan.cycle_of)


def splits_in_cycle(plan: Plan, debt: Debt, cycle: int, owed: bool) -> list[int]:
    """The splits whose item of a global cycle is still owed (or is not), ascending."""
    splits = []
    for item, count in enumerate(debt):
        split = plan.split_of[item]
        if split is not None and plan.cycle_of[item] == cycle and (count > 0) == owed:
            splits.append(split)
    return sorted(splits)


def per_rank(splits: list[int], num_splits: int, world_size: int) -> list[int]:
    """How many of some splits each rank of a world owns, by proportion (ASG-3)."""
    counts = [0] * world_size
    for split in splits:
        counts[split * world_size // num_splits] += 1
    return counts

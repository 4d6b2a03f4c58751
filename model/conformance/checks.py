"""What a check is: a generator of scenarios, smallest first, that says which clauses they are about."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from model.conformance.scenario import Step

Scenarios = Iterator[list[Step]]


@dataclass(frozen=True)
class Bound:
    """How far the exhaustive layer goes.

    Parameters
    ----------
    sizes : tuple of (int, int)
        The (N, S) that are tried.
    batch_sizes, workers : tuple of int
        B and W.
    shuffle : bool
        Whether shuffled orders are tried too.
    """

    sizes: tuple[tuple[int, int], ...]
    batch_sizes: tuple[int, ...] = (1, 2, 3)
    workers: tuple[int, ...] = (2,)
    shuffle: bool = True

    def orders(self) -> Iterator[dict[str, Any]]:
        """Unshuffled, and one shuffled order."""
        yield {}
        if self.shuffle:
            yield {"shuffle": True, "shuffle_seed": 3}


SMOKE: Final = Bound(((4, 2),), (1, 2), (2,))
SMALL: Final = Bound(((2, 2), (4, 2), (5, 2), (7, 2), (6, 3), (8, 4), (9, 4)), (1, 2, 3), (2,))
LARGE: Final = Bound((*SMALL.sizes, (13, 6), (24, 12)), (1, 2, 3, 5), (2, 3, 4))


@dataclass(frozen=True)
class Check:
    """One kind of scenario.

    Parameters
    ----------
    name : str
        For the report.
    clauses : tuple of str
        What the scenarios judge: each step names one of them, or has its usual one.
    needs : frozenset of str
        Capabilities without which none of it can be done.
    scenarios : callable
        From a bound to scenarios, smallest first.
    whole : bool
        Whether the rows of a scenario are judged together (`model.conformance.losses`), not step by step. Such scenarios are no vectors.
    """

    name: str
    clauses: tuple[str, ...]
    needs: frozenset[str]
    scenarios: Callable[[Bound], Scenarios]
    whole: bool = False


CHECKS: list[Check] = []


def check(
    *clauses: str, needs: tuple[str, ...] = (), whole: bool = False
) -> Callable[[Callable[[Bound], Scenarios]], Callable[[Bound], Scenarios]]:
    """Register a generator of scenarios."""

    def register(scenarios: Callable[[Bound], Scenarios]) -> Callable[[Bound], Scenarios]:
        CHECKS.append(Check(scenarios.__name__, clauses, frozenset(needs), scenarios, whole))
        return scenarios

    return register


def divisors(number: int) -> list[int]:
    """All of them, ascending."""
    return [one for one in range(1, number + 1) if number % one == 0]


def worlds(bound: Bound) -> Iterator[tuple[dict[str, Any], int, int]]:
    """World arguments with num_splits, a world size, a batch size."""
    for (rows, splits), order in itertools.product(bound.sizes, bound.orders()):
        for world_size, batch_size in itertools.product(divisors(splits), bound.batch_sizes):
            common = {"rows": rows, "num_splits": splits, "world_size": world_size, "batch_size": batch_size, **order}
            yield common, world_size, -(-(splits // world_size) * (rows // splits) // batch_size)


def mid_cycle(common: dict[str, Any], batches: int) -> bool:
    """Whether a rank has begun and not finished a cycle after so many batches, without workers that own splits."""
    splits: int = common["num_splits"] // common.get("world_size", 1)
    rows: int = min(batches * common.get("batch_size", 1), splits * (common["rows"] // common["num_splits"]))
    return rows % splits != 0


def opened(name: str, common: dict[str, Any], **others: Any) -> Step:
    """An open step without defaults."""
    return {"open": name, **common, **others}


def resumed(common: dict[str, Any], states: list[str], clause: str) -> list[Step]:
    """All ranks of a world resume, each from its state."""
    steps: list[Step] = []
    for rank, state in enumerate(states):
        name = f"b{rank}"
        steps += [opened(name, common, rank=rank), {"load": name, "state": state, "clause": clause}, {"drain": name, "clause": clause}]
    return steps

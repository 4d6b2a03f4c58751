"""Chapter checkpoint: what a resume repeats, and that merging a torn set loses nothing (LAW-9)."""

from __future__ import annotations

from typing import Any

from model import assignment, checkpoint, cycle
from spec.proofs.assignment import rows_of, splits_and_ranks
from spec.proofs.check import Check
from spec.proofs.cycle import due_row
from spec.proofs.lemma import Lemma, Mutant


def save_points(check: Check) -> None:
    """After t steps no cycle is begun, so that nothing comes twice, exactly where ``t*B*R`` is a multiple of S."""
    num_splits, world_size, n = splits_and_ranks(check)
    batch_size, steps = check.integers("B t")
    check.given(batch_size >= 1, steps >= 0)
    whole = (steps * batch_size) // n
    check.product(n * whole, steps * batch_size, world_size)
    check.product(steps * batch_size + 1, n * whole + n, world_size)
    check.quotient(steps * batch_size * world_size, num_splits, whole)
    check.product(1, (steps * batch_size) % n, world_size)
    begun = (steps * batch_size) % assignment.splits_per_rank(num_splits, world_size)
    check.claim("S divides t*B*R where n divides t*B", check.same(begun == 0, (steps * batch_size * world_size) % num_splits == 0))


def replayed(check: Check) -> None:
    """Rows ``C*n .. C*n + a - 1`` of a rank are those of cycle C in its first a splits: what comes twice after a replay.

    So a rank that had received a rows of cycle C receives just these again, as many as ``rows_left`` grows by.
    """
    num_splits, world_size, n = splits_and_ranks(check)
    due, at = due_row(check, (num_splits, world_size, n), 1)
    rows, completed, served, split = check.integers("N C a s")
    check.given(completed >= 0, completed < assignment.split_length(rows, num_splits), served >= 0, served < n)
    first = assignment.first_split(num_splits, world_size, due.rank)
    again = (due.number >= completed * n) & (due.number < completed * n + served)
    check.have(split - first == split % n)
    check.product(at + 1, completed, n)
    check.product(completed + 1, at, n)
    check.claim("cycle C, and one of the first splits", check.same(again, (at == completed) & (split < first + served)))
    before = cycle.rows_left(rows, num_splits, world_size, completed, served)
    check.claim("so many more are left", cycle.rows_left(rows, num_splits, world_size, completed, 0) == before + served)


def torn_set(check: Check) -> None:
    """Of the states of three ranks, the one that ``merge`` takes is at or before each, counted in rows of a rank.

    A state at ``(e, C)`` with a own splits served stands after ``e*n*L + C*n + a`` rows. More ranks: the smallest of all is the smaller
    of the last and the smallest of the others.
    """
    num_splits, _, n = splits_and_ranks(check)
    _, size = rows_of(check, num_splits)
    states: list[dict[str, Any]] = []
    counts: list[int] = []
    for names in ("e C a", "f D b", "g E c"):
        epoch, completed, served = check.integers(names)
        check.given(epoch >= 0, completed >= 0, completed <= size, served >= 0, served < n)
        check.given(check.implies(completed == size, served == 0))
        states.append({"epoch": epoch, "samples_consumed_per_split": [completed]})
        counts.append((epoch * size + completed) * n + served)
    taken = min(states, key=checkpoint.place)
    cycles = taken["epoch"] * size + taken["samples_consumed_per_split"][0]
    for state, count in zip(states, counts, strict=True):
        # In cycles first: one epoch less is worth at least all cycles of it.
        check.product(taken["epoch"] + 1, state["epoch"], size)
        check.product(cycles, state["epoch"] * size + state["samples_consumed_per_split"][0], n)
        check.claim("no rank resumes after its own place", cycles * n <= count)


def cycles_first(state: dict[str, Any]) -> tuple[int, int]:
    """Wrong: compares cycles before epochs."""
    return state["samples_consumed_per_split"][0], state["epoch"]


def rows_left_from_next_cycle(rows: int, num_splits: int, world_size: int, cycle: int, served: int) -> int:
    """Wrong: the cycle begun counts as over."""
    return (num_splits // world_size) * (rows // num_splits - cycle - (1 if served > 0 else 0))


LEMMAS = (
    Lemma(
        "saving where nothing comes twice",
        ("CYC-4",),
        save_points,
        Mutant(assignment.splits_per_rank, lambda num_splits, world_size: num_splits // world_size + 1, "splits_per_rank: n + 1"),
    ),
    Lemma(
        "what a replay repeats",
        ("RES-3",),
        replayed,
        Mutant(cycle.rows_left, rows_left_from_next_cycle, "rows_left: a cycle begun is over"),
    ),
    Lemma("a torn set goes back far enough", ("MRG-2", "LAW-9"), torn_set, Mutant(checkpoint.place, cycles_first, "place: (C, epoch)")),
)

"""Chapter cycle: the sequence of a rank, steps, and the inverse, for any order of the rows (LAW-5 is supposed)."""

# Functions that stand in for others have the same arguments, used or not.
# ruff: noqa: ARG001
from __future__ import annotations

from dataclasses import replace
from typing import Any

from model import assignment, cycle
from spec.proofs.assignment import rows_of, splits_and_ranks
from spec.proofs.check import Check
from spec.proofs.lemma import Lemma, Mutant


def has_position(check: Check, num_splits: int, size: int, split: int, at: int) -> None:
    """Steps: the position of row ``at`` of a split lies below S*L, and leads back to both."""
    check.product(0, split, size)
    check.product(split + 1, num_splits, size)
    check.have(split * size + at >= 0, split * size + at < num_splits * size)
    check.quotient(split * size + at, size, split)


def due_after_row(check: Check) -> None:
    """Row j of rank r is due on rank r as its row j; so no row comes twice, and ``due`` tells when each comes."""
    num_splits, world_size, n = splits_and_ranks(check)
    rows, size = rows_of(check, num_splits)
    rank, number, batch_size = check.integers("r j B")
    check.given(rank >= 0, rank < world_size, batch_size >= 1, number >= 0, number < n * size)
    check.claim("len is n*L", cycle.length(rows, num_splits, world_size) == n * size)
    at, split = number // n, rank * n + number % n
    check.product(size, at, n)
    check.product(0, rank, n)
    check.product(rank + 1, world_size, n)
    check.have(at >= 0, at < size, split >= 0, split < num_splits)
    has_position(check, num_splits, size, split, at)
    order: Any = check.order(rows)
    due = cycle.due(order, num_splits, world_size, batch_size, cycle.rank_row(order, num_splits, world_size, rank, number))
    assert due is not None
    check.claim("split r*n + j % n", due.split == split)
    check.claim("cycle j // n", due.cycle == at)
    check.quotient(split, n, rank)
    check.claim("on this rank", due.rank == rank)
    check.claim("as row j", due.number == number)
    check.claim("in step j // B", (due.step * batch_size <= number) & (number < (due.step + 1) * batch_size))
    check.claim("at that index", (due.index == number - due.step * batch_size) & (due.index >= 0) & (due.index < batch_size))


def row_after_due(check: Check) -> None:
    """A row that is due comes where ``due`` says; a row that is not stands behind the splits. So every row of a split comes."""
    num_splits, world_size, n = splits_and_ranks(check)
    rows, size = rows_of(check, num_splits)
    row, batch_size = check.integers("k B")
    check.given(row >= 0, row < rows, batch_size >= 1)
    order: Any = check.order(rows)
    position = order.position(row)
    due = cycle.due(order, num_splits, world_size, batch_size, row)
    if due is None:
        check.claim("only rows of no split are never due", position >= num_splits * size)
        return
    check.claim("rows of no split are never due", position < num_splits * size)
    split, at = position // size, position % size
    check.product(num_splits, split, size)
    rank = split // n
    check.product(world_size, rank, n)
    check.claim("the rank exists", (due.rank >= 0) & (due.rank < world_size))
    check.product(at + 1, size, n)
    check.claim("it has such a row", (due.number >= 0) & (due.number < cycle.length(rows, num_splits, world_size)))
    check.quotient(at * n + split % n, n, at)
    check.have(due.number % n == split % n)
    check.claim("which is this one", cycle.rank_row(order, num_splits, world_size, due.rank, due.number) == row)


def whole_cycles(check: Check, num_splits: int, world_size: int, n: int) -> tuple[int, int]:
    """Any B with R*B a multiple of S, and the cycles of a global step: ``B = n * cycles``."""
    (batch_size,) = check.integers("B")
    check.given(batch_size >= 1)
    check.given((world_size * batch_size) % num_splits == 0)
    cycles = (world_size * batch_size) // num_splits
    # Both sides times R are R*B.
    check.product(batch_size + 1, n * cycles, world_size)
    check.product(n * cycles + 1, batch_size, world_size)
    check.have(batch_size == n * cycles)
    check.product(cycles, 0, n)
    check.have(cycles >= 1)
    return batch_size, cycles


def due_row(check: Check, world: tuple[int, int, int], batch_size: int) -> tuple[cycle.Due, int]:
    """When the row is due that any split serves in any cycle, and that cycle."""
    num_splits, world_size, n = world
    rows, size = rows_of(check, num_splits)
    split, at = check.integers("s i")
    check.given(split >= 0, split < num_splits, at >= 0, at < size)
    has_position(check, num_splits, size, split, at)
    order: Any = check.order(rows)
    due = cycle.due(order, num_splits, world_size, batch_size, order.row(assignment.sequence_position(rows, num_splits, split, at)))
    assert due is not None
    check.have(due.number == at * n + split % n)
    return due, at


def global_steps(check: Check) -> None:
    """With R*B a multiple of S, row i of split s is due in global step t where ``t*R*B/S <= i < (t+1)*R*B/S``, whatever R."""
    num_splits, world_size, n = world = splits_and_ranks(check)
    batch_size, cycles = whole_cycles(check, num_splits, world_size, n)
    due, at = due_row(check, world, batch_size)
    (step,) = check.integers("t")
    group = at // cycles
    check.product(cycles * group, at, n)
    check.product(at + 1, cycles * group + cycles, n)
    check.quotient(due.number, batch_size, group)
    check.claim("its step is i // (R*B/S)", due.step == group)
    check.quotient(step * world_size * batch_size, num_splits, step * cycles)
    check.quotient((step + 1) * world_size * batch_size, num_splits, (step + 1) * cycles)
    begin, end = (step * world_size * batch_size) // num_splits, ((step + 1) * world_size * batch_size) // num_splits
    check.product(group + 1, step, cycles)
    check.product(step + 1, group, cycles)
    check.claim("it is in step t where its cycle is", check.same(due.step == step, (begin <= at) & (at < end)))


def resumed_global_steps(check: Check) -> None:
    """The same in a pass from ``(C, ())``, whose batches begin at row C*n of each rank: cycle i lies in batch ``(i - C) // (R*B/S)``."""
    num_splits, world_size, n = world = splits_and_ranks(check)
    batch_size, cycles = whole_cycles(check, num_splits, world_size, n)
    due, at = due_row(check, world, batch_size)
    (completed,) = check.integers("C")
    check.given(completed >= 0)
    group = (at - completed) // cycles
    check.product(completed, at, n)
    check.product(at + 1, completed, n)
    check.claim("rows of the cycles left are those from C*n on", check.same(due.number >= completed * n, at >= completed))
    check.product(cycles * group, at - completed, n)
    check.product(at - completed + 1, cycles * group + cycles, n)
    check.quotient(due.number - completed * n, batch_size, group)
    check.claim("its batch depends on its cycle alone", (due.number - completed * n) // batch_size == group)


def step_numbers(check: Check) -> None:
    """Row j lies between the numbers of step t exactly where ``t == j // B``: steps cut the sequence, and the last may be shorter."""
    num_splits, world_size, n = splits_and_ranks(check)
    rows, size = rows_of(check, num_splits)
    number, batch_size, step = check.integers("j B t")
    check.given(batch_size >= 1, step >= 0, number >= 0)
    first, end = cycle.step_numbers(rows, num_splits, world_size, batch_size, step)
    at = number // batch_size
    check.product(step + 1, at, batch_size)
    check.product(at + 1, step, batch_size)
    within = (first <= number) & (number < end)
    check.claim("it is in its step", check.same(within, (at == step) & (number < n * size)))
    check.claim("no step has more than B rows", (end - first <= batch_size) & (end >= first))


def resumed_steps(check: Check) -> None:
    """A pass from ``(C, ())`` begins with a step of the fresh epoch exactly where C*n is a multiple of B, or C*S one of R*B."""
    num_splits, world_size, n = splits_and_ranks(check)
    rows, size = rows_of(check, num_splits)
    completed, batch_size, batch, step = check.integers("C B t u")
    check.given(completed >= 0, completed < size, batch_size >= 1, batch >= 0, step >= 0)
    number = completed * n + batch * batch_size
    check.given(number < n * size)
    whole = (completed * n) // batch_size
    # If it is step u, then C*n = (u - t) * B.
    first, _ = cycle.step_numbers(rows, num_splits, world_size, batch_size, step)
    check.product(step - batch, whole, batch_size)
    check.product(whole, step - batch, batch_size)
    check.product(whole + 1, step - batch, batch_size)
    check.claim("where it is one, C*n is a multiple", check.implies(first == number, (completed * n) % batch_size == 0))
    begin, _ = cycle.step_numbers(rows, num_splits, world_size, batch_size, whole + batch)
    check.claim("where C*n is a multiple, it is one", check.implies((completed * n) % batch_size == 0, begin == number))
    check.product(1, world_size, batch_size)
    check.have(completed * num_splits == world_size * (completed * n))
    check.product(batch_size * whole, completed * n, world_size)
    check.product(completed * n + 1, batch_size * whole + batch_size, world_size)
    check.quotient(completed * num_splits, world_size * batch_size, whole)
    check.product(1, (completed * n) % batch_size, world_size)
    multiple = check.same((completed * num_splits) % (world_size * batch_size) == 0, (completed * n) % batch_size == 0)
    check.claim("which is the same as C*S by R*B", multiple)


def cursors(check: Check) -> None:
    """Places of a rank, cycle and own splits served, are counted by ``C*n + served``: one row, one place further, none in between.

    After j rows from ``(C, served)`` the place is ``((C*n + served + j) // n, (C*n + served + j) % n)``, and ``rows_left`` is j less.
    """
    num_splits, world_size, n = splits_and_ranks(check)
    rows, size = rows_of(check, num_splits)
    completed, served, number = check.integers("C a j")
    check.given(completed >= 0, completed <= size, served >= 0, served < n, number >= 0)
    count = completed * n + served + number
    check.given(count <= n * size)
    at, own = count // n, count % n
    check.product(size + 1, at, n)
    check.product(at + 1, completed, n)
    check.claim("it is a place", (at >= completed) & (at <= size) & (own >= 0) & (own < n))
    check.product(size, at, n)
    check.claim("nothing is served of a cycle that does not exist", check.implies(at == size, own == 0))
    before = cycle.rows_left(rows, num_splits, world_size, completed, served)
    check.claim("j rows fewer are left", cycle.rows_left(rows, num_splits, world_size, at, own) == before - number)
    # One row further (CYC-3): another split of the cycle, or the next cycle where that was the last one.
    check.quotient(count + 1, n, at + (own + 1) // n)
    check.claim("the cycle ends with its last split", check.same((count + 1) // n == at + 1, own + 1 == n))
    check.claim("else one more is served", check.implies(own + 1 < n, (count + 1) % n == own + 1))


def one_rank_more(num_splits: int, world_size: int, split: int) -> int:
    """Wrong: the rank after the owner."""
    return split // (num_splits // world_size) + 1


def late_row(order: Any, num_splits: int, world_size: int, rank: int, number: int) -> int:
    """Wrong: split by split, not cycle by cycle."""
    n, size = num_splits // world_size, order.rows // num_splits
    position: int = order.row((rank * n + number // size) * size + number % size)
    return position + 0 * n


right_due = cycle.due


def due_one_later(order: Any, num_splits: int, world_size: int, batch_size: int, row: int) -> cycle.Due | None:
    """Wrong: steps count from 1."""
    due = right_due(order, num_splits, world_size, batch_size, row)
    return None if due is None else replace(due, step=(due.number + 1) // batch_size)


def due_by_split(order: Any, num_splits: int, world_size: int, batch_size: int, row: int) -> cycle.Due | None:
    """Wrong: numbers go split by split."""
    due = right_due(order, num_splits, world_size, batch_size, row)
    return None if due is None else replace(due, number=due.cycle + due.split % (num_splits // world_size) * (order.rows // num_splits))


def step_without_end(rows: int, num_splits: int, world_size: int, batch_size: int, step: int) -> tuple[int, int]:
    """Wrong: the last step is as long as the others."""
    return step * batch_size, (step + 1) * batch_size


def step_one_later(rows: int, num_splits: int, world_size: int, batch_size: int, step: int) -> tuple[int, int]:
    """Wrong: every step begins a row later."""
    end = cycle.length(rows, num_splits, world_size)
    return min(step * batch_size + 1, end), min((step + 1) * batch_size + 1, end)


def rows_left_of_all(rows: int, num_splits: int, world_size: int, cycle: int, served: int) -> int:
    """Wrong: counts what is served once for each cycle left."""
    return (num_splits // world_size - served) * (rows // num_splits - cycle)


LEMMAS = (
    Lemma("a row comes once", ("CYC-1", "CYC-5", "CYC-7"), due_after_row, Mutant(cycle.rank_row, late_row, "rank_row: split by split")),
    Lemma("every row of a split comes", ("CYC-1", "CYC-7"), row_after_due, Mutant(assignment.owner, one_rank_more, "owner: s // n + 1")),
    Lemma("global steps for every world", ("CYC-6", "LAW-4"), global_steps, Mutant(cycle.due, due_one_later, "due: step (j + 1) // B")),
    Lemma(
        "steps cut the sequence",
        ("CYC-6",),
        step_numbers,
        Mutant(cycle.step_numbers, step_without_end, "step_numbers: no shorter last step"),
    ),
    Lemma(
        "global steps after a resume",
        ("LAW-4", "CYC-8"),
        resumed_global_steps,
        Mutant(cycle.due, due_by_split, "due: number i + (s % n)*L"),
    ),
    Lemma("steps after a resume", ("CYC-8", "LAW-4"), resumed_steps, Mutant(cycle.step_numbers, step_one_later, "step_numbers: t*B + 1")),
    Lemma(
        "the cursor after j rows",
        ("CYC-3", "CYC-4", "CYC-5", "TRM-9"),
        cursors,
        Mutant(cycle.rows_left, rows_left_of_all, "rows_left: (n - served) * (L - C)"),
    ),
)

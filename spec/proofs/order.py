"""Clumps of ORD-8: positions and rows are in bijection, given that ``permute`` is one with its inverse (ORD-6)."""

# Functions that stand in for others have the same arguments, used or not.
# ruff: noqa: ARG001
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from model import order
from spec.proofs.check import Check
from spec.proofs.lemma import Lemma, Mutant


@contextmanager
def any_permutation(check: Check, size: int) -> Iterator[None]:
    """The model's ``permute`` and ``permute_inverse`` are any bijection of ``[0, size)``, and its inverse."""
    permutation = check.order(size)

    def permute(x: int, domain: int, seed: int, epoch: int) -> int:
        check.claim("the domain is that of all clumps", domain == size)
        return permutation.row(x)

    def permute_inverse(y: int, domain: int, seed: int, epoch: int) -> int:
        check.claim("the domain is that of all clumps", domain == size)
        return permutation.position(y)

    with mock.patch.object(order, "permute", permute), mock.patch.object(order, "permute_inverse", permute_inverse):
        yield


def clumped_rows(check: Check) -> tuple[int, int, int, int]:
    """Any N and c, with ``M = ceil(N / c)`` and the rows of the last clump."""
    rows, clump = check.integers("N c")
    check.given(rows >= 1, clump >= 1)
    count = (rows + clump - 1) // clump
    check.product(count, 0, clump)
    check.have(count >= 1)
    last = rows - (count - 1) * clump
    check.have(last >= 1, last <= clump)
    return rows, clump, count, last


def near(check: Check, where: int, place: int, count: int, clump: int) -> None:
    """Steps: in which place a position lies, before or behind that of the last clump."""
    check.product(count, where // clump, clump)
    check.product(place, where // clump, clump)
    check.product(where // clump + 1, place + 1, clump)


def clump_positions(check: Check) -> None:
    """Each position below N has a row below N, and that row has this position."""
    rows, clump, count, last = clumped_rows(check)
    (position,) = check.integers("p")
    check.given(position >= 0, position < rows)
    with any_permutation(check, count):
        place = order.permute_inverse(count - 1, count, 0, 0)
        near(check, position, place, count, clump)
        near(check, position + clump - last, place, count, clump)
        some = order.Order(rows, True, 0, 0, clump)
        row = some.row(position)
        # The clump of that row, as ORD-8 says it.
        if position < place * clump:
            number, offset = order.permute(position // clump, count, 0, 0), position % clump
        elif position < place * clump + last:
            number, offset = count - 1, position - place * clump
        else:
            moved = position + clump - last
            number, offset = order.permute(moved // clump, count, 0, 0), moved % clump
        check.claim("the row is that of ORD-8", row == number * clump + offset)
        check.product(0, number, clump)
        check.product(number + 1, count - 1, clump)
        check.claim("it exists", (row >= 0) & (row < rows))
        check.quotient(row, clump, number)
        check.claim("its position is this one", some.position(row) == position)


def clump_rows(check: Check) -> None:
    """Each row below N has a position below N, where it stands."""
    rows, clump, count, last = clumped_rows(check)
    (row,) = check.integers("k")
    check.given(row >= 0, row < rows)
    check.product(count, row // clump, clump)
    check.product(row // clump + 1, count - 1, clump)
    check.have(row // clump < count)
    with any_permutation(check, count):
        some = order.Order(rows, True, 0, 0, clump)
        place = order.permute_inverse(count - 1, count, 0, 0)
        stands = order.permute_inverse(row // clump, count, 0, 0)
        check.product(0, stands, clump)
        check.product(stands + 1, place, clump)
        check.product(place + 1, stands, clump)
        check.product(stands + 1, count, clump)
        position = some.position(row)
        check.claim("the position exists", (position >= 0) & (position < rows))
        for where in (position, position + clump - last):
            if (where >= stands * clump) & (where < stands * clump + clump):
                check.quotient(where, clump, stands)
        check.claim("the row stands there", some.row(position) == row)


def row_one_early(self: order.Order, position: int) -> int:
    """Wrong: behind the last clump, rows stand as if it were a row longer."""
    size, clump, last, place = self._clumps()
    if position < place * clump:
        return order.permute(position // clump, size, 0, self.epoch) * clump + position % clump
    if position < place * clump + last:
        return (size - 1) * clump + position - place * clump
    moved = position + clump - last - 1
    return order.permute(moved // clump, size, 0, self.epoch) * clump + moved % clump


def position_of_full_clumps(self: order.Order, row: int) -> int:
    """Wrong: as if the last clump were full."""
    size, clump, _, _ = self._clumps()
    return order.permute_inverse(row // clump, size, 0, self.epoch) * clump + row % clump


LEMMAS = (
    Lemma("rows at positions", ("ORD-8", "ORD-9"), clump_positions, Mutant(order.Order.row, row_one_early, "Order.row: p + c - h - 1")),
    Lemma(
        "positions of rows",
        ("ORD-8", "ORD-9"),
        clump_rows,
        Mutant(order.Order.position, position_of_full_clumps, "Order.position: all clumps full"),
    ),
)

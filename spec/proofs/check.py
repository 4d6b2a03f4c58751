"""What the script of a lemma sees: integers, what is given, claims, and steps that help z3.

A lemma is a script: a function that takes a ``Check``, draws integers from it, says what is given, calls functions of the model and
claims something about what they return. The same script runs on plain ints (here) and on integers that nobody has chosen (``symbolic``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Protocol


class Unproved(Exception):
    """z3 did not prove a claim, or found no counterexample where there must be one."""


class Permutation(Protocol):
    """A bijection of ``[0, rows)``, as ``model.order.Order`` is one (LAW-5)."""

    @property
    def rows(self) -> int:
        """How many elements."""

    def row(self, position: int) -> int:
        """Forwards."""

    def position(self, row: int) -> int:
        """Backwards."""


class Check:
    """What a script sees. On plain ints: the values are those that were given, and the claims that fail are kept.

    Parameters
    ----------
    values : dict
        What the variables are.

    Attributes
    ----------
    failed : list of str
        The claims that are false.
    """

    def __init__(self, values: dict[str, int] | None = None) -> None:
        self.values = {} if values is None else values
        self.failed: list[str] = []
        self.claims = 0

    def integers(self, names: str) -> list[int]:
        """Any integers; ``names`` is a list with spaces between."""
        return [self.values[name] for name in names.split()]

    def given(self, *conditions: bool) -> None:
        """What the lemma supposes."""
        if not all(conditions):
            raise Unproved(f"not a case of the lemma: {self.values}")

    def claim(self, text: str, condition: bool) -> None:
        """What the lemma says."""
        self.claims += 1
        if not condition:
            self.failed.append(text)

    def implies(self, condition: bool, conclusion: bool) -> bool:
        """Whether the conclusion holds where the condition does."""
        return conclusion or not condition

    def same(self, first: bool, second: bool) -> bool:
        """Whether both hold or neither."""
        return first == second

    # What helps z3 and says nothing new; on plain ints there is nothing to help.

    def have(self, *conditions: bool) -> None:
        """Steps of a proof: each is proved, and then used."""

    def product(self, low: int, high: int, factor: int) -> None:
        """Use that ``low <= high`` implies ``low * factor <= high * factor`` for a factor that is not negative (lemma *products*)."""

    def quotient(self, number: int, divisor: int, quotient: int) -> None:
        """Prove ``divisor * quotient <= number < divisor * quotient + divisor``; so this is the quotient (lemma *quotients*)."""

    # Mathematics that the model calls.

    def order(self, rows: int) -> Permutation:
        """Any bijection of ``[0, rows)``. On plain ints one that is its own inverse: last things first."""
        return Backwards(rows)

    def bezout(self, first: int, second: int) -> tuple[int, int, int, int, int]:
        """``(g, a, b, x, y)`` with ``first == g*a``, ``second == g*b``, ``x*a + y*b == 1``: g is the greatest common divisor of both.

        Both are positive. Each other common divisor divides ``g == x*first + y*second``.
        """
        divisor = gcd(first, second)
        a, b = first // divisor, second // divisor
        x = next(x for x in range(b) if (1 - x * a) % b == 0)
        return divisor, a, b, x, (1 - x * a) // b


@dataclass(frozen=True)
class Backwards:
    """The bijection that counts from the end."""

    rows: int

    def row(self, position: int) -> int:
        """Forwards."""
        assert 0 <= position < self.rows
        return self.rows - 1 - position

    def position(self, row: int) -> int:
        """Backwards."""
        return self.row(row)


# --- rules of arithmetic, proved in ``arithmetic`` -----------------------------------------------------------------------------------


def product_rule(check: Check, low: int, high: int, factor: int) -> bool:
    """Products keep an order."""
    return check.implies((factor >= 0) & (low <= high), low * factor <= high * factor)


def is_quotient(number: int, divisor: int, quotient: int) -> bool:
    """What defines a quotient."""
    return (divisor > 0) & (divisor * quotient <= number) & (number < divisor * quotient + divisor)


def quotient_rule(check: Check, number: int, divisor: int, one: int, other: int) -> bool:
    """There are no two quotients."""
    return check.implies(is_quotient(number, divisor, one) & is_quotient(number, divisor, other), one == other)


def natural_rule(check: Check, number: int, divisor: int, quotient: int) -> bool:
    """A natural number has a natural quotient."""
    return check.implies(is_quotient(number, divisor, quotient) & (number >= 0), quotient >= 0)

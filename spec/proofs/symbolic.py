"""Integers that nobody has chosen: the model's own functions compute with them, and z3 says what holds for all of them.

``a // b`` is a new integer q with ``b*q <= a < b*q + b``, once z3 has proved that b is positive: for such b that is Python's quotient.
Where code branches, a script runs once for each way that can be taken, so that a proof covers all of them, failing assertions included.
"""

from __future__ import annotations

from typing import Any, cast

import z3  # type: ignore[import-untyped]

from spec.proofs.check import Backwards, Check, Permutation, Unproved, is_quotient, natural_rule, product_rule, quotient_rule

# Steps of z3, not seconds: a busy machine proves the same as an idle one.
EFFORT = 20_000_000
FORK_EFFORT = 200_000

QUOTIENT = z3.Function("quotient", z3.IntSort(), z3.IntSort(), z3.IntSort())


class Truth:
    """A statement about Numbers. Python code that asks whether it is true runs once with yes and once with no."""

    def __init__(self, run: Symbolic, expression: Any) -> None:
        self.run, self.expression = run, expression

    def __bool__(self) -> bool:
        return self.run.decide(self.expression)

    def __and__(self, other: object) -> Truth:
        return Truth(self.run, z3.And(self.expression, plain(other)))

    def __or__(self, other: object) -> Truth:
        return Truth(self.run, z3.Or(self.expression, plain(other)))

    __rand__, __ror__ = __and__, __or__


def plain(value: object) -> Any:
    """The z3 expression of a Number or Truth; ints and bools as they are."""
    return value.expression if isinstance(value, (Number, Truth)) else value


class Number:
    """An integer that nobody has chosen, with the arithmetic of Python's ints that the model uses."""

    def __init__(self, run: Symbolic, expression: Any) -> None:
        self.run, self.expression = run, expression

    def __add__(self, other: object) -> Number:
        return Number(self.run, self.expression + plain(other))

    def __sub__(self, other: object) -> Number:
        return Number(self.run, self.expression - plain(other))

    def __rsub__(self, other: object) -> Number:
        return Number(self.run, plain(other) - self.expression)

    def __mul__(self, other: object) -> Number:
        return Number(self.run, self.expression * plain(other))

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: object) -> Number:
        return cast(Number, self.run.divide(cast(int, self), cast(int, other)))

    def __mod__(self, other: object) -> Number:
        return self - (self // other) * other

    def __lt__(self, other: object) -> Truth:
        return Truth(self.run, self.expression < plain(other))

    def __le__(self, other: object) -> Truth:
        return Truth(self.run, self.expression <= plain(other))

    def __gt__(self, other: object) -> Truth:
        return Truth(self.run, self.expression > plain(other))

    def __ge__(self, other: object) -> Truth:
        return Truth(self.run, self.expression >= plain(other))

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.run, self.expression == plain(other))

    def __ne__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.run, self.expression != plain(other))

    # Equality is a statement here, so there is no hash that would fit it.
    __hash__ = None  # type: ignore[assignment]


class Symbolic(Check):
    """One run of a script on Numbers, down one sequence of branches.

    Parameters
    ----------
    proving : bool
        Prove each claim at once. Else claims are kept, and steps ignored: where a function is wrong they need not hold.
    branches : tuple of bool
        The answers to the first questions of the code; the others are found out.
    """

    def __init__(self, proving: bool, branches: tuple[bool, ...]) -> None:
        super().__init__()
        self.proving = proving
        self.branches = branches
        self.taken: tuple[bool, ...] = ()
        self.others: list[tuple[bool, ...]] = []
        self.facts: list[Any] = []
        self.claimed: list[Any] = []
        self.variables: dict[str, Any] = {}
        # By their ids, which are theirs as long as they are kept.
        self.divided: dict[int, Any] = {}
        self.divisors: dict[str, tuple[int, int, int, int, int]] = {}
        self.count = 0

    def integers(self, names: str) -> list[int]:
        """Integers without a bound."""
        self.variables.update({name: z3.Int(name) for name in names.split()})
        # A Number stands in for an int wherever the model computes; for the type checker it is one.
        return [cast(int, Number(self, self.variables[name])) for name in names.split()]

    def given(self, *conditions: bool) -> None:
        """Known from here on."""
        self.facts.extend(plain(condition) for condition in conditions)

    def claim(self, text: str, condition: bool) -> None:
        """Proved at once, or kept for the search of a counterexample."""
        self.claims += 1
        if self.proving:
            self.prove(text, plain(condition))
        self.claimed.append(plain(condition))

    def implies(self, condition: bool, conclusion: bool) -> bool:
        """As a statement."""
        return cast(bool, Truth(self, z3.Implies(plain(condition), plain(conclusion))))

    def same(self, first: bool, second: bool) -> bool:
        """As a statement."""
        return cast(bool, Truth(self, plain(first) == plain(second)))

    def have(self, *conditions: bool) -> None:
        """Proved at once, then known. Where a function is wrong, steps need not hold: they are left out."""
        if self.proving:
            for number, condition in enumerate(conditions):
                self.prove(f"step {number + 1}: {plain(condition)}", plain(condition))
                self.facts.append(plain(condition))

    def product(self, low: int, high: int, factor: int) -> None:
        """An instance of the rule."""
        if self.proving:
            self.given(product_rule(self, low, high, factor))

    def quotient(self, number: int, divisor: int, quotient: int) -> None:
        """Proved by an instance of the rule."""
        if self.proving:
            self.have(is_quotient(number, divisor, quotient))
            self.given(quotient_rule(self, number, divisor, quotient, number // divisor))
            self.have(number // divisor == quotient)

    def order(self, rows: int) -> Permutation:
        """A bijection of which nothing else is known."""
        # A counterexample is replayed with this very bijection.
        return AnyOrder(self, rows) if self.proving else Backwards(rows)

    def bezout(self, first: int, second: int) -> tuple[int, int, int, int, int]:
        """Integers of which nothing else is known."""
        self.have(first >= 1, second >= 1)
        key = f"{plain(first)} {plain(second)}"
        if key not in self.divisors:
            g, a, b, x, y = (cast(int, Number(self, self.fresh(letter))) for letter in "gabxy")
            self.given(g >= 1, a >= 1, b >= 1, first == g * a, second == g * b, x * a + y * b == 1)
            self.divisors[key] = (g, a, b, x, y)
        return self.divisors[key]

    def fresh(self, name: str) -> Any:
        """Another integer of which nothing is known."""
        self.count += 1
        return z3.Int(f"{name}.{self.count}")

    def divide(self, number: int, divisor: int) -> int:
        """The quotient of a division, with what defines it."""
        expression = QUOTIENT(plain(number), plain(divisor))
        quotient = cast(int, Number(self, expression))
        if expression.get_id() not in self.divided:
            self.claim("divisors are positive", divisor > 0)
            self.divided[expression.get_id()] = expression
            self.given(is_quotient(number, divisor, quotient), natural_rule(self, number, divisor, quotient))
        return quotient

    def decide(self, condition: Any) -> bool:
        """Which way the code goes where it asks."""
        index = len(self.taken)
        if index < len(self.branches):
            way = self.branches[index]
        else:
            way = self.possible(condition)
            if way and self.possible(z3.Not(condition)):
                self.others.append((*self.taken, False))
        self.taken = (*self.taken, way)
        self.facts.append(condition if way else z3.Not(condition))
        return way

    def possible(self, condition: Any) -> bool:
        """Whether a branch may be reached. Where z3 does not know, it is looked at: it adds nothing but work."""
        return bool(solve([*self.facts, condition], FORK_EFFORT).check() != z3.unsat)

    def prove(self, text: str, condition: Any) -> None:
        """Have z3 prove a statement from what is known here."""
        solver = solve([*self.facts, z3.Not(condition)], EFFORT)
        answer = solver.check()
        if answer != z3.unsat:
            shown = [f"{name}={solver.model()[variable]}" for name, variable in self.variables.items()] if answer == z3.sat else []
            raise Unproved(f"{text}: z3 says {answer} {' '.join(shown)}")


class AnyOrder:
    """A bijection of which nothing else is known: two functions that undo each other wherever they are used."""

    def __init__(self, run: Symbolic, rows: int) -> None:
        self.run, self.rows = run, rows
        name = run.fresh("order")
        self.forwards = z3.Function(f"{name}.row", z3.IntSort(), z3.IntSort())
        self.backwards = z3.Function(f"{name}.position", z3.IntSort(), z3.IntSort())

    def row(self, position: int) -> int:
        """Forwards."""
        return self.apply(position, self.forwards, self.backwards)

    def position(self, row: int) -> int:
        """Backwards."""
        return self.apply(row, self.backwards, self.forwards)

    def apply(self, value: int, function: Any, inverse: Any) -> int:
        """The image of an element, which z3 has to prove to be one."""
        self.run.claim(
            "the order is asked within its rows", cast(bool, Truth(self.run, z3.And(plain(value >= 0), plain(value < self.rows))))
        )
        image = cast(int, Number(self.run, function(plain(value))))
        self.run.given(image >= 0, image < self.rows, cast(bool, Truth(self.run, inverse(plain(image)) == plain(value))))
        return image


def solve(facts: list[Any], effort: int) -> Any:
    """A solver that holds these facts."""
    solver = z3.Solver()
    solver.set("rlimit", effort)
    solver.add(*facts)
    return solver

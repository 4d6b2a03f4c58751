"""The rules of arithmetic that the other proofs use: z3 finds them hard to find, not hard to prove."""

from __future__ import annotations

from spec.proofs.check import Check, is_quotient, natural_rule, product_rule, quotient_rule
from spec.proofs.lemma import Lemma, Mutant


def products(check: Check) -> None:
    """``x <= y`` implies ``x*f <= y*f`` for every f that is not negative."""
    x, y, f = check.integers("x y f")
    check.claim("products keep an order", product_rule(check, x, y, f))


def quotients(check: Check) -> None:
    """A number has one quotient by a positive divisor."""
    number, divisor, one, other = check.integers("number divisor one other")
    # Were they different, one product would lie a whole divisor behind the other.
    check.product(one + 1, other, divisor)
    check.product(other + 1, one, divisor)
    check.claim("there are no two quotients", quotient_rule(check, number, divisor, one, other))


def naturals(check: Check) -> None:
    """A natural number has a natural quotient."""
    number, divisor, quotient = check.integers("number divisor quotient")
    check.product(quotient, -1, divisor)
    check.claim("a natural number has a natural quotient", natural_rule(check, number, divisor, quotient))


def strict_rule(check: Check, low: int, high: int, factor: int) -> bool:
    """Wrong: strictly, though a factor may be 0."""
    return check.implies((factor >= 0) & (low <= high), low * factor < high * factor)


def loose_quotient(number: int, divisor: int, quotient: int) -> bool:
    """Wrong: the remainder may be as large as the divisor."""
    return (divisor > 0) & (divisor * quotient <= number) & (number <= divisor * quotient + divisor)


def positive_quotient(check: Check, number: int, divisor: int, quotient: int) -> bool:
    """Wrong: it may be 0."""
    return check.implies(is_quotient(number, divisor, quotient) & (number >= 0), quotient > 0)


LEMMAS = (
    Lemma("products", (), products, Mutant(product_rule, strict_rule, "a strict order")),
    Lemma("quotients", (), quotients, Mutant(is_quotient, loose_quotient, "a remainder as large as the divisor")),
    Lemma("naturals", (), naturals, Mutant(natural_rule, positive_quotient, "a quotient of at least 1")),
)

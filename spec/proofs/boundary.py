"""WRK-9: the batches that ``state.mid_step`` promises lead to the next step boundary, and to none before it."""

# Functions that stand in for others have the same arguments, used or not.
# ruff: noqa: ARG001
from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

from model import sharding, workers
from spec.proofs.check import Check
from spec.proofs.lemma import Lemma, Mutant


@dataclass(frozen=True)
class Pass:
    """A rank's pass in documented mode, d batches of B rows after a step boundary; the letters are those of WRK-9.

    Parameters
    ----------
    delivered, workers, batch_size : int
        d, W and B.
    rows, batches : int
        The rows of each worker left at the boundary, and its batches, Q.
    end : int
        How many batches are delivered after those promised.
    target : int
        The same for each worker.
    """

    delivered: int
    workers: int
    batch_size: int
    rows: int
    batches: int
    end: int
    target: int

    def received(self, delivered: int, worker: int) -> int:
        """The rows of a worker after that many batches in turn (lemma *batches in turn*): whole batches, but for the last one."""
        return min(sharding.ceil_divide(max(delivered - worker, 0), self.workers) * self.batch_size, self.rows)


def some_pass(check: Check) -> Pass:
    """Any pass that is not over, and what is promised there."""
    delivered, team, k, batch_size, cycles = check.integers("d W k B L")
    check.given(delivered >= 0, team >= 2, k >= 1, batch_size >= 1, cycles >= 1)
    rows = k * cycles
    check.product(1, cycles, k)
    batches = (rows + batch_size - 1) // batch_size
    check.product(batches, 0, batch_size)
    check.have(batches >= 1)
    check.given(delivered < team * batches)
    # Q of all rows of the rank by W*B is that of the rows of a worker by B.
    check.product(batch_size * batches, rows + batch_size - 1, team)
    check.product(rows, batch_size * batches, team)
    check.product(1, team, batch_size)
    check.quotient(team * rows + team * batch_size - 1, team * batch_size, batches)
    g, _, p, _, _ = check.bezout(batch_size, k)
    check.quotient(k, g, p)
    groups = delivered // team
    full = (groups // p + 1) * p
    target = full if full < batches else batches
    with mock.patch.object(workers, "gcd", return_value=g):
        promised = workers.promised_batches(delivered, team, k, batch_size, team * rows)
    check.have(delivered + promised == team * target)
    check.product(groups + 1, full, team)
    check.claim("at least one batch is promised", promised >= 1)
    return Pass(delivered, team, batch_size, rows, batches, delivered + promised, target)


def after(check: Check) -> None:
    """After the batches promised all workers have the same rows, a multiple of k: a step boundary (WRK-8)."""
    some = some_pass(check)
    k, batch_size, cycles, worker = check.integers("k B L w")
    check.given(worker >= 0, worker < some.workers)
    end = some.end
    check.product(some.target, some.batches, some.workers)
    check.claim("there are so many batches", end <= some.workers * some.batches)
    check.product(1, some.target, some.workers)
    check.quotient(end - worker + some.workers - 1, some.workers, some.target)
    check.quotient(end - 0 + some.workers - 1, some.workers, some.target)
    check.product(some.target, some.batches - 1, batch_size)
    received = some.received(end, worker)
    check.claim("all have the same", received == some.received(end, 0))
    _, a, p, _, _ = check.bezout(batch_size, k)
    check.quotient(received, k, cycles if some.target == some.batches else (some.delivered // some.workers // p + 1) * a)
    check.claim("a multiple of k", received % k == 0)


def before(check: Check) -> None:
    """After fewer batches the first and the last worker have different rows, or a number that is no multiple of k: no boundary."""
    some = some_pass(check)
    k, batch_size, delivered = check.integers("k B e")
    check.given(delivered > some.delivered)
    if delivered >= some.end:
        return
    groups, turn = delivered // some.workers, delivered % some.workers
    check.product(some.target, groups, some.workers)
    check.product(groups, some.delivered // some.workers, some.workers)
    check.product(groups, some.batches - 1, batch_size)
    check.have(groups >= 0, groups < some.target, groups * batch_size < some.rows)
    check.quotient(some.workers - 1, some.workers, 0)
    check.quotient(delivered - 0 + some.workers - 1, some.workers, groups + (1 if turn > 0 else 0))
    first, last = some.received(delivered, 0), some.received(delivered, some.workers - 1)
    check.claim("the last worker has that many whole batches", last == groups * batch_size)
    if turn > 0:
        check.claim("the first is ahead", first > last)
        return
    check.claim("all have the same", first == last)
    # Were it k*z, then a*n == p*z, and n == n*(x*a + y*p) a multiple of p: but there is none between d // W and the target.
    g, a, p, x, y = check.bezout(batch_size, k)
    z = first // k
    check.product(a * groups + 1, p * z, g)
    check.product(p * z + 1, a * groups, g)
    multiple = x * z + y * groups
    whole = some.delivered // some.workers // p
    check.have(check.implies(first == k * z, a * groups == p * z))
    check.have(check.implies(first == k * z, x * (a * groups) + y * p * groups == p * multiple))
    check.have(groups == x * a * groups + y * p * groups)
    check.have(check.implies(first == k * z, groups == p * multiple))
    check.product(multiple, whole, p)
    check.product(whole + 1, multiple, p)
    check.claim("no multiple of k", check.implies(first % k == 0, False))


def next_turn(delivered: int, workers: int, splits: int, batch_size: int, rows_left: int) -> int:
    """Wrong: the end of the turn, whatever B and k."""
    return workers * min(delivered // workers + 1, sharding.ceil_divide(rows_left, workers * batch_size)) - delivered


def without_gcd(delivered: int, workers: int, splits: int, batch_size: int, rows_left: int) -> int:
    """Wrong: k turns, though fewer may do."""
    return workers * min((delivered // workers // splits + 1) * splits, sharding.ceil_divide(rows_left, workers * batch_size)) - delivered


LEMMAS = (
    Lemma("after the batches promised", ("WRK-8", "WRK-9"), after, Mutant(workers.promised_batches, next_turn, "promised_batches: p = 1")),
    Lemma(
        "before the batches promised", ("WRK-8", "WRK-9"), before, Mutant(workers.promised_batches, without_gcd, "promised_batches: p = k")
    ),
)

"""Chapter workers: what several workers deliver in documented mode, and where their step boundaries are."""

# Functions that stand in for others have the same arguments, used or not.
# ruff: noqa: ARG001, ARG005
from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

from model import checkpoint, cycle, loader, sharding, workers
from model.cycle import Cursor
from model.loader import Loader
from model.pool import Place, Pool, Running
from model.sharding import Division
from spec.proofs.assignment import rows_of, splits_and_ranks, worker_splits
from spec.proofs.check import Check
from spec.proofs.cycle import has_position
from spec.proofs.lemma import Lemma, Mutant


def a_division(check: Check, rows: int, num_splits: int, world_size: int, *, rank: int, team: int, batch_size: int, begun: int) -> Division:
    """A pass of a rank in documented mode from a cycle boundary, for any order."""
    order = check.order(rows)
    settings: Any = SimpleNamespace(rows=rows, num_splits=num_splits, world_size=world_size, rank=rank, order=lambda epoch: order)
    return Division(settings, team, "splits", batch_size, Cursor(0, begun, ()), (0,))


def served(rows: int, split: int, k: int) -> int:
    """How many rows the u-th split of a worker has served after that many rows of the worker (lemma *rows of a split*)."""
    return sharding.ceil_divide(rows - split, k)


def worker_rows(check: Check) -> None:
    """Row a of worker w since cycle C is row ``C + a // k`` of the split ``a % k`` of its sub-block."""
    num_splits, world_size, n = splits_and_ranks(check)
    rows, size = rows_of(check, num_splits)
    team, k = worker_splits(check, num_splits, world_size, n)
    rank, worker, begun, index = check.integers("r w C a")
    check.given(rank >= 0, rank < world_size, worker >= 0, worker < team, begun >= 0, index >= 0)
    division = a_division(check, rows, num_splits, world_size, rank=rank, team=team, batch_size=1, begun=begun)
    order = division.settings.order(0)
    check.given(team >= 2, begun <= size)
    check.claim("rows left of each worker", sharding.rows_of_worker(division.settings, division.origin, team) == k * (size - begun))
    check.given(index < k * (size - begun))
    # The world of R*W ranks.
    check.product(1, world_size, team)
    check.quotient(num_splits, world_size * team, k)
    member = rank * team + worker
    check.product(rank + 1, world_size, team)
    check.product(0, rank, team)
    check.product(0, member, k)
    check.product(member + 1, world_size * team, k)
    check.product(size - begun, index // k, k)
    check.quotient(begun * k + index, k, begun + index // k)
    own, at = member * k + index % k, begun + index // k
    check.have(own >= 0, own < num_splits, at >= 0, at < size)
    has_position(check, num_splits, size, own, at)
    check.claim("the row at that position", sharding.sharded_row(division, worker, index) == order.row(own * size + at))


def counts(check: Check) -> None:
    """After a rows of a worker split u of its sub-block has served ``ceil((a - u) / k)``: row a adds one to split ``a % k`` only."""
    k, index, split = check.integers("k a u")
    check.given(k >= 1, index >= 0, split >= 0, split < k)
    whole = index // k
    check.quotient(index - split + k - 1, k, whole + (1 if index % k > split else 0))
    check.quotient(index + 1 - split + k - 1, k, whole + (1 if index % k >= split else 0))
    before, after = served(index, split, k), served(index + 1, split, k)
    if index % k == split:
        check.claim("its own split serves one more, in the cycle of its count", (after == before + 1) & (before == whole))
    else:
        check.claim("no other split does", after == before)
    check.quotient(k - 1 - split, k, 0)
    check.claim("at the start nothing is served", served(0, split, k) == 0)


def boundaries(check: Check) -> None:
    """All splits of a worker have served c rows exactly where it has delivered ``c*k``: so all of a rank's, where all workers have.

    The splits that decide are the first and the last one.
    """
    k, rows, split, count = check.integers("k a u c")
    check.given(k >= 1, rows >= 0, split >= 0, split < k, count >= 0)
    first, last = served(rows, 0, k), served(rows, k - 1, k)
    check.product(count + 1, first, k)
    check.product(first + 1, count, k)
    check.product(last + 1, count, k)
    check.product(count + 1, last, k)
    check.claim("two equal counts suffice", check.implies((first == count) & (last == count), rows == count * k))
    some = served(rows, split, k)
    check.product(count + 1, some, k)
    check.product(some + 1, count, k)
    check.claim("a multiple of k is needed and gives all counts", check.implies(rows == count * k, some == count))


def team_of_two(check: Check) -> tuple[Pool, int, int, int]:
    """A rank with two workers anywhere in a pass, k, and the rows that each has delivered."""
    k, begun, one, two, turn = check.integers("k C a b turn")
    check.given(k >= 1, begun >= 0, one >= 0, two >= 0)
    settings: Any = SimpleNamespace(num_splits=2 * k, world_size=1, identity=dict)
    check.quotient(2 * k, 1, 2 * k)
    check.quotient(2 * k, 2, k)
    place = Place(Cursor(0, begun, ()), 2, (one, two), turn)
    return Pool(Loader(settings, place.origin), place), k, one, two


def commits(check: Check) -> None:
    """``commit`` finds the step boundary of two workers exactly where all splits have the same count, and its cycle is that count."""
    pool, k, one, two = team_of_two(check)
    count, split = check.integers("count u")
    check.given(count >= 1, one >= count, split >= 0, split < k)
    place = pool.place
    assert place is not None
    before = Pool(pool.loader, Place(place.origin, 2, (one - count, two), place.turn))
    running = Running(Division(pool.loader.settings, 2, "splits", 1, place.origin, (0, 0)), (), 0)
    # Whether rows are left decides if the pass is over, and nothing about the place.
    with mock.patch.object(loader, "remaining", return_value=1):
        after = workers.commit(before, running, 0, count)
    first, last = served(one, 0, k), served(two, k - 1, k)
    for rows, at in ((one, 0), (one, k - 1), (one, split), (two, 0), (two, k - 1), (two, split)):
        some = served(rows, at, k)
        for other in (first, one // k):
            check.product(other + 1, some, k)
            check.product(some + 1, other, k)
    if after.place is None:
        check.claim("the cycle is the count", after.loader.cursor.cycle - place.origin.cycle == served(one, split, k))
        check.claim("of both workers", served(two, split, k) == served(one, split, k))
        check.claim("and the cycle has not begun", len(after.loader.cursor.served) == 0)
    else:
        same = (first == last) & (served(one, k - 1, k) == last) & (served(two, 0, k) == last)
        check.claim("some counts differ", check.implies(same, False))
        check.claim("what was delivered is kept", (after.place.received[0] == one) & (after.place.received[1] == two))


def floors(check: Check) -> None:
    """``floor_state`` of two workers says the least number of cycles completed over all splits."""
    pool, k, one, two = team_of_two(check)
    (split,) = check.integers("u")
    check.given(split >= 0, split < k)
    place = pool.place
    assert place is not None
    with mock.patch.object(checkpoint, "save", lambda identity, cursor, world_size: cursor):
        cursor: Any = workers.floor_state(pool)
    cycles = cursor.cycle - place.origin.cycle
    for rows, at in ((one, split), (two, split), (one, k - 1), (two, k - 1)):
        check.product(served(rows, at, k) + 1, cycles, k)
        check.product(cycles + 1, served(rows, at, k), k)
    check.claim("no split has completed fewer", (cycles <= served(one, split, k)) & (cycles <= served(two, split, k)))
    check.claim("one has completed no more", (served(one, k - 1, k) == cycles) | (served(two, k - 1, k) == cycles))


def turns(check: Check) -> None:
    """Batch t, round robin, is batch ``t // W`` of worker ``t % W``, and each worker's batches are as many as there are such t."""
    team, batches, batch = check.integers("W T t")
    check.given(team >= 1, batches >= 0, batch >= 0)
    # A division whose rank has one split, and so as many batches of one row as rows.
    check.quotient(1, 1, 1)
    check.quotient(batches, 1, batches)
    check.quotient(batches + 1 - 1, 1, batches)
    settings: Any = SimpleNamespace(rows=batches, num_splits=1, world_size=1, rank=0)
    division = Division(settings, team, "batches", 1, Cursor(0, 0, ()), ())
    worker, number = batch % team, batch // team
    own = sharding.batches_of_worker(division, worker)
    check.product(own, number, team)
    check.product(number + 1, own, team)
    check.claim("it is prepared where there is such a batch", check.same(number < own, batch < batches))


def groups(check: Check) -> None:
    """Where k divides B, W consecutive batches from a cycle boundary hold the rows of one batch of ``W*B`` without workers.

    The row that split s serves in cycle C + i is row ``i*n + s % n`` of the rank's pass and row ``i*k + s % k`` of the worker's.
    """
    num_splits, world_size, n = splits_and_ranks(check)
    rows, size = rows_of(check, num_splits)
    team, k = worker_splits(check, num_splits, world_size, n)
    batch_size, begun, rank, worker, split, at = check.integers("B C r w u i")
    check.given(team >= 2, batch_size >= 1, begun >= 0, rank >= 0, rank < world_size, worker >= 0, worker < team)
    check.given(split >= 0, split < k, at >= 0, begun + at < size)
    check.given(batch_size % k == 0)
    cycles = batch_size // k
    check.product(cycles, 0, k)
    check.have(cycles >= 1, batch_size == k * cycles)
    division = a_division(check, rows, num_splits, world_size, rank=rank, team=team, batch_size=batch_size, begun=begun)
    order = division.settings.order(0)
    check.product(1, world_size, team)
    check.quotient(num_splits, world_size * team, k)
    index, number = at * k + split, at * n + worker * k + split
    check.product(0, worker, k)
    check.product(worker + 1, team, k)
    check.quotient(begun * k + index, k, begun + at)
    check.quotient(begun * n + number, n, begun + at)
    check.product(0, rank, n)
    check.product(rank + 1, world_size, n)
    own = rank * n + worker * k + split
    check.have(own >= 0, own < num_splits)
    has_position(check, num_splits, size, own, begun + at)
    plain = cycle.rank_row(order, num_splits, world_size, rank, begun * n + number)
    check.claim("it is the same row", sharding.sharded_row(division, worker, index) == plain)
    group = at // cycles
    check.product(cycles * group, at, k)
    check.product(at + 1, cycles * group + cycles, k)
    check.product(cycles * group, at, n)
    check.product(at + 1, cycles * group + cycles, n)
    check.quotient(index, batch_size, group)
    check.quotient(number, team * batch_size, group)
    check.claim("the batch of a worker has the number of the large one", index // batch_size == number // (team * batch_size))


def floor_divide(number: int, by: int) -> int:
    """Wrong: rounds down."""
    return number // by


def batches_in_all(check: Check) -> None:
    """``len(loader)`` in documented mode is W times the batches of each worker, ``ceil(k*L / B)``."""
    num_splits, world_size, n = splits_and_ranks(check)
    rows, size = rows_of(check, num_splits)
    team, k = worker_splits(check, num_splits, world_size, n)
    (batch_size,) = check.integers("B")
    check.given(team >= 2, batch_size >= 1)
    division = a_division(check, rows, num_splits, world_size, rank=0, team=team, batch_size=batch_size, begun=0)
    check.quotient(n * size, team, k * size)
    # Arguments are judged by their types, which Numbers have not.
    with mock.patch.object(sharding, "check_arguments", return_value=batch_size):
        length = sharding.length(division.settings, team, "splits", batch_size)
    each = sharding.batches_of_worker(division, 0)
    check.claim("each has ceil(k*L / B)", (each * batch_size >= k * size) & (each * batch_size < k * size + batch_size))
    check.claim("all have W times that", length == team * each)


def length_without_workers(settings: Any, workers: int, mode: str, batch_size: int | None) -> int:
    """Wrong: as many as without workers."""
    assert batch_size is not None
    return sharding.ceil_divide(cycle.length(settings.rows, settings.num_splits, settings.world_size), batch_size)


def late_row(division: Division, worker: int, index: int) -> int:
    """Wrong: the workers share the splits in turn, not in blocks."""
    settings, team = division.settings, division.workers
    order = settings.order(division.origin.epoch)
    n, k = settings.num_splits // settings.world_size, settings.num_splits // settings.world_size // team
    split = settings.rank * n + worker + (index % k) * team
    return order.row(split * (settings.rows // settings.num_splits) + division.origin.cycle + index // k)


def batches_without_first(division: Division, worker: int) -> int:
    """Wrong: every worker has as many batches as the first."""
    return sharding.ceil_divide(division.settings.rows, division.workers) + 0 * worker


right_commit = workers.commit


def commit_by_first_split(pool: Pool, running: Running, worker: int, count: int) -> Pool:
    """Wrong: workers at equal rows are at a boundary, a multiple of k or not."""
    after = right_commit(pool, running, worker, count)
    if after.place is None or after.place.received[0] != after.place.received[1]:
        return after
    k = after.loader.settings.num_splits // 2
    return Pool(Loader(after.loader.settings, Cursor(0, after.place.origin.cycle + after.place.received[0] // k, ())))


def floor_of_most(pool: Pool) -> Any:
    """Wrong: the cycles of the worker that is ahead."""
    assert pool.place is not None
    return Cursor(0, pool.place.origin.cycle + max(pool.place.received) // (pool.loader.settings.num_splits // 2), ())


LEMMAS = (
    Lemma("rows of a worker", ("WRK-2",), worker_rows, Mutant(sharding.sharded_row, late_row, "sharded_row: splits in turn")),
    Lemma("rows of a split", ("WRK-8",), counts, Mutant(sharding.ceil_divide, floor_divide, "ceil_divide: rounds down")),
    Lemma("equal counts of splits", ("WRK-8",), boundaries, Mutant(sharding.ceil_divide, floor_divide, "ceil_divide: rounds down")),
    Lemma("boundaries of two workers", ("WRK-8",), commits, Mutant(workers.commit, commit_by_first_split, "commit: equal rows suffice")),
    Lemma("floors of two workers", ("WRK-10",), floors, Mutant(workers.floor_state, floor_of_most, "floor_state: max")),
    Lemma(
        "batches in turn",
        ("WRK-3", "WRK-4"),
        turns,
        Mutant(sharding.batches_of_worker, batches_without_first, "batches_of_worker: the same for all"),
    ),
    Lemma("len of a loader", ("WRK-13",), batches_in_all, Mutant(sharding.length, length_without_workers, "length: as without workers")),
    Lemma("groups of batches", ("WRK-3",), groups, Mutant(sharding.sharded_row, late_row, "sharded_row: splits in turn")),
)

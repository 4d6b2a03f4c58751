"""The explorer of workers is clean on the model, and finds what is wrong with loaders that are wrong on purpose.

Every broken system below breaks one function. A search that misses one of them is worth nothing, whatever it says about the model.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import gcd
from typing import Any

import pytest

from model import checkpoint, loader, sharding, workers
from model.cycle import Cursor
from model.errors import ModelError
from model.explore_workers import HELD, explore, main
from model.pool import Pool
from model.sharding import Batch, batches_of_worker, ceil_divide, is_sharded, rows_of_worker, splits_per_worker
from model.table_workers import MODEL, Bound, WorkerSystem
from model.world_workers import COUNTED


@pytest.mark.parametrize(
    "bound",
    [
        Bound(8, 4, 4, 1, 2),
        Bound(12, 6, 2, 1, 2, ranks=2),
        Bound(9, 4, 2, 2, 3, seed=5),
        Bound(6, 2, 2, 1, 2, crashes=2, epochs=2, seed=3),
        Bound(5, 3, 3, 2, 2, crashes=2),
    ],
    ids=str,
)
def test_model_breaks_no_clause(bound: Bound) -> None:
    """Exhaustive to these bounds; and the bounds contain what the clauses are about."""
    result = explore(bound)
    assert result.violation is None
    for what in COUNTED:
        if what == "exact refused" and len(bound.worlds()) == 1:
            continue
        assert result.counts[what] > 0, f"no {what} within the bound: the clauses held for want of anything to judge"


def test_bound_has_every_legal_loader() -> None:
    """WRK-1, WRK-2, WRK-4: in documented mode W divides S/R, in invariant mode any W is legal; every B with each."""
    shares = Bound(12, 6, 4, 1, 2).shares(1)
    assert {(share.workers, share.mode) for share in shares} == {
        (0, "splits"),
        *((count, "splits") for count in (1, 2, 3)),
        *((count, "batches") for count in (1, 2, 3, 4)),
    }
    assert len(shares) == 16
    assert {share.workers for share in Bound(12, 6, 4, 1, 1).shares(2) if share.mode == "splits"} == {0, 1, 3}


# --- systems that are wrong -----------------------------------------------------------------------------------------------------------


def commit_ready(pool: Pool) -> Pool:
    """All that was prepared counts as delivered, in the order of delivery."""
    running = pool.running
    while running is not None:
        worker = workers.next_worker(running, running.turn)
        if worker is None or not running.team[worker].ready:
            break
        pool, _ = workers.deliver(pool)
        running = pool.running
    return pool


def save_counts_prefetched(pool: Pool) -> dict[str, Any]:
    """A state counts what workers have prepared."""
    return workers.save(commit_ready(pool))


def save_drops_partial(pool: Pool) -> dict[str, Any]:
    """A state has whole cycles only."""
    return checkpoint.floor(workers.save(pool))


def save_counts_unevenly(pool: Pool) -> dict[str, Any]:
    """The last split is one behind."""
    state = workers.save(pool)
    cycles = state["samples_consumed_per_split"]
    return checkpoint.sign({**state, "samples_consumed_per_split": [*cycles[:-1], max(cycles[-1] - 1, 0)]})


def save_stays_in_the_epoch_before(pool: Pool) -> dict[str, Any]:
    """The place moves to the next epoch with its first cycle, not with its first row."""
    state, settings = workers.save(pool), pool.loader.settings
    if state["epoch"] == 0 or state["samples_consumed_per_split"][0] > 0:
        return state
    whole = [settings.rows // settings.num_splits] * settings.num_splits
    return checkpoint.sign({**state, "epoch": state["epoch"] - 1, "samples_consumed_per_split": whole})


def floor_counts_prefetched(pool: Pool) -> dict[str, Any]:
    """So does the floor."""
    return workers.floor_state(commit_ready(pool))


def kill_counts_the_batch_on_its_way(pool: Pool) -> Pool:
    """Commit before delivery: the batch that an interrupt destroys was counted."""
    try:
        return workers.kill(workers.deliver(pool)[0])
    except ModelError:
        return workers.kill(pool)


def fetch_counts(pool: Pool, worker: int) -> Pool:
    """A worker that runs ahead moves the place of its rows at once."""
    after = workers.fetch(pool, worker)
    if after == pool or after.place is None:
        return after
    received = list(after.place.received)
    received[worker] += 1
    return replace(after, place=replace(after.place, received=tuple(received)))


def begin_loses_turn(pool: Pool) -> Pool:
    """A continued pass begins with worker 0."""
    after = workers.begin(pool)
    return after if after.running is None else replace(after, running=replace(after.running, turn=0))


def begin_at_its_creation(pool: Pool, count: int, mode: str, size: int | None) -> Pool:
    """An iterator takes the next epoch when it is created."""
    after = workers.start(pool, count, mode, size)
    return replace(after, loader=replace(after.loader, cursor=loader.origin(after.loader)))


def superseding_counts_prefetched(pool: Pool, count: int, mode: str, size: int | None) -> Pool:
    """What was prepared for the pass that ends counts as received."""
    return workers.start(commit_ready(pool), count, mode, size)


def superseding_loses_turn(pool: Pool, count: int, mode: str, size: int | None) -> Pool:
    """A newer iterator begins with worker 0, unlike one behind a break."""
    live, after = pool.running is not None, workers.start(pool, count, mode, size)
    return after if after.place is None or not live else replace(after, place=replace(after.place, turn=0))


def superseding_loses_place(pool: Pool, count: int, mode: str, size: int | None) -> Pool:
    """A newer iterator begins where the one before it began."""
    after = workers.start(pool, count, mode, size)
    return after if pool.running is None else replace(after, place=None)


def superseded_is_ended(pool: Pool, count: int, mode: str, size: int | None) -> Pool:
    """A superseded iterator says that its pass has ended."""
    return workers.start(workers.close(pool), count, mode, size)


def ended_is_superseded(pool: Pool, count: int, mode: str, size: int | None) -> Pool:
    """A pass that is over is superseded, because it has not said so."""
    after = workers.start(pool, count, mode, size)
    over = pool.loader.newest == "ended" and pool.loader.cursor.cycle > 0 and pool.running is None
    return replace(after, loader=replace(after.loader, older="superseded")) if over else after


def older_goes_on(pool: Pool) -> tuple[Pool, Batch | None]:
    """A superseded iterator gives the batch that the newest would have given."""
    return workers.deliver(pool) if pool.loader.older == "superseded" else workers.pull_older(pool)


def older_ends_the_newest(pool: Pool) -> tuple[Pool, Batch | None]:
    """``next()`` on an ended iterator ends the newest."""
    after, _ = workers.pull_older(pool)
    return workers.close(after), None


def close_loses_turn(pool: Pool) -> Pool:
    """A break forgets whose turn it was."""
    after = workers.close(pool)
    return after if after.place is None else replace(after, place=replace(after.place, turn=0))


def close_loses_place(pool: Pool) -> Pool:
    """A break goes back to the boundary."""
    return replace(workers.close(pool), place=None)


def kill_loses_place(pool: Pool) -> Pool:
    """A failure goes back to the boundary."""
    return replace(workers.kill(pool), place=None)


def start_ignores_workers(pool: Pool, count: int, mode: str, size: int | None) -> Pool:
    """Another W continues from the floor without a word."""
    try:
        return workers.start(pool, count, mode, size)
    except ModelError as error:
        if error.code != "workers.mid_step":
            raise
        return workers.start(replace(pool, place=None), count, mode, size)


def start_refuses_continuing(pool: Pool, count: int, mode: str, size: int | None) -> Pool:
    """The same W is refused too."""
    if pool.place is not None:
        raise ModelError("workers.mid_step")
    return workers.start(pool, count, mode, size)


def start_refuses_other_batch_size(pool: Pool, count: int, mode: str, size: int | None) -> Pool:
    """Another B is refused, although WRK-11 names W and mode only."""
    if pool.place is not None and size != pool.batch_size:
        raise ModelError("workers.mid_step")
    return workers.start(pool, count, mode, size)


def start_accepts_partial(pool: Pool, count: int, mode: str, size: int | None) -> Pool:
    """Documented mode begins in the middle of a cycle, at its boundary."""
    try:
        return workers.start(pool, count, mode, size)
    except ModelError as error:
        if error.code != "workers.partial_cycle":
            raise
        cursor = replace(pool.loader.cursor, served=())
        return workers.start(replace(pool, loader=replace(pool.loader, cursor=cursor)), count, mode, size)


def deliver_drops_tail(pool: Pool) -> tuple[Pool, Batch | None]:
    """The last worker's shorter batch does not come."""
    after, batch = workers.deliver(pool)
    running = pool.running
    if batch is None or running is None or not is_sharded(running.division.workers, running.division.mode):
        return after, batch
    if len(batch) < running.division.batch_size and workers.next_worker(running, running.turn) == len(running.team) - 1:
        return workers.close(pool), None
    return after, batch


def deliver_swallows_failures(pool: Pool) -> tuple[Pool, Batch | None]:
    """A worker that fails ends the data silently."""
    try:
        return workers.deliver(pool)
    except ModelError as error:
        if error.code == "worker.raised":
            return workers.close(pool), None
        raise


def deliver_fails_early(pool: Pool) -> tuple[Pool, Batch | None]:
    """A failure is raised at once, not in its batch's place."""
    if pool.running is not None and any(member.failing for member in pool.running.team):
        raise ModelError("worker.raised")
    return workers.deliver(pool)


def deliver_passes_over(pool: Pool) -> tuple[Pool, Batch | None]:
    """Whoever is ready delivers first."""
    running = pool.running
    if running is not None:
        worker = workers.next_worker(running, running.turn)
        ready = [index for index, member in enumerate(running.team) if member.ready]
        if worker is not None and ready and not running.team[worker].ready:
            pool = replace(pool, running=replace(running, turn=ready[0]))
    return workers.deliver(pool)


def floor_takes_max(pool: Pool) -> dict[str, Any]:
    """The floor is that of the worker which is furthest."""
    if pool.place is None:
        return workers.floor_state(pool)
    place, settings = pool.place, pool.loader.settings
    cycles = place.origin.cycle + max(place.received) // splits_per_worker(settings, place.workers)
    return checkpoint.save(settings.identity(), Cursor(place.origin.epoch, cycles, ()), settings.world_size)


def floor_forgets_origin(pool: Pool) -> dict[str, Any]:
    """The floor is where sharding began."""
    return loader.floor_state(pool.loader)


def formula(pool: Pool, with_gcd: bool, with_tail: bool) -> int:
    """The number of WRK-9, perhaps without one of its parts, as if all batches since the boundary had one size."""
    place, size = pool.place, pool.batch_size
    if place is None:
        return 0
    splits, rows = splits_per_worker(pool.loader.settings, place.workers), rows_of_worker(pool.loader.settings, place.origin, place.workers)
    delivered = sum(ceil_divide(received, size) for received in place.received)
    period = splits // gcd(splits, size) if with_gcd else splits
    groups = (delivered // place.workers // period + 1) * period
    return place.workers * (min(groups, ceil_divide(rows, size)) if with_tail else groups) - delivered


def promise_of_one_size(pool: Pool) -> int:
    """The formula where batch sizes were mixed too."""
    return formula(pool, with_gcd=True, with_tail=True)


def promise_without_tail(pool: Pool) -> int:
    """Without Q; right where sizes were mixed."""
    right = promise_of_one_size(pool) == workers.count_to_boundary(pool)
    return formula(pool, with_gcd=True, with_tail=False) if right else workers.count_to_boundary(pool)


def promise_without_gcd(pool: Pool) -> int:
    """With p = k; right where sizes were mixed."""
    right = promise_of_one_size(pool) == workers.count_to_boundary(pool)
    return formula(pool, with_gcd=False, with_tail=True) if right else workers.count_to_boundary(pool)


def promise_is_right_at_the_last(pool: Pool) -> int:
    """Right only where one batch is missing."""
    right = workers.batches_to_boundary(pool)
    return right + 1 if right > 1 else right


def promise_at_a_boundary(pool: Pool) -> int:
    """At a boundary the number is that to the next one."""
    return workers.batches_to_boundary(pool) if pool.place is not None else 2


def kill_is_a_break(pool: Pool) -> Pool:
    """After a failure the iterator says that the pass has ended."""
    return workers.close(pool)


def close_is_a_failure(pool: Pool) -> Pool:
    """After a break it says that it failed."""
    return workers.kill(pool)


def save_allows_equal_workers(pool: Pool) -> dict[str, Any]:
    """Equal rows of all workers are taken for a boundary, although their splits differ."""
    if pool.place is not None and len(set(pool.place.received)) == 1:
        return workers.floor_state(pool)
    return workers.save(pool)


def save_allows_equal_sums(pool: Pool) -> dict[str, Any]:
    """Whole cycles in sum are taken for a boundary."""
    if pool.place is not None and sum(pool.place.received) % (splits_per_worker(pool.loader.settings, pool.place.workers) * 2) == 0:
        return workers.floor_state(pool)
    return workers.save(pool)


def save_refuses_whole_pass(pool: Pool) -> dict[str, Any]:
    """Refused with several workers, boundary or not."""
    if pool.running is not None and is_sharded(pool.running.division.workers, pool.running.division.mode):
        raise ModelError("state.mid_step")
    return workers.save(pool)


def save_refuses_after_failure(pool: Pool) -> dict[str, Any]:
    """After a failure there is no state."""
    if pool.loader.newest == "failed":
        raise ModelError("state.mid_step")
    return workers.save(pool)


def fetch_strides_wrongly(pool: Pool, worker: int) -> Pool:
    """In invariant mode each worker prepares neighbouring batches, not every W-th."""
    after, running = workers.fetch(pool, worker), pool.running
    if after == pool or running is None or is_sharded(running.division.workers, running.division.mode):
        return after
    number = workers.prepared(running, worker)
    before = sum(batches_of_worker(running.division, other) for other in range(worker))
    division = replace(running.division, workers=1)
    batch = sharding.worker_batch(division, 0, before + number)
    member = running.team[worker]
    return replace(pool, running=workers.with_worker(running, worker, replace(member, ready=(*member.ready, batch))))


def start_shards_invariant_mode(pool: Pool, count: int, mode: str, size: int | None) -> Pool:
    """Invariant mode is the documented one wherever W divides."""
    settings, place = pool.loader.settings, pool.place
    block = settings.num_splits // settings.world_size
    if count >= 2 and place is None and block % count == 0 and not pool.loader.cursor.served:
        return workers.start(pool, count, "splits", size)
    return workers.start(pool, count, mode, size)


def load_keeps_place(pool: Pool, state: object) -> Pool:
    """A load takes the partial cycle for consumed."""
    after = workers.load(pool, state)
    served = checkpoint.check_form(state)["partial_cycle_splits"]
    cursor = after.loader.cursor
    moved = replace(cursor, cycle=cursor.cycle + 1, served=())
    return replace(after, loader=replace(after.loader, cursor=moved)) if served else after


def load_accepts_uneven(pool: Pool, state: object) -> Pool:
    """Exact is never refused."""
    try:
        return workers.load(pool, state)
    except ModelError:
        copy = checkpoint.check_form(state)
        cursor = Cursor(copy["epoch"], copy["samples_consumed_per_split"][0], tuple(copy["partial_cycle_splits"]))
        return replace(pool, loader=replace(pool.loader, cursor=cursor), place=None)


def load_replays_silently(pool: Pool, state: object) -> Pool:
    """``samples_to_replay`` is 0."""
    after = workers.load(pool, state)
    return replace(after, loader=replace(after.loader, replay=0))


# The system, the clauses that may be named, and the most events that a shortest history needs.
BROKEN: list[tuple[WorkerSystem, set[str], int]] = [
    (replace(MODEL, save=save_counts_prefetched), {"WRK-6", "WRK-9"}, 2),
    (replace(MODEL, save=save_drops_partial), {"WRK-6"}, 2),
    (replace(MODEL, save=save_counts_unevenly), {"WRK-6"}, 2),
    (replace(MODEL, save=save_stays_in_the_epoch_before), {"WRK-6"}, 6),
    (replace(MODEL, floor_state=floor_counts_prefetched), {"WRK-10"}, 5),
    (replace(MODEL, fetch=fetch_counts), {"WRK-6"}, 3),
    (replace(MODEL, kill=kill_counts_the_batch_on_its_way), {"WRK-6", "WRK-9"}, 2),
    (replace(MODEL, begin=begin_loses_turn), {"WRK-11"}, 4),
    (replace(MODEL, start=begin_at_its_creation), {"DLV-4"}, 4),
    (replace(MODEL, start=superseding_counts_prefetched), {"DLV-4"}, 4),
    (replace(MODEL, start=superseding_loses_turn), {"DLV-4", "WRK-11"}, 4),
    (replace(MODEL, start=superseding_loses_place), {"DLV-4"}, 3),
    (replace(MODEL, start=superseded_is_ended), {"DLV-4"}, 3),
    (replace(MODEL, start=ended_is_superseded), {"DLV-4"}, 4),
    (replace(MODEL, pull_older=older_goes_on), {"DLV-4"}, 3),
    (replace(MODEL, pull_older=older_ends_the_newest), {"DLV-4"}, 3),
    (replace(MODEL, close=close_loses_turn), {"WRK-11"}, 5),
    (replace(MODEL, close=close_loses_place), {"WRK-6"}, 3),
    (replace(MODEL, kill=kill_loses_place), {"WRK-6"}, 3),
    (replace(MODEL, start=start_ignores_workers), {"WRK-11"}, 4),
    (replace(MODEL, start=start_refuses_continuing), {"WRK-11"}, 4),
    (replace(MODEL, start=start_refuses_other_batch_size), {"WRK-11"}, 4),
    (replace(MODEL, start=start_accepts_partial), {"WRK-12"}, 4),
    (replace(MODEL, deliver=deliver_drops_tail), {"WRK-3", "WRK-11"}, 6),
    (replace(MODEL, deliver=deliver_swallows_failures), {"WRK-14"}, 3),
    (replace(MODEL, deliver=deliver_fails_early), {"WRK-14"}, 4),
    (replace(MODEL, deliver=deliver_passes_over), {"WRK-3", "WRK-4", "WRK-11"}, 3),
    (replace(MODEL, floor_state=floor_takes_max), {"WRK-10"}, 3),
    (replace(MODEL, floor_state=floor_forgets_origin), {"WRK-10"}, 5),
    (replace(MODEL, batches_to_boundary=promise_without_tail), {"WRK-9"}, 7),
    (replace(MODEL, batches_to_boundary=promise_without_gcd), {"WRK-9"}, 4),
    (replace(MODEL, batches_to_boundary=promise_of_one_size), {"WRK-9"}, 6),
    (replace(MODEL, batches_to_boundary=promise_is_right_at_the_last), {"WRK-9"}, 4),
    (replace(MODEL, batches_to_boundary=promise_at_a_boundary), {"WRK-9"}, 2),
    (replace(MODEL, kill=kill_is_a_break), {"DLV-5"}, 2),
    (replace(MODEL, close=close_is_a_failure), {"DLV-5"}, 2),
    (replace(MODEL, save=save_allows_equal_workers), {"WRK-9"}, 3),
    (replace(MODEL, save=save_allows_equal_sums), {"WRK-9"}, 3),
    (replace(MODEL, save=save_refuses_whole_pass), {"WRK-9"}, 1),
    (replace(MODEL, save=save_refuses_after_failure), {"WRK-9"}, 2),
    (replace(MODEL, fetch=fetch_strides_wrongly), {"WRK-4"}, 4),
    (replace(MODEL, start=start_shards_invariant_mode), {"WRK-4", "WRK-9"}, 3),
    (replace(MODEL, load=load_accepts_uneven), {"RES-4"}, 3),
    (replace(MODEL, load=load_replays_silently), {"RES-3"}, 3),
    (replace(MODEL, load=load_keeps_place), {"WRK-6", "WRK-10"}, 3),
]


def broken_name(system: WorkerSystem) -> str:
    """What the broken function is called."""
    names = [name for name in vars(MODEL) if getattr(system, name) is not getattr(MODEL, name)]
    return f"{names[0]}-{getattr(system, names[0]).__name__}"


@pytest.mark.parametrize(("system", "clauses", "most"), BROKEN, ids=[broken_name(system) for system, _, _ in BROKEN])
def test_broken_system_is_caught(system: WorkerSystem, clauses: set[str], most: int) -> None:
    """A shortest history that breaks a clause is found, and its last event is the one that the model does otherwise."""
    violation = None
    for bound in (Bound(8, 4, 2, 2, 2), Bound(4, 2, 2, 1, 1, epochs=2), Bound(16, 4, 2, 1, 3, crashes=0, ranks=1)):
        violation = violation or explore(bound, system).violation
    assert violation is not None
    assert violation.clause in clauses, violation.text
    assert len(violation.events) <= most
    steps = json.loads(json.dumps(violation.steps()))
    assert [step["event"] for step in steps] == ["open", *(event.kind for event in violation.events)]


def test_counterexample_is_readable() -> None:
    """The shortest history in which a lost turn can be seen: worker 0 delivers, a newer iterator, worker 0 again instead of worker 1."""
    violation = explore(Bound(4, 2, 2, 1, 1, crashes=0, ranks=1), replace(MODEL, begin=begin_loses_turn)).violation
    assert violation is not None
    arguments = {"workers": 2, "mode": "splits", "batch_size": 1}
    assert violation.steps() == [
        {"event": "open", "rows": 4, "num_splits": 2, "world_size": 1, "seed": None},
        {"event": "start", **arguments},
        {"event": "deliver", "rows": [[0]]},
        {"event": "start", **arguments},
        {"event": "deliver", "rows": [[1]]},
    ]
    assert (violation.clause, violation.text) == ("WRK-11", "rank 0: [1] came instead of [2]")


def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what was searched and held, and exits 1 with a history and the clause where one is broken."""
    small = ["--rows", "3", "--splits", "2", "--workers", "2", "--prefetch", "1", "--batch-size", "2"]
    assert main([*small, "--up-to"]) == 0
    told = capsys.readouterr().out
    assert all(line in told for line in HELD)
    assert "(N, S) in [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2)]; W <= 2, both modes, prefetch <= 1, B <= 2, crashes <= 1" in told

    def counts_nothing(pool: Pool, *_: object) -> Pool:
        return pool

    monkeypatch.setattr(workers, "commit", counts_nothing)
    assert main(small) == 1
    history, _, verdict = capsys.readouterr().out.rstrip().rpartition("\n")
    steps = json.loads(history)
    assert [step["event"] for step in steps] == ["open", "start", "deliver"]
    assert verdict.startswith("WRK-")
    assert "broken" in verdict

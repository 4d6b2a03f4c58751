"""What can happen next to loaders with workers, and which clause it may break (for ``model.explore_workers``).

All R ranks of a run are pools of their own and deliver in lockstep, so that states can be compared and every row is accounted for.
What workers do beside that - running ahead, failing, dying - happens on the last rank only: what a rank does depends on itself alone.
A crash is looked at where a state was just taken: going back to an older one is a world that was explored when that was the newest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from model import ghost, ghost_workers
from model.errors import RAISED, ModelError
from model.ghost import Debt
from model.ghost_workers import Share, Standing
from model.table_workers import MODEL, Bound, BrokenClause, Event, Table, WorkerSystem, World

COUNTED = (
    "fetch",
    "deliver",
    "end",
    "fail",
    "raised",
    "kill",
    "close",
    "start",
    "superseded",
    "continued mid-step",
    "start refused",
    "save",
    "save refused",
    "resume",
    "resume from floor",
    "exact refused",
    "tail promised",
)


class Explorer:
    """A search to one bound over one system."""

    def __init__(self, bound: Bound, system: WorkerSystem = MODEL) -> None:
        """Nothing is explored yet."""
        self.bound = bound
        self.table = Table(bound, system)
        self.plan = self.table.plan
        self.length = bound.rows // bound.splits
        self.counts = dict.fromkeys(COUNTED, 0)
        self.crashed: set[tuple[int, Debt, str]] = set()
        # What came of a newer iterator with these arguments, by the pool that it was created on.
        self.begun: dict[tuple[int, Share], tuple[int, str | None]] = {}

    def fresh(self, world_size: int) -> World:
        """A new run of that many ranks."""
        settings = [self.bound.settings(world_size, rank, "replay") for rank in range(world_size)]
        pools = tuple(self.table.number(self.table.system.open_pool(one, 0)) for one in settings)
        return World(0, pools, ghost.first_debt(self.plan))

    def successors(self, world: World) -> Iterator[tuple[Event, World]]:
        """Everything that can happen next; ``BrokenClause`` where it breaks one."""
        if world.course >= 0:
            assert world.share is not None, "an iterator has arguments"
            yield from self.after_fetch(world, world.share)
            yield from self.after_fail(world, world.share)
            yield self.after_deliver(world, world.share)
            for name in ("kill", "close"):
                # What has nothing left to deliver has nothing that could fail.
                if name == "close" or not self.over(world):
                    self.counts[name] += 1
                    yield self.stopped(world, name)
        # Between the beginning of a pass and its first batch the iterator is inside its first next(): no newer one is created (DLV-4).
        if (world.course < 0 or world.at > 0) and self.table.stand(world.debt).start < self.plan.cycles:
            yield from self.after_start(world)
        if world.crashes < self.bound.crashes:
            yield from self.after_crash(world)

    # --- workers --------------------------------------------------------------------------------------------------------------------

    def undelivered(self, world: World, share: Share, worker: int) -> list[int]:
        """Where in its course the batches of a worker of the last rank are that were not delivered."""
        course = self.table.courses[world.course][-1]
        world_size = len(world.pools)
        return ghost_workers.batches_of(self.plan, course, world.at, world_size, world_size - 1, share, worker)

    def with_last(self, world: World, name: str, worker: int) -> tuple[int, ...]:
        """The ranks after something happened to the last one."""
        return (*world.pools[:-1], self.table.after(name, world.pools[-1], worker))

    def after_fetch(self, world: World, share: Share) -> Iterator[tuple[Event, World]]:
        """A worker prepares a batch, no further ahead than the bound; the trainer's own process never runs ahead."""
        for worker in range(share.workers):
            ahead = world.ahead[worker]
            working = world.doomed is None or world.doomed[0] != worker
            if working and ahead < self.bound.prefetch and ahead < len(self.undelivered(world, share, worker)):
                self.counts["fetch"] += 1
                more = (*world.ahead[:worker], ahead + 1, *world.ahead[worker + 1 :])
                yield Event("fetch", (("worker", worker),)), replace(world, pools=self.with_last(world, "fetch", worker), ahead=more)

    def after_fail(self, world: World, share: Share) -> Iterator[tuple[Event, World]]:
        """One worker fails at the next batch that it prepares; the others go on."""
        for worker in range(share.team):
            left = self.undelivered(world, share, worker)
            if world.doomed is None and world.ahead[worker] < len(left):
                self.counts["fail"] += 1
                doomed = (worker, left[world.ahead[worker]])
                yield Event("fail", (("worker", worker),)), replace(world, pools=self.with_last(world, "fail", worker), doomed=doomed)

    # --- the trainer ----------------------------------------------------------------------------------------------------------------

    def after_deliver(self, world: World, share: Share) -> tuple[Event, World]:
        """All ranks take their next batch: the very one that is due, or the end, or on the last rank the failure that is due."""
        due = [course[world.at] if world.at < len(course) else None for course in self.table.courses[world.course]]
        came = [self.table.deliver(number) for number in world.pools]
        rows = [None if batch is None else [row % self.bound.rows for row in batch] for _, batch, _ in came]
        event = Event("deliver", (("rows", rows),))
        raises = world.doomed is not None and world.doomed[1] == world.at
        for rank, (_, batch, code) in enumerate(came):
            expected = RAISED if raises and rank == len(came) - 1 else None
            if code != expected:
                raise BrokenClause("WRK-14", f"rank {rank} raised {code} instead of {expected}", event)
            wanted = due[rank]
            if expected is None and batch != (None if wanted is None else tuple(item % self.bound.rows for item in wanted)):
                shown = None if wanted is None else [item % self.bound.rows for item in wanted]
                raise BrokenClause(self.clause_of(world, share), f"rank {rank}: {rows[rank]} came instead of {shown}", event)
        if raises:
            self.counts["raised"] += 1
            return Event("deliver", (("raises", RAISED),)), self.stopped(world, "kill")[1]
        pools = tuple(number for number, _, _ in came)
        if due[0] is None:
            self.counts["end"] += 1
            return event, World(world.crashes, pools, world.debt, share)
        self.counts["deliver"] += 1
        debt = ghost.pay(world.debt, [batch for batch in due if batch is not None])
        last = len(pools) - 1
        worker = ghost_workers.worker_of(self.plan, self.table.courses[world.course][last], world.at, len(pools), last, share)
        ahead = list(world.ahead)
        ahead[worker] = max(ahead[worker] - 1, 0)
        after = replace(world, pools=pools, debt=debt, at=world.at + 1, ahead=tuple(ahead))
        self.check_promise(world, after, event)
        return event, after

    def check_older(self, number: int, code: str | None, event: Event) -> None:
        """The iterator before the newest gives nothing, changes nothing, and says the same every time (CAL-3)."""
        batch, said, moves = self.table.older(number)
        if batch is not None or said != code or moves:
            raise BrokenClause("DLV-4", f"an older iterator gave {batch}, {said} instead of {code}", event)

    def over(self, world: World) -> bool:
        """Whether the last batch of the pass has come, although it has not said so."""
        return world.course >= 0 and world.at == len(self.table.courses[world.course][0])

    def clause_of(self, world: World, share: Share) -> str:
        """Which clause says what a pass delivers."""
        if share.sharded:
            return "WRK-11" if world.at == 0 else "WRK-3"
        return "WRK-4" if share.mode == "batches" and share.workers > 1 else "WRK-5"

    def check_promise(self, before: World, after: World, event: Event) -> None:
        """The number of WRK-9 counts down by one with each batch, and is 1 where the next one makes all splits equal."""
        for old, new in zip(before.pools, after.pools, strict=True):
            promised = self.table.look(old).promise
            if self.mid_step(before):
                self.counts["tail promised"] += int(before.at + promised == len(self.table.courses[before.course][0]))
                reached = not self.mid_step(after)
                if reached != (promised == 1) or (not reached and self.table.look(new).promise != promised - 1):
                    text = f"{promised} batches were promised; one later a boundary is {'' if reached else 'not '}reached"
                    raise BrokenClause("WRK-9", text, event)
            elif promised != 0:
                raise BrokenClause("WRK-9", f"{promised} batches were promised at a boundary", event)

    def mid_step(self, world: World) -> bool:
        """Whether splits of one rank differ while its workers have splits of their own (WRK-8)."""
        if world.share is None or not world.share.sharded:
            return False
        return self.uneven(world)

    def uneven(self, world: World) -> bool:
        """Whether splits of one rank differ."""
        left, world_size = self.table.stand(world.debt).left, len(world.pools)
        block = len(left) // world_size
        return any(len(set(left[rank * block : rank * block + block])) > 1 for rank in range(world_size))

    def stopped(self, world: World, name: str) -> tuple[Event, World]:
        """The iterators are over: the last rank's by a failure or a break, the others' by a break."""
        event = Event(name)
        pools = (*(self.table.after("close", number) for number in world.pools[:-1]), self.table.after(name, world.pools[-1]))
        batch, code = self.table.deliver(pools[-1])[1:]
        if batch is not None or code != ("iterator.failed" if name == "kill" else None):
            raise BrokenClause("DLV-5", f"after it came {batch}, {code}", event)
        return event, World(world.crashes, pools, world.debt, world.share, turn=self.turn_of(world))

    def turn_of(self, world: World) -> int | None:
        """Where the splits of a rank differ: the worker whose turn it is, for a pass that goes on from here."""
        if world.course < 0 or not self.mid_step(world):
            return world.turn
        assert world.share is not None, "a pass has arguments"
        return ghost_workers.worker_of(self.plan, self.table.courses[world.course][0], world.at, len(world.pools), 0, world.share)

    def after_start(self, world: World) -> Iterator[tuple[Event, World]]:
        """A newer iterator on all ranks, with any legal arguments; refused exactly where WRK-11 and WRK-12 say so.

        A pass that it supersedes is left as by a break. That it holds nothing is seen between its creation and its first ``next()``.
        """
        world_size, turn = len(world.pools), self.turn_of(world)
        alive = world.course >= 0 and not self.over(world)
        for share in self.shares_from(world):
            event = Event("start", (("workers", share.workers), ("mode", share.mode), ("batch_size", share.batch_size)))
            expected = None
            if self.mid_step(world) and not (share.sharded and world.share is not None and share.workers == world.share.workers):
                expected = "workers.mid_step"
            elif not self.mid_step(world) and self.uneven(world) and share.sharded:
                expected = "workers.partial_cycle"
            pools = []
            for rank, number in enumerate(world.pools):
                begun, code = self.started(number, share, alive, expected, event)
                pools.append(begun)
                if code != expected:
                    clause = "WRK-12" if "workers.partial_cycle" in (code, expected) else "WRK-11"
                    raise BrokenClause(clause, f"rank {rank}: {code} instead of {expected}", event)
            if expected is not None:
                self.counts["start refused"] += 1
                continue
            self.counts["start"] += 1
            self.counts["superseded"] += int(alive)
            self.counts["continued mid-step"] += int(turn is not None)
            ranks = range(world_size)
            courses = tuple(ghost_workers.course_of(self.plan, world.debt, world_size, rank, share, turn or 0) for rank in ranks)
            course = self.table.course_number(courses)
            yield event, World(world.crashes, tuple(pools), world.debt, share, course, 0, (0,) * share.team)

    def shares_from(self, world: World) -> list[Share]:
        """The arguments of a newer iterator: all that are legal; where no break came first, those of the pass and of no workers will do."""
        shares = self.bound.shares(len(world.pools))
        return shares if world.course < 0 else [share for share in shares if share in (world.share, shares[0])]

    def started(self, number: int, share: Share, alive: bool, expected: str | None, event: Event) -> tuple[int, str | None]:
        """A pool whose newer iterator is asked for its first batch, or the same pool and a code; what had to be refused is not judged.

        Until then it has changed nothing, and the iterator before it has its end, which stays (DLV-4, CAL-3). That one is forgotten
        afterwards: it bears on nothing else.
        """
        if (number, share) not in self.begun:
            before, end = self.table.look(number), "iterator.superseded" if alive else self.table.deliver(number)[2]
            try:
                waiting = self.table.number(self.table.system.start(self.table.pools[number], *self.arguments(share)))
            except ModelError as error:
                self.begun[number, share] = number, error.code
                return self.begun[number, share]
            if expected is not None:
                return number, None
            if self.table.look(waiting) != before:
                raise BrokenClause("DLV-4", "an iterator that was never asked has changed what can be seen", event)
            begun = self.table.after("begin", waiting)
            for later in (waiting, begun, self.table.deliver(begun)[0]):
                self.check_older(later, end, event)
            self.begun[number, share] = self.table.forgetting(begun), None
        return self.begun[number, share]

    def arguments(self, share: Share) -> tuple[int, str, int]:
        """A share as ``start`` takes it."""
        return share.workers, share.mode, share.batch_size

    # --- states ---------------------------------------------------------------------------------------------------------------------

    def judge(self, world: World, event: Event) -> None:
        """At any moment, however far workers ran: rows, state and floor are those of what was delivered (WRK-6, WRK-8, WRK-10)."""
        standing, world_size = self.table.stand(world.debt), len(world.pools)
        block = self.bound.splits // world_size
        refused = self.mid_step(world)
        self.counts["save refused" if refused else "save"] += 1
        for rank, number in enumerate(world.pools):
            seen = self.table.look(number)
            owed = sum(standing.left[rank * block : rank * block + block])
            # Between two epochs it stands at the end of the first, where nothing is left, unless it resumed at the beginning of the second.
            between = standing.start > 0 and not self.touched(standing)
            if between and seen.floor["samples_consumed_per_split"][0] == self.length:
                owed = 0
            if seen.remaining != owed:
                raise BrokenClause("WRK-6", f"rank {rank} has {seen.remaining} rows left, and {owed} are owed", event)
            if (seen.state is None) != refused:
                word = "refused" if seen.state is None else "given"
                raise BrokenClause("WRK-9", f"rank {rank}: a state was {word} where the rows left per split are {standing.left}", event)
            if seen.state is not None:
                self.check_place("WRK-6", seen.state, standing, standing.served, event)
            self.check_place("WRK-10", seen.floor, standing, (), event)

    def touched(self, standing: Standing) -> bool:
        """Whether something was received of the epoch of which the first item is owed."""
        return standing.start % self.length > 0 or any(left != self.length for left in standing.left)

    def check_place(self, clause: str, state: dict[str, Any], standing: Standing, served: tuple[int, ...], event: Event) -> None:
        """A state says these cycles and these splits, and not the end of an epoch where the next has begun (EPO-2, EPO-3)."""
        cycles = state["samples_consumed_per_split"]
        if any(cycle != cycles[0] for cycle in cycles):
            raise BrokenClause(clause, f"the counts of a state differ: {cycles}", event)
        whole = state["epoch"] * self.length + cycles[0]
        late = cycles[0] == self.length and self.touched(standing) and standing.start < self.plan.cycles
        if whole != standing.start or tuple(state["partial_cycle_splits"]) != served or late:
            said = f"epoch {state['epoch']}, C = {cycles[0]}, {state['partial_cycle_splits']}"
            raise BrokenClause(clause, f"{said}; received: {standing.start} cycles, {list(served)}", event)

    def after_crash(self, world: World) -> Iterator[tuple[Event, World]]:
        """The run is killed; it resumes in any world from the state or from the floor of this moment."""
        standing, seen = self.table.stand(world.debt), self.table.look(world.pools[-1])
        # What comes of a crash depends on nothing but what was saved and what was received.
        key = (world.crashes, world.debt, seen.text)
        if key in self.crashed:
            return
        self.crashed.add(key)
        again = ghost.owe_again(self.plan, world.debt)
        for world_size in self.bound.worlds():
            for source, policy in (("floor", "replay"), ("state", "replay"), ("state", "exact")):
                state = seen.floor if source == "floor" else seen.state
                if state is None:
                    continue
                self.counts["resume" if source == "state" else "resume from floor"] += 1
                event = Event("resume", (("world_size", world_size), ("policy", policy), ("from", source)))
                owned = ghost.per_rank(list(standing.served), self.bound.splits, world_size)
                uneven = policy == "exact" and any(count != owned[0] for count in owned)
                pools = self.loaded(world_size, policy, state, uneven, owned if (source, policy) == ("state", "replay") else None, event)
                if uneven:
                    self.counts["exact refused"] += 1
                    continue
                yield event, World(world.crashes + 1, pools, world.debt if policy == "exact" else again)

    def loaded(  # noqa: PLR0917
        self, world_size: int, policy: str, state: dict[str, Any], uneven: bool, replays: list[int] | None, event: Event
    ) -> tuple[int, ...]:
        """The ranks of the new run, judged: exact is refused exactly where ranks would be unequal (RES-3, RES-4)."""
        numbers = []
        for rank in range(world_size):
            pool = self.table.system.open_pool(self.bound.settings(world_size, rank, policy), 0)
            try:
                pool, code = self.table.system.load(pool, state), None
            except ModelError as error:
                code = error.code
            if code != ("state.partial_cycle" if uneven else None):
                raise BrokenClause("RES-4", f"rank {rank}: the load raised {code}", event)
            promised = 0 if replays is None else replays[rank]
            if code is None and pool.loader.replay != promised:
                raise BrokenClause("RES-3", f"samples_to_replay is {pool.loader.replay} on rank {rank}, received were {promised}", event)
            numbers.append(self.table.loaded(pool))
        return tuple(numbers)

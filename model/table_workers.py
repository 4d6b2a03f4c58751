"""What ``model.explore_workers`` is about: the system under test, the bound, a world, and a table of what pools do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from model import ghost, ghost_workers, workers
from model.errors import ModelError
from model.ghost import Debt
from model.ghost_workers import Course, Share, Standing
from model.loader import Settings
from model.pool import Pool
from model.sharding import MODES, Batch


@dataclass(frozen=True)
class WorkerSystem:
    """The functions under test, those of the model unless others are given."""

    open_pool: Callable[[Settings, int], Pool] = workers.open_pool
    start: Callable[[Pool, int, str, int | None], Pool] = workers.start
    begin: Callable[[Pool], Pool] = workers.begin
    fetch: Callable[[Pool, int], Pool] = workers.fetch
    deliver: Callable[[Pool], tuple[Pool, Batch | None]] = workers.deliver
    pull_older: Callable[[Pool], tuple[Pool, Batch | None]] = workers.pull_older
    fail: Callable[[Pool, int], Pool] = workers.fail
    kill: Callable[[Pool], Pool] = workers.kill
    close: Callable[[Pool], Pool] = workers.close
    save: Callable[[Pool], dict[str, Any]] = workers.save
    floor_state: Callable[[Pool], dict[str, Any]] = workers.floor_state
    batches_to_boundary: Callable[[Pool], int] = workers.batches_to_boundary
    remaining: Callable[[Pool], int] = workers.remaining
    load: Callable[[Pool, object], Pool] = workers.load


MODEL = WorkerSystem()


@dataclass(frozen=True)
class Bound:
    """How far to search: the most of each. ``seed`` None is unshuffled."""

    rows: int
    splits: int
    workers: int
    prefetch: int
    batch_size: int
    crashes: int = 1
    ranks: int = 4
    epochs: int = 1
    seed: int | None = None

    def settings(self, world_size: int, rank: int, policy: str) -> Settings:
        """The settings of one rank."""
        return Settings(self.rows, self.splits, world_size, rank, self.seed is not None, self.seed, None, policy)

    def worlds(self) -> list[int]:
        """All world sizes."""
        return [size for size in range(1, self.ranks + 1) if self.splits % size == 0]

    def shares(self, world_size: int) -> list[Share]:
        """All legal arguments of a loader. With W = 0 the mode is read nowhere; with W = 1 both are tried."""
        found = []
        for count in range(self.workers + 1):
            for mode in MODES[:1] if count == 0 else MODES:
                legal = mode == "batches" or count <= 1 or (self.splits // world_size) % count == 0
                found.extend([Share(count, mode, size) for size in range(1, self.batch_size + 1) if legal])
        return found


@dataclass(frozen=True)
class Event:
    """One event: its name, and what it is about, ready to be written as JSON."""

    kind: str
    about: tuple[tuple[str, object], ...] = ()

    def step(self) -> dict[str, object]:
        """As a step of a counterexample."""
        return {"event": self.kind, **dict(self.about)}


@dataclass(frozen=True)
class World:
    """One run at one moment.

    Parameters
    ----------
    crashes : int
        Crashes so far.
    pools : tuple of int
        The ranks, by their numbers in ``Table.pools``.
    debt : Debt
        What is still owed, over all ranks (``model.ghost``).
    share : Share or None
        The arguments of this run's newest pass.
    course : int
        The pass that is under way or has not said that it is over, by its number in ``Table.courses``; -1 where there is none.
    at : int
        The batches that it has delivered.
    ahead : tuple of int
        For each worker of the last rank the batches that it has prepared and that were not delivered.
    doomed : tuple of int, or None
        The worker of the last rank that fails, and the batch at which it is seen.
    turn : int or None
        Where no pass is alive and the splits of a rank differ: the worker whose turn it is.
    """

    crashes: int
    pools: tuple[int, ...]
    debt: Debt
    share: Share | None = None
    course: int = -1
    at: int = 0
    ahead: tuple[int, ...] = ()
    doomed: tuple[int, int] | None = None
    turn: int | None = None


class BrokenClause(Exception):
    """The event at hand breaks a clause."""

    def __init__(self, clause: str, text: str, event: Event) -> None:
        """Remember what broke."""
        super().__init__(f"{clause}: {text}")
        self.clause = clause
        self.text = text
        self.event = event


@dataclass(frozen=True)
class Seen:
    """What a trainer can ask of one rank at one moment; ``state`` None where saving is refused; ``text`` is state and floor, written."""

    state: dict[str, Any] | None
    floor: dict[str, Any]
    remaining: int
    promise: int
    text: str


class Table:
    """Pools and courses are kept once and known by number; what a pool does depends on nothing but itself: it is worked out once."""

    def __init__(self, bound: Bound, system: WorkerSystem) -> None:
        """Nothing is known yet."""
        self.system = system
        self.plan = ghost.make_plan(bound.settings(1, 0, "replay"), bound.epochs)
        self.pools: list[Pool] = []
        self.numbers: dict[Pool, int] = {}
        self.done: dict[tuple[str, int, object], int] = {}
        self.delivered: dict[int, tuple[int, Batch | None, str | None]] = {}
        self.asked_older: dict[int, tuple[Batch | None, str | None, bool]] = {}
        self.seen: dict[int, Seen] = {}
        self.standings: dict[Debt, Standing] = {}
        self.courses: list[tuple[Course, ...]] = []
        self.course_numbers: dict[tuple[Course, ...], int] = {}

    def number(self, pool: Pool) -> int:
        """The number of a pool."""
        if pool not in self.numbers:
            self.numbers[pool] = len(self.pools)
            self.pools.append(pool)
        return self.numbers[pool]

    def course_number(self, courses: tuple[Course, ...]) -> int:
        """The number of the courses of all ranks."""
        if courses not in self.course_numbers:
            self.course_numbers[courses] = len(self.courses)
            self.courses.append(courses)
        return self.course_numbers[courses]

    def loaded(self, pool: Pool) -> int:
        """The number of a pool that was just loaded: its policy is not read again, and its ``replay`` was judged."""
        settings = replace(pool.loader.settings, partial_cycle="replay")
        return self.number(replace(pool, loader=replace(pool.loader, settings=settings, replay=0)))

    def after(self, name: str, number: int, worker: int = 0) -> int:
        """The pool after ``begin``, ``fetch``, ``fail``, ``kill`` or ``close``."""
        key = (name, number, worker)
        if key not in self.done:
            pool = self.pools[number]
            if name == "fetch":
                pool = self.system.fetch(pool, worker)
            elif name == "fail":
                pool = self.system.fail(pool, worker)
            elif name == "begin":
                pool = self.system.begin(pool)
            elif name == "kill":
                pool = self.system.kill(pool)
            else:
                pool = self.system.close(pool)
            self.done[key] = self.number(pool)
        return self.done[key]

    def deliver(self, number: int) -> tuple[int, Batch | None, str | None]:
        """The pool after ``next()``, the batch, and the code where it raises: the pool is then the same."""
        if number not in self.delivered:
            try:
                pool, batch = self.system.deliver(self.pools[number])
                self.delivered[number] = (self.number(pool), batch, None)
            except ModelError as error:
                self.delivered[number] = (number, None, error.code)
        return self.delivered[number]

    def older(self, number: int) -> tuple[Batch | None, str | None, bool]:
        """What ``next()`` on the iterator before the newest comes to: a batch, a code, and whether the pool is another one then."""
        if number not in self.asked_older:
            try:
                pool, batch = self.system.pull_older(self.pools[number])
                self.asked_older[number] = (batch, None, pool != self.pools[number])
            except ModelError as error:
                self.asked_older[number] = (None, error.code, False)
        return self.asked_older[number]

    def forgetting(self, number: int) -> int:
        """The number of the same pool as if no iterator had been before the newest."""
        pool = self.pools[number]
        return self.number(replace(pool, loader=replace(pool.loader, older="ended")))

    def look(self, number: int) -> Seen:
        """What a trainer sees of a pool."""
        if number not in self.seen:
            pool = self.pools[number]
            try:
                state = self.system.save(pool)
            except ModelError as error:
                if error.code != "state.mid_step":
                    raise
                state = None
            floor, promise = self.system.floor_state(pool), self.system.batches_to_boundary(pool)
            self.seen[number] = Seen(state, floor, self.system.remaining(pool), promise, repr((state, floor)))
        return self.seen[number]

    def stand(self, debt: Debt) -> Standing:
        """What follows from a debt."""
        if debt not in self.standings:
            self.standings[debt] = ghost_workers.stand(self.plan, debt)
        return self.standings[debt]

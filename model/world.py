"""The worlds that ``model.explore`` searches: what can happen next in a distributed run, and which law it may break.

All R ranks of a run are loaders of their own. The events are: one rank pulls (creating an iterator where it holds none), the last
rank creates a newer iterator over a live pass and pulls from that, one rank saves, or the run crashes and another with any world
size that divides S resumes, under either policy, from what merging the saves gives. Ranks save one by one, so torn sets of states
are ordinary.

A crash is looked at only where every rank has saved: otherwise the set cannot be merged (``merge.count``), and going back to an
older set is a world that was explored when that set was the newest. Only the newest save of a rank counts, for the same reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from model import ghost
from model.counterexample import Event
from model.errors import ModelError
from model.ghost import Debt, Plan
from model.loader import Loader, Settings
from model.scenario import MODEL, State, System


@dataclass(frozen=True)
class Bound:
    """How far to search. ``ranks`` and ``crashes`` are the most of each; ``seed`` None is unshuffled."""

    rows: int
    splits: int
    crashes: int
    epochs: int = 1
    ranks: int = 8
    seed: int | None = None

    def settings(self, world_size: int, rank: int, policy: str) -> Settings:
        """The settings of one rank."""
        shuffle = self.seed is not None
        return Settings(self.rows, self.splits, world_size, rank, shuffle, self.seed, None, policy)

    def worlds(self) -> list[int]:
        """All world sizes."""
        return [size for size in range(1, self.ranks + 1) if self.splits % size == 0]


@dataclass(frozen=True)
class Rank:
    """One rank of a run: the loader under test, and beside it what the witness saw.

    ``epoch`` counts the passes that have said their end, ``held`` says whether there is an iterator that has not; ``received`` are the
    items since the run began, ``saved`` those that were in the weights at the rank's newest save, ``state`` the state it saved.
    """

    loader: Loader
    epoch: int
    held: bool = False
    received: tuple[int, ...] = ()
    saved: tuple[int, ...] | None = None
    state: State | None = None


@dataclass(frozen=True)
class World:
    """One run at one moment: crashes so far, the debt when the run began, and the numbers of its ranks in ``Explorer.ranks``."""

    crashes: int
    debt: Debt
    ranks: tuple[int, ...]


class BrokenLaw(Exception):
    """The event at hand breaks a law; law None: the one that the last resume promised."""

    def __init__(self, law: str | None, text: str, event: Event) -> None:
        """Remember what broke."""
        super().__init__(text)
        self.law = law
        self.text = text
        self.event = event


class Explorer:
    """A search to one bound over one system.

    Ranks are kept once and known by number: what a rank does depends on nothing but itself, so it is worked out once.
    """

    def __init__(self, bound: Bound, system: System = MODEL) -> None:
        """Nothing is explored yet."""
        self.bound = bound
        self.system = system
        self.plan: Plan = ghost.make_plan(bound.settings(1, 0, "replay"), bound.epochs)
        self.ranks: list[Rank] = []
        self.numbers: dict[tuple[object, ...], int] = {}
        self.pulled: dict[tuple[int, bool], tuple[int, int | None]] = {}
        self.stored: dict[int, int] = {}
        self.counts = {"pull": 0, "newer": 0, "end": 0, "save": 0, "resume": 0, "torn": 0, "exact refused": 0}

    def number(self, rank: Rank) -> int:
        """The number of a rank.

        Left out are its policy and ``samples_to_replay``: they are judged at the load, and nothing reads them afterwards.
        """
        loader = rank.loader
        place = (loader.settings.world_size, loader.settings.rank, loader.cursor, loader.newest, loader.older, loader.asked)
        key = (place, rank.epoch, rank.held, rank.received, rank.saved, repr(rank.state))
        if key not in self.numbers:
            self.numbers[key] = len(self.ranks)
            self.ranks.append(rank)
        return self.numbers[key]

    # --- one rank -------------------------------------------------------------------------------------------------------------------

    def pull(self, number: int, event: Event) -> tuple[int, int | None]:
        """A rank after one pull, of a newer iterator where the event says so, and the item; None is the end of the pass."""
        newer = event.kind == "newer"
        if (number, newer) not in self.pulled:
            rank = self.ranks[number]
            try:
                loader = rank.loader if rank.held and not newer else self.system.start(rank.loader)
                if newer:
                    self.check_newer(rank.loader, loader, event)
                loader, row = self.system.pull(loader)
                # What the iterator before the newest says bears on nothing else.
                loader = replace(loader, older="ended")
            except (ModelError, AssertionError) as error:
                raise BrokenLaw(None, f"a pull was refused: {error!r}", event) from error
            # Where nothing is shuffled the rows of all epochs look alike; the epoch that the loader shows tells them apart.
            if loader.cursor.epoch != rank.epoch:
                raise BrokenLaw(None, f"the loader is in epoch {loader.cursor.epoch} while epoch {rank.epoch} is not over", event)
            if row is None:
                after, item = replace(rank, loader=loader, epoch=rank.epoch + 1, held=False), None
            else:
                item = rank.epoch * self.bound.rows + row
                after = replace(rank, loader=loader, held=True, received=(*rank.received, item))
            self.pulled[number, newer] = (self.number(after), item)
        return self.pulled[number, newer]

    def check_newer(self, before: Loader, loader: Loader, event: Event) -> None:
        """A newer iterator holds nothing, and the one before it gives nothing any more (DLV-4)."""
        if self.system.save(loader) != self.system.save(before):
            raise BrokenLaw("DLV-4", "an iterator that was never asked has changed the state", event)
        for later in (loader, self.system.pull(loader)[0]):
            try:
                _, row = self.system.pull_older(later)
                code = None
            except ModelError as error:
                row, code = None, error.code
            if row is not None or code != "iterator.superseded":
                raise BrokenLaw("DLV-4", f"an older iterator gave {row}, {code}", event)

    def save(self, number: int) -> int:
        """A rank after a save."""
        if number not in self.stored:
            rank = self.ranks[number]
            after = replace(rank, saved=rank.received, state=self.system.save(rank.loader))
            self.stored[number] = self.number(after)
        return self.stored[number]

    # --- one world ------------------------------------------------------------------------------------------------------------------

    def fresh(self, world_size: int) -> World:
        """A new run of that many ranks."""
        ranks = []
        for rank in range(world_size):
            ranks.append(self.number(Rank(self.system.open_loader(self.bound.settings(world_size, rank, "replay"), 0), 0)))
        return World(0, ghost.first_debt(self.plan), tuple(ranks))

    def successors(self, world: World) -> list[tuple[Event, World]]:
        """Everything that can happen next; ``BrokenLaw`` where it breaks one."""
        found = []
        for index, number in enumerate(world.ranks):
            if self.ranks[number].epoch < self.bound.epochs:
                found.append(self.after_pull(world, index))
                # What a rank does depends on nothing but itself: newer iterators on one of them will do.
                if index == len(world.ranks) - 1 and self.ranks[number].loader.newest == "live":
                    found.append(self.after_pull(world, index, "newer"))
            if self.ranks[number].saved != self.ranks[number].received:
                found.append(self.after_save(world, index))
        complete = all(self.ranks[number].saved is not None for number in world.ranks)
        if complete and world.crashes < self.bound.crashes:
            found.extend(self.after_crash(world))
        return found

    def replaced(self, world: World, index: int, number: int) -> World:
        """The world with another rank at an index."""
        return World(world.crashes, world.debt, (*world.ranks[:index], number, *world.ranks[index + 1 :]))

    def after_pull(self, world: World, index: int, kind: str = "pull") -> tuple[Event, World]:
        """One rank pulls. No item may come more often than it is owed; at the end of an epoch nothing may be owed any more."""
        event = Event(kind, index)
        number, item = self.pull(world.ranks[index], event)
        after = self.replaced(world, index, number)
        ranks = [self.ranks[other] for other in after.ranks]
        if item is not None:
            self.counts[kind] += 1
            copies = sum(rank.received.count(item) for rank in ranks)
            if copies > world.debt[item]:
                raise BrokenLaw(None, f"row {item % self.bound.rows} came more often than promised", event)
            return event, after
        self.counts["end"] += 1
        self.check_end(ranks, index, world.debt, event)
        return event, after

    def check_end(self, ranks: list[Rank], index: int, debt: Debt, event: Event) -> None:
        """LAW-6 among the ranks that have ended the epoch; LAW-1, LAW-2 or LAW-9 once all have."""
        epoch, rows = ranks[index].epoch - 1, self.bound.rows
        ended = [rank for rank in ranks if rank.epoch > epoch]
        sizes = {len([item for item in rank.received if item // rows == epoch]) for rank in ended}
        if len(sizes) > 1:
            raise BrokenLaw("LAW-6", f"ranks ended epoch {epoch} after {sorted(sizes)} rows", event)
        if len(ended) == len(ranks):
            left = ghost.pay(debt, [rank.received for rank in ranks])
            missing = [item % rows for item, count in enumerate(left) if item // rows == epoch and count > 0]
            if missing:
                raise BrokenLaw(None, f"rows {missing} did not come, or not again as promised", event)

    def after_save(self, world: World, index: int) -> tuple[Event, World]:
        """One rank saves. Ranks that have received equally many rows in this run save equal states (LAW-3)."""
        self.counts["save"] += 1
        event = Event("save", index)
        after = self.replaced(world, index, self.save(world.ranks[index]))
        saving = self.ranks[after.ranks[index]]
        for number in after.ranks:
            other = self.ranks[number]
            if other.saved is not None and len(other.saved) == len(saving.received) and other.state != saving.state:
                raise BrokenLaw("LAW-3", "ranks at the same step saved different states", event)
        return event, after

    # --- crash and resume -----------------------------------------------------------------------------------------------------------

    def after_crash(self, world: World) -> list[tuple[Event, World]]:
        """The run is killed; merge what its ranks saved, and resume in every way."""
        ranks = [self.ranks[number] for number in world.ranks]
        saved = [rank.saved for rank in ranks if rank.saved is not None]
        torn = any(len(items) != len(saved[0]) for items in saved)
        debt = ghost.pay(world.debt, saved)
        state = self.merged(ranks, torn)
        skew = "replay" if torn else "refuse"
        self.counts["torn"] += int(torn)
        if not torn:
            served = ghost.splits_in_cycle(self.plan, debt, ghost.incomplete_cycle(self.plan, debt), owed=False)
            if state["partial_cycle_splits"] != served:
                text = f"partial_cycle_splits is {state['partial_cycle_splits']}, received were {served}"
                raise BrokenLaw("LAW-2", text, Event("merge", skew=skew))
        found = []
        for world_size in self.bound.worlds():
            for policy in ("replay", "exact"):
                event = Event("resume", world_size=world_size, policy=policy, skew=skew)
                numbers = self.loaded(state, debt, torn, event)
                if numbers is not None:
                    again = ghost.owe_again(self.plan, debt) if torn or policy == "replay" else debt
                    found.append((event, World(world.crashes + 1, again, numbers)))
        return found

    def merged(self, ranks: list[Rank], torn: bool) -> State:
        """One state of all; a torn set is refused unless replay is asked for (MRG-2, LAW-9)."""
        states = [rank.state for rank in ranks]
        results: dict[str, State | None] = {}
        for skew in ("refuse", "replay"):
            try:
                results[skew] = self.system.merge(states, skew)
            except ModelError as error:
                results[skew] = None
                if not (torn and skew == "refuse" and error.code == "merge.skew"):
                    raise BrokenLaw("LAW-9", f"a set that can be merged was refused: {error!r}", Event("merge", skew=skew)) from error
        if torn and results["refuse"] is not None:
            raise BrokenLaw("LAW-9", "a torn set was merged without a word", Event("merge", skew="refuse"))
        if not torn and results["replay"] != results["refuse"]:
            raise BrokenLaw("LAW-3", "equal states did not merge to a copy of themselves", Event("merge", skew="replay"))
        state = results["replay" if torn else "refuse"]
        assert state is not None, "a refusal where there may be none broke a law above"
        return state

    def loaded(self, state: State, debt: Debt, torn: bool, event: Event) -> tuple[int, ...] | None:
        """The ranks of the new run; None where every one refused, and had to."""
        self.counts["resume"] += 1
        start = ghost.incomplete_cycle(self.plan, debt)
        epoch = start // (self.bound.rows // self.bound.splits)
        numbers, replays, refusals = [], [], 0
        for rank in range(event.world_size):
            loader = self.system.open_loader(self.bound.settings(event.world_size, rank, event.policy), 0)
            try:
                loader = self.system.load(loader, state)
            except ModelError as error:
                if error.code != "state.partial_cycle":
                    raise BrokenLaw(None, f"a load was refused: {error!r}", event) from error
                refusals += 1
            replays.append(loader.replay)
            numbers.append(self.number(Rank(loader, epoch)))

        owed = ghost.per_rank(ghost.splits_in_cycle(self.plan, debt, start, owed=True), self.bound.splits, event.world_size)
        uneven = event.policy == "exact" and not torn and any(count != owed[0] for count in owed)
        if refusals != (event.world_size if uneven else 0):
            text = f"{refusals} of {event.world_size} ranks refused, while they are owed {owed} rows of the cycle"
            raise BrokenLaw("LAW-6", text, event)
        if uneven:
            self.counts["exact refused"] += 1
            return None
        if event.policy == "replay" and not torn:
            served = ghost.splits_in_cycle(self.plan, debt, start, owed=False)
            promised = ghost.per_rank(served, self.bound.splits, event.world_size)
            if replays != promised:
                raise BrokenLaw("LAW-2", f"samples_to_replay is {replays}, received before were {promised}", event)
        return tuple(numbers)

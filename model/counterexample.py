"""Tell a history of ``model.explore`` as a scenario in the format of ``spec/vectors/README.md``.

The scenario says what the system under test *did*: run against the same system it passes, and run against the model it
fails at the step where that system went wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from model.checkpoint import PLACE
from model.errors import ModelError
from model.loader import Loader, Settings
from model.scenario import State, Step, System


@dataclass(frozen=True)
class Event:
    """One event of a history.

    ``kind`` is ``pull``, ``newer`` or ``save`` (of rank ``index``), ``resume`` (after a crash, with ``world_size``, ``policy`` and
    ``skew``), or ``merge``: a resume that got no further than merging.
    """

    kind: str
    index: int = 0
    world_size: int = 0
    policy: str = ""
    skew: str = ""


def describe(events: Sequence[Event]) -> str:
    """The law that says what a run receives: that of its last resume, LAW-1 for a fresh one."""
    resumes = [event for event in events if event.kind == "resume"]
    if not resumes:
        return "LAW-1"
    last = resumes[-1]
    if last.skew == "replay":
        return "LAW-9"
    return "LAW-1" if last.policy == "exact" else "LAW-2"


@dataclass
class Narrator:
    """The run as it goes, and the steps told so far. Runs are called a, b, .., their ranks a0, a1, .."""

    system: System
    settings: list[Settings]
    run: int = 0
    saves: int = 0
    loaders: list[Loader] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    saved: dict[int, tuple[str, State]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def name(self, rank: int) -> str:
        """What a rank of the present run is called."""
        return f"{chr(ord('a') + self.run)}{rank}"

    def open_all(self) -> None:
        """Open the ranks of the present run."""
        self.loaders = []
        self.held = set()
        for rank, settings in enumerate(self.settings):
            step: Step = {"open": self.name(rank), "num_splits": settings.num_splits}
            if settings.world_size > 1:
                step.update({"world_size": settings.world_size, "rank": rank})
            if settings.shuffle:
                step.update({"shuffle": True, "shuffle_seed": settings.shuffle_seed})
            if settings.partial_cycle != "replay":
                step["partial_cycle"] = settings.partial_cycle
            self.steps.append(step)
            self.loaders.append(self.system.open_loader(settings, 0))

    def pull(self, rank: int) -> None:
        """One more row, written into the step before where that pulls on the same rank too."""
        loader, name = self.loaders[rank], self.name(rank)
        try:
            loader = loader if rank in self.held else self.system.start(loader)
            self.loaders[rank], row = self.system.pull(loader)
        except ModelError as error:
            self.steps.append({"pull": name, "rows": [None], "valid": False, "code": error.code})
            return
        except AssertionError:
            # The system fell over; there is nothing that a step could say about that.
            return
        self.held.add(rank)
        if row is None:
            self.held.discard(rank)
            self.steps.append({"end": name})
        elif self.steps[-1].get("pull") == name and "older" not in self.steps[-1]:
            self.steps[-1]["rows"].append(row)
        else:
            self.steps.append({"pull": name, "rows": [row]})

    def newer(self, rank: int) -> None:
        """A newer iterator; the one before it, asked; and one row of the newer one."""
        self.loaders[rank] = self.system.start(self.loaders[rank])
        self.steps.append({"iter": self.name(rank)})
        self.ask_older(rank)
        self.pull(rank)
        self.ask_older(rank)

    def ask_older(self, rank: int) -> None:
        """``next()`` on the iterator before the newest."""
        name = self.name(rank)
        try:
            self.loaders[rank], row = self.system.pull_older(self.loaders[rank])
        except ModelError as error:
            self.steps.append({"end": name, "older": True, "valid": False, "code": error.code})
            return
        self.steps.append({"end": name, "older": True} if row is None else {"pull": name, "older": True, "rows": [row]})

    def save(self, rank: int) -> None:
        """One rank saves."""
        state = self.system.save(self.loaders[rank])
        self.saves += 1
        name = f"s{self.saves}"
        # Of the identity only what is wrong, so that the steps stay short.
        identity = self.loaders[rank].settings.identity()
        seen = {key: value for key, value in state.items() if key in PLACE or (key in identity and value != identity[key])}
        self.steps.append({"save": self.name(rank), "as": name, "checks": seen})
        self.saved[rank] = (name, state)

    def merge(self, skew: str) -> State | None:
        """Merge the newest saves of all ranks."""
        saved = [self.saved[rank] for rank in range(len(self.settings))]
        step: Step = {"merge": [name for name, _ in saved], "as": f"m{self.run + 1}"}
        if skew == "replay":
            step["skew"] = skew
        self.steps.append(step)
        try:
            merged = self.system.merge([state for _, state in saved], skew)
        except ModelError as error:
            step.update({"valid": False, "code": error.code})
            return None
        step["checks"] = {key: merged[key] for key in PLACE}
        return merged

    def resume(self, event: Event) -> None:
        """Merge, then open and load every rank of the new run."""
        merged = self.merge(event.skew)
        assert merged is not None, "a resume whose merge is refused is told as a merge"
        state = f"m{self.run + 1}"
        rows, splits = self.settings[0].rows, self.settings[0].num_splits
        seed, shuffle = self.settings[0].shuffle_seed, self.settings[0].shuffle
        world = event.world_size
        self.settings = [Settings(rows, splits, world, rank, shuffle, seed, None, event.policy) for rank in range(world)]
        self.run += 1
        self.saved = {}
        self.open_all()
        for rank, loader in enumerate(self.loaders):
            step: Step = {"load": self.name(rank), "state": state}
            try:
                self.loaders[rank] = self.system.load(loader, merged)
            except ModelError as error:
                step.update({"valid": False, "code": error.code})
            self.steps.append(step)
            self.steps.append({"check": self.name(rank), "samples_to_replay": self.loaders[rank].replay})


def narrate(settings: list[Settings], events: Sequence[Event], system: System, law: str, text: str) -> dict[str, Any]:
    """The scenario of a history that begins with a fresh run of these ranks."""
    narrator = Narrator(system, settings)
    narrator.open_all()
    for event in events:
        if event.kind == "pull":
            narrator.pull(event.index)
        elif event.kind == "newer":
            narrator.newer(event.index)
        elif event.kind == "save":
            narrator.save(event.index)
        elif event.kind == "resume":
            narrator.resume(event)
        else:
            narrator.merge(event.skew)
    if events[-1].kind in ("pull", "newer"):
        name = narrator.name(events[-1].index)
        narrator.steps.append({"check": name, "epoch": narrator.loaders[events[-1].index].cursor.epoch})
    note = f"{law} broken: {text}."
    return {"id": "counterexample", "clauses": [law], "rows": settings[0].rows, "note": note, "steps": narrator.steps}

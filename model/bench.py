"""What the steps of a scenario stand on: the system under test, tables, and what was opened and saved so far."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from model import checkpoint, loader, tables
from model.loader import Loader
from model.settings import Settings
from model.tables import Store, Table

Step = dict[str, Any]
State = dict[str, Any]

# The table that ``open`` takes where it names none.
DEFAULT_TABLE = "table"


@dataclass(frozen=True)
class System:
    """The functions that make up a system under test, those of the model unless others are given.

    ``load`` gets the loader and the state, and ``accept`` only where a step has it.
    """

    open_loader: Callable[[Settings, int], Loader] = loader.open_loader
    start: Callable[[Loader], Loader] = loader.start
    pull: Callable[[Loader], tuple[Loader, int | None]] = loader.pull
    pull_older: Callable[[Loader], tuple[Loader, int | None]] = loader.pull_older
    save: Callable[[Loader], State] = loader.save
    load: Callable[..., Loader] = loader.load
    merge: Callable[[Sequence[object], str], State] = checkpoint.merge


MODEL = System()


class ScenarioFailure(Exception):
    """The system under test does not do what a step says."""


@dataclass
class Bench:
    """What a scenario has built so far.

    ``homes`` says of each loader which table it has, by the moment at which that was made: the name may come to mean another. ``held``
    are the loaders with an iterator that has not been closed and has not said that it ended.
    """

    rows: int
    system: System
    loaders: dict[str, Loader] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    store: Store = field(default_factory=Store)
    homes: dict[str, int] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)

    def table(self, name: str | None) -> Table:
        """A table by its name; the default one is made when it is first asked for."""
        if name is None:
            name = DEFAULT_TABLE
            if name not in self.store.tables:
                self.store = tables.make(self.store, name, self.rows)
        return self.store.tables[name]

    def looked(self, name: str) -> Loader:
        """A loader that has looked at its table as it is now, which it does to save and to load.

        It knows then which versions can be opened, and remembers when its own was made (IDN-3, IDN-4): None where that one, or the
        table, was gone before it ever looked.
        """
        current = self.loaders[name]
        home = tables.find(self.store, self.homes[name])
        versions = () if home is None else home.versions
        settings = current.settings
        created = settings.table_version_created_us
        for version in versions:
            if version.number == settings.table_version:
                created = version.created_us
        others = tuple(version for version in versions if version.number != settings.table_version)
        return replace(current, settings=replace(settings, table_version_created_us=created, versions=others))


def check_values(expected: dict[str, Any], seen: dict[str, Any]) -> None:
    """These keys have these values, types included: True is not 1."""
    for key, value in expected.items():
        if key not in seen or json.dumps(seen[key]) != json.dumps(value):
            raise ScenarioFailure(f"{key} is {seen.get(key)} instead of {value}")

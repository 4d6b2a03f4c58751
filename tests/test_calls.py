"""Every order of calls (spec/calls.md): its tables are read from the chapter and every cell is tried, on model and implementation at once.

Exhaustive: each call in each state (CAL-2), and each pair of calls from each state; longer orders are sampled by tests/test_machine.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from model import loader
from model.loader import Loader
from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import IteratorFailedError, StreamingError
from tests.support import Twin, numbered_table, settings

CHAPTER = (Path(__file__).parents[1] / "spec" / "calls.md").read_text(encoding="utf-8")
ROWS = 8  # two splits of four


def cells(heading: str) -> list[list[str]]:
    """The rows of the table that begins with this heading."""
    lines = CHAPTER.splitlines()
    body = itertools.takewhile(lambda line: line.startswith("|"), lines[lines.index(heading) + 2 :])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body]


STATES = [row[0] for row in cells("| state | meaning |")]
HEADING = next(line for line in CHAPTER.splitlines() if line.startswith("| state | load_state_dict"))
CALLS = [cell.strip() for cell in HEADING.strip("|").split("|")][1:]
TABLE = {(row[0], call): cell for row in cells(HEADING) for call, cell in zip(CALLS, row[1:], strict=True)}


class Boom(Exception):
    pass


def saved(rows: int) -> dict[str, Any]:
    """A state after so many rows, of which all but `rows % 2` lie in completed cycles."""
    dataset = StreamingDataset(numbered_table(ROWS), num_splits=2, shuffle_seed=1)
    iterator = iter(dataset)
    for _ in range(rows):
        next(iterator)
    return dataset.state_dict()


LOADED = [saved(rows) for rows in (0, 3, ROWS)]


class Caller(Twin):
    """A twin that is brought into a state of CAL-1, and makes the calls of CAL-2 by their names."""

    def __init__(self, state: str) -> None:
        super().__init__(settings(ROWS, num_splits=2))
        recipes: dict[str, list[str]] = {
            "start": [],
            "part": ["next", "next", "next", "break"],
            "done": ["exhaustion"],
            "asked": ["exhaustion", "set_epoch(same)"],
            "live": ["next"],
            "last": ["next"] * ROWS,
        }
        for call in recipes[state]:
            self.call(call)
        assert state_of(self.model) == state

    def call(self, name: str, loaded: int = 0) -> str | None:
        """Make a call on both; returns the code of a refusal."""
        if name == "load_state_dict":
            return self.change(name, LOADED[loaded])
        if name.startswith("set_epoch"):
            return self.change("set_epoch", self.model.cursor.epoch + (name == "set_epoch(other)"))
        calls: dict[str, Callable[[], Any]] = {
            "rewind": lambda: self.change("rewind"),
            "iter": self.second_iterator,
            "next": self.pull,
            "break": self.close,
            "exhaustion": self.pull_all,
            "failure": self.fail,
        }
        result = calls[name]()
        return result if isinstance(result, str) else None

    def fail(self) -> None:
        """The next row fails on its way (DLV-5)."""
        if self._iterator is None:
            self.second_iterator()

        def boom() -> None:
            raise Boom

        iterator = self._iterator
        iterator._delivery.check = boom
        with pytest.raises(Boom):
            next(iterator)
        del iterator._delivery.check
        self.model, self._iterator = loader.fail(self.model), None
        with pytest.raises(IteratorFailedError):
            next(iterator)
        self.check()


def state_of(model: Loader) -> str:
    """Which state of CAL-1 the model is in."""
    left = model.moving or loader.remaining(model) > 0
    if model.alive:
        return "live" if left else "last"
    return place_of(model) if not model.asked or left else "asked"


def place_of(model: Loader) -> str:
    """*place*: what the cursor says."""
    if loader.remaining(model) == 0:
        return "done"
    return "start" if loader.remaining(model) == loader.length(model) else "part"


def test_the_tables_cover_all_states_and_calls() -> None:
    assert STATES == ["start", "part", "done", "asked", "live", "last"]
    assert CALLS == [
        "load_state_dict", "set_epoch(same)", "set_epoch(other)", "rewind", "iter", "next", "break", "exhaustion", "failure"
    ]  # fmt: skip
    assert set(TABLE) == set(itertools.product(STATES, CALLS))
    empty = {*itertools.product(["start", "part", "done", "asked"], ["next", "exhaustion", "failure"]), ("last", "failure")}
    assert {key for key, cell in TABLE.items() if cell == ""} == empty, "only a call on an iterator can have no cell"


@pytest.mark.parametrize(("state", "call"), [key for key, cell in TABLE.items() if cell != ""])
def test_each_call_in_each_state(state: str, call: str) -> None:
    """The twin compares outcome and everything that can be observed; here the cell of CAL-2 is held against both."""
    cell = TABLE[state, call]
    for loaded in range(len(LOADED)) if call == "load_state_dict" else [0]:
        caller = Caller(state)
        before = caller.model
        refused = caller.call(call, loaded)
        if "." in cell:
            assert refused == f"error {cell}"
            assert caller.model == before
            continue
        assert refused is None
        now = state_of(caller.model)
        assert now == place_of(caller.model) if cell == "place" else now in cell.split(", ")


def possible(state: str) -> list[str]:
    return [call for call in CALLS if TABLE[state, call] != ""]


@pytest.mark.parametrize("state", STATES)
def test_each_pair_of_calls_from_each_state(state: str) -> None:
    """After any call any other: outcomes agree with the cell of the state that the first led to (LAW-12)."""
    pairs = 0
    for first in possible(state):
        for loaded in range(len(LOADED)) if first == "load_state_dict" else [0]:
            caller = Caller(state)
            caller.call(first, loaded)
            between = state_of(caller.model)
            for second in possible(between):
                caller = Caller(state)
                caller.call(first, loaded)
                refused = caller.call(second)
                cell = TABLE[between, second]
                if "." in cell:
                    assert refused == f"error {cell}", (state, first, second)
                else:
                    assert refused is None, (state, first, second)
                    now = state_of(caller.model)
                    assert now == place_of(caller.model) if cell == "place" else now in cell.split(", "), (state, first, second)
                caller.pull_all()
                pairs += 1
    assert pairs >= 40


def test_what_iterators_say_after_their_end() -> None:
    """CAL-3 (TRM-7)."""
    dataset = StreamingDataset(numbered_table(ROWS), num_splits=2, shuffle_seed=1)

    def outcomes(iterator: Iterator[Any]) -> list[str]:
        found = []
        for _ in range(3):
            try:
                found.append(str(next(iterator, "StopIteration")))
            except StreamingError as error:
                found.append(error.code)
        return found

    exhausted = iter(dataset)
    list(exhausted)
    closed = iter(dataset)
    next(closed)
    closed.close()
    closed.close()
    assert outcomes(exhausted) == outcomes(closed) == ["StopIteration"] * 3
    failed = iter(StreamingDataset(numbered_table(ROWS), num_splits=2, shuffle_seed=1, transform=lambda batch: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        next(failed)
    assert outcomes(failed) == ["iterator.failed"] * 3
    failed.close()
    assert outcomes(failed) == ["iterator.failed"] * 3


@pytest.mark.parametrize("state", STATES)
def test_the_loader_is_in_the_same_state_as_its_dataset(state: str) -> None:
    """CAL-2 through StreamingDataLoader with batches of one row: the same outcomes, call by call (0 workers)."""
    for call in ("load_state_dict", "set_epoch(same)", "set_epoch(other)", "iter"):
        dataset = StreamingDataset(numbered_table(ROWS), num_splits=2, shuffle_seed=1)
        batches = StreamingDataLoader(dataset, batch_size=1)
        alive: Any = None
        if state in ("done", "asked"):
            assert len(list(batches)) == ROWS
            if state == "asked":
                batches.set_epoch(0)
        elif state != "start":
            alive = iter(batches)
            for _ in range({"part": 3, "live": 1, "last": ROWS}[state]):
                next(alive)
            if state == "part":
                alive = None
        calls: dict[str, Callable[[], Any]] = {
            "load_state_dict": lambda loader=batches: loader.load_state_dict(LOADED[1]),
            "set_epoch(same)": lambda loader=batches: loader.set_epoch(0),
            "set_epoch(other)": lambda loader=batches: loader.set_epoch(1),
            "iter": lambda loader=batches: iter(loader),
        }
        cell = TABLE[state, call]
        if "." in cell:
            with pytest.raises(StreamingError) as refused:
                calls[call]()
            assert refused.value.code == cell
        else:
            calls[call]()
        del alive

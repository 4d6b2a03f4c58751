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
from streaming.rows import RowReader
from tests.support import Twin, numbered_table, outcome, settings

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


# By state and by how its iterators stand: the calls that lead there. A "close" keeps the iterator, which a "break" drops.
RECIPES: dict[tuple[str, str], list[str]] = {
    ("start", "untouched"): [],
    ("start", "idle"): ["iter"],
    ("start", "idle over idle"): ["iter", "iter"],
    ("start", "closed unasked"): ["iter", "close"],
    ("start", "failed"): ["failure"],
    ("part", "dropped"): ["next", "next", "next", "break"],
    ("part", "closed"): ["next", "next", "next", "close"],
    ("part", "failed"): ["next", "next", "next", "failure"],
    ("part", "idle over a live pass"): ["next", "next", "next", "iter"],
    ("part", "idle over a failure"): ["next", "next", "next", "failure", "iter"],
    ("part", "closed over a live pass"): ["next", "next", "next", "iter", "close"],
    ("done", "said"): ["exhaustion"],
    ("done", "not said"): ["next"] * ROWS,
    ("done", "idle"): ["exhaustion", "iter"],
    ("done", "idle over one that has not said"): [*["next"] * ROWS, "iter"],
    ("done", "failed"): ["exhaustion", "failure"],
    ("asked", "said"): ["exhaustion", "set_epoch(same)"],
    ("asked", "not said"): [*["next"] * ROWS, "set_epoch(same)"],
    ("asked", "idle"): ["exhaustion", "set_epoch(same)", "iter"],
    ("asked", "asked under an idle one"): ["exhaustion", "iter", "set_epoch(same)"],
    ("live", "first"): ["next"],
    ("live", "over a live pass"): ["next", "iter", "next"],
    ("live", "over a failure"): ["next", "failure", "next"],
    ("live", "over an end"): ["exhaustion", "next"],
}
STANDING = list(RECIPES)
# For pairs of calls: those which others come to after one call, or which bear on no call (see the cells), are left out.
PLAIN = ("untouched", "idle over idle", "dropped", "said", "not said", "first")
PAIRED = [one for one in STANDING if one[1] in PLAIN or "over a " in one[1]]


class Caller(Twin):
    """A twin that is brought into a state of CAL-1, and makes the calls of CAL-2 by their names."""

    def __init__(self, state: str, standing: str) -> None:
        super().__init__(settings(ROWS, num_splits=2))
        for call in RECIPES[state, standing]:
            self.call(call)
        assert state_of(self.model) == state

    def call(self, name: str, loaded: int = 0) -> str | None:
        """Make a call on both; returns the code of a refusal. Whatever it was, the iterator before the newest is asked afterwards."""
        if name == "load_state_dict":
            result: Any = self.change(name, LOADED[loaded])
        elif name.startswith("set_epoch"):
            result = self.change("set_epoch", self.model.cursor.epoch + (name == "set_epoch(other)"))
        else:
            if name in ("next", "exhaustion", "failure") and not loader.may_deliver(self.model.newest):
                assert self.second_iterator() is None
            calls: dict[str, Callable[[], Any]] = {
                "rewind": lambda: self.change("rewind"),
                "iter": self.second_iterator,
                "next": self.pull,
                "break": self.close,
                "close": lambda: self.close(drop=False),
                "exhaustion": self.pull_all,
                "failure": self.fail,
            }
            result = calls[name]()
        self.pull_older()
        return result if isinstance(result, str) else None

    def fail(self) -> None:
        """The read of the next row fails (DLV-5)."""

        def boom(*_: Any) -> None:
            raise Boom

        if self.model.newest == "live":
            self.newest._reader.ready.clear()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Boom):
            patch.setattr(RowReader, "refill", boom)
            next(self.newest)
        self.model, self.held = loader.fail(self.model), False
        with pytest.raises(IteratorFailedError):
            next(self.newest)
        self.check()


def state_of(model: Loader) -> str:
    """Which state of CAL-1 the model is in."""
    if model.newest == "live":
        return "live"
    return "asked" if model.asked and loader.remaining(model) == 0 else place_of(model)


def place_of(model: Loader) -> str:
    """*place*: what the cursor says."""
    if loader.remaining(model) == 0:
        return "done"
    return "start" if loader.remaining(model) == loader.length(model) else "part"


def test_the_tables_cover_all_states_and_calls() -> None:
    assert STATES == ["start", "part", "done", "asked", "live"]
    assert CALLS == [
        "load_state_dict", "set_epoch(same)", "set_epoch(other)", "rewind", "iter", "next", "break", "exhaustion", "failure"
    ]  # fmt: skip
    assert set(TABLE) == set(itertools.product(STATES, CALLS))
    assert {key for key, cell in TABLE.items() if cell == ""} == {("asked", "failure")}, "an empty pass has no row that could fail"
    assert {state for state, _ in STANDING} == set(STATES)


def agrees(caller: Caller, cell: str, refused: str | None, before: Loader) -> bool:
    """Whether what a call did is what its cell says; the twin has compared the outcome and everything that can be observed."""
    if "." in cell:
        return refused == f"error {cell}" and caller.model == before
    now = state_of(caller.model)
    return refused is None and (now == place_of(caller.model) if cell == "place" else now in cell.split(", "))


@pytest.mark.parametrize(("state", "standing"), STANDING)
def test_each_call_in_each_state(state: str, standing: str) -> None:
    """CAL-2, however the iterators stand: idle ones change no cell (DLV-4), nor do older ones."""
    tried = 0
    for call in possible(state):
        for loaded in range(len(LOADED)) if call == "load_state_dict" else [0]:
            caller = Caller(state, standing)
            before = caller.model
            refused = caller.call(call, loaded)
            assert agrees(caller, TABLE[state, call], refused, before), (call, loaded, refused, caller.model)
            tried += 1
    assert tried >= len(CALLS) + 1


def possible(state: str) -> list[str]:
    return [call for call in CALLS if TABLE[state, call] != ""]


@pytest.mark.parametrize(("state", "standing"), PAIRED)
def test_each_pair_of_calls_from_each_state(state: str, standing: str) -> None:
    """After any call any other: outcomes agree with the cell of the state that the first led to (LAW-12)."""
    pairs = 0
    for first in possible(state):
        for loaded in range(len(LOADED)) if first == "load_state_dict" else [0]:
            caller = Caller(state, standing)
            caller.call(first, loaded)
            between = state_of(caller.model)
            for second in possible(between):
                caller = Caller(state, standing)
                caller.call(first, loaded)
                before = caller.model
                refused = caller.call(second)
                assert agrees(caller, TABLE[between, second], refused, before), (first, loaded, second, refused, caller.model)
                caller.pull()
                caller.pull_older()
                pairs += 1
    assert pairs >= 40


def outcomes(iterator: Iterator[Any]) -> list[str]:
    """What three calls of ``next()`` come to."""
    found = []
    for _ in range(3):
        try:
            found.append(str(next(iterator, "StopIteration")))
        except StreamingError as error:
            found.append(error.code)
    return found


def new_dataset(**arguments: Any) -> StreamingDataset:
    return StreamingDataset(numbered_table(ROWS), num_splits=2, shuffle_seed=1, **arguments)


def test_what_iterators_say_after_their_end() -> None:
    """CAL-3 (TRM-7): the first end stays, also after newer passes."""
    dataset = new_dataset()
    exhausted = iter(dataset)
    list(exhausted)
    over = iter(dataset)
    for _ in range(ROWS):
        next(over)
    closed = iter(dataset)
    next(closed)
    closed.close()
    closed.close()
    unasked = iter(dataset)
    unasked.close()
    superseded = iter(dataset)
    next(superseded)
    idle = iter(dataset)
    list(dataset)
    for _ in range(2):
        assert outcomes(exhausted) == outcomes(over) == outcomes(closed) == outcomes(unasked) == ["StopIteration"] * 3
        assert outcomes(superseded) == outcomes(idle) == ["iterator.superseded"] * 3
        superseded.close()
        idle.close()
        newest = iter(dataset)
        next(newest)
    assert outcomes(newest)[0].startswith("{")


def test_a_failure_stays_a_failure() -> None:
    """CAL-3, DLV-5: after ``close()`` and after newer passes too, whether it was the first row that failed or a later one."""
    bad: set[int] = set()

    def transform(batch: Any) -> Any:
        rows = batch.to_pylist()
        if bad.intersection(row["id"] for row in rows):
            raise Boom
        return rows

    dataset = new_dataset(transform=transform)
    bad.update(range(ROWS))
    failed = [iter(dataset)]
    with pytest.raises(Boom):
        next(failed[0])
    assert dataset.samples_remaining == ROWS
    bad.clear()
    order = [row["id"] for row in dataset]
    dataset.rewind()
    bad.add(order[3])
    failed.append(iter(dataset))
    with pytest.raises(Boom):
        list(failed[1])
    assert dataset.samples_remaining == ROWS - 3
    bad.clear()
    assert [row["id"] for row in dataset] == order[3:]
    for iterator in failed:
        assert outcomes(iterator) == ["iterator.failed"] * 3
        iterator.close()
        assert outcomes(iterator) == ["iterator.failed"] * 3


def test_a_pass_that_is_over_has_not_said_so() -> None:
    """DLV-4, CAL-1: with its last row the place may move and a newer iterator begins; the old one says StopIteration all the same."""
    for move in ("load_state_dict", "set_epoch", "rewind", "iter"):
        twin = Twin(settings(ROWS, num_splits=2))
        for _ in range(ROWS):
            twin.pull()
        if move == "iter":
            assert twin.second_iterator() is None
            assert twin.pull_older() is None
        else:
            assert twin.change(move, *{"load_state_dict": (LOADED[1],), "set_epoch": (3,)}.get(move, ())) is None
            assert twin.pull() is None
        assert twin.pull() is not None
        assert twin.pull_older() is None


def test_what_becomes_of_older_iterators_bears_on_nothing() -> None:
    """CAL-3: neither closing nor dropping a superseded iterator, nor asking it, disturbs the pass of the newest."""
    for drop in (False, True):
        twin = Twin(settings(ROWS, num_splits=2))
        order = [twin.pull(), twin.pull()]
        assert twin.second_iterator() is None
        order.append(twin.pull())
        assert twin.pull_older() == "error iterator.superseded"
        twin.close_older(drop)
        order += twin.pull_all()
        assert sorted(row for row in order if row is not None) == list(range(ROWS))


def test_a_request_is_used_up_by_the_first_next() -> None:
    """DLV-4, EPO-4: not by iterators that were never asked, whatever becomes of them."""
    twin = Twin(settings(ROWS, num_splits=2))
    twin.pull_all()
    assert twin.change("set_epoch", 0) is None
    for end in ("superseded", "dropped", "closed", "asked"):
        assert twin.second_iterator() is None
        if end in ("dropped", "closed"):
            twin.close(drop=end == "dropped")
    assert twin.pull() is None
    assert twin.pull() is not None
    assert twin.dataset.epoch == 1


def test_what_iter_refuses_the_first_next_refuses() -> None:
    """CAL-4, EPO-2: where the place moved in between; nothing is changed by it, and the iterator waits on."""
    last = 2**63 - 1
    twin = Twin(settings(ROWS, num_splits=2), last)
    twin.pull_all()
    done = twin.dataset.state_dict()
    assert twin.second_iterator() == "error argument.value"
    assert twin.change("rewind") is None
    assert twin.second_iterator() is None
    assert twin.change("load_state_dict", done) is None
    for _ in range(2):
        assert outcome(lambda: next(twin.newest)) == outcome(lambda: loader.pull(twin.model)) == "error argument.value"
        twin.check()
    assert twin.change("rewind") is None
    assert len(twin.pull_all()) == ROWS


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_the_loader_is_in_the_same_state_as_its_dataset(state: str, idle: bool) -> None:
    """CAL-2 through StreamingDataLoader with batches of one row: the same outcomes, call by call (0 workers)."""
    for call in ("load_state_dict", "set_epoch(same)", "set_epoch(other)", "iter", "next"):
        dataset = new_dataset()
        batches = StreamingDataLoader(dataset, batch_size=1)
        received = {"start": 0, "part": 3, "live": 1}.get(state, ROWS)
        pass_ = iter(batches)
        for _ in range(received):
            next(pass_)
        if state == "part":
            pass_.close()
        elif state == "asked":
            batches.set_epoch(0)
        waiting = iter(batches) if idle and state != "live" else None
        calls: dict[str, Callable[[], Any]] = {
            "load_state_dict": lambda loader=batches: loader.load_state_dict(LOADED[1]),
            "set_epoch(same)": lambda loader=batches: loader.set_epoch(0),
            "set_epoch(other)": lambda loader=batches: loader.set_epoch(1),
            "iter": lambda loader=batches: iter(loader),
            "next": lambda loader=batches, waiting=waiting: next(waiting or iter(loader), None),
        }
        cell = TABLE[state, call]
        if "." in cell:
            with pytest.raises(StreamingError) as refused:
                calls[call]()
            assert refused.value.code == cell
            continue
        before = dataset.samples_remaining
        newer = calls[call]()
        if call == "iter":
            assert dataset.samples_remaining == before
            expected = "iterator.superseded" if received < ROWS and state != "part" else "StopIteration"
            assert outcomes(pass_) == [expected] * 3
            assert waiting is None or outcomes(waiting) == ["iterator.superseded"] * 3
            assert len(list(newer)) == {"part": ROWS - 3, "live": ROWS - 1, "asked": 0}.get(state, ROWS)
        elif call == "next":
            assert (newer is None) == (state == "asked")

"""Ctrl-C at every line: exhaustive over the lines that a pass of 12 rows executes in ours and torch's single-process code (DLV-1 to DLV-6).

KeyboardInterrupt is raised by a trace function at the k-th line, for every k. What the consumer holds must be what the dataset counts,
apart from the hole that DLV-3 names, and a new iterator must continue exactly there.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader, StreamingDataset
from tests.support import ids, numbered_table

ROWS = 12
TRACED = (
    *("streaming/rows.py", "streaming/delivery.py", "streaming/torch_iterator.py", "streaming/loader.py", "streaming/replica.py"),
    *("data/_utils/fetch.py", "data/dataloader.py"),
)
# The line behind the count: `return`, where a trace function can raise, but no signal (DLV-3 (a)).
HOLE = "__next__"


class Interrupter:
    """Raises KeyboardInterrupt at the n-th traced line, and remembers where that was."""

    def __init__(self, at: int) -> None:
        self.lines = 0
        self.at = at
        self.place = ("", 0)

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith(TRACED) or frame.f_code.co_name in ("__del__", "close", "end", "_release"):
            return None
        if frame.f_back is not None and frame.f_back.f_code.co_name in ("end", "_release"):
            return None  # a generator that is dropped: Python swallows what it raises
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.place = (frame.f_code.co_name, frame.f_lineno)
                raise KeyboardInterrupt
        return self


def bare(dataset: StreamingDataset) -> Any:
    return ([row["id"]] for row in NextOnly(iter(dataset)))


class NextOnly:
    """An iterator without a generator's frame of its own between the consumer and next()."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator

    def __iter__(self) -> NextOnly:
        return self

    def __next__(self) -> Any:
        return next(self.iterator)


def batches(dataset: StreamingDataset) -> Any:
    return iter(DataLoader(dataset, batch_size=5, collate_fn=ids))


def own_loader(dataset: StreamingDataset) -> Any:
    return iter(StreamingDataLoader(dataset, batch_size=5, collate_fn=ids))


@pytest.mark.parametrize("transport", [bare, batches, own_loader], ids=lambda f: f.__name__)
def test_an_interrupt_at_every_line(transport: Callable[[StreamingDataset], Any]) -> None:
    sequence = ids(StreamingDataset(numbered_table(ROWS), num_splits=3, shuffle=False))
    lost: Counter[tuple[str, int]] = Counter()
    interrupted = 0
    at = 0
    while True:
        at += 1
        dataset = StreamingDataset(numbered_table(ROWS), num_splits=3, shuffle=False)
        interrupter = Interrupter(at)
        rows: list[int] = []
        previous = sys.gettrace()
        sys.settrace(interrupter)
        try:
            for batch in transport(dataset):
                rows += batch
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(previous)
        if not interrupter.place[0]:
            break
        counted = len(dataset) - dataset.samples_remaining
        if counted != len(rows):
            lost[interrupter.place] += 1
            assert len(rows) < counted <= len(rows) + (1 if transport is bare else 5), "at most the one on its way"
        rest = ids(dataset)
        if counted < ROWS:
            assert sequence[:counted] + rest == sequence
    assert rows == sequence, "the last round was not interrupted"
    assert interrupted > 150
    assert {name for name, _ in lost} <= {HOLE}
    assert len(lost) <= 1, f"more lines than the return: {lost}"


class EveryLine:
    """Raises KeyboardInterrupt at the n-th line that the package executes, wherever."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.raised = False

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        if "/streaming/" not in frame.f_code.co_filename or frame.f_code.co_name in ("__del__", "end", "_release"):
            return None
        if event == "line":
            self.at -= 1
            if self.at == 0:
                self.raised = True
                raise KeyboardInterrupt
        return self


MOVES: dict[str, Callable[[StreamingDataset, dict[str, Any]], Any]] = {
    "iter": lambda dataset, state: iter(dataset),
    "dataloader": lambda dataset, state: iter(DataLoader(dataset, batch_size=2)),
    "loader": lambda dataset, state: iter(StreamingDataLoader(dataset, batch_size=2)),
    "load": lambda dataset, state: dataset.load_state_dict(state),
    "set_epoch": lambda dataset, state: dataset.set_epoch(9),
    "set_same_epoch": lambda dataset, state: dataset.set_epoch(0),
    "rewind": lambda dataset, state: dataset.rewind(),
}


@pytest.mark.parametrize("received", [5, ROWS])
@pytest.mark.parametrize("move", MOVES)
def test_a_move_is_indivisible(move: str, received: int) -> None:
    """DLV-8: interrupted at any line, the place is that of before or that of after the move, and rows go on from there."""
    state = StreamingDataset(numbered_table(ROWS), num_splits=3, shuffle=False, epoch=4).state_dict()

    def prepared() -> StreamingDataset:
        dataset = StreamingDataset(numbered_table(ROWS), num_splits=3, shuffle=False)
        rows = iter(dataset)
        for _ in range(received):
            next(rows)
        return dataset

    def place(dataset: StreamingDataset) -> Any:
        return dataset.state_dict(), dataset.samples_remaining, dataset.samples_to_replay

    dataset = prepared()
    before = place(dataset)
    kept = MOVES[move](dataset, state)
    after = place(dataset)
    del kept
    at = 0
    while True:
        at += 1
        dataset = prepared()
        interrupter = EveryLine(at)
        previous = sys.gettrace()
        sys.settrace(interrupter)
        made: list[Any] = []
        try:
            made.append(MOVES[move](dataset, state))
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(previous)
        made.clear()
        if not interrupter.raised:
            break
        assert place(dataset) in (before, after)
        remaining = dataset.samples_remaining
        assert len(ids(dataset)) == remaining or remaining == 0
    assert at > 10


def test_another_thread_never_sees_half_a_move() -> None:
    """DLV-8: a thread that polls sees places that follow one another, and floor_state_dict never raises. Sampled."""
    dataset = StreamingDataset(numbered_table(60), num_splits=6, shuffle_seed=1)
    seen: list[tuple[int, int, int]] = []
    problems: list[BaseException] = []
    stop = threading.Event()

    def poll() -> None:
        try:
            while not stop.is_set():
                state = dataset.state_dict()
                dataset.floor_state_dict()
                seen.append((state["epoch"], state["samples_consumed_per_split"][0], len(state["partial_cycle_splits"])))
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=poll)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for round_ in range(60):
            batches = iter(DataLoader(dataset, batch_size=1, collate_fn=ids)) if round_ % 2 else iter(dataset)
            for _ in range(7):
                if next(batches, None) is None:
                    break
            del batches
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert problems == []
    assert len(set(seen)) > 10
    assert seen == sorted(seen)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends a signal")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python swallows what a finalizer raises
@pytest.mark.parametrize("transport", ["plain", "ours", "bare"])
def test_a_signal_in_a_loop_loses_no_batch(transport: str) -> None:
    """DLV-3 (a): Ctrl-C at any moment of a `for` loop, and what a handler finds that saves. Sampled: at least 20 signals."""
    table = numbered_table(2000)
    found: list[int] = []

    def handler(*_: object) -> None:
        found.append(len(dataset) - dataset.samples_remaining - received)
        raise KeyboardInterrupt

    makers: dict[str, Callable[[], Any]] = {
        "plain": lambda: DataLoader(dataset, batch_size=1, collate_fn=ids),
        "ours": lambda: StreamingDataLoader(dataset, batch_size=1, collate_fn=ids),
        "bare": lambda: dataset,
    }
    previous = signal.signal(signal.SIGALRM, handler)
    passes = received = 0
    try:
        while len(found) < 20:
            passes += 1
            assert passes < 2000, "the timer never met a pass"
            dataset = StreamingDataset(table, num_splits=4, shuffle=False)
            received = 0
            try:
                for _ in makers[transport]():
                    received += 1
                    if received == 1:
                        signal.setitimer(signal.ITIMER_REAL, 0.0001 * (1 + passes % 29))
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert len(dataset) - dataset.samples_remaining == received
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert set(found) == {0}

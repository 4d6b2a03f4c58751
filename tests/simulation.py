"""Worker processes played in this process: torch's dispatch of tasks, with a schedule that a test chooses.

`SimulatedDataLoader` stands in for the inner DataLoader of streaming.loader, so that thousands of cases run the real loader, replica
and commit code. tests/integration/test_processes.py compares it with real processes.
"""

from __future__ import annotations

import copy
import itertools
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader
from torch.utils.data._utils import worker as torch_worker

# Given how many workers have something to do, which one goes on; the number of tasks to do before a batch is waited for.
Choose = Callable[[int], int]


class Worker:
    """One worker: its copy of the replica, its tasks, its results in order."""

    def __init__(self, replica: Any, number: int, workers: int) -> None:
        self.info = torch_worker.WorkerInfo(id=number, num_workers=workers, seed=0, dataset=replica)
        self.replica = replica
        self.iterator: Iterator[Any] | None = None
        self.tasks: deque[int] = deque()
        self.active = True

    def work(self, results: dict[int, tuple[str, Any]]) -> None:
        """Do the next task, as torch's worker loop does."""
        number = self.tasks.popleft()
        torch_worker._worker_info = self.info
        try:
            if self.iterator is None:
                self.iterator = iter(self.replica)
            results[number] = ("batch", next(self.iterator))
        except StopIteration:
            results[number] = ("end", None)
        except Exception as error:
            results[number] = ("error", error)
        finally:
            torch_worker._worker_info = None


class SimulatedIterator:
    """torch's multi-process iterator: tasks go round robin to active workers, results come back in the order of their tasks."""

    _index_sampler = None

    def __init__(self, replica: Any, workers: int, prefetch: int, choose: Choose) -> None:
        self.workers = [Worker(copy.copy(replica), number, workers) for number in range(workers)]
        self.round_robin = itertools.cycle(range(workers))
        self.choose = choose
        self.owner: dict[int, int] = {}
        self.results: dict[int, tuple[str, Any]] = {}
        self.sent = self.received = 0
        self.closed = False
        for _ in range(prefetch * workers):
            self.send()

    def send(self) -> None:
        for _ in self.workers:
            number = next(self.round_robin)
            if self.workers[number].active:
                self.workers[number].tasks.append(self.sent)
                self.owner[self.sent] = number
                self.sent += 1
                return

    def work(self) -> bool:
        busy = [worker for worker in self.workers if worker.tasks]
        if busy:
            worker = busy[self.choose(len(busy)) % len(busy)]
            before = set(self.results)
            worker.work(self.results)
            for number in set(self.results) - before:
                if self.results[number][0] == "end":
                    worker.active = False
                    self.send()
        return bool(busy)

    def __next__(self) -> Any:
        assert not self.closed
        for _ in range(self.choose(4)):
            self.work()
        while self.received < self.sent:
            number = self.received
            if number not in self.results:
                if not self.workers[self.owner[number]].active:
                    self.received += 1
                    continue
                self.work()
                continue
            kind, value = self.results.pop(number)
            self.received += 1
            if kind == "end":
                continue
            self.send()
            if kind == "error":
                raise value
            item = pickle.loads(pickle.dumps(value))
            if isinstance(item, ExceptionWrapper):
                item.reraise()
            return item
        raise StopIteration

    def _shutdown_workers(self) -> None:
        self.closed = True
        for worker in self.workers:
            worker.iterator = None


def simulate(patch: pytest.MonkeyPatch, choose: Choose) -> list[SimulatedIterator]:
    """Put the simulation in place of the inner loader; returns the list of iterators that will have been made."""
    made: list[SimulatedIterator] = []

    class SimulatedDataLoader:
        def __new__(cls, replica: Any, *, num_workers: int, prefetch_factor: int | None, **others: Any) -> Any:
            if num_workers == 0:
                return DataLoader(replica, num_workers=0, prefetch_factor=prefetch_factor, **others)
            self = super().__new__(cls)
            self.make = lambda: SimulatedIterator(replica, num_workers, prefetch_factor or 2, choose)  # type: ignore[attr-defined]
            return self

        def __iter__(self) -> Any:
            made.append(self.make())  # type: ignore[attr-defined]
            return made[-1]

    patch.setattr("streaming.loader.DataLoader", SimulatedDataLoader)
    return made

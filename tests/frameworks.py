"""Stand-ins for classes of frameworks that are not installed where tests run.

Each has the name of the real class, and calls the dataset where, when and as the real one does: torchdata 0.11, Accelerate 1.15 and
transformers 5.24, against which the tests were tried by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils.fetch import _IterableDatasetFetcher

from tests.support import ids


class StatefulWorker:
    """A worker of torchdata's StatefulDataLoader: it loads a state before it asks for rows, and makes one behind each batch."""

    def __init__(self, dataset: Any, batch_size: int, state: Any = None, drop_last: bool = False) -> None:
        if state is not None:
            dataset.load_state_dict(state)
        self.dataset, self.indices = dataset, [None] * batch_size
        self.fetcher = _IterableDatasetFetcher(dataset, True, ids, drop_last)
        self.states = [dataset.state_dict()]

    def run(self) -> list[int]:
        """The rows of all batches."""
        rows: list[int] = []
        try:
            while True:
                rows += self.fetcher.fetch(self.indices)
                self.states.append(self.dataset.state_dict())
        except StopIteration:
            self.states.append(self.dataset.state_dict())
        return rows


class IterableDatasetShard(IterableDataset[Any]):
    """Accelerate's and transformers': every rank reads everything and keeps its share."""

    def __init__(self, dataset: Any, batch_size: int, num_processes: int = 2, process_index: int = 0) -> None:
        self.dataset, self.batch_size = dataset, batch_size
        self.num_processes, self.process_index = num_processes, process_index

    def __iter__(self) -> Iterator[Any]:
        for number, row in enumerate(self.dataset):
            if number // self.batch_size % self.num_processes == self.process_index:
                yield row


class DataLoaderDispatcher:
    """Accelerate's: rank 0 reads for all. With a stateful loader inside, its iterator is made at once, before `state` is there."""

    def __init__(self, dataset: Any, num_processes: int = 2, stateful: bool = False, **arguments: Any) -> None:
        self.base_dataloader = DataLoader(dataset, **arguments)
        self.made = iter(self.base_dataloader) if stateful else None
        self.state = SimpleNamespace(num_processes=num_processes, process_index=0)

    def __getattr__(self, name: str) -> Any:
        if name == "base_dataloader":
            raise AttributeError(name)
        return getattr(self.base_dataloader, name)

    def __iter__(self) -> Iterator[Any]:
        yield from self.made or self.base_dataloader.__iter__()


class Passing(IterableDataset[Any]):
    """A user's wrapper, which forgets what it no longer needs while it goes on."""

    def __init__(self, dataset: Any, around: Any = None) -> None:
        self.dataset, self.around = dataset, around

    def __iter__(self) -> Iterator[Any]:
        around, self.around = self.around, None
        rows = iter(self.dataset)
        del around
        yield from rows

"""A stand-in for torchdata 0.11's StatefulDataLoader without workers, by the name of its file and of its iterator's class.

It makes and loads states when and in the order in which the real one does; tried by hand against that.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind


class StatefulDataLoader(DataLoader[Any]):
    """It keeps its newest iterator, and makes one when it is asked for a state before there is one."""

    _kept: Any = None
    _unused = False
    _loaded: Any = None

    def __iter__(self) -> Any:
        if not self._unused:
            self._make()
        self._unused = False
        if self._kept.finished:
            self._make()
        return self._kept

    def _make(self) -> None:
        self._kept = _StatefulSingleProcessDataLoaderIter(self, self._loaded)
        self._loaded = None

    def state_dict(self) -> dict[str, Any]:
        if self._kept is None:
            self._make()
            self._unused = True
        state: dict[str, Any] = self._kept.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._kept, self._unused, self._loaded = None, False, state


class _StatefulSingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader: StatefulDataLoader, state: Any) -> None:
        super().__init__(loader)
        self.finished = False
        if state is None:
            self._fetcher = self._new_fetcher()
        else:
            self.load_state_dict(state)

    def _new_fetcher(self) -> Any:
        return _DatasetKind.create_fetcher(self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._num_yielded = state["yielded"]
        dataset: Any = self._dataset
        dataset.load_state_dict(state["dataset"])
        self._fetcher = self._new_fetcher()
        self._fetcher.ended, self.finished = state["ended"], state["finished"]

    def state_dict(self) -> dict[str, Any]:
        dataset: Any = self._dataset
        return {"yielded": self._num_yielded, "dataset": dataset.state_dict(), "ended": self._fetcher.ended, "finished": self.finished}

    def _next_data(self) -> Any:
        return self._fetcher.fetch(self._next_index())

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except StopIteration:
            self.finished = True
            raise

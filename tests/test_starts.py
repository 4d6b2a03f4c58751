"""Where worker processes cannot start, that is said before one is started (WRK-17, WRK-18); how they end (WRK-15)."""

from __future__ import annotations

import multiprocessing
import sys
import time
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from streaming import StreamingDataLoader, StreamingDataset, processes
from streaming.errors import DaemonicError, MainFileError, PickleError
from streaming.processes import end_workers
from streaming.recipe import check_picklable
from tests.support import ids, numbered_table


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> StreamingDataLoader:
    def start(self: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", start)
    return StreamingDataLoader(StreamingDataset(numbered_table(24), num_splits=4, shuffle_seed=1), num_workers=2, collate_fn=ids)


def test_a_script_from_standard_input(loader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=None, __file__="<stdin>"))
    with pytest.raises(MainFileError, match="<stdin> is no file"):
        iter(loader)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=None, __file__=__file__))
    with pytest.raises(AssertionError, match="a process was started"):
        next(iter(loader))


def test_a_daemonic_process(loader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(DaemonicError, match="num_workers=0"):
        iter(loader)
    loader.num_workers = 0
    loader.prefetch_factor = None
    assert len(list(loader)) == 24


NOTEBOOK = SimpleNamespace(__spec__=None)
NO_MODULE = SimpleNamespace(__spec__=SimpleNamespace(name="tool.__main__"), __file__=__file__)
SCRIPT = SimpleNamespace(__spec__=None, __file__=__file__)
MODULE = SimpleNamespace(__spec__=SimpleNamespace(name="tool.train"), __file__=__file__)


def of_main(monkeypatch: pytest.MonkeyPatch, main: Any) -> FunctionType:
    """A function that a user wrote into the main module."""
    function = FunctionType((lambda rows: rows).__code__, {}, "mine")
    function.__module__, function.__qualname__ = "__main__", "mine"
    main.mine = function
    monkeypatch.setitem(sys.modules, "__main__", main)
    return function


@pytest.mark.parametrize("main", [NOTEBOOK, NO_MODULE])
def test_what_a_notebook_defines_cannot_travel(main: Any, loader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    function = of_main(monkeypatch, main)
    for item in (function, partial(ids, function), [type("Mine", (), {"__module__": "__main__"})]):
        with pytest.raises(PickleError, match=r"collate_fn cannot be pickled.*defined in the main module"):
            check_picklable(collate_fn=item)
    check_picklable(collate_fn=ids)
    with pytest.raises(AssertionError, match="a process was started"):
        next(iter(loader))
    loader.collate_fn = function
    with pytest.raises(PickleError, match="collate_fn"):
        iter(loader)


@pytest.mark.parametrize("main", [SCRIPT, MODULE])
def test_what_a_script_defines_travels(main: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check_picklable(collate_fn=of_main(monkeypatch, main))


class Worker:
    """A process object, as far as ending it goes."""

    def __init__(self, exitcode: int | None) -> None:
        self.exitcode = exitcode

    def is_alive(self) -> bool:
        return self.exitcode is None

    def kill(self) -> None:
        self.exitcode = -9

    def join(self, timeout: float) -> None:
        assert self.exitcode is not None


class Lock:
    """An event whose lock nobody releases any more."""

    def set(self) -> None:
        raise AssertionError("it would wait for ever")


class Inner:
    """torch's iterator, as far as its end goes."""

    def __init__(self, event: Any, *exitcodes: int | None) -> None:
        self._workers_done_event, self._workers = event, [Worker(code) for code in exitcodes]
        self.asked: list[bool] = []

    def _shutdown_workers(self) -> None:
        self.asked.append(self._workers[-1].is_alive())
        self._workers_done_event.set()


def test_the_end_does_not_wait_for_what_a_dead_worker_holds() -> None:
    """WRK-15: the others end at once then; otherwise they are asked first."""
    inner = Inner(Lock(), -9, None)
    end_workers(inner)
    assert [worker.exitcode for worker in inner._workers] == [-9, -9]
    assert inner.asked == [False]
    inner = Inner(multiprocessing.Event(), 0, None)
    end_workers(inner)
    assert [worker.exitcode for worker in inner._workers] == [0, -9]
    assert inner.asked == [True]


def test_slow_workers_are_killed_while_they_are_asked_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_GRACE_SECONDS", 0.01)
    inner = Inner(multiprocessing.Event(), None, None)

    def ask() -> None:
        while any(worker.is_alive() for worker in inner._workers):
            time.sleep(0.001)

    monkeypatch.setattr(inner, "_shutdown_workers", ask)
    end_workers(inner)
    assert [worker.exitcode for worker in inner._workers] == [-9, -9]

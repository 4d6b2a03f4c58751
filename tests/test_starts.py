"""Where worker processes cannot start, that is said at once, before one is started (WRK-17, WRK-18)."""

from __future__ import annotations

import multiprocessing
import sys
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import DaemonicError, MainFileError, PickleError
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

"""Each private name that `streaming.private` leans on: there today, and what happens where it is missing."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import threading
from multiprocessing import forkserver, spawn
from types import SimpleNamespace

import pytest
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import dataloader

from streaming import private

# ---- processes


def test_the_children_of_a_parent_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(multiprocessing.process._children, set)
    ours, another = multiprocessing.Process(), multiprocessing.Process()
    monkeypatch.setattr(multiprocessing.process, "_children", known := {ours, another})
    private.forget_children([ours])
    assert known == {another}
    monkeypatch.delattr(multiprocessing.process, "_children")
    private.forget_children([another])


def test_a_process_that_imports_its_main_module_is_seen() -> None:
    assert "_inheriting" in spawn._main.__code__.co_names
    process = multiprocessing.Process()
    assert not private.imports_main(process)
    process._inheriting = True
    assert private.imports_main(process)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_have_a_fork_server_of_their_own_and_end_by_kill(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    context = private.worker_context(method)
    assert context is private.worker_context(method)
    assert context.get_start_method() == method
    ended: list[str] = []
    popen = private._ForkServerPopen if method == "forkserver" else private._SpawnPopen
    monkeypatch.setattr(popen, "kill", lambda self: ended.append("kill"))
    popen.terminate(object.__new__(popen))
    assert ended == ["kill"]
    assert forkserver._forkserver is not private._server
    monkeypatch.setattr(private, "_CONTEXTS", {})
    assert type(private.worker_context(method)) is type(multiprocessing.get_context(method))


class TorchsIterator:
    """As torch's, with what is leaned on."""

    def __init__(self) -> None:
        self._workers = ["worker"]
        self._worker_pids_set = True
        self._workers_done_event = None
        self.ended = 0

    def _shutdown_workers(self) -> None:
        self.ended += 1


def test_names_of_torchs_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set(dataloader._MultiProcessingDataLoaderIter.__init__.__code__.co_names)
    assert {"_workers", "_worker_pids_set", "_workers_done_event"} <= names
    assert hasattr(dataloader._MultiProcessingDataLoaderIter, "_shutdown_workers")
    assert hasattr(dataloader._utils.signal_handling, "_remove_worker_pids")
    iterator = TorchsIterator()
    assert private.workers_of(iterator) == ["worker"]
    forgotten: list[int] = []
    monkeypatch.setattr(dataloader._utils.signal_handling, "_remove_worker_pids", forgotten.append)
    private.forget_pids(iterator)
    private.forget_pids(iterator)
    assert forgotten == [id(iterator)]
    private.forget_event(iterator)
    assert isinstance(iterator._workers_done_event, threading.Event)
    private.shut_down(iterator)
    assert iterator.ended == 1
    stranger = SimpleNamespace()
    for call in (private.forget_pids, private.forget_event, private.shut_down, private.watch_workers):
        call(stranger)
    assert private.workers_of(stranger) == []
    assert vars(stranger) == {}


def test_an_iterator_is_asked_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert private._WATCHING.__base__ is dataloader._MultiProcessingDataLoaderIter
    assert "_try_get_data" in dataloader._MultiProcessingDataLoaderIter._get_data.__code__.co_names
    asked: list[float] = []

    class Base:
        def _try_get_data(self, timeout: float) -> tuple[bool, int]:
            asked.append(timeout)
            return len(asked) == 3, 7

    assert private._watching(Base)()._try_get_data(1000) == (True, 7)
    assert asked == [private._STEP_SECONDS] * 3
    assert private._watching(Base)()._try_get_data(0) == (False, 7)
    monkeypatch.setattr(private, "_WATCHING", None)
    private.watch_workers(iterator := TorchsIterator())
    assert type(iterator) is TorchsIterator


def test_an_exception_is_wrapped_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        raise KeyError("a")
    except KeyError:
        wrapped = private.as_torch_sends_it(3)
    assert isinstance(wrapped, ExceptionWrapper)
    with pytest.raises(KeyError, match="in DataLoader worker process 3"):
        wrapped.reraise()
    monkeypatch.delattr(torch._utils, "ExceptionWrapper")
    assert private.as_torch_sends_it(3) is None

"""Private names of torch and Python that this package leans on, each with what happens where it is missing."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import threading
from collections.abc import Callable, Iterable
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from time import monotonic
from types import FunctionType, SimpleNamespace
from typing import Any, Final

import torch._utils
from torch.utils.data import _utils, dataloader

# ---- processes: Python's multiprocessing

# Imported once by the server that workers are forked from. Not lancedb, which starts threads when it is imported, but what
# takes most of the time of importing it: that makes the start of workers five times as fast.
_PRELOADED: Final = ["torch", "numpy", "pyarrow.dataset", "lance_namespace", "streaming"]


def forget_children(children: Iterable[BaseProcess]) -> None:
    """In a forked process: these are the parent's, and must not be ended and joined at this one's exit.

    Where the name is missing, a child of ``os.fork()`` that ends by ``sys.exit()`` waits for the parent's workers. Python empties the
    set by itself in children that multiprocessing forks.
    """
    known = getattr(multiprocessing.process, "_children", None)
    if isinstance(known, set):
        known.difference_update(children)


def imports_main(process: BaseProcess) -> bool:
    """Whether a process is still importing its main module. Where the name is missing Python says so by itself when a process starts."""
    return bool(getattr(process, "_inheriting", False))


def worker_context(method: str) -> BaseContext:
    """A context whose processes end by `kill()` where others get SIGTERM, and whose fork server is ours alone.

    A fork server that somebody else started, or that starts others' processes, could not be deaf to signals. Where names are
    missing it is Python's own context: then a signal to the process group may end the server.
    """
    own = _CONTEXTS.get(method)
    if own is not None:
        return own
    context: BaseContext = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(_PRELOADED)
    return context


_CONTEXTS: dict[str, BaseContext] = {}
try:
    from multiprocessing import forkserver, popen_forkserver, popen_spawn_posix
    from multiprocessing.context import ForkServerContext, ForkServerProcess, SpawnContext, SpawnProcess

    _server = forkserver.ForkServer()
    _server.set_forkserver_preload(_PRELOADED)
    _launch = popen_forkserver.Popen._launch  # type: ignore[attr-defined]
    _our_server = SimpleNamespace(connect_to_new_process=_server.connect_to_new_process, read_signed=forkserver.read_signed)

    class _ForkServerPopen(popen_forkserver.Popen):
        # Python's own, but for the server that it asks.
        _launch = FunctionType(_launch.__code__, {**_launch.__globals__, "forkserver": _our_server})

        def terminate(self) -> None:
            self.kill()

    class ForkServerWorker(ForkServerProcess):
        """A worker process, forked by our own server."""

        @staticmethod
        def _Popen(process_obj: BaseProcess) -> Any:
            return _ForkServerPopen(process_obj)

    class _SpawnPopen(popen_spawn_posix.Popen):
        def terminate(self) -> None:
            self.kill()

    class SpawnWorker(SpawnProcess):
        """A worker process, started by itself."""

        @staticmethod
        def _Popen(process_obj: BaseProcess) -> Any:
            return _SpawnPopen(process_obj)

    class _ForkServerContext(ForkServerContext):
        Process = ForkServerWorker

    class _SpawnContext(SpawnContext):
        Process = SpawnWorker

    _CONTEXTS = {"forkserver": _ForkServerContext(), "spawn": _SpawnContext()}
except (ImportError, AttributeError):  # not POSIX, or another Python
    pass


# ---- processes: torch's iterator over the batches of worker processes

_STEP_SECONDS: Final = 1.0


def workers_of(iterator: Any) -> list[BaseProcess]:
    """The worker processes of torch's iterator; without the name, none is known: torch ends them by itself."""
    return list(getattr(iterator, "_workers", ()))


def shut_down(iterator: Any) -> None:
    """End torch's iterator now: a kept exception may keep it alive. Without the name it ends when nothing refers to it."""
    end: Callable[[], None] | None = getattr(iterator, "_shutdown_workers", None)
    if end is not None:
        end()


def forget_pids(iterator: Any) -> None:
    """Have torch's handler of SIGCHLD take no more notice of these workers. Without the names their end may raise in the trainer."""
    forget = getattr(_utils.signal_handling, "_remove_worker_pids", None)
    if forget is not None and getattr(iterator, "_worker_pids_set", False):
        forget(id(iterator))
        iterator._worker_pids_set = False


def forget_event(iterator: Any) -> None:
    """Part the iterator from its workers, all dead: one may have died holding the lock of the event by which they are told to end."""
    if hasattr(iterator, "_workers_done_event"):
        iterator._workers_done_event = threading.Event()


def watch_workers(iterator: Any) -> None:
    """Have torch's iterator look for dead workers while it waits, whatever its timeout (WRK-14). Without the names it looks after it."""
    if _WATCHING is not None and type(iterator) is _WATCHING.__base__:
        iterator.__class__ = _WATCHING


def _watching(base: Any) -> type[Any]:
    class WatchingIterator(base):  # type: ignore[misc]
        def _try_get_data(self, timeout: float = _STEP_SECONDS) -> tuple[bool, Any]:
            end = monotonic() + timeout
            while True:
                found: tuple[bool, Any] = super()._try_get_data(max(0.0, min(end - monotonic(), _STEP_SECONDS)))
                if found[0] or monotonic() >= end:
                    return found

    return WatchingIterator


def as_torch_sends_it(worker: int) -> object | None:
    """The exception that is being handled, as torch's workers send it and its iterator raises it; None where the name is missing."""
    wrapper = getattr(torch._utils, "ExceptionWrapper", None)
    return None if wrapper is None else wrapper(where=f"in DataLoader worker process {worker}")


_BASE = getattr(dataloader, "_MultiProcessingDataLoaderIter", None)
_WATCHING = _watching(_BASE) if hasattr(_BASE, "_try_get_data") else None

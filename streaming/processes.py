"""How worker processes start, what signals do to them, and how they end (WRK-15, WRK-16, WRK-21)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess, current_process
from typing import Any, Final

from streaming import private
from streaming.errors import DaemonicError, MainFileError, MainGuardError

_NAMES: Final = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2")
_SIGNALS: Final = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
# How long workers may take, all together, to finish the batch they are at.
_GRACE_SECONDS: Final = 5.0


def check_start() -> None:
    """Refuse to start worker processes where none could begin (WRK-18).

    Raises
    ------
    MainGuardError, DaemonicError, MainFileError
        What stands in the way.
    """
    process = current_process()
    if private.imports_main(process):
        raise MainGuardError(
            "worker processes import the main module, which starts workers while it is imported: "
            'put the training code under if __name__ == "__main__":'
        )
    if process.daemon:
        raise DaemonicError(
            "this process is daemonic (a worker of another loader or of a multiprocessing.Pool, for instance), and Python lets such a "
            "process start no others: use num_workers=0, or start it with daemon=False"
        )
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if getattr(main, "__spec__", None) is None and file is not None and not os.path.exists(file):
        raise MainFileError(
            f"worker processes import the main module, but {file} is no file (a script from standard input?): write the script to a "
            "file, or use num_workers=0"
        )


def context_for(asked: BaseContext | None) -> BaseContext:
    """The context that starts workers: as asked for or the default, but never fork, and with a fork server of our own (WRK-16)."""
    method = (asked or multiprocessing.get_context()).get_start_method()
    if method == "fork":
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    return private.worker_context(method)


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold signals back for a while: processes that are started meanwhile are born with them blocked.

    So no moment is left, from the first instruction of a fork server or a worker on, in which a signal could end it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        # Python's tracker of semaphores comes first: having started it, Python takes some of the signals from the mask.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class WorkerStart:
    """The ``worker_init_fn`` of the inner loader: deaf to signals, tied to the trainer, and then the user's own.

    Parameters
    ----------
    function : callable or None
        The user's ``worker_init_fn``.
    """

    function: Callable[[int], None] | None

    def __call__(self, worker: int) -> None:
        """Begin to be a worker."""
        for number in _SIGNALS:
            # A handler, because programs that the worker starts would inherit SIG_IGN, and not end when they are told to.
            signal.signal(number, _ignore)
            if hasattr(signal, "siginterrupt"):
                signal.siginterrupt(number, False)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        _end_with_trainer()
        if self.function is not None:
            self.function(worker)


def _ignore(number: int, frame: Any) -> None:
    pass


def _end_with_trainer() -> None:
    """End this worker process when the trainer's is gone, killed for instance (WRK-15).

    torch's own watch looks at the parent's process id, which under forkserver is that of the server and never changes.
    """
    trainer = multiprocessing.parent_process()
    if trainer is not None:
        threading.Thread(target=_exit_after, args=(trainer,), daemon=True, name="streaming-watch").start()


def _exit_after(process: BaseProcess) -> None:
    process.join()
    os._exit(1)


def end_workers(inner: Any) -> None:
    """End the workers of torch's iterator: they may finish the batch they are at, if that does not take long."""
    workers = private.workers_of(inner)
    if not workers:
        private.shut_down(inner)
        return
    private.forget_pids(inner)
    if any(worker.exitcode for worker in workers):
        # One that was killed may hold a lock for which an orderly end would wait for ever.
        kill(workers)
        private.forget_event(inner)
        private.shut_down(inner)
        return
    killer = threading.Timer(_GRACE_SECONDS, kill, [workers])
    killer.daemon = True
    killer.start()
    try:
        private.shut_down(inner)
    finally:
        killer.cancel()
        kill(workers)


def kill(workers: Iterable[BaseProcess]) -> None:
    """End workers that are alive at once."""
    killed = [worker for worker in workers if worker.is_alive()]
    for worker in killed:
        worker.kill()
    for worker in killed:
        worker.join(timeout=_GRACE_SECONDS)

"""How an iterator ends, once and for good: by its last item, by ``close()``, by failure, or because nobody holds it (DLV-4, DLV-5)."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from streaming.errors import IteratorFailedError


class EndingIterator(Iterator[Any]):
    """Base of the iterators that hold the lease of a dataset. ``close()`` ends one early; so does dropping it."""

    # How it ended: "closed", "failed", or None while alive. An interrupt may come before a constructor is through.
    _over: str | None = "closed"

    def _begin(self) -> None:
        """Be alive."""
        self._over = None
        _iterators.add(self)

    @property
    def alive(self) -> bool:
        """Whether it may still deliver (DLV-4)."""
        return self._over is None

    def close(self) -> None:
        """End the pass and release what it holds; the dataset's place is that of what was received."""
        self._end("closed")

    def __del__(self) -> None:
        """End an iterator that nobody holds any more."""
        self.close()

    def _end(self, how: str) -> None:
        if self._over is None:
            self._over = how
            self._release()

    @abstractmethod
    def _release(self) -> None:
        """Let go of threads, processes and rows."""

    def _raise_over(self) -> NoReturn:
        """What ``next()`` does after the end: never a later item, and never StopIteration after a failure (DLV-5)."""
        if self._over == "failed":
            raise IteratorFailedError("this iterator failed and is over; a new one starts with what was not received")
        raise StopIteration


_iterators: weakref.WeakSet[EndingIterator] = weakref.WeakSet()


# Before concurrent.futures waits for its threads, which would first do everything that they were given: its hook is registered with
# its import, above, and hooks run last come first. Python calls this function private; without it, exits take longer.
at_exit: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)


@at_exit
def _close_all() -> None:
    """End what is alive while the interpreter is still whole: later, threads cannot be told to stop any more."""
    for iterator in list(_iterators):
        iterator.close()

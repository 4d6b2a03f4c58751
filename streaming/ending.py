"""How an iterator begins and ends: with its first ``next()``; by its last item, ``close()``, failure, a newer one, or because nobody
holds it (DLV-4, DLV-5)."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401
import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from streaming.errors import ForkedError, IteratorFailedError, IteratorSupersededError, StreamingError
from streaming.position import Position


class EndingIterator(Iterator[Any]):
    """Base of the iterators that deliver a dataset's rows. ``close()`` ends one early; so does dropping it.

    Attributes
    ----------
    begun : bool
        Whether it was ever asked for a row. Before that it holds nothing (DLV-4).
    inside : bool
        Whether some thread is inside its ``next()``.
    """

    begun = False
    inside = False
    # How it ended: "closed", "ended", "failed", "superseded", "forked", or None. An interrupt may come before a constructor is through.
    _over: str | None = "closed"
    _taken_before = 0

    def _wait(self, position: Position) -> None:
        """Be ready to begin a pass."""
        self._position = position
        self._over = None
        _iterators.add(self)

    @property
    def over(self) -> bool:
        """Whether it has ended, for good."""
        return self._over is not None

    def close(self) -> None:
        """End the pass and release what it holds; the dataset's place is that of what was received."""
        self.end("closed")

    def __del__(self) -> None:
        """End an iterator that nobody holds any more."""
        self.close()

    def supersede(self) -> None:
        """End it because there is a newer one."""
        if self._over is None:
            self._taken_before = self._position.rows_taken
            self.end("superseded")

    def end(self, how: str) -> None:
        """End the pass, unless it is over already."""
        if self._over is None:
            self._over = how
            self._release()

    def fail(self) -> None:
        """End a pass whose item did not arrive, even if it was the last one."""
        self.end("failed")
        if self._over == "ended":
            self._over = "failed"

    def begin(self) -> None:
        """Begin the pass at the dataset's place, with the first ``next()``; what is refused leaves everything as it was."""
        if not self.begun:
            self.begun = True
            try:
                self._take_place()
            except StreamingError:
                self.begun = False
                raise
            self._start()

    @abstractmethod
    def _take_place(self) -> None:
        """Let the pass begin at the dataset's place, or refuse."""

    @abstractmethod
    def _start(self) -> None:
        """Start what reads."""

    @abstractmethod
    def _release(self) -> None:
        """Let go of threads, processes and rows."""

    def raise_over(self) -> NoReturn:
        """What ``next()`` does after the end: never a later item, and never StopIteration after a failure (DLV-5)."""
        if self._over == "failed":
            raise IteratorFailedError("this iterator failed and is over; a new one starts with what was not received")
        if self._over == "superseded":
            taken = self._position.rows_taken - self._taken_before
            raise IteratorSupersededError(
                f"a newer iterator of this dataset has taken over, and {taken} rows were received since: use the newest one. "
                "Loops that run at the same time, training and evaluation for instance, need a dataset each"
            )
        if self._over == "forked":
            raise ForkedError("this iterator belongs to the process that this one was forked from; iterate there")
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


_kept: list[dict[str, Any]] = []


def _after_fork() -> None:
    """In a forked child every iterator is over: its threads, processes and locks are the parent's (WRK-16).

    What they hold is kept until the child ends, so that no finalizer of torch's or Python's touches it.
    """
    for iterator in list(_iterators):
        if not iterator.over:
            _kept.append(dict(vars(iterator)))
            iterator._over = "forked"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

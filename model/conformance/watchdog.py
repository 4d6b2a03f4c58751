"""A time limit for every call of a loader: a call that never returns cannot be judged, but it can be named."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from model.conformance.adapter import Adapter, Description, World

# Is told which call of the adapter has not returned, the world that was opened last, and the steps of the scenario up to there.
Bark = Callable[[str, World | None, Sequence[dict[str, Any]]], None]


class Watched(Adapter):
    """An adapter whose calls are watched by a thread of their own.

    The call itself cannot be ended from outside, so what comes next is for `bark` to decide: the command line ends the process.

    Parameters
    ----------
    inner : Adapter
        What is called.
    seconds : float
        How long one call may take.
    bark : callable
        Called once, in the watching thread.
    """

    def __init__(self, inner: Adapter, seconds: float, bark: Bark) -> None:
        """Watch from now on."""
        self.inner, self.seconds, self.bark = inner, seconds, bark
        # Of the scenario under way; `model.conformance.scenario.Side` keeps them. None where the kit calls without one.
        self.steps: list[dict[str, Any]] = []
        self._world: World | None = None
        self._call: tuple[str, float] | None = None
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    def _watch(self) -> None:
        while True:
            time.sleep(min(self.seconds / 4, 0.5))
            call = self._call
            if call is not None and time.monotonic() - call[1] > self.seconds:
                self.bark(call[0], self._world, list(self.steps))
                return

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._call = (name, time.monotonic())
        try:
            return getattr(self.inner, name)(*arguments)
        finally:
            self._call = None

    def describe(self) -> Description:
        """Without a limit: an adapter that does not know who it is has no loader yet."""
        return self.inner.describe()

    def open(self, world: World) -> Any:
        """Watched, as all that follow."""
        self._world = world
        return self._ask("open", world)

    def pull(self, handle: Any) -> Sequence[int] | None:
        """Watched."""
        batch: Sequence[int] | None = self._ask("pull", handle)
        return batch

    def save(self, handle: Any) -> Any:
        """Watched."""
        return self._ask("save", handle)

    def resume(self, handle: Any, state: Any) -> None:
        """Watched."""
        self._ask("resume", handle, state)

    def kill(self, handle: Any) -> None:
        """Watched."""
        self._ask("kill", handle)

    def close(self, handle: Any) -> None:
        """Watched."""
        self._ask("close", handle)

    def iterate(self, handle: Any) -> None:
        """Watched."""
        self._ask("iterate", handle)

    def pull_older(self, handle: Any) -> Sequence[int] | None:
        """Watched."""
        batch: Sequence[int] | None = self._ask("pull_older", handle)
        return batch

    def fault(self, handle: Any, row: int | None) -> None:
        """Watched."""
        self._ask("fault", handle, row)

    def set_epoch(self, handle: Any, epoch: int) -> None:
        """Watched."""
        self._ask("set_epoch", handle, epoch)

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """Watched."""
        return self._ask("merge", states, skew)

    def length(self, handle: Any) -> int:
        """Watched."""
        batches: int = self._ask("length", handle)
        return batches

    def append(self, table: str, rows: int) -> None:
        """Watched."""
        self._ask("append", table, rows)

"""A loader in the midst of an epoch, without the way to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from model.checkpoint import sign
from model.conformance.adapter import Adapter, Description, World


class Begun(Adapter):
    """A loader all of whose handles begin behind so many completed cycles: by a state that nobody has saved, its own with other counts.

    Both sides are put there alike. It works for states of spec/checkpoint.md only, which `streaming` and the model have.
    """

    def __init__(self, inner: Adapter, cycle: int) -> None:
        """At cycle 0 the handles are as they are."""
        self.inner, self.cycle = inner, cycle

    def describe(self) -> Description:
        """The loader."""
        return self.inner.describe()

    def open(self, world: World) -> Any:
        """Open, and load the state of the place."""
        handle = self.inner.open(world)
        if self.cycle:
            saved = self.inner.save(handle)
            state = json.loads(saved) if isinstance(saved, str) else saved
            self.inner.resume(handle, sign({**state, "samples_consumed_per_split": [self.cycle] * world.num_splits}))
        return handle

    def pull(self, handle: Any) -> Sequence[int] | None:
        """As ever."""
        return self.inner.pull(handle)

    def save(self, handle: Any) -> Any:
        """As ever."""
        return self.inner.save(handle)

    def resume(self, handle: Any, state: Any) -> None:
        """As ever: instead of the place of `open`."""
        self.inner.resume(handle, state)

    def kill(self, handle: Any) -> None:
        """As ever."""
        self.inner.kill(handle)

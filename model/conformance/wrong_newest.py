"""Wrong where a loader has more iterators than one, or one that was never asked, or a pass that is over and has not said so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from model import workers
from model.conformance.adapter import Refused
from model.conformance.reference import Handle
from model.conformance.wrong import Foreign, move, wrong


@wrong("DLV-4")
class OlderIteratorGoesOn(Foreign):
    """Goes on delivering from an iterator that was superseded."""

    def pull_older(self, handle: Handle) -> Sequence[int] | None:
        """The batch that the newest would have given."""
        return super().pull(handle) if handle.pool.loader.older == "superseded" else super().pull_older(handle)


@wrong("DLV-4")
class SupersededLooksEnded(Foreign):
    """Says that the pass of a superseded iterator has ended: an epoch with rows missing looks whole."""

    def pull_older(self, handle: Handle) -> Sequence[int] | None:
        """The end instead of a refusal."""
        return None if handle.pool.loader.older == "superseded" else super().pull_older(handle)


@wrong("DLV-4")
class SupersedesWhatIsOver(Foreign):
    """Supersedes a pass with nothing left, because it has not said so."""

    def iterate(self, handle: Handle) -> None:
        """Another end for the older one."""
        over = handle.held and handle.pool.loader.newest == "ended"
        super().iterate(handle)
        if over:
            handle.pool = replace(handle.pool, loader=replace(handle.pool.loader, older="superseded"))


@wrong("DLV-4", "EPO-2")
class IterMovesThePlace(Foreign):
    """Goes back to the last completed cycle where an iterator is created."""

    def iterate(self, handle: Handle) -> None:
        """Back to the boundary."""
        super().iterate(handle)
        if handle.pool.place is None:
            move(handle, served=())


@wrong("DLV-4", "EPO-4")
class IterUsesUpSetEpoch(Foreign):
    """Forgets what set_epoch asked for where an iterator is created."""

    def iterate(self, handle: Handle) -> None:
        """Not asked any more."""
        super().iterate(handle)
        handle.pool = replace(handle.pool, loader=replace(handle.pool.loader, asked=False))


@wrong("DLV-4", "WRK-11")
class SupersedingCountsWhatWasPrepared(Foreign):
    """Counts the batch that was prepared when a newer iterator was created."""

    def iterate(self, handle: Handle) -> None:
        """One batch further."""
        if handle.pool.running is not None:
            handle.pool, _ = workers.deliver(handle.pool)
        super().iterate(handle)


@wrong("WRK-11")
class SupersedingLosesTheTurn(Foreign):
    """Begins with the first worker again where a newer iterator was created between step boundaries."""

    def iterate(self, handle: Handle) -> None:
        """Turn 0."""
        super().iterate(handle)
        if handle.pool.place is not None:
            handle.pool = replace(handle.pool, place=replace(handle.pool.place, turn=0))


@wrong("DLV-4")
class RefusesASecondIterator(Foreign):
    """Refuses an iterator while a pass has rows left."""

    def iterate(self, handle: Handle) -> None:
        """One at a time."""
        if handle.pool.running is not None:
            raise Refused("iterator.alive")
        super().iterate(handle)


@wrong("DLV-4")
class IdleIteratorsHoldThePlace(Foreign):
    """Refuses a load while an iterator waits for its first batch to be asked."""

    def resume(self, handle: Handle, state: Any) -> None:
        """As under a pass."""
        if handle.pool.waiting is not None:
            raise Refused("iterator.alive")
        super().resume(handle, state)


@wrong("DLV-4")
class HoldsAPassThatIsOver(Foreign):
    """Refuses a load behind the last row until the iterator has said its end."""

    def resume(self, handle: Handle, state: Any) -> None:
        """As under a pass."""
        if handle.held and handle.pool.loader.newest == "ended":
            raise Refused("iterator.alive")
        super().resume(handle, state)


@wrong("DLV-4")
class PassBeginsWhereItWasCreated(Foreign):
    """Begins a pass where the iterator was created, whatever moved the place since."""

    def iterate(self, handle: Handle) -> None:
        """Remember the place."""
        super().iterate(handle)
        vars(handle)["created"] = handle.pool.loader.cursor

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """Back to it."""
        place = vars(handle).pop("created", None)
        if place is not None and handle.pool.place is None and handle.pool.waiting is not None:
            move(handle, epoch=place.epoch, cycle=place.cycle, served=place.served)
        return super().pull(handle)

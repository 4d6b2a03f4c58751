"""Wrong epochs, breaks and failures; loaders that do not end, or crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from model import loader, workers
from model.conformance.adapter import Failed
from model.conformance.adapters.example import ListLoader
from model.conformance.reference import Handle
from model.conformance.wrong import Foreign, move, wrong


def _completed(handle: Handle) -> bool:
    """Whether no pass is under way and the epoch is completed."""
    pool = handle.pool
    return not handle.held and workers.remaining(pool) == 0 and not pool.loader.asked


# ---- epochs


@wrong("EPO-2")
class StandsStillAtTheEpoch(Foreign):
    """Serves the same epoch again in the next pass."""

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """Back to its beginning."""
        if _completed(handle):
            handle.pool = workers.rewind(handle.pool)
        return super().pull(handle)


@wrong("EPO-2")
class GivesOnePassOnly(Foreign):
    """Gives nothing in the second pass."""

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """The end again."""
        return None if _completed(handle) else super().pull(handle)


@wrong("EPO-3")
class GivesNothingAfterACompletedEpoch(Foreign):
    """Resumes from the state of a completed epoch with an empty pass."""

    def resume(self, handle: Handle, state: Any) -> None:
        """As if this epoch had been asked for."""
        super().resume(handle, state)
        handle.pool = replace(handle.pool, loader=replace(handle.pool.loader, asked=workers.remaining(handle.pool) == 0))


@wrong("EPO-4")
class IgnoresSetEpoch(Foreign):
    """Stays in its epoch whatever set_epoch says."""

    def set_epoch(self, handle: Handle, epoch: int) -> None:
        """Ask for the current one."""
        del epoch
        super().set_epoch(handle, handle.pool.loader.cursor.epoch)


@wrong("EPO-4")
class BeginsAnewAtSetEpoch(Foreign):
    """Begins the current epoch anew where set_epoch names it."""

    def set_epoch(self, handle: Handle, epoch: int) -> None:
        """Back to the beginning."""
        super().set_epoch(handle, epoch)
        move(handle, cycle=0, served=())


@wrong("EPO-3")
class RemembersSetEpochAcrossALoad(Foreign):
    """Goes on asking for an epoch after a load: the state of a completed one then gives an empty pass."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Keep what was asked."""
        asked = handle.pool.loader.asked
        super().resume(handle, state)
        handle.pool = replace(handle.pool, loader=replace(handle.pool.loader, asked=asked))


# ---- passes that are left


@wrong("DLV-4")
class BreakLosesTheBatchInFlight(Foreign):
    """Counts the batch that was prepared when the pass was left."""

    def close(self, handle: Handle) -> None:
        """One batch further."""
        if handle.pool.running is not None:
            handle.pool, _ = workers.deliver(handle.pool)
        super().close(handle)


@wrong("DLV-4")
class BreakLosesThePass(Foreign):
    """Goes back to the last completed cycle where a pass is left."""

    def close(self, handle: Handle) -> None:
        """Back to the boundary."""
        super().close(handle)
        if handle.pool.place is None:
            move(handle, served=())


@wrong("RES-3", "DLV-4")
class BreakGoesBackToTheLoad(Foreign):
    """Goes back to where it was loaded where a resumed pass is left."""

    def resume(self, handle: Handle, state: Any) -> None:
        """Remember the place."""
        super().resume(handle, state)
        vars(handle)["loaded"] = handle.pool.loader.cursor

    def close(self, handle: Handle) -> None:
        """Back to it."""
        super().close(handle)
        place = vars(handle).get("loaded")
        if place is not None and handle.pool.place is None:
            move(handle, epoch=place.epoch, cycle=place.cycle, served=place.served)


@wrong("DLV-4")
class LoadsUnderAnIterator(ListLoader):
    """Takes a load while a pass is under way."""

    def resume(self, handle: Any, state: Any) -> None:
        """Leave the pass by itself."""
        handle["pass"] = None
        super().resume(handle, state)


@wrong("DLV-4")
class SetsTheEpochUnderAnIterator(Foreign):
    """Takes set_epoch while a pass is under way, which it ends."""

    def set_epoch(self, handle: Handle, epoch: int) -> None:
        """Leave the pass by itself."""
        handle.pool = workers.close(handle.pool)
        super().set_epoch(handle, epoch)


# ---- failures


@wrong("DLV-6")
class CountsTheKilledBatch(Foreign):
    """Counts the batch that a bad row has killed."""

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """Deliver, then fail."""
        fault, handle.fault = handle.fault, None
        batch = super().pull(handle)
        handle.fault = fault
        if batch is not None and fault in batch:
            handle.pool = workers.kill(handle.pool)
            raise Failed
        return batch


@wrong("DLV-5")
class GoesOnAfterAFailure(Foreign):
    """Gives the following batch after a failure."""

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """Skip the bad one."""
        fault, handle.fault = handle.fault, None
        batch = super().pull(handle)
        handle.fault = fault
        if batch is not None and fault in batch:
            raise Failed
        return batch


@wrong("DLV-5")
class EndsWhereItFailed(Foreign):
    """Says that the pass has ended where it has failed: an epoch with rows missing looks whole."""

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """The end instead of a refusal."""
        return None if handle.pool.loader.newest == "failed" else super().pull(handle)


@wrong("DLV-5")
class DropsGoodRowsBeforeABadOne(Foreign):
    """Fails one batch too early, because it transforms two batches at once."""

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """Look one batch ahead."""
        world, pool = handle.world, handle.pool
        if handle.fault is not None and pool.loader.newest != "failed":
            if not handle.held:
                pool = workers.start(pool, world.num_workers, world.worker_sharding, world.batch_size)
            first, _ = workers.deliver(pool)
            _, second = workers.deliver(first)
            if second is not None and handle.fault in second:
                handle.pool, handle.held = workers.kill(pool), True
                raise Failed
        return super().pull(handle)


# ---- neither right nor wrong


@wrong("RES-3")
class NeverEnds(ListLoader):
    """Gives empty batches for ever at the end of a resumed pass."""

    def resume(self, handle: Any, state: Any) -> None:
        """From now on."""
        super().resume(handle, state)
        handle["resumed"] = True

    def pull(self, handle: Any) -> Sequence[int] | None:
        """Nothing, instead of the end."""
        batch = super().pull(handle)
        return [] if batch is None and handle.get("resumed") else batch


@wrong("RES-3")
class CrashesWhereItResumes(ListLoader):
    """Divides by zero in a resume on another rank than the first."""

    def resume(self, handle: Any, state: Any) -> None:
        """An exception that is nobody's refusal."""
        super().resume(handle, state)
        handle["first"] //= handle["world"].rank == 0


@wrong("ORD-6", "ORD-3")
class CrashesWhereItShuffles(Foreign):
    """Crashes in the first shuffled batch of every epoch but the first."""

    def pull(self, handle: Handle) -> Sequence[int] | None:
        """An exception that is nobody's refusal."""
        if handle.world.shuffle and loader.save(handle.pool.loader)["epoch"] > 0:
            raise ZeroDivisionError
        return super().pull(handle)

"""Wrong orders, wrong assignments, wrong lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model import order
from model.conformance.adapter import World
from model.conformance.adapters.example import ListLoader
from model.conformance.reference import Handle, Reference
from model.conformance.wrong import CONTROLS, Control, Foreign, patched, wrong
from model.order import Order


def shuffled(rows: int, seed: int, epoch: int, clump: int | None = None) -> list[int]:
    """The order of spec/order.md, by position."""
    whole = Order(rows, True, seed, epoch, clump)
    return [whole.row(position) for position in range(rows)]


class Shuffling(Reference):
    """The model, with another shuffled order."""

    def __init__(self) -> None:
        super().__init__(self.sequence)

    def sequence(self, world: World, epoch: int) -> Sequence[int]:
        """The rows of an epoch by position."""
        raise NotImplementedError


# ---- orders


@wrong("ORD-3")
class NeverShuffles(Shuffling, Foreign):
    """Serves the storage order although shuffle was asked for."""

    def sequence(self, world: World, epoch: int) -> Sequence[int]:
        """The same always."""
        del epoch
        return range(world.rows)


@wrong("ORD-3")
class IgnoresTheEpoch(Shuffling, Foreign):
    """Shuffles every epoch alike."""

    def sequence(self, world: World, epoch: int) -> Sequence[int]:
        """That of epoch 0."""
        del epoch
        return shuffled(world.rows, world.shuffle_seed, 0)


@wrong("ORD-3")
class IgnoresTheSeed(Shuffling, Foreign):
    """Shuffles alike whatever the seed."""

    def sequence(self, world: World, epoch: int) -> Sequence[int]:
        """That of seed 0."""
        return shuffled(world.rows, 0, epoch)


@wrong("ORD-3")
class AddsSeedAndEpoch(Shuffling, Foreign):
    """Seeds with seed + epoch: epoch 1 of seed 0 is epoch 0 of seed 1."""

    def sequence(self, world: World, epoch: int) -> Sequence[int]:
        """That of the sum."""
        return shuffled(world.rows, world.shuffle_seed + epoch, 0)


@wrong("ORD-3")
class RedrawsTheSeedAtOpening(Shuffling, Foreign):
    """Gives every new loader another order, although the seed is the same."""

    opened = 0

    def open(self, world: World) -> Handle:
        """One more."""
        self.opened += 1
        return super().open(world)

    def sequence(self, world: World, epoch: int) -> Sequence[int]:
        """That of the newest seed."""
        return shuffled(world.rows, world.shuffle_seed + self.opened, epoch)


@wrong("ORD-6")
class DrawsWithReplacement(Shuffling, Foreign):
    """Serves one row twice and another never."""

    def sequence(self, world: World, epoch: int) -> Sequence[int]:
        """The last row is the first one again."""
        rows = shuffled(world.rows, world.shuffle_seed, epoch)
        return [*rows[: world.num_splits], rows[0], *rows[world.num_splits + 1 :]]


@wrong("ORD-12")
class HasAnotherOrder(Shuffling):
    """Claims the order of spec/order.md and has its reverse."""

    def sequence(self, world: World, epoch: int) -> Sequence[int]:
        """Backwards."""
        return shuffled(world.rows, world.shuffle_seed, epoch, world.shuffle_clump_size)[::-1]


# Loader and model agree, whatever the model does; what is written in files does not change with it.
CONTROLS.append(
    Control(
        "TheModelItself",
        "Has another order, and so has the model: six rounds.",
        frozenset({"ORD-12"}),
        Reference,
        lambda: patched(order, "rounds", lambda _: 6),
        written=True,
    )
)


@wrong("ORD-8")
class TearsClumps(Shuffling):
    """Shuffles row by row although a clump size was given."""

    def sequence(self, world: World, epoch: int) -> Sequence[int]:
        """Without clumps."""
        return shuffled(world.rows, world.shuffle_seed, epoch)


# ---- assignment


class _Remapping(ListLoader):
    """The list loader, with other rows in the places of its own."""

    def pull(self, handle: Any) -> Sequence[int] | None:
        """Other rows."""
        batch = super().pull(handle)
        world: World = handle["world"]
        length = world.rows // world.num_splits
        return None if batch is None else [self.row(world, length, *divmod(row, length)) for row in batch]

    def row(self, world: World, length: int, split: int, cycle: int) -> int:
        """The row instead of that of a split in a cycle."""
        raise NotImplementedError


@wrong("CYC-1")
class ShardsOffByOne(_Remapping):
    """Begins the block of every rank but the first one split too late."""

    def row(self, world: World, length: int, split: int, cycle: int) -> int:
        """Of the next split."""
        return (split + (world.rank > 0)) % world.num_splits * length + cycle


@wrong("CYC-1")
class StridesSplits(_Remapping):
    """Gives rank r the splits r, r + R, r + 2R, .. instead of a block."""

    def row(self, world: World, length: int, split: int, cycle: int) -> int:
        """Of the strided split."""
        owned = world.num_splits // world.world_size
        return (split % owned * world.world_size + world.rank) * length + cycle


@wrong("CYC-6")
class ServesSplitAfterSplit(_Remapping):
    """Reads one split to its end and then the next, so that steps depend on the world size."""

    def row(self, world: World, length: int, split: int, cycle: int) -> int:
        """Of the sequence by splits."""
        owned = world.num_splits // world.world_size
        return world.rank * owned * length + cycle * owned + split % owned


@wrong("CYC-1")
class DropsTheTailOnOneRank(ListLoader):
    """Drops the last batch of the last of several ranks where it is shorter than the others."""

    def pull(self, handle: Any) -> Sequence[int] | None:
        """Ends early."""
        batch, world = super().pull(handle), handle["world"]
        if batch is not None and len(batch) < world.batch_size and 0 < world.rank == world.world_size - 1:
            handle["pass"] = None
            return None
        return batch


@wrong("CYC-1")
class ServesTheLeftOutRowsOnOneRank(ListLoader):
    """Serves the N mod S rows of no split on the last of several ranks, which so has more steps than the others."""

    def pull(self, handle: Any) -> Sequence[int] | None:
        """One batch more, once in a pass."""
        batch, world = super().pull(handle), handle["world"]
        tail = range(world.rows // world.num_splits * world.num_splits, world.rows)
        if batch is None and tail and 0 < world.rank == world.world_size - 1 and not handle.get("tail"):
            handle.update({"tail": True, "pass": "over"})
            return tail
        handle["tail"] = handle.get("tail", False) and batch is not None
        return batch


@wrong("ASG-2")
class TakesAnyWorldSize(ListLoader):
    """Opens with a world size that does not divide the splits."""

    def open(self, world: World) -> Any:
        """Without the check."""
        if world.world_size > 0 and world.num_splits % world.world_size:
            return {"world": world, "epoch": world.epoch, "received": 0, "first": 0, "pass": None}
        return super().open(world)


@wrong("ASG-1")
class TakesTooFewRows(ListLoader):
    """Opens with fewer rows than splits."""

    def open(self, world: World) -> Any:
        """Without the check."""
        if 0 < world.rows < world.num_splits:
            return {"world": world, "epoch": world.epoch, "received": 0, "first": 0, "pass": None}
        return super().open(world)


@wrong("CYC-1")
class RefusesALegalWorld(ListLoader):
    """Refuses more than two ranks."""

    def open(self, world: World) -> Any:
        """Refuse one world too many."""
        if world.world_size > 2:
            world = World(world.rows, world.num_splits, world_size=world.num_splits + 1)
        return super().open(world)


# ---- lengths


@wrong("WRK-13")
class CountsWholeBatchesOnly(Foreign):
    """Leaves the last, shorter batch out of len()."""

    def length(self, handle: Handle) -> int:
        """Rounded down."""
        world = handle.world
        return world.rows // world.num_splits * (world.num_splits // world.world_size) // world.batch_size


@wrong("WRK-13")
class CountsWhatIsLeft(Foreign):
    """Takes the batches already received off len()."""

    def length(self, handle: Handle) -> int:
        """Less the completed cycles."""
        return super().length(handle) - handle.pool.loader.cursor.cycle

"""Loaders may shuffle in an order of their own: it is observed once, and everything else is judged by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from model.conformance.adapter import Adapter, World
from model.conformance.scenario import MOST_BATCHES, plain


@dataclass
class Learned:
    """The sequences that a loader has, one uninterrupted epoch of one rank each.

    A sequence is what one rank alone receives in a fresh epoch without workers, put back to positions by CYC-1. That it is one (each row
    once) is the business of the smoke layer; that it is the same everywhere else, of all others.
    """

    adapter: Adapter
    known: dict[tuple[Any, ...], tuple[int, ...]] = field(default_factory=dict)

    def __call__(self, world: World, epoch: int) -> Sequence[int]:
        """The rows by position, those of positions that no split holds left out."""
        key = (world.rows, world.num_splits, world.shuffle, world.shuffle_seed, world.shuffle_clump_size, epoch)
        if key not in self.known:
            alone = World(
                world.rows,
                world.num_splits,
                shuffle=world.shuffle,
                shuffle_seed=world.shuffle_seed,
                shuffle_clump_size=world.shuffle_clump_size,
                epoch=epoch,
            )
            served = self.epoch(alone)
            length = world.rows // world.num_splits
            self.known[key] = tuple(
                served[cycle * world.num_splits + split] for split in range(world.num_splits) for cycle in range(length)
            )
        return self.known[key]

    def epoch(self, world: World) -> list[int]:
        """The ids of one whole pass; at least as many as an epoch has, padded with -1 where the loader gives fewer."""
        handle = self.adapter.open(replace(world, table=f"observed-{world.rows}"))
        rows: list[int] = []
        try:
            for _ in range(MOST_BATCHES):
                batch = plain(self.adapter.pull(handle))
                if batch is None:
                    break
                rows += batch
        finally:
            self.adapter.kill(handle)
        return rows + [-1] * (world.rows // world.num_splits * world.num_splits - len(rows))

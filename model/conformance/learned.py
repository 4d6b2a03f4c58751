"""Loaders may shuffle in an order of their own: it is observed once, and everything else is judged by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from model.conformance.adapter import Adapter, World
from model.conformance.scenario import plain


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
            for _ in range(world.rows + 1):
                batch = plain(self.adapter.pull(handle))
                if batch is None:
                    break
                rows += batch
        except Exception:
            # Not here: it would be taken for the model's own refusal. What is missing is no id, and the smoke layer says so.
            return self._padded(world, rows)
        finally:
            self.adapter.kill(handle)
        return self._padded(world, rows)

    @staticmethod
    def _padded(world: World, rows: list[int]) -> list[int]:
        return rows + [-1] * (world.rows // world.num_splits * world.num_splits - len(rows))

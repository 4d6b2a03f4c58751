"""What the demo runs with: fixed sizes, the user's choices, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streaming.arguments import integer
from streaming.errors import ArgumentValueError

NUM_SPLITS: Final = 12
# A multiple of NUM_SPLITS: then a global step holds the same rows on every world size (CYC-6).
GLOBAL_BATCH: Final = 48
WORLD_SIZES: Final = tuple(r for r in range(1, NUM_SPLITS + 1) if NUM_SPLITS % r == 0)
# Twenty steps, so that several checkpoints lie before the kill and several steps after it.
MIN_ROWS: Final = 20 * GLOBAL_BATCH
# Neither a multiple of NUM_SPLITS nor of GLOBAL_BATCH: some rows are left out and the last step is short, as in real epochs.
DEFAULT_ROWS: Final = 4013


class DemoError(Exception):
    """The demo could not be carried out: nothing is known about whether its checks hold."""


@dataclass(frozen=True)
class Settings:
    """The user's choices.

    Parameters
    ----------
    rows : int
        Rows of the table, at least `MIN_ROWS`.
    world_size, resume_world_size : int
        Ranks before and after the kill; each divides `NUM_SPLITS`.
    seed : int
        Of the shuffle and of the model's first weights, in ``[0, 2**63)``.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        The message names the argument and its legal range.
    """

    rows: int
    world_size: int
    resume_world_size: int
    seed: int

    def __post_init__(self) -> None:
        integer("--rows", self.rows, MIN_ROWS)
        integer("--seed", self.seed, 0)
        for name, value in (("--world-size", self.world_size), ("--resume-world-size", self.resume_world_size)):
            if value not in WORLD_SIZES:
                legal = ", ".join(map(str, WORLD_SIZES))
                raise ArgumentValueError(f"{name} must divide the {NUM_SPLITS} splits, so be one of {legal}; got {value}", name)

    @property
    def steps(self) -> int:
        """Global steps of the epoch, a short last one included. For progress and for timing the kill; the judge counts for itself."""
        return -(-(self.rows // NUM_SPLITS * NUM_SPLITS) // GLOBAL_BATCH)

    @property
    def checkpoint_every(self) -> int:
        """Steps from one checkpoint to the next."""
        return max(3, self.steps // 8)

    @property
    def kill_after_step(self) -> int:
        """First step after which the run may be killed: past the middle of the epoch, halfway between two checkpoints."""
        every = self.checkpoint_every
        return self.steps // 2 // every * every + every // 2

    @property
    def rows_to_append(self) -> int:
        """Rows that the table grows by while the run is down."""
        return max(GLOBAL_BATCH, self.rows // 10)

"""Who this process is, and which splits it owns (spec/assignment.md)."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

import torch.distributed

from streaming.arguments import integer
from streaming.errors import ArgumentTypeError, ArgumentValueError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Topology:
    """Splits and ranks (ASG-2, ASG-3). `num_splits` is a multiple of `world_size`."""

    num_splits: int
    world_size: int
    rank: int

    @property
    def splits_per_rank(self) -> int:
        """Splits that each rank owns (n)."""
        return self.num_splits // self.world_size

    @property
    def first_split(self) -> int:
        """Lowest split of this rank's block."""
        return self.rank * self.splits_per_rank


def resolve(num_splits: object, rank: object, world_size: object) -> Topology:
    """Check the arguments, and fill those that are None from the environment (ASG-5, ASG-6).

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        An argument is not an int or outside its range, `num_splits` is not a multiple of `world_size`, or nothing tells
        the rank of a process among several.
    """
    size = integer("world_size", _surroundings("WORLD_SIZE", 1) if world_size is None else world_size, 1)
    if rank is None:
        rank = _surroundings("RANK", None)
        if rank is None and size > 1:
            raise ArgumentValueError(
                f"rank must be given with world_size={size}: there is no process group and no RANK variable to take it from", "rank"
            )
    me = integer("rank", 0 if rank is None else rank, 0)
    if me >= size:
        raise ArgumentValueError(
            f"rank must lie in [0, world_size) = [0, {size}), got {me}; defaults: the process group, or RANK and WORLD_SIZE",
            "rank",
        )
    if num_splits is None:
        _log.info("num_splits defaults to world_size=%d: such a checkpoint resumes only on world sizes that divide it", size)
        num_splits = size
    splits = integer("num_splits", num_splits, 1)
    if splits % size:
        raise ArgumentValueError(f"num_splits must be a multiple of world_size={size}, got {splits}", "num_splits")
    return Topology(splits, size, me)


def _surroundings(variable: str, default: int | None) -> int | None:
    """Rank or world size of the process group, else of the environment variable, else the default."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank() if variable == "RANK" else torch.distributed.get_world_size()
    text = os.environ.get(variable)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError as error:
        raise ArgumentTypeError(f"the environment variable {variable} must be an integer, got {text!r}", variable.lower()) from error

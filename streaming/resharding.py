"""Wrappers of other frameworks that divide rows among ranks, around a dataset that divides them already (ASG-7)."""

from __future__ import annotations

import sys
from types import FrameType

from streaming.errors import ArgumentValueError, ShardedTwiceError

# Accelerate's and transformers': every rank reads all rows and keeps its share.
_KEEPS_A_SHARE = "IterableDatasetShard"
# Accelerate's: rank 0 reads for all ranks.
_READS_FOR_ALL = "DataLoaderDispatcher"


def refuse_resharding(rank: int, world_size: int, seed_drawn: bool) -> None:
    """Refuse to be iterated, or sent to a worker, by a wrapper that divides rows among ranks, where rows would be lost.

    Raises
    ------
    ShardedTwiceError
        The dataset has several ranks.
    ArgumentValueError
        It has one, but drew its seed, so that each process would keep its share of another order.
    """
    wrapper = _wrapper_at_work() if world_size > 1 or seed_drawn else None
    if wrapper is not None and world_size > 1:
        raise ShardedTwiceError(
            f"this dataset gives rank {rank} its rows of {world_size} ranks, and {wrapper} around it divides them among ranks once more, "
            "so that most would reach nobody: build the dataset with rank=0, world_size=1 (and the same shuffle_seed everywhere), "
            "or do not wrap it (no accelerator.prepare(loader); in a Trainer override get_train_dataloader)"
        )
    if wrapper == _KEEPS_A_SHARE:
        raise ArgumentValueError(
            f"shuffle_seed must be given below {wrapper}: each process would draw another one and keep its share of another order",
            "shuffle_seed",
        )


def _wrapper_at_work() -> str | None:
    """The wrapper that is asking now, in this thread, if one is.

    Told by the code of the class of that name in the module that the code comes from: other frames are not asked for their locals,
    which would prolong the life of a user's variables.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        for name in (_KEEPS_A_SHARE, _READS_FOR_ALL):
            wrapper = frame.f_globals.get(name)
            method = vars(wrapper).get(frame.f_code.co_name) if isinstance(wrapper, type) else None
            if getattr(method, "__code__", None) is frame.f_code and _ranks(frame.f_locals.get("self")) != 1:
                return name
        frame = frame.f_back
    return None


def _ranks(wrapper: object) -> int | None:
    """Ranks that it divides rows among; None where it is still being built."""
    ranks: int | None = getattr(wrapper, "num_processes", None) or getattr(getattr(wrapper, "state", None), "num_processes", None)
    return ranks

"""What all ranks say of themselves, compared over a process group (spec/checkpoint.md, MRG-3, MRG-4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from streaming.arguments import choice, shown
from streaming.checkpoint import State, merge_state_dicts
from streaming.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DuplicateRankError,
    GroupMissingError,
    MergeCountError,
    RanksDifferError,
    StreamingError,
)

_LONGEST_VALUE = 60


@dataclass(frozen=True)
class Contribution:
    """What one rank sends to all.

    Attributes
    ----------
    rank, world_size : int
        Which rank it is, of how many.
    state : dict or None
        Its state.
    error : Exception or None
        Why it has none.
    settings : mapping
        What else must be equal on all ranks.
    """

    rank: int
    world_size: int
    state: State | None
    error: Exception | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, rank: int, world_size: int, state_dict: Callable[[], State], settings: Mapping[str, Any]) -> Contribution:
        """Ask a rank for its state; its refusal must reach the others too, or they would wait."""
        try:
            return cls(rank, world_size, state_dict(), None, settings)
        except StreamingError as error:
            return cls(rank, world_size, None, error, settings)
        except Exception as error:  # may not pickle as it is
            return cls(rank, world_size, None, RuntimeError(f"rank {rank}: {type(error).__name__}: {shown(error)}"), settings)


def gather(mine: Contribution, group: Any, skew: str) -> State:
    """Exchange states and merge them, on all processes of the group alike (MRG-3).

    Raises
    ------
    GroupMissingError, DuplicateRankError, StreamingError
        No process group; a rank came twice; what a rank or the merge refuses.
    """
    choice("skew", skew, ("refuse", "replay"))
    return merge_state_dicts(_states(_exchange(mine, group)), skew=skew)


def check(mine: Contribution, group: Any) -> None:
    """Exchange states and settings and compare them, on all processes of the group alike (MRG-4).

    Raises
    ------
    RanksDifferError, MergeCountError, GroupMissingError, DuplicateRankError, StreamingError
        Ranks differ, or are missing; as `gather`.
    """
    contributions = _exchange(mine, group)
    views = {
        one.rank: {**{key: value for key, value in state.items() if key != "digest"}, **one.settings}
        for one, state in zip(contributions, _states(contributions), strict=True)
    }
    names = dict.fromkeys(name for view in views.values() for name in view)
    differing = {name: _by_value(name, views) for name in names}
    differing = {name: values for name, values in differing.items() if len(values) > 1}
    if differing:
        details = "; ".join(f"{name}: {', '.join(values)}" for name, values in differing.items())
        raise RanksDifferError(f"the ranks differ ({details}); give all of them the same settings, table version and state", differing)
    if len(views) != mine.world_size:
        missing = sorted(set(range(mine.world_size)) - views.keys())
        raise MergeCountError(f"of world_size={mine.world_size} the ranks {missing} are not in this group: pass the group of all ranks")


def _exchange(mine: Contribution, group: Any) -> list[Contribution]:
    """What all processes of the group sent, by rank."""
    if not (dist.is_available() and dist.is_initialized()):
        if mine.world_size > 1:
            raise GroupMissingError(
                f"rank {mine.rank} of {mine.world_size} has no process group to reach the others: call "
                "torch.distributed.init_process_group, or save every rank's state_dict() and merge_state_dicts them"
            )
        return [mine]
    try:
        size = dist.get_world_size(group)
    except (AttributeError, TypeError, ValueError) as error:
        raise ArgumentTypeError(f"group must be a process group, or None for the default one, got {shown(group)}", "group") from error
    if size < 1:
        raise ArgumentValueError("group must be a process group that this process belongs to, or None for the default one", "group")
    received: list[Any] = [None] * size
    dist.all_gather_object(received, mine, group=group)
    return sorted(received, key=lambda one: one.rank)


def _states(contributions: Sequence[Contribution]) -> list[State]:
    """The states, if each rank sent one, and sent it once."""
    states: list[State] = []
    for one in contributions:
        if one.error is not None:
            raise one.error
        if one.state is not None:
            states.append(one.state)
    ranks = [one.rank for one in contributions]
    twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
    if twice:
        raise DuplicateRankError(
            f"the ranks {twice} came from more than one process: give each process a rank of its own, or pass the group of one "
            "process per rank (with tensor or pipeline parallelism the data-parallel group)"
        )
    return states


def _by_value(name: str, views: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Each value of a field with the ranks that have it."""
    ranks: dict[str, list[int]] = {}
    for rank, view in views.items():
        ranks.setdefault(repr(view[name]) if name in view else "nothing", []).append(rank)
    return [f"{_short(value)} on ranks {_short(str(found))}" for value, found in ranks.items()]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 2]}.."

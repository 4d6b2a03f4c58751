"""What all ranks of a run make of what all of them sent: ``gather_state_dict`` and ``check_ranks`` (MRG-3, MRG-4).

Every process judges the same contributions in the same sequence by the same pure function, so all return the same or all raise the
same. How contributions travel, and that there is a group at all (``group.missing``), is the business of production.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from model import checkpoint
from model.errors import ModelError


@dataclass(frozen=True)
class Contribution:
    """What one process sends.

    Parameters
    ----------
    rank : int
        Its rank.
    state : object
        What ``state_dict()`` returned; None where it raised.
    error : str or None
        The code of what ``state_dict()`` raised.
    settings : Mapping
        What ``check_ranks`` compares beside the state (``compared_settings``).
    """

    rank: int
    state: object = None
    error: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def compared_settings(
    partial_cycle: str,
    batch_size: int | None = None,
    worker_sharding: str | None = None,
    num_workers: int = 0,
) -> dict[str, Any]:
    """What ``check_ranks`` compares beside the state: of a dataset ``partial_cycle``, of a loader all of these (MRG-4).

    Parameters
    ----------
    partial_cycle : str
        That of the dataset.
    batch_size : int or None
        That of the loader; None also where it delivers single rows (WRK-7).
    worker_sharding : str or None
        The mode of the loader (WRK-1); None where a dataset is asked, not a loader.
    num_workers : int
        W; matters in documented mode only, and 0 is as 1 there.
    """
    settings: dict[str, Any] = {"partial_cycle": partial_cycle}
    if worker_sharding is not None:
        settings["batch_size"] = batch_size
        settings["worker_sharding"] = worker_sharding
        if worker_sharding == "splits":
            settings["num_workers"] = max(num_workers, 1)
    return settings


def check_senders(contributions: Sequence[Contribution]) -> None:
    """The error of the lowest rank that sent one; else no rank may come twice (MRG-3)."""
    failed = [contribution for contribution in contributions if contribution.error is not None]
    if len(failed) > 0:
        # min takes the first of equals: all processes hold the contributions in the same sequence.
        lowest = min(failed, key=lambda contribution: contribution.rank)
        assert lowest.error is not None
        raise ModelError(lowest.error, f"rank {lowest.rank}")
    ranks = [contribution.rank for contribution in contributions]
    twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
    if len(twice) > 0:
        raise ModelError("merge.ranks", f"more than one process is rank {twice}")


def gather(contributions: Sequence[Contribution], skew: str = "refuse") -> dict[str, Any]:
    """``gather_state_dict``: one state from what the processes of a group sent (MRG-3).

    Parameters
    ----------
    contributions : sequence of Contribution
        One per process, in any sequence that all processes share.
    skew : str
        As for ``checkpoint.merge``.

    Raises
    ------
    ModelError
        ``argument.type`` or ``argument.value`` (before anything is sent), the error of the lowest rank that sent one,
        ``merge.ranks``, or what ``checkpoint.merge`` raises.
    """
    checkpoint.check_skew(skew)
    check_senders(contributions)
    return checkpoint.merge([contribution.state for contribution in contributions], skew)


def differing(contributions: Sequence[Contribution], states: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The fields in which ranks differ: those of the state in the sequence of CKP-1, then the settings (MRG-4)."""
    names = [key for key in checkpoint.SAID if any(state[key] != states[0][key] for state in states)]
    settings = [name for contribution in contributions for name in contribution.settings]
    for name in dict.fromkeys(settings):
        # A rank that has no such setting differs from one that has: the text of no value is that of an absent one.
        values = {json.dumps(one.settings[name]) if name in one.settings else "" for one in contributions}
        if len(values) > 1:
            names.append(name)
    return tuple(names)


def check_ranks(contributions: Sequence[Contribution]) -> None:
    """``check_ranks``: refuse unless these are all ranks of one run at one place, with the same settings (MRG-4).

    Raises
    ------
    ModelError
        The error of the lowest rank that sent one, ``merge.ranks``, what CKP-6 refuses, ``ranks.mismatch`` whose ``fields`` are those
        of ``differing``, or ``merge.count``.
    """
    check_senders(contributions)
    states = [checkpoint.check_form(contribution.state) for contribution in contributions]
    # Differences come before the number: only where all say the same world size is there a number that could be right.
    fields = differing(contributions, states)
    if len(fields) > 0:
        raise ModelError("ranks.mismatch", fields=fields)
    if len(states) == 0 or states[0]["world_size"] != len(states):
        raise ModelError("merge.count", f"{len(states)} ranks")

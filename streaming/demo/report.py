"""The last page: a table of the checks, and how equal the losses are, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from streaming.demo.judge import TOLERANCE, Verdict, ranks

_FIGURES_WIDTH: Final = 66
_DIFFERENCES_SHOWN: Final = 10


def table(verdicts: Sequence[Verdict]) -> str:
    """Lay the verdicts out in three columns, and below them what differs in those that failed."""
    width = max(len("check"), *(len(verdict.check) for verdict in verdicts))
    lines = [f"{'check':<{width}}  result  figures", f"{'-' * width}  ------  {'-' * _FIGURES_WIDTH}"]
    for verdict in verdicts:
        first, *rest = textwrap.wrap(verdict.figures, _FIGURES_WIDTH) or [""]
        lines.append(f"{verdict.check:<{width}}  {'passed' if verdict.passed else 'FAILED'}  {first}")
        lines += [" " * (width + 10) + line for line in rest]
    for verdict in verdicts:
        if not verdict.passed:
            lines += ["", f"FAILED: {verdict.check}"]
            lines += [f"  {difference}" for difference in verdict.differences[:_DIFFERENCES_SHOWN]]
            if len(verdict.differences) > _DIFFERENCES_SHOWN:
                lines.append(f"  and {len(verdict.differences) - _DIFFERENCES_SHOWN} more")
    return "\n".join(lines)


def how_equal(before: float, after: float, world_size: int, resume_world_size: int) -> str:
    """Say how equal the loss curves are, as measured, and why not more so.

    Parameters
    ----------
    before, after : float
        Largest relative difference before and after the checkpoint.
    world_size, resume_world_size : int
        Ranks before and after.
    """
    if max(before, after) > TOLERANCE:
        return "Loss curves: NOT equal."
    first = f"Loss curves: up to the checkpoint {_measured(before)} ({ranks(world_size)} in both runs); "
    second = f"after it {_measured(after)} ({ranks(resume_world_size)} against {world_size}). "
    if after == 0:
        why = "The same sums were taken in the same order."
    elif world_size == resume_world_size:
        why = "The ranks are as many, so this is rounding of the machine's own libraries between two runs."
    else:
        why = (
            "Not bit for bit: the losses and gradients of a step's rows are the same terms, but another number of ranks "
            "adds them up in another order, and float64 rounds each order differently. With --resume-world-size "
            f"{world_size} the order would be the same too."
        )
    return textwrap.fill(first + second + why, 110)


def _measured(difference: float) -> str:
    return "bit for bit equal" if difference == 0 else f"equal to {difference:.1e} relative"

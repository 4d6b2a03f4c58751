"""The arithmetic of statistics (STA-1 to STA-3): what ``stats()`` says, given what each batch brought with it.

Figures are those of one pass of one worker (W = 0: of the trainer's own process), from its beginning to the batch that carries them. They
are no part of ``model/loader.py``: no state holds them, and no load changes them (STA-3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

Figures = Mapping[str, float]

CARRIED = ("reads", "bytes_loaded", "read_seconds", "transform_seconds", "batch_seconds", "wait_seconds")
"""Sums that travel with each batch."""

COUNTED = ("rows_received", "rows_filled")
"""Sums over the batches received: what workers prepared ahead is not among them (STA-2)."""

NOW = ("bytes_buffered",)
"""What is held at this moment (STA-1): it travels too, and nothing of it stays when a pass has ended."""


@dataclass(frozen=True)
class Statistics:
    """What a dataset and its loaders have counted since it was built.

    Parameters
    ----------
    ended : mapping
        Sums over the passes that ended.
    newest : mapping
        Of the pass, for each worker: the figures that its newest received batch brought, and the rows received of it.
    """

    ended: Figures = field(default_factory=lambda: dict.fromkeys((*COUNTED, *CARRIED), 0))
    newest: Mapping[int, Figures] = field(default_factory=dict)


def receive(statistics: Statistics, worker: int, rows: int, filled: int, figures: Figures) -> Statistics:
    """A batch is received (WRK-6): its figures stand in the place of the worker's older ones, its rows are added (STA-2).

    Parameters
    ----------
    statistics : Statistics
        As they were.
    worker : int
        Who made the batch.
    rows, filled : int
        Of the batch (BAT-11).
    figures : mapping
        ``CARRIED`` and ``NOW``, always all of them: a message of constant size. Sums never sink within a pass.
    """
    assert 0 <= filled <= rows
    assert set(figures) == {*CARRIED, *NOW}
    before = statistics.newest.get(worker, {})
    assert all(figures[name] >= before.get(name, 0) for name in CARRIED)
    counted = {"rows_received": before.get("rows_received", 0) + rows, "rows_filled": before.get("rows_filled", 0) + filled}
    return replace(statistics, newest={**statistics.newest, worker: {**figures, **counted}})


def end(statistics: Statistics) -> Statistics:
    """A pass ends, however it does: what was received of it stays counted, and nothing is buffered any more (STA-2)."""
    return Statistics({name: add(name, [statistics.ended, *statistics.newest.values()]) for name in (*COUNTED, *CARRIED)})


def total(statistics: Statistics) -> dict[str, float]:
    """``stats()`` (STA-1, STA-2)."""
    figures = [statistics.ended, *statistics.newest.values()]
    return {name: add(name, figures) for name in (*COUNTED, *CARRIED, *NOW)}


def add(name: str, figures: Iterable[Figures]) -> float:
    """One figure, summed."""
    return sum(each.get(name, 0) for each in figures)

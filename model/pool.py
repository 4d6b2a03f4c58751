"""What a loader with workers consists of (chapter workers); what happens to it is in ``model.workers``."""

from __future__ import annotations

from dataclasses import dataclass

from model.cycle import Cursor
from model.loader import Loader
from model.sharding import Batch, Division


@dataclass(frozen=True)
class Place:
    """Where a rank stands away from a step boundary (WRK-8).

    Parameters
    ----------
    origin : Cursor
        C0, the cycle boundary at which sharding began, or the newest step boundary since: the rows are the same.
    workers : int
        W, at least 2.
    received : tuple of int
        The rows committed of each worker since ``origin``.
    turn : int
        The worker whose turn it is: it has rows left.
    """

    origin: Cursor
    workers: int
    received: tuple[int, ...]
    turn: int


@dataclass(frozen=True)
class Worker:
    """One worker of a pass: batches delivered, batches prepared and not delivered, whether the next that it prepares fails."""

    given: int = 0
    ready: tuple[Batch, ...] = ()
    failing: bool = False


@dataclass(frozen=True)
class Arguments:
    """Those of a loader: W, ``worker_sharding`` and B."""

    workers: int
    mode: str
    batch_size: int


@dataclass(frozen=True)
class Running:
    """The pass that is alive: how it is divided, its workers, and whose batch is delivered next."""

    division: Division
    team: tuple[Worker, ...]
    turn: int


@dataclass(frozen=True)
class Pool:
    """One rank's StreamingDataLoader and its dataset.

    Parameters
    ----------
    loader : Loader
        The dataset. Away from a step boundary its cursor is ``place.origin``.
    place : Place or None
        None at a step boundary, and wherever the cursor says all: with W <= 1 and in invariant mode (WRK-4, WRK-5).
    waiting : Arguments or None
        Of the newest iterator, while it waits for its first ``next()`` (DLV-4).
    running : Running or None
        The pass of the newest iterator; None where none is alive.
    batch_size : int
        B of the newest pass. Nothing depends on it but the number of WRK-9.
    """

    loader: Loader
    place: Place | None = None
    waiting: Arguments | None = None
    running: Running | None = None
    batch_size: int = 1

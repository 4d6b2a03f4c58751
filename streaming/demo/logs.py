"""What a trainer received, written down by itself: one line per step and rank."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TextIO

# Far longer than any line: a record holds at most the rows of one global step.
_TAIL_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class Record:
    """One step of one rank.

    Attributes
    ----------
    step : int
        Global step, as the trainer counts it.
    ids : sequence of int
        The ``id`` column of the rows in the batch that the trainer got from its DataLoader.
    digests : sequence of int
        CRC-32 of the ``text`` column of the same rows.
    loss : float
        Mean loss of the global step's rows.
    """

    step: int
    ids: Sequence[int]
    digests: Sequence[int]
    loss: float


def append(log: TextIO, record: Record) -> None:
    """Write a record; once this returns, a killed process does not take it along."""
    log.write(json.dumps(asdict(record)) + "\n")
    log.flush()


def read(path: Path, *, killed: bool = False) -> list[Record]:
    """Read a log; floats come back bit for bit.

    Parameters
    ----------
    path : Path
        The log of one rank.
    killed : bool
        The writer was killed: a torn last line is no record.

    Raises
    ------
    ValueError
        The log is torn although its writer ended by itself.
    """
    *lines, torn = path.read_text(encoding="ascii").split("\n")
    if torn and not killed:
        raise ValueError(f"{path} ends in the middle of a line")
    return [Record(**json.loads(line)) for line in lines]


def last_step(path: Path) -> int:
    """Return the step of the last complete record of a log that is being written, or -1."""
    if not path.exists():
        return -1
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        *lines, _ = log.read().split(b"\n")
    return int(json.loads(lines[-1])["step"]) if lines else -1

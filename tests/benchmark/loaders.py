"""The contenders of the benchmarks: ours, and raw takes; those of others are in `peers`.

Each is a generator function over one epoch of a table, or less if it is closed: what it does before its first batch is its start-up.
None may be slowed down for the benchmark's sake, so ids are handed out as they are found in a batch, and looked at elsewhere.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from streaming import StreamingDataLoader, StreamingDataset

SPLITS = 8
BATCH = 256
CLUMP = 64
SEED = 1
BUDGET: int = inspect.signature(StreamingDataset).parameters["read_ahead_bytes"].default
_WINDOW_BYTES = 8 * 2**20
_WINDOW_ROWS = 32768


@dataclass(frozen=True)
class Work:
    """What a contender is to read: an open table of so many rows and bytes per row, and the epoch; its Arrow file, if it needs one."""

    table: Any
    rows: int
    row_bytes: float
    ragged: bool = False
    epoch: int = 0
    arrow: Path | None = None

    @property
    def window(self) -> int:
        """Rows of the windows that our loader comes to; a table for tries is cut into 8 at least."""
        rows = max(1, min(_WINDOW_ROWS, int(min(_WINDOW_BYTES, BUDGET // 2) / self.row_bytes), self.rows // 8))
        return rows // BATCH * BATCH or rows


class Step(NamedTuple):
    """What arrived: the number of rows, their ids, and a function that tells the bytes held for later, where that is known."""

    rows: int
    ids: Any
    buffered: Callable[[], int] | None = None


Steps: TypeAlias = Generator[Step, None, None]


@dataclass(frozen=True)
class Contender:
    """A way to read a table.

    Parameters
    ----------
    name : str
        As in the report.
    epoch : callable
        Reads one epoch.
    ahead : callable
        Rows that it may hold ahead of its consumer.
    needs : tuple of str
        Modules without which it is left out.
    ours : bool
        Its ids are checked.
    """

    name: str
    epoch: Callable[[Work], Steps]
    ahead: Callable[[Work], float]
    needs: tuple[str, ...] = ()
    ours: bool = False

    def missing(self) -> list[str]:
        """Modules that it needs but that are not installed."""
        return [module for module in self.needs if find_spec(module.partition(".")[0]) is None or find_spec(module) is None]


def as_rows(rows: list[Any]) -> list[Any]:
    """Collate nothing: for lists of different lengths, which torch does not collate."""
    return rows


def ids_of(batch: Any) -> Any:
    """The ids of a batch, which is a dict of columns or a list of rows."""
    return [row["id"] for row in batch] if isinstance(batch, list) else batch["id"]


def by_rows(rows: Iterator[Any], buffered: Callable[[], int]) -> Steps:
    """Steps of as many single rows as a batch has."""
    while chunk := list(islice(rows, BATCH)):
        yield Step(len(chunk), ids_of(chunk), buffered)


def ours(work: Work, **settings: Any) -> StreamingDataset:
    """A dataset of ours."""
    return StreamingDataset(work.table, num_splits=SPLITS, shuffle_seed=SEED, epoch=work.epoch, **settings)


def batches(dataset: StreamingDataset, **settings: Any) -> Steps:
    """Batches of our loader without workers."""
    with closing(iter(StreamingDataLoader(dataset, batch_size=BATCH, **settings))) as arriving:
        for batch in arriving:
            ids = ids_of(batch)
            yield Step(len(ids), ids, lambda: int(dataset.stats().bytes_buffered))


def ours_python(work: Work) -> Steps:
    """Batches as torch collates rows of Python values; for ragged lists the rows themselves."""
    return batches(ours(work), **({"collate_fn": as_rows} if work.ragged else {"format": "python"}))


def ours_torch(work: Work) -> Steps:
    """Batches of tensors in native dtypes."""
    return batches(ours(work), format="torch")


def ours_clump(work: Work) -> Steps:
    """Batches of tensors, 64 rows moving together."""
    return batches(ours(work, shuffle_clump_size=CLUMP), format="torch")


def ours_rows(work: Work) -> Steps:
    """Rows as dicts."""
    dataset = ours(work)
    with closing(iter(dataset)) as rows:
        yield from by_rows(rows, lambda: int(dataset.stats().bytes_buffered))


def _windows(work: Work) -> Iterator[Any]:
    """Ascending offsets of all rows at random, as many at a time as our loader reads."""
    order = np.random.default_rng([SEED, work.epoch]).permutation(work.rows)
    for begin in range(0, len(order), work.window):
        yield np.sort(order[begin : begin + work.window])


def take_lancedb(work: Work) -> Steps:
    """Nothing but lancedb's takes of the same size, one after another: no order, no batches."""
    names = work.table.schema.names
    for offsets in _windows(work):
        found = work.table.take_offsets(offsets.tolist()).select(names).to_arrow()
        yield Step(found.num_rows, offsets)


def take_lance(work: Work) -> Steps:
    """Nothing but pylance's takes of the same size."""
    importlib.import_module("lance")
    dataset = work.table.to_lance()
    names = work.table.schema.names
    for offsets in _windows(work):
        yield Step(dataset.take(offsets, columns=names).num_rows, offsets)


def our_ahead(work: Work) -> float:
    """Rows of the windows that are held or read, within the byte budget."""
    return min(BUDGET / work.row_bytes, 3 * work.window)


def nothing_ahead(work: Work) -> float:
    """No row is read ahead."""
    return 0


OURS = (
    Contender("ours-python", ours_python, our_ahead, ours=True),
    Contender("ours-torch", ours_torch, our_ahead, ours=True),
    Contender("ours-clump", ours_clump, our_ahead, ours=True),
    Contender("ours-rows", ours_rows, our_ahead, ours=True),
)
TAKES = (Contender("take-lancedb", take_lancedb, nothing_ahead), Contender("take-lance", take_lance, nothing_ahead, ("lance",)))

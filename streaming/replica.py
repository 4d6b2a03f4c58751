"""What a worker runs: it reads its share of the rank's rows and sends finished batches (spec/workers.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from streaming.cycle import RankSequence
from streaming.errors import WorkerFailedError
from streaming.parcel import Parcel
from streaming.private import as_torch_sends_it
from streaming.rows import BatchIterator, Reading, RowReader
from streaming.sharding import Shards, StridedSequence
from streaming.stats import Figures
from streaming.supply import RowSequence
from streaming.topology import Topology
from streaming.transforms import ended_silently

# A batch, its worker's number, its row count, and the worker's figures: of constant size but for the batch (WRK-6, STA-2).
Envelope = tuple[Any, int, int, Figures]


@dataclass(frozen=True)
class Share:
    """How a rank's remaining rows are divided among its workers.

    Parameters
    ----------
    topology, split_length
        The world.
    whole : RankSequence
        The rank's rows.
    shards : Shards or None
        Documented mode with several workers; else batches are dealt out in turn.
    workers, batch_size : int
        Number of workers, at least 1; rows of a batch.
    """

    topology: Topology
    split_length: int
    whole: RankSequence
    shards: Shards | None
    workers: int
    batch_size: int

    def of(self, process: int) -> tuple[int, RowSequence]:
        """The worker that this process plays, and its rows. The first process plays the worker whose turn it is (WRK-11)."""
        if self.shards is not None:
            worker = (process + self.shards.turn) % self.workers
            return worker, self.shards.sequence(self.topology, self.split_length, worker)
        if self.workers == 1:
            return 0, self.whole
        return process, StridedSequence(self.whole, self.batch_size, process, self.workers)


@dataclass(frozen=True)
class Making:
    """How a worker makes batches.

    Parameters
    ----------
    collate : callable
        On the row path (BAT-1): makes a batch of a list of rows, or an item of one row.
    rows_alone : bool
        ``batch_size=None``: `collate` gets a single row (WRK-7).
    layout : str or None
        The format of batches from columns, None on the row path.
    """

    collate: Callable[[Any], Any]
    rows_alone: bool
    layout: str | None


class CollatedIterator(Iterator[Any]):
    """Batches on the row path, each with its row count."""

    def __init__(self, rows: RowReader, making: Making, batch_size: int) -> None:
        self.meter = rows.meter
        self._rows, self._making, self._batch_size = rows, making, batch_size

    def __next__(self) -> tuple[Any, int]:
        batch = list(islice(self._rows, self._batch_size))
        if not batch:
            raise StopIteration
        with self.meter.batching():
            try:
                return self._making.collate(batch[0] if self._making.rows_alone else batch), len(batch)
            except StopIteration as error:
                raise ended_silently("collate_fn") from error

    def close(self) -> None:
        """Stop reading."""
        self._rows.close()


class Replica(IterableDataset[Any]):
    """The private dataset of a StreamingDataLoader's inner loader: its items are whole batches.

    Parameters
    ----------
    reading, share, making
        How rows are read, whose they are, and what is made of them.
    """

    def __init__(self, reading: Reading, share: Share, making: Making) -> None:
        super().__init__()
        self._reading, self._share, self._making = reading, share, making

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        if info is None:
            return self._envelopes(0, travels=False)
        return self._guarded(info.id)

    def _envelopes(self, process: int, travels: bool) -> Iterator[Envelope]:
        worker, sequence = self._share.of(process)
        size, making, made = self._share.batch_size, self._making, 0
        batches: BatchIterator | CollatedIterator
        if making.layout is None:
            rows = self._reading.rows(sequence, None if making.rows_alone else size)
            batches = CollatedIterator(rows, making, size)
        else:
            batches = self._reading.batches(sequence, size, making.layout, travels)
        try:
            for batch, count in batches:
                made += count
                yield batch, worker, count, batches.meter.figures(made)
        finally:
            batches.close()

    def _guarded(self, process: int) -> Iterator[Parcel]:
        """What would end a worker process silently reaches the trainer as an error (WRK-14), and a long error as a batch does."""
        try:
            try:
                for envelope in self._envelopes(process, travels=True):
                    yield Parcel(envelope)
            except (KeyboardInterrupt, SystemExit) as error:
                raise WorkerFailedError(f"{type(error).__name__} in worker {process}: {error}") from error
        except Exception:
            failure = as_torch_sends_it(process)
            if failure is None:
                raise
            yield Parcel(failure)

"""What a worker runs: it reads its share of the rank's rows and sends finished batches (spec/workers.md)."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from streaming.cycle import RankSequence
from streaming.delivery import Delivery
from streaming.errors import WorkerFailedError
from streaming.pipeline import RowSequence
from streaming.rows import Reading
from streaming.sharding import Shards, StridedSequence
from streaming.topology import Topology

# A batch, its worker's number, and its row count: of constant size but for the batch (WRK-6).
Envelope = tuple[Any, int, int]


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


def end_with_trainer() -> None:
    """End this worker process when the trainer's is gone, killed for instance (WRK-15).

    torch's own watch looks at the parent's process id, which under forkserver is that of the server and never changes.
    """
    trainer = multiprocessing.parent_process()
    if trainer is not None:
        threading.Thread(target=_exit_after, args=(trainer,), daemon=True, name="streaming-watch").start()


def _exit_after(process: BaseProcess) -> None:
    process.join()
    os._exit(1)


class Packed:
    """An envelope pickled in the worker's own code, which unpickles as the envelope.

    torch's queue pickles in a thread of the worker, where an item that cannot be pickled is dropped: the trainer would wait for it for
    ever, or never know. Here it fails in the batch's place (WRK-14).
    """

    def __init__(self, envelope: Envelope) -> None:
        self._pickled = bytes(ForkingPickler.dumps(envelope))

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return ForkingPickler.loads, (self._pickled,)


class Replica(IterableDataset[Any]):
    """The private dataset of a StreamingDataLoader's inner loader: its items are whole batches.

    Parameters
    ----------
    reading, share
        How rows are read, and whose they are.
    collate : callable
        Makes a batch of a list of rows, or an item of one row.
    rows_alone : bool
        ``batch_size=None``: `collate` gets a single row (WRK-7).
    """

    def __init__(self, reading: Reading, share: Share, collate: Callable[[Any], Any], rows_alone: bool) -> None:
        super().__init__()
        self._reading, self._share, self._collate, self._rows_alone = reading, share, collate, rows_alone

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        if info is None:
            return self._envelopes(0)
        end_with_trainer()
        return self._guarded(info.id)

    def _envelopes(self, process: int) -> Iterator[Envelope]:
        worker, sequence = self._share.of(process)
        rows = self._reading.rows(sequence, Delivery())
        try:
            while batch := list(islice(rows, self._share.batch_size)):
                yield self._collated(batch), worker, len(batch)
        finally:
            rows.close()

    def _collated(self, batch: list[Any]) -> Any:
        try:
            return self._collate(batch[0] if self._rows_alone else batch)
        except StopIteration as error:
            raise WorkerFailedError("collate_fn raised StopIteration, which would have ended the data silently") from error

    def _guarded(self, process: int) -> Iterator[Packed]:
        """What would end a worker process silently reaches the trainer as an error (WRK-14)."""
        try:
            for envelope in self._envelopes(process):
                yield Packed(envelope)
        except (KeyboardInterrupt, SystemExit) as error:
            raise WorkerFailedError(f"{type(error).__name__} in worker {process}: {error}") from error

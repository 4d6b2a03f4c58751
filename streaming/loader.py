"""StreamingDataLoader: torch's DataLoader, exact at the batch that the trainer holds (spec/workers.md)."""

from __future__ import annotations

import inspect
import os
import signal
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from time import perf_counter
from typing import Any

from torch.utils.data import DataLoader, default_collate

from streaming import arguments, ranks
from streaming.batches import FORMATS
from streaming.checkpoint import State
from streaming.dataset import StreamingDataset
from streaming.delivery import DealtDelivery, Delivery
from streaming.ending import EndingIterator, at_exit
from streaming.errors import ArgumentTypeError, ArgumentValueError, WorkerFailedError
from streaming.position import Position, Standing
from streaming.private import forget_children, watch_workers, workers_of
from streaming.processes import WorkerStart, check_start, context_for, end_workers, kill, signals_held
from streaming.recipe import check_picklable
from streaming.replica import Making, Replica, Share
from streaming.sharding import Shards, check_workers
from streaming.stats import Account, Stats

_TORCH_ARGUMENTS = inspect.signature(DataLoader.__init__)


class StreamingDataLoader(DataLoader[Any]):
    """Batches of a StreamingDataset, prepared by 0 or more worker processes, counted when the trainer receives them.

    With ``num_workers >= 1`` the processes are started by forkserver or spawn, never by fork: the script needs an
    ``if __name__ == "__main__":`` guard, and `transform`, `collate_fn` and `worker_init_fn` must be picklable.

    In the documented mode, ``worker_sharding="splits"``, each worker owns a part of the rank's splits. Then with two and more
    workers the rows of one step differ from those without workers, and `state_dict` is legal at step boundaries only. In the
    invariant mode, ``"batches"``, neither batches nor states depend on the number of workers. Prefer it where the rows
    of a step matter or checkpoints are taken at any batch; the documented mode reads each split from one worker only.

    Parameters
    ----------
    dataset : StreamingDataset
        Not of a subclass that overrides ``__iter__``.
    *args, **kwargs
        All of torch's DataLoader, but for `shuffle`, `sampler`, `batch_sampler`, `drop_last`, `persistent_workers` and
        ``in_order=False``, which are refused (WRK-20).
    worker_sharding : {"splits", "batches"}
        Documented or invariant mode (WRK-1).
    format : {"python", "torch", "numpy", "arrow"}
        What batches hold: what torch collates of Python values (default), tensors or arrays in the table's own types, or a
        pyarrow.RecordBatch (BAT-3 to BAT-7). All are made of columns; the others than the default exclude `collate_fn`,
        the dataset's `transform` and ``batch_size=None``.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        A refused argument.

    Examples
    --------
    >>> import lancedb
    >>> from streaming import StreamingDataset
    >>> table = lancedb.connect("memory://").create_table("loaded", [{"n": i} for i in range(8)])
    >>> loader = StreamingDataLoader(StreamingDataset(table, num_splits=2, shuffle=False), batch_size=4)
    >>> [batch["n"].tolist() for batch in loader]
    [[0, 4, 1, 5], [2, 6, 3, 7]]
    """

    def __init__(
        self, dataset: StreamingDataset, *args: Any, worker_sharding: str = "splits", format: str = "python", **kwargs: Any
    ) -> None:
        _check_arguments(dataset, args, kwargs)
        self._sharding = arguments.choice("worker_sharding", worker_sharding, ("splits", "batches"))
        layout = arguments.choice("format", format, FORMATS)
        super().__init__(dataset, *args, **kwargs)
        self._making = _making(dataset, self, layout)
        if self._shards > 1:
            check_workers(dataset._topology, self.num_workers)

    @property
    def _shards(self) -> int:
        """Workers with splits of their own."""
        return max(self.num_workers, 1) if self._sharding == "splits" else 1

    @property
    def _rows_per_batch(self) -> int:
        return 1 if self.batch_size is None else int(self.batch_size)

    def __iter__(self) -> LoaderIterator:  # type: ignore[override]
        """Give an iterator that supersedes the one before it; its pass, with its workers, begins with its first ``next()`` (DLV-4, WRK-11).

        Raises
        ------
        IteratorAliveError, MidStepStartError, PartialCycleStartError
            The iterator before it is inside its ``next()``, or the place is not one where these workers can begin.
        MainGuardError, MainFileError, DaemonicError, PickleError
            Worker processes cannot be started (WRK-17, WRK-18).
        """
        dataset = self._data
        dataset._refuse_resharding()
        dataset._refuse_fork()
        context = None
        if self.num_workers:
            check_start()
            context = context_for(self.multiprocessing_context)
            check_picklable(
                **dataset._functions(),
                collate_fn=self.collate_fn,
                worker_init_fn=self.worker_init_fn,
            )
        iterator = LoaderIterator(dataset._position, dataset._account, lambda: self._begin(context), self.num_workers > 0)
        dataset._position.supersede(iterator, self._shards)
        return iterator

    def _begin(self, context: BaseContext | None) -> tuple[Standing, DataLoader[Any]]:
        """Begin a pass, and say which loader makes its batches."""
        dataset = self._data
        begun = dataset._position.begin(DealtDelivery(max(self.num_workers, 1)), self._shards, self._rows_per_batch)
        shards = begun.delivery.progress()
        share = Share(
            topology=dataset._topology,
            split_length=begun.split_length,
            whole=begun.sequence,
            shards=shards if isinstance(shards, Shards) else None,
            workers=max(self.num_workers, 1),
            batch_size=self._rows_per_batch,
        )
        return begun, DataLoader(
            Replica(dataset._reading(begun), share, self._making),
            batch_size=None,
            collate_fn=_as_it_is,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            pin_memory_device=self.pin_memory_device,
            timeout=self.timeout,
            worker_init_fn=WorkerStart(self.worker_init_fn),
            multiprocessing_context=context,
            generator=self.generator,
            prefetch_factor=self.prefetch_factor,
        )

    def close(self) -> None:
        """End the pass that is under way, if one is; the place is that of the batches received (DLV-4)."""
        self._data.close()

    def __len__(self) -> int:
        """Batches of a fresh full epoch on this rank, the same on every rank (WRK-13)."""
        rows = len(self._data)
        return self._shards * -(-(rows // self._shards) // self._rows_per_batch)

    def stats(self) -> Stats:
        """Where the time of reading went, summed over workers; see `StreamingDataset.stats`."""
        return self._data.stats()

    def state_dict(self) -> State:
        """Return the dataset's place after the batches received; see `StreamingDataset.state_dict`."""
        return self._data.state_dict()

    def floor_state_dict(self) -> State:
        """Return the completed cycles only; it never raises (WRK-10)."""
        return self._data.floor_state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, accept: Collection[str] = ()) -> None:
        """Go to the place of a state; see `StreamingDataset.load_state_dict`."""
        self._data.load_state_dict(state, accept=accept)

    def gather_state_dict(self, group: Any = None, *, skew: str = "refuse") -> State:
        """Merge the states of all ranks over a process group; see `StreamingDataset.gather_state_dict`."""
        return self._data.gather_state_dict(group, skew=skew)

    def check_ranks(self, group: Any = None) -> None:
        """Compare all ranks before the first step, this loader's settings included; see `StreamingDataset.check_ranks`."""
        settings = {"batch_size": self.batch_size, "worker_sharding": self._sharding}
        if self._sharding == "splits":  # then workers decide what a step holds, and how many steps there are
            settings["num_workers"] = self._shards
        ranks.check(self._data._contribution(**settings), group)

    def set_epoch(self, epoch: int) -> None:
        """Ask for exactly this epoch; see `StreamingDataset.set_epoch`."""
        self._data.set_epoch(epoch)

    @property
    def _data(self) -> StreamingDataset:
        """The dataset, by its own type."""
        dataset: StreamingDataset = self.dataset  # type: ignore[assignment]
        return dataset


class LoaderIterator(EndingIterator):
    """One pass of a StreamingDataLoader. A batch is committed as it is returned (WRK-6); with the iterator its workers end.

    Parameters
    ----------
    position, account
        Of the dataset.
    begin : callable
        Begins the pass; returns the place, and the loader that makes its batches.
    elsewhere : bool
        Whether batches are made in worker processes.
    """

    def __init__(
        self, position: Position, account: Account, begin: Callable[[], tuple[Standing, DataLoader[Any]]], elsewhere: bool
    ) -> None:
        self._begin, self._account, self._elsewhere = begin, account, elsewhere
        self._loader: DataLoader[Any] | None = None
        self._inner: Any = None
        self._rows, self._delivery = 0, Delivery()
        self._wait(position)
        _with_workers.add(self)

    def __next__(self) -> Any:
        """Return the next batch.

        Raises
        ------
        IteratorFailedError, IteratorSupersededError
            The iterator failed earlier (WRK-15), or there is a newer one (DLV-4).
        WorkerFailedError
            A worker died.
        """
        if self._over is not None:
            self.raise_over()
        before = None
        try:
            self.inside = True
            self.begin()
            if not self._rows:
                self.end("ended")
                raise StopIteration
            delivery = self._delivery
            before = delivery.progress()
            batch = self._receive(delivery)
            self.inside = False
        except BaseException as error:
            self.inside = False
            # An interrupt may come after the count: the batch does not arrive.
            if before is not None:
                self._delivery.restore(before)
            if self.begun and not isinstance(error, StopIteration):
                self.fail()
            if _worker_died(error, self._elsewhere):
                raise WorkerFailedError(_DEATH + str(error)) from error
            raise
        return batch

    def _receive(self, delivery: Delivery) -> Any:
        """The next batch, counted."""
        began = perf_counter()
        try:
            batch, worker, count, figures = next(self._inner)
        except StopIteration as error:  # every row must have arrived: a worker that stops early is a failure, not the end (WRK-14)
            short = self._rows - delivery.received
            raise WorkerFailedError(f"the workers ended {short} rows before the end of the epoch") from error
        self._account.arrived(worker, figures, perf_counter() - began if self._elsewhere else None)
        if delivery.received + count == self._rows:
            self.end("ended")
        delivery.commit(worker, count)
        return batch

    def _take_place(self) -> None:
        begun, self._loader = self._begin()
        self._rows, self._delivery = len(begun.sequence), begun.delivery

    def _start(self) -> None:
        self._account.begin(self._delivery)
        if self._rows:
            self._inner = _started(self._loader)

    def _release(self) -> None:
        inner, self._inner, self._loader = self._inner, None, None
        self._account.end(self._delivery)
        end_workers(inner)


_with_workers: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()


def _workers_of_all() -> list[BaseProcess]:
    return [worker for iterator in list(_with_workers) for worker in workers_of(iterator._inner)]


def _forget_workers() -> None:
    """In a forked child they are the parent's, and not to be ended (WRK-16)."""
    forget_children(_workers_of_all())
    _with_workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


@at_exit
def _stop_workers() -> None:
    """End the workers of live iterators before multiprocessing removes what a worker that is still starting needs (WRK-15)."""
    workers = _workers_of_all()
    if workers and hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler would call it a failure
    kill(workers)


_DEATH = (
    "a worker process died (see its own words above, if any). If it never delivered a batch, does the script start workers outside "
    'of if __name__ == "__main__":? torch says: '
)


def _started(inner: Any) -> Iterator[Any]:
    """Start the workers; once more if the forkserver was just killed while it was still starting."""
    with signals_held():
        try:
            iterator: Iterator[Any] = iter(inner)
        except (EOFError, ConnectionError):
            iterator = iter(inner)
    watch_workers(iterator)
    return iterator


def _worker_died(error: BaseException, processes: bool) -> bool:
    """Whether a worker is gone: torch has seen it, or what it sent last cannot be fetched from it any more."""
    if not processes:
        return False
    if type(error) is RuntimeError:
        return str(error).startswith(("DataLoader worker (pid", "Pin memory thread exited"))
    own_words = "in DataLoader worker process" in str(error)  # of an exception that was raised in a worker and sent here
    return isinstance(error, (ConnectionError, EOFError, FileNotFoundError)) and not own_words


def _as_it_is(item: Any) -> Any:
    return item


def _making(dataset: StreamingDataset, loader: DataLoader[Any], layout: str) -> Making:
    """Choose the path to batches (BAT-1), and refuse a format on the other one (BAT-2)."""
    transforming = dataset._transforming
    obstacle = None
    if loader.batch_size is None:
        obstacle = "batch_size=None gives rows"
    elif loader.collate_fn is not default_collate:
        obstacle = "collate_fn gets rows"
    elif transforming is not None and not transforming.columnar:
        obstacle = "transform makes rows; columnar_transform makes batches"
    if layout != "python" and obstacle is not None:
        raise ArgumentValueError(f"format={layout!r} is for batches made of columns, but {obstacle}", "format")
    if layout == "arrow" and transforming is not None:
        raise ArgumentValueError(
            'format="arrow" is for rows as they are read, but columnar_transform makes other columns of them', "format"
        )
    return Making(loader.collate_fn, loader.batch_size is None, layout if obstacle is None else None)


def _check_arguments(dataset: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse what would break checkpoints, however it is spelled (WRK-20)."""
    if not isinstance(dataset, StreamingDataset):
        raise ArgumentTypeError(f"dataset must be a StreamingDataset, got {type(dataset).__name__}", "dataset")
    if type(dataset).__iter__ is not StreamingDataset.__iter__:
        raise ArgumentTypeError(f"dataset must not override __iter__, as {type(dataset).__name__} does: workers read past it", "dataset")
    given = _TORCH_ARGUMENTS.bind(None, dataset, *args, **kwargs).arguments
    for name in ("shuffle", "sampler", "batch_sampler"):
        value = given.get(name)
        if value is not None and not (name == "shuffle" and not value):
            raise ArgumentValueError(f"{name} belongs to the dataset: pass shuffle to StreamingDataset", name)
    if not given.get("in_order", True):
        raise ArgumentValueError("in_order must be true: checkpoints count batches in order", "in_order")
    if given.get("persistent_workers"):
        raise ArgumentValueError(
            "persistent_workers must be false: prefetched copies cannot follow the trainer's place", "persistent_workers"
        )
    if given.get("drop_last"):
        raise ArgumentValueError(
            "drop_last must be false: dropped rows would be neither received nor left; choose num_splits instead", "drop_last"
        )

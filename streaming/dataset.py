"""StreamingDataset: the rows of one rank, in an order that survives interruption and other world sizes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from streaming import arguments, pipeline, transforms
from streaming.delivery import BatchDelivery, Delivery
from streaming.errors import ForkedError, TooFewRowsError
from streaming.identity import Identity
from streaming.order import Order
from streaming.position import Position, Standing
from streaming.recipe import ConnectionFactory, check_picklable
from streaming.resharding import refuse_resharding
from streaming.resume import data_identity
from streaming.rows import Reading, RowIterator, RowReader
from streaming.schedule import Schedule
from streaming.sharding import Shards, check_workers
from streaming.source import Source, check_table, check_version, older_version
from streaming.stateful import Stateful
from streaming.stats import Account, Stats
from streaming.supply import RowSequence
from streaming.topology import resolve
from streaming.torch_iterator import find
from streaming.transforms import Transform
from streaming.travel import plain_iterator_that_takes

_log = logging.getLogger(__name__)


class StreamingDataset(Stateful, IterableDataset[Any]):
    """Elastic, resumable stream of the rows of a LanceDB table.

    Splits advance in lockstep: in each cycle every split serves one row, and each rank serves its own block of splits
    (spec/cycle.md). The order depends on the data, the seed, the epoch and the clump size only, never on the number
    of ranks. `state_dict` counts the rows that the trainer has received (spec/delivery.md).

    Use it by itself, with `StreamingDataLoader`, or with ``torch.utils.data.DataLoader(dataset, batch_size=..., num_workers=0)``.
    Tables of a remote LanceDB offer the same methods but are untested.

    Parameters
    ----------
    table : lancedb.table.Table
        The table. One version of it is pinned; the handle itself is never moved.
    num_splits : int, optional
        Units of distribution, a multiple of every world size that you may want to resume on (ASG-5). Default: the world size.
    shuffle : bool
        Shuffle all rows anew in each epoch, without a table of indices (spec/order.md).
    shuffle_seed : int, optional
        Seed in ``[0, 2**63)``. None draws one, which a loaded state may replace; refused with several ranks.
    epoch : int
        First epoch.
    rank, world_size : int, optional
        Default: those of torch.distributed, else of RANK and WORLD_SIZE, else 0 of 1 (ASG-6).
    version : int or str, optional
        Table version or tag to pin. Default: the one the handle shows.
    columns : list of str, optional
        Columns to read, fields of structs (``"a.b"``) and row ids of the pinned version (``"_rowid"``) among them (ARG-9). Default: all.
    filter : str, optional
        SQL predicate; costs one scan when the dataset is built.
    shuffle_clump_size : int, optional
        Rows that move together when shuffled, for faster reads (ORD-8).
    transform : callable, optional
        Maps a pyarrow.RecordBatch of k rows to k outputs (DLV-7). Without it rows are plain dicts.
    columnar_transform : callable, optional
        Maps a pyarrow.RecordBatch of k rows, in a StreamingDataLoader those of one batch, to a dict of arrays, tensors or lists of
        k entries, which become the batch (BAT-9). Instead of `transform`.
    on_transform_error : {"raise", "fill"}
        What to do with a row for which the transform raises: stop there, the rows before it delivered, or fill it (BAT-11).
    transform_fill : optional
        What a failing row becomes: an output of the transform (a dict, beside `columnar_transform`), or a function of the row, as a dict,
        and its exception that returns one.
    transform_parallelism : int
        Threads that call the transform; 0 is the consumer's own (BAT-13).
    transform_queue_depth : int, optional
        Calls of the transform ahead of the consumer. Default: twice `transform_parallelism`.
    partial_cycle : {"replay", "exact"}
        What a resume does with an unfinished cycle: receive its rows again (RES-3), or finish it (RES-4). Equal on all ranks.
    read_ahead_bytes : int
        Bound on the Arrow bytes held and being read (by each worker, with workers); see REA-2. Only slow storage needs it all.
    read_batch_size : int, optional
        Most rows of one read for each split of the rank. Default: reads are sized in bytes (REA-3).
    io_queue_depth : int, optional
        Most reads at a time. Default: as many as slow storage needs, up to 8 (REA-4).
    connection_factory : callable, optional
        Maps the table name to the table, in a worker process: for credentials that must not travel. By default the connection is
        opened again as the table's own says (WRK-17).

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, UnknownColumnError, FilterError
        An argument is wrong; `argument` names it (spec/arguments.md).
    TooFewRowsError
        Fewer selected rows than splits.
    VersionError
        The version or tag cannot be opened.

    Examples
    --------
    >>> import lancedb
    >>> table = lancedb.connect("memory://").create_table("numbers", [{"n": i} for i in range(8)])
    >>> dataset = StreamingDataset(table, num_splits=2, shuffle=False)
    >>> [row["n"] for row in dataset]
    [0, 4, 1, 5, 2, 6, 3, 7]
    """

    def __init__(
        self,
        table: Any,
        *,
        num_splits: int | None = None,
        shuffle: bool = True,
        shuffle_seed: int | None = None,
        epoch: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        version: int | str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        shuffle_clump_size: int | None = None,
        transform: Transform | None = None,
        columnar_transform: Transform | None = None,
        on_transform_error: str = "raise",
        transform_fill: Any = None,
        transform_parallelism: int = 0,
        transform_queue_depth: int | None = None,
        partial_cycle: str = "replay",
        read_ahead_bytes: int = 64 * 2**20,
        read_batch_size: int | None = None,
        io_queue_depth: int | None = None,
        connection_factory: ConnectionFactory | None = None,
    ) -> None:
        super().__init__()
        check_table(table)
        self._topology = resolve(num_splits, rank, world_size)
        shuffle = arguments.boolean("shuffle", shuffle)
        self._seed_drawn = shuffle and shuffle_seed is None
        seed = arguments.seed("shuffle_seed", shuffle_seed, shuffle, self._topology.world_size)
        first_epoch = arguments.integer("epoch", epoch, 0)
        version = check_version(version)
        self._version_given = version is not None
        self._columns = arguments.column_names("columns", columns)
        predicate = arguments.predicate("filter", filter)
        clump = arguments.clump("shuffle_clump_size", shuffle_clump_size, shuffle)
        self._transforming = transforms.resolve(
            transform=transform,
            columnar_transform=columnar_transform,
            on_transform_error=on_transform_error,
            transform_fill=transform_fill,
            transform_parallelism=transform_parallelism,
            transform_queue_depth=transform_queue_depth,
        )
        self._partial_cycle = arguments.choice("partial_cycle", partial_cycle, ("replay", "exact"))
        self._ahead = pipeline.resolve(read_ahead_bytes, read_batch_size, io_queue_depth, self._topology.splits_per_rank)
        arguments.function("connection_factory", connection_factory)
        self._connection_factory = connection_factory

        source = Source.open(table, version, self._columns, predicate, connection_factory)
        splits = self._topology.num_splits
        if source.rows < splits:
            selected = "" if predicate is None else f" pass the filter {arguments.shown(predicate)} and"
            raise TooFewRowsError(
                f"{source.rows} rows of table {table.name!r} version {source.version}{selected} cannot fill num_splits={splits}: "
                f"lower num_splits, or select more rows{older_version(version, source.version)}"
            )
        own = Identity(
            num_splits=splits,
            shuffle=shuffle,
            shuffle_seed=seed,
            shuffle_clump_size=clump,
            filter=predicate,
            **data_identity(source),
        )
        self._position = Position(self._topology, source, own, first_epoch)
        self._account = Account()
        self._process = os.getpid()

    # ---- iteration

    def __iter__(self) -> RowIterator:
        """Give an iterator that supersedes the one before it; its pass begins with its first ``next()`` (DLV-4).

        The pass begins at the place of then, or at the next epoch if this one is completed (EPO-2).

        Raises
        ------
        IteratorAliveError
            The iterator before it is inside its ``next()``.
        MidStepStartError
            The last pass, with several workers, stopped between step boundaries (WRK-11).
        ForkedError
            In a forked process, a worker of a plain DataLoader for instance (WRK-16).
        ShardedTwiceError
            Below a wrapper that divides rows among ranks as well (ASG-7).
        ArgumentValueError, PartialCycleStartError
            In a worker process: the workers do not divide the splits of the rank, or would begin in a partial cycle. Below such a
            wrapper: a drawn seed.
        """
        self._refuse_resharding()
        self._refuse_fork()
        worker = get_worker_info()
        workers = 1 if worker is None else worker.num_workers
        check_workers(self._topology, workers)
        torch_iterator = find(self)
        delivery = Delivery() if torch_iterator is None else torch_iterator.delivery()

        def begin() -> tuple[int, Callable[[], RowReader]]:
            begun = self._position.begin(delivery, workers, continuing=False)
            shards = begun.delivery.progress()
            sequence: RowSequence = begun.sequence
            if worker is not None and isinstance(shards, Shards):
                sequence = shards.sequence(self._topology, begun.split_length, worker.id)
                self._position.travel()
            if isinstance(delivery, BatchDelivery):
                delivery.rows = len(sequence)
            reading = self._reading(begun)

            def start() -> RowReader:
                reader = reading.rows(sequence)
                self._account.begin(begun.delivery, reader.meter)
                return reader

            return len(sequence), start

        iterator = RowIterator(self._position, delivery, begin)
        self._position.supersede(iterator, workers, continuing=False)
        if worker is not None:
            # torchdata saves what a worker says. The only one knows the place; one of several has a place that never moves.
            self._position.travel(away=workers > 1)
        if torch_iterator is not None:
            torch_iterator.drive(iterator)
        return iterator

    def close(self) -> None:
        """End the pass that is under way, if one is; the place is that of the rows received (DLV-4)."""
        self._position.close()

    def __len__(self) -> int:
        """Rows of a fresh full epoch on this rank, the same on every rank (CYC-5)."""
        return self._topology.splits_per_rank * self._position.standing.split_length

    @property
    def samples_remaining(self) -> int:
        """Rows left on this rank in the current epoch."""
        return self._position.standing.remaining()

    def stats(self) -> Stats:
        """Where the time of reading went, since this dataset was built (STA-1); cheap, at any time."""
        return self._account.stats()

    # ---- settings

    def schedule(self, batch_size: int, epoch: int | None = None) -> Schedule:
        """Return the schedule of a whole fresh epoch of all ranks, for this dataset's rows and settings (CYC-6, CYC-7).

        Its steps are those without workers, or with ``worker_sharding="batches"``.

        Parameters
        ----------
        batch_size : int
            Rows of one batch on one rank.
        epoch : int, optional
            Default: the current one.
        """
        own = self._position.standing.identity
        return Schedule(
            rows=own.selected_rows,
            num_splits=own.num_splits,
            world_size=self._topology.world_size,
            batch_size=batch_size,
            shuffle=own.shuffle,
            shuffle_seed=own.shuffle_seed,
            epoch=self.epoch if epoch is None else epoch,
            shuffle_clump_size=own.shuffle_clump_size,
        )

    @property
    def num_splits(self) -> int:
        """Number of splits (S)."""
        return self._topology.num_splits

    @property
    def world_size(self) -> int:
        """Number of ranks (R)."""
        return self._topology.world_size

    @property
    def rank(self) -> int:
        """This rank (r)."""
        return self._topology.rank

    @property
    def shuffle_seed(self) -> int | None:
        """The seed in use, given, drawn or adopted from a state."""
        return self._position.standing.identity.shuffle_seed

    @property
    def version(self) -> int:
        """The pinned table version."""
        return self._position.standing.source.version

    def __getstate__(self) -> dict[str, Any]:
        """Travel to another process.

        What a plain DataLoader's worker delivers is not seen here: from now on the place is unknown (WRK-17, WRK-19).
        """
        taking = plain_iterator_that_takes(self)
        if taking is not None:
            self._refuse_resharding()
            check_picklable(**self._functions())
            self._position.travel(taking)
        return {**vars(self), "_position": copy(self._position), "_account": Account()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Stand where the original stood."""
        vars(self).update(state)
        self._process = os.getpid()

    def __repr__(self) -> str:
        """Table, version, rank and place, for logs."""
        standing = self._position.standing
        floor = standing.floor()
        return (
            f"StreamingDataset({standing.source.name!r}, version={standing.source.version}, num_splits={self.num_splits}, "
            f"rank={self.rank} of {self.world_size}, epoch={floor.epoch}, cycle={floor.cycle} of {standing.split_length})"
        )

    # ---- inside

    def _reading(self, begun: Standing) -> Reading:
        """How the rows of a pass are read."""
        own = begun.identity
        order = Order(own.selected_rows, own.shuffle, own.shuffle_seed, begun.sequence.start.epoch, own.shuffle_clump_size)
        return Reading(begun.source, order, self._transforming, self._ahead)

    def _functions(self) -> dict[str, Any]:
        """The user's functions and values that travel to workers, by argument."""
        own = self._transforming
        transform = {} if own is None else {"columnar_transform" if own.columnar else "transform": own.function, "transform_fill": own.fill}
        return {**transform, "connection_factory": self._connection_factory}

    def _refuse_resharding(self) -> None:
        refuse_resharding(self.rank, self.world_size, self._seed_drawn)

    def _refuse_fork(self) -> None:
        if os.getpid() != self._process:
            raise ForkedError(
                "this dataset was carried into a forked process, where LanceDB would crash or hang: use StreamingDataLoader, or "
                'pass multiprocessing_context="forkserver" or "spawn" to DataLoader and call set_epoch before each pass, or num_workers=0'
            )

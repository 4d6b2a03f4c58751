"""StreamingDataset: the rows of one rank, in an order that survives interruption and other world sizes."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from torch.utils.data import IterableDataset, get_worker_info

from streaming import arguments, checkpoint
from streaming.checkpoint import Identity, State
from streaming.cycle import Cursor, RankSequence
from streaming.delivery import Delivery, watch
from streaming.errors import IteratorAliveError, PickleError, TooFewRowsError, WorkersError
from streaming.order import Order
from streaming.pipeline import WindowReader
from streaming.rows import RowIterator, Transform
from streaming.schedule import Schedule
from streaming.source import Source, check_table, check_version
from streaming.topology import resolve

_log = logging.getLogger(__name__)


class StreamingDataset(IterableDataset[Any]):
    """Elastic, resumable stream of the rows of a LanceDB table.

    Splits advance in lockstep: in each cycle every split serves one row, and each rank serves its own block of splits
    (spec/cycle.md). The order depends on the data, the seed, the epoch and the clump size only, never on the number
    of ranks. `state_dict` counts the rows that the trainer has received (spec/delivery.md).

    Use it by itself, or with ``torch.utils.data.DataLoader(dataset, batch_size=..., num_workers=0)``. Worker processes are not
    supported yet. Tables of a remote LanceDB offer the same methods but are untested.

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
        Columns to read. Default: all.
    filter : str, optional
        SQL predicate; costs one scan when the dataset is built.
    shuffle_clump_size : int, optional
        Rows that move together when shuffled, for faster reads (ORD-8).
    transform : callable, optional
        Maps a pyarrow.RecordBatch of k rows to k outputs (DLV-7). Without it rows are plain dicts.
    partial_cycle : {"replay", "exact"}
        What a resume does with an unfinished cycle: receive its rows again (RES-3), or finish it (RES-4). Equal on all ranks.
    read_ahead_bytes : int
        Bound on the Arrow bytes held ahead of the consumer.

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
        partial_cycle: str = "replay",
        read_ahead_bytes: int = 16 * 2**20,
    ) -> None:
        super().__init__()
        check_table(table)
        self._topology = resolve(num_splits, rank, world_size)
        shuffle = arguments.boolean("shuffle", shuffle)
        self._seed_drawn = shuffle and shuffle_seed is None
        seed = arguments.seed("shuffle_seed", shuffle_seed, shuffle, self._topology.world_size)
        cursor = Cursor(arguments.integer("epoch", epoch, 0))
        version = check_version(version)
        self._version_given = version is not None
        self._columns = arguments.column_names("columns", columns)
        predicate = arguments.predicate("filter", filter)
        clump = arguments.clump("shuffle_clump_size", shuffle_clump_size, shuffle)
        arguments.function("transform", transform)
        self._transform = transform
        self._partial_cycle = arguments.choice("partial_cycle", partial_cycle, ("replay", "exact"))
        self._read_ahead_bytes = arguments.integer("read_ahead_bytes", read_ahead_bytes, 1)

        self._table = table
        self._source = Source.open(table, version, self._columns, predicate)
        splits = self._topology.num_splits
        if self._source.rows < splits:
            selected = "" if predicate is None else f" pass the filter {predicate!r} and"
            raise TooFewRowsError(
                f"{self._source.rows} rows of table {table.name!r} version {self._source.version}{selected} cannot fill num_splits={splits}"
            )
        self._identity = Identity(
            num_splits=splits,
            shuffle=shuffle,
            shuffle_seed=seed,
            shuffle_clump_size=clump,
            filter=predicate,
            **_data_identity(self._source),
        )
        self._replay = 0
        self._delivery = Delivery()
        self._iterator: weakref.ref[RowIterator] | None = None
        self._place(cursor)

    # ---- iteration

    def __iter__(self) -> RowIterator:
        """Start a pass at the current place, or at the next epoch if this one is completed (EPO-2).

        Raises
        ------
        IteratorAliveError
            Another iterator of this dataset is alive (DLV-4).
        WorkersError
            Called in a worker process of a DataLoader.
        """
        if get_worker_info() is not None:
            raise WorkersError("StreamingDataset cannot be read in DataLoader worker processes yet: use num_workers=0")
        self._refuse_if_alive("iter")
        self._replay = self.samples_to_replay
        completed, cursor = None, self._cursor
        if self.samples_remaining == 0:
            if self._epoch_asked_for:
                _log.warning("set_epoch(%d) asked for an epoch that is already completed: this pass is empty", cursor.epoch)
            else:
                completed, cursor = cursor, Cursor(arguments.integer("epoch", cursor.epoch + 1, 0))
        self._place(cursor, completed)
        identity = self._identity
        order = Order(identity.selected_rows, identity.shuffle, identity.shuffle_seed, cursor.epoch, identity.shuffle_clump_size)
        windows = WindowReader(self._source, order, self._sequence, self._read_ahead_bytes)
        self._delivery = watch(self)
        iterator = RowIterator(windows, self._transform, self._delivery)
        self._iterator = weakref.ref(iterator)
        return iterator

    def __len__(self) -> int:
        """Rows of a fresh full epoch on this rank, the same on every rank (CYC-5)."""
        return self._topology.splits_per_rank * self._split_length

    @property
    def samples_remaining(self) -> int:
        """Rows left on this rank in the current epoch."""
        return 0 if self._resting else len(self._sequence) - self._delivery.received

    # ---- checkpoints

    def state_dict(self) -> State:
        """Return the place after the rows received so far: a plain dict, the same on all ranks at one step (CKP-1, CKP-2)."""
        return checkpoint.encode(self._identity, self._topology.world_size, self._cursor)

    def floor_state_dict(self) -> State:
        """Return the state of the completed cycles only; it never raises (CKP-4)."""
        return checkpoint.encode(self._identity, self._topology.world_size, replace(self._cursor, served=()))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the place of a state; a refused load changes nothing (spec/checkpoint.md, Resume).

        Parameters
        ----------
        state : mapping
            What `state_dict` or `merge_state_dicts` returned, also after JSON, pickle or torch.save; it is not changed.

        Raises
        ------
        IteratorAliveError
            An iterator of this dataset is alive.
        MalformedStateError, SchemaVersionError
            Not a state, or not one of this release.
        StateMismatchError
            It belongs to other data or settings; `fields` names them.
        PartialCycleError
            ``partial_cycle="exact"`` cannot finish the cycle on this world size.
        VersionError
            The recorded table version cannot be opened.
        """
        self._refuse_if_alive("load_state_dict")
        saved = checkpoint.decode(state)
        own = self._identity
        if self._seed_drawn and saved.identity.shuffle:
            own = replace(own, shuffle_seed=saved.identity.shuffle_seed)
        source = self._source_of(saved.identity, own)
        own = replace(own, **_data_identity(source))
        checkpoint.check_identity(saved.identity, own)
        cursor = saved.cursor
        if self._partial_cycle == "exact":
            checkpoint.check_exact(cursor, own.num_splits, self._topology.world_size)
        served, cursor = cursor.served, cursor if self._partial_cycle == "exact" else replace(cursor, served=())

        if source is not self._source:
            _log.info("table %r: reading version %d, which the state records, not %d", source.name, source.version, self._source.version)
        if cursor.epoch != self.epoch:
            _log.info("the state's epoch %d replaces epoch %d", cursor.epoch, self.epoch)
        self._source, self._identity = source, own
        mine = range(self._topology.first_split, self._topology.first_split + self._topology.splits_per_rank)
        self._replay = sum(split in mine for split in served) - sum(split in mine for split in cursor.served)
        self._place(cursor)

    @property
    def samples_to_replay(self) -> int:
        """Rows that this rank receives a second time because of the last load (RES-3, EPO-7)."""
        return self._replay if self._completed is None or self._resting else 0

    @staticmethod
    def merge_state_dicts(states: Iterable[Mapping[str, Any]], *, skew: str = "refuse") -> State:
        """Merge one state per rank into one that serves all; see `streaming.merge_state_dicts` (MRG-1, MRG-2)."""
        return checkpoint.merge_state_dicts(states, skew=skew)

    # ---- epochs

    @property
    def epoch(self) -> int:
        """The epoch that the current place belongs to."""
        return self._cursor.epoch

    def set_epoch(self, epoch: int) -> None:
        """Ask for exactly this epoch: another one starts at its beginning, the current one keeps its place (EPO-4).

        Raises
        ------
        ArgumentTypeError, ArgumentValueError
            Not an int in ``[0, 2**63)``.
        IteratorAliveError
            An iterator of this dataset is alive.
        """
        number = arguments.integer("epoch", epoch, 0)
        self._refuse_if_alive("set_epoch")
        if number != self.epoch:
            self._replay = 0
            self._place(Cursor(number))
        self._epoch_asked_for = True

    def rewind(self) -> None:
        """Go to the start of the current epoch (EPO-5).

        Raises
        ------
        IteratorAliveError
            An iterator of this dataset is alive.
        """
        self._refuse_if_alive("rewind")
        self._replay = 0
        self._place(Cursor(self.epoch))

    def schedule(self, batch_size: int, epoch: int | None = None) -> Schedule:
        """Return the schedule of a whole fresh epoch of all ranks, for this dataset's rows and settings (CYC-6, CYC-7).

        Parameters
        ----------
        batch_size : int
            Rows of one batch on one rank.
        epoch : int, optional
            Default: the current one.
        """
        own = self._identity
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

    # ---- settings

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
        return self._identity.shuffle_seed

    @property
    def version(self) -> int:
        """The pinned table version."""
        return self._source.version

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: a copy would not be counted (DLV-9)."""
        raise PickleError("StreamingDataset cannot be pickled or copied yet: build it in the process that reads it, and use num_workers=0")

    # ---- inside

    @property
    def _split_length(self) -> int:
        return self._identity.selected_rows // self._topology.num_splits

    @property
    def _resting(self) -> bool:
        """Whether a pass over the next epoch has begun, of which no row is received yet (EPO-2)."""
        return self._completed is not None and self._delivery.received == 0

    @property
    def _cursor(self) -> Cursor:
        if self._completed is not None and self._resting:
            return self._completed
        return self._sequence.cursor(self._delivery.received)

    def _place(self, cursor: Cursor, completed: Cursor | None = None) -> None:
        """Stand at a cursor, with no iterator and no rows received since, and nothing asked for."""
        self._completed = completed
        self._sequence = RankSequence(self._topology, self._split_length, cursor)
        self._delivery.fence()
        self._delivery = Delivery()
        self._iterator = None
        self._epoch_asked_for = False

    def _refuse_if_alive(self, what: str) -> None:
        # Nothing in this frame may refer to the iterator: whoever keeps the exception would keep it alive.
        if self._iterator_alive():
            raise IteratorAliveError(
                f"{what} while an iterator of this dataset is alive: finish it, close() it, or drop every reference to it"
            )

    def _iterator_alive(self) -> bool:
        """Whether an iterator may still deliver; one whose batch never arrived can only fail (DLV-4)."""
        iterator = self._iterator() if self._iterator is not None else None
        return iterator is not None and iterator.alive and not self._delivery.in_flight

    def _source_of(self, saved: Identity, own: Identity) -> Source:
        """The source at the recorded version of this table (RES-2), where nothing else speaks against the state."""
        data = ("table_version", "selected_rows", "schema_fingerprint")
        settings_fit = all(getattr(saved, key) == value for key, value in vars(own).items() if key not in data)
        if saved.table_version == own.table_version or self._version_given or not settings_fit:
            return self._source
        return Source.open(self._table, saved.table_version, self._columns, own.filter)


def _data_identity(source: Source) -> dict[str, Any]:
    return {
        "table_name": source.name,
        "table_version": source.version,
        "selected_rows": source.rows,
        "schema_fingerprint": source.fingerprint,
    }

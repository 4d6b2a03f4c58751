"""The arguments of a dataset, and what it sees of its table (chapters arguments and assignment)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from model.errors import ModelError
from model.order import ORDER_VERSION, Order
from model.tables import Version

LARGEST = 2**63 - 1


def check_int(name: str, value: object, low: int, high: int = LARGEST) -> None:
    """Refuse what is no int (bool is none) or lies outside ``[low, high]`` (ARG-1); none exceeds 2**63 - 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ModelError("argument.type", name)
    if value < low or value > high:
        raise ModelError("argument.value", name)


@dataclass(frozen=True)
class Settings:
    """The arguments of a dataset, and what it sees of its table. Checked when made (ASG-1, ASG-2, chapter arguments).

    Parameters
    ----------
    rows : int
        N, the selected rows of the pinned version.
    num_splits, world_size, rank : int
        S, R and r.
    shuffle : bool
        Whether the order is shuffled.
    shuffle_seed : int or None
        The seed. The model draws none: whoever drew one passes it, with ``seed_drawn=True``.
    shuffle_clump_size : int or None
        c, only with shuffle.
    partial_cycle : str
        ``"replay"`` or ``"exact"``.
    filter, table_name, table_version, schema_fingerprint, table_version_created_us
        The rest of the identity (IDN-1, IDN-2); the model only compares them.
    seed_drawn : bool
        Whether ``shuffle_seed`` was drawn, not given (ARG-5, IDN-6).
    version_given : bool
        Whether ``version`` was an argument (ARG-8, IDN-7).
    versions : tuple of Version
        The other versions of the table that can be opened, besides the pinned one.
    """

    rows: int
    num_splits: int
    world_size: int = 1
    rank: int = 0
    shuffle: bool = True
    shuffle_seed: int | None = None
    shuffle_clump_size: int | None = None
    partial_cycle: str = "replay"
    filter: str | None = None
    table_name: str = "table"
    table_version: int = 1
    schema_fingerprint: str = "0" * 64
    seed_drawn: bool = False
    table_version_created_us: int | None = 0
    version_given: bool = False
    versions: tuple[Version, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what the constructor refuses."""
        self._check_world()
        self._check_order()
        if not isinstance(self.partial_cycle, str):
            raise ModelError("argument.type", "partial_cycle")
        if self.partial_cycle not in ("replay", "exact"):
            raise ModelError("argument.value", "partial_cycle")
        if self.filter is not None and not isinstance(self.filter, str):
            raise ModelError("argument.type", "filter")
        if self.filter == "":
            raise ModelError("argument.value", "filter")
        # Last, because arguments are checked before anything is read (chapter arguments).
        if self.rows < self.num_splits:
            raise ModelError("data.too_few_rows", f"{self.rows} rows, {self.num_splits} splits")

    def _check_world(self) -> None:
        """ARG-3, ARG-7, ASG-2."""
        check_int("num_splits", self.num_splits, 1)
        check_int("world_size", self.world_size, 1)
        check_int("rank", self.rank, 0, self.world_size - 1)
        if self.num_splits % self.world_size != 0:
            raise ModelError("argument.value", "num_splits is no multiple of world_size")

    def _check_order(self) -> None:
        """ARG-4, ARG-5, ARG-11."""
        if not isinstance(self.shuffle, bool):
            raise ModelError("argument.type", "shuffle")
        if self.shuffle_seed is not None:
            check_int("shuffle_seed", self.shuffle_seed, 0)
        if self.shuffle and self.shuffle_seed is None:
            raise ModelError("argument.value", "shuffle_seed: the model draws none")
        if self.seed_drawn and self.world_size != 1:
            raise ModelError("argument.value", "shuffle_seed: drawn only with one rank")
        if self.shuffle_clump_size is not None:
            check_int("shuffle_clump_size", self.shuffle_clump_size, 1)
            if not self.shuffle:
                raise ModelError("argument.value", "shuffle_clump_size without shuffle")

    def identity(self) -> dict[str, Any]:
        """The values of ``checkpoint.IDENTITY`` (IDN-1, IDN-2)."""
        return {
            "num_splits": self.num_splits,
            "shuffle": self.shuffle,
            "shuffle_seed": self.shuffle_seed,
            "shuffle_clump_size": self.shuffle_clump_size,
            "order_version": ORDER_VERSION,
            "filter": self.filter,
            "table_name": self.table_name,
            "table_version": self.table_version,
            "table_version_created_us": self.table_version_created_us,
            "selected_rows": self.rows,
            "schema_fingerprint": self.schema_fingerprint,
        }

    def order(self, epoch: int) -> Order:
        """The order of an epoch."""
        return Order(self.rows, self.shuffle, self.shuffle_seed, epoch, self.shuffle_clump_size)

    def pinned(self) -> Version:
        """The version that the dataset stands on."""
        return Version(self.table_version, self.table_version_created_us, self.rows, self.schema_fingerprint)

    def standing_on(self, version: Version) -> Settings:
        """The same, standing on a version of its table (IDN-7); ``data.too_few_rows`` where that one has fewer rows than splits (ASG-1)."""
        if version.number == self.table_version:
            return self
        others = [other for other in self.versions if other.number != version.number]
        return replace(
            self,
            rows=version.rows,
            table_version=version.number,
            table_version_created_us=version.created_us,
            schema_fingerprint=version.fingerprint,
            versions=(*others, self.pinned()),
        )

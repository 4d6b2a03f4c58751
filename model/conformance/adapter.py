"""What a loader must offer to be checked: six methods, some more for further clauses. Rows are observed by their ids alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

# What a loader may be capable of. Clauses that need more are NOT_IMPLEMENTED for it, which is no failure.
CAPABILITIES: Final = {
    "shuffle": "orders depend on seed and epoch",
    "workers": "num_workers > 1, each worker owning splits of its own",
    "invariant": 'worker_sharding="batches": batches do not depend on num_workers',
    "exact": 'partial_cycle="exact": an unfinished cycle is finished, not replayed',
    "epochs": "set_epoch(handle, epoch)",
    "break": "close(handle): a pass that is left can be continued by the same loader",
    "newest": "iterate(handle), pull_older(handle): a newer iterator beside the one that there is",
    "merge": "merge(states, skew): one state from one state per rank",
    "length": "length(handle): the batches of a whole epoch",
    "faults": "fault(handle, row): the transform raises for this row",
    "append": "append(table, rows): the table grows, and gets another version",
    "order": "the shuffled order is that of spec/order.md, to the bit",
    "codes": "refusals carry the codes of spec/errors.md",
}


class Refused(Exception):
    """The loader refused a call. Without the capability "codes" any code will do.

    Parameters
    ----------
    code : str
        A code of spec/errors.md.
    """

    def __init__(self, code: str = "refused") -> None:
        """Remember the code."""
        super().__init__(code)
        self.code = code


class Failed(Exception):
    """The transform's own exception, which the loader passed on."""


@dataclass(frozen=True)
class Description:
    """Who is being checked.

    Parameters
    ----------
    name, version : str
        Of the implementation.
    capabilities : frozenset of str
        Keys of ``CAPABILITIES``.
    """

    name: str
    version: str
    capabilities: frozenset[str]

    def __post_init__(self) -> None:
        """A misspelt capability would silently leave clauses out."""
        unknown = sorted(self.capabilities - CAPABILITIES.keys())
        if unknown:
            raise ValueError(f"unknown capabilities {unknown}; there are {sorted(CAPABILITIES)}")


@dataclass(frozen=True)
class World:
    """One rank's loader over a table whose column ``id`` holds 0, 1, .. rows-1 in storage order.

    Parameters
    ----------
    rows, num_splits, world_size, rank
        N, S, R, r.
    batch_size, num_workers, worker_sharding
        B, W and the mode of chapter workers.
    shuffle, shuffle_seed, epoch, shuffle_clump_size, partial_cycle
        As in chapter arguments.
    table : str
        Other names are other tables, with equal ids where `rows` is equal. A table is made when a world first names it.
    """

    rows: int
    num_splits: int
    world_size: int = 1
    rank: int = 0
    batch_size: int = 1
    num_workers: int = 0
    worker_sharding: str = "splits"
    shuffle: bool = False
    shuffle_seed: int = 0
    epoch: int = 0
    shuffle_clump_size: int | None = None
    partial_cycle: str = "replay"
    table: str = "t"

    def to_json(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        defaults = World(self.rows, self.num_splits)
        return {key: value for key, value in asdict(self).items() if key in ("rows", "num_splits") or value != getattr(defaults, key)}


class Adapter(ABC):
    """Between the kit and a loader. Handles and states are the adapter's own; the kit passes them back and looks at neither.

    A method raises `Refused` where the loader refuses with an error of its own, before any effect. Every other exception is taken for a
    crash of the loader.
    """

    @abstractmethod
    def describe(self) -> Description:
        """Who this is, and what it can do."""

    @abstractmethod
    def open(self, world: World) -> Any:
        """Build a loader, as a new process would; returns a handle."""

    @abstractmethod
    def pull(self, handle: Any) -> Sequence[int] | None:
        """The ids of the next batch; None at the end of the pass. Where the newest iterator was closed or has said its end, one is created.

        Raises `Failed` for the exception of `fault`; the iterator is then kept: the next pull asks it again.
        """

    @abstractmethod
    def save(self, handle: Any) -> Any:
        """``state_dict()``, after whatever round trip the adapter likes."""

    @abstractmethod
    def resume(self, handle: Any, state: Any) -> None:
        """``load_state_dict(state)``. The kit also passes states that no loader has saved."""

    @abstractmethod
    def kill(self, handle: Any) -> None:
        """The process is gone: release what it held. The handle is not used again."""

    def close(self, handle: Any) -> None:
        """Leave the pass, as ``break`` does; a later pull continues (capability "break"); also after a failure."""
        raise NotImplementedError

    def iterate(self, handle: Any) -> None:
        """``iter(loader)``, which asks for no batch: the next pull is of this iterator (capability "newest")."""
        raise NotImplementedError

    def pull_older(self, handle: Any) -> Sequence[int] | None:
        """``next()`` on the iterator before the newest; None at its end, or where there is none any more (capability "newest")."""
        raise NotImplementedError

    def fault(self, handle: Any, row: int | None) -> None:
        """From now on the transform raises for this row, for none with None (capability "faults")."""
        raise NotImplementedError

    def set_epoch(self, handle: Any, epoch: int) -> None:
        """``set_epoch(epoch)`` (capability "epochs")."""
        raise NotImplementedError

    def merge(self, states: Sequence[Any], skew: str) -> Any:
        """``merge_state_dicts`` (capability "merge"); `skew` is "refuse" or "replay"."""
        raise NotImplementedError

    def length(self, handle: Any) -> int:
        """``len(loader)``, in batches (capability "length")."""
        raise NotImplementedError

    def append(self, table: str, rows: int) -> None:
        """Let a table grow by so many rows, numbered on (capability "append")."""
        raise NotImplementedError

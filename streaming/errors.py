"""Typed errors with stable codes (spec/errors.md).

Catch by class, or compare ``error.code``; messages are for people and may change.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "ArgumentTypeError",
    "ArgumentValueError",
    "BatchError",
    "DaemonicError",
    "DuplicateRankError",
    "FilterError",
    "ForkedError",
    "GroupMissingError",
    "IteratorAliveError",
    "IteratorFailedError",
    "IteratorSupersededError",
    "MainFileError",
    "MainGuardError",
    "MalformedStateError",
    "MergeCountError",
    "MergeSkewError",
    "MidStepError",
    "MidStepStartError",
    "PartialCycleError",
    "PartialCycleStartError",
    "PickleError",
    "RanksDifferError",
    "ReadError",
    "SchemaVersionError",
    "ShardedTwiceError",
    "SharedMemoryError",
    "StateMismatchError",
    "StreamingError",
    "TooFewRowsError",
    "TransformError",
    "UnknownColumnError",
    "UnknownPlaceError",
    "VersionError",
    "WorkerFailedError",
]


class StreamingError(Exception):
    """Base of all errors of this package.

    Every subclass can be built from a message alone, because torch rebuilds a worker's exception that way.
    """

    code = "streaming"


class _ArgumentError(StreamingError):
    def __init__(self, message: str, argument: str = "") -> None:
        super().__init__(message)
        self.argument = argument


class ArgumentTypeError(_ArgumentError, TypeError):
    """An argument has the wrong type; `argument` names it (ARG-1)."""

    code = "argument.type"


class ArgumentValueError(_ArgumentError, ValueError):
    """An argument lies outside its legal range; `argument` names it (ARG-1)."""

    code = "argument.value"


class UnknownColumnError(ArgumentValueError):
    """A column that the pinned version does not have (ARG-9)."""

    code = "argument.column"


class FilterError(ArgumentValueError):
    """A predicate that the engine refuses (ARG-10)."""

    code = "argument.filter"


class TooFewRowsError(StreamingError, ValueError):
    """Fewer selected rows than splits (ASG-1)."""

    code = "data.too_few_rows"


class VersionError(StreamingError, ValueError):
    """A table version or tag that cannot be opened, or that went away in mid-pass (ARG-8, IDN-7, DLV-5)."""

    code = "data.version"


class ReadError(StreamingError, RuntimeError):
    """A read failed, or returned other rows than were asked for (DLV-5)."""

    code = "data.read"


class MalformedStateError(StreamingError, ValueError):
    """A state that no run can have saved (CKP-6)."""

    code = "state.malformed"


class SchemaVersionError(StreamingError, ValueError):
    """A state of a schema version that this release does not know (CKP-5)."""

    code = "state.schema_version"


class _FieldsError(StreamingError):
    def __init__(self, message: str, fields: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


class StateMismatchError(_FieldsError, ValueError):
    """A state of other data or settings; `fields` names what differs (IDN-9, MRG-1)."""

    code = "state.mismatch"


class PartialCycleError(StreamingError, ValueError):
    """A partial cycle that cannot be finished evenly on this world size (RES-4)."""

    code = "state.partial_cycle"


class MergeCountError(StreamingError, ValueError):
    """Not one state per rank of the saving run (MRG-1)."""

    code = "merge.count"


class MergeSkewError(StreamingError, ValueError):
    """Ranks that were saved at different steps (MRG-2)."""

    code = "merge.skew"


class DuplicateRankError(StreamingError, ValueError):
    """A rank that more than one process says to be (MRG-3)."""

    code = "merge.ranks"


class RanksDifferError(_FieldsError, ValueError):
    """Ranks with other settings, data or places; `fields` names what differs (MRG-4)."""

    code = "ranks.mismatch"


class GroupMissingError(StreamingError, RuntimeError):
    """Several ranks and no process group over which to ask them (MRG-3)."""

    code = "group.missing"


class IteratorAliveError(StreamingError, RuntimeError):
    """A pass of this dataset is alive, or inside its ``next()`` (DLV-4)."""

    code = "iterator.alive"


class IteratorSupersededError(StreamingError, RuntimeError):
    """A newer iterator of the same dataset has taken over (DLV-4)."""

    code = "iterator.superseded"


class IteratorFailedError(StreamingError, RuntimeError):
    """The iterator failed or was replaced, and is over (DLV-5)."""

    code = "iterator.failed"


class MidStepError(StreamingError, RuntimeError):
    """`state_dict()` between step boundaries of several workers (WRK-9)."""

    code = "state.mid_step"


class UnknownPlaceError(StreamingError, RuntimeError):
    """`state_dict()` while a plain DataLoader delivers in worker processes, or in one of several of them (WRK-19)."""

    code = "state.unknown"


class MidStepStartError(StreamingError, RuntimeError):
    """A pass that cannot continue where several workers stopped (WRK-11)."""

    code = "workers.mid_step"


class PartialCycleStartError(StreamingError, RuntimeError):
    """Several workers that would begin in a partial cycle (WRK-12)."""

    code = "workers.partial_cycle"


class WorkerFailedError(StreamingError, RuntimeError):
    """A worker process died or was ended by an exception that ends processes (WRK-14)."""

    code = "worker.failed"


class SharedMemoryError(StreamingError, RuntimeError):
    """A batch for which there is no shared memory, in which it would travel from a worker (WRK-14)."""

    code = "worker.shared_memory"


class ForkedError(StreamingError, RuntimeError):
    """A dataset in a forked process, where the engine would crash or hang, or an iterator of the process that forked it (WRK-16)."""

    code = "process.forked"


class MainGuardError(StreamingError, RuntimeError):
    """Workers asked for by a main module that is still being imported (WRK-18)."""

    code = "process.main_guard"


class MainFileError(StreamingError, RuntimeError):
    """Workers asked for by a main module that is no file, so that they cannot import it (WRK-18)."""

    code = "process.main_file"


class DaemonicError(StreamingError, RuntimeError):
    """Workers asked for in a process that must not start others (WRK-18)."""

    code = "process.daemonic"


class PickleError(StreamingError, TypeError):
    """Something that must travel to a worker process cannot be pickled (WRK-17)."""

    code = "dataset.pickle"


class ShardedTwiceError(StreamingError, RuntimeError):
    """A dataset of several ranks below a wrapper that divides rows among ranks as well (ASG-7)."""

    code = "dataset.sharded_twice"


class TransformError(StreamingError, RuntimeError):
    """A transform that broke its contract (DLV-5, DLV-7)."""

    code = "transform.failed"


class BatchError(StreamingError, TypeError):
    """A column that a batch format cannot hold; `column` names it (BAT-4)."""

    code = "batch.column"

    def __init__(self, message: str, column: str = "") -> None:
        super().__init__(message)
        self.column = column

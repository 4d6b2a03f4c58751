"""Typed errors with stable codes (spec/errors.md).

Catch by class, or compare ``error.code``; messages are for people and may change.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "ArgumentTypeError",
    "ArgumentValueError",
    "FilterError",
    "IteratorAliveError",
    "IteratorFailedError",
    "MalformedStateError",
    "MergeCountError",
    "MergeSkewError",
    "PartialCycleError",
    "PickleError",
    "ReadError",
    "SchemaVersionError",
    "StateMismatchError",
    "StreamingError",
    "TooFewRowsError",
    "TransformError",
    "UnknownColumnError",
    "VersionError",
    "WorkersError",
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
    """A table version or tag that cannot be opened (ARG-8, RES-2)."""

    code = "data.version"


class ReadError(StreamingError, RuntimeError):
    """A read returned other rows than were asked for."""

    code = "data.read"


class MalformedStateError(StreamingError, ValueError):
    """A state that no run can have saved (CKP-6)."""

    code = "state.malformed"


class SchemaVersionError(StreamingError, ValueError):
    """A state of a schema version that this release does not know (CKP-5)."""

    code = "state.schema_version"


class StateMismatchError(StreamingError, ValueError):
    """A state of other data or settings; `fields` names what differs (RES-1, RES-2, MRG-1)."""

    code = "state.mismatch"

    def __init__(self, message: str, fields: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


class PartialCycleError(StreamingError, ValueError):
    """A partial cycle that cannot be finished evenly on this world size (RES-4)."""

    code = "state.partial_cycle"


class MergeCountError(StreamingError, ValueError):
    """Not one state per rank of the saving run (MRG-1)."""

    code = "merge.count"


class MergeSkewError(StreamingError, ValueError):
    """Ranks that were saved at different steps (MRG-2)."""

    code = "merge.skew"


class IteratorAliveError(StreamingError, RuntimeError):
    """Another iterator of this dataset is alive (DLV-4)."""

    code = "iterator.alive"


class IteratorFailedError(StreamingError, RuntimeError):
    """The iterator failed or was replaced, and is over (DLV-5)."""

    code = "iterator.failed"


class WorkersError(StreamingError, RuntimeError):
    """Iteration inside a DataLoader worker process (DLV-9)."""

    code = "iterator.workers"


class PickleError(StreamingError, TypeError):
    """A dataset cannot be pickled or copied (DLV-9)."""

    code = "dataset.pickle"


class TransformError(StreamingError, RuntimeError):
    """A transform that broke its contract (DLV-5, DLV-7)."""

    code = "transform.failed"

"""Mistakes of an adapter, told before anything is judged: the method, what it must do, and what came."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from model.conformance.adapter import Adapter, Description, World
from model.conformance.watchdog import Watched

# Capabilities and the methods that they promise.
CALLS: Final = {
    "break": "close", "newest": "iterate", "faults": "fault", "epochs": "set_epoch", "merge": "merge", "length": "length",
    "append": "append",
}  # fmt: skip
_MOST: Final = 80


class AdapterError(Exception):
    """The adapter cannot be used; the message is one sentence."""


def made(make: Callable[[], Adapter]) -> tuple[Adapter, Description]:
    """What a factory makes, and who that is.

    Raises
    ------
    AdapterError
        It is no adapter, or does not know who it is.
    """
    wanted = "the factory must return an adapter"
    try:
        adapter = make()
    except Exception as error:
        raise AdapterError(f"{wanted}, and raised {raised(error)}") from error
    inner: Any = adapter.inner if isinstance(adapter, Watched) else adapter
    if not isinstance(inner, Adapter):
        raise AdapterError(f"{wanted}, an instance of model.conformance.Adapter, and returned {_shown(inner)}")
    wanted = "describe() must return a model.conformance.Description"
    try:
        description: Any = adapter.describe()
    except Exception as error:
        raise AdapterError(f"{wanted}, and raised {raised(error)}") from error
    if not isinstance(description, Description):
        raise AdapterError(f"{wanted}, and returned {_shown(description)}")
    return adapter, description


def batch(value: Any) -> list[int] | None:
    """What `pull` returned, if it is a batch or the end."""
    try:
        return None if value is None else [operator.index(row) for row in value]
    except TypeError as error:
        wanted = "pull() must return the ids of a batch as a sequence of ints, or None at the end of the pass"
        raise AdapterError(f"{wanted}, and returned {_shown(value)}") from error


def try_claims(adapter: Adapter, description: Description) -> None:
    """Call every method that a capability promises, once; whether it does the right thing is for the clauses to say."""
    for capability, method in CALLS.items():
        if capability not in description.capabilities:
            continue
        try:
            _call(adapter, method)
        except NotImplementedError as error:
            raise AdapterError(
                f"{method}() must be implemented, because describe() claims {capability!r}, and raised {raised(error)}"
            ) from error
        except Exception:
            continue


def _call(adapter: Adapter, method: str) -> None:
    handle = adapter.open(World(4, 2, table="claims-4"))
    calls: dict[str, Callable[[], Any]] = {
        "close": lambda: adapter.close(handle),
        "iterate": lambda: _iterate_twice(adapter, handle),
        "fault": lambda: adapter.fault(handle, None),
        "set_epoch": lambda: adapter.set_epoch(handle, 0),
        "merge": lambda: adapter.merge([adapter.save(handle)], "refuse"),
        "length": lambda: adapter.length(handle),
        "append": lambda: adapter.append("claims-4", 1),
    }
    try:
        calls[method]()
    finally:
        adapter.kill(handle)


def _iterate_twice(adapter: Adapter, handle: Any) -> None:
    adapter.iterate(handle)
    adapter.pull_older(handle)


def raised(error: BaseException) -> str:
    """An exception on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"{' '.join(repr(value).split())[:_MOST]} ({type(value).__name__})"

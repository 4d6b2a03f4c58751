"""Negative controls: loaders that are wrong on purpose, one fault each. What the kit must reject, and which clause it must name.

The loaders are in the modules ``wrong_*``, and `model.conformance.selftest` runs them. A kit that passes a wrong loader would tell
nothing about a right one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from model import checkpoint
from model.conformance.adapter import CAPABILITIES, Adapter, Description
from model.conformance.reference import Handle, Reference


@dataclass(frozen=True)
class Control:
    """A wrong loader.

    Parameters
    ----------
    name : str
        Its name.
    what : str
        What is wrong with it, in one line.
    clauses : frozenset of str
        One of them must be named.
    make : callable
        Makes the adapter.
    during : callable
        A context manager within which the fault is there: for faults in code that is shared.
    written : bool
        Whether only the files of the layer vectors can tell: the model has the fault too.
    """

    name: str
    what: str
    clauses: frozenset[str]
    make: Callable[[], Adapter]
    during: Callable[[], AbstractContextManager[None]] = nullcontext
    written: bool = False


CONTROLS: list[Control] = []

_NOTHING: Final = object()
_A = TypeVar("_A", bound=Adapter)


def wrong(*clauses: str) -> Callable[[type[_A]], type[_A]]:
    """Register a wrong loader; what is wrong with it is the first line of its docstring."""

    def register(kind: type[_A]) -> type[_A]:
        CONTROLS.append(Control(kind.__name__, str(kind.__doc__).splitlines()[0], frozenset(clauses), kind))
        return kind

    return register


class Foreign(Reference):
    """The model as somebody else's loader: its order has to be learned, and its refusals carry no codes."""

    def describe(self) -> Description:
        """All but what only this specification promises of orders and refusals."""
        return Description("wrong on purpose", "1", frozenset(CAPABILITIES) - {"order", "codes"})


def move(handle: Handle, **changes: Any) -> None:
    """Change fields of the cursor: epoch, cycle, served."""
    loader = handle.pool.loader
    handle.pool = replace(handle.pool, loader=replace(loader, cursor=replace(loader.cursor, **changes)))


def is_state(state: object) -> bool:
    """Whether it looks like a state of the model."""
    return isinstance(state, dict) and "digest" in state


def edited(state: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A state with other values, and the digest that belongs to them."""
    return checkpoint.sign({**state, **changes})


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another attribute of a module or class for a while.

    Parameters
    ----------
    owner : module or class
        Where it is defined; a module may lack it, and then hides a builtin function.
    name : str
        Of the attribute.
    value : object
        What it is instead.
    """
    before = vars(owner).get(name, _NOTHING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _NOTHING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

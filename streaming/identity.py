"""What a state is bound to, and whether it fits (spec/identity.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from streaming.arguments import shown
from streaming.errors import ArgumentTypeError, ArgumentValueError, StateMismatchError
from streaming.order import ORDER_VERSION

SETTINGS: Final = ("num_splits", "shuffle", "shuffle_seed", "shuffle_clump_size", "order_version", "filter")
DATA: Final = ("table_name", "table_version", "table_version_created_us", "selected_rows", "schema_fingerprint")
FIELDS: Final = SETTINGS + DATA
# Settings can always be built as the state says; data cannot.
ACCEPTABLE: Final = ("filter", *DATA)
# The last year that a calendar knows; a state may say any number.
_LAST_MOMENT: Final = 250_000_000_000_000_000


@dataclass(frozen=True)
class Identity:
    """The rows and their order (IDN-1, IDN-2). Field names are state keys."""

    num_splits: int
    shuffle: bool
    shuffle_seed: int | None
    shuffle_clump_size: int | None
    filter: str | None
    table_name: str
    table_version: int
    selected_rows: int
    schema_fingerprint: str
    table_version_created_us: int | None = None
    order_version: int = ORDER_VERSION


def check_accept(accept: object) -> AbstractSet[str]:
    """Return the fields in which a difference is accepted (IDN-11).

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        Not a list, tuple or set of strings; a field that cannot be accepted.
    """
    if not isinstance(accept, (list, tuple, AbstractSet)) or not all(isinstance(name, str) for name in accept):
        raise ArgumentTypeError(f"accept must be a list, tuple or set of field names, got {shown(accept)}", "accept")
    for name in accept:
        if name not in ACCEPTABLE:
            raise ArgumentValueError(
                f"accept may hold {', '.join(ACCEPTABLE)}, got {shown(name)}: build the dataset as the state says", "accept"
            )
    return frozenset(accept)


def settings_fit(saved: Identity, own: Identity, accepted: Collection[str] = ()) -> bool:
    """Whether no setting speaks against re-opening the recorded version (IDN-6, IDN-7)."""
    return all(name in accepted for name in _unequal(SETTINGS, saved, own))


def differences(saved: Identity, own: Identity, accepted: Collection[str] = (), *, version_given: bool = False) -> list[str]:
    """Return the fields in which a state and a dataset differ, in the sequence of IDN-1 and IDN-2, accepted ones included (IDN-8, IDN-9).

    Parameters
    ----------
    saved, own : Identity
        Of the state; of the dataset, on the recorded version if that could be re-opened (IDN-7).
    accepted : collection of str
        Fields in which a difference is accepted.
    version_given : bool
        Whether the dataset's version was asked for.
    """
    names = _unequal(SETTINGS, saved, own)
    if saved.table_version == own.table_version:
        moment = saved.table_version_created_us
        same_version = moment is not None and moment == own.table_version_created_us
        if not same_version:
            names += [*_unequal(["table_name"], saved, own), "table_version_created_us"]
        names += _unequal(["selected_rows", "schema_fingerprint"], saved, own)
    elif "table_version" in accepted:
        names += _unequal(["table_name", "table_version", "selected_rows", "schema_fingerprint"], saved, own)
    elif version_given:
        names.append("table_version")
    return names


def refuse(names: Sequence[str], saved: Identity, own: Identity, whose: str = "dataset", columns: str = "") -> None:
    """Refuse a state that differs in these fields, if any (IDN-9, MRG-1); `columns` says how the schemas differ.

    Raises
    ------
    StateMismatchError
        `fields` are the names.
    """
    if names:
        remedies = dict.fromkeys(map(_remedy, names)) if whose == "dataset" else ["merge the states of one run"]
        raise StateMismatchError(
            f"the state belongs to other data or settings ({details(names, saved, own, whose, columns)}); {'; '.join(remedies)}", names
        )


def _remedy(name: str) -> str:
    if name in SETTINGS:
        return "build the dataset with the state's values"
    if name == "table_version":
        return "open the recorded version, or leave `version` out"
    if name == "selected_rows":
        return "open the table and version that the run read, and select the same rows"
    return "open the table that the run read; a difference that is known to be harmless can be passed in `accept`"


def details(names: Iterable[str], saved: Identity, own: Identity, whose: str = "dataset", columns: str = "") -> str:
    """Both values of each field, for a message."""
    return "; ".join([*(f"{name}: state {_said(name, saved)}, {whose} {_said(name, own)}" for name in names), *([columns] * bool(columns))])


def _said(name: str, identity: Identity) -> str:
    value = getattr(identity, name)
    if name != "table_version_created_us" or value is None:
        return shown(value)
    moment = datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=min(value, _LAST_MOMENT))
    return f"{value} ({moment:%Y-%m-%d %H:%M:%S.%f} UTC)"


def _unequal(names: Iterable[str], one: Any, other: Any) -> list[str]:
    return [name for name in names if getattr(one, name) != getattr(other, name)]

"""What a state is bound to, and what fits it (chapter identity).

``fit`` says on which version of its table a dataset stands when it resumes from a state, or why it must not. What only a log would
tell (a moved table, a re-opened version, an accepted difference) is no business of the model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from model.errors import ModelError
from model.tables import Version

# IDN-1: what decides the order.
SETTINGS = ("num_splits", "shuffle", "shuffle_seed", "shuffle_clump_size", "order_version", "filter")

# IDN-2: what it is an order of.
DATA = ("table_name", "table_version", "table_version_created_us", "selected_rows", "schema_fingerprint")

# IDN-11: a difference that somebody may accept.
ACCEPTABLE = (*DATA, "filter")


def check_accept(accept: object) -> frozenset[str]:
    """The names of an ``accept`` argument; types are judged before values (IDN-11)."""
    if not isinstance(accept, (list, tuple, set, frozenset)) or not all(isinstance(name, str) for name in accept):
        raise ModelError("argument.type", "accept is no list, tuple or set of strings")
    for name in accept:
        if name not in ACCEPTABLE:
            raise ModelError("argument.value", f"accept: {name}")
    return frozenset(accept)


def differing_settings(state: Mapping[str, Any], own: Mapping[str, Any], seed_drawn: bool) -> list[str]:
    """The fields of IDN-1 that differ, in sequence (IDN-6)."""
    # Only a shuffled state has a seed that a drawn one gives way to.
    adopts = seed_drawn and state["shuffle"]
    return [name for name in SETTINGS if state[name] != own[name] and not (adopts and name == "shuffle_seed")]


def differing_data(state: Mapping[str, Any], table_name: str, standing: Version) -> list[str]:
    """The fields of IDN-2 that differ from a version, in sequence (IDN-8).

    The version has another number than the recorded one only where ``table_version`` is accepted: then the moments are not compared
    (IDN-11). They belong to different versions and are not equal, so the name is compared.
    """
    same_number = state["table_version"] == standing.number
    # None equals nothing, not even None: where nobody can tell the moment, nobody can tell that it is the same table.
    same_moment = same_number and standing.created_us is not None and state["table_version_created_us"] == standing.created_us
    differs = {
        "table_name": not same_moment and state["table_name"] != table_name,
        "table_version": not same_number,
        "table_version_created_us": same_number and not same_moment,
        "selected_rows": state["selected_rows"] != standing.rows,
        "schema_fingerprint": state["schema_fingerprint"] != standing.fingerprint,
    }
    return [name for name in DATA if differs[name]]


def has_place(state: Mapping[str, Any], num_splits: int, rows: int) -> bool:
    """Whether the place of a state exists in that many rows (IDN-11)."""
    cycle = state["samples_consumed_per_split"][0]
    last = rows // num_splits
    if len(state["partial_cycle_splits"]) > 0:
        return bool(cycle < last)
    return bool(cycle <= last)


def differing(
    state: Mapping[str, Any],
    own: Mapping[str, Any],
    standing: Version,
    *,
    seed_drawn: bool = False,
    accept: Collection[str] = (),
) -> tuple[str, ...]:
    """The fields, in sequence, for which a state is refused on a version that the dataset stands on (IDN-6, IDN-8, IDN-9, IDN-11).

    Parameters
    ----------
    state : Mapping
        A well formed state.
    own : Mapping
        The dataset's own values of ``SETTINGS``, and its ``table_name``.
    standing : Version
        The recorded version; another one only where ``table_version`` is accepted.
    seed_drawn : bool
        Whether the dataset's seed was drawn, not given.
    accept : collection of str
        The differences that are no refusal.
    """
    names = [*differing_settings(state, own, seed_drawn), *differing_data(state, own["table_name"], standing)]
    refused = []
    for name in names:
        # Rows that do not have the place cannot be accepted: there is no cursor to stand at.
        hopeless = name == "selected_rows" and not has_place(state, own["num_splits"], standing.rows)
        if name not in accept or hopeless:
            refused.append(name)
    return tuple(refused)


def fit(
    state: Mapping[str, Any],
    own: Mapping[str, Any],
    pinned: Version,
    versions: Mapping[int, Version],
    *,
    version_given: bool = False,
    seed_drawn: bool = False,
    accept: object = (),
) -> Version:
    """The version on which a dataset stands when it resumes from a state (IDN-6 to IDN-9, IDN-11).

    Parameters
    ----------
    state : Mapping
        A well formed state.
    own : Mapping
        The dataset's own values of ``SETTINGS``, and its ``table_name``.
    pinned : Version
        The version that the dataset stands on now.
    versions : Mapping
        The versions of its table that can be opened, by number. The pinned one need not be among them.
    version_given : bool
        Whether ``version`` was an argument of the dataset.
    seed_drawn : bool
        Whether the dataset's seed was drawn, not given.
    accept : list, tuple or set of str
        The differences that are no refusal.

    Raises
    ------
    ModelError
        ``argument.type``, ``argument.value``, ``data.version``, or ``state.mismatch``, whose ``fields`` are in the sequence of IDN-9.
    """
    accepted = check_accept(accept)
    recorded = state["table_version"]
    if recorded != pinned.number and "table_version" not in accepted:
        # Nothing can be said of the data: the recorded version is not open (IDN-9).
        settings = [name for name in differing_settings(state, own, seed_drawn) if name not in accepted]
        if version_given:
            raise ModelError("state.mismatch", fields=(*settings, "table_version"))
        if len(settings) > 0:
            raise ModelError("state.mismatch", fields=tuple(settings))
        if recorded not in versions:
            raise ModelError("data.version", f"version {recorded}")
        standing = versions[recorded]
    else:
        standing = pinned
    fields = differing(state, own, standing, seed_drawn=seed_drawn, accept=accepted)
    if len(fields) > 0:
        raise ModelError("state.mismatch", fields=fields)
    return standing

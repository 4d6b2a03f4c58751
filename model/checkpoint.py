"""States, what makes them valid, resuming and merging (chapter checkpoint): pure functions on plain dicts.

What a state is bound to and what fits it is the subject of ``model.identity``. The model accepts plain Python values only; that
NumPy integers, tensors and other sequences stand for ints and lists (CKP-6) is the business of production.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from model.cycle import Cursor
from model.errors import ModelError
from model.identity import DATA, SETTINGS

SCHEMA_VERSION = 1
LIMIT = 2**63

# IDN-1, IDN-2: which order, and of what.
IDENTITY = (*SETTINGS, *DATA)

# MRG-1: what may differ between the states of one run.
PLACE = ("epoch", "samples_consumed_per_split", "partial_cycle_splits")

# What a state says. Its digest says nothing beyond that.
SAID = ("schema_version", *IDENTITY, "world_size", *PLACE)

# CKP-1: exactly these keys.
KEYS = (*SAID, "digest")


# --- digest -------------------------------------------------------------------------------------------------------------------------


def digest(state: Mapping[str, Any]) -> str:
    """The digest of all other keys of a state (CKP-8), right or not: whatever can be written as JSON has one."""
    said = {key: value for key, value in state.items() if key != "digest"}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def sign(state: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a state with the right digest (CKP-8). It shares its lists with the argument."""
    return {**state, "digest": digest(state)}


# --- validity -----------------------------------------------------------------------------------------------------------------------


def is_int(value: object) -> bool:
    """Whether a value is an int that fits; bool is not, 3.0 is not (CKP-6)."""
    return isinstance(value, int) and not isinstance(value, bool) and value < LIMIT


def is_int_list(value: object) -> bool:
    """Whether a value is a list (or tuple) of ints (CKP-6)."""
    return isinstance(value, (list, tuple)) and all(is_int(item) for item in value)


def need(condition: bool, message: str) -> None:
    """Refuse as malformed unless the condition holds (CKP-6)."""
    if not condition:
        raise ModelError("state.malformed", message)


def check_form(state: object) -> dict[str, Any]:
    """Refuse what is not a well formed state; the sequence is that of CKP-7 (CKP-5, CKP-6).

    Returns
    -------
    dict
        A copy that shares no list with the argument (RES-5).
    """
    if not isinstance(state, Mapping) or len(state) == 0:
        raise ModelError("state.malformed", "not a mapping, or an empty one")
    # The version comes before everything else: another version may have other keys. A version that is no int is a matter of form.
    version = state.get("schema_version")
    if isinstance(version, int) and not isinstance(version, bool) and version != SCHEMA_VERSION:
        raise ModelError("state.schema_version")
    need(set(state) == set(KEYS), "other keys than CKP-1")
    check_types(state)
    check_ranges(state)
    check_place(state)
    copy = {key: state[key] for key in KEYS}
    copy["samples_consumed_per_split"] = list(state["samples_consumed_per_split"])
    copy["partial_cycle_splits"] = list(state["partial_cycle_splits"])
    # Last, so that what the digest is taken of is a state.
    need(copy["digest"] == digest(copy), "put together from several states, or edited: digest")
    return copy


def check_types(state: Mapping[str, Any]) -> None:
    """Every value has its type (CKP-6)."""
    for key in ("schema_version", "num_splits", "order_version", "epoch", "world_size", "table_version", "selected_rows"):
        need(is_int(state[key]), f"{key} is no int")
    for key in ("shuffle_seed", "shuffle_clump_size", "table_version_created_us"):
        need(state[key] is None or is_int(state[key]), f"{key} is neither an int nor None")
    need(isinstance(state["shuffle"], bool), "shuffle is no bool")
    for key in ("table_name", "schema_fingerprint", "digest"):
        need(isinstance(state[key], str), f"{key} is no string")
    need(
        state["filter"] is None or (isinstance(state["filter"], str) and state["filter"] != ""),
        "filter is neither a non-empty string nor None",
    )
    for key in ("samples_consumed_per_split", "partial_cycle_splits"):
        need(is_int_list(state[key]), f"{key} is no list of ints")


def check_ranges(state: Mapping[str, Any]) -> None:
    """Every value but the place has its range (CKP-6)."""
    need(state["num_splits"] >= 1, "num_splits")
    need(state["selected_rows"] >= state["num_splits"], "selected_rows")
    need(state["world_size"] >= 1, "world_size")
    need(state["num_splits"] % state["world_size"] == 0, "world_size does not divide num_splits")
    need(0 <= state["epoch"] < LIMIT, "epoch")
    seed = state["shuffle_seed"]
    need(seed is None or 0 <= seed < LIMIT, "shuffle_seed")
    need(seed is not None or not state["shuffle"], "shuffle without shuffle_seed")
    clump = state["shuffle_clump_size"]
    need(clump is None or (state["shuffle"] and clump >= 1), "shuffle_clump_size")
    need(state["table_version"] >= 1, "table_version")
    need(state["table_version_created_us"] is None or state["table_version_created_us"] >= 0, "table_version_created_us")
    need(state["order_version"] >= 1, "order_version")
    need(len(state["schema_fingerprint"]) == 64 and set(state["schema_fingerprint"]) <= set("0123456789abcdef"), "schema_fingerprint")


def check_place(state: Mapping[str, Any]) -> None:
    """``samples_consumed_per_split`` and ``partial_cycle_splits`` are a place that all ranks can share (CKP-6)."""
    num_splits = state["num_splits"]
    consumed = state["samples_consumed_per_split"]
    need(len(consumed) == num_splits, "not one count per split")
    cycle = consumed[0]
    need(all(count == cycle for count in consumed), "uneven counts")
    last = state["selected_rows"] // num_splits
    need(0 <= cycle <= last, "more cycles than the epoch has, or fewer than none")

    partial = state["partial_cycle_splits"]
    need(all(0 <= split < num_splits for split in partial), "a split that does not exist")
    need(all(low < high for low, high in itertools.pairwise(partial)), "not strictly ascending")
    need(len(partial) < num_splits, "a partial cycle that is complete")
    need(cycle < last or len(partial) == 0, "a partial cycle after the last one")
    block = num_splits // state["world_size"]
    per_rank = [0] * state["world_size"]
    for split in partial:
        per_rank[split // block] += 1
    need(all(count == per_rank[0] for count in per_rank), "ranks at different steps")


# --- saving and loading -------------------------------------------------------------------------------------------------------------


def save(identity: Mapping[str, Any], cursor: Cursor, world_size: int) -> dict[str, Any]:
    """The state of a cursor (CKP-1, CKP-2, CKP-8)."""
    state = {key: identity[key] for key in IDENTITY}
    state["schema_version"] = SCHEMA_VERSION
    state["world_size"] = world_size
    state["epoch"] = cursor.epoch
    state["samples_consumed_per_split"] = [cursor.cycle] * identity["num_splits"]
    state["partial_cycle_splits"] = list(cursor.served)
    return sign(state)


def floor(state: Mapping[str, Any]) -> dict[str, Any]:
    """The completed cycles of a state only (CKP-4)."""
    copy = check_form(state)
    copy["partial_cycle_splits"] = []
    return sign(copy)


def even(served: Sequence[int], num_splits: int, world_size: int) -> bool:
    """Whether every rank of a world owns equally many of these splits, hence equally many unserved ones (RES-4)."""
    block = num_splits // world_size
    per_rank = [len([split for split in served if split // block == rank]) for rank in range(world_size)]
    return all(count == per_rank[0] for count in per_rank)


def load(state: Mapping[str, Any], world_size: int, partial_cycle: str) -> Cursor:
    """The cursor of a resume (RES-3, RES-4, RES-7), the last of the checks of CKP-7.

    Parameters
    ----------
    state : Mapping
        A well formed state that fits; it is neither changed nor kept.
    world_size : int
        R of the world that resumes.
    partial_cycle : str
        ``"replay"`` (RES-3) or ``"exact"`` (RES-4).
    """
    cycle = state["samples_consumed_per_split"][0]
    served = tuple(state["partial_cycle_splits"])
    if partial_cycle == "replay":
        return Cursor(state["epoch"], cycle, ())
    if not even(served, state["num_splits"], world_size):
        raise ModelError("state.partial_cycle", "the new ranks own unequally many unserved splits")
    return Cursor(state["epoch"], cycle, served)


# --- merging ------------------------------------------------------------------------------------------------------------------------


def place(state: Mapping[str, Any]) -> tuple[int, int]:
    """``(epoch, C)``, by which states of one run are compared (MRG-2)."""
    return state["epoch"], state["samples_consumed_per_split"][0]


def check_skew(skew: object) -> None:
    """Refuse another ``skew`` than those of MRG-2."""
    if not isinstance(skew, str):
        raise ModelError("argument.type", "skew")
    if skew not in ("refuse", "replay"):
        raise ModelError("argument.value", "skew")


def merge(states: Sequence[object], skew: str = "refuse") -> dict[str, Any]:
    """One state from the states of all ranks of a run (MRG-1, MRG-2).

    Here None equals None: IDN-8 is about a state and a table, this about states among themselves.

    Parameters
    ----------
    states : sequence
        One state per rank of the saving run, in any sequence.
    skew : str
        What to do with ranks at different places: ``"refuse"``, or ``"replay"`` from the smallest.
    """
    check_skew(skew)
    if len(states) == 0:
        raise ModelError("merge.count", "no states")
    # The number can be compared only with a world size that is one, so form comes first.
    copies = [check_form(state) for state in states]
    if any(copy["world_size"] != len(copies) for copy in copies):
        raise ModelError("merge.count", f"{len(copies)} states")
    first = copies[0]
    # Not the digest, which differs wherever the place does.
    differing = [key for key in SAID if key not in PLACE and any(copy[key] != first[key] for copy in copies)]
    if differing:
        raise ModelError("state.mismatch", fields=tuple(differing))
    if all(copy == first for copy in copies):
        return first
    if skew == "refuse":
        raise ModelError("merge.skew", "ranks at different places")
    return floor(min(copies, key=place))

"""States: what they say, which ones are valid, how they merge (spec/checkpoint.md).

Pure functions over plain dicts; nothing here knows tables, torch or iterators.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, TypeVar

from streaming import identity as identities
from streaming.arguments import MAX_INT64, choice, shown
from streaming.cycle import Cursor
from streaming.errors import (
    MalformedStateError,
    MergeCountError,
    MergeSkewError,
    PartialCycleError,
    SchemaVersionError,
)
from streaming.identity import Identity

State = dict[str, Any]

SCHEMA_VERSION: Final = 1
_PLACE: Final = ("epoch", "samples_consumed_per_split", "partial_cycle_splits")


@dataclass(frozen=True)
class Saved:
    """A state that was found well formed."""

    identity: Identity
    world_size: int
    cursor: Cursor


def encode(identity: Identity, world_size: int, cursor: Cursor) -> State:
    """Build the state of a cursor, a new dict each time (CKP-1, CKP-2)."""
    state = {
        "schema_version": SCHEMA_VERSION,
        **vars(identity),
        "world_size": world_size,
        "epoch": cursor.epoch,
        "samples_consumed_per_split": [],
        "partial_cycle_splits": [],
    }
    # What JSON says of lists of thousands of numbers, but faster. No string of the state can hold the text that is replaced: its quotes
    # would be escaped.
    numerals = _numerals(identity.num_splits)
    text = _canonical(state)
    for key, words in (
        ("samples_consumed_per_split", [str(cursor.cycle)] * identity.num_splits),
        ("partial_cycle_splits", [numerals[split] for split in cursor.served]),
    ):
        text = text.replace(f'"{key}":[]', f'"{key}":[{",".join(words)}]', 1)
    state["samples_consumed_per_split"] = [cursor.cycle] * identity.num_splits
    state["partial_cycle_splits"] = list(cursor.served)
    return {**state, "digest": _digest(text)}


@lru_cache(maxsize=4)
def _numerals(splits: int) -> list[str]:
    return [str(split) for split in range(splits)]


def _canonical(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def signed(state: Mapping[str, Any]) -> State:
    """Copy a state, with the digest that belongs to its values (CKP-8)."""
    unsigned = {key: value for key, value in state.items() if key != "digest"}
    return {**unsigned, "digest": _digest(_canonical(unsigned))}


def decode(state: object) -> Saved:
    """Check form and read a state (CKP-6, CKP-7); the argument is neither changed nor kept.

    Raises
    ------
    MalformedStateError
        No run can have saved it; the message names the key.
    SchemaVersionError
        Another schema version wrote it.
    """
    if not isinstance(state, Mapping):
        raise MalformedStateError(f"a state is the dict that state_dict() returned, got {type(state).__name__}")
    if not state:
        raise MalformedStateError("the state is empty: was it saved?")
    if "schema_version" not in state:
        raise MalformedStateError(
            f"this is no state, it has the keys {sorted(map(str, state))[:8]}: pass what state_dict() returned, not what it lies in"
        )
    try:
        plain = {key: _plain(value) for key, value in state.items()}
    except RecursionError as error:
        raise MalformedStateError("the state contains itself") from error
    except Exception as error:  # tensors without values, sequences that fail: whatever stands in the place of a number
        raise MalformedStateError(f"the state holds something that cannot be read: {shown(error)}") from error
    version = plain.get("schema_version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise MalformedStateError(f"schema_version must be an int, got {shown(version)}")
    if version != SCHEMA_VERSION:
        raise SchemaVersionError(
            f"schema_version {shown(version)} is not {SCHEMA_VERSION}, the one this release reads: use the release that wrote it"
        )
    _same_keys(plain)
    identity = _identity(plain)
    epoch = _integer("epoch", plain["epoch"], 0)
    world_size = _integer("world_size", plain["world_size"], 1)
    if identity.num_splits % world_size:
        raise MalformedStateError(f"world_size {world_size} does not divide num_splits {identity.num_splits}")
    saved = Saved(identity, world_size, _cursor(plain, identity, world_size, epoch))
    if plain["digest"] != signed(plain)["digest"]:
        raise MalformedStateError(
            "digest is not that of these values: the state was edited, damaged, or put together from the states of ranks at different "
            "steps, as torch.distributed.checkpoint does; gather_state_dict() and check_ranks() see such ranks"
        )
    return saved


def check_exact(saved: Saved, world_size: int) -> None:
    """Refuse a partial cycle that leaves the new ranks unequally many splits (RES-4).

    Raises
    ------
    PartialCycleError
        Exact is not possible on this world size.
    """
    served, splits = saved.cursor.served, saved.identity.num_splits
    if len(set(_per_block(served, splits, world_size))) > 1:
        even = [r for r in range(1, splits + 1) if splits % r == 0 and len(set(_per_block(served, splits, r))) == 1]
        raise PartialCycleError(
            f'partial_cycle="exact" cannot finish the partial cycle on world_size={world_size}: with splits {shown(list(served))} done, '
            f'the ranks would have unequally many splits left. Use partial_cycle="replay", or one of the world sizes {shown(even)}'
        )


def merge_state_dicts(states: Iterable[Mapping[str, Any]], *, skew: str = "refuse") -> State:
    """Merge the states of all ranks of one run into one that serves every rank (MRG-1, MRG-2).

    Parameters
    ----------
    states : iterable of dict
        One state per rank of the saving run, in any order.
    skew : {"refuse", "replay"}
        What to do with ranks saved at different steps: refuse, or take the smallest completed cycle, from which
        nothing is lost.

    Returns
    -------
    dict
        A new state.

    Raises
    ------
    MergeCountError, MergeSkewError, StateMismatchError, MalformedStateError, SchemaVersionError
        The states are not one consistent set.

    Examples
    --------
    >>> merge_state_dicts([])
    Traceback (most recent call last):
    ...
    streaming.errors.MergeCountError: no states to merge: pass one state per rank of the saving run
    """
    choice("skew", skew, ("refuse", "replay"))
    if isinstance(states, Mapping) or not isinstance(states, Iterable):
        raise MalformedStateError(f"pass a list of states, one per rank of the saving run, not a {type(states).__name__}")
    saved = [decode(state) for state in states]
    if not saved:
        raise MergeCountError("no states to merge: pass one state per rank of the saving run")
    first = saved[0]
    if any(one.world_size != len(saved) for one in saved):
        sizes = sorted({one.world_size for one in saved})
        raise MergeCountError(
            f"{len(saved)} states given, saved with world_size {' and '.join(map(str, sizes))}: pass one state per rank of the saving run"
        )
    # Of each field the first value that is another one.
    differing: dict[str, Any] = {}
    for other in saved[1:]:
        names = [name for name in identities.FIELDS if getattr(other.identity, name) != getattr(first.identity, name)]
        differing = {**{name: getattr(other.identity, name) for name in names}, **differing}
    names = [name for name in identities.FIELDS if name in differing]
    identities.refuse(names, replace(first.identity, **differing), first.identity, whose="the first state")
    if all(other.cursor == first.cursor for other in saved):
        return encode(first.identity, first.world_size, first.cursor)
    if skew == "refuse":
        places = sorted({(s.cursor.epoch, s.cursor.cycle, len(s.cursor.served)) for s in saved})
        raise MergeSkewError(
            f"the ranks were saved at different steps, (epoch, cycles, splits of the next cycle) = {places}: "
            'save all ranks at one step, or pass skew="replay" to go back to the smallest completed cycle'
        )
    epoch, cycle = min((s.cursor.epoch, s.cursor.cycle) for s in saved)
    return encode(first.identity, first.world_size, Cursor(epoch, cycle))


def _plain(value: Any) -> Any:
    """Python values for NumPy and torch ones, and lists for other sequences (CKP-6)."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        return [_plain(item) for item in value]
    return value


def _same_keys(plain: Mapping[Any, Any]) -> None:
    expected = {"schema_version", "world_size", "digest", *_PLACE, *identities.FIELDS}
    missing, unknown = sorted(expected - plain.keys()), sorted(map(str, plain.keys() - expected))
    if missing or unknown:
        lacking = [f"lacks the keys {missing}"] * bool(missing) + [f"has the unknown keys {unknown}; keep own values beside it"] * bool(
            unknown
        )
        raise MalformedStateError(f"the state {' and '.join(lacking)}")


def _identity(plain: Mapping[str, Any]) -> Identity:
    shuffle = _typed("shuffle", plain["shuffle"], bool)
    seed, clump, predicate = plain["shuffle_seed"], plain["shuffle_clump_size"], plain["filter"]
    created = plain["table_version_created_us"]
    identity = Identity(
        num_splits=_integer("num_splits", plain["num_splits"], 1),
        shuffle=shuffle,
        shuffle_seed=None if seed is None and not shuffle else _integer("shuffle_seed", seed, 0),
        shuffle_clump_size=None if clump is None else _integer("shuffle_clump_size", clump, 1),
        filter=None if predicate is None else _text("filter", predicate, ".+"),
        table_name=_typed("table_name", plain["table_name"], str),
        table_version=_integer("table_version", plain["table_version"], 1),
        table_version_created_us=None if created is None else _integer("table_version_created_us", created, 0),
        selected_rows=_integer("selected_rows", plain["selected_rows"], 1),
        schema_fingerprint=_text("schema_fingerprint", plain["schema_fingerprint"], "[0-9a-f]{64}"),
        order_version=_integer("order_version", plain["order_version"], 1),
    )
    if clump is not None and not shuffle:
        raise MalformedStateError(f"shuffle_clump_size is {clump} without shuffle")
    if identity.selected_rows < identity.num_splits:
        raise MalformedStateError(f"selected_rows {identity.selected_rows} is less than num_splits {identity.num_splits}")
    return identity


def _cursor(plain: Mapping[str, Any], identity: Identity, world_size: int, epoch: int) -> Cursor:
    splits, length = identity.num_splits, identity.selected_rows // identity.num_splits
    counts = _integers("samples_consumed_per_split", plain, length)
    if len(counts) != splits or len(set(counts)) != 1:
        raise MalformedStateError(
            f"samples_consumed_per_split must be {splits} equal integers, got {len(counts)}, {sorted(set(counts))[:5]} among them"
        )
    served = _integers("partial_cycle_splits", plain, splits - 1)
    if any(a >= b for a, b in pairwise(served)):
        raise MalformedStateError("partial_cycle_splits must be strictly ascending")
    if len(served) == splits or (served and counts[0] == length):
        raise MalformedStateError("partial_cycle_splits holds a whole cycle, or one behind the end of the epoch")
    if len(set(_per_block(served, splits, world_size))) > 1:
        raise MalformedStateError(f"partial_cycle_splits must hold equally many splits of each of the {world_size} saving ranks")
    return Cursor(epoch, counts[0], tuple(served))


def _per_block(served: Iterable[int], num_splits: int, world_size: int) -> list[int]:
    """How many of the splits lie in each rank's block."""
    counts = [0] * world_size
    for split in served:
        counts[split // (num_splits // world_size)] += 1
    return counts


def _integer(key: str, value: object, low: int, high: int = MAX_INT64) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedStateError(f"{key} must be an int, got {shown(value)}")
    if not low <= value <= high:
        raise MalformedStateError(f"{key} must lie in [{low}, {high}], got {shown(value)}")
    return int(value)  # of an enumeration, for instance


def _integers(key: str, plain: Mapping[str, Any], high: int) -> list[int]:
    return [_integer(key, item, 0, high) for item in _typed(key, plain[key], list)]


def _text(key: str, value: object, pattern: str) -> str:
    text = _typed(key, value, str)
    if not re.fullmatch(pattern, text, re.DOTALL):
        raise MalformedStateError(f"{key} must match {pattern}, got {shown(text)}")
    return text


_T = TypeVar("_T")


def _typed(key: str, value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise MalformedStateError(f"{key} must be of type {kind.__name__}, got {shown(value)}")
    return value

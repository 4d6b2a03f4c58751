"""Checks of constructor arguments (spec/arguments.md): typed errors that name the argument and its legal range."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from streaming.errors import ArgumentTypeError, ArgumentValueError, FilterError

MAX_INT64: Final = 2**63 - 1


_LONGEST: Final = 100
_LONGEST_WORDS: Final = 300  # of the engine


def shown(value: object) -> str:
    """A value for a message: its text, not too much of it, and never an error of its own."""
    try:
        text = repr(value)
    except Exception:  # an int of too many digits, an object whose repr fails
        return f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]}.."


def brief(error: Exception) -> str:
    """What the engine says, without the places in its sources and not too much of it."""
    words = re.split(r",? ?(?:/\S*)?\.rs:\d+", str(error))[0].split(", /")[0]
    text = " ".join(words.split()) or type(error).__name__
    return text if len(text) <= _LONGEST_WORDS else f"{text[: _LONGEST_WORDS - 2]}.."


def integer(name: str, value: object, low: int, high: int = MAX_INT64) -> int:
    """Return a Python or NumPy integer as int, in ``[low, high]``; bool is never an integer (ARG-1)."""
    legal = f"an int in [{low}, {high}]" if high != MAX_INT64 else f"an int >= {low} and < 2**63"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ArgumentTypeError(f"{name} must be {legal}, got {shown(value)} of type {type(value).__name__}", name)
    number = int(value)
    if not low <= number <= high:
        raise ArgumentValueError(f"{name} must be {legal}, got {shown(number)}", name)
    return number


def boolean(name: str, value: object) -> bool:
    """Return a bool; ints and None are refused rather than guessed at (ARG-1)."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(f"{name} must be True or False, got {shown(value)} of type {type(value).__name__}", name)
    return bool(value)


def choice(name: str, value: object, legal: Sequence[str]) -> str:
    """Return one of the legal words (ARG-1)."""
    words = " or ".join(repr(word) for word in legal)
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} must be {words}, got {shown(value)} of type {type(value).__name__}", name)
    if value not in legal:
        raise ArgumentValueError(f"{name} must be {words}, got {shown(value)}", name)
    return value


def predicate(name: str, value: object) -> str | None:
    """Return a non-empty SQL predicate, or None (ARG-10); the engine judges its grammar later."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} must be an SQL predicate (str) or None, got {type(value).__name__}", name)
    if not value.strip():
        raise ArgumentValueError(f"{name} must be a non-empty SQL predicate; pass None to select all rows", name)
    bare = _QUOTED.sub("", value)
    depths = accumulate({"(": 1, ")": -1}.get(character, 0) for character in bare)
    if min(depths, default=0) < 0:
        raise FilterError(f"{name} {shown(value)} closes a parenthesis that it did not open", name)
    volatile = _VOLATILE.search(bare)
    if volatile:
        raise FilterError(
            f"{name} must select the same rows on every rank and at every resume: write a value for {volatile[0].strip('( ')}",
            name,
        )
    return value


_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_VOLATILE: Final = re.compile(
    r"\b(random|rand|uuid|now|today|current_date|current_time|current_timestamp)\b\s*\(|\bcurrent_(date|time|timestamp)\b", re.I
)


def seed(name: str, value: object, shuffle: bool, world_size: int) -> int | None:
    """Return a seed, drawn where None was given and one rank shuffles; None without shuffle if not given (ARG-5)."""
    if value is not None:
        return integer(name, value, 0)
    if not shuffle:
        return None
    if world_size > 1:
        raise ArgumentValueError(f"{name} must be given with world_size={world_size}: each rank would draw another one", name)
    return secrets.randbelow(MAX_INT64 + 1)


def clump(name: str, value: object, shuffle: bool) -> int | None:
    """Return a clump size, or None; without shuffle it would have no meaning (ARG-11)."""
    if value is None:
        return None
    size = integer(name, value, 1)
    if not shuffle:
        raise ArgumentValueError(f"{name} only has a meaning with shuffle=True; pass None", name)
    return size


def function(name: str, value: object) -> None:
    """Refuse what is neither None nor callable (ARG-12)."""
    if value is not None and not callable(value):
        raise ArgumentTypeError(f"{name} must be callable or None, got {type(value).__name__}", name)


def column_names(name: str, value: object) -> list[str] | None:
    """Return a list of distinct names, or None (ARG-9)."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not all(isinstance(column, str) for column in value):
        raise ArgumentTypeError(f"{name} must be a list of column names or None, got {shown(value)}", name)
    columns = list(value)
    if not columns:
        raise ArgumentValueError(f"{name} must name at least one column; pass None for all", name)
    if len(set(columns)) < len(columns):
        raise ArgumentValueError(f"{name} must be distinct names, got {columns!r}", name)
    return columns

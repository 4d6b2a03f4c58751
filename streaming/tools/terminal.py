"""Text for people: aligned, at most 100 columns, and printable on every terminal."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable
from typing import Final

COLUMNS: Final = 100
_LABEL: Final = 12
_BLOCKS: Final = ("█", "░")
_ASCII_BLOCKS: Final = ("#", ".")


def emit(text: str) -> None:
    """Print to standard output, escaping what its encoding lacks; a reader that has gone (``| head``) is no error."""
    encoding = _encoding()
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        # So that the interpreter's own last flush does not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def plain(value: object) -> str:
    """Text of somebody else's making, with control characters escaped."""
    text = str(value)
    return text if text.isprintable() else repr(text)[1:-1]


def aligned(entries: Iterable[tuple[str, str]], most_lines: int = 3) -> list[str]:
    """Lines of labelled entries, wrapped behind their labels; one that needs more than so many lines is cut."""
    lines = []
    for label, text in entries:
        wrapped = textwrap.wrap(text, COLUMNS - _LABEL, max_lines=most_lines, placeholder=" ...", break_on_hyphens=False)
        lines += [f"{label if i == 0 else '':{_LABEL}}{line}" for i, line in enumerate(wrapped)]
    return lines


def filled(text: str) -> str:
    """The same lines, none too long."""
    return "\n".join(textwrap.fill(line, COLUMNS) for line in text.splitlines())


def bar(part: int, whole: int, width: int = 50) -> str:
    """A bar and a percentage, both rounded down, so that only the whole looks whole."""
    full, empty = _BLOCKS
    try:
        f"{full}{empty}".encode(_encoding())
    except UnicodeEncodeError:
        full, empty = _ASCII_BLOCKS
    filled, tenths = part * width // whole, part * 1000 // whole
    return f"{full * filled}{empty * (width - filled)} {tenths // 10}.{tenths % 10} %"


def counted(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(numbers: list[int]) -> str:
    """``1, 2 or 4``."""
    words = [str(number) for number in numbers]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _encoding() -> str:
    # None where standard output is something that a program put in its place.
    return sys.stdout.encoding or "ascii"

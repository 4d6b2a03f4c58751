"""Whether a state fits a table, as a load judges it (TOL-4)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from streaming import checkpoint
from streaming.checkpoint import Saved
from streaming.errors import StreamingError
from streaming.tools.statefile import UnreadableError
from streaming.tools.terminal import plain


@dataclass(frozen=True)
class Fit:
    """A verdict.

    Attributes
    ----------
    fits : bool
        Whether a dataset with the state's own settings loads it.
    reason : str or None
        The code of the error, where it does not.
    differing : tuple of str
        The fields that differ, where the error names some.
    message : str
        For people.
    """

    fits: bool
    reason: str | None
    differing: tuple[str, ...]
    message: str


def judge(saved: Saved, uri: str, name: str) -> Fit:
    """Load the state into a dataset that has the state's own settings, on this table (TOL-4, IDN-7 to IDN-9).

    Parameters
    ----------
    saved : Saved
        The state.
    uri, name : str
        Of the table.

    Raises
    ------
    UnreadableError
        There is no such table, or the engine cannot read it.
    """
    from streaming.dataset import StreamingDataset  # noqa: PLC0415  only this part of the tools needs the engine

    table = open_table(uri, name)
    own = saved.identity
    try:
        dataset = StreamingDataset(
            table,
            num_splits=own.num_splits,
            shuffle=own.shuffle,
            shuffle_seed=own.shuffle_seed,
            shuffle_clump_size=own.shuffle_clump_size,
            filter=own.filter,
            # As the only rank, whatever the environment of this process says.
            rank=0,
            world_size=1,
        )
        pinned = dataset.version
        dataset.load_state_dict(checkpoint.encode(own, saved.world_size, saved.cursor))
    except StreamingError as error:
        return Fit(False, error.code, tuple(getattr(error, "fields", ())), str(error))
    except Exception as error:  # whatever the engine raises on a damaged table, or one out of reach
        raise UnreadableError(f"table {plain(name)} at {plain(uri)} cannot be read: {_brief(error)}") from error
    later = "" if pinned == dataset.version else f", which is at version {pinned} now, at the recorded version {dataset.version}"
    return Fit(True, None, (), f"the state fits this table{later}")


def open_table(uri: str, name: str) -> Any:
    """Open a table that exists; the engine would make a directory of a mistyped path."""
    try:
        directory = _directory(uri)
        missing = directory is not None and not directory.is_dir()
    except (OSError, ValueError, RuntimeError) as error:  # a path that nothing can have, or a home directory that nobody has
        raise UnreadableError(f"{plain(uri)} cannot be read: {_brief(error)}") from error
    if missing:
        raise UnreadableError(f"there is no directory {plain(uri)}, so no table {plain(name)} in it")
    import lancedb  # noqa: PLC0415  takes a second to import, and starts threads

    try:
        return lancedb.connect(uri).open_table(name)
    except Exception as error:  # whatever the engine raises
        tables = [] if directory is None else sorted(plain(path.stem) for path in directory.glob("*.lance"))
        there = "" if directory is None else f"; the tables there: {', '.join(tables[:8]) or 'none'}"
        raise UnreadableError(f"table {plain(name)} at {plain(uri)} cannot be opened: {_brief(error)}{there}") from error


def _directory(uri: str) -> Path | None:
    """The directory that a URI stands for, by lancedb's rules; None: it is not a local one."""
    scheme = urlparse(uri).scheme
    if len(scheme) > 1 and scheme != "file":
        return None
    return Path(re.sub("^file:(//|(?=/))", "", uri)).expanduser()


def _brief(error: Exception) -> str:
    return plain(" ".join((str(error) or type(error).__name__).split())[:300])

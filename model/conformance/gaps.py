"""Known gaps: clauses that a loader is known to break, each with the implementer's reason. A gap that is none any more is an error."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from model.conformance.clauses import CLAUSES


class GapsError(ValueError):
    """The file cannot be used; the message is one line that says why."""


def read_gaps(path: str | Path) -> dict[str, str]:
    """Read a file of known gaps: TOML (from Python 3.11 on) by its name, else JSON; clause to reason.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    dict
        Clause to reason. Whether a gap is stale is known after the run: `Result.stale`.

    Raises
    ------
    GapsError
        The file cannot be read, is no mapping, names a clause that does not exist or one twice, or gives no reason.

    Examples
    --------
    A file ``gaps.toml``::

        CKP-6 = "states are pickles, see issue 7"
    """
    path = Path(path)
    try:
        written = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GapsError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        found = _toml(path, written) if path.suffix == ".toml" else json.loads(written, object_pairs_hook=_once)
    except GapsError as error:
        raise GapsError(f"{path}: {error}") from error
    except ValueError as error:
        raise GapsError(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise GapsError(f"{path}: must map clauses to reasons")
    for clause, reason in found.items():
        if clause not in CLAUSES:
            raise GapsError(f"{path}: there is no clause {clause!r}; `python -m model.conformance list` names all")
        if not isinstance(reason, str) or not reason.strip():
            raise GapsError(f"{path}: {clause} needs a reason, a text that is not empty")
    return found


def _toml(path: Path, written: str) -> Any:
    if sys.version_info < (3, 11):
        raise GapsError(f"TOML needs Python 3.11; write {path.stem}.json")
    import tomllib  # noqa: PLC0415  the standard library has it from 3.11 on

    return tomllib.loads(written)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON would let the last of two entries win."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise GapsError("names a clause twice")
    return found

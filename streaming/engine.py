"""What the engine raises while it reads, as errors that name the table, its version and the remedy (DLV-5, IDN-7)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from streaming.arguments import brief
from streaming.errors import ReadError, StreamingError, VersionError
from streaming.moment import microseconds

KEEP_VERSIONS: Final = (
    "Keep versions in use by a tag (table.tags.create(name, version)), and delete the tags of finished runs (table.tags.delete): "
    "optimize() refuses to clean up while an old version is tagged (IDN-7)."
)

_GOING_S: Final = 2.0
_PAUSE_S: Final = 0.1


@contextmanager
def reading(handle: Any, what: str, written_us: Callable[[], int | None]) -> Iterator[None]:
    """Tell a version that went away from one that cannot be read.

    Parameters
    ----------
    handle : lancedb.table.Table
        The pinned version.
    what : str
        What is read, for the message.
    written_us : callable
        When the version was written, None where that is not known; it is asked for behind a failure only, because it may take long.

    Raises
    ------
    VersionError
        The version is not there any more.
    ReadError
        It is still there, or that cannot be told. The cause is the engine's own error, here and there.
    """
    try:
        yield
    except (StreamingError, MemoryError):
        raise
    except Exception as error:  # whatever the engine raises
        refuse_if_gone(handle, what, written_us, error)
        raise ReadError(
            f"{what} of version {handle.version} of table {handle.name!r} failed: its files are damaged, or the storage does not answer. "
            f"The engine says: {brief(error)}. A new iterator tries again, from the last received row"
        ) from error


def refuse_if_gone(handle: Any, what: str, written_us: Callable[[], int | None], error: Exception) -> None:
    """Raise where the engine's error came because the version went away.

    Raises
    ------
    VersionError
        It did.
    """
    why = _gone(handle, written_us)
    # A table is dropped file by file: for a moment its data is missing, and its versions are still listed.
    deadline = time.monotonic() + _GOING_S
    while not why and "not found" in str(error).lower() and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        why = _gone(handle, written_us)
    if why:
        raise VersionError(
            f"{what} of version {handle.version} of table {handle.name!r} failed: {why}. {KEEP_VERSIONS} The engine says: {brief(error)}"
        ) from error


def _gone(handle: Any, written_us: Callable[[], int | None]) -> str:
    """What became of the version; empty where it is still listed, and where the engine does not tell."""
    try:
        listed = {int(entry["version"]): entry["timestamp"] for entry in handle.list_versions()}
        if not listed:
            return "the table was dropped, or its files were deleted"
        if int(handle.version) not in listed:
            return "the version was cleaned up"
        if written_us() not in (None, microseconds(listed[int(handle.version)])):
            return "the table was dropped, and another table made in its place"
    except Exception:  # it cannot be listed either: the storage may be out of reach
        return ""
    return ""

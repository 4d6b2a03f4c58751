"""Files that hold states: JSON or what torch.save wrote, a state alone or inside a checkpoint, or one state per rank (TOL-1)."""

from __future__ import annotations

import io
import json
import pickle
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streaming import checkpoint
from streaming.checkpoint import Saved
from streaming.errors import MergeSkewError, StreamingError
from streaming.tools.terminal import plain

_SEEN: Final = 8
_ZIP: Final = b"PK\x03\x04"
_PICKLE: Final = b"\x80"
_BLANK: Final = b"\xef\xbb\xbf \t\r\n"


class UnreadableError(Exception):
    """A file or table that cannot be read (TOL-2)."""


class NoStateError(Exception):
    """A file that was read and holds no valid state (TOL-2)."""


@dataclass(frozen=True)
class Found:
    """The state of a file.

    Attributes
    ----------
    saved : Saved
        What it says.
    key : str or None
        Where in the file it lies; None: it is the file's own content.
    ranks : int or None
        How many states it was merged from; None: it was one state.
    """

    saved: Saved
    key: str | None
    ranks: int | None


def read_state(path: Path, key: str | None = None, skew: str = "refuse") -> Found:
    """Read a file, find its state, check it, and merge it where it is one per rank (TOL-1).

    Parameters
    ----------
    path : Path
        The file.
    key : str, optional
        Where the state lies, ``a.b`` for b in a. Default: the only place that looks like a state.
    skew : {"refuse", "replay"}
        As for `streaming.merge_state_dicts`.

    Raises
    ------
    UnreadableError
        The file is neither JSON nor a torch file, or cannot be read.
    NoStateError
        It holds no state, several, or none that is valid.
    """
    content = _content(path)
    where, value = _at(content, key, path) if key is not None else _only(content, path)
    try:
        if isinstance(value, (list, tuple)):
            return Found(checkpoint.decode(checkpoint.merge_state_dicts(value, skew=skew)), where, len(value))
        return Found(checkpoint.decode(value), where, None)
    except MergeSkewError as error:
        raise NoStateError(f"{plain(path)}: {error} (here: --skew replay) [{error.code}]") from error
    except StreamingError as error:
        raise NoStateError(f"{plain(path)}: {error} [{error.code}]") from error


# ---- reading


def _content(path: Path) -> Any:
    """What the file holds, as Python values."""
    try:
        if path.is_dir():
            hint = "; torch.distributed.checkpoint.format_utils.dcp_to_torch_save makes a file of a distributed checkpoint"
            raise UnreadableError(f"{plain(path)} is a directory{hint * (path / '.metadata').exists()}")
        with path.open("rb") as stream:
            head = stream.read(4096)
            if head.startswith((_ZIP, _PICKLE)):
                # A pipe can be read only once.
                return _torch(path, path if path.is_file() else io.BytesIO(head + stream.read()), head.startswith(_ZIP))
            if not head:
                raise UnreadableError(f"{plain(path)} is empty: was it written to the end?")
            # Looked at first, so that no large file of another kind is read to its end.
            if head.strip(_BLANK)[:1] not in (b"{", b"["):
                raise UnreadableError(f"{plain(path)} is neither JSON (an object or a list) nor what torch.save wrote")
            return _json(path, head + stream.read())
    except OSError as error:
        raise UnreadableError(f"{plain(path)} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a path that nothing can have
        raise UnreadableError(f"{plain(path)} cannot be read: {error}") from error


def _json(path: Path, content: bytes) -> Any:
    try:
        return json.loads(content)
    except RecursionError as error:
        raise UnreadableError(f"{plain(path)} is nested too deeply") from error
    except ValueError as error:  # of its grammar, or of its encoding
        raise UnreadableError(f"{plain(path)} is not whole JSON: {error}") from error


def _torch(path: Path, content: Path | io.BytesIO, is_zip: bool) -> Any:
    """Read what torch.save wrote, tensors and plain values only; of a file in the zip format no tensor is read unless looked at."""
    import torch  # noqa: PLC0415  JSON needs none

    try:
        with warnings.catch_warnings():
            # Of pickles that torch did not write; the error says enough.
            warnings.simplefilter("ignore")
            return torch.load(content, map_location="cpu", weights_only=True, mmap=is_zip and isinstance(content, Path))
    except pickle.UnpicklingError as error:
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused is None:
            raise UnreadableError(f"{plain(path)} is not what torch.save wrote, or damaged: {_first_line(error)}") from error
        raise UnreadableError(
            f"{plain(path)} holds more than tensors and plain values ({refused[1]}), which only code from the file itself could "
            "build; none is run here. Save the state in a file of its own: torch.save(dataset.state_dict(), path)"
        ) from error
    except Exception as error:  # whatever torch raises on bytes that it did not write
        raise UnreadableError(f"{plain(path)} is not what torch.save wrote, or damaged: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return plain((str(error) or type(error).__name__).splitlines()[0][:200])


# ---- finding


def _only(content: Any, path: Path) -> tuple[str | None, Any]:
    """The file's own content if that is a state or a list, else the only state in it."""
    found = [] if _looks_like_states(content) else list(_states(content))
    if _looks_like_states(content) or (isinstance(content, (list, tuple)) and not found):
        return None, content
    if len(found) == 1:
        return found[0]
    if found:
        raise NoStateError(f"{plain(path)} holds {len(found)} states: choose one with --key, {_several((k for k, _ in found), ' or ')}")
    raise NoStateError(f"{plain(path)} holds no state, nothing in it has a schema_version; {_keys(content)}")


def _at(content: Any, key: str, path: Path) -> tuple[str, Any]:
    """What lies under the key."""
    under = list(_under(content, key))
    for value in under:
        if _looks_like_states(value) or isinstance(value, (list, tuple)):
            return key, value
    found = f"it holds {_keys(under[0])}" if under else f"{plain(path)} has no such key; {_keys(content)}"
    elsewhere = [k for k, _ in _states(content)]
    if _looks_like_states(content) or isinstance(content, (list, tuple)):
        advice = "; the file itself is a state, or one per rank: leave --key out"
    else:
        advice = f"; try --key {_several(elsewhere, ' or ')}" if elsewhere else "; no other key holds a state either"
    raise NoStateError(f"{plain(path)}: there is no state under --key {plain(key)}: {found}{advice}")


def _looks_like_states(value: Any) -> bool:
    """A mapping with a schema_version, or a list with such."""
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, Mapping) and "schema_version" in item for item in value)
    return isinstance(value, Mapping) and "schema_version" in value


def _states(content: Any) -> Iterator[tuple[str, Any]]:
    """All that looks like states, with its key; nothing inside of it is looked at."""
    pending: list[tuple[str, Any]] = [("", content)]
    seen = set()
    while pending:
        prefix, value = pending.pop()
        # A pickle can hold itself.
        if id(value) in seen:
            continue
        seen.add(id(value))
        for name, item in _items(value):
            if _looks_like_states(item):
                yield f"{prefix}{name}", item
            else:
                pending.append((f"{prefix}{name}.", item))


def _under(value: Any, key: str) -> Iterator[Any]:
    """What lies under a key; a dot in it parts two keys, or belongs to one."""
    for name, item in _items(value):
        if str(name) == key:
            yield item
        elif key.startswith(f"{name}."):
            yield from _under(item, key[len(str(name)) + 1 :])


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """What lies in a mapping by key, in a list by position (TOL-1)."""
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, (list, tuple)) else ()


def _keys(value: Any) -> str:
    """What something is, for a message."""
    if not isinstance(value, Mapping):
        return f"a value of type {type(value).__name__}"
    return f"the keys {_several(value, ', ')}" if value else "an empty mapping"


def _several(names: Iterable[Any], joint: str) -> str:
    words = [plain(name) for name in names]
    return joint.join(words[:_SEEN]) + (f" ({len(words)} in all)" if len(words) > _SEEN else "")

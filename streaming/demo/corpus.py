"""The input: the source files of the running Python's standard library, as rows of a LanceDB table."""

from __future__ import annotations

import sysconfig
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import lancedb
import pyarrow as pa

from streaming.demo.model import WINDOW_BYTES
from streaming.demo.settings import DemoError

TABLE: Final = "stdlib"
_SCHEMA: Final = pa.schema([("id", pa.int64()), ("path", pa.string()), ("size", pa.int64()), ("text", pa.binary())])
# Not part of every installation, or not of Python itself.
_SKIPPED: Final = frozenset({"site-packages", "dist-packages", "test", "tests", "__pycache__"})
# Each is a fragment and a version of its own, as in a table that grew over time.
_FRAGMENTS: Final = 4


class Corpus:
    """Text windows of the standard library, spread evenly over its files.

    Parameters
    ----------
    rows : int
        Rows of the table at first.
    more : int
        Rows that may be appended later.

    Raises
    ------
    DemoError
        This installation's library has fewer windows.
    """

    def __init__(self, rows: int, more: int) -> None:
        self._rows, self._more = rows, more
        root = Path(sysconfig.get_paths()["stdlib"])
        windows = [(path, offset) for path, text in _files(root) for offset in range(0, len(text) - WINDOW_BYTES + 1, WINDOW_BYTES)]
        wanted = rows + more
        if len(windows) < wanted:
            most = len(windows) * rows // wanted
            raise DemoError(
                f"--rows must be at most about {most} here: {root} has {len(windows)} pieces of {WINDOW_BYTES} bytes, {wanted} needed"
            )
        self._texts = dict(_files(root))
        self._windows = [windows[i * len(windows) // wanted] for i in range(wanted)]
        self._root = root

    @property
    def files(self) -> int:
        """Files that the first rows come from."""
        return len({path for path, _ in self._windows[: self._rows]})

    def create(self, uri: str) -> Iterator[int]:
        """Write the first rows; yields the number of rows written, fragment by fragment."""
        ends = [self._rows * (i + 1) // _FRAGMENTS for i in range(_FRAGMENTS)]
        table = lancedb.connect(uri).create_table(TABLE, self._batch(0, ends[0]))
        yield ends[0]
        for begin, end in pairwise(ends):
            table.add(self._batch(begin, end))
            yield end - begin

    def append(self, uri: str) -> None:
        """Write the later rows: a new version of the table."""
        lancedb.connect(uri).open_table(TABLE).add(self._batch(self._rows, self._rows + self._more))

    def _batch(self, begin: int, end: int) -> Any:
        rows = []
        for number in range(begin, end):
            path, offset = self._windows[number]
            text = self._texts[path]
            name = path.relative_to(self._root).as_posix()
            rows.append({"id": number, "path": name, "size": len(text), "text": text[offset : offset + WINDOW_BYTES]})
        return pa.Table.from_pylist(rows, schema=_SCHEMA)


def read_table(uri: str) -> dict[int, int]:
    """Read the newest version with lancedb itself: the CRC-32 of each row's text, by id.

    Raises
    ------
    DemoError
        Two rows have the same id.
    """
    columns = lancedb.connect(uri).open_table(TABLE).to_arrow()
    ids, texts = columns["id"].to_pylist(), columns["text"].to_pylist()
    table = {number: zlib.crc32(text) for number, text in zip(ids, texts, strict=True)}
    if len(table) != len(ids):
        raise DemoError("the demo's own table holds an id twice")
    return table


def _files(root: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(root.rglob("*.py")):
        if _SKIPPED.isdisjoint(path.relative_to(root).parts):
            try:
                yield path, path.read_bytes()
            except OSError:  # unreadable, or gone: another file will do
                continue

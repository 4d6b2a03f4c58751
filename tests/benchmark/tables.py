"""The standard tables of the benchmarks: fixed seed, made once in a directory. ``python -m tests.benchmark.tables DIR [NAME ..]``.

A table that is there already, with the rows and the schema that it must have, is taken as it is. Another number of rows than the
standard one, for tries, gives a table of another name beside it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

SEED = 7
HOME = Path(tempfile.gettempdir()) / "lockstep-benchmark"
_CHUNK = 20_000
_PICTURE = 50_000

Generator = np.random.Generator
Make = Callable[[Generator, npt.NDArray[np.int64]], dict[str, Any]]


@dataclass(frozen=True)
class Standard:
    """A table: its usual number of rows, their Arrow bytes, and the columns of rows with these ids."""

    rows: int
    row_bytes: int
    make: Make


def _tab(random: Generator, ids: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Eight narrow numbers."""
    n = len(ids)
    floats = {f"f{i}": random.random(n, dtype=np.float32) for i in range(4)}
    return {
        "id": ids,
        "b": random.integers(0, 1 << 40, n),
        "c": random.integers(0, 1000, n, dtype=np.int32),
        **floats,
        "d": random.random(n),
    }


def _emb(random: Generator, ids: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Vectors of 256 float32."""
    values = random.random(len(ids) * 256, dtype=np.float32)
    return {"id": ids, "v": pa.FixedSizeListArray.from_arrays(pa.array(values), 256)}


def _lists(random: Generator, ids: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Lists of tokens of these lengths."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = random.integers(0, 50_000, int(offsets[-1]), dtype=np.int32)
    return {"id": ids, "t": pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens))}


def _tok(random: Generator, ids: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Lists of 512 tokens."""
    return _lists(random, ids, np.full(len(ids), 512))


def _ragged(random: Generator, ids: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Lists of 1 to 1,024 tokens."""
    return _lists(random, ids, random.integers(1, 1025, len(ids)))


def _img(random: Generator, ids: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Binaries of 50 kB, as pictures are."""
    return {"id": ids, "label": random.integers(0, 1000, len(ids)), "img": [random.bytes(_PICTURE) for _ in ids]}


TABLES = {
    "tab": Standard(1_000_000, 44, _tab),
    "emb": Standard(200_000, 1_032, _emb),
    "tok": Standard(200_000, 2_060, _tok),
    "ragged": Standard(200_000, 2_062, _ragged),
    "img": Standard(20_000, 50_020, _img),
}


def chunks(name: str, rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a table, some at a time: the same for every run."""
    random = np.random.default_rng([SEED, sorted(TABLES).index(name)])
    step = 1_000 if name == "img" else _CHUNK
    for begin in range(0, rows, step):
        yield pa.record_batch(TABLES[name].make(random, np.arange(begin, min(begin + step, rows))))


def make(home: Path, name: str, rows: int | None = None) -> str:
    """Make a table in the LanceDB database at `home` unless it is there; its name there is returned."""
    rows = rows or TABLES[name].rows
    stored = name if rows == TABLES[name].rows else f"{name}_{rows}"
    schema = next(chunks(name, 1)).schema
    database = lancedb.connect(home)
    if not (home / f"{stored}.lance").exists():
        database.create_table(stored, chunks(name, rows), schema=schema)
    table = database.open_table(stored)
    if table.count_rows() != rows or table.schema != schema:
        raise SystemExit(f"{home}: table {stored!r} is another one than this benchmark makes; choose another directory, or drop it")
    return stored


def as_arrow(home: Path, stored: str) -> Path:
    """The table as the file of Hugging Face datasets (an Arrow stream), made beside it unless it is there."""
    path = home / f"{stored}.arrow"
    if not path.exists():
        batches = lancedb.connect(home).open_table(stored).search().to_batches()
        unfinished = path.with_suffix(".unfinished")
        with pa.ipc.new_stream(unfinished, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        unfinished.rename(path)
    return path


def main() -> None:
    """Make the tables that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TABLES))
    arguments = parser.parse_args()
    for name in arguments.names or TABLES:
        print(make(arguments.home, name), flush=True)


if __name__ == "__main__":
    main()

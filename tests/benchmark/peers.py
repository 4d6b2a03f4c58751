"""The contenders of others: `lancedb.streaming` as it comes and tuned by hand, and Hugging Face datasets.

The peer is tuned in two ways: by a transform to tensors under torch's own collate function, which is what its users write, and to the
best that was found by hand, tuples of plain numbers and tensors under a collate function for just this table. Its rows per read are
1024, as little as 64 where rows are large: else it would read the whole table ahead.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import torch
from torch.utils.data import DataLoader

from tests.benchmark.loaders import BATCH, CLUMP, SEED, SPLITS, Contender, Step, Steps, Work, as_rows, by_rows, ids_of, nothing_ahead

_LARGE = 10_000
_READ, _DEPTH = 64, 4  # the peer's defaults: rows of one split in one read, and reads at a time for each split


def columns_of(batch: pa.RecordBatch) -> list[list[Any]]:
    """Each column as one value per row: tensors for lists, Python values otherwise."""
    return [_entries(column) if pa.types.is_nested(column.type) else column.to_pylist() for column in batch.columns]


def _entries(column: pa.Array) -> list[torch.Tensor]:
    """A tensor for each list, all of the same memory."""
    values: Any = torch.from_numpy(column.flatten().to_numpy().copy())
    if pa.types.is_fixed_size_list(column.type):
        return list(values.reshape(len(column), -1).unbind())
    return list(values.split(column.value_lengths().to_pylist()))


def as_dicts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """A transform: rows as dicts, lists as tensors."""
    names = batch.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns_of(batch), strict=True)]


def as_tuples(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """A transform: rows as tuples."""
    return list(zip(*columns_of(batch), strict=True))


def collate_for(schema: pa.Schema, ragged: bool) -> Callable[[list[Any]], dict[str, Any]]:
    """A collate function for the tuples of just this schema, to native dtypes."""
    numbers = {
        field.name: torch.from_numpy(pa.array([0], field.type).to_numpy().copy()).dtype
        for field in schema
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    }
    lists = {field.name for field in schema if pa.types.is_nested(field.type) and not ragged}

    def collate(rows: list[Any]) -> dict[str, Any]:
        batch: dict[str, Any] = {}
        for name, values in zip(schema.names, zip(*rows, strict=True), strict=True):
            if name in numbers:
                batch[name] = torch.tensor(values, dtype=numbers[name])
            else:
                batch[name] = torch.stack(values) if name in lists else list(values)
        return batch

    return collate


def _peer(work: Work, **settings: Any) -> Any:
    """The peer's dataset; it is built here, which makes its table of indices, and that is part of its start-up."""
    module: Any = importlib.import_module("lancedb.streaming")
    return module.StreamingDataset(work.table, num_splits=SPLITS, shuffle_seed=SEED, epoch=work.epoch, **settings)


def _held(dataset: Any, work: Work) -> Callable[[], int]:
    """Bytes that the peer holds ahead, as far as it tells: reads that are under way are missing."""
    return lambda: int((dataset.raw_queue_depth + dataset.prefetch_queue_depth) * work.row_bytes)


def _batches(dataset: Any, work: Work, collate: Callable[[list[Any]], Any] | None) -> Steps:
    """Batches of torch's DataLoader without workers."""
    held = _held(dataset, work)
    batches: Iterator[Any] = iter(DataLoader(dataset, batch_size=BATCH, collate_fn=collate))
    for batch in batches:
        ids = ids_of(batch)
        yield Step(len(ids), ids, held)


def _reads(work: Work) -> dict[str, int]:
    """Rows of one read of the tuned peer."""
    return {"read_batch_size": _READ if work.row_bytes > _LARGE else 1024}


def peer_default(work: Work) -> Steps:
    """As it comes."""
    return _batches(_peer(work), work, as_rows if work.ragged else None)


def peer_tuned(work: Work, clump: int | None = None) -> Steps:
    """A transform to tensors, larger reads."""
    dataset = _peer(work, transform=as_dicts, shuffle_clump_size=clump, **_reads(work))
    return _batches(dataset, work, as_rows if work.ragged else None)


def peer_best(work: Work) -> Steps:
    """Tuples, and a collate function for just this table."""
    dataset = _peer(work, transform=as_tuples, **_reads(work))
    return _batches(dataset, work, collate_for(work.table.schema, work.ragged))


def peer_clump(work: Work) -> Steps:
    """Tuned, 64 rows moving together."""
    return peer_tuned(work, CLUMP)


def peer_rows(work: Work) -> Steps:
    """Rows as dicts, as it comes."""
    dataset = _peer(work)
    yield from by_rows(iter(dataset), _held(dataset, work))


def datasets(work: Work) -> Steps:
    """Hugging Face datasets in map style with torchdata's StatefulDataLoader, every row shuffled.

    The numpy format, which is the fastest; it makes float32 of float64.
    """
    module: Any = importlib.import_module("datasets")
    loaders: Any = importlib.import_module("torchdata.stateful_dataloader")
    rows = module.Dataset.from_file(str(work.arrow)).with_format("numpy")
    generator = torch.Generator().manual_seed(SEED + work.epoch)
    collate = as_rows if work.ragged else None
    for batch in loaders.StatefulDataLoader(rows, batch_size=BATCH, shuffle=True, generator=generator, collate_fn=collate):
        ids = ids_of(batch)
        yield Step(len(ids), ids)


def _ahead(work: Work) -> float:
    """Rows in flight."""
    return SPLITS * _DEPTH * _READ


def _ahead_tuned(work: Work) -> float:
    """Rows in flight with larger reads."""
    return SPLITS * _DEPTH * _reads(work)["read_batch_size"]


_MODULE = ("lancedb.streaming",)
PEERS = (
    Contender("peer-default", peer_default, _ahead, _MODULE),
    Contender("peer-tuned", peer_tuned, _ahead_tuned, _MODULE),
    Contender("peer-best", peer_best, _ahead_tuned, _MODULE),
    Contender("peer-clump", peer_clump, _ahead_tuned, _MODULE),
    Contender("peer-rows", peer_rows, _ahead, _MODULE),
    Contender("datasets", datasets, nothing_ahead, ("datasets", "torchdata.stateful_dataloader")),
)

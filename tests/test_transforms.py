"""Transforms, either kind, with and without threads, raising and filling, against the model (BAT-9 to BAT-13, DLV-7)."""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model import transforms as model
from model.batches import Tensor
from streaming import StreamingDataLoader, StreamingDataset, transforms
from tests.support import numbered_table

ROWS = 40


class BadRow(Exception):
    pass


class Doubling:
    """Doubles ids, raises for some of them, and takes its time for others."""

    def __init__(self, bad: set[int], columnar: bool, slow: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        self.bad, self.columnar, self.slow = bad, columnar, slow

    def __call__(self, batch: pa.RecordBatch) -> Any:
        ids = batch["id"].to_pylist()
        if self.slow & set(ids):
            time.sleep(0.002)
        for number in ids:
            if number in self.bad:
                raise BadRow(number)
        if self.columnar:
            return {"twice": torch.tensor([2 * number for number in ids]), "name": [str(number) for number in ids]}
        return [2 * number for number in ids]

    def of_model(self, rows: tuple[dict[str, Any], ...]) -> Any:
        for row in rows:
            if row["id"] in self.bad:
                raise BadRow(row["id"])
        ids = [row["id"] for row in rows]
        if self.columnar:
            return {"twice": Tensor("int64", (len(ids),), tuple(2 * i for i in ids)), "name": [str(i) for i in ids]}
        return [2 * i for i in ids]


def repair(row: dict[str, int], error: Exception) -> Any:
    assert isinstance(error, BadRow)
    assert error.args == (row["id"],)
    return -row["id"]


def repair_columns(row: dict[str, int], error: Exception) -> Any:
    return {"twice": repair(row, error), "name": "repaired", "more": 1}


def dataset_of(transform: Doubling, fills: bool, threads: int, **others: Any) -> StreamingDataset:
    kind = "columnar_transform" if transform.columnar else "transform"
    fill = {"on_transform_error": "fill", "transform_fill": repair_columns if transform.columnar else repair} if fills else {}
    return StreamingDataset(numbered_table(ROWS), shuffle=False, transform_parallelism=threads, **{kind: transform}, **fill, **others)


BAD = st.sets(st.integers(0, ROWS - 1), max_size=4)


@given(BAD, BAD, st.booleans(), st.booleans(), st.sampled_from([0, 1, 3]), st.sampled_from([None, 1, 4, 7, 50]))
def test_what_is_delivered_is_the_models(
    bad: set[int], slow: set[int], columnar: bool, fills: bool, threads: int, batch_size: int | None
) -> None:
    """BAT-9, BAT-11, BAT-13, DLV-7, STA-2: rows, batches, errors, places, counts. Sampled over failures, delays, kinds, threads, sizes."""
    transform = Doubling(bad, columnar, slow)
    dataset = dataset_of(transform, fills, threads)
    theirs = model.Transform(
        transform.of_model, columnar, "fill" if fills else "raise", (repair_columns if columnar else repair) if fills else None
    )
    rows = [{"id": i} for i in range(ROWS)]
    calls = [1] * ROWS if batch_size is None else [batch_size] * (ROWS // batch_size) + [ROWS % batch_size] * (ROWS % batch_size > 0)
    expected = model.deliver(rows, calls, theirs, batch_size=batch_size)
    iterator = iter(dataset if batch_size is None else StreamingDataLoader(dataset, batch_size=batch_size))
    items, error = [], None
    while True:
        try:
            items.append(next(iterator))
        except StopIteration:
            break
        except BadRow as raised:
            error = raised
            break
    see = entries if batch_size is None else plain
    assert [see(item) for item in items] == [see(item) for item in expected.items]
    assert (error is None) == (expected.error is None)
    assert error is None or error.args == expected.error.args  # type: ignore[union-attr]
    stats = dataset.stats()
    assert (stats.rows_received, stats.rows_filled) == (expected.rows, expected.filled)
    assert dataset.samples_remaining == ROWS - expected.rows or (error is None and not dataset.samples_remaining)
    del iterator


def plain(item: Any) -> Any:
    """A row or batch without its containers: the model's tensors and torch's say the same."""
    if isinstance(item, torch.Tensor):
        return (str(item.dtype), item.tolist())
    if isinstance(item, Tensor):
        return (f"torch.{item.dtype}", list(item.values) if item.shape else item.values[0])
    return {name: plain(value) for name, value in item.items()} if isinstance(item, dict) else item


def entries(row: Any) -> Any:
    """The values of a row: whether a filled one is an entry of a tensor depends on the calls, which are free here."""
    return (
        (int(plain(row["twice"])[1]) if not isinstance(row["twice"], int) else row["twice"], row["name"]) if isinstance(row, dict) else row
    )


def test_calls_are_batches() -> None:
    """BAT-9: in the loader a columnar transform sees exactly the rows of each batch, so that it can pad."""
    seen = []

    def transform(batch: pa.RecordBatch) -> dict[str, Any]:
        seen.append(batch["id"].to_pylist())
        return {"id": batch["id"].to_numpy()}

    for threads in (0, 2):
        seen.clear()
        dataset = StreamingDataset(
            numbered_table(ROWS), shuffle_seed=3, num_splits=4, columnar_transform=transform, transform_parallelism=threads
        )
        batches = [batch["id"].tolist() for batch in StreamingDataLoader(dataset, batch_size=6)]
        assert sorted(seen) == sorted(batches)
        assert [len(batch) for batch in batches] == [6] * 6 + [4]


@pytest.mark.parametrize("threads", [0, 2])
def test_failures_that_cannot_be_isolated(threads: int) -> None:
    """BAT-12: no row fails alone; a fill that fails, behind the rows before it; StopIteration is filled like any other."""

    def together(batch: pa.RecordBatch) -> list[int]:
        if len(batch) > 1:
            raise BadRow("together")
        return [0]

    def stopping(batch: pa.RecordBatch) -> list[int]:
        if 3 in batch["id"].to_pylist():
            raise StopIteration
        return batch["id"].to_pylist()  # type: ignore[no-any-return]

    def failing(row: Any, error: Exception) -> int:
        raise KeyError(row["id"])

    common: dict[str, Any] = {"shuffle": False, "on_transform_error": "fill", "transform_parallelism": threads}
    with pytest.raises(BadRow, match="together"):
        list(StreamingDataset(numbered_table(8), transform=together, transform_fill=0, **common))
    iterator = iter(StreamingDataset(numbered_table(8), transform=stopping, transform_fill=failing, **common))
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="3"):
        next(iterator)
    filled = list(StreamingDataset(numbered_table(8), transform=stopping, transform_fill=-1, **common))
    assert filled == [0, 1, 2, -1, 4, 5, 6, 7]


def test_calls_run_at_the_same_time_and_not_too_far_ahead() -> None:
    """BAT-13: as many at a time as there are threads, and at most `transform_queue_depth` ahead, in the model's words."""
    together = threading.Barrier(3, timeout=20)
    events: list[tuple[str, int]] = []

    def transform(batch: pa.RecordBatch) -> dict[str, Any]:
        first = batch["id"].to_pylist()[0]
        if first < 3 * 4:
            together.wait()  # passes only if three calls are under way
        return {"id": batch["id"].to_numpy()}

    for depth in (None, 2, 5):
        together.reset()
        events.clear()
        dataset = StreamingDataset(
            numbered_table(ROWS),
            shuffle=False,
            columnar_transform=transform,
            transform_parallelism=3,
            transform_queue_depth=depth,
        )
        loader = iter(StreamingDataLoader(dataset, batch_size=4))
        with pytest.MonkeyPatch.context() as patch:
            call = transforms.Outcomes._call

            def recording(self: Any, threads: Any, call: Any = call) -> None:
                before = len(self._calls)
                call(self, threads)
                if len(self._calls) > before:
                    events.append(("begin", sum(kind == "begin" for kind, _ in events)))

            patch.setattr(transforms.Outcomes, "_call", recording)
            for number in range(10):
                assert next(loader)["id"].tolist() == list(range(4 * number, 4 * number + 4))
                events.append(("take", number))
        assert list(model.calls_ahead(events, 3, depth)) == []
        assert len(events) == 20

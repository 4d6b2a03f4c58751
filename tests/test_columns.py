"""What a columnar transform may return, and how its rows fit together (BAT-8 to BAT-12)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import default_collate

from streaming import StreamingDataLoader, StreamingDataset
from streaming.errors import ArgumentValueError, BatchError, TransformError
from tests.support import numbered_table
from tests.test_batches import same
from tests.test_transforms import ROWS, BadRow

COLUMNS: dict[str, Any] = {
    "int16": lambda n: np.arange(n, dtype=np.int16),
    "matrix": lambda n: np.arange(2 * n, dtype=np.float32).reshape(n, 2),
    "float tensor": lambda n: torch.arange(n) / 2,
    "cube": lambda n: torch.zeros(n, 2, 3, dtype=torch.uint8),
    "bools": lambda n: np.arange(n) % 2 == 0,
    "strings": lambda n: [str(i) for i in range(n)],
    "floats": lambda n: [i / 4 for i in range(n)],
    "lists": lambda n: [[i, i + 1] for i in range(n)],
    "text array": lambda n: np.array([str(i) for i in range(n)]),
    "read only": lambda n: np.broadcast_to(np.float64(3), n),
    "strided": lambda n: np.arange(2 * n)[::2],
    "big endian": lambda n: np.arange(n, dtype=">i4"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_columnar_batch_is_what_torch_collates_of_its_rows(name: str) -> None:
    """BAT-9: the batch, and the rows of bare iteration."""

    def transform(batch: pa.RecordBatch) -> Any:
        return {"x": COLUMNS[name](batch.num_rows)}

    whole = transform(pa.record_batch({"id": range(7)}))["x"]
    expected = default_collate([{"x": whole[i]} for i in range(7)])
    dataset = StreamingDataset(numbered_table(7), shuffle=False, columnar_transform=transform)
    (batch,) = StreamingDataLoader(dataset, batch_size=7)
    assert same(batch, expected)
    (arrays,) = StreamingDataLoader(dataset, batch_size=7, format="numpy")
    if isinstance(whole, list):
        assert arrays["x"] == whole
    else:
        assert isinstance(arrays["x"], np.ndarray)
        assert arrays["x"].tolist() == whole.tolist()
    rows = list(StreamingDataset(numbered_table(7), shuffle=False, columnar_transform=transform, read_batch_size=7))
    assert same(default_collate(rows), expected)
    collated = list(StreamingDataLoader(dataset, batch_size=7, collate_fn=default_collate_rows))
    assert same(collated[0], expected)


def default_collate_rows(rows: Any) -> Any:
    return default_collate(rows)


@pytest.mark.parametrize(
    "result",
    [
        None,
        [1] * 8,
        {},
        {1: np.zeros(8)},
        {"x": np.zeros(7)},
        {"x": torch.zeros(9)},
        {"x": 3},
        {"x": np.float64(3)},
        {"x": "12345678"},
        {"x": ()},
    ],
    ids=repr,
)
@pytest.mark.parametrize("mode", ["raise", "fill"])
def test_what_is_no_columns(result: Any, mode: str) -> None:
    """BAT-10, BAT-12: refused in either mode; the batches before it are received."""

    def transform(batch: pa.RecordBatch) -> Any:
        return result if 8 in batch["id"].to_pylist() else {"x": batch["id"].to_numpy()}

    fill = {"on_transform_error": mode, "transform_fill": 0} if mode == "fill" else {}
    dataset = StreamingDataset(numbered_table(ROWS), shuffle=False, columnar_transform=transform, **fill)  # type: ignore[arg-type]
    batches = iter(StreamingDataLoader(dataset, batch_size=8))
    assert next(batches)["x"].tolist() == list(range(8))
    with pytest.raises(TransformError, match="columnar_transform"):
        next(batches)
    assert dataset.samples_remaining == ROWS - 8


def test_columns_that_torch_cannot_hold() -> None:
    """BAT-9: `batch.column`, naming the column."""
    dataset = StreamingDataset(
        numbered_table(8), shuffle=False, columnar_transform=lambda batch: {"odd": [[1], [1, 2]] * (len(batch) // 2)}
    )
    with pytest.raises(BatchError, match="'odd'") as refusal:
        next(iter(StreamingDataLoader(dataset, batch_size=8)))
    assert refusal.value.column == "odd"


def test_filled_rows_take_the_type_of_their_column() -> None:
    """BAT-11: dtype and shape of the rows that did not fail; what does not fit is `transform.failed`, missing columns too."""

    def transform(batch: pa.RecordBatch) -> dict[str, Any]:
        ids = batch["id"].to_numpy()
        if 5 in ids:
            raise BadRow(5)
        return {"a": ids.astype(np.int16), "v": torch.zeros(len(ids), 3, dtype=torch.float16), "s": [str(i) for i in ids]}

    def batch(fill: Any) -> Any:
        dataset = StreamingDataset(
            numbered_table(8), shuffle=False, columnar_transform=transform, on_transform_error="fill", transform_fill=fill
        )
        return next(iter(StreamingDataLoader(dataset, batch_size=8)))

    good = batch({"a": -1, "v": np.ones(3), "s": "filled"})
    assert (good["a"].dtype, good["v"].dtype) == (torch.int16, torch.float16)
    assert good["a"].tolist() == [0, 1, 2, 3, 4, -1, 6, 7]
    assert good["v"].sum(dim=1).tolist() == [0, 0, 0, 0, 0, 3, 0, 0]
    assert good["s"][5] == "filled"
    whole = {"a": -1, "v": np.ones(3), "s": ""}
    unfit = {"a": ["x", 40_000, -1.5, [1], None, np.int64(40_000), torch.tensor(40_000)], "v": [np.ones(4), np.ones((3, 1)), 1, "x"]}
    for name, values in unfit.items():
        for value in values:
            with pytest.raises(TransformError, match=f"'{name}'"):
                batch({**whole, name: value})
    for fill in ({"a": -1, "v": np.ones(3)}, 3):
        with pytest.raises(TransformError, match="transform_fill"):
            batch(fill)
    for value in ([1.0, 2, 3], torch.ones(3, dtype=torch.float64), (1, 1, 1)):
        assert batch({**whole, "v": value})["v"].dtype == torch.float16


def rows_by_themselves(columns: Any) -> Any:
    """A transform that fails for rows 5 of 8 together, and else gives these columns, which depend on what it is called with."""

    def transform(batch: pa.RecordBatch) -> Any:
        if 5 in batch["id"].to_pylist():
            raise BadRow(5)
        return columns(batch["id"].to_pylist())

    return transform


@pytest.mark.parametrize(
    "columns",
    [
        lambda ids: {"x": np.array([0.5 if i == 2 else i for i in ids])},
        lambda ids: {"x": torch.tensor([0.5 if i == 2 else i for i in ids])},
        lambda ids: {"x": np.zeros((len(ids), max(ids)))},
        lambda ids: {"x": np.zeros(len(ids)), **({"y": np.zeros(len(ids))} if max(ids) > 2 else {})},
        lambda ids: {"x": [0] * len(ids) if max(ids) > 2 else np.zeros(len(ids), dtype=np.int64)},
    ],
    ids=["dtype", "tensor", "length", "columns", "kind"],
)
def test_rows_by_themselves_must_fit_together(columns: Any) -> None:
    """BAT-12: never another value in their place, and not in the way of the exception of a bad row; in bare iteration all come."""
    transform = rows_by_themselves(columns)
    filling = {"on_transform_error": "fill", "transform_fill": {"x": 0, "y": 0}}
    dataset = StreamingDataset(numbered_table(8), shuffle=False, columnar_transform=transform, **filling)  # type: ignore[arg-type]
    with pytest.raises(TransformError, match="row by itself"):
        next(iter(StreamingDataLoader(dataset, batch_size=8)))
    raising = StreamingDataset(numbered_table(8), shuffle=False, columnar_transform=transform)
    with pytest.raises(BadRow):
        next(iter(StreamingDataLoader(raising, batch_size=8)))
    seen = []
    with pytest.raises(BadRow):
        for row in raising:
            seen.append(row["x"])
    expected = [columns([i])["x"][0] for i in range(5)]
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(seen, expected, strict=True))


def test_texts_keep_their_length() -> None:
    """BAT-11, BAT-12: an array of texts is as wide as its longest one, whichever row that is."""
    transform = rows_by_themselves(lambda ids: {"s": np.array(["x" * i for i in ids])})
    dataset = StreamingDataset(
        numbered_table(8), shuffle=False, columnar_transform=transform, on_transform_error="fill", transform_fill={"s": "a filled row"}
    )
    (batch,) = StreamingDataLoader(dataset, batch_size=8)
    assert batch["s"] == ["x" * i if i != 5 else "a filled row" for i in range(8)]


def test_no_time_is_a_value_of_its_own_type() -> None:
    """BAT-11: NaT, which is not equal to itself, in rows that did not fail and as a fill."""
    moments = np.array(["2026-01-01", "NaT"], dtype="datetime64[s]")
    transform = rows_by_themselves(lambda ids: {"t": moments[np.array(ids) % 2]})
    filling = {"on_transform_error": "fill", "transform_fill": {"t": np.datetime64("NaT", "s")}}
    dataset = StreamingDataset(numbered_table(8), shuffle=False, columnar_transform=transform, **filling)  # type: ignore[arg-type]
    (batch,) = StreamingDataLoader(dataset, batch_size=8, format="numpy")
    assert np.isnat(batch["t"]).tolist() == [False, True] * 4
    assert batch["t"].dtype == moments.dtype


@pytest.mark.parametrize("layout", ["python", "numpy"])
def test_batches_of_transforms_may_be_written_to(layout: str) -> None:
    """BAT-8: also where the transform hands on the memory of its rows."""
    dataset = StreamingDataset(numbered_table(8), shuffle=False, columnar_transform=lambda batch: {"id": batch["id"].to_numpy()})
    for batch in StreamingDataLoader(dataset, batch_size=4, format=layout):
        batch["id"][:] = -1
        assert batch["id"].tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("column", "layout"),
    [
        (torch.ones(4, dtype=torch.bfloat16), "numpy"),
        (torch.ones(4, requires_grad=True), "numpy"),
        (torch.ones(4).to_sparse(), "torch"),
        (np.array([object()] * 4), "torch"),
    ],
)
def test_columns_that_a_format_cannot_hold(column: Any, layout: str) -> None:
    """BAT-9: `batch.column`, naming it."""
    dataset = StreamingDataset(numbered_table(4), shuffle=False, columnar_transform=lambda _: {"odd": column})
    with pytest.raises(BatchError, match="'odd'"):
        next(iter(StreamingDataLoader(dataset, batch_size=4, format=layout)))


def test_arrow_batches_and_transforms_exclude_each_other() -> None:
    """BAT-9."""
    with pytest.raises(ArgumentValueError, match="columnar_transform"):
        StreamingDataLoader(StreamingDataset(numbered_table(8), columnar_transform=len), batch_size=2, format="arrow")

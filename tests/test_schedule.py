"""Schedule is the same arithmetic as the dataset, seen from outside (CYC-6, CYC-7)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from model import cycle as model_cycle
from model.order import Order
from streaming import Due, Schedule, StreamingDataset, StreamingError
from tests.support import divisors, ids, numbered_table


@given(st.data(), st.integers(1, 24), st.integers(1, 9), st.booleans(), st.integers(0, 5))
def test_schedule_is_what_the_dataset_delivers_and_what_the_model_says(
    data: st.DataObject, splits: int, batch: int, shuffle: bool, epoch: int
) -> None:
    rows = data.draw(st.integers(splits, splits * 6 + 5))
    world_size = data.draw(st.sampled_from(divisors(splits)))
    rank = data.draw(st.integers(0, world_size - 1))
    clump = data.draw(st.none() | st.integers(1, 5)) if shuffle else None
    arguments: dict[str, Any] = {
        "num_splits": splits,
        "world_size": world_size,
        "shuffle": shuffle,
        "shuffle_seed": 3,
        "shuffle_clump_size": clump,
    }
    dataset = StreamingDataset(numbered_table(rows), rank=rank, epoch=epoch, **arguments)
    schedule = dataset.schedule(batch)
    assert schedule == Schedule(rows=rows, batch_size=batch, epoch=epoch, **arguments)
    batches = list(DataLoader(dataset, batch_size=batch, collate_fn=ids))
    assert schedule.steps == len(batches)
    order = Order(rows, shuffle, 3, epoch, clump)
    for step, expected in enumerate(batches):
        assert schedule.step_rows(step, rank).tolist() == expected
        assert tuple(expected) == model_cycle.step_rows(order, splits, world_size, rank, batch, step)
        for index, row in enumerate(expected):
            due = schedule.due(row)
            assert due is not None
            assert (due.rank, due.step, due.index) == (rank, step, index)
    everything = {row for r in range(world_size) for step in range(schedule.steps) for row in schedule.step_rows(step, r).tolist()}
    assert {row for row in range(rows) if schedule.due(row) is not None} == everything
    assert len(everything) == rows // splits * splits


def test_other_epochs_and_huge_tables() -> None:
    dataset = StreamingDataset(numbered_table(30), num_splits=3, shuffle_seed=9)
    later = dataset.schedule(5, epoch=4)
    dataset.set_epoch(4)
    assert [row["id"] for row in dataset] == [row for step in range(later.steps) for row in later.step_rows(step, 0).tolist()]
    huge = Schedule(rows=2**63 - 1, num_splits=4096, world_size=512, batch_size=8, shuffle_seed=2**63 - 1, epoch=2**63 - 1)
    row = int(huge.step_rows(huge.steps - 1, 511)[-1])
    assert huge.due(row) == Due(split=4095, cycle=huge.split_length - 1, rank=511, step=huge.steps - 1, index=7)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"rows": 0}, "argument.value"),
        ({"rows": 3}, "data.too_few_rows"),
        ({"num_splits": 0}, "argument.value"),
        ({"world_size": 3}, "argument.value"),
        ({"batch_size": 0}, "argument.value"),
        ({"batch_size": 1.0}, "argument.type"),
        ({"shuffle_seed": None}, "argument.type"),
        ({"shuffle": 1}, "argument.type"),
        ({"epoch": -1}, "argument.value"),
        ({"shuffle_clump_size": 0}, "argument.value"),
        ({"shuffle": False, "shuffle_clump_size": 2}, "argument.value"),
    ],
)
def test_bad_arguments(change: dict[str, Any], code: str) -> None:
    good: dict[str, Any] = {"rows": 12, "num_splits": 4, "world_size": 2, "batch_size": 2, "shuffle_seed": 1}
    with pytest.raises(StreamingError) as refused:
        Schedule(**{**good, **change})
    assert refused.value.code == code
    with pytest.raises(StreamingError):
        Schedule(**good).step_rows(3, 0)
    with pytest.raises(StreamingError):
        Schedule(**good).step_rows(0, 2)
    with pytest.raises(StreamingError):
        Schedule(**good).due(12)

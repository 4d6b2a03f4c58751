"""Statistics: what is counted, over rows, batches, passes and workers (STA-1 to STA-3)."""

from __future__ import annotations

import copy
import itertools
import pickle
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from model import stats as model
from streaming import StreamingDataLoader, StreamingDataset
from streaming.delivery import Delivery
from streaming.stats import Account, Stats
from tests.simulation import simulate
from tests.support import ids, numbered_table

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
ROWS = 240
FIGURES = [field.name for field in fields(Stats)][2:]


def make(**arguments: Any) -> StreamingDataset:
    return StreamingDataset(numbered_table(ROWS), **{"num_splits": 4, "shuffle_seed": 1, **arguments})


def filled_thirds(row: dict[str, int], error: Exception) -> int:
    return -1


def thirds(batch: pa.RecordBatch) -> list[int]:
    numbers: list[int] = batch["id"].to_pylist()
    if any(number % 3 == 0 for number in numbers):
        raise ValueError("a third")
    return numbers


@pytest.mark.parametrize("transport", ["rows", "plain", "loader", "columns"])
def test_counts_of_a_pass_and_its_parts(transport: str) -> None:
    """STA-1: rows received, never those made ahead; reads and bytes of whole windows; nothing is buffered in the end."""
    dataset = make()
    passes = {
        "rows": lambda: dataset,
        "plain": lambda: DataLoader(dataset, batch_size=8, collate_fn=ids),
        "loader": lambda: StreamingDataLoader(dataset, batch_size=8, collate_fn=ids),
        "columns": lambda: StreamingDataLoader(dataset, batch_size=8),
    }
    assert dataset.stats() == Stats()
    iterator = iter(passes[transport]())
    taken = 0
    for _ in range(5):
        next(iterator)
        taken += 1 if transport == "rows" else 8
        assert dataset.stats().rows_received == taken
    middle = dataset.stats()
    assert middle.reads >= 1
    assert middle.bytes_loaded >= taken * 8
    assert middle.bytes_buffered > 0
    assert middle.wait_seconds > 0
    assert middle.batch_seconds > 0
    state = dataset.state_dict()
    del iterator
    assert dataset.stats().bytes_buffered == 0
    list(passes[transport]())
    whole = dataset.stats()
    assert whole.rows_received == ROWS
    assert 8 * ROWS <= whole.bytes_loaded <= 8 * ROWS * 2
    assert whole.read_seconds >= middle.read_seconds
    dataset.load_state_dict(state)
    assert dataset.stats() == whole, "STA-3"
    assert not any("stat" in key or "seconds" in key for key in dataset.state_dict())


def test_transforms_and_filled_rows_are_counted() -> None:
    """STA-1, STA-2: filled rows count when they are received."""
    for threads in (0, 2):
        dataset = make(transform=thirds, on_transform_error="fill", transform_fill=filled_thirds, transform_parallelism=threads)
        seen = []
        for row in itertools.islice(dataset, 100):
            seen.append(row)
            assert dataset.stats().rows_filled == seen.count(-1)
        assert seen.count(-1) > 10
        assert dataset.stats().transform_seconds > 0


@given(
    st.sampled_from(["splits", "batches"]),
    st.sampled_from([2, 4]),
    st.sampled_from([3, 16]),
    st.integers(0, 30),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_workers_are_summed(mode: str, workers: int, batch_size: int, stop: int, random: Any, columns: bool) -> None:
    """STA-2: sampled over modes, workers, schedules and breaks; the rows received and filled are exact at every batch."""
    arguments: dict[str, Any] = {"transform": thirds, "on_transform_error": "fill", "transform_fill": -1}
    with pytest.MonkeyPatch.context() as patch:
        simulate(patch, random.randrange)
        dataset = make() if columns else make(**arguments)
        received = filled = 0
        for limit in (stop, 1000):
            if not dataset.samples_remaining:
                break
            how: dict[str, Any] = {} if columns else {"collate_fn": list}
            loader = StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers, worker_sharding=mode, **how)
            for batch in itertools.islice(loader, limit):
                rows = batch["id"].tolist() if columns else batch
                received += len(rows)
                filled += rows.count(-1)
                stats = loader.stats()
                assert (stats.rows_received, stats.rows_filled) == (received, filled)
        assert received == ROWS
        assert stats.reads >= workers
        assert 8 * ROWS <= stats.bytes_loaded <= 8 * ROWS * 3
        assert dataset.stats().bytes_buffered == 0


@given(st.data())
def test_sums_are_the_models(data: st.DataObject) -> None:
    """STA-2: any sequence of batches of any workers and of ends of passes. Sampled."""
    account, theirs = Account(), model.Statistics()
    delivery = Delivery()
    account.begin(delivery)
    sums: dict[int, list[int]] = {}
    filled: dict[int, int] = {}
    for _ in range(data.draw(st.integers(0, 12))):
        if data.draw(st.integers(0, 4)) == 0:
            account.end(delivery)
            theirs, delivery, sums, filled = model.end(theirs), Delivery(), {}, {}
            account.begin(delivery)
        worker, rows = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 5))
        more = data.draw(st.lists(st.integers(0, 9), min_size=6, max_size=6))
        now = data.draw(st.integers(0, 100))
        bad = data.draw(st.integers(0, rows))
        sums[worker] = [a + b for a, b in zip(sums.get(worker, [0] * 6), more, strict=True)]
        filled[worker] = filled.get(worker, 0) + bad
        delivery.handed += rows
        account.arrived(worker, (filled[worker], *sums[worker], now), None)
        figures = dict(zip([*FIGURES[:-1], "bytes_buffered"], [*sums[worker], now], strict=True))
        theirs = model.receive(theirs, worker, rows, bad, figures)
        assert vars(account.stats()) == model.total(theirs)


def test_the_trainer_waits_for_its_workers() -> None:
    """STA-1: what a worker waits for is not the trainer's wait."""
    account = Account()
    account.arrived(0, (0, 1, 8, 1.0, 0.0, 0.0, 99.0, 5), 0.25)
    account.arrived(0, (0, 1, 8, 1.0, 0.0, 0.0, 99.0, 5), 0.5)
    assert account.stats().wait_seconds == 0.75


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda dataset: pickle.loads(pickle.dumps(dataset))])
def test_a_copy_counts_by_itself(copied: Any) -> None:
    """STA-1, DLV-9."""
    dataset = make()
    list(itertools.islice(dataset, 3))
    other = copied(dataset)
    list(itertools.islice(other, 2))
    assert (dataset.stats().rows_received, other.stats().rows_received) == (3, 2)

"""Filters at size: the bitmap selects what a list of offsets would, is scanned once, and is small (REA-7)."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streaming import StreamingDataset
from streaming.selection import Selection

OFFSETS = st.sets(st.integers(0, 1500) | st.sampled_from([0, 7, 8, 127, 128, 129, 1023, 1024]), max_size=300)


def of(offsets: list[int]) -> Any:
    return np.array(offsets, dtype=np.uint64)


@given(OFFSETS, st.integers(0, 1501), st.randoms())
def test_a_selection_is_a_sorted_list(chosen: set[int], rows: int, random: Any) -> None:
    """Sampled: any offsets, in any order and pieces, more of them than was said, looked up in any order."""
    mixed = list(chosen)
    random.shuffle(mixed)
    cut = random.randint(0, len(mixed))
    selection = Selection([of(mixed[:cut]), of([]), of(mixed[cut:])], rows)
    assert len(selection) == len(chosen)
    assert selection.all().tolist() == sorted(chosen)
    numbers = list(range(len(chosen)))
    random.shuffle(numbers)
    assert selection.offsets(of(numbers)).tolist() == [sorted(chosen)[number] for number in numbers]
    for copy in (pickle.loads(pickle.dumps(selection)), pickle.loads(bytes(ForkingPickler.dumps(selection)))):
        assert copy.all().tolist() == sorted(chosen)


def test_a_selection_is_small() -> None:
    """1.5 bits for each row of the table, whatever is selected."""
    for every in (1, 2, 1000):
        selection = Selection([np.arange(0, 1_000_000, every, dtype=np.uint64)], 1_000_000)
        assert selection.nbytes * 8 <= 1.6 * 1_000_000
        assert selection.offsets(of([len(selection) - 1]))[0] == (len(selection) - 1) * every


def test_processes_share_a_selection() -> None:
    """What travels to a worker is where the bitmap lies, not the bitmap."""
    selection = Selection([np.arange(0, 8_000_000, 3, dtype=np.uint64)], 8_000_000)
    assert len(ForkingPickler.dumps(selection)) < 2000


def test_deleted_rows_are_not_selected() -> None:
    table = lancedb.connect("memory://").create_table("deleted", pa.table({"id": range(1000)}))
    table.delete("id % 7 = 0")
    dataset = StreamingDataset(table, shuffle_seed=1, filter="id % 2 = 1")
    assert sorted(row["id"] for row in dataset) == [i for i in range(1000) if i % 2 == 1 and i % 7]

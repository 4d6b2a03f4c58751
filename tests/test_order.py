"""The order: bijection, inverse, NumPy equals model, uniform, distinct for distinct keys (spec/order.md, LAW-5)."""

from __future__ import annotations

import itertools
import json
import math
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model import order as model_order
from streaming.order import Order, Permutation

WORDS = st.integers(0, 2**63 - 1)
SIZES = st.integers(1, 200) | st.sampled_from([2**k + d for k in range(2, 63) for d in (-1, 0, 1)]) | st.integers(1, 2**63 - 1)
# The gate samples fewer keys than the nightly profile does.
KEYS = 20_000 if settings.get_current_profile_name() == "nightly" else 4_000
GOLDEN = json.loads((Path(__file__).parents[1] / "spec" / "vectors" / "order.json").read_text())


def array(values: object) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def whole(rows: int, seed: int, epoch: int, clump: int | None = None) -> list[int]:
    return Order(rows, True, seed, epoch, clump).row(np.arange(rows, dtype=np.uint64)).tolist()


@given(SIZES, WORDS, WORDS, st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20))
def test_permutation_is_the_models_and_invertible(size: int, seed: int, epoch: int, draws: list[int]) -> None:
    x = [draw % size for draw in draws]
    permutation = Permutation(size, seed, epoch)
    y = permutation.forward(array(x))
    assert y.tolist() == [model_order.permute(i, size, seed, epoch) for i in x]
    assert permutation.inverse(y).tolist() == x
    assert (y < size).all()


@given(st.integers(1, 300), WORDS, WORDS, st.none() | st.integers(1, 400))
def test_every_order_is_a_bijection_with_its_inverse(rows: int, seed: int, epoch: int, clump: int | None) -> None:
    positions = np.arange(rows, dtype=np.uint64)
    order = Order(rows, True, seed, epoch, clump)
    sequence = order.row(positions)
    assert sorted(sequence.tolist()) == list(range(rows))
    assert order.position(sequence).tolist() == positions.tolist()
    reference = model_order.Order(rows, True, seed, epoch, clump)
    assert sequence.tolist() == [reference.row(p) for p in range(rows)]


@given(st.integers(1, 2**63 - 1), WORDS, st.none() | st.integers(1, 2**63 - 1), st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5))
def test_large_clumped_orders_are_the_models(rows: int, seed: int, clump: int | None, draws: list[int]) -> None:
    positions = [draw % rows for draw in draws]
    order, reference = Order(rows, True, seed, 1, clump), model_order.Order(rows, True, seed, 1, clump)
    found = order.row(array(positions))
    assert found.tolist() == [reference.row(p) for p in positions]
    assert order.position(found).tolist() == positions


@given(st.integers(1, 200), WORDS, st.integers(1, 50))
def test_clumps_move_together(rows: int, seed: int, clump: int) -> None:
    """ORD-8: cut into runs of neighbours, the sequence is the clumps, each once, each ascending."""
    sequence = whole(rows, seed, 0, clump)
    place = 0
    seen = set()
    while place < rows:
        first = sequence[place]
        assert first % clump == 0
        size = min(clump, rows - first)
        assert sequence[place : place + size] == list(range(first, first + size))
        seen.add(first // clump)
        place += size
    assert len(seen) == math.ceil(rows / clump)


def test_golden_vectors() -> None:
    """ORD-12: the order of this version never changes; small orders whole, large ones at chosen positions."""
    assert len(GOLDEN) > 100
    assert max(vector["rows"] for vector in GOLDEN) == 2**63 - 1
    for vector in GOLDEN:
        order = Order(vector["rows"], True, vector["seed"], vector["epoch"], vector["clump"])
        if "whole" in vector:
            assert order.row(np.arange(vector["rows"], dtype=np.uint64)).tolist() == vector["whole"]
        else:
            positions, rows = zip(*vector["at"], strict=True)
            assert order.row(array(positions)).tolist() == list(rows)


def quantile(df: int) -> float:
    """The 0.9999 quantile of chi-square (Wilson-Hilferty)."""
    return df * (1 - 2 / (9 * df) + 3.72 * math.sqrt(2 / (9 * df))) ** 3


def chi_square(counts: np.ndarray, expected: float) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_all_orders_of_few_rows_come_equally_often(rows: int) -> None:
    """Over seeds, and over epochs, all rows! orders. Computed by the model, which is quicker for a few rows and equal (above)."""
    for by_epoch in (False, True):
        counts: Counter[tuple[int, ...]] = Counter()
        for key in range(KEYS):
            order = model_order.Order(rows, True, 5 if by_epoch else key, key if by_epoch else 0, None)
            counts[tuple(order.row(p) for p in range(rows))] += 1
        assert set(counts) == set(itertools.permutations(range(rows)))
        df = len(counts) - 1
        assert df == 0 or chi_square(np.array(list(counts.values())), KEYS / len(counts)) <= quantile(df)


@pytest.mark.parametrize("rows", [6, 7, 8, 9, 16, 17, 31, 33, 64, 100])
def test_places_neighbours_and_fixed_points_are_uniform(rows: int) -> None:
    """Over many seeds: which row stands where, which row follows which, and how many stay in their place."""
    keys = KEYS // 2
    orders = np.array([whole(rows, 10_000 + key, 3) for key in range(keys)])
    places = np.zeros((rows, rows))
    followers = np.zeros((rows, rows))
    for place in range(rows):
        np.add.at(places[place], orders[:, place], 1)
    for place in range(rows - 1):
        np.add.at(followers, (orders[:, place], orders[:, place + 1]), 1)
    assert chi_square(places, keys / rows) <= quantile((rows - 1) ** 2)
    assert chi_square(followers[~np.eye(rows, dtype=bool)], keys / rows) <= quantile(rows * (rows - 1) - 1)
    fixed = (orders == np.arange(rows)).sum(axis=1)
    assert abs(fixed.mean() - 1) <= 5 / math.sqrt(keys)
    assert abs(fixed.var() - 1) <= 10 * math.sqrt(3 / keys)


@pytest.mark.parametrize("rows", [65535, 65536, 65537, 2**20, 2**20 + 1])
def test_large_orders_spread_evenly(rows: int) -> None:
    """Chi-square of 64 x 64 cells (place block, row block), and of the distance between neighbours, for several keys."""
    positions = np.arange(rows, dtype=np.uint64)
    for seed, epoch in [(0, 0), (1, 0), (0, 1), (2**63 - 1, 7)]:
        sequence = Order(rows, True, seed, epoch).row(positions).astype(np.int64)
        assert np.array_equal(np.sort(sequence), np.arange(rows))
        cells = np.zeros((64, 64))
        np.add.at(cells, (positions.astype(np.int64) * 64 // rows, sequence * 64 // rows), 1)
        expected = rows / 4096
        df = 63 * 63
        assert chi_square(cells, expected) <= quantile(df)
        steps = np.bincount(np.diff(sequence) % rows * 64 // rows, minlength=64)
        assert chi_square(steps, rows / 64) <= quantile(63)


def test_seeds_and_epochs_do_not_collide_by_arithmetic() -> None:
    """Near and arithmetically related keys give different orders (ORD-3); seed 100003 epoch 0 is not seed 0 epoch 1."""
    keys = {(seed, epoch) for seed in range(40) for epoch in range(40)}
    keys |= {(100003 * k, 0) for k in range(5)} | {(0, 100003 * k) for k in range(5)}
    keys |= {(2**63 - 1, k) for k in range(5)} | {(k, 2**63 - 1) for k in range(5)}
    gamma = 0x9E3779B97F4A7C15
    keys |= {(gamma % 2**63, 0), (2 * gamma % 2**63, 0), (0, gamma % 2**63)}
    assert len({tuple(whole(40, seed, epoch)) for seed, epoch in keys}) == len(keys)


def test_shuffling_shuffles_and_storage_order_does_not() -> None:
    positions = np.arange(1000, dtype=np.uint64)
    assert Order(1000, False, None, 3).row(positions).tolist() == list(range(1000))
    assert Order(1000, False, None, 3).position(positions).tolist() == list(range(1000))
    overlap = sum(a == b for a, b in zip(whole(1000, 1, 0), whole(1000, 1, 1), strict=True))
    assert overlap < 10


@pytest.mark.parametrize("clump", [None, 5])
def test_an_order_takes_no_memory_that_grows_with_the_rows(clump: int | None) -> None:
    """ORD-10, for N near the largest: building it, and rows and positions at both ends."""
    rows = 2**63 - 1
    ends = np.array([0, 1, rows // 2, rows - 1], dtype=np.uint64)
    tracemalloc.start()
    try:
        order = Order(rows, True, 7, 3, clump)
        assert np.array_equal(order.position(order.row(ends)), ends)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000

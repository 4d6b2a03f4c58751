"""Chapter order on the model: bijections, inverses, clumps as the words say, golden vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model import golden
from model.order import Order, halves, mix, permute, permute_inverse, round_key, rounds, walk, walk_back

LARGEST = 2**63 - 1
NUMBERS = st.integers(0, LARGEST)


def test_mix_is_the_published_finaliser() -> None:
    """ORD-2 and G of ORD-3 are those of SplitMix64: its first outputs for seed 0, as published with the algorithm."""
    gamma = 0x9E3779B97F4A7C15
    outputs = [mix((i * gamma) % 2**64) for i in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_round_keys_tell_seed_from_epoch() -> None:
    """ORD-3: no pair of seed and epoch gives the keys of another by arithmetic."""
    pairs = [(seed, epoch) for seed in (0, 1, 2, 100003, 100004, LARGEST) for epoch in (0, 1, 2, 100003, LARGEST)]
    assert len({round_key(seed, epoch, i) for seed, epoch in pairs for i in range(24)}) == len(pairs) * 24


def test_halves_and_rounds() -> None:
    """ORD-4 and ORD-5 at their edges: ``(v, w)`` and T."""
    assert [halves(size) for size in (1, 2, 4, 5, 8, 9, 2**63 - 1)] == [(1, 1), (1, 1), (1, 1), (2, 1), (2, 1), (2, 2), (32, 31)]
    assert [rounds(size) for size in (1, 65536, 65537)] == [24, 24, 12]


@pytest.mark.parametrize("size", [*range(1, 34), 63, 64, 65, 100])
def test_permutation_is_a_bijection_with_its_inverse(size: int) -> None:
    """ORD-6, LAW-5: exhaustive on small domains."""
    for seed, epoch in ((0, 0), (0, 1), (1, 0), (100003, 7), (LARGEST, LARGEST)):
        image = [permute(x, size, seed, epoch) for x in range(size)]
        assert sorted(image) == list(range(size))
        assert [permute_inverse(y, size, seed, epoch) for y in image] == list(range(size))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, LARGEST), NUMBERS, NUMBERS)
def test_inverse_on_any_domain(data: st.DataObject, size: int, seed: int, epoch: int) -> None:
    """ORD-6, ORD-11: sampled up to the largest N."""
    x = data.draw(st.integers(0, size - 1))
    y = permute(x, size, seed, epoch)
    assert 0 <= y < size
    assert permute_inverse(y, size, seed, epoch) == x
    assert walk_back(walk(x, size, seed, epoch), size, seed, epoch) == x


@pytest.mark.parametrize("rows", range(1, 21))
def test_order_is_what_the_words_say(rows: int) -> None:
    """ORD-7, ORD-8, ORD-9 against the plain reading of ORD-8: clump perm(0), then clump perm(1), ... one after the other."""
    for clump in (None, 1, 2, 3, 4, 7, rows, rows + 1):
        for seed in range(4):
            order = Order(rows, True, seed, 3, clump)
            c = 1 if clump is None else clump
            count = -(-rows // c)
            told: list[int] = []
            for place in range(count):
                g = permute(place, count, seed, 3)
                told.extend(range(g * c, min(rows, (g + 1) * c)))
            assert [order.row(position) for position in range(rows)] == told
            assert [order.position(row) for row in told] == list(range(rows))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, LARGEST), NUMBERS, NUMBERS, st.none() | st.integers(1, 2**40))
def test_position_inverts_row(data: st.DataObject, rows: int, seed: int, epoch: int, clump: int | None) -> None:
    """ORD-9, ORD-11: sampled up to the largest N, with clumps."""
    order = Order(rows, True, seed, epoch, clump)
    position = data.draw(st.integers(0, rows - 1))
    row = order.row(position)
    assert 0 <= row < rows
    assert order.position(row) == position
    if clump is not None and position + 1 < rows and row % clump != clump - 1 and row != rows - 1:
        assert order.row(position + 1) == row + 1


def test_unshuffled_is_storage_order() -> None:
    """ORD-1: in every epoch."""
    for epoch in (0, 5):
        order = Order(9, False, None, epoch)
        assert [order.row(position) for position in range(9)] == list(range(9))
        assert [order.position(row) for row in range(9)] == list(range(9))


def test_all_orders_of_four_rows_come_equally_often() -> None:
    """ORD-5: with 24 rounds, chi-square per degree of freedom over 4800 keys is near 1; with 6 rounds it was far above."""
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(4800):
        order = tuple(permute(x, 4, seed, 0) for x in range(4))
        counts[order] = counts.get(order, 0) + 1
    expected = 4800 / 24
    assert len(counts) == 24
    assert sum((count - expected) ** 2 / expected for count in counts.values()) / 23 < 2.0


def test_golden_vectors_are_those_of_the_model() -> None:
    """ORD-12: the committed file is what the model writes."""
    assert golden.main(["--check"]) == 0


def test_golden_check_notices_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is missing or differs in one digit does not pass."""
    path = tmp_path / "order.json"
    assert golden.main(["--check"], path) == 1
    assert golden.main([], path) == 0
    assert golden.main(["--check"], path) == 0
    path.write_text(path.read_text(encoding="utf-8").replace('"whole":[1,0]', '"whole":[0,1]', 1), encoding="utf-8")
    assert golden.main(["--check"], path) == 1
    assert "differs" in capsys.readouterr().err


@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_and_positions_outside_the_order_are_nobodys(shuffle: bool) -> None:
    """ORD-9: neither function takes what is not in [0, N)."""
    order = Order(5, shuffle, 1, 0)
    for call in (order.row, order.position):
        for outside in (-1, 5):
            with pytest.raises(AssertionError):
                call(outside)

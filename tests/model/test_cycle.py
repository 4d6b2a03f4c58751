"""Chapters assignment and cycle on the model: small worlds exhaustively, judged by lists written out from the words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from model.assignment import first_split, owned_splits, owner, sequence_position, split_length, splits_per_rank
from model.cycle import Cursor, advance, due, length, next_split, remaining, step_rows
from model.order import Order


def worlds() -> Iterator[tuple[int, int, int]]:
    """Every (N, S, R) with N up to 13 and S up to 6 (ASG-1, ASG-2)."""
    for splits in range(1, 7):
        for rows in range(splits, 14):
            for ranks in range(1, splits + 1):
                if splits % ranks == 0:
                    yield rows, splits, ranks


WORLDS = list(worlds())


def told(order: Order, splits: int, ranks: int, rank: int) -> list[int]:
    """CYC-1 by the words: each cycle, each owned split, the row there. Splits are slices of the sequence (TRM-2, TRM-3, TRM-4)."""
    sequence = [order.row(position) for position in range(order.rows)]
    size = order.rows // splits
    slices = [sequence[start : start + size] for start in range(0, splits * size, size)]
    n = splits // ranks
    return [rows[cycle] for cycle in range(size) for rows in slices[rank * n : rank * n + n]]


@pytest.mark.parametrize(("rows", "splits", "ranks"), WORLDS)
def test_blocks_partition_the_splits(rows: int, splits: int, ranks: int) -> None:
    """ASG-3: contiguous, disjoint, complete, equally large; ``owner`` agrees."""
    blocks = [list(owned_splits(splits, ranks, rank)) for rank in range(ranks)]
    assert [split for block in blocks for split in block] == list(range(splits))
    assert {len(block) for block in blocks} == {splits_per_rank(splits, ranks)}
    assert [block[0] for block in blocks] == [first_split(splits, ranks, rank) for rank in range(ranks)]
    assert [owner(splits, ranks, split) for split in range(splits)] == [rank for rank, block in enumerate(blocks) for _ in block]
    positions = [sequence_position(rows, splits, split, i) for split in range(splits) for i in range(split_length(rows, splits))]
    assert positions == list(range(splits * (rows // splits)))


@pytest.mark.parametrize(("rows", "splits", "ranks"), WORLDS)
def test_cursor_walks_the_rank_sequence(rows: int, splits: int, ranks: int) -> None:
    """CYC-1 to CYC-5, TRM-9: all ranks walk one common cursor, and what it serves is what the words say (TRM-5)."""
    order = Order(rows, True, 3, 1)
    served: list[list[int]] = [[] for _ in range(ranks)]
    cursor = Cursor(0, 0, ())
    for step in range(length(rows, splits, ranks)):
        for rank in range(ranks):
            assert remaining(cursor, rows, splits, ranks, rank) == length(rows, splits, ranks) - step
            split = next_split(cursor, splits, ranks, rank)
            assert split in owned_splits(splits, ranks, rank)
            served[rank].append(order.row(sequence_position(rows, splits, split, cursor.cycle)))
        cursor = advance(cursor, splits, ranks)
        assert list(cursor.served) == sorted(set(cursor.served))
        assert len(cursor.served) < splits
    assert cursor == Cursor(0, rows // splits, ())
    assert served == [told(order, splits, ranks, rank) for rank in range(ranks)]


def test_cursor_not_filled_from_the_left() -> None:
    """CYC-2, CYC-3 where a resume on another world left holes: 0 and 3 of six splits served, on two ranks."""
    cursor = Cursor(0, 4, (0, 3))
    assert [next_split(cursor, 6, 2, rank) for rank in (0, 1)] == [1, 4]
    assert advance(cursor, 6, 2) == Cursor(0, 4, (0, 1, 3, 4))
    assert next_split(Cursor(0, 4, (1, 2, 4, 5)), 6, 2, 0) == 0
    assert advance(Cursor(0, 4, (1, 2, 4, 5)), 6, 2) == Cursor(0, 5, ())
    assert remaining(Cursor(0, 4, (1, 2, 4)), 30, 6, 2, 1) == 2


@pytest.mark.parametrize(("rows", "splits", "ranks"), WORLDS)
def test_steps_and_their_inverse(rows: int, splits: int, ranks: int) -> None:
    """CYC-6, CYC-7: steps cut the rank sequence, and each row is due where it comes; rows of no split never are (TRM-6)."""
    order = Order(rows, True, 7, 0, 2)
    for batch in (1, 2, 3, 5):
        came: dict[int, tuple[int, int, int, int]] = {}
        for rank in range(ranks):
            sequence = told(order, splits, ranks, rank)
            steps = -(-len(sequence) // batch)
            for step in range(steps):
                batch_rows = step_rows(order, splits, ranks, rank, batch, step)
                assert list(batch_rows) == sequence[step * batch : (step + 1) * batch]
                came.update({row: (rank, step * batch + index, step, index) for index, row in enumerate(batch_rows)})
            assert step_rows(order, splits, ranks, rank, batch, steps) == ()
        for row in range(rows):
            found = due(order, splits, ranks, batch, row)
            if row not in came:
                assert found is None
            else:
                assert found is not None
                assert (found.rank, found.number, found.step, found.index) == came[row]
                assert order.row(sequence_position(rows, splits, found.split, found.cycle)) == row
        assert len(came) == splits * (rows // splits)


@pytest.mark.parametrize("splits", [4, 6])
def test_global_steps_do_not_depend_on_the_world(splits: int) -> None:
    """CYC-6, LAW-4: where R*B is a multiple of S, the rows of each global step are the same for every R."""
    order = Order(5 * splits + 1, True, 11, 2)
    for cycles in (1, 2):
        steps_of: list[list[set[int]]] = []
        for ranks in [size for size in range(1, splits + 1) if splits % size == 0]:
            batch = cycles * splits // ranks
            steps = [
                {row for rank in range(ranks) for row in step_rows(order, splits, ranks, rank, batch, step)}
                for step in range(-(-5 // cycles))
            ]
            assert sum(len(step) for step in steps) == 5 * splits
            steps_of.append(steps)
        assert all(steps == steps_of[0] for steps in steps_of)


def test_owners_are_exact_for_numbers_beyond_floating_point() -> None:
    """ASG-3 near 2**60."""
    splits = 2**60
    assert owner(splits, 2, splits - 1) == 1
    assert owner(splits, 2, splits // 2 - 1) == 0

"""When a row comes (TOL-5): by hand, as it really arrives, and as the model says."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import tools as model_tools
from streaming import StreamingDataset
from tests.support import connection, divisors, ids, numbered_table
from tests.tools.support import INSPECT_KEYS, TRACE_KEYS, asked, call, refused, state, written


def test_every_key_of_trace_by_hand(tmp_path: Path) -> None:
    # Without shuffle: row k is in split k // 6, cycle k % 6; ranks own the splits 0, 1 and 2, 3; 24 and 25 are left out.
    path = written(tmp_path / "state.json", state(shuffle=False))
    nowhere = dict.fromkeys(("split", "cycle", "rank", "step", "index", "resumed_batch"))
    for row, options, expected in [
        (7, (), ("received", 1, 1, 0, 3, 0, None)),
        (2, (), ("replayed", 0, 2, 0, 4, 0, 0)),
        (14, ("--batch-size", 3), ("replayed", 2, 2, 1, 1, 1, 0)),
        (20, ("--batch-size", 2), ("due", 3, 2, 1, 2, 1, 0)),
        (21, ("--batch-size", 2), ("due", 3, 3, 1, 3, 1, 1)),
        (21, ("--batch-size", 2, "--world-size", 1), ("due", 3, 3, 0, 7, 1, 3)),
        (21, ("--epoch", 2), ("received", 3, 3, 1, 7, 0, None)),
        (21, ("--epoch", 4), ("due", 3, 3, 1, 7, 0, None)),
        (7, ("--epoch", 4), ("due", 1, 1, 0, 3, 0, None)),
    ]:
        answer = asked("trace", path, "--row", row, *options)
        assert list(answer) == TRACE_KEYS
        epoch = options[1] if options[:1] == ("--epoch",) else 3
        assert answer == {"row": row, "epoch": epoch, **dict(zip(TRACE_KEYS[2:], expected, strict=True))}
    for row, epoch in ((24, 3), (25, 0), (24, 9)):
        assert asked("trace", path, "--row", row, "--epoch", epoch) == {"row": row, "epoch": epoch, "status": "left_out", **nowhere}


@pytest.mark.parametrize(
    ("row", "options", "words"),
    [
        (7, (), ["Row 7 was received in epoch 3.", "cycle 1 of 6 and split 1 of 4", "rank 0, step 3, index 0", "does not bring it again"]),
        (2, (), ["not finished", 'with partial_cycle="replay" brings it again, in batch 0', 'with "exact" does not']),
        (21, ("--batch-size", 2), ["has not been received in epoch 3.", "on 2 ranks with batch size 2", "batch 1 of the resumed pass"]),
        (21, ("--world-size", 1), ["on 1 rank with batch size 1"]),
        (21, ("--epoch", 2), ["was received in epoch 2, as far as the run went through it: the state stands in epoch 3"]),
        (21, ("--epoch", 4), ["has not been received in epoch 4, which has not begun", "changes nothing"]),
        (24, (), ["Row 24 is left out of epoch 3", "2 of the 26 selected rows", "No rank receives it", "nor in any other"]),
    ],
)
def test_what_people_read_of_a_row(tmp_path: Path, row: int, options: Any, words: list[str]) -> None:
    path = written(tmp_path / "state.json", state(shuffle=False))
    code, out, err = call("trace", path, "--row", row, *options)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    for word in words:
        assert word in " ".join(out.split())


def test_an_order_of_another_release_is_not_guessed_at(tmp_path: Path) -> None:
    path = written(tmp_path / "state.json", state(order_version=2))
    assert "order_version 2" in refused(1, "trace", path, "--row", 1)
    assert asked("inspect", path)["state"]["order_version"] == 2


Step = dict[int, tuple[int, int, int]]


def arrivals(rows: int, world_size: int, batch_size: int, settings: dict[str, Any], resume: Any = None, epoch: int = 0) -> Step:
    """(rank, batch, index) of every row that really arrives on some rank."""
    found: Step = {}
    for rank in range(world_size):
        dataset = StreamingDataset(numbered_table(rows), rank=rank, world_size=world_size, epoch=epoch, **settings)
        if resume is not None:
            dataset.load_state_dict(resume)
        for j, row in enumerate(ids(dataset)):
            assert row not in found
            found[row] = (rank, j // batch_size, j % batch_size)
    return found


@pytest.mark.parametrize(
    ("rows", "settings", "saving", "taken", "world_size", "batch_size"),
    [
        (14, {"num_splits": 4, "shuffle_seed": 3}, 2, 3, 4, 2),
        (14, {"num_splits": 4, "shuffle_seed": 3}, 1, 3, 2, 3),
        (14, {"num_splits": 4, "shuffle_seed": 5}, 4, 0, 1, 5),
        (14, {"num_splits": 4, "shuffle_seed": 5}, 4, 3, 2, 2),
        (23, {"num_splits": 6, "shuffle_seed": 1, "shuffle_clump_size": 4}, 3, 3, 2, 4),
        (23, {"num_splits": 6, "shuffle": False}, 2, 8, 6, 1),
    ],
)
def test_trace_says_what_really_happens(
    tmp_path: Path, rows: int, settings: dict[str, Any], saving: int, taken: int, world_size: int, batch_size: int
) -> None:
    received, states = set(), []
    for rank in range(saving):
        dataset = StreamingDataset(numbered_table(rows), rank=rank, world_size=saving, epoch=2, **settings)
        iterator = iter(dataset)
        received |= {next(iterator)["id"] for _ in range(taken)}
        states.append(dataset.state_dict())
    path = written(tmp_path / "ranks.json", states)
    over = states[0]["samples_consumed_per_split"][0] == rows // settings["num_splits"]
    # A pass that starts on a completed epoch is one over the next (EPO-2).
    resumed = {} if over else arrivals(rows, world_size, batch_size, settings, states[0])
    options = ("--world-size", world_size, "--batch-size", batch_size)
    statuses = set()
    for epoch in (1, 2, 3):
        whole = arrivals(rows, world_size, batch_size, settings, epoch=epoch)
        for row in range(rows):
            answer = asked("trace", path, "--row", row, "--epoch", epoch, *options)
            assert (answer["rank"], answer["step"], answer["index"]) == whole.get(row, (None, None, None))
            here = epoch == 2
            assert answer["resumed_batch"] == (resumed[row][1] if here and row in resumed else None)
            if row not in whole:
                expected = "left_out"
            elif here:
                expected = {(True, False): "received", (True, True): "replayed", (False, True): "due"}[row in received, row in resumed]
            else:
                expected = "received" if epoch == 1 else "due"
            assert answer["status"] == expected
            statuses.add(expected)
            if here and row in resumed:
                assert resumed[row][0] == answer["rank"]
    assert statuses >= {"left_out", "received", "due"}
    assert ("replayed" in statuses) == bool(states[0]["partial_cycle_splits"])


def test_a_filter_counts_the_rows_that_pass(tmp_path: Path) -> None:
    data = connection().create_table("odd", pa.table({"id": range(16)}), mode="overwrite")
    dataset = StreamingDataset(data, num_splits=2, shuffle_seed=4, filter="id % 2 = 1", rank=0, world_size=1)
    arrived = [row // 2 for row in ids(dataset)]
    path = written(tmp_path / "state.json", dataset.state_dict())
    assert [asked("trace", path, "--row", k)["step"] for k in arrived] == list(range(8))
    refused(2, "trace", path, "--row", 8)


@st.composite
def states(draw: st.DrawFn) -> dict[str, Any]:
    world_size, n = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    splits = world_size * n
    length = draw(st.integers(1, 6))
    shuffle = draw(st.booleans())
    cycle = draw(st.integers(0, length))
    per_rank = draw(st.integers(0, n - 1)) if cycle < length else 0
    served = [rank * n + split for rank in range(world_size) for split in draw(st.permutations(range(n)))[:per_rank]]
    return state(
        num_splits=splits,
        world_size=world_size,
        selected_rows=splits * length + draw(st.integers(0, splits - 1)),
        shuffle=shuffle,
        shuffle_seed=draw(st.integers(0, 2**63 - 1)) if shuffle else None,
        shuffle_clump_size=draw(st.none() | st.integers(1, 9)) if shuffle else None,
        epoch=draw(st.integers(0, 3) | st.just(2**63 - 1)),
        samples_consumed_per_split=[cycle] * splits,
        partial_cycle_splits=sorted(served),
    )


FILES = count()


@given(states(), st.data())
def test_the_model_says_the_same(tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any], data: st.DataObject) -> None:
    path = written(tmp_path_factory.getbasetemp() / f"drawn-{next(FILES)}.json", drawn)
    answer = asked("inspect", path)
    summary = model_tools.summary(drawn)
    assert {key: answer[key] for key in INSPECT_KEYS[1:-3]} == {key: summary[key] for key in INSPECT_KEYS[1:-3]}
    row = data.draw(st.integers(0, drawn["selected_rows"] - 1))
    batch_size = data.draw(st.integers(1, 9))
    world_size = data.draw(st.none() | st.sampled_from(divisors(drawn["num_splits"])))
    epoch = data.draw(st.none() | st.integers(max(0, drawn["epoch"] - 1), min(2**63 - 1, drawn["epoch"] + 1)))
    options = [("--batch-size", batch_size), ("--world-size", world_size), ("--epoch", epoch)]
    words = [word for name, value in options if value is not None for word in (name, value)]
    assert asked("trace", path, "--row", row, *words) == model_tools.trace(drawn, row, batch_size, world_size=world_size, epoch=epoch)
    path.unlink()

"""Real ranks: torch.distributed.checkpoint, gathering and comparing over groups of 1, 2 and 4 processes (MRG-3 to MRG-5)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from model import checkpoint, loader
from model.loader import Settings
from streaming import merge_state_dicts

ROOT = Path(__file__).parents[2]
WORLDS = (1, 2, 4)
ROWS = 40
pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the four processes wrote down."""
    folder = tmp_path_factory.mktemp("ranks")
    lancedb.connect(folder / "db").create_table("t", pa.table({"id": range(ROWS)}))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.integration.rank_job", str(rank), str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(max(WORLDS))
    ]
    try:
        said = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(max(WORLDS))]


def of(seen: list[dict[str, Any]], what: str, key: str) -> list[Any]:
    """One thing that all ranks of a world saw."""
    return [one[what][key] for one in seen if what in one]


@pytest.mark.parametrize("size", WORLDS)
@pytest.mark.parametrize("saved", WORLDS)
def test_a_distributed_checkpoint_resumes_on_any_number_of_ranks(seen: list[dict[str, Any]], saved: int, size: int) -> None:
    """Every row at least once, and twice only those of the unfinished cycle (LAW-2)."""
    before = [row for rows in of(seen, f"save {saved}", "before") for row in rows]
    after = [row for rows in of(seen, f"load {saved} on {size}", "after") for row in rows]
    state = of(seen, f"save {saved}", "state")[0]
    twice = [row for row, count in Counter(before + after).items() if count == 2]
    assert set(before + after) == set(range(ROWS))
    assert len(before + after) == ROWS + len(twice)
    assert len(twice) == len(state["partial_cycle_splits"])
    expected = {**checkpoint.floor(state), "world_size": size}
    assert of(seen, f"load {saved} on {size}", "state") == [checkpoint.sign(expected)] * size


@pytest.mark.parametrize("saved", WORLDS)
def test_states_are_equal_on_all_ranks_and_those_of_the_model(seen: list[dict[str, Any]], saved: int) -> None:
    states = of(seen, f"save {saved}", "state")
    assert states == [states[0]] * saved
    assert of(seen, f"save {saved}", "gathered") == states
    assert of(seen, f"save {saved}", "fresh keys") == [sorted(states[0])] * saved
    same = {key: states[0][key] for key in ("table_name", "table_version_created_us", "schema_fingerprint")}
    model = loader.open_loader(Settings(rows=ROWS, num_splits=4, shuffle_seed=1, world_size=saved, **same), 5)
    model = loader.start(model)
    for _ in range(9):
        model, _ = loader.pull(model)
    assert states[0] == loader.save(model)


@pytest.mark.parametrize("saved", [2, 4])
def test_ranks_at_different_steps_are_seen_and_never_mixed_into_a_lie(seen: list[dict[str, Any]], saved: int) -> None:
    """LAW-11."""
    what = f"save {saved}"
    assert of(seen, what, "torn") == [["merge.skew"]] * saved
    differing = ["samples_consumed_per_split", "partial_cycle_splits"] if saved == 2 else ["samples_consumed_per_split"]
    assert of(seen, what, "differ") == [["ranks.mismatch", *differing]] * saved
    merged = of(seen, what, "replayed")
    state = of(seen, what, "state")[0]
    assert merged == [checkpoint.floor(state)] * saved, "the slower ranks' completed cycles"
    assert merge_state_dicts([state] * saved) == state
    for size in WORLDS:
        # What torch.distributed.checkpoint keeps of such ranks is a mixture, which is refused everywhere; or, by chance, one rank's state.
        whole = [checkpoint.sign({**checkpoint.floor(one), "world_size": size}) for one in of(seen, what, "torn state")]
        for found, unchanged in zip(*(of(seen, f"load {saved} on {size}", key) for key in ("torn", "unchanged")), strict=True):
            assert (found == "state.malformed" and unchanged) or found in whole


def test_wrong_ranks_are_refused_on_all(seen: list[dict[str, Any]]) -> None:
    for size in (2, 4):
        assert of(seen, f"save {size}", "epochs") == [["ranks.mismatch", "epoch"]] * size
        assert of(seen, f"save {size}", "twins") == [["merge.ranks"]] * size
    assert [one["outside 2"] for one in seen[2:]] == [["argument.value"]] * 2
    expected = checkpoint.sign({**checkpoint.floor(of(seen, "save 1", "torn state")[0]), "world_size": 4})
    assert of(seen, "load 1 on 4", "torn") == [expected] * 4, "one rank is never torn"

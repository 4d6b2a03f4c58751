"""What the tests of the tools share: a call of the command line, a state written by hand, a table and a state of it."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa

from streaming import StreamingDataset
from streaming.checkpoint import signed
from streaming.cli import main

INSPECT_KEYS = [
    *("file", "epoch", "completed_cycles", "cycles", "rows_per_epoch", "rows_received", "rows_remaining", "rows_replayed"),
    *("rows_left_out", "epoch_completed", "world_sizes", "world_sizes_exact", "state", "fits", "differing", "reason"),
]
TRACE_KEYS = ["row", "epoch", "status", "split", "cycle", "rank", "step", "index", "resumed_batch"]


def call(*words: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = main([str(word) for word in words])
        except SystemExit as exit_:
            code = exit_.code
    assert "Traceback" not in err.getvalue()
    return code, out.getvalue(), err.getvalue()


def asked(*words: object, code: int = 0) -> dict[str, Any]:
    """The JSON object, alone on standard output (TOL-2)."""
    actual, out, err = call(*words, "--json")
    assert (actual, err) == (code, "")
    answer: dict[str, Any] = json.loads(out)
    return answer


def refused(code: int, *words: object) -> str:
    """What standard error says; standard output says nothing."""
    actual, out, err = call(*words)
    assert (actual, out) == (code, ""), err
    assert 0 < len(err.splitlines()) <= 5
    return err


def state(**changes: Any) -> dict[str, Any]:
    """A state of 26 rows in 4 splits on 2 ranks, in epoch 3, cycle 2, after each rank's first split of that cycle."""
    values = {
        "schema_version": 1,
        "num_splits": 4,
        "shuffle": True,
        "shuffle_seed": 7,
        "shuffle_clump_size": None,
        "order_version": 1,
        "filter": None,
        "table_name": "numbers",
        "table_version": 1,
        "table_version_created_us": 1_700_000_000_123_456,
        "selected_rows": 26,
        "schema_fingerprint": "ab" * 32,
        "world_size": 2,
        "epoch": 3,
        "partial_cycle_splits": [0, 2],
        "samples_consumed_per_split": [2] * 4,
    }
    return signed({**values, **changes})


def written(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def table(path: Path, rows: int = 26, name: str = "numbers", kind: Any = None) -> Any:
    return lancedb.connect(path).create_table(name, pa.table({"id": pa.array(range(rows), kind or pa.int64())}), mode="overwrite")


def saved(data: Any, rows: int = 7, **arguments: Any) -> dict[str, Any]:
    dataset = StreamingDataset(data, **{"num_splits": 4, "shuffle_seed": 7, "rank": 0, "world_size": 2, **arguments})
    iterator = iter(dataset)
    for _ in range(rows):
        next(iterator)
    return dataset.state_dict()

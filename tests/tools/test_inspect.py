"""What inspect says, in JSON and to people (TOL-3)."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming.cli import main
from streaming.tools import terminal
from tests.support import divisors
from tests.tools.support import INSPECT_KEYS, TRACE_KEYS, asked, call, state, written


def test_every_key_of_inspect_by_hand(file: Path) -> None:
    answer = asked("inspect", file)
    assert list(answer) == INSPECT_KEYS
    assert answer == {
        "file": str(file),
        "epoch": 3,
        "completed_cycles": 2,
        "cycles": 6,
        "rows_per_epoch": 24,
        "rows_received": 10,
        "rows_remaining": 14,
        "rows_replayed": 2,
        "rows_left_out": 2,
        "epoch_completed": False,
        "world_sizes": [1, 2, 4],
        "world_sizes_exact": [1, 2],
        "state": state(),
        "fits": None,
        "differing": [],
        "reason": None,
    }


def test_the_keys_are_those_of_the_clauses() -> None:
    clauses = (Path(__file__).parents[2] / "spec" / "tools.md").read_text().split("JSON keys: ")
    assert re.findall(r"`(\w+)`", clauses[1].split(".\n")[0]) == INSPECT_KEYS
    without_values = re.sub(r"\(.*?\)", "", clauses[2].split(";")[0])
    assert re.findall(r"`(\w+)`", without_values) == TRACE_KEYS


def test_what_people_read(file: Path, tmp_path: Path) -> None:
    code, out, err = call("inspect", file)
    assert (code, err) == (0, "")
    for words in [
        *(str(file), "3 running; epochs 0 to 2 are over, as far as the run began with epoch 0", "41.6 %", "10 of 24 rows, 14 remain"),
        *("2 of 6 completed, and 2 of the 4 splits", "2 rows again", "2 of 26 selected", "2 ranks", "world size of 1, 2 or 4", "1 or 2"),
        *("seed 7", "filter      none", "'numbers' version 1, written 2023-11-14T22:13:20.123456Z", "ab" * 32),
    ]:
        assert words in out
    assert "fits" not in out
    fresh = state(epoch=0, samples_consumed_per_split=[0] * 4, partial_cycle_splits=[], shuffle=False, table_version_created_us=None)
    out = call("inspect", written(tmp_path / "fresh", {"dataset": fresh}))[1]
    for words in ("key dataset", "0 not begun\n", " 0.0 %", "no row comes again", "storage order", "does not know"):
        assert words in out
    assert "exact on" not in out
    over = state(
        epoch=1, samples_consumed_per_split=[6] * 4, partial_cycle_splits=[], shuffle_clump_size=3, table_version_created_us=2**63 - 1
    )
    out = call("inspect", written(tmp_path / "over", over))[1]
    for words in ("1 completed; epoch 0 is over", "100.0 %", "in clumps of 3 rows", f"{2**63 - 1} us after 1970"):
        assert words in out


def test_the_report_fits_a_terminal(tmp_path: Path) -> None:
    huge = state(
        filter="id in (" + ", ".join(map(str, range(3000))) + ") or name = '\x1b[2J\nümlaut'",
        table_name="t" * 3000,
        num_splits=5040,
        world_size=7,
        selected_rows=2**63 - 1,
        samples_consumed_per_split=[(2**63 - 1) // 5040 - 1] * 5040,
        partial_cycle_splits=[720 * rank for rank in range(7)],
        shuffle_seed=2**63 - 1,
    )
    path = written(tmp_path / "huge", {"nested": {"dataset": huge}})
    for words in (("inspect", path), ("trace", path, "--row", 2**62, "--batch-size", 2**40)):
        out = call(*words)[1]
        assert len(out.splitlines()) <= 25
        assert max(map(len, out.splitlines())) <= 100
        assert "\x1b" not in out
    out = call("inspect", path)[1]
    assert " 99.9 %" in out
    assert "(9,223,372" not in out
    answer = asked("inspect", path)
    assert (answer["rows_remaining"], answer["world_sizes"], answer["state"]) == (5040 - 7, divisors(5040), huge)


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "██"), ("ascii", "##"), ("latin-1", "##"), (None, "##")])
def test_output_is_printable_in_every_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str | None, shown: str) -> None:
    path = written(tmp_path / "état", state(table_name="数"))
    raw = io.BytesIO()
    stream: Any = io.StringIO() if encoding is None else io.TextIOWrapper(raw, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["inspect", str(path)]) == 0
    text = stream.getvalue() if encoding is None else raw.getvalue().decode(str(encoding))
    assert shown in text
    assert ("数" if encoding == "utf-8" else "\\u6570") in text


def test_a_reader_that_has_gone_is_no_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, sender = os.pipe()
    os.close(receiver)
    with os.fdopen(sender, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["inspect", str(file)]) == 0
        terminal.emit("more")


def test_numpy_keys_are_shown() -> None:
    assert terminal.plain(np.int64(3)) == "3"
    assert terminal.plain("a\nb") == "a\\nb"

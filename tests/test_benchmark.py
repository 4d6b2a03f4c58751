"""The benchmarks' machinery, on a tiny table, in this process and for our loaders alone; no figure is looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.benchmark import measure, run
from tests.benchmark.fresh import Figures, MeasurementError
from tests.benchmark.loaders import OURS, Steps, Work

OUR_NAMES = [contender.name for contender in OURS]


def in_process(module: str, setting: Mapping[str, Any]) -> Figures:
    assert module == measure.__name__
    return measure.measure(**setting)


@pytest.mark.parametrize("table", ["tab", "ragged"])
def test_ours_are_checked_and_measured(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_SLOW_S", 0.0)
    out = tmp_path / "out"
    options = ["--repeats", "1", "--seconds", "0", "--rows", "3001", "--data", str(tmp_path), "--out", str(out)]
    assert run.main(["--tables", table, "--contenders", *OUR_NAMES, "take-lancedb", *options], in_process) == 0
    results = {entry["contender"]: entry["repeats"] for entry in json.loads((out / "results.json").read_text(encoding="utf-8"))}
    assert list(results) == [*OUR_NAMES, "take-lancedb"]
    assert all(figures["rows_per_s"] > 0 for [figures] in results.values())
    assert f"## {table}" in (out / "report.md").read_text(encoding="utf-8")


def test_lost_and_repeated_rows_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(work: Work) -> Steps:
        _, *others = OURS[1].epoch(work)
        yield from others

    def repeating(work: Work) -> Steps:
        first, _, *others = OURS[1].epoch(work)
        yield from (first, first, *others)

    for wrong in (losing, repeating):
        monkeypatch.setitem(measure.CONTENDERS, "ours-torch", replace(OURS[1], epoch=wrong))
        with pytest.raises(AssertionError, match="different ids among"):
            in_process(measure.__name__, {"home": str(tmp_path), "table": "tab", "contender": "ours-torch", "rows": 2000, "check": True})


def test_failures_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(module: str, setting: Mapping[str, Any]) -> Figures:
        raise MeasurementError("exit status 1: a reason")

    options = ["--tables", "tab", "--contenders", "ours-torch", "--repeats", "1", "--rows", "2000", "--data", str(tmp_path)]
    assert run.main(options, fails) == 1
    assert "- ours-torch on tab, repeat 1: exit status 1: a reason" in capsys.readouterr().out

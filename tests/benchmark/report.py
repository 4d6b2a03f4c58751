"""What `run` shows: tables in Markdown, ratios beside the goals, where we lose, and a plot."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.benchmark.fresh import Figures, surroundings

# Of each table and contender the figures of each repeat, None where it failed.
Results = dict[tuple[str, str], list[Figures | None]]

# Title, key, and how to show it.
Columns = tuple[tuple[str, str, Callable[[float], str]], ...]

_FIRST_S = 0.1  # goal of each of ours
_AGAINST = ("peer-default", "peer-tuned", "peer-best", "take-lancedb", "take-lance")
# What, which of ours, against whom, and how many times as fast at least, for each table.
GOALS: tuple[tuple[str, str, str, dict[str, float]], ...] = (
    ("batches against the peer's defaults", "ours-torch", "peer-default", {"tab": 40, "emb": 14, "tok": 25, "img": 1.3}),
    ("the same, our default format", "ours-python", "peer-default", {}),
    ("against the peer hand-tuned", "ours-torch", "peer-tuned", {"tab": 16, "emb": 4.5, "tok": 3, "img": 1.3}),
    ("against the best peer that we could tune", "ours-torch", "peer-best", {}),
    ("against lancedb's raw take, same window", "ours-torch", "take-lancedb", {"tab": 0.9, "emb": 0.9, "tok": 0.9, "img": 0.9}),
    ("against pylance's raw take, same window", "ours-torch", "take-lance", {"tab": 0.9, "emb": 0.9, "tok": 0.9, "img": 0.9}),
    ("clump 64 against the peer's, tuned", "ours-clump", "peer-clump", {"tab": 75, "emb": 80, "tok": 24, "img": 1.1}),
    ("row iteration against the peer's", "ours-rows", "peer-rows", {"tab": 6, "emb": 3, "tok": 2, "img": 1}),
    ("batches against datasets, map style", "ours-torch", "datasets", {}),
)


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Median and range."""
    if not values:
        return "failed"
    middle = show(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({show(min(values))} to {show(max(values))})"


def rate(value: float) -> str:
    """Rows per second."""
    return f"{value / 1000:.3g}k" if value < 1e6 else f"{value / 1e6:.3g}M"


def ratio(value: float) -> str:
    """How many times as fast."""
    return f"{value:.3g}x"


def milliseconds(value: float) -> str:
    """Seconds, as ms."""
    return f"{value * 1000:.4g} ms"


def microseconds(value: float) -> str:
    """Seconds, as us."""
    return f"{value * 1e6:.3g} us"


def megabytes(value: float) -> str:
    """Bytes, as MB."""
    return f"{value / 1e6:.4g} MB"


_COLUMNS: Columns = (
    ("rows/s", "rows_per_s", rate),
    ("with start-up", "rows_per_s_with_start", rate),
    ("first batch", "first_batch_s", milliseconds),
    ("peak memory", "peak_bytes", megabytes),
    ("of that, grown", "grown_bytes", megabytes),
    ("buffered, slow consumer", "buffered_bytes", megabytes),
)


def brief(figures: Figures) -> str:
    """One line about one measurement."""
    return ", ".join(f"{title} {show(figures[key])}" for title, key, show in _COLUMNS if figures.get(key) is not None) or "passed"


def values(results: Results, table: str, name: str, key: str) -> list[float]:
    """A figure, of the repeats that gave it."""
    return [run[key] for run in results.get((table, name), []) if run is not None and run[key] is not None]


def ratios(results: Results, table: str, ours: str, other: str) -> list[float]:
    """Steady rows per second of one against the other, repeat by repeat."""
    pairs = zip(results.get((table, ours), []), results.get((table, other), []), strict=False)
    return [one["rows_per_s"] / two["rows_per_s"] for one, two in pairs if one is not None and two is not None]


def compared(results: Results, table: str, ours: str, other: str) -> str:
    """That ratio as text, with a star where one of the two is marked."""
    star = " *" if prefilled(results, table, ours) or prefilled(results, table, other) else ""
    return spread(ratios(results, table, ours, other), ratio) + star


def prefilled(results: Results, table: str, name: str) -> bool:
    """Whether the table is too short for what this contender reads ahead."""
    return any(run is not None and run["prefilled"] for run in results.get((table, name), []))


def markdown(results: Results, failures: Sequence[str] = ()) -> str:
    """The whole report."""
    tables = list(dict.fromkeys(table for table, _ in results))
    repeats = max(len(runs) for runs in results.values())
    how = f"Medians and ranges of {repeats} repeats; ratios are those within a repeat"
    star = "A star: a quarter of the table or more is read ahead, so part of the speed may be a prefilled buffer"
    parts = ["# Benchmark", f"{surroundings()}. {how}. {star}."]
    parts += [_figures(results, table) for table in tables]
    parts.append(_goals(results, tables))
    parts.append("## Where we lose\n" + ("\n".join(f"- {line}" for line in losses(results, tables)) or "Nowhere in this run."))
    if failures:
        parts.append("## Failed\n" + "\n".join(f"- {line}" for line in failures))
    return "\n\n".join(parts)


def losses(results: Results, tables: Sequence[str]) -> list[str]:
    """Goals that were missed, first batches that came late, and loaders of others that were faster."""
    found = []
    for title, ours, other, goals in GOALS:
        for table in tables:
            measured = ratios(results, table, ours, other)
            if measured and statistics.median(measured) < (goal := goals.get(table, 1.0)):
                found.append(f"{table}: {ours}, {title}: {compared(results, table, ours, other)}, goal {ratio(goal)}")
    for table, name in results:
        if name.startswith("ours"):
            late = values(results, table, name, "first_batch_s")
            if late and statistics.median(late) > _FIRST_S:
                found.append(f"{table}: {name}, first batch: {spread(late, milliseconds)}, goal {milliseconds(_FIRST_S)}")
    return found


def plot(results: Results, path: Path) -> bool:
    """Bars of rows per second with their ranges; False without matplotlib."""
    if find_spec("matplotlib") is None:
        return False
    importlib.import_module("matplotlib").use("agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    tables = list(dict.fromkeys(table for table, _ in results))
    figure, axes = pyplot.subplots(1, len(tables), figsize=(4 * len(tables), 4), squeeze=False, layout="constrained")
    for axis, table in zip(axes[0], tables, strict=True):
        runs = {name: values(results, table, name, "rows_per_s") for of, name in results if of == table}
        names = [name for name, rates in runs.items() if rates][::-1]
        middles = [statistics.median(runs[name]) for name in names]
        below = [middle - min(runs[name]) for name, middle in zip(names, middles, strict=True)]
        above = [max(runs[name]) - middle for name, middle in zip(names, middles, strict=True)]
        colors = ["#c44e52" if name.startswith("ours") else "#8c8c8c" for name in names]
        axis.barh(names, middles, xerr=[below, above], color=colors, capsize=2)
        axis.set(title=table, xscale="log", xlabel="rows/s")
    figure.savefig(path)
    pyplot.close(figure)
    return True


def _figures(results: Results, table: str) -> str:
    """One table's figures."""
    heads = ["contender", *(title for title, _, _ in _COLUMNS), *(f"/ {name}" for name in _AGAINST)]
    lines = []
    for of, name in results:
        if of == table:
            marked = name + (" *" if prefilled(results, table, name) else "")
            cells = [spread(found, show) if (found := values(results, table, name, key)) else "" for _, key, show in _COLUMNS]
            against = [spread(found, ratio) if (found := ratios(results, table, name, other)) else "" for other in _AGAINST]
            lines.append([marked, *cells, *against])
    return f"## {table}\n" + grid(heads, lines)


def _goals(results: Results, tables: Sequence[str]) -> str:
    """Ratios beside the goals."""
    lines = []
    for title, ours, other, goals in GOALS:
        cells = []
        for table in tables:
            measured = ratios(results, table, ours, other)
            goal = f", goal {ratio(goals[table])}" if table in goals else ""
            cells.append(compared(results, table, ours, other) + goal if measured else "")
        lines.append([f"{title} ({ours} / {other})", *cells])
    return "## Goals\n" + grid(["ratio of rows/s", *tables], lines)


def summary(runs: dict[str, list[Figures]], columns: Columns) -> str:
    """A Markdown table of what was measured under each label; figures that a label lacks stay empty."""
    lines = []
    for label, repeats in runs.items():
        found = [[run[key] for run in repeats if run.get(key) is not None] for _, key, _ in columns]
        lines.append([label, *(spread(some, show) if some else "" for some, (_, _, show) in zip(found, columns, strict=True))])
    return grid(["", *(title for title, _, _ in columns)], lines)


def grid(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, ["---"] * len(heads), *lines))

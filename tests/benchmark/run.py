"""Throughput, start-up and memory of ours, the peer, raw takes and others. ``python -m tests.benchmark.run``, by hand or at night.

A fresh process per configuration; in each repeat every contender on a table comes once, in another order, so that ratios are of one
repeat; medians and ranges are shown. Each contender of ours is checked once beside the clock: the ids of a whole epoch, each exactly
once. Tables are made at the first run (1.9 GB), and the Arrow files of Hugging Face datasets as much again. With ``--out DIR``: report.md,
rates.svg and results.json. Nothing here is a test: timings are noisy, compare ratios of one run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmark import report
from tests.benchmark.fresh import Figures, Launch, MeasurementError, launch
from tests.benchmark.measure import CONTENDERS
from tests.benchmark.tables import HOME, TABLES, as_arrow, make

_MEASURE = "tests.benchmark.measure"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """What to measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="least time of each measurement")
    parser.add_argument("--out", type=Path, help="directory of the report")
    parser.add_argument("--data", type=Path, default=HOME, help="directory of the tables (default: %(default)s)")
    parser.add_argument("--rows", type=int, help="rows of each table, for tries")
    return parser.parse_args(argv)


def present(names: Sequence[str]) -> list[str]:
    """The contenders that can run here; a line about each of the others."""
    for name in names:
        if missing := CONTENDERS[name].missing():
            print(f"{name} is left out: {', '.join(missing)} not installed", flush=True)
    return [name for name in names if not CONTENDERS[name].missing()]


def main(argv: Sequence[str] | None = None, start: Launch = launch) -> int:
    """Measure everything; status 1 if anything failed, a check first of all."""
    chosen = arguments(argv)
    contenders = present(chosen.contenders)
    common = {"home": str(chosen.data), "rows": chosen.rows}
    for table in chosen.tables:
        stored = make(chosen.data, table, chosen.rows)
        if "datasets" in contenders:
            as_arrow(chosen.data, stored)
    results: report.Results = {(table, name): [None] * chosen.repeats for table in chosen.tables for name in contenders}
    failures = []

    def attempt(what: str, table: str, name: str, **setting: object) -> Figures | None:
        try:
            figures = start(_MEASURE, {**common, "table": table, "contender": name, **setting})
        except MeasurementError as error:
            failures.append(f"{name} on {table}, {what}: {error}")
            print(failures[-1], flush=True)
            return None
        print(f"{name} on {table}, {what}: {report.brief(figures)}", file=sys.stderr, flush=True)
        return figures

    for table in chosen.tables:
        for name in contenders:
            if CONTENDERS[name].ours:
                attempt("check", table, name, check=True)
    for repeat in range(chosen.repeats):
        for table in random.sample(chosen.tables, len(chosen.tables)):
            for name in random.sample(contenders, len(contenders)):
                results[table, name][repeat] = attempt(f"repeat {repeat + 1}", table, name, seconds=chosen.seconds)
    text = report.markdown(results, failures)
    print(text)
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        (chosen.out / "report.md").write_text(text + "\n", encoding="utf-8")
        raw = [{"table": table, "contender": name, "repeats": runs} for (table, name), runs in results.items()]
        (chosen.out / "results.json").write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
        if not report.plot(results, chosen.out / "rates.svg"):
            print("no plot: matplotlib is not installed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

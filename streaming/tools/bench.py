"""``bench``: how fast a table is loaded, where the time goes, and what turning one knob would change (TOL-6)."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, Final

from streaming import StreamingDataLoader, StreamingDataset
from streaming import arguments as checks
from streaming.errors import ArgumentTypeError, ArgumentValueError, BatchError, TooFewRowsError, WorkerFailedError
from streaming.stats import Stats
from streaming.tools.fit import open_table
from streaming.tools.hints import KEYS, Figures, Measured, figures, hint
from streaming.tools.statefile import UnreadableError
from streaming.tools.terminal import aligned, counted, emit, plain

_CLUMP: Final = 64
_WORKERS: Final = 2
_WARM_UP_SECONDS: Final = 1.0
_SAMPLE_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Plan:
    """A configuration: arguments of dataset and loader, by their names."""

    batch_size: int
    num_splits: int
    num_workers: int
    worker_sharding: str
    columns: list[str] | None
    filter: str | None
    shuffle: bool
    shuffle_clump_size: int | None
    format: str
    read_ahead_bytes: int

    def variants(self) -> Iterator[tuple[str, Plan]]:
        """This configuration with one knob turned, by name; none that is this one."""
        for name, plan in (
            ('format="torch"', replace(self, format="torch")),
            (f"shuffle_clump_size={_CLUMP}", replace(self, shuffle_clump_size=_CLUMP if self.shuffle else None)),
            (f"num_workers={_WORKERS}", self if self.num_workers else replace(self, num_workers=_WORKERS, worker_sharding="batches")),
        ):
            if plan != self:
                yield name, plan

    def open(self, table: Any, seed: int) -> StreamingDataset:
        """A dataset of its own; as the only rank, whatever the environment of this process says."""
        return StreamingDataset(
            table,
            num_splits=self.num_splits,
            shuffle=self.shuffle,
            shuffle_seed=seed if self.shuffle else None,
            columns=self.columns,
            filter=self.filter,
            shuffle_clump_size=self.shuffle_clump_size,
            read_ahead_bytes=self.read_ahead_bytes,
            rank=0,
            world_size=1,
        )

    def loader(self, dataset: StreamingDataset) -> StreamingDataLoader:
        """The loader that is measured."""
        return StreamingDataLoader(
            dataset,
            batch_size=self.batch_size,
            num_workers=self.num_workers,
            worker_sharding=self.worker_sharding,
            format=self.format,
        )


def run(arguments: argparse.Namespace) -> bool:
    """Measure, and print what was measured; return False where the configuration as given is refused.

    Raises
    ------
    UnreadableError
        The table cannot be opened or read.
    ArgumentTypeError, ArgumentValueError, TooFewRowsError
        The options do not fit each other, or the table.
    """
    given, seconds = _plan(arguments), arguments.seconds
    table = open_table(arguments.uri, arguments.table)
    where = f"table {plain(arguments.table)} at {plain(arguments.uri)}"
    with _engine_errors(where):
        # Once, for what all have to say of the table, and so that wrong arguments fail before anything is measured.
        dataset = given.open(table, 0)
        given.loader(dataset)
        facts = {"table": arguments.table, "version": dataset.version, "rows": dataset.schedule(1).rows}
        _warm_up(dataset, given, min(_WARM_UP_SECONDS, seconds))
    plans = [("as given", given), *(() if arguments.only_this else given.variants())]
    configurations: list[Measured] = []
    for seed, (name, plan) in enumerate(plans, 1):
        if configurations and configurations[0].refused is not None and plan.format == given.format:
            continue  # it would be refused alike
        if sys.stderr.isatty():
            print(f"measuring {name} ({seed} of {len(plans)})", file=sys.stderr)
        try:
            with _engine_errors(where):
                configurations.append(Measured(name, asdict(plan), figures=measure(table, plan, seed, seconds)))
        except (BatchError, WorkerFailedError) as error:
            configurations.append(Measured(name, asdict(plan), refused=_reason(error)))
        except Exception as error:
            if plan is given:
                raise
            # A variant is ours: that it does not work here, for want of memory for instance, must not cost the other figures.
            configurations.append(Measured(name, asdict(plan), refused=_reason(error)))
    advice = hint(configurations)
    if arguments.json:
        emit(json.dumps({**facts, "configurations": [_as_json(one) for one in configurations], "hint": advice}))
    else:
        emit(_report(facts, seconds, configurations, advice))
    return configurations[0].refused is None


def measure(table: Any, plan: Plan, seed: int, seconds: float) -> Figures:
    """Run one configuration, from its first batch on, so that the start of workers is not held against them.

    Parameters
    ----------
    table : lancedb.table.Table
        The table.
    plan : Plan
        The configuration.
    seed : int
        Its own, so that it reads other pages first than the one before.
    seconds : float
        How long, or to the end of the epoch.
    """
    loader = plan.loader(plan.open(table, seed))
    began = perf_counter()
    with contextlib.closing(iter(loader)) as batches:
        next(batches)  # a dataset has at least one row for each split
        first = now = sampled = perf_counter()
        before = loader.stats()
        buffered, ended = before.bytes_buffered, False
        while now - first < seconds and not ended:
            if next(batches, None) is None:
                ended = True  # the clock stays at the last batch: workers take their time to end
            else:
                now = perf_counter()
                if now - sampled > _SAMPLE_SECONDS:
                    sampled, buffered = now, max(buffered, loader.stats().bytes_buffered)
        after = loader.stats()
    alone = after.rows_received == before.rows_received
    return figures(
        Stats() if alone else before,
        after,
        seconds=now - (began if alone else first),
        first_batch_seconds=first - began,
        epoch_ended=ended,
        buffered=max(buffered, after.bytes_buffered),
        workers=plan.num_workers,
    )


def _plan(arguments: argparse.Namespace) -> Plan:
    """The configuration as given, with what neither dataset nor loader checks by name."""
    if not (0 < arguments.seconds < math.inf):
        raise ArgumentValueError(f"seconds must be a number > 0, got {arguments.seconds}", "seconds")
    return Plan(
        batch_size=checks.integer("batch_size", arguments.batch_size, 1),
        num_splits=arguments.num_splits,
        num_workers=checks.integer("num_workers", arguments.num_workers, 0),
        worker_sharding=arguments.worker_sharding,
        columns=None if arguments.columns is None else arguments.columns.split(","),
        filter=arguments.filter,
        shuffle=not arguments.no_shuffle,
        shuffle_clump_size=arguments.shuffle_clump_size,
        format=arguments.format,
        read_ahead_bytes=arguments.read_ahead_bytes,
    )


def _warm_up(dataset: StreamingDataset, plan: Plan, seconds: float) -> None:
    """Let what is paid only once be paid: imports, threads, the first look at the table's files."""
    began = perf_counter()
    loader = replace(plan, num_workers=0).loader(dataset)
    # What is refused is told when it is measured.
    with contextlib.suppress(BatchError), contextlib.closing(iter(loader)) as batches:
        while perf_counter() - began < seconds and next(batches, None) is not None:
            pass


@contextlib.contextmanager
def _engine_errors(where: str) -> Iterator[None]:
    """Whatever the engine raises on a damaged table, or one out of reach, is that the table cannot be read."""
    try:
        yield
    except (ArgumentTypeError, ArgumentValueError, TooFewRowsError, BatchError, WorkerFailedError):
        raise
    except Exception as error:
        raise UnreadableError(f"{where} cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """What an error says, in one line; torch puts the traceback of a worker before it."""
    name = type(error).__name__
    text = " ".join(str(error).rpartition(f"{name}: ")[2].split()) or name
    return plain(text[:600])


def _as_json(one: Measured) -> dict[str, Any]:
    found = dict.fromkeys(KEYS) if one.figures is None else asdict(one.figures)
    return {"name": one.name, "settings": one.settings, "refused": one.refused, **found}


# ---- for people


def _report(facts: dict[str, Any], seconds: float, configurations: Sequence[Measured], advice: str) -> str:
    measured = [(one, one.figures) for one in configurations if one.figures is not None]
    head = f"table {facts['table']!r} version {facts['version']}, {counted(facts['rows'], 'row')}; batches of "
    head += f"{configurations[0].settings['batch_size']:,}, {seconds:g} s each or to the end of the epoch"
    lines = [*aligned([("measured", head)]), ""]
    if measured:
        lines += [*_table(measured), ""]
    entries = [("refused", f"{one.name}: {one.refused}") for one in configurations if one.refused is not None]
    if measured:
        entries.append(("note", _note(configurations[0], [one for one, _ in measured])))
    lines += aligned([*entries, ("hint", advice)], 8)
    return "\n".join(lines)


def _note(given: Measured, measured: Sequence[Measured]) -> str:
    """What the table alone does not say."""
    notes = "Figures within 20 % of each other are equal."
    if any(one.settings["num_workers"] for one in measured):
        notes += " Workers make batches at a time of their own: the trainer's process only waits for them."
    if not given.settings["num_workers"] and any(one.settings["num_workers"] for one in measured):
        notes += f' num_workers={_WORKERS} is with worker_sharding="batches".'
    if not given.settings["shuffle"]:
        notes += " Without shuffle all read the same pages: from the second on they may lie in memory."
    return notes


def _table(measured: Sequence[tuple[Measured, Figures]]) -> list[str]:
    """One column for each configuration, for their names are longer than their figures."""
    rows = [("", [one.name for one, _ in measured])]
    for label, shown in _ROWS:
        rows.append((label, [shown(one) for _, one in measured]))
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in rows), strict=True)]
    label_width = max(len(label) for label, _ in rows)
    lines = []
    for label, cells in rows:
        lines.append(f"{label:{label_width}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
    return [line.rstrip() for line in lines]


_ROWS: Final[tuple[tuple[str, Callable[[Figures], str]], ...]] = (
    ("rows/s", lambda one: f"{one.rows_per_second:,.0f}"),
    ("MB/s", lambda one: f"{one.mb_per_second:,.1f}"),
    ("first batch", lambda one: f"{one.first_batch_seconds:.3f} s"),
    ("waiting", lambda one: f"{one.share_waiting:.0%}"),
    ("making batches", lambda one: f"{one.share_batches:.0%}"),
    ("transform", lambda one: f"{one.share_transform:.0%}"),
    ("the rest", lambda one: f"{one.share_rest:.0%}"),
    ("buffered, at most", lambda one: f"{one.bytes_buffered / 1e6:,.1f} MB"),
    ("reads", lambda one: f"{one.reads:,}"),
    ("rows per read", lambda one: f"{one.rows_per_read:,.0f}"),
    ("time of a read", lambda one: f"{one.seconds_per_read * 1000:,.1f} ms"),
    ("measured for", lambda one: f"{one.seconds:.2f} s{' (epoch)' if one.epoch_ended else ''}"),
)

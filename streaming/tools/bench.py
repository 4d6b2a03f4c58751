"""``bench``: how fast a table is loaded, where the time goes, and what turning one knob would change (TOL-6)."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, Final

from streaming import StreamingDataLoader, StreamingDataset
from streaming import arguments as checks
from streaming.batches import FORMATS, make_batch
from streaming.errors import ArgumentTypeError, ArgumentValueError, BatchError, TooFewRowsError, WorkerFailedError
from streaming.tools.fit import open_table
from streaming.tools.hints import KEYS, TOO_SHORT_SECONDS, Figures, Look, Measured, Rates, figures, hint
from streaming.tools.statefile import UnreadableError
from streaming.tools.terminal import aligned, counted, emit, plain

_CLUMP: Final = 64
_WORKERS: Final = 2
_WARM_UP_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 3.0
_SAMPLE_SECONDS: Final = 0.02
_MOST_SHOWN: Final = 8


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
    look: Look | None = None
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
            if plan is given and isinstance(error, BatchError):
                with _engine_errors(where):
                    look = look_at_columns(table, plan, seed, min(seconds, _LOOK_SECONDS), error.column)
        except Exception as error:
            if plan is given:
                raise
            # A variant is ours: that it does not work here, for want of memory for instance, must not cost the other figures.
            configurations.append(Measured(name, asdict(plan), refused=_reason(error)))
    advice = hint(configurations, look)
    if arguments.json:
        emit(json.dumps({**facts, "configurations": [_as_json(one, look) for one in configurations], "hint": advice}))
    else:
        emit(_report(facts, seconds, configurations, advice, look))
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
    return figures(
        before,
        after,
        seconds=now - first,
        first_batch_seconds=first - began,
        epoch_ended=ended,
        buffered=max(buffered, after.bytes_buffered),
        workers=plan.num_workers,
    )


def look_at_columns(table: Any, plan: Plan, seed: int, seconds: float, refused: str = "") -> Look:
    """Make each column of a configuration's batches into every format, for so long or to the end of the epoch.

    Parameters
    ----------
    table, plan, seed, seconds
        As for `measure`.
    refused : str
        A column that its format refused. Without one, which is lost where a worker says so, it looks on until it finds one.
    """
    loader = replace(plan, format="arrow", num_workers=0).loader(plan.open(table, seed))
    found: dict[str, dict[str, str]] = {layout: {} for layout in FORMATS if layout != "arrow"}
    types: dict[str, str] = {}
    own, rows, whole = found[plan.format], 0, False
    began = perf_counter()
    with contextlib.closing(iter(loader)) as batches:
        while not whole and (not types or perf_counter() - began < seconds or not (own or refused)):
            batch = next(batches, None)
            if batch is None:
                whole = True
                continue
            rows += batch.num_rows
            types = {field.name: plain(field.type) for field in batch.schema}
            for layout, name in ((layout, name) for layout in found for name in types if name not in found[layout]):
                try:
                    make_batch(batch.select([name]), layout)
                except BatchError as error:
                    found[layout][name] = types[name] + _what(error, batch.column(name).null_count, types[name])
    if refused:
        own.setdefault(refused, types[refused])
    ordered = {layout: {name: columns[name] for name in types if name in columns} for layout, columns in found.items()}
    return Look(tuple(types), ordered, rows, whole)


def _what(error: BatchError, nulls: int, kind: str) -> str:
    """What is wrong with a column, beside its type."""
    why = plain(error.__cause__)
    return " with null" if nulls else f": {why}" if len(why) <= 60 and kind not in why else ""


def _plan(arguments: argparse.Namespace) -> Plan:
    """The configuration as given, with what neither dataset nor loader checks by name."""
    if not (0 < arguments.seconds < math.inf):
        raise ArgumentValueError(f"seconds must be a number > 0, got {arguments.seconds}", "seconds")
    return Plan(
        batch_size=checks.integer("batch_size", arguments.batch_size, 1),
        num_splits=arguments.num_splits,
        num_workers=checks.integer("num_workers", arguments.num_workers, 0),
        worker_sharding=arguments.worker_sharding,
        columns=arguments.columns,
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


def _as_json(one: Measured, look: Look | None) -> dict[str, Any]:
    found = dict.fromkeys(KEYS) if one.figures is None else one.figures.flat()
    columns = _columns(one, look)
    return {
        "name": one.name,
        "settings": one.settings,
        "refused": one.refused,
        "refused_columns": None if columns is None else list(columns),
        **found,
    }


def _columns(one: Measured, look: Look | None) -> Mapping[str, str] | None:
    """What its format refuses, where it is refused and that was looked for."""
    return None if look is None or one.refused is None else look.refused[one.settings["format"]]


# ---- for people


def _report(facts: dict[str, Any], seconds: float, configurations: Sequence[Measured], advice: str, look: Look | None = None) -> str:
    measured = [(one, one.figures) for one in configurations if one.figures is not None]
    head = f"table {facts['table']!r} version {facts['version']}, {counted(facts['rows'], 'row')}; batches of "
    head += f"{configurations[0].settings['batch_size']:,}, {seconds:g} s each or to the end of the epoch"
    lines = [*aligned([("measured", head)]), ""]
    if measured:
        lines += [*_table(measured), ""]
    entries = [("refused", f"{one.name}: {_refusal(one, look)}") for one in configurations if one.refused is not None]
    if measured:
        entries.append(("note", _note(configurations[0], [one for one, _ in measured])))
    lines += aligned([*entries, ("hint", advice)], 8)
    return "\n".join(lines)


def _refusal(one: Measured, look: Look | None) -> str:
    columns = _columns(one, look)
    if look is None or not columns:
        return str(one.refused)
    shown = [f"{name!r} ({what})" for name, what in columns.items()][:_MOST_SHOWN]
    more = f" and {len(columns) - len(shown)} more" if len(columns) > len(shown) else ""
    return f"{len(columns)} of {counted(len(look.columns), 'column')}: {', '.join(shown)}{more}"


def _note(given: Measured, measured: Sequence[Measured]) -> str:
    """What the table alone does not say."""
    notes = "Rates and shares are of the time behind the first batch; those within 20 % of each other are equal."
    if any(one.figures is not None and one.figures.rates is None for one in measured):
        notes += f" Under {TOO_SHORT_SECONDS:g} s of it are too short for them."
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


def _rate(shown: Callable[[Rates], str], without: str = "-") -> Callable[[Figures], str]:
    return lambda one: without if one.rates is None else shown(one.rates)


_ROWS: Final[tuple[tuple[str, Callable[[Figures], str]], ...]] = (
    ("first batch", lambda one: f"{one.first_batch_seconds:.3f} s"),
    ("rows/s", _rate(lambda one: f"{one.rows_per_second:,.0f}", "too short")),
    ("MB/s", _rate(lambda one: f"{one.mb_per_second:,.1f}")),
    ("waiting", _rate(lambda one: f"{one.share_waiting:.0%}")),
    ("making batches", _rate(lambda one: f"{one.share_batches:.0%}")),
    ("transform", _rate(lambda one: f"{one.share_transform:.0%}")),
    ("the rest", _rate(lambda one: f"{one.share_rest:.0%}")),
    ("buffered, at most", lambda one: f"{one.bytes_buffered / 1e6:,.1f} MB"),
    ("reads", lambda one: f"{one.reads:,}"),
    ("rows per read", lambda one: f"{one.rows_per_read:,.0f}"),
    ("time of a read", lambda one: f"{one.seconds_per_read * 1000:,.1f} ms"),
    ("measured for", lambda one: f"{one.seconds:.2f} s{' (epoch)' if one.epoch_ended else ''}"),
)

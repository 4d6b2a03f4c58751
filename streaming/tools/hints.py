"""What was measured of a loader, and which knob it says to turn (TOL-6)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from streaming.stats import Stats
from streaming.tools.terminal import counted

GAIN: Final = 1.2
"""Two figures that differ by less are equal: that much one and the same configuration differs from run to run."""

TOO_SHORT_SECONDS = 0.3
"""Behind the first batch: what is measured for less has no rates."""

_SLOW_READ_SECONDS: Final = 0.05
_FEW_ROWS: Final = 1024
# The default: 8 reads of 8 MiB are all that is ever read ahead (REA-3, REA-4), so a larger budget has next to no use.
_ENOUGH_AHEAD: Final = 64 * 2**20
_MOST_NAMED: Final = 4
_MOST_LETTERS: Final = 80


@dataclass(frozen=True)
class Rates:
    """What only a time that is long enough says.

    Parameters
    ----------
    rows_per_second, mb_per_second : float
        Rows received; Arrow bytes read, in units of 10^6.
    share_waiting, share_batches, share_transform, share_rest : float
        Parts of the time, of the trainer's process; together 1.
    """

    rows_per_second: float
    mb_per_second: float
    share_waiting: float
    share_batches: float
    share_transform: float
    share_rest: float


@dataclass(frozen=True)
class Figures:
    """What was measured of one configuration, by the JSON keys of TOL-6.

    Parameters
    ----------
    rates : Rates or None
        None where it was too short.
    first_batch_seconds : float
        From ``iter(loader)`` to the first batch.
    seconds : float
        From there to the last batch: the time that rates are of, 0 where the first is the last.
    epoch_ended : bool
        Whether it stopped because no row was left.
    bytes_buffered : int
        Most Arrow bytes that were seen to be held.
    reads : int
        Windows read in the whole pass.
    rows_per_read, seconds_per_read : float
        Means over them.
    """

    rates: Rates | None
    first_batch_seconds: float
    seconds: float
    epoch_ended: bool
    bytes_buffered: int
    reads: int
    rows_per_read: float
    seconds_per_read: float

    def flat(self) -> dict[str, Any]:
        """By `KEYS`."""
        own = asdict(self)
        return {**(own.pop("rates") or dict.fromkeys(_RATES)), **own}


_RATES: Final = tuple(field.name for field in fields(Rates))
KEYS: Final = (*_RATES, *(field.name for field in fields(Figures) if field.name != "rates"))


def figures(
    before: Stats, after: Stats, *, seconds: float, first_batch_seconds: float, epoch_ended: bool, buffered: int, workers: int
) -> Figures:
    """Make figures of statistics at the beginning and the end of a measurement.

    Parameters
    ----------
    before, after : Stats
        Behind the first batch and the last of one pass of a fresh dataset, so that the later ones are those of the whole pass.
    seconds : float
        Between them.
    first_batch_seconds, epoch_ended, buffered
        As in `Figures`.
    workers : int
        With any, batches are made at a time that is not the trainer's: it only waits.
    """
    reads = max(after.reads, 1)
    return Figures(
        rates=_rates(before, after, seconds, workers),
        first_batch_seconds=first_batch_seconds,
        seconds=seconds,
        epoch_ended=epoch_ended,
        bytes_buffered=buffered,
        reads=after.reads,
        rows_per_read=after.rows_received / reads,
        seconds_per_read=after.read_seconds / reads,
    )


def _rates(before: Stats, after: Stats, seconds: float, workers: int) -> Rates | None:
    rows = after.rows_received - before.rows_received
    if not rows or seconds < TOO_SHORT_SECONDS:
        return None
    own = 0 if workers else 1
    parts = [
        after.wait_seconds - before.wait_seconds,
        own * (after.batch_seconds - before.batch_seconds),
        own * (after.transform_seconds - before.transform_seconds),
    ]
    # Clocks are read one after the other: parts of a very short time may seem to be more than it.
    whole = max(seconds, sum(parts))
    waiting, batches, transform = (part / whole for part in parts)
    return Rates(
        rows_per_second=rows / seconds,
        mb_per_second=(after.bytes_loaded - before.bytes_loaded) / seconds / 1e6,
        share_waiting=waiting,
        share_batches=batches,
        share_transform=transform,
        share_rest=max(0.0, 1 - waiting - batches - transform),
    )


@dataclass(frozen=True)
class Look:
    """Which columns each format refuses, of the rows that were looked at.

    Parameters
    ----------
    columns : tuple of str
        All that are read.
    refused : mapping
        By format, but for arrow, which refuses none: the columns, and what is in them.
    rows : int
        How many rows.
    whole : bool
        Whether they are those of the whole epoch.
    """

    columns: tuple[str, ...]
    refused: Mapping[str, Mapping[str, str]]
    rows: int
    whole: bool


@dataclass(frozen=True)
class Measured:
    """One configuration and its outcome.

    Parameters
    ----------
    name : str
        ``as given``, or the knob that was turned.
    settings : dict
        All its arguments of dataset and loader.
    figures : Figures or None
        None where it was refused.
    refused : str or None
        The reason.
    """

    name: str
    settings: dict[str, Any]
    figures: Figures | None = None
    refused: str | None = None


def hint(configurations: Sequence[Measured], look: Look | None = None) -> str:
    """Say which knob to turn: a function of what was found alone.

    What was measured goes before what is guessed of where time goes.

    Parameters
    ----------
    configurations : sequence of Measured
        What was given first, then its variants.
    look : Look, optional
        At the columns, where what was given is refused for one.
    """
    given, *variants = configurations
    own = given.figures
    if own is None:
        return _without_figures(configurations) if look is None else _refused(configurations, look)
    rates = own.rates
    if rates is None:
        return _too_short(own)
    measured = [(variant, theirs) for variant in variants if (theirs := _rates_of(variant)) is not None]
    short = [variant.name for variant in variants if variant.figures is not None and variant.figures.rates is None]
    share, most = max(
        (rates.share_waiting, "waiting for workers" if given.settings["num_workers"] else "waiting for reads"),
        (rates.share_batches, "making batches"),
        (rates.share_transform, "the transform"),
        (rates.share_rest, "neither waiting nor making batches"),
    )
    where = f"Most of the time ({share:.0%}) is {most}." if share > 0.5 else f"The largest part of the time ({share:.0%}) is {most}."
    advice = []
    if measured:
        best, theirs = max(measured, key=lambda pair: pair[1].rows_per_second)
        gain = theirs.rows_per_second / rates.rows_per_second
        if gain > GAIN:
            advice = [f"{best.name} has {gain:.1f} times the rows per second: {_ALSO.get(_knob(best), 'turn that knob')}."]
    waits = share == rates.share_waiting
    if waits and own.seconds_per_read > _SLOW_READ_SECONDS and own.rows_per_read < _FEW_ROWS:
        advice.append(_slow(given, own))
    elif not advice and waits and given.settings["num_workers"]:
        advice.append("Try a larger --num-workers, as far as there are cores.")
    elif not advice and share == rates.share_batches:
        advice += _untried(given, variants)
    if short:
        advice.append(f"Too short to tell of {_words(short, 'and')}: measure on a larger table.")
    if not advice:
        found = "No variant gains more than 20 %: nothing to gain here." if measured else "No variant was measured."
        pace = 1000 * given.settings["batch_size"] / rates.rows_per_second
        advice = [f"{found} A batch comes every {pace:.3g} ms: compare that with your training step."]
    return " ".join([where, *advice])


def _rates_of(one: Measured) -> Rates | None:
    return None if one.figures is None else one.figures.rates


def _too_short(own: Figures) -> str:
    if not own.epoch_ended:
        return f"Too short to tell: it was measured for {own.seconds:.3f} s. Give it more --seconds."
    if not own.seconds:
        return "Too short to tell: the whole epoch is one batch. Measure on a larger table, or with a smaller --batch-size."
    return f"Too short to tell: behind the first batch the whole epoch took {own.seconds:.3f} s. Measure on a larger table."


def _without_figures(configurations: Sequence[Measured]) -> str:
    """It failed, for another reason than a column."""
    others = [one.name for one in configurations if one.figures is not None]
    return f"The configuration as given fails; {_words(others, 'and')} did not." if others else "The configuration as given fails."


def _refused(configurations: Sequence[Measured], look: Look) -> str:
    """What goes, of that which was looked at: other columns, or another format."""
    given = configurations[0]
    refused = look.refused[given.settings["format"]]
    failed = {one.settings["format"] for one in configurations if one.figures is None}
    # Where its column was not found again, batches depend on something else, and only what takes every column is known to go.
    formats = [name for name, columns in look.refused.items() if refused and not columns and name not in failed]
    keep = f"keep all columns with --format {_words([*formats, 'arrow'], 'or')}"
    left = [name for name in look.columns if name not in refused]
    seen = "" if look.whole else f" So far as the first {counted(look.rows, 'row')} show."
    if not refused or not left or not all(name and name.isprintable() and "," not in name for name in left):
        said = f"{keep[0].upper()}{keep[1:]}.{seen if formats else ''}"
    else:
        many = f"the {len(refused)} refused columns"
        names = _words([repr(name) for name in refused], "and") if len(refused) <= _MOST_NAMED else many
        said = f"Leave out {names} with {_option(left)} or {keep}.{seen}"  # no comma, which would be typed with the names
    return said


def _option(columns: Sequence[str]) -> str:
    """As it is typed, if it is short enough for that."""
    names = shlex.quote(",".join(columns))
    if len(names) > _MOST_LETTERS:
        return f"--columns and the other {len(columns)} names"
    return f"--columns{'=' if names.startswith('-') else ' '}{names}"


def _words(words: Sequence[str], last: str) -> str:
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


_ALSO: Final = {
    "format": "turn that knob, where your model takes the table's own types",
    "shuffle_clump_size": "turn that knob, where rows that are stored together may stay together in the shuffle",
    "num_workers": 'turn that knob (worker_sharding="batches" keeps batches and states as they are)',
}


def _knob(variant: Measured) -> str:
    return variant.name.partition("=")[0]


def _slow(given: Measured, own: Figures) -> str:
    """Storage answers late, and each answer has few rows: more must be asked for at a time."""
    budget = given.settings["read_ahead_bytes"]
    slow = f"Storage is slow ({own.seconds_per_read:.2f} s for a read of {counted(round(own.rows_per_read), 'row')} on the average):"
    if budget < _ENOUGH_AHEAD:
        more = min(4 * budget, _ENOUGH_AHEAD)
        return f"{slow} a larger --read-ahead-bytes, {more:,} instead of {budget:,}, lets more reads run at a time."
    return f"{slow} read fewer bytes (--columns), or let more processes read (--num-workers)."


def _untried(given: Measured, variants: Sequence[Measured]) -> list[str]:
    """The knobs that make batches cheaper, or elsewhere, and were not measured."""
    tried = {_knob(variant): variant.figures is not None for variant in variants}
    knobs = []
    if not tried.get("format") and given.settings["format"] == "python":
        formats = "arrow" if "format" in tried else "torch, numpy or arrow"  # where torch is refused, numpy may be too
        knobs.append(f"--format {formats}, which makes batches in the table's own types")
    if not tried.get("num_workers"):
        knobs.append("more --num-workers, which make them in other processes")
    return [f"Try {' or '.join(knobs)}."] if knobs else []

"""What was measured of a loader, and which knob it says to turn (TOL-6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from streaming.stats import Stats
from streaming.tools.terminal import counted

GAIN: Final = 1.2
"""Two figures that differ by less are equal: that much one and the same configuration differs from run to run."""

_TOO_SHORT_SECONDS: Final = 0.3
_SLOW_READ_SECONDS: Final = 0.05
_FEW_ROWS: Final = 1024
# The default: 8 reads of 8 MiB are all that is ever read ahead (REA-3, REA-4), so a larger budget has next to no use.
_ENOUGH_AHEAD: Final = 64 * 2**20


@dataclass(frozen=True)
class Figures:
    """What was measured of one configuration, by the JSON keys of TOL-6.

    Parameters
    ----------
    rows_per_second, mb_per_second : float
        Rows received; Arrow bytes read, in units of 10^6.
    first_batch_seconds : float
        From ``iter(loader)`` to the first batch.
    seconds : float
        The time that rates and shares are of.
    epoch_ended : bool
        Whether it stopped because no row was left.
    share_waiting, share_batches, share_transform, share_rest : float
        Parts of that time, of the trainer's process; together 1.
    bytes_buffered : int
        Most Arrow bytes that were seen to be held.
    reads : int
        Windows read in the whole pass.
    rows_per_read, seconds_per_read : float
        Means over them.
    """

    rows_per_second: float
    mb_per_second: float
    first_batch_seconds: float
    seconds: float
    epoch_ended: bool
    share_waiting: float
    share_batches: float
    share_transform: float
    share_rest: float
    bytes_buffered: int
    reads: int
    rows_per_read: float
    seconds_per_read: float


KEYS: Final = tuple(field.name for field in fields(Figures))


def figures(
    before: Stats, after: Stats, *, seconds: float, first_batch_seconds: float, epoch_ended: bool, buffered: int, workers: int
) -> Figures:
    """Make figures of statistics at the beginning and the end of a measurement.

    Parameters
    ----------
    before, after : Stats
        Of one pass of a fresh dataset, so that the later ones are those of the whole pass.
    seconds : float
        Between them, more than 0.
    first_batch_seconds, epoch_ended, buffered
        As in `Figures`.
    workers : int
        With any, batches are made at a time that is not the trainer's: it only waits.
    """
    own = 0 if workers else 1
    parts = [
        after.wait_seconds - before.wait_seconds,
        own * (after.batch_seconds - before.batch_seconds),
        own * (after.transform_seconds - before.transform_seconds),
    ]
    # Clocks are read one after the other: parts of a very short time may seem to be more than it.
    whole = max(seconds, sum(parts))
    waiting, batches, transform = (part / whole for part in parts)
    reads = max(after.reads, 1)
    return Figures(
        rows_per_second=(after.rows_received - before.rows_received) / seconds,
        mb_per_second=(after.bytes_loaded - before.bytes_loaded) / seconds / 1e6,
        first_batch_seconds=first_batch_seconds,
        seconds=seconds,
        epoch_ended=epoch_ended,
        share_waiting=waiting,
        share_batches=batches,
        share_transform=transform,
        share_rest=max(0.0, 1 - waiting - batches - transform),
        bytes_buffered=buffered,
        reads=after.reads,
        rows_per_read=after.rows_received / reads,
        seconds_per_read=after.read_seconds / reads,
    )


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


def hint(configurations: Sequence[Measured]) -> str:
    """Say which knob to turn: a function of the figures alone.

    What was measured goes before what is guessed of where time goes.

    Parameters
    ----------
    configurations : sequence of Measured
        What was given first, then its variants.
    """
    given, *variants = configurations
    measured = [(variant, variant.figures) for variant in variants if variant.figures is not None]
    if given.figures is None:
        if measured:
            return f"The configuration as given is refused; {_best(measured)[0].name} is not."
        return "The configuration as given is refused: leave the column out with --columns, or try --format numpy or arrow."
    own = given.figures
    if own.seconds < _TOO_SHORT_SECONDS:
        why = "the whole epoch took" if own.epoch_ended else "it was measured for"
        remedy = "Measure on a larger table." if own.epoch_ended else "Give it more --seconds."
        return f"Too short to tell: {why} {own.seconds:.3f} s. {remedy}"
    share, most = max(
        (own.share_waiting, "waiting for workers" if given.settings["num_workers"] else "waiting for reads"),
        (own.share_batches, "making batches"),
        (own.share_transform, "the transform"),
        (own.share_rest, "neither waiting nor making batches"),
    )
    where = f"Most of the time ({share:.0%}) is {most}." if share > 0.5 else f"The largest part of the time ({share:.0%}) is {most}."
    advice = []
    if measured:
        best, theirs = _best(measured)
        gain = theirs.rows_per_second / own.rows_per_second
        if gain > GAIN:
            advice = [f"{best.name} has {gain:.1f} times the rows per second: {_ALSO.get(_knob(best), 'turn that knob')}."]
    waits = share == own.share_waiting
    if waits and own.seconds_per_read > _SLOW_READ_SECONDS and own.rows_per_read < _FEW_ROWS:
        advice.append(_slow(given, own))
    elif not advice and waits and given.settings["num_workers"]:
        advice.append("Try a larger --num-workers, as far as there are cores.")
    elif not advice and share == own.share_batches:
        advice += _untried(given, variants)
    if not advice:
        pace = (
            f"A batch comes every {1000 * given.settings['batch_size'] / own.rows_per_second:.3g} ms: compare that with your training step."
        )
        advice = [f"{'No variant gains more than 20 %: nothing to gain here.' if measured else 'No variant was measured.'} {pace}"]
    return " ".join([where, *advice])


_ALSO: Final = {
    "format": "turn that knob, where your model takes the table's own types",
    "shuffle_clump_size": "turn that knob, where rows that are stored together may stay together in the shuffle",
    "num_workers": 'turn that knob (worker_sharding="batches" keeps batches and states as they are)',
}


def _best(measured: Sequence[tuple[Measured, Figures]]) -> tuple[Measured, Figures]:
    return max(measured, key=lambda pair: pair[1].rows_per_second)


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
    tried = {_knob(variant) for variant in variants if variant.figures is not None}
    knobs = []
    if "format" not in tried and given.settings["format"] == "python":
        knobs.append("--format torch, numpy or arrow, which makes batches in the table's own types")
    if "num_workers" not in tried:
        knobs.append("more --num-workers, which make them in other processes")
    return [f"Try {' or '.join(knobs)}."] if knobs else []

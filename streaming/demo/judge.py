"""The judge: what the trainers received, held against the table and against the uninterrupted run.

It takes logs and table contents only, and never asks the dataset, its schedule or its checkpoint what should have come.
"""

from __future__ import annotations

import math
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from streaming.demo.logs import Record

# Far above the rounding of float64 sums, and far below what one exchanged row does to a loss.
TOLERANCE: Final = 1e-12
_SHOWN: Final = 5

Run = Sequence[Sequence[Record]]  # the records of each rank


@dataclass(frozen=True)
class Evidence:
    """All that the judge may look at.

    Attributes
    ----------
    table : mapping of int to int
        CRC-32 of each row's text by id, in the version that the runs began with.
    appended : collection of int
        Ids that were appended between the kill and the resume.
    num_splits : int
        Of both runs: ``len(table) % num_splits`` rows have no place in an epoch.
    reference, interrupted, resumed : Run
        The logs of the uninterrupted run, of the one that was killed, and of its continuation.
    resumed_from : int
        Step that the checkpoint used for resuming says comes next: earlier steps count from the interrupted run, later ones do not.
    exit_codes : sequence of int
        Of the interrupted run's ranks.
    """

    table: Mapping[int, int]
    appended: Collection[int]
    num_splits: int
    reference: Run
    interrupted: Run
    resumed_from: int
    resumed: Run
    exit_codes: Sequence[int]

    @property
    def stitched(self) -> Run:
        """The interrupted run up to the checkpoint, and all of the resumed run."""
        return [*([record for record in rank if record.step < self.resumed_from] for rank in self.interrupted), *self.resumed]


@dataclass(frozen=True)
class Verdict:
    """One check: what was looked at, whether it holds, the figures, and what differs."""

    check: str
    passed: bool
    figures: str
    differences: Sequence[str] = ()


def judge(evidence: Evidence) -> list[Verdict]:
    """Make every check, also after one has failed."""
    checks: list[Callable[[Evidence], Verdict]] = [_reference_rows, _killed, _resumed_rows, _steps, _bytes, _appended, _losses, _learns]
    return [check(evidence) for check in checks]


def loss_differences(evidence: Evidence) -> tuple[float, float]:
    """Largest relative difference from the reference's loss, over the steps before the checkpoint and over those after it.

    Every rank's figure is compared; a missing or non-finite one counts as infinitely different.
    """
    reference, stitched = _losses_of_steps(evidence.reference), _losses_of_steps(evidence.stitched)
    parts: tuple[list[float], list[float]] = ([0.0], [0.0])
    for step in reference.keys() | stitched.keys():
        parts[step >= evidence.resumed_from].append(_difference(reference.get(step, []), stitched.get(step, [])))
    return max(parts[0]), max(parts[1])


def ranks(number: int) -> str:
    """Say how many ranks."""
    return f"{number} rank{'s' if number != 1 else ''}"


def _reference_rows(evidence: Evidence) -> Verdict:
    """Without this, the reference would be no measure."""
    rows, splits = len(evidence.table), evidence.num_splits
    expected = rows - rows % splits
    counts = Counter(_ids(evidence.reference))
    differences = _twice(counts, evidence.reference)
    if foreign := counts.keys() - evidence.table.keys():
        differences.append(f"ids that are not in the table: {_some(foreign)}")
    if len(counts) != expected:
        differences.append(f"{len(counts)} rows came, not {expected}; never received: {_some(evidence.table.keys() - counts.keys())}")
    figures = (
        f"{len(counts)} of {rows} rows in {len(_by_step(evidence.reference))} steps; {rows % splits} left out ({rows} mod {splits} splits)"
    )
    return Verdict("uninterrupted run: every row once", not differences, figures, differences)


def _killed(evidence: Evidence) -> Verdict:
    """Without this, there was nothing to survive."""
    differences = []
    if not evidence.exit_codes or any(code != -signal.SIGKILL for code in evidence.exit_codes):
        differences.append(f"exit codes {list(evidence.exit_codes)}, not {-signal.SIGKILL} for each rank")
    last = max(_by_step(evidence.interrupted), default=-1)
    end = max(_by_step(evidence.reference), default=-1)
    again = [number for rank in evidence.interrupted for record in rank if record.step >= evidence.resumed_from for number in record.ids]
    if not 0 < evidence.resumed_from <= last < end:
        differences.append(
            f"not in mid-epoch: resumed from step {evidence.resumed_from}, last step before the kill {last}, of the epoch {end}"
        )
    if not again:
        differences.append("no row was received between the checkpoint and the kill")
    if missing := set(again) - set(_ids(evidence.resumed)):
        differences.append(f"rows received after the checkpoint that the resumed run did not receive again: {_some(missing)}")
    figures = (
        f"{ranks(len(evidence.exit_codes))}, SIGKILL after step {last} of 0..{end}; resumed at step {evidence.resumed_from} on "
        f"{ranks(len(evidence.resumed))}: {last + 1 - evidence.resumed_from} steps ({len(again)} rows) thrown away and trained again"
    )
    return Verdict("killed in mid-epoch", not differences, figures, differences)


def _resumed_rows(evidence: Evidence) -> Verdict:
    counts, expected = Counter(_ids(evidence.stitched)), set(_ids(evidence.reference))
    lost, foreign, differences = expected - counts.keys(), counts.keys() - expected, _twice(counts, evidence.stitched)
    if lost:
        places = {number: step for step, ids in _by_step(evidence.reference).items() for number in ids}
        differences.append(f"lost: {_some([f'{number} (due in step {places[number]})' for number in sorted(lost)], order=False)}")
    if foreign:
        differences.append(f"not of the uninterrupted run's rows: {_some(foreign)}")
    twice = sum(count > 1 for count in counts.values())
    figures = f"{len(counts)} of {len(expected)} rows; {len(lost)} lost, {twice} twice, {len(foreign)} foreign"
    return Verdict("killed and resumed: every row once", not differences, figures, differences)


def _steps(evidence: Evidence) -> Verdict:
    reference, stitched = _by_step(evidence.reference), _by_step(evidence.stitched)
    differences, steps = [], sorted(reference.keys() | stitched.keys())
    for step in steps:
        expected, got = Counter(reference.get(step, ())), Counter(stitched.get(step, ()))
        if expected != got:
            differences.append(f"step {step}: missing {_some((expected - got).elements())}, instead {_some((got - expected).elements())}")
    equal = len(steps) - len(differences)
    before = sum(step < evidence.resumed_from for step in steps)
    figures = f"{equal} of {len(steps)} steps equal: {before} on {ranks(len(evidence.interrupted))}, then on {len(evidence.resumed)}"
    return Verdict("same rows in every global step", bool(steps) and not differences, figures, differences)


def _bytes(evidence: Evidence) -> Verdict:
    """An id is only a name: the text that came with it must be that row's."""
    differences, rows = [], 0
    for run in (evidence.reference, evidence.stitched):
        for record in (record for rank in run for record in rank):
            rows += len(record.ids)
            wrong = [n for n, digest in zip(record.ids, record.digests, strict=True) if evidence.table.get(n, digest) != digest]
            if wrong:
                differences.append(f"step {record.step}: the text of {_some(wrong)} is not the table's")
    return Verdict("text of every row is the table's", rows > 0 and not differences, f"{rows} texts, by CRC-32", differences)


def _appended(evidence: Evidence) -> Verdict:
    appended = set(evidence.appended)
    seen = appended & {*_ids(evidence.reference), *_ids(evidence.interrupted), *_ids(evidence.resumed)}
    differences = [f"appended rows were received: {_some(seen)}"] if seen else []
    if not appended:
        differences.append("no row was appended")
    return Verdict("rows appended after the kill stay out", not differences, f"{len(seen)} of {len(appended)} seen", differences)


def _losses(evidence: Evidence) -> Verdict:
    reference, stitched = _losses_of_steps(evidence.reference), _losses_of_steps(evidence.stitched)
    differences = []
    for step in sorted(reference.keys() | stitched.keys()):
        expected, got = reference.get(step, []), stitched.get(step, [])
        if not _difference(expected, got) <= TOLERANCE:
            differences.append(f"step {step}: loss {_some(set(got))}, uninterrupted {_some(set(expected))}")
    before, after = loss_differences(evidence)
    figures = f"largest relative difference: {before:.1g} before the checkpoint, {after:.1g} after (tolerance {TOLERANCE:.0e})"
    return Verdict("loss curve is the uninterrupted one", bool(reference) and not differences, figures, differences)


def _learns(evidence: Evidence) -> Verdict:
    """Without this, equal losses could mean that nothing was trained."""
    losses = _losses_of_steps(evidence.stitched)
    first, last = (losses[min(losses)][0], losses[max(losses)][0]) if losses else (math.nan, math.nan)
    return Verdict("the model learns", last < first, f"{first:.3f} to {last:.3f} nats per byte")


def _ids(run: Run) -> list[int]:
    return [number for rank in run for record in rank for number in record.ids]


def _by_step(run: Run) -> dict[int, list[int]]:
    steps: dict[int, list[int]] = {}
    for record in (record for rank in run for record in rank):
        steps.setdefault(record.step, []).extend(record.ids)
    return steps


def _losses_of_steps(run: Run) -> dict[int, list[float]]:
    steps: dict[int, list[float]] = {}
    for record in (record for rank in run for record in rank):
        steps.setdefault(record.step, []).append(record.loss)
    return steps


def _difference(reference: Sequence[float], others: Sequence[float]) -> float:
    """Largest relative difference of any rank's loss from that of the reference's first rank."""
    if not reference or not others or not all(map(math.isfinite, [*reference, *others])):
        return math.inf
    return max(abs(loss - reference[0]) for loss in [*reference, *others]) / abs(reference[0])


def _twice(counts: Mapping[int, int], run: Run) -> list[str]:
    twice = {number for number, count in counts.items() if count > 1}
    if not twice:
        return []
    places = {number: sorted(step for step, ids in _by_step(run).items() if number in ids) for number in sorted(twice)[:_SHOWN]}
    return [f"received more than once: {len(twice)} rows, {', '.join(f'{number} (steps {steps})' for number, steps in places.items())}"]


def _some(items: Iterable[Any], *, order: bool = True) -> str:
    """The first few, and how many more."""
    ordered = sorted(items) if order else list(items)
    more = len(ordered) - _SHOWN
    return f"[{', '.join(map(str, ordered[:_SHOWN]))}{f', and {more} more' if more > 0 else ''}]"

"""The user's own table and settings through the engine, before the run: ``python -m model.conformance verify URI TABLE --num-splits ...``.

It says which steps are legal checkpoints and what a crash behind each would replay, and interrupts runs on the real table at sampled
steps: the rows delivered, known by a column of unique values, must be those of the model, and each row of the epoch must come. Of longer
epochs the beginning, the middle and the end are looked at.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final

from model import workers
from model.conformance.adapter import Refused, World
from model.conformance.begun import Begun
from model.conformance.plan import Checkpoint, legal_steps, period, plan
from model.conformance.reference import Reference, settings_of
from model.conformance.scenario import Side, Step, Violation, run
from model.conformance.screen import words
from model.conformance.verify_options import mistake, parser
from model.errors import ModelError

if TYPE_CHECKING:
    from model.conformance.adapters.table import TableLoader

# Batches looked at behind an interruption where an epoch is too long to be drained each time.
_WINDOW: Final = 40


@dataclass
class Interruptions:
    """What the sampled interruptions showed.

    Attributes
    ----------
    done : list of (int, int)
        Step and resuming world size of each.
    whole : bool
        Whether each resumed run was followed to the end of the epoch; else a window of batches was.
    violation : Violation or None
        The first difference from the model.
    missing : int
        Rows of the epoch that did not come in a run with its resume (of those followed to the end).
    behind : list of int
        Completed cycles of each, behind which its run began and its steps are counted.
    """

    done: list[tuple[int, int]]
    whole: bool
    violation: Violation | None = None
    missing: int = 0
    behind: list[int] = field(default_factory=list)


def interrupt(loader: TableLoader, world: World, sizes: Sequence[int], count: int, *, whole: bool, seed: int) -> Interruptions:
    """Interrupt runs at sampled legal steps, resume them, and compare every batch with the model's."""
    draw = random.Random(seed)
    length = world.rows // world.num_splits
    places = [0] if whole else begins(world)
    found = Interruptions([], whole)
    for number in range(count):
        # Each place once, then any.
        cycle = places[number] if number < len(places) else draw.choice(places)
        left = replace(world, rows=(length - cycle) * world.num_splits)
        epoch = workers.length(settings_of(left), world.num_workers, world.worker_sharding, world.batch_size)
        legal = legal_steps(world, epoch if whole else min(epoch, _WINDOW))
        # The first legal step is always among them: the shortest way from a fresh start.
        step = draw.choice(legal) if number else legal[0]
        size = sizes[number % len(sizes)]
        steps = history(world, step, size, whole or cycle + _tail(world) >= length)
        began = f" of a run begun behind cycle {cycle}" if cycle else ""
        note = f"interrupted behind step {step}{began}, resumed on {_counted(size, 'rank')}"
        found.violation = run(steps, Begun(loader, cycle), Begun(Reference(), cycle), note)
        if found.violation is not None:
            return found
        found.done.append((step, size))
        found.behind.append(cycle)
        if whole:
            found.missing += _missing(loader, world, steps)
    return found


def begins(world: World) -> list[int]:
    """Cycles at which windows begin: the first one; one in the middle; and one from which a window reaches the end of the epoch."""
    length, tail = world.rows // world.num_splits, _tail(world)
    return sorted({0, length // 2 if length // 2 + tail < length else 0, max(length - tail, 0)})


def _tail(world: World) -> int:
    """The cycles of a window."""
    return max(_WINDOW * world.batch_size * world.world_size // world.num_splits, 1)


def history(world: World, step: int, size: int, whole: bool) -> list[Step]:
    """All ranks to a step, the state of rank 0, all ranks of the resuming world from there."""
    common = world.to_json()
    steps: list[Step] = []
    for rank in range(world.world_size):
        steps += [{"open": f"r{rank}", **common, "rank": rank}, {"pull": f"r{rank}", "batches": step, "clause": "CYC-1"}]
        if rank == 0:
            steps.append({"save": "r0", "as": "s", "clause": "WRK-9"})
        steps.append({"kill": f"r{rank}"})
    # Where the workers of the resuming world do not divide its splits, it has none.
    fits = world.num_splits // size % max(world.num_workers, 1) == 0 or world.worker_sharding == "batches"
    for rank in range(size):
        resumed = {**common, "world_size": size, "rank": rank, "num_workers": world.num_workers if fits else 0}
        steps += [{"open": "b", **resumed}, {"load": "b", "state": "s"}]
        steps.append({"drain": "b", "clause": "RES-3"} if whole else {"pull": "b", "batches": _WINDOW, "clause": "RES-3"})
    return steps


def _missing(loader: TableLoader, world: World, steps: Sequence[Step]) -> int:
    """Rows of the epoch that the whole history did not deliver, by the ids of the loader alone."""
    side, rows, wanted = Side(loader), set[int](), world.rows // world.num_splits * world.num_splits
    try:
        for step in steps:
            # A completed epoch is followed by the next one, which may leave out other rows.
            if "load" in step and len(rows) == wanted:
                break
            seen = side.do(step)
            for batch in seen if isinstance(seen, list) else []:
                rows.update(batch if isinstance(batch, list) else ())
    finally:
        side.release()
    return wanted - len(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0: everything held, 1: it did not, 2: it could not be tried."""
    given = parser().parse_args(argv)
    wrong = mistake(given)
    if wrong is not None:
        print(f"could not run: {wrong}", file=sys.stderr)
        return 2
    # Here, because it imports lancedb and torch.
    from model.conformance.adapters.table import TableLoader, TableProblem  # noqa: PLC0415

    try:
        loader = TableLoader(given.uri, given.table, given.id, given.filter, given.version)
        world = World(
            loader.rows,
            given.num_splits,
            given.world_size,
            0,
            given.batch_size,
            given.num_workers,
            given.worker_sharding,
            given.shuffle,
            given.shuffle_seed,
            shuffle_clump_size=given.shuffle_clump_size,
        )
        listed = plan(world)
        workers.open_pool(settings_of(world))
    except (TableProblem, ModelError, Refused) as error:
        # A refusal of the loader has the loader's own words behind its code.
        cause = error.__cause__ if isinstance(error, Refused) else None
        words = "" if cause is None else f": {' '.join(str(cause).split())[:400]}"
        print(f"could not run: {error}{words}", file=sys.stderr)
        return 2
    sizes = given.resume_world_size or [world.world_size]
    # torch warns where there are more workers than cores; the run to come may have other machines than this one.
    warnings.filterwarnings("ignore", "This DataLoader will create")
    whole = loader.rows <= given.whole_epochs_up_to
    found = interrupt(loader, world, sizes, given.interruptions, whole=whole, seed=given.seed)
    held = found.violation is None and not found.missing
    if given.json:
        summary = {"world": world.to_json(), "period": period(world), "checkpoints": [asdict(one) for one in listed], "held": held}
        violation = None if found.violation is None else asdict(found.violation)
        seen = {"interruptions": found.done, "behind_cycles": found.behind, "whole_epochs": whole, "missing": found.missing}
        print(json.dumps({**summary, **seen, "violation": violation}))
    else:
        print(report(world, listed, found))
    return 0 if held else 1


def report(world: World, listed: Sequence[Checkpoint], found: Interruptions) -> str:
    """What was found, for people."""
    epoch = workers.length(settings_of(world), world.num_workers, world.worker_sharding, world.batch_size)
    lines = [
        f"{_counted(world.rows, 'row')}, {_counted(world.num_splits, 'split')}, {_counted(world.world_size, 'rank')} x "
        f"{_counted(world.num_workers, 'worker')} ({world.worker_sharding}), batches of {world.batch_size}: "
        f"{_counted(epoch, 'step')} an epoch, {_counted(world.rows % world.num_splits, 'row')} left out of each",
        "",
        "Checkpoints (the pattern repeats to the end of the epoch):",
        "   step  state_dict()   a crash right behind it replays",
    ]
    for one in listed:
        kind = "legal" if one.legal else "refused"
        lines.append(f"  {one.step:>5}  {kind:<13}  {_counted(one.replayed, 'row')}{'' if one.legal else ' (from floor_state_dict())'}")
    if period(world) > len(listed):
        lines.append(f"    ...  one period has {_counted(period(world), 'step')}")
    best = [one.step for one in listed if one.legal and one.replayed == 0]
    if best:
        every = f"where the step is a multiple of {best[0]}" if best[0] > 1 else "at any step"
        lines.append(f"Nothing is replayed {every}.")
    lines.append("")
    if found.violation is not None:
        lines += [
            f"FAILED: {found.violation.note}: {found.violation.clause}",
            f"  expected {words(found.violation.expected, found.violation.actual)}",
            f"  actual   {words(found.violation.actual, found.violation.expected)}",
            f"  replay   {json.dumps({'steps': found.violation.steps})}",
        ]
    elif found.missing:
        lines.append(f"FAILED: {_counted(found.missing, 'row')} never came")
    else:
        extent = "followed to the end of the epoch: no row lost"
        if not found.whole:
            begun = ", ".join(str(cycle) for cycle in sorted(set(found.behind)))
            extent = (
                f"followed for {_WINDOW} batches on every rank, in runs begun behind cycle {begun} of {world.rows // world.num_splits}, "
                f"by states put together for the purpose where that is not 0 (what lies between was not looked at; {_end(world, found)})"
            )
        places = ", ".join(
            f"{step}{f' from cycle {cycle}' if cycle else ''} (on {size})"
            for (step, size), cycle in zip(found.done, found.behind, strict=True)
        )
        many = f"{_counted(len(found.done), 'interruption')} behind step{'s' * (len(found.done) != 1)}"
        lines.append(f"Held (sampled): {many} {places}, {extent}, every batch as the model has it.")
    return "\n".join(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _end(world: World, found: Interruptions) -> str:
    reached = max(found.behind, default=0) + _tail(world) >= world.rows // world.num_splits
    return "the last ones to the end of the epoch" if reached else "nor was the end of the epoch: pass more --interruptions"


if __name__ == "__main__":
    sys.exit(main())

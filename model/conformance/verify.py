"""The user's own table and settings through the engine, before the run: ``python -m model.conformance verify URI TABLE --num-splits ...``.

It says which steps are legal checkpoints and what a crash behind each would replay, and interrupts runs on the real table at sampled
steps: the rows delivered, known by a column of unique values, must be those of the model, and each row of the epoch must come.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, Final

from model import workers
from model.conformance.adapter import Refused, World
from model.conformance.reference import Reference, settings_of
from model.conformance.scenario import Side, Step, Violation, run
from model.errors import ModelError

if TYPE_CHECKING:
    from model.conformance.adapters.table import TableLoader

# Steps of the plan that are listed; a longer period is summed up.
_LISTED: Final = 24
# Batches looked at behind an interruption where an epoch is too long to be drained each time.
_WINDOW: Final = 40


@dataclass(frozen=True)
class Checkpoint:
    """A step behind which a state could be saved.

    Attributes
    ----------
    step : int
        Batches that each rank has received, from 1.
    legal : bool
        Whether `state_dict()` gives a state there; else only `floor_state_dict()` does.
    replayed : int
        Rows of all ranks that come twice if the run goes on from there (with ``partial_cycle="replay"``).
    """

    step: int
    legal: bool
    replayed: int


def plan(world: World, most: int = _LISTED) -> list[Checkpoint]:
    """The first steps of an epoch as checkpoints, by the model: one period of them, or as many as asked for (WRK-9, RES-3).

    Examples
    --------
    >>> for one in plan(World(24, 4, world_size=1, batch_size=3)):
    ...     print(one.step, one.legal, one.replayed)
    1 True 3
    2 True 2
    3 True 1
    4 True 0
    """
    pool = workers.start(workers.open_pool(settings_of(world)), world.num_workers, world.worker_sharding, world.batch_size)
    found: list[Checkpoint] = []
    received = 0
    for step in range(1, min(period(world), most) + 1):
        pool, batch = workers.deliver(pool)
        if batch is None:
            break
        received += len(batch) * world.world_size
        try:
            state, legal = workers.save(pool), True
        except ModelError:
            state, legal = workers.floor_state(pool), False
        completed = state["samples_consumed_per_split"][0] * world.num_splits
        found.append(Checkpoint(step, legal, received - completed))
    return found


def period(world: World) -> int:
    """The number of steps from one cycle boundary of all splits to the next, away from the end of the epoch (WRK-9, CYC-6)."""
    splits = world.num_splits // world.world_size
    if world.worker_sharding == "splits" and world.num_workers > 1:
        splits //= world.num_workers
        return world.num_workers * (splits // gcd(world.batch_size, splits))
    return splits // gcd(world.batch_size, splits)


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
    """

    done: list[tuple[int, int]]
    whole: bool
    violation: Violation | None = None
    missing: int = 0


def interrupt(loader: TableLoader, world: World, sizes: Sequence[int], count: int, *, whole: bool, seed: int) -> Interruptions:
    """Interrupt runs at sampled legal steps, resume them, and compare every batch with the model's."""
    draw = random.Random(seed)
    epoch = workers.length(settings_of(world), world.num_workers, world.worker_sharding, world.batch_size)
    legal = _legal_steps(world, epoch if whole else min(epoch, _WINDOW))
    found = Interruptions([], whole)
    for number in range(count):
        # The first legal step is always among them: the shortest way from a fresh start.
        step = draw.choice(legal) if number else legal[0]
        size = sizes[number % len(sizes)]
        steps = history(world, step, size, whole)
        found.violation = run(steps, loader, Reference(), f"interrupted behind step {step}, resumed on {size} ranks")
        if found.violation is not None:
            return found
        found.done.append((step, size))
        if whole:
            found.missing += _missing(loader, world, steps)
    return found


def _legal_steps(world: World, before: int) -> list[int]:
    """All steps before this one behind which a state is legal; that one where there are none: the last of an epoch always is."""
    every = period(world)
    offsets = [one.step for one in plan(world, every) if one.legal]
    steps = [start + offset for start in range(0, before, every) for offset in offsets]
    return [step for step in steps if step < before] or [before]


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
    side, rows = Side(loader), set[int]()
    try:
        for step in steps:
            seen = side.do(step)
            for batch in seen if isinstance(seen, list) else []:
                rows.update(batch if isinstance(batch, list) else ())
    finally:
        side.release()
    return world.rows // world.num_splits * world.num_splits - len(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0: everything held, 1: it did not, 2: it could not be tried."""
    given = _parser().parse_args(argv)
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
    wrong = [size for size in sizes if size < 1 or world.num_splits % size]
    if wrong:
        print(f"could not run: --resume-world-size {wrong[0]} does not divide --num-splits {world.num_splits}", file=sys.stderr)
        return 2
    # torch warns where there are more workers than cores; the run to come may have other machines than this one.
    warnings.filterwarnings("ignore", "This DataLoader will create")
    whole = loader.rows <= given.whole_epochs_up_to
    found = interrupt(loader, world, sizes, given.interruptions, whole=whole, seed=given.seed)
    held = found.violation is None and not found.missing
    if given.json:
        summary = {"world": world.to_json(), "period": period(world), "checkpoints": [asdict(one) for one in listed], "held": held}
        violation = None if found.violation is None else asdict(found.violation)
        print(json.dumps({**summary, "interruptions": found.done, "whole_epochs": whole, "missing": found.missing, "violation": violation}))
    else:
        print(report(world, listed, found))
    return 0 if held else 1


def report(world: World, listed: Sequence[Checkpoint], found: Interruptions) -> str:
    """What was found, for people."""
    epoch = workers.length(settings_of(world), world.num_workers, world.worker_sharding, world.batch_size)
    lines = [
        f"{world.rows} rows, {world.num_splits} splits, {world.world_size} ranks x {world.num_workers} workers ({world.worker_sharding}), "
        f"batches of {world.batch_size}: {epoch} steps an epoch, {world.rows % world.num_splits} rows left out of each",
        "",
        "Checkpoints (the pattern repeats to the end of the epoch):",
        "   step  state_dict()   a crash right behind it replays",
    ]
    for one in listed:
        kind = "legal" if one.legal else "refused"
        lines.append(f"  {one.step:>5}  {kind:<13}  {one.replayed} rows{'' if one.legal else ' (from floor_state_dict())'}")
    if period(world) > len(listed):
        lines.append(f"    ...  one period has {period(world)} steps")
    best = [one.step for one in listed if one.legal and one.replayed == 0]
    if best:
        every = f"where the step is a multiple of {best[0]}" if best[0] > 1 else "at any step"
        lines.append(f"Nothing is replayed {every}.")
    lines.append("")
    if found.violation is not None:
        lines += [
            f"FAILED: {found.violation.note}: {found.violation.clause}",
            f"  expected {_short(found.violation.expected)}",
            f"  actual   {_short(found.violation.actual)}",
            f"  replay   {json.dumps({'steps': found.violation.steps})}",
        ]
    elif found.missing:
        lines.append(f"FAILED: {found.missing} rows never came")
    else:
        extent = "followed to the end of the epoch: no row lost" if found.whole else f"followed for {_WINDOW} batches on every rank"
        places = ", ".join(f"{step} (on {size})" for step, size in found.done)
        lines.append(f"Held (sampled): {len(found.done)} interruptions behind steps {places}, {extent}, every batch as the model has it.")
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m model.conformance verify",
        description="Which steps are legal checkpoints, what a crash replays, and whether resuming holds on this table.",
        epilog="exit codes: 0 everything held, 1 it did not, 2 bad arguments or it could not be tried",
    )
    parser.add_argument("uri")
    parser.add_argument("table")
    parser.add_argument("--num-splits", type=int, required=True)
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--batch-size", type=int, required=True, help="rows of one batch on one rank")
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--worker-sharding", choices=["splits", "batches"], default="splits")
    parser.add_argument("--no-shuffle", dest="shuffle", action="store_false")
    parser.add_argument("--shuffle-seed", type=int, default=0)
    parser.add_argument("--shuffle-clump-size", type=int)
    parser.add_argument("--filter")
    parser.add_argument("--version", type=int)
    parser.add_argument(
        "--id", default="id", metavar="COLUMN", help="column of unique values by which rows are known (default: %(default)s)"
    )
    parser.add_argument(
        "--resume-world-size", type=int, nargs="+", metavar="R", help="world sizes to resume on, in turn (default: the same)"
    )
    parser.add_argument("--interruptions", type=int, default=5, help="how many are sampled (default: %(default)s)")
    parser.add_argument("--whole-epochs-up-to", type=int, default=20_000, metavar="ROWS", help="longer epochs are looked at in windows")
    parser.add_argument("--seed", type=int, default=0, help="of the sampling (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())

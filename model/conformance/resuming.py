"""Checks of order, assignment and resuming: whole epochs, cuts on every world, what a state is bound to, merging."""

from __future__ import annotations

import itertools
from typing import Any

from model import checkpoint
from model.conformance.checks import Bound, Scenarios, check, divisors, mid_cycle, opened, resumed, worlds
from model.conformance.scenario import Step
from model.conformance.witness import pass_clause
from model.cycle import Cursor
from model.settings import Settings

# ---- order and assignment


@check("CYC-1", "CYC-6", "ORD-6")
def whole_epochs(bound: Bound) -> Scenarios:
    """Every rank of every world, from the first row to the end of the pass."""
    for common, world_size, _ in worlds(bound):
        clause = pass_clause(common)
        steps: list[Step] = []
        for rank in range(world_size):
            steps += [opened(f"r{rank}", common, rank=rank), {"drain": f"r{rank}", "clause": clause}]
        yield steps


@check("WRK-13", needs=("length",))
def lengths(bound: Bound) -> Scenarios:
    """len() of every rank, fresh and midway."""
    for common, world_size, _ in worlds(bound):
        for rank in range(world_size):
            yield [opened("a", common, rank=rank), {"length": "a"}, {"pull": "a"}, {"length": "a"}]


@check("ASG-1", "ASG-2")
def impossible_worlds(bound: Bound) -> Scenarios:
    """Worlds that cannot be, whatever the bound."""
    del bound
    yield [{"open": "a", "rows": 3, "num_splits": 4, "clause": "ASG-1"}]
    for world in ({"world_size": 3}, {"world_size": 2, "rank": 2}, {"world_size": 2, "rank": -1}, {"world_size": 0}, {"num_splits": 0}):
        yield [{"open": "a", "rows": 8, "num_splits": 4, **world, "clause": "ASG-2"}]


# ---- resuming


@check("LAW-4", "CKP-1", "MRG-2")
def boundary_resumes(bound: Bound) -> Scenarios:
    """Cut at every cycle boundary: each rank resumes its own state; another world a merged one, or that of a single rank."""
    for common, world_size, batches in worlds(bound):
        for cut in range(batches):
            if mid_cycle(common, cut):
                continue
            ranks = range(world_size)
            saving: list[Step] = []
            for rank in ranks:
                saving += [
                    opened(f"a{rank}", common, rank=rank),
                    {"pull": f"a{rank}", "batches": cut},
                    {"save": f"a{rank}", "as": f"s{rank}"},
                ]
                saving.append({"kill": f"a{rank}"})
            yield saving + resumed(common, [f"s{rank}" for rank in ranks], "LAW-4")
            merged: list[Step] = [] if world_size == 1 else [{"merge": [f"s{rank}" for rank in ranks], "as": "s0", "clause": "MRG-2"}]
            for other in divisors(common["num_splits"]):
                if other != world_size:
                    yield saving + merged + resumed({**common, "world_size": other}, ["s0"] * other, "LAW-4")


@check("RES-3", "CKP-2", "CKP-1")
def resumes_on_every_world(bound: Bound) -> Scenarios:
    """Cut after every batch; the state of one rank, the first or the last, resumes every rank of every world size."""
    for common, world_size, batches in worlds(bound):
        for cut in range(batches + 1):
            for saver in sorted({0, world_size - 1}):
                for other in divisors(common["num_splits"]):
                    steps: list[Step] = [opened("a", common, rank=saver)]
                    if cut:
                        steps.append({"pull": "a", "batches": cut})
                    steps += [{"save": "a", "as": "s"}, {"kill": "a"}]
                    # What the state of a completed epoch goes on with is for EPO-3 to say.
                    if cut < batches:
                        clause = "RES-3" if mid_cycle(common, cut) else "CKP-2"
                        steps += resumed({**common, "world_size": other}, ["s"] * other, clause)
                    yield steps


@check("RES-7", "DLV-1", "RES-3")
def saved_again(bound: Bound) -> Scenarios:
    """Loaded and saved without a row between, again and again; saved twice at one place; what comes later is not in it."""
    for common, world_size, batches in worlds(bound):
        for cut in range(batches):
            rank = world_size - 1
            steps: list[Step] = [opened("a", common, rank=rank), {"save": "a", "as": "s0"}]
            steps += [{"pull": "a"}] * cut
            steps += [{"save": "a", "as": "s1"}, {"save": "a", "as": "s1"}]
            mid = mid_cycle(common, cut)
            steps += [opened("b", common, rank=rank), {"load": "b", "state": "s1"}, {"drain": "b", "clause": "RES-3" if mid else "DLV-1"}]
            for hop in range(1, 4):
                steps += [opened("b", common, rank=rank), {"load": "b", "state": f"s{hop}"}, {"save": "b", "as": f"s{hop + 1}"}]
            steps += [{"drain": "b", "clause": "RES-3" if mid else "RES-7"}]
            steps += [opened("c", common, rank=rank), {"load": "c", "state": "s0"}, {"drain": "c", "clause": "DLV-1"}]
            yield steps


@check("CKP-2")
def many_interruptions(bound: Bound) -> Scenarios:
    """An epoch in which every batch is followed by a crash, on one world size after the other."""
    for common, _, _ in worlds(bound):
        sizes = itertools.cycle(divisors(common["num_splits"]))
        splits = common["num_splits"]
        steps: list[Step] = []
        # A cycle each: no hop goes beyond the epoch.
        for hop in range(min(common["rows"] // splits, 6)):
            world_size = next(sizes)
            # Batches that end with a cycle, so that replays do not stand in the way of getting on.
            world = {**common, "world_size": world_size, "batch_size": splits // world_size}
            steps.append(opened("a", world, rank=world_size - 1))
            if hop:
                steps.append({"load": "a", "state": "s"})
            steps += [{"pull": "a", "clause": "CKP-2"}, {"save": "a", "as": "s"}, {"kill": "a"}]
        yield steps


@check("RES-4", needs=("exact",))
def exact_resumes(bound: Bound) -> Scenarios:
    """As resumes_on_every_world, finishing the partial cycle; interrupted once more within it."""
    for common, _, batches in worlds(bound):
        saving = {**common, "partial_cycle": "exact"}
        for cut in range(batches):
            for other in divisors(common["num_splits"]):
                steps: list[Step] = [opened("a", saving), {"pull": "a", "batches": cut}, {"save": "a", "as": "s"}, {"kill": "a"}]
                for rank in range(other):
                    world = {**saving, "world_size": other, "batch_size": 1}
                    steps += [opened("b", world, rank=rank), {"load": "b", "state": "s", "clause": "RES-4"}]
                    steps += [{"pull": "b", "clause": "RES-4"}, {"save": "b", "as": "t"}]
                    steps += [opened("c", world, rank=rank), {"load": "c", "state": "t", "clause": "RES-4"}]
                    steps.append({"drain": "c", "clause": "RES-4"})
                yield steps


# ---- what a state is bound to


@check("IDN-6", "IDN-8", "RES-5")
def other_settings(bound: Bound) -> Scenarios:
    """A state of one world on another one: refused, and the refusing loader stands where it stood, which is not the beginning."""
    for (rows, splits), order in itertools.product(bound.sizes, bound.orders()):
        common = {"rows": rows, "num_splits": splits, **order}
        others: list[tuple[str, dict[str, Any]]] = [("IDN-6", {"num_splits": splits - 1}), ("IDN-6", {"num_splits": splits // 2 or 1})]
        if order:
            others += [("IDN-6", {"shuffle_seed": 4}), ("IDN-6", {"shuffle": False})]
        others += [("IDN-8", {"table": "u"}), ("IDN-8", {"table": "v", "rows": rows + splits})]
        for clause, other in others:
            if {**common, **other} != common and {**common, **other}["num_splits"] > 0:
                world = {**common, **other}
                cycle = world["num_splits"] if world["rows"] >= 2 * world["num_splits"] else 0
                yield [
                    # The state's place differs from that of the other loader in everything that a load could take from it.
                    opened("a", common, epoch=2), {"pull": "a", "batches": splits + 1}, {"save": "a", "as": "s"},
                    opened("b", world), {"pull": "b", "batches": cycle}, {"save": "b", "as": "own"},
                    opened("b", world), {"load": "b", "state": "own"}, {"load": "b", "state": "s", "clause": clause},
                    {"drain": "b", "clause": "RES-5"},
                ]  # fmt: skip
                yield [
                    opened("a", common, epoch=2), {"save": "a", "as": "s"},
                    opened("b", world), {"pull": "b", "batches": cycle}, {"save": "b", "as": "own"},
                    opened("b", world), {"load": "b", "state": "own"}, {"load": "b", "state": "s", "clause": clause},
                    {"drain": "b", "clause": "RES-5"},
                ]  # fmt: skip


@check("IDN-6", needs=("order", "shuffle"))
def other_clumps(bound: Bound) -> Scenarios:
    """A state of one clump size on another one, and on none."""
    for (rows, splits), clump in itertools.product(bound.sizes, (None, 3)):
        common = {"rows": rows, "num_splits": splits, "shuffle": True, "shuffle_clump_size": 2}
        yield [
            opened("a", common), {"pull": "a"}, {"save": "a", "as": "s"},
            opened("b", {**common, "shuffle_clump_size": clump}), {"load": "b", "state": "s", "clause": "IDN-6"},
        ]  # fmt: skip


@check("CKP-6", "RES-5")
def garbage(bound: Bound) -> Scenarios:
    """What is no state."""
    del bound
    nonsense: Any
    for nonsense in (
        {},
        None,
        3,
        [],
        "state",
        {"epoch": 1},
        {"samples_consumed_per_split": [1, 1]},
        [{}],
    ):
        yield [
            {"open": "a", "rows": 4, "num_splits": 2}, {"load": "a", "garbage": nonsense, "clause": "CKP-6"},
            {"drain": "a", "clause": "RES-5"},
        ]  # fmt: skip


@check("CKP-6", "RES-5", needs=("codes",))
def damaged_states(bound: Bound) -> Scenarios:
    """States of this specification with something wrong. Who has its codes has its states; to others these may look well formed."""
    del bound
    for damaged in _damaged():
        yield [
            {"open": "a", "rows": 4, "num_splits": 2}, {"load": "a", "garbage": damaged, "clause": "CKP-6"},
            {"drain": "a", "clause": "RES-5"},
        ]  # fmt: skip


def _damaged() -> list[dict[str, Any]]:
    """States of spec/checkpoint.md that nobody can have saved."""
    settings = Settings(4, 2, shuffle=False, shuffle_seed=0)
    right = checkpoint.save(settings.identity(), Cursor(0, 1, ()), 1)
    wrong: list[dict[str, Any]] = [
        {"samples_consumed_per_split": [1, 0]}, {"samples_consumed_per_split": [3, 3]}, {"partial_cycle_splits": [1, 0]},
        {"partial_cycle_splits": [0, 1]}, {"world_size": 3}, {"epoch": -1}, {"schema_version": 2}, {"unknown": 1},
    ]  # fmt: skip
    # Signed, so that it is the value which is wrong; then the other way round.
    return [*(checkpoint.sign({**right, **values}) for values in wrong), {**right, "samples_consumed_per_split": [0, 0]}]


@check("IDN-7", "DLV-12", needs=("append",))
def growing_tables(bound: Bound) -> Scenarios:
    """Rows appended during a pass, and between save and load."""
    for number, (rows, splits) in enumerate(bound.sizes):
        for cut in range(min(rows // splits * splits, 5)):
            common = {"rows": rows, "num_splits": splits, "table": f"grows{number}x{cut}"}
            yield [
                opened("a", common), {"pull": "a", "batches": cut}, {"append": common["table"], "rows": 2 * splits + 1},
                {"save": "a", "as": "s"}, {"drain": "a", "clause": "DLV-12"},
                opened("b", common), {"load": "b", "state": "s", "clause": "IDN-7"}, {"save": "b", "as": "t"},
                {"drain": "b", "clause": "IDN-7"},
                opened("c", common), {"load": "c", "state": "t", "clause": "IDN-7"}, {"drain": "c", "clause": "IDN-7"},
            ]  # fmt: skip


# ---- merging


@check("MRG-1", "MRG-2", "RES-3", needs=("merge",))
def merging(bound: Bound) -> Scenarios:
    """Sets of states, one per rank: whole ones, torn ones, wrong ones."""
    for rows, splits in bound.sizes:
        for world_size in divisors(splits)[1:3]:
            common = {"rows": rows, "num_splits": splits, "world_size": world_size}
            total = rows // splits * (splits // world_size)
            names = [f"s{rank}" for rank in range(world_size)]
            skew = [{"merge": names, "as": "m", "skew": "replay", "clause": "MRG-2"}]
            places = itertools.combinations_with_replacement(range(min(total, 5) + 1), 2)
            for (slow, ahead), first in itertools.product(places, sorted({0, world_size - 1})):
                # One rank is ahead: the first one or the last one of the list.
                steps: list[Step] = []
                for rank in range(world_size):
                    steps += [opened(f"r{rank}", common, rank=rank), {"pull": f"r{rank}", "batches": ahead if rank == first else slow}]
                    steps.append({"save": f"r{rank}", "as": f"s{rank}"})
                # The loaders go on to the end of this pass only where it is not completed.
                refused: list[Step] = [{"merge": names, "as": "m" if slow == ahead else "x", "clause": "MRG-2"}]
                steps += refused if slow == ahead else refused + skew
                merged = ["m"] * world_size
                # Ranks at one step in mid-cycle: what a resume makes of that is not for merging to say.
                clause = "RES-3" if slow == ahead and mid_cycle(common, slow) else "MRG-2"
                yield steps + (resumed(common, merged, clause) if slow < total else [])
                if slow < ahead:
                    # What was received of a cycle says nothing once ranks differ, not even to who would finish it.
                    yield steps + resumed({**common, "partial_cycle": "exact"}, merged, "MRG-2")
            for ahead in sorted({0, world_size - 1}):
                # Epochs come before cycles: one rank is in the next epoch, where it has completed fewer.
                steps = []
                for rank in range(world_size):
                    steps.append(opened(f"r{rank}", common, rank=rank))
                    steps += [{"drain": f"r{rank}"}] if rank == ahead else []
                    steps += [
                        {"pull": f"r{rank}", "batches": 1 if rank == ahead else max(total - 1, 1)},
                        {"save": f"r{rank}", "as": f"s{rank}"},
                    ]
                yield steps + skew + (resumed(common, ["m"] * world_size, "MRG-2") if total > 1 else [])
            yield [
                opened("a", common), {"save": "a", "as": "s"}, {"merge": ["s"] * (world_size + 1), "as": "m", "clause": "MRG-1"}
            ]  # fmt: skip
            yield [
                opened("a", common), {"save": "a", "as": "s"}, opened("b", {**common, "shuffle_seed": 9, "shuffle": bound.shuffle}),
                {"save": "b", "as": "t"}, {"merge": ["s", "t", *["s"] * (world_size - 2)], "as": "m", "clause": "MRG-1"},
            ]  # fmt: skip

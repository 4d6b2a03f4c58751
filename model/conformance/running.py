"""Checks of running: epochs, passes that are left, failures, workers."""

from __future__ import annotations

import itertools
from typing import Any

from model.conformance.checks import Bound, Scenarios, check, divisors, mid_cycle, opened, worlds
from model.conformance.scenario import Step

# ---- epochs


@check("EPO-2")
def passes(bound: Bound) -> Scenarios:
    """Three passes of one loader."""
    for common, world_size, _ in worlds(bound):
        yield [opened("a", common, rank=world_size - 1), {"drain": "a"}, *[{"drain": "a", "clause": "EPO-2"}] * 2]


@check("EPO-3", "EPO-2")
def completed_epochs(bound: Bound) -> Scenarios:
    """A state after the last row, before the end was seen and after it."""
    for common, world_size, batches in worlds(bound):
        rank = world_size - 1
        for to_the_end in ([{"pull": "a", "batches": batches}], [{"drain": "a"}]):
            yield [
                opened("a", common, rank=rank), *to_the_end, {"save": "a", "as": "s"}, {"kill": "a"},
                opened("b", common, rank=rank), {"load": "b", "state": "s"}, {"drain": "b", "clause": "EPO-3"},
                {"drain": "b", "clause": "EPO-2"},
            ]  # fmt: skip


@check("RES-6", "RES-3")
def other_epochs(bound: Bound) -> Scenarios:
    """The epoch is part of the place: a state of epoch 2 on a loader of epoch 0."""
    for common, world_size, batches in worlds(bound):
        rank = world_size - 1
        for cut in range(min(batches, 3)):
            yield [
                opened("a", common, rank=rank, epoch=2), {"pull": "a", "batches": cut}, {"save": "a", "as": "s"},
                opened("b", common, rank=rank), {"load": "b", "state": "s"},
                {"drain": "b", "clause": "RES-3" if mid_cycle(common, cut) else "RES-6"},
            ]  # fmt: skip


@check("EPO-4", "EPO-3", needs=("epochs", "break"))
def asked_epochs(bound: Bound) -> Scenarios:
    """set_epoch before, between, to the same and to other epochs; a load forgets it."""
    for common, world_size, batches in worlds(bound):
        begin = opened("a", common, rank=world_size - 1)
        yield [
            begin, {"drain": "a"}, {"save": "a", "as": "s"}, opened("b", common, rank=world_size - 1), {"set_epoch": "b", "epoch": 0},
            {"load": "b", "state": "s"}, {"drain": "b", "clause": "EPO-3"},
        ]  # fmt: skip
        for epoch in (0, 1):
            for cut in sorted({0, 1, batches}):
                yield [
                    begin, {"set_epoch": "a", "epoch": 0}, {"pull": "a", "batches": cut}, {"close": "a"},
                    {"set_epoch": "a", "epoch": epoch}, {"drain": "a", "clause": "EPO-4"}, {"drain": "a", "clause": "EPO-4"},
                ]  # fmt: skip


# ---- passes that are left, loads at the wrong time


@check("DLV-4", "DLV-1", needs=("break",))
def breaks(bound: Bound) -> Scenarios:
    """Left after every batch and continued; a resumed pass too."""
    for common, world_size, batches in worlds(bound):
        if batches > 1:
            yield [
                opened("a", common, rank=world_size - 1), {"save": "a", "as": "s"}, opened("b", common, rank=world_size - 1),
                {"load": "b", "state": "s"}, {"pull": "b"}, {"close": "b"}, {"drain": "b", "clause": "DLV-4"},
            ]  # fmt: skip
        for cut in range(batches + 1):
            yield [
                opened("a", common, rank=world_size - 1), {"pull": "a", "batches": cut}, {"close": "a"}, {"save": "a", "as": "s"},
                *([{"drain": "a", "clause": "DLV-4"}] if cut < batches else []),
            ]  # fmt: skip


@check("DLV-4", "EPO-2", needs=("break",))
def passes_that_are_over(bound: Bound) -> Scenarios:
    """A pass is over with its last row, before it has said so: a load is taken then, and it says its end all the same."""
    for common, world_size, batches in worlds(bound):
        begin = opened("a", common, rank=world_size - 1)
        yield [
            begin, {"save": "a", "as": "s"}, {"pull": "a", "batches": batches}, {"load": "a", "state": "s", "clause": "DLV-4"},
            {"pull": "a", "clause": "DLV-4"}, {"drain": "a", "clause": "DLV-4"},
        ]  # fmt: skip
        yield [
            begin, {"pull": "a", "batches": batches}, {"set_epoch": "a", "epoch": 3, "clause": "DLV-4"}, {"pull": "a", "clause": "DLV-4"},
            {"drain": "a", "clause": "DLV-4"},
        ]  # fmt: skip


@check("DLV-4", "RES-5", needs=("break",))
def loads_during_a_pass(bound: Bound) -> Scenarios:
    """A load under a pass with rows left is refused and changes nothing; afterwards it is taken."""
    for common, world_size, batches in worlds(bound):
        if batches > 1:
            begin = opened("a", common, rank=world_size - 1)
            yield [
                begin, {"save": "a", "as": "s"}, {"pull": "a"}, {"load": "a", "state": "s", "clause": "DLV-4"},
                {"drain": "a", "clause": "RES-5"},
            ]  # fmt: skip
            yield [
                begin, {"save": "a", "as": "s"}, {"pull": "a"}, {"close": "a"}, {"load": "a", "state": "s", "clause": "DLV-4"},
                {"drain": "a", "clause": "DLV-4"},
            ]  # fmt: skip


@check("DLV-4", needs=("break", "epochs"))
def set_epoch_during_a_pass(bound: Bound) -> Scenarios:
    """set_epoch under a pass with rows left is refused and changes nothing."""
    for common, world_size, batches in worlds(bound):
        for epoch in (0, 1) if batches > 1 else ():
            yield [
                opened("a", common, rank=world_size - 1), {"pull": "a"}, {"set_epoch": "a", "epoch": epoch, "clause": "DLV-4"},
                {"drain": "a", "clause": "DLV-4"},
            ]  # fmt: skip


# ---- newer iterators


@check("DLV-4", "RES-5", needs=("newest", "break"))
def idle_iterators(bound: Bound) -> Scenarios:
    """An iterator that was never asked for a batch holds nothing: its pass begins where the place is by then."""
    for common, world_size, batches in worlds(bound):
        begin = opened("a", common, rank=world_size - 1)
        yield [begin, {"iterate": "a"}, {"close": "a"}, {"drain": "a", "clause": "DLV-4"}]
        for cut in sorted({0, 1, batches - 1}):
            yield [
                begin, {"save": "a", "as": "s"}, {"pull": "a", "batches": cut}, {"iterate": "a"},
                {"load": "a", "state": "s", "clause": "DLV-4"}, {"drain": "a", "clause": "DLV-4"},
            ]  # fmt: skip
        for epoch in (0, 2):
            yield [
                begin, {"pull": "a"}, {"iterate": "a"}, {"set_epoch": "a", "epoch": epoch, "clause": "DLV-4"},
                {"drain": "a", "clause": "DLV-4"}, {"drain": "a", "clause": "EPO-2"},
            ]  # fmt: skip


@check("DLV-4", "EPO-2", needs=("newest", "break"))
def newer_iterators(bound: Bound) -> Scenarios:
    """A newer iterator after every batch: it goes on behind the rows received, and the one before it gives nothing any more."""
    for common, world_size, batches in worlds(bound):
        for cut in range(batches + 1):
            begin: list[Step] = [opened("a", common, rank=world_size - 1), {"pull": "a", "batches": cut}, {"iterate": "a"}, {"older": "a"}]
            yield [*begin, {"pull": "a", "clause": "DLV-4"}, {"older": "a"}, {"drain": "a", "clause": "DLV-4"}, {"older": "a"}]
            yield [
                *begin, {"save": "a", "as": "s"}, {"iterate": "a"}, {"older": "a"}, {"drain": "a", "clause": "DLV-4"},
                opened("b", common, rank=world_size - 1), {"load": "b", "state": "s"}, {"drain": "b", "clause": "RES-3"},
            ]  # fmt: skip


@check("DLV-4", needs=("newest", "break"))
def ends_that_stay(bound: Bound) -> Scenarios:
    """What an iterator said once it says after newer passes too: its end, that it was left, or that it was superseded."""
    for common, world_size, batches in worlds(bound):
        begin, newer = opened("a", common, rank=world_size - 1), [{"iterate": "a"}, {"older": "a"}, {"pull": "a", "clause": "DLV-4"}]
        for ending in ([{"drain": "a"}], [{"pull": "a", "batches": batches}], [{"pull": "a"}, {"close": "a"}], [{"iterate": "a"}]):
            yield [begin, *ending, *newer, {"older": "a"}, {"close": "a"}, {"older": "a"}]


@check("DLV-4", "EPO-4", needs=("newest", "epochs", "break"))
def requests_under_idle_iterators(bound: Bound) -> Scenarios:
    """A request of set_epoch is used up by the first batch that is asked for, not by iterators that were never asked."""
    for common, world_size, _ in worlds(bound):
        begin: list[Step] = [opened("a", common, rank=world_size - 1), {"drain": "a"}]
        for before, after in ((["iterate"], []), ([], ["iterate"]), ([], ["iterate", "iterate"]), ([], ["iterate", "close"])):
            yield [
                *begin, *[{verb: "a"} for verb in before], {"set_epoch": "a", "epoch": 0}, *[{verb: "a"} for verb in after],
                {"drain": "a", "clause": "DLV-4"}, {"drain": "a", "clause": "EPO-4"},
            ]  # fmt: skip


# ---- failures


@check("DLV-5", "DLV-6", "RES-3", needs=("faults", "break"))
def bad_rows(bound: Bound) -> Scenarios:
    """Every row in turn is bad: what comes before it arrives, nothing after it; then a state, and the rest once the row is mended."""
    for (rows, splits), batch_size in itertools.product(bound.sizes, bound.batch_sizes):
        common = {"rows": rows, "num_splits": splits, "batch_size": batch_size}
        for row in range(rows // splits * splits):
            begin: list[Step] = [opened("a", common), {"fault": "a", "row": row}]
            yield [*begin, {"drain": "a", "clause": "DLV-5"}, {"pull": "a", "clause": "DLV-5"}]
            # Split s = row // L serves it in cycle row % L; the batches before its own have been received.
            place = row % (rows // splits) * splits + row // (rows // splits)
            resumed = "RES-3" if mid_cycle(common, place // batch_size) else "DLV-6"
            yield [
                *begin, {"drain": "a", "clause": "DLV-5"}, {"close": "a"}, {"save": "a", "as": "s", "clause": "DLV-6"},
                {"fault": "a", "row": None}, {"drain": "a", "clause": "DLV-6"},
                opened("b", common), {"load": "b", "state": "s", "clause": "DLV-6"}, {"drain": "b", "clause": resumed},
            ]  # fmt: skip


# ---- workers


def sharded(bound: Bound, most_rows: int = 24) -> list[tuple[dict[str, Any], int]]:
    """Worlds in which several workers own splits; with the number of batches of an epoch."""
    found = []
    for (rows, splits), order, batch_size in itertools.product(bound.sizes, bound.orders(), bound.batch_sizes):
        for world_size, workers in itertools.product(divisors(splits), bound.workers):
            if rows <= most_rows and (splits // world_size) % workers == 0:
                common = {"rows": rows, "num_splits": splits, "world_size": world_size, "batch_size": batch_size, **order}
                batches = workers * -(-(splits // world_size // workers) * (rows // splits) // batch_size)
                found.append(({**common, "num_workers": workers}, batches))
    return found


@check("WRK-2", needs=("workers",))
def workers_epochs(bound: Bound) -> Scenarios:
    """Whole passes with several workers."""
    for common, _ in sharded(bound):
        yield [opened("a", common, rank=common["world_size"] - 1), {"drain": "a", "clause": "WRK-2"}]


@check("WRK-9", "WRK-6", needs=("workers",))
def workers_states(bound: Bound) -> Scenarios:
    """A state after every batch, refused or not; resumed without workers, with as many, and with one for each split."""
    for common, batches in sharded(bound):
        for cut in range(1, batches + 1):
            steps: list[Step] = [
                opened("a", common), {"pull": "a", "batches": cut, "clause": "WRK-2"}, {"save": "a", "as": "s", "clause": "WRK-9"}
            ]  # fmt: skip
            if _at_boundary(common, cut, batches) and cut < batches:
                for workers in sorted({0, common["num_workers"], common["num_splits"] // common["world_size"]}):
                    steps += [opened("b", {**common, "num_workers": workers}), {"load": "b", "state": "s"}]
                    steps.append({"drain": "b", "clause": "WRK-6"})
            yield steps


@check("WRK-11", needs=("workers", "break"))
def workers_breaks(bound: Bound) -> Scenarios:
    """Left after every batch and continued with as many workers."""
    for common, batches in sharded(bound, 9):
        for cut in range(1, batches):
            yield [
                opened("a", common), {"pull": "a", "batches": cut, "clause": "WRK-2"}, {"close": "a"},
                {"drain": "a", "clause": "WRK-11"},
            ]  # fmt: skip


@check("WRK-11", "DLV-4", needs=("workers", "newest"))
def workers_newer_iterators(bound: Bound) -> Scenarios:
    """A newer iterator after every batch goes on as after a break: the turn is kept, and what was prepared does not count."""
    for common, batches in sharded(bound, 9):
        for cut in range(1, batches):
            yield [
                opened("a", common), {"pull": "a", "batches": cut, "clause": "WRK-2"}, {"iterate": "a"}, {"older": "a"},
                {"pull": "a", "clause": "WRK-11"}, {"older": "a"}, {"drain": "a", "clause": "WRK-11"},
            ]  # fmt: skip


@check("WRK-4", needs=("invariant",))
def invariant_workers(bound: Bound) -> Scenarios:
    """Batches and states after every batch, whatever the number of workers; resumed with another number."""
    for common, _, batches in worlds(bound):
        for workers in bound.workers:
            world = {**common, "num_workers": workers, "worker_sharding": "batches"}
            for cut in range(min(batches, 4)):
                yield [
                    opened("a", world), {"pull": "a", "batches": cut, "clause": "WRK-4"}, {"save": "a", "as": "s", "clause": "WRK-4"},
                    {"drain": "a", "clause": "WRK-4"}, opened("b", {**world, "num_workers": workers + 1}), {"load": "b", "state": "s"},
                    {"drain": "b", "clause": "WRK-4"},
                ]  # fmt: skip


def _at_boundary(common: dict[str, Any], cut: int, batches: int) -> bool:
    """Whether all splits have the same count after so many batches (WRK-8), by counting."""
    workers, size = common["num_workers"], common["batch_size"]
    splits = common["num_splits"] // common["world_size"] // workers
    rows = [min(len(range(worker, cut, workers)) * size, splits * (common["rows"] // common["num_splits"])) for worker in range(workers)]
    del batches
    return len(set(rows)) == 1 and rows[0] % splits == 0

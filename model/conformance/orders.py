"""Checks of the order of rows: permutations, seeds, epochs, and for loaders that say so the very order of spec/order.md."""

from __future__ import annotations

import itertools

from model.conformance.adapter import Adapter, World
from model.conformance.checks import Bound, Scenarios, check
from model.conformance.learned import Learned
from model.conformance.scenario import Violation

_ROWS, _SPLITS = 24, 2
# Pairs that arithmetic on seed and epoch would confuse are among them.
_PAIRS = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (100003, 0)]


def permutations(adapter: Adapter, bound: Bound) -> Violation | None:
    """ORD-6: an uninterrupted epoch gives each row of the splits once, at every batch size."""
    for (rows, splits), order, batch_size in itertools.product(bound.sizes, bound.orders(), bound.batch_sizes):
        if order and "shuffle" not in adapter.describe().capabilities:
            continue
        count = rows // splits * splits
        world = {"rows": rows, "num_splits": splits, "batch_size": batch_size, **order}
        steps = ({"open": "a", **world}, {"drain": "a"})
        try:
            found = [row for row in Learned(adapter).epoch(World(**world)) if row >= 0]
        except Exception as error:
            return Violation("ORD-6", f"{count} different ids out of 0..{rows - 1}", crash(error), steps)
        if len(found) != count or len(set(found)) != count or not set(found) <= set(range(rows)):
            return Violation("ORD-6", f"{count} different ids out of 0..{rows - 1}", sorted(found), steps)
    return None


def seeds_and_epochs(adapter: Adapter) -> Violation | None:
    """ORD-3: the same (seed, epoch) gives the same order, others give others, and none is the storage order."""
    seen: dict[tuple[int, int], list[int]] = {}
    for seed, epoch in _PAIRS * 2:
        world = World(_ROWS, _SPLITS, shuffle=True, shuffle_seed=seed, epoch=epoch)
        steps = ({"open": "a", **world.to_json()}, {"drain": "a"})
        try:
            found = Learned(adapter).epoch(world)
        except Exception as error:
            return Violation("ORD-3", "an order", crash(error), steps)
        if seen.setdefault((seed, epoch), found) != found:
            return Violation("ORD-3", seen[seed, epoch], found, steps, "the second time another order")
        for (other_seed, other_epoch), other in seen.items():
            if (seed, epoch) != (other_seed, other_epoch) and other == found:
                return Violation("ORD-3", f"not the order of seed {other_seed}, epoch {other_epoch}", found, steps)
    unshuffled = Learned(adapter).epoch(World(_ROWS, _SPLITS))
    if unshuffled in seen.values():
        return Violation("ORD-3", "another order than without shuffle", unshuffled, ({"open": "a", "rows": _ROWS, "num_splits": _SPLITS},))
    return None


def crash(error: Exception) -> dict[str, str]:
    """What was observed where a loader raised although nothing was asked of it but an epoch; a refusal is no order either."""
    return {"crashed": f"{type(error).__name__}: {error}"}


@check("ORD-12", "ORD-8", needs=("order", "shuffle"))
def golden_orders(bound: Bound) -> Scenarios:
    """Shuffled epochs of many sizes, seeds, epochs and clump sizes; the reference does not learn from loaders that claim this order."""
    del bound
    for rows, seed, epoch in itertools.product((2, 3, 5, 8, 17, 64, 300), (0, 1, 2**63 - 1), (0, 7)):
        world = {"open": "a", "rows": rows, "num_splits": 1, "shuffle": True, "shuffle_seed": seed, "epoch": epoch, "batch_size": 50}
        yield [world, {"drain": "a", "clause": "ORD-12"}]
        for clump in (2, 3, 7):
            yield [{**world, "shuffle_clump_size": clump}, {"drain": "a", "clause": "ORD-8"}]

"""Which steps a failure must hold to be one of its clause, and the uninterrupted pass that may have it without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from model.conformance.scenario import Step, Violation

# Clause to steps, of which a scenario must hold one; of rows that are wrong, before them. What is not here is about any pass.
ABOUT: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("CKP-2", "CKP-6", "LAW-4", "RES-3", "RES-4", "RES-5", "RES-6", "RES-7", "RES-8"), frozenset({"load"})),
    **dict.fromkeys(("IDN-6", "IDN-7", "IDN-8", "EPO-3", "DLV-1", "WRK-6"), frozenset({"load"})),
    **dict.fromkeys(("CKP-1", "WRK-9"), frozenset({"save"})),
    **dict.fromkeys(("MRG-1", "MRG-2"), frozenset({"merge"})),
    **dict.fromkeys(("DLV-5", "DLV-6"), frozenset({"fault"})),
    "EPO-2": frozenset({"pull", "drain"}),
    "EPO-4": frozenset({"set_epoch"}),
    "DLV-4": frozenset({"close", "load", "set_epoch", "iterate"}),
    "DLV-12": frozenset({"append"}),
    "WRK-11": frozenset({"close", "iterate"}),
}


def shows(clause: str, steps: Sequence[Step]) -> bool:
    """Whether a scenario that ends where the loader differs holds a step that the clause is about.

    Examples
    --------
    >>> shows("RES-6", [{"open": "a"}, {"load": "a", "state": "s"}, {"drain": "a"}]), shows("RES-6", [{"open": "a"}, {"drain": "a"}])
    (True, False)
    """
    verbs = [next(iter(step)) for step in steps]
    return clause not in ABOUT or not ABOUT[clause].isdisjoint(verbs[:-1] if verbs[-1] in ("pull", "drain") else verbs)


def pass_of(found: Violation) -> list[Step] | None:
    """One uninterrupted pass of the world whose rows differed; None where the clause is about passes, or something else differed."""
    subject = found.steps[-1].get("pull", found.steps[-1].get("drain"))
    if subject is None or found.clause not in ABOUT:
        return None
    world = next(step for step in reversed(found.steps) if step.get("open") == subject)
    return [world, {"drain": subject, "clause": pass_clause(world)}]


def pass_clause(world: dict[str, Any]) -> str:
    """What the rows of an uninterrupted pass are about."""
    if world.get("num_workers", 0) > 1:
        return "WRK-4" if world.get("worker_sharding") == "batches" else "WRK-2"
    # Where a global step holds whole cycles, its rows do not depend on the world size.
    return "CYC-1" if world.get("world_size", 1) * world.get("batch_size", 1) % world["num_splits"] else "CYC-6"

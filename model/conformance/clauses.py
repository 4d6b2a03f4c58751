"""The clauses that the kit judges: whose promise each is, and what a loader must be capable of for it to apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DOCUMENTED: Final = "documented"
EXPECTED: Final = "expected"
OURS: Final = "ours"


@dataclass(frozen=True)
class Clause:
    """A clause of spec/ as the kit sees it.

    Parameters
    ----------
    id : str
        Its id.
    says : str
        What is observed, in one line.
    whose : str
        ``DOCUMENTED``: LanceDB's pages or docstrings promise it; ``EXPECTED``: they do not say, but whoever resumes a run counts on it;
        ``OURS``: this specification goes further.
    needs : frozenset of str
        Capabilities.
    """

    id: str
    says: str
    whose: str
    needs: frozenset[str]


def _clause(name: str, says: str, whose: str, *needs: str) -> tuple[str, Clause]:
    return name, Clause(name, says, whose, frozenset(needs))


CLAUSES: Final = dict(
    [
        _clause("ORD-6", "an epoch is a permutation: every row of the splits once, no other", DOCUMENTED),
        _clause("ORD-3", "seeds and epochs give different orders, and the same ones the same order", DOCUMENTED, "shuffle"),
        _clause("ORD-12", "the order is that of the golden vectors, to the bit", OURS, "order"),
        _clause("ORD-8", "clumps of neighbouring rows stay together", OURS, "order"),
        _clause("ASG-1", "fewer rows than splits are refused", EXPECTED),
        _clause("ASG-2", "world sizes that do not divide the splits, and ranks outside the world, are refused", EXPECTED),
        _clause("CYC-1", "one row of each owned split per cycle, on every rank of every world", DOCUMENTED),
        _clause("CYC-6", "a global step holds the same rows for every world size", DOCUMENTED),
        _clause("CKP-1", "a state can be had at any moment", DOCUMENTED),
        _clause("CKP-2", "ranks at one step save states that serve every rank", EXPECTED),
        _clause("CKP-6", "what no loader saved is refused", EXPECTED),
        _clause("LAW-4", "a resume at a cycle boundary gives the rest of the epoch, on every world size", DOCUMENTED),
        _clause("RES-3", "a resume replays the partial cycle and nothing else, on every world size", OURS),
        _clause("RES-4", "an exact resume replays and loses nothing", OURS, "exact"),
        _clause("RES-5", "a refused load changes nothing", EXPECTED),
        _clause("RES-6", "a load adopts the epoch of the state", EXPECTED),
        _clause("RES-7", "what was loaded saves as itself", EXPECTED),
        _clause("RES-8", "a resume within a cycle loses no row, on every world size", EXPECTED),
        _clause("IDN-6", "states of other settings are refused", DOCUMENTED),
        _clause("IDN-7", "a table that has grown is read at the recorded version", EXPECTED, "append"),
        _clause("IDN-8", "states of another table are refused", OURS),
        _clause("MRG-1", "states of another number of ranks, or of other settings, do not merge", DOCUMENTED, "merge"),
        _clause("MRG-2", "ranks at different steps are refused, or nothing is lost", DOCUMENTED, "merge"),
        _clause("EPO-2", "a pass over a completed epoch is one over the next", OURS),
        _clause("EPO-3", "a state after the last row resumes with the next epoch, whole", OURS),
        _clause("EPO-4", "set_epoch asks for exactly that epoch", OURS, "epochs"),
        _clause("DLV-1", "only received rows count", DOCUMENTED),
        _clause("DLV-4", "a pass that is left goes on where it stopped, the newest iterator wins, no load under a pass", EXPECTED, "break"),
        _clause("DLV-5", "rows before a bad one arrive, and none after it", EXPECTED, "faults", "break"),
        _clause("DLV-6", "after a failure the place is that of the rows received", DOCUMENTED, "faults", "break"),
        _clause("DLV-12", "a table that changes changes nothing for the run", EXPECTED, "append"),
        _clause("WRK-2", "workers own sub-blocks of the splits and are served round robin", DOCUMENTED, "workers"),
        _clause("WRK-4", "in invariant mode batches and states do not depend on the workers", OURS, "invariant"),
        _clause("WRK-6", "what workers prepared and the trainer did not receive counts nothing", DOCUMENTED, "workers"),
        _clause("WRK-9", "a state is refused between step boundaries, and nowhere else", DOCUMENTED, "workers"),
        _clause("WRK-11", "a pass left between step boundaries goes on with as many workers", OURS, "workers", "break"),
        _clause("WRK-13", "len() is the number of batches of an epoch, the same on every rank", OURS, "length"),
    ]
)

"""What a run of the engine found: a status per clause, and what the command line ends with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from model.conformance.adapter import Description
from model.conformance.clauses import CLAUSES
from model.conformance.scenario import Violation

PASSED: Final = "PASSED"
FAILED: Final = "FAILED"
NOT_IMPLEMENTED: Final = "NOT_IMPLEMENTED"
UNCOVERED: Final = "UNCOVERED"


@dataclass
class Result:
    """What a run found.

    Attributes
    ----------
    description : Description
        The loader.
    sane : str or None
        Why nothing could be judged: the adapter does not work. None: it does.
    violations : dict
        Clause to its smallest violation.
    judged : Counter
        Clause to the number of steps in which loader and specification agreed.
    truncated : set of str
        Clauses whose search was cut short.
    gaps : dict
        Clause to the implementer's reason why it fails.
    not_run : dict
        Layer that was asked for and not run, to the reason.
    seconds : float
        Of the whole run.
    """

    description: Description
    sane: str | None = None
    violations: dict[str, Violation] = field(default_factory=dict)
    judged: Counter[str] = field(default_factory=Counter)
    truncated: set[str] = field(default_factory=set)
    gaps: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    scenarios: int = 0
    seconds: float = 0.0

    def status(self, clause: str) -> str:
        """PASSED, FAILED, NOT_IMPLEMENTED or UNCOVERED; a search that was cut short is no pass."""
        if clause in self.violations:
            return FAILED
        if not CLAUSES[clause].needs <= self.description.capabilities:
            return NOT_IMPLEMENTED
        return PASSED if self.judged[clause] and clause not in self.truncated else UNCOVERED

    def statuses(self) -> dict[str, str]:
        """All clauses."""
        return {clause: self.status(clause) for clause in CLAUSES}

    @property
    def stale(self) -> list[str]:
        """Gaps that are none: their clauses were judged and do not fail, or are not applicable."""
        return [clause for clause in self.gaps if self.status(clause) in (PASSED, NOT_IMPLEMENTED)]

    @property
    def exit_code(self) -> int:
        """0: all passed or a known gap; 1: a clause failed, its search was cut short, or a gap is stale; 2: nothing could be judged."""
        if self.sane is not None:
            return 2
        unknown = [clause for clause in self.violations if clause not in self.gaps]
        cut_short = [clause for clause in self.truncated if self.status(clause) == UNCOVERED]
        return 1 if unknown or cut_short or self.stale else 0

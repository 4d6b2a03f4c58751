"""The engine behind all doors: layers of checks, a result per clause (see `check_loader`)."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from model.conformance import orders, resuming, running
from model.conformance.adapter import Adapter, Description, World
from model.conformance.checks import CHECKS, SMALL, SMOKE, Bound, Check, Scenarios
from model.conformance.clauses import CLAUSES
from model.conformance.learned import Learned
from model.conformance.reference import Reference
from model.conformance.scenario import Step, Violation, needs, plain, run, shrink

PASSED: Final = "PASSED"
FAILED: Final = "FAILED"
NOT_IMPLEMENTED: Final = "NOT_IMPLEMENTED"
UNCOVERED: Final = "UNCOVERED"

# Modules that register checks when they are imported.
CHECKING: Final = (orders, resuming, running)
# What the smoke layer calls.
SMOKED: Final = ("open", "pull", "save", "resume", "kill")
LAYERS: Final = ("smoke", "small", "machine", "stress")
_SHRINKING_S: Final = 20.0


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
    seconds : float
        Of the whole run.
    """

    description: Description
    sane: str | None = None
    violations: dict[str, Violation] = field(default_factory=dict)
    judged: Counter[str] = field(default_factory=Counter)
    truncated: set[str] = field(default_factory=set)
    gaps: dict[str, str] = field(default_factory=dict)
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


def check_loader(
    make: Callable[[], Adapter],
    *,
    layers: Iterable[str] = LAYERS,
    bound: Bound = SMALL,
    seconds: float = 600.0,
    examples: int = 300,
    gaps: dict[str, str] | None = None,
    tell: Callable[[str], None] | None = None,
    until: frozenset[str] = frozenset(),
) -> Result:
    """Judge a loader by every clause of `CLAUSES` that it can do.

    Parameters
    ----------
    make : callable
        Makes the adapter. It is called once, and once more where the smoke layer has to tell a broken adapter from a broken loader.
    layers : iterable of str
        Of `LAYERS`; "smoke" is always done.
    bound : Bound
        Of the exhaustive layer.
    seconds : float
        After which no new scenario is begun; what is then not finished is UNCOVERED.
    examples : int
        Histories that the machine draws.
    gaps : dict, optional
        Clauses that are known to fail, with the implementer's reasons.
    tell : callable, optional
        Gets a line of progress per check.
    until : frozenset of str
        Clauses of which the first violation ends the run; checks that judge them come first. What was not finished is UNCOVERED.

    Returns
    -------
    Result
        `exit_code` and `status(clause)` sum it up; see `model.conformance.report`.

    Examples
    --------
    >>> from model.conformance.adapters.example import ListLoader
    >>> result = check_loader(ListLoader, layers=["smoke"], bound=SMOKE)
    >>> result.sane, result.status("ORD-6")
    (None, 'PASSED')
    """
    began, report = time.monotonic(), tell or _say_nothing
    adapter = make()
    result = Result(adapter.describe(), gaps=dict(gaps or {}))
    unknown = sorted(set(result.gaps) - CLAUSES.keys())
    if unknown:
        raise ValueError(f"gaps name clauses that do not exist: {unknown}")
    judge = Judge(adapter, result, began + seconds, until)
    wanted = list(layers)
    result.sane = judge.smoke()
    if result.sane is None:
        if "small" in wanted:
            judge.exhaustive(bound, report)
        if "stress" in wanted:
            judge.scenarios(stress_check(), SMALL, report)
        if "machine" in wanted:
            judge.machine(examples, report)
        judge.shrink()
    result.seconds = time.monotonic() - began
    return result


def stress_check() -> Check:
    """Long histories on larger tables (see model.conformance.machine)."""

    def scenarios(bound: Bound) -> Scenarios:
        del bound
        from model.conformance import machine  # noqa: PLC0415  it needs Hypothesis, which the other layers do without

        return machine.stress(10)

    return Check("stress", ("CYC-1", "CKP-2"), frozenset(), scenarios)


class Judge:
    """One run on one adapter."""

    def __init__(self, adapter: Adapter, result: Result, deadline: float, until: frozenset[str] = frozenset()) -> None:
        """Loaders with the order of spec/order.md are compared with it; of others the order is learned."""
        self.adapter, self.result, self.deadline, self.until = adapter, result, deadline, until
        self.learned = None if "order" in result.description.capabilities else Learned(adapter)

    def run(self, steps: Sequence[Step], note: str = "", judged: Counter[str] | None = None) -> Violation | None:
        """Do a scenario on the loader and on a fresh model."""
        return run(steps, self.adapter, Reference(self.learned), note, judged)

    def smoke(self) -> str | None:
        """Whether the adapter works at all; else why not."""
        try:
            handle = self.adapter.open(World(4, 2))
            batches = [plain(self.adapter.pull(handle)) for _ in range(5)]
            self.adapter.kill(handle)
            if batches[4] is not None or any(batch is None or len(batch) != 1 for batch in batches[:4]):
                return f"four rows in batches of one must give four batches of one id and then None, not {batches}"
            handle = self.adapter.open(World(4, 2))
            self.adapter.pull(handle)
            self.adapter.pull(handle)
            state = self.adapter.save(handle)
            self.adapter.kill(handle)
            handle = self.adapter.open(World(4, 2))
            self.adapter.resume(handle, state)
            self.adapter.kill(handle)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            calls = [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.name in SMOKED]
            return f"{calls[0] if calls else 'pull'} does not work: {type(error).__name__}: {error} ({where.filename}, line {where.lineno})"
        self._keep(orders.permutations(self.adapter, SMOKE), "ORD-6")
        return None

    def exhaustive(self, bound: Bound, tell: Callable[[str], None]) -> None:
        """Every check, to a bound."""
        self._keep(orders.permutations(self.adapter, bound), "ORD-6")
        if "shuffle" in self.result.description.capabilities:
            self._keep(orders.seeds_and_epochs(self.adapter), "ORD-3")
        for check in sorted(CHECKS, key=lambda one: self.until.isdisjoint(one.clauses)):
            self.scenarios(check, bound, tell)

    def scenarios(self, check: Check, bound: Bound, tell: Callable[[str], None]) -> None:
        """All scenarios of a check, until time is up."""
        can = self.result.description.capabilities
        if not check.needs <= can:
            return
        began, done, failures = time.monotonic(), 0, 0
        for steps in check.scenarios(bound):
            if not needs(steps) <= can:
                continue
            if time.monotonic() > self.deadline or self._over():
                self.result.truncated |= set(check.clauses)
                break
            found = self.run(steps, check.name, self.result.judged)
            done += 1
            if found is not None:
                failures += 1
                self._keep(found, found.clause)
        self.result.scenarios += done
        tell(f"{check.name}: {done} scenarios, {failures} violations, {time.monotonic() - began:.1f} s")

    def machine(self, examples: int, tell: Callable[[str], None]) -> None:
        """Histories drawn by Hypothesis; a clause that is known to fail does not stop it from finding the next."""
        from model.conformance import machine  # noqa: PLC0415  it needs Hypothesis, which the other layers do without

        while time.monotonic() < self.deadline and not self._over():
            known = frozenset(self.result.violations)
            found, done = machine.search(self.run, self.result.description.capabilities, known, examples)
            self.result.scenarios += done
            tell(f"machine: {done} histories, {'a violation' if found else 'no violation'}{' beside those known' if known else ''}")
            if found is None:
                return
            self._keep(found, found.clause)

    def shrink(self) -> None:
        """Make the violations small enough to be read."""
        wanted = self.until & self.result.violations.keys() or self.result.violations.keys()
        for clause, found in list(self.result.violations.items()):
            if clause not in wanted:
                continue
            stop = time.monotonic() + _SHRINKING_S

            def again(steps: Sequence[Step], stop: float = stop, note: str = found.note) -> Violation | None:
                return self.run(steps, note) if time.monotonic() < stop and _begins_well(steps) else None

            self.result.violations[clause] = shrink(found, again)

    def _over(self) -> bool:
        """Whether what this run was to find is found."""
        return not self.until.isdisjoint(self.result.violations)

    def _keep(self, found: Violation | None, clause: str) -> None:
        if found is None:
            self.result.judged[clause] += 1
        elif found.clause not in CLAUSES:
            raise ValueError(f"a step names the clause {found.clause}, which model.conformance.clauses does not know")
        else:
            self.result.violations.setdefault(found.clause, found)


def _say_nothing(line: str) -> None:
    """Where nobody wants to know."""


def _begins_well(steps: Sequence[Step]) -> bool:
    """Whether every name is defined before it is used; shrinking leaves out steps blindly."""
    loaders: set[Any] = set()
    states: set[Any] = set()
    for step in steps:
        verb = next(iter(step))
        if verb == "open":
            loaders.add(step["open"])
        elif verb == "merge":
            if not set(step["merge"]) <= states:
                return False
        elif verb != "append" and step[verb] not in loaders:
            return False
        if "state" in step and step["state"] not in states:
            return False
        if "as" in step:
            states.add(step["as"])
        if verb == "kill":
            loaders.discard(step["kill"])
    return True

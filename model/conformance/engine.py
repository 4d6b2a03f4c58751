"""The engine behind all doors: layers of checks, a result per clause (see `check_loader`)."""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from model.conformance import losses, mistakes, orders
from model.conformance.adapter import Adapter, World
from model.conformance.checks import CHECKS, SMALL, SMOKE, Bound, Check, Scenarios
from model.conformance.clauses import CLAUSES
from model.conformance.learned import Learned
from model.conformance.reference import Reference
from model.conformance.result import Result
from model.conformance.scenario import Step, Violation, needs, run
from model.conformance.shrink import begins_well, shrink
from model.conformance.vectors import BESIDE, clauses_of, read, run_vector
from model.conformance.witness import pass_clause, pass_of, shows

# What the smoke layer calls.
SMOKED: Final = ("open", "pull", "save", "resume", "kill")
LAYERS: Final = ("smoke", "small", "vectors", "machine", "stress")
_SHRINKING_S: Final = 20.0


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
    vectors: str | Path | None = None,
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
    vectors : str or Path, optional
        Where the files of the vectors layer are. By default those of the checkout that this package is part of; where it is part of none,
        the layer is not run, and `Result.not_run` says so.

    Returns
    -------
    Result
        `exit_code` and `status(clause)` sum it up; see `model.conformance.report`.

    Raises
    ------
    AdapterError
        What the factory makes is no adapter, or does not know who it is.

    Examples
    --------
    >>> from model.conformance.adapters.example import ListLoader
    >>> result = check_loader(ListLoader, layers=["smoke"], bound=SMOKE)
    >>> result.sane, result.status("ORD-6")
    (None, 'PASSED')
    """
    began, report = time.monotonic(), tell or _say_nothing
    adapter, description = mistakes.made(make)
    result = Result(description, gaps=dict(gaps or {}))
    unknown = sorted(set(result.gaps) - CLAUSES.keys())
    if unknown:
        raise ValueError(f"gaps name clauses that do not exist: {unknown}")
    judge = Judge(adapter, result, began + seconds, until)
    wanted = list(layers)
    scenarios: list[dict[str, Any]] = []
    if "vectors" in wanted and vectors is None and not BESIDE.is_dir():
        result.not_run["vectors"] = f"there is no {BESIDE}"
    elif "vectors" in wanted:
        # Before anything is judged: a wrong directory is a mistake of whoever gave it.
        scenarios = read(BESIDE if vectors is None else Path(vectors))
    result.sane = judge.smoke()
    if result.sane is None:
        if "small" in wanted:
            judge.exhaustive(bound, report)
        if scenarios:
            judge.vectors(scenarios, report)
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
        self.losses = losses.Losses(adapter)
        # What became of uninterrupted passes, by their open step.
        self._passes: dict[str, Violation | None] = {}
        self.learned = None if "order" in result.description.capabilities else Learned(adapter)

    def run(self, steps: Sequence[Step], note: str = "", judged: Counter[str] | None = None) -> Violation | None:
        """Do a scenario on the loader and on a fresh model."""
        return self._attributed(run(steps, self.adapter, Reference(self.learned), note, judged))

    def smoke(self) -> str | None:
        """Whether the adapter works at all; else why not."""
        try:
            handle = self.adapter.open(World(4, 2))
            batches = [mistakes.batch(self.adapter.pull(handle)) for _ in range(5)]
            self.adapter.kill(handle)
            if batches[4] is not None or any(batch is None or len(batch) != 1 for batch in batches[:4]):
                return f"pull() of four rows in batches of one must give four batches of one id and then None, not {batches}"
            handle = self.adapter.open(World(4, 2))
            self.adapter.pull(handle)
            self.adapter.pull(handle)
            state = self.adapter.save(handle)
            self.adapter.kill(handle)
            handle = self.adapter.open(World(4, 2))
            self.adapter.resume(handle, state)
            self.adapter.kill(handle)
            mistakes.try_claims(self.adapter, self.result.description)
        except mistakes.AdapterError as error:
            return str(error)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            calls = [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.name in SMOKED]
            if isinstance(error, NotImplementedError) and calls:
                return f"{calls[0]}() must be implemented, and raised {mistakes.raised(error)}"
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
            found = (self.losses.run if check.whole else self.run)(steps, check.name, self.result.judged)
            done += 1
            if found is not None:
                failures += 1
                self._keep(found, found.clause)
        self.result.scenarios += done
        tell(f"{check.name}: {done} scenarios, {failures} violations, {time.monotonic() - began:.1f} s")

    def vectors(self, scenarios: Sequence[dict[str, Any]], tell: Callable[[str], None]) -> None:
        """Scenarios of files: what is expected is what is written there, the model is not asked."""
        can = self.result.description.capabilities
        fitting = [one for one in scenarios if frozenset(one["needs"]) <= can]
        began, done, failures = time.monotonic(), 0, 0
        for scenario in fitting:
            if time.monotonic() > self.deadline or self._over():
                self.result.truncated |= {clause for one in fitting[done:] for clause in clauses_of(one["steps"])}
                break
            found = self._attributed(run_vector(scenario, self.adapter, self.result.judged))
            done += 1
            if found is not None:
                failures += 1
                self._keep(replace(found, note=f"vector {found.note}"), found.clause)
        self.result.scenarios += done
        lacking = f"{len(scenarios) - len(fitting)} need what the loader does not have"
        tell(f"vectors: {done} scenarios, {failures} violations, {lacking}, {time.monotonic() - began:.1f} s")

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
                return self.run(steps, note) if time.monotonic() < stop and begins_well(steps) else None

            self.result.violations[clause] = shrink(found, again)

    def _attributed(self, found: Violation | None) -> Violation | None:
        """The violation, or that of the uninterrupted pass, where that fails too. Of clauses known to fail it makes no difference."""
        steps = None if found is None or found.clause in self.result.violations else pass_of(found)
        if found is None or steps is None:
            return found
        key = json.dumps(steps[0], sort_keys=True)
        if key not in self._passes:
            self._passes[key] = run(steps, self.adapter, Reference(self.learned))
        plain = self._passes[key]
        if plain is not None:
            return replace(plain, note=found.note)
        return found if shows(found.clause, found.steps) else replace(found, clause=pass_clause(steps[0]))

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

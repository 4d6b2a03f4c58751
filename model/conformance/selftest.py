"""Whether the kit rejects what is wrong: every negative control, by the clause that it breaks; and passes what is right.

    python -m model.conformance.selftest [--streaming]

Exit codes: 0, the kit can be trusted so far; 1, it cannot.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from model.conformance import wrong_identity, wrong_newest, wrong_orders, wrong_running, wrong_states, wrong_workers
from model.conformance.adapter import Adapter
from model.conformance.adapters.example import ListLoader
from model.conformance.checks import SMALL, SMOKE, Bound
from model.conformance.engine import LAYERS, check_loader
from model.conformance.reference import Reference
from model.conformance.result import Result
from model.conformance.vectors import BESIDE
from model.conformance.wrong import CONTROLS, Control

# Modules that register controls when they are imported.
CONTROLLING: Final = (wrong_orders, wrong_states, wrong_identity, wrong_running, wrong_newest, wrong_workers)
# The smallest worlds that have several ranks, several cycles, a shorter last batch and rows left out.
TINY: Final = Bound(((4, 2), (5, 2)))
# Cheapest first: a name, a layer, its bound.
_ATTEMPTS: Final = (
    ("tiny", "small", TINY),
    ("vectors", "vectors", SMALL),
    ("stress", "stress", SMALL),
    ("machine", "machine", SMALL),
    ("small", "small", SMALL),
)
# Of this process's own time, so that a busy machine does not change a verdict; and of the clock, after which no scenario is begun.
_MOST_SECONDS: Final = 10.0
_DEADLINE_S: Final = 90.0
# So many that another release of Hypothesis, which draws other histories, finds the same faults.
_EXAMPLES: Final = 200

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Verdict:
    """What became of a control.

    Parameters
    ----------
    control : Control
        Which.
    named : tuple of str
        The clauses that the kit found violated, one that was expected first.
    layer : str
        Where it was found, or looked for last.
    steps : int
        Steps of the shrunk scenario; 0 where there is none.
    seconds : float
        Of this process's time.
    sane : str or None
        Why nothing could be judged.
    """

    control: Control
    named: tuple[str, ...]
    layer: str
    steps: int
    seconds: float
    sane: str | None = None

    @property
    def fault(self) -> str | None:
        """Why the kit is not as good as it should be, or None."""
        if self.sane is not None:
            return f"was taken for a broken adapter: {self.sane}"
        if not self.named:
            return "survived"
        if self.named[0] not in self.control.clauses:
            return f"was rejected by {', '.join(self.named)} only, not by {' or '.join(sorted(self.control.clauses))}"
        return f"took more than {_MOST_SECONDS:.0f} s" if self.seconds > _MOST_SECONDS else None

    def line(self) -> str:
        """Control, clause, layer, seconds, length of the scenario; or what is wrong."""
        tail = f"{self.named[0]:7} {self.layer:8} {self.seconds:5.1f} s  {self.steps:2} steps" if self.fault is None else f"!! {self.fault}"
        return f"{self.control.name:39} {tail}  {self.control.what}"


def examine(control: Control) -> Verdict:
    """Run one control, cheapest layers first, until a clause is named that was expected.

    Parameters
    ----------
    control : Control
        A wrong loader.

    Returns
    -------
    Verdict
        `fault` is None where the kit did what it should.
    """
    began, used = time.monotonic(), time.process_time()
    named: dict[str, None] = {}
    where, steps, sane = "", 0, None
    with control.during():
        for where, layer, bound in _ATTEMPTS:  # noqa: B007  told below
            left = max(_DEADLINE_S - (time.monotonic() - began), 0.0)
            result = check_loader(control.make, layers=[layer], bound=bound, until=control.clauses, seconds=left, examples=_EXAMPLES)
            expected = [clause for clause in result.violations if clause in control.clauses]
            named = dict.fromkeys([*expected, *named, *result.violations])
            sane = result.sane
            if expected:
                steps = len(result.violations[expected[0]].steps)
            if expected or sane is not None or time.process_time() - used > _MOST_SECONDS:
                break
    return Verdict(control, tuple(named), where, steps, time.process_time() - used, sane)


def passes(make: Callable[[], Adapter], bound: Bound = SMALL, layers: Sequence[str] = LAYERS) -> tuple[bool, Result]:
    """Whether a right loader passes: nothing fails, and nothing is left uncovered that it can do."""
    result = check_loader(make, layers=layers, bound=bound)
    return result.exit_code == 0 and "UNCOVERED" not in result.statuses().values(), result


def selftest(
    tell: Tell | None = None,
    streaming: bool = False,
    controls: Sequence[Control] | None = None,
    rights: Sequence[tuple[Callable[[], Adapter], Bound]] = ((Reference, SMALL), (ListLoader, SMALL)),
) -> bool:
    """Whether the kit rejects every control by a clause that it breaks, in time, and passes the right loaders.

    Parameters
    ----------
    tell : callable, optional
        Gets a line per loader.
    streaming : bool
        Whether this project's own loader is tried too, right and with faults in it.
    controls : sequence of Control, optional
        Instead of all.
    rights : sequence of (callable, Bound)
        Loaders that must pass, and how far they are tried.

    Returns
    -------
    bool
        True: it does.
    """
    say = tell or _say_nothing
    wanted = list(CONTROLS if controls is None else controls)
    right = list(rights)
    if streaming:
        # They need lancedb and torch, which the kit itself does without.
        from model.conformance.adapters.streaming import Streaming  # noqa: PLC0415
        from model.conformance.adapters.streaming_faults import FAULTS  # noqa: PLC0415

        wanted += FAULTS if controls is None else []
        right.append((Streaming, SMOKE))
    good = True
    for control in wanted:
        if control.written and not BESIDE.is_dir():
            say(f"{control.name:39} not tried: there is no {BESIDE}")
            continue
        verdict = examine(control)
        say(verdict.line())
        good = good and verdict.fault is None
    for make, bound in right:
        passed, result = passes(make, bound)
        broken = [clause for clause, status in result.statuses().items() if status in ("FAILED", "UNCOVERED")]
        say(f"{result.description.name:40} {'passes' if passed else f'!! does not pass: {broken}'} {result.seconds:5.1f} s")
        good = good and passed
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m model.conformance.selftest", description=str(__doc__).splitlines()[0])
    parser.add_argument("--streaming", action="store_true", help="try this project's own loader too, right and with faults in it")
    return 0 if selftest(print, parser.parse_args(arguments).streaming) else 1


def _say_nothing(line: str) -> None:
    """Where nobody wants to know."""


if __name__ == "__main__":
    sys.exit(main())

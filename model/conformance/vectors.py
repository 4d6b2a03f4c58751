"""Generated vectors: scenarios with every observation written beside them, for ports that do not run Python.

The scenarios of all checks are done on the model; of them so many are kept that every edge (`model.conformance.edges`) which the checks
reach is in one of them. ``python -m model.conformance vectors --write spec/vectors/generated`` writes them again.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from model.conformance import losses, orders, resuming, running
from model.conformance.adapter import Adapter
from model.conformance.checks import CHECKS, Bound
from model.conformance.edges import Recorder
from model.conformance.replay import ScenarioError, checked
from model.conformance.scenario import EXPECTING, USUAL_CLAUSE, Step, Violation, compare, needs, salted
from model.conformance.screen import terse

# Where they lie in a checkout, whatever the working directory is. An installed package comes without spec/.
BESIDE: Final = Path(__file__).resolve().parents[2] / "spec" / "vectors" / "generated"

# Modules that register checks when they are imported.
CHECKING: Final = (losses, orders, resuming, running)

# To which sizes scenarios are looked for.
BOUND: Final = Bound(((2, 2), (4, 2), (5, 2), (6, 3), (8, 4), (9, 4)), (1, 2, 3), (2,))

# File by chapter of a check's first clause.
FILES: Final = {
    "ORD": "order",
    "ASG": "order",
    "CYC": "order",
    "CKP": "resume",
    "RES": "resume",
    "LAW": "resume",
    "IDN": "identity",
    "MRG": "merge",
    "EPO": "epochs",
    "DLV": "delivery",
    "WRK": "workers",
}


class VectorsError(ValueError):
    """The files cannot be used; the message is one line that says why."""


@dataclass(frozen=True)
class Candidate:
    """A scenario as it would be written, and the edges it would cover."""

    number: int
    check: str
    steps: tuple[Step, ...]
    edges: frozenset[str]
    size: int


@dataclass(frozen=True)
class Generated:
    """The vectors.

    Parameters
    ----------
    scenarios : dict
        By file name without its ending.
    edges : int
        How many edges the checks reach; each is in some scenario.
    """

    scenarios: dict[str, list[dict[str, Any]]]
    edges: int


# ---- writing


@cache
def generate() -> Generated:
    """All of them; the same every time."""
    candidates = list(_candidates())
    chosen = sorted(_cover(candidates), key=lambda one: one.number)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in dict.fromkeys(FILES.values())}
    chapters = {check.name: FILES[check.clauses[0].partition("-")[0]] for check in CHECKS}
    for one in chosen:
        scenarios = found[chapters[one.check]]
        number = sum(scenario["check"] == one.check for scenario in scenarios) + 1
        scenarios.append(
            {
                "id": f"{one.check}-{number}",
                "check": one.check,
                "clauses": sorted(clauses_of(one.steps)),
                "needs": sorted(needed(one.steps)),
                "steps": list(one.steps),
            }
        )
    return Generated({name: scenarios for name, scenarios in found.items() if scenarios}, len({e for c in candidates for e in c.edges}))


def _candidates() -> Iterator[Candidate]:
    number = 0
    # By name: in which sequence they are registered depends on who imports what.
    for check in sorted((one for one in CHECKS if not one.whole), key=lambda one: one.name):
        for steps in check.scenarios(BOUND):
            recorder = Recorder()
            written: list[Step] = []
            edges: set[str] = set()
            for step in steps:
                observed, edge = recorder.do(step)
                written.append(expecting(step, observed))
                edges.add(edge)
            number += 1
            yield Candidate(number, check.name, tuple(written), frozenset(edges), len(json.dumps(written)))


def _cover(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Greedily, by new edges per byte, so that no edge is left out."""
    chosen: list[Candidate] = []
    missing = {edge for one in candidates for edge in one.edges}
    # What a scenario adds only ever gets less: the one on top is the best if it still is worth what it was when it was put there.
    heap = [(-len(one.edges) / one.size, one.number, one) for one in candidates]
    heapq.heapify(heap)
    while missing:
        _, number, best = heapq.heappop(heap)
        worth = -len(best.edges & missing) / best.size
        if heap and (worth, number) > heap[0][:2]:
            heapq.heappush(heap, (worth, number, best))
        else:
            chosen.append(best)
            missing -= best.edges
    return chosen


def expecting(step: Step, observed: Any) -> Step:
    """A step with what is observed: rows, ends and numbers as ``expect``; a refusal as ``valid`` and ``code``."""
    verb = next(iter(step))
    plain = {key: value for key, value in terse(step).items() if key != "clause" or value != USUAL_CLAUSE[verb]}
    if isinstance(observed, dict):
        return {**plain, "valid": False, "code": observed["refused"]}
    return plain if observed is None else {**plain, "expect": observed}


def needed(steps: Sequence[Step]) -> frozenset[str]:
    """The capabilities without which these very observations cannot be made: rows of shuffled orders are those of spec/order.md."""
    found = needs(steps)
    return found | {"order"} if "shuffle" in found else found


def clauses_of(steps: Sequence[Step]) -> set[str]:
    """The clauses that a scenario judges."""
    return {step.get("clause", USUAL_CLAUSE[next(iter(step))]) for step in steps}


def render(scenarios: Sequence[dict[str, Any]]) -> str:
    """As the hand vectors are written: one step per line."""
    return "[\n" + ",\n".join(_scenario(scenario) for scenario in scenarios) + "\n]\n"


def _scenario(scenario: dict[str, Any]) -> str:
    head = json.dumps({key: value for key, value in scenario.items() if key != "steps"})
    steps = ",\n".join("  " + json.dumps(step) for step in scenario["steps"])
    return f'{head[:-1]}, "steps": [\n{steps}\n ]}}'


def texts() -> dict[str, str]:
    """File name to content."""
    return {f"{name}.json": render(scenarios) for name, scenarios in generate().scenarios.items()}


def write(directory: Path) -> list[str]:
    """Write all files; returns their paths."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in texts().items():
            (directory / name).write_text(content, encoding="utf-8", newline="\n")
    except OSError as error:
        raise VectorsError(f"{directory}: cannot be written: {error.strerror}") from error
    return [str(directory / name) for name in texts()]


def check(directory: Path) -> list[str]:
    """Generate them again; returns a line for each file that differs, lacks or is too many."""
    wanted = texts()
    present = {path.name: path for path in directory.glob("*.json")}
    found = [f"{directory / name}: lacks" for name in wanted if name not in present]
    found += [f"{path}: is not generated" for name, path in sorted(present.items()) if name not in wanted]
    for name, content in wanted.items():
        if name in present and present[name].read_text(encoding="utf-8") != content:
            found.append(f"{present[name]}: is not what the model says; write the vectors again")
    return found


# ---- running


def run_files(directory: Path, adapter: Adapter) -> tuple[int, int, list[tuple[str, Violation]]]:
    """Do the vectors of a directory on a loader; what is expected is what the files say, the model is not asked.

    Returns
    -------
    int
        Scenarios done.
    int
        Scenarios left out: they need what the loader does not have.
    list of (str, Violation)
        The failures, by id.
    """
    done, skipped = 0, 0
    failures: list[tuple[str, Violation]] = []
    can = adapter.describe().capabilities
    for scenario in read(directory):
        if not frozenset(scenario["needs"]) <= can:
            skipped += 1
            continue
        done += 1
        found = run_vector(scenario, adapter)
        if found is not None:
            failures.append((scenario["id"], found))
    return done, skipped, failures


def run_vector(scenario: dict[str, Any], adapter: Adapter, judged: Counter[str] | None = None) -> Violation | None:
    """Do one scenario; returns the first step whose observation is not the one that is written. `judged` is that of `scenario.run`."""
    steps = scenario["steps"]
    found = compare(steps, adapter, _written, scenario["id"], judged, salt=salted(steps))
    if found is None:
        return None
    # Without what was expected of the steps before: whoever does the scenario again, or a part of it, expects what the model says.
    plain = tuple({key: value for key, value in step.items() if key not in EXPECTING} for step in found.steps)
    return replace(found, steps=plain)


def _written(step: Step) -> Any:
    return {"refused": step["code"]} if step.get("valid") is False else step.get("expect")


def read(directory: Path) -> list[dict[str, Any]]:
    """The scenarios of all files of a directory."""
    found: list[dict[str, Any]] = []
    for path in sorted(directory.glob("*.json")):
        try:
            scenarios = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise VectorsError(f"{path}: cannot be read: {error}") from error
        wanted = {"id", "needs", "steps"}
        if not isinstance(scenarios, list) or not all(isinstance(one, dict) and wanted <= one.keys() for one in scenarios):
            raise VectorsError(f"{path}: is no list of scenarios (spec/vectors/README.md)")
        for one in scenarios:
            try:
                steps = checked(one["steps"])
            except ScenarioError as error:
                raise VectorsError(f"{path}, {one['id']}: {error}") from error
            for number, step in enumerate(steps, 1):
                if not {"pull", "drain", "older"}.isdisjoint(step) and not isinstance(step.get("expect"), list):
                    raise VectorsError(f"{path}, {one['id']}: step {number} must expect a list of batches")
                if step.get("valid") is False and "code" not in step:
                    raise VectorsError(f"{path}, {one['id']}: step {number} must have the code of its refusal")
            found.append({**one, "steps": steps})
    if not found:
        raise VectorsError(f"{directory}: holds no vectors")
    return found

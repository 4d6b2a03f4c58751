"""Run and print scenarios in the format of ``spec/vectors/README.md``.

python -m model.scenario spec/vectors/hand/*.json    runs them against the model
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model import checkpoint, loader
from model.errors import ModelError
from model.loader import Loader, Settings

Step = dict[str, Any]
State = dict[str, Any]

# Arguments of ``open`` that mean the same here as in chapter arguments; ``epoch`` is passed apart.
ARGUMENTS = ("num_splits", "world_size", "rank", "shuffle", "shuffle_seed", "shuffle_clump_size", "partial_cycle", "filter")


@dataclass(frozen=True)
class System:
    """The functions that make up a system under test, those of the model unless others are given."""

    open_loader: Callable[[Settings, int], Loader] = loader.open_loader
    start: Callable[[Loader], Loader] = loader.start
    pull: Callable[[Loader], tuple[Loader, int | None]] = loader.pull
    save: Callable[[Loader], State] = loader.save
    load: Callable[[Loader, object], Loader] = loader.load
    merge: Callable[[Sequence[object], str], State] = checkpoint.merge


MODEL = System()


class ScenarioFailure(Exception):
    """The system under test does not do what a step says."""


@dataclass
class Bench:
    """What a scenario has built so far."""

    rows: int
    system: System
    loaders: dict[str, Loader] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)


def run(scenario: dict[str, Any], system: System = MODEL) -> Bench:
    """Do all steps of a scenario in sequence; ``ScenarioFailure`` at the first that does not hold."""
    bench = Bench(scenario["rows"], system)
    for number, step in enumerate(scenario["steps"]):
        where = f"{scenario['id']}, step {number} {json.dumps(step)}"
        try:
            run_step(bench, step)
            refused = None
        except ModelError as error:
            refused = error.code
        except ScenarioFailure as failure:
            raise ScenarioFailure(f"{where}: {failure}") from None
        expected = None if step.get("valid", True) else step["code"]
        if refused != expected:
            raise ScenarioFailure(f"{where}: refused with {refused}, expected {expected}")
    return bench


def run_step(bench: Bench, step: Step) -> None:
    """Do one step. Loaders and states are replaced only after the whole step, so a refused step changes nothing."""
    actions: dict[str, Callable[[Bench, Step], None]] = {
        "open": step_open,
        "pull": step_pull,
        "end": step_end,
        "close": step_close,
        "save": step_save,
        "load": step_load,
        "set_epoch": step_set_epoch,
        "rewind": step_rewind,
        "merge": step_merge,
        "check": step_check,
    }
    names = [name for name in actions if name in step]
    if len(names) != 1:
        raise ValueError(f"a step does one thing: {step}")
    actions[names[0]](bench, step)


def step_open(bench: Bench, step: Step) -> None:
    """``{"open": a, ...arguments}``: every argument not given has its default, ``shuffle`` that of vectors/README.md."""
    unknown = set(step) - set(ARGUMENTS) - {"open", "epoch", "valid", "code"}
    if unknown:
        raise ValueError(f"arguments that no scenario has: {unknown}")
    arguments = {"shuffle": False, **{key: step[key] for key in ARGUMENTS if key in step}}
    arguments.setdefault("num_splits", arguments.get("world_size", 1))
    settings = Settings(rows=bench.rows, **arguments)
    bench.loaders[step["open"]] = bench.system.open_loader(settings, step.get("epoch", 0))


def started(bench: Bench, name: str) -> Loader:
    """The loader with an iterator, created if none is alive."""
    current = bench.loaders[name]
    return current if current.alive else bench.system.start(current)


def step_pull(bench: Bench, step: Step) -> None:
    """``{"pull": a, "rows": [...]}``: the next rows are these."""
    current = started(bench, step["pull"])
    for expected in step["rows"]:
        current, row = bench.system.pull(current)
        if row != expected:
            raise ScenarioFailure(f"row {row} instead of {expected}")
    bench.loaders[step["pull"]] = current


def step_end(bench: Bench, step: Step) -> None:
    """``{"end": a}``: the next pull ends the pass."""
    current, row = bench.system.pull(started(bench, step["end"]))
    if row is not None or current.alive:
        raise ScenarioFailure(f"row {row} instead of the end of the pass")
    bench.loaders[step["end"]] = current


def step_close(bench: Bench, step: Step) -> None:
    """``{"close": a}``: drop the iterator."""
    bench.loaders[step["close"]] = loader.close(bench.loaders[step["close"]])


def check_values(expected: dict[str, Any], seen: dict[str, Any]) -> None:
    """These keys have these values, types included: True is not 1."""
    for key, value in expected.items():
        if key not in seen or json.dumps(seen[key]) != json.dumps(value):
            raise ScenarioFailure(f"{key} is {seen.get(key)} instead of {value}")


def step_save(bench: Bench, step: Step) -> None:
    """``{"save": a, "as": s, "checks": {...}}``."""
    state = bench.system.save(bench.loaders[step["save"]])
    check_values(step.get("checks", {}), state)
    bench.states[step["as"]] = state


def step_load(bench: Bench, step: Step) -> None:
    """``{"load": a, "state": s, "edit": {...}, "drop": [...]}``: of a copy, edited first."""
    state = dict(bench.states[step["state"]])
    state.update(step.get("edit", {}))
    for key in step.get("drop", []):
        del state[key]
    bench.loaders[step["load"]] = bench.system.load(bench.loaders[step["load"]], state)


def step_set_epoch(bench: Bench, step: Step) -> None:
    """``{"set_epoch": a, "epoch": e}``."""
    bench.loaders[step["set_epoch"]] = loader.set_epoch(bench.loaders[step["set_epoch"]], step["epoch"])


def step_rewind(bench: Bench, step: Step) -> None:
    """``{"rewind": a}``."""
    bench.loaders[step["rewind"]] = loader.rewind(bench.loaders[step["rewind"]])


def step_merge(bench: Bench, step: Step) -> None:
    """``{"merge": [s, ...], "as": m, "skew": ..., "checks": {...}}``."""
    merged = bench.system.merge([bench.states[name] for name in step["merge"]], step.get("skew", "refuse"))
    check_values(step.get("checks", {}), merged)
    bench.states[step["as"]] = merged


def step_check(bench: Bench, step: Step) -> None:
    """``{"check": a, ...}``."""
    current = bench.loaders[step["check"]]
    seen = {
        "len": loader.length(current),
        "samples_remaining": loader.remaining(current),
        "samples_to_replay": loader.samples_to_replay(current),
        "epoch": current.cursor.epoch,
    }
    check_values({key: value for key, value in step.items() if key != "check"}, seen)


def render(scenario: dict[str, Any]) -> str:
    """A scenario as the hand vectors are written: one step per line."""
    head = json.dumps({key: value for key, value in scenario.items() if key != "steps"})
    steps = ",\n".join("  " + json.dumps(step) for step in scenario["steps"])
    return head[:-1] + ', "steps": [\n' + steps + "\n ]}"


def main(paths: list[str]) -> int:
    """Run the scenarios of some files; returns the exit status."""
    failures = 0
    for path in paths:
        loaded = json.loads(Path(path).read_text(encoding="utf-8"))
        for scenario in loaded if isinstance(loaded, list) else [loaded]:
            try:
                run(scenario)
                print(f"pass {scenario['id']}")
            except ScenarioFailure as failure:
                failures += 1
                print(f"FAIL {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

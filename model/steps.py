"""The steps of a scenario (``spec/vectors/README.md``), each a function of the bench and the step.

A step replaces what is on the bench only when all of it was done, so a refused step changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model import checkpoint, loader, ranks, tables
from model.bench import DEFAULT_TABLE, Bench, ScenarioFailure, State, Step, check_values
from model.errors import ModelError
from model.ranks import Contribution
from model.settings import Settings, check_int

# Arguments of ``open`` that mean the same here as in chapter arguments; ``table``, ``version`` and ``epoch`` are passed apart.
ARGUMENTS = ("num_splits", "world_size", "rank", "shuffle", "shuffle_seed", "shuffle_clump_size", "partial_cycle", "filter")

# What any step may carry.
OUTCOME = ("valid", "code", "fields")


def run_step(bench: Bench, step: Step) -> None:
    """Do one step."""
    actions: dict[str, Callable[[Bench, Step], None]] = {
        "open": step_open,
        "iter": step_iter,
        "pull": step_pull,
        "end": step_end,
        "close": step_close,
        "save": step_save,
        "load": step_load,
        "is": step_state,
        "set_epoch": step_set_epoch,
        "rewind": step_rewind,
        "merge": step_merge,
        "gather": step_gather,
        "check_ranks": step_check_ranks,
        "make": step_make,
        "append": step_append,
        "add_column": step_add_column,
        "move": step_move,
        "clean": step_clean,
        "check": step_check,
    }
    names = [name for name in actions if name in step]
    if len(names) != 1:
        raise ValueError(f"a step does one thing: {step}")
    actions[names[0]](bench, step)


# --- datasets -----------------------------------------------------------------------------------------------------------------------


def step_open(bench: Bench, step: Step) -> None:
    """``{"open": a, "table": x, "version": v, ...arguments}``: what is not given has its default, ``shuffle`` that of vectors/README.md."""
    unknown = set(step) - set(ARGUMENTS) - set(OUTCOME) - {"open", "table", "version", "epoch"}
    if unknown:
        raise ValueError(f"arguments that no scenario has: {unknown}")
    arguments: dict[str, Any] = {"shuffle": False, **{key: step[key] for key in ARGUMENTS if key in step}}
    arguments.setdefault("num_splits", arguments.get("world_size", 1))
    table = bench.table(step.get("table"))
    version = tables.newest(table)
    if "version" in step:
        check_int("version", step["version"], 1)
        opened = tables.open_version(table, step["version"])
        if opened is None:
            raise ModelError("data.version", f"version {step['version']}")
        version = opened
    settings = Settings(
        rows=version.rows,
        table_name=step.get("table", DEFAULT_TABLE),
        table_version=version.number,
        # Asked for with the first state, not before (IDN-4).
        table_version_created_us=None,
        schema_fingerprint=version.fingerprint,
        version_given="version" in step,
        **arguments,
    )
    bench.loaders[step["open"]] = bench.system.open_loader(settings, step.get("epoch", 0))
    bench.homes[step["open"]] = table.made_us
    bench.held.discard(step["open"])


def step_iter(bench: Bench, step: Step) -> None:
    """``{"iter": a}``: a newer iterator."""
    bench.loaders[step["iter"]] = bench.system.start(bench.loaders[step["iter"]])
    bench.held.add(step["iter"])


def next_row(bench: Bench, name: str, step: Step) -> int | None:
    """``next()`` on the newest iterator, created where the scenario holds none; or on the one before it."""
    current = bench.loaders[name]
    if step.get("older", False):
        bench.loaders[name], row = bench.system.pull_older(current)
        return row
    bench.loaders[name], row = bench.system.pull(current if name in bench.held else bench.system.start(current))
    bench.held.add(name)
    return row


def step_pull(bench: Bench, step: Step) -> None:
    """``{"pull": a, "rows": [...], "older": true}``: the next rows are these."""
    for expected in step["rows"]:
        row = next_row(bench, step["pull"], step)
        if row != expected:
            raise ScenarioFailure(f"row {row} instead of {expected}")


def step_end(bench: Bench, step: Step) -> None:
    """``{"end": a, "older": true}``: the next pull is StopIteration."""
    row = next_row(bench, step["end"], step)
    if row is not None:
        raise ScenarioFailure(f"row {row} instead of the end of the pass")
    if not step.get("older", False):
        bench.held.discard(step["end"])


def step_close(bench: Bench, step: Step) -> None:
    """``{"close": a}``: drop the iterator."""
    bench.loaders[step["close"]] = loader.close(bench.loaders[step["close"]])
    bench.held.discard(step["close"])


def step_set_epoch(bench: Bench, step: Step) -> None:
    """``{"set_epoch": a, "epoch": e}``."""
    bench.loaders[step["set_epoch"]] = loader.set_epoch(bench.loaders[step["set_epoch"]], step["epoch"])


def step_rewind(bench: Bench, step: Step) -> None:
    """``{"rewind": a}``."""
    bench.loaders[step["rewind"]] = loader.rewind(bench.loaders[step["rewind"]])


def step_check(bench: Bench, step: Step) -> None:
    """``{"check": a, ...}``."""
    current = bench.loaders[step["check"]]
    seen = {
        "len": loader.length(current),
        "samples_remaining": loader.remaining(current),
        "samples_to_replay": loader.samples_to_replay(current),
        "epoch": current.cursor.epoch,
        "version": current.settings.table_version,
    }
    check_values({key: value for key, value in step.items() if key != "check"}, seen)


# --- states -------------------------------------------------------------------------------------------------------------------------


def keep(bench: Bench, step: Step, state: State) -> None:
    """Check a state, and keep it under the name that the step gives it."""
    check_values(step.get("checks", {}), state)
    bench.states[step["as"]] = state


def step_save(bench: Bench, step: Step) -> None:
    """``{"save": a, "as": s, "checks": {...}}``."""
    current = bench.looked(step["save"])
    keep(bench, step, bench.system.save(current))
    bench.loaders[step["save"]] = current


def step_state(bench: Bench, step: Step) -> None:
    """``{"state": s, "is": {...}}``: a state from elsewhere."""
    bench.states[step["state"]] = dict(step["is"])


def step_load(bench: Bench, step: Step) -> None:
    """``{"load": a, "state": s, "edit": {...}, "sign": false, "drop": [...], "accept": [...]}``: of a copy, edited first."""
    state = dict(bench.states[step["state"]])
    if "edit" in step:
        state.update(step["edit"])
        if step.get("sign", True):
            state = checkpoint.sign(state)
    for key in step.get("drop", []):
        del state[key]
    accepted = {"accept": step["accept"]} if "accept" in step else {}
    bench.loaders[step["load"]] = bench.system.load(bench.looked(step["load"]), state, **accepted)


def step_merge(bench: Bench, step: Step) -> None:
    """``{"merge": [s, ...], "as": m, "skew": ..., "checks": {...}}``."""
    keep(bench, step, bench.system.merge([bench.states[name] for name in step["merge"]], step.get("skew", "refuse")))


def step_gather(bench: Bench, step: Step) -> None:
    """``{"gather": [[rank, s], ...], "as": m, "skew": ..., "checks": {...}}``."""
    sent = [Contribution(rank, bench.states[name]) for rank, name in step["gather"]]
    keep(bench, step, ranks.gather(sent, step.get("skew", "refuse")))


def step_check_ranks(bench: Bench, step: Step) -> None:
    """``{"check_ranks": [[rank, s, {...}], ...]}``: with the settings that are compared beside the state."""
    ranks.check_ranks([Contribution(rank, bench.states[name], settings=settings) for rank, name, settings in step["check_ranks"]])


# --- tables -------------------------------------------------------------------------------------------------------------------------


def step_make(bench: Bench, step: Step) -> None:
    """``{"make": x, "rows": n}``."""
    bench.store = tables.make(bench.store, step["make"], step["rows"])


def step_append(bench: Bench, step: Step) -> None:
    """``{"append": x, "rows": n}``."""
    bench.store = tables.append(bench.store, step["append"], step["rows"])


def step_add_column(bench: Bench, step: Step) -> None:
    """``{"add_column": x}``."""
    bench.store = tables.add_column(bench.store, step["add_column"])


def step_move(bench: Bench, step: Step) -> None:
    """``{"move": x, "to": y}``."""
    bench.store = tables.move(bench.store, step["move"], step["to"])


def step_clean(bench: Bench, step: Step) -> None:
    """``{"clean": x}``."""
    bench.store = tables.clean(bench.store, step["clean"])

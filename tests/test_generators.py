"""The generators of the suite and of the kit are not trivial: how often each kind of event comes, asserted (derandomized)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import run_state_machine_as_test

from model.conformance.adapter import CAPABILITIES
from model.conformance.machine import histories, stress
from model.conformance.reference import Reference
from model.conformance.scenario import Side
from tests import test_machine
from tests.support import Twin, outcome

COUNTED = settings(
    max_examples=150,
    stateful_step_count=30,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_the_state_machine_meets_every_kind_of_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of tests/test_machine.py: accepted and refused loads by code, ends of passes, epochs, merges of each outcome."""
    seen: Counter[str] = Counter()

    def counting(name: str) -> None:
        method = getattr(Twin, name)

        def counted(self: Twin, *arguments: Any, **options: Any) -> Any:
            epoch = self.model.cursor.epoch
            result = method(self, *arguments, **options)
            code = result.split(" ")[1] if isinstance(result, str) else "done"
            seen[f"{arguments[0] if name == 'change' else name}: {code}"] += 1
            seen["end of a pass"] += name == "pull" and result is None
            seen["another epoch"] += self.model.cursor.epoch != epoch
            seen["partial cycle"] += bool(self.model.cursor.served)
            return result

        monkeypatch.setattr(Twin, name, counted)

    for name in ("change", "pull", "second_iterator", "pull_older"):
        counting(name)
    merge = test_machine.merge_state_dicts

    def merging(states: Any, *, skew: str) -> Any:
        found = outcome(lambda: merge(states, skew=skew))
        alike = all(state == states[0] for state in states)
        seen[f"merge: {found.split(' ')[1] if isinstance(found, str) else 'merged' if alike else 'replayed'}"] += 1
        return merge(states, skew=skew)

    monkeypatch.setattr(test_machine, "merge_state_dicts", merging)
    run_state_machine_as_test(test_machine.Calls, settings=COUNTED)
    loads = sum(count for kind, count in seen.items() if kind.startswith("load_state_dict: "))
    assert loads > 500
    least = {"done": 0.1, "state.malformed": 0.1, "state.mismatch": 0.05, "iterator.alive": 0.05, "state.schema_version": 0.005}
    least |= {"data.version": 0.005, "argument.value": 0.01}
    for code, expected in least.items():
        assert seen[f"load_state_dict: {code}"] >= loads * expected, f"{code}: {dict(seen)}"
    for kind in ("end of a pass", "another epoch"):
        assert seen[kind] > 30, (kind, seen)
    assert seen["partial cycle"] > 300
    assert min(seen["second_iterator: done"], seen["pull_older: iterator.superseded"], seen["pull_older: done"]) > 10
    for kind in ("set_epoch: done", "rewind: done"):
        assert seen[kind] > 10, (kind, seen)
    for kind in ("merge: merged", "merge: merge.count", "merge: merge.skew", "merge: replayed"):
        assert seen[kind] >= 3, (kind, seen)


def test_the_kits_histories_meet_every_verb_and_outcome() -> None:
    """Histories of model.conformance.machine, done on the model: what share of them pulls, resumes, breaks, ends, is refused."""
    share: Counter[str] = Counter()
    done = 0

    @settings(COUNTED, max_examples=300)
    @given(histories(frozenset(CAPABILITIES)))
    def count(steps: list[dict[str, Any]]) -> None:
        nonlocal done
        done += 1
        side, kinds = Side(Reference()), set[str]()
        for step in steps:
            verb, seen = next(iter(step)), side.do(step)
            kinds.add(verb)
            kinds.add(f"{verb} refused" if isinstance(seen, dict) else f"{verb} done")
            kinds |= {"an end"} if isinstance(seen, list) and None in seen else set()
            kinds |= {"rows after a load"} if step.get("clause") == "RES-3" and isinstance(seen, list) and seen[0] else set()
            kinds |= {"several ranks"} if step.get("world_size", 1) > 1 else set()
        side.release()
        share.update(kinds)

    count()
    least = {"pull done": 0.5, "save done": 0.3, "load done": 0.1, "rows after a load": 0.05, "an end": 0.2, "several ranks": 0.3}
    least |= {"close done": 0.2, "set_epoch done": 0.05, "load refused": 0.02, "set_epoch refused": 0.05}
    for kind, expected in least.items():
        assert share[kind] >= done * expected, (kind, share[kind], done)


def test_stress_goes_on_elsewhere() -> None:
    """Every history of the stress layer resumes seven times, on several world sizes, with rows in between."""
    for steps in stress(10):
        assert sum("load" in step for step in steps) == 7
        assert len({step["world_size"] for step in steps if "open" in step}) >= 2
        assert sum(step.get("batches", 0) for step in steps) >= 5

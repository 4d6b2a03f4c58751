"""The kit judged: it rejects every wrong loader by the clause that it breaks, and its statuses say no more than was done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from model.conformance import engine, selftest, vectors
from model.conformance.adapter import CAPABILITIES, Adapter, Description, World
from model.conformance.adapters.example import ListLoader
from model.conformance.adapters.streaming_faults import FAULTS
from model.conformance.checks import CHECKS, SMALL, SMOKE, Bound, Check
from model.conformance.clauses import CLAUSES, EXPECTED, OURS
from model.conformance.engine import check_loader
from model.conformance.reference import Reference
from model.conformance.result import FAILED, NOT_IMPLEMENTED, PASSED, UNCOVERED, Result
from model.conformance.selftest import TINY, Verdict, examine, passes
from model.conformance.wrong import CONTROLS, Control, Foreign
from model.conformance.wrong_orders import RedrawsTheSeedAtOpening, RefusesALegalWorld, Shuffling, shuffled
from model.conformance.wrong_running import CrashesWhereItResumes
from model.conformance.wrong_states import FinishesThePartialCycle, LosesThePartialCycle, ReplaysOneCycleTooMany
from streaming import checkpoint
from streaming.position import Position

# Shrunk scenarios of one or two loaders are shorter; a merge of the ranks of one world, and a resume from it, is the longest. What loses
# rows (RES-8) is not shrunk: a run that is interrupted twice.
MOST_STEPS = 12
NAMES = [control.name for control in CONTROLS + FAULTS]


def named(name: str) -> Control:
    return next(control for control in CONTROLS + FAULTS if control.name == name)


@cache
def judged(name: str) -> Verdict:
    return examine(named(name))


def a_control(make: Any, *clauses: str) -> Control:
    return Control(make.__name__, "for the test", frozenset(clauses), make)


# ---- the controls


@pytest.mark.parametrize("name", NAMES)
def test_a_control_is_rejected_by_a_clause_that_it_breaks_and_the_violation_is_small(name):
    verdict = judged(name)
    assert verdict.fault is None, verdict.line()
    assert verdict.named[0] in verdict.control.clauses
    assert 1 <= verdict.steps <= MOST_STEPS


def test_there_is_a_control_for_every_clause():
    assert len(set(NAMES)) == len(NAMES)
    assert set(CLAUSES) == set().union(*(control.clauses for control in CONTROLS))


def test_every_layer_is_needed_by_some_control():
    names = ("KeepsCyclesInThreeBits", "TakesTheSecondLoadForAContinuation", "MergesATornSet", "TheModelItself")
    assert [judged(name).layer for name in names] == ["stress", "machine", "tiny", "vectors"]


def test_the_bound_small_finds_what_the_smallest_sizes_do_not():
    make = named("MergesByCyclesAlone").make
    found = [check_loader(make, layers=["small"], bound=bound, until=frozenset({"MRG-2"})).status("MRG-2") for bound in (TINY, SMALL)]
    assert found == [PASSED, FAILED]


def test_what_only_files_can_tell_is_not_tried_without_them(monkeypatch):
    lines: list[str] = []
    control = named("TheModelItself")
    with control.during():
        assert check_loader(control.make, layers=["small"], bound=SMOKE).exit_code == 0
    monkeypatch.setattr(selftest, "BESIDE", Path("nowhere"))
    assert selftest.selftest(lines.append, controls=[control], rights=())
    assert "not tried: there is no nowhere" in lines[0]


def test_a_fault_in_shared_code_is_gone_afterwards():
    before = [dict(vars(owner)) for owner in (checkpoint, Position)]
    for name in ("merge_takes_the_maximum", "lease_not_checked"):
        with named(f"streaming/{name}").during():
            assert [dict(vars(owner)) for owner in (checkpoint, Position)] != before
    assert [dict(vars(owner)) for owner in (checkpoint, Position)] == before


@pytest.mark.parametrize(("make", "bound"), [(Reference, SMOKE), (ListLoader, TINY)])
def test_right_loaders_pass(make, bound):
    passed, result = passes(make, bound)
    assert passed, result.violations


@pytest.mark.parametrize("name", ["KeepsCyclesInThreeBits", "StridesSplits"])
def test_it_is_deterministic(name):
    once, again = judged(name), examine(named(name))
    assert (once.named, once.layer, once.steps) == (again.named, again.layer, again.steps)


def test_the_machine_is_deterministic():
    found = [check_loader(LosesThePartialCycle, layers=["machine"], examples=200, until=frozenset({"RES-3"})) for _ in range(2)]
    assert found[0].violations["RES-3"] == found[1].violations["RES-3"]


# ---- the self test itself


def test_a_control_that_is_not_wrong_fails_the_self_test():
    lines: list[str] = []
    assert not selftest.selftest(lines.append, controls=[a_control(ListLoader, "CYC-1")], rights=())
    assert "survived" in lines[0]


def test_a_control_that_breaks_another_clause_fails_the_self_test():
    lines: list[str] = []
    assert not selftest.selftest(lines.append, controls=[a_control(RefusesALegalWorld, "IDN-8")], rights=())
    assert "only, not by IDN-8" in lines[0]


def test_a_control_that_takes_too_long_fails_the_self_test():
    slow = Verdict(a_control(ListLoader, "CYC-1"), ("CYC-1",), "small", 2, 11.0)
    assert slow.fault == "took more than 10 s"
    assert Verdict(slow.control, slow.named, "small", 2, 1.0).fault is None


def test_a_broken_adapter_among_the_controls_fails_the_self_test():
    lines: list[str] = []
    assert not selftest.selftest(lines.append, controls=[a_control(Broken, "CYC-1")], rights=())
    assert "broken adapter" in lines[0]


def test_a_right_loader_that_does_not_pass_fails_the_self_test():
    lines: list[str] = []
    assert selftest.selftest(lines.append, controls=[], rights=[(ListLoader, SMOKE)])
    assert not selftest.selftest(lines.append, controls=[], rights=[(CrashesWhereItResumes, SMOKE)])
    assert "!! does not pass" in lines[1]
    assert "RES-3" in lines[1]


def test_the_command_has_exit_codes(monkeypatch):
    monkeypatch.setattr(selftest, "selftest", lambda tell, streaming: streaming)
    assert (selftest.main(["--streaming"]), selftest.main([])) == (0, 1)


# ---- smoke: a broken adapter is not a wrong loader


class Broken(ListLoader):
    """Gives rows where the kit wants batches."""

    def pull(self, handle: Any) -> Any:
        batch = super().pull(handle)
        return None if batch is None else batch[0]


class Unfinished(Adapter):
    """Knows who it is."""

    def describe(self) -> Description:
        return Description("unfinished", "1", frozenset())

    def open(self, world: World) -> Any:
        raise NotImplementedError

    pull = save = resume = kill = open  # type: ignore[assignment]


@pytest.mark.parametrize("make", [Broken, Unfinished])
def test_a_broken_adapter_is_told_from_a_wrong_loader(make):
    result = check_loader(make, layers=["small"], bound=SMOKE)
    assert result.sane is not None
    assert result.exit_code == 2
    assert result.violations == {}


def test_a_wrong_loader_is_no_broken_adapter():
    result = check_loader(LosesThePartialCycle, layers=["smoke"])
    assert (result.sane, result.exit_code) == (None, 0), "its fault is not one that the smoke layer looks for"
    result = check_loader(LosesThePartialCycle, layers=["small"], bound=SMOKE)
    assert (result.sane, result.exit_code, result.status("RES-3")) == (None, 1, FAILED)


# ---- statuses, gaps, exit codes


class StartsAnew(ListLoader):
    """Begins the epoch again where it was interrupted within a cycle."""

    def save(self, handle: Any) -> Any:
        world, state = handle["world"], super().save(handle)
        return {**state, "cycles": 0 if handle["received"] % (world.num_splits // world.world_size) else state["cycles"]}


class RefusesToResume(ListLoader):
    """Takes no state that was saved within a cycle."""

    def save(self, handle: Any) -> Any:
        world, state = handle["world"], super().save(handle)
        return {**state, "partial": True} if handle["received"] % (world.num_splits // world.world_size) else state


def test_statuses_of_a_loader_that_can_little():
    statuses = check_loader(ListLoader, layers=["small"], bound=SMOKE).statuses()
    assert statuses["RES-3"] == statuses["DLV-4"] == PASSED
    assert {clause for clause, status in statuses.items() if status == NOT_IMPLEMENTED} == {
        clause for clause, told in CLAUSES.items() if not told.needs <= {"break"}
    }
    assert UNCOVERED not in statuses.values()


def test_the_smoke_layer_alone_covers_one_clause():
    statuses = check_loader(ListLoader, layers=["smoke"]).statuses()
    assert {clause for clause, status in statuses.items() if status == PASSED} == {"ORD-6"}
    assert {statuses["RES-3"], statuses["IDN-6"]} == {UNCOVERED}


@pytest.mark.parametrize(
    ("make", "loses"),
    [(FinishesThePartialCycle, PASSED), (ReplaysOneCycleTooMany, PASSED), (LosesThePartialCycle, FAILED), (StartsAnew, PASSED)],
)
def test_rows_lost_within_a_cycle_are_told_from_rows_that_come_otherwise(make, loses):
    """RES-8 is what everybody counts on, RES-3 what this specification says of it; the first fails where rows are lost, and only there."""
    result = check_loader(make, layers=["small"], bound=SMOKE)
    assert (result.status("RES-3"), result.status("RES-8")) == (FAILED, loses)
    assert (CLAUSES["RES-3"].whose, CLAUSES["RES-8"].whose) == (OURS, EXPECTED)


def test_a_loader_that_refuses_every_resume_within_a_cycle_loses_nothing_and_is_not_judged():
    result = check_loader(RefusesToResume, layers=["small"], bound=SMOKE)
    assert (result.status("RES-3"), result.status("RES-8"), result.status("LAW-4")) == (FAILED, UNCOVERED, PASSED)


def test_whole_runs_are_neither_vectors_nor_shrunk():
    found = check_loader(LosesThePartialCycle, layers=["small"], bound=SMOKE).violations["RES-8"]
    assert (found.expected, found.actual) == ({"never received": []}, {"never received": [2]})
    assert [next(iter(step)) for step in found.steps] == ["open", "pull", "save", "kill", "open", "load", "drain"]
    assert "resumes_within_cycles" in {one.name for one in CHECKS if one.whole}
    assert not {scenario["check"] for one in vectors.generate().scenarios.values() for scenario in one} & {
        one.name for one in CHECKS if one.whole
    }


def test_a_search_that_was_cut_short_is_no_pass(monkeypatch):
    def slow(_: Bound) -> Any:
        yield [{"open": "a", "rows": 4, "num_splits": 2}, {"drain": "a", "clause": "CYC-1"}]
        time.sleep(0.3)
        yield [{"open": "a", "rows": 4, "num_splits": 2}, {"drain": "a", "clause": "CYC-1"}]

    monkeypatch.setattr(engine, "CHECKS", [Check("slow", ("CYC-1",), frozenset(), slow)])
    cut = check_loader(ListLoader, layers=["small"], bound=SMOKE, seconds=0.15)
    assert cut.judged["CYC-1"] > 0
    assert cut.status("CYC-1") == UNCOVERED
    assert check_loader(ListLoader, layers=["small"], bound=SMOKE).status("CYC-1") == PASSED


def test_no_time_at_all_passes_nothing():
    statuses = check_loader(ListLoader, layers=["small"], bound=SMOKE, seconds=0.0).statuses()
    assert PASSED not in statuses.values()


def test_an_early_end_leaves_the_rest_uncovered():
    result = check_loader(LosesThePartialCycle, layers=["small", "stress", "machine"], bound=SMOKE, until=frozenset({"RES-3"}))
    assert result.status("RES-3") == FAILED
    assert result.status("MRG-2") == UNCOVERED


def test_a_clause_that_fails_is_failed_though_it_agreed_before_and_was_cut_short():
    result = check_loader(ReplaysOneCycleTooMany, layers=["small"], bound=SMOKE)
    assert result.judged["RES-3"] > 0
    result.truncated.add("RES-3")
    assert result.status("RES-3") == FAILED


def test_gaps_excuse_what_they_name_and_nothing_else():
    everything = check_loader(LosesThePartialCycle, layers=["small"], bound=SMOKE)
    failing = [clause for clause, status in everything.statuses().items() if status == FAILED]
    assert everything.exit_code == 1
    excused = check_loader(LosesThePartialCycle, layers=["small"], bound=SMOKE, gaps=dict.fromkeys(failing, "known"))
    assert (excused.exit_code, excused.stale) == (0, [])
    assert [excused.status(clause) for clause in failing] == [FAILED] * len(failing), "a gap is no pass"
    partly = check_loader(LosesThePartialCycle, layers=["small"], bound=SMOKE, gaps=dict.fromkeys(failing[1:], "known"))
    assert partly.exit_code == 1


def test_a_stale_gap_is_an_error():
    result = check_loader(ListLoader, layers=["small"], bound=SMOKE, gaps={"RES-3": "once failed"})
    assert (result.stale, result.exit_code) == (["RES-3"], 1)


def test_a_gap_that_names_no_clause_is_refused():
    with pytest.raises(ValueError, match="NONSENSE"):
        check_loader(ListLoader, layers=["smoke"], gaps={"NONSENSE": "a slip"})


def test_every_check_names_clauses_that_exist():
    assert {clause for one in CHECKS for clause in one.clauses} <= CLAUSES.keys()
    assert {capability for one in CHECKS for capability in one.needs} <= CAPABILITIES.keys()


def test_a_step_never_names_an_unknown_clause(monkeypatch):
    def slip(_: Bound) -> Any:
        yield [{"open": "a", "rows": 4, "num_splits": 2}, {"load": "a", "garbage": 1, "clause": "NONSENSE"}, {"drain": "a"}]

    class Takes(ListLoader):
        def resume(self, handle: Any, state: Any) -> None:
            if state != 1:
                super().resume(handle, state)

    monkeypatch.setattr(engine, "CHECKS", [Check("slip", ("CYC-1",), frozenset(), slip)])
    with pytest.raises(ValueError, match="NONSENSE"):
        check_loader(Takes, layers=["small"], bound=SMOKE)


# ---- orders that are learned


def test_a_foreign_order_is_learned_and_everything_else_judged_by_it():
    class Backwards(Shuffling, Foreign):
        def sequence(self, world: World, epoch: int) -> Sequence[int]:
            return shuffled(world.rows, world.shuffle_seed + 1, epoch)[::-1]

    result = check_loader(Backwards, layers=["small"], bound=SMOKE)
    assert result.exit_code == 0, result.violations
    assert (result.status("ORD-3"), result.status("ORD-12")) == (PASSED, NOT_IMPLEMENTED)


def test_a_loader_that_never_does_the_same_twice_is_a_violation_and_no_crash_of_the_kit():
    result = check_loader(RedrawsTheSeedAtOpening, layers=["machine"], examples=15)
    assert set(result.violations) & {"CYC-1", "RES-3", "EPO-2", "EPO-4"}


# ---- shrinking


def test_a_violation_is_done_again_by_its_own_steps():
    result = check_loader(ReplaysOneCycleTooMany, layers=["small"], bound=SMOKE, until=frozenset({"RES-3"}))
    found = result.violations["RES-3"]
    judge = engine.Judge(ReplaysOneCycleTooMany(), Result(ReplaysOneCycleTooMany().describe()), time.monotonic() + 60)
    again = judge.run(found.steps)
    assert again is not None
    assert (again.clause, again.expected, again.actual) == (found.clause, found.expected, found.actual)
    assert Counter(next(iter(step)) for step in found.steps)["load"] == 1

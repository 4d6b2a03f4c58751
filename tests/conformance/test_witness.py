"""A failure belongs to the clause whose step it needs: what an uninterrupted pass loses is no failure of resuming."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from model.conformance import losses
from model.conformance.adapters.example import ListLoader
from model.conformance.checks import CHECKS, SMALL, Bound
from model.conformance.clauses import CLAUSES
from model.conformance.engine import check_loader
from model.conformance.reference import Reference
from model.conformance.result import FAILED, PASSED, Result
from model.conformance.scenario import USUAL_CLAUSE, Step, Violation, run
from model.conformance.shrink import shrink
from model.conformance.witness import ABOUT, pass_of, shows
from model.conformance.wrong_states import LosesThePartialCycle

PLAIN = {"ORD-6", "ORD-3", "ORD-8", "ORD-12", "CYC-1", "CYC-6", "ASG-1", "ASG-2", "WRK-2", "WRK-4", "WRK-13"}


class DropsTheShortBatch(ListLoader):
    """Nothing else is wrong with it."""

    def pull(self, handle: Any) -> Sequence[int] | None:
        """End the pass instead."""
        batch = super().pull(handle)
        if batch is not None and len(batch) < handle["world"].batch_size:
            handle["pass"] = None
            return None
        return batch


def failed(result: Result) -> set[str]:
    return {clause for clause, status in result.statuses().items() if status == FAILED}


def test_what_an_uninterrupted_pass_loses_fails_the_clauses_of_the_pass_alone() -> None:
    result = check_loader(DropsTheShortBatch, layers=["small"], bound=Bound(((4, 2),), (3,)))
    assert failed(result) == {"ORD-6", "CYC-1", "CYC-6"}
    assert result.violations["ORD-6"].actual == [0, 1, 2]
    assert result.violations["ORD-6"].steps[0]["batch_size"] == 3
    assert result.status("RES-8") == PASSED


def test_every_failure_has_the_step_that_its_clause_is_about() -> None:
    """In worlds whose epochs are whole a resume alone makes a short batch: the clauses that say so have a load to show."""
    result = check_loader(DropsTheShortBatch, layers=["small", "vectors", "stress", "machine"], examples=100)
    assert (
        {"ORD-6", "CYC-1", "RES-8"} <= failed(result) <= {"ORD-6", "CYC-1", "CYC-6", "RES-3", "RES-8", "LAW-4", "CKP-2", "DLV-1", "DLV-4"}
    )
    for clause, found in result.violations.items():
        assert shows(clause, found.steps), found
        plain = None if clause == losses.CLAUSE else pass_of(found)
        assert plain is None or run(plain, DropsTheShortBatch(), Reference()) is None


def test_a_row_that_only_the_resuming_world_never_has_is_not_lost_by_the_resume() -> None:
    class NeverServesRowTwoOnTwoRanks(ListLoader):
        def pull(self, handle: Any) -> Sequence[int] | None:
            batch = super().pull(handle)
            return batch if batch is None or handle["world"].world_size != 2 else [row for row in batch if row != 2]

    assert check_loader(NeverServesRowTwoOnTwoRanks, layers=["small"], bound=Bound(((4, 2),))).status("RES-8") == PASSED


def test_every_clause_is_of_a_pass_or_says_which_steps_it_is_about() -> None:
    assert ABOUT.keys() | PLAIN == CLAUSES.keys()
    assert not ABOUT.keys() & PLAIN
    assert set().union(*ABOUT.values()) <= USUAL_CLAUSE.keys()


@pytest.mark.parametrize("clause", sorted(ABOUT))
def test_scenarios_of_a_clause_hold_a_step_that_it_is_about(clause: str) -> None:
    """But for the first pass of CKP-2's epochs that are interrupted behind every batch."""
    seen = 0
    for check in CHECKS:
        for steps in check.scenarios(SMALL) if clause in check.clauses else ():
            for number, step in enumerate(steps, 1):
                if step.get("clause", USUAL_CLAUSE[next(iter(step))]) == clause and not (clause == "CKP-2" and number == 2):
                    seen += 1
                    assert shows(clause, steps[:number]), steps[:number]
    assert seen


def test_shrinking_keeps_the_step_that_the_clause_is_about() -> None:
    """Even where the same is expected and the same comes without it."""
    steps: list[Step] = [{"open": "a", "rows": 4, "num_splits": 2}, {"save": "a", "as": "s"}, {"load": "a", "state": "s"}, {"drain": "a"}]

    def always(candidate: Sequence[Step]) -> Violation:
        return Violation("RES-3", [[0], None], [None], tuple(candidate))

    assert [next(iter(step)) for step in shrink(always(steps), always).steps] == ["load", "drain"]


def test_what_resuming_loses_is_still_lost_by_resuming() -> None:
    result = check_loader(LosesThePartialCycle, layers=["small"], bound=Bound(((4, 2),)))
    assert {"RES-3", "RES-8"} <= failed(result)
    assert not failed(result) & {"ORD-6", "CYC-1", "CYC-6"}

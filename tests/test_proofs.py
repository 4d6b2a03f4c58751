"""The lemmas of spec/proofs are proved, their mutants refuted; and what must not pass as a proof does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model import assignment, sharding
from spec.proofs import __main__ as command
from spec.proofs import symbolic
from spec.proofs.check import Check, Unproved
from spec.proofs.lemma import Lemma, Mutant, prove, refute, replay, runs
from spec.proofs.lemmas import LEMMAS

SAME = Mutant(assignment.owner, assignment.owner, "nothing")


def rounds_up(number: int, by: int) -> int:
    return (number + by) // by


@pytest.mark.parametrize("lemma", LEMMAS, ids=[lemma.name for lemma in LEMMAS])
def test_lemma_is_proved_and_its_mutant_refuted(lemma: Lemma) -> None:
    assert prove(lemma) > 0
    found = refute(lemma)
    assert replay(lemma, found, wrong=False) == []
    assert replay(lemma, found, wrong=True) != []


def test_names_are_unique() -> None:
    assert len({lemma.name for lemma in LEMMAS}) == len(LEMMAS)


def test_what_is_false_is_not_proved() -> None:
    def script(check: Check) -> None:
        a, b = check.integers("a b")
        check.given(b >= 1)
        check.claim("wrong", sharding.ceil_divide(a, b) * b == a)

    with pytest.raises(Unproved, match="wrong: z3 says sat a="):
        prove(Lemma("false", (), script, SAME))


def test_a_false_step_is_no_help() -> None:
    def script(check: Check) -> None:
        (a,) = check.integers("a")
        check.have(a == 0)
        check.claim("follows from the step", a == 0)

    with pytest.raises(Unproved, match="step 1"):
        prove(Lemma("step", (), script, SAME))


def test_a_wrong_quotient_is_no_help() -> None:
    def script(check: Check) -> None:
        a, b = check.integers("a b")
        check.given(b >= 1)
        check.quotient(a, b, a)

    with pytest.raises(Unproved, match="z3 says sat"):
        prove(Lemma("quotient", (), script, SAME))


@pytest.mark.parametrize("least", [0, -3])
def test_a_divisor_must_be_positive(least: int) -> None:
    def script(check: Check) -> None:
        a, b = check.integers("a b")
        check.given(b >= least)
        check.claim("true of every quotient that Python has", a // b * b <= a)

    with pytest.raises(Unproved, match="divisors are positive"):
        prove(Lemma("division", (), script, SAME))


def test_unknown_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolic, "EFFORT", 10)
    (lemma,) = [lemma for lemma in LEMMAS if lemma.name == "positions of splits"]
    with pytest.raises(Unproved, match="z3 says unknown"):
        prove(lemma)


def test_every_branch_is_proved() -> None:
    def script(check: Check) -> None:
        a, b = check.integers("a b")
        check.claim("the larger one", (max(a, b) >= a) & (max(a, b) >= b))
        if a == 7 and b == 9:
            check.claim("only here", max(a, b) == 7)

    lemma = Lemma("branches", (), script, SAME)
    with pytest.raises(Unproved, match="only here"):
        prove(lemma)
    assert len(list(runs(lemma, proving=False))) > 2


def test_every_assertion_of_the_model_is_proved() -> None:
    def script(check: Check) -> None:
        (a,) = check.integers("a")
        check.given(a >= 1)
        assert a > 1

    with pytest.raises(Unproved, match="no assertion"):
        prove(Lemma("assertion", (), script, SAME))
    assert replay(Lemma("assertion", (), script, SAME), {"a": 1}, wrong=False) == ["no assertion of the model fails"]


def test_a_mutant_that_changes_nothing_is_not_refuted() -> None:
    with pytest.raises(Unproved, match="no counterexample to nothing"):
        refute(replace(LEMMAS[3], mutant=SAME))


def test_a_mutant_replaces_the_function_everywhere_and_only_for_a_while() -> None:
    right = sharding.ceil_divide
    with Mutant(right, rounds_up, "up").installed():
        assert sharding.ceil_divide(4, 2) == 3
    assert sharding.ceil_divide is right


def test_a_counterexample_must_be_a_case_of_the_lemma() -> None:
    with pytest.raises(Unproved, match="not a case"):
        replay(LEMMAS[3], {"S": 3, "R": 2, "s": 0}, wrong=False)


def test_numbers_divide_as_ints_do() -> None:
    def script(check: Check) -> None:
        for a in range(-7, 8):
            for b in (1, 2, 3, 5):
                (number,) = check.integers("a")
                check.claim("as Python", check.implies(number == a, (number // b == a // b) & (number % b == a % b)))

    assert prove(Lemma("ints", (), script, SAME)) >= 60


def test_command_tells_failures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    good = LEMMAS[3]
    false = Lemma("false", (), lambda check: check.claim("no", check.integers("a")[0] == 0), SAME)
    monkeypatch.setattr(command, "LEMMAS", (good,))
    assert command.main() == 0
    assert "refuted by S=" in capsys.readouterr().out
    for bad, word in ((false, "NOT PROVED"), (replace(good, mutant=SAME), "MUTANT NOT REFUTED")):
        monkeypatch.setattr(command, "LEMMAS", (bad, good))
        assert command.main() == 1
        assert word in capsys.readouterr().out

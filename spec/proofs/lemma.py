"""Lemmas and their mutants: proved, refuted and replayed.

``prove`` has z3 prove each claim of a lemma, for all integers. ``refute`` runs the lemma while one function of the model is replaced by a
wrong one, and has z3 find integers for which a claim is false. ``replay`` runs it on such integers as plain ints.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import z3  # type: ignore[import-untyped]

from spec.proofs.check import Check, Unproved
from spec.proofs.symbolic import EFFORT, Symbolic, solve

# Counterexamples are looked for in small boxes first: small ones are read more easily, and found faster.
BOXES = (3, 6, 12, 40)

# Where mutants are installed: not in the lemmas, which may use the right function to write a wrong one.
HOLDERS = ("model.", "spec.proofs.check", "spec.proofs.symbolic", "spec.proofs.arithmetic")


@dataclass(frozen=True)
class Mutant:
    """A wrong function in the place of a right one.

    Parameters
    ----------
    function, wrong : callable
        A function or method, of the model but for the lemmas of arithmetic, and what replaces it.
    says : str
        What is wrong, in a few words.
    """

    function: Callable[..., Any]
    wrong: Callable[..., Any]
    says: str

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the function in every module and class, of the model or of this folder, that holds it."""
        modules = [module for name, module in list(sys.modules.items()) if name.startswith(HOLDERS)]
        holders: list[Any] = [*modules, *(value for module in modules for value in vars(module).values() if isinstance(value, type))]
        with ExitStack() as stack:
            # One class is seen from several modules: it is listed once.
            for holder in {id(holder): holder for holder in holders}.values():
                for name, value in list(vars(holder).items()):
                    if value is self.function:
                        stack.enter_context(mock.patch.object(holder, name, self.wrong))
            yield


@dataclass(frozen=True)
class Lemma:
    """Something that holds for all integers, and a mutant for which it does not.

    Parameters
    ----------
    name : str
        Its name.
    clauses : tuple of str
        The clauses of the specification that it proves, or helps to prove.
    script : callable
        The lemma itself; its docstring says it in words.
    mutant : Mutant
        The wrong function that must be told from the right one.
    """

    name: str
    clauses: tuple[str, ...]
    script: Callable[[Check], None]
    mutant: Mutant = field(repr=False)


def runs(lemma: Lemma, proving: bool) -> Iterator[Symbolic]:
    """Run a script once for each sequence of branches that can be reached."""
    pending: list[tuple[bool, ...]] = [()]
    while pending:
        run = Symbolic(proving, pending.pop())
        try:
            lemma.script(run)
        except AssertionError:
            run.claim("no assertion of the model fails", False)
        yield run
        pending.extend(run.others)


def prove(lemma: Lemma) -> int:
    """Prove a lemma; gives the number of claims that were proved, over all branches."""
    return sum(run.claims for run in runs(lemma, True))


def refute(lemma: Lemma) -> dict[str, int]:
    """Find integers for which the lemma is false of its mutant."""
    with lemma.mutant.installed():
        found = list(runs(lemma, False))
    for box in BOXES:
        for run in found:
            bounds = [z3.And(variable >= 0, variable <= box) for variable in run.variables.values()]
            solver = solve([*run.facts, *bounds, z3.Not(z3.And(*run.claimed))], EFFORT)
            if solver.check() == z3.sat:
                model = solver.model()
                return {name: model.eval(variable, model_completion=True).as_long() for name, variable in run.variables.items()}
    raise Unproved(f"no counterexample to {lemma.mutant.says}")


def replay(lemma: Lemma, values: dict[str, int], wrong: bool) -> list[str]:
    """Run a lemma on plain ints, with the mutant or without; gives the claims that are false."""
    check = Check(values)
    with lemma.mutant.installed() if wrong else ExitStack():
        try:
            lemma.script(check)
        except AssertionError:
            check.failed.append("no assertion of the model fails")
    return check.failed

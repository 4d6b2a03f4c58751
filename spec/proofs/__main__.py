"""Prove all lemmas, and refute their mutants: a table, and exit status 1 where anything fails."""

from __future__ import annotations

import sys
import time

from spec.proofs.check import Unproved
from spec.proofs.lemma import Lemma, prove, refute, replay
from spec.proofs.lemmas import LEMMAS


def judge(lemma: Lemma) -> tuple[bool, str]:
    """Whether a lemma is proved and its mutant refuted, and what there is to say."""
    start = time.perf_counter()
    try:
        claims = prove(lemma)
    except Unproved as error:
        return False, f"NOT PROVED: {error}"
    proved = f"{claims} claims proved in {time.perf_counter() - start:.1f} s"
    try:
        found = refute(lemma)
        right, wrong = replay(lemma, found, False), replay(lemma, found, True)
    except Unproved as error:
        return False, f"{proved}; MUTANT NOT REFUTED: {error}"
    values = " ".join(f"{name}={value}" for name, value in found.items())
    if right or not wrong:
        return False, f"{proved}; COUNTEREXAMPLE {values} IS NONE"
    return True, f"{proved}; {lemma.mutant.says}: refuted by {values}"


def main() -> int:
    """Print the table; returns the exit status."""
    passed = True
    for lemma in LEMMAS:
        good, text = judge(lemma)
        passed = passed and good
        print(f"{lemma.name:32} {', '.join(lemma.clauses) or 'arithmetic':28} {text}", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())

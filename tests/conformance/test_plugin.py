"""The pytest plugin: an item per clause and nothing else; nothing at all without ``--impl``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model.conformance.clauses import CLAUSES

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PLUGIN = ("-p", "model.conformance.plugin", "-p", "no:cacheprovider")
QUICK = ("--conformance-layers", "small", "--conformance-bound", "smoke")

LOADERS = """
from pathlib import Path
from model.conformance.adapters.example import ListLoader

class Repeats(ListLoader):
    def save(self, handle):
        state = super().save(handle)
        return {**state, "cycles": max(state["cycles"] - 1, 0)}

class Insane(ListLoader):
    def pull(self, handle):
        return [1]

def counted():
    with open("made.txt", "a") as file:
        file.write("x")
    return Repeats()
"""


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a test that would fail, and loaders."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(loaders_of_plugin=LOADERS, test_other="def test_it():\n    assert False\n")
    return pytester


def test_one_item_per_clause_and_the_engine_runs_once(session: pytest.Pytester) -> None:
    found = session.runpytest_inprocess(*PLUGIN, *QUICK, "--impl", "loaders_of_plugin:counted", "-v")
    counts = found.parseoutcomes()
    assert sum(counts.values()) == len(CLAUSES)
    assert counts["failed"] > 0
    assert found.ret == pytest.ExitCode.TESTS_FAILED
    assert (session.path / "made.txt").read_text() == "x"
    found.stdout.fnmatch_lines([f"*collected {len(CLAUSES)} items*", "conformance::RES-3 FAILED*"])
    shown = found.stdout.str()
    assert "test_other" not in shown
    assert "replay --impl loaders_of_plugin:counted -" in shown
    assert "Traceback" not in shown


def test_clauses_are_chosen_by_k(session: pytest.Pytester) -> None:
    found = session.runpytest_inprocess(*PLUGIN, *QUICK, "--impl", "loaders_of_plugin:Repeats", "-k", "ORD", "-rs")
    found.assert_outcomes(passed=1, skipped=3, deselected=len(CLAUSES) - 4)
    assert "NOT_IMPLEMENTED: the loader does not have: order" in found.stdout.str()
    assert found.ret == pytest.ExitCode.OK


def test_with_xdist(session: pytest.Pytester) -> None:
    found = session.runpytest_subprocess(*PLUGIN, *QUICK, "--impl", "loaders_of_plugin:Repeats", "-n", "2", timeout=120)
    counts = found.parseoutcomes()
    assert counts.pop("warnings", 0) == 0
    assert sum(counts.values()) == len(CLAUSES)
    assert counts["failed"] > 0


def test_gaps_and_searches_cut_short(session: pytest.Pytester) -> None:
    gaps = {"RES-3": "as released", "ORD-6": "not any more"}
    (session.path / "gaps.json").write_text(json.dumps(gaps))
    options = (*PLUGIN, *QUICK, "--impl", "loaders_of_plugin:Repeats")
    found = session.runpytest_inprocess(*options, "--conformance-gaps", "gaps.json", "-k", "RES-3 or ORD-6")
    found.assert_outcomes(xfailed=1, failed=1, deselected=len(CLAUSES) - 2)
    assert "ORD-6 stale gap: the clause is PASSED, but the gaps file says: not any more" in found.stdout.str()
    found = session.runpytest_inprocess(*options, "--conformance-seconds", "1e-9", "-k", "CYC-1 or MRG-1")
    found.assert_outcomes(failed=1, skipped=1, deselected=len(CLAUSES) - 2)
    assert "CYC-1 cut short" in found.stdout.str()


def test_vectors_are_found_from_any_directory_or_where_the_option_says(session: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    options = (*PLUGIN, "--impl", "list", "-k", "CYC-1 or ORD-6")
    session.runpytest_inprocess(*options, "--conformance-layers", "vectors").assert_outcomes(passed=2, deselected=len(CLAUSES) - 2)
    (session.path / "few").mkdir()
    steps = [{"open": "a", "rows": 4, "num_splits": 2}, {"drain": "a", "expect": [[1], [0], [2], [3], None]}]
    (session.path / "few" / "a.json").write_text(json.dumps([{"id": "one", "needs": [], "steps": steps}]))
    found = session.runpytest_inprocess(*options, "--conformance-layers", "vectors", "--conformance-vectors", "few")
    found.assert_outcomes(passed=1, failed=1, deselected=len(CLAUSES) - 2)
    found.stdout.fnmatch_lines(["*found by  vector one"])
    monkeypatch.setattr("model.conformance.engine.BESIDE", session.path / "nowhere")
    found = session.runpytest_inprocess(*options, *("--conformance-bound", "smoke", "--conformance-examples", "1"))
    found.assert_outcomes(passed=2, deselected=len(CLAUSES) - 2)
    found.stdout.fnmatch_lines(["the layer vectors was not run: there is no *nowhere"])


def test_an_adapter_that_does_not_work_passes_nothing(session: pytest.Pytester) -> None:
    found = session.runpytest_inprocess(*PLUGIN, "--impl", "loaders_of_plugin:Insane")
    found.assert_outcomes(failed=len(CLAUSES))
    assert "the adapter does not work, so nothing was judged" in found.stdout.str()


@pytest.mark.parametrize(
    "options",
    [
        ("--impl", "loaders_of_plugin:No"),
        ("--impl", "list", "--conformance-layers", "all"),
        ("--impl", "list", "--conformance-gaps", "no-such-file"),
        ("--impl", "list", "--conformance-seconds", "nan"),
        ("--impl", "list", "--conformance-vectors", "no-such-directory"),
    ],
)
def test_mistakes_are_usage_errors(session: pytest.Pytester, options: tuple[str, ...]) -> None:
    found = session.runpytest_inprocess(*PLUGIN, *options)
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines(["ERROR: *"])


def test_without_impl_nothing_happens(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(
        """
        import sys

        def test_it():
            assert "model.conformance.plugin" in sys.modules
            assert not {"hypothesis", "model.conformance.engine", "model.conformance.clauses"} & sys.modules.keys()
        """
    )
    pytester.runpytest_subprocess(*PLUGIN, timeout=120).assert_outcomes(passed=1)

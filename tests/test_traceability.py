"""spec/traceability.md is what specification, code and tests say; and each kind of gap between them is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from model import traceability
from model.traceability import TARGET, Mention, ids, main, read

FILES = {
    "README.md": "Run `python -m model.things --fast` or `python -m pytest`.\n",
    "spec/README.md": "| [things](things.md) | `model/things.py` |\n| [errors](errors.md) | |\n",
    "spec/things.md": "# Things\n\n"
    "Model: `model/things.py`: `one`. Production: `streaming/things.py`. Held by: `tests/test_things.py`, hand vectors `first`.\n\n"
    "- **THG-1** One thing, else `thing.broken`; see `vectors/hand/`.\n"
    "- **THG-2 two.** See THG-1.\n"
    "- THG-3 became THG-2.\n\n"
    "| id |\n|---|\n| **THG-4** |\n",
    "spec/errors.md": "# Errors\n\n| code |\n|---|\n| `thing.broken` |\n",
    "spec/vectors/hand/first.json": '[{"id": "first-1", "clauses": ["THG-2"]}]',
    "spec/proofs/lemmas.py": 'LEMMAS = (Lemma("a lemma", ("THG-4",), script, mutant),)\n',
    "model/things.py": 'def one():\n    """One (THG-1 to THG-2)."""\n',
    "streaming/things.py": "# THG-4 and SHA-256\nclass Thing:\n    def one(self):  # THG-1\n        pass\n",
    "tests/test_things.py": '"""Exhaustive (THG-4)."""\n\nNAMED = "THG-2"\n\n\n@given(x=1)\ndef test_one(x):\n    """THG-1."""\n',
}


def project(root: Path, changes: dict[str, tuple[str, str]] | None = None) -> Path:
    """A small project without a gap, with these texts replaced."""
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        old, new = (changes or {}).get(name, ("", ""))
        assert old in text
        path.write_text(text.replace(old, new) if old else text + new, encoding="utf-8")
    return root


def test_the_project_fits_together(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--check"])
    assert (capsys.readouterr().err, status) == ("", 0)


def test_table_of_a_small_project(tmp_path: Path) -> None:
    root = project(tmp_path)
    assert main([], root, ()) == 0
    rows = [line for line in (root / TARGET).read_text(encoding="utf-8").splitlines() if line.startswith("| THG")]
    assert rows == [
        "| THG-1 | `model/things.py`: one | `streaming/things.py`: Thing.one | `tests/test_things.py`: test_one | sampled |",
        "| THG-2 | `model/things.py`: one |  | `tests/test_things.py`; vectors first-1 | example |",
        "| THG-4 |  | `streaming/things.py` | `tests/test_things.py`; lemmas a lemma | proved, exhaustive |",
    ]
    assert main(["--check"], root, ()) == 0


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("spec/things.md", ("", "- **THG-5** More.\n"), "no test, vector or lemma names THG-5"),
        ("spec/things.md", ("", "- **THG-1** Again.\n"), "THG-1 is there twice"),
        ("spec/things.md", ("See THG-1", "See THG-9"), "spec/things.md: there is no clause THG-9"),
        ("spec/things.md", ("See THG-1", "See THG-3"), "spec/things.md: THG-3 is retired"),
        ("spec/things.md", ("", "- **THG-3** Back.\n"), "THG-3 is retired"),
        ("tests/test_things.py", ("THG-1", "THG-1, THG-7"), "tests/test_things.py test_one: there is no clause THG-7"),
        ("tests/test_things.py", ("THG-1", "THG-1, THK-1"), "there is no clause THK-1"),
        ("tests/test_things.py", ("THG-1.", "THG-1 to THG-3."), "tests/test_things.py test_one: THG-3 is retired"),
        ("model/things.py", ("THG-1", "THG-8, THG-1"), "model/things.py one: there is no clause THG-8"),
        ("spec/vectors/hand/first.json", ("THG-2", "THG-6"), "vector first-1: there is no clause THG-6"),
        ("spec/proofs/lemmas.py", ("THG-4", "THG-6"), "lemma a lemma: there is no clause THG-6"),
        ("spec/things.md", ("model/things.py", "model/thing.py"), "header names model/thing.py, which does not exist"),
        ("spec/things.md", ("`one`", "`two`"), "header names two, which model/things.py does not define"),
        ("spec/things.md", ("`tests/test_things.py`", "`tests/test_thing.py`"), "header names tests/test_thing.py, which does not exist"),
        ("spec/things.md", ("`first`", "`second`"), "header names hand vectors second, which do not exist"),
        ("spec/things.md", ("Held by", "Tests"), "spec/things.md: no single line"),
        ("spec/things.md", ("Model: ", ""), "spec/things.md: no single line"),
        ("spec/things.md", ("vectors/hand/", "vectors/hands/"), "spec/things.md: there is no vectors/hands/"),
        ("spec/things.md", ("", "Or `thing.py`.\n"), "spec/things.md: there is no thing.py"),
        ("spec/things.md", ("`thing.broken`", "`thing.gone`"), "errors.md has no code thing.gone"),
        ("README.md", ("model.things", "model.nothing"), "README.md: python -m model.nothing does not run"),
        ("README.md", ("-m pytest", "-m no_such_module"), "README.md: python -m no_such_module does not run"),
        ("spec/README.md", ("", "`python -m streaming`\n"), "spec/README.md: python -m streaming does not run"),
    ],
)
def test_gap_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, change: tuple[str, str], problem: str) -> None:
    root = project(tmp_path, {name: change})
    assert main([], root, ()) == 1
    capsys.readouterr()
    assert main(["--check"], root, ()) == 1
    assert problem in capsys.readouterr().err


def test_difference_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(tmp_path)
    assert main(["--check"], root, ()) == 1
    assert f"{TARGET} differs" in capsys.readouterr().err
    main([], root, ())
    (root / TARGET).write_text((root / TARGET).read_text(encoding="utf-8").replace("sampled |", "proved |"), encoding="utf-8")
    assert main(["--check"], root, ()) == 1


def test_list_of_clauses_without_test(tmp_path: Path) -> None:
    root = project(tmp_path, {"spec/things.md": ("", "- **THG-5** More.\n")})
    assert read(root, ["THG-5"]).problems == []
    for stale in ("THG-1", "THG-9"):
        assert read(root, ["THG-5", stale]).problems == [f"WITHOUT_TEST: {stale} is held, or no clause: take it out"]


def test_ids_of_a_text() -> None:
    assert ids("THG-1, THG-3 to THG-5 and SHA-256; X-THG-12a") == ["THG-1", "THG-3", "THG-4", "THG-5"]


def test_mentions_belong_to_the_innermost_function_or_method(tmp_path: Path) -> None:
    root = project(
        tmp_path, {"tests/test_things.py": ("", "\n\nclass Machine(StateMachine):\n    # THG-2\n    def rule(self):\n        'THG-4'\n")}
    )
    mentions = read(root, ()).mentions
    assert Mention("THG-2", "tests/test_things.py", "Machine", "sampled") in mentions
    assert Mention("THG-4", "tests/test_things.py", "Machine.rule", "sampled") in mentions
    assert Mention("THG-2", "tests/test_things.py", "", "example") in mentions


def test_nothing_is_excused_for_ever() -> None:
    """Each excuse is about something that exists."""
    root = traceability.ROOT
    assert all((root / name).exists() for name in traceability.MADE_UP)
    assert all((root / "spec" / name).exists() for name in traceability.WITHOUT_HEADER)

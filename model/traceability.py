"""Write or check ``spec/traceability.md``: for each clause, the code that names it, what holds it, and how strong that evidence is.

python -m model.traceability            writes the file
python -m model.traceability --check    exits 1 if the file differs, or if specification, code and tests do not fit together

Nothing is imported: sources are read as text, so that the check needs nothing but Python. What counts as what:

- A clause is an id in bold, ``**CYC-1**``. An id in a line ``- RES-1 and RES-2 became ..`` is retired.
- A function names a clause where the id stands between its first and its last line; ``CYC-1 to CYC-5`` names five. An id elsewhere is
  the file's.
- A clause is held by the tests, hand vectors and lemmas that name it.
- Evidence is *proved* by a lemma; *exhaustive* by a test whose docstring has that word; *sampled* by one whose docstring has this word, or
  that draws its cases (``@given``, a state machine); else an *example*. A file's docstring speaks for the ids that it names itself.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = "spec/traceability.md"

WITHOUT_TEST: tuple[str, ...] = ()
"""Clauses that nothing names yet that could hold them. It must be empty in the end; an entry that is not needed is an error."""

WITHOUT_HEADER = ("README.md", "terms.md", "errors.md", "laws.md", "conformance.md")
"""Chapters that no single file follows, so that they have no line "Model: .. Production: .. Held by: .."."""

FOREIGN = ("CRC", "SHA", "UTF", "RFC", "ISO")
"""Letters that look like those of a clause and are none."""

MADE_UP = ("model/traceability.py", "tests/test_traceability.py")
"""Files whose ids are made up, or examples."""

STRENGTHS = ("proved", "exhaustive", "sampled", "example")

ID = re.compile(r"\b([A-Z]{3})-(\d+)\b(?: to (?:\1-)(\d+)\b)?")
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]*(?:/[\w.-]*)*(?:/|\.(?:py|json|md|toml|txt))")


@dataclass(frozen=True)
class Mention:
    """Where a clause is named.

    Parameters
    ----------
    clause, file, name : str
        The id; the file, relative to the root; the function, method or class, empty for the file itself.
    strength : str
        Of a test: one of ``STRENGTHS``; empty elsewhere.
    """

    clause: str
    file: str
    name: str
    strength: str = ""


@dataclass
class Project:
    """What was read.

    Parameters
    ----------
    clauses : dict
        The chapter, a file name, of each clause, in the sequence of the specification.
    retired : set of str
        Ids that must not be used again.
    mentions : list of Mention
        Of code and tests.
    vectors, lemmas : list of tuple
        A clause and the hand vector, or the lemma, that names it.
    problems : list of str
        What does not fit together.
    """

    clauses: dict[str, str] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    mentions: list[Mention] = field(default_factory=list)
    vectors: list[tuple[str, str]] = field(default_factory=list)
    lemmas: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def held(self) -> set[str]:
        """The clauses that a test, a vector or a lemma names."""
        tests = {mention.clause for mention in self.mentions if mention.file.startswith("tests/")}
        return tests | {clause for clause, _ in (*self.vectors, *self.lemmas)}


# --- reading ------------------------------------------------------------------------------------------------------------------------


def ids(text: str) -> list[str]:
    """The ids that a text names, ranges written out."""
    found: list[str] = []
    for letters, first, last in ID.findall(text):
        if letters not in FOREIGN:
            found.extend(f"{letters}-{number}" for number in range(int(first), int(last or first) + 1))
    return found


def chapters(root: Path) -> list[Path]:
    """The chapters, in the sequence of the index; what the index does not name comes after."""
    index = root / "spec" / "README.md"
    named = re.findall(r"\]\(([\w-]+\.md)\)", index.read_text(encoding="utf-8")) if index.exists() else []
    files = [path for path in (root / "spec").glob("*.md") if path.name != Path(TARGET).name]
    return sorted(files, key=lambda path: (named.index(path.name) if path.name in named else len(named), path.name))


def read_chapter(project: Project, path: Path) -> None:
    """The clauses of a chapter, and the retired ids."""
    for line in path.read_text(encoding="utf-8").splitlines():
        gone = re.match(r"- ([A-Z]{3}-\d+.*?) became ", line)
        if gone:
            project.retired.update(ids(gone[1]))
        # A clause begins its item or row; another bold id in the text would be one too, so that none is overlooked.
        for clause in re.findall(r"\*\*([A-Z]{3}-\d+)\b", line):
            if clause in project.clauses:
                project.problems.append(f"spec/{path.name}: {clause} is there twice")
            project.clauses[clause] = path.name


def docstring(node: ast.AST) -> str:
    """The docstring of a module, class or function."""
    return (ast.get_docstring(node) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) else None) or ""


def strength(node: ast.AST) -> str:
    """How strong the evidence of a test is, or of what the docstring of a file of tests says."""
    words = docstring(node).lower()
    drawn = [*getattr(node, "decorator_list", []), *getattr(node, "bases", [])]
    if "exhaustive" in words:
        return "exhaustive"
    if "sampled" in words or any(re.search(r"\bgiven\(|StateMachine", ast.unparse(part)) for part in drawn):
        return "sampled"
    return "example"


def scopes(tree: ast.Module) -> list[tuple[int, int, str, str]]:
    """First line, last line, name and strength of each function and class, outer ones first; inner functions belong to the outer one."""
    found: list[tuple[int, int, str, str]] = []
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.append(scope(node, node.name, strength(node)))
            for member in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    own = strength(member)
                    # A rule of a state machine is drawn as the machine is.
                    found.append(scope(member, f"{node.name}.{member.name}", strength(node) if own == "example" else own))
    return found


def scope(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, name: str, evidence: str) -> tuple[int, int, str, str]:
    """The lines of a definition, its decorators included, with what is known of it."""
    first = min([node.lineno, *(part.lineno for part in node.decorator_list)])
    return first, node.end_lineno or node.lineno, name, evidence


def read_source(project: Project, root: Path, path: Path) -> None:
    """What a Python file names, and where."""
    file = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    known, opening = scopes(tree), tree.body[0].end_lineno or 0 if docstring(tree) else 0
    is_test = file.startswith("tests/")
    for number, line in enumerate(text.splitlines(), 1):
        for clause in ids(line):
            name, evidence = "", strength(tree) if number <= opening else "example"
            for first, last, inner, own in known:
                if first <= number <= last:
                    name, evidence = inner, own
            mention = Mention(clause, file, name, evidence if is_test else "")
            if mention not in project.mentions:
                project.mentions.append(mention)


def read_vectors(project: Project, root: Path) -> None:
    """What the hand vectors name."""
    for path in sorted((root / "spec" / "vectors" / "hand").glob("*.json")):
        for scenario in json.loads(path.read_text(encoding="utf-8")):
            project.vectors.extend((clause, scenario["id"]) for clause in scenario["clauses"])


def read_lemmas(project: Project, root: Path) -> None:
    """What the lemmas name: ``Lemma("name", ("CYC-1", ..), ..)``."""
    for path in sorted((root / "spec" / "proofs").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Lemma":
                name, clauses = (ast.literal_eval(argument) for argument in node.args[:2])
                project.lemmas.extend((clause, name) for clause in clauses)


def sources(root: Path) -> Iterator[Path]:
    """The Python files that may name clauses."""
    for folder in ("model", "streaming", "tests"):
        for path in sorted((root / folder).rglob("*.py")):
            if path.relative_to(root).as_posix() not in MADE_UP:
                yield path


def read(root: Path, without_test: Sequence[str] = WITHOUT_TEST) -> Project:
    """Read a project, and find what does not fit together."""
    project = Project()
    for path in chapters(root):
        read_chapter(project, path)
    for path in sources(root):
        read_source(project, root, path)
    read_vectors(project, root)
    read_lemmas(project, root)
    check_ids(project, root)
    check_held(project, without_test)
    for path in chapters(root):
        check_header(project, root, path)
    check_prose(project, root)
    return project


# --- checking -----------------------------------------------------------------------------------------------------------------------


def check_ids(project: Project, root: Path) -> None:
    """Every id that is named is one of a clause, and none is retired."""
    used = [(mention.clause, f"{mention.file} {mention.name}".strip()) for mention in project.mentions]
    used += [(clause, f"vector {name}") for clause, name in project.vectors]
    used += [(clause, f"lemma {name}") for clause, name in project.lemmas]
    for path in chapters(root):
        lines = path.read_text(encoding="utf-8").splitlines()
        used += [(clause, f"spec/{path.name}") for line in lines if " became " not in line for clause in ids(line)]
    for clause, where in used:
        if clause in project.retired:
            project.problems.append(f"{where}: {clause} is retired")
        elif clause not in project.clauses:
            project.problems.append(f"{where}: there is no clause {clause}")


def check_held(project: Project, without_test: Sequence[str]) -> None:
    """Every clause is held by something, but for the list, which has no entry too many."""
    held = project.held()
    for clause in project.clauses:
        if clause not in held and clause not in without_test:
            project.problems.append(f"spec/{project.clauses[clause]}: no test, vector or lemma names {clause}")
    for clause in without_test:
        if clause in held or clause not in project.clauses:
            project.problems.append(f"WITHOUT_TEST: {clause} is held, or no clause: take it out")


def check_header(project: Project, root: Path, path: Path) -> None:
    """The line that says which files a chapter is about: they exist, and so do the functions and vectors."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("Model: ")]
    parts = re.fullmatch(r"Model: (.*) Production: (.*) Held by: (.*)", lines[0]) if len(lines) == 1 else None
    if parts is None:
        if lines or path.name not in WITHOUT_HEADER:
            project.problems.append(f'spec/{path.name}: no single line "Model: .. Production: .. Held by: .."')
        return
    for part in parts.groups():
        text, _, vectors = part.partition("hand vectors")
        file = ""
        for span in SPAN.findall(text):
            if PATH.fullmatch(span):
                file = span
                if not (root / span).exists():
                    project.problems.append(f"spec/{path.name}: header names {span}, which does not exist")
            elif not (root / file).is_file() or span not in offered(root / file):
                project.problems.append(f"spec/{path.name}: header names {span}, which {file} does not define")
        for span in SPAN.findall(vectors):
            if not (root / "spec" / "vectors" / "hand" / f"{span}.json").exists():
                project.problems.append(f"spec/{path.name}: header names hand vectors {span}, which do not exist")


def offered(path: Path) -> set[str]:
    """The functions and classes of a file, and what it offers of other files (``__all__``)."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names.update(ast.literal_eval(node.value))
    return names


def check_prose(project: Project, root: Path) -> None:
    """Files, commands and error codes that the specification (and the README: commands) quotes exist."""
    names = {path.name for folder in ("spec", "model", "streaming", "tests") for path in (root / folder).rglob("*.*")}
    errors = root / "spec" / "errors.md"
    codes = set(re.findall(r"^\| `([a-z_.]+)`", errors.read_text(encoding="utf-8"), re.MULTILINE)) if errors.exists() else set()
    kinds = {code.split(".")[0] for code in codes}
    documents = [*chapters(root), *sorted((root / "spec").glob("*/README.md"))]
    for path in documents:
        file = path.relative_to(root).as_posix()
        for span in SPAN.findall(path.read_text(encoding="utf-8")):
            if PATH.fullmatch(span):
                # A name without its folder stands where the sentence says which folder is meant.
                found = span in names if "/" not in span else any((base / span).exists() for base in (root, root / "spec", path.parent))
                if not found:
                    project.problems.append(f"{file}: there is no {span}")
            if re.fullmatch(r"[a-z]+\.[a-z_]+", span) and span.split(".")[0] in kinds and span not in codes and not PATH.fullmatch(span):
                project.problems.append(f"{file}: errors.md has no code {span}")
    for path in [*documents, root / "README.md"]:
        for module in re.findall(r"python3? -m ([\w.]+\w)", path.read_text(encoding="utf-8")) if path.exists() else []:
            if not runnable(root, module):
                project.problems.append(f"{path.relative_to(root).as_posix()}: python -m {module} does not run")


def runnable(root: Path, module: str) -> bool:
    """Whether ``python -m`` finds a module: in the checkout, or, where no folder of that name is there, installed."""
    place = root.joinpath(*module.split("."))
    if (root / module.split(".", maxsplit=1)[0]).is_dir():
        return place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()
    return importlib.util.find_spec(module) is not None


# --- writing ------------------------------------------------------------------------------------------------------------------------

HEAD = """# Traceability

Written by `python -m model.traceability`; do not edit. For each clause: the functions that name it in the model and in production, and
what holds it. How strong the evidence is: *proved* by a lemma of the model, in the part that `proofs/README.md` says; *exhaustive* up to
the bound that a test states; *sampled*; or an *example*. The words are those of the tests: a test that says nothing is an example.
"""


def listed(mentions: Iterable[Mention]) -> str:
    """Mentions by file; a file by itself only where none of its functions is named."""
    files: dict[str, list[str]] = {}
    for mention in mentions:
        names = files.setdefault(mention.file, [])
        if mention.name and mention.name not in names:
            names.append(mention.name)
    return "; ".join(f"`{file}`" + (f": {', '.join(names)}" if names else "") for file, names in files.items())


def row(project: Project, clause: str, by_clause: Mapping[str, Sequence[Mention]]) -> str:
    """The row of a clause."""
    mentions = by_clause.get(clause, ())
    tests = [mention for mention in mentions if mention.file.startswith("tests/")]
    vectors = [name for named, name in project.vectors if named == clause]
    lemmas = [name for named, name in project.lemmas if named == clause]
    held = [part for part in (listed(tests), vectors and f"vectors {', '.join(vectors)}", lemmas and f"lemmas {', '.join(lemmas)}") if part]
    strengths = {mention.strength for mention in tests} | ({"proved"} if lemmas else set()) | ({"example"} if vectors else set())
    cells = [
        clause,
        listed(mention for mention in mentions if mention.file.startswith("model/") and not mention.file.startswith("model/conformance/")),
        listed(mention for mention in mentions if mention.file.startswith("streaming/")),
        "; ".join(held) or "nothing yet",
        ", ".join(word for word in STRENGTHS if word in strengths),
    ]
    return "| " + " | ".join(cells) + " |"


def text(project: Project) -> str:
    """The file."""
    by_clause: dict[str, list[Mention]] = {}
    for mention in project.mentions:
        by_clause.setdefault(mention.clause, []).append(mention)
    lines = [HEAD]
    for chapter in dict.fromkeys(project.clauses.values()):
        lines += [
            f"## [{chapter.removesuffix('.md')}]({chapter})",
            "",
            "| clause | model | production | held by | evidence |",
            "|---|---|---|---|---|",
        ]
        lines += [row(project, clause, by_clause) for clause, where in project.clauses.items() if where == chapter]
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str] | None = None, root: Path = ROOT, without_test: Sequence[str] = WITHOUT_TEST) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m model.traceability", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file differs or something does not fit")
    check = parser.parse_args(arguments).check
    project = read(root, without_test)
    made, path = text(project), root / TARGET
    if not check:
        path.write_text(made, encoding="utf-8", newline="\n")
    elif not path.exists() or path.read_bytes() != made.encode("utf-8"):
        project.problems.append(f"{TARGET} differs: python -m model.traceability")
    for problem in project.problems:
        print(problem, file=sys.stderr)
    return 1 if project.problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line: ``python -m model.conformance run|replay|list|vectors|selftest|verify``.

It ends with 0 where all passed (known gaps allowed), 1 where something failed, 2 where nothing could be judged. Every mistake of the
user is one line.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NoReturn

from model.conformance.adapter import Adapter, World
from model.conformance.checks import CHECKS, LARGE, SMALL, SMOKE
from model.conformance.clauses import CLAUSES
from model.conformance.engine import LAYERS, check_loader
from model.conformance.gaps import GapsError, read_gaps
from model.conformance.mistakes import AdapterError, made
from model.conformance.replay import ScenarioError, parse, replay
from model.conformance.report import FORMATS
from model.conformance.screen import failure, hang
from model.conformance.vectors import BESIDE, VectorsError, check, generate, read, run_files, write
from model.conformance.watchdog import Watched

# Loaders that the kit brings along.
KNOWN: Final = {
    "streaming": "model.conformance.adapters.streaming:Streaming",
    "streaming-workers": "model.conformance.adapters.streaming:StreamingWithWorkers",
    "lancedb.streaming": "model.conformance.adapters.lancedb_streaming:LanceDB",
    "model": "model.conformance.reference:Reference",
    "list": "model.conformance.adapters.example:ListLoader",
}
BOUNDS: Final = {"smoke": SMOKE, "small": SMALL, "large": LARGE}
# Layers for which Hypothesis must be installed.
_DRAWN: Final = {"machine", "stress"}
# Failing vectors that are shown; all are counted.
_MOST_SHOWN: Final = 10
_USAGE: Final = "python -m model.conformance"

Tell = Callable[[str], None]


class UserError(Exception):
    """Nothing can be judged; the message is one line that says why."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


# ---- implementations


def find_factory(impl: str) -> Callable[[], Adapter]:
    """The factory of adapters that ``--impl`` names: one of `KNOWN`, or ``pkg.mod:factory``.

    Raises
    ------
    UserError
        There is none, or it cannot be imported.
    """
    module_name, colon, name = KNOWN.get(impl, impl).partition(":")
    if not (colon and module_name and name):
        raise UserError(f"--impl {impl}: give one of {', '.join(KNOWN)}, or pkg.mod:factory")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise UserError(f"--impl {impl}: cannot import {module_name}: {_said(error)}") from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UserError(f"--impl {impl}: {module_name} has no factory {name}")
    factory: Callable[[], Adapter] = found
    return factory


def read_layers(written: str | None, vectors: Path | None = None) -> list[str]:
    """Layers by name, separated by commas; None: all. `vectors` is the directory that was given for the layer of this name.

    Raises
    ------
    UserError
        There is no such layer, it needs Hypothesis, which is not installed, or its files are not there although it was asked for by name.
    VectorsError
        The directory cannot be used.
    """
    layers = list(LAYERS) if written is None else [one for one in written.split(",") if one]
    unknown = [one for one in layers if one not in LAYERS]
    if unknown or not layers:
        raise UserError(f"--layers {written}: give some of {','.join(LAYERS)}")
    if _DRAWN & set(layers) and find_spec("hypothesis") is None:
        raise UserError(
            f"the layers {', '.join(sorted(_DRAWN))} need Hypothesis (pip install hypothesis); else choose --layers smoke,small,vectors"
        )
    if written is not None and "vectors" in layers and vectors is None and not BESIDE.is_dir():
        raise UserError(f"the layer vectors needs its files, and there is no {BESIDE}: give the directory (spec/vectors/generated)")
    if vectors is not None:
        read(vectors)
    return layers


def _watched(options: argparse.Namespace) -> Callable[[], Adapter]:
    """The factory of ``--impl``; with ``--timeout`` a call that takes longer ends the process, for it cannot be ended by itself."""
    factory, seconds = find_factory(options.impl), options.timeout

    def bark(call: str, world: World | None, steps: Sequence[Any]) -> None:
        print(f"{_USAGE}: {hang(call, seconds, world, steps, options.impl)}", file=sys.stderr, flush=True)
        os._exit(2)

    return factory if seconds is None else lambda: Watched(factory(), seconds, bark)


# ---- commands


def _run(options: argparse.Namespace, tell: Tell) -> int:
    vectors = None if options.vectors is None else Path(options.vectors)
    result = check_loader(
        _watched(options),
        layers=read_layers(options.layers, vectors),
        bound=BOUNDS[options.bound],
        seconds=options.seconds,
        examples=options.examples,
        gaps=read_gaps(options.gaps) if options.gaps else None,
        tell=None if options.quiet else _progress,
        vectors=vectors,
    )
    tell(FORMATS[options.report](result, options.impl))
    return result.exit_code


def _replay(options: argparse.Namespace, tell: Tell) -> int:
    try:
        written = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{options.file}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    steps = parse(written, options.clause)
    return 0 if replay(steps, made(_watched(options))[0], tell) is None else 1


def _list(options: argparse.Namespace, tell: Tell) -> int:
    del options
    tell("clauses")
    for name, clause in CLAUSES.items():
        needed = f"; needs {', '.join(sorted(clause.needs))}" if clause.needs else ""
        tell(f"  {name:<7} {clause.says} ({clause.whose}{needed})")
    tell("checks, with the number of scenarios by bound")
    for one in CHECKS:
        counts = ", ".join(f"{name} {sum(1 for _ in one.scenarios(bound))}" for name, bound in BOUNDS.items())
        tell(f"  {one.name:<23} {' '.join(one.clauses)} ({counts})")
    return 0


def _selftest(options: argparse.Namespace, tell: Tell) -> int:
    selftest = _module("model.conformance.selftest").selftest
    return 0 if selftest(tell=tell, streaming=options.streaming) else 1


def _verify(arguments: Sequence[str]) -> int:
    status: int = _module("model.conformance.verify").main(list(arguments))
    return status


def _vectors(options: argparse.Namespace, tell: Tell) -> int:
    if options.run:
        if options.impl is None or options.directory is None:
            raise UserError("vectors --run needs --impl X and the directory of the vectors")
        adapter, who = made(_watched(options))
        done, skipped, failures = run_files(Path(options.directory), adapter)
        for name, found in failures[:_MOST_SHOWN]:
            tell(f"{name}: {failure(found, options.impl, 'codes' in who.capabilities)}\n")
        tell(f"{done - len(failures)} scenarios passed, {len(failures)} failed, {skipped} need what the loader does not have")
        return 1 if failures else 0 if done else 2
    if options.impl is not None or options.directory is not None:
        raise UserError("--impl and a directory belong to vectors --run")
    if options.write is not None:
        for name in write(Path(options.write)):
            tell(f"wrote {name}")
        return 0
    if options.check is not None:
        differences = check(Path(options.check))
        for difference in differences:
            tell(difference)
        if not differences:
            tell(f"{options.check} is what the model says")
        return 1 if differences else 0
    generated = generate()
    for name, scenarios in generated.scenarios.items():
        tell(f"  {name:<16} {len(scenarios)} scenarios")
    tell(f"{generated.edges} edges, each in at least one scenario")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=_USAGE, description="Checks a loader against the specification; spec/conformance.md says how.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    known = f"{', '.join(KNOWN)}, or pkg.mod:factory"

    command = commands.add_parser("run", help="judge a loader by every clause")
    command.set_defaults(do=_run)
    command.add_argument("--impl", metavar="X", required=True, help=known)
    command.add_argument("--report", choices=FORMATS, default="text", help="for people or for machines (default: text)")
    command.add_argument("--layers", help=f"some of {','.join(LAYERS)} (default: all); smoke is always done")
    command.add_argument("--vectors", metavar="DIR", help="files of the layer vectors (default: those of the checkout)")
    command.add_argument("--bound", choices=BOUNDS, default="small", help="of the exhaustive layer (default: small)")
    command.add_argument("--seconds", type=_positive(float), default=600.0, help="begin no scenario after that (default: 600)")
    command.add_argument("--examples", type=_positive(int), default=300, help="histories that the machine draws (default: 300)")
    command.add_argument("--gaps", metavar="FILE", help="known gaps, JSON or TOML: clause to reason")
    command.add_argument("--quiet", action="store_true", help="no progress on stderr")

    command = commands.add_parser("replay", help="do one scenario again, step by step")
    command.set_defaults(do=_replay)
    command.add_argument("--impl", metavar="X", required=True, help=known)
    command.add_argument("--clause", choices=CLAUSES, metavar="ID", help="what is judged; of a JSON report, whose violation")
    command.add_argument("file", metavar="FILE", help="a scenario or a JSON report; - is stdin")

    commands.add_parser("list", help="print clauses and checks").set_defaults(do=_list)

    command = commands.add_parser("vectors", help="the generated vectors: write, check, run on a loader without the model")
    command.set_defaults(do=_vectors)
    choice = command.add_mutually_exclusive_group()
    choice.add_argument("--write", metavar="DIR", help="write the files")
    choice.add_argument("--check", metavar="DIR", help="whether the files are what the model says")
    choice.add_argument("--run", action="store_true", help="do them on a loader: with --impl X DIR")
    command.add_argument("--impl", metavar="X", help=known)
    command.add_argument("directory", metavar="DIR", nargs="?", help="the files for --run")

    for name in ("run", "replay", "vectors"):
        said = "a call of the loader that takes longer ends the command with 2"
        commands.choices[name].add_argument("--timeout", metavar="SECONDS", type=_positive(float), help=said)

    command = commands.add_parser("selftest", help="the kit finds what is wrong with wrong loaders, each by its clause")
    command.set_defaults(do=_selftest)
    command.add_argument("--streaming", action="store_true", help="also mutants of `streaming`")

    # Its arguments are its own: main passes them on unread.
    commands.add_parser("verify", help="a training run of yours before it starts; verify --help", add_help=False)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Do a command; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["verify"]:
            return _verify(given[1:])
        options = _parser().parse_args(given)
        report = partial(print, file=sys.stdout)
        # What a loader prints must not get into a report.
        with contextlib.redirect_stdout(sys.stderr):
            status: int = options.do(options, report)
    except (UserError, AdapterError, GapsError, ScenarioError, VectorsError) as error:
        print(f"{_USAGE}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read the report, head for instance, has seen enough; what Python still writes at its end must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print(f"{_USAGE}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        print(f"{_USAGE}: could not run: {_said(error)} ({where.filename}:{where.lineno})", file=sys.stderr)
        return 2
    return status


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"cannot import {name}: {_said(error)}") from error


def _positive(kind: type) -> Callable[[str], Any]:
    def read(written: str) -> Any:
        value = kind(written)
        # Not a number compares false.
        if not value > 0:
            raise ValueError
        return value

    read.__name__ = f"positive {kind.__name__}"
    return read


def _said(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

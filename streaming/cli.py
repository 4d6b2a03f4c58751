"""The command line: arguments in, exit code out. Each subcommand's work lives in a package of its own."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from streaming.batches import FORMATS
from streaming.demo.settings import DEFAULT_ROWS, GLOBAL_BATCH, MIN_ROWS, NUM_SPLITS, WORLD_SIZES, DemoError, Settings
from streaming.errors import ArgumentTypeError, ArgumentValueError, TooFewRowsError
from streaming.tools.statefile import NoStateError, UnreadableError

OK: Final = 0
CHECK_FAILED: Final = 1
COULD_NOT_RUN: Final = 2
INTERRUPTED: Final = 130

_DEMO = f"""\
Kill a training run in mid-epoch, resume it on another number of ranks, and look whether anything was lost.

The demo writes text that every machine has, the source of this Python's standard library, to a LanceDB table in a
temporary directory. It trains a small byte-level language model on it with torch, three times, on several processes
that average gradients over torch.distributed: once without interruption; once until all ranks are killed (SIGKILL) in
mid-epoch; and from the last checkpoint to the end on another world size, after the table has grown. Then it judges,
from the row ids that reached the trainer and from the uninterrupted run alone.

The rows are dealt to {NUM_SPLITS} splits; a global step has {GLOBAL_BATCH} rows on every world size.
"""

_EXIT_CODES = "exit codes: 0 all checks passed, 1 a check failed, 2 bad arguments or could not run, 130 interrupted"

_INSPECT = """\
Say what a saved state says: how far its epoch is, what comes again after a resume, on which world sizes it resumes,
and, with --table, whether it fits that table. Nothing is changed.
"""

_TRACE = """\
Say whether a row was received at a saved state, when and by which rank, and what a resume does with it.
Steps are those of a whole epoch that runs on R ranks with batches of B rows, counted from 0. Nothing is changed.
"""

_TOOL_EXIT_CODES = (
    "exit codes: 0 read, and it fits where a table was given; 1 no valid state, or it does not fit;\n"
    "2 bad arguments, or the file or table cannot be read; 130 interrupted"
)

_BENCH = """\
Measure a StreamingDataLoader on a table: rows per second, where the time goes, and whether turning one knob is worth it.
The configuration that the options give is measured, and some that change one argument of it. Nothing is changed.
"""

_BENCH_EXIT_CODES = (
    "exit codes: 0 measured; 1 a column does not go with the configuration as given;\n"
    "2 bad arguments, or the table cannot be opened or read; 130 interrupted"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; default: those of the process.

    Returns
    -------
    int
        Exit code: 0 success, 1 a check failed, or no valid state or one that does not fit (TOL-2), or a refused configuration (TOL-6),
        2 could not run, 130 interrupted.

    Raises
    ------
    SystemExit
        With code 2 for arguments that are not legal, with 0 for ``--help``.
    """
    parser = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except (DemoError, UnreadableError) as error:
        print(f"could not run: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    except NoStateError as error:
        print(f"no valid state: {error}", file=sys.stderr)
        return CHECK_FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception:
        # Python's own exit code for a traceback is 1, which here would say that a check failed.
        traceback.print_exc()
        print("could not run: unexpected error, see above", file=sys.stderr)
        return COULD_NOT_RUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m streaming", description="Elastic, resumable streaming datasets on LanceDB tables.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_inspect(commands)
    _add_trace(commands)
    _add_bench(commands)
    return parser


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="kill a real training run, resume it on another world size, and check that no row was lost",
        description=_DEMO,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    legal = ", ".join(map(str, WORLD_SIZES))
    demo.add_argument("--rows", type=int, default=DEFAULT_ROWS, help=f"rows of the table, at least {MIN_ROWS} (default: %(default)s)")
    demo.add_argument("--world-size", type=int, default=3, metavar="R", help=f"ranks until the kill: {legal} (default: %(default)s)")
    demo.add_argument("--resume-world-size", type=int, default=2, metavar="R", help=f"ranks after it: {legal} (default: %(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="seed of the shuffle and of the model, in [0, 2**63) (default: %(default)s)")

    def run(arguments: argparse.Namespace) -> int:
        try:
            settings = Settings(arguments.rows, arguments.world_size, arguments.resume_world_size, arguments.seed)
        except (ArgumentTypeError, ArgumentValueError) as error:
            demo.error(str(error))
        from streaming.demo.run import run_demo  # noqa: PLC0415  lancedb, needed from here on, takes a second to import

        return OK if run_demo(settings) else CHECK_FAILED

    demo.set_defaults(run=run, parser=demo)


def _add_inspect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tool = _add_tool(commands, "inspect", "say what a saved state says, and whether it fits a table", _INSPECT)
    tool.add_argument("--table", nargs=2, metavar=("URI", "NAME"), help="a LanceDB database and a table in it: does the state fit it?")

    def run(arguments: argparse.Namespace) -> int:
        from streaming.tools import inspect  # noqa: PLC0415  so that help and the demo do not wait for it

        return OK if inspect.run(arguments) else CHECK_FAILED

    tool.set_defaults(run=run, parser=tool)


def _add_trace(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tool = _add_tool(commands, "trace", "say whether a row was received at a saved state, when and by which rank", _TRACE)
    tool.add_argument(
        "--row", type=int, required=True, metavar="N", help="the row's number among the selected rows, in storage order, from 0"
    )
    tool.add_argument("--epoch", type=int, metavar="E", help="epoch (default: the state's)")
    tool.add_argument("--world-size", type=int, metavar="R", help="number of ranks (default: the state's)")
    tool.add_argument("--batch-size", type=int, default=1, metavar="B", help="rows of one batch on one rank (default: %(default)s)")

    def run(arguments: argparse.Namespace) -> int:
        from streaming.tools import trace  # noqa: PLC0415  so that help and the demo do not wait for it

        try:
            return OK if trace.run(arguments) else CHECK_FAILED
        except (ArgumentTypeError, ArgumentValueError) as error:
            tool.error(str(error))

    tool.set_defaults(run=run, parser=tool)


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tool = commands.add_parser(
        "bench",
        help="measure the loader on a table: where time goes, and which knob to turn",
        usage="%(prog)s [OPTIONS] URI TABLE",
        description=_BENCH,
        epilog=_BENCH_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tool.add_argument("uri", metavar="URI", help="a LanceDB database")
    tool.add_argument("table", metavar="TABLE", help="the name of a table in it")
    tool.add_argument("--batch-size", type=int, default=256, metavar="B", help="rows of a batch (default: %(default)s)")
    tool.add_argument("--num-splits", type=int, default=8, metavar="S", help="units of distribution (default: %(default)s)")
    tool.add_argument("--num-workers", type=int, default=0, metavar="W", help="worker processes (default: %(default)s)")
    tool.add_argument("--worker-sharding", choices=("splits", "batches"), default="splits", help="(default: %(default)s)")
    tool.add_argument("--columns", type=_names, metavar="A,B", help="columns to read, parted by commas (default: all)")
    tool.add_argument("--filter", metavar="SQL", help="predicate that selects rows (default: all rows)")
    tool.add_argument("--shuffle-clump-size", type=int, metavar="K", help="rows that move together when shuffled (default: 1)")
    tool.add_argument("--no-shuffle", action="store_true", help="storage order")
    tool.add_argument("--format", choices=FORMATS, default="python", help="what batches hold (default: %(default)s)")
    tool.add_argument(
        "--read-ahead-bytes",
        type=int,
        default=64 * 2**20,
        metavar="N",
        help="bound on the bytes held and being read (default: %(default)s)",
    )
    tool.add_argument("--seconds", type=float, default=3.0, help="for each configuration (default: %(default)s)")
    tool.add_argument("--only-this", action="store_true", help="measure no variants")
    tool.add_argument("--json", action="store_true", help="print one JSON object")

    def run(arguments: argparse.Namespace) -> int:
        from streaming.tools import bench  # noqa: PLC0415  so that help and the demo do not wait for it

        try:
            return OK if bench.run(arguments) else CHECK_FAILED
        except (ArgumentTypeError, ArgumentValueError, TooFewRowsError) as error:
            tool.error(str(error))

    tool.set_defaults(run=run, parser=tool)


def _names(text: str) -> list[str]:
    """Names parted by commas."""
    names = text.split(",")
    if not all(names):
        raise argparse.ArgumentTypeError(f"there is an empty name in {text!r}")
    return names


def _add_tool(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, brief: str, description: str
) -> argparse.ArgumentParser:
    """A subcommand that reads a state (TOL-1)."""
    tool = commands.add_parser(
        name,
        help=brief,
        description=description,
        epilog=_TOOL_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tool.add_argument(
        "file", type=Path, metavar="FILE", help="JSON or what torch.save wrote: a state, a checkpoint that holds one, or a list"
    )
    tool.add_argument("--key", help="where in FILE the state lies, a.b for b in a (default: the only place that has one)")
    tool.add_argument(
        "--skew",
        choices=("refuse", "replay"),
        default="refuse",
        help="for a list of states of ranks at different steps: refuse, or go back to the smallest completed cycle (default: %(default)s)",
    )
    tool.add_argument("--json", action="store_true", help="print one JSON object")
    return tool

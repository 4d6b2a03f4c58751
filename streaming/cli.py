"""The command line: arguments in, exit code out. Each subcommand's work lives in a package of its own."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from streaming.demo.settings import DEFAULT_ROWS, GLOBAL_BATCH, MIN_ROWS, NUM_SPLITS, WORLD_SIZES, DemoError, Settings
from streaming.errors import ArgumentTypeError, ArgumentValueError

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; default: those of the process.

    Returns
    -------
    int
        Exit code: 0 success, 1 a check failed, 2 could not run, 130 interrupted.

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
    except DemoError as error:
        print(f"could not run: {error}", file=sys.stderr)
        return COULD_NOT_RUN
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

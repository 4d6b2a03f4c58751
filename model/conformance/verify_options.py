"""The options of ``python -m model.conformance verify``, and what is wrong with those given: before a table is opened."""

from __future__ import annotations

import argparse
from typing import Final

from model.conformance.checks import divisors

_LARGEST: Final = 2**63 - 1
# The least value of each number.
_LEAST: Final = {
    "num_splits": 1,
    "world_size": 1,
    "batch_size": 1,
    "num_workers": 0,
    "shuffle_seed": 0,
    "shuffle_clump_size": 1,
    "version": 1,
    "resume_world_size": 1,
    "interruptions": 1,
    "whole_epochs_up_to": 0,
}


def mistake(given: argparse.Namespace) -> str | None:
    """What is wrong with the values, the first of it: option, value and legal range; None where nothing is."""
    for name, least in _LEAST.items():
        value = getattr(given, name)
        for one in value if isinstance(value, list) else [] if value is None else [value]:
            if not least <= one <= _LARGEST:
                legal = "an int in [0, 2**63 - 1]" if name == "shuffle_seed" or one > _LARGEST else f"an int >= {least}"
                return _says(name, one, f"be {legal}{': nothing else is looked at' if name == 'interruptions' else ''}")
    for name, sizes in (("world_size", [given.world_size]), ("resume_world_size", given.resume_world_size or [])):
        for size in sizes:
            if given.num_splits % size:
                return _says(name, size, f"divide --num-splits ({given.num_splits}): {_listed(given.num_splits)}")
    owned = given.num_splits // given.world_size
    if given.num_workers and owned % given.num_workers and given.worker_sharding == "splits":
        splits = f"the splits of a rank ({given.num_splits} / {given.world_size})"
        return _says("num_workers", given.num_workers, f"be 0 or divide {splits}: {_listed(owned)} (or pass --worker-sharding batches)")
    if given.shuffle_clump_size is not None and not given.shuffle:
        return _says("shuffle_clump_size", given.shuffle_clump_size, "be left out with --no-shuffle")
    return None


def _says(name: str, value: int, must: str) -> str:
    return f"argument.value: --{name.replace('_', '-')} is {value}, and must {must}"


def _listed(number: int) -> str:
    return ", ".join(str(one) for one in divisors(number))


def parser() -> argparse.ArgumentParser:
    """All options, as the constructors of `streaming` name them."""
    made = argparse.ArgumentParser(
        prog="python -m model.conformance verify",
        description="Which steps are legal checkpoints, what a crash replays, and whether resuming holds on this table.",
        epilog="exit codes: 0 everything held, 1 it did not, 2 bad arguments or it could not be tried",
    )
    made.add_argument("uri", help="of the database: a directory or what lancedb.connect takes")
    made.add_argument("table", help="name of the table; it is only read")
    made.add_argument("--num-splits", type=int, required=True, help="splits of the run; a multiple of every world size")
    made.add_argument("--world-size", type=int, default=1, help="ranks of the run (default: %(default)s)")
    made.add_argument("--batch-size", type=int, required=True, help="rows of one batch on one rank")
    made.add_argument("--num-workers", type=int, default=0, help="worker processes of a rank (default: %(default)s)")
    made.add_argument(
        "--worker-sharding", choices=["splits", "batches"], default="splits", help="what workers divide among them (default: %(default)s)"
    )
    made.add_argument("--no-shuffle", dest="shuffle", action="store_false", help="storage order")
    made.add_argument("--shuffle-seed", type=int, default=0, help="of the order (default: %(default)s)")
    made.add_argument("--shuffle-clump-size", type=int, metavar="ROWS", help="neighbouring rows that stay together (default: none do)")
    made.add_argument("--filter", metavar="SQL", help="predicate that selects the rows (default: all)")
    made.add_argument("--version", type=int, help="of the table (default: the newest)")
    made.add_argument("--id", default="id", metavar="COLUMN", help="column of unique values by which rows are known (default: %(default)s)")
    made.add_argument("--resume-world-size", type=int, nargs="+", metavar="R", help="world sizes to resume on, in turn (default: the same)")
    made.add_argument("--interruptions", type=int, default=5, help="how many are sampled, at least one (default: %(default)s)")
    made.add_argument(
        "--whole-epochs-up-to",
        type=int,
        default=20_000,
        metavar="ROWS",
        help="longer epochs are looked at in windows (default: %(default)s)",
    )
    made.add_argument("--seed", type=int, default=0, help="of the sampling (default: %(default)s)")
    made.add_argument("--json", action="store_true", help="print what was found as JSON")
    return made

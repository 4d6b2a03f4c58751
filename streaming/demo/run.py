"""The demo from start to end: a table, three runs, a judgement."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

from streaming.demo import checkpoints, corpus, judge, logs, report
from streaming.demo.launch import Ranks
from streaming.demo.rank import Job
from streaming.demo.settings import GLOBAL_BATCH, NUM_SPLITS, DemoError, Settings

_POLL_S: Final = 0.03


def run_demo(settings: Settings) -> bool:
    """Run the demo in a temporary directory, which is removed however it ends, and print the judgement.

    Returns
    -------
    bool
        Whether all checks passed.

    Raises
    ------
    DemoError
        It could not be carried out.
    """
    if not hasattr(signal, "SIGKILL"):
        raise DemoError("this system has no SIGKILL")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lockstep-demo-", ignore_cleanup_errors=True) as directory:
        evidence, files = _gather(settings, Path(directory))
    verdicts = judge.judge(evidence)
    passed = all(verdict.passed for verdict in verdicts)
    seconds = time.monotonic() - began
    print(
        f"\n{len(evidence.table)} rows from {files} files of Python's standard library, {NUM_SPLITS} splits, {GLOBAL_BATCH} rows a step, "
        f"seed {settings.seed}, {judge.ranks(settings.world_size)} -> {judge.ranks(settings.resume_world_size)}, {seconds:.0f} s\n"
    )
    print(report.table(verdicts))
    print(f"\n{report.how_equal(*judge.loss_differences(evidence), settings.world_size, settings.resume_world_size)}")
    print(f"\n{'All checks passed.' if passed else 'NOT all checks passed.'}", flush=True)
    return passed


def _gather(settings: Settings, directory: Path) -> tuple[judge.Evidence, int]:
    """Write the table, make the three runs, and collect what they left."""
    uri = str(directory / "lancedb")
    source = corpus.Corpus(settings.rows, settings.rows_to_append)
    with _progress("table", settings.rows, "row") as bar:
        for rows in source.create(uri):
            bar.update(rows)
    original = corpus.read_table(uri)

    reference = _jobs(settings, directory / "reference", uri, settings.world_size)
    with Ranks(reference) as ranks, _progress(f"1/3 uninterrupted, {judge.ranks(settings.world_size)}", settings.steps, "step") as bar:
        _follow(ranks, bar)

    interrupted = _jobs(settings, directory / "interrupted", uri, settings.world_size)
    with Ranks(interrupted) as ranks, _progress(f"2/3 to be killed, {judge.ranks(settings.world_size)}", settings.steps, "step") as bar:
        exit_codes = _kill_in_mid_epoch(ranks, bar, settings, Path(interrupted[0].checkpoints))
    step, checkpoint = _latest(Path(interrupted[0].checkpoints))

    source.append(uri)
    appended = corpus.read_table(uri).keys() - original.keys()

    resumed = _jobs(settings, directory / "resumed", uri, settings.resume_world_size, checkpoint)
    with Ranks(resumed) as ranks, _progress(f"3/3 resumed, {judge.ranks(settings.resume_world_size)}", settings.steps, "step", step) as bar:
        _follow(ranks, bar)

    evidence = judge.Evidence(
        table=original,
        appended=appended,
        num_splits=NUM_SPLITS,
        reference=[logs.read(Path(job.log)) for job in reference],
        interrupted=[logs.read(Path(job.log), killed=True) for job in interrupted],
        resumed_from=step,
        resumed=[logs.read(Path(job.log)) for job in resumed],
        exit_codes=exit_codes,
    )
    return evidence, source.files


def _jobs(settings: Settings, directory: Path, uri: str, world_size: int, resume: Path | None = None) -> list[Job]:
    saved = directory / "checkpoints"
    saved.mkdir(parents=True)
    return [
        Job(
            uri=uri,
            table=corpus.TABLE,
            rank=rank,
            world_size=world_size,
            num_splits=NUM_SPLITS,
            global_batch=GLOBAL_BATCH,
            seed=settings.seed,
            checkpoint_every=settings.checkpoint_every,
            checkpoints=str(saved),
            log=str(directory / f"rank-{rank}.jsonl"),
            store=str(directory / "store"),
            resume=None if resume is None else str(resume),
        )
        for rank in range(world_size)
    ]


def _follow(ranks: Ranks, bar: Any) -> None:
    """Show the steps as they are made, until the run is over."""
    while not ranks.finished():
        _show(ranks, bar)
        time.sleep(_POLL_S)
    _show(ranks, bar)


def _kill_in_mid_epoch(ranks: Ranks, bar: Any, settings: Settings, saved: Path) -> list[int]:
    """Kill all ranks at a moment when steps after the last checkpoint are lost with them; return their exit codes.

    The ranks are frozen first: on a fast machine they could otherwise pass the next checkpoint between the look and the kill.
    """
    target = settings.kill_after_step
    while not ranks.finished():
        _show(ranks, bar)
        if ranks.last_step() >= target:
            ranks.freeze()
            last, found = ranks.last_step(), checkpoints.latest(saved)
            if found is not None and found[0] <= last < settings.steps - 1:
                _show(ranks, bar)
                return ranks.kill()
            ranks.thaw()
            target = last + 1
        time.sleep(_POLL_S)
    raise DemoError("the run was over before it could be killed between two checkpoints; use more --rows")


def _latest(saved: Path) -> tuple[int, Path]:
    found = checkpoints.latest(saved)
    if found is None:
        raise DemoError("the killed run left no checkpoint")
    return found


def _show(ranks: Ranks, bar: Any) -> None:
    bar.update(max(ranks.last_step() + 1 - bar.n, 0))


@contextmanager
def _progress(what: str, total: int, unit: str, initial: int = 0) -> Iterator[Any]:
    """A bar on a terminal; elsewhere one line when it is done."""
    quiet, began = not sys.stderr.isatty(), time.monotonic()
    # Some terminals (in containers) say that they have 0 columns, and would show nothing: 80 then.
    columns = min(shutil.get_terminal_size().columns, 120)
    with tqdm(desc=f"{what:<28}", total=total, unit=unit, initial=initial, disable=quiet, ncols=columns) as bar:
        yield bar
        bar.refresh()
    if quiet:
        print(f"{what}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)

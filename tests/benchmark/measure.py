"""One contender on one table, in this process: what `run` starts for each of its figures."""

from __future__ import annotations

import resource
import sys
import time
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import lancedb
import numpy as np

from tests.benchmark.fresh import Figures, answer
from tests.benchmark.loaders import OURS, SPLITS, TAKES, Contender, Work
from tests.benchmark.peers import PEERS
from tests.benchmark.tables import TABLES, as_arrow, make

CONTENDERS = {contender.name: contender for contender in (*OURS, *TAKES, *PEERS)}
_SLOW_BATCHES = 20
_SLOW_S = 0.05


def measure(home: str, table: str, contender: str, seconds: float = 3.0, rows: int | None = None, check: bool = False) -> Figures:
    """Everything that is measured of one contender; with `check`, only whether the ids of a whole epoch are right."""
    stored = make(Path(home), table, rows)
    chosen = CONTENDERS[contender]
    work = Work(
        table=lancedb.connect(home).open_table(stored),
        rows=rows or TABLES[table].rows,
        row_bytes=TABLES[table].row_bytes,
        ragged=table == "ragged",
        arrow=as_arrow(Path(home), stored) if contender == "datasets" else None,
    )
    if check:
        return {"rows": checked(chosen, work)}
    before = _peak_bytes()
    figures = timed(chosen, work, seconds)
    peak = _peak_bytes()
    return {**figures, "peak_bytes": peak, "grown_bytes": peak - before, "buffered_bytes": buffered(chosen, work)}


def checked(contender: Contender, work: Work) -> int:
    """Rows of one epoch: each row of the table once, but for fewer than there are splits."""
    with closing(contender.epoch(work)) as steps:
        batches = [(step.rows, np.asarray(step.ids)) for step in steps]
    ids = np.concatenate([ids for _, ids in batches])
    expected = work.rows - work.rows % SPLITS
    counted = sum(count for count, _ in batches)
    distinct = len(np.unique(ids))
    if not distinct == len(ids) == counted == expected or ids.min() < 0 or ids.max() >= work.rows:
        raise AssertionError(f"{contender.name}: {distinct} different ids among {len(ids)} in {counted} rows, expected {expected}")
    return counted


def timed(contender: Contender, work: Work, seconds: float) -> Figures:
    """Rows per second once read-ahead is filled, the same with start-up, and the time to the first batch.

    It goes on for as many seconds, three windows and three times the read-ahead, whichever takes longest, and over the end of an epoch
    into the next. Rows that were read before the clock starts, or lie in a buffer when it stops, must not look like speed: it starts when
    as many rows have come as may be read ahead, and stops as many before the end of an epoch. A table that is shorter than four times
    the read-ahead cannot tell; its figures are marked as `prefilled`.
    """
    ahead = min(contender.ahead(work), work.rows / 4)
    enough = min(3 * max(work.window, ahead), 3 * work.rows)
    steady_rows, steady_s, all_rows, first_batch_s, epoch = 0, 0.0, 0, 0.0, 0
    began = before = time.perf_counter()
    while steady_s < seconds or steady_rows < enough:
        received, counted = 0, steady_rows
        with closing(contender.epoch(replace(work, epoch=epoch))) as steps:
            for step in steps:
                now = time.perf_counter()
                first_batch_s = first_batch_s or now - began
                if received >= max(ahead, 1) and received + step.rows <= work.rows - ahead:
                    steady_rows += step.rows
                    steady_s += now - before
                received += step.rows
                before = now
                if steady_s >= seconds and steady_rows >= enough:
                    break
        if steady_rows == counted:
            raise ValueError(f"a table of {work.rows} rows is too small to measure {contender.name}")
        all_rows += received
        epoch += 1
    return {
        "rows_per_s": steady_rows / steady_s,
        "rows_per_s_with_start": all_rows / (before - began),
        "first_batch_s": first_batch_s,
        "prefilled": ahead < contender.ahead(work),
        "epochs": epoch,
    }


def buffered(contender: Contender, work: Work) -> int | None:
    """The most bytes held ahead of a consumer that takes a batch every 50 ms, after it was quick for three windows."""
    quick, received, most = min(3 * work.window, work.rows // 2), 0, 0
    with closing(contender.epoch(work)) as steps:
        for step in steps:
            if step.buffered is None:
                return None
            received += step.rows
            if received >= quick:
                break
        for step in islice(steps, _SLOW_BATCHES):
            time.sleep(_SLOW_S)
            most = max(most, step.buffered() if step.buffered else 0)
    return most


def _peak_bytes() -> int:
    """The most memory that this process has had so far."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would be that of the process that started this one, if it had more
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM:")) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    answer(measure)

"""Signals to the whole process group, as a scheduler sends them before it kills: only the trainer takes notice (WRK-21)."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from tests.integration.test_exits import assert_end, run_script

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals to process groups are POSIX"),
]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return lancedb.connect(tmp_path).create_table("t", pa.table({"id": range(24)}))


# Every process of the script gets every signal, the trainer has handlers, as for preemption.
SIGNALLED = """
    import multiprocessing, os, signal, time
    NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
    def to_all(numbers):
        for number in numbers:
            os.killpg(0, number)
            time.sleep(0.1)
"""


def lines(shown: subprocess.CompletedProcess[str]) -> list[str]:
    assert (shown.returncode, shown.stderr) == (0, "")
    return shown.stdout.splitlines()


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_pass_goes_on_under_signals_to_the_process_group(method: str, tmp_path: Path, table: Any) -> None:
    """While the fork server and workers start (their main module takes a while), before the first batch and between batches."""
    shown = run_script(
        tmp_path,
        SIGNALLED
        + f"""
    if __name__ == "__mp_main__":
        open(sys.argv[1] + "/started", "a").close()
        time.sleep(2)
    if __name__ == "__main__":
        seen = []
        for number in NUMBERS:
            signal.signal(number, lambda number, frame: seen.append(number))
        loader.multiprocessing_context = "{method}"
        received, processes = [], set()
        iterator = iter(loader)
        iterator.begin()
        while not os.path.exists(sys.argv[1] + "/started"):
            time.sleep(0.01)
        to_all(NUMBERS)
        for batch, process in iterator:
            received += batch
            processes.add(process)
            to_all(NUMBERS)
        print(sorted(received) == list(range(24)), len(processes), sorted(set(seen)) == sorted(NUMBERS))
    """,
    )
    assert lines(shown) == ["True 2 True"]


def test_processes_of_others_obey(tmp_path: Path, table: Any) -> None:
    """A process from a fork server, beside ours, ends by `terminate()`; so does a program that a worker starts."""
    shown = run_script(
        tmp_path,
        SIGNALLED
        + """
    if __name__ == "__main__":
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        iterator = iter(StreamingDataLoader(dataset, batch_size=4, num_workers=1, collate_fn=jobs.end_a_program))
        print(next(iterator))
        other = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(100,))
        other.start()
        other.terminate()
        other.join(50)
        print(other.exitcode)
    """,
    )
    assert lines(shown) == ["-15", "-15"]


def test_a_signal_that_ends_the_trainer_ends_the_workers(tmp_path: Path, table: Any) -> None:
    """WRK-15: they are deaf to it, but not alone for long."""
    shown = run_script(
        tmp_path,
        SIGNALLED
        + """
    if __name__ == "__main__":
        iterator = iter(loader)
        print(next(iterator)[1], next(iterator)[1], flush=True)
        to_all([signal.SIGTERM])
    """,
    )
    assert shown.returncode == -signal.SIGTERM
    assert_end([int(word) for word in shown.stdout.split()])

"""How scripts end: without a guard, with live iterators, with workers that are starting, with calls that wait (WRK-15, WRK-18, REA-6)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.processes
ROWS = 24


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return lancedb.connect(tmp_path).create_table("t", pa.table({"id": range(ROWS)}))


SCRIPT = """
    import lancedb, sys
    from streaming import StreamingDataLoader, StreamingDataset
    from tests.integration import jobs
    table = lancedb.connect(sys.argv[1]).open_table("t")
    dataset = StreamingDataset(table, num_splits=4, shuffle_seed=1)
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=2, collate_fn=jobs.with_process)
"""


def run_script(tmp_path: Path, body: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(SCRIPT) + textwrap.dedent(body))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(tmp_path)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=240, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )


def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path, table: Any) -> None:
    shown = run_script(tmp_path, "print(len(list(loader)))")
    assert shown.returncode == 1
    assert "MainGuardError" in shown.stderr
    assert 'if __name__ == "__main__":' in shown.stderr.splitlines()[-1] + shown.stderr
    assert "WorkerFailedError" in shown.stderr.splitlines()[-1]


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_may_end_with_live_iterators(method: str, tmp_path: Path, table: Any) -> None:
    """Also with some that live until modules are taken apart, and where workers are children of the trainer."""
    shown = run_script(
        tmp_path,
        f"""
        if __name__ == "__main__":
            loader.multiprocessing_context = "{method}"
            jobs.kept = iterator = iter(loader)
            print(sorted(next(iterator)[0]) != [])
            jobs.kept_too = half = iter(StreamingDataset(table, num_splits=4, shuffle_seed=1))
            next(half)
        """,
    )
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "True\n", "")


def test_a_script_may_end_while_a_worker_is_still_starting(tmp_path: Path, table: Any) -> None:
    """At exit multiprocessing first unlinks its semaphores, then ends workers; the pause between is a busy machine's (seen once in CI)."""
    shown = run_script(
        tmp_path,
        """
        import os, time
        from multiprocessing.util import Finalize
        if __name__ == "__mp_main__":
            try:
                os.close(os.open(sys.argv[1] + "/first", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                time.sleep(1)
        if __name__ == "__main__":
            Finalize(None, time.sleep, args=(3,), exitpriority=0)
            iterator = iter(loader)
            print(sorted(next(iterator)[0]) != [])
        """,
    )
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "True\n", "")


def test_a_script_may_end_with_calls_of_a_transform_waiting(tmp_path: Path, table: Any) -> None:
    """REA-6: at exit the call in progress ends, and none of those that wait for a thread begins."""
    shown = run_script(
        tmp_path,
        """
        import atexit, time
        if __name__ == "__main__":
            calls = []
            def slow(batch):
                calls.append(1)
                time.sleep(1)
                return {"id": batch["id"].to_numpy()}
            ahead = StreamingDataset(table, columnar_transform=slow, transform_parallelism=1, transform_queue_depth=20)
            iterator = iter(StreamingDataLoader(ahead, batch_size=1))
            next(iterator)
            begun = len(calls)
            atexit.register(lambda: print(len(calls) - begun <= 2))
        """,
    )
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "True\n", "")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_workers_end_with_a_killed_trainer(tmp_path: Path, table: Any) -> None:
    """Also under forkserver, whose process id torch's own watch takes for the trainer's."""
    shown = run_script(
        tmp_path,
        """
        if __name__ == "__main__":
            import os, signal
            iterator = iter(loader)
            print(next(iterator)[1], next(iterator)[1], flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert shown.returncode == -signal.SIGKILL
    assert_end([int(word) for word in shown.stdout.split()])


def assert_end(workers: list[int]) -> None:
    assert len(set(workers)) == 2
    deadline = time.monotonic() + 20
    while (left := [pid for pid in workers if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


@pytest.mark.parametrize("how", ["-", "-c"])
def test_a_script_without_a_file(how: str, tmp_path: Path, table: Any) -> None:
    """WRK-18: from standard input it is refused; as a notebook it works, with functions of modules."""
    body = textwrap.dedent(SCRIPT) + 'if __name__ == "__main__":\n    print(len(list(loader)))\n'
    command = [sys.executable, how, *([body] if how == "-c" else []), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shown = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=240, env=environment, input=body if how == "-" else ""
    )
    if how == "-c":
        assert (shown.returncode, shown.stdout, shown.stderr) == (0, "6\n", "")
    else:
        assert "MainFileError" in shown.stderr.splitlines()[-1]

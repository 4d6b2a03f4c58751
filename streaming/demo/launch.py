"""The ranks of one run, seen from outside: start, watch, freeze, kill. Every wait ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import streaming
from streaming.demo import logs
from streaming.demo.rank import Job
from streaming.demo.settings import DemoError

# Longer than the ranks' own patience with each other, so that the rank which knows the reason speaks first.
_PATIENCE_S: Final = 150.0
_KILL_PATIENCE_S: Final = 30.0
_FREEZE_S: Final = 0.05
_ERROR_LINES: Final = 12


class Ranks:
    """The processes of one run. Leaving the ``with`` block ends those that still run.

    Parameters
    ----------
    jobs : sequence of Job
        One for each rank.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._logs = [Path(job.log) for job in jobs]
        self._errors = [log.with_suffix(".stderr") for log in self._logs]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._written, self._written_at = -1, time.monotonic()
        try:
            for job, error in zip(jobs, self._errors, strict=True):
                self._processes.append(_start(job, error))
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def last_step(self) -> int:
        """Return the highest step in the logs so far, -1 before the first."""
        return max(logs.last_step(log) for log in self._logs)

    def finished(self) -> bool:
        """Whether all ranks have ended well.

        Raises
        ------
        DemoError
            A rank died, or no rank has logged anything for long.
        """
        codes = [process.poll() for process in self._processes]
        died = [rank for rank, code in enumerate(codes) if code]
        if died:
            raise DemoError(
                "\n".join(f"rank {rank} ended by itself with exit code {codes[rank]}:\n{self._last_words(rank)}" for rank in died)
            )
        written = sum(log.stat().st_size for log in self._logs if log.exists())
        if written != self._written:
            self._written, self._written_at = written, time.monotonic()
        elif time.monotonic() - self._written_at > _PATIENCE_S:
            raise DemoError(f"no rank has made a step for {_PATIENCE_S:.0f} s")
        return all(code == 0 for code in codes)

    def freeze(self) -> None:
        """Stop all ranks where they are, without their knowledge, so that one can look before the kill."""
        for process in self._processes:
            process.send_signal(signal.SIGSTOP)
        time.sleep(_FREEZE_S)

    def thaw(self) -> None:
        """Let frozen ranks go on."""
        for process in self._processes:
            process.send_signal(signal.SIGCONT)

    def kill(self) -> list[int]:
        """Kill the ranks that still run (SIGKILL, which no process can handle), and return all exit codes."""
        for process in self._processes:
            process.kill()
        codes = []
        for process in self._processes:
            codes.append(process.wait(_KILL_PATIENCE_S))
            if process.stdin is not None:
                process.stdin.close()
        return codes

    def _last_words(self, rank: int) -> str:
        lines = self._errors[rank].read_text(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-_ERROR_LINES:])


def _start(job: Job, errors: Path) -> subprocess.Popen[bytes]:
    with errors.open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "streaming.demo.rank", job.to_json()],
            # Its closing tells the rank that the demo is gone.
            stdin=subprocess.PIPE,
            stdout=stderr,
            stderr=stderr,
            env=_environment(Path(job.store).parent),
            # Ctrl-C reaches the demo alone, which then ends its ranks.
            start_new_session=True,
        )


def _environment(directory: Path) -> dict[str, str]:
    """The environment of this process, with this very package importable and torch.distributed kept on this machine."""
    environment = dict(os.environ)
    package = str(Path(streaming.__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
    # torch leaves a cache folder where temporary files go: let it go with the demo's own.
    environment["TMPDIR"] = str(directory)
    # A launcher's variables would speak of other ranks than these.
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback is not None:
        environment.setdefault("GLOO_SOCKET_IFNAME", loopback)
    return environment

"""What real worker processes import: functions at the top level of a module, which pickle by name."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
import time
from typing import Any

import lancedb
import torch


def with_process(rows: list[dict[str, Any]]) -> tuple[list[int], int]:
    """The ids of a batch, and the process that made it."""
    return [row["id"] for row in rows], os.getpid()


def process_of_row(row: dict[str, Any]) -> tuple[int, int]:
    return row["id"], os.getpid()


def raise_value_error(rows: list[dict[str, Any]]) -> Any:
    return _fail(rows, ValueError("bad row"))


def raise_system_exit(rows: list[dict[str, Any]]) -> Any:
    return _fail(rows, SystemExit(3))


def raise_keyboard_interrupt(rows: list[dict[str, Any]]) -> Any:
    return _fail(rows, KeyboardInterrupt())


def raise_stop_iteration(rows: list[dict[str, Any]]) -> Any:
    return _fail(rows, StopIteration())


def kill_itself(rows: list[dict[str, Any]]) -> Any:
    if any(row["id"] == 10 for row in rows):
        os.kill(os.getpid(), signal.SIGKILL)
    return with_process(rows)


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("cannot be sent")


def cannot_be_sent(rows: list[dict[str, Any]]) -> Any:
    """Batches of which one cannot travel to the trainer."""
    return Unpicklable() if any(row["id"] == 10 for row in rows) else with_process(rows)


def needs_gradient(rows: list[dict[str, Any]]) -> Any:
    """A tensor that torch refuses to send: part of a graph."""
    return torch.ones(2, requires_grad=True) * 2


def sleep(rows: list[dict[str, Any]]) -> Any:
    if any(row["id"] == 10 for row in rows):
        time.sleep(60)
    return with_process(rows)


def _fail(rows: list[dict[str, Any]], error: BaseException) -> Any:
    if any(row["id"] == 10 for row in rows):
        raise error
    return with_process(rows)


def transform_10_fails(batch: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    if any(row["id"] == 10 for row in rows):
        raise ValueError("bad row")
    return rows


def seen_by_init(worker_id: int) -> None:
    torch.manual_seed(worker_id)
    os.environ["SEEN_BY_INIT"] = str(worker_id)


def ignore_sigterm(worker_id: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def with_environment(rows: list[dict[str, Any]]) -> str:
    return os.environ.get("SEEN_BY_INIT", "nothing")


class HoldsDataset:
    """A collate function that refers to the dataset."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __call__(self, rows: list[dict[str, Any]]) -> tuple[list[int], int]:
        return with_process(rows)


def raise_stupid_error(rows: list[dict[str, Any]]) -> Any:
    return _fail(rows, RuntimeError("DataLoader worker, stupid"))


class Reopen:
    """A connection factory with its own idea of where the table is."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __call__(self, name: str) -> Any:
        return lancedb.connect(self.uri).open_table(name)


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def id_alone(row: dict[str, Any]) -> list[int]:
    return [row["id"]]


def end_a_program(rows: list[dict[str, Any]]) -> int:
    """What a program says that a worker started and told to end."""
    program = subprocess.Popen(["sleep", "100"])
    program.terminate()
    return program.wait(50)


def heavy(rows: list[dict[str, Any]]) -> tuple[list[int], int, str]:
    """A batch on the row path that does not fit into a pipe."""
    return *with_process(rows), "x" * 300_000


def heavy_at_10(rows: list[dict[str, Any]]) -> tuple[list[int], str]:
    return ids(rows), "x" * (3_000_000 if 10 in ids(rows) else 300_000)


def long_error(rows: list[dict[str, Any]]) -> Any:
    if 10 in ids(rows):
        raise ValueError("bad row " + "x" * 300_000)
    return with_process(rows)


def little_memory(worker_id: int) -> None:
    """No file of this process grows beyond a megabyte, one in memory neither."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))


def dies_when_idle(rows: list[dict[str, Any]]) -> list[int]:
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return ids(rows)

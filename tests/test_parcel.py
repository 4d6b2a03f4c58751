"""How batches travel (WRK-6, WRK-14): whole, writable, in messages that a pipe takes in one piece."""

from __future__ import annotations

import errno
import multiprocessing.reduction
import os
import pickle
import select
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from streaming import parcel
from streaming.errors import SharedMemoryError
from streaming.parcel import Parcel


def sent(item: Any) -> tuple[bytes, Any]:
    """The message, numbered as torch's queue numbers it, and what arrives."""
    message = bytes(ForkingPickler.dumps((10**9, Parcel(item))))
    return message, pickle.loads(message)[1]


@pytest.mark.parametrize("size", [0, 1, 2**10, 2**11, 3000, 3300, 3500, 3584, 3600, 3850, 3950, 4000, 4096, 2**16, 3 * 2**20])
def test_messages_are_written_in_one_piece_and_arrive_whole(size: int) -> None:
    for item in (b"\x07" * size, np.full(size, 7, np.uint8), [np.full(size // 5, 7, np.uint8)] * 2 + [np.zeros(0)]):
        message, arrived = sent(item)
        assert len(message) + 4 <= select.PIPE_BUF, "with its length before it"
        assert pickle.dumps(arrived) == pickle.dumps(item)


def test_many_columns_and_views_of_every_kind() -> None:
    columns = {f"column {number}": torch.arange(number) for number in range(600)}
    columns["matrix"] = torch.arange(12).reshape(3, 4).T
    columns["bits"] = torch.ones(5, dtype=torch.bfloat16)
    message, arrived = sent(columns)
    assert len(message) + 4 <= select.PIPE_BUF
    assert all(torch.equal(arrived[name], column) for name, column in columns.items())
    assert sent(np.asfortranarray(np.arange(6).reshape(2, 3)))[1].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("rows", [3, 3000])
def test_what_arrives_can_be_written(rows: int) -> None:
    """BAT-8."""
    _, arrived = sent({"a": np.zeros(rows), "b": torch.zeros(rows)})
    arrived["a"][:] = 1
    arrived["b"][:] = 1
    assert float(arrived["b"].sum()) == arrived["a"].sum() == rows


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="file descriptors are counted through /proc")
def test_one_descriptor_a_batch_and_none_without_it() -> None:
    count = len(os.listdir("/proc/self/fd"))
    kept = [sent([np.zeros(1000), np.zeros(2000)])[1] for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) - count in (20, 21), "one may be that of Python's server of descriptors"
    del kept
    assert len(os.listdir("/proc/self/fd")) - count in (0, 1)


def test_no_space_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent; what was opened is closed."""
    monkeypatch.setattr(parcel, "_shared", no_space)
    with pytest.raises(SharedMemoryError, match="No space left"):
        Parcel(b"x" * 10_000)
    sent(b"x" * 1000)


def no_space(*arguments: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_without_files_in_memory_and_without_descriptors_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems: a temporary file, or all through the pipe."""
    assert parcel._DUPLICATE is multiprocessing.reduction.DupFd
    item = {"a": np.arange(5000)}
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert sent(item)[1]["a"].tolist() == list(range(5000))
    monkeypatch.setattr(parcel, "_DUPLICATE", None)
    message, arrived = sent(item)
    assert len(message) > 5000 * 8
    assert arrived["a"].tolist() == list(range(5000))

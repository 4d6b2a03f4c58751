"""How a batch travels from a worker: all of it in one piece of shared memory (WRK-6, WRK-14).

torch sends every tensor of a batch as a file descriptor of its own, which costs about half a millisecond each. Here the whole batch
takes one: with 8 narrow columns, a worker delivers several times as many rows a second.

What goes through the pipe is small enough to be written in one piece: a worker that is killed has sent it or has not, and nobody
waits for the rest of a message. Shared memory is written by calls that can fail, never as mapped memory: where there is no space left,
that is an error and not the end of the process.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import select
import tempfile
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import torch

from streaming.errors import SharedMemoryError

_ALIGNMENT: Final = 64
# With room for what torch's queue and multiprocessing put around it.
_MOST_BYTES_IN_PIPE: Final = max(0, getattr(select, "PIPE_BUF", 512) - 512)
_DUPLICATE: Callable[[int], Any] | None = getattr(reduction, "DupFd", None)  # not on Windows


class Parcel:
    """An item pickled in the worker's own code, which unpickles as the item.

    torch's queue pickles in a thread of the worker, where an item that cannot be pickled is dropped: the trainer would wait for it for
    ever, or never know. Here it fails in the batch's place (WRK-14).

    Parameters
    ----------
    item : object
        What travels. NumPy arrays, tensors and Arrow data in it are not pickled but copied.

    Raises
    ------
    SharedMemoryError
        There is no space for it.
    """

    def __init__(self, item: object) -> None:
        buffers: list[pickle.PickleBuffer] = []
        text = io.BytesIO()
        _Pickler(text, pickle.HIGHEST_PROTOCOL, True, buffers.append).dump(item)
        pieces = [text.getbuffer(), *(buffer.raw() for buffer in buffers)]
        lengths = array("Q", (len(pieces), *(piece.nbytes for piece in pieces)))
        pieces.insert(0, memoryview(lengths).cast("B"))
        places = _places([piece.nbytes for piece in pieces])
        size = places[-1]
        self._unpack: Callable[..., Any]
        self._content: tuple[Any, ...]
        if size <= _MOST_BYTES_IN_PIPE or _DUPLICATE is None:
            content = bytearray(size)
            for place, piece in zip(places, pieces, strict=False):
                content[place : place + piece.nbytes] = piece
            self._unpack, self._content = _unpack, (content,)
            return
        try:
            self._unpack, self._content = _unpack_shared, (_shared(pieces, places, _DUPLICATE), size)
        except OSError as error:
            raise SharedMemoryError(
                f"a batch of {size} bytes cannot be sent from a worker: no shared memory ({error}); use fewer rows in a batch, or fewer "
                "batches ahead (num_workers, prefetch_factor)"
            ) from error

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._unpack, self._content


class _Pickler(ForkingPickler):
    """Leaves the content of arrays, and of tensors that are arrays, to the buffers (PEP 574)."""

    def reducer_override(self, value: object) -> Any:
        if type(value) is torch.Tensor and value.numel() and value.device.type == "cpu" and not value.requires_grad:
            try:
                return torch.from_numpy, (value.contiguous().numpy(),)
            except (TypeError, RuntimeError):  # no type of NumPy's, sparse, conjugated: as torch itself sends it
                return NotImplemented
        return NotImplemented


def _places(lengths: Sequence[int]) -> list[int]:
    """Where pieces of these lengths begin, each aligned, and where the last one ends."""
    return list(accumulate((-(-length // _ALIGNMENT) * _ALIGNMENT for length in lengths), initial=0))


def _shared(pieces: list[memoryview], places: list[int], duplicate: Callable[[int], Any]) -> Any:
    """Write a file in memory that has no name; returns its descriptor, to be sent."""
    with _file_in_memory() as file:
        file.truncate(places[-1])
        for place, piece in zip(places, pieces, strict=False):
            file.seek(place)
            file.write(piece)
        file.flush()
        return duplicate(file.fileno())


def _file_in_memory() -> Any:
    """Of Linux, not limited by the size of /dev/shm, which is 64 MiB in many containers; elsewhere a temporary file."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("streaming"), "wb")
    return tempfile.TemporaryFile()


def _unpack_shared(handle: Any, size: int) -> Any:
    descriptor = handle.detach()
    try:
        memory = mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
    return _unpack(memory)


def _unpack(content: bytearray | mmap.mmap) -> Any:
    """Make the item; its arrays and tensors are views of the content, which is writable (BAT-8)."""
    memory = memoryview(content)
    (count,) = memory[:8].cast("Q")
    lengths = [8 * (count + 1), *memory[8 : 8 * (count + 1)].cast("Q")]
    _, text, *buffers = (memory[begin : begin + length] for (begin, _), length in zip(pairwise(_places(lengths)), lengths, strict=True))
    return pickle.loads(text, buffers=buffers)

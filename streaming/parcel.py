"""How a batch travels from a worker: all its arrays and tensors in one piece of shared memory (WRK-6, WRK-14).

torch sends every tensor of a batch as a file descriptor of its own, which costs about half a millisecond each. Here the whole batch
takes one: with 8 narrow columns, a worker delivers several times as many rows a second.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from itertools import accumulate, pairwise
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import torch

_ALIGNMENT: Final = 64


class Parcel:
    """An item pickled in the worker's own code, which unpickles as the item.

    torch's queue pickles in a thread of the worker, where an item that cannot be pickled is dropped: the trainer would wait for it for
    ever, or never know. Here it fails in the batch's place (WRK-14).

    Parameters
    ----------
    item : object
        What travels. NumPy arrays, tensors and Arrow data in it are copied to shared memory.
    """

    def __init__(self, item: object) -> None:
        buffers: list[pickle.PickleBuffer] = []
        text = io.BytesIO()
        _Pickler(text, pickle.HIGHEST_PROTOCOL, True, buffers.append).dump(item)
        pieces = [buffer.raw() for buffer in buffers]
        places = list(accumulate((-(-piece.nbytes // _ALIGNMENT) * _ALIGNMENT for piece in pieces), initial=0))
        spans = [(begin, begin + piece.nbytes) for (begin, _), piece in zip(pairwise(places), pieces, strict=True)]
        shared = _shared_bytes(places[-1])
        if shared is not None:
            memory = shared.numpy()
            for (begin, end), piece in zip(spans, pieces, strict=True):
                memory[begin:end] = piece
        self._pickled = bytes(ForkingPickler.dumps((text.getvalue(), shared, spans)))

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return _unpack, (self._pickled,)


class _Pickler(ForkingPickler):
    """Leaves the content of arrays, and of tensors that are arrays, to the buffers (PEP 574)."""

    def reducer_override(self, value: object) -> Any:
        if type(value) is torch.Tensor and value.numel() and value.device.type == "cpu" and not value.requires_grad:
            try:
                return torch.from_numpy, (value.contiguous().numpy(),)
            except (TypeError, RuntimeError):  # no type of NumPy's, sparse, conjugated: as torch itself sends it
                return NotImplemented
        return NotImplemented


def _shared_bytes(size: int) -> torch.Tensor | None:
    """Shared memory, as torch's own collate function asks for it: without first filling memory of this process."""
    if size == 0:
        return None
    storage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def _unpack(pickled: bytes) -> Any:
    text, shared, spans = ForkingPickler.loads(pickled)
    memory = memoryview(b"" if shared is None else shared.numpy())
    return pickle.loads(text, buffers=[memory[begin:end] for begin, end in spans])

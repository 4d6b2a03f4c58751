"""Which rows of a table are selected, compactly: a bitmap with counts (REA-7).

It stands where a list of offsets would take 64 bits for each selected row, and every worker process a copy of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import torch

from streaming.order import Positions

_BLOCK: Final = 16  # bytes of bitmap, 128 rows, behind each count
_ONES: Final = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint8)
# The place of the n-th one of a byte.
_PLACE: Final = np.array([([i for i in range(8) if byte >> i & 1] + [0] * 8)[:8] for byte in range(256)], dtype=np.uint64)


class Selection:
    """A set of row offsets, in ascending order.

    Held in torch tensors, because those are put into shared memory when they are sent to a worker.

    Parameters
    ----------
    offsets : iterable of arrays
        The offsets, each once, in any order, arrays of shape (n,).
    rows : int
        How many rows there may be; more are made room for.

    Examples
    --------
    >>> selection = Selection([np.array([9, 3], dtype=np.uint64), np.array([200], dtype=np.uint64)], rows=10)
    >>> len(selection), selection.offsets(np.arange(3, dtype=np.uint64)).tolist()
    (3, [3, 9, 200])
    """

    def __init__(self, offsets: Iterable[Positions], rows: int) -> None:
        bits = np.zeros(_bytes_for(rows), dtype=np.uint8)
        for some in offsets:
            needed = _bytes_for(int(some.max()) + 1) if len(some) else 0
            if needed > len(bits):
                bits = np.concatenate([bits, np.zeros(needed - len(bits), dtype=np.uint8)])
            places = (some & np.uint64(7)).astype(np.uint8)
            np.bitwise_or.at(bits, (some >> np.uint64(3)).astype(np.intp), np.left_shift(1, places, dtype=np.uint8))
        ones = _ONES[bits].reshape(-1, _BLOCK).sum(axis=1, dtype=np.int64)
        self._bits = torch.from_numpy(bits)
        # Ones before each block, and all of them at the end.
        self._before = torch.from_numpy(np.concatenate([[0], np.cumsum(ones)]))

    def __len__(self) -> int:
        return int(self._before[-1])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._bits.nbytes + self._before.nbytes

    def offsets(self, selected: Positions) -> Positions:
        """Offsets of these selected row numbers, an array of the same shape (n,)."""
        before = self._before.numpy()
        numbers = selected.astype(np.int64)
        block = np.searchsorted(before, numbers, side="right") - 1
        rest = numbers - before[block]
        content = self._bits.numpy().reshape(-1, _BLOCK)[block]
        ones = _ONES[content]
        upto = np.cumsum(ones, axis=1, dtype=np.uint8)
        byte = (upto <= rest[:, None]).sum(axis=1)
        here = np.arange(len(numbers)), byte
        rest -= upto[here].astype(np.int64) - ones[here]
        offsets: Positions = (block * _BLOCK + byte).astype(np.uint64) * np.uint64(8) + _PLACE[content[here], rest]
        return offsets

    def all(self) -> Positions:
        """All offsets."""
        return np.flatnonzero(np.unpackbits(self._bits.numpy(), bitorder="little")).astype(np.uint64)


def _bytes_for(rows: int) -> int:
    return -(-rows // (8 * _BLOCK)) * _BLOCK

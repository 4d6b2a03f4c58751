"""The row order of an epoch (spec/order.md), vectorised with NumPy.

Nothing here costs memory or time that grows with the number of rows (ORD-10).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.uint64]

ORDER_VERSION: Final = 1

_WORD: Final = 2**64
_GAMMA: Final = 0x9E3779B97F4A7C15
_MULTIPLY: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFT: Final = (np.uint64(30), np.uint64(27), np.uint64(31))
_SMALL_DOMAIN: Final = 65536


def _mix(x: Positions) -> Positions:
    """Mix words (ORD-2); overwrites its argument, which must be a scratch array."""
    x ^= x >> _SHIFT[0]
    x *= _MULTIPLY[0]
    x ^= x >> _SHIFT[1]
    x *= _MULTIPLY[1]
    x ^= x >> _SHIFT[2]
    return x


def _round_keys(seed: int, epoch: int, rounds: int) -> Positions:
    """Keys of all rounds (ORD-3)."""
    keys = np.array([(seed + (i + 1) * _GAMMA) % _WORD for i in range(rounds)], dtype=np.uint64)
    keys = _mix(keys)
    keys += np.uint64(epoch)
    return _mix(keys)


class Permutation:
    """A keyed bijection on ``[0, size)`` (ORD-2 to ORD-6).

    Parameters
    ----------
    size : int
        Elements of the domain, ``1 <= size < 2**63``.
    seed, epoch : int
        The key, each in ``[0, 2**63)``.

    Examples
    --------
    >>> p = Permutation(5, seed=7, epoch=0)
    >>> sorted(p.forward(np.arange(5, dtype=np.uint64)).tolist())
    [0, 1, 2, 3, 4]
    >>> p.inverse(p.forward(np.array([3], dtype=np.uint64))).tolist()
    [3]
    """

    def __init__(self, size: int, seed: int, epoch: int) -> None:
        bits = max(2, (size - 1).bit_length())
        right = bits // 2
        self._size = np.uint64(size)
        self._width = np.uint64(right)
        # Even rounds change the left half, odd rounds the right one.
        self._masks = (np.uint64(2 ** (bits - right) - 1), np.uint64(2**right - 1))
        self._keys = _round_keys(seed, epoch, 24 if size <= _SMALL_DOMAIN else 12)

    def forward(self, x: Positions) -> Positions:
        """Map elements, any number at once (ORD-6)."""
        return self._walk(x, range(len(self._keys)))

    def inverse(self, y: Positions) -> Positions:
        """Undo `forward` (ORD-6)."""
        return self._walk(y, range(len(self._keys) - 1, -1, -1))

    def _walk(self, x: Positions, rounds: range) -> Positions:
        y = self._once(x, rounds)
        outside = np.flatnonzero(y >= self._size)
        while outside.size:
            walked = self._once(y[outside], rounds)
            y[outside] = walked
            outside = outside[walked >= self._size]
        return y

    def _once(self, x: Positions, rounds: range) -> Positions:
        halves = [x >> self._width, x & self._masks[1]]
        for i in rounds:
            changed = i % 2
            word = _mix(halves[1 - changed] + self._keys[i])
            word &= self._masks[changed]
            halves[changed] ^= word
        left, right = halves
        left <<= self._width
        left |= right
        return left


class Order:
    """The sequence of selected row numbers of one epoch (TRM-2).

    Parameters
    ----------
    rows : int
        Selected rows N, ``1 <= N < 2**63``.
    shuffle : bool
        False: storage order (ORD-1); `seed`, `epoch` and `clump` do not matter then.
    seed : int or None
        Shuffle seed; None only without shuffle.
    epoch : int
        Epoch.
    clump : int or None
        Rows that move together (ORD-8); None is 1.

    Examples
    --------
    >>> order = Order(rows=6, shuffle=True, seed=1, epoch=0, clump=3)
    >>> sequence = order.row(np.arange(6, dtype=np.uint64))
    >>> sorted(sequence.tolist())
    [0, 1, 2, 3, 4, 5]
    >>> order.position(sequence).tolist()
    [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, rows: int, shuffle: bool, seed: int | None, epoch: int, clump: int | None = None) -> None:
        self._permutation: Permutation | None = None
        # A clump longer than the table is the table.
        size = min(clump or 1, rows)
        self._clump = np.uint64(size)
        if not shuffle:
            return
        clumps = -(-rows // size)
        self._permutation = Permutation(clumps, seed or 0, epoch)
        if size == 1:
            return
        # The sequence with the short last clump filled up: rows that it lacks, and where it begins and would end.
        lacking = clumps * size - rows
        start = int(self._permutation.inverse(np.array([clumps - 1], dtype=np.uint64))[0]) * size
        self._lacking = np.uint64(lacking)
        self._short_end = np.uint64(start + size - lacking)
        self._filled_end = np.uint64(start + size)

    @property
    def keeps_neighbours(self) -> bool:
        """Whether rows that are neighbours in storage come together."""
        return self._permutation is None or bool(self._clump > 1)

    def row(self, position: Positions) -> Positions:
        """Selected row numbers at these positions (ORD-1, ORD-7, ORD-8)."""
        if self._permutation is None:
            return position.copy()
        if self._clump == 1:
            return self._permutation.forward(position)
        filled = position + (position >= self._short_end) * self._lacking
        place, offset = np.divmod(filled, self._clump)
        return self._permutation.forward(place) * self._clump + offset

    def position(self, row: Positions) -> Positions:
        """Positions of these selected row numbers (ORD-9)."""
        if self._permutation is None:
            return row.copy()
        if self._clump == 1:
            return self._permutation.inverse(row)
        clump, offset = np.divmod(row, self._clump)
        filled = self._permutation.inverse(clump) * self._clump + offset
        return filled - (filled >= self._filled_end) * self._lacking

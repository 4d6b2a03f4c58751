"""The row order of an epoch, to the bit (chapter order).

The arithmetic is that of unsigned 64-bit integers: sums and products are cut to 64 bits at once, so that every line can
be ported to a language with wrapping integers as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
MIX_FIRST = 0xBF58476D1CE4E5B9
MIX_SECOND = 0x94D049BB133111EB

SMALL_DOMAIN = 65536
ROUNDS_SMALL = 24
ROUNDS_LARGE = 12

ORDER_VERSION = 1
"""The number of this reading of the chapter (ORD-12)."""


def mix(x: int) -> int:
    """Scramble 64 bits (ORD-2)."""
    x = x ^ (x >> 30)
    x = (x * MIX_FIRST) & WORD
    x = x ^ (x >> 27)
    x = (x * MIX_SECOND) & WORD
    return x ^ (x >> 31)


def round_key(seed: int, epoch: int, i: int) -> int:
    """The key of round i (ORD-3)."""
    inner = mix((seed + (i + 1) * GOLDEN) & WORD)
    return mix((inner + epoch) & WORD)


def rounds(size: int) -> int:
    """T, the rounds of one walk on a domain of that many elements (ORD-5)."""
    return ROUNDS_SMALL if size <= SMALL_DOMAIN else ROUNDS_LARGE


def halves(size: int) -> tuple[int, int]:
    """The bits of the left and the right half, ``(v, w)`` (ORD-4)."""
    bits = max(2, (size - 1).bit_length())
    return bits - bits // 2, bits // 2


def walk(x: int, size: int, seed: int, epoch: int) -> int:
    """One walk: all rounds on ``[0, 2**b)``, a bijection there (ORD-5)."""
    v, w = halves(size)
    left = x >> w
    right = x & ((1 << w) - 1)
    for i in range(rounds(size)):
        key = round_key(seed, epoch, i)
        if i % 2 == 0:
            left = left ^ (mix((right + key) & WORD) & ((1 << v) - 1))
        else:
            right = right ^ (mix((left + key) & WORD) & ((1 << w) - 1))
    return (left << w) | right


def walk_back(y: int, size: int, seed: int, epoch: int) -> int:
    """Undo ``walk``: each round is its own inverse, so the same rounds in reverse (ORD-6)."""
    v, w = halves(size)
    left = y >> w
    right = y & ((1 << w) - 1)
    for i in reversed(range(rounds(size))):
        key = round_key(seed, epoch, i)
        if i % 2 == 0:
            left = left ^ (mix((right + key) & WORD) & ((1 << v) - 1))
        else:
            right = right ^ (mix((left + key) & WORD) & ((1 << w) - 1))
    return (left << w) | right


def permute(x: int, size: int, seed: int, epoch: int) -> int:
    """``perm(x)`` on ``[0, size)``: walk until back in the domain (ORD-6).

    Walking follows a cycle of a bijection that starts inside the domain, so it comes back into it; fewer than four
    walks are needed on average, since ``2**b < 2 * size`` above the smallest domains.
    """
    assert 0 <= x < size
    y = walk(x, size, seed, epoch)
    while y >= size:
        y = walk(y, size, seed, epoch)
    return y


def permute_inverse(y: int, size: int, seed: int, epoch: int) -> int:
    """The x with ``permute(x) == y`` (ORD-6)."""
    assert 0 <= y < size
    x = walk_back(y, size, seed, epoch)
    while x >= size:
        x = walk_back(x, size, seed, epoch)
    return x


@dataclass(frozen=True)
class Order:
    """The order of one epoch: a bijection between positions and selected row numbers.

    Parameters
    ----------
    rows : int
        N, ``1 <= rows <= 2**63 - 1`` (ORD-11).
    shuffle : bool
        False: storage order (ORD-1).
    seed : int or None
        ``shuffle_seed``. None only without shuffle.
    epoch : int
        Which order.
    clump : int or None
        ``shuffle_clump_size``; None is the same as 1 (ORD-7).
    """

    rows: int
    shuffle: bool
    seed: int | None
    epoch: int
    clump: int | None = None

    def row(self, position: int) -> int:
        """The selected row number at a position of the sequence (ORD-1, ORD-7, ORD-8)."""
        assert 0 <= position < self.rows
        if not self.shuffle:
            return position
        size, clump, last, place = self._clumps()
        seed = self._seed()
        # Before the place of the short last clump all clumps are full; after it they are full again, but h rows earlier than if it were.
        if position < place * clump:
            return permute(position // clump, size, seed, self.epoch) * clump + position % clump
        if position < place * clump + last:
            return (size - 1) * clump + position - place * clump
        moved = position + clump - last
        return permute(moved // clump, size, seed, self.epoch) * clump + moved % clump

    def position(self, row: int) -> int:
        """The position of a selected row number, the inverse of ``row`` (ORD-9)."""
        assert 0 <= row < self.rows
        if not self.shuffle:
            return row
        size, clump, last, place = self._clumps()
        stands = permute_inverse(row // clump, size, self._seed(), self.epoch)
        start = stands * clump
        if stands > place:
            start = start - (clump - last)
        return start + row % clump

    def _clumps(self) -> tuple[int, int, int, int]:
        """``(M, c, h, q)``: clumps, rows of a clump, rows of the last clump, the place where it stands (ORD-8)."""
        clump = 1 if self.clump is None else self.clump
        size = (self.rows + clump - 1) // clump
        last = self.rows - (size - 1) * clump
        place = permute_inverse(size - 1, size, self._seed(), self.epoch)
        return size, clump, last, place

    def _seed(self) -> int:
        assert self.seed is not None, "a shuffled order has a seed (ARG-5)"
        return self.seed

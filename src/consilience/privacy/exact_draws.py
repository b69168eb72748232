"""Exact draws of discrete noise, a million at a time: random words are looked up among bounds that are proven.

Both laws give a whole number z a chance in proportion to exp(−f(|z|)), where f grows:

    discrete Laplace    f(z) = z / scale             discrete Gaussian    f(z) = z² / (2 scale²)

and `scale` is the rational number that the float is. Let B be a power of two. A draw is made in four steps:

1. A block k = 0, 1, 2, … is drawn with the chance exp(−f(Bk)) / Σᵢ exp(−f(Bi)).
2. A place j = 0, …, B − 1 in it and a sign are drawn uniformly: bits of a random word.
3. It is kept with the chance exp(−(f(Bk + j) − f(Bk))), which is at most 1 because f grows; else all is drawn anew.
4. It is drawn anew, too, if it is zero with a minus sign.

So ±(Bk + j) comes with a chance in proportion to exp(−f(Bk)) · exp(−(f(Bk + j) − f(Bk))) = exp(−f(Bk + j)), and zero,
which only one sign leaves, with half the chance of both signs of it: that is the law, to the last digit.

Steps 1 and 3 ask whether a uniform random number U lies below a real number p, with U known to 64 bits and p to lie
between two fractions. Nearly always that decides. Where it does not, U gets 64 bits more and p is found to as many,
until it does (`_is_below`, `_block_of`). Nothing is cut off: neither the tail of the law nor the digits of a
probability. All bounds are whole numbers, rounded downwards or upwards by integer arithmetic; no floating-point number
takes part. Bits come from the operating system, and there is no seed.

`exp_bounds` is the exponential series with rational terms. Lookups instead of the trials of Canonne, Kamath and
Steinke (2020) are what makes a draw fast; to decide by a few digits and ask for more when in doubt is an idea of Knuth
and Yao (1976). The noise is drawn without a look at the data, so the time it takes tells nothing about them.
"""

import os
import secrets
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

LEAST_SCALE, LARGEST_SCALE = 0.25, 2.0**50
"""Draws at scales between these are far from the ends of 64 bits, and zero is not nearly all that is drawn."""

BLOCKS_PER_SCALE = 256
"""More make the table longer (44 times as many rows of the Laplace law), fewer leave more to step 3."""

WORD = 64
_GUARD = 48


@dataclass(frozen=True)
class DiscreteLaw:
    """A discrete Laplace law of this scale, or a discrete Gaussian of this standard deviation.

    >>> law = DiscreteLaw("laplace", 1000.0)
    >>> law.width, law.exponent(500)
    (2, Fraction(1, 2))
    >>> law.draw(5).shape
    (5,)
    """

    name: Literal["laplace", "gaussian"]
    scale: float

    def exponent(self, z: int) -> Fraction:
        """f(z) as an exact fraction."""
        ratio = z / Fraction(self.scale)
        return ratio if self.name == "laplace" else ratio * ratio / 2

    @property
    def width(self) -> int:
        """B, the largest power of two that is no more than this part of the scale, and at least 1."""
        return 1 << max(0, (int(self.scale) // BLOCKS_PER_SCALE).bit_length() - 1)

    def draw(self, count: int, *, word: int = WORD) -> NDArray[np.int64]:
        """Independent draws. Random words of fewer bits give the same law, more slowly: tests take them."""
        table, noise, pending = _table(self, word), np.empty(count, dtype=np.int64), np.arange(count)
        while pending.size:
            first, second, third = np.frombuffer(os.urandom(24 * pending.size), dtype=np.uint64).reshape(3, -1)
            blocks = table.blocks(first >> np.uint64(WORD - word))
            inside = (second & np.uint64(self.width - 1)).astype(np.int64)
            negative = second >> np.uint64(WORD - 1) == 1
            kept = table.keeps(blocks, inside, third >> np.uint64(WORD - word))
            size = blocks * self.width + inside
            kept &= ~(negative & (size == 0))
            noise[pending[kept]] = np.where(negative, -size, size)[kept]
            pending = pending[~kept]
        return noise


class _Table:
    """For random words of so many bits, what each says of the block, and whether a draw is kept for certain."""

    def __init__(self, law: DiscreteLaw, bits: int) -> None:
        self.law, self.bits = law, bits
        bounds = _bounds(law, bits)
        self.low = np.array(bounds.low, dtype=np.uint64)
        self.least = np.array([0, *bounds.high], dtype=np.uint64)  # the least word that is certainly in this block
        self.certain = np.array([*bounds.kept, 0], dtype=np.uint64)

    def blocks(self, words: Words) -> NDArray[np.int64]:
        """The block k of each word, which has Cₖ ≤ U < Cₖ₊₁ for Cₖ the chance of all blocks before k."""
        found = np.searchsorted(self.low, words, side="right")
        doubtful = (found == self.low.size) | (words < self.least[found])
        for i in np.flatnonzero(doubtful):
            found[i] = _block_of(self.law, int(words[i]), self.bits)
        return found

    def keeps(self, blocks: NDArray[np.int64], inside: NDArray[np.int64], words: Words) -> NDArray[np.bool_]:
        """Which draws step 3 keeps: those at the start of their block, and those whose word is below the chance."""
        kept = (inside == 0) | (words < self.certain[np.minimum(blocks, self.low.size)])
        law, width = self.law, self.law.width
        for i in np.flatnonzero(~kept):
            start = int(blocks[i]) * width
            lost = law.exponent(start + int(inside[i])) - law.exponent(start)
            kept[i] = _is_below(lost, int(words[i]), self.bits)
        return kept


_table = lru_cache(maxsize=64)(_Table)


def _is_below(x: Fraction, word: int, bits: int) -> bool:
    """Whether U < exp(−x), for a uniform U in [0, 1) whose first bits are the word."""
    while True:
        word, bits = _longer(word, bits)
        low, high = exp_bounds(x, bits)
        if word < low or word >= high:  # word ≤ 2^bits U < word + 1, and all three are whole numbers
            return word < low


def _block_of(law: DiscreteLaw, word: int, bits: int) -> int:
    """The block k with Cₖ ≤ U < Cₖ₊₁, for a uniform U in [0, 1) whose first bits are the word."""
    while True:
        word, bits = _longer(word, bits)
        bounds = _bounds(law, bits)
        block = bisect_right(bounds.low, word)
        if block < len(bounds.low) and (block == 0 or word >= bounds.high[block - 1]):
            return block


def _longer(word: int, bits: int) -> tuple[int, int]:
    return word << WORD | secrets.randbits(WORD), bits + WORD


@dataclass(frozen=True)
class _Bounds:
    """In units of 2^-bits, for each block: what all blocks up to it come to, and the least chance to be kept in it."""

    low: list[int]
    high: list[int]
    kept: list[int]


@lru_cache(maxsize=8)
def _bounds(law: DiscreteLaw, bits: int) -> _Bounds:
    """Bounds of Σ_{i≤k} wᵢ / Σᵢ wᵢ with wᵢ = exp(−f(Bi)), for all blocks k that leave something to those beyond.

    f is a polynomial of degree 2 at most. So wᵢ₊₁ = wᵢ rᵢ and rᵢ₊₁ = rᵢ g with a constant g ≤ 1: each lower bound
    is multiplied by a lower one and rounded downwards, each upper bound by an upper one and upwards. As rᵢ falls, the
    weights beyond i add up to wᵢ (rᵢ + rᵢ² + …) at most, which is less than wᵢ / (1 − rᵢ).
    """
    places = bits + _GUARD
    one, step = 1 << places, law.exponent(law.width)
    ratio, change = exp_bounds(step, places), exp_bounds(law.exponent(2 * law.width) - 2 * step, places)
    weight, total = (one, one), (one, one)
    sums, kept = [total], [ratio[0] >> _GUARD]
    while weight[1] > 1 << _GUARD // 2:
        weight, ratio = _product(weight, ratio, places), _product(ratio, change, places)
        total = total[0] + weight[0], total[1] + weight[1]
        sums.append(total)
        kept.append(ratio[0] >> _GUARD)
    beyond = weight[1] * one // (one - ratio[1]) + 1
    least, most = total[0], total[1] + beyond
    low = [(each[0] << bits) // most for each in sums]
    high = [-((-each[1] << bits) // least) for each in sums]
    end = bisect_right(high, (1 << bits) - 1)
    return _Bounds(low[:end], high[:end], kept[:end])


def _product(one: tuple[int, int], other: tuple[int, int], places: int) -> tuple[int, int]:
    """Bounds of a product of numbers that are not negative."""
    return one[0] * other[0] >> places, -(-one[1] * other[1] >> places)


def exp_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Whole numbers with low ≤ 2^bits · exp(−x) ≤ high, next to each other or nearly, for x from 0 up.

    With y = x / 2^h < 1/2 they are those of exp(y) = Σ yⁿ/n!, turned around and squared h times. All terms of the
    series are positive, each at most half of the one before: what is left out is at most as much as the last term.

    >>> exp_bounds(Fraction(1), 20), 2**20 / 2.718281828459045
    ((385749, 385750), 385749.5529057863)
    """
    halvings = int(x).bit_length() + 1
    places = bits + halvings + 16
    one = 1 << places
    y = (x.numerator << places) // (x.denominator << halvings)
    term, series, n = (one, one), (one, one), 0
    while term[1] > 1:
        n += 1
        term = term[0] * y // (n * one), -(-term[1] * (y + 1) // (n * one))
        series = series[0] + term[0], series[1] + term[1]
    bounds = one * one // (series[1] + term[1]), -(-one * one // series[0])
    for _ in range(halvings):
        bounds = _product(bounds, bounds, places)
    spare = places - bits
    return bounds[0] >> spare, -(-bounds[1] >> spare)

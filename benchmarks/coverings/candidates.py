"""Recipes worth trying for a covering design, with the number of blocks that each promises before tidying."""

from collections.abc import Iterator
from math import comb

import numpy as np

from consilience.coverings.designs import DesignTable, Key

Candidate = tuple[float, str]
"""Promised size and recipe."""

NEVER = 10**9

LARGEST_POINTS, LARGEST_BLOCK = 64, 10
"""The table holds every design with block > strength up to these, for the strengths 2 to 4."""

GEOMETRIES: tuple[tuple[str, int, int, int, int], ...] = (
    *((f"affine 2 {q} 1", q * q, q, q * q + q, 2) for q in (3, 4, 5, 7, 8, 9)),
    *((f"projective 2 {q} 1", q * q + q + 1, q + 1, q * q + q + 1, 2) for q in (2, 3, 4, 5, 7, 8, 9)),
    *((f"inversive {q}", q * q + 1, q + 1, q**3 + q, 3) for q in (2, 3, 4, 5, 7, 8, 9)),
    ("affine 3 3 1", 27, 3, 117, 2),
    ("affine 3 3 2", 27, 9, 39, 3),
    ("affine 4 3 2", 81, 9, 1170, 3),
    ("affine 3 2 2", 8, 4, 14, 3),
    ("affine 4 2 2", 16, 4, 140, 3),
    ("affine 5 2 2", 32, 4, 1240, 3),
    ("affine 4 2 3", 16, 8, 30, 4),
    ("affine 5 2 3", 32, 8, 620, 4),
    ("affine 6 2 3", 64, 8, 11160, 4),
    ("projective 3 2 2", 15, 7, 15, 3),
    ("projective 4 2 2", 31, 7, 155, 3),
    ("projective 5 2 2", 63, 7, 1395, 3),
    ("projective 3 2 1", 15, 3, 35, 2),
    ("projective 4 2 1", 31, 3, 155, 2),
    ("projective 3 3 1", 40, 4, 130, 2),
    ("projective 3 3 2", 40, 13, 40, 3),
    ("projective 3 4 1", 85, 5, 357, 2),
    ("projective 3 4 2", 85, 21, 85, 3),
    ("affine 3 4 1", 64, 4, 336, 2),
    ("affine 3 4 2", 64, 16, 84, 3),
    ("octads 0", 24, 8, 759, 5),
    ("octads 1", 23, 7, 253, 4),
    ("octads 2", 22, 6, 77, 3),
    ("octads 3", 21, 5, 21, 2),
)
"""Designs from geometry: recipe without its last number, points, block, blocks, strength."""


def sizes_so_far(table: DesignTable) -> np.ndarray:
    """The number of blocks by strength, block and points, as far as the table and the trivial designs know it."""
    sizes = np.full((5, LARGEST_BLOCK + 1, LARGEST_POINTS + 1), NEVER, dtype=np.int64)
    for block in range(LARGEST_BLOCK + 1):
        for points in range(LARGEST_POINTS + 1):
            if block >= 1:
                sizes[1, block, points] = -(-points // block)
            if 2 <= block <= 4 and points >= block:
                sizes[block, block, points] = comb(points, block)
            if block >= points:
                sizes[:, block, points] = 1
    sizes[0] = 1
    for (points, block, strength), design in table.designs.items():
        sizes[strength, block, points] = design.size
    return sizes


def split_candidates(key: Key, sizes: np.ndarray) -> Iterator[Candidate]:
    """The best split for each size of the first part: the cheapest way to cut the values s = 0..t into groups."""
    points, block, strength = key
    for first in range(1, points):
        second = points - first
        low, high = max(0, strength - second), min(strength, first)
        cost: dict[int, tuple[int, str]] = {low: (0, "")}
        for end in range(low, high + 1):
            options = []
            for begin in range(low, end + 1):
                price, taken = _group(first, second, block, strength - begin, end, sizes)
                before, text = cost[begin]
                options.append((before + price, f"{text} {begin} {end} {taken}"))
            cost[end + 1] = min(options)
        size, text = cost[high + 1]
        if size < NEVER:
            yield size, f"split {first}{text}"


def _group(
    first: int, second: int, block: int, second_strength: int, first_strength: int, sizes: np.ndarray
) -> tuple[int, int]:
    """The least number of products for a group, and how many points of a block lie in the first part."""
    taken = np.arange(max(0, block - second), min(first, block) + 1)
    prices = sizes[first_strength, taken, first] * sizes[second_strength, block - taken, second]
    prices = np.where((prices < 0) | (prices > NEVER), NEVER, prices)
    return int(prices.min()), int(taken[prices.argmin()])


def weighted_candidates(key: Key, sizes: np.ndarray) -> Iterator[Candidate]:
    """Geometries and the table's own designs with points multiplied or taken away."""
    points, block, strength = key
    for name, base, line, number, covers in GEOMETRIES:
        if covers < strength:
            continue
        times = -(-points // base)
        promised = number * _expected_pieces(key, base, line, sizes)
        if promised > 10 * NEVER // 1000:
            continue
        exact = points == base * times and line * times <= block
        for backwards in range(1 if exact else 2):
            yield promised, f"{name} {backwards}"
    for times in (1, 2, 3, 4, 5):
        base, line = -(-points // times), block // times
        if times > 1 and line > strength and base > line:
            for backwards in (0, 1) if points % times else (0,):
                yield int(sizes[strength, line, base]), f"multiplied {base} {line} {backwards}"
    for base in range(points + 1, min(points + 4, LARGEST_POINTS) + 1):
        yield int(sizes[strength, block, base]), f"multiplied {base} {block} 0"
        yield int(sizes[strength, block, base]), f"multiplied {base} {block} 1"
    if block - 1 > strength:
        yield int(sizes[strength, block - 1, points]), f"multiplied {points} {block - 1} 0"


def _expected_pieces(key: Key, base: int, line: int, sizes: np.ndarray) -> float:
    """How many blocks a line of a geometry takes on average, when points are spread over the geometry by chance.

    Each of the line's points counts ⌊v/base⌋, and one more for those of them among the v mod base chosen ones.
    """
    points, block, strength = key
    each, chosen = divmod(points, base)
    ways = comb(base, chosen)
    expected = 0.0
    for more in range(max(0, chosen - (base - line)), min(line, chosen) + 1):
        share = comb(line, more) * comb(base - line, chosen - more) / ways
        expected += share * _pieces(each * line + more, block, strength, sizes)
    return expected


def _pieces(length: int, block: int, strength: int, sizes: np.ndarray) -> int:
    """How many blocks it takes to cover one that has become too short or too long."""
    if length <= block:
        return int(length >= strength)
    return int(sizes[strength, block, length]) if length <= LARGEST_POINTS else NEVER

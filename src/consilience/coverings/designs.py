"""Covering designs: blocks of ℓ of v points such that every t-set of points lies in a block."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from math import comb

import numpy as np
from numpy.typing import NDArray

from consilience.coverings.geometries import affine_flats, inversive_plane, octads, projective_flats
from consilience.coverings.searches import fewer_blocks, greedy_rows, refuse_large, tidied
from consilience.coverings.sets import Block, block_rows, row_blocks, unranked
from consilience.errors import DeclarationError, FileFormatError

# ----------------------------------------------------------------------------------------------------------------------
# Covering designs from others: points multiplied or taken away, and the points split in two parts.
#
# **Weighted points.** Each point of a design becomes as many points as its weight says; 0 takes it away. A block that
# is then too long is covered in turn; one that is too short is filled up later. (The induced coverings of Gordon,
# Kuperberg and Patashnik 1995.)
#
# **Split points.** Let the points be v₁ + v₂. A t-set with s points in the first part lies in a product of two blocks,
# one from a design for s on the first part and one from a design for t−s on the second; so products of designs over all
# s cover everything. A group of values s = a..b is served at once by designs for b and for t−a with blocks of k and ℓ−k
# points, and the sum over the groups is what the dynamic programming of the same paper makes small:
#
#     C(v, ℓ, t) ≤ Σ_groups C(v₁, k, b) · C(v₂, ℓ−k, t−a)


Design = Callable[[int, int, int], NDArray[np.int16]]
"""The rows of a covering design with these points, block size and strength."""


@dataclass(frozen=True)
class Group:
    """What covers the t-sets with `low`..`high` points in the first part: blocks with `first` points there."""

    low: int
    high: int
    first: int


def spread_weights(points: int, base: int, order: Sequence[int]) -> list[int]:
    """Weights of `base` points that add up to `points`, as equal as can be, the larger ones first in `order`.

    >>> spread_weights(5, 3, [2, 0, 1])
    [2, 1, 2]
    """
    weights = [points // base] * base
    for point in order[: points % base]:
        weights[point] += 1
    return weights


def weighted_rows(
    blocks: Sequence[Block], weights: Sequence[int], block: int, strength: int, design: Design
) -> NDArray[np.int16]:
    """Blocks of at most `block` points over Σ weights points, from a design over the points that have the weights."""
    ends = np.cumsum(weights).tolist()
    copies = [range(end - weight, end) for end, weight in zip(ends, weights, strict=True)]
    fitting: list[Sequence[int]] = []
    parts: list[NDArray[np.int16]] = []
    for each in blocks:
        replaced = [copy for point in each for copy in copies[point]]
        if len(replaced) > block:
            parts.append(np.array(replaced, dtype=np.int16)[design(len(replaced), block, strength)])
        elif len(replaced) >= strength:
            fitting.append(replaced)
    return np.concatenate([block_rows(fitting, block), *parts])


def split_rows(
    first: int, points: int, block: int, strength: int, groups: Sequence[Group], design: Design
) -> NDArray[np.int16]:
    """The products of designs on the points 0..first−1 and on the others, group by group."""
    parts = []
    for group in groups:
        if not 0 <= group.first <= min(first, block):
            raise DeclarationError(f"a block of {block} cannot hold {group.first} of the first {first} points")
        left = _part(first, group.first, group.high, design)
        right = _part(points - first, block - group.first, strength - group.low, design)
        shifted = np.where(right >= 0, right + first, -1)
        pairs = np.concatenate([np.repeat(left, len(right), axis=0), np.tile(shifted, (len(left), 1))], axis=1)
        parts.append(_packed(pairs, block))
    return np.concatenate(parts)


def _part(points: int, block: int, strength: int, design: Design) -> NDArray[np.int16]:
    """A design on one part; all of its points in one block where they fit, and any points where none is asked for."""
    if block >= points or strength == 0:
        return np.arange(min(points, block), dtype=np.int16)[None, :]
    return design(points, block, strength)


def _packed(rows: NDArray[np.int16], block: int) -> NDArray[np.int16]:
    """Ascending rows with −1 at the end, as wide as a block."""
    wide = np.full((len(rows), max(block, rows.shape[1])), np.int16(32767))
    wide[:, : rows.shape[1]] = np.where(rows < 0, np.int16(32767), rows)
    wide.sort(axis=1)
    return np.where(wide == 32767, np.int16(-1), wide)[:, :block]


# ----------------------------------------------------------------------------------------------------------------------
# Recipes: one line of text from which a covering design is rebuilt, the same each time.
#
# affine n q k r        the k-flats of AG(n, q), the wanted points spread over its points (backwards if r is 1)
# projective n q k r    the same with PG(n, q)
# inversive q r         the same with the circles of the inversive plane of order q
# octads d r            the same with the octads, derived d times (the blocks through d points, without them)
# multiplied v l r      the same with the table's own design of v points in blocks of l, of the same strength
# split n a b k …       products of designs on the first n points and on the others, in groups (a, b, k)
# greedy s              block by block, ties by the seed s
# searched              kept block by block, because only a search has found it


SEARCHED = "searched"


def cooked(recipe: str, points: int, block: int, strength: int, design: Design) -> NDArray[np.int16]:
    """The rows of the covering design that a recipe describes; `design` supplies the smaller ones that it refers to."""
    name, *words = recipe.split()
    numbers = [int(word) for word in words]
    if name == "split":
        groups = [Group(*numbers[i : i + 3]) for i in range(1, len(numbers), 3)]
        rows = split_rows(numbers[0], points, block, strength, groups, design)
    elif name == "greedy":
        rows = greedy_rows(points, block, strength, seed=numbers[0])
    else:
        base, size = _base(name, numbers[:-1], strength, design)
        weights = spread_weights(points, size, _order(size, numbers[-1]))
        rows = weighted_rows(base, weights, block, strength, design)
        if points % size == 0 and len(base[0]) * (points // size) == block:
            # Every block of a design that was tidied, or is a geometry, has become exactly one full block.
            return rows
    return tidied(rows, points, strength)


def _base(name: str, numbers: Sequence[int], strength: int, design: Design) -> tuple[tuple[Block, ...], int]:
    """The blocks of a known design, and the number of its points."""
    if name == "affine":
        dimension, order, flat = numbers
        return affine_flats(dimension, order, flat), order**dimension
    if name == "projective":
        dimension, order, flat = numbers
        return projective_flats(dimension, order, flat), (order ** (dimension + 1) - 1) // (order - 1)
    if name == "inversive":
        return inversive_plane(numbers[0]), numbers[0] ** 2 + 1
    if name == "octads":
        last = 24 - numbers[0]
        through = set(range(last, 24))
        return tuple(block[: 8 - numbers[0]] for block in octads() if through <= set(block)), last
    if name == "multiplied":
        return row_blocks(design(numbers[0], numbers[1], strength)), numbers[0]
    raise FileFormatError(f"the recipe {name!r} is not known here: the table of designs is of a newer version")


def _order(points: int, backwards: int) -> list[int]:
    """The order in which points get the larger weights: as they are numbered, or backwards."""
    return list(range(points))[:: -1 if backwards else 1]


# ----------------------------------------------------------------------------------------------------------------------
# The table of covering designs that ships with the package: for every one its size and how to get its blocks.
#
# `designs.csv` holds a line for each design: points, block, strength, size, recipe. Where the recipe is "searched" the
# blocks lie in `searched.bin`, in the order of the lines: each block as its colexicographic number, in as many bits as
# the largest such number needs, and each design begins at a whole byte.


Key = tuple[int, int, int]
"""Points, block and strength."""


@dataclass(frozen=True)
class ShippedDesign:
    """How many blocks a design has, and how to get them."""

    size: int
    recipe: str


@dataclass(eq=False)
class DesignTable:
    """Designs by points, block and strength; rows are rebuilt at first use and kept."""

    designs: dict[Key, ShippedDesign]
    searched: dict[Key, NDArray[np.uint8]]
    """The packed blocks of those that only a search has found."""
    built: dict[Key, NDArray[np.int16]] = field(default_factory=dict)

    def rows(self, points: int, block: int, strength: int) -> NDArray[np.int16]:
        """The blocks of a design, one ascending row each."""
        trivial = trivial_rows(points, block, strength)
        if trivial is not None:
            return trivial
        key = (points, block, strength)
        if key not in self.built:
            design = self.designs[key]
            if design.recipe == SEARCHED:
                self.built[key] = unpacked_rows(self.searched[key], key, design.size)
            else:
                self.built[key] = cooked(design.recipe, points, block, strength, self.rows)
        return self.built[key]


def trivial_rows(points: int, block: int, strength: int) -> NDArray[np.int16] | None:
    """The designs that need no table: all points in one block, any block, a partition, or all t-sets."""
    if block >= points:
        return np.arange(points, dtype=np.int16)[None, :]
    if strength == 0:
        return np.arange(block, dtype=np.int16)[None, :]
    if strength == 1:
        starts = np.minimum(np.arange(0, points, block), points - block)
        return (starts[:, None] + np.arange(block)).astype(np.int16)
    if strength == block:
        return unranked(np.arange(comb(points, block)), points, block).astype(np.int16)
    return None


@lru_cache(maxsize=1)
def shipped_table() -> DesignTable:
    """The table as it lies in the package."""
    return read_table(files("consilience.coverings"))


def read_table(folder: Traversable) -> DesignTable:
    """The table whose two files lie in a folder."""
    lines = folder.joinpath("designs.csv").read_text(encoding="utf-8").splitlines()
    listed = [
        ((int(points), int(block), int(strength)), ShippedDesign(int(size), recipe))
        for points, block, strength, size, recipe in csv.reader(lines[1:])
    ]
    packed = np.frombuffer(folder.joinpath("searched.bin").read_bytes(), dtype=np.uint8)
    searched, begin = {}, 0
    for key, design in listed:
        if design.recipe == SEARCHED:
            end = begin + packed_bytes(key, design.size)
            searched[key] = packed[begin:end]
            begin = end
    if begin != packed.size:
        raise FileFormatError(
            f"searched.bin has {packed.size:,} bytes where designs.csv describes {begin:,}: install the package anew"
        )
    return DesignTable(dict(listed), searched)


def block_bits(key: Key) -> int:
    """How many bits the number of a block takes."""
    return (comb(key[0], key[1]) - 1).bit_length()


def packed_bytes(key: Key, size: int) -> int:
    """How many bytes the blocks of a searched design take."""
    return (block_bits(key) * size + 7) // 8


def unpacked_rows(packed: NDArray[np.uint8], key: Key, size: int) -> NDArray[np.int16]:
    """The blocks whose numbers, ascending, are packed bit by bit."""
    bits = np.unpackbits(packed)[: block_bits(key) * size].reshape(size, -1).astype(np.int64)
    return unranked(bits @ (1 << np.arange(block_bits(key))), key[0], key[1]).astype(np.int16)


# ----------------------------------------------------------------------------------------------------------------------
# Covering designs: blocks of ℓ of v points such that every t-set of points lies in a block.


MOST_COVERED_POINTS = 1000
"""The most points of a covering."""

PLANE_ORDERS = (2, 3, 4, 5, 7, 8, 9, 11, 13)


@dataclass(frozen=True)
class SpotSettings:
    """How designs that are built on the spot are annealed: within seconds."""

    most_annealed: int = 1_500_000
    """They are where t-sets times blocks are no more than this."""
    most_moves: int = 200_000
    """How many moves one annealing may make,"""
    most_changes: int = 4_000_000
    """and how many t-sets they may change together."""


ON_THE_SPOT = SpotSettings()


@lru_cache(maxsize=64)
def covering(points: int, block: int, strength: int) -> tuple[Block, ...]:
    """Blocks of `block` points, as few as are known, such that any `strength` of 0..points−1 lie in one of them.

    Up to 64 points, blocks of 10 and strength 4 they come from the shipped table; beyond it they are built on the spot.

    >>> len(covering(32, 8, 2)), covering(9, 6, 2)
    (20, ((0, 1, 2, 3, 4, 5), (0, 1, 2, 6, 7, 8), (3, 4, 5, 6, 7, 8)))
    """
    _check(points, block, strength)
    trivial = trivial_rows(points, block, strength)
    if trivial is not None:
        return row_blocks(trivial)
    if (points, block, strength) in shipped_table().designs:
        return row_blocks(shipped_table().rows(points, block, strength))
    return row_blocks(_built(points, block, strength))


def covering_size(points: int, block: int, strength: int) -> int:
    """The number of blocks of `covering`, without building them where the table knows it.

    >>> covering_size(64, 8, 2)
    72
    """
    _check(points, block, strength)
    shipped = shipped_table().designs.get((points, block, strength))
    if shipped is not None:
        return shipped.size
    return len(covering(points, block, strength))


def _check(points: int, block: int, strength: int) -> None:
    if points < 1 or points > MOST_COVERED_POINTS:
        raise DeclarationError(f"{points} points were given; a covering has 1..{MOST_COVERED_POINTS} of them")
    if strength < 1 or (block < strength and block < points):
        raise DeclarationError(
            f"no block of {block} points can hold {strength} at once: the strength is at least 1 and at most the block"
        )


def _built(points: int, block: int, strength: int) -> NDArray[np.int16]:
    """The smallest of a few constructions that need no search."""
    refuse_large(points, block, strength)
    found = [greedy_rows(points, block, strength)]
    for blocks, size in _planes(points, block, strength):
        weights = spread_weights(points, size, range(size))
        found.append(weighted_rows(blocks, weights, block, strength, _greedily))
    table = shipped_table()
    for times in range(2, block // strength + 1):
        key = (-(-points // times), block // times, strength)
        if key in table.designs and points > key[0]:
            weights = spread_weights(points, key[0], range(key[0]))
            found.append(weighted_rows(row_blocks(table.rows(*key)), weights, block, strength, _greedily))
    best = min((tidied(rows, points, strength) for rows in found), key=len)
    if comb(points, strength) * len(best) > ON_THE_SPOT.most_annealed:
        return best
    moves = min(ON_THE_SPOT.most_moves, ON_THE_SPOT.most_changes // comb(block - 1, strength - 1))
    return fewer_blocks(best, points, strength, moves=moves)


def _greedily(points: int, block: int, strength: int) -> NDArray[np.int16]:
    trivial = trivial_rows(points, block, strength)
    return greedy_rows(points, block, strength) if trivial is None else trivial


def _planes(points: int, block: int, strength: int) -> list[tuple[tuple[Block, ...], int]]:
    """The planes whose lines, or circles for triples, are as long as a block once the points are spread over them."""
    found = []
    for order in PLANE_ORDERS:
        for size, line, kind in (
            (order * order, order, "affine"),
            (order * order + order + 1, order + 1, "projective"),
            (order * order + 1, order + 1, "inversive"),
        ):
            times = max(1, -(-points // size))
            if strength != (3 if kind == "inversive" else 2) or line * times != block:
                continue
            if kind == "affine":
                found.append((affine_flats(2, order, 1), size))
            elif kind == "projective":
                found.append((projective_flats(2, order, 1), size))
            elif order <= 9:
                found.append((inversive_plane(order), size))
    return found

"""Covering designs: blocks of ℓ of v points such that every t-set of points lies in a block."""

from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from consilience.coverings.annealing import fewer_blocks
from consilience.coverings.combinations import spread_weights, weighted_rows
from consilience.coverings.coverage import Block, row_blocks
from consilience.coverings.geometries import affine_flats, inversive_plane, projective_flats
from consilience.coverings.greedy import greedy_rows, refuse_large
from consilience.coverings.shipped import shipped_table, trivial_rows
from consilience.coverings.tidying import tidied
from consilience.errors import DeclarationError

MOST_POINTS = 1000
MOST_ANNEALED = 1_500_000
"""Designs built on the spot are annealed where t-sets times blocks are no more than this: within seconds."""

MOST_MOVES, MOST_CHANGES = 200_000, 4_000_000
"""How many moves one annealing may make, and how many t-sets they may change together."""

PLANE_ORDERS = (2, 3, 4, 5, 7, 8, 9, 11, 13)


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
    if points < 1 or points > MOST_POINTS:
        raise DeclarationError(f"{points} points were given; a covering has 1..{MOST_POINTS} of them")
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
    if comb(points, strength) * len(best) > MOST_ANNEALED:
        return best
    moves = min(MOST_MOVES, MOST_CHANGES // comb(block - 1, strength - 1))
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

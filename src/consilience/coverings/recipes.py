"""Recipes: one line of text from which a covering design is rebuilt, the same each time.

affine n q k r        the k-flats of AG(n, q), the wanted points spread over its points (backwards if r is 1)
projective n q k r    the same with PG(n, q)
inversive q r         the same with the circles of the inversive plane of order q
octads d r            the same with the octads, derived d times (the blocks through d points, without them)
multiplied v l r      the same with the table's own design of v points in blocks of l, of the same strength
split n a b k …       products of designs on the first n points and on the others, in groups (a, b, k)
greedy s              block by block, ties by the seed s
searched              kept block by block, because only a search has found it
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.coverings.combinations import Design, Group, split_rows, spread_weights, weighted_rows
from consilience.coverings.coverage import Block, row_blocks
from consilience.coverings.geometries import affine_flats, inversive_plane, octads, projective_flats
from consilience.coverings.greedy import greedy_rows
from consilience.coverings.tidying import tidied
from consilience.errors import FileFormatError

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

"""Generated tables of many shapes, to learn from them what plans will cost: none of them is a table of the league.

`shaped_table(seed)` is one of them: 4 to 20 attributes of 2 to 100 values, more or less skewed, a thousand to a million
records, and one of five ways in which attributes follow each other.
"""

import math
from typing import Literal, get_args

import numpy as np

from benchmarks.problems.league_tables import Codes, Rng
from benchmarks.problems.records import NamedRecords, drawn

Shape = Literal["chain", "tree", "dense", "hidden groups", "independent"]
MOST_PARENTS = {"chain": 1, "tree": 1, "dense": 3, "hidden groups": 0, "independent": 0}
MOST_ENTRIES = 6_000_000
"""Records times attributes."""


def shaped_table(seed: int) -> NamedRecords:
    """The table of a seed: its shape, its sizes and its records."""
    rng = np.random.default_rng([seed, 20])
    shapes = get_args(Shape)
    shape: Shape = shapes[rng.choice(len(shapes), p=(0.2, 0.25, 0.25, 0.2, 0.1))]
    attributes = int(rng.integers(4, 21))
    rows = min(int(10 ** rng.uniform(3.0, 6.0)), MOST_ENTRIES // attributes)
    largest = float(rng.choice([2, 8, 30, 100], p=(0.15, 0.3, 0.35, 0.2)))
    sizes = tuple(round(math.exp(rng.uniform(math.log(2.0), math.log(largest)))) for _ in range(attributes))
    skew, strength = rng.uniform(0.0, 2.0), rng.uniform(0.1, 1.0)
    codes = np.zeros((rows, attributes), dtype=np.int64)
    groups = _skewed(rows, 8, 0.5, rng)
    for place, size in enumerate(sizes):
        free = _skewed(rows, size, skew, rng)
        if shape == "hidden groups":
            told, values = groups, 8
        else:
            told, values = _told(shape, codes[:, :place], sizes[:place], rng)
        if values > 1:
            given = drawn(rng.dirichlet(np.full(size, rng.uniform(0.05, 1.0)), values)[told], rng)
            free = np.where(rng.random(rows) < strength * rng.uniform(0.3, 1.0), given, free)
        codes[:, place] = free
    return NamedRecords(f"{shape} {seed}", sizes, codes)


def _told(shape: Shape, before: Codes, sizes: tuple[int, ...], rng: Rng) -> tuple[Codes, int]:
    """What an attribute follows, as one code for each record, and how many values that has."""
    parents = min(MOST_PARENTS[shape], len(sizes))
    if not parents:
        return np.zeros(len(before), dtype=np.int64), 1
    if shape == "chain":
        chosen = [len(sizes) - 1]
    else:
        chosen = sorted(rng.choice(len(sizes), size=rng.integers(1, parents + 1), replace=False).tolist())
    told, values = np.zeros(len(before), dtype=np.int64), 1
    for place in chosen:
        told, values = told * sizes[place] + before[:, place], values * sizes[place]
    most = 200  # more than so many different laws are shared
    return told % most, min(values, most)


def _skewed(rows: int, size: int, power: float, rng: Rng) -> Codes:
    """Values with shares that fall with a power of their rank, in an order of their own."""
    shares = rng.permutation(np.arange(1, size + 1, dtype=np.float64) ** -power)
    return rng.choice(size, size=rows, p=shares / shares.sum())

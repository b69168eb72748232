"""Sets of points for clustering: the six of Lee and Kifer (2016), Table 1.

S1, Adult's numeric attributes and Lifesci are the published sets. TIGER, Gowalla's points and Image are not to be had:
user locations of Mopsi, points drawn from a grid of check-ins, and generated colours stand in for them, and their names
say so. A file that is missing is replaced by a generated mixture of the same size, and said so too.

As in the paper every attribute is mapped to [−1, 1] by its least and greatest value, and points are then projected onto
the unit ball of the L1 norm. Taking bounds from the data is for experiments alone: where people are to be protected,
bounds are declared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.counted import READS_NOTHING
from benchmarks.problems.data_folder import find_data
from consilience.domain import Attribute, Domain
from consilience.kernels.regions import Region
from consilience.source.base import SourceIdentity
from consilience.source.local import LocalSource

Points = NDArray[np.float64]

GOWALLA_POINTS = 107_021
IMAGE_POINTS = 34_112


@dataclass(frozen=True, eq=False)
class NamedPoints:
    """Points in their own units, what they are called, and how many clusters the paper looks for."""

    name: str
    points: Points
    clusters: int

    @property
    def dimensions(self) -> int:
        return self.points.shape[1]

    @cached_property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """The least and the greatest value of each attribute."""
        ends = zip(self.points.min(axis=0), self.points.max(axis=0), strict=True)
        return tuple((float(low), float(high)) for low, high in ends)

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        return tuple(f"x{axis + 1}" for axis in range(self.dimensions))

    @cached_property
    def domain(self) -> Domain:
        """The attributes with these bounds, as a domain declares them."""
        declared = zip(self.attributes, self.bounds, strict=True)
        return Domain(self.name, tuple(Attribute.continuous(name, bounds) for name, bounds in declared))

    @cached_property
    def projected(self) -> Points:
        """The points in [−1, 1] for each attribute, projected onto the L1 ball."""
        return Region("ball", self.dimensions).project(self.normalised(self.points))

    def normalised(self, points: Points) -> Points:
        """Points of these units, with the bounds mapped to −1 and 1."""
        low, high = np.array(self.bounds).T
        return 2.0 * (points - low) / (high - low) - 1.0

    def first(self, count: int) -> "NamedPoints":
        """Some of the points, drawn once for all, for a quick look; the bounds may become narrower."""
        if count >= len(self.points):
            return self
        chosen = np.random.default_rng(0).permutation(len(self.points))[:count]
        return NamedPoints(self.name, self.points[np.sort(chosen)], self.clusters)

    def table(self) -> "PointTable":
        """The points as a source that can be measured."""
        return PointTable(self)


class PointTable(LocalSource):
    """A source that gives out points kept in memory. For simulations: there is nobody to protect."""

    __slots__ = ("_kept",)

    def __init__(self, named: NamedPoints) -> None:
        super().__init__(cast(Any, READS_NOTHING), named.domain, unit=None, identity=SourceIdentity())
        self._kept = named.points

    def exact_points(self, names: Sequence[str]) -> Points:
        places = [self.domain.names.index(name) for name in names]
        return np.ascontiguousarray(self._kept[:, places])

    def exact_counts(
        self, marginals: Sequence[tuple[str, ...]], *, amount: str | None = None, threads: int | None = None
    ) -> list[NDArray[np.int64]]:
        """The number of points for the marginal of no attribute, the only one that points without cells have."""
        return [np.asarray(len(self._kept), dtype=np.int64) for _ in marginals]


def published_points() -> list[NamedPoints]:
    """The six sets in the order of the paper's Table 1."""
    return [s1(), tiger(), gowalla(), image(), adult_numeric(), lifesci()]


def s1() -> NamedPoints:
    """S1 (Fränti, Virmajoki 2006): fifteen Gaussian clusters in the plane."""
    return _from_file("S1", "s1.txt", np.loadtxt, (5_000, 2, 15))


def tiger() -> NamedPoints:
    """Locations of Mopsi users in Finland, in place of the paper's 16,281 points of TIGER."""
    return _from_file("TIGER (stand-in: Mopsi)", "mopsi-finland.csv.gz", _read_csv, (13_467, 2, 2))


def adult_numeric() -> NamedPoints:
    """Adult's six numeric attributes."""
    return _from_file("Adult (numeric)", "adult-numeric.csv.gz", _read_csv, (48_842, 6, 5))


def lifesci() -> NamedPoints:
    """Lifesci (ds1.10): ten attributes; the eleventh column of its file is a label."""
    return _from_file(
        "Lifesci", "lifesci.csv.gz", lambda path: np.loadtxt(path, delimiter=",")[:, :10], (26_733, 10, 3)
    )


def gowalla() -> NamedPoints:
    """Points drawn from a 256 × 256 grid of check-ins, uniform within a cell, in place of Gowalla's."""
    path = find_data("grids", "checkin_256_256.npy")
    if path is None:
        return mixture("Gowalla (generated stand-in)", (GOWALLA_POINTS, 2, 5))
    rng = np.random.default_rng(0)
    counts = np.load(path)
    cells = rng.choice(counts.size, size=GOWALLA_POINTS, p=counts.ravel() / counts.sum())
    places = np.stack(np.unravel_index(cells, counts.shape), axis=1)
    return NamedPoints("Gowalla (stand-in: check-in grid)", places + rng.random(places.shape), 5)


def image() -> NamedPoints:
    """Colours of a generated picture: five materials, each light and dark, in place of Image."""
    rng = np.random.default_rng(0)
    colours = np.array([[118, 160, 205], [206, 188, 160], [86, 120, 64], [142, 72, 56], [228, 228, 230]], np.float64)
    material = rng.choice(len(colours), size=IMAGE_POINTS, p=[0.32, 0.26, 0.22, 0.12, 0.08])
    light = rng.beta(5.0, 2.0, size=(IMAGE_POINTS, 1)) * 1.2
    seen = np.rint(colours[material] * light + rng.normal(0.0, 6.0, (IMAGE_POINTS, 3)))
    return NamedPoints("Image (generated stand-in)", np.clip(seen, 0.0, 255.0), 3)


Size = tuple[int, int, int]
"""How many points, attributes and clusters."""


def mixture(name: str, size: Size) -> NamedPoints:
    """Round Gaussian clusters of unequal sizes at random places of the unit cube."""
    rows, dimensions, clusters = size
    rng = np.random.default_rng(rows)
    centres = rng.random((clusters, dimensions))
    member = rng.choice(clusters, size=rows, p=rng.dirichlet(np.full(clusters, 5.0)))
    return NamedPoints(name, centres[member] + rng.normal(0.0, 0.05, (rows, dimensions)), clusters)


def awkward_points() -> list[NamedPoints]:
    """Four generated sets that mixtures of round clusters are not."""
    rng = np.random.default_rng(44)
    centres = rng.uniform(-1, 1, (6, 3))
    member = rng.choice(6, size=20_000, p=[0.6, 0.2, 0.1, 0.06, 0.03, 0.01])
    uneven = centres[member] + rng.normal(0, 0.08, (20_000, 3))
    mixing = np.tril(rng.normal(0, 0.15, (4, 4))) + 0.1
    correlated = rng.uniform(-1, 1, (5, 4))[rng.integers(5, size=15_000)] + rng.normal(0, 1, (15_000, 4)) @ mixing.T
    heavy = rng.uniform(-1, 1, (4, 2))[rng.integers(4, size=12_000)] + 0.1 * rng.standard_t(2, (12_000, 2))
    amounts = np.where(rng.random((30_000, 5)) < 0.7, 0.0, np.rint(rng.gamma(2.0, 10.0, (30_000, 5))))
    return [
        NamedPoints("generated: uneven sizes", uneven, 6),
        NamedPoints("generated: correlated", correlated, 5),
        NamedPoints("generated: heavy tails", np.clip(heavy, -4, 4), 4),
        NamedPoints("generated: mostly zeros", np.minimum(amounts, 100.0), 4),
    ]


def unseen_points() -> list[NamedPoints]:
    """Six generated sets that were made, and first looked at, after constants of groups and places had been chosen."""
    rng = np.random.default_rng(1918)
    kinds = rng.choice(4, size=16_000, p=[0.5, 0.25, 0.15, 0.1])
    codes = np.column_stack([kinds, rng.poisson(1.5 * kinds), (rng.random(16_000) < 0.2 + 0.2 * kinds)])
    mixed = np.column_stack([np.minimum(codes, 8), rng.normal(kinds[:, None] % 2, 0.4, (16_000, 2))])
    dominated = np.where(rng.random((20_000, 1)) < 0.95, 0.0, rng.uniform(-1, 1, (20_000, 3)))
    dominated += rng.normal(0, 0.05, dominated.shape)
    repeated = rng.uniform(-1, 1, (60, 3))[rng.choice(60, size=25_000, p=rng.dirichlet(np.full(60, 0.5)))]
    outlying = rng.uniform(-1, 1, (5, 8))[rng.integers(5, size=20_000)] + rng.normal(0, 0.2, (20_000, 8))
    outlying *= np.where(rng.random((20_000, 1)) < 0.02, 5.0, 1.0)
    few = rng.uniform(-1, 1, (2, 2))[rng.integers(2, size=500)] + rng.normal(0, 0.15, (500, 2))
    return [
        NamedPoints("generated: discrete and continuous", mixed, 4),
        NamedPoints("generated: one cluster of 95 %", dominated, 3),
        NamedPoints("generated: 60 places only", repeated, 6),
        NamedPoints("generated: uniform", rng.uniform(-1, 1, (10_000, 3)), 10),
        NamedPoints("generated: 8 attributes, outliers", outlying, 5),
        NamedPoints("generated: 500 records", few, 2),
    ]


def _from_file(name: str, file: str, read: Callable[[Path], Points], size: Size) -> NamedPoints:
    path = find_data("points", file)
    if path is None:
        return mixture(f"{name.split(' (stand-in')[0]} (generated stand-in)", size)
    return NamedPoints(name, np.asarray(read(path), dtype=np.float64), size[2])


def _read_csv(path: Path) -> Points:
    return np.loadtxt(path, delimiter=",", skiprows=1)

"""The statistics of one round of k-means: how many points each cluster has, and their sums.

With the centroids θ = (c₁, …, c_K) of the round before, in normalised coordinates, a record x becomes a point p(x) of
the region on the lattice (kernels/regions.py), falls in the cluster k(x) = argmin_k ‖p(x) − c_k‖², and adds

    to the counts   φ(x) = e_k(x)              ‖φ(x)‖₁ = ‖φ(x)‖₂ = 1
    to the sums     φ(x) = e_k(x) ⊗ p(x)       ‖φ(x)‖ = ‖p(x)‖ ≤ the largest norm in the region.

*Adding or removing* a record moves a statistic by ‖φ(x)‖. *Replacing* x by x' moves it by ‖φ(x) − φ(x')‖. For counts
that is 2 in the L1 norm and √2 in the L2 norm; with one cluster 1, because the new record may be one that the
declaration drops, so that it counts for nothing. For sums it is at most ‖p(x)‖ + ‖p(x')‖, twice the largest norm, which
two opposite points in one cluster attain.

k(x) and p(x) depend on x and θ alone, so nothing else changes when x does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.domain.attributes import Continuous
from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.kernels.kernel_cache import njit
from consilience.kernels.regions import LATTICE_BITS, CellGrid, Region, RegionKind, in_original_units, lattice_points

Places = NDArray[np.int32]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

Part = Literal["counts", "sums"]

CHUNK = 2**18
"""So many records are put on the lattice at a time: the sums need no second copy of all points."""


@dataclass(frozen=True)
class ClusterStatistic:
    """The counts of the clusters around given centroids, or the sums of their points.

    `centroids` are in normalised coordinates, where the bounds of the attributes are −1 and 1. Counts are listed by
    cluster, sums by cluster and then by attribute.

    >>> ClusterStatistic("sums", ("x", "y"), ((0, 1), (0, 5)), "ball", ((0, 0), (1, 0), (0, 1))).size
    6
    """

    part: Part
    attributes: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    region: RegionKind
    centroids: tuple[tuple[float, ...], ...]
    lattice_bits: int = LATTICE_BITS

    additive = True

    @property
    def size(self) -> int:
        return len(self.centroids) * (1 if self.part == "counts" else len(self.attributes))

    @property
    def bits(self) -> int:
        """Counts are whole numbers of records, sums of lattice units."""
        return 0 if self.part == "counts" else self.lattice_bits

    def sensitivity(self, norm: Literal[1, 2], neighbours: Neighbours) -> float:
        replacing = neighbours == "replace-one"
        if self.part == "sums":
            return Region(self.region, len(self.attributes)).sensitivity(norm) * (2 if replacing else 1)
        if not replacing or len(self.centroids) == 1:
            return 1.0
        return 2.0 if norm == 1 else math.sqrt(2)

    def exact(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        region = Region(self.region, len(self.attributes))
        centroids = np.array(self.centroids, dtype=np.float64)
        counts = np.zeros(len(centroids), np.int64)
        sums = np.zeros(centroids.shape, np.int64)
        for start in range(0, len(points), CHUNK):
            units = lattice_points(points[start : start + CHUNK], self.bounds, region, bits=self.lattice_bits)
            more_counts, more_sums = cluster_sums(units, centroids, bits=self.lattice_bits)
            counts += more_counts
            sums += more_sums
        return counts if self.part == "counts" else sums.ravel()

    def describe(self) -> dict[str, Any]:
        return {
            "algorithm": "k-means",
            "part": self.part,
            "attributes": list(self.attributes),
            "bounds": [list(interval) for interval in self.bounds],
            "region": self.region,
            "bits": self.lattice_bits,
            "centroids": [list(centroid) for centroid in self.centroids],
        }

    def check(self, domain: Domain) -> None:
        if self.part not in ("counts", "sums"):
            raise DeclarationError(f"k-means has no statistic {self.part!r}; use 'counts' or 'sums'")
        refuse_other_bounds(domain, self.attributes, self.bounds)
        region = Region(self.region, len(self.attributes))
        _check_centroids(self.centroids, region)
        lattice_points(np.empty((0, region.dimensions)), self.bounds, region, bits=self.lattice_bits)


def cluster_statistics(
    domain: Domain,
    attributes: Sequence[str],
    region: RegionKind,
    centroids: ArrayLike,
    *,
    lattice_bits: int = LATTICE_BITS,
) -> tuple[ClusterStatistic, ClusterStatistic]:
    """The counts and the sums of the clusters around these centroids (normalised)."""
    names = tuple(attributes)
    bounds = declared_bounds(domain, names)
    rows = tuple(tuple(map(float, row)) for row in np.asarray(centroids, dtype=np.float64))
    counts = ClusterStatistic("counts", names, bounds, region, rows, lattice_bits)
    return counts, ClusterStatistic("sums", names, bounds, region, rows, lattice_bits)


def _check_centroids(rows: tuple[tuple[float, ...], ...], region: Region) -> None:
    """Refuse centroids, given or to start from, that are not points of the region, one for each cluster."""
    centroids = np.array(rows, dtype=np.float64)
    if centroids.ndim != 2 or not len(centroids) or centroids.shape[1] != region.dimensions:
        raise DeclarationError(
            f"centroids of the shape {centroids.shape} do not fit {region.dimensions} attributes; give a row of "
            "coordinates for each of at least one cluster"
        )
    if not (np.isfinite(centroids).all() and region.contains(centroids).all()):
        raise DeclarationError(f"the centroids must lie in the region {region.kind!r}; project them first")


def declared_bounds(domain: Domain, attributes: Sequence[str]) -> tuple[tuple[float, float], ...]:
    """The bounds that the domain declares for continuous attributes; others are refused."""
    if not attributes:
        raise DeclarationError("points need at least one continuous attribute; name one")
    if len(set(attributes)) < len(attributes):
        raise DeclarationError(f"the attributes {', '.join(attributes)} name one of them twice; name each once")
    found = []
    for name in attributes:
        attribute = domain[name]
        if not isinstance(attribute, Continuous):
            raise DeclarationError(
                f"attribute {name!r} is {attribute.kind}; clusters need continuous attributes with bounds: declare "
                'kind = "continuous" and bounds = [low, high]'
            )
        found.append((float(attribute.bounds[0]), float(attribute.bounds[1])))
    in_original_units(np.zeros(len(found)), found)
    return tuple(found)


# ----------------------------------------------------------------------------------------------------------------------
# How many records each cell of a grid over continuous attributes holds.
#
# A record x becomes a point of the region on the lattice, and then one of the cells by whole numbers alone
# (kernels/regions.py): φ(x) is a unit vector, or zero where the declaration drops the record. *Adding or removing* a
# record moves the counts by ‖φ(x)‖ ≤ 1 in both norms. *Replacing* one moves them by ‖φ(x) − φ(x')‖, at most 2 in the L1
# norm and √2 in the L2 norm; with one cell at most 1, by a record that is dropped.


@dataclass(frozen=True)
class GridCounts:
    """The counts of the cells that meet the region, in the order of `CellGrid`; one division counts all records.

    >>> GridCounts(("x", "y"), ((0, 1), (0, 5)), "box", 4).size
    16
    """

    attributes: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    region: RegionKind
    divisions: int
    lattice_bits: int = LATTICE_BITS

    additive = True

    @cached_property
    def grid(self) -> CellGrid:
        return CellGrid(self.divisions, Region(self.region, len(self.attributes)))

    @property
    def size(self) -> int:
        return self.grid.size

    @property
    def bits(self) -> int:
        """Counts are whole numbers of records."""
        return 0

    def sensitivity(self, norm: Literal[1, 2], neighbours: Neighbours) -> float:
        if neighbours == "add-remove" or self.size == 1:
            return 1.0
        return 2.0 if norm == 1 else math.sqrt(2)

    def exact(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        counts = np.zeros(self.size, np.int64)
        for start in range(0, len(points), CHUNK):
            units = lattice_points(points[start : start + CHUNK], self.bounds, self.grid.region, bits=self.lattice_bits)
            counts += self.grid.counts(units, bits=self.lattice_bits)
        return counts

    def describe(self) -> dict[str, Any]:
        return {
            "algorithm": "cell-grid",
            "part": "counts",
            "attributes": list(self.attributes),
            "bounds": [list(interval) for interval in self.bounds],
            "region": self.region,
            "bits": self.lattice_bits,
            "divisions": self.divisions,
        }

    def check(self, domain: Domain) -> None:
        refuse_other_bounds(domain, self.attributes, self.bounds)
        region = self.grid.region
        lattice_points(np.empty((0, region.dimensions)), self.bounds, region, bits=self.lattice_bits)


def refuse_other_bounds(domain: Domain, attributes: tuple[str, ...], bounds: tuple[tuple[float, float], ...]) -> None:
    """Refuse bounds that are not those which the domain declares."""
    declared = declared_bounds(domain, attributes)
    if declared != bounds:
        raise DeclarationError(
            f"the bounds {bounds} of {', '.join(attributes)} are declared as {declared} in the domain "
            f"{domain.name!r}; take them from there"
        )


# ----------------------------------------------------------------------------------------------------------------------
# Records divided into blocks, each clustered by itself (sample and aggregate: Nissim et al. 2007; Mohan et al. 2012).
#
# A record's block is a hash of its coordinates and a public seed: of that record alone, never of its place in the table
# or of other records. One record that comes or goes therefore changes one block and no other, for every seed and every
# table. Equal records share a block.
#
# Every block runs Lloyd's algorithm from the same public start, so that the k-th centroids of all blocks mean the same.
# Sums are of whole numbers in lattice units: the centroids of a block follow from its records and the start alone, to
# the last bit. A cluster without records keeps its place; a block without records keeps the start.


ROUNDS = 50
"""The most rounds of Lloyd's algorithm in a block."""


def block_centroids(
    units: NDArray[np.int32], start: Floats, *, blocks: int, bits: int, seed: int, rounds: int = ROUNDS
) -> Floats:
    """The centroids that each block of the records has: an array of blocks × clusters × dimensions."""
    points = np.ascontiguousarray(units, dtype=np.int32)
    labels = block_of_records(points, blocks=blocks, seed=seed)
    order = np.argsort(labels, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=blocks))])
    found = np.repeat(np.ascontiguousarray(start, dtype=np.float64)[None], blocks, axis=0)
    _cluster_blocks(points[order], starts.astype(np.int64), found, bits, rounds)
    return found


def block_of_records(units: NDArray[np.int32], *, blocks: int, seed: int) -> NDArray[np.int64]:
    """The block of each record, from 0 to blocks − 1.

    >>> points = np.array([[3, -1], [5, 5], [3, -1]], dtype=np.int32)
    >>> first, _, last = block_of_records(points, blocks=1000, seed=1)
    >>> bool(first == last)
    True
    """
    hashes = _hash_rows(np.ascontiguousarray(units, dtype=np.int32), np.uint64(seed % 2**64))
    return (hashes % np.uint64(blocks)).astype(np.int64)


# The finaliser of SplitMix64 (Steele, Lea, Flood 2014), a bijection of 64 bits that leaves no visible pattern, taken
# after each coordinate has been added in.
@njit(nogil=True, cache=True)
def _mixed(state: np.uint64) -> np.uint64:  # pragma: no cover - compiled
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@njit(nogil=True, cache=True)
def _hash_rows(units: Places, seed: np.uint64) -> NDArray[np.uint64]:  # pragma: no cover - compiled
    odd = np.uint64(0x9E3779B97F4A7C15)
    hashes = np.empty(units.shape[0], np.uint64)
    for i in range(units.shape[0]):
        state = _mixed(seed + odd)
        for j in range(units.shape[1]):
            state = _mixed((state ^ np.uint64(np.uint32(units[i, j]))) + odd)
        hashes[i] = state
    return hashes


@njit(nogil=True, cache=True)
def _cluster_blocks(
    units: Places, starts: Integers, centroids: Floats, bits: int, rounds: int
) -> None:  # pragma: no cover - compiled
    """Lloyd's algorithm on the rows from starts[b] to starts[b + 1], for every b, in place of `centroids[b]`."""
    scale = 1.0 / (1 << bits)
    clusters, dimensions = centroids.shape[1], centroids.shape[2]
    counts = np.empty(clusters, np.int64)
    sums = np.empty((clusters, dimensions), np.int64)
    for block in range(len(starts) - 1):
        for _ in range(rounds):
            counts[:] = 0
            sums[:] = 0
            for i in range(starts[block], starts[block + 1]):
                nearest, _ = closest(units, i, scale, centroids[block])
                counts[nearest] += 1
                for j in range(dimensions):
                    sums[nearest, j] += units[i, j]
            moved = False
            for k in range(clusters):
                if counts[k] == 0:
                    continue
                for j in range(dimensions):
                    mean = sums[k, j] * scale / counts[k]
                    if mean != centroids[block, k, j]:
                        moved = True
                    centroids[block, k, j] = mean
            if not moved:
                break


# ----------------------------------------------------------------------------------------------------------------------
# The sum, over blocks of records, of the centroids that each block has by itself: sample and aggregate.
#
# Nissim, Raskhodnikova and Smith (2007); GUPT (Mohan et al. 2012) is this with averages. The statistic is no sum over
# records, and no bound on single records gives its sensitivity. What does:
#
# 1. A record's block is a hash of that record, on the lattice, and a public seed. It does not depend on other records,
#    nor on where in the table the record is: one that comes or goes leaves all other records in their blocks.
# 2. The centroids of a block follow from its records, a public start and nothing else, to the last bit (above). So
#    a record that comes or goes changes the centroids of one block, and one that is replaced, of two at most.
# 3. Whatever a block holds, each of its K centroids is moved into the region and rounded toward zero on the lattice
#    before it is added: in place of one such centroid another moves the sum by at most twice the largest norm of the
#    region. All K of a block move it by 2K·max‖c‖₁ in the L1 norm and by 2√K·max‖c‖₂ in the L2 norm.
#
# Under *add-remove* these are the sensitivities; under *replace-one*, twice as much. The number of blocks is public:
# declared, or found from a noisy number of records. How well the blocks' centroids match is a matter of accuracy alone.


LARGEST_BLOCKS = 2**20


@dataclass(frozen=True)
class BlockCentroids:
    """Σ over blocks of the block's centroids, listed by cluster and then by attribute, in normalised coordinates.

    >>> BlockCentroids(("x", "y"), ((0, 1), (0, 5)), "ball", ((0.0, 0.0), (0.5, 0.5)), blocks=10).sensitivity(
    ...     1, "add-remove"
    ... )
    4.0
    """

    attributes: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    region: RegionKind
    start: tuple[tuple[float, ...], ...]
    blocks: int
    seed: int = 0
    lattice_bits: int = LATTICE_BITS

    additive = False

    @property
    def size(self) -> int:
        return len(self.start) * len(self.attributes)

    @property
    def bits(self) -> int:
        return self.lattice_bits

    def sensitivity(self, norm: Literal[1, 2], neighbours: Neighbours) -> float:
        clusters = len(self.start)
        largest = Region(self.region, len(self.attributes)).sensitivity(norm)
        one_block = 2.0 * largest * (clusters if norm == 1 else math.sqrt(clusters))
        return one_block if neighbours == "add-remove" else 2.0 * one_block

    def exact(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        region = Region(self.region, len(self.attributes))
        units = lattice_points(points, self.bounds, region, bits=self.lattice_bits)
        start = np.array(self.start, dtype=np.float64)
        found = block_centroids(units, start, blocks=self.blocks, bits=self.lattice_bits, seed=self.seed)
        rows = lattice_points(
            found.reshape(-1, region.dimensions), ((-1.0, 1.0),) * region.dimensions, region, bits=self.lattice_bits
        )
        return rows.reshape(self.blocks, self.size).sum(axis=0, dtype=np.int64)

    def describe(self) -> dict[str, Any]:
        return {
            "algorithm": "sample-and-aggregate",
            "part": "centroids",
            "attributes": list(self.attributes),
            "bounds": [list(interval) for interval in self.bounds],
            "region": self.region,
            "bits": self.lattice_bits,
            "start": [list(centroid) for centroid in self.start],
            "blocks": self.blocks,
            "seed": self.seed,
        }

    def check(self, domain: Domain) -> None:
        refuse_other_bounds(domain, self.attributes, self.bounds)
        whole = isinstance(self.blocks, int) and not isinstance(self.blocks, bool)
        if not whole or not 1 <= self.blocks <= LARGEST_BLOCKS:
            raise DeclarationError(f"{self.blocks!r} blocks were asked for; use from 1 to {LARGEST_BLOCKS:,}")
        region = Region(self.region, len(self.attributes))
        _check_centroids(self.start, region)
        lattice_points(np.empty((0, region.dimensions)), self.bounds, region, bits=self.lattice_bits)


# ----------------------------------------------------------------------------------------------------------------------
# Nearest centroids, and sums over the clusters that they make.
#
# A point x belongs to the cluster argmin_k Σ_j (x_j − c_kj)², the lowest k where several are equal. The distances of
# one point are summed coordinate by coordinate, so that its cluster depends on that point and the centroids alone: a
# product of whole matrices would be faster, and could settle a near-tie by the position of a row.


Numbers = NDArray[Any]


def cluster_sums(
    points_on_lattice: NDArray[np.int32] | Integers, centroids: Floats, *, bits: int = LATTICE_BITS
) -> tuple[Integers, Integers]:
    """The number of points in each cluster, and the sum of each cluster's points: exact, in lattice units.

    >>> counts, sums = cluster_sums(np.array([[-8], [3], [4]], np.int32), np.array([[-0.5], [0.5]]), bits=4)
    >>> counts.tolist(), sums.tolist()
    ([1, 2], [[-8], [7]])
    """
    centroids = np.ascontiguousarray(centroids, dtype=np.float64)
    if points_on_lattice.ndim != 2 or centroids.ndim != 2 or points_on_lattice.shape[1] != centroids.shape[1]:
        raise DeclarationError(
            f"points of {points_on_lattice.shape[1:]} coordinates do not fit centroids of the shape {centroids.shape}"
        )
    return _cluster_sums(np.ascontiguousarray(points_on_lattice), centroids, 2.0**-bits)


@njit(nogil=True, cache=True)
def closest(
    points: Numbers, i: int, unit: float, centroids: Floats
) -> tuple[int, float]:  # pragma: no cover - compiled
    """The nearest centroid of one row, whose coordinates are multiples of `unit`, and its squared distance."""
    best, best_distance = 0, np.inf
    for k in range(centroids.shape[0]):
        distance = 0.0
        for j in range(centroids.shape[1]):
            gap = points[i, j] * unit - centroids[k, j]
            distance += gap * gap
        if distance < best_distance:
            best, best_distance = k, distance
    return best, best_distance


@njit(nogil=True, cache=True)
def _cluster_sums(
    units: Numbers, centroids: Floats, unit: float
) -> tuple[Integers, Integers]:  # pragma: no cover - compiled
    counts = np.zeros(centroids.shape[0], np.int64)
    sums = np.zeros(centroids.shape, np.int64)
    for i in range(units.shape[0]):
        k, _ = closest(units, i, unit, centroids)
        counts[k] += 1
        for j in range(units.shape[1]):
            sums[k, j] += units[i, j]
    return counts, sums

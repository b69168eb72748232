"""The regions in which points and centroids live, in normalised coordinates, their lattice and their cells.

Declared bounds [low, high] of each coordinate are mapped to [−1, 1]. A statistic that sums points over records changes
by at most the largest norm in the region when one record comes or goes: `Region.sensitivity`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.kernel_cache import njit

Floats = NDArray[np.float64]
Places = NDArray[np.int32]

# ----------------------------------------------------------------------------------------------------------------------
# Points moved into a region and onto a lattice, each by a function of that point alone.
#
# Three regions of d dimensions, all inside [−1, 1]^d, and how a point x gets there:
#
#     box            max(−1, min(1, x_j)) for each coordinate
#     ball           the nearest point of {‖x‖₁ ≤ 1} in Euclidean distance: sign(x_j) · max(|x_j| − τ, 0), where τ ≥ 0
#                    makes the absolute values sum to 1 (Duchi et al. 2008)
#     radial-ball    the point of {‖x‖₁ ≤ 1} on the line to the origin: x / max(1, ‖x‖₁)
#
# τ = (Σ of the k largest |x_j| − 1) / k for the largest k that leaves all k of them positive. It is computed from the
# differences to the largest |x_j|, which lose nothing where coordinates are huge.
#
# On the lattice 2^−b each coordinate is rounded toward zero. No absolute value grows, so neither does any norm: the L1
# norm of a point of the ball is at most 2^b lattice units. Floating-point sums may put a projected point outside by a
# few last places, which the rounding takes away; the kernel still checks it in whole numbers and removes any excess, so
# that the bound rests on integer arithmetic alone.


BOX = 0
BALL = 1
RADIAL_BALL = 2


@njit(nogil=True, cache=True)
def project_rows(points: Floats, kind: int) -> None:  # pragma: no cover - compiled
    """Move every row into the region, in place."""
    scratch = np.empty(points.shape[1])
    for i in range(points.shape[0]):
        _project(points[i], kind, scratch)


@njit(nogil=True, cache=True)
def lattice_rows(
    points: Floats, middles: Floats, halves: Floats, kind: int, bits: int
) -> Places:  # pragma: no cover - compiled
    """The rows in lattice units, without those that hold a NaN; `middles` and `halves` describe the bounds."""
    rows, dimensions = points.shape
    units = np.empty((rows, dimensions), np.int32)
    point = np.empty(dimensions)
    scratch = np.empty(dimensions)
    kept = 0
    for i in range(rows):
        missing = False
        for j in range(dimensions):
            low, high = middles[j] - halves[j], middles[j] + halves[j]
            point[j] = (min(max(points[i, j], low), high) - middles[j]) / halves[j]
            point[j] = min(max(point[j], -1.0), 1.0)
            if np.isnan(points[i, j]):
                missing = True
        if missing:
            continue
        _project(point, kind, scratch)
        _round_toward_zero(point, kind, bits, units[kept])
        kept += 1
    return units[:kept]


@njit(nogil=True, cache=True)
def _round_toward_zero(point: Floats, kind: int, bits: int, units: Places) -> None:  # pragma: no cover - compiled
    one = 1 << bits
    total = 0
    for j in range(len(point)):
        units[j] = np.int32(point[j] * one)
        total += abs(units[j])
    while kind != BOX and total > one:
        largest = 0
        for j in range(1, len(point)):
            if abs(units[j]) > abs(units[largest]):
                largest = j
        units[largest] -= 1 if units[largest] > 0 else -1
        total -= 1


@njit(nogil=True, cache=True)
def _project(point: Floats, kind: int, scratch: Floats) -> None:  # pragma: no cover - compiled
    if kind == BOX:
        for j in range(len(point)):
            point[j] = min(max(point[j], -1.0), 1.0)
        return
    norm = 0.0
    for j in range(len(point)):
        norm += abs(point[j])
    if norm <= 1.0:
        return
    if kind == RADIAL_BALL:
        for j in range(len(point)):
            point[j] /= norm
        return
    _project_to_nearest(point, scratch)


@njit(nogil=True, cache=True)
def _project_to_nearest(point: Floats, gaps: Floats) -> None:  # pragma: no cover - compiled
    """The Euclidean projection of a point outside the ball, in place; `gaps` is scratch space."""
    dimensions = len(point)
    largest = 0.0
    for j in range(dimensions):
        largest = max(largest, abs(point[j]))
    for j in range(dimensions):
        gaps[j] = abs(point[j]) - largest
    gaps.sort()
    threshold = -1.0
    total = 0.0
    for k in range(1, dimensions + 1):
        gap = gaps[dimensions - k]
        total += gap
        if gap <= (total - 1.0) / k:
            break
        threshold = (total - 1.0) / k
    for j in range(dimensions):
        size = max(abs(point[j]) - largest - threshold, 0.0)
        point[j] = size if point[j] > 0.0 else -size


# ----------------------------------------------------------------------------------------------------------------------
# The regions in which points and centroids live, in normalised coordinates, and the lattice inside them.


RegionKind = Literal["box", "ball", "radial-ball"]
Bounds = Sequence[tuple[float, float]] | NDArray[np.float64]

REGION_KINDS: tuple[RegionKind, ...] = get_args(RegionKind)
LATTICE_BITS = 20
MOST_BITS = 28
"""2^33 records of at most 2^28 units each sum to less than 2^62."""

FARTHEST = 1e300
"""Coordinates beyond this are taken for it before a projection: sums of them are finite."""

_CODES = {"box": BOX, "ball": BALL, "radial-ball": RADIAL_BALL}


@dataclass(frozen=True)
class Region:
    """The box [−1, 1]^d, or the L1 ball of radius 1, to which points outside are moved.

    "ball" takes the nearest point in Euclidean distance, "radial-ball" the one on the line to the origin.

    >>> Region("ball", 2).project(np.array([[2.0, 0.5], [0.25, 0.25]]))
    array([[1.  , 0.  ],
           [0.25, 0.25]])
    >>> Region("box", 9).sensitivity(1), Region("box", 9).sensitivity(2), Region("ball", 9).sensitivity(2)
    (9.0, 3.0, 1.0)
    """

    kind: RegionKind
    dimensions: int

    def __post_init__(self) -> None:
        if self.kind not in REGION_KINDS:
            raise DeclarationError(f"the region {self.kind!r} is not known; use {', '.join(map(repr, REGION_KINDS))}")
        if not isinstance(self.dimensions, int) or isinstance(self.dimensions, bool) or self.dimensions < 1:
            raise DeclarationError(f"a region of {self.dimensions!r} dimensions was asked for; give 1 or more")

    @property
    def code(self) -> int:
        """The region's kind as the kernels above know it."""
        return _CODES[self.kind]

    def project(self, points: ArrayLike) -> Floats:
        """The points moved into the region, in an array of their own; the last axis holds the coordinates."""
        found = np.clip(np.array(points, dtype=np.float64), -FARTHEST, FARTHEST)
        if found.ndim < 1 or found.shape[-1] != self.dimensions:
            raise DeclarationError(f"points of the shape {found.shape} are not of {self.dimensions} dimensions")
        rows = np.ascontiguousarray(found).reshape(-1, self.dimensions)
        project_rows(rows, self.code)
        return rows.reshape(found.shape)

    def contains(self, points: ArrayLike, *, tolerance: float = 1e-12) -> NDArray[np.bool_]:
        """Which points lie in the region, up to the tolerance."""
        sizes = np.abs(np.asarray(points, dtype=np.float64))
        size = sizes.max(axis=-1) if self.kind == "box" else sizes.sum(axis=-1)
        return size <= 1.0 + tolerance

    def sensitivity(self, norm: Literal[1, 2]) -> float:
        """The largest L1 or L2 norm of a point in the region: what one record adds to a sum at most."""
        if norm not in (1, 2):
            raise DeclarationError(f"the norm {norm!r} was asked for; use 1 or 2")
        if self.kind != "box":
            return 1.0
        return float(self.dimensions) if norm == 1 else math.sqrt(self.dimensions)


def normalised(points: ArrayLike, bounds: Bounds) -> Floats:
    """The points in coordinates where the bounds are −1 and 1; not moved, where they lie outside.

    >>> normalised([[15.0, 0.0]], [(10.0, 20.0), (0.0, 4.0)])
    array([[ 0., -1.]])
    """
    middles, halves = middles_and_halves(bounds)
    return (np.asarray(points, dtype=np.float64) - middles) / halves


def in_original_units(points: ArrayLike, bounds: Bounds) -> Floats:
    """Normalised points in the units in which the bounds are declared: the inverse of `normalised`."""
    middles, halves = middles_and_halves(bounds)
    return np.asarray(points, dtype=np.float64) * halves + middles


def lattice_points(points: Floats, bounds: Bounds, region: Region, *, bits: int = LATTICE_BITS) -> NDArray[np.int32]:
    """Points in original units as whole numbers of 2^−bits: normalised, moved into the region, rounded toward zero.

    A point beyond the bounds, however far, is first moved to them; one with a NaN is left out. Each row of the result
    depends on one point alone.

    >>> lattice_points(np.array([[1e9, 2.5], [float("nan"), 0.0]]), [(0, 10), (0, 10)], Region("box", 2), bits=4)
    array([[16, -8]], dtype=int32)
    """
    if not 1 <= bits <= MOST_BITS:
        raise DeclarationError(f"a lattice of 2^-{bits} was asked for; use from 1 to {MOST_BITS} bits")
    middles, halves = middles_and_halves(bounds)
    found = np.ascontiguousarray(points, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != region.dimensions or len(middles) != region.dimensions:
        raise DeclarationError(
            f"points of the shape {('records', *found.shape[1:])} with {len(middles)} bounds do not fit a region of "
            f"{region.dimensions} dimensions"
        )
    return lattice_rows(found, middles, halves, region.code, bits)


def middles_and_halves(bounds: Bounds) -> tuple[Floats, Floats]:
    """The middle and half the width of each interval; refused where floats cannot tell its ends apart."""
    lows, highs = np.array(bounds, dtype=np.float64).reshape(-1, 2).T
    halves = highs / 2 - lows / 2
    if not (np.isfinite(halves).all() and (halves >= np.finfo(np.float64).tiny).all()):
        raise DeclarationError(
            f"the bounds {[(float(low), float(high)) for low, high in zip(lows, highs, strict=True)]} are not "
            "increasing intervals of ordinary size; declare bounds that the data's units suggest"
        )
    return lows / 2 + highs / 2, halves


# ----------------------------------------------------------------------------------------------------------------------
# Equal cells of a region, and which cell a point is in.
#
# Each side of the box [−1, 1]^d is cut into g equal parts. With u the coordinate of a point in lattice units 2^−b, its
# part is ⌊(u + 2^b) · g / 2^(b+1)⌋, the last one where u = 2^b: whole numbers alone decide, and each point by itself.
# In the L1 ball, the cells that do not meet it hold no point, whatever the data, and are left out.


Integers = NDArray[np.int64]

LARGEST_GRID = 2**20
"""The most cells of the whole box: noise is drawn for each that meets the region."""

TOUCHING = 1e-9
"""Cells this close to the ball are counted as meeting it: leaving out too few does no harm."""


@dataclass(frozen=True)
class CellGrid:
    """The box cut into `divisions` parts on each side; its cells are those that meet the region, in C order.

    >>> CellGrid(5, Region("ball", 2)).size, CellGrid(5, Region("box", 2)).size
    (21, 25)
    """

    divisions: int
    region: Region

    def __post_init__(self) -> None:
        if not isinstance(self.divisions, int) or isinstance(self.divisions, bool) or self.divisions < 1:
            raise DeclarationError(f"a grid of {self.divisions!r} parts on each side was asked for; give 1 or more")
        if self.divisions**self.region.dimensions > LARGEST_GRID:
            raise TooLarge(
                f"a grid of {self.divisions} parts on each of {self.region.dimensions} sides has "
                f"{float(self.divisions) ** self.region.dimensions:.2g} cells, more than {LARGEST_GRID:,}; use fewer "
                "parts or fewer attributes"
            )

    @cached_property
    def _cells(self) -> Integers:
        """Where the cells lie in the grid of the whole box."""
        shape = (self.divisions,) * self.region.dimensions
        every = np.arange(self.divisions**self.region.dimensions)
        if self.region.kind == "box":
            return every
        edges = np.linspace(-1.0, 1.0, self.divisions + 1)
        nearest = np.maximum(np.maximum(edges[:-1], -edges[1:]), 0.0)
        norms = sum(nearest[part] for part in np.unravel_index(every, shape))
        return every[np.asarray(norms) <= 1.0 + TOUCHING]

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self._cells.size

    @cached_property
    def parts(self) -> Integers:
        """For each cell, a row, which part of each side it is on."""
        return np.stack(np.unravel_index(self._cells, (self.divisions,) * self.region.dimensions), axis=1)

    @cached_property
    def centres(self) -> Floats:
        """The middle of each cell, moved into the region where it lies outside."""
        return self.region.project((2.0 * self.parts + 1.0) / self.divisions - 1.0)

    def holding(self, points: Floats) -> Integers:
        """The cell that each of these points of the region is in, in floating point: for no confidential count.

        >>> CellGrid(5, Region("ball", 2)).holding(np.array([[0.0, 0.0], [0.0, -1.0]]))
        array([10,  8])
        """
        parts = np.clip(np.floor((points + 1.0) * self.divisions / 2.0), 0, self.divisions - 1).astype(np.int64)
        flat = np.ravel_multi_index(tuple(parts.T), (self.divisions,) * self.region.dimensions)
        return np.minimum(np.searchsorted(self._cells, flat), self.size - 1)

    def counts(self, units: NDArray[np.int32], *, bits: int) -> Integers:
        """How many points, given in units of 2^−bits, each cell holds; every point is counted at most once."""
        found = np.zeros(self.divisions**self.region.dimensions, dtype=np.int64)
        one = np.int64(1) << bits
        # In batches, so that whole numbers of 64 bits never take much more memory than the points themselves.
        for start in range(0, len(units), 2**16):
            part = (units[start : start + 2**16].astype(np.int64) + one) * self.divisions >> (bits + 1)
            np.clip(part, 0, self.divisions - 1, out=part)
            cells = np.ravel_multi_index(tuple(part.T), (self.divisions,) * self.region.dimensions)
            found += np.bincount(cells, minlength=found.size)
        return found[self._cells]

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
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.domain.attributes import Continuous
from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.kernels.clustering import cluster_sums
from consilience.kernels.regions import LATTICE_BITS, Region, RegionKind, in_original_units, lattice_points

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
        declared = declared_bounds(domain, self.attributes)
        if declared != self.bounds:
            raise DeclarationError(
                f"the bounds {self.bounds} of {', '.join(self.attributes)} are declared as {declared} in the domain "
                f"{domain.name!r}; take them from there"
            )
        region = Region(self.region, len(self.attributes))
        centroids = np.array(self.centroids, dtype=np.float64)
        if centroids.ndim != 2 or not len(centroids) or centroids.shape[1] != region.dimensions:
            raise DeclarationError(
                f"centroids of the shape {centroids.shape} do not fit {region.dimensions} attributes; give a row of "
                "coordinates for each of at least one"
            )
        if not (np.isfinite(centroids).all() and region.contains(centroids).all()):
            raise DeclarationError(f"the centroids must lie in the region {self.region!r}; project them first")
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

"""K-means on plain arrays: regions and lattices for points, nearest centroids, cluster sums, noise-free clustering.

Points and centroids are in normalised coordinates, where the declared bounds are −1 and 1, unless said otherwise.
"""

from consilience.numerics.clustering.centroid_updates import next_centroids
from consilience.numerics.clustering.initial_centroids import initial_centroids
from consilience.numerics.clustering.lloyd import lloyd
from consilience.numerics.clustering.nearest import cluster_sums, nearest, wcss
from consilience.numerics.clustering.regions import (
    LATTICE_BITS,
    Bounds,
    Region,
    RegionKind,
    in_original_units,
    lattice_points,
    normalised,
)

__all__ = [
    "LATTICE_BITS",
    "Bounds",
    "Region",
    "RegionKind",
    "cluster_sums",
    "in_original_units",
    "initial_centroids",
    "lattice_points",
    "lloyd",
    "nearest",
    "next_centroids",
    "normalised",
    "wcss",
]

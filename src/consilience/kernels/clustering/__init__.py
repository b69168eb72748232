"""K-means on plain arrays: regions and lattices for points, nearest centroids, cluster sums, noise-free clustering.

Points and centroids are in normalised coordinates, where the declared bounds are −1 and 1, unless said otherwise.
"""

from consilience.kernels.clustering.centroid_updates import next_centroids
from consilience.kernels.clustering.initial_centroids import initial_centroids
from consilience.kernels.clustering.lloyd import lloyd
from consilience.kernels.clustering.nearest import cluster_sums, nearest, wcss
from consilience.kernels.clustering.regions import (
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

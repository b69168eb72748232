"""Where centroids start: far from each other, and chosen without looking at any data.

A packing of balls, as Su et al. (2015) begin: K centres drawn one after another, each at least a from the border
of the region and at least 2a from those before it. A centre that is not found in some draws starts the packing again
with a smaller radius a. What comes out is a function of the shape of the region and a public seed.
"""

import math

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.clustering.regions import Region, RegionKind
from consilience.kernels.rng import Generator, generator

DRAWS = 100
SHRINKAGE = 0.9

Floats = NDArray[np.float64]


def initial_centroids(clusters: int, dimensions: int, region: RegionKind | Region, seed: int) -> Floats:
    """Well-separated centroids in normalised coordinates: a function of the arguments alone.

    >>> initial_centroids(1, 2, "ball", seed=0)
    array([[0., 0.]])
    >>> initial_centroids(5, 3, "box", seed=7).shape
    (5, 3)
    """
    if not isinstance(clusters, int) or isinstance(clusters, bool) or clusters < 1:
        raise DeclarationError(f"{clusters!r} clusters were asked for; ask for a whole number from 1 up")
    place = region if isinstance(region, Region) else Region(region, dimensions)
    if place.dimensions != dimensions:
        raise DeclarationError(f"centroids of {dimensions} dimensions were asked for in one of {place.dimensions}")
    rng = generator(seed)
    radius = _inradius(place)
    while (found := _packed(clusters, place, radius, rng)) is None:
        radius *= SHRINKAGE
    return found


def _inradius(region: Region) -> float:
    """The radius of the largest Euclidean ball in the region."""
    return 1.0 if region.kind == "box" else 1.0 / math.sqrt(region.dimensions)


def _packed(clusters: int, region: Region, radius: float, rng: Generator) -> Floats | None:
    """Centres of balls of the radius that do not overlap, or None where chance did not find them."""
    found = np.empty((clusters, region.dimensions))
    shrunk = 1.0 - radius / _inradius(region)
    for k in range(clusters):
        drawn = shrunk * _uniform(region, DRAWS, rng)
        free = np.ones(DRAWS, dtype=np.bool_)
        for earlier in found[:k]:
            free &= np.sum((drawn - earlier) ** 2, axis=1) >= (2 * radius) ** 2
        if not free.any():
            return None
        found[k] = drawn[np.argmax(free)]
    return found + 0.0  # no negative zeros


def _uniform(region: Region, count: int, rng: Generator) -> Floats:
    """Points uniform in the region; in the ball, d of d + 1 shares of a random partition of 1, with random signs."""
    if region.kind == "box":
        return rng.uniform(-1.0, 1.0, size=(count, region.dimensions))
    parts = rng.exponential(size=(count, region.dimensions + 1))
    shares = parts[:, :-1] / parts.sum(axis=1, keepdims=True)
    return shares * (2.0 * rng.integers(2, size=shares.shape) - 1.0)

"""What one record adds to the statistics of a round: the one place where the chain knows the algorithm.

An iterative algorithm releases, in round t, noisy sums over the records of φ(x, θ_{t−1}). The chain needs no more of it
than two compiled functions, which switch on the kind:

    locate(kind, θ, x)                    the cell of the record: which block of the statistics it touches
    contribute(kind, θ, x, cell, …)       φ(x, θ), as a short list of places in the statistics and amounts

k-means       θ is the K × d centroids, the cell the nearest one (ties to the lowest index), and φ is 1 at place `cell`
              and x at the d places from K + d·cell on: K counts, then K sums.
logistic      θ is the coefficients, and below them how gradients are clipped (logistic_gradients.py). There is one
              cell, and φ is 1 and the clipped gradient of the record's loss.

*Adding a kind.* Give it a number, write its `locate` and `contribute` beside those of k-means, add a branch to each of
the two switches below and to `statistics_size` and `most_places`. Two laws must hold. Records of different cells touch
disjoint places, and records of one cell touch the same places in the same order: then a replaced record changes each
place once. A record's cell and contribution depend on the record and θ alone. An algorithm whose records all touch
everything has one cell, 0. Coordinates that are no numbers on a scale (a label) go last, and the proposal leaves them
alone (`Proposal.spreads` of 0): the region bounds the leading coordinates only.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from consilience.kernels.logistic_gradients import contribute_to_gradient

Array = NDArray[np.float64]

KMEANS, LOGISTIC = 0, 1


@njit(nogil=True, cache=True)
def nearest_centroid(centroids: Array, point: Array) -> int:
    """The lowest index of the centroids nearest to the point."""
    best, least = 0, np.inf
    for k in range(centroids.shape[0]):
        distance = 0.0
        for i in range(centroids.shape[1]):
            difference = point[i] - centroids[k, i]
            distance += difference * difference
        if distance < least:
            best, least = k, distance
    return best


@njit(nogil=True, cache=True)
def contribute_to_clusters(theta: Array, point: Array, cell: int, places: NDArray[np.int64], amounts: Array) -> int:
    """Count 1 and the point's coordinates, at the places of its cluster."""
    clusters, dimensions = theta.shape
    places[0], amounts[0] = cell, 1.0
    for i in range(dimensions):
        places[i + 1] = clusters + dimensions * cell + i
        amounts[i + 1] = point[i]
    return dimensions + 1


@njit(nogil=True, cache=True)
def locate(kind: int, theta: Array, point: Array) -> int:
    """The cell of the record under θ."""
    if kind == KMEANS:
        return nearest_centroid(theta, point)
    return 0


@njit(nogil=True, cache=True)
def contribute(kind: int, theta: Array, point: Array, cell: int, places: NDArray[np.int64], amounts: Array) -> int:
    """Write φ(x, θ) to `places` and `amounts`, and return how many of them there are."""
    if kind == KMEANS:
        return contribute_to_clusters(theta, point, cell, places, amounts)
    if kind == LOGISTIC:
        return contribute_to_gradient(theta, point, places, amounts)
    return 0


@njit(nogil=True, cache=True)
def fill_statistics(kind: int, theta: Array, points: Array, found: Array) -> None:
    """Write φ(x, θ) of each point to its column of `found`, which holds zeros."""
    places, amounts = np.empty(found.shape[0], np.int64), np.empty(found.shape[0])
    for i in range(points.shape[0]):
        number = contribute(kind, theta, points[i], locate(kind, theta, points[i]), places, amounts)
        for j in range(number):
            found[places[j], i] = amounts[j]


def statistics_size(kind: int, theta_shape: tuple[int, ...]) -> int:
    """How many numbers one round releases.

    >>> statistics_size(KMEANS, (15, 2)), statistics_size(LOGISTIC, (2, 7))
    (45, 8)
    """
    rows, columns = theta_shape
    return {KMEANS: rows * (1 + columns), LOGISTIC: 1 + columns}[kind]


def most_places(kind: int, theta_shape: tuple[int, ...]) -> int:
    """How many of them one record touches at most.

    >>> most_places(KMEANS, (15, 2))
    3
    """
    return {KMEANS: 1 + theta_shape[1], LOGISTIC: 1 + theta_shape[1]}[kind]

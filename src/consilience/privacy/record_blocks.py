"""Records divided into blocks, each clustered by itself (sample and aggregate: Nissim et al. 2007; Mohan et al. 2012).

A record's block is a hash of its coordinates and a public seed: of that record alone, never of its place in the table
or of other records. One record that comes or goes therefore changes one block and no other, for every seed and every
table. Equal records share a block.

Every block runs Lloyd's algorithm from the same public start, so that the k-th centroids of all blocks mean the same.
Sums are of whole numbers in lattice units: the centroids of a block follow from its records and the start alone, to the
last bit. A cluster without records keeps its place; a block without records keeps the start.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce

Floats = NDArray[np.float64]

ROUNDS = 50
"""The most rounds of Lloyd's algorithm in a block."""


def block_centroids(
    units: NDArray[np.int32], start: Floats, *, blocks: int, bits: int, seed: int, rounds: int = ROUNDS
) -> Floats:
    """The centroids that each block of the records has: an array of blocks × clusters × dimensions."""
    announce(_cluster_blocks)
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
    announce(_hash_rows)
    hashes = _hash_rows(np.ascontiguousarray(units, dtype=np.int32), np.uint64(seed % 2**64))
    return (hashes % np.uint64(blocks)).astype(np.int64)


# The finaliser of SplitMix64 (Steele, Lea, Flood 2014), a bijection of 64 bits that leaves no visible pattern, taken
# after each coordinate has been added in.
@numba.njit(nogil=True, cache=True)
def _mixed(state):  # pragma: no cover - compiled
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@numba.njit(nogil=True, cache=True)
def _hash_rows(units, seed):  # pragma: no cover - compiled
    odd = np.uint64(0x9E3779B97F4A7C15)
    hashes = np.empty(units.shape[0], np.uint64)
    for i in range(units.shape[0]):
        state = _mixed(seed + odd)
        for j in range(units.shape[1]):
            state = _mixed((state ^ np.uint64(np.uint32(units[i, j]))) + odd)
        hashes[i] = state
    return hashes


@numba.njit(nogil=True, cache=True)
def _cluster_blocks(units, starts, centroids, bits, rounds):  # pragma: no cover - compiled
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
                nearest, least = 0, np.inf
                for k in range(clusters):
                    distance = 0.0
                    for j in range(dimensions):
                        gap = units[i, j] * scale - centroids[block, k, j]
                        distance += gap * gap
                    if distance < least:
                        nearest, least = k, distance
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

"""Least squares on trees without x ≥ 0, where every node was measured: two passes (Hay et al. 2010, §4.1).

`pieces` for the one case in which all nodes are free and none is at a kink, with nothing to remember but numbers. Start
from consistent counts x, the leaves' noisy values and their sums, and let d = y − x be what is missing at a node. From
the leaves upwards, the step of a subtree's count answers a price λ by A + S·λ: with A and S summed over the children,

    leaf:    A_v = 0,                              S_v = 1/2q
    inner:   A_v = (A + 2q·S·d) / (1 + 2q·S),      S_v = S / (1 + 2q·S)

with q = w², and from the roots down, where λ = 0, children share the price (λ − 2q·(A − d)) / (1 + 2q·S). With g = λ
minus the children's price and residual r, each node is (g − 2q·r)² / 4q from its best answer: its part of the gap.
"""

from typing import NamedTuple

import numba
import numpy as np

from consilience.kernels.compilation import announce
from consilience.solvers.losses import Array
from consilience.solvers.trees.certificate import LAST_PLACE, Certificate
from consilience.solvers.trees.layout import Layout


class TwoPasses(NamedTuple):
    """Consistent counts, the prices that certify them, and what they certify; all in breadth-first order."""

    counts: Array
    prices: Array
    certificate: Certificate


def solve_two_passes(layout: Layout, noisy: Array, weights: Array) -> TwoPasses:
    """The consistent counts of least Σ w²(x − y)², for weights w > 0."""
    announce(_rise)
    counts, prices = np.empty(layout.nodes), np.empty(layout.nodes)
    offsets, slopes = np.empty(layout.nodes), np.empty(layout.nodes)
    _rise(layout.first, noisy, weights, counts, offsets, slopes)
    _descend(layout.first, layout.roots, noisy, weights, counts, offsets, slopes, prices)
    objective, gap, largest, square = _sum_up(layout.first, noisy, weights, counts, prices)
    certificate = Certificate(objective, min(gap, objective), 0.0, square * (LAST_PLACE * largest) ** 2)
    return TwoPasses(counts, prices, certificate)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _rise(first, noisy, weights, counts, offsets, slopes):  # pragma: no cover - compiled
    for v in range(len(noisy) - 1, -1, -1):
        if first[v] == first[v + 1]:
            counts[v], offsets[v], slopes[v] = noisy[v], 0.0, 0.5 / (weights[v] * weights[v])
            continue
        total, offset, slope = 0.0, 0.0, 0.0
        for c in range(first[v], first[v + 1]):
            total += counts[c]
            offset += offsets[c]
            slope += slopes[c]
        steep = 2.0 * weights[v] * weights[v] * slope
        counts[v] = total
        offsets[v] = (offset + steep * (noisy[v] - total)) / (1.0 + steep)
        slopes[v] = slope / (1.0 + steep)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _descend(first, roots, noisy, weights, counts, offsets, slopes, prices):  # pragma: no cover - compiled
    for v in range(roots):
        prices[v] = 0.0
    for v in range(len(noisy)):
        if first[v] == first[v + 1]:
            counts[v] += slopes[v] * prices[v]
            continue
        offset, slope = 0.0, 0.0
        for c in range(first[v], first[v + 1]):
            offset += offsets[c]
            slope += slopes[c]
        double = 2.0 * weights[v] * weights[v]
        shared = (prices[v] - double * (offset - (noisy[v] - counts[v]))) / (1.0 + double * slope)
        for c in range(first[v], first[v + 1]):
            prices[c] = shared


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _sum_up(first, noisy, weights, counts, prices):  # pragma: no cover - compiled
    """Make every inner count the sum of its children's; returns what the certificate says."""
    objective, gap, largest, square = 0.0, 0.0, 0.0, 0.0
    for v in range(len(noisy) - 1, -1, -1):
        given = prices[v]
        if first[v] < first[v + 1]:
            given -= prices[first[v]]
            total = 0.0
            for c in range(first[v], first[v + 1]):
                total += counts[c]
            counts[v] = total
        residual, q = counts[v] - noisy[v], weights[v] * weights[v]
        short = given - 2.0 * q * residual
        objective += q * residual * residual
        gap += short * short / (4.0 * q)
        largest = max(largest, abs(noisy[v]), abs(counts[v]))
        square += q
    return objective, gap, largest, square

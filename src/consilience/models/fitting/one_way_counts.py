"""The counts of each attribute alone, as measurements over several attributes tell them.

Let y = (⊗ Q_i) m + noise be measured about a marginal m. Where a vector u_i with u_iᵀQ_i = 1ᵀ exists for every factor
but one, and that one, Q_a, has full column rank, Q_a⁺ (⊗_{i≠a} u_iᵀ) y is an unbiased estimate of the counts of
attribute a alone, of variance σ²·diag(Q_a⁺Q_a⁺ᵀ)·Π‖u_i‖². Several such estimates are averaged by inverse variance.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.linear_maps import IdentityMap, LinearMap
from consilience.marginals.axis_precisions import determines_its_axis, inverse_map
from consilience.marginals.total_estimate import summing_combination

Array = NDArray[np.float64]

LEAST_SHARE_OF_NOISE = 0.2
"""Counts are taken to be at least this many of their own standard deviations, so that no value is ruled out."""


@dataclass(frozen=True, eq=False)
class NoisyProduct:
    """The noisy answers of a Kronecker product of maps, one for each attribute named."""

    attributes: tuple[int, ...]
    maps: tuple[LinearMap, ...]
    values: Array
    variance: float


def one_way_shares(measured: Iterable[NoisyProduct]) -> Mapping[int, Array]:
    """Positive shares of the values of each attribute whose counts follow from what was measured; each sums to 1."""
    sums: dict[int, Array] = {}
    precisions: dict[int, Array] = {}
    for each in measured:
        for place, attribute in enumerate(each.attributes):
            found = _counts(each, place)
            if found is not None:
                counts, variances = found
                sums[attribute] = sums.get(attribute, 0.0) + counts / variances
                precisions[attribute] = precisions.get(attribute, 0.0) + 1.0 / variances
    shares = {}
    for attribute, precision in precisions.items():
        counts = np.maximum(sums[attribute] / precision, LEAST_SHARE_OF_NOISE / np.sqrt(precision))
        shares[attribute] = counts / counts.sum()
    return shares


def _counts(measured: NoisyProduct, place: int) -> tuple[Array, Array] | None:
    """The counts of one attribute and their variances, or None where these answers do not tell them."""
    others = [summing_combination(each) for at, each in enumerate(measured.maps) if at != place]
    weights = [weight for weight in others if weight is not None]
    own = measured.maps[place]
    if len(weights) < len(others) or not determines_its_axis(own):
        return None
    table = np.moveaxis(measured.values.reshape([each.rows for each in measured.maps]), place, 0)
    variance = measured.variance
    for weight in reversed(weights):
        table = table @ weight
        variance *= float(weight @ weight)
    if isinstance(own, IdentityMap):
        return table, np.full(own.columns, variance)
    inverse = inverse_map(own)
    return np.asarray(inverse.apply(table, 0)), variance * np.sum(inverse.dense() ** 2, axis=1)

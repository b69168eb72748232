"""The total of a table from noisy answers about it, by inverse variance (McKenna, Sheldon & Miklau 2019, appendix E.1).

If some combination of a query's rows is the sum of all cells, uᵀQ = 1ᵀ, then u·y is an unbiased estimate of the total
with variance Σ u²·var(y). The shortest u is 1ᵀQ⁺, and for a Kronecker product the product of those of its factors.
Estimates from several queries are combined in proportion to 1/variance. Values that were clipped are biased: they must
stay out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import IdentityMap, Kronecker, LinearMap, SumMap
from consilience.marginals.least_squares import determines_its_axis, inverse_map

Array = NDArray[np.float64]

PRECISION = 1e-12
SPANNED = 1e-8
"""How near Qᵀu must come to all ones."""


@dataclass(frozen=True)
class TotalEstimate:
    """An estimate of a total and its variance."""

    total: float
    variance: float


def total_of_answers(query: Kronecker, values: ArrayLike, variances: ArrayLike) -> TotalEstimate | None:
    """The total that noisy answers to a query tell of; None where the query's rows cannot be combined to the total.

    >>> total_of_answers(Kronecker((IdentityMap(2), IdentityMap(2))), [1.0, 2.0, 3.0, 4.0], 2.0)
    TotalEstimate(total=10.0, variance=8.0)
    """
    combinations = [summing_combination(each) for each in query.maps]
    if any(each is None for each in combinations):
        return None
    found = [each for each in combinations if each is not None]
    u = reduce(lambda a, b: np.multiply.outer(a, b).ravel(), found, np.ones(1))
    answers = np.asarray(values, dtype=np.float64).ravel()
    variance = np.broadcast_to(np.asarray(variances, dtype=np.float64), answers.shape)
    if answers.shape != u.shape:
        raise DeclarationError(f"{answers.size} values for a query of {u.size} answers: give one value for each answer")
    if not np.isfinite(answers).all() or not np.isfinite(variance).all() or variance.min(initial=1.0) <= 0:
        raise DeclarationError("an answer is not finite, or its variance not positive: such answers tell no total")
    return TotalEstimate(float(u @ answers), float(u**2 @ variance))


def combined_total(estimates: Sequence[TotalEstimate | None], *, least: float = 1.0) -> TotalEstimate:
    """All estimates combined by inverse variance, and never below `least`; None stands for a query that tells none.

    >>> combined_total([TotalEstimate(10.0, 1.0), None, TotalEstimate(13.0, 2.0)])
    TotalEstimate(total=11.0, variance=0.6666666666666666)
    """
    known = [each for each in estimates if each is not None]
    if not known:
        raise DeclarationError(
            "no measurement tells the total: none has rows that add up to the sum of all cells. Declare the total, or "
            "measure a marginal"
        )
    precision = sum(1.0 / each.variance for each in known)
    total = sum(each.total / each.variance for each in known) / precision
    return TotalEstimate(max(total, least), 1.0 / precision)


@dataclass(frozen=True, eq=False)
class _Transposed:
    """Fᵀ as SciPy's solvers take it."""

    shape: tuple[int, int]
    factor: LinearMap
    dtype = np.dtype(np.float64)

    def matvec(self, u: Array) -> Array:
        return np.asarray(self.factor.adjoint(u.ravel(), 0), dtype=np.float64)

    def rmatvec(self, x: Array) -> Array:
        return np.asarray(self.factor.apply(x.ravel(), 0), dtype=np.float64)


def summing_combination(factor: LinearMap) -> Array | None:
    """The shortest u with uᵀF = 1ᵀ; None where there is none."""
    if isinstance(factor, IdentityMap | SumMap):
        return np.ones(factor.rows)
    transposed: Any = _Transposed((factor.columns, factor.rows), factor)
    operator = scipy.sparse.linalg.aslinearoperator(transposed)
    ones = np.ones(factor.columns)
    found = scipy.sparse.linalg.lsmr(operator, ones, atol=PRECISION, btol=PRECISION, maxiter=20 * factor.columns)
    u = np.asarray(found[0], dtype=np.float64)
    return u if float(np.abs(factor.adjoint(u, 0) - ones).max(initial=0.0)) <= SPANNED else None


# ----------------------------------------------------------------------------------------------------------------------
# The counts of each attribute alone, as measurements over several attributes tell them.
#
# Let y = (⊗ Q_i) m + noise be measured about a marginal m. Where a vector u_i with u_iᵀQ_i = 1ᵀ exists for every factor
# but one, and that one, Q_a, has full column rank, Q_a⁺ (⊗_{i≠a} u_iᵀ) y is an unbiased estimate of the counts of
# attribute a alone, of variance σ²·diag(Q_a⁺Q_a⁺ᵀ)·Π‖u_i‖². Several such estimates are averaged by inverse variance.


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

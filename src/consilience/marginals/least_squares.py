"""The residuals that fit noisy tables best, in squares divided by variances, with exact facts kept.

For noisy marginals y of independent noise with variance σ² per cell, the best linear unbiased residuals are weighted
means: a marginal over C tells the residual of τ ⊆ C up to noise of variance σ²·Π_{i∈C∖τ} n_i in every direction, so

    ẑ_τ = (Σ_{C⊇τ} residual_τ(y_C) / (σ_C² Π_{i∈C∖τ} n_i)) / w_τ,      w_τ = Σ_{C⊇τ} 1 / (σ_C² Π_{i∈C∖τ} n_i).

Other answers A_C m_C + noise, with A_C a Kronecker product of maps of full column rank, or with unequal variances, have
no closed form. They are solved by conjugate gradients on the normal equations, preconditioned by approximate w_τ, and
started from the closed form on each table's own least-squares marginal.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.kernels.linear_maps import IdentityMap, Kronecker, LinearMap, PrefixMap, SparseMap
from consilience.marginals.decomposition import Decomposition, residual_of
from consilience.marginals.table_stacks import Scope, stored_order, subsets, summed
from consilience.solvers.conjugate_gradients import Iterate, conjugate_gradients
from consilience.solvers.fit import Infeasible

# ----------------------------------------------------------------------------------------------------------------------
# How precisely the answers of a map along one axis tell the sum over that axis, and the differences along it.
#
# With G = FᵀF for the map F over n values and noise of variance 1, a table that is even along the axis is told with the
# precision 1ᵀG1/n², and a direction whose sum is 0 with a precision that varies: the harmonic mean of the non-zero
# eigenvalues of G between such directions stands for all, so that the variances are right on average. For the identity
# these are 1/n and 1, and exact.


LARGEST_WRITTEN_OUT = 4_000_000
"""Entries of the largest map that is written out."""

RANK_TOLERANCE = 1e-9


@dataclass(frozen=True)
class AxisPrecision:
    """The precision of the sum along an axis, spread evenly, and of the differences."""

    sums: float
    contrasts: float


def determines_its_axis(each: LinearMap) -> bool | None:
    """Whether the answers of a map leave nothing open; None where that is too large to find out."""
    if isinstance(each, IdentityMap | PrefixMap):
        return True
    if each.rows < each.columns:
        return False
    if each.rows * each.columns > LARGEST_WRITTEN_OUT:
        return None
    values = np.linalg.svd(each.dense(), compute_uv=False)
    return bool(values.min(initial=np.inf) > RANK_TOLERANCE * values.max(initial=0.0))


def axis_precision(each: LinearMap) -> AxisPrecision:
    """The precisions of a map that determines its axis."""
    count = each.columns
    if isinstance(each, IdentityMap):
        return AxisPrecision(1.0 / count, 1.0)
    return _written_out(each)


@lru_cache(maxsize=256)
def _written_out(each: LinearMap) -> AxisPrecision:
    matrix = each.dense()
    count = each.columns
    gram = matrix.T @ matrix
    centring = np.eye(count) - 1.0 / count
    values = np.linalg.eigvalsh(centring @ gram @ centring)
    kept = values[values > RANK_TOLERANCE * values.max(initial=0.0)]
    contrasts = kept.size / float(np.sum(1.0 / kept)) if kept.size else 1.0
    return AxisPrecision(float(gram.sum()) / count**2, contrasts)


@lru_cache(maxsize=256)
def inverse_map(each: LinearMap) -> LinearMap:
    """The least-squares inverse of a map that determines its axis."""
    return SparseMap(sp.csr_array(np.linalg.pinv(each.dense())))


# ----------------------------------------------------------------------------------------------------------------------
# The residuals that fit noisy tables best, in squares divided by variances, with exact facts kept.


Array = NDArray[np.float64]

AGREEMENT = 1e-7
"""Exact facts agree when they differ by no more than this part of the largest count."""

MOST_STEPS = 500
ENOUGH = 1e-8
"""The part of the first gradient at which conjugate gradients stop."""


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """Noisy answers about the marginal of a scope; `maps` act on its axes, in the scope's own order."""

    scope: Scope
    maps: tuple[LinearMap, ...]
    values: Array
    precisions: Array
    """1/variance for each answer."""

    @property
    def is_plain(self) -> bool:
        """Whether these are the cells themselves, with noise of one variance."""
        same = float(self.precisions.min()) == float(self.precisions.max())
        return same and all(isinstance(each, IdentityMap) for each in self.maps)


@dataclass(frozen=True, eq=False)
class KnownTable:
    """The exact marginal of a scope, with axes in the scope's order, and what messages call it."""

    scope: Scope
    table: Array
    name: str


@dataclass(frozen=True, eq=False)
class FittedResiduals:
    """Residuals and how precise each is: 0 where nothing was measured, infinite where it is known."""

    residuals: Array
    precisions: dict[Scope, float]
    steps: int
    remainder: float
    """The gradient that is left, in parts of the first one; 0 for closed forms."""


def known_residuals(decomposition: Decomposition, facts: Sequence[KnownTable]) -> dict[Scope, Array]:
    """The residuals that exact tables determine; contradictions are refused with both names."""
    found: dict[Scope, tuple[Array, KnownTable]] = {}
    sizes = decomposition.residuals.sizes
    for fact in facts:
        size = float(np.abs(fact.table).max(initial=1.0))
        if fact.table.min(initial=0.0) < -AGREEMENT * size:
            worst = float(fact.table.min())
            raise Infeasible(
                f"{fact.name} holds the count {worst:g}, and counts are not negative; correct the fact",
                violation=-worst,
                constraints=[fact.name],
            )
        for part in subsets(stored_order(sizes, fact.scope)):
            table = residual_of(summed(fact.table, fact.scope, part))
            if part not in found:
                found[part] = (table, fact)
                continue
            other, earlier = found[part]
            difference = float(np.abs(table - other).max(initial=0.0))
            if difference > AGREEMENT * max(size, float(np.abs(earlier.table).max(initial=1.0))):
                raise _contradiction(earlier, fact, part)
    return {part: table for part, (table, _) in found.items()}


def _contradiction(one: KnownTable, two: KnownTable, part: Scope) -> Infeasible:
    first, second = summed(one.table, one.scope, part), summed(two.table, two.scope, part)
    at = int(np.argmax(np.abs(first - second)))
    worst = float(np.abs(first - second).max())
    return Infeasible(
        f"{one.name} and {two.name} contradict each other: where both count the same records one says "
        f"{first.flat[at]:.12g} and the other {second.flat[at]:.12g}; correct one of them",
        violation=worst / 2,
        constraints=[one.name, two.name],
    )


def fit_residuals(
    decomposition: Decomposition, noisy: Sequence[NoisyTable], known: Mapping[Scope, Array]
) -> FittedResiduals:
    """The weighted least-squares residuals; the decomposition has a table for every measured scope."""
    precisions = _precisions(decomposition, noisy)
    weights = decomposition.residuals.spread(precisions)
    plain = all(each.is_plain for each in noisy)
    residuals = _closed_form(decomposition, noisy, weights, known)
    steps, remainder = 0, 0.0
    if not plain:
        free = np.where(decomposition.residuals.spread({s: float(s not in known) for s in precisions}) > 0, weights, 0)
        residuals, steps, remainder = _conjugate_gradients(decomposition, noisy, free, residuals)
    certain = dict.fromkeys(known, math.inf)
    return FittedResiduals(residuals, precisions | certain, steps, remainder)


def _precisions(decomposition: Decomposition, noisy: Sequence[NoisyTable]) -> dict[Scope, float]:
    """w_τ; for maps other than the identity, the precision of an average direction."""
    sizes = decomposition.residuals.sizes
    found = dict.fromkeys(decomposition.residuals.scopes, 0.0)
    for each in noisy:
        axes = {attribute: axis_precision(axis) for attribute, axis in zip(each.scope, each.maps, strict=True)}
        base = float(each.precisions.mean())
        for part in subsets(stored_order(sizes, each.scope)):
            factors = [pair.contrasts if attribute in part else pair.sums for attribute, pair in axes.items()]
            found[part] += base * math.prod(factors)
    return found


def _closed_form(
    decomposition: Decomposition, noisy: Sequence[NoisyTable], weights: Array, known: Mapping[Scope, Array]
) -> Array:
    """The weighted means of the residuals of each table's own least-squares marginal."""
    stack = decomposition.tables
    sums = np.zeros(stack.size)
    shares = dict.fromkeys(stack.scopes, 0.0)
    for each in noisy:
        scope = stored_order(stack.sizes, each.scope)
        marginal, precision = _own_marginal(each)
        stack.table(sums, scope)[...] += _reordered(marginal, each.scope, scope) * precision
        shares[scope] += precision
    total = decomposition.residuals.spread(decomposition.precisions(shares))
    pulled = decomposition.adjoint(sums)
    residuals = np.divide(pulled, total, out=np.zeros_like(pulled), where=(total > 0) & (weights > 0))
    for part, table in known.items():
        decomposition.residuals.table(residuals, part)[...] = table
    return residuals


def _own_marginal(noisy: NoisyTable) -> tuple[Array, float]:
    """The marginal that fits the answers of one table best, and the precision of its cells on average."""
    array = noisy.values.reshape([each.rows for each in noisy.maps])
    precision = float(noisy.precisions.mean())
    for axis, each in enumerate(noisy.maps):
        if not isinstance(each, IdentityMap):
            array = inverse_map(each).apply(array, axis)
            precision *= axis_precision(each).contrasts or axis_precision(each).sums * each.columns
    return np.asarray(array, dtype=np.float64), precision


def _reordered(table: Array, scope: Scope, into: Scope) -> Array:
    return table.transpose([scope.index(attribute) for attribute in into])


class _NormalEquations:
    """Mᵀ (Σ_C A_Cᵀ W_C A_C) M, on residuals."""

    def __init__(self, decomposition: Decomposition, noisy: Sequence[NoisyTable]) -> None:
        self.decomposition = decomposition
        self.noisy = noisy
        self.operators = [Kronecker(each.maps) for each in noisy]

    def gradient(self, residuals: Array, *, values: bool) -> Array:
        """Mᵀ Aᵀ W (A M z − y), with y = 0 where `values` is False."""
        stack = self.decomposition.tables
        marginals = self.decomposition.marginals(residuals)
        pulled = np.zeros(stack.size)
        for each, operator in zip(self.noisy, self.operators, strict=True):
            scope = stored_order(stack.sizes, each.scope)
            answers = operator.apply(_reordered(stack.table(marginals, scope), scope, each.scope))
            missed = (answers.ravel() - each.values if values else answers.ravel()) * each.precisions
            back = operator.adjoint(missed.reshape(operator.shape_out))
            stack.table(pulled, scope)[...] += _reordered(back, each.scope, scope)
        return self.decomposition.adjoint(pulled)


def _conjugate_gradients(
    decomposition: Decomposition, noisy: Sequence[NoisyTable], weights: Array, start: Array
) -> tuple[Array, int, float]:
    """Preconditioned conjugate gradients over the residuals of weight above 0; the others stay."""
    equations = _NormalEquations(decomposition, noisy)
    scaling = np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0)

    def product(direction: Array, out: Array) -> float:
        np.multiply(equations.gradient(direction, values=False), weights > 0, out=out)
        return float(direction @ out)

    def precondition(slope: Array, out: Array) -> float:
        return float(slope @ np.multiply(slope, scaling, out=out))

    def stop(at: Iterate) -> bool:
        return at.energy <= ENOUGH**2 * at.first_energy

    slope = -equations.gradient(start, values=True) * (weights > 0)
    found = conjugate_gradients(product, slope, precondition, stop, most_steps=MOST_STEPS, start=start)
    remainder = math.sqrt(found.energy / found.first_energy) if found.first_energy > 0 else 0.0
    return found.solution, found.steps, remainder

"""The residuals that fit noisy tables best, in squares divided by variances, with exact facts kept.

For noisy marginals y of independent noise with variance σ² per cell, the best linear unbiased residuals are weighted
means: a marginal over C tells the residual of τ ⊆ C up to noise of variance σ²·Π_{i∈C∖τ} n_i in every direction, so

    ẑ_τ = (Σ_{C⊇τ} residual_τ(y_C) / (σ_C² Π_{i∈C∖τ} n_i)) / w_τ,      w_τ = Σ_{C⊇τ} 1 / (σ_C² Π_{i∈C∖τ} n_i).

Other answers A_C m_C + noise have no closed form: those with unequal variances, and those whose A_C is a Kronecker
product of maps that tell all of their axis, or all differences along it and no sum. They are solved by conjugate
gradients on the normal equations, preconditioned by approximate w_τ, and started from the closed form on each table's
own least-squares marginal.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import IdentityMap, Kronecker, LinearMap, PrefixMap, SparseMap, SumMap
from consilience.marginals.decomposition import Decomposition, residual_of
from consilience.marginals.table_stacks import Scope, stored_order, subsets, summed
from consilience.solvers.conjugate_gradients import Iterate, conjugate_gradients
from consilience.solvers.fit import Infeasible

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LeastSquaresSettings:
    """What tunes the fits of this file; what is rounding and what is not was set by trial, and no figures were kept."""

    largest_written_out: int = 4_000_000
    """Entries of the largest map along one axis that is written out to find its rank: 32 MB."""
    rank_tolerance: float = 1e-9
    """Singular values, eigenvalues and sums of rows below this part of the largest are 0: rounding."""
    agreement: float = 1e-7
    """Exact facts agree when they differ by no more than this part of the largest count."""
    most_steps: int = 500
    """Conjugate gradients for all residuals."""
    gradient_left: float = 1e-8
    """The part of the first gradient, in the preconditioner's norm, at which conjugate gradients stop."""
    combination_accuracy: float = 1e-12
    """The relative accuracy of the combinations of rows that make the total (lsmr's atol and btol)."""
    spanned: float = 1e-8
    """How near such a combination must come to all ones, in its worst entry; else the rows do not tell the total."""
    least_count: float = 0.2
    """Counts are taken to be at least this many of their own standard deviations, so that no value is ruled out."""


LEAST_SQUARES = LeastSquaresSettings()


# ----------------------------------------------------------------------------------------------------------------------
# How precisely the answers of a map along one axis tell the sum over that axis, and the differences along it.
#
# With G = FᵀF for the map F over n values and noise of variance 1, a table that is even along the axis is told with the
# precision 1ᵀG1/n², and a direction whose sum is 0 with a precision that varies: the harmonic mean of the non-zero
# eigenvalues of G between such directions stands for all, so that the variances are right on average. For the identity
# these are 1/n and 1, and exact.


def determines_its_axis(each: LinearMap) -> bool | None:
    """Whether the answers of a map leave nothing open; None where that is too large to find out."""
    if isinstance(each, IdentityMap | PrefixMap):
        return True
    if each.rows < each.columns:
        return False
    if each.rows * each.columns > LEAST_SQUARES.largest_written_out:
        return None
    return _rank(each.dense()) == each.columns


def determines_differences(each: LinearMap) -> bool | None:
    """Whether the answers of a map tell all differences along its axis and no sum; None where it is too large.

    >>> determines_differences(SparseMap(sp.csr_array([[1.0, -1.0]])))
    True
    """
    if each.rows * each.columns > LEAST_SQUARES.largest_written_out:
        return None
    matrix = each.dense()
    sums = np.abs(matrix.sum(axis=1)).max(initial=0.0)
    none = bool(sums <= LEAST_SQUARES.rank_tolerance * np.abs(matrix).max(initial=0.0))
    return none and _rank(matrix) == each.columns - 1


def _rank(matrix: NDArray[np.float64]) -> int:
    values = np.linalg.svd(matrix, compute_uv=False)
    return int(np.sum(values > LEAST_SQUARES.rank_tolerance * values.max(initial=0.0)))


@lru_cache(maxsize=256)
def axis_precision(each: LinearMap) -> tuple[float, float]:
    """How precisely a map tells the sum along its axis, spread evenly, and the differences."""
    count = each.columns
    if isinstance(each, IdentityMap):
        return 1.0 / count, 1.0
    matrix = each.dense()
    gram = matrix.T @ matrix
    centring = np.eye(count) - 1.0 / count
    values = np.linalg.eigvalsh(centring @ gram @ centring)
    kept = values[values > LEAST_SQUARES.rank_tolerance * values.max(initial=0.0)]
    contrasts = kept.size / float(np.sum(1.0 / kept)) if kept.size else 1.0
    return float(gram.sum()) / count**2, contrasts


@lru_cache(maxsize=256)
def inverse_map(each: LinearMap) -> LinearMap:
    """The least-squares inverse of a map that determines its axis."""
    return SparseMap(sp.csr_array(np.linalg.pinv(each.dense())))


# ----------------------------------------------------------------------------------------------------------------------
# The residuals that fit noisy tables best, in squares divided by variances, with exact facts kept.


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
    """For maps other than the identity, the precision of an average direction."""
    steps: int
    remainder: float
    """The gradient that is left, in parts of the first one; 0 for closed forms."""
    precision: Callable[[Array], Array] | None = None
    """The product with the whole precision matrix of the residuals, where one number for each does not say it all."""
    uneven: frozenset[Scope] = frozenset()
    """The residuals some of whose directions are told better than others."""


def known_residuals(decomposition: Decomposition, facts: Sequence[KnownTable]) -> dict[Scope, Array]:
    """The residuals that exact tables determine; contradictions are refused with both names."""
    found: dict[Scope, tuple[Array, KnownTable]] = {}
    sizes = decomposition.residuals.sizes
    for fact in facts:
        size = float(np.abs(fact.table).max(initial=1.0))
        if fact.table.min(initial=0.0) < -LEAST_SQUARES.agreement * size:
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
            if difference > LEAST_SQUARES.agreement * max(size, float(np.abs(earlier.table).max(initial=1.0))):
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
    residuals = _closed_form(decomposition, noisy, weights, known)
    certain = dict.fromkeys(known, math.inf)
    uneven = [each for each in noisy if not each.is_plain]
    if not uneven:
        return FittedResiduals(residuals, precisions | certain, 0, 0.0)
    free = np.where(decomposition.residuals.spread({s: float(s not in known) for s in precisions}) > 0, weights, 0)
    residuals, steps, remainder = _conjugate_gradients(decomposition, noisy, free, residuals)
    return FittedResiduals(
        residuals,
        precisions | certain,
        steps,
        remainder,
        precision=partial(_gradient, decomposition, noisy, values=False),
        uneven=frozenset(
            part for each in uneven for part in subsets(stored_order(decomposition.tables.sizes, each.scope))
        ),
    )


def _precisions(decomposition: Decomposition, noisy: Sequence[NoisyTable]) -> dict[Scope, float]:
    """w_τ; for maps other than the identity, the precision of an average direction."""
    sizes = decomposition.residuals.sizes
    found = dict.fromkeys(decomposition.residuals.scopes, 0.0)
    for each in noisy:
        axes = {attribute: axis_precision(axis) for attribute, axis in zip(each.scope, each.maps, strict=True)}
        base = float(each.precisions.mean())
        for part in subsets(stored_order(sizes, each.scope)):
            found[part] += base * math.prod(pair[attribute in part] for attribute, pair in axes.items())
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
    image = decomposition.adjoint(sums)
    residuals = np.divide(image, total, out=np.zeros_like(image), where=(total > 0) & (weights > 0))
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
            sums, contrasts = axis_precision(each)
            precision *= contrasts or sums * each.columns
    return np.asarray(array, dtype=np.float64), precision


def _reordered(table: Array, scope: Scope, into: Scope) -> Array:
    return table.transpose([scope.index(attribute) for attribute in into])


def _gradient(decomposition: Decomposition, noisy: Sequence[NoisyTable], residuals: Array, *, values: bool) -> Array:
    """Mᵀ Σ_C A_Cᵀ W_C (A_C M z − y_C), with y = 0 where `values` is False."""
    stack = decomposition.tables
    marginals = decomposition.marginals(residuals)
    image = np.zeros(stack.size)
    for each in noisy:
        scope, operator = stored_order(stack.sizes, each.scope), Kronecker(each.maps)
        answers = operator.apply(_reordered(stack.table(marginals, scope), scope, each.scope))
        missed = (answers.ravel() - each.values if values else answers.ravel()) * each.precisions
        back = operator.adjoint(missed.reshape(operator.shape_out))
        stack.table(image, scope)[...] += _reordered(back, each.scope, scope)
    return decomposition.adjoint(image)


def _conjugate_gradients(
    decomposition: Decomposition, noisy: Sequence[NoisyTable], weights: Array, start: Array
) -> tuple[Array, int, float]:
    """Preconditioned conjugate gradients over the residuals of weight above 0; the others stay."""
    gradient = partial(_gradient, decomposition, noisy)
    scaling = np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0)

    def product(direction: Array, out: Array) -> float:
        np.multiply(gradient(direction, values=False), weights > 0, out=out)
        return float(direction @ out)

    def precondition(slope: Array, out: Array) -> float:
        return float(slope @ np.multiply(slope, scaling, out=out))

    def stop(at: Iterate) -> bool:
        return at.energy <= LEAST_SQUARES.gradient_left**2 * at.first_energy

    slope = -gradient(start, values=True) * (weights > 0)
    found = conjugate_gradients(product, slope, precondition, stop, most_steps=LEAST_SQUARES.most_steps, start=start)
    remainder = math.sqrt(found.energy / found.first_energy) if found.first_energy > 0 else 0.0
    return found.solution, found.steps, remainder


# ----------------------------------------------------------------------------------------------------------------------
# The total of a table from noisy answers about it, by inverse variance (McKenna, Sheldon & Miklau 2019, appendix E.1).
#
# If some combination of a query's rows is the sum of all cells, uᵀQ = 1ᵀ, then u·y is an unbiased estimate of the total
# with variance Σ u²·var(y). The shortest u is 1ᵀQ⁺, and for a Kronecker product the product of those of its factors.
# Estimates from several queries are combined in proportion to 1/variance. Values that were clipped are biased: they
# must stay out.


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


def summing_combination(factor: LinearMap) -> Array | None:
    """The shortest u with uᵀF = 1ᵀ; None where there is none."""
    if isinstance(factor, IdentityMap | SumMap):
        return np.ones(factor.rows)
    operator: Any = scipy.sparse.linalg.LinearOperator
    transposed = operator(
        (factor.columns, factor.rows),
        matvec=lambda u: factor.adjoint(u.ravel(), 0),
        rmatvec=lambda x: factor.apply(x.ravel(), 0),
        dtype=np.float64,
    )
    u, missed = np.zeros(factor.rows), np.ones(factor.columns)
    accuracy = LEAST_SQUARES.combination_accuracy
    # The second round removes what the first one's rounding left: large counts with little noise feel it.
    for _ in range(2):
        found = scipy.sparse.linalg.lsmr(transposed, missed, atol=accuracy, btol=accuracy, maxiter=20 * factor.columns)
        u += np.asarray(found[0], dtype=np.float64)
        missed = 1.0 - factor.adjoint(u, 0)
    return u if float(np.abs(missed).max(initial=0.0)) <= LEAST_SQUARES.spanned else None


# ----------------------------------------------------------------------------------------------------------------------
# The counts of each attribute alone, as measurements over several attributes tell them.
#
# Let y = (⊗ Q_i) m + noise be measured about a marginal m. Where a vector u_i with u_iᵀQ_i = 1ᵀ exists for every factor
# but one, and that one, Q_a, has full column rank, Q_a⁺ (⊗_{i≠a} u_iᵀ) y is an unbiased estimate of the counts of
# attribute a alone, of variance σ²·diag(Q_a⁺Q_a⁺ᵀ)·Π‖u_i‖². Several such estimates are averaged by inverse variance.


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
        counts = np.maximum(sums[attribute] / precision, LEAST_SQUARES.least_count / np.sqrt(precision))
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

"""The best Gaussian noise for a workload of marginals (ResidualPlanner: Xiao, He, Zhang, Kifer 2023), and good Laplace
noise.

The marginal of a scope C is made of the residuals z_τ of its parts τ ⊆ C, the tables whose sums along every axis are 0
(marginals/decomposition.py). Let each residual be told with independent noise of the covariance σ_τ² Π_τ,
where Π_τ = ⊗_{i∈τ} (I − J/n_i) is the projection on its space. With n_i values of attribute i,

    the squared L2 cost of a record      Σ_τ p_τ / σ_τ²,          p_τ = Π_{i∈τ} (n_i − 1)/n_i      (half of it is ρ)
    the variance of a cell of C          Σ_{τ⊆C} m_Cτ σ_τ²,        m_Cτ = p_τ Π_{j∈C∖τ} 1/n_j².

For p_τ is the diagonal of Π_τ, the same for all cells, and z_τ enters a cell of C divided by Π n_j. No mechanism that
adds Gaussian noise to linear queries has a smaller weighted sum of variances, or a smaller largest one, than the best
σ has (ibid.).

*Sum.* With weights w_C, and v_τ = Σ_C w_C m_Cτ, the least Σ_τ v_τ σ_τ² at cost 1 is (Σ_τ √(v_τ p_τ))², by Cauchy and
Schwarz, where 1/σ_τ² ∝ √(v_τ/p_τ).

*Max.* The least max_C w_C V_C is the greatest, over λ ≥ 0 with Σ λ_C = 1, of the least Σ λ_C w_C V_C: the square of
h(λ) = Σ_τ √(p_τ Σ_C λ_C w_C m_Cτ), which is concave. As in the eigen-design, √ of a sum lies above its value at λ
spread over the terms, √s ≥ Σ_C (λ_C m_C/s) √(s λ′_C/λ_C), whose maximum is λ′_C ∝ λ_C V_C(λ)²: a step that never lowers
h. Every step has variances that can be had, and with h² a bound that none can beat.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.marginals.table_stacks import Scope, subsets

Objective = Literal["sum", "max"]


@dataclass(frozen=True)
class LeastMaximumSettings:
    """When the least largest variance is found; by trial, and no figures were kept."""

    tolerance: float = 1e-6
    """The relative distance from the proven bound at which the precisions are good enough."""
    most_steps: int = 20_000
    """Steps of the multipliers."""


LEAST_MAXIMUM_VARIANCE = LeastMaximumSettings()


@dataclass(frozen=True, eq=False)
class ResidualNoise:
    """How precisely each residual is told, 1/σ_τ², at a squared L2 cost of 1: ρ = ½.

    At another ρ all variances are divided by 2ρ.
    """

    sizes: tuple[int, ...]
    precisions: Mapping[Scope, float]
    objective: float
    """The weighted sum of the variances of all cells, or the largest weighted variance."""
    lower_bound: float
    """What no mechanism of linear queries and Gaussian noise can go below."""

    def variance(self, scope: Scope) -> float:
        """The variance of a cell of a marginal; infinite where some of its residuals are not told."""
        kept = _without_single_values(self.sizes, scope)
        found = 0.0
        for part in subsets(kept):
            if part not in self.precisions:
                return math.inf
            found += _share(self.sizes, kept, part) / self.precisions[part]
        return found


def residual_noise(
    sizes: Sequence[int], weights: Mapping[Scope, float], *, objective: Objective = "sum"
) -> ResidualNoise:
    """The best noise for marginals of these scopes.

    "sum" minimises Σ_C weight_C · (the sum of the variances of C's cells), and "max" the largest weight_C · variance.

    >>> found = residual_noise([2, 3], {(0, 1): 1.0})
    >>> round(found.objective, 9), round(found.variance((0, 1)), 9)
    (6.0, 1.0)
    """
    if objective not in ("sum", "max"):
        raise DeclarationError(f"the objective is {objective!r}; choose 'sum' or 'max'")
    if not weights:
        raise DeclarationError("there is no marginal to tell; name at least one")
    shape = tuple(sizes)
    problem = _Problem.of(shape, weights)
    if objective == "sum":
        importance = problem.weights * [math.prod(shape[place] for place in scope) for scope in problem.scopes]
        precisions = problem.best_precisions(importance)
        least = problem.least_sum(importance)
        return ResidualNoise(shape, problem.named(precisions), least, least)
    precisions, largest, bound = _least_maximum(problem)
    return ResidualNoise(shape, problem.named(precisions), largest, bound)


@dataclass(frozen=True, eq=False)
class _Problem:
    """The scopes of the workload, the residuals of their parts, and the matrix m between them."""

    scopes: tuple[Scope, ...]
    weights: NDArray[np.float64]
    parts: tuple[Scope, ...]
    costs: NDArray[np.float64]
    """p_τ."""
    shares: Any
    """m_Cτ, a sparse matrix."""

    @staticmethod
    def of(sizes: tuple[int, ...], weights: Mapping[Scope, float]) -> "_Problem":
        scopes = tuple(weights)
        places: dict[Scope, int] = {}
        rows, columns, values = [], [], []
        for row, scope in enumerate(scopes):
            kept = _without_single_values(sizes, scope)
            for part in subsets(kept):
                rows.append(row)
                columns.append(places.setdefault(part, len(places)))
                values.append(_share(sizes, kept, part))
        shares = sp.csr_array((values, (rows, columns)), shape=(len(scopes), len(places)))
        costs = np.array([_cost(sizes, part) for part in places])
        return _Problem(scopes, np.array(list(weights.values()), dtype=np.float64), tuple(places), costs, shares)

    def best_precisions(self, importance: NDArray[np.float64]) -> NDArray[np.float64]:
        """1/σ_τ² at cost 1 with the least sum of variances, each times its importance."""
        roots = np.sqrt((self.shares.T @ importance) / self.costs)
        return roots / float(self.costs @ roots)

    def least_sum(self, importance: NDArray[np.float64]) -> float:
        """The least such sum."""
        return float(np.sqrt((self.shares.T @ importance) * self.costs).sum()) ** 2

    def named(self, precisions: NDArray[np.float64]) -> dict[Scope, float]:
        return dict(zip(self.parts, precisions.tolist(), strict=True))


def _least_maximum(problem: _Problem) -> tuple[NDArray[np.float64], float, float]:
    """Precisions with the least largest weighted variance found, that variance, and a bound below every other."""
    multipliers = np.full(len(problem.scopes), 1.0 / len(problem.scopes))
    best, least, bound = np.ones(len(problem.parts)), math.inf, 0.0
    for _ in range(LEAST_MAXIMUM_VARIANCE.most_steps):
        precisions = problem.best_precisions(multipliers * problem.weights)
        variances = problem.weights * (problem.shares @ (1.0 / precisions))
        largest = float(variances.max())
        if largest < least:
            best, least = precisions, largest
        bound = max(bound, float(multipliers @ variances))
        if least - bound <= LEAST_MAXIMUM_VARIANCE.tolerance * least:
            break
        multipliers = np.maximum(multipliers * (variances / largest) ** 2, 1e-30)
        multipliers /= multipliers.sum()
    return best, least, bound


def _without_single_values(sizes: Sequence[int], scope: Scope) -> Scope:
    """The scope in ascending order, without attributes of one value, which have nothing to tell."""
    return tuple(sorted(place for place in scope if sizes[place] > 1))


def _cost(sizes: Sequence[int], part: Scope) -> float:
    return math.prod(1.0 - 1.0 / sizes[place] for place in part)


def _share(sizes: Sequence[int], scope: Scope, part: Scope) -> float:
    return _cost(sizes, part) / math.prod(float(sizes[place]) ** 2 for place in scope if place not in part)


# ----------------------------------------------------------------------------------------------------------------------
# Residuals told by whole-number queries with independent noise, at no extra cost.
#
# The noise that `residual_noise` finds is correlated: within a residual its covariance is the projection I − J/n along
# every axis. Independent noise on other queries gives the same. For attribute i of n values and a whole number s ≥ 0
# let
#
#     F_s = (s n + 1) I − s J,        F_sᵀF_s = (s n + 1)² (I − J/n) + J/n.
#
# It is symmetric, of whole numbers, and can be inverted. Its answers with noise of one variance tell differences
# between values (s n + 1)² times as precisely as the mean; s = 0 is the table itself, and for s → ∞ differences alone
# are told, as by the subtraction matrices of Xiao et al. A product ⊗_{i∈A} F_{s_i} that tells the residual of A with
# precision r tells that of C ⊂ A (which lies in the table divided by Π n_i) with precision
#
#     r Π_{i∈A∖C} ℓ_i,        ℓ_i = 1 / (n_i (s_i n_i + 1)²),
#
# so products for all A together tell τ with Σ_{A⊇τ} r_A Π_{A∖τ} ℓ_i. For this to be the wanted precision q_τ,
#
#     r_C = Σ_{A⊇C} q_A Π_{i∈A∖C} (−ℓ_i).
#
# Where no r_C is negative, the products measured with these precisions have the same information matrix QᵀΣ⁻¹Q as the
# residual mechanism, Σ_τ q_τ Π_τ up to scale. Its diagonal is what a record costs, its inverse the covariance of least
# squares: so cost and variances are the same, to the last digit. (The cost: a column of F_s has the squared norm (s n +
# 1)²(1 − 1/n) + 1/n, and Σ_A r_A Π_{i∈A} (1 − 1/n_i + ℓ_i) = Σ_τ q_τ p_τ.) As ℓ → 0, r → q > 0: from some s on all is
# well. The search starts with plain marginals, s = 0, and raises s where the leakage ℓ is largest.


TELLS_NOTHING = 1e-9
"""A query that adds less than this part to what others tell of its residual is left out."""


@dataclass(frozen=True, eq=False)
class ResidualQueries:
    """The products to measure: s for each attribute, and the variance of each product's independent noise."""

    levels: tuple[int, ...]
    variances: Mapping[Scope, float]

    def matrix(self, place: int, size: int) -> NDArray[np.float64]:
        """F_s of an attribute of this size."""
        return difference_matrix(size, self.levels[place])


def difference_matrix(size: int, level: int) -> NDArray[np.float64]:
    """F_s: the counts times s n + 1, each less s times the total.

    >>> difference_matrix(2, 1).tolist()
    [[2.0, -1.0], [-1.0, 2.0]]
    """
    return (level * size + 1.0) * np.eye(size) - float(level)


def residual_queries(sizes: Sequence[int], precisions: Mapping[Scope, float]) -> ResidualQueries:
    """Whole-number products whose independent noise tells every residual with the wanted precision.

    The scopes are closed: with each of them all its parts are there.

    >>> sorted(residual_queries([3, 4], {(): 1 / 12, (0,): 1 / 4, (1,): 1 / 3, (0, 1): 1.0}).variances.items())
    [((0, 1), 1.0)]
    """
    levels = [0] * len(sizes)
    while True:
        leaks = [1.0 / (size * (level * size + 1.0) ** 2) for size, level in zip(sizes, levels, strict=True)]
        remaining = _remaining(precisions, leaks)
        lacking = {part for part, each in remaining.items() if each < -TELLS_NOTHING * precisions[part]}
        if not lacking:
            break
        levels[max(_leaking_into(lacking, precisions), key=lambda place: leaks[place])] += 1
    variances = {
        scope: math.prod((levels[place] * sizes[place] + 1.0) ** 2 for place in scope) / each
        for scope, each in remaining.items()
        if each > TELLS_NOTHING * precisions[scope]
    }
    return ResidualQueries(tuple(levels), variances)


def _leaking_into(lacking: set[Scope], scopes: Iterable[Scope]) -> list[int]:
    """The attributes over which larger products are summed on the way to these parts."""
    found: set[int] = set()
    for scope in scopes:
        for part in subsets(scope):
            if part in lacking:
                found.update(set(scope) - set(part))
    return sorted(found)


def _remaining(precisions: Mapping[Scope, float], leaks: Sequence[float]) -> dict[Scope, float]:
    """r_C for all scopes: the wanted precision less what the larger products tell, the largest first."""
    found = dict(precisions)
    for scope in sorted(found, key=lambda each: (-len(each), each)):
        for part in subsets(scope):
            if len(part) < len(scope):
                found[part] -= found[scope] * math.prod(leaks[place] for place in scope if place not in part)
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Laplace noise for a workload of marginals, under a pure ε.
#
# A record adds 1 to one answer of every table, so that tables A with the scales b_A cost Σ_A 1/b_A = ε: shares e_A of ε
# give scales 1/(ε e_A) and variances 2/(ε e_A)². What a table of counts tells of a residual τ ⊆ A is divided by n_i for
# every attribute i of A∖τ, as above. Of a flag, an attribute of two values, the difference of its counts can be asked
# for instead of both: it costs the same, tells twice as much, and nothing of the sum. With flags so, or all as counts,
#
#     P_τ = Σ_{A⊇τ} (e_A²/2) Π_{i∈A∖τ} ℓ_i Π_{i∈A} g_i,      ℓ = 1/n, g = 1 for counts;  ℓ = 0, g = 2 for differences,
#
# at ε = 1, and Σ_τ v_τ/P_τ is to be small, with v as above. That is not convex, for P is not concave in e. From a start
# e, the step e_A ← e_A (e_A ∂f/∂(e_A²))^⅓ with the shares scaled to 1 again finds the best division of tables that tell
# nothing of each other at once (e ∝ v^⅓); steps that do not help are halved in the exponent. Several starts are tried.


@dataclass(frozen=True)
class LaplaceSettings:
    """How shares of ε are searched for; by trial, and no figures were kept."""

    least_gain: float = 1e-4
    """Steps end when one lowers the sum of variances by less than this part of it; leaving tables out may cost it."""
    most_steps: int = 400
    """Steps from one start."""
    least_share: float = 1e-3
    """A table with less than this part of an even share is left out, where all it tells is told by others."""
    worth_differences: float = 0.98
    """Differences of flags are asked for where the sum of variances is at most this part of that with all counts."""


LAPLACE = LaplaceSettings()


@dataclass(frozen=True, eq=False)
class LaplaceShares:
    """Tables to measure under a pure ε, each with its share of it, and what they tell at ε = 1."""

    differences: bool
    """Whether flags are told by the differences of their two counts."""
    shares: Mapping[Scope, float]
    noise: ResidualNoise


def laplace_shares(sizes: Sequence[int], weights: Mapping[Scope, float]) -> LaplaceShares:
    """Shares of ε with a small Σ_C weight_C · (the sum of the variances of C's cells): the best that was found.

    >>> found = laplace_shares([2] * 6, {(place,): 1.0 for place in range(6)})
    >>> found.differences, round(found.shares[()], 2), round(found.shares[(5,)], 2)
    (True, 0.23, 0.13)
    """
    if not weights:
        raise DeclarationError("there is no marginal to tell; name at least one")
    shape = tuple(sizes)
    problem = _Problem.of(shape, weights)
    asked = {_without_single_values(shape, scope) for scope in weights}
    counts = _LaplaceProblem.of(problem, shape, asked, differences=False).best()
    if not any(shape[place] == 2 for part in problem.parts for place in part):
        return counts
    apart = _LaplaceProblem.of(problem, shape, asked, differences=True).best()
    return apart if apart.noise.objective <= LAPLACE.worth_differences * counts.noise.objective else counts


@dataclass(frozen=True, eq=False)
class _LaplaceProblem:
    """v, and the matrix from squared shares to precisions of residuals."""

    problem: _Problem
    sizes: tuple[int, ...]
    importance: NDArray[np.float64]
    told: Any
    asked: NDArray[np.bool_]
    """Which parts are tables of the workload."""
    differences: bool

    @staticmethod
    def of(problem: _Problem, sizes: tuple[int, ...], asked: set[Scope], *, differences: bool) -> "_LaplaceProblem":
        places = {part: place for place, part in enumerate(problem.parts)}
        rows, columns, values = [], [], []
        for column, scope in enumerate(problem.parts):
            flags = {place for place in scope if sizes[place] == 2} if differences else set[int]()
            for part in subsets(scope):
                if flags.issubset(part):
                    rows.append(places[part])
                    columns.append(column)
                    away = math.prod(sizes[place] for place in scope if place not in part)
                    values.append(0.5 * 2.0 ** len(flags) / away)
        told = sp.csr_array((values, (rows, columns)), shape=(len(places), len(places)))
        cells = [math.prod(sizes[place] for place in scope) for scope in problem.scopes]
        importance = problem.shares.T @ (problem.weights * cells)
        return _LaplaceProblem(
            problem, sizes, importance, told, np.array([part in asked for part in problem.parts]), differences
        )

    def best(self) -> LaplaceShares:
        """The best of several starts."""
        starts = [np.where(self.asked, 1.0, small) for small in (1.0, 0.1, 0.01)]
        shares = min((self._descend(start / start.sum()) for start in starts), key=self.objective)
        few = self._without_small(shares)
        named = {part: float(e) for part, e in zip(self.problem.parts, few, strict=True) if e > 0.0}
        least = self.objective(few)
        noise = ResidualNoise(self.sizes, self.problem.named(self.told @ few**2), least, 0.0)
        return LaplaceShares(self.differences, named, noise)

    def objective(self, shares: NDArray[np.float64]) -> float:
        """Σ_τ v_τ/P_τ."""
        precisions = self.told @ shares**2
        return math.inf if np.any(precisions <= 0.0) else float(np.sum(self.importance / precisions))

    def _descend(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        value = self.objective(shares)
        for _ in range(LAPLACE.most_steps):
            slope = self.told.T @ (self.importance / (self.told @ shares**2) ** 2)
            power = 1.0 / 3.0
            while power > 1e-3:
                moved = shares * (shares * slope) ** power
                moved /= moved.sum()
                found = self.objective(moved)
                if found < value:
                    break
                power /= 2.0
            else:
                return shares
            shares, gain, value = moved, value - found, found
            if gain < LAPLACE.least_gain * value:
                return shares
        return shares

    def _without_small(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        kept = np.where(shares < LAPLACE.least_share / shares.size, 0.0, shares)
        kept /= kept.sum()
        return kept if self.objective(kept) <= self.objective(shares) * (1.0 + LAPLACE.least_gain) else shares

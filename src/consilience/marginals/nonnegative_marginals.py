"""Consistent marginals without negative counts, as near as can be to given residuals (local non-negativity).

Given wished residuals ẑ_τ with weights w_τ, the result solves

    min ½ Σ_τ w_τ ‖z_τ − ẑ_τ‖²    such that    M_C z ≥ 0 for every table C,    z_τ = ẑ_τ where w_τ is infinite,

and M_C z = 0 in cells that cannot hold anything (Mullins et al. 2024, "Efficient and Private Marginal Reconstruction
with Local Non-Negativity", who climb the dual). So each table is possible; whether one data set has them all is open.

*Method.* The alternating directions method of multipliers on the split p = M z, p ≥ 0. In the norm Σ_C r_C ‖·‖² both
steps have a closed form, because MᵀrM is a number q_τ for each residual: with t = M ẑ,

    z = ẑ + ρ/(w + ρ q) · Mᵀ r (p − u − t),      p = max(x̃ + u, 0),      u ← u + x̃ − p,

where x̃ = 1.8·M z − 0.8·p is over-relaxed.

*Certificate.* λ = −ρ r u is ≥ 0, and for each such λ no admissible z has a lower objective than

    −½ Σ_τ ‖(Mᵀλ)_τ‖² / w_τ − ⟨λ, t⟩.

An objective below this bound shows that z is not admissible yet, and the penalty ρ grows; otherwise ρ follows the
usual balance of the distances ‖M z − p‖ and ρ‖p − p before‖.

*End.* z is mixed with the uniform residuals (0 but for the total) just as far as makes all cells ≥ 0; if this is within
the tolerance of the bound, all is proven. Very noisy tables, whose cells are far smaller than the noise, come there
slowly. For them, and where facts or impossible cells forbid the mixing, it is enough that the objective is that near to
the bound, that no table has more than a share 10⁻³ of negative counts, and that these are as little beside the noise;
the caller removes them.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.decomposition import Decomposition
from consilience.marginals.table_stacks import Scope, subsets
from consilience.solvers.conjugate_gradients import conjugate_gradients
from consilience.solvers.fit import Status

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class AlternatingSettings:
    """What tunes the alternating directions; where nothing else is said by trial, and no figures were kept."""

    relaxation: float = 1.8
    """How much of M z is in x̃: 1 is plain, and below 2 the method converges."""
    steps_between_checks: int = 10
    """Steps from one certificate, and change of the penalty, to the next."""
    most_negative: float = 1e-3
    """The most negative counts in a table, in parts of the total, that are left for the caller to remove."""
    imbalance: float = 5.0
    """How much larger one of the two distances must be than the other for the penalty to change."""
    first_factor: float = 2.0
    """What the penalty changes by at first."""
    turned: float = 0.7
    """What the logarithm of this factor is times when the direction turns."""
    settling: float = 0.97
    """What it is times at every check."""
    step_left: float = 1e-4
    """What a step leaves of its equations where the precisions are no diagonal matrix, in parts of their right side."""
    bound_left: float = 1e-6
    """The same where the bound is worked out."""
    inner_steps: int = 200
    """Steps of conjugate gradients for one of these at most."""
    block: int = 2**15
    """Cells treated at a time, so that intermediate results stay in the processor's cache."""


ALTERNATING = AlternatingSettings()


@dataclass(frozen=True, eq=False)
class NonnegativeFit:
    """Residuals whose tables are ≥ 0, how far from the optimum at most, and why the search ended."""

    residuals: Array
    marginals: Array
    """The tables of the residuals."""
    objective: float
    gap: float
    violation: float
    """The largest share of negative counts in a table, or of counts in empty cells; 0 where none is left."""
    status: Status
    steps: int


@dataclass(frozen=True, eq=False)
class NonnegativeProblem:
    """Wished residuals of a decomposition, their weights (infinite: kept), and the cells that can hold nothing.

    The total, the residual of (), is above 0.
    """

    decomposition: Decomposition
    wished: Array
    weights: Array
    empty: Mask | None = None
    precision: Callable[[Array], Array] | None = None
    """The product with W, where that is no diagonal matrix; `weights` then say what it is on average."""

    @property
    def total(self) -> float:
        return float(self.decomposition.residuals.table(self.wished, ()))

    @property
    def mixable(self) -> bool:
        """Whether the uniform tables of the total are admissible: nothing else is known for certain."""
        return self.empty is None and int(np.count_nonzero(np.isinf(self.weights))) <= 1

    def objective(self, change: Array) -> float:
        if self.precision is not None:
            return 0.5 * float(change @ self.precision(change))
        return 0.5 * float(np.einsum("i,i,i->", self._finite_weights, change, change))

    @property
    def _finite_weights(self) -> Array:
        return np.where(np.isfinite(self.weights), self.weights, 0.0)

    def noise_energy(self) -> float:
        """What the objective is expected to be for pure noise of these weights: half the number of free numbers."""
        free = 0
        for group in self.decomposition.residuals.groups:
            weights = self.weights[group.start : group.stop : group.cells]
            free += math.prod(size - 1 for size in group.shape) * int(np.isfinite(weights).sum())
        return 0.5 * max(free, 1)


def fit_nonnegative(
    problem: NonnegativeProblem,
    *,
    tolerance: float = 1e-3,
    max_steps: int = 5000,
    time_limit: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NonnegativeFit:
    """The admissible residuals with the least objective, to a gap of `tolerance` times that or the noise's energy."""
    search = _Search(problem)
    began = time.perf_counter()
    status, steps = Status.CONVERGED, 0
    best = search.candidate(tolerance)
    while not best.good:
        if steps >= max_steps:
            status = Status.STEP_LIMIT
            break
        if time_limit is not None and time.perf_counter() - began > time_limit:
            status = Status.TIME_LIMIT
            break
        for _ in range(ALTERNATING.steps_between_checks - 1):
            search.step()
        search.before = search.positive.copy()
        search.step()
        steps += ALTERNATING.steps_between_checks
        best = search.candidate(tolerance)
        search.balance()
        if progress is not None:
            progress(steps, max_steps)
    residuals, marginals = problem.wished + search.change, search.tables
    if best.share > 0:
        residuals *= 1.0 - best.share
        problem.decomposition.residuals.table(residuals, ())[...] = problem.total
        marginals = np.maximum((1.0 - best.share) * marginals + best.share * search.uniform, 0.0)
    return NonnegativeFit(residuals, marginals, best.objective, best.gap, best.violation, status, steps)


@dataclass(frozen=True)
class _Candidate:
    """What the present residuals would be worth as a result, mixed with a share of the uniform ones."""

    objective: float
    gap: float
    violation: float
    share: float
    good: bool


class _Search:
    """The state of the alternating directions."""

    def __init__(self, problem: NonnegativeProblem) -> None:
        self.problem = problem
        self.decomposition = problem.decomposition
        stack = self.decomposition.tables
        penalties = _penalties(problem)
        self.norm = stack.spread(penalties)
        self.stiffness = self.decomposition.residuals.spread(self.decomposition.precisions(penalties))
        self.rho, self.log_factor, self.direction = 1.0, math.log(ALTERNATING.first_factor), 0
        self.energy = problem.noise_energy()
        self.wished = self.decomposition.marginals(problem.wished)
        self.uniform = stack.spread({scope: problem.total / _cells(problem, scope) for scope in stack.scopes})
        self.change: Array = np.zeros_like(problem.wished)
        self.tables = np.array(self.wished)
        self.positive: Array = np.maximum(self.wished, 0.0)
        if problem.empty is not None:
            self.positive[problem.empty] = 0.0
        self.before = self.positive
        self.duals: Array = np.zeros_like(self.wished)
        self.drive = self.norm * (self.positive - self.wished)
        self.slack = 0.0

    def step(self) -> None:
        if self.problem.precision is None:
            self.decomposition.adjoint(self.drive, out=self.change)
            for start in range(0, self.change.size, ALTERNATING.block):
                part = slice(start, start + ALTERNATING.block)
                self.change[part] *= self.rho / (self.problem.weights[part] + self.rho * self.stiffness[part])
        else:
            wanted = self.rho * self.decomposition.adjoint(self.drive)
            self.change = self._solved(wanted, self.rho, self.change, ALTERNATING.step_left)
        self.decomposition.marginals(self.change, out=self.tables)
        for start in range(0, self.tables.size, ALTERNATING.block):
            self._advance(slice(start, start + ALTERNATING.block))

    def _advance(self, part: slice) -> None:
        """p, u and r (p − u − t) of some cells, from the change of their tables."""
        tables, positive, wished = self.tables[part], self.positive[part], self.wished[part]
        tables += wished
        relaxed = ALTERNATING.relaxation * tables
        relaxed += (1.0 - ALTERNATING.relaxation) * positive
        relaxed += self.duals[part]
        np.maximum(relaxed, 0.0, out=positive)
        if self.problem.empty is not None:
            positive[self.problem.empty[part]] = 0.0
        relaxed -= positive
        self.duals[part] = relaxed
        np.subtract(positive, relaxed, out=relaxed)
        relaxed -= wished
        np.multiply(relaxed, self.norm[part], out=self.drive[part])

    def _solved(self, wanted: Array, rho: float, start: Array, left: float) -> Array:
        """(W + ρ q)⁻¹ applied to a vector of residuals, by conjugate gradients; what is kept stays 0."""
        problem, stiffness = self.problem, rho * self.stiffness
        assert problem.precision is not None
        precision, free = problem.precision, np.isfinite(problem.weights)
        inverse = np.where(free, 1.0 / (problem.weights + stiffness), 0.0)

        def product(direction: Array, out: Array) -> float:
            np.multiply(precision(direction) + stiffness * direction, free, out=out)
            return float(direction @ out)

        def precondition(slope: Array, out: Array) -> float:
            return float(slope @ np.multiply(slope, inverse, out=out))

        missed = np.empty_like(wanted)
        product(start, missed)
        np.subtract(np.where(free, wanted, 0.0), missed, out=missed)
        enough = left**2 * float(wanted @ (inverse * wanted))
        found = conjugate_gradients(
            product,
            missed,
            precondition,
            lambda at: at.energy <= enough,
            most_steps=ALTERNATING.inner_steps,
            start=start,
        )
        return found.solution

    def balance(self) -> None:
        """Change the penalty toward what lags behind, less at every check, so that the method settles."""
        apart, moved = self._distances()
        most = ALTERNATING.imbalance
        direction = 1 if self.slack < 0 or apart > most * moved else -1 if moved > most * apart else 0
        if direction * self.direction < 0:
            self.log_factor *= ALTERNATING.turned
        self.log_factor *= ALTERNATING.settling
        self.direction = direction or self.direction
        factor = math.exp(direction * self.log_factor)
        self.rho *= factor
        self.duals /= factor
        self.drive = self.norm * (self.positive - self.duals - self.wished)

    def _distances(self) -> tuple[float, float]:
        """How far M z and p are apart, and how far p moved in the last step, in units of the dual."""
        apart = moved = 0.0
        for start in range(0, self.tables.size, ALTERNATING.block):
            part = slice(start, start + ALTERNATING.block)
            norm, positive = self.norm[part], self.positive[part]
            apart += float(norm @ (self.tables[part] - positive) ** 2)
            moved += float(norm @ (positive - self.before[part]) ** 2)
        return math.sqrt(apart), self.rho * math.sqrt(moved)

    def candidate(self, tolerance: float) -> _Candidate:
        """The present residuals, mixed with the uniform ones where that is good enough, and what they prove."""
        problem, bound = self.problem, self._bound()
        objective = problem.objective(self.change)
        self.slack = objective - bound
        if problem.mixable:
            share = self._share_of_uniform()
            mixed = objective if share == 0 else problem.objective(self._mixed(share))
            if mixed - bound <= tolerance * max(mixed, self.energy):
                return _Candidate(mixed, max(0.0, mixed - bound), 0.0, share, True)
        (violation, removing), gap = self._violation(), abs(self.slack)
        enough = tolerance * max(objective, self.energy)
        good = violation <= ALTERNATING.most_negative and max(gap, removing) <= enough
        return _Candidate(objective, gap, violation, 0.0, good)

    def _mixed(self, share: float) -> Array:
        """The change from the wished residuals after mixing with the uniform ones; the total stays."""
        mixed = (1.0 - share) * self.change - share * self.problem.wished
        self.decomposition.residuals.table(mixed, ())[...] = 0.0
        return mixed

    def _share_of_uniform(self) -> float:
        below = self.tables < 0
        if not below.any():
            return 0.0
        short, reach = -self.tables[below], self.uniform[below]
        return min(1.0, float((short / (short + reach)).max()) * (1.0 + 1e-12))

    def _violation(self) -> tuple[float, float]:
        """The largest share of negative counts in a table, or of counts in cells that can hold nothing, and what
        taking them out costs of the objective, by the weights of cells."""
        wrong = np.maximum(-self.tables, 0.0)
        if self.problem.empty is not None:
            wrong[self.problem.empty] = np.abs(self.tables[self.problem.empty])
        groups = self.decomposition.tables.groups
        sums = [group.tables(wrong).reshape(len(group.scopes), -1).sum(axis=1).max() for group in groups]
        return float(max(sums, default=0.0)) / self.problem.total, 0.5 * float(self.norm @ wrong**2)

    def _bound(self) -> float:
        """A number that no admissible residuals have a lower objective than."""
        duals = self.norm * self.duals
        duals *= -self.rho
        image = self.decomposition.adjoint(duals)
        if self.problem.precision is None:
            cost = 0.5 * float(np.einsum("i,i,i->", 1.0 / self.problem.weights, image, image))
        else:
            solved = self._solved(image, 0.0, self.change, ALTERNATING.bound_left)
            cost = 0.5 * float(solved @ image)
        gain = -float(duals @ self.wished)
        # The best multiple of these duals proves a bound, too.
        multiple = gain / (2.0 * cost) if cost > 0 and gain > 0 else 0.0
        return max(gain - cost, multiple * gain - multiple**2 * cost, 0.0)


def _cells(problem: NonnegativeProblem, scope: Scope) -> int:
    return math.prod(problem.decomposition.tables.sizes[each] for each in scope)


def _penalties(problem: NonnegativeProblem) -> dict[Scope, float]:
    """r_C: the weight of a table's cells that on (geometric) average agrees with the weights of its residuals."""
    stack, residuals = problem.decomposition.tables, problem.decomposition.residuals
    own = {scope: float(residuals.table(problem.weights, scope).flat[0]) for scope in residuals.scopes}
    found: dict[Scope, float] = {}
    for scope in stack.scopes:
        cells = _cells(problem, scope)
        logarithms = [
            math.log(own[part] * cells / _cells(problem, part)) for part in subsets(scope) if math.isfinite(own[part])
        ]
        found[scope] = math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan
    known = [each for each in found.values() if not math.isnan(each)]
    usual = math.exp(sum(map(math.log, known)) / len(known)) if known else 1.0
    return {scope: usual if math.isnan(each) else each for scope, each in found.items()}

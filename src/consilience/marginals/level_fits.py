"""Non-negative consistent marginals from noisy residuals, from the small marginals up to the large ones.

At each level, the marginals of so many attributes: measured residuals are drawn toward what the marginals of the level
below imply (entropy_prior.py), unmeasured ones are set to it, and all marginals so far are made non-negative together
(nonnegative_marginals.py). What counts in the end is the last level's.

*Weights.* The likelihood of Gaussian noise has the weight w_τ, one over the variance. But cutting off negative counts
biases the large, sparse tables, and with these weights they drag the precise small marginals along. So the weights are
times FIRMNESS for every attribute that a residual has less than the largest, and the total, the most precise of all,
stays as it was estimated. On all 2-way marginals of Adult and Titanic, without the prior, FIRMNESS = 30 has an error
about a sixth lower than 1, and more than 30 changes nothing; weights of 2^|τ| for a residual of |τ| attributes, and a
total left free, were worse. What the prior adds is measured by `python -m benchmarks reconstruction`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.decomposition import Decomposition
from consilience.marginals.entropy_prior import drawn_to_prior
from consilience.marginals.nonnegative_marginals import NonnegativeFit, NonnegativeProblem, fit_nonnegative
from consilience.marginals.proportional_fitting import Margin, greatest_entropy
from consilience.marginals.raked_marginals import raked
from consilience.marginals.scopes import Scope
from consilience.marginals.table_stacks import ShapeGroup, maximal
from consilience.solvers.fit import Status

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FIRMNESS = 30.0
WEAK = 0.01
"""The weight of what was never measured, in parts of the least weight of any measured residual."""

ROUGH = 0.02
"""The tolerance of all levels but the last."""

GUESS_PASSES = 25


@dataclass(frozen=True, eq=False)
class LocalProblem:
    """Noisy residuals with their precisions, and what the result must keep to.

    `precisions` are 0 for what was not measured and infinite for what is known. The total, the residual of (), must
    not be negative. `empty` tells the cells of a scope that can hold nothing, in its order, or None.
    """

    decomposition: Decomposition
    """Its tables are the maximal scopes of the result."""
    residuals: Array
    precisions: dict[Scope, float]
    empty: Callable[[Scope], Mask | None] = field(default=lambda _: None)

    @property
    def total(self) -> float:
        return float(self.decomposition.residuals.table(self.residuals, ()))


def fit_locally(
    problem: LocalProblem,
    *,
    use_prior: bool = True,
    tolerance: float = 1e-3,
    max_steps: int = 5000,
    time_limit: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NonnegativeFit:
    """The non-negative consistent marginals over the tables of the problem's decomposition."""
    top = max(len(scope) for scope in problem.precisions)
    wished = np.array(problem.residuals)
    stack = problem.decomposition.residuals
    below: tuple[Decomposition, NonnegativeFit] | None = None
    if use_prior:
        for level in range(1, top):
            part = _level(problem, wished, level, below)
            below = part, _solve(problem, part, wished, tolerance=ROUGH, max_steps=max_steps, time_limit=time_limit)
        if top >= 2:
            _draw(problem, wished, top, below)
    else:
        unknown = stack.spread({scope: float(weight == 0) for scope, weight in problem.precisions.items()})
        wished[unknown > 0] = 0.0
    return _solve(
        problem,
        problem.decomposition,
        wished,
        tolerance=tolerance,
        max_steps=max_steps,
        time_limit=time_limit,
        progress=progress,
    )


def _level(
    problem: LocalProblem, wished: Array, level: int, below: tuple[Decomposition, NonnegativeFit] | None
) -> Decomposition:
    """The decomposition of the marginals of up to so many attributes, after drawing that level's residuals."""
    if level >= 2:
        _draw(problem, wished, level, below)
    scopes = maximal(scope for scope in problem.precisions if len(scope) <= level)
    return Decomposition(problem.decomposition.residuals.sizes, scopes)


def _draw(problem: LocalProblem, wished: Array, level: int, below: tuple[Decomposition, NonnegativeFit] | None) -> None:
    """Draw the residuals of so many attributes toward what the level below implies, in place."""
    if below is None:
        return
    for group in problem.decomposition.residuals.groups:
        if len(group.shape) != level or not group.cells:
            continue
        guesses = _guesses(group, below)
        precisions = np.array([problem.precisions[scope] for scope in group.scopes])
        with np.errstate(divide="ignore"):
            variances = 1.0 / precisions
        tables = group.tables(wished)
        tables[...] = drawn_to_prior(tables, guesses, variances)


def _guesses(group: ShapeGroup, below: tuple[Decomposition, NonnegativeFit]) -> Array:
    """The tables of greatest entropy with the marginals of the level below."""
    decomposition, fit = below
    stack = decomposition.tables
    margins: list[Margin] = []
    every = range(len(group.shape))
    for away in every:
        axes = tuple(axis for axis in every if axis != away)
        tables = [stack.table(fit.marginals, tuple(scope[axis] for axis in axes)) for scope in group.scopes]
        margins.append((axes, np.stack(tables)))
    start = np.ones((len(group.scopes), *group.shape))
    return greatest_entropy(start, margins, tolerance=1e-4, most_passes=GUESS_PASSES).tables


def _solve(
    problem: LocalProblem,
    part: Decomposition,
    wished: Array,
    *,
    tolerance: float,
    max_steps: int,
    time_limit: float | None,
    progress: Callable[[int, int], None] | None = None,
) -> NonnegativeFit:
    """The non-negative marginals over the tables of one level."""
    stack = part.residuals
    own = np.empty(stack.size)
    for scope in stack.scopes:
        stack.table(own, scope)[...] = problem.decomposition.residuals.table(wished, scope)
    weights = stack.spread(firm_weights({scope: problem.precisions[scope] for scope in stack.scopes}))
    local = NonnegativeProblem(part, own, weights, empty_cells(part, problem.empty))
    fit = fit_nonnegative(local, tolerance=tolerance, max_steps=max_steps, time_limit=time_limit, progress=progress)
    return without_negatives(fit, part, problem.empty)


def without_negatives(
    fit: NonnegativeFit, part: Decomposition, empty: Callable[[Scope], Mask | None]
) -> NonnegativeFit:
    """The fit with tables in which no count is negative, and what they still disagree by if the search had ended."""
    if fit.violation == 0:
        return replace(fit, marginals=np.maximum(fit.marginals, 0.0))
    marginals, left = raked(part, fit.residuals, empty)
    total = float(part.residuals.table(fit.residuals, ()))
    return replace(
        fit, marginals=marginals, violation=left / total if fit.status is Status.CONVERGED else fit.violation
    )


def firm_weights(precisions: dict[Scope, float]) -> dict[Scope, float]:
    """The weights of residuals: firmer for fewer attributes, weak where nothing was measured, the total kept."""
    top = max(len(scope) for scope in precisions)
    known = [weight for weight in precisions.values() if 0 < weight < math.inf]
    weak = WEAK * min(known, default=1.0)
    weights = {scope: (weight or weak) * FIRMNESS ** (top - len(scope)) for scope, weight in precisions.items()}
    return weights | {(): math.inf}


def empty_cells(part: Decomposition, empty: Callable[[Scope], Mask | None]) -> Mask | None:
    """Which cells of the stacked tables can hold nothing; None where all can hold something."""
    found = np.zeros(part.tables.size)
    for scope in part.tables.scopes:
        mask = empty(scope)
        if mask is not None:
            part.tables.table(found, scope)[...] = mask
    return found > 0 if found.any() else None

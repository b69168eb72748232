"""Non-negative consistent marginals from noisy residuals, from the small marginals up to the large ones.

At each level, the marginals of so many attributes: measured residuals are drawn toward what the marginals of the level
below imply (entropy_prior.py), unmeasured ones are set to it, and all marginals so far are made non-negative together
(nonnegative_marginals.py). What counts in the end is the last level's.

*Weights.* The likelihood of Gaussian noise has the weight w_τ, one over the variance. But cutting off negative counts
biases the large, sparse tables, and with these weights they drag the precise small marginals along. So the weights are
times a firmness for every attribute that a residual has less than the largest, and the total, the most precise of all,
stays as it was estimated. On all 2-way marginals of Adult and Titanic, without the prior, a firmness of 30 has an error
about a sixth lower than 1, and more than 30 changes nothing; weights of 2^|τ| for a residual of |τ| attributes, and a
total left free, were worse. What the prior adds is measured by `python -m benchmarks reconstruction`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.decomposition import Decomposition, centre
from consilience.marginals.margins import MarginOnAxes as Margin
from consilience.marginals.margins import greatest_entropy
from consilience.marginals.nonnegative_marginals import NonnegativeFit, NonnegativeProblem, fit_nonnegative
from consilience.marginals.table_stacks import Scope, ShapeGroup, TableStack, maximal
from consilience.solvers.fit import Status

# ----------------------------------------------------------------------------------------------------------------------
# Noisy residuals drawn toward what the smaller marginals imply, as far as noise explains the difference.
#
# Before a marginal is measured, the best guess of it is the table of greatest entropy with the known smaller marginals:
# for a pair, independence. The residual ẑ of a measured scope differs from the residual b of that guess e by noise of
# variance v and by what the data have of their own. Taking the latter as normal with variance t·e in each cell (large
# cells can deviate further than small ones), the expected residual is
#
#     z = b + δ,    δ minimises ‖δ − (ẑ − b)‖²/v + Σ δ²/(t·e)    over tables whose sums along every axis are 0.
#
# t is found from the differences themselves, by the moments E (ẑ − b)² = t·e + v: an empirical Bayes rule (Efron and
# Morris 1973). Little noise leaves ẑ as it is; much noise leaves the guess. Residuals with fewer than three degrees of
# freedom stay as measured: from so few numbers t cannot be learnt.


Array = NDArray[np.float64]


@dataclass(frozen=True)
class PriorSettings:
    """How residuals are drawn to the prior; the passes are by trial, and no figures were kept."""

    least_freedom: int = 3
    """Residuals with fewer degrees of freedom stay as measured: from so few numbers t cannot be learnt."""
    moment_passes: int = 20
    """Passes of the fixed point for t."""
    centring_passes: int = 30
    """Passes through the axes, at the most, that make all sums 0."""


PRIOR = PriorSettings()


def drawn_to_prior(residuals: Array, guesses: Array, variances: Array) -> Array:
    """The expected residuals of many tables of one shape, given their noisy residuals and the guessed tables.

    `variances` has one number for each table: 0 keeps the residual, infinity gives the guess's.
    """
    shape = residuals.shape[1:]
    freedom = math.prod(size - 1 for size in shape)
    axes = tuple(range(1, residuals.ndim))
    guessed = centre(np.array(guesses), first=1)
    measured = np.isfinite(variances)
    drawn = measured & (variances > 0) & (freedom >= PRIOR.least_freedom)
    result = np.where(measured.reshape(-1, *[1] * len(axes)), residuals, guessed)
    if not drawn.any():
        return result
    noise = variances[drawn].reshape(-1, *[1] * len(axes))
    differences = residuals[drawn] - guessed[drawn]
    spread = guesses[drawn] / np.maximum(guesses[drawn].mean(axis=axes, keepdims=True), np.finfo(float).tiny)
    scale = _strength(differences, spread, noise * freedom / math.prod(shape))
    signal = scale * spread
    result[drawn] = guessed[drawn] + _posterior(differences, noise / (signal + noise))
    return result


def _strength(differences: Array, spread: Array, noise: Array) -> Array:
    """t, up to the scale of `spread`: a fixed point of the moments weighted by their own precision."""
    axes = tuple(range(1, differences.ndim))
    excess = differences**2 - noise
    strength = np.maximum(excess.mean(axis=axes, keepdims=True), 0.0)
    for _ in range(PRIOR.moment_passes):
        weights = spread / (strength * spread + noise) ** 2
        found = (weights * excess).sum(axis=axes, keepdims=True)
        base = (weights * spread).sum(axis=axes, keepdims=True)
        strength = np.maximum(np.divide(found, base, out=np.zeros_like(found), where=base > 0), 0.0)
    return strength


def _posterior(differences: Array, noise_shares: Array) -> Array:
    """δ = (1 − noise_shares) · (differences + multipliers), the multipliers such that all sums along axes are 0.

    What is taken from the differences is worked out, and not what is left of them: next to no noise takes next to
    nothing, however large they are.
    """
    taken, shares = noise_shares * differences, 1.0 - noise_shares
    size = float(np.abs(taken).max(initial=0.0))
    for _ in range(PRIOR.centring_passes):
        moved = 0.0
        for axis in range(1, taken.ndim):
            over, room = taken.sum(axis=axis, keepdims=True), shares.sum(axis=axis, keepdims=True)
            change = shares * np.divide(over, room, out=np.zeros_like(over), where=room > 0)
            taken -= change
            moved = max(moved, float(np.abs(change).max(initial=0.0)))
        if moved <= 1e-6 * size:
            break
    return differences - centre(taken, first=1)


# ----------------------------------------------------------------------------------------------------------------------
# Marginals with a few negative counts made non-negative and consistent, from the small ones up.
#
# Negative counts are cut off, and each table is then fitted proportionally to the tables with one attribute less, which
# are right by then (Deming and Stephan 1940). What is already right stays as it is. Tables of two attributes are
# completed exactly; larger ones get as near as the passes go, and `violation` says how much is missing.


Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RakingSettings:
    """How tables are fitted to those with one attribute less; by trial, and no figures were kept."""

    first_share: float = 1e-6
    """What every cell that can hold something gets first, in parts of an even share of what is to be removed: passes
    cannot revive a 0, and where there is next to nothing to remove they need not."""
    most_passes: int = 50
    """Passes of proportional fitting for tables of one shape."""


RAKING = RakingSettings()


def raked(
    decomposition: Decomposition, residuals: Array, empty: Callable[[Scope], Mask | None], share: float = 1e-3
) -> tuple[Array, float]:
    """The tables of a decomposition without negative counts, and the largest count by which they still disagree.

    `share` is the largest part of a table's counts that is to be removed.
    """
    stack = decomposition.residuals
    every = Decomposition(stack.sizes, stack.scopes)
    tables = every.marginals(residuals)
    total = float(stack.table(residuals, ()))
    violation = 0.0
    for group in sorted(every.tables.groups, key=lambda each: len(each.shape)):
        if not group.shape:
            continue
        start = np.maximum(group.tables(tables), 0.0) + RAKING.first_share * share * total / group.cells
        held = _emptied(start, group, empty)
        margins = _smaller(every.tables, tables, group)
        fitted = greatest_entropy(start, margins, tolerance=1e-11, most_passes=RAKING.most_passes)
        whole = len(group.shape) == 2 and not held
        group.tables(tables)[...] = completed(fitted.tables, margins[1][1], margins[0][1]) if whole else fitted.tables
        violation = max(violation, 0.0 if whole else fitted.violation)
    found = np.empty(decomposition.tables.size)
    for scope in decomposition.tables.scopes:
        decomposition.tables.table(found, scope)[...] = every.tables.table(tables, scope)
    return found, violation


def _emptied(start: Array, group: ShapeGroup, empty: Callable[[Scope], Mask | None]) -> bool:
    """Set the cells that can hold nothing to 0; True where there are any."""
    found = False
    for row, scope in enumerate(group.scopes):
        mask = empty(scope)
        if mask is not None:
            start[row, np.broadcast_to(mask, group.shape)] = 0.0
            found = True
    return found


# The rounding of Altschuler, Weed and Rigollet (2017, Algorithm 2): scale down rows and columns that are too large;
# what then lacks in rows, a, and in columns, b, sums to the same, and a bᵀ / Σa fills both.
def completed(tables: Array, rows: Array, columns: Array) -> Array:
    """Non-negative tables changed as little as needed to have exactly these row and column sums."""
    found = np.array(tables)
    for axis, wanted in ((2, rows), (1, columns)):
        sums = found.sum(axis=axis)
        scale = np.divide(wanted, sums, out=np.ones_like(sums), where=sums > wanted)
        found *= np.expand_dims(scale, axis)
    lack = np.maximum(rows - found.sum(axis=2), 0.0), np.maximum(columns - found.sum(axis=1), 0.0)
    size = np.maximum(lack[0].sum(axis=1), np.finfo(np.float64).tiny)[:, None]
    found += lack[0][:, :, None] * (lack[1] / size)[:, None, :]
    return found


def _smaller(stack: TableStack, flat: Array, group: ShapeGroup) -> list[Margin]:
    """The tables of a stack with one attribute less, for all tables of a group."""
    margins: list[Margin] = []
    axes = range(len(group.shape))
    for away in axes:
        kept = tuple(axis for axis in axes if axis != away)
        parts = [stack.table(flat, tuple(scope[axis] for axis in kept)) for scope in group.scopes]
        margins.append((kept, np.stack(parts)))
    return margins


# ----------------------------------------------------------------------------------------------------------------------
# Non-negative consistent marginals from noisy residuals, from the small marginals up to the large ones.


@dataclass(frozen=True)
class LevelSettings:
    """How much the levels count, and how well they are solved; where nothing else is said by trial, no figure kept."""

    firmness: float = 30.0
    """What weights are times for every attribute that a residual has less than the largest; the figures are above."""
    unmeasured_weight: float = 0.01
    """The weight of what was never measured, in parts of the least weight of any measured residual."""
    lower_tolerance: float = 0.02
    """The tolerance of all levels but the last."""
    guess_passes: int = 25
    """Passes of proportional fitting for what the level below implies."""
    guess_tolerance: float = 1e-4
    """What they may miss the marginals of that level by, in parts of the total."""
    guess_noise: float = 0.1
    """And in standard deviations of the noise: where that is less, there are `exact_passes` at most."""
    exact_passes: int = 500
    least_tolerance: float = 1e-13
    """Rounding, in parts of the total."""


LEVELS = LevelSettings()


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
    precision: Callable[[Array], Array] | None = None
    """The product with the precision matrix, where the noise of a residual is not alike in all directions."""
    uneven: frozenset[Scope] = frozenset()
    """The residuals whose noise is not; they stay as measured, for the pull toward a guess takes it to be alike."""

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
    solve = partial(_solve, problem, max_steps=max_steps, time_limit=time_limit)
    below: tuple[Decomposition, NonnegativeFit] | None = None
    if use_prior:
        for level in range(1, top):
            _draw(problem, wished, level, below)
            part = Decomposition(stack.sizes, maximal(scope for scope in problem.precisions if len(scope) <= level))
            below = part, solve(part, wished, tolerance=LEVELS.lower_tolerance)
        _draw(problem, wished, top, below)
    else:
        unknown = stack.spread({scope: float(weight == 0) for scope, weight in problem.precisions.items()})
        wished[unknown > 0] = 0.0
    return solve(problem.decomposition, wished, tolerance=tolerance, progress=progress)


def _draw(problem: LocalProblem, wished: Array, level: int, below: tuple[Decomposition, NonnegativeFit] | None) -> None:
    """Draw the residuals of so many attributes toward what the level below implies, in place."""
    if below is None:
        return
    for group in problem.decomposition.residuals.groups:
        if len(group.shape) != level or not group.cells:
            continue
        # The tables of greatest entropy with the marginals of the level below.
        margins = _smaller(below[0].tables, below[1].marginals, group)
        even = np.ones((len(group.scopes), *group.shape))
        precisions = np.array([problem.precisions[scope] for scope in group.scopes])
        with np.errstate(divide="ignore"):
            variances = 1.0 / precisions
        tolerance, passes = _for_guesses(variances, problem.total)
        guesses = greatest_entropy(even, margins, tolerance=tolerance, most_passes=passes).tables
        variances[[scope in problem.uneven for scope in group.scopes] & np.isfinite(variances)] = 0.0
        tables = group.tables(wished)
        tables[...] = drawn_to_prior(tables, guesses, variances)


def _for_guesses(variances: Array, total: float) -> tuple[float, int]:
    """How well guesses keep the smaller marginals, and the passes at most: better than the noise, where that is little.

    A guess that misses them by more would be taken for something that the data have of their own.
    """
    noise = np.sqrt(variances[np.isfinite(variances) & (variances > 0)].min(initial=np.inf))
    usual = LEVELS.guess_tolerance
    tolerance = float(np.clip(LEVELS.guess_noise * noise / total, LEVELS.least_tolerance, usual))
    return tolerance, LEVELS.guess_passes if tolerance == usual else LEVELS.exact_passes


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
    precisions = {scope: problem.precisions[scope] for scope in stack.scopes}
    local = weighted(problem, part, own, precisions)
    fit = fit_nonnegative(local, tolerance=tolerance, max_steps=max_steps, time_limit=time_limit, progress=progress)
    return without_negatives(fit, part, problem.empty)


def without_negatives(
    fit: NonnegativeFit, part: Decomposition, empty: Callable[[Scope], Mask | None]
) -> NonnegativeFit:
    """The fit with tables in which no count is negative, and what they still disagree by if the search had ended."""
    if fit.violation == 0:
        return replace(fit, marginals=np.maximum(fit.marginals, 0.0))
    marginals, left = raked(part, fit.residuals, empty, fit.violation)
    total = float(part.residuals.table(fit.residuals, ()))
    return replace(
        fit, marginals=marginals, violation=left / total if fit.status is Status.CONVERGED else fit.violation
    )


def weighted(
    problem: LocalProblem, part: Decomposition, wished: Array, precisions: dict[Scope, float]
) -> NonnegativeProblem:
    """The wishes for some residuals with their weights: firm ones, or the precision matrix where there is one.

    Where queries tell long sums better than cells, as prefixes do, it is their squares that keep the sums right.
    """
    empty = empty_cells(part, problem.empty)
    stack, base = part.residuals, problem.decomposition.residuals
    largest = set(problem.decomposition.tables.scopes) <= set(stack.scopes)
    if problem.precision is None or not largest:
        return NonnegativeProblem(part, wished, stack.spread(firm_weights(precisions)), empty)
    weights = stack.spread(firm_weights(precisions, firmness=1.0))
    measured = stack.spread({scope: float(weight > 0) for scope, weight in precisions.items()}) > 0
    product = problem.precision

    def precision(change: Array) -> Array:
        """The matrix times a change of the part's residuals, which may be more than the problem's, in their order."""
        if stack.size == base.size:
            found = product(change)
        else:
            own, found = np.empty(base.size), np.zeros(stack.size)
            for scope in base.scopes:
                base.table(own, scope)[...] = stack.table(change, scope)
            image = product(own)
            for scope in base.scopes:
                stack.table(found, scope)[...] = base.table(image, scope)
        return np.where(measured, found, np.where(np.isfinite(weights), weights, 0.0) * change)

    return NonnegativeProblem(part, wished, weights, empty, precision)


def firm_weights(precisions: dict[Scope, float], *, firmness: float = LEVELS.firmness) -> dict[Scope, float]:
    """The weights of residuals: firmer for fewer attributes, weak where nothing was measured, the total kept."""
    top = max(len(scope) for scope in precisions)
    known = [weight for weight in precisions.values() if 0 < weight < math.inf]
    weak = LEVELS.unmeasured_weight * min(known, default=1.0)
    weights = {scope: (weight or weak) * firmness ** (top - len(scope)) for scope, weight in precisions.items()}
    return weights | {(): math.inf}


def empty_cells(part: Decomposition, empty: Callable[[Scope], Mask | None]) -> Mask | None:
    """Which cells of the stacked tables can hold nothing; None where all can hold something."""
    found = np.zeros(part.tables.size)
    for scope in part.tables.scopes:
        mask = empty(scope)
        if mask is not None:
            part.tables.table(found, scope)[...] = mask
    return found > 0 if found.any() else None

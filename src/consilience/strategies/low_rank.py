"""The low-rank mechanism's factors: W = B L with few rows in L (Yuan et al. 2012).

The rows of L are measured and the workload is answered by B times the noisy answers. With every column of L of L1
norm at most 1, Laplace noise at ε gives the expected total squared error 2‖B‖_F²/ε², so the factors sought are

    minimise ‖B‖_F²   over B, L with ‖W − B L‖_F ≤ γ and ‖L_j‖₁ ≤ 1 for every column j,

with r rows in L; the authors take 1.2 times the rank of W. Only WᵀW matters: a rotation of the queries rotates B. So
W stands for a root of its Gram matrix here, and has at most as many rows as columns.

The authors alternate between B, which has a closed form, and projected Nesterov steps in L, inside an augmented
Lagrangian. The same alternation converges much faster when L is moved with B following it. For a penalty 1/δ let

    φ(L) = min_B ‖B‖_F² + ‖W − B L‖_F²/δ,     attained at B = W Lᵀ (L Lᵀ + δI)⁻¹,     ∇φ(L) = −(2/δ) Bᵀ(W − B L).

φ is lowered by non-monotone spectral projected gradients (Birgin, Martínez, Raydan 2000), the projection taking each
column to the L1 ball, while δ falls by stages. What is left of the residual is then removed (γ = 0, so that answers
are unbiased): L ← L + B⁺(W − B L) solves W = B L exactly, and L is scaled to sensitivity 1. The problem is not
convex; its random start is seeded. Where L has room for more than the cells, the search starts from a p-identity
strategy, which random starts reach late or never.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from consilience.errors import DeclarationError
from consilience.kernels.kernel_cache import njit
from consilience.kernels.rng import generator
from consilience.strategies.attribute_strategies import Matrix, column_norm, gram_root, p_identity


@dataclass(frozen=True)
class LowRankSettings:
    """How the factors are searched for; where nothing else is said by trial, and no figures were kept."""

    rows_per_rank: float = 1.2
    """Rows of L for each of the rank of W: the authors' choice."""
    stages: tuple[float, ...] = (1e-1, 1e-2, 1e-3)
    """δ of each stage, as a share of the mean squared row length of L."""
    steps: int = 100
    """Steps of each stage."""
    last_steps: int = 30
    """Steps from a start that answers the workload already, at δ of a tenth of the last stage's."""
    memory: int = 10
    """A step may rise above the last value as long as it stays below the greatest of this many; the usual number."""


LOW_RANK = LowRankSettings()


@dataclass(frozen=True, eq=False)
class LowRankFactors:
    """B and L with R = B L for a root R of the workload's Gram matrix; L has L1 sensitivity 1.

    A workload W itself is answered by W L⁺, which has the Frobenius norm of `answers`.
    """

    answers: Matrix
    strategy: Matrix
    residual: float
    """‖R − B L‖_F / ‖R‖_F where the search ended, before the correction that makes it 0."""


def low_rank_factors(gram: ArrayLike, *, rank: int | None = None) -> LowRankFactors:
    """Factors of the workload with a small ‖B‖_F, for the Gram matrix WᵀW; `rank` is the number of rows of L.

    Without a `rank` it is the authors' choice, or the cells themselves where those are better than so many rows.

    >>> found = low_rank_factors(np.ones((4, 4)))
    >>> len(found.strategy) <= 2, round(float((found.answers**2).sum()), 6)
    (True, 1.0)
    """
    root = gram_root(gram)
    least, cells = root.shape
    rows = math.ceil(LOW_RANK.rows_per_rank * least) if rank is None else rank
    if rows < least:
        raise DeclarationError(
            f"the workload has rank {least}, and {rows} measured rows cannot answer it; ask for at least {least}"
        )
    scaled = root / math.sqrt(float((root**2).sum()))
    strategy = _optimised(scaled, rows)
    answers, residual = _best_answers(scaled, strategy, 1e-7 * _mean_square(strategy))
    found = [_completed(answers, strategy, residual), root]
    if rank is None or rows >= cells:
        found.append(np.eye(cells))
    gap = float(np.linalg.norm(residual))
    return min((_factors(root, each, gap) for each in found), key=lambda each: float((each.answers**2).sum()))


def _completed(answers: Matrix, strategy: Matrix, residual: Matrix) -> Matrix:
    """L changed as little as B allows, so that no residual is left."""
    return strategy + np.linalg.pinv(answers, rcond=1e-12) @ residual


def _factors(root: Matrix, strategy: Matrix, residual: float) -> LowRankFactors:
    """The strategy scaled to sensitivity 1, with the least B that answers from it."""
    scaled = strategy[np.any(strategy != 0, axis=1)] / column_norm(strategy, norm=1)
    answers = root @ np.linalg.pinv(scaled, rcond=1e-10)
    if float(np.linalg.norm(root - answers @ scaled)) > 1e-7 * float(np.linalg.norm(root)):
        answers = np.full_like(answers, np.inf)  # a strategy that cannot answer the workload has no error to speak of
    return LowRankFactors(answers, scaled, residual)


def _optimised(root: Matrix, rows: int) -> Matrix:
    """L where the search ends."""
    cells = root.shape[1]
    if rows > cells:
        found = p_identity(root.T @ root, rows=min(rows - cells, max(1, round(cells / 16))))
        strategy = np.concatenate([found, np.zeros((rows - len(found), cells))])
        return _descend(root, strategy, 0.1 * LOW_RANK.stages[-1] * _mean_square(strategy), LOW_RANK.last_steps)
    strategy = generator(0).standard_normal((rows, cells))
    strategy /= np.abs(strategy).sum(axis=0)
    for share in LOW_RANK.stages:
        strategy = _descend(root, strategy, share * _mean_square(strategy), LOW_RANK.steps)
    return strategy


def _descend(root: Matrix, start: Matrix, penalty: float, steps: int) -> Matrix:
    """The best L that non-monotone spectral projected gradients meet."""
    here, (value, gradient) = start, value_and_gradient(root, start, penalty)
    best, best_value, values = here, value, [value]
    length = 1.0 / max(float(np.abs(gradient).max()), 1e-300)
    for _ in range(steps):
        direction = project_columns(here - length * gradient) - here
        slope = float((gradient * direction).sum())
        if -slope <= 1e-8 * value:
            break
        ceiling, share = max(values[-LOW_RANK.memory :]), 1.0
        while True:
            there = here + share * direction
            new_value, new_gradient = value_and_gradient(root, there, penalty)
            if new_value <= ceiling + 1e-4 * share * slope or share < 1e-8:
                break
            parabola = -0.5 * share * share * slope / (new_value - value - share * slope)
            share = min(max(parabola, 0.1 * share), 0.5 * share)
        moved, turned = there - here, new_gradient - gradient
        curvature = float((moved * turned).sum())
        length = float((moved**2).sum()) / curvature if curvature > 0 else 10.0 * length
        here, value, gradient = there, new_value, new_gradient
        values.append(value)
        if value < best_value:
            best, best_value = here, value
        if len(values) > 2 * LOW_RANK.memory and values[-2 * LOW_RANK.memory] - best_value <= 1e-4 * best_value:
            break
    return best


def value_and_gradient(root: Matrix, strategy: Matrix, penalty: float) -> tuple[float, Matrix]:
    """φ(L) and its gradient, as the module's head has them."""
    answers, residual = _best_answers(root, strategy, penalty)
    value = float((answers**2).sum()) + float((residual**2).sum()) / penalty
    return value, (-2.0 / penalty) * (answers.T @ residual)


def _best_answers(root: Matrix, strategy: Matrix, penalty: float) -> tuple[Matrix, Matrix]:
    """B = W Lᵀ (L Lᵀ + δI)⁻¹ and W − B L."""
    inner = strategy @ strategy.T
    inner[np.diag_indices(len(inner))] += penalty
    answers = np.asarray(cho_solve(cho_factor(inner, overwrite_a=True), strategy @ root.T)).T
    return answers, root - answers @ strategy


def _mean_square(strategy: Matrix) -> float:
    return float((strategy**2).sum()) / len(strategy)


def project_columns(matrix: Matrix) -> Matrix:
    """The nearest matrix whose columns have L1 norm at most 1.

    Signs stay; the sizes of a longer column are projected to the simplex by Michelot's iteration (kernels/simplex.py).

    >>> project_columns(np.array([[3.0, 0.25], [-1.0, -0.5]])).tolist()
    [[1.0, 0.25], [-0.0, -0.5]]
    """
    columns = np.ascontiguousarray(matrix.T)
    _project_rows(columns, np.empty(columns.shape[1]))
    return np.ascontiguousarray(columns.T)


@njit(nogil=True, cache=True)
def _project_rows(rows, live):  # pragma: no cover - compiled
    for i in range(rows.shape[0]):
        row = rows[i]
        total = 0.0
        for j in range(row.size):
            live[j] = abs(row[j])
            total += live[j]
        if total <= 1.0:
            continue
        count = row.size
        threshold = (total - 1.0) / count
        while True:
            kept = 0
            total = 0.0
            for j in range(count):
                if live[j] > threshold:
                    live[kept] = live[j]
                    total += live[j]
                    kept += 1
            if kept == count:
                break
            count = kept
            threshold = (total - 1.0) / count
        for j in range(row.size):
            row[j] = np.copysign(max(abs(row[j]) - threshold, 0.0), row[j])


# ----------------------------------------------------------------------------------------------------------------------
# The factors as their authors find them (Yuan et al. 2012, Algorithms 1 and 2, with the constants of their program).
#
# For ½‖B‖² under W = B L and ‖L_j‖₁ ≤ 1, with multipliers Π of the equations and a penalty β, the augmented Lagrangian
#
#     ½‖B‖² + ⟨Π, W − B L⟩ + ½β‖W − B L‖²
#
# is lowered alternately, in L by accelerated projected gradients whose step is found by doubling, and in B in closed
# form, B = (βW + Π)Lᵀ(βLLᵀ + I)⁻¹. Then Π grows by β(W − B L), and β now and then. The start is W = (√r U S)(Vᵀ/√r) by
# its singular vectors, with r rows in L; rows beyond the rank are small random numbers. All steps commute with
# rotations of the queries, so a root of WᵀW stands for W here, too. The search ends where ‖W − B L‖ ≤ γ, in units of
# the queries' coefficients: answers B L x then miss W x by at most γ‖x‖. Where progress is lost in rounding, rounding
# decides whether another step is tried, so that other processors may end in other optima.


@dataclass(frozen=True)
class PublishedLowRankSettings:
    """The constants of the authors' program."""

    misfit: float = 0.01
    """γ, the ‖W − B L‖ at which the search ends."""
    rounds: int = 100
    """At most so many updates of the multipliers."""
    alternations: int = 5
    """Of L and B before each of them."""
    steps: int = 5
    """Gradient steps for L in each alternation."""
    penalty_rounds: int = 8
    """β grows once in so many rounds …"""
    penalty_factor: float = 5.0
    """… by this factor …"""
    most_penalty: float = 1e5
    """… up to here."""
    stirred: float = 1e-5
    """Smaller entries of L get normal random numbers of this size added, which tells rows apart that are alike."""
    ridge: float = 1e-6
    """A multiple of ½‖L‖² that is added."""


PUBLISHED = PublishedLowRankSettings()


def published_low_rank_factors(gram: ArrayLike, *, rank: int | None = None) -> LowRankFactors:
    """B and L with ‖R − B L‖ ≤ γ, for the Gram matrix WᵀW with the root R; L is scaled to sensitivity 1.

    Nothing else is tried, so they may be worse than the cells; `residual` says whether γ was reached.
    `published_low_rank_strategy` has L as it is measured.

    >>> found = published_low_rank_factors(np.ones((4, 4)))
    >>> found.strategy.shape, round(float((found.answers**2).sum()), 2)
    ((2, 4), 1.0)
    """
    root = gram_root(gram)
    rows = math.ceil(LOW_RANK.rows_per_rank * len(root)) if rank is None else rank
    rng, penalty, multipliers = generator(0), 1.0, np.zeros_like(root)
    values = np.linalg.norm(root, axis=1)  # the rows of a root are its singular vectors, times the values
    answers, strategy = np.full((len(root), rows), 1e-8), np.full((rows, root.shape[1]), 1e-8)
    kept = min(rows, len(root))
    answers[:, :kept] = np.diag(values)[:, :kept]
    strategy[:kept] = (root / values[:, None])[:kept]
    answers, strategy, residual = answers * math.sqrt(rows), strategy / math.sqrt(rows), np.zeros_like(root)
    for number in range(1, PUBLISHED.rounds + 1):
        for _ in range(PUBLISHED.alternations):
            strategy = _accelerated(penalty * answers.T @ answers, answers.T @ (penalty * root + multipliers), strategy)
            small = np.abs(strategy) < PUBLISHED.stirred
            strategy = strategy + small * PUBLISHED.stirred * rng.standard_normal(strategy.shape)
            inner = penalty * strategy @ strategy.T + np.eye(rows)
            answers = np.asarray(cho_solve(cho_factor(inner), strategy @ (penalty * root + multipliers).T)).T
        residual = root - answers @ strategy
        if number % PUBLISHED.penalty_rounds == 0:
            penalty = min(penalty * PUBLISHED.penalty_factor, PUBLISHED.most_penalty)
        if float(np.linalg.norm(residual)) < PUBLISHED.misfit:
            break
        multipliers = multipliers + penalty * residual
    scale = column_norm(strategy, norm=1)
    left = float(np.linalg.norm(residual)) / float(np.linalg.norm(root))
    return LowRankFactors(answers * scale, strategy / scale, left)


def published_low_rank_strategy(gram: ArrayLike, *, rank: int | None = None) -> Matrix:
    """The authors' L, of sensitivity 1, with the residual removed: least squares answers with no more error than B.

    It answers by the shortest B with B L = W, and as long as a residual is left there is none, or a long one.
    """
    root, found = gram_root(gram), published_low_rank_factors(gram, rank=rank)
    strategy = _completed(found.answers, found.strategy, root - found.answers @ found.strategy)
    return strategy / column_norm(strategy, norm=1)


def _accelerated(curvature: Matrix, slopes: Matrix, start: Matrix) -> Matrix:
    """L after a few accelerated steps down ½⟨L, curvature·L⟩ − ⟨slopes, L⟩, with the ridge, in the L1 balls."""

    def value_and_slope(here: Matrix) -> tuple[float, Matrix]:
        bent = curvature @ here + PUBLISHED.ridge * here
        return float((here * (0.5 * bent - slopes)).sum()), bent - slopes

    surely = float(np.abs(curvature).sum(axis=0).max())
    bound = max(1.0, surely / 100.0)
    here, momentum, before, weight = start, np.zeros_like(start), 0.0, 1.0
    for _ in range(PUBLISHED.steps):
        ahead = here + (before - 1.0) / weight * momentum
        value, slope = value_and_slope(ahead)
        earlier, still = here, False
        for trial in range(PUBLISHED.steps):
            here = project_columns(ahead - slope / bound)
            moved = here - ahead
            length = 0.5 * float((moved**2).sum())
            excess = value_and_slope(here)[0] - value - float((moved * slope).sum())
            still = length <= 1e-12 * here.size
            if still or excess <= bound * length:
                break
            bound = max(2.0 * bound, excess / length) if trial < PUBLISHED.steps - 1 else surely
        before, weight = weight, (1.0 + math.sqrt(4.0 * weight**2 + 1.0)) / 2.0
        momentum = here - earlier
        if still:
            break
    return here

"""K-means as a problem for the chain: the target, the mixture that points are drawn from, and where chains start.

The target is about what was released: raw noisy counts and sums, under the centroids θ_{t−1} that were in force. The
corrected counts of §3.2 (iterates/problems.py) give the number of records, the weights of the mixture and
the start. The paper takes the corrected values in the target too (`target="corrected"`); they no longer scatter around
the exact ones by the law of the noise.

The mixture has a component for each cluster of each round, N(c, δI) around the centroid c that the round led to
(eq. 1). Beyond the paper it may allow for the noise in c, whose standard deviation is about σ/n for a cluster of n
records, and keep a small share for points anywhere.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.iterates.chain import ChainProblem, Mixture
from consilience.iterates.chain_kernels import KMEANS, LOGISTIC, Target
from consilience.iterates.clustering import next_centroids
from consilience.kernels.record_functions import Norm, no_statistic
from consilience.kernels.regions import BOX, Region
from consilience.kernels.simplex import project_to_simplex

# ----------------------------------------------------------------------------------------------------------------------
# Noisy counts and sums of several rounds that agree on what they must (Lee and Kifer 2016, §3.2).
#
# The clusters of every round divide the same records, so that the counts n_tk of all rounds t have one total, and so do
# their sums, coordinate by coordinate. Counts are not negative. The nearest such values, in either of two senses:
#
#     absolute   minimise Σ_t a_t Σ_k |n_tk − y_tk|       a_t = 1/b_t, the likelihood of Laplace noise
#     squares    minimise Σ_t c_t Σ_k (n_tk − y_tk)²      c_t = 1/2σ_t², that of Gaussian noise
#
# *Given the total N* the rounds part. The projection of y_t onto {n ≥ 0, Σn = N} is n = max(y_t + λ_t, 0), and it is a
# minimiser in both senses. Of squares by definition. Of absolute deviations because every feasible n has Σ_k |n_k −
# y_k| ≥ Σ_k max(−y_k, 0) + |N − P_t| with P_t = Σ_k max(y_tk, 0), which the projection attains: where λ ≥ 0 it lies
# above max(y, 0) everywhere, and where λ ≤ 0 below.
#
# *The total.* In the absolute sense N minimises Σ_t a_t |N − P_t|: a weighted median of the P_t, and where an interval
# of them is best, its middle. In squares the derivative in N of the distance of round t is 2 λ_t(N), which grows with
# N, so that N is the root of Σ_t c_t λ_t(N), or 0 where that is positive from the start.
#
# Sums have no sign: with the total W fixed, y_t + (W − Σ_k y_tk)/K is a minimiser in both senses, and W is a weighted
# median or mean of the Σ_k y_tk.


Array = NDArray[np.float64]
Sense = Literal["absolute", "squares"]


def consistent_counts(noisy: Array, weights: Array, *, sense: Sense) -> Array:
    """The nearest non-negative counts with one total; a row for each round, and a weight.

    >>> consistent_counts(np.array([[6.0, 4.0], [9.0, -1.0], [8.0, 4.0]]), np.ones(3), sense="absolute")
    array([[ 6.,  4.],
           [10.,  0.],
           [ 7.,  3.]])
    """
    if sense == "absolute":
        total = weighted_median(np.maximum(noisy, 0.0).sum(axis=1), weights)
    else:
        total = _balanced_total(noisy, weights)
    return np.array([project_to_simplex(row, total) for row in noisy])


def consistent_sums(noisy: Array, weights: Array, *, sense: Sense) -> Array:
    """The nearest sums with one total for each coordinate; axes are rounds, clusters and coordinates.

    >>> consistent_sums(np.array([[[1.0], [2.0]], [[3.0], [2.0]]]), np.ones(2), sense="squares").sum(axis=1).ravel()
    array([4., 4.])
    """
    totals = noisy.sum(axis=1)
    if sense == "squares":
        agreed = weights @ totals / weights.sum()
    else:
        agreed = np.array([weighted_median(column, weights) for column in totals.T])
    return noisy + ((agreed - totals) / noisy.shape[1])[:, None, :]


def weighted_median(values: Array, weights: Array) -> float:
    """The middle of the numbers c with the least Σ w |v − c|.

    >>> weighted_median(np.array([5.0, 1.0, 2.0, 9.0]), np.ones(4))
    3.5
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    half = reached[-1] / 2
    tolerance = 1e-12 * reached[-1]
    low = int(np.searchsorted(reached, half - tolerance))
    high = int(np.searchsorted(reached, half + tolerance))
    return float((values[order][low] + values[order][high]) / 2)


def _balanced_total(noisy: Array, weights: Array) -> float:
    """The root of Σ_t c_t λ_t(N), found on the broken line that the sum is, exactly.

    N_t(λ) = Σ_k max(y_tk + λ, 0) bends where λ = −y_tk. Between the totals of all bends of all rounds the sum is a
    straight line.
    """
    bends = np.array([[np.maximum(row + lift, 0.0).sum() for lift in -row] for row in noisy])
    totals = np.unique(bends)
    totals = np.append(totals, totals[-1] + np.abs(noisy).sum() + 1.0)
    slopes = np.array([weights @ np.array([_lift(row, total) for row in noisy]) for total in totals])
    if slopes[0] >= 0:
        return float(totals[0])
    above = int(np.searchsorted(slopes > 0, True))
    low, high = totals[above - 1], totals[above]
    return float(low - slopes[above - 1] * (high - low) / (slopes[above] - slopes[above - 1]))


def _lift(row: Array, total: float) -> float:
    """λ with Σ max(y + λ, 0) = N, at N = 0 the largest that leaves nothing.

    Only the j largest values count, for the largest j that leaves them positive.
    """
    falling = np.sort(row)[::-1]
    lifts = (total - np.cumsum(falling)) / np.arange(1, row.size + 1)
    used = max(1, int(np.count_nonzero(falling + lifts > 0)))
    return float(lifts[used - 1]) if total > 0 else float(-falling[0])


# ----------------------------------------------------------------------------------------------------------------------
# K-means as a problem for the chain: the target, the mixture that points are drawn from, and where chains start.


TargetValues = Literal["released", "corrected"]

ANYWHERE_SPREAD = 0.5
"""The standard deviation of the component for points anywhere, around the middle of the region."""
LARGEST_NOISE_SPREAD = 0.5


@dataclass(frozen=True, eq=False)
class NoisyRounds:
    """What T rounds of k-means released, in normalised coordinates."""

    thetas: Array
    """The centroids in force, with axes for rounds, clusters and coordinates."""
    counts: Array
    sums: Array
    count_scales: Array
    """The scale of Laplace noise, or the standard deviation of Gaussian noise, for each round."""
    sum_scales: Array
    laplace: bool
    region: Region

    @property
    def last_iterate(self) -> Array:
        """The centroids that the last round led to: the result of DP-KMEANS alone."""
        return self.iterates[-1]

    @property
    def iterates(self) -> Array:
        """The centroids that each round led to."""
        rounds = zip(self.counts, self.sums, self.thetas, strict=True)
        return np.array([next_centroids(counts, sums, before, self.region) for counts, sums, before in rounds])

    def corrected(self) -> tuple[Array, Array]:
        """Counts and sums that agree on their totals, with counts that are not negative."""
        sense: Sense = "absolute" if self.laplace else "squares"
        power = 1 if self.laplace else 2
        counts = consistent_counts(self.counts, self.count_scales**-power, sense=sense)
        return counts, consistent_sums(self.sums, self.sum_scales**-power, sense=sense)


def cluster_problem(
    rounds: NoisyRounds,
    *,
    target: TargetValues = "released",
    allow_for_noise: bool = True,
    anywhere: float = 0.05,
    overdispersed: bool = True,
    simulate_images: bool = False,
) -> ChainProblem:
    """The problem that k-means poses.

    The mixture keeps the share `anywhere` for points anywhere. Where `overdispersed`, chain i starts from the centroids
    of the i-th last round; else all start from the last. Records that were moved to a ball are simulated in the box
    they came from, unless `simulate_images`, as published, simulates them in the ball. If no count is left after
    correction, there is one record in all, and every cluster is as likely.
    """
    corrected, corrected_sums = rounds.corrected()
    total = float(corrected[0].sum())
    weights = corrected / total if total >= 1 else np.full(corrected.shape, 1 / corrected.shape[1])
    values = (corrected, corrected_sums) if target == "corrected" else (rounds.counts, rounds.sums)
    mixture = _mixture(rounds, corrected, weights, allow_for_noise=allow_for_noise, anywhere=anywhere)
    starts = []
    for last in range(len(weights) if overdispersed else 1):
        shares = np.zeros(weights.shape)
        shares[len(weights) - 1 - last] = weights[len(weights) - 1 - last]
        starts.append(np.append(shares.ravel(), 0.0))
    return ChainProblem(
        _cluster_target(rounds, *values, simulate_images=simulate_images), mixture, max(total, 1.0), tuple(starts)
    )


def _cluster_target(rounds: NoisyRounds, counts: Array, sums: Array, *, simulate_images: bool) -> Target:
    number, clusters, dimensions = rounds.thetas.shape
    released = np.concatenate([counts, sums.reshape(number, -1)], axis=1)
    scales = np.repeat(
        np.column_stack([rounds.count_scales, rounds.sum_scales]), [clusters, clusters * dimensions], axis=1
    )
    linear, quadratic = noise_terms(scales, laplace=rounds.laplace)
    return Target(
        kind=KMEANS,
        region=rounds.region.code if simulate_images else BOX,
        bounded=dimensions,
        places=1 + dimensions,
        thetas=np.ascontiguousarray(rounds.thetas, dtype=np.float64),
        released=released,
        linear=linear,
        quadratic=quadratic,
        own=no_statistic(),
        image=BOX if simulate_images else rounds.region.code,
    )


def noise_terms(scales: Array, *, laplace: bool) -> tuple[Array, Array]:
    """a and c of ln π = −Σ a |y − S| + c (y − S)² for noise of these scales."""
    nothing = np.zeros(scales.shape)
    return (1 / scales, nothing) if laplace else (nothing, 0.5 / scales**2)


def _mixture(
    rounds: NoisyRounds, corrected: Array, weights: Array, *, allow_for_noise: bool, anywhere: float
) -> Mixture:
    dimensions = rounds.thetas.shape[2]
    centres = rounds.iterates.reshape(-1, dimensions)
    extra = np.zeros(len(centres))
    if allow_for_noise:
        deviations = rounds.sum_scales * (np.sqrt(2) if rounds.laplace else 1.0)
        extra = (deviations[:, None] / np.maximum(corrected, 1.0)).clip(max=LARGEST_NOISE_SPREAD).ravel()
    each = np.append((1 - anywhere) * weights.ravel() / len(weights), anywhere)
    return Mixture(
        centres=np.vstack([centres, np.zeros(dimensions)]),
        weights=each,
        widths=np.append(np.ones(len(centres)), 0.0)[:, None].repeat(dimensions, axis=1),
        extra=np.append(extra, ANYWHERE_SPREAD)[:, None].repeat(dimensions, axis=1),
    )


# ----------------------------------------------------------------------------------------------------------------------
# Logistic regression without noise: the coefficients that make the loss of weighted records least.
#
#     minimise over θ   Σ_i w_i ln(1 + exp(−θ·z_i)) / Σ_i w_i + ridge/2 ‖θ‖²,        z_i = y_i (x_i, 1)
#
# by Newton's method, each step halved until the loss falls by a part of what its slope promises (Armijo; Boyd and
# Vandenberghe 2004, §9.5). ridge > 0 makes the minimum exist and be unique, for separable records too.


MOST_STEPS = 200
ENOUGH = 1e-4
SHORTEST = 2.0**-40


@dataclass(frozen=True, eq=False)
class LogisticFit:
    """Coefficients, the intercept last; the mean loss without the penalty; whether Newton's method arrived."""

    coefficients: Array
    loss: float
    converged: bool


def signed_records(points: Array, labels: Array) -> Array:
    """z = y·(x, 1) for each record.

    >>> signed_records(np.array([[0.5], [0.25]]), np.array([1.0, -1.0]))
    array([[ 0.5 ,  1.  ],
           [-0.25, -1.  ]])
    """
    return np.column_stack([points, np.ones(len(points))]) * labels[:, None]


def logistic_loss(coefficients: Array, signed: Array, *, weights: Array | None = None) -> float:
    """The weighted mean of ln(1 + exp(−θ·z)).

    >>> round(logistic_loss(np.zeros(2), np.array([[0.5, 1.0]])), 4)
    0.6931
    """
    return float(np.average(np.logaddexp(0.0, -(signed @ coefficients)), weights=weights))


def fit_logistic(
    signed: Array, *, weights: Array | None = None, ridge: float, start: Array | None = None, tolerance: float = 1e-10
) -> LogisticFit:
    """The coefficients with the least penalised loss; the squared Newton decrement there is below 2 × tolerance.

    >>> z = signed_records(np.array([[1.0], [-1.0], [1.0]]), np.array([1.0, -1.0, -1.0]))
    >>> fit_logistic(z, ridge=1e-3).converged
    True
    """
    if not (np.isfinite(ridge) and ridge > 0):
        raise DeclarationError(f"the ridge is {ridge}; it is a finite number above 0, such as 1e-6")
    if signed.ndim != 2 or not len(signed):
        raise DeclarationError("there are no records to fit; give one or more")
    shares = np.full(len(signed), 1 / len(signed)) if weights is None else weights / weights.sum()
    found = np.zeros(signed.shape[1]) if start is None else np.array(start, dtype=np.float64)
    converged = False
    for _ in range(MOST_STEPS):
        slope, step = _newton_step(found, signed, shares, ridge)
        promised = float(slope @ step)
        if promised <= 2 * tolerance:
            converged = True
            break
        length = _acceptable_length(found, step, promised, signed, shares, ridge)
        if length == 0.0:
            break
        found = found - length * step
    return LogisticFit(found, logistic_loss(found, signed, weights=shares), converged)


def _newton_step(found: Array, signed: Array, shares: Array, ridge: float) -> tuple[Array, Array]:
    margins = signed @ found
    misfits = np.exp(-np.logaddexp(0.0, margins))
    slope = ridge * found - signed.T @ (shares * misfits)
    curvature = signed.T @ (signed * (shares * misfits * (1 - misfits))[:, None])
    curvature[np.diag_indices_from(curvature)] += ridge
    return slope, np.asarray(np.linalg.solve(curvature, slope), dtype=np.float64)


def _acceptable_length(found: Array, step: Array, promised: float, signed: Array, shares: Array, ridge: float) -> float:
    """The first of 1, 1/2, 1/4, … with enough descent, or 0 where rounding errors leave none."""

    def penalised(coefficients: Array) -> float:
        penalty = ridge / 2 * float(coefficients @ coefficients)
        return logistic_loss(coefficients, signed, weights=shares) + penalty

    here = penalised(found)
    length = 1.0
    while length >= SHORTEST:
        if penalised(found - length * step) <= here - ENOUGH * length * promised:
            return length
        length /= 2
    return 0.0


# ----------------------------------------------------------------------------------------------------------------------
# How the coefficients of a logistic regression follow from noisy sums: the public rule of its rounds.
#
#     θ_t = Π(θ_{t−1} − step · gradient / n̂),      Π = the nearest point with ‖θ‖₂ ≤ radius,
#
# and θ_t = θ_{t−1} where the noisy number of records n̂ is below 1.


def next_coefficients(previous: Array, gradient: Array, records: float, *, step: float, radius: float) -> Array:
    """The coefficients after one step of projected gradient descent.

    >>> next_coefficients(np.zeros(2), np.array([-3.0, 4.0]), 10.0, step=1.0, radius=0.25)
    array([ 0.15, -0.2 ])
    >>> next_coefficients(np.ones(1), np.array([5.0]), -2.0, step=1.0, radius=9.0)
    array([1.])
    """
    if records < 1:
        return previous.copy()
    moved = previous - step * gradient / records
    size = float(np.linalg.norm(moved))
    return moved * (radius / size) if size > radius else moved


# ----------------------------------------------------------------------------------------------------------------------
# Logistic regression as a problem for the chain: the target, what points are drawn from, and how many there are.
#
# The target is about what was released: noisy counts and sums of clipped gradients, under the coefficients θ_{t−1} that
# were in force. A point is x with its label as the last coordinate. New points are drawn without regard to what was
# released: either label with the same chance, and x Gaussian around the middle of the region, about as wide as the
# uniform law there. So the proposal is fixed and its density known, and jumps are exact for any released values.
#
# The prior is uniform over datasets of n' weighted points, and n' is its strength: the more points, the less can all of
# them together depart from the uniform law. A point is to stand for about as many records as the noise hides, which is
# a multiple c of the noise's standard deviation in units of a typical gradient:
#
#     n' = N̂ / (c σ̂),      σ̂ = the geometric mean over rounds of the standard deviation of the gradient's noise.
#
# N̂ is the mean of the noisy counts. Both are public.


FEWEST_POINTS, MOST_POINTS = 16, 2000


@dataclass(frozen=True, eq=False)
class NoisyGradients:
    """What T rounds of logistic regression released, for normalised attributes; the intercept comes last."""

    thetas: Array
    """The coefficients in force, a row for each round."""
    counts: Array
    gradients: Array
    count_scales: Array
    """The scale of Laplace noise, or the standard deviation of Gaussian noise, for each round."""
    gradient_scales: Array
    laplace: bool
    clip: float
    clip_norm: Norm
    region: Region

    @property
    def records(self) -> float:
        """The noisy number of records, at least 1: counts of less noise weigh more."""
        weights = self.count_scales**-2.0
        return max(float(np.average(self.counts, weights=weights)), 1.0)

    @property
    def noise_deviation(self) -> float:
        """The geometric mean over rounds of the standard deviation of the gradient's noise."""
        return float(np.exp(np.log(self.gradient_scales).mean())) * (2**0.5 if self.laplace else 1.0)


def simulated_size(rounds: NoisyGradients, *, records_per_point: float) -> int:
    """How many points stand for all records, if one stands for this many standard deviations of the noise."""
    wanted = rounds.records / (records_per_point * rounds.noise_deviation)
    return int(np.clip(wanted, FEWEST_POINTS, MOST_POINTS))


def logistic_problem(rounds: NoisyGradients) -> ChainProblem:
    """The problem that logistic regression poses."""
    spread = np.append(np.full(rounds.region.dimensions, uniform_deviation(rounds.region)), 0.0)
    centres = np.zeros((2, len(spread)))
    centres[:, -1] = (-1.0, 1.0)
    halves = np.array([0.5, 0.5])
    mixture = Mixture(
        centres=centres, weights=halves, widths=np.zeros(centres.shape), extra=np.vstack([spread, spread])
    )
    return ChainProblem(_logistic_target(rounds), mixture, rounds.records, (halves,))


def uniform_deviation(region: Region) -> float:
    """The standard deviation of a coordinate of a uniform point: √(1/3) in the box, √(2/(d+1)(d+2)) in the L1 ball.

    >>> uniform_deviation(Region("ball", 1)) == uniform_deviation(Region("box", 5))
    True
    """
    dimensions = region.dimensions
    return float(np.sqrt(1 / 3 if region.kind == "box" else 2 / ((dimensions + 1) * (dimensions + 2))))


def refit(points: Array, masses: Array, *, ridge: float, start: Array | None = None) -> Array:
    """The coefficients of a regression without noise or clipping on simulated records, whose label comes last."""
    signed = signed_records(points[:, :-1], points[:, -1])
    return fit_logistic(signed, weights=masses, ridge=ridge, start=start).coefficients


def followed(rounds: NoisyGradients, *, step: float, radius: float) -> Array:
    """The coefficients that the last round led to: the result of the private algorithm alone."""
    return next_coefficients(
        rounds.thetas[-1], rounds.gradients[-1], float(np.mean(rounds.counts)), step=step, radius=radius
    )


def _logistic_target(rounds: NoisyGradients) -> Target:
    number, size = rounds.thetas.shape
    thetas = np.zeros((number, 2, size))
    thetas[:, 0] = rounds.thetas
    thetas[:, 1, 0], thetas[:, 1, 1] = rounds.clip, rounds.clip_norm
    scales = np.column_stack([rounds.count_scales, np.repeat(rounds.gradient_scales[:, None], size, axis=1)])
    linear, quadratic = noise_terms(scales, laplace=rounds.laplace)
    return Target(
        kind=LOGISTIC,
        region=rounds.region.code,
        bounded=size - 1,
        places=1 + size,
        thetas=thetas,
        released=np.column_stack([rounds.counts, rounds.gradients]),
        linear=linear,
        quadratic=quadratic,
        own=no_statistic(),
    )

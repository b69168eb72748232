"""Logistic regression as a problem for the chain: the target, what points are drawn from, and how many there are.

The target is about what was released: noisy counts and sums of clipped gradients, under the coefficients θ_{t−1} that
were in force. A point is x with its label as the last coordinate. New points are drawn without regard to what was
released: either label with the same chance, and x Gaussian around the middle of the region, about as wide as the
uniform law there. So the proposal is fixed and its density known, and jumps are exact for any released values.

The prior is uniform over datasets of n' weighted points, and n' is its strength: the more points, the less can all of
them together depart from the uniform law. A point is to stand for about as many records as the noise hides, which is
a multiple c of the noise's standard deviation in units of a typical gradient:

    n' = N̂ / (c σ̂),      σ̂ = the geometric mean over rounds of the standard deviation of the gradient's noise.

N̂ is the mean of the noisy counts. Both are public.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.iterates.chain import ChainProblem, Mixture
from consilience.iterates.chain_kernels import LOGISTIC, Target, most_places
from consilience.kernels.logistic_gradients import Norm
from consilience.kernels.regions import Region

# ----------------------------------------------------------------------------------------------------------------------
# Logistic regression without noise: the coefficients that make the loss of weighted records least.
#
#     minimise over θ   Σ_i w_i ln(1 + exp(−θ·z_i)) / Σ_i w_i + ridge/2 ‖θ‖²,        z_i = y_i (x_i, 1)
#
# by Newton's method, each step halved until the loss falls by a part of what its slope promises (Armijo; Boyd and
# Vandenberghe 2004, §9.5). ridge > 0 makes the minimum exist and be unique, for separable records too.


Array = NDArray[np.float64]

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
    return ChainProblem(_target(rounds), mixture, rounds.records, (halves,))


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


def _target(rounds: NoisyGradients) -> Target:
    number, size = rounds.thetas.shape
    thetas = np.zeros((number, 2, size))
    thetas[:, 0] = rounds.thetas
    thetas[:, 1, 0], thetas[:, 1, 1] = rounds.clip, rounds.clip_norm
    scales = np.column_stack([rounds.count_scales, np.repeat(rounds.gradient_scales[:, None], size, axis=1)])
    nothing = np.zeros(scales.shape)
    return Target(
        kind=LOGISTIC,
        region=rounds.region.code,
        bounded=size - 1,
        places=most_places(LOGISTIC, (2, size)),
        thetas=thetas,
        released=np.column_stack([rounds.counts, rounds.gradients]),
        linear=1 / scales if rounds.laplace else nothing,
        quadratic=nothing if rounds.laplace else 0.5 / scales**2,
    )

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

from consilience.iterates.chain import ChainProblem, Mixture
from consilience.iterates.chain_kernels import Target
from consilience.iterates.contributions import LOGISTIC, most_places
from consilience.iterates.logistic_fit import fit_logistic, signed_records
from consilience.iterates.logistic_steps import next_coefficients
from consilience.kernels.logistic_gradients import Norm
from consilience.kernels.regions import Region

Array = NDArray[np.float64]

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

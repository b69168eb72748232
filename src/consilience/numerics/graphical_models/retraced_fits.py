"""The way that a fit of least risk went, gone again with other noise.

Such a fit is the search of `least_risk.py`, ended after some distance: the lengths of its steps added up. With other
noise the search goes equally far and judges nothing, which takes one call of the oracle for each trial step.

How long a step may be depends on the curvature of the loss, which noise hardly changes. So the lengths are found once
(`fit_with_effort`), and every later fit takes these very steps without trials (`fit_along`):

    y = x + (a/A)(ν − x),   θ ← θ − a·Bᵀ(By − c),   ν = marginals of θ,   x ← x + (a/A)(ν − x),

with a the length of a step and A the distance so far. Should a residual grow on the way, which steps of fitting lengths
do not let happen, the lengths are sought again. The model that matches the marginals x is likewise sought from where
it was found before, relative to the mean of the potentials.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.numerics.compilation import announce
from consilience.numerics.graphical_models import way_kernels
from consilience.numerics.graphical_models.least_risk import MATCHED, Search, match_marginals
from consilience.numerics.graphical_models.oracle import MarginalOracle
from consilience.numerics.graphical_models.rows import MeasuredRows

Array = NDArray[np.float64]

GROWN = 1.05
"""A residual that is so many times as long as the shortest one before has grown."""


@dataclass(frozen=True, eq=False)
class Way:
    """The lengths of all steps, and how the model found lies to the mean of the potentials on the way."""

    lengths: tuple[float, ...]
    aside: Array


def fit_with_effort(
    oracle: MarginalOracle,
    rows: MeasuredRows,
    observed: Array,
    *,
    start: Array,
    effort: float,
    noise: float,
    max_steps: int,
) -> tuple[Array, Way]:
    """The potentials that the search finds when it goes this far, and the way it went.

    `noise` is the rows' worth of noise that a fit takes in, by which the model matches the marginals found.
    """
    search = Search(oracle, rows, observed, np.zeros(observed.size, dtype=np.bool_), start, [])
    lengths = []
    while search.weight < effort and search.steps < max_steps and not search.stuck:
        before = search.weight
        search.advance(farthest=effort)
        lengths.append(search.weight - before)
    mean = search.mean_potentials
    found, _ = match_marginals(oracle, rows, search.marginals, start=mean, enough=_enough(noise))
    return found, Way(tuple(lengths), found - mean)


def fit_along(
    oracle: MarginalOracle, rows: MeasuredRows, observed: Array, *, start: Array, way: Way, noise: float, max_steps: int
) -> Array:
    """The potentials found by the steps of a way known before, from a start and observed values of one's own."""
    announce(way_kernels.descend)
    potentials, mean = start.copy(), start.copy()
    marginals = oracle.marginals(start).values
    average, distance, shortest = marginals.copy(), 0.0, np.inf
    middle, residual, gradient = np.empty_like(start), np.empty_like(observed), np.empty_like(start)
    for length in way.lengths:
        distance += length
        share = length / distance
        way_kernels.between(average, marginals, share, middle)
        np.subtract(rows.apply(middle, out=residual), observed, out=residual)
        size = float(residual @ residual)
        if not size <= GROWN**2 * shortest:
            effort = sum(way.lengths)
            settings = {"effort": effort, "noise": noise, "max_steps": max_steps}
            return fit_with_effort(oracle, rows, observed, start=start, **settings)[0]
        shortest = min(shortest, size)
        way_kernels.descend(potentials, rows.adjoint(residual, out=gradient), length, mean, share)
        marginals = oracle.marginals(potentials).values
        way_kernels.between(average, marginals, share, average)
    return match_marginals(oracle, rows, average, start=mean + way.aside, enough=_enough(noise))[0]


def _enough(noise: float) -> float:
    return MATCHED * max(noise, 1.0)

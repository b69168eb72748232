"""The way that a fit of least risk went, gone again with other noise.

Such a fit is the search of `least_risk.py`, ended after some distance: the lengths of its steps added up. With other
noise the search goes equally far and judges nothing, which takes one call of the oracle for each trial step.

How long a step may be depends on the curvature of the loss, which noise hardly changes. So the lengths are found once
(`rehearse`), and every later fit takes these very steps without trials (`along`):

    y = x + (a/A)(ν − x),   θ ← θ − a·g/(1 + (a²/A)·b²ν),  g = Bᵀ(By − c),   ν = marginals of θ,   x ← x + (a/A)(ν − x),

with a the length of a step and A the distance so far. The search itself takes b = 0. With b² the squared columns of B
a step is implicit in each cell: it takes into account that the cell's own marginal, about ν times the step, will answer
to it. Then a sixth of the steps can be saved before they become too long, and where the rehearsal ends as near to
where the search ended as makes no difference, that is the way. Should a residual grow on the way, which steps of
fitting lengths do not let happen, the lengths are sought again. The model that matches the marginals x is likewise
sought from where it was found before, relative to the mean of the potentials.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.models.fitting.least_risk import MATCHED, Search, match_marginals
from consilience.models.fitting.objective import MeasuredRows
from consilience.models.oracle import Oracle

# ----------------------------------------------------------------------------------------------------------------------
# The vector work of one step of `retraced_fits`, in as few passes as possible.


@njit(nogil=True, cache=True)
def follow(average, marginals, share, next_share, middle):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The average goes a share of the way to the marginals; from there the middle is the next share of the way."""
    for i in range(average.size):
        value = average[i] + share * (marginals[i] - average[i])
        average[i] = value
        middle[i] = value + next_share * (marginals[i] - value)


@njit(nogil=True, cache=True)
def descend(potentials, gradient, marginals, curvature, length, mean, share):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """potentials −= length·gradient/(1 + length·share·curvature·marginals); their mean goes a share of the way."""
    slowed = length * share
    for i in range(potentials.size):
        value = potentials[i] - length * gradient[i] / (1.0 + slowed * curvature[i] * marginals[i])
        potentials[i] = value
        mean[i] += share * (value - mean[i])


# ----------------------------------------------------------------------------------------------------------------------
# The way that a fit of least risk went, gone again with other noise.


Array = NDArray[np.float64]


@dataclass(frozen=True)
class WaySettings:
    """When a way is shortened, and when it is left."""

    grown: float = 1.05
    """A residual that is so many times as long as the shortest one before has grown."""
    fewer: float = 0.82
    """Steps of a shorter way for each of the way searched. On `adult-fine` with Gaussian and with Laplace noise 0.8
    still held; 0.75 were too few for one of them, and 0.7 for both."""
    no_difference: float = 0.01
    """A shorter way may end this far from the way searched, in units of the noise that the fit takes in."""


RETRACED = WaySettings()


@dataclass(frozen=True, eq=False)
class Way:
    """The lengths of all steps, and how the model found lies to the mean of the potentials on the way."""

    lengths: tuple[float, ...]
    curvature: Array
    """b² of each cell, or zero."""
    aside: Array

    @property
    def shares(self) -> list[float]:
        """a/A of each step."""
        return (np.array(self.lengths) / np.cumsum(self.lengths)).tolist()


@dataclass(frozen=True, eq=False)
class RetracedFit:
    """A fit that goes as far as another one did, from its own start to its own observed values.

    `noise` is the rows' worth of noise that the fit takes in, by which the model matches the marginals found.
    """

    oracle: Oracle
    rows: MeasuredRows
    observed: Array
    start: Array
    noise: float
    max_steps: int

    def searched(self, effort: float, *, least_steps: int = 0) -> Array:
        """The potentials that the search finds when it goes this far, and takes so many steps at least."""
        search, _ = self._search(effort, least_steps)
        return self._matched(search.marginals, search.mean_potentials)

    def rehearse(self, effort: float) -> Way:
        """The way to this effort for later fits: with fewer steps than the search takes, if they lead there too."""
        search, lengths = self._search(effort)
        average, mean = search.marginals, search.mean_potentials
        way = Way(lengths, np.zeros_like(self.start), np.zeros_like(self.start))
        curvature = self.rows.adjoint_squared(np.ones(self.rows.size))
        shorter = replace(way, lengths=fewer_steps(lengths), curvature=curvature)
        walked = self._walk(shorter, self.oracle.marginals(self.start).values)
        if walked is not None:
            apart = self.rows.apply(walked[0] - average)
            if float(apart @ apart) <= RETRACED.no_difference * max(self.noise, 1.0):
                way, (average, mean) = shorter, walked
        return replace(way, aside=self._matched(average, mean) - mean)

    def along(self, way: Way, first: Array | None = None) -> Array:
        """The potentials found by the steps of a way known before; `first` has the marginals of the start, if known."""
        walked = self._walk(way, self.oracle.marginals(self.start).values if first is None else first)
        if walked is None:
            return self.searched(sum(way.lengths))
        average, mean = walked
        return self._matched(average, mean + way.aside)

    def _search(self, effort: float, least_steps: int = 0) -> tuple[Search, tuple[float, ...]]:
        """The search that has gone this far, and the lengths of its steps."""
        judged = np.zeros(self.observed.size, dtype=np.bool_)
        search = Search(self.oracle, self.rows, self.observed, judged, [self.start], [])
        lengths = []
        while search.steps < self.max_steps and not search.stuck:
            before, few = search.weight, search.steps < least_steps
            if before >= effort and not few:
                break
            search.advance(farthest=np.inf if few else effort)
            lengths.append(search.weight - before)
        return search, tuple(lengths)

    def _walk(self, way: Way, first: Array) -> tuple[Array, Array] | None:
        """The averages of marginals and of potentials at the end of a way; None where a residual has grown."""
        shares = way.shares
        potentials, mean, marginals = self.start.copy(), self.start.copy(), first
        average, middle, shortest = first.copy(), first.copy(), np.inf
        residual, gradient = np.empty_like(self.observed), np.empty_like(self.start)
        for length, share, next_share in zip(way.lengths, shares, [*shares, 0.0][1:], strict=True):
            np.subtract(self.rows.apply(middle, out=residual), self.observed, out=residual)
            size = float(residual @ residual)
            if not size <= RETRACED.grown**2 * shortest:
                return None
            shortest = min(shortest, size)
            self.rows.adjoint(residual, out=gradient)
            descend(potentials, gradient, marginals, way.curvature, length, mean, share)
            marginals = self.oracle.marginals(potentials).values
            follow(average, marginals, share, next_share, middle)
        return average, mean

    def _matched(self, marginals: Array, near: Array) -> Array:
        """The potentials of the model with these marginals, sought from near them."""
        enough = MATCHED * max(self.noise, 1.0)
        return match_marginals(self.oracle, self.rows, marginals, start=near, enough=enough)[0]


def fewer_steps(lengths: tuple[float, ...]) -> tuple[float, ...]:
    """Steps that go as far in all, `fewer` times as many, and grow alike: √A is interpolated, about a line in steps.

    >>> [round(length, 2) for length in fewer_steps((1.0, 3.0, 5.0, 7.0, 9.0, 11.0))]
    [1.44, 4.32, 7.2, 10.08, 12.96]
    """
    if not lengths:
        return ()
    steps = math.ceil(RETRACED.fewer * len(lengths))
    roots = np.sqrt(np.concatenate([[0.0], np.cumsum(lengths)]))
    distances = np.interp(np.linspace(0.0, len(lengths), steps + 1), np.arange(len(lengths) + 1), roots) ** 2
    return tuple(np.diff(distances).tolist())

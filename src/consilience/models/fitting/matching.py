"""The model whose marginals are given: of all distributions with these marginals x the one of greatest entropy.

It minimises the convex log Z(θ) − θᵀx/N. In the variables θ·√(x/N) the second derivatives are about 1 within a scope;
a direction that is a function of one attribute alone, added to all scopes that have the attribute, is curved by as many
as these are. So a step along the gradient is safe up to one part in so many where it moves no potential far, and from
a start that is near, a few such steps do. Otherwise a minimiser that learns the curvature takes over (L-BFGS).
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.table_stacks import Scope
from consilience.models.fitting.rows import MeasuredRows
from consilience.models.oracle import MarginalOracle

Array = NDArray[np.float64]

LEAST_SHARE = 1e-6
"""Cells with a smaller share of the records are scaled as if they had this one."""
FAST = 0.5
"""A step along the gradient that leaves more than this of the squared distance is the last one."""
FAR = 1.0
"""A step that moves a potential by more than this is too long for its second derivatives to say anything."""


def match_marginals(
    oracle: MarginalOracle, rows: MeasuredRows, target: Array, *, start: Array, enough: float, max_calls: int = 200
) -> tuple[Array, int]:
    """The potentials whose marginals have the rows of the target up to a squared distance of `enough`, and the calls.

    The target must lie in the marginal polytope.
    """
    search = _Matching(oracle, rows, target, start)
    search.step_down(enough, max_calls)
    if search.distance > enough:
        search.minimise(enough, max_calls)
    return search.nearest, search.calls


class _Matching:
    """The tries so far: how many, and the one whose rows are nearest to those of the target."""

    def __init__(self, oracle: MarginalOracle, rows: MeasuredRows, target: Array, start: Array) -> None:
        self.oracle, self.rows, self.target = oracle, rows, target
        self.step = 1.0 / (
            most_scopes_of_an_attribute(oracle.layout.scopes) * np.maximum(target / oracle.total, LEAST_SHARE)
        )
        self.calls, self.distance, self.nearest = 0, np.inf, start
        self.value, self.gradient = self.try_out(start)

    def try_out(self, potentials: Array) -> tuple[float, Array]:
        """log Z(θ) − θᵀx/N and its gradient."""
        here = self.oracle.marginals(potentials)
        self.calls += 1
        over = here.values - self.target
        missing = self.rows.apply(over)
        distance, total = float(missing @ missing), self.oracle.total
        value, gradient = here.log_partition - float(potentials @ self.target) / total, over / total
        if distance < self.distance:
            self.distance, self.nearest, self.value, self.gradient = distance, potentials, value, gradient
        return value, gradient

    def step_down(self, enough: float, max_calls: int) -> None:
        """Steps down the gradient, while they are short and each leaves little of the distance."""
        before = np.inf
        while enough < self.distance <= FAST * before and self.calls < max_calls:
            move = self.step * self.gradient
            if np.abs(move).max(initial=0.0) > FAR:
                break
            before = self.distance
            self.try_out(self.nearest - move)

    def minimise(self, enough: float, max_calls: int) -> None:
        """L-BFGS from the nearest try, in units of a step down from there, as it begins with a step of length 1."""
        from scipy.optimize import minimize

        left = max_calls - self.calls
        length, farthest = np.sqrt(np.sum(self.gradient**2 * self.step)), np.abs(self.step * self.gradient).max()
        if left < 1 or not farthest > 0.0:
            return
        unit = length * min(1.0, FAR / farthest) * np.sqrt(self.step)
        known = [(self.value, self.gradient * unit)]

        def in_units(scaled: Array) -> tuple[float, Array]:
            if known:
                return known.pop()
            value, gradient = self.try_out(scaled * unit)
            return value, gradient * unit

        def done(_: Array) -> None:
            if self.distance <= enough:
                raise StopIteration

        settings = {"maxfun": left, "maxiter": left, "maxcor": 3, "ftol": 0.0, "gtol": 0.0}
        minimize(in_units, self.nearest / unit, jac=True, method="L-BFGS-B", callback=done, options=settings)


def most_scopes_of_an_attribute(scopes: Sequence[Scope]) -> int:
    """The largest number of scopes that share one attribute.

    >>> most_scopes_of_an_attribute([(0, 1), (1, 2), (2, 3), (1,)])
    3
    """
    return max(Counter(attribute for scope in scopes for attribute in scope).values(), default=1)

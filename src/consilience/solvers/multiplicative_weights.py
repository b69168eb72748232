"""Multiplicative weights: a table that follows measured answers one at a time (Hardt, Rothblum 2010).

The table x starts proportional to a prior and keeps its total N. A measured answer m to a linear query q with |q| ≤ 1
moves it by

    x ← x · exp(q · (m − q·x) / 2N),    then x is scaled back to the total N.

The first form of the method takes each answer once. Visiting all answers so far again and again, a *sweep* each time,
uses them better (Hardt, Ligett, McSherry 2012, §4). Queries with larger entries are divided by their largest, and so
are their answers.

Every update multiplies all cells with the same values of all queries by the same number. Such cells form a class, and
only the classes' totals need to be followed: T ranges of a histogram make at most 2T + 1 classes however many values
it has. Each new query splits the classes, and a class passes its total on to its parts in proportion to the prior.
"""

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.kernels.compilation import announce

Array = NDArray[np.float64]

LARGEST_STEP = 16.0
"""No update changes the odds of two cells by more than exp(2·16); it matters only for answers beyond 32 N."""


class WeightedTable:
    """A table of a fixed total that measured answers reweigh; equal answers in equal order give equal tables."""

    def __init__(self, prior: ArrayLike, total: float) -> None:
        start = np.asarray(prior, dtype=np.float64)
        if not np.isfinite(start).all() or start.min(initial=0.0) < 0 or start.sum() <= 0:
            raise DeclarationError("the prior needs a finite number from 0 up for each cell, and one above 0")
        if not 0 <= total < np.inf:
            raise DeclarationError(f"the total of a table is {total}; it must be finite and not below 0")
        self.total = float(total)
        self._prior = start
        self._classes = np.zeros(start.shape, dtype=np.int64)
        self._masses = np.array([start.sum()])
        self._totals = np.array([self.total])
        self._queries = np.zeros((0, 1))
        self._answers = np.zeros(0)

    @property
    def measured(self) -> int:
        """How many answers the table follows."""
        return len(self._answers)

    @property
    def classes(self) -> int:
        """Into how many classes of like cells the queries divide the table."""
        return len(self._totals)

    def add(self, query: ArrayLike, answer: float) -> None:
        """Let the table follow one more answer; the query's coefficients broadcast over the table."""
        coefficients = np.asarray(query, dtype=np.float64)
        largest = float(np.abs(coefficients).max(initial=0.0))
        if not (np.isfinite(largest) and np.isfinite(answer)):
            raise DeclarationError("a measured query or its answer is not finite; give finite numbers")
        scale = largest if largest > 1.0 else 1.0
        levels, level_of = np.unique(coefficients / scale, return_inverse=True)
        keys = self._classes * levels.size + level_of.reshape(coefficients.shape)
        seen = np.zeros(self.classes * levels.size, dtype=np.bool_)
        seen[keys] = True
        parents, own_levels = np.divmod(np.flatnonzero(seen), levels.size)
        self._classes = (np.cumsum(seen) - 1)[keys]
        masses = np.bincount(self._classes.ravel(), self._prior.ravel(), len(parents))
        shares = np.divide(masses, self._masses[parents], out=np.zeros(len(parents)), where=masses > 0)
        self._totals = self._totals[parents] * shares
        self._masses = masses
        self._queries = np.concatenate([self._queries[:, parents], levels[own_levels][None, :]])
        self._answers = np.append(self._answers, answer / scale)

    def sweep(self, times: int) -> None:
        """Visit every answer in the order of adding, so many times over, or until nothing moves."""
        if self.total > 0 and self.measured:
            announce(_sweep)
            _sweep(self._queries, self._answers, self._totals, self.total, times)

    def counts(self) -> Array:
        """The table as it stands."""
        per_mass = np.divide(self._totals, self._masses, out=np.zeros(self.classes), where=self._masses > 0)
        return self._prior * per_mass[self._classes]

    def squared_residuals(self, weights: ArrayLike) -> tuple[float, float]:
        """The objective ½ Σ wₜ (qₜ·x − mₜ)² and a bound on how far above its least value it is.

        The least is taken over all tables of this total, zero where the prior is. By convexity no such table lies lower
        than g·x − N minⱼ gⱼ below, with g the gradient (Frank, Wolfe 1956). Weights are for queries as they were added.
        """
        residuals = self._queries @ self._totals - self._answers
        weighted = np.asarray(weights, dtype=np.float64) * residuals
        gradient = weighted @ self._queries
        lowest = float(gradient[self._masses > 0].min(initial=np.inf))
        gap = float(gradient @ self._totals) - self.total * lowest
        return 0.5 * float(weighted @ residuals), max(gap, 0.0)


@numba.njit(nogil=True, cache=True)
def _sweep(queries, answers, totals, total, times):  # pragma: no cover - compiled
    for _ in range(times):
        largest = 0.0
        for t in range(answers.size):
            query = queries[t]
            answer = 0.0
            for k in range(totals.size):
                answer += query[k] * totals[k]
            step = (answers[t] - answer) / (2.0 * total)
            step = min(max(step, -LARGEST_STEP), LARGEST_STEP)
            largest = max(largest, abs(step))
            whole = np.exp(step)
            reached = 0.0
            for k in range(totals.size):
                if query[k] == 1.0:
                    totals[k] *= whole
                elif query[k] != 0.0:
                    totals[k] *= np.exp(query[k] * step)
                reached += totals[k]
            back = total / reached
            for k in range(totals.size):
                totals[k] *= back
        if largest < 1e-14:
            break

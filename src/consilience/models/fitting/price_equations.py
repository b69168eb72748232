"""Newton's equations between the prices of rows: (diag(h) + ρ·BCBᵀ) d = t.

C is the covariance of the cells under the model, times its total: C·v is how the marginals change as the potentials
move along v. A difference of marginals gives it for one call of the oracle, several times cheaper than the exact
derivative and, at steps of 1e-4 in the potentials, more exact than conjugate gradients can use. These are
preconditioned by the diagonal and by what measured marginals share (`shared_margins`).
"""

import numpy as np
from numpy.typing import NDArray

from consilience.models.counted_oracle import CountedOracle
from consilience.models.fitting import price_kernels
from consilience.models.fitting.monitor import Monitor
from consilience.models.fitting.rows import MeasuredRows
from consilience.models.fitting.shared_margins import CoarseCorrection, SharedMargins

Array = NDArray[np.float64]

DIFFERENCE = 1e-4
"""By how much, at most, a potential moves in a difference of marginals."""

RIDGE = 1e-6
"""The stiffness, relative to the model's own, that the preconditioner takes exact rows to have at least."""


class PriceEquations:
    """Solves Newton's equations at any model; it keeps its memory between models."""

    def __init__(self, oracle: CountedOracle, rows: MeasuredRows) -> None:
        self.oracle, self.rows = oracle, rows
        places = [place for place, query in enumerate(rows.queries) if query.is_marginal]
        shared = SharedMargins.of(
            rows.layout.sizes,
            [rows.queries[place].attributes for place in places],
            [rows.slices[place].start for place in places],
        )
        self._correction = CoarseCorrection(shared, rows.weights)
        self._moved = np.empty(rows.layout.size)
        self._search, self._scaled, self._curved, self._remainder = (np.empty(rows.size) for _ in range(4))
        self._potentials = self._marginals = self._fitted = np.empty(0)

    def move_to(self, potentials: Array, marginals: Array, fitted: Array) -> None:
        """From now on the equations are those of this model."""
        self._potentials, self._marginals, self._fitted = potentials, marginals, fitted

    def covariance(self, direction: Array, out: Array) -> Array:
        """BCBᵀ times a vector of rows."""
        change = self.rows.adjoint(direction, out=self._moved)
        size = max(float(change.max(initial=0.0)), -float(change.min(initial=0.0)))
        if size == 0.0:
            out.fill(0.0)
            return out
        step = DIFFERENCE / size
        change *= step
        change += self._potentials
        moved = self.oracle.marginals(change).values
        moved -= self._marginals
        moved /= step
        return self.rows.apply(moved, out=out)

    def curve(self, search: Array, rho: float, stiffness: Array, out: Array) -> float:
        """Write the equations' matrix times a vector; the inner product of the two."""
        return price_kernels.curve(self.covariance(search, out), rho, stiffness, search)

    def solve(
        self, stiffness: Array, rho: float, target: Array, *, enough: float, most_steps: int, monitor: Monitor
    ) -> Array:
        """d, until the remainder is at most `enough` times the target, both in the norm of the preconditioner."""
        self._precondition(stiffness, rho)
        remainder, search, scaled, curved = self._remainder, self._search, self._scaled, self._curved
        np.copyto(remainder, target)
        solution = np.zeros_like(target)
        slope = first = self._correction(remainder, scaled)
        np.copyto(search, scaled)
        for _ in range(most_steps):
            if not enough**2 * first < slope < np.inf or monitor.limit() is not None:
                break
            bend = self.curve(search, rho, stiffness, curved)
            if not 0.0 < bend < np.inf:
                break
            price_kernels.advance(slope / bend, search, curved, solution, remainder)
            previous, slope = slope, self._correction(remainder, scaled)
            price_kernels.turn(search, slope / previous, scaled)
        found = solution if solution.any() else scaled.copy()
        return found if np.isfinite(found).all() else np.zeros_like(target)  # rows that others imply have no end

    def _precondition(self, stiffness: Array, rho: float) -> None:
        """Make the preconditioner that of this stiffness and ρ; B diag(μ)Bᵀ − fitted·fittedᵀ/N has C's diagonal."""
        variances = self.rows.apply_squared(self._marginals)
        variances -= self._fitted**2 / self.oracle.total
        np.maximum(variances, 0.0, out=variances)
        cells = self._fitted / self.rows.weights
        self._correction.move_to(stiffness, cells, variances, rho=rho, total=self.oracle.total, ridge=RIDGE)


def inner(a: Array, b: Array) -> float:
    """Σ a·b, without the threads of a linear algebra library, which lose more than they win on shared cores."""
    return float(np.einsum("i,i->", a, b))

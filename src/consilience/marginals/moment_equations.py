"""Equations whose matrix holds moments of contrasts, Σ_x w_x contrast_s(x) contrast_t(x), plus a diagonal.

These are the second derivatives of the duals of tables with given margins. With at most two values for each attribute a
Walsh transform of the weights w gives all of them, else a product of matrices does. Beyond some size they are not
written down, but solved by conjugate gradients; the preconditioner adds up the inverses for each margin alone, which
are diagonal in its cells (additive Schwarz).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.entropy_kernels import fill_walsh_moments, substitute
from consilience.marginals.margin_kernels import announce_once, from_contrasts, to_contrasts, write_contrasts
from consilience.marginals.margin_layouts import MarginLayout

Array = NDArray[np.float64]
Solver = Callable[[Array], Array]

MOST_ROWS = 1_200
"""The most coefficients for which the equations are written down and factorised."""

MOST_PRODUCTS = 6e8
"""The most multiplications by which moments are written down where there is no Walsh transform."""

LEAST_DAMPING = 1e-13
"""What the diagonal gets at least, in parts of 1: below it is rounding."""

MOST_GRADIENTS = 150
"""The most conjugate gradients for one solution."""


class MomentEquations:
    """Solvers for the contrasts of one layout, with weights on the cells of a support."""

    def __init__(self, layout: MarginLayout, support: NDArray[np.bool_]) -> None:
        self.layout = layout
        self.support = support
        self._contrasts: Array | None = None
        work = float(np.count_nonzero(support)) * layout.rows**2
        self.written_out = layout.rows <= MOST_ROWS and (layout.is_binary or work <= MOST_PRODUCTS)

    def solver(self, weights: Array, damping: Array, means: Array | None = None) -> Solver:
        """What solves (moments − means meansᵀ + damping) x = right for any right side."""
        if not self.written_out:
            return lambda right: self._by_gradients(right, weights, damping, means)
        extra = np.maximum(damping, LEAST_DAMPING)
        taken = np.zeros(self.layout.rows) if means is None else means
        for _ in range(6):
            factor = _factorised(self._moments(weights, taken, extra))
            if factor is not None:
                return lambda right, factor=factor: _substituted(factor, right)
            extra = np.maximum(100.0 * extra, 1e-12)
        return lambda right: right

    def _moments(self, weights: Array, means: Array, damping: Array) -> Array:
        """The matrix; for two values at most, at and below the diagonal only."""
        rows = self.layout.rows
        if self.layout.is_binary:
            announce_once(fill_walsh_moments)
            moments = np.empty((rows, rows))
            fill_walsh_moments(weights, self.layout.places, means, damping, moments)
            return moments
        if self._contrasts is None:
            announce_once(write_contrasts)
            cells = np.flatnonzero(self.support)
            self._contrasts = np.empty((cells.size, rows))
            write_contrasts(self.layout.shape, self.layout.places, cells, self._contrasts)
        scaled = (self._contrasts - means) * np.sqrt(weights[self.support])[:, None]
        moments = scaled.T @ scaled
        moments[np.diag_indices(rows)] += damping
        return moments

    def _by_gradients(self, right: Array, weights: Array, damping: Array, means: Array | None) -> Array:
        """As near to the solution as some preconditioned conjugate gradients come."""
        inverses = _MarginInverses(self.layout, weights, damping, hold_total=means is not None)
        left, found = right, np.zeros_like(right)
        heading = near = inverses.apply(left)
        product = float(left @ near)
        enough = product * min(1e-2, product)
        for _ in range(MOST_GRADIENTS):
            image = self._product(heading, weights, means) + damping * heading
            curvature = float(heading @ image)
            if curvature <= 0.0:
                break
            length = product / curvature
            found = found + length * heading
            left = left - length * image
            near = inverses.apply(left)
            following = float(left @ near)
            if following <= enough:
                break
            heading = near + (following / product) * heading
            product = following
        return found if found.any() else inverses.apply(right)

    def _product(self, direction: Array, weights: Array, means: Array | None) -> Array:
        layout = self.layout
        moved = layout.coefficients_of(weights * layout.energies(direction))
        return moved if means is None else moved - means * float(means @ direction)


# NumPy's factorisation lets other threads run meanwhile; SciPy's wrappers of the same routine do not.
def _factorised(moments: Array) -> Array | None:
    """The lower triangular factor of a matrix, of which the upper triangle is not read; None if it has none."""
    try:
        return np.linalg.cholesky(moments).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        return None


def _substituted(factor: Array, right: Array) -> Array:
    announce_once(substitute)
    found = right.copy()
    substitute(factor, found)
    return found


class _MarginInverses:
    """The sum of the inverses that the moments have on the coefficients of each margin alone.

    With T the contrasts of a margin of c cells, T Tᵀ = c, so that T (d + μ/c) Tᵀ, d the margin of the weights, has the
    inverse T (d + μ/c)⁻¹ Tᵀ / c². Where the total is held, its coefficient does not take part.
    """

    def __init__(self, layout: MarginLayout, weights: Array, damping: Array, *, hold_total: bool) -> None:
        self.layout = layout
        self.hold_total = hold_total
        cells = np.repeat(np.diff(layout.starts), np.diff(layout.starts)).astype(np.float64)
        held = layout.margins(weights) + np.maximum(damping[-1], LEAST_DAMPING) / cells
        self.scale = 1.0 / (held * cells**2)

    def apply(self, coefficients: Array) -> Array:
        layout = self.layout
        values = coefficients[layout.numbers]
        if self.hold_total:
            values[layout.starts[:-1]] = 0.0
        from_contrasts(values, layout.starts, layout.bounds, layout.sizes)
        values *= self.scale
        to_contrasts(values, layout.starts, layout.bounds, layout.sizes)
        if self.hold_total:
            values[layout.starts[:-1]] = 0.0
        return layout.added_up(values)

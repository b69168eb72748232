"""Tables with given coefficients, or the nearest to them that non-negative tables can have, by Newton's method.

With b the coefficients that the margins ask for, λ one parameter for each, and E = Σ_s λ_s contrast_s, both kinds of
tables that are sought here minimise a smooth convex dual,

    greatest entropy:  log Σ_x exp E_x − b·λ,         the table being  exp E_x / Σ exp E,
    least squares:     ½ Σ_x max(0, E_x)² / n − b·λ,  the table being  max(0, E_x) / n.

Where the margins belong to no non-negative table these have no minimum. With the term (μ/2)‖λ‖² added they always have
one, and only one; its table p minimises

    (1 / 2μ) ‖coefficients of p − b‖²  −  entropy of p   (or + n/2 ‖p‖²),

and coefficients of p − b = −μλ. So as μ → 0 the violation becomes the least there is, and among the tables with this
violation the limit is the one of greatest entropy, or of least squares; where margins are compatible the violation is
0. Every table on the way is the best for its own margins, so a μ that is merely small costs nothing but a slightly
larger violation.

*Method.* μ falls by a factor of 10 at a time, and at each value Newton's method, with steps halved where they lead too
far, starts where the last one ended. The path ends when the violation is below the tolerance, or stops falling although
μ does, which compatible margins never show: with them it falls like μ.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.margin_layouts import (
    MarginLayout,
    from_contrasts,
    to_contrasts,
    write_contrasts,
)
from consilience.marginals.margins import (
    fill_walsh_moments,
    respond_with_shares,
    respond_with_squares,
    substitute,
)
from consilience.solvers.conjugate_gradients import Iterate, conjugate_gradients

# ----------------------------------------------------------------------------------------------------------------------
# Equations whose matrix holds moments of contrasts, Σ_x w_x contrast_s(x) contrast_t(x), plus a diagonal.
#
# These are the second derivatives of the duals of tables with given margins. With at most two values for each attribute
# a Walsh transform of the weights w gives all of them, else a product of matrices does. Beyond some size they are not
# written down, but solved by conjugate gradients; the preconditioner adds up the inverses for each margin alone, which
# are diagonal in its cells (additive Schwarz).


Array = NDArray[np.float64]
Solver = Callable[[Array], Array]


@dataclass(frozen=True)
class EquationSettings:
    """How the equations of moments are solved; the sizes were set by trial, and no figures were kept."""

    most_rows: int = 1_200
    """The most coefficients for which the equations are written down and factorised."""
    most_products: float = 6e8
    """The most multiplications by which moments are written down where there is no Walsh transform."""
    least_damping: float = 1e-13
    """What the diagonal gets at least, in parts of 1: below it is rounding."""
    most_gradients: int = 150
    """The most conjugate gradients for one solution."""


EQUATIONS = EquationSettings()


class MomentEquations:
    """Solvers for the contrasts of one layout, with weights on the cells of a support."""

    def __init__(self, layout: MarginLayout, support: NDArray[np.bool_]) -> None:
        self.layout = layout
        self.support = support
        self._contrasts: Array | None = None
        work = float(np.count_nonzero(support)) * layout.rows**2
        self.written_out = layout.rows <= EQUATIONS.most_rows and (layout.is_binary or work <= EQUATIONS.most_products)

    def solver(self, weights: Array, damping: Array, means: Array | None = None) -> Solver:
        """What solves (moments − means meansᵀ + damping) x = right for any right side."""
        if not self.written_out:
            return lambda right: self._by_gradients(right, weights, damping, means)
        extra = np.maximum(damping, EQUATIONS.least_damping)
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
            moments = np.empty((rows, rows))
            fill_walsh_moments(weights, self.layout.places, means, damping, moments)
            return moments
        if self._contrasts is None:
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

        def product(direction: Array, out: Array) -> float:
            np.multiply(damping, direction, out=out)
            out += self._product(direction, weights, means)
            return float(direction @ out)

        def precondition(residual: Array, out: Array) -> float:
            np.copyto(out, inverses.apply(residual))
            return float(residual @ out)

        def stop(at: Iterate) -> bool:
            return at.energy <= at.first_energy * min(1e-2, at.first_energy)

        found = conjugate_gradients(product, right, precondition, stop, most_steps=EQUATIONS.most_gradients).solution
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
        held = layout.margins(weights) + np.maximum(damping[-1], EQUATIONS.least_damping) / cells
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


# ----------------------------------------------------------------------------------------------------------------------
# Tables with given coefficients, or the nearest to them that non-negative tables can have, by Newton's method.


Kind = Literal["entropy", "squares"]


@dataclass(frozen=True)
class PathSettings:
    """How μ falls and when the path ends, for tables in parts of their total; by trial, and no figures were kept."""

    fall: float = 0.1
    """What μ is multiplied by at each level."""
    last: float = 1e-13
    """The μ at which the path ends: what is below is rounding."""
    plateau: float = 0.9
    """A violation above this part of that of the level before, with a small μ, is one that margins cannot avoid:
    with compatible margins it falls like μ."""
    relaxed_from: float = 1.5e-7
    """How small μ must be for that."""
    relaxed_from_by_gradients: float = 1.5e-4
    """The same where conjugate gradients solve the equations: much smaller values of μ would be out of their reach."""
    gradient_left: float = 0.02
    """The share of the violation, or of the tolerance, that the gradient may keep at the end of a level."""
    shortest_step: float = 1e-8
    """The shortest Newton step, in parts of the full one; what would ask for shorter ones is rounding."""
    steps_a_level: int = 120
    """The most Newton steps at one value of μ."""
    steps_by_gradients: int = 40
    """The same where conjugate gradients make them."""


PATH = PathSettings()


@dataclass(frozen=True, eq=False)
class DualPoint:
    """A table in parts of its total."""

    table: Array
    steps: int
    settled: bool
    """Whether the tolerance was reached, or the least violation."""


@dataclass(frozen=True, eq=False)
class _Response:
    value: float
    gradient: Array
    table: Array
    coefficients: Array


class Dual:
    """The dual of one table with given coefficients; cells outside the support are 0."""

    def __init__(self, layout: MarginLayout, support: NDArray[np.bool_], targets: Array, kind: Kind) -> None:
        self.layout = layout
        self.support = support
        self.targets = targets
        self.kind = kind
        self.equations = MomentEquations(layout, support)
        self._gathered = np.empty(layout.numbers.size)
        written_out = self.equations.written_out
        self._relaxed_from = PATH.relaxed_from if written_out else PATH.relaxed_from_by_gradients
        self._steps_a_level = PATH.steps_a_level if written_out else PATH.steps_by_gradients

    def follow(self, start: Array, *, first: float, tolerance: float, most_steps: int) -> DualPoint:
        """The table at the end of the path that begins with μ = `first`."""
        smoothing, steps, parameters = first, 0, start
        before, table = np.inf, np.empty(0)
        while True:
            parameters, now, made = self._descend(parameters, smoothing, tolerance, most_steps - steps)
            steps += made
            size = float(np.linalg.norm(now.coefficients - self.targets))
            if size > before and float(np.abs(now.gradient).max()) > PATH.gradient_left * size:
                return DualPoint(table, steps, False)
            if float(np.abs(now.coefficients - self.targets).max()) <= tolerance:
                return DualPoint(now.table, steps, True)
            if smoothing <= self._relaxed_from and size > PATH.plateau * before:
                _, now, made = self._descend(parameters, smoothing, tolerance, most_steps - steps, share=0.0)
                return DualPoint(now.table, steps + made, True)
            if steps >= most_steps or smoothing <= PATH.last:
                return DualPoint(now.table, steps, False)
            before, table = size, now.table
            smoothing *= PATH.fall

    def damping(self, smoothing: float) -> Array:
        """μ for every parameter; in least squares none for the total's, which so stays exact."""
        found = np.full(self.layout.rows, smoothing)
        if self.kind == "squares":
            found[0] = 0.0
        return found

    def _descend(
        self,
        parameters: Array,
        smoothing: float,
        tolerance: float,
        most_steps: int,
        *,
        share: float = PATH.gradient_left,
    ) -> tuple[Array, _Response, int]:
        """Newton steps at one μ until the gradient is a small share of what μ itself contributes to it.

        With no share allowed they go on, near the end as they are, until rounding keeps the gradient from halving.
        """
        damping = self.damping(smoothing)
        now = self._respond(parameters, damping)
        before = np.inf
        for steps in range(min(self._steps_a_level, most_steps)):
            enough = max(share * float(np.abs(damping * parameters).max()), PATH.gradient_left * tolerance)
            steepest = float(np.abs(now.gradient).max())
            if steepest <= enough or (share == 0.0 and steepest > 0.5 * before):
                return parameters, now, steps
            before = steepest
            direction = self._direction(now, damping)
            slope = float(now.gradient @ direction)
            rounding = 1e-15 * (abs(now.value) + float(np.abs(parameters) @ np.abs(self.targets)))
            length = 1.0
            ahead = self._respond(parameters + direction, damping)
            while ahead.value > now.value + 1e-4 * length * slope + rounding and length > PATH.shortest_step:
                length *= 0.5
                ahead = self._respond(parameters + length * direction, damping)
            if length <= PATH.shortest_step:
                return parameters, now, steps
            parameters, now = parameters + length * direction, ahead
        return parameters, now, min(self._steps_a_level, most_steps)

    def _respond(self, parameters: Array, damping: Array) -> _Response:
        layout = self.layout
        table, coefficients = np.empty(layout.cells), np.empty(layout.rows)
        kernel = respond_with_shares if self.kind == "entropy" else respond_with_squares
        value = kernel(
            parameters, self.support, layout.outer, layout.inner, layout.even, layout.starts, layout.bounds,
            layout.sizes, layout.homes, self._gathered, table, coefficients,
        )  # fmt: skip
        held = damping * parameters
        value += 0.5 * float(held @ parameters) - float(self.targets @ parameters)
        return _Response(value, coefficients - self.targets + held, table, coefficients)

    def _direction(self, now: _Response, damping: Array) -> Array:
        if self.kind == "entropy":
            return self.equations.solver(now.table, damping, now.coefficients)(-now.gradient)
        weights = np.where(now.table > 0.0, 1.0 / self.layout.cells, 0.0)
        return self.equations.solver(weights, damping)(-now.gradient)


# ----------------------------------------------------------------------------------------------------------------------
# Parameters near those of a table of least squares, by an interior-point method.
#
# The dual of least squares has kinks, and on a nearly degenerate table Newton's method meets very many of them. At one
# small μ the problem is, with t = n p,
#
#     min ‖t‖² / 2n + ‖coefficients of t/n − b‖² / 2μ     such that  t ≥ 0,
#
# and its conditions are t = Bλ + z, Bᵀt/n + μλ = b, t ≥ 0, z ≥ 0, tz = 0. Newton's method on these with tz = τ, with τ
# falling as quickly as a trial step promises and the trial's second-order error corrected (Mehrotra 1992), needs about
# fifteen factorisations of the moments with the weights t / (t + z) / n. What is left is to round off: `dual_path`.


@dataclass(frozen=True)
class InteriorPointSettings:
    """When the interior-point method ends, for a table t of mean 1."""

    most_steps: int = 50
    """Three times as many as it usually needs."""
    gap: float = 1e-11
    """The mean of t·z, and the largest misfit of the equations, at which the search ends."""
    step_share: float = 0.995
    """How much of the way to the nearest bound is gone at most; a usual value of such methods."""


INTERIOR_POINT = InteriorPointSettings()


@dataclass(frozen=True, eq=False)
class _Point:
    """λ, t and z."""

    parameters: Array
    counts: Array
    spare: Array

    def moved(self, change: "_Point", length: float) -> "_Point":
        return _Point(
            self.parameters + length * change.parameters,
            self.counts + length * change.counts,
            self.spare + length * change.spare,
        )


def interior_start(dual: Dual, start: Array, smoothing: float) -> tuple[Array, int]:
    """Parameters near the end of the path at this μ, and the steps that led there."""
    ones = np.ones(dual.layout.cells)
    now = _Point(start, ones, ones)
    damping = dual.damping(smoothing)
    for steps in range(INTERIOR_POINT.most_steps):
        system = _System(dual, now, damping)
        if max(system.gap, float(np.abs(system.residual).max())) <= INTERIOR_POINT.gap:
            return now.parameters, steps
        solve = dual.equations.solver(system.weights / dual.layout.cells, damping)
        trial = system.step(solve, np.zeros(dual.layout.cells))
        promised = system.gap_of(now.moved(trial, system.reach(trial)))
        corrected = promised * (promised / system.gap) ** 2 - trial.counts * trial.spare
        change = system.step(solve, corrected)
        now = now.moved(change, min(1.0, INTERIOR_POINT.step_share * system.reach(change)))
    return now.parameters, INTERIOR_POINT.most_steps


class _System:
    """The conditions at a point: by how much they fail, and the changes that would mend them to first order."""

    def __init__(self, dual: Dual, now: _Point, damping: Array) -> None:
        self.layout, self.support, self.now = dual.layout, dual.support, now
        self.misses = now.counts - self.layout.energies(now.parameters) - now.spare
        self.residual = self._mean(now.counts) - dual.targets + damping * now.parameters
        self.weights = np.where(self.support, now.counts / (now.counts + now.spare), 0.0)
        self.gap = self.gap_of(now)

    def gap_of(self, point: _Point) -> float:
        return float(np.mean((point.counts * point.spare)[self.support]))

    def _mean(self, table: Array) -> Array:
        """Bᵀ table / n."""
        return self.layout.coefficients_of(np.where(self.support, table, 0.0)) / self.layout.cells

    def step(self, solve: Solver, products: Array) -> _Point:
        """The changes after which, to first order, all conditions hold with these products t·z."""
        counts, spare = self.now.counts, self.now.spare
        target = products / counts - spare - self.misses
        parameters = solve(-self.residual - self._mean(self.weights * target))
        more = self.weights * (self.layout.energies(parameters) + target)
        return _Point(parameters, more, np.where(self.support, (products - spare * more) / counts - spare, 0.0))

    def reach(self, change: _Point) -> float:
        """The longest step, up to a full one, that leaves t and z not negative."""
        longest = 1.0
        for here, move in ((self.now.counts, change.counts), (self.now.spare, change.spare)):
            falling = move < 0.0
            longest = min(longest, float(np.min(here[falling] / -move[falling], initial=1.0)))
        return longest

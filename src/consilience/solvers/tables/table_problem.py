"""Measured rows of a table, the constraints on it, covers that prove gaps, and Newton's equations between rows.

Tables x ≥ 0, if wished with Σx = T and with x = 0 outside allowed cells, are compared with observed values c of the
rows Bx, and B is implicit. Every vector ν, with a = Bᵀν, proves a bound on the best cost as long as aᵀz has a minimum
over the tables z: if the total is fixed it is T·min a, and if it is free a ≥ 0 is needed. A *cover* is a vector v with
w = Bᵀv > 0 on every cell that a row touches: with τ = max(0, max −a/w) the vector ν + τv has Bᵀ(ν + τv) ≥ 0. The rest
of the proof is in `RowCosts.gap`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from consilience.errors import MeasurementError
from consilience.solvers.conjugate_gradients import Iterate, conjugate_gradients, unpreconditioned
from consilience.solvers.tables.row_costs import RowProducts

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RowEquationSettings:
    """How covers are sought and Newton's equations solved; by trial, no figures kept, unless a reason is named."""

    cover_steps: int = 30
    """Steps of conjugate gradients after a cover."""
    untouched: float = 1e-12
    """A cell's image under Bᵀ below this part of the largest counts as rounding."""
    ridges: tuple[float, ...] = (1e-13, 1e-11, 1e-9, 1e-7, 1e-5)
    """What is added to a matrix, relative to its diagonal, until it can be factored: rows that others imply need it."""
    close: float = 1e-5
    """How far conjugate gradients reduce the error of the equations."""
    close_limit: int = 500
    """In at most so many steps."""
    rough: float = 1e-2
    """The share of the first error's energy, so a tenth of the error, to which rough directions reduce it."""
    rough_limit: int = 1000
    """In at most so many steps."""
    small_share: float = 0.1
    """The energy of an error, in units of twice the divergence over ρ, that does not harm a stage's first direction."""


SETTINGS = RowEquationSettings()

SMALLEST = float(np.finfo(np.float64).tiny)
ROUNDING = float(np.finfo(np.float64).eps)


class Operator(Protocol):
    """A linear map B from tables to measured rows, each row divided by its standard deviation.

    `adjoint` returns a fresh array, which the solver may overwrite.
    """

    shape_in: tuple[int, ...]

    def apply(self, x: Array, /) -> Array:
        """Bx, one number per row."""
        ...

    def adjoint(self, r: Array, /) -> Array:
        """Bᵀr, of shape `shape_in`."""
        ...

    def apply_squared(self, x: Array, /) -> Array:
        """(B∘B)x, one number per row."""
        ...


@dataclass
class Problem:
    """The measured rows and the constraints; it counts how often the operator is applied.

    `cover` and its image w = Bᵀv are there only if the total is free and a cover is known.
    """

    operator: Operator
    observed: Array
    total: float | None = None
    allowed: NDArray[np.bool_] | None = None
    cover: Array | None = None
    cover_image: Array | None = None
    applies: int = 0
    adjoints: int = 0

    def apply(self, x: Array) -> Array:
        """Bx."""
        self.applies += 1
        fitted = self.operator.apply(x)
        if fitted.shape != self.observed.shape:
            raise MeasurementError(
                f"the operator has {fitted.size} rows, but {self.observed.size} values were observed; "
                "give one value per row"
            )
        return fitted

    def adjoint(self, r: Array) -> Array:
        """Bᵀr on the allowed cells, zero on the others."""
        self.adjoints += 1
        image = self.operator.adjoint(r)
        if self.allowed is not None:
            image[~self.allowed] = 0.0
        return image

    def curvature(self, x: Array, p: Array) -> Array:
        """B(diag x − xxᵀ/T)Bᵀp, the second term only if the total is fixed."""
        weighted = self.adjoint(p)
        weighted *= x
        if self.total is not None:
            weighted -= x * (float(weighted.sum()) / self.total)
        return self.apply(weighted)

    def allowed_table(self) -> Array:
        """A table of ones on the allowed cells, zero on the others."""
        return np.ones(self.operator.shape_in) if self.allowed is None else self.allowed.astype(np.float64)


def offer_cover(problem: Problem, v: Array, image: Array) -> bool:
    """Gives the problem this cover unless it has one of as many cells; false if the image Bᵀv has a negative cell."""
    rounding = SETTINGS.untouched * float(image.max(initial=0.0))
    if image.min(initial=0.0) < -rounding:
        return False
    image[image <= rounding] = 0.0
    if problem.cover_image is None or np.count_nonzero(image) > np.count_nonzero(problem.cover_image):
        problem.cover, problem.cover_image = v, image
    return True


def seek_cover(problem: Problem) -> None:
    """Gives the problem a cover if one is found that covers more cells than what it has.

    One choice is v that measures the total, Bᵀv ≈ 1, by conjugate gradients on ‖Bᵀv − 1‖² until Bᵀv ≥ ½ on all touched
    cells (its first iterate is a multiple of B1); another all ones, which serve whenever B ≥ 0. The cheaper is taken.
    """
    image, change, covered = np.zeros(problem.operator.shape_in), np.zeros(problem.operator.shape_in), False

    def product(direction: Array, out: Array) -> float:
        nonlocal change
        change = problem.adjoint(direction)
        np.copyto(out, problem.apply(change))
        return inner(change, change)

    def covers(at: Iterate) -> bool:
        nonlocal image, covered
        image += at.length * change
        covered = at.steps > 0 and bool(np.all((image >= 0.5) | (np.abs(image) <= SETTINGS.untouched)))
        return covered

    right = problem.apply(problem.allowed_table())
    last = conjugate_gradients(product, right, unpreconditioned, covers, most_steps=SETTINGS.cover_steps)
    if last.energy == 0.0:  # a step that hit the total exactly was not asked about
        covers(last)
    v, ones = last.solution, np.ones_like(right)
    found = [(ones, problem.adjoint(ones)), *([(v, image)] if covered else [])]
    for cover in sorted(found, key=_cost_of_cover):
        if offer_cover(problem, *cover):
            return


def _cost_of_cover(cover: tuple[Array, Array]) -> float:
    """What the duals grow by, at most, for each unit by which their image is raised on every touched cell.

    Rows that are nearly collinear measure the total with weights of 10⁷ that cancel; such a cover proves nothing.
    """
    v, image = cover
    touched = np.abs(image) > SETTINGS.untouched * float(np.abs(image).max(initial=0.0))
    return inner(v, v) ** 0.5 / max(float(image.min(where=touched, initial=np.inf)), SMALLEST)


def inner(a: Array, b: Array) -> float:
    """Σ a·b, without the threads of a linear algebra library, which lose more than they win on shared cores."""
    if a.ndim != 1:
        a, b = a.ravel(), b.ravel()
    return float(np.einsum("i,i->", a, b))


def half_square(residual: Array) -> float:
    """½‖residual‖²."""
    return 0.5 * inner(residual, residual)


# ----------------------------------------------------------------------------------------------------------------------
# Newton's equations between rows: (diag(stiffness) + ρ·B(diag x − xxᵀ/T)Bᵀ) d = target.
#
# Where the matrix of row products can be had and factored, that is done: a factorisation does not mind that the
# stiffnesses of rows differ by ten orders of magnitude, as they do near an optimum of absolute values. Otherwise
# conjugate gradients, preconditioned by the diagonal, take as many steps as the accuracy that is asked for needs.
#
# *How accurate.* With H the matrix and e = target − Hd, the direction's own minimum is missed by ½eᵀH⁻¹e, which is at
# most ½eᵀdiag(stiffness)⁻¹e because H ≥ diag(stiffness). A caller who knows what its stage can use says so, in this
# unit, and then a tenth of the first error is the most that is ever asked for: nearly collinear rows, of prefix sums or
# trees, take some ten times as many steps to an accuracy that the next table makes worthless.


@dataclass
class NewtonEquations:
    """Solves the equations at any table; counts what that takes in the problem's own counters."""

    problem: Problem
    products: RowProducts | None
    expired: Callable[[], bool] = lambda: False
    """Whether it is time to end an iteration early."""

    def solve(
        self,
        counts: Array,
        fitted: Array,
        rho: float,
        stiffness: Array,
        target: Array,
        *,
        rough: float | None = None,
        guess: Array | None = None,
    ) -> Array:
        """d for the table `counts`, whose rows have the values `fitted`, as accurate as it can be had.

        With `rough`, d has a tenth of the error that 0 has, or one whose energy is at most `rough`. With a guess too,
        it has an error that is small against ρdᵀB(diag x − xxᵀ/T)Bᵀd, which is dᵀ(target − error − stiffness·d): twice
        the divergence, over ρ, of the table to which d is about to lead.
        """
        if self.products is not None:
            self.problem.adjoints += 1
            return factored_solution(self.products.of(counts), fitted, rho, stiffness, target, self.problem.total)
        scale = np.maximum(stiffness + rho * self._squares(counts, fitted), SMALLEST)  # the diagonal of the matrix
        residual = target
        if guess is not None:
            residual = target - stiffness * guess - rho * self.problem.curvature(counts, guess)
        close = _closeness(stiffness, target, rough, guessed=guess is not None)

        def product(direction: Array, out: Array) -> float:
            np.multiply(stiffness, direction, out=out)
            out += rho * self.problem.curvature(counts, direction)
            return inner(direction, out)

        def precondition(error: Array, out: Array) -> float:
            return inner(error, np.divide(error, scale, out=out))

        def stop(at: Iterate) -> bool:
            return close(at) or self.expired()

        limit = SETTINGS.close_limit if rough is None else SETTINGS.rough_limit
        return conjugate_gradients(product, residual, precondition, stop, most_steps=limit, start=guess).solution

    def _squares(self, counts: Array, fitted: Array) -> Array:
        """The diagonal of B(diag x − xxᵀ/T)Bᵀ."""
        self.problem.applies += 1
        squares = self.problem.operator.apply_squared(counts)
        if self.problem.total is None:
            return squares
        return np.maximum(squares - fitted**2 / self.problem.total, 0.0)


def _closeness(stiffness: Array, target: Array, rough: float | None, *, guessed: bool) -> Callable[[Iterate], bool]:
    """When a solution by conjugate gradients is accurate enough (see `NewtonEquations.solve`)."""
    if rough is None:
        return lambda at: at.energy <= SETTINGS.close**2 * at.first_energy
    goal = max((ROUNDING**2 if guessed else SETTINGS.rough) * inner(target, target / stiffness), rough)

    def close(at: Iterate) -> bool:
        divergence = inner(at.solution, target - at.residual - stiffness * at.solution) if guessed else 0.0
        return inner(at.residual, at.residual / stiffness) <= max(SETTINGS.small_share * divergence, goal)

    return close


def factored_solution(
    products: Array, fitted: Array, rho: float, stiffness: Array, target: Array, total: float | None
) -> Array:
    """d where `products` is B diag(x) Bᵀ, which is overwritten, and the total is T, or None where it is free."""
    matrix = products
    matrix *= rho
    diagonal = np.einsum("ii->i", matrix)
    size = diagonal + stiffness  # what rounding is relative to, before the total is taken out
    size[size <= 0.0] = 1.0
    if total is not None:
        matrix -= np.outer(fitted, fitted * (rho / total))
    exact = diagonal + stiffness
    for ridge in SETTINGS.ridges:
        np.copyto(diagonal, exact + ridge * size)
        try:
            factor = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
        return np.asarray(scipy.linalg.cho_solve((factor, True), target, check_finite=False))
    return target / size

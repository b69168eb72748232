"""Measured rows of a table, the constraints on it, and covers, from which gaps are proven.

Tables x ≥ 0, if wished with Σx = T and with x = 0 outside allowed cells, are compared with observed values c of the
rows Bx, and B is implicit. Every vector ν, with a = Bᵀν, proves a bound on the best cost as long as aᵀz has a minimum
over the tables z: if the total is fixed it is T·min a, and if it is free a ≥ 0 is needed. A *cover* is a vector v with
w = Bᵀv > 0 on every cell that a row touches: with τ = max(0, max −a/w) the vector ν + τv has Bᵀ(ν + τv) ≥ 0. The rest
of the proof is in `RowCosts.gap`.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from consilience.errors import MeasurementError
from consilience.solvers.conjugate_gradients import Iterate, conjugate_gradients, unpreconditioned

Array = NDArray[np.float64]

COVER_STEPS = 30
UNTOUCHED = 1e-12  # relative size below which a cell's image under Bᵀ counts as rounding


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


@runtime_checkable
class SquaringOperator(Protocol):
    """An operator that can also apply its entrywise square, from which solvers make a better preconditioner."""

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
    rounding = UNTOUCHED * float(image.max(initial=0.0))
    if image.min(initial=0.0) < -rounding:
        return False
    image[image <= rounding] = 0.0
    if problem.cover_image is None or np.count_nonzero(image) > np.count_nonzero(problem.cover_image):
        problem.cover, problem.cover_image = v, image
    return True


def seek_cover(problem: Problem) -> None:
    """Gives the problem a cover if one is found that covers more cells than what it has.

    First choice: v that measures the total, Bᵀv ≈ 1, by conjugate gradients on ‖Bᵀv − 1‖² until Bᵀv ≥ ½ on
    all touched cells (its first iterate is a multiple of B1). Second: all ones, which serve whenever B ≥ 0.
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
        covered = at.steps > 0 and bool(np.all((image >= 0.5) | (np.abs(image) <= UNTOUCHED)))
        return covered

    right = problem.apply(problem.allowed_table())
    v = conjugate_gradients(product, right, unpreconditioned, covers, most_steps=COVER_STEPS).solution
    if not covered:
        v = np.ones_like(v)
        image = problem.adjoint(v)
    offer_cover(problem, v, image)


def inner(a: Array, b: Array) -> float:
    """Σ a·b, without the threads of a linear algebra library, which lose more than they win on shared cores."""
    return float(np.einsum("i,i->", a.ravel(), b.ravel()))


def half_square(residual: Array) -> float:
    """½‖residual‖²."""
    return 0.5 * inner(residual, residual)

"""A non-negative least-squares problem, and the proof of how far a table is from its best.

Minimise f(x) = ½‖Bx − c‖² over tables x ≥ 0, if wished with Σx = T and with x = 0 outside allowed cells. The
rows of B and c are already divided by their standard deviations, and B is implicit. Below r = Bx − c.

**The gap.** Take any vector ν, and let a = Bᵀν. Completing the square, for every table z,

    f(z) = ½‖Bz − c − ν‖² + νᵀ(Bz − c) − ½‖ν‖²  ≥  aᵀz − cᵀν − ½‖ν‖².

If the total is fixed, aᵀz ≥ T·min a, which bounds the optimum from below; subtracted from f(x) it leaves

    gap = ½‖r − ν‖² + (a − min a)ᵀx          (with ν = r the Frank–Wolfe gap: Jaggi 2013, ICML, section 2).

If the total is free the bound needs a ≥ 0, else aᵀz has no minimum. A *cover* is a vector v with w = Bᵀv > 0
on every cell that a row touches. With τ = max(0, max −a/w) the vector e = ν + τv has Bᵀe ≥ 0, hence

    gap = ½‖r − e‖² + (a + τw)ᵀx.

Both hold for every multiple s·ν (or s·e), s ≥ 0, with the last term q multiplied by s, and the best multiple is
s = (rᵀe − q)/‖e‖². No term is negative, so nothing cancels, and all vanish at the optimum. s = 0 merely says
that the optimum is at least 0, so the gap never exceeds f(x), cover or no cover.

**Rounding.** A gap is exact up to rounding in Bᵀν, as any number here: relative to f(x), about 10⁻¹⁵ times the
ratio of ‖c‖ to ‖r‖.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from consilience.errors import MeasurementError

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


@dataclass
class Point:
    """A table x with r = Bx − c, a dual vector ν with a = Bᵀν, and what they prove about each other.

    `certified` tells whether the gap is more than the trivial f(x). `restricted_gap` is the gap over the tables
    whose total does not exceed that of x; it needs no cover.
    """

    counts: Array
    residual: Array
    dual: Array
    image: Array
    objective: float = np.inf
    gap: float = np.inf
    restricted_gap: float = np.inf
    certified: bool = False


def measure_gaps(problem: Problem, point: Point) -> None:
    """Completes a point with its objective and the two gaps that its own dual vector proves."""
    x, r, image = point.counts, point.residual, point.image
    point.objective = half_square(r)
    where = True if problem.allowed is None else problem.allowed
    lowest = float(image.min(where=where, initial=np.inf if problem.total is not None else 0.0))
    complementarity = inner(image, x)
    slack = max(0.0, complementarity - lowest * float(x.sum()))
    point.restricted_gap = half_square(r - point.dual) + slack
    point.certified = problem.total is not None
    point.gap = _gap_of_best_multiple(r, point.dual, slack) if point.certified else point.objective
    v, w = problem.cover, problem.cover_image
    if point.certified or v is None or w is None:
        return
    # Untouched cells have a = w = 0 up to rounding; any other cell without cover leaves the bound unproven.
    if image.min(where=w == 0, initial=0.0) < -UNTOUCHED * max(-lowest, float(image.max())):
        return
    tau = max(0.0, -float(np.divide(image, w, out=np.zeros(w.shape), where=w > 0).min()))
    point.gap = _gap_of_best_multiple(r, point.dual + tau * v, max(0.0, complementarity + tau * inner(w, x)))
    point.certified = True


def _gap_of_best_multiple(r: Array, e: Array, slack: float) -> float:
    """½‖r − s·e‖² + s·slack for the best multiple s ≥ 0."""
    length = inner(e, e)
    s = max(0.0, inner(r, e) - slack) / length if length > 0 else 0.0
    return half_square(r - s * e) + s * slack


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
    v, ones = np.zeros(problem.observed.shape), problem.allowed_table()
    missing = ones.copy()
    search = problem.apply(missing)
    slope = inner(search, search)
    for _ in range(COVER_STEPS):
        image = problem.adjoint(search)
        length = inner(image, image)
        if length == 0:
            break
        image *= slope / length
        missing -= image
        v = v + (slope / length) * search
        np.subtract(ones, missing, out=image)
        if np.all((image >= 0.5) | (np.abs(image) <= UNTOUCHED)):
            offer_cover(problem, v, image)
            return
        gradient = problem.apply(missing)
        previous, slope = slope, inner(gradient, gradient)
        search = gradient + (slope / previous) * search
    offer_cover(problem, np.ones_like(v), problem.adjoint(np.ones_like(v)))


def inner(a: Array, b: Array) -> float:
    """Σ a·b, without the threads of a linear algebra library, which lose more than they win on shared cores."""
    return float(np.einsum("i,i->", a.ravel(), b.ravel()))


def half_square(residual: Array) -> float:
    """½‖residual‖²."""
    return 0.5 * inner(residual, residual)

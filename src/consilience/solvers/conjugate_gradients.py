"""Preconditioned conjugate gradients for symmetric positive semidefinite equations Ax = b, where A is a function.

From x with the residual r = b − Ax and z = M⁻¹r, M the preconditioner (Hestenes & Stiefel 1952; Saad 2003, §9.2):

    p ← z,  then again and again   α = rᵀz / pᵀAp,  x ← x + αp,  r ← r − αAp,  z ← M⁻¹r,  p ← z + (rᵀz / last rᵀz)·p.

Callers write Ap and M⁻¹r into arrays that are kept, and return the inner products with p and r: where a caller has a
compiled loop it computes both in one pass. They also decide when to stop; the iteration ends by itself where rᵀz or
pᵀAp is not a positive number, as it happens when rounding has taken over or A is singular.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit

Array = NDArray[np.float64]
Apply = Callable[[Array, Array], float]
"""Writes the product of a matrix with the first vector into the second one, and returns the vectors' inner product."""
Map = Callable[[Array], Array]


@dataclass
class Iterate:
    """Where the iteration is; at its end, the result."""

    solution: Array
    residual: Array
    """b − Ax."""
    energy: float
    """rᵀM⁻¹r."""
    first_energy: float
    steps: int = 0
    length: float = 0.0
    """The last step α."""


def conjugate_gradients(
    product: Apply,
    residual: Array,
    precondition: Apply,
    stop: Callable[[Iterate], bool],
    *,
    most_steps: int,
    start: Array | None = None,
) -> Iterate:
    """The solution improved from the start, 0 by default, whose residual is given, until it is time to stop.

    >>> matrix, right = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([3.0, 4.0])
    >>> product = lambda x, out: float(x @ np.matmul(matrix, x, out=out))
    >>> conjugate_gradients(product, right, unpreconditioned, lambda at: at.energy < 1e-20, most_steps=9).solution
    array([1., 1.])
    """
    solution = np.zeros_like(residual) if start is None else start.copy()
    remaining = residual.copy()
    scaled, image = np.empty_like(remaining), np.empty_like(remaining)
    energy = precondition(remaining, scaled)
    at = Iterate(solution, remaining, energy, energy)
    direction = scaled.copy()
    while at.steps < most_steps and 0.0 < at.energy < np.inf and not stop(at):
        curvature = product(direction, image)
        if not 0.0 < curvature < np.inf:
            break
        at.length = at.energy / curvature
        _advance(at.length, direction, image, solution, remaining)
        last, at.energy = at.energy, precondition(remaining, scaled)
        _turn(direction, at.energy / last, scaled)
        at.steps += 1
    return at


def unpreconditioned(residual: Array, out: Array) -> float:
    """The identity as a preconditioner."""
    np.copyto(out, residual)
    return float(np.einsum("i,i->", residual, residual))


def shortest_least_squares(
    apply: Map, adjoint: Map, target: Array, columns: int, *, precision: float, most_steps: int
) -> tuple[Array, int]:
    """The shortest x of least ‖Bx − target‖, by LSMR (Fong and Saunders 2011, SIAM J. Sci. Comput. 33), and its steps.

    It is conjugate gradients for BᵀBx = Bᵀtarget, in an order of computing that squares no condition number.
    """
    linear_operator: Any = scipy.sparse.linalg.LinearOperator
    operator = linear_operator((target.size, columns), matvec=apply, rmatvec=adjoint, dtype=np.float64)
    found, _, steps, *_ = scipy.sparse.linalg.lsmr(operator, target, atol=precision, btol=precision, maxiter=most_steps)
    return np.asarray(found, dtype=np.float64), int(steps)


@njit(nogil=True, cache=True)
def _advance(length, direction, image, solution, residual):  # pragma: no cover - compiled
    for i in range(direction.size):
        solution[i] += length * direction[i]
        residual[i] -= length * image[i]


@njit(nogil=True, cache=True)
def _turn(direction, share, scaled):  # pragma: no cover - compiled
    for i in range(direction.size):
        direction[i] = scaled[i] + share * direction[i]

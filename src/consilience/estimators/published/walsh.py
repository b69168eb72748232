"""Walsh–Hadamard coefficients of tables of flags, marginals from them, and the table that comes nearest to noisy ones.

The coefficient of a set S of flags is f_S = Σ_x (−1)^(ones of x in S) n(x). Along one axis of length 2 the transform
takes (a, b) to (a + b, a − b); on a table of k flags it is its own inverse up to the factor 2^k.

*The nearest table* (Barak et al. 2007): given noisy values y_S for some sets, with scales σ_S, the linear programme

    minimise τ   over x ≥ 0   with |f_S(x) − y_S| ≤ σ_S τ,   and f_S(x) = y_S for those that are known exactly.

f is a dense matrix of signs with 2^d columns. Its fast form passes through d stages of 2^d numbers, each the sum or the
difference of two numbers of the stage before. With these as variables every row of the programme has three entries, and
HiGHS's interior point takes a third of the time of the dense programme (12 flags, 794 coefficients). The solution is
seldom the only one: the coefficients within reach are met as well as can be, and any table that does so is as good.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.marginals.table_stacks import Scope
from consilience.solvers.fit import Infeasible

Array = NDArray[np.float64]

FEASIBILITY = 1e-9


def walsh_transform(table: Array) -> Array:
    """The coefficients of a table whose axes all have length 2: index 1 on an axis puts its flag into the set.

    >>> walsh_transform(np.array([[5.0, 1.0], [2.0, 2.0]]))
    array([[10.,  4.],
           [ 2.,  4.]])
    """
    found = np.asarray(table, dtype=np.float64)
    if any(size != 2 for size in found.shape):
        raise DeclarationError(f"a table of shape {found.shape} has other axes than flags; give axes of length 2")
    for axis in range(found.ndim):
        first, second = np.take(found, 0, axis), np.take(found, 1, axis)
        found = np.stack([first + second, first - second], axis)
    return found


def table_of(scope: Scope, coefficients: Mapping[Scope, float]) -> Array:
    """The marginal over some flags, in this order, from the coefficients of its ascending subsets; others count as 0.

    >>> table_of((7,), {(): 10.0, (7,): 4.0})
    array([7., 3.])
    """
    found = np.zeros((2,) * len(scope))
    for index in np.ndindex(found.shape):
        members = tuple(sorted(flag for flag, chosen in zip(scope, index, strict=True) if chosen))
        found[index] = coefficients.get(members, 0.0)
    return walsh_transform(found) / found.size


@dataclass(frozen=True, eq=False)
class NearestTable:
    """A table without negative counts whose coefficients come nearest to noisy ones."""

    table: Array
    largest_error: float
    """τ: the largest distance of a coefficient, in its own scale."""
    gap: float
    """How far τ can be from the least possible, by the programme's own prices."""
    steps: int


def nearest_table(flags: int, sets: Sequence[Scope], values: Array, scales: Array) -> NearestTable:
    """The non-negative table of so many flags that minimises the largest error over the coefficients of some sets.

    A scale of 0 says that a value is exact.
    """
    cells, exact = 2**flags, scales == 0
    places = np.array([sum(1 << (flags - 1 - flag) for flag in members) for members in sets], dtype=np.int64)
    unit = max(1.0, float(np.abs(values).max(initial=0.0)))
    typical = float(scales.max(initial=0.0)) or 1.0
    width = cells * (flags + 1) + 1
    lower, upper = np.full(width, -np.inf), np.full(width, np.inf)
    lower[:cells], lower[-1] = 0.0, 0.0
    known = cells * flags + places[exact]
    lower[known] = upper[known] = values[exact] / unit
    if flags == 0:
        lower[0] = max(0.0, float(lower[0]))
    near, reach = _near_rows(cells * flags + places[~exact], scales[~exact] / typical, width)
    wanted = values[~exact] / unit
    found = scipy.optimize.linprog(
        np.eye(1, width, width - 1).ravel(),
        A_ub=sp.vstack([near - reach, -near - reach]).tocsr(),
        b_ub=np.concatenate([wanted, -wanted]),
        A_eq=_stages(flags),
        b_eq=np.zeros(cells * flags),
        bounds=np.stack([lower, upper], axis=1),
        method="highs-ipm" if flags else "highs",
        options={"primal_feasibility_tolerance": FEASIBILITY, "dual_feasibility_tolerance": FEASIBILITY},
    )
    if found.x is None:
        raise Infeasible(
            f"no table without negative counts has the coefficients that are known exactly ({found.message.strip()}); "
            "correct them",
            violation=float("inf"),
            constraints=["exact coefficients"],
        )
    table = unit * np.maximum(np.asarray(found.x[:cells], dtype=np.float64), 0.0)
    return NearestTable(
        table.reshape((2,) * flags),
        float(found.fun) * unit / typical,
        _gap(found, wanted, lower, upper) * unit / typical,
        int(found.nit),
    )


def _stages(flags: int) -> Any:
    """The equations of the fast transform: stage s + 1 less the butterflies of stage s along axis s is 0."""
    cells = 2**flags
    if flags == 0:
        return None
    pair = sp.csr_array(np.array([[1.0, 1.0], [1.0, -1.0]]))
    rows = []
    for stage in range(flags):
        step = sp.kron(sp.kron(sp.eye_array(2**stage), pair), sp.eye_array(2 ** (flags - 1 - stage)))
        before = sp.csr_array((cells, cells * stage))
        after = sp.csr_array((cells, cells * (flags - 1 - stage) + 1))
        rows.append(sp.hstack([before, step, -sp.eye_array(cells), after]))
    return sp.vstack(rows).tocsr()


def _near_rows(columns: NDArray[np.int64], scales: Array, width: int) -> tuple[Any, Any]:
    """Rows that pick the coefficients, and rows that pick τ times each one's scale."""
    count = np.arange(columns.size)
    near = sp.csr_array((np.ones(columns.size), (count, columns)), (columns.size, width))
    reach = sp.csr_array((scales, (count, np.full(columns.size, width - 1))), (columns.size, width))
    return near, reach


def _gap(found: Any, wanted: Array, lower: Array, upper: Array) -> float:
    """τ less the programme's dual objective, which no table can go below."""
    prices = np.asarray(found.ineqlin.marginals, dtype=np.float64)
    dual = float(prices @ np.concatenate([wanted, -wanted]))
    for bounds, each in ((lower, found.lower.marginals), (upper, found.upper.marginals)):
        finite = np.isfinite(bounds)
        dual += float(np.asarray(each)[finite] @ bounds[finite])
    return max(0.0, float(found.fun) - dual)

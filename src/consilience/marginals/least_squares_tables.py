"""The shortest non-negative table with given margins: least squares (Qardaji, Yang and Li 2014, §4.3, "CLN").

    min Σ_x T_x²   such that   T ≥ 0   and the margins of T are as given.

Its cells are max(0, E_x) with E made of contrasts over the axes of the margins; the parameters are those of the path of
duals in `dual_path`. Where no non-negative table has the margins, the result is the shortest of those that violate them
least; its total is right in any case. Attributes in no margin are even.
"""

from collections.abc import Sequence

import numpy as np

from consilience.kernels.simplex import project_to_simplex
from consilience.marginals.dual_path import Dual
from consilience.marginals.interior_start import interior_start
from consilience.marginals.margin_layouts import Array, MarginLayout
from consilience.marginals.margins import GivenMargins, Margin, Reconstructed, check_target, checked_total
from consilience.marginals.possible_cells import possible_cells
from consilience.solvers.fit import Status

NEAR_END = 1e-6
FIRST = 0.1
"""The first μ of the path where an interior-point method leads to its beginning, and elsewhere."""


def least_squares_table(
    shape: Sequence[int], margins: Sequence[Margin], *, total: float, tolerance: float = 1e-9, most_steps: int = 600
) -> Reconstructed:
    """The non-negative table of least squares with this total and these margins, or as near to them as can be.

    `tolerance` is the largest difference from a margin that counts as none, in parts of the total. Margins are scaled
    to the total; those inside others are not looked at, but count for the violation. A total of 0 or less gives zeros.

    >>> least_squares_table((2, 2), [((0,), np.array([2.0, 6.0])), ((1,), np.array([4.0, 4.0]))], total=8.0).table
    array([[1., 1.],
           [3., 3.]])
    """
    check_target(shape)
    given = GivenMargins.of(shape, margins)
    if checked_total(total) <= 0:
        return given.nothing()
    wanted = given.scaled(total)
    axes = sorted({axis for each in wanted.axis_sets for axis in each})
    sizes = tuple(shape[axis] for axis in axes)
    steps, settled = 0, True
    if not axes:
        found = np.ones(1)
    elif len(wanted.axis_sets) == 1:
        found = project_to_simplex(wanted.values, 1.0) if wanted.values.min() < 0.0 else wanted.values
    else:
        layout = MarginLayout.of(sizes, [tuple(axes.index(axis) for axis in each) for each in wanted.axis_sets])
        found, steps, settled = _fitted(layout, wanted.values, tolerance=tolerance, most_steps=most_steps)
    table = found.reshape([shape[axis] if axis in axes else 1 for axis in range(len(shape))])
    evened = np.prod(shape, dtype=np.float64) / table.size
    table = np.array(np.broadcast_to(table * (total / evened), shape), order="C")
    violation = given.violation(table)
    status = Status.CONVERGED if settled else Status.STEP_LIMIT
    return Reconstructed(table, violation, violation > 10.0 * tolerance * total, steps, status)


def _fitted(layout: MarginLayout, wanted: Array, *, tolerance: float, most_steps: int) -> tuple[Array, int, bool]:
    """The flat table in parts of the total, the steps made, and whether they sufficed."""
    targets = layout.coefficients(wanted)
    start = np.zeros(layout.rows)
    start[0] = 1.0
    dual = Dual(layout, possible_cells(layout, wanted), targets, "squares")
    if dual.equations.written_out:
        start, steps = interior_start(dual, start, NEAR_END)
        first = NEAR_END
    else:
        steps, first = 0, FIRST
    end = dual.follow(start, first=first, tolerance=tolerance, most_steps=most_steps)
    return end.table, steps + end.steps, end.settled

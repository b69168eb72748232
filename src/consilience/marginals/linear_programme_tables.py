"""A non-negative table whose largest difference from given margins is least (Qardaji, Yang and Li 2014, §4.3, "LP").

    min τ   such that   T ≥ 0   and   |margin of T − given margin| ≤ τ in every cell of every margin.

Margins need not agree, and all of them count: those over the same axes, from several views, become one pair of bounds,
because |t − g| ≤ τ for every g is the same as max g − τ ≤ t ≤ min g + τ. Many tables may be optimal; the result is the
one that HiGHS ends with. Nothing but the margins fixes the total. Attributes in no margin are even.
"""

import math
from collections.abc import Sequence

import numpy as np
import scipy.optimize
import scipy.sparse as sp

from consilience.errors import TooLarge
from consilience.marginals.margin_layouts import Array, MarginLayout
from consilience.marginals.margins import Axes, GivenMargins, Margin, Reconstructed, check_target, checked_total
from consilience.solvers.fit import Status

FEASIBILITY = 1e-10
"""How far HiGHS may stay from a bound, in parts of the largest cell of a margin."""

MOST_ENTRIES = 20_000_000
"""The entries of the largest programme that is written down, one for each cell and distinct margin, twice."""


def linear_programme_table(
    shape: Sequence[int], margins: Sequence[Margin], *, total: float | None = None, tolerance: float = 1e-9
) -> Reconstructed:
    """A non-negative table as near to all the margins as can be, by the largest difference.

    `total` is used only where there is no margin, and 0 stands for it where it is not given. `relaxed` says that the
    largest difference is more than `tolerance`, in parts of the largest cell of a margin.

    >>> twice = [((0,), np.array([2.0, 6.0])), ((0,), np.array([4.0, 6.0]))]
    >>> linear_programme_table((2,), twice).violation
    1.0
    """
    cells = check_target(shape)
    given = GivenMargins.of(shape, margins)
    if not margins:
        even = np.full(shape, max(checked_total(total or 0.0), 0.0) / max(cells, 1))
        return Reconstructed(even, 0.0, False, 0, Status.CONVERGED)
    scale = max(float(np.abs(given.values).max(initial=0.0)), np.finfo(np.float64).tiny)
    axes = sorted({axis for each in given.axis_sets for axis in each})
    reach, keep = _bounds(given, scale)
    covered = math.prod(shape[axis] for axis in axes)
    if 2 * covered * len(reach) > MOST_ENTRIES:
        raise TooLarge(
            f"a linear programme for {covered:,} cells and {len(reach)} margins would have "
            f"{2 * covered * len(reach):,} entries, and {MOST_ENTRIES:,} are allowed; ask for fewer attributes, "
            "or take the method of greatest entropy"
        )
    layout = MarginLayout.of([shape[axis] for axis in axes], [tuple(map(axes.index, each)) for each in reach])
    found, steps, status = _solved(layout, np.concatenate(list(reach.values())), np.concatenate(list(keep.values())))
    kept = [shape[axis] if axis in axes else 1 for axis in range(len(shape))]
    table = found.reshape(kept) * (scale * layout.cells / cells)
    table = np.array(np.broadcast_to(table, shape), order="C")
    violation = given.violation(table)
    return Reconstructed(table, violation, violation > 10.0 * tolerance * scale, steps, status)


def _bounds(given: GivenMargins, scale: float) -> tuple[dict[Axes, Array], dict[Axes, Array]]:
    """For each set of axes, the highest and the lowest value that a margin gives a cell: what t must reach and keep."""
    reach: dict[Axes, Array] = {}
    keep: dict[Axes, Array] = {}
    for index, axes in enumerate(given.axis_sets):
        values = given.part(index) / scale
        reach[axes] = np.maximum(reach[axes], values) if axes in reach else values
        keep[axes] = np.minimum(keep[axes], values) if axes in keep else values
    return reach, keep


def _solved(layout: MarginLayout, reach: Array, keep: Array) -> tuple[Array, int, Status]:
    """The cells, the iterations of the simplex method, and whether it ended; if it did not, the cells are even."""
    places = (layout.outer[:, :, None] + layout.inner[:, None, :]).reshape(len(layout.even), -1)
    columns = np.tile(np.arange(layout.cells), len(places))
    sums = sp.csr_array((np.ones(columns.size), (places.ravel(), columns)), shape=(reach.size, layout.cells))
    slack = sp.csr_array(np.full((reach.size, 1), -1.0))
    cost = np.zeros(layout.cells + 1)
    cost[-1] = 1.0
    answer = scipy.optimize.linprog(
        cost,
        A_ub=sp.csc_array(sp.vstack([sp.hstack([sums, slack]), sp.hstack([-sums, slack])])),
        b_ub=np.concatenate([keep, -reach]),
        bounds=(0.0, None),
        method="highs",
        options={"primal_feasibility_tolerance": FEASIBILITY, "dual_feasibility_tolerance": FEASIBILITY},
    )
    if answer.x is None:
        even = max(float(reach.sum() + keep.sum()), 0.0) / (2.0 * len(layout.even) * layout.cells)
        return np.full(layout.cells, even), 0, Status.STALLED
    return np.maximum(np.asarray(answer.x[:-1], dtype=np.float64), 0.0), int(answer.nit), Status.CONVERGED

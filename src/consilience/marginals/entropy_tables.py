"""The table of greatest entropy with given margins (Qardaji, Yang and Li 2014, §4.3).

Attributes in no margin are even. Margins that share no attribute, directly or through others, are independent in this
table: it is the product of tables for each connected set of margins, and a set of one margin is the margin itself. For
the others iterative proportional fitting leads there quickly where it is quick; where it is slow, because the table is
nearly degenerate, and where no non-negative table has the margins, so that it would go in circles, the path of duals in
`dual_path` leads to the table, or to the one of greatest entropy among those that violate the margins least. For large
tables that path is too long: passes through all margins at once end at a compromise between them as well, the nearest
in relative entropy instead of squares.

Cells that a zero in a margin forces to be 0 are left out from the beginning, unless the zero contradicts other margins.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.simplex import project_to_simplex
from consilience.marginals.dual_path import Dual
from consilience.marginals.entropy_kernels import fit_proportionally, fit_simultaneously
from consilience.marginals.margin_kernels import announce_once
from consilience.marginals.margin_layouts import MarginLayout
from consilience.marginals.margins import TRACE, Axes, GivenMargins, Margin, Reconstructed, check_target, checked_total
from consilience.marginals.possible_cells import possible_cells
from consilience.solvers.fit import Status

Array = NDArray[np.float64]

PASSES = 48
"""The passes after which a slow fit is handed on, where Newton's method is quick."""

LONG_PASSES = 300
SIMULTANEOUS_PASSES = 200
"""The passes of tables for which Newton's method is slow: through the margins in turn, then through all at once."""

SMALL, FEW = 4_096, 300
"""Newton's method is quick for tables of so many cells whose attributes have two values, and for so many equations."""

FALL = 0.02
"""Passes through all margins go on as long as ten of them lower the misfit by this part."""


def greatest_entropy_table(
    shape: Sequence[int], margins: Sequence[Margin], *, total: float, tolerance: float = 1e-9, most_steps: int = 400
) -> Reconstructed:
    """The non-negative table of greatest entropy with this total and these margins, or as near to them as can be.

    `tolerance` is the largest difference from a margin that counts as none, in parts of the total. Margins are scaled
    to the total; those inside others are not looked at, but count for the violation. A total of 0 or less gives zeros.

    >>> greatest_entropy_table((2, 2), [((0,), np.array([2.0, 6.0])), ((1,), np.array([4.0, 4.0]))], total=8.0).table
    array([[1., 1.],
           [3., 3.]])
    """
    check_target(shape)
    given = GivenMargins.of(shape, margins)
    if checked_total(total) <= 0:
        return given.nothing()
    wanted = given.scaled(total)
    table, steps, settled = np.ones((1,) * len(shape)), 0, True
    for axes, members in _connected(wanted.axis_sets):
        part = [(wanted.axis_sets[index], wanted.part(index)) for index in members]
        sizes = tuple(shape[axis] for axis in axes)
        fitted, made, at_end = _fitted(sizes, axes, part, tolerance=tolerance, most_steps=most_steps)
        table = table * fitted.reshape([shape[axis] if axis in axes else 1 for axis in range(len(shape))])
        steps, settled = steps + made, settled and at_end
    evened = np.prod(shape, dtype=np.float64) / table.size
    table = np.array(np.broadcast_to(table * (total / evened), shape), order="C")
    violation = given.violation(table)
    status = Status.CONVERGED if settled else Status.STEP_LIMIT
    return Reconstructed(table, violation, violation > 10.0 * tolerance * total, steps, status)


def _connected(axis_sets: Sequence[Axes]) -> list[tuple[Axes, list[int]]]:
    """The margins in sets that share no axis with each other: the axes of each set, and its members."""
    found: list[tuple[set[int], list[int]]] = []
    for index, axes in enumerate(axis_sets):
        touching = [each for each in found if not each[0].isdisjoint(axes)]
        joined = (set(axes).union(*(each[0] for each in touching)), [i for each in touching for i in each[1]] + [index])
        found = [each for each in found if each not in touching] + [joined]
    return [(tuple(sorted(axes)), sorted(members)) for axes, members in found]


def _fitted(
    sizes: Sequence[int], axes: Axes, margins: Sequence[tuple[Axes, Array]], *, tolerance: float, most_steps: int
) -> tuple[Array, int, bool]:
    """The flat table of one connected set of margins, in parts of the total; the steps made; whether they sufficed."""
    if len(margins) == 1:
        alone = margins[0][1]
        return (project_to_simplex(alone, 1.0) if alone.min() < 0.0 else alone), 0, True
    layout = MarginLayout.of(sizes, [tuple(axes.index(axis) for axis in each) for each, _ in margins])
    wanted = np.concatenate([values for _, values in margins])
    support = possible_cells(layout, wanted)
    targets = layout.coefficients(wanted)
    table = support / np.count_nonzero(support)
    logs = np.zeros(wanted.size)
    compatible = _may_agree(layout, wanted, targets, tolerance)
    quick = layout.rows <= FEW or (layout.cells <= SMALL and max(sizes) == 2)
    passes, first = 0, 0.1
    if compatible:
        most = PASSES if quick else LONG_PASSES
        passes, misfit = _passes(layout, table, np.maximum(wanted, 0.0), logs, 0.25 * tolerance, most)
        if misfit <= 0.25 * tolerance:
            return table / table.sum(), passes, True
        first = min(0.1 * misfit, 1e-2)
    if not quick:
        made, settled = _simultaneous_passes(layout, table, wanted)
        return table / table.sum(), passes + made, settled
    start = layout.parameters(logs)
    first /= max(1.0, float(np.abs(start).max()))
    end = Dual(layout, support, targets, "entropy").follow(
        start, first=max(first, 1e-10), tolerance=tolerance, most_steps=most_steps
    )
    return end.table, passes + end.steps, end.settled


def _passes(
    layout: MarginLayout, table: Array, wanted: Array, logs: Array, tolerance: float, most: int
) -> tuple[int, float]:
    announce_once(fit_proportionally)
    return fit_proportionally(table, wanted, layout.outer, layout.inner, layout.starts, tolerance, most, 12, logs)


def _simultaneous_passes(layout: MarginLayout, table: Array, wanted: Array) -> tuple[int, bool]:
    """Passes through all margins at once, without their negative values, until they gain little."""
    announce_once(fit_simultaneously)
    shares = np.maximum(wanted, 0.0)
    for begin, end in itertools.pairwise(layout.starts.tolist()):
        shares[begin:end] /= shares[begin:end].sum()
    return fit_simultaneously(table, shares, layout.outer, layout.inner, SIMULTANEOUS_PASSES, FALL)


def _may_agree(layout: MarginLayout, wanted: Array, targets: Array, tolerance: float) -> bool:
    """Whether the margins are not negative and agree where they overlap, as those of any one table do."""
    return bool(wanted.min() >= -TRACE) and float(np.abs(layout.of_coefficients(targets) - wanted).max()) <= tolerance

"""Marginals of any attributes from views, many at a time.

A target that is part of a view is its sum, and any other a table put together from its margins: of greatest entropy, of
least squares, or by a linear programme. Targets are independent of each other, and the kernels leave the interpreter
free, so that threads share them out; the answers do not depend on how many there are.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.compilation import MOST_THREADS, available_cores
from consilience.kernels.simplex import project_to_simplex
from consilience.marginals.dual_path import Dual, interior_start
from consilience.marginals.margin_layouts import MarginLayout
from consilience.marginals.margins import (
    TRACE,
    Axes,
    GivenMargins,
    Margin,
    Reconstructed,
    ViewReader,
    check_target,
    checked_total,
    fit_proportionally,
    fit_simultaneously,
)
from consilience.marginals.table_stacks import Scope
from consilience.solvers.fit import Status

# ----------------------------------------------------------------------------------------------------------------------
# The cells of a table that its margins leave open: those that no zero of a margin forces to be 0.


MARGIN_TOLERANCE = 1e-9
"""The largest difference from a margin that counts as none, in parts of the total."""

CONTRADICTION = 1e-9
"""What a margin may hold, in parts of the total, where the zeros of others leave it no cell."""


def possible_cells(layout: MarginLayout, wanted: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which cells can hold something; all of them where the zeros of one margin contradict the others."""
    zeros = np.abs(wanted) <= TRACE
    everywhere = np.ones(layout.cells, dtype=np.bool_)
    if not zeros.any():
        return everywhere
    found = layout.spread(zeros.astype(np.float64)) == 0.0
    left = layout.margins(found.astype(np.float64))
    contradicted = np.any((left == 0.0) & (wanted > CONTRADICTION))
    return everywhere if contradicted else found


# ----------------------------------------------------------------------------------------------------------------------
# The table of greatest entropy with given margins (Qardaji, Yang and Li 2014, §4.3).
#
# Attributes in no margin are even. Margins that share no attribute, directly or through others, are independent in this
# table: it is the product of tables for each connected set of margins, and a set of one margin is the margin itself.
# For the others iterative proportional fitting leads there quickly where it is quick; where it is slow, because the
# table is nearly degenerate, and where no non-negative table has the margins, so that it would go in circles, the path
# of duals in `dual_path` leads to the table, or to the one of greatest entropy among those that violate the margins
# least. For large tables that path is too long: passes through all margins at once end at a compromise between them as
# well, the nearest in relative entropy instead of squares.
#
# Cells that a zero in a margin forces to be 0 are left out from the beginning, unless the zero contradicts other
# margins.


Array = NDArray[np.float64]


@dataclass(frozen=True)
class EntropySettings:
    """How tables of greatest entropy are found; all by trial, and no figures were kept."""

    passes: int = 48
    """The passes after which a slow fit is handed on, where Newton's method is quick."""
    first_passes: int = 12
    """The passes that are made whatever they gain."""
    long_passes: int = 300
    """Passes through the margins in turn where Newton's method is slow."""
    simultaneous_passes: int = 200
    """Passes through all margins at once, after these."""
    misfit_fall: float = 0.02
    """Passes through all margins go on as long as ten of them lower the misfit by this part."""
    small_table: int = 4_096
    """Newton's method is quick for tables of so many cells whose attributes have two values,"""
    few_equations: int = 300
    """and for so many equations."""
    most_steps: int = 400
    """Newton steps along the path of duals."""


ENTROPY = EntropySettings()

Fitted = tuple[Array, int, bool]
"""A flat table in parts of its total, the steps made, and whether they sufficed."""

Parts = list[tuple[Axes, list[int]]]
"""Sets of margins that are fitted by themselves: the axes of each set, and its members."""


def greatest_entropy_table(shape: Sequence[int], margins: Sequence[Margin], *, total: float) -> Reconstructed:
    """The non-negative table of greatest entropy with this total and these margins, or as near to them as can be.

    Margins are scaled to the total; those inside others are not looked at, but count for the violation. A total of 0
    or less gives zeros.

    >>> greatest_entropy_table((2, 2), [((0,), np.array([2.0, 6.0])), ((1,), np.array([4.0, 4.0]))], total=8.0).table
    array([[1., 1.],
           [3., 3.]])
    """
    return _put_together(shape, margins, total, _connected, _fitted)


def _put_together(
    shape: Sequence[int],
    margins: Sequence[Margin],
    total: float,
    divide: Callable[[Sequence[Axes]], Parts],
    fit: Callable[[MarginLayout, Array], Fitted],
) -> Reconstructed:
    """The product of the tables that are fitted to each set of margins, times the total."""
    check_target(shape)
    given = GivenMargins.of(shape, margins)
    if checked_total(total) <= 0:
        return given.nothing()
    wanted = given.scaled(total)
    table, steps, settled = np.ones((1,) * len(shape)), 0, True
    for axes, members in divide(wanted.axis_sets):
        values = np.concatenate([wanted.part(index) for index in members])
        if len(members) == 1:
            fitted = project_to_simplex(values, 1.0) if values.min() < 0.0 else values
        else:
            sets = [tuple(axes.index(axis) for axis in wanted.axis_sets[index]) for index in members]
            fitted, made, at_end = fit(MarginLayout.of([shape[axis] for axis in axes], sets), values)
            steps, settled = steps + made, settled and at_end
        table = table * fitted.reshape([shape[axis] if axis in axes else 1 for axis in range(len(shape))])
    evened = np.prod(shape, dtype=np.float64) / table.size
    table = np.array(np.broadcast_to(table * (total / evened), shape), order="C")
    violation = given.violation(table)
    status = Status.CONVERGED if settled else Status.STEP_LIMIT
    return Reconstructed(table, violation, violation > 10.0 * MARGIN_TOLERANCE * total, steps, status)


def _connected(axis_sets: Sequence[Axes]) -> Parts:
    """The margins in sets that share no axis with each other: the axes of each set, and its members."""
    found: list[tuple[set[int], list[int]]] = []
    for index, axes in enumerate(axis_sets):
        touching = [each for each in found if not each[0].isdisjoint(axes)]
        joined = (set(axes).union(*(each[0] for each in touching)), [i for each in touching for i in each[1]] + [index])
        found = [each for each in found if each not in touching] + [joined]
    return [(tuple(sorted(axes)), sorted(members)) for axes, members in found]


def _fitted(layout: MarginLayout, wanted: Array) -> Fitted:
    """The table of one connected set of margins."""
    support = possible_cells(layout, wanted)
    targets = layout.coefficients(wanted)
    table = support / np.count_nonzero(support)
    logs = np.zeros(wanted.size)
    agrees = float(np.abs(layout.of_coefficients(targets) - wanted).max()) <= MARGIN_TOLERANCE
    small = layout.cells <= ENTROPY.small_table and int(layout.shape.max()) == 2
    quick = small or layout.rows <= ENTROPY.few_equations
    passes, first = 0, 0.1
    if agrees and wanted.min() >= -TRACE:
        shares, enough = np.maximum(wanted, 0.0), 0.25 * MARGIN_TOLERANCE
        most = ENTROPY.passes if quick else ENTROPY.long_passes
        passes, misfit = fit_proportionally(
            table, shares, layout.outer, layout.inner, layout.starts, enough, most, ENTROPY.first_passes, logs
        )
        if misfit <= enough:
            return table / table.sum(), passes, True
        first = min(0.1 * misfit, 1e-2)
    if not quick:
        made, settled = _simultaneous_passes(layout, table, wanted)
        return table / table.sum(), passes + made, settled
    start = layout.parameters(logs)
    first /= max(1.0, float(np.abs(start).max()))
    end = Dual(layout, support, targets, "entropy").follow(
        start, first=max(first, 1e-10), tolerance=MARGIN_TOLERANCE, most_steps=ENTROPY.most_steps
    )
    return end.table, passes + end.steps, end.settled


def _simultaneous_passes(layout: MarginLayout, table: Array, wanted: Array) -> tuple[int, bool]:
    """Passes through all margins at once, without their negative values, until they gain little."""
    shares = np.maximum(wanted, 0.0)
    for begin, end in itertools.pairwise(layout.starts.tolist()):
        shares[begin:end] /= shares[begin:end].sum()
    most, fall = ENTROPY.simultaneous_passes, ENTROPY.misfit_fall
    return fit_simultaneously(table, shares, layout.outer, layout.inner, most, fall)


# ----------------------------------------------------------------------------------------------------------------------
# The shortest non-negative table with given margins: least squares (Qardaji, Yang and Li 2014, §4.3, "CLN").
#
#     min Σ_x T_x²   such that   T ≥ 0   and the margins of T are as given.
#
# Its cells are max(0, E_x) with E made of contrasts over the axes of the margins; the parameters are those of the path
# of duals in `dual_path`. Where no non-negative table has the margins, the result is the shortest of those that violate
# them least; its total is right in any case. Attributes in no margin are even.


@dataclass(frozen=True)
class SquaresSettings:
    """Where the path to a table of least squares begins; by trial, and no figures were kept."""

    near_end: float = 1e-6
    """The first μ of the path where an interior-point method leads to its beginning."""
    far_from_end: float = 0.1
    """The first μ elsewhere."""
    most_steps: int = 600
    """Newton steps along the path."""


SQUARES = SquaresSettings()


def least_squares_table(shape: Sequence[int], margins: Sequence[Margin], *, total: float) -> Reconstructed:
    """The non-negative table of least squares with this total and these margins, or as near to them as can be.

    Margins and totals are taken as `greatest_entropy_table` takes them.

    >>> least_squares_table((2, 2), [((0,), np.array([2.0, 6.0])), ((1,), np.array([4.0, 4.0]))], total=8.0).table
    array([[1., 1.],
           [3., 3.]])
    """
    return _put_together(shape, margins, total, _together, _fitted_squares)


def _together(axis_sets: Sequence[Axes]) -> Parts:
    """All margins in one set."""
    axes = tuple(sorted({axis for each in axis_sets for axis in each}))
    return [(axes, list(range(len(axis_sets))))] if axes else []


def _fitted_squares(layout: MarginLayout, wanted: Array) -> Fitted:
    """The table of all margins."""
    targets = layout.coefficients(wanted)
    start = np.zeros(layout.rows)
    start[0] = 1.0
    dual = Dual(layout, possible_cells(layout, wanted), targets, "squares")
    if dual.equations.written_out:
        start, steps = interior_start(dual, start, SQUARES.near_end)
        first = SQUARES.near_end
    else:
        steps, first = 0, SQUARES.far_from_end
    end = dual.follow(start, first=first, tolerance=MARGIN_TOLERANCE, most_steps=SQUARES.most_steps)
    return end.table, steps + end.steps, end.settled


# ----------------------------------------------------------------------------------------------------------------------
# A non-negative table whose largest difference from given margins is least (Qardaji, Yang and Li 2014, §4.3, "LP").
#
#     min τ   such that   T ≥ 0   and   |margin of T − given margin| ≤ τ in every cell of every margin.
#
# Margins need not agree, and all of them count: those over the same axes, from several views, become one pair of
# bounds, because |t − g| ≤ τ for every g is the same as max g − τ ≤ t ≤ min g + τ. Many tables may be optimal; the
# result is the one that HiGHS ends with. Nothing but the margins fixes the total. Attributes in no margin are even.


HIGHS_FEASIBILITY = 1e-10
"""How far HiGHS may stay from a bound, in parts of the largest cell of a margin: the least that it takes."""

MOST_PROGRAMME_ENTRIES = 20_000_000
"""The entries of the largest programme that is written down, one for each cell and distinct margin, twice."""


def linear_programme_table(
    shape: Sequence[int], margins: Sequence[Margin], *, total: float | None = None
) -> Reconstructed:
    """A non-negative table as near to all the margins as can be, by the largest difference.

    `total` is used only where there is no margin, and 0 stands for it where it is not given. `relaxed` says that the
    largest difference is more than rounding.

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
    if 2 * covered * len(reach) > MOST_PROGRAMME_ENTRIES:
        raise TooLarge(
            f"a linear programme for {covered:,} cells and {len(reach)} margins would have "
            f"{2 * covered * len(reach):,} entries, and {MOST_PROGRAMME_ENTRIES:,} are allowed; ask for fewer "
            "attributes, or take the method of greatest entropy"
        )
    layout = MarginLayout.of([shape[axis] for axis in axes], [tuple(map(axes.index, each)) for each in reach])
    found, steps, status = _solved(layout, np.concatenate(list(reach.values())), np.concatenate(list(keep.values())))
    kept = [shape[axis] if axis in axes else 1 for axis in range(len(shape))]
    table = found.reshape(kept) * (scale * layout.cells / cells)
    table = np.array(np.broadcast_to(table, shape), order="C")
    violation = given.violation(table)
    return Reconstructed(table, violation, violation > 10.0 * MARGIN_TOLERANCE * scale, steps, status)


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
        options={"primal_feasibility_tolerance": HIGHS_FEASIBILITY, "dual_feasibility_tolerance": HIGHS_FEASIBILITY},
    )
    if answer.x is None:
        even = max(float(reach.sum() + keep.sum()), 0.0) / (2.0 * len(layout.even) * layout.cells)
        return np.full(layout.cells, even), 0, Status.STALLED
    return np.maximum(np.asarray(answer.x[:-1], dtype=np.float64), 0.0), int(answer.nit), Status.CONVERGED


# ----------------------------------------------------------------------------------------------------------------------
# Marginals of any attributes from views, many at a time.


Method = Literal["entropy", "least-squares", "linear-programme"]
METHODS: tuple[Method, ...] = ("entropy", "least-squares", "linear-programme")


def reconstruct(
    views: ViewReader,
    targets: Sequence[Scope],
    *,
    method: Method = "entropy",
    total: float,
    threads: int | None = None,
) -> list[Reconstructed]:
    """The marginals of all targets, in their order, each with axes in the target's order.

    >>> from consilience.marginals.table_stacks import TableStack
    >>> views = ViewReader(TableStack((2, 2, 2), [(0, 1), (1, 2)]), np.array([1.0, 2, 3, 4, 4, 0, 3, 3]))
    >>> reconstruct(views, [(0, 2)], total=10.0)[0].table
    array([[2.1, 0.9],
           [4.9, 2.1]])
    """
    if method not in METHODS:
        raise DeclarationError(f"no method {method!r} puts marginals together; there are {', '.join(METHODS)}")

    def one(target: Scope) -> Reconstructed:
        margins = views.margins(target, maximal=method != "linear-programme")
        shape = tuple(views.sizes[attribute] for attribute in target)
        if method == "entropy":
            return greatest_entropy_table(shape, margins, total=total)
        if method == "least-squares":
            return least_squares_table(shape, margins, total=total)
        return linear_programme_table(shape, margins, total=total)

    workers = min(threads or min(available_cores(), MOST_THREADS), len(targets))
    if workers <= 1:
        return [one(target) for target in targets]
    with ThreadPoolExecutor(workers, thread_name_prefix="consilience-views") as pool:
        try:
            return list(pool.map(one, targets))
        finally:
            pool.shutdown(cancel_futures=True)

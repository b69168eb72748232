"""Non-negative tables for all nodes of a forest, from the top down: each parent's table is held and divided.

The signed fit has unbiased sums. So a root keeps its sums as far as they are not negative, and below a node with the
table X the children's tables x_c are found in stages, of which each refines the cells: first the sums over coarse
groups of cells, such as the total, then over finer ones, at last the cells. In one stage, with s_c the signed sums of
child c and S_c their variance, within each group of the stage before

    min Σ_c ‖x_c − s_c‖² / S_c     such that   Σ_c x_c = X,   Σ x_c over the group = what the last stage found,   x ≥ 0.

Its optimum is x_ch = max(s_ch − S_c (θ_h + μ_c), 0). Given μ, each θ_h is the root of a convex decreasing function, and
the multipliers μ of the rows maximise a concave, piecewise quadratic dual: Newton's method on it, with steps back
where it does not rise, and sweeps over rows and columns where Newton's step is none. In the first stage there are no
sums of rows, but bounds l_c ≤ x_c ≤ u_c from public facts, and one θ for each group.

*Facts* are bounds on the sums of one set of groups at any nodes; an equality has two equal bounds. A node can have what
its children can have together and what its own bounds allow: l_v = max(own, Σ l_c), u_v = min(own, Σ u_c). Because all
facts are about the same groups, every table of a parent within these bounds can be divided, and nothing else can: a
parent that is held never leaves its children without a choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.solvers.fit import Array
from consilience.solvers.geography.least_squares import SignedFit
from consilience.solvers.geography.rounding import round_rows, round_table
from consilience.solvers.geography.subtrees import depths
from consilience.solvers.trees.layout import Layout

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class DivisionSettings:
    """When the division of a parent's table ends."""

    row_tolerance: float = 1e-10
    """How far the sum of a row may be off, in parts of the largest sum, or of one record."""
    most_newton_steps: int = 200
    """Newton steps and sweeps together; a few are usual."""


SETTINGS = DivisionSettings()
UNTOLD_VARIANCE = 1e6
"""The variance of what nothing tells, in units of the largest of the noise."""
FIRST_STEPS = 40
"""Newton steps before the signed values are scaled down: of 20,000 random tables of up to 7 × 7, with noise of up to 50
times the counts, one in a thousand needs more."""


class Bounds(NamedTuple):
    """The least and the most that the sums of each group of cells may be at each node."""

    least: Array
    most: Array


class OutOfReach(NamedTuple):
    """A node whose bounds contradict those below it."""

    node: int
    group: int
    excess: float
    """By how much the least exceeds the most."""


def within_reach(layout: Layout, bounds: Bounds) -> Bounds | OutOfReach:
    """The bounds of every node with those of the nodes below it, or the lowest node where they cross.

    >>> from consilience.solvers.trees.layout import forest
    >>> tree = forest([-1, 0, 0], 3)
    >>> most = np.array([[9.0], [np.inf], [4.0]])
    >>> within_reach(tree, Bounds(np.array([[0.0], [7.0], [0.0]]), most)).least.ravel()
    array([7., 7., 0.])
    >>> within_reach(tree, Bounds(np.array([[0.0], [11.0], [0.0]]), most))
    OutOfReach(node=0, group=0, excess=2.0)
    """
    least, most = np.array(bounds.least), np.array(bounds.most)
    for begin, end in reversed(depths(layout)):
        first, own = layout.first[begin : end + 1], slice(begin, end)
        inner = np.flatnonzero(np.diff(first))
        if inner.size:
            for ends, tighter in ((least, np.maximum), (most, np.minimum)):
                sums = np.add.reduceat(ends[first[0] : first[-1]], first[inner] - first[0], axis=0)
                ends[begin + inner] = tighter(ends[begin + inner], sums)
        excess = least[own] - most[own]
        beyond = np.flatnonzero(np.any(excess > 1e-9 * np.maximum(1.0, np.abs(least[own])), axis=1))
        if beyond.size:
            group = int(np.argmax(excess[beyond[-1]]))
            return OutOfReach(begin + int(beyond[-1]), group, float(excess[beyond[-1], group]))
        most[own] = np.maximum(most[own], least[own])
    return Bounds(least, most)


class Division(NamedTuple):
    """Non-negative tables, and how far from their conditions they are."""

    tables: Array
    unmet: float
    """The largest error of the sum of a row, in parts of the largest sum of its table, or of one record."""


def divide(
    fit: SignedFit,
    stages: Sequence[Labels],
    *,
    bounds: Bounds | None = None,
    whole: bool = False,
    roots: Array | None = None,
) -> Division:
    """Non-negative tables near the signed ones, children summing to parents; whole numbers if asked for.

    `stages` label the cells by groups from 0 up, each stage refining the one before; the cells themselves come last
    without being named. `bounds` are about the groups of the first stage, and come from `within_reach`; for whole
    numbers they are whole. `roots` are the tables of the roots where they are known.
    """
    cells = fit.basis.cells
    labels = np.ascontiguousarray([*stages, np.arange(cells)], dtype=np.int64)
    above = np.zeros_like(labels)
    for stage in range(1, len(labels)):
        above[stage, labels[stage]] = labels[stage - 1]
    groups = int(labels[0].max(initial=0)) + 1
    if bounds is None:
        bounds = Bounds(np.zeros((fit.layout.nodes, groups)), np.full((fit.layout.nodes, groups), np.inf))
    tables = np.array(fit.tables)
    spread = _spread(fit, labels)
    _divide_roots(fit, tables, labels, above, bounds, whole=whole, known=roots)
    limits = (SETTINGS.row_tolerance, SETTINGS.most_newton_steps)
    unmet = _descend(fit.layout.first, labels, above, tables, spread, bounds.least, bounds.most, whole, *limits)
    return Division(tables, float(unmet))


def _spread(fit: SignedFit, labels: Labels) -> Array:
    """S: for each node and stage the mean variance of a group's sum, from what the node's own subtree says.

    Where a subtree says nothing, its nodes take what the others leave: a variance far above that of the noise.
    """
    subtrees, found = fit.subtrees, np.zeros((len(fit.subtrees.leaves), len(labels)))
    untold = UNTOLD_VARIANCE * max(fit.largest, 1e-12)
    for stage, label in enumerate(labels):
        groups = int(label.max(initial=0)) + 1
        indicator = np.zeros((groups, fit.basis.cells))
        indicator[label, np.arange(label.size)] = 1.0
        for place, weights in enumerate(fit.basis.spread(indicator)):
            below = subtrees.told[place] + untold * subtrees.untold[place]
            found[:, stage] += np.einsum("ubc,bc->u", below, weights)
    return np.maximum(found, 1e-300)[fit.classes]


def _divide_roots(
    fit: SignedFit, tables: Array, labels: Labels, above: Labels, bounds: Bounds, *, whole: bool, known: Array | None
) -> None:
    """The nearest non-negative tables of the roots within their bounds, stage by stage as below: what was measured of
    coarse groups is not moved by cells that are set to 0."""
    for root in range(fit.layout.roots):
        if known is not None:
            tables[root] = known[root]
            continue
        sums = np.bincount(labels[0], tables[root], minlength=bounds.least.shape[1])
        sums = np.clip(sums, np.maximum(bounds.least[root], 0.0), bounds.most[root])
        if whole:
            sums = np.floor(sums + 0.5)
        for stage in range(1, len(labels)):
            parts = np.bincount(labels[stage], tables[root]).astype(np.float64)
            for group, total in enumerate(sums):
                chosen = np.flatnonzero(above[stage, : parts.size] == group)
                parts[chosen] = _of_total(parts[chosen], total, whole=whole)
            sums = parts
        tables[root] = sums[labels[-1]]


def _of_total(signed: Array, total: float, *, whole: bool) -> Array:
    """The nearest non-negative numbers with this sum; whole ones near them if asked for."""
    column, held = np.ascontiguousarray(signed[:, None]), np.array([total])
    _to_sum(column, np.ones(len(column)), held, np.zeros_like(column), np.full_like(column, np.inf))
    if whole:
        round_rows(column, held)
    return column[:, 0]


@njit(nogil=True, cache=True, error_model="numpy")
def _descend(
    first, labels, above, tables, spread, least, most, whole, tolerance, most_steps
):  # pragma: no cover - compiled
    stages, cells = labels.shape
    worst = 0.0
    for v in range(len(tables)):
        begin, end = first[v], first[v + 1]
        if begin == end:
            continue
        sums = np.empty((0, 0))
        for stage in range(stages):
            groups = labels[stage].max() + 1
            signed, held = np.zeros((end - begin, groups)), np.zeros(groups)
            for h in range(cells):
                held[labels[stage, h]] += tables[v, h]
                for c in range(end - begin):
                    signed[c, labels[stage, h]] += tables[begin + c, h]
            own = spread[begin:end, stage].copy()
            if stage == 0:
                _to_sum(signed, own, held, least[begin:end], most[begin:end])
                if whole:
                    round_rows(signed, held)
            else:
                unmet = _within_groups(signed, own, sums, held, above[stage, :groups], whole, tolerance, most_steps)
                worst = max(worst, unmet)
            sums = signed
        tables[begin:end] = sums[:, labels[stages - 1]]
    return worst


@njit(nogil=True, cache=True, error_model="numpy")
def _within_groups(signed, spread, sums, held, above, whole, tolerance, most_steps):  # pragma: no cover - compiled
    """Divide what each child has of a group of the stage before, and what the parent has of the group's parts."""
    worst = 0.0
    for group in range(sums.shape[1]):
        chosen = np.flatnonzero(above == group)
        part = signed[:, chosen]
        worst = max(worst, _to_margins(part, spread, sums[:, group].copy(), held[chosen], tolerance, most_steps))
        if whole:
            round_table(part, sums[:, group], held[chosen])
        for place in range(len(chosen)):
            signed[:, chosen[place]] = part[:, place]
    return worst


# ----------------------------------------------------------------------------------------------------------------------
# The nearest vector between bounds with a given sum, column by column.


@njit(nogil=True, cache=True, error_model="numpy")
def _to_sum(table, spread, totals, least, most):  # pragma: no cover - compiled
    """Replace each column by min Σ_c (x_c − s_c)²/S_c such that its sum is the total, l ≤ x ≤ u, and x ≥ 0."""
    rows = len(table)
    for h in range(table.shape[1]):
        low, high = np.inf, -np.inf
        for c in range(rows):
            # Beyond these θ the entry is at its upper and at its lower bound.
            floor = max(least[c, h], 0.0)
            high = max(high, (table[c, h] - floor) / spread[c])
            if most[c, h] < np.inf:
                low = min(low, (table[c, h] - most[c, h]) / spread[c])
            else:
                low = min(low, (table[c, h] - floor - totals[h]) / spread[c])
        theta = _theta(table[:, h], spread, totals[h], least[:, h], most[:, h], low, high)
        missing = totals[h]
        for c in range(rows):
            moved = min(max(table[c, h] - theta * spread[c], max(least[c, h], 0.0)), most[c, h])
            table[c, h] = moved
            missing -= moved
        _settle(table[:, h], missing, least[:, h], most[:, h])


@njit(nogil=True, cache=True, error_model="numpy")
def _theta(column, spread, total, least, most, low, high):  # pragma: no cover - compiled
    """The θ at which the clipped column sums to the total: Newton's steps, halving where they leave the bracket."""
    theta = 0.5 * (low + high)
    for _ in range(200):
        found, slope = 0.0, 0.0
        for c in range(len(column)):
            value = column[c] - theta * spread[c]
            floor = max(least[c], 0.0)
            if value <= floor:
                found += floor
            elif value >= most[c]:
                found += most[c]
            else:
                found += value
                slope += spread[c]
        if found > total:
            low = theta
        else:
            high = theta
        step = theta + (found - total) / slope if slope > 0.0 else 0.5 * (low + high)
        if not low < step < high:
            step = 0.5 * (low + high)
        if abs(found - total) <= 1e-14 * (abs(total) + 1e-300) or step == theta or high <= low:
            break
        theta = step
    return theta


@njit(nogil=True, cache=True, error_model="numpy")
def _settle(column, missing, least, most):  # pragma: no cover - compiled
    """What rounding left of the sum goes to, or comes from, entries that have room."""
    for c in range(len(column)):
        if missing == 0.0:
            return
        floor = max(least[c], 0.0)
        if (missing > 0.0 and column[c] > floor and column[c] < most[c]) or (missing < 0.0 and column[c] > floor):
            moved = min(max(column[c] + missing, floor), most[c])
            missing -= moved - column[c]
            column[c] = moved


# ----------------------------------------------------------------------------------------------------------------------
# The nearest non-negative table with given sums of rows and columns.


@njit(nogil=True, cache=True, error_model="numpy")
def _to_margins(table, spread, rows, columns, tolerance, most_steps):  # pragma: no cover - compiled
    """Replace a table by min Σ (x − s)²/S_c such that x ≥ 0 has these margins; return how far a row's sum is off.

    a_c = S_c μ_c are the shifts of the rows. Rows and columns that sum to 0 are 0 and take no part.
    """
    count, width = table.shape
    largest = 0.0
    for c in range(count):
        largest = max(largest, rows[c])
    if largest <= 0.0 or count == 1:
        for c in range(count):
            for h in range(width):
                table[c, h] = columns[h] if largest > 0.0 else 0.0
        return 0.0
    largest = max(largest, 1.0)
    shift, found = np.zeros(count), np.empty_like(table)
    off = _maximise(table, spread, rows, columns, shift, found, tolerance * largest, FIRST_STEPS)
    # Where the signed values are large beside the margins, the dual is almost linear between its kinks. It is not when
    # these are scaled down, and the multipliers of one scale are a good beginning for the next.
    if off > tolerance * largest:
        scale = 1.0 / 4**6
        shift[:] = 0.0
        while scale <= 1.0:
            off = _maximise(scale * table, spread, rows, columns, shift, found, tolerance * largest, most_steps)
            shift *= 4.0
            scale *= 4.0
    table[:, :] = found
    return off / largest


@njit(nogil=True, cache=True, error_model="numpy")
def _maximise(table, spread, rows, columns, shift, found, tolerance, most_steps):  # pragma: no cover - compiled
    """The shifts with the greatest dual, from the given ones; returns how far a row's sum is off then."""
    count, width = table.shape
    direction, theta = np.zeros(count), np.full(width, np.nan)
    largest = rows.max()
    _fill(table, spread, rows, columns, shift, theta, found)
    off = _row_error(found, rows)
    for step in range(most_steps):
        if off <= tolerance:
            break
        if step < 2 or not _newton(found, spread, rows, min(1.0, off / largest), direction):
            _sweep_rows(table, spread, rows, columns, theta, shift)
            _fill(table, spread, rows, columns, shift, theta, found)
        else:
            _search(table, spread, rows, columns, theta, direction, shift, found)
        off = _row_error(found, rows)
    return off


@njit(nogil=True, cache=True, error_model="numpy")
def _fill(table, spread, rows, columns, shift, theta, found):  # pragma: no cover - compiled
    """The best columns given the shifts of the rows. Each θ starts from where it was."""
    count, width = table.shape
    for h in range(width):
        if columns[h] <= 0.0:
            for c in range(count):
                found[c, h] = 0.0
            continue
        bottom, top = -np.inf, 0.0
        for c in range(count):
            if rows[c] > 0.0:
                bottom = max(bottom, (table[c, h] - shift[c]) / spread[c])
                top = max(top, spread[c])
        # The sum is convex and decreasing in θ, and positive below `bottom`: Newton's steps need no bracket there.
        at = theta[h] if theta[h] < bottom else bottom - columns[h] / (top * count)
        for _ in range(100):
            total, slope = 0.0, 0.0
            for c in range(count):
                if rows[c] > 0.0:
                    each = table[c, h] - shift[c] - spread[c] * at
                    if each > 0.0:
                        total += each
                        slope += spread[c]
            step = at + (total - columns[h]) / slope
            if abs(total - columns[h]) <= 1e-14 * columns[h] or step == at:
                break
            at = step
        theta[h] = at
        for c in range(count):
            found[c, h] = max(table[c, h] - shift[c] - spread[c] * at, 0.0) if rows[c] > 0.0 else 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def _search(table, spread, rows, columns, theta, direction, shift, found):  # pragma: no cover - compiled
    """Move the shifts along a direction in which the concave dual rises, to where its slope is half of what it was."""
    start = shift.copy()
    first, low, high, size = _slope(found, spread, rows, direction), 0.0, np.inf, 1.0
    for _ in range(60):
        for c in range(len(rows)):
            shift[c] = start[c] + size * direction[c]
        _fill(table, spread, rows, columns, shift, theta, found)
        slope = _slope(found, spread, rows, direction)
        if abs(slope) <= 0.5 * first:
            break
        if slope > 0.0:
            low = size
        else:
            high = size
        size = 2.0 * low if high == np.inf else 0.5 * (low + high)


@njit(nogil=True, cache=True, error_model="numpy")
def _slope(found, spread, rows, direction):  # pragma: no cover - compiled
    """How fast the dual rises along a direction of the shifts: (Σ_h x_ch − R_c) / S_c for each row."""
    slope = 0.0
    for c in range(len(rows)):
        total = -rows[c]
        for h in range(found.shape[1]):
            total += found[c, h]
        slope += total * direction[c] / spread[c]
    return slope


@njit(nogil=True, cache=True, error_model="numpy")
def _row_error(found, rows):  # pragma: no cover - compiled
    worst = 0.0
    for c in range(len(rows)):
        total = 0.0
        for h in range(found.shape[1]):
            total += found[c, h]
        worst = max(worst, abs(total - rows[c]))
    return worst


@njit(nogil=True, cache=True, error_model="numpy")
def _sweep_rows(table, spread, rows, columns, theta, shift):  # pragma: no cover - compiled
    """The best shift of each row, given the θ of the columns."""
    count, width = table.shape
    for c in range(count):
        if rows[c] <= 0.0:
            continue
        top = -np.inf
        for h in range(width):
            if columns[h] > 0.0:
                top = max(top, table[c, h] - spread[c] * theta[h])
        at = top - rows[c] / width
        for _ in range(100):
            total, kept = 0.0, 0
            for h in range(width):
                if columns[h] > 0.0:
                    each = table[c, h] - spread[c] * theta[h] - at
                    if each > 0.0:
                        total += each
                        kept += 1
            if kept == 0:
                at = 0.5 * (at + top - rows[c])
                continue
            step = at + (total - rows[c]) / kept
            if abs(total - rows[c]) <= 1e-14 * rows[c] or step == at:
                break
            at = step
        shift[c] = at


@njit(nogil=True, cache=True, error_model="numpy")
def _newton(found, spread, rows, error, step):  # pragma: no cover - compiled
    """Newton's step of the shifts, with the columns following; False where the equations have no solution.

    The diagonal is raised by a part of the error, so that directions without curvature have a step, too, and by more
    than rounding errors: equal shifts of all rows change nothing, and a solver fails at a pivot that is 0.

    With the entries above 0 marked, the sum of row c changes by −n_c a_c + Σ_h S_c (Σ_d a_d)/(Σ_d S_d) over the marked
    (d, h); μ = a/S makes that symmetric.
    """
    count, width = found.shape
    matrix, right = np.zeros((count, count)), np.zeros(count)
    for c in range(count):
        right[c] = -rows[c]
    for h in range(width):
        total = 0.0
        for c in range(count):
            if found[c, h] > 0.0:
                total += spread[c]
                right[c] += found[c, h]
        for c in range(count):
            if found[c, h] > 0.0:
                matrix[c, c] += spread[c]
                for d in range(count):
                    if found[d, h] > 0.0:
                        matrix[c, d] -= spread[c] * spread[d] / total
    largest, added = spread.max(), 1e-3 * error * spread.max()
    for c in range(count):
        added = max(added, 1e-12 * matrix[c, c])
    for c in range(count):
        matrix[c, c] += added if rows[c] > 0.0 else largest
    solved = np.linalg.solve(matrix, right)
    for c in range(count):
        step[c] = solved[c] * spread[c]
        if not np.isfinite(step[c]):
            return False
    return True

"""Views without negative counts: Ripple and its plainer rivals, in turn with consistency (Qardaji et al. 2014, §4.4).

Setting negative counts to zero biases every sum upwards, and consistency spreads the bias. *Ripple* takes what it
adds from the neighbours of the cell (see `ripple_kernels`), *Global* from all positive cells alike. A round is one of
these and consistency after it, which leaves smaller negative counts behind. Rounds are alternating steps between two
sets that have points in common, the views with no cell below −θ and the consistent ones.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.kernel_cache import njit
from consilience.kernels.simplex import project_to_simplex
from consilience.marginals.consistency import ROUNDING_OF_VIEWS, ViewConsistency, common_total, without_negative_cells
from consilience.marginals.least_squares import KnownTable
from consilience.marginals.table_stacks import EmptyCells, TableStack, summed

# ----------------------------------------------------------------------------------------------------------------------
# Ripple: negative counts become zero, and their neighbours pay for it (Qardaji et al. 2014, §4.4 and §4.7).
#
# Two cells of a table are neighbours if they differ in the value of one attribute; a cell has k = Σ_i (n_i − 1). A cell
# with a count c < −θ is set to 0 and |c|/k is taken from each neighbour, so the total stays. All cells below −θ do this
# at the same time, then those that are below −θ after it, and so on: the outcome depends on no order of the cells.
#
# It ends. Let P be the matrix that averages over neighbours, x the table with n cells and the total T ≥ 0, and a ≥ 0
# the amounts lifted in a round: a_v = −x_v > θ or a_v = 0. The round takes x to x + (I − P) a. With G the
# pseudo-inverse of I − P, which is positive semi-definite, Φ(x) = xᵀ G x ≥ 0 changes by
#
#     2 aᵀ (I − P) G x + aᵀ (I − P) a  =  2 Σ_v a_v (x_v − T/n) + ‖a‖² − aᵀ P a  ≤  −‖a‖²  <  −θ²,
#
# so at most Φ(x₀)/θ² cells are ever lifted. Without T ≥ 0 there is no end: a table of negative total has no table of
# counts. Its total is set to 0 first, by raising all cells alike. The bound is far above what happens, about
# log(max|x|/θ) divided by the spectral gap of I − P, min n_i / k; a table that takes much longer is left to the caller.


CELLS_PER_QUEUED = 16
"""A round in which fewer than one cell in so many is lifted goes by a queue of them, and other rounds by whole axes."""


@njit(nogil=True, cache=True)
def ripple(tables, sizes, theta, most_rounds):  # pragma: no cover - compiled
    """Let every row ripple in place; returns the lifts made, and marks the rows that were not done in time.

    `sizes` are the sizes of the attributes, first to last, all at least 2.
    """
    cells = tables.shape[1]
    digits, strides = _digits(cells, sizes)
    now = np.empty(cells, dtype=np.int64)
    following = np.empty(cells, dtype=np.int64)
    amounts = np.empty(cells)
    late = np.zeros(tables.shape[0], dtype=np.bool_)
    lifts = 0
    for row in range(tables.shape[0]):
        table = tables[row]
        _raise_total(table)
        count = _below(table, theta, now) if len(sizes) > 0 else 0
        rounds = 0
        while count > 0:
            if rounds == most_rounds:
                late[row] = True
                break
            rounds += 1
            lifts += count
            if count * CELLS_PER_QUEUED > cells:
                _lift_by_axes(table, sizes, theta, amounts)
                count = _below(table, theta, now)
            else:
                count = _lift_queued(table, sizes, theta, amounts, digits, strides, now, count, following)
                now, following = following, now
    return lifts, late


@njit(nogil=True, cache=True)
def _below(table, theta, queue):  # pragma: no cover - compiled
    """Write down the cells below −θ; returns how many there are."""
    count = 0
    for cell in range(table.size):
        queue[count] = cell
        count += table[cell] < -theta
        if count == table.size:
            break
    return count


@njit(nogil=True, cache=True)
def _lift_queued(table, sizes, theta, amounts, digits, strides, now, count, following):  # pragma: no cover - compiled
    """One round for the cells in the queue; counts only fall after, so a cell joins the next queue as it crosses −θ."""
    neighbours = np.sum(sizes) - len(sizes)
    for place in range(count):
        amounts[place] = -table[now[place]] / neighbours
        table[now[place]] = 0.0
    later = 0
    for place in range(count):
        cell, amount = now[place], amounts[place]
        for axis in range(len(sizes)):
            digit, stride = digits[cell, axis], strides[axis]
            for value in range(sizes[axis]):
                if value != digit:
                    other = cell + (value - digit) * stride
                    before = table[other]
                    table[other] = before - amount
                    if before >= -theta and table[other] < -theta:
                        following[later] = other
                        later += 1
    return later


@njit(nogil=True, cache=True)
def _lift_by_axes(table, sizes, theta, amounts):  # pragma: no cover - compiled
    """One round for all cells: along each axis a cell pays what the others on its line were lifted by, over k."""
    neighbours = np.sum(sizes) - len(sizes)
    for cell in range(table.size):
        count = table[cell]
        low = count < -theta
        amounts[cell] = -count / neighbours if low else 0.0
        table[cell] = 0.0 if low else count
    inner = table.size
    for size in sizes:
        outer = inner
        inner //= size
        for block in range(0, table.size, outer):
            if size == 2:
                zero, one = table[block : block + inner], table[block + inner : block + outer]
                for_zero, for_one = amounts[block + inner : block + outer], amounts[block : block + inner]
                for cell in range(inner):
                    zero[cell] -= for_zero[cell]
                    one[cell] -= for_one[cell]
            else:
                for first in range(block, block + inner):
                    paid = 0.0
                    for cell in range(first, first + outer, inner):
                        paid += amounts[cell]
                    for cell in range(first, first + outer, inner):
                        table[cell] -= paid - amounts[cell]


@njit(nogil=True, cache=True)
def _digits(cells, sizes):  # pragma: no cover - compiled
    """Each cell's value on every axis, which is slow to work out again and again, and the strides of the axes."""
    strides = np.ones(len(sizes), dtype=np.int64)
    for axis in range(len(sizes) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * sizes[axis + 1]
    digits = np.empty((cells, len(sizes)), dtype=np.int32)
    for cell in range(cells):
        for axis in range(len(sizes)):
            digits[cell, axis] = cell // strides[axis] % sizes[axis]
    return digits, strides


@njit(nogil=True, cache=True)
def _raise_total(table):  # pragma: no cover - compiled
    """A total below 0 becomes 0, all cells raised alike."""
    total = 0.0
    for cell in range(table.size):
        total += table[cell]
    if total < 0:
        for cell in range(table.size):
            table[cell] -= total / table.size


# ----------------------------------------------------------------------------------------------------------------------
# Views without negative counts: Ripple and its plainer rivals, in turn with consistency (Qardaji et al. 2014, §4.4).


Array = NDArray[np.float64]
Method = Literal["none", "simple", "global", "ripple"]


@dataclass(frozen=True)
class RippleSettings:
    """When rounds of non-negativity and consistency have done their work."""

    thetas_left: float = 2.0
    """They have when no cell is below this many −θ."""
    most_rounds: int = 200
    """Rounds at the most, unless the caller says otherwise; by trial, no figure kept."""
    fine_share: float = 1e-5
    """Before negative cells are mixed away they are brought above −θ of this part of an average cell, so that little
    is mixed."""
    ripples_per_gap: float = 100.0
    """How many rounds a table may ripple, in units of 1/(spectral gap); e^−100 is far below any rounding."""


RIPPLE = RippleSettings()


@dataclass(frozen=True, eq=False)
class NonnegativeViews:
    """Consistent views with few or no negative cells, and what it took to make them."""

    flat: Array
    rounds: int
    """Rounds of non-negativity and consistency after the first consistency, those of `exact` included."""
    most_negative: float
    """The lowest cell where one is below 0; otherwise 0."""
    mixed: float
    """The share of the positive product that was mixed in at the end."""
    changed: float
    """How much mixing changed, all cells of all views summed."""
    disagreement: float
    """The largest difference of a cell between two views' common marginals: rounding alone."""
    unfinished: int
    """How many tables did not ripple to an end and were projected onto the simplex instead."""


def without_negatives(flat: Array, stack: TableStack, *, method: Method, theta: float = 0.0) -> tuple[Array, int]:
    """Each view with its negative counts removed by itself, and how many did not ripple to an end.

    The vector is new, and in general not consistent.

    `none` changes nothing, `simple` sets negative counts to 0, `global` also takes the same from all positive counts
    to keep the total, until none is negative: the nearest table of counts with that total. `ripple` leaves no count
    below −theta, keeps the total, and needs theta above 0. A total below 0 becomes 0 first.

    >>> stack = TableStack((2, 2), [(0, 1)])
    >>> without_negatives(np.array([-4.0, 10.0, 10.0, 10.0]), stack, method="ripple", theta=0.1)[0]
    array([ 0.,  8.,  8., 10.])
    >>> without_negatives(np.array([-4.0, 10.0, 10.0, 10.0]), stack, method="global")[0].round(3)
    array([0.   , 8.667, 8.667, 8.667])
    """
    _check(method, theta)
    found = np.array(flat, dtype=np.float64)
    if method == "simple":
        np.maximum(found, 0.0, out=found)
    if method in ("none", "simple"):
        return found, 0
    unfinished = 0
    for group in stack.groups:
        tables = found[group.start : group.stop].reshape(len(group.scopes), group.cells)
        left = list(range(len(tables)))
        if method == "ripple":
            sizes = np.array([size for size in group.shape if size > 1], dtype=np.int64)
            left = np.flatnonzero(ripple(tables, sizes, theta, _most_ripples(sizes.tolist()))[1]).tolist()
            unfinished += len(left)
        for row in left:
            tables[row] = project_to_simplex(tables[row], max(float(tables[row].sum()), 0.0))
    return found, unfinished


def nonnegative_views(
    consistency: ViewConsistency,
    flat: Array,
    *,
    method: Method = "ripple",
    rounds: int | None = 1,
    theta: float,
    exact: bool = False,
    most_rounds: int = RIPPLE.most_rounds,
) -> NonnegativeViews:
    """Consistent views after some rounds of a non-negativity method and consistency; theta is in counts.

    With `rounds` None they go on until no cell is below −2 theta, `most_rounds` at the most. `exact` leaves no
    negative cell at all: Ripple with a much smaller theta, then a mixture with positive consistent views. Facts that
    the consistency knows stay exact; where facts on several attributes leave no such mixture, `most_negative` says so.
    """
    _check(method, theta, rounds, most_rounds)
    views = _Rounds(consistency, flat)
    while method != "none" and not views.are_enough(rounds, theta, most_rounds):
        views.take(method, theta)
    mixed, changed = 0.0, 0.0
    if exact:
        mixed, changed = views.make_exact(theta, most_rounds)
    return NonnegativeViews(
        flat=views.flat,
        rounds=views.taken,
        most_negative=min(0.0, float(views.flat.min(initial=0.0))),
        mixed=mixed,
        changed=changed,
        disagreement=consistency.disagreement(views.flat),
        unfinished=views.unfinished,
    )


class _Rounds:
    """Consistent views on the way, the rounds so far, and the lowest cell that facts do not force to be 0."""

    def __init__(self, consistency: ViewConsistency, flat: Array) -> None:
        self.consistency = consistency
        self.taken = 0
        self.unfinished = 0
        self.empty = _forced_empty(consistency)
        self._keep(consistency.consistent(flat))

    def _keep(self, flat: Array) -> None:
        self.flat = flat
        self.lowest = float(flat.min(initial=0.0))
        self.astray = 0.0
        if self.empty is not None:
            self.lowest = float(flat.min(initial=0.0, where=~self.empty))
            self.astray = float(np.abs(flat[self.empty]).max(initial=0.0))

    def are_enough(self, rounds: int | None, theta: float, most_rounds: int) -> bool:
        if rounds is None:
            return self.lowest >= -RIPPLE.thetas_left * theta or self.taken >= most_rounds
        return self.taken >= rounds

    def take(self, method: Method, theta: float) -> None:
        flat, unfinished = without_negatives(self.flat, self.consistency.stack, method=method, theta=theta)
        if self.empty is not None:
            flat[self.empty] = 0.0
        self.taken += 1
        self.unfinished += unfinished
        self._keep(self.consistency.consistent(flat))

    def make_exact(self, theta: float, most_rounds: int) -> tuple[float, float]:
        """Leave no negative cell; returns the share mixed in and the change it made, 0 where nothing could be done.

        Ripple with a theta that is small beside an average cell comes first, so that the share is small.
        """
        groups = self.consistency.stack.groups
        last = self.taken + most_rounds
        while self.lowest < 0 or self.astray > 0:
            total = common_total(self.consistency.stack, self.flat)
            fine = min(theta or math.inf, RIPPLE.fine_share * total / max(group.cells for group in groups))
            close = self.lowest >= -RIPPLE.thetas_left * fine and self.astray <= ROUNDING_OF_VIEWS * total
            if total == 0 or close or self.taken >= last:
                break
            self.take("ripple", fine)
        if self.lowest >= 0 and self.astray == 0:
            return 0.0, 0.0
        mixture = without_negative_cells(self.consistency, self.flat, empty=self.empty)
        if mixture is None:
            return 0.0, 0.0
        if self.empty is not None:
            mixture.flat[self.empty] = 0.0
        self._keep(mixture.flat)
        return mixture.share, mixture.change


def _forced_empty(consistency: ViewConsistency) -> NDArray[np.bool_] | None:
    """The cells that must be 0 because a fact has 0 where they belong; None where there is none."""
    facts = EmptyCells()
    for fact in consistency.known:
        facts.add(fact.scope, np.asarray(fact.table) <= 0)
    stack = consistency.stack
    flat = np.zeros(stack.size)
    for scope in stack.scopes if consistency.known else []:
        empty = facts.of(scope)
        if empty is not None:
            stack.table(flat, scope)[...] = empty
    found = flat > 0
    return found if found.any() else None


def _most_ripples(sizes: list[int]) -> int:
    """A limit of rounds for one table, far above what rippling takes."""
    gap = min(sizes, default=1) / max(sum(size - 1 for size in sizes), 1)
    return math.ceil(RIPPLE.ripples_per_gap * (1.0 + 1.0 / gap))


def _check(method: str, theta: float, rounds: int | None = None, most_rounds: int = RIPPLE.most_rounds) -> None:
    if method not in get_args(Method):
        raise DeclarationError(f"the method is {method!r}; choose one of {', '.join(get_args(Method))}")
    if method == "ripple" and not (math.isfinite(theta) and theta > 0):
        raise DeclarationError(
            f"theta is {theta}; Ripple needs a number above 0, such as a tenth of the noise scale, to come to an end"
        )
    if not theta >= 0:
        raise DeclarationError(f"theta is {theta}; give the count below which a cell is negative, 0 or above")
    if (rounds is not None and rounds < 0) or most_rounds < 0:
        raise DeclarationError(f"rounds is {rounds} and most_rounds {most_rounds}; give numbers from 0 up")


# ----------------------------------------------------------------------------------------------------------------------
# The nearest consistent views without negative counts, in squares divided by variances: better than Ripple, and exact.
#
# With Y the noisy views, C the consistent ones and ‖T‖² = Σ_V ‖T_V‖²/σ_V², the problem is
#
#     min ½ ‖T − Y‖²  over T ∈ C, T ≥ 0,
#
# the most likely views if the noise is Gaussian. Its dual over multipliers μ ≥ 0, one for each cell, has the gradient
# T(μ) = P_C(Y + μ), and P_C is the closed form of `ViewConsistency`. Projected gradients with step 1, accelerated and
# restarted (Nesterov 1983; O'Donoghue and Candès 2015), take a few dozen of these passes. Where T(μ) ≥ 0 its squares
# are within 2⟨μ, T(μ)⟩ of the least there are.
#
# *What is held.* Alone, this adds counts wherever there are many empty cells: the noise of a sparse table has more to
# be lifted than to be lowered, and squares share the difference between the cells that were lifted and the total. The
# total and the one-way counts are far more precise than single cells, and lifting them is a bias in every answer. So
# they are held at their least-squares values, made non-negative by themselves: each attribute's nearest counts of the
# same total. That is always possible, by independent attributes. For Kosarak's flags the error of all marginals then is
# a quarter to a third below that of Ripple (`python -m benchmarks views`).


@dataclass(frozen=True)
class NearestSettings:
    """When projected gradients have come near enough; by trial, and no figures were kept."""

    negligible_share: float = 1e-4
    """Negative counts are negligible, and are mixed away, when they are below this part of an average cell."""
    negligible_noise: float = 0.01
    """And below this part of the noise of a cell, where that is less."""
    gap: float = 1e-3
    """How far from the least the squares may be, in parts of them."""
    most_steps: int = 500
    """Steps at the most; a few dozen are usual."""
    steps_between_looks: int = 5
    """Steps from one look at the two above to the next: a look costs as much as a step."""


NEAREST = NearestSettings()


def nearest_views(
    consistency: ViewConsistency, flat: Array, *, most_steps: int = NEAREST.most_steps
) -> NonnegativeViews:
    """The consistent views without negative counts that are nearest to the given ones and have their one-way counts.

    >>> stack = TableStack((2, 2), [(0, 1)])
    >>> found = nearest_views(ViewConsistency(stack, [1.0]), np.array([-4.0, 10.0, 10.0, 10.0]))
    >>> found.flat.round(3)
    array([ 0.,  6.,  6., 14.])
    """
    held = _with_one_way_counts(consistency, flat)
    total = _total(held.stack, held.consistent(flat))
    if total <= 0:
        return NonnegativeViews(np.zeros_like(flat), 0, 0.0, 0.0, 0.0, 0.0, 0)
    average = total / max(group.cells for group in held.stack.groups)
    noise = 1.0 / np.sqrt(held.precisions.max())
    enough = -min(NEAREST.negligible_share * average, NEAREST.negligible_noise * noise)
    views, steps = _projected(held, flat, enough, most_steps)
    mixture = without_negative_cells(consistency, views)
    found, mixed, changed = (views, 0.0, 0.0) if mixture is None else (mixture.flat, mixture.share, mixture.change)
    lowest = min(0.0, float(found.min(initial=0.0)))
    return NonnegativeViews(found, steps, lowest, mixed, changed, consistency.disagreement(found), 0)


def _projected(held: ViewConsistency, flat: Array, enough: float, most_steps: int) -> tuple[Array, int]:
    """The projection, until no cell is below `enough`, and the steps it took."""
    cells = [group.cells for group in held.stack.groups for _ in group.scopes]
    weights = np.repeat(held.precisions / held.precisions.max(), cells)
    multipliers = np.zeros_like(flat)
    views, ahead, momentum = flat, multipliers, 1.0
    for step in range(most_steps):
        if step % NEAREST.steps_between_looks == 0:
            views = held.consistent(flat + multipliers)
            excess = float(weights @ (multipliers * np.maximum(views, 0.0)))
            if views.min(initial=0.0) >= enough and excess <= NEAREST.gap * float(weights @ (views - flat) ** 2):
                return views, step
        moved = np.maximum(ahead - held.consistent(flat + ahead), 0.0)
        if float(np.dot(ahead - moved, moved - multipliers)) > 0:
            momentum = 1.0
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = moved + (momentum - 1.0) / following * (moved - multipliers)
        multipliers, momentum = moved, following
    return views, most_steps


def _with_one_way_counts(consistency: ViewConsistency, flat: Array) -> ViewConsistency:
    """The same views with the total and every attribute's counts as facts, where no fact tells them yet."""
    stack = consistency.stack
    views = consistency.consistent(flat)
    total = max(_total(stack, views), 0.0)
    told = {attribute for fact in consistency.known for attribute in fact.scope}
    facts = list(consistency.known)
    if not facts:
        facts.append(KnownTable((), np.array(total), "the total"))
    for scope in stack.scopes:
        for attribute in scope:
            if attribute not in told:
                told.add(attribute)
                counts = project_to_simplex(summed(stack.table(views, scope), scope, (attribute,)), total)
                facts.append(KnownTable((attribute,), counts, f"the counts of attribute {attribute}"))
    return ViewConsistency(stack, consistency.precisions, facts)


def _total(stack: TableStack, views: Array) -> float:
    return float(stack.table(views, stack.scopes[0]).sum())

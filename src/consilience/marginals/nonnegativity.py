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
from consilience.kernels.compilation import announce
from consilience.kernels.simplex import project_to_simplex
from consilience.marginals.consistency import ViewConsistency
from consilience.marginals.empty_cells import EmptyCells
from consilience.marginals.positive_mixture import ROUNDING, common_total, without_negative_cells
from consilience.marginals.ripple_kernels import ripple
from consilience.marginals.table_stacks import TableStack

Array = NDArray[np.float64]
Method = Literal["none", "simple", "global", "ripple"]

ENOUGH = 2.0
"""Rounds have done their work when no cell is below this many −θ."""

MOST_ROUNDS = 200

FINE_SHARE = 1e-5
"""Before negative cells are mixed away they are brought above this part of an average cell, so that little is mixed."""

RIPPLES_PER_GAP = 100.0
"""How many rounds a table may ripple, in units of 1/(spectral gap); e^−100 is far below any rounding."""


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


def without_negatives(flat: Array, stack: TableStack, *, method: Method = "ripple", theta: float = 0.0) -> Array:
    """Each view with its negative counts removed by itself; a new vector, in general not consistent.

    `none` changes nothing, `simple` sets negative counts to 0, `global` also takes the same from all positive counts
    to keep the total, until none is negative: the nearest table of counts with that total. `ripple` leaves no count
    below −theta, keeps the total, and needs theta above 0. A total below 0 becomes 0 first.

    >>> stack = TableStack((2, 2), [(0, 1)])
    >>> without_negatives(np.array([-4.0, 10.0, 10.0, 10.0]), stack, method="ripple", theta=0.1)
    array([ 0.,  8.,  8., 10.])
    >>> without_negatives(np.array([-4.0, 10.0, 10.0, 10.0]), stack, method="global").round(3)
    array([0.   , 8.667, 8.667, 8.667])
    """
    return _without_negatives(flat, stack, method, theta)[0]


def nonnegative_views(
    consistency: ViewConsistency,
    flat: Array,
    *,
    method: Method = "ripple",
    rounds: int | None = 1,
    theta: float,
    exact: bool = False,
    most_rounds: int = MOST_ROUNDS,
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
            return self.lowest >= -ENOUGH * theta or self.taken >= most_rounds
        return self.taken >= rounds

    def take(self, method: Method, theta: float) -> None:
        flat, unfinished = _without_negatives(self.flat, self.consistency.stack, method, theta)
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
            fine = min(theta or math.inf, FINE_SHARE * total / max(group.cells for group in groups))
            close = self.lowest >= -ENOUGH * fine and self.astray <= ROUNDING * total
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


def _without_negatives(flat: Array, stack: TableStack, method: Method, theta: float) -> tuple[Array, int]:
    """The views without negatives, and how many did not ripple to an end."""
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
            announce(ripple)
            sizes = np.array([size for size in group.shape if size > 1], dtype=np.int64)
            left = np.flatnonzero(ripple(tables, sizes, theta, _most_ripples(sizes.tolist()))[1]).tolist()
            unfinished += len(left)
        for row in left:
            tables[row] = project_to_simplex(tables[row], max(float(tables[row].sum()), 0.0))
    return found, unfinished


def _most_ripples(sizes: list[int]) -> int:
    """A limit of rounds for one table, far above what rippling takes."""
    gap = min(sizes, default=1) / max(sum(size - 1 for size in sizes), 1)
    return math.ceil(RIPPLES_PER_GAP * (1.0 + 1.0 / gap))


def _check(method: str, theta: float, rounds: int | None = None, most_rounds: int = MOST_ROUNDS) -> None:
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

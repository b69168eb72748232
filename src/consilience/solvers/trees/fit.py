"""Consistent counts for trees and forests of noisy values: exact for all losses, with a certificate.

The problem (Lee, Wang and Kifer 2015, §5.2): least Σ_v loss(x_v − y_v) such that every inner count is the sum of its
children's, and no count is negative. Every way of solving it ends in counts and duals, and the duals prove how good
the counts are, whatever happened before:

    all losses        `curves`, or `deep` where trees are high, find the state of every node;
    L2, elastic net   `states` turns states into counts and duals; without x ≥ 0, L2 needs nothing else;
    L1                `states` turns states into duals, and chooses among the optima;
    L1, one weight    on complete trees, `closed_forms` finds duals in linear time.

With `block`, sums of more leaves than that are held at unbiased amounts (`top_down`), and the rest is fitted to them.
"""

from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError, MeasurementError
from consilience.solvers.fit import Array, Fit, Loss, LossName, Status, checked_clipped, checked_noisy, checked_weights
from consilience.solvers.trees.certificate import (
    ABOVE,
    LOW,
    Certificate,
    Costs,
    certify,
    costs_of,
    largest_count,
    likely_window,
    squares_in_box,
)
from consilience.solvers.trees.closed_forms import certify_equal_weights, fit_equal_weights, solve_two_passes
from consilience.solvers.trees.curves import states_by_curves
from consilience.solvers.trees.deep import states_by_ropes
from consilience.solvers.trees.layout import Layout, complete_tree, contradiction_error, find_contradiction, forest
from consilience.solvers.trees.states import SETTINGS as STATES
from consilience.solvers.trees.states import (
    Solution,
    TieRule,
    duals_from_states,
    optimal_box,
    share_box,
    slopes_of_duals,
    solve_pieces,
)
from consilience.solvers.trees.top_down import divide_top_down, rounded


@dataclass(frozen=True)
class TreeSettings:
    """When a fit has converged, and which way it takes; by trial, no figures kept."""

    tolerance: float = 1e-9
    """The relative gap within which a fit has converged."""
    deep: int = 64
    """Ancestors of the average node beyond which ropes are faster than stacked curves."""
    most_ancestors: int = 10**8
    """Ancestors of all nodes together up to which stacked curves, which round less, are tried where ropes did not
    do."""


SETTINGS = TreeSettings()


def fit_tree(
    noisy: ArrayLike,
    branching: int,
    *,
    loss: LossName = "elastic",
    alpha: float = 0.9,
    weights: ArrayLike | None = None,
    nonnegative: bool = True,
    ties: TieRule = "min-l2",
    integers: bool = False,
    clipped: ArrayLike | None = None,
    exact: ArrayLike | None = None,
    block: int | None = None,
) -> Fit:
    """The most likely consistent counts of a complete tree, breadth-first: the root first, the leaves last.

    Every inner node has `branching` children. For the other arguments see `fit_forest`. Histograms whose length is no
    power of the branching go to `fit_forest`, with the parents from `histogram_parents`.

    >>> fit_tree([10, 3, 9], 2, loss="l2").counts
    array([10.66666667,  2.33333333,  8.33333333])
    """
    values = _values(noisy, weights, clipped, exact)
    layout = complete_tree(len(values.noisy), branching)
    return _fit(values, layout, _options(loss, alpha, nonnegative, ties, integers, block), branching=branching)


def fit_forest(
    noisy: ArrayLike,
    parent: ArrayLike,
    *,
    loss: LossName = "elastic",
    alpha: float = 0.9,
    weights: ArrayLike | None = None,
    nonnegative: bool = True,
    ties: TieRule = "min-l2",
    integers: bool = False,
    clipped: ArrayLike | None = None,
    exact: ArrayLike | None = None,
    block: int | None = None,
) -> Fit:
    """The most likely consistent counts of any rooted trees, nodes in any order.

    `parent` names the parent of each node, −1 for a root; every root is the head of a tree of its own. Near-linear in
    the number of nodes, also for paths and stars.

    `loss` is "l1", "l2" or "elastic" with the share `alpha` of the absolute value (see `solvers.fit`). `weights`
    are 1/(scale of the noise), by default 1; weight 0 marks a value that was not measured, which is then ignored.
    Leaves that nothing tells apart get equal shares. `nonnegative=False` lets counts be negative.

    The L1 optimum is not unique, and `ties` says which is taken: "min-l2" the one of least Σ w²r² (the limit of the
    elastic net for α → 1), "proportional", or "vertex" (see `states`). The other losses have one optimum.

    `integers=True` returns whole numbers. For "l1" and whole data they are exact optima under every tie rule. For the
    other losses, and for data that are not whole, the optimum is rounded so that it stays consistent and non-negative,
    each count within 1; `objective` and `gap` are then those of the rounded counts.

    `clipped` marks values that the publisher set from negative to 0. On x ≥ 0 they cost what a measured 0 costs; with
    `nonnegative=False` they cost nothing below 0 (see `solvers.fit` for what that means for each loss).

    `exact` marks values that are no measurements but facts: those counts are kept as they are given, whatever their
    weights say. Exact counts that contradict each other raise `Infeasible`, with the least violation and their nodes.

    `block` keeps large sums unbiased, which no non-negative optimum is where leaves are empty: the total, and every
    node with more than so many leaves, has what least squares without a sign say, divided from the top down (see
    `top_down`); the subtrees below, of up to `block` leaves, are fitted by the loss to what they were given. 1 divides
    down to the leaves, and None, the default, fits all nodes at once. `objective` counts all measured nodes, and `gap`
    is towards the best counts with these sums. Values that were clipped at 0 leave no unbiased sums to keep.

    The result's status is CONVERGED where the relative gap is at most 1e-9 or within rounding of the objective.

    >>> fit_forest([3, 10, 9], [1, -1, 1], loss="l1", ties="vertex").counts
    array([ 3., 10.,  7.])
    """
    values = _values(noisy, weights, clipped, exact)
    layout = forest(parent, len(values.noisy))
    return _fit(values, layout, _options(loss, alpha, nonnegative, ties, integers, block))


@dataclass(frozen=True, eq=False)
class _Values:
    """Checked noisy values, in the caller's order or in breadth-first order."""

    noisy: Array
    weights: Array
    clipped: NDArray[np.bool_] | None
    exact: NDArray[np.bool_] | None = None

    @property
    def have_one_weight(self) -> bool:
        return bool(self.weights[0] > 0 and np.all(self.weights == self.weights[0]))


@dataclass(frozen=True)
class _Options:
    loss: Loss
    nonnegative: bool
    ties: TieRule
    integers: bool
    block: int | None = None


@dataclass(frozen=True, eq=False)
class _Optimum:
    """Counts and duals in breadth-first order, what the duals prove, and how they were found."""

    counts: Array
    duals: Array
    certificate: Certificate
    stats: dict[str, Any]


def _values(noisy: ArrayLike, weights: ArrayLike | None, clipped: ArrayLike | None, exact: ArrayLike | None) -> _Values:
    shape = np.shape(noisy)  # type: ignore[arg-type]
    if len(shape) != 1:
        raise MeasurementError(f"the noisy values have shape {shape}; give one value for each node, in one dimension")
    checked, facts = checked_weights(weights, shape), _checked_exact(exact, shape)
    if facts is not None:
        checked[facts] = 1.0
    values = checked_noisy(noisy, weights=checked)
    return _Values(values, checked, checked_clipped(clipped, values), facts)


def _checked_exact(exact: ArrayLike | None, shape: tuple[int, ...]) -> NDArray[np.bool_] | None:
    """Which values are exact; None where none is."""
    if exact is None:
        return None
    mask = np.asarray(exact)
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise MeasurementError(
            f"`exact` has shape {mask.shape} and type {mask.dtype} for noisy values of shape {shape}; "
            "give True or False for each"
        )
    return mask if np.any(mask) else None


def _options(loss: str, alpha: float, nonnegative: bool, ties: TieRule, integers: bool, block: int | None) -> _Options:
    if ties not in get_args(TieRule):
        raise DeclarationError(f"the tie rule is {ties!r}; choose one of {', '.join(get_args(TieRule))}")
    if block is not None and (not isinstance(block, int | np.integer) or block < 1):
        raise DeclarationError(f"the block is {block!r}; give the leaves of a subtree, 1 or more, or None")
    if block is not None and not nonnegative:
        raise DeclarationError("a block keeps sums that x ≥ 0 would bias; leave it out where counts may be negative")
    return _Options(Loss.named(loss, alpha=alpha), bool(nonnegative), ties, bool(integers), block)


def _fit(values: _Values, layout: Layout, options: _Options, *, branching: int | None = None) -> Fit:
    values = _Values(
        layout.arranged(values.noisy),
        layout.arranged(values.weights),
        None if values.clipped is None or options.nonnegative else layout.arranged(values.clipped),
        None if values.exact is None else layout.arranged(values.exact),
    )
    _check_exact_counts(layout, values, options)
    measured = values
    if options.block is not None:
        values = _with_sums_held(layout, values, options.block)
    straight = options.loss.square == 0
    alike = values.clipped is None and values.exact is None and values.have_one_weight
    if straight and branching is not None and alike:
        optimum = _fit_equal_weights(layout, values, options, branching)
    elif straight:
        optimum = _fit_straight(layout, values, options)
    else:
        optimum = _fit_curved(layout, values, options)
    certificate, counts = optimum.certificate, optimum.counts
    status = Status.CONVERGED if certificate.within(SETTINGS.tolerance) else Status.STALLED
    stats = {"nodes": layout.nodes, **optimum.stats, "relative_gap": certificate.relative_gap}
    objective, gap = certificate.objective, certificate.gap
    if options.block is not None:
        objective = _misfit(measured, options.loss, counts)
    if options.integers:
        counts = rounded(layout, counts)
        if options.block is None:
            costs, bound = _costs(layout, values, options), largest_count(values.noisy)
            certificate = certify(layout, costs, counts, optimum.duals, bound=bound)
            objective, gap = certificate.objective, certificate.gap
        else:
            least, objective = objective - gap, _misfit(measured, options.loss, counts)
            gap = max(objective - least, 0.0)
    return Fit(layout.returned(counts), objective, gap, status, stats)


def _misfit(values: _Values, loss: Loss, counts: Array) -> float:
    """What counts cost as measurements, also those that were held."""
    weights = values.weights if values.exact is None else np.where(values.exact, 0.0, values.weights)
    return loss.value(counts, values.noisy, weights)


def _with_sums_held(layout: Layout, values: _Values, block: int) -> _Values:
    """The values in which the largest nodes with up to `block` leaves have exact counts: unbiased, divided top-down."""
    weights = values.weights if values.exact is None else np.where(values.exact, 0.0, values.weights)
    signed = _fit_curved(layout, replace(values, clipped=None), _Options(Loss.named("l2"), False, "min-l2", False))
    amounts, held, above = divide_top_down(layout, signed.counts, weights, values.exact, block=block)
    if values.exact is None:
        return replace(values, noisy=np.where(held, amounts, values.noisy), exact=held)
    # Facts above are met by the sums that are held.
    return _Values(
        np.where(held, amounts, values.noisy),
        np.where(above & values.exact, 0.0, values.weights),
        None,
        held | (values.exact & ~above),
    )


def _costs(layout: Layout, values: _Values, options: _Options) -> Costs:
    noisy, weights, clipped = values.noisy, values.weights, values.clipped
    return costs_of(
        layout, options.loss, noisy, weights, clipped=clipped, exact=values.exact, nonnegative=options.nonnegative
    )


def _check_exact_counts(layout: Layout, values: _Values, options: _Options) -> None:
    """Refuse exact counts that contradict each other, or that are not whole where whole counts are asked for."""
    noisy, exact = values.noisy, values.exact
    if exact is None:
        return
    found = find_contradiction(layout, noisy, exact, nonnegative=options.nonnegative)
    if found:
        squares = replace(options, loss=Loss.named("l2"), integers=False)
        nearest = _fit_curved(layout, _Values(noisy, exact.astype(np.float64), None), squares)
        violation = float(np.abs(nearest.counts - noisy)[exact].max())
        names = np.arange(layout.nodes) if layout.order is None else layout.order
        named = [(int(names[v]), float(noisy[v])) for v in found]
        raise contradiction_error(named[0], named[1:], violation)
    if options.integers and np.any(noisy[exact] != np.round(noisy[exact])):
        part = noisy[exact][noisy[exact] != np.round(noisy[exact])][0]
        raise DeclarationError(f"whole counts are asked for, and one must be exactly {part:.10g}; leave out `integers`")


def _states(layout: Layout, costs: Costs, bound: float) -> tuple[NDArray[np.int8], str]:
    """The state of every node at the optimum, and the name of the way there."""
    if layout.total_depth > SETTINGS.deep * layout.nodes:
        return states_by_ropes(layout, costs, bound), "ropes"
    return states_by_curves(layout, costs, bound), "curves"


def _solve_curved(layout: Layout, costs: Costs, bound: float) -> tuple[Solution, str]:
    """The optimum of costs with curvature, and the name of the way there."""
    if layout.total_depth > SETTINGS.deep * layout.nodes:
        solved = solve_pieces(layout, costs, states_by_ropes(layout, costs, bound), bound=bound)
        if solved.certificate.within(SETTINGS.tolerance) or layout.total_depth > SETTINGS.most_ancestors:
            return solved, "ropes"
        return solve_pieces(layout, costs, states_by_curves(layout, costs, bound), bound=bound), "curves"
    states = states_by_curves(layout, costs, bound, window=likely_window(layout, costs))
    solved = solve_pieces(layout, costs, states, bound=bound)
    if not solved.certificate.gap <= STATES.tight * solved.certificate.objective:
        solved = solve_pieces(layout, costs, states_by_curves(layout, costs, bound), bound=bound)
    return solved, "curves"


def _fit_curved(layout: Layout, values: _Values, options: _Options) -> _Optimum:
    """L2 and the elastic net: the states, unless every node has one piece only, then linear algebra."""
    one_piece = options.loss.linear == 0 and not options.nonnegative and values.clipped is None
    if one_piece and values.exact is None and values.weights.min() > 0:
        free = solve_two_passes(layout, values.noisy, values.weights)
        if free.certificate.gap <= STATES.tight * free.certificate.objective:
            return _Optimum(free.counts, free.duals, free.certificate, {"method": "two passes", "steps": 1})
    costs, bound = _costs(layout, values, options), largest_count(values.noisy)
    if one_piece:
        states, method = np.full(layout.nodes, ABOVE, dtype=np.int8), "two passes"
        if values.exact is not None:
            states[values.exact] = LOW
        solved = solve_pieces(layout, costs, states, bound=bound)
    else:
        solved, method = _solve_curved(layout, costs, bound)
    stats = {"method": method, "steps": solved.steps}
    return _Optimum(solved.counts, solved.duals, solved.certificate, stats)


def _fit_straight(layout: Layout, values: _Values, options: _Options) -> _Optimum:
    """L1: the states give duals, and the tie rule chooses among the optima that these prove."""
    costs, bound = _costs(layout, values, options), largest_count(values.noisy)
    states, method = _states(layout, costs, bound)
    duals, slopes = duals_from_states(layout, costs, states)
    return _choose(layout, costs, duals, slopes, options.ties, bound=bound, method=method)


def _fit_equal_weights(layout: Layout, values: _Values, options: _Options, branching: int) -> _Optimum:
    """L1 on a complete tree with one weight: the solver shares ties in proportion, other rules choose anew."""
    noisy, weight, nonnegative = values.noisy, float(values.weights[0]), options.nonnegative
    counts, duals = fit_equal_weights(noisy, branching, layout.height, nonnegative=nonnegative)
    method = "breakpoints"
    if options.ties == "proportional":
        certificate = certify_equal_weights(noisy, branching, counts, duals, weight=weight, nonnegative=nonnegative)
        return _Optimum(counts, weight * duals, certificate, {"method": method, "ties": options.ties})
    duals *= weight
    costs, bound = _costs(layout, values, options), largest_count(noisy)
    return _choose(layout, costs, duals, slopes_of_duals(layout, duals), options.ties, bound=bound, method=method)


def _choose(
    layout: Layout, costs: Costs, duals: Array, slopes: Array, ties: TieRule, *, bound: float, method: str
) -> _Optimum:
    """The tie rule's choice among the L1 optima that the duals prove."""
    lower, upper = optimal_box(costs, duals, slopes)
    stats: dict[str, Any] = {"method": method, "ties": ties}
    if ties == "min-l2":
        boxed = squares_in_box(costs, lower, upper)
        solved, _ = _solve_curved(layout, boxed, bound)
        counts, stats["tie_gap"] = solved.counts, solved.certificate.relative_gap
    else:
        counts = share_box(layout, lower, upper, whole=ties == "vertex")
    return _Optimum(counts, duals, certify(layout, costs, counts, duals, bound=bound), stats)

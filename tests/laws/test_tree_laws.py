"""Laws of fitted trees that hold for all values, weights, losses and shapes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.solvers.fit import Loss, Status
from consilience.solvers.trees.fit import fit_forest, fit_tree
from consilience.solvers.trees.layout import histogram_parents

LOSSES = st.sampled_from(["l1", "l2", "elastic"])
TIES = st.sampled_from(["min-l2", "proportional", "vertex"])
VALUES = st.one_of(st.integers(-20, 60).map(float), st.floats(-50, 200).map(lambda value: round(value, 9)))
WEIGHTS = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.floats(0.01, 100))


@st.composite
def forests(draw, largest=24):
    """Any forest: a node's parent is an earlier one or none; the nodes are then shuffled."""
    nodes = draw(st.integers(1, largest))
    grown = [draw(st.integers(-1, v - 1)) if v else -1 for v in range(nodes)]
    shuffle = draw(st.permutations(range(nodes)))
    parent = np.empty(nodes, dtype=np.int64)
    for v, up in enumerate(grown):
        parent[shuffle[v]] = -1 if up < 0 else shuffle[up]
    return parent


@st.composite
def problems(draw):
    parent = draw(forests())
    noisy = np.array(draw(st.lists(VALUES, min_size=len(parent), max_size=len(parent))))
    weights = np.array(draw(st.lists(WEIGHTS, min_size=len(parent), max_size=len(parent))))
    return parent, noisy, weights


def child_sums(parent, counts):
    """For each inner node, its count and the sum of its children's."""
    children = parent >= 0
    totals = np.bincount(parent[children], counts[children], minlength=len(parent))
    inner = np.isin(np.arange(len(parent)), parent)
    return counts[inner], totals[inner]


@settings(max_examples=60, deadline=None)
@given(problems(), LOSSES, TIES, st.booleans(), st.floats(0.05, 0.95))
def test_fits_are_consistent_certified_and_within_bounds(problem, loss, ties, nonnegative, alpha):
    parent, noisy, weights = problem
    fit = fit_forest(noisy, parent, loss=loss, alpha=alpha, weights=weights, nonnegative=nonnegative, ties=ties)
    inner, totals = child_sums(parent, fit.counts)
    np.testing.assert_allclose(inner, totals, rtol=1e-9, atol=1e-9)
    assert fit.counts.min() >= 0 or not nonnegative
    assert fit.status == Status.CONVERGED
    assert fit.gap >= 0
    value = Loss.named(loss, alpha=alpha).value(fit.counts, np.where(weights > 0, noisy, 0.0), weights)
    assert fit.objective == pytest.approx(value, rel=1e-9, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(problems(), LOSSES, TIES, st.booleans(), st.sampled_from([1e-6, 0.3, 7.0, 1e5]))
def test_a_change_of_units_changes_nothing_else(problem, loss, ties, nonnegative, unit):
    """fit(c·y, w/c) = c·fit(y, w): exactly so for powers of 2, and up to rounding for others."""
    parent, noisy, weights = problem
    fits = [
        fit_forest(c * noisy, parent, loss=loss, weights=weights / c, nonnegative=nonnegative, ties=ties)
        for c in (1.0, 8.0, unit)
    ]
    assert np.array_equal(fits[1].counts, 8.0 * fits[0].counts)
    assert fits[2].objective == pytest.approx(fits[0].objective, rel=1e-9, abs=1e-9)
    if loss != "l1":
        scale = max(1.0, float(np.abs(noisy).max()))
        np.testing.assert_allclose(fits[2].counts, unit * fits[0].counts, rtol=1e-6, atol=1e-6 * unit * scale)


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from(["l2", "elastic"]), st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_children_does_not_matter(problem, loss, nonnegative, random):
    parent, noisy, weights = problem
    weights = np.maximum(weights, 0.01)
    places = list(range(len(parent)))
    random.shuffle(places)
    shuffle = np.array(places)
    shuffled = np.empty_like(parent)
    shuffled[shuffle] = np.where(parent < 0, -1, shuffle[parent])
    values, weighed = np.empty(len(parent)), np.empty(len(parent))
    values[shuffle], weighed[shuffle] = noisy, weights
    one = fit_forest(noisy, parent, loss=loss, weights=weights, nonnegative=nonnegative)
    other = fit_forest(values, shuffled, loss=loss, weights=weighed, nonnegative=nonnegative)
    np.testing.assert_allclose(other.counts[shuffle], one.counts, rtol=1e-7, atol=1e-7)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(0, 4), st.sampled_from(["min-l2", "proportional"]))
def test_swapping_sister_trees_swaps_their_counts(seed, branching, height, ties):
    """Also among the L1 optima: neither rule prefers a child for its place."""
    rng = np.random.default_rng(seed)
    parent = histogram_parents(branching**height, branching)
    noisy = rng.integers(0, 12, len(parent)).astype(float)
    order = [0]
    level = [0]
    while level[0] * branching + 1 < len(parent):
        level = [branching * v + 1 + c for v in level for c in rng.permutation(branching)]
        order.extend(level)
    order = np.array(order)
    fit, swapped = (fit_tree(values, branching, loss="l1", ties=ties) for values in (noisy, noisy[order]))
    np.testing.assert_allclose(swapped.counts, fit.counts[order], atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(problems(), LOSSES, st.booleans())
def test_a_fit_of_a_fit_is_itself(problem, loss, nonnegative):
    parent, noisy, weights = problem
    fit = fit_forest(noisy, parent, loss=loss, weights=weights, nonnegative=nonnegative)
    again = fit_forest(fit.counts, parent, loss=loss, nonnegative=nonnegative)
    scale = max(1.0, float(np.abs(fit.counts).max()))
    np.testing.assert_allclose(again.counts, fit.counts, atol=1e-9 * scale)


@settings(max_examples=40, deadline=None)
@given(problems(), LOSSES, st.integers(0, 2**32))
def test_no_other_consistent_counts_are_better_than_the_bound(problem, loss, seed):
    parent, noisy, weights = problem
    rng = np.random.default_rng(seed)
    fit = fit_forest(noisy, parent, loss=loss, weights=weights)
    measured = np.where(weights > 0, noisy, 0.0)
    inner = np.isin(np.arange(len(parent)), parent)
    leaves = np.nonzero(~inner)[0]
    for spread in (0.1, 3.0, 30.0):
        other = np.zeros(len(parent))
        for leaf in leaves:
            count, v = max(0.0, fit.counts[leaf] + rng.normal(0, spread)), leaf
            while v >= 0:
                other[v] += count
                v = parent[v]
        value = Loss.named(loss).value(other, measured, weights)
        assert value >= (fit.objective - fit.gap) * (1 - 1e-12)


@settings(max_examples=40, deadline=None)
@given(problems(), LOSSES, TIES, st.booleans())
def test_whole_fits_are_whole_consistent_and_near(problem, loss, ties, nonnegative):
    parent, noisy, weights = problem
    options = {"loss": loss, "ties": ties, "weights": weights, "nonnegative": nonnegative}
    whole = fit_forest(np.rint(noisy), parent, integers=True, **options)
    inner, totals = child_sums(parent, whole.counts)
    assert np.array_equal(inner, totals)
    assert np.array_equal(whole.counts, np.rint(whole.counts))
    assert whole.counts.min() >= 0 or not nonnegative
    near = fit_forest(np.rint(noisy), parent, **options)
    assert np.abs(whole.counts - near.counts).max() < 1 + 1e-6
    if loss == "l1":
        assert whole.objective == pytest.approx(near.objective, rel=1e-9, abs=1e-9)


BLOCKS = st.sampled_from([1, 2, 5, 32])


@settings(max_examples=60, deadline=None)
@given(problems(), LOSSES, BLOCKS, st.booleans())
def test_fits_with_sums_held_are_consistent_certified_and_keep_the_total(problem, loss, block, whole):
    parent, noisy, weights = problem
    fit = fit_forest(noisy, parent, loss=loss, weights=weights, block=block, integers=whole)
    inner, totals = child_sums(parent, fit.counts)
    np.testing.assert_allclose(inner, totals, rtol=1e-9, atol=1e-9)
    assert fit.counts.min() >= 0
    assert fit.status == Status.CONVERGED
    value = Loss.named(loss).value(fit.counts, np.where(weights > 0, noisy, 0.0), weights)
    assert fit.objective == pytest.approx(value, rel=1e-9, abs=1e-12)
    weights = np.maximum(weights, 0.01)
    fit = fit_forest(noisy, parent, loss=loss, weights=weights, block=block)
    signed = fit_forest(noisy, parent, loss="l2", weights=weights, nonnegative=False)
    total = max(float(signed.counts[parent < 0].sum()), 0.0)
    assert float(fit.counts[parent < 0].sum()) == pytest.approx(total, rel=1e-9, abs=1e-7)


@settings(max_examples=40, deadline=None)
@given(problems(), BLOCKS, st.sampled_from([1e-6, 0.3, 7.0, 1e5]))
def test_a_change_of_units_changes_nothing_else_where_sums_are_held(problem, block, unit):
    parent, noisy, weights = problem
    fits = [fit_forest(c * noisy, parent, weights=weights / c, block=block) for c in (1.0, 8.0, unit)]
    assert np.array_equal(fits[1].counts, 8.0 * fits[0].counts)
    scale = max(1.0, float(np.abs(noisy).max()))
    np.testing.assert_allclose(fits[2].counts, unit * fits[0].counts, rtol=1e-6, atol=1e-6 * unit * scale)


@settings(max_examples=40, deadline=None)
@given(problems(), BLOCKS, st.data())
def test_sums_are_held_around_any_facts(problem, block, data):
    """Facts that some non-negative counts have are met, with every weight and block."""
    parent, noisy, weights = problem
    inner = np.isin(np.arange(len(parent)), parent)
    known = np.zeros(len(parent))
    for leaf in np.nonzero(~inner)[0]:
        count, v = data.draw(st.integers(0, 9)), leaf
        while v >= 0:
            known[v] += count
            v = parent[v]
    exact = np.array(data.draw(st.lists(st.booleans(), min_size=len(parent), max_size=len(parent))))
    fit = fit_forest(np.where(exact, known, noisy), parent, weights=weights, exact=exact, block=block)
    np.testing.assert_allclose(fit.counts[exact], known[exact], atol=1e-9)
    sums, totals = child_sums(parent, fit.counts)
    np.testing.assert_allclose(sums, totals, rtol=1e-9, atol=1e-9)
    assert fit.counts.min() >= 0
    assert fit.status == Status.CONVERGED

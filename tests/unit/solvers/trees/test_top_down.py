"""Large sums stay as least squares without a sign have them, divided as dense algebra divides them."""

import numpy as np
import pytest
import scipy.optimize

from consilience.errors import DeclarationError
from consilience.solvers.fit import Loss, Status
from consilience.solvers.trees.fit import fit_forest, fit_tree
from consilience.solvers.trees.layout import histogram_parents


def leaves_under(parent: np.ndarray) -> np.ndarray:
    """The matrix that takes the counts of the leaves to those of all nodes."""
    leaves = np.setdiff1d(np.arange(len(parent)), parent)
    under = np.zeros((len(parent), len(leaves)))
    for column, leaf in enumerate(leaves):
        v = leaf
        while v >= 0:
            under[v, column] = 1.0
            v = parent[v]
    return under


def random_forest(seed: int):
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 40))
    grown = [-1 if v == 0 or rng.random() < 0.1 else int(rng.integers(max(0, v - 9), v)) for v in range(nodes)]
    parent = np.array(grown)
    under = leaves_under(parent)
    truth = rng.poisson(1.0, under.shape[1])
    return parent, under @ truth + rng.laplace(0, 3, nodes), 10 ** rng.uniform(-1, 1, nodes)


def divided(total, signed, variances):
    """Bisection for the θ at which Σ max(s − θ·S, 0) is the total."""

    def excess(theta):
        return np.maximum(signed - theta * variances, 0.0).sum() - total

    low, high = ((signed.sum() - total) / variances.sum() - 1.0), (signed / variances).max() + 1.0
    theta = scipy.optimize.brentq(excess, low, high, xtol=1e-15) if excess(low) > 0 else low
    return np.maximum(signed - theta * variances, 0.0)


def top_down_by_dense_algebra(parent, noisy, weights):
    """Signed least squares, then each amount divided by the variances of the subtrees' own measurements."""
    under = leaves_under(parent)
    squares = under.T @ (weights[:, None] ** 2 * under)
    signed = under @ np.linalg.solve(squares, under.T @ (weights**2 * noisy))

    def variance(v):
        columns = np.flatnonzero(under[v])
        inside = np.flatnonzero(under[:, columns].any(axis=1) & (under.sum(axis=1) <= columns.size))
        inside = [u for u in inside if u == v or not under[u, columns].all() or is_below(u, v)]
        part = under[np.ix_(inside, columns)]
        return float(np.linalg.inv(part.T @ (weights[inside][:, None] ** 2 * part)).sum())

    def is_below(u, v):
        while u >= 0 and u != v:
            u = parent[u]
        return u == v

    variances = np.array([variance(v) for v in range(len(parent))])
    counts = np.zeros(len(parent))

    def give(children, total):
        counts[children] = divided(total, signed[children], variances[children])
        for child in children:
            below = np.flatnonzero(parent == child)
            if below.size:
                give(below, counts[child])

    roots = np.flatnonzero(parent == -1)
    give(roots, max(float(signed[roots].sum()), 0.0))
    return counts


@pytest.mark.parametrize("seed", range(40))
def test_blocks_of_one_leaf_are_divided_as_dense_algebra_divides_them(seed):
    parent, noisy, weights = random_forest(seed)
    fit = fit_forest(noisy, parent, weights=weights, block=1)
    slow = top_down_by_dense_algebra(parent, noisy, weights)
    np.testing.assert_allclose(fit.counts, slow, atol=1e-8 * max(1.0, np.abs(noisy).max()))
    assert fit.status == Status.CONVERGED
    assert fit.objective == pytest.approx(Loss.named("elastic").value(fit.counts, noisy, weights))


@pytest.mark.parametrize("loss", ["l1", "l2", "elastic"])
@pytest.mark.parametrize("block", [2, 4, 8, 100])
def test_blocks_of_more_leaves_are_fitted_by_the_loss_to_what_they_were_given(loss, block):
    rng = np.random.default_rng(block)
    parent = histogram_parents(16, 2)
    noisy = leaves_under(parent) @ rng.poisson(0.7, 16) + rng.laplace(0, 2, len(parent))
    fit = fit_tree(noisy, 2, loss=loss, block=block)
    divided_all_the_way = fit_tree(noisy, 2, loss=loss, block=1)
    under = leaves_under(parent)
    held = under.sum(axis=1) == min(block, 16)
    np.testing.assert_allclose(fit.counts[held], divided_all_the_way.counts[held], atol=1e-9)
    given = fit_tree(np.where(held, divided_all_the_way.counts, noisy), 2, loss=loss, exact=held)
    np.testing.assert_allclose(fit.counts, given.counts, atol=1e-8)


def test_the_total_of_sparse_counts_is_that_of_least_squares():
    rng = np.random.default_rng(3)
    truth = np.zeros(1024)
    truth[rng.choice(1024, 30, replace=False)] = 100.0
    noisy = leaves_under(histogram_parents(1024, 2)) @ truth + rng.laplace(0, 30, 2047)
    signed = fit_tree(noisy, 2, loss="l2", nonnegative=False)
    held, free = fit_tree(noisy, 2, block=32), fit_tree(noisy, 2)
    assert held.counts[0] == pytest.approx(signed.counts[0], rel=1e-12)
    assert free.counts[0] > signed.counts[0] + 30
    assert held.counts.min() >= 0


def test_roots_without_a_parent_keep_the_sum_of_their_noisy_values():
    noisy = np.random.default_rng(0).laplace(0, 10, 5000)
    noisy[:50] += 200
    fit = fit_forest(noisy, np.full(5000, -1), block=32)
    assert fit.counts.sum() == pytest.approx(noisy.sum(), rel=1e-12)
    assert fit.counts.min() >= 0


def test_nothing_is_left_where_least_squares_say_less_than_nothing():
    assert np.array_equal(fit_tree([-9.0, 2.0, -4.0], 2, block=1).counts, np.zeros(3))


def test_facts_are_met_at_the_price_of_the_others():
    parent = histogram_parents(4, 2)
    noisy = np.array([2.0, 0.0, 0.0, 5.0, -1.0, 1.0, 1.0])
    exact = np.array([False, False, False, True, False, False, False])
    for block in (1, 2, 4):
        fit = fit_forest(noisy, parent, exact=exact, block=block)
        assert fit.counts[3] == pytest.approx(5.0)
        assert fit.counts[0] >= 5.0
    exact[0], noisy[0] = True, 12.0
    assert fit_forest(noisy, parent, exact=exact, block=1).counts[0] == pytest.approx(12.0)


def test_what_nobody_measured_takes_what_the_others_leave():
    noisy, weights = np.array([10.0, 4.0, 3.0, 0.0]), np.array([1.0, 1.0, 1.0, 0.0])
    parent = np.array([-1, 0, 0, 0])
    assert fit_forest(noisy, parent, weights=weights, block=1).counts == pytest.approx([10.0, 4.0, 3.0, 3.0])
    noisy[0] = 5.0
    assert fit_forest(noisy, parent, weights=weights, block=1).counts[3] == 0.0


@pytest.mark.parametrize("block", [0, 2.5, "many"])
def test_blocks_that_are_no_number_of_leaves_are_refused(block):
    with pytest.raises(DeclarationError, match="leaves of a subtree"):
        fit_tree([1.0, 2.0, 3.0], 2, block=block)


def test_blocks_are_for_counts_without_negative_ones():
    with pytest.raises(DeclarationError, match="may be negative"):
        fit_tree([1.0, 2.0, 3.0], 2, nonnegative=False, block=4)

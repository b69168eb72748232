"""Counts that are known exactly are kept; the rest is fitted as if by a general solver; contradictions are named."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from consilience.errors import DeclarationError, MeasurementError
from consilience.solvers.fit import Infeasible, Loss, Status
from consilience.solvers.trees import fit as tree_fit
from consilience.solvers.trees.fit import fit_forest, fit_tree
from consilience.solvers.trees.layout import histogram_parents

LOSSES = ("l1", "l2", "elastic")


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


def random_problem(seed: int):
    """A forest in shuffled order, noisy values, weights, and exact counts that some consistent counts have."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 24))
    grown = [-1 if v == 0 or rng.random() < 0.1 else int(rng.integers(max(0, v - 6), v)) for v in range(nodes)]
    if seed % 5 == 0:
        grown = list(range(-1, nodes - 1))
    shuffle = rng.permutation(nodes)
    parent = np.empty(nodes, dtype=np.int64)
    for v, up in enumerate(grown):
        parent[shuffle[v]] = -1 if up < 0 else shuffle[up]
    nonnegative = bool(rng.random() < 0.7)
    under = leaves_under(parent)
    truth = rng.poisson(2, under.shape[1]).astype(float) - (0 if nonnegative else 2)
    exact = rng.random(nodes) < rng.choice([0.15, 0.4, 0.9])
    noisy = np.where(exact, under @ truth, under @ truth + np.round(rng.laplace(0, 3, nodes), int(rng.integers(0, 3))))
    weights = [np.ones(nodes), rng.choice([0.0, 0.5, 2.0], nodes), 10 ** rng.uniform(-2, 2, nodes)][seed % 3]
    return parent, noisy, weights, exact, nonnegative


def least_absolute(under, noisy, weights, exact, nonnegative) -> float:
    """The least Σ w|x − y| over the other nodes with the exact counts met, by HiGHS."""
    leaves, rows, number = under.shape[1], ~exact, int((~exact).sum())
    system = np.block(
        [[under[rows], -np.eye(number), np.eye(number)], [under[exact], np.zeros((int(exact.sum()), 2 * number))]]
    )
    right = np.concatenate([noisy[rows], noisy[exact]])
    cost = np.concatenate([np.zeros(leaves), weights[rows], weights[rows]])
    bounds = [(0 if nonnegative else None, None)] * leaves + [(0, None)] * (2 * number)
    solved = scipy.optimize.linprog(cost, A_eq=system, b_eq=right, bounds=bounds)
    assert solved.status == 0
    return float(solved.fun)


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("ties", ["min-l2", "proportional", "vertex"])
def test_l1_objectives_equal_the_linear_program(seed, ties):
    parent, noisy, weights, exact, nonnegative = random_problem(seed)
    fit = fit_forest(noisy, parent, loss="l1", weights=weights, exact=exact, nonnegative=nonnegative, ties=ties)
    best = least_absolute(leaves_under(parent), noisy, weights, exact, nonnegative)
    assert fit.objective == pytest.approx(best, rel=1e-7, abs=1e-7)
    assert fit.status is Status.CONVERGED
    check_counts(fit.counts, parent, noisy, exact, nonnegative)


def check_counts(counts, parent, noisy, exact, nonnegative):
    under = leaves_under(parent)
    own = counts[np.setdiff1d(np.arange(len(parent)), parent)]
    np.testing.assert_allclose(under @ own, counts, atol=1e-9)
    np.testing.assert_allclose(counts[exact], noisy[exact], atol=1e-9)
    assert counts.min() >= 0 or not nonnegative


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("loss", ["l2", "elastic"])
def test_curved_losses_have_no_direction_down(seed, loss):
    """Against a dense quadratic programme's optimality: no exchange between leaves improves the fit."""
    parent, noisy, weights, exact, nonnegative = random_problem(seed)
    fit = fit_forest(noisy, parent, loss=loss, weights=weights, exact=exact, nonnegative=nonnegative)
    assert fit.status is Status.CONVERGED
    check_counts(fit.counts, parent, noisy, exact, nonnegative)
    felt = np.where(exact, 0.0, weights)
    assert fit.objective == pytest.approx(Loss.named(loss).value(fit.counts, noisy, felt), rel=1e-9, abs=1e-12)
    assert optimality_residual(fit.counts, parent, noisy, felt, exact, Loss.named(loss), nonnegative) <= 1e-7


def optimality_residual(counts, parent, noisy, weights, exact, loss, nonnegative):
    """The least t such that every node's slope is within t of some duals; exact nodes answer any dual."""
    under = leaves_under(parent)
    a, q = loss.coefficients(weights)
    residual = counts - noisy
    near = 1e-9 * max(1.0, float(np.abs(counts).max()))
    low = np.where(exact, -np.inf, 2 * q * residual + np.where(residual > near, a, -a))
    high = np.where(exact, np.inf, 2 * q * residual + np.where(residual < -near, -a, a))
    leaf_counts = counts[np.setdiff1d(np.arange(len(parent)), parent)]
    # Σ over the ancestors of a leaf of their slopes is 0, or at least 0 where the leaf is at 0.
    equal = ~(nonnegative & (leaf_counts <= near))
    nodes, leaves = under.shape
    slack = -np.ones((leaves, 1))
    upper = np.hstack([-under.T, slack])
    lower = np.hstack([under.T, slack])[equal]
    unit = max(1.0, float(np.abs(np.concatenate([low[np.isfinite(low)], high[np.isfinite(high)]])).max(initial=0.0)))
    ends = [[end / unit if np.isfinite(end) else None for end in side] for side in (low, high)]
    bounds = list(zip(*ends, strict=True))
    solved = scipy.optimize.linprog(
        np.append(np.zeros(nodes), 1.0),
        A_ub=np.vstack([upper, lower]),
        b_ub=np.zeros(len(upper) + len(lower)),
        bounds=[*bounds, (0, None)],
    )
    assert solved.status == 0
    return float(solved.fun)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("loss", LOSSES)
def test_ropes_keep_exact_counts_like_curves(seed, loss, monkeypatch):
    parent, noisy, weights, exact, nonnegative = random_problem(seed)
    options = {"loss": loss, "weights": weights, "exact": exact, "nonnegative": nonnegative}
    curves = fit_forest(noisy, parent, **options)
    monkeypatch.setattr(tree_fit, "SETTINGS", replace(tree_fit.SETTINGS, deep=-1))
    ropes = fit_forest(noisy, parent, **options)
    assert ropes.objective == pytest.approx(curves.objective, rel=1e-9, abs=1e-9)
    assert ropes.status is Status.CONVERGED
    np.testing.assert_allclose(ropes.counts[exact], noisy[exact], atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_an_exact_total_of_a_complete_tree_is_kept(loss):
    rng = np.random.default_rng(0)
    noisy = rng.normal(10, 5, 127)
    exact = np.zeros(127, dtype=bool)
    noisy[0], exact[0] = 500.0, True
    fit = fit_tree(noisy, 2, loss=loss, exact=exact)
    assert fit.counts[0] == pytest.approx(500.0, rel=1e-14)
    assert fit.status is Status.CONVERGED
    weightless = fit_tree(noisy, 2, loss=loss, exact=exact, weights=np.where(exact, 0.0, 1.0))
    np.testing.assert_array_equal(weightless.counts, fit.counts)


@pytest.mark.parametrize("loss", LOSSES)
def test_whole_counts_keep_exact_ones(loss):
    rng = np.random.default_rng(1)
    parent = histogram_parents(64, 4)
    noisy = np.round(rng.normal(5, 6, len(parent)))
    exact = np.zeros(len(parent), dtype=bool)
    exact[[0, 2, 30]] = True
    noisy[[0, 2, 30]] = [400.0, 77.0, 3.0]
    counts = fit_forest(noisy, parent, loss=loss, exact=exact, integers=True).counts
    assert np.array_equal(counts, np.round(counts))
    assert counts[[0, 2, 30]].tolist() == [400.0, 77.0, 3.0]
    noisy[30] = 3.5
    with pytest.raises(DeclarationError, match=r"3\.5"):
        fit_forest(noisy, parent, loss=loss, exact=exact, integers=True)


def test_exact_leaves_that_differ_by_rounding_from_their_sum_are_accepted():
    fit = fit_forest([0.3, 0.1, 0.2], [-1, 0, 0], exact=[True, True, True])
    np.testing.assert_allclose(fit.counts, [0.3, 0.1, 0.2])


@pytest.mark.parametrize(
    ("noisy", "parent", "exact", "nodes"),
    [
        ([10, 7, 5], [-1, 0, 0], [1, 1, 1], (0, 1, 2)),
        ([10, 7, 5, 1], [-1, 0, 0, 0], [1, 1, 1, 0], (0, 1, 2)),
        ([10, 2, 5], [-1, 0, 0], [1, 1, 1], (0, 1, 2)),
        ([3, 1, -2], [-1, 0, 0], [0, 0, 1], (2,)),
        ([5, 1, 1, 1, 9], [-1, 0, 0, 1, 2], [1, 0, 0, 0, 1], (0, 4)),
        ([1, 2, 3, 6], [3, 3, 0, -1], [0, 0, 1, 0], None),
    ],
)
def test_contradictions_are_named_with_the_least_violation(noisy, parent, exact, nodes):
    exact = np.array(exact, dtype=bool)
    if nodes is None:
        assert fit_forest(noisy, parent, exact=exact).status is Status.CONVERGED
        return
    under = leaves_under(np.array(parent))
    nearest = under[exact] @ scipy.optimize.nnls(under[exact], np.array(noisy, dtype=float)[exact])[0]
    with pytest.raises(Infeasible, match="the closest counts miss") as caught:
        fit_forest(noisy, parent, exact=exact)
    assert caught.value.nodes == nodes
    assert caught.value.constraints == tuple(f"node {node}" for node in nodes)
    assert caught.value.violation == pytest.approx(np.abs(nearest - np.array(noisy, dtype=float)[exact]).max())


def test_negative_exact_counts_are_met_where_counts_may_be_negative():
    fit = fit_forest([3, 1, -2], [-1, 0, 0], exact=[False, False, True], nonnegative=False, loss="l2")
    np.testing.assert_allclose(fit.counts, [0.0 + 1.0, 3.0, -2.0])


def test_wrong_masks_are_refused():
    with pytest.raises(MeasurementError, match="`exact` has shape"):
        fit_forest([1.0, 2.0], [-1, 0], exact=[True])
    with pytest.raises(MeasurementError, match="True or False"):
        fit_forest([1.0, 2.0], [-1, 0], exact=[1, 0])

"""Tie rules choose the L1 optimum they promise; brute force over all sign patterns is the twin."""

import itertools

import numpy as np
import pytest

from consilience.solvers.fit import Loss
from consilience.solvers.trees.fit import fit_forest, fit_tree

SMALL = [
    np.array([-1, 0, 0]),
    np.array([-1, 0, 0, 0]),
    np.array([-1, 0, 1]),
    np.array([-1, 0, 0, 1, 1]),
    np.array([-1, 0, 0, 1, 2]),
]


def leaves_under(parent):
    leaves = np.setdiff1d(np.arange(len(parent)), parent)
    under = np.zeros((len(parent), len(leaves)))
    for j, leaf in enumerate(leaves):
        v = leaf
        while v >= 0:
            under[v, j] = 1.0
            v = parent[v]
    return under, leaves


def best_by_enumeration(parent, noisy, weights, *, linear, square, nonnegative, l1_optimum=None):
    """The least Σ linear·w|r| + square·w²r², trying every combination of signs of r and of leaves at zero.

    In each combination the counts at a kink or at zero are fixed and the others have a known sign, so the problem is a
    least-squares problem with equations. Of the answers that keep their signs the best is the optimum. With
    `l1_optimum` the sum of w|r| is held at that value.
    """
    under, leaves = leaves_under(parent)
    best, best_value = None, np.inf
    for signs in itertools.product((-1, 0, 1), repeat=len(parent)):
        signs = np.array(signs)
        for zero in itertools.product((False, True), repeat=len(leaves)) if nonnegative else [(False,) * len(leaves)]:
            fixed = [under[signs == 0], np.eye(len(leaves))[np.array(zero)]]
            right = [noisy[signs == 0], np.zeros(sum(zero))]
            if l1_optimum is not None:
                fixed.append(((weights * signs) @ under)[None])
                right.append([l1_optimum + (weights * signs) @ noisy])
            equations, right = np.vstack(fixed), np.concatenate(right)
            hessian = 2 * square * under.T @ (weights[:, None] ** 2 * under)
            gradient = 2 * square * under.T @ (weights**2 * noisy) - linear * (weights * signs) @ under
            system = np.block([[hessian, equations.T], [equations, np.zeros((len(equations), len(equations)))]])
            solved = np.linalg.lstsq(system, np.concatenate([gradient, right]), rcond=None)[0]
            counts = under @ solved[: len(leaves)]
            residual = counts - noisy
            if np.any(residual * signs < -1e-9) or np.any(np.abs(residual[signs == 0]) > 1e-8):
                continue
            if nonnegative and counts.min() < -1e-9:
                continue
            absolute = float(np.sum(weights * np.abs(residual)))
            if l1_optimum is not None and absolute > l1_optimum + 1e-8:
                continue
            value = linear * absolute + square * float(np.sum((weights * residual) ** 2))
            if value < best_value - 1e-12:
                best, best_value = counts, value
    return best, best_value


@pytest.mark.parametrize("parent", SMALL, ids=lambda parent: f"{len(parent)} nodes")
@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_min_l2_equals_the_second_stage_problem(parent, nonnegative, seed):
    rng = np.random.default_rng(10 * seed + len(parent))
    noisy = rng.integers(-3, 8, len(parent)).astype(float)
    weights = rng.choice([1.0, 1.0, 2.0], len(parent))
    fit = fit_forest(noisy, parent, loss="l1", weights=weights, nonnegative=nonnegative, ties="min-l2")
    expected, _ = best_by_enumeration(
        parent, noisy, weights, linear=0.0, square=1.0, nonnegative=nonnegative, l1_optimum=fit.objective
    )
    np.testing.assert_allclose(fit.counts, expected, atol=1e-7)


@pytest.mark.parametrize("parent", SMALL, ids=lambda parent: f"{len(parent)} nodes")
@pytest.mark.parametrize("loss", ["elastic", "l2"])
@pytest.mark.parametrize("nonnegative", [True, False])
def test_elastic_net_and_l2_equal_brute_force(parent, loss, nonnegative):
    rng = np.random.default_rng(len(parent))
    noisy, weights = rng.normal(1, 3, len(parent)), rng.uniform(0.3, 2.0, len(parent))
    terms = Loss.named(loss)
    fit = fit_forest(noisy, parent, loss=loss, weights=weights, nonnegative=nonnegative)
    expected, value = best_by_enumeration(
        parent, noisy, weights, linear=terms.linear, square=terms.square, nonnegative=nonnegative
    )
    np.testing.assert_allclose(fit.counts, expected, atol=1e-7)
    assert fit.objective == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("nonnegative", [True, False])
def test_min_l2_is_the_limit_of_the_elastic_net(seed, nonnegative):
    rng = np.random.default_rng(seed)
    noisy = rng.integers(-5, 20, 63).astype(float)
    limit = fit_tree(noisy, 2, loss="l1", nonnegative=nonnegative, ties="min-l2")
    almost = fit_tree(noisy, 2, loss="elastic", alpha=1 - 1e-7, nonnegative=nonnegative)
    np.testing.assert_allclose(limit.counts, almost.counts, atol=1e-6)
    assert limit.stats["tie_gap"] <= 1e-9


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("weights", [None, "levels"])
def test_vertex_ties_keep_whole_data_whole(nonnegative, weights):
    noisy = np.random.default_rng(1).integers(-20, 60, 127).astype(float)
    if weights == "levels":
        weights = np.repeat([1.0, 1.1, 0.7, 2.0, 1.3, 0.4, 1.0], 2 ** np.arange(7))
    fit = fit_tree(noisy, 2, loss="l1", weights=weights, nonnegative=nonnegative, ties="vertex")
    assert np.array_equal(fit.counts, np.rint(fit.counts))
    assert fit.gap <= 1e-9 * fit.objective


def test_proportional_ties_give_equal_children_equal_counts():
    fit = fit_tree([12, 3, 3], 2, loss="l1", ties="proportional")
    assert np.array_equal(fit.counts[1:], [fit.counts[1]] * 2)


def test_the_rules_differ_in_the_choice_and_agree_in_the_objective():
    noisy = np.random.default_rng(3).integers(0, 9, 31).astype(float)
    fits = [fit_tree(noisy, 2, loss="l1", ties=ties) for ties in ("min-l2", "proportional", "vertex")]
    squares = [float(np.sum((fit.counts - noisy) ** 2)) for fit in fits]
    assert len({round(fit.objective, 9) for fit in fits}) == 1
    assert squares[0] < squares[1] - 1e-6
    assert squares[0] < squares[2] - 1e-6

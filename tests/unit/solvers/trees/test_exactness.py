"""Random trees and forests are solved exactly: as HiGHS solves them, and as the conditions of optimality demand."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from consilience.solvers.fit import Loss, Status
from consilience.solvers.trees.fit import fit_forest, fit_tree
from consilience.solvers.trees.layout import histogram_parents

TIES = ("min-l2", "proportional", "vertex")


def random_forest(rng, nodes):
    """A path, a star, a caterpillar, a recursive tree, a forest of small trees, or a k-ary tree, shuffled."""
    kind = rng.integers(6)
    if kind == 0:
        parent = np.arange(-1, nodes - 1)
    elif kind == 1:
        parent = np.where(np.arange(nodes) == 0, -1, 0)
    elif kind == 2:
        parent = np.array([-1 if v == 0 else 2 * ((v - 1) // 2) for v in range(nodes)])
    elif kind == 3:
        parent = np.array([-1 if v == 0 else int(rng.integers(0, v)) for v in range(nodes)])
    elif kind == 4:
        parent = np.array(
            [-1 if rng.random() < 0.3 else int(rng.integers(max(0, v - 4), v)) if v else -1 for v in range(nodes)]
        )
    else:
        parent = histogram_parents(nodes // 2 + 1, int(rng.integers(2, 5)))
    shuffle = rng.permutation(len(parent))
    shuffled = np.empty(len(parent), dtype=np.int64)
    shuffled[shuffle] = np.where(parent < 0, -1, shuffle[parent])
    return shuffled


def random_problem(seed, largest=30):
    """A forest, noisy values (often whole, so that there are ties) and weights (equal, of few kinds, or extreme)."""
    rng = np.random.default_rng(seed)
    parent = random_forest(rng, int(rng.integers(1, largest)))
    nodes = len(parent)
    noisy = rng.integers(-4, 9, nodes).astype(float) if rng.random() < 0.5 else rng.normal(3, 6, nodes)
    kinds = [np.ones(nodes), rng.choice([0.0, 0.5, 1.0, 2.0], nodes), 10 ** rng.uniform(-2, 2, nodes)]
    return parent, noisy, kinds[rng.integers(3)], bool(rng.random() < 0.7)


def sums(parent):
    """The matrix that takes counts to (children − parent), one row for each inner node."""
    inner = np.unique(parent[parent >= 0])
    row = {int(v): i for i, v in enumerate(inner)}
    children = np.nonzero(parent >= 0)[0]
    matrix = sp.lil_array((len(inner), len(parent)))
    for v in inner:
        matrix[row[int(v)], int(v)] = -1.0
    for v in children:
        matrix[row[int(parent[v])], int(v)] = 1.0
    return matrix.tocsr()


def least_absolute_by_linear_program(parent, noisy, weights, nonnegative):
    """The least Σ w|x − y|, by HiGHS, with x − y = up − down."""
    nodes = len(parent)
    consistent = sums(parent)
    eye = sp.eye_array(nodes)
    equations = sp.vstack(
        [sp.hstack([consistent, sp.csr_array((consistent.shape[0], 2 * nodes))]), sp.hstack([eye, -eye, eye])]
    )
    right = np.concatenate([np.zeros(consistent.shape[0]), noisy])
    bounds = [(0 if nonnegative else None, None)] * nodes + [(0, None)] * (2 * nodes)
    cost = np.concatenate([np.zeros(nodes), weights, weights])
    solved = scipy.optimize.linprog(cost, A_eq=equations.tocsr(), b_eq=right, bounds=bounds)
    assert solved.status == 0
    return solved.fun


def assert_feasible(counts, parent, nonnegative):
    scale = max(1.0, float(np.abs(counts).max()))
    assert np.abs(sums(parent) @ counts).max(initial=0.0) <= 1e-9 * scale
    if nonnegative:
        assert counts.min() >= 0.0


def optimality_residual(counts, parent, noisy, weights, loss, nonnegative, *, ties=False):
    """How far the counts are from having duals: the least t such that every slope is within t of its dual.

    Looks at the counts alone. The slope of node v at x is a number, or the interval [−a, a] at x = y; it may be
    anything smaller at x = 0. Duals are free for inner nodes, and a node's dual minus its children's must be a slope.
    The unit of t is the largest slope, or 1.

    With `ties` the costs are τ·w|r| + w²r², for some τ ≥ 0 that may be chosen too: such duals prove that Σ w²r² is
    least among all counts with the same Σ w|r|, or less (the second-stage problem).
    """
    a, q = (weights, weights**2) if ties else loss.coefficients(weights)
    residual = counts - noisy
    smooth = 2 * q * residual
    near = 1e-9 * max(1.0, float(np.abs(counts).max()))
    low, high = np.where(residual > near, a, -a), np.where(residual < -near, -a, a)
    free = counts > near if nonnegative else np.ones(len(counts), dtype=bool)
    signs = -sums(parent).T.tocsr()  # node v: + for its own inner dual's row as parent, − for its parent's dual
    inner = signs.shape[1]
    slack = -np.ones((len(counts), 1))
    tau = [-high[:, None], low[:, None]] if ties else [np.zeros((len(counts), 0))] * 2
    fixed = (0.0, 0.0) if ties else (high, low)
    upper = sp.csr_array(sp.hstack([-signs, tau[0], slack]))
    lower = sp.csr_array(sp.hstack([signs, tau[1], slack]))[free]
    conditions, limits = (
        sp.vstack([upper, lower]).tocsr(),
        np.concatenate([smooth + fixed[0], -(smooth + fixed[1])[free]]),
    )
    solved = scipy.optimize.linprog(
        np.eye(upper.shape[1])[-1],
        A_ub=conditions,
        b_ub=limits,
        bounds=[(None, None)] * inner + [(0, None)] * (2 if ties else 1),
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert solved.status == 0
    duals = np.append(solved.x[:-1], 0.0)  # what the solver tolerates is counted too
    return (conditions @ duals - limits).max(initial=0.0) / max(1.0, float(np.abs(smooth + fixed[0]).max()))


BLOCKS = [pytest.param(block, marks=[pytest.mark.slow] if block >= 2 else []) for block in range(10)]
"""Ten times fifty problems, of which the first two hundred are solved in every run of the tests."""


@pytest.mark.parametrize("block", BLOCKS)
def test_l1_objectives_equal_the_linear_program(block):
    for seed in range(50 * block, 50 * (block + 1)):
        parent, noisy, weights, nonnegative = random_problem(seed)
        best = least_absolute_by_linear_program(parent, np.where(weights > 0, noisy, 0.0), weights, nonnegative)
        for ties in TIES:
            fit = fit_forest(noisy, parent, loss="l1", weights=weights, nonnegative=nonnegative, ties=ties)
            assert abs(fit.objective - best) <= 1e-7 * max(1.0, best), (seed, ties)
            assert fit.gap <= 1e-9 * max(fit.objective, 1e-3), (seed, ties)
            assert fit.status == Status.CONVERGED
            assert_feasible(fit.counts, parent, nonnegative)


@pytest.mark.parametrize("loss", ["l2", "elastic"])
@pytest.mark.parametrize("block", BLOCKS)
def test_l2_and_elastic_net_fulfil_the_conditions_of_optimality(loss, block):
    for seed in range(1000 + 50 * block, 1000 + 50 * (block + 1)):
        parent, noisy, weights, nonnegative = random_problem(seed)
        fit = fit_forest(noisy, parent, loss=loss, weights=weights, nonnegative=nonnegative)
        assert fit.status == Status.CONVERGED
        assert fit.gap <= 1e-9 * max(fit.objective, 1e-3), seed
        assert_feasible(fit.counts, parent, nonnegative)
        measured = np.where(weights > 0, noisy, 0.0)
        residual = optimality_residual(fit.counts, parent, measured, weights, Loss.named(loss), nonnegative)
        assert residual <= 1e-8, seed


def test_the_residual_of_optimality_notices_a_wrong_answer():
    parent, noisy = np.array([-1, 0, 0]), np.array([10.0, 3.0, 9.0])
    counts = fit_forest(noisy, parent, loss="elastic").counts
    moved = counts + np.array([0.0, 0.01, -0.01])
    arguments = (parent, noisy, np.ones(3), Loss.named("elastic"), True)
    assert optimality_residual(counts, *arguments) < 1e-9
    assert optimality_residual(moved, *arguments) > 1e-4


@pytest.mark.parametrize("block", BLOCKS)
def test_min_l2_solves_the_second_stage_problem(block):
    for seed in range(3000 + 50 * block, 3000 + 50 * (block + 1)):
        parent, noisy, weights, nonnegative = random_problem(seed)
        fit = fit_forest(noisy, parent, loss="l1", weights=weights, nonnegative=nonnegative, ties="min-l2")
        assert fit.gap <= 1e-9 * max(fit.objective, 1e-3), seed
        measured = np.where(weights > 0, noisy, 0.0)
        loss = Loss.named("l1")
        residual = optimality_residual(fit.counts, parent, measured, weights, loss, nonnegative, ties=True)
        assert residual <= 1e-8, seed


def test_the_residual_of_the_second_stage_notices_another_optimum():
    parent, noisy = np.array([-1, 0, 0]), np.array([10.0, 3.0, 9.0])
    arguments = (parent, noisy, np.ones(3), Loss.named("l1"), True)
    chosen = fit_forest(noisy, parent, loss="l1", ties="min-l2")
    other = fit_forest(noisy, parent, loss="l1", ties="vertex")
    assert chosen.objective == pytest.approx(other.objective)
    assert optimality_residual(chosen.counts, *arguments, ties=True) < 1e-9
    assert optimality_residual(other.counts, *arguments, ties=True) > 1e-2


@pytest.mark.parametrize("seed", range(40))
def test_nonnegative_l2_equals_an_active_set_solver(seed):
    parent, noisy, weights, _ = random_problem(2000 + seed, largest=20)
    weights = np.where(weights == 0, 1.0, weights)
    inner = np.unique(parent[parent >= 0])
    leaves = np.setdiff1d(np.arange(len(parent)), inner)
    under = np.zeros((len(parent), len(leaves)))
    for j, leaf in enumerate(leaves):
        v = leaf
        while v >= 0:
            under[v, j] = 1.0
            v = parent[v]
    found, _ = scipy.optimize.nnls(weights[:, None] * under, weights * noisy)
    fit = fit_forest(noisy, parent, loss="l2", weights=weights)
    np.testing.assert_allclose(fit.counts, under @ found, atol=1e-7 * max(1.0, np.abs(noisy).max()))


@pytest.mark.parametrize("loss", ["l1", "l2", "elastic"])
@pytest.mark.parametrize(("branching", "height"), [(2, 0), (2, 1), (2, 6), (3, 4), (5, 3), (16, 2)])
@pytest.mark.parametrize("nonnegative", [True, False])
def test_complete_trees_are_fitted_like_the_same_trees_as_forests(loss, branching, height, nonnegative):
    rng = np.random.default_rng(branching * 100 + height)
    parent = histogram_parents(branching**height, branching)
    noisy = rng.normal(4, 10, len(parent))
    weights = rng.uniform(0.5, 2.0, len(parent))
    as_tree = fit_tree(noisy, branching, loss=loss, weights=weights, nonnegative=nonnegative)
    shuffle = rng.permutation(len(parent))
    shuffled = np.empty_like(parent)
    shuffled[shuffle] = np.where(parent < 0, -1, shuffle[parent])
    values, weighed = np.empty(len(parent)), np.empty(len(parent))
    values[shuffle], weighed[shuffle] = noisy, weights
    as_forest = fit_forest(values, shuffled, loss=loss, weights=weighed, nonnegative=nonnegative)
    np.testing.assert_allclose(as_tree.counts, as_forest.counts[shuffle], atol=1e-9)
    assert as_tree.objective == pytest.approx(as_forest.objective, rel=1e-12)


@pytest.mark.parametrize("branching", [2, 3, 4])
@pytest.mark.parametrize("height", [1, 2, 5, 6])
@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_the_linear_time_path_for_equal_weights_equals_the_general_one(branching, height, nonnegative, whole):
    rng = np.random.default_rng(1000 * branching + height)
    parent = histogram_parents(branching**height, branching)
    noisy = rng.integers(-3, 9, len(parent)).astype(float) if whole else rng.normal(4, 10, len(parent))
    for ties in TIES:
        fast = fit_tree(noisy, branching, loss="l1", weights=0.3, nonnegative=nonnegative, ties=ties)
        slow = fit_forest(noisy, parent, loss="l1", weights=0.3, nonnegative=nonnegative, ties=ties)
        assert fast.stats["method"] == "breakpoints"
        assert slow.stats["method"] == "curves"
        assert fast.objective == pytest.approx(slow.objective, rel=1e-12)
        assert fast.gap <= 1e-9 * fast.objective
        if ties == "min-l2":
            np.testing.assert_allclose(fast.counts, slow.counts, atol=1e-9)

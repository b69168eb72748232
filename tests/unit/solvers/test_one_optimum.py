"""Trees, tables and matrices: the exact solvers and ADMM, which share no code, reach the same optimum."""

import itertools

import numpy as np
import pytest

from consilience.solvers.admm.fit import admm
from consilience.solvers.fit import Status
from consilience.solvers.marginal_tables.table_fit import fit_table
from consilience.solvers.matrices.matrix_fit import fit_matrix
from consilience.solvers.projections.cells import NonNegative
from consilience.solvers.projections.sums import MarginalsEqual, TreeConsistency
from consilience.solvers.trees.fit import fit_forest

every_loss = pytest.mark.parametrize("loss", ["l1", "l2", "elastic"])
every_seed = pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed >= 8 else []) for seed in range(100)]
)


def assert_same_optimum(exact, iterated):
    """Within 1e-5 of each other, with ADMM never below what the exact solver proves to be possible."""
    size = max(exact.objective, 1e-6)
    assert exact.status is Status.CONVERGED
    assert abs(iterated.objective - exact.objective) <= 1e-5 * size
    assert iterated.gap <= 1e-5 * size
    assert iterated.objective >= exact.objective - exact.gap - 1e-8 * size


@every_loss
@every_seed
def test_random_forests(loss, seed):
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 40))
    parent = np.array([-1 if node == 0 or rng.random() < 0.1 else int(rng.integers(0, node)) for node in range(nodes)])
    noisy = rng.poisson(3, nodes) + (rng.laplace(0, 5, nodes) if seed % 2 else rng.integers(-4, 5, nodes))
    weights = rng.choice([0.5, 1.0, 2.0], nodes)
    sets = [TreeConsistency(parent), NonNegative()]
    exact = fit_forest(noisy, parent, loss=loss, weights=weights)
    assert_same_optimum(exact, admm(noisy, sets, loss=loss, weights=weights, tolerance=1e-6))


@every_loss
@every_seed
def test_random_tables(loss, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(size) for size in rng.integers(2, 5, rng.integers(2, 4)))
    table = rng.poisson(np.exp(rng.normal(0, 1.3, shape))).astype(float)
    noisy, weights = table + rng.laplace(0, 2, shape), rng.choice([0.5, 1.0, 2.0], shape)
    axes = range(len(shape))
    marginals = {
        kept: table.sum(axis=tuple(axis for axis in axes if axis not in kept))
        for kept in itertools.combinations(axes, int(rng.integers(1, len(shape))))
    }
    exact = fit_table(noisy, marginals, loss=loss, weights=weights)
    sets = [MarginalsEqual(shape, marginals), NonNegative()]
    assert_same_optimum(exact, admm(noisy, sets, loss=loss, weights=weights, tolerance=1e-6))


@every_loss
@every_seed
def test_random_matrices(loss, seed):
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(2, 9))
    matrix = rng.choice([-1.0, 1.0], (2 * columns + 2, columns))
    noisy = matrix @ rng.poisson(3, columns) + rng.laplace(0, 3, len(matrix))
    exact = fit_matrix(matrix, noisy, loss=loss)
    assert_same_optimum(exact, admm(noisy, [NonNegative()], loss=loss, strategy=matrix, tolerance=1e-6))

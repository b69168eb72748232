"""Least squares without bounds, by two passes: as the general solver finds it, and as the normal equations do."""

import numpy as np
import pytest

from consilience.solvers.fit import Loss
from consilience.solvers.trees.certificate import ABOVE, certify, costs_of, largest_count
from consilience.solvers.trees.closed_forms import solve_two_passes
from consilience.solvers.trees.fit import fit_forest, fit_tree
from consilience.solvers.trees.layout import forest, histogram_parents
from consilience.solvers.trees.states import solve_pieces


def random_parents(rng, nodes):
    """A random forest, a path, a star or a histogram's tree."""
    kinds = [
        [-1 if v == 0 or rng.random() < 0.1 else int(rng.integers(0, v)) for v in range(nodes)],
        np.arange(-1, nodes - 1),
        np.where(np.arange(nodes) == 0, -1, 0),
        histogram_parents(nodes // 2 + 1, 3),
    ]
    return np.array(kinds[int(rng.integers(4))])


@pytest.mark.parametrize("seed", range(40))
def test_the_general_solver_agrees(seed):
    rng = np.random.default_rng(seed)
    parent = random_parents(rng, int(rng.integers(1, 40)))
    layout = forest(parent, len(parent))
    noisy, weights = rng.normal(3, 9, len(parent)), 10 ** rng.uniform(-2, 2, len(parent))
    found = solve_two_passes(layout, layout.arranged(noisy), layout.arranged(weights))
    arguments = (layout, Loss.named("l2"), layout.arranged(noisy), layout.arranged(weights))
    costs, bound = costs_of(*arguments, clipped=None, exact=None, nonnegative=False), largest_count(noisy)
    twin = solve_pieces(layout, costs, np.full(len(parent), ABOVE, dtype=np.int8), bound=bound)
    np.testing.assert_allclose(found.counts, twin.counts, atol=1e-9)
    slow = certify(layout, costs, found.counts, found.duals, bound=bound)
    assert found.certificate.objective == pytest.approx(slow.objective)
    assert found.certificate.gap == pytest.approx(slow.gap, rel=1e-3, abs=1e-18 * (1 + slow.objective))
    assert slow.violation <= 1e-12 * bound


@pytest.mark.parametrize("unmeasured", [False, True])
def test_unmeasured_values_are_left_to_the_general_solver(unmeasured):
    noisy, weights = np.array([10.0, 3.0, 9.0]), np.array([1.0, 1.0, 0.0 if unmeasured else 1.0])
    fit = fit_tree(noisy, 2, loss="l2", weights=weights, nonnegative=False)
    assert fit.counts[0] == pytest.approx(10.0 if unmeasured else 10 + 2 / 3)
    assert fit.stats["method"] == "two passes"
    assert fit.gap <= 1e-12


def test_huge_counts_with_little_noise_are_mended_by_the_general_solver():
    rng = np.random.default_rng(1)
    parent = histogram_parents(64, 2)
    noisy = rng.normal(1e12, 1, len(parent))
    fit = fit_forest(noisy, parent, loss="l2", nonnegative=False)
    assert fit.gap <= 1e-9 * fit.objective

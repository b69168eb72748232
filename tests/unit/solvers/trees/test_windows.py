"""Curves drawn only between likely duals give the same states; a wrong guess is noticed and costs time alone."""

import numpy as np
import pytest

from consilience.solvers.fit import Loss
from consilience.solvers.trees import fit
from consilience.solvers.trees.certificate import costs_of, largest_count, likely_window
from consilience.solvers.trees.curves import states_by_curves
from consilience.solvers.trees.fit import fit_forest, fit_tree
from consilience.solvers.trees.layout import complete_tree, histogram_parents

HISTOGRAMS = ("sparse", "empty", "full", "one cell", "huge")


def histogram(name, rng, cells):
    sparse = np.where(rng.random(cells) < 0.1, rng.poisson(60, cells), 0)
    one = np.where(np.arange(cells) == 5, 1e6, 0.0)
    each = (sparse, np.zeros(cells), rng.poisson(200, cells), one, rng.poisson(50, cells) * 1e9)
    return dict(zip(HISTOGRAMS, each, strict=True))[name]


def noisy_tree(name, height):
    rng = np.random.default_rng(height)
    levels = [histogram(name, rng, 2**height).astype(float)]
    while len(levels[-1]) > 1:
        levels.append(levels[-1].reshape(-1, 2).sum(axis=1))
    counts = np.concatenate(levels[::-1])
    return counts + rng.laplace(0, height + 1, len(counts))


@pytest.mark.parametrize("name", HISTOGRAMS)
@pytest.mark.parametrize("loss", ["l2", "elastic"])
@pytest.mark.parametrize("nonnegative", [True, False])
def test_the_likely_window_holds_the_optimum(name, loss, nonnegative):
    noisy = noisy_tree(name, 10)
    layout, bound = complete_tree(len(noisy), 2), largest_count(noisy)
    costs = costs_of(
        layout, Loss.named(loss), noisy, np.full(len(noisy), 1 / 11), clipped=None, exact=None, nonnegative=nonnegative
    )
    window = likely_window(layout, costs)
    assert 0 < window < np.inf
    np.testing.assert_array_equal(
        states_by_curves(layout, costs, bound, window=window), states_by_curves(layout, costs, bound)
    )


@pytest.mark.parametrize("window", [0.0, 1e-3, 0.1, 1e6, np.inf])
@pytest.mark.parametrize("loss", ["l1", "l2", "elastic"])
def test_no_window_changes_the_answer(window, loss, monkeypatch):
    noisy = noisy_tree("sparse", 7)
    expected = fit_tree(noisy, 2, loss=loss, weights=1 / 8)
    monkeypatch.setattr(fit, "likely_window", lambda *_: window)
    found = fit_tree(noisy, 2, loss=loss, weights=1 / 8)
    np.testing.assert_allclose(found.counts, expected.counts, atol=1e-9)
    assert found.gap <= 1e-12 * found.objective


def test_weights_that_differ_a_millionfold_are_solved_all_the_same():
    rng = np.random.default_rng(1)
    parent = histogram_parents(300, 3)
    noisy, weights = rng.normal(5, 30, len(parent)), 10 ** rng.uniform(-3, 3, len(parent))
    for loss in ("l2", "elastic"):
        found = fit_forest(noisy, parent, loss=loss, weights=weights)
        assert found.gap <= 1e-9 * found.objective

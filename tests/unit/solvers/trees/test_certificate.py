"""The gap is an upper bound of the true suboptimality for any counts and any duals, and broken counts have none."""

import numpy as np
import pytest

from consilience.solvers.fit import Loss
from consilience.solvers.trees.certificate import certify, costs_of, largest_count
from consilience.solvers.trees.closed_forms import certify_equal_weights, fit_equal_weights
from consilience.solvers.trees.curves import states_by_curves
from consilience.solvers.trees.layout import complete_tree, forest
from consilience.solvers.trees.states import add_up, duals_from_states, optimal_box, share_box, solve_pieces


class Solved:
    """A random problem with its optimum, in breadth-first order."""

    def __init__(self, seed, loss, *, nonnegative=True):
        rng = np.random.default_rng(seed)
        parent = np.array([-1] + [int(rng.integers(0, v)) for v in range(1, 25)])
        self.layout = forest(parent, len(parent))
        self.noisy = rng.normal(4, 6, len(parent))
        self.weights = rng.uniform(0.2, 3.0, len(parent))
        self.loss = Loss.named(loss)
        self.costs = costs_of(self.layout, self.loss, self.noisy, self.weights, clipped=None, nonnegative=nonnegative)
        self.bound = largest_count(self.noisy)
        states = states_by_curves(self.layout, self.costs, self.bound)
        if loss == "l1":
            self.duals, slopes = duals_from_states(self.layout, self.costs, states)
            lower, upper = optimal_box(self.costs, self.duals, slopes)
            self.counts = share_box(self.layout, lower, upper, whole=True)
        else:
            solved = solve_pieces(self.layout, self.costs, states, bound=self.bound)
            self.counts, self.duals = solved.counts, solved.duals
        self.least = self.loss.value(self.counts, self.noisy, self.weights)

    def certify(self, counts, duals):
        return certify(self.layout, self.costs, counts, duals, bound=self.bound)

    def moved(self, rng, size):
        """Consistent, non-negative counts near the optimum."""
        counts = np.where(self.layout.is_leaf, np.maximum(self.counts + rng.normal(0, size, len(self.counts)), 0), 0)
        add_up(self.layout.first, counts)
        return counts


@pytest.fixture(params=["l1", "l2", "elastic"])
def loss(request):
    return request.param


@pytest.mark.parametrize("seed", range(5))
def test_the_optimum_has_no_gap(seed, loss):
    solved = Solved(seed, loss)
    certificate = solved.certify(solved.counts, solved.duals)
    assert certificate.objective == pytest.approx(solved.least, rel=1e-12)
    assert certificate.gap <= 1e-12 * solved.least
    assert certificate.within(1e-9)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_other_counts_have_a_gap_of_at_least_what_they_lose(seed, size, loss):
    solved, rng = Solved(seed, loss), np.random.default_rng(seed)
    for _ in range(20):
        counts = solved.moved(rng, size)
        loses = solved.loss.value(counts, solved.noisy, solved.weights) - solved.least
        gap = solved.certify(counts, solved.duals).gap
        assert gap >= loses * (1 - 1e-9)
        assert gap > 0
        assert gap == pytest.approx(loses, rel=1e-6, abs=1e-9 * solved.least)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1e-6, 0.1, 5.0])
def test_other_duals_prove_less_and_never_too_much(seed, size, loss):
    solved, rng = Solved(seed, loss), np.random.default_rng(seed)
    first, inner = solved.layout.first, np.nonzero(~solved.layout.is_leaf)[0]
    for _ in range(20):
        duals = solved.duals.copy()
        for v in inner:
            duals[first[v] : first[v + 1]] += rng.normal(0, size)
        counts = solved.moved(rng, 0.5)
        loses = solved.loss.value(counts, solved.noisy, solved.weights) - solved.least
        assert solved.certify(counts, duals).gap >= loses * (1 - 1e-9)
        assert solved.certify(solved.counts, duals).gap >= 0


def test_counts_that_do_not_add_up_are_noticed(loss):
    solved = Solved(0, loss)
    for v in range(len(solved.counts)):
        corrupted = solved.counts.copy()
        corrupted[v] += 1e-3
        certificate = solved.certify(corrupted, solved.duals)
        assert certificate.gap == np.inf
        assert certificate.violation == pytest.approx(1e-3)
        assert not certificate.within(1e-9)


def test_counts_below_zero_are_noticed(loss):
    solved = Solved(0, loss)
    negative = solved.counts.copy()
    negative[solved.layout.is_leaf] -= 1.0
    add_up(solved.layout.first, negative)
    certificate = solved.certify(negative, solved.duals)
    assert certificate.gap == np.inf
    assert certificate.violation > 0


@pytest.mark.parametrize("seed", range(5))
def test_duals_that_rounding_left_too_high_still_prove_something(seed):
    solved = Solved(seed, "l1")
    certificate = solved.certify(solved.counts, solved.duals * (1 + 1e-12))
    assert certificate.gap <= 1e-10 * solved.least


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize(("branching", "height"), [(2, 0), (2, 5), (4, 3)])
@pytest.mark.parametrize("spoil", ["nothing", "counts", "duals", "sums"])
def test_the_certificate_for_one_weight_equals_the_general_one(nonnegative, branching, height, spoil):
    rng = np.random.default_rng(height)
    nodes = (branching ** (height + 1) - 1) // (branching - 1)
    layout, noisy, weight = complete_tree(nodes, branching), rng.normal(3, 6, nodes), 0.25
    counts, duals = fit_equal_weights(noisy, branching, height, nonnegative=nonnegative)
    if spoil == "counts":
        counts += np.where(layout.is_leaf, rng.uniform(0, 2, nodes), 0.0)
        add_up(layout.first, counts)
    elif spoil == "duals":
        duals *= 0.9
    elif spoil == "sums":
        counts[nodes // 2] += 1.0
    special = certify_equal_weights(noisy, branching, counts, duals, weight=weight, nonnegative=nonnegative)
    costs = costs_of(layout, Loss.named("l1"), noisy, np.full(nodes, weight), clipped=None, nonnegative=nonnegative)
    general = certify(layout, costs, counts, weight * duals, bound=largest_count(noisy))
    assert special.objective == pytest.approx(general.objective, rel=1e-12)
    assert special.gap == pytest.approx(general.gap, rel=1e-9, abs=1e-12)
    assert special.violation == pytest.approx(general.violation)
    assert special.rounding == pytest.approx(general.rounding)

"""The two public functions at the edges of what they take: sizes, values, weights, options, and what they refuse."""

import numpy as np
import pytest

from consilience.errors import DeclarationError, MeasurementError
from consilience.solvers.fit import Loss, Status
from consilience.solvers.trees.fit import fit_forest, fit_tree
from consilience.solvers.trees.layout import histogram_parents

LOSSES = ("l1", "l2", "elastic")
TIES = ("min-l2", "proportional", "vertex")


def assert_exact(fit, nodes):
    assert fit.counts.shape == (nodes,)
    assert fit.status == Status.CONVERGED
    assert fit.gap <= 1e-9 * fit.objective


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("value", [5.25, 0.0, -3.0, 1e12])
def test_a_single_node_keeps_its_value_if_that_is_not_negative(loss, ties, value):
    for fit in (fit_tree([value], 2, loss=loss, ties=ties), fit_forest([value], [-1], loss=loss, ties=ties)):
        assert_exact(fit, 1)
        assert fit.counts[0] == max(value, 0.0)
    assert fit_tree([value], 3, loss=loss, ties=ties, nonnegative=False).counts[0] == value


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("noisy", [np.zeros(15), -np.arange(1.0, 16.0)], ids=["zeros", "negative"])
def test_zeros_and_negative_values_become_zeros(loss, ties, noisy):
    for weights in (None, np.linspace(0.5, 2.0, 15)):
        fit = fit_tree(noisy, 2, loss=loss, ties=ties, weights=weights)
        assert_exact(fit, 15)
        assert np.array_equal(fit.counts, np.zeros(15))


@pytest.mark.parametrize("loss", LOSSES)
def test_consistent_values_stay_as_they_are(loss):
    leaves = np.array([3.0, 0.0, 5.0, 1.0])
    noisy = np.array([9.0, 3.0, 6.0, *leaves])
    fit = fit_tree(noisy, 2, loss=loss)
    np.testing.assert_allclose(fit.counts, noisy, atol=1e-12)
    assert fit.status == Status.CONVERGED


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ties", TIES)
def test_one_level_is_a_root_and_its_leaves(loss, ties):
    rng = np.random.default_rng(0)
    noisy = np.concatenate([[40.0], rng.normal(3, 4, 16)])
    fit = fit_tree(noisy, 16, loss=loss, ties=ties)
    assert_exact(fit, 17)
    assert fit.counts[0] == pytest.approx(fit.counts[1:].sum(), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_forest_of_single_nodes_keeps_each_value(loss):
    noisy = np.array([3.0, -1.0, 0.0, 7.5])
    fit = fit_forest(noisy, [-1, -1, -1, -1], loss=loss, weights=[1.0, 2.0, 0.5, 1e3])
    np.testing.assert_allclose(fit.counts, np.maximum(noisy, 0.0), atol=1e-12)
    assert fit.status == Status.CONVERGED


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("weights", ["equal", "levels"])
def test_counts_of_a_million_million_are_exact(loss, ties, weights):
    rng = np.random.default_rng(3)
    leaves = rng.integers(0, 10**12, 64).astype(float)
    leaves[::5] = 0
    levels = [leaves]
    while len(levels[-1]) > 1:
        levels.append(levels[-1].reshape(-1, 2).sum(axis=1))
    noisy = np.concatenate(levels[::-1]) + np.rint(rng.laplace(0, 10, 127))
    weighed = 0.1 if weights == "equal" else np.repeat(0.1 * 1.2 ** np.arange(7), 2 ** np.arange(7))
    fit = fit_tree(noisy, 2, loss=loss, ties=ties, weights=weighed)
    assert fit.status == Status.CONVERGED
    inner = fit.counts[:63]
    np.testing.assert_allclose(inner, fit.counts[1:].reshape(-1, 2).sum(axis=1), rtol=1e-15)
    if ties == "vertex" and loss == "l1":
        assert fit.gap <= 1e-9 * fit.objective
        assert np.array_equal(fit.counts, np.rint(fit.counts))
    # Counts of this size carry an error of about 1e-4 each, the objective one of the same order.
    assert fit.gap <= 1e-4 * fit.objective


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("seed", range(8))
def test_weights_over_twelve_orders_of_magnitude_are_exact(loss, ties, seed):
    rng = np.random.default_rng(seed)
    noisy = rng.normal(5, 10, 127)
    fit = fit_tree(noisy, 2, loss=loss, ties=ties, weights=10 ** rng.uniform(-6, 6, 127))
    assert_exact(fit, 127)
    assert fit.counts.min() >= 0


@pytest.mark.parametrize("loss", LOSSES)
def test_duplicates_are_shared_evenly(loss):
    fit = fit_tree([20.0] + [3.0] * 4, 4, loss=loss)
    assert_exact(fit, 5)
    np.testing.assert_allclose(fit.counts[1:], fit.counts[1])


@pytest.mark.parametrize("loss", LOSSES)
def test_leaves_at_different_depths_and_empty_lists_of_children_are_leaves(loss):
    # Node 1 has no children although its sisters do, and node 2 has one child.
    parent = [-1, 0, 0, 0, 2, 3, 3]
    fit = fit_forest([30.0, 4.0, 6.0, 11.0, 9.0, 5.0, 5.0], parent, loss=loss)
    assert_exact(fit, 7)
    assert fit.counts[0] == pytest.approx(fit.counts[1] + fit.counts[2] + fit.counts[3])
    assert fit.counts[2] == pytest.approx(fit.counts[4])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("nonnegative", [True, False])
def test_what_was_not_measured_follows_from_the_rest_in_equal_shares(loss, nonnegative):
    noisy = [12.0, np.nan, np.inf, np.nan, 6.0]
    fit = fit_forest(noisy, [-1, 0, 0, 0, 0], loss=loss, weights=[1, 0, 0, 0, 1], nonnegative=nonnegative)
    np.testing.assert_allclose(fit.counts, [12, 2, 2, 2, 6], atol=1e-9)
    assert fit.gap <= 1e-12
    empty = fit_forest([1.0, 2.0], [-1, 0], loss=loss, weights=0.0, nonnegative=nonnegative)
    assert np.array_equal(empty.counts, [0.0, 0.0])


def test_unconstrained_l2_is_weighted_least_squares():
    rng = np.random.default_rng(2)
    parent = histogram_parents(11, 3)
    weights, noisy = rng.uniform(0.3, 3.0, len(parent)), rng.normal(0, 10, len(parent))
    under = np.zeros((len(parent), 11))
    for leaf in range(11):
        v = len(parent) - 11 + leaf
        while v >= 0:
            under[v, leaf] = 1.0
            v = parent[v]
    expected = under @ np.linalg.lstsq(weights[:, None] * under, weights * noisy, rcond=None)[0]
    fit = fit_forest(noisy, parent, loss="l2", weights=weights, nonnegative=False)
    np.testing.assert_allclose(fit.counts, expected, atol=1e-9)
    assert fit.stats["method"] == "two passes"


def test_unconstrained_l2_has_the_closed_form_of_hay_et_al():
    """Upwards, with n = 2^level: z_v = (n − n/2)/(n − 1)·y_v + (n/2 − 1)/(n − 1)·Σ_c z_c; then down in equal shares."""
    noisy = np.random.default_rng(4).normal(10, 5, 15)
    z = noisy.copy()
    for v in range(6, -1, -1):
        level = 2 + (v < 3) + (v < 1)
        size, half = 2**level, 2 ** (level - 1)
        z[v] = (size - half) / (size - 1) * noisy[v] + (half - 1) / (size - 1) * (z[2 * v + 1] + z[2 * v + 2])
    expected = z.copy()
    for v in range(1, 15):
        up = (v - 1) // 2
        expected[v] = z[v] + (expected[up] - z[2 * up + 1] - z[2 * up + 2]) / 2
    fit = fit_tree(noisy, 2, loss="l2", nonnegative=False)
    np.testing.assert_allclose(fit.counts, expected, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_clipped_values_cost_what_a_measured_zero_costs_where_counts_are_not_negative(loss):
    noisy = np.array([9.0, 0.0, 4.0, 0.0, 0.0, 3.0, 2.0])
    clipped = noisy == 0
    as_clipped, as_zero = fit_tree(noisy, 2, loss=loss, clipped=clipped), fit_tree(noisy, 2, loss=loss)
    assert np.array_equal(as_clipped.counts, as_zero.counts)
    assert as_clipped.objective == as_zero.objective


@pytest.mark.parametrize("loss", LOSSES)
def test_clipped_values_cost_nothing_below_zero(loss):
    noisy, clipped = np.array([2.0, 5.0, 0.0]), np.array([False, False, True])
    fit = fit_tree(noisy, 2, loss=loss, nonnegative=False, clipped=clipped)
    np.testing.assert_allclose(fit.counts, [2.0, 5.0, -3.0], atol=1e-9)
    assert fit.objective == pytest.approx(0.0, abs=1e-12)
    two_sided = fit_tree(noisy, 2, loss=loss, nonnegative=False)
    assert two_sided.objective > 0.1


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(15))
def test_one_sided_costs_are_minimised_exactly(loss, seed):
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 40))
    parent = np.array([-1] + [int(rng.integers(0, v)) for v in range(1, nodes)])
    clipped = rng.random(nodes) < 0.4
    noisy = np.where(clipped, 0.0, rng.normal(1, 5, nodes))
    weights = rng.uniform(0.1, 2.0, nodes)
    fit = fit_forest(noisy, parent, loss=loss, weights=weights, nonnegative=False, clipped=clipped)
    felt = np.where(clipped, np.maximum(fit.counts, 0.0), fit.counts)
    value = Loss.named(loss).value(felt, noisy, weights)
    assert fit.objective == pytest.approx(value, abs=1e-9)
    assert fit.gap <= 1e-9 * max(fit.objective, 1e-3)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("weights", ["equal", "various"])
@pytest.mark.parametrize("nonnegative", [True, False])
def test_whole_l1_fits_of_whole_data_are_exact_under_every_tie_rule(ties, weights, nonnegative):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        noisy = rng.integers(-10, 40, 121).astype(float)
        weighed = None if weights == "equal" else rng.uniform(0.2, 2.0, 121)
        fit = fit_tree(noisy, 3, loss="l1", weights=weighed, ties=ties, integers=True, nonnegative=nonnegative)
        assert_exact(fit, 121)
        assert np.array_equal(fit.counts, np.rint(fit.counts))
        assert np.array_equal(fit.counts[:40], fit.counts[1:].reshape(-1, 3).sum(axis=1))


@pytest.mark.parametrize("loss", ["l2", "elastic"])
@pytest.mark.parametrize("nonnegative", [True, False])
def test_whole_fits_of_other_losses_are_rounded_and_stay_consistent(loss, nonnegative):
    noisy = np.random.default_rng(0).normal(5, 20, 341)
    exact = fit_tree(noisy, 4, loss=loss, nonnegative=nonnegative)
    whole = fit_tree(noisy, 4, loss=loss, nonnegative=nonnegative, integers=True)
    assert np.array_equal(whole.counts, np.rint(whole.counts))
    assert np.array_equal(whole.counts[:85], whole.counts[1:].reshape(-1, 4).sum(axis=1))
    assert np.abs(whole.counts - exact.counts).max() < 1 + 1e-6
    assert whole.objective >= exact.objective
    assert whole.gap >= (whole.objective - exact.objective) * (1 - 1e-9)
    assert whole.counts.min() >= 0 or not nonnegative


def test_whole_numbers_beyond_floating_point_are_refused():
    with pytest.raises(MeasurementError, match="leave out `integers`"):
        fit_tree([1e16, 1e16, 3.0], 2, loss="l1", integers=True)


def test_results_say_how_they_were_found():
    deep = np.arange(400) - 1
    assert fit_tree(np.ones(7), 2, loss="l1").stats["method"] == "breakpoints"
    assert fit_tree(np.ones(7), 2).stats["method"] == "curves"
    assert fit_forest(np.ones(400), deep).stats["method"] == "ropes"
    assert fit_tree(np.ones(7), 2).stats["nodes"] == 7
    assert fit_tree(np.ones(7), 2, loss="l1", ties="vertex").stats["ties"] == "vertex"


def test_the_given_arrays_are_left_alone():
    noisy, weights = np.array([5.0, -1.0, 3.0]), np.array([1.0, 2.0, 1.0])
    kept = noisy.copy(), weights.copy()
    for loss in LOSSES:
        for nonnegative in (True, False):
            counts = fit_tree(noisy, 2, loss=loss, weights=weights, nonnegative=nonnegative).counts
            assert not np.shares_memory(counts, noisy)
    assert np.array_equal(noisy, kept[0])
    assert np.array_equal(weights, kept[1])


@pytest.mark.parametrize("noisy", [[1, 2, 3], (1.0, 2.0, 3.0), np.array([1, 2, 3], dtype=np.int16)])
def test_lists_and_integers_are_taken(noisy):
    assert_exact(fit_tree(noisy, 2, loss="l2"), 3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"noisy": [1.0, np.nan, 2.0]}, MeasurementError, "noisy value at 1 is nan"),
        ({"noisy": [1.0, np.inf, 2.0]}, MeasurementError, "noisy value at 1 is inf"),
        ({"noisy": ["a", "b", "c"]}, MeasurementError, "not an array of numbers"),
        ({"noisy": [[1.0, 2.0, 3.0]]}, MeasurementError, r"shape \(1, 3\)"),
        ({"noisy": []}, DeclarationError, "no noisy values"),
        ({"weights": [1.0, -1.0, 1.0]}, MeasurementError, "weight at 1 is -1"),
        ({"weights": [1.0, np.nan, 1.0]}, MeasurementError, "weight at 1 is nan"),
        ({"weights": [1.0, 1e-200, 1.0]}, MeasurementError, "weight at 1 is 1e-200"),
        ({"weights": [1.0, 1.0]}, MeasurementError, r"shape \(2,\) for noisy values of shape \(3,\)"),
        ({"loss": "huber"}, DeclarationError, "choose one of l1, l2, elastic"),
        ({"alpha": 1.5}, DeclarationError, "alpha is 1.5"),
        ({"alpha": float("nan")}, DeclarationError, "alpha is nan"),
        ({"ties": "any"}, DeclarationError, "choose one of min-l2, proportional, vertex"),
        ({"clipped": [True, False]}, MeasurementError, "give True or False for each"),
        ({"clipped": [True, False, False]}, MeasurementError, "noisy value at 0 is 1.0 and marked as clipped"),
    ],
)
def test_wrong_arguments_are_refused_with_both_sides(arguments, error, message):
    for call in (lambda **rest: fit_tree(branching=2, **rest), lambda **rest: fit_forest(parent=[-1, 0, 0], **rest)):
        with pytest.raises(error, match=message):
            call(**({"noisy": [1.0, 2.0, 3.0]} | arguments))


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_ends_of_the_elastic_net_are_the_other_losses(alpha):
    noisy = np.random.default_rng(0).normal(3, 5, 31)
    end = fit_tree(noisy, 2, loss="elastic", alpha=alpha)
    named = fit_tree(noisy, 2, loss="l1" if alpha == 1 else "l2")
    np.testing.assert_allclose(end.counts, named.counts)

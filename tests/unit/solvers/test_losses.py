"""The losses, their proximal maps and conjugates agree with minimisation on a fine grid; wrong input is refused."""

import numpy as np
import pytest

from consilience.errors import DeclarationError, MeasurementError
from consilience.solvers.admm.problem import Problem
from consilience.solvers.fit import Loss, checked_clipped, checked_noisy, checked_weights

GRID = np.linspace(-40, 40, 160_001)
NAMES = ("l1", "l2", "elastic")


def on_grid(loss, noisy, weight):
    """The loss of one value at every point of the grid."""
    residual = GRID - noisy
    return loss.linear * weight * np.abs(residual) + loss.square * weight**2 * residual**2


@pytest.fixture(params=NAMES)
def loss(request):
    return Loss.named(request.param)


def test_the_names_are_shares_of_the_two_terms():
    assert Loss.named("l1") == Loss(1.0, 0.0)
    assert Loss.named("l2") == Loss(0.0, 1.0)
    assert Loss.named("elastic") == Loss(0.9, pytest.approx(0.1))
    assert Loss.named("elastic", alpha=0) == Loss(0.0, 1.0)


def test_values_sum_over_measured_values_in_units_of_the_noise(loss):
    counts, noisy, weights = np.array([1.0, 5.0, 9.0]), np.array([3.0, 5.5, 0.0]), np.array([0.5, 2.0, 0.0])
    expected = loss.linear * (1.0 + 1.0) + loss.square * (1.0 + 1.0)
    assert loss.value(counts, noisy, weights) == pytest.approx(expected)
    assert loss.value(7 * counts, 7 * noisy, weights / 7) == pytest.approx(expected)


def test_the_proximal_map_minimises_on_the_grid(loss):
    rng = np.random.default_rng(0)
    for _ in range(20):
        point, step, weight = rng.uniform(-8, 8), rng.uniform(0.1, 3), rng.uniform(0, 2)
        noisy = float(rng.integers(-5, 6))
        best = GRID[np.argmin(on_grid(loss, noisy, weight) + (GRID - point) ** 2 / (2 * step))]
        found = loss.prox(np.array([point]), np.array([noisy]), np.array([weight]), step=step)
        assert found[0] == pytest.approx(best, abs=1e-3)


def within(loss, noisy, weights, *, nonnegative):
    """The problem of counts that nothing but their sign confines."""
    noisy = np.asarray(noisy)
    low = np.full(noisy.shape, 0.0 if nonnegative else -np.inf)
    return Problem(noisy, np.asarray(weights), loss, low, np.full(noisy.shape, np.inf), ())


@pytest.mark.parametrize("nonnegative", [True, False])
def test_the_conjugate_is_the_supremum_over_the_grid(loss, nonnegative):
    rng = np.random.default_rng(1)
    for _ in range(20):
        weight = rng.uniform(0.5, 2)
        slope, noisy = rng.uniform(-2, 2) * weight, float(rng.integers(-5, 6))
        problem = within(loss, [noisy], [weight], nonnegative=nonnegative)
        values = slope * GRID - on_grid(loss, noisy, weight)
        values[problem.low[0] > GRID] = -np.inf
        low, high = (float(end[0]) for end in problem.slopes)
        if np.argmax(values) in (0, len(GRID) - 1):
            assert not low <= slope <= high
        else:
            assert low <= slope <= high
            assert problem.conjugate(np.array([slope])) == pytest.approx(values.max(), abs=1e-6)


def test_a_value_and_its_conjugate_are_never_less_than_the_product(loss):
    rng = np.random.default_rng(2)
    counts, noisy, weights = rng.uniform(0, 9, 50), rng.normal(3, 5, 50), rng.uniform(0, 2, 50)
    slopes = rng.uniform(-1, 1, 50) * weights
    for nonnegative in (True, False):
        for i in range(50):
            problem = within(loss, noisy[i : i + 1], weights[i : i + 1], nonnegative=nonnegative)
            reached = problem.value(counts[i : i + 1]) + problem.conjugate(slopes[i : i + 1])
            assert reached >= slopes[i] * counts[i] - 1e-12


def test_no_weights_are_ones_and_one_weight_is_for_all():
    assert np.array_equal(checked_weights(None, (2, 2)), np.ones((2, 2)))
    assert np.array_equal(checked_weights(0.5, (3,)), np.full(3, 0.5))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -2.0], "the weight at 1 is -2.0"),
        ([np.inf, 1.0], "the weight at 0 is inf"),
        ([1.0, np.nan], "the weight at 1 is nan"),
        ([1.0, 1e120], "outside 1e-100 … 1e\\+100"),
        ([1.0], r"shape \(1,\) for noisy values of shape \(2,\)"),
        (-1.0, "the weight is -1.0"),
        (["x", "y"], "weights are not an array of numbers"),
        ([1j, 1.0], "weights are not an array of numbers"),
    ],
)
def test_weights_that_are_no_weights_are_refused(weights, message):
    with pytest.raises(MeasurementError, match=message):
        checked_weights(weights, (2,))


def test_noisy_values_must_be_finite_where_they_were_measured():
    with pytest.raises(MeasurementError, match=r"at \(1, 0\) is nan; give a number"):
        checked_noisy([[1.0], [np.nan]])
    with pytest.raises(MeasurementError, match="at 0 is 1e\\+200"):
        checked_noisy([1e200])
    with pytest.raises(MeasurementError, match="noisy values are not an array of numbers"):
        checked_noisy([[1.0], [2.0, 3.0]])
    kept = checked_noisy([np.nan, 3.0], weights=np.array([0.0, 1.0]))
    assert np.array_equal(kept, [0.0, 3.0])


def test_clipped_values_are_zeros_marked_one_by_one():
    noisy = np.array([0.0, 2.0])
    assert checked_clipped(None, noisy) is None
    assert checked_clipped([False, False], noisy) is None
    mask = checked_clipped([True, False], noisy)
    assert mask is not None
    assert mask.tolist() == [True, False]
    for wrong, message in [([True], "shape"), ([1, 0], "int64"), ([True, True], "at 1 is 2.0 and marked as clipped")]:
        with pytest.raises(MeasurementError, match=message):
            checked_clipped(wrong, noisy)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, np.nan, "0.5", None])
def test_shares_outside_zero_and_one_are_refused(alpha):
    with pytest.raises(DeclarationError, match="between 0 and 1"):
        Loss.named("elastic", alpha=alpha)


def test_unknown_losses_are_refused_with_the_known_ones():
    with pytest.raises(DeclarationError, match="'L1'; choose one of l1, l2, elastic"):
        Loss.named("L1")

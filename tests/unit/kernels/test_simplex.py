"""The simplex projection against a bisection that needs no insight, and the laws that it obeys."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from consilience.errors import DeclarationError, MeasurementError
from consilience.kernels.simplex import project_to_simplex

Array = NDArray[np.float64]

values = st.floats(-1e6, 1e6, allow_subnormal=False)
points = arrays(np.float64, array_shapes(max_dims=3, max_side=6), elements=values)
totals = st.floats(1e-3, 1e6)


def project_by_bisection(point: Array, total: float) -> Array:
    """max(p − θ, 0) with θ halved in until the sum is right."""
    low, high = point.min() - total / point.size - 1, point.max()
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(point - middle, 0).sum() > total:
            low = middle
        else:
            high = middle
    return np.maximum(point - (low + high) / 2, 0)


@given(points, totals)
def test_projection_equals_bisection(point: Array, total: float) -> None:
    projected = project_to_simplex(point, total)
    assert projected.shape == point.shape
    assert_allclose(projected, project_by_bisection(point, total), rtol=1e-9, atol=1e-9 * (total + np.abs(point).max()))


@given(points, totals)
def test_projection_is_feasible_and_stays_where_it_is(point: Array, total: float) -> None:
    projected = project_to_simplex(point, total)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(total, rel=1e-14)
    assert_allclose(project_to_simplex(projected, total), projected, rtol=1e-12, atol=1e-14 * total)


@given(points, totals)
def test_no_feasible_vertex_lies_on_the_near_side(point: Array, total: float) -> None:
    """(p − x)ᵀ(z − x) ≤ 0 for every feasible z characterises the projection; vertices are enough."""
    projected = project_to_simplex(point, total)
    towards = (point - projected).ravel()
    size = total * (np.abs(point).max() + total)
    assert (total * towards - towards @ projected.ravel()).max() <= 1e-9 * size


@given(points, totals, st.randoms(use_true_random=False))
def test_projection_commutes_with_permutations(point: Array, total: float, random) -> None:
    order = list(range(point.size))
    random.shuffle(order)
    permuted = project_to_simplex(point.ravel()[order], total)
    assert_allclose(permuted, project_to_simplex(point, total).ravel()[order], rtol=1e-12, atol=1e-12 * total)


@given(points, totals, st.sampled_from([2.0**-20, 0.5, 2.0**30]))
def test_projection_commutes_with_scaling(point: Array, total: float, factor: float) -> None:
    assert_array_equal(project_to_simplex(factor * point, factor * total), factor * project_to_simplex(point, total))


@given(points, totals, values)
def test_a_constant_added_everywhere_changes_nothing(point: Array, total: float, constant: float) -> None:
    size = np.abs(point).max() + abs(constant) + total
    assert_allclose(project_to_simplex(point + constant, total), project_to_simplex(point, total), atol=1e-14 * size)


def test_millions_of_cells_keep_their_total_to_rounding() -> None:
    rng = np.random.default_rng(0)
    point = rng.normal(-0.5, 1e-7, size=2_000_000)
    point[0] = 0.0
    projected = project_to_simplex(point, 0.75)
    assert projected.sum() == pytest.approx(0.75, rel=1e-14)
    assert np.count_nonzero(projected) > 1_000_000


def test_a_point_far_from_zero_loses_no_digits() -> None:
    assert_array_equal(project_to_simplex([1e15 + 2, 1e15 + 1, 1e15], 2.0), [1.5, 0.5, 0.0])


def test_a_total_of_zero_gives_zeros() -> None:
    assert_array_equal(project_to_simplex([[1.0, -2.0]], 0.0), [[0.0, 0.0]])
    assert_array_equal(project_to_simplex([], 0.0), [])


def test_the_smallest_total_survives() -> None:
    assert project_to_simplex([1.0, 1.0, 1.0], 5e-324).sum() <= 5e-323


@pytest.mark.parametrize("total", [-1.0, np.nan, np.inf])
def test_impossible_totals_are_refused(total: float) -> None:
    with pytest.raises(DeclarationError, match="total"):
        project_to_simplex([1.0], total)


def test_a_total_without_cells_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"no cell.*3\.0"):
        project_to_simplex([], 3.0)


def test_missing_numbers_are_refused() -> None:
    with pytest.raises(MeasurementError, match="NaN"):
        project_to_simplex([1.0, np.nan], 3.0)

"""Regions and lattices: what a point becomes depends on it alone, and never exceeds the region's norms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from consilience.errors import DeclarationError
from consilience.kernels.regions import MOST_BITS, REGION_KINDS, Region, in_original_units, lattice_points, normalised

any_number = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=6), st.sampled_from(REGION_KINDS))
@settings(deadline=None)
def test_projected_points_lie_in_the_region_and_projecting_again_changes_nothing(point, kind):
    region = Region(kind, len(point))
    moved = region.project(point)
    assert region.contains(moved)
    np.testing.assert_allclose(region.project(moved), moved, atol=1e-12)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=4))
@settings(deadline=None)
def test_the_ball_takes_the_nearest_point(point):
    found = Region("ball", len(point)).project(point)
    target = np.array(point)
    # A slow twin: the projection as a quadratic programme in the positive and negative parts.
    dimensions = len(point)
    solved = minimize(
        lambda z: float(np.sum((z[:dimensions] - z[dimensions:] - target) ** 2)),
        np.zeros(2 * dimensions),
        bounds=[(0, None)] * (2 * dimensions),
        constraints=[{"type": "ineq", "fun": lambda z: 1 - z.sum()}],
        method="SLSQP",
    )
    assert np.sum((found - target) ** 2) <= solved.fun + 1e-6


def test_a_huge_coordinate_is_projected_without_losing_its_unit():
    np.testing.assert_array_equal(Region("ball", 2).project([1e300, 3.0]), [1.0, 0.0])
    np.testing.assert_array_equal(Region("ball", 2).project([-np.inf, 3.0]), [-1.0, 0.0])


def test_the_radial_ball_keeps_the_direction():
    np.testing.assert_allclose(Region("radial-ball", 2).project([3.0, -1.0]), [0.75, -0.25])
    np.testing.assert_array_equal(Region("radial-ball", 2).project([0.5, -0.5]), [0.5, -0.5])


@given(
    st.lists(st.tuples(any_number, any_number, any_number), min_size=1, max_size=8),
    st.sampled_from(REGION_KINDS),
    st.integers(1, MOST_BITS),
)
@settings(deadline=None)
def test_no_record_exceeds_the_norms_of_the_region_on_the_lattice(points, kind, bits):
    bounds = [(-2.0, 5.0), (0.0, 1e-3), (-1e200, 1e200)]
    region = Region(kind, 3)
    units = lattice_points(np.array(points), bounds, region, bits=bits)
    assert len(units) == sum(not np.isnan(point).any() for point in points)
    exact = [[int(unit) for unit in row] for row in units]
    for row in exact:
        assert sum(map(abs, row)) <= int(region.sensitivity(1)) << bits
        assert sum(unit * unit for unit in row) <= round(region.sensitivity(2) ** 2) << 2 * bits


@given(st.lists(st.tuples(any_number, any_number), min_size=1, max_size=8), st.sampled_from(REGION_KINDS))
@settings(deadline=None)
def test_a_records_lattice_point_does_not_depend_on_its_neighbours(points, kind):
    bounds = [(-2.0, 5.0), (0.0, 1.0)]
    together = lattice_points(np.array(points), bounds, Region(kind, 2))
    alone = [lattice_points(np.array([point]), bounds, Region(kind, 2)) for point in points]
    np.testing.assert_array_equal(together, np.concatenate(alone))


def test_coordinates_are_rounded_toward_zero():
    units = lattice_points(np.array([[0.999], [-0.999], [0.1], [-0.1]]), [(-1, 1)], Region("box", 1), bits=2)
    assert units.ravel().tolist() == [3, -3, 0, 0]


@pytest.mark.parametrize("bounds", [[(0.0, 0.0)], [(1.0, 0.0)], [(0.0, 5e-324)], [(0.0, float("inf"))]])
def test_bounds_that_are_no_interval_are_refused(bounds):
    with pytest.raises(DeclarationError, match="bounds"):
        normalised([[0.0]], bounds)


def test_original_units_are_the_inverse_of_normalised():
    bounds = [(-2.0, 5.0), (100.0, 101.0)]
    points = np.array([[-2.0, 100.5], [1.0, 101.0]])
    np.testing.assert_allclose(in_original_units(normalised(points, bounds), bounds), points)


def test_the_widest_bounds_that_floats_hold_are_normalised():
    widest = np.finfo(np.float64).max
    units = lattice_points(np.array([[widest], [-widest], [0.0]]), [(-widest, widest)], Region("box", 1), bits=3)
    assert units.ravel().tolist() == [8, -8, 0]


@pytest.mark.parametrize("wrong", [("sphere", 2), ("box", 0), ("box", 1.5), ("box", True)])
def test_regions_that_do_not_exist_are_refused(wrong):
    with pytest.raises(DeclarationError):
        Region(*wrong)

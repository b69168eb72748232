"""Finite fields obey the laws of fields, and geometries are the designs that they are known to be."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from consilience.coverings.geometries import (
    affine_flats,
    finite_field,
    gaussian_binomial,
    inversive_plane,
    octads,
    projective_flats,
)
from consilience.errors import DeclarationError, TooLarge

ORDERS = (2, 3, 4, 5, 7, 8, 9, 16, 25, 27, 49, 64, 81)


@pytest.mark.parametrize("order", ORDERS)
def test_sums_and_products_obey_the_laws_of_a_field(order: int) -> None:
    field = finite_field(order)
    plus, times = field.sums, field.products
    every = np.arange(order)
    assert (plus == plus.T).all()
    assert (times == times.T).all()
    assert (plus[0] == every).all()
    assert (times[1] == every).all()
    assert (np.sort(plus, axis=1) == every).all()
    assert (np.sort(times[1:, 1:], axis=1) == every[1:]).all()
    a, b, c = np.random.default_rng(0).integers(0, order, size=(3, 500))
    assert (times[a, plus[b, c]] == plus[times[a, b], times[a, c]]).all()
    assert (times[times[a, b], c] == times[a, times[b, c]]).all()
    assert (plus[plus[a, b], c] == plus[a, plus[b, c]]).all()


@pytest.mark.parametrize("order", [1, 6, 12, 100])
def test_fields_have_prime_powers_of_elements(order: int) -> None:
    with pytest.raises(DeclarationError, match=f"{order}"):
        finite_field(order)


def times_covered(blocks, strength: int) -> Counter:
    return Counter(chosen for block in blocks for chosen in combinations(block, strength))


@pytest.mark.parametrize("order", [2, 3, 4, 5, 7, 8, 9])
def test_two_points_lie_on_exactly_one_line_of_a_plane(order: int) -> None:
    for blocks, points in (
        (affine_flats(2, order, 1), order**2),
        (projective_flats(2, order, 1), order**2 + order + 1),
    ):
        met = times_covered(blocks, 2)
        assert len(met) == points * (points - 1) // 2
        assert set(met.values()) == {1}


@pytest.mark.parametrize("order", [2, 3, 4, 5, 7])
def test_three_points_lie_on_exactly_one_circle(order: int) -> None:
    circles, points = inversive_plane(order), order**2 + 1
    assert len(circles) == order**3 + order
    met = times_covered(circles, 3)
    assert len(met) == points * (points - 1) * (points - 2) // 6
    assert set(met.values()) == {1}


def test_five_points_lie_in_exactly_one_octad() -> None:
    met = times_covered(octads(), 5)
    assert len(met) == 42504
    assert set(met.values()) == {1}


@pytest.mark.parametrize(("dimension", "order", "flat"), [(3, 2, 2), (5, 2, 3), (3, 3, 1), (3, 3, 2), (2, 9, 1)])
def test_there_are_as_many_flats_as_the_formulas_say(dimension: int, order: int, flat: int) -> None:
    affine = affine_flats(dimension, order, flat)
    assert len(set(affine)) == order ** (dimension - flat) * gaussian_binomial(dimension, flat, order)
    assert {len(block) for block in affine} == {order**flat}
    projective = projective_flats(dimension, order, flat)
    assert len(set(projective)) == gaussian_binomial(dimension + 1, flat + 1, order)
    assert {len(block) for block in projective} == {(order ** (flat + 1) - 1) // (order - 1)}


def test_three_points_over_two_elements_lie_in_one_plane() -> None:
    assert set(times_covered(affine_flats(4, 2, 2), 3).values()) == {1}


def test_a_geometry_with_too_many_flats_is_refused() -> None:
    with pytest.raises(TooLarge, match="flats"):
        affine_flats(12, 2, 6)

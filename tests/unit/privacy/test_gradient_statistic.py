"""The statistics of logistic regression: no record, whatever it holds, moves them by more than their sensitivity."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.errors import DeclarationError
from consilience.kernels.regions import REGION_KINDS
from consilience.privacy.cluster_statistics import CHUNK
from consilience.privacy.model_statistics import GradientStatistic, gradient_statistics, largest_gradient

DOMAIN = Domain(
    "people",
    (
        Attribute.continuous("x", (-3.0, 5.0)),
        Attribute.continuous("y", (0.0, 1e6)),
        Attribute.continuous("rich", (0.0, 1.0)),
        Attribute.categorical("sex", ["Female", "Male"]),
    ),
)

coordinates = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([-3.0, 5.0, 1.0, 0.0, 1e6, 5e5, 0.5, math.nan, math.inf, -math.inf, 1e308, -1e308]),
)
records = st.tuples(coordinates, coordinates, coordinates)


def statistics(region: Any = "box", coefficients=(0.0, 0.0, 0.0), clip=1.5, clip_norm: Any = 1, **options):
    return gradient_statistics(
        DOMAIN, ("x", "y"), "rich", region, coefficients, clip=clip, clip_norm=clip_norm, **options
    )


def norms_of_change(before, after, bits):
    """The exact change in the statistic's own units: its L1 norm and the square of its L2 norm."""
    changes = [Fraction(int(a) - int(b), 2**bits) for a, b in zip(after, before, strict=True)]
    return sum(map(abs, changes)), sum(change * change for change in changes)


@given(
    st.lists(records, max_size=4),
    records,
    records,
    st.tuples(*[st.floats(-1e4, 1e4)] * 3),
    st.sampled_from(REGION_KINDS),
    st.integers(3, 28),
    st.floats(0.2, 4.0),
    st.sampled_from([1, 2]),
)
@example([], (math.inf, math.inf, 1.0), (-math.inf, -math.inf, 1.0), (-9.0, -9.0, -9.0), "box", 20, 4.0, 1)
@example([], (5.0, 1e6, 0.5), (math.nan, 0.0, 1.0), (0.0, 0.0, -1e4), "ball", 3, 4.0, 2)
@settings(deadline=None, max_examples=60)
def test_no_record_moves_a_statistic_by_more_than_its_sensitivity(others, one, two, theta, region, bits, clip, norm):
    def points(rows):
        return np.array(rows, dtype=np.float64).reshape(-1, 3)

    for statistic in statistics(region, theta, clip, norm, lattice_bits=bits):
        statistic.check(DOMAIN)
        base = statistic.exact(points(others))
        with_one = statistic.exact(points([one, *others]))
        with_two = statistic.exact(points([*others, two]))
        changes: Any = ((base, with_one, "add-remove"), (with_one, with_two, "replace-one"))
        for before, after, relation in changes:
            assert after.dtype == np.int64
            assert after.shape == (statistic.size,)
            absolute, squared = norms_of_change(before, after, statistic.bits)
            # Square roots are rounded by a last place at most; scales are raised by far more than that.
            slack = 1 + Fraction(1, 10**15)
            assert absolute <= Fraction(statistic.sensitivity(1, relation)) * slack
            assert squared <= Fraction(statistic.sensitivity(2, relation)) ** 2 * slack


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_sensitivity_of_gradients_is_nearly_attained(norm, relation):
    _, gradient = statistics("box", (0.0, 0.0, 0.0), clip=1.2, clip_norm=norm)
    rows = [(5.0, 1e6, 1.0)] if relation == "add-remove" else [(5.0, 1e6, 1.0), (5.0, 1e6, 0.0)]
    before = gradient.exact(np.array(rows[1:]).reshape(-1, 3))
    absolute, squared = norms_of_change(before, gradient.exact(np.array(rows[:1])), gradient.bits)
    moved = float(absolute) if norm == 1 else math.sqrt(squared)
    expected = min(1.2, 1.5 if norm == 1 else math.sqrt(0.75)) * (1 if relation == "add-remove" else 2)
    assert moved == pytest.approx(expected, rel=1e-5)
    assert moved <= gradient.sensitivity(norm, relation)


def test_the_largest_gradient_is_that_of_a_corner_that_is_utterly_wrong():
    _, gradient = statistics("box", (-50.0, -50.0, -50.0), clip=3.0)
    absolute, squared = norms_of_change([0, 0, 0], gradient.exact(np.array([(5.0, 1e6, 1.0)])), gradient.bits)
    assert float(absolute) == pytest.approx(largest_gradient("box", 2, 1), rel=1e-5)
    assert math.sqrt(squared) == pytest.approx(largest_gradient("box", 2, 2), rel=1e-5)


def test_the_label_is_the_upper_half_of_its_bounds():
    _, gradient = statistics(clip=3.0)
    for label, side in ((0.0, 1), (0.49, 1), (0.5, -1), (1.0, -1), (7.0, -1), (-math.inf, 1)):
        found = gradient.exact(np.array([(1.0, 5e5, label)]))
        assert found.tolist() == [0, 0, side * 2**19]


def test_the_order_of_records_and_the_chunks_they_fall_in_change_nothing():
    points = np.random.default_rng(0).uniform((-3, 0, 0), (5, 1e6, 1), (CHUNK + 1000, 3))
    points[::97, 1] = math.nan
    for statistic in statistics("ball", (0.3, -2.0, 0.1)):
        whole = statistic.exact(points)
        np.testing.assert_array_equal(whole, statistic.exact(points[::-1]))
        np.testing.assert_array_equal(whole, statistic.exact(points[:7]) + statistic.exact(points[7:]))


def test_no_records_are_zeros_and_records_with_gaps_are_dropped():
    for statistic in statistics():
        assert not statistic.exact(np.empty((0, 3))).any()
        for place in range(3):
            record = np.array([[1.0, 2.0, 1.0]])
            record[0, place] = math.nan
            assert not statistic.exact(record).any()


def test_the_description_is_plain_data_that_gives_the_statistic_back():
    for statistic in statistics("ball", (0.1, 1 / 3, -7.0), clip_norm=2, step=2.0, radius=9.0):
        found = json.loads(json.dumps(statistic.describe()))
        again = GradientStatistic(
            found["part"],
            tuple(found["attributes"]),
            found["label"],
            tuple(map(tuple, found["bounds"])),
            found["region"],
            tuple(found["coefficients"]),
            found["clip"],
            found["clip_norm"],
            found["step"],
            found["radius"],
            found["bits"],
        )
        assert found["algorithm"] == "logistic"
        assert again == statistic


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"part": "sums"}, "no statistic"),
        ({"features": (), "bounds": ((0.0, 1.0),), "coefficients": (0.0,)}, "besides the label"),
        ({"features": ("x", "sex")}, "categorical"),
        ({"features": ("x", "rich")}, "twice"),
        ({"bounds": ((-3.0, 5.0), (0.0, 1.0), (0.0, 1.0))}, "declared as"),
        ({"clip": 0.0}, "clipped to"),
        ({"clip": math.inf}, "clipped to"),
        ({"clip_norm": 3}, "norm"),
        ({"coefficients": (0.0, 0.0)}, "coefficients"),
        ({"coefficients": (0.0, math.nan, 0.0)}, "finite"),
        ({"region": "cube"}, "not known"),
    ],
)
def test_what_does_not_fit_the_declaration_is_refused(change, words):
    with pytest.raises(DeclarationError, match=words):
        replace(statistics()[1], **change).check(DOMAIN)

"""Settings of the chains, and rounds read from measurement sets."""

from dataclasses import replace

import numpy as np
import pytest

from consilience.domain import Attribute, Domain, Query
from consilience.errors import DeclarationError, MeasurementError
from consilience.estimators.iterates import Iterates, Observed
from consilience.measurements import DiscreteGaussian, DiscreteLaplace, Exact, Laplace, Measurement, MeasurementSet

DOMAIN = Domain(
    "plane",
    (
        Attribute.categorical("sex", ["f", "m"]),
        Attribute.continuous("east", (0.0, 100.0)),
        Attribute.continuous("north", (-50.0, 50.0)),
    ),
)
STATISTIC = {
    "algorithm": "k-means",
    "attributes": ["east", "north"],
    "bounds": [[0.0, 100.0], [-50.0, 50.0]],
    "region": "box",
    "bits": 20,
}


def part(name, number, values, centroids, *, noise=None, **changed):
    statistic = STATISTIC | {"part": name, "centroids": centroids} | changed
    noise = noise or DiscreteLaplace(2.0, step=1.0 if name == "counts" else 2.0**-20)
    return Measurement(Query(()), values, noise, kind="record-sums", round=number, extra={"statistic": statistic})


def both(number, *, centroids=((0.1, 0.2), (-0.5, 0.0)), **changed):
    centroids = [list(row) for row in centroids]
    return [
        part("counts", number, np.arange(len(centroids)) + 5.0, centroids, **changed),
        part("sums", number, np.arange(2.0 * len(centroids)), centroids, **changed),
    ]


def measured(measurements):
    return MeasurementSet(DOMAIN, tuple(measurements))


def test_rounds_are_read_in_order_whatever_order_they_are_in():
    second = both(2, centroids=((0.3, 0.3), (0.4, 0.4)))
    observed = Observed.of(measured([*second, *both(1)]))
    assert observed.thetas.shape == (2, 2, 2)
    assert observed.thetas[1].tolist() == [[0.3, 0.3], [0.4, 0.4]]
    assert observed.values("sums").tolist() == [[0, 1, 2, 3]] * 2
    assert observed.scales("counts").tolist() == [2, 2]
    assert observed.laplace
    assert observed.shared["attributes"] == ["east", "north"]


@pytest.mark.parametrize(
    ("measurements", "message"),
    [
        ([], "no measurements"),
        ([*both(1), Measurement(Query.marginal("sex"), np.array([1.0, 2.0]), Laplace(1.0))], "no round of k-means"),
        ([*both(1), *both(3)], "round 2 of 3 lacks its counts and sums"),
        (both(2), "round 1 of 2 lacks"),
        (both(1)[:1], "round 1 of 1 lacks its sums"),
        ([*both(1), *both(1)], "round 1 has its counts twice"),
        ([*both(1), *both(2, centroids=((0.1, 0.2), (0.3, 0.1), (0.0, 0.0)))], "\\(2, 2\\) and round 2 of \\(3, 2\\)"),
        ([*both(1), *both(2, region="ball")], "'box' and round 2 'ball'"),
        ([*both(1), *both(2, bounds=[[0.0, 1.0], [0.0, 1.0]])], "bounds"),
        ([*both(0)], "numbered from 1"),
        (both(None), "round None"),
        (both(1, part="medians"), "the part 'medians'"),
        (both(1, algorithm="logistic"), "no round of k-means"),
        (both(1, centroids=(("a", "b"), (0.0, 0.0))), "in finite numbers"),
        ([both(1)[0], both(1, centroids=((0.0, 0.0), (0.1, 0.1)))[1]], "different centroids"),
    ],
)  # fmt: skip
def test_sets_that_are_no_run_are_refused_with_the_reason(measurements, message):
    with pytest.raises(MeasurementError, match=message):
        Observed.of(measured(measurements))


def test_clipped_values_and_mixed_or_exact_noise_are_refused():
    clipped = [replace(each, clipped=True) for each in both(1)]
    with pytest.raises(MeasurementError, match="clipped"):
        Observed.of(measured(clipped))
    mixed = [both(1)[0], part("sums", 1, np.arange(4.0), [[0.1, 0.2], [-0.5, 0.0]], noise=DiscreteGaussian(2.0))]
    with pytest.raises(MeasurementError, match="gaussian and laplace noise"):
        Observed.of(measured(mixed)).laplace  # noqa: B018
    with pytest.raises(MeasurementError, match="exact noise"):
        Observed.of(measured(both(1, noise=Exact()))).laplace  # noqa: B018


def test_an_unknown_algorithm_is_refused_with_a_suggestion():
    with pytest.raises(MeasurementError, match="did you mean 'k-means'"):
        Observed.of(measured(both(1)), algorithm="kmeans")


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"steps": 2.5},
        {"chains": 0},
        {"chains": True},
        {"seed": -1},
        {"draws": 0},
        {"restarts": -1},
        {"size": 0},
        {"size": "all"},
        {"burn_in": -1},
        {"steps": 100, "burn_in": 100},
        {"delta": 0.0},
        {"delta": float("nan")},
        {"ratio": "both"},
        {"target": "raw"},
        {"moves": "walks"},
        {"use": "mean"},
        {"tune": 1},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(DeclarationError):
        Iterates(**wrong)


def test_the_number_of_points_follows_from_public_numbers():
    assert Iterates().points(5, 1e6) == 48
    assert Iterates().points(100, 1e6) == 300
    assert Iterates(size=7).points(100, 1e6) == 7
    assert Iterates(size="records").points(5, 812.4) == 812
    assert Iterates(size="records").points(5, 1e6) == 1_000_000
    assert Iterates(size="records").points(5, 0.2) == 1


def test_settings_are_plain_data():
    assert Iterates(**Iterates.as_published(seed=3).to_json()) == Iterates.as_published(seed=3)

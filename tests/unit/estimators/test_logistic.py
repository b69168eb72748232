"""Logistic regression from all rounds: better than the last, repeatable, saved and read back, clear about bad input."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain, Query
from consilience.errors import DeclarationError, FileFormatError, MeasurementError
from consilience.estimators.iterates import Iterates
from consilience.estimators.logistic import RegressionEstimate, regress
from consilience.iterates.problems import fit_logistic, logistic_loss, signed_records
from consilience.measurements import Exact, Gaussian, Laplace, Measurement, MeasurementSet
from consilience.measuring import measure
from consilience.plans.rounds import Logistic
from consilience.source import open_table

DOMAIN = Domain(
    "clinic",
    (
        Attribute.continuous("age", (0.0, 100.0)),
        Attribute.continuous("dose", (-50.0, 50.0)),
        Attribute.continuous("cured", (0.0, 1.0)),
    ),
)
QUICK = Iterates(steps=15_000, draws=20)


def patients(records=4000, seed=0):
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 100, records), rng.normal(0, 20, records).clip(-50, 50)
    cured = rng.random(records) < 1 / (1 + np.exp((age - 50) / 20 - dose / 15))
    return age, dose, cured


def rounds_of(plan=None, *, records=4000, seed=0, **amounts) -> MeasurementSet:
    columns = dict(zip(("age", "dose", "cured"), map(np.asarray, patients(records)), strict=True))
    columns["cured"] = columns["cured"].astype(float)
    plan = plan or Logistic("cured", rounds=6)
    return measure(open_table(pa.table(columns), DOMAIN), plan, simulate=seed, **(amounts or {"epsilon": 1.0}))


def signed_patients():
    age, dose, cured = patients()
    return signed_records(np.column_stack([age / 50 - 1, dose / 50]), np.where(cured, 1.0, -1.0))


@pytest.fixture(scope="module")
def estimate() -> RegressionEstimate:
    return regress(rounds_of(), QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"rho": 0.05}])
def test_all_rounds_together_come_closer_than_the_last(amounts):
    signed = signed_patients()
    floor = fit_logistic(signed, ridge=1e-9).loss
    excess = []
    for seed in range(3):
        found = regress(rounds_of(seed=seed, **amounts), QUICK)
        excess.append([logistic_loss(each, signed) - floor for each in (found.last_iterate, found.coefficients)])
    last, all_rounds = np.mean(excess, axis=0)
    assert all_rounds < last / 2


def test_the_last_iterate_is_what_the_next_round_would_have_asked_with():
    longer = rounds_of(Logistic("cured", rounds=6))
    fewer = MeasurementSet(
        longer.domain, longer.measurements[:-2], longer.privacy, dict(longer.provenance), private=False
    )
    found = regress(fewer, replace(QUICK, steps=200))
    np.testing.assert_allclose(found.last_iterate, longer.measurements[-1].extra["statistic"]["coefficients"])


def test_a_seed_gives_the_same_estimate_and_another_seed_another(estimate):
    again = regress(rounds_of(), QUICK)
    np.testing.assert_array_equal(again.coefficients, estimate.coefficients)
    np.testing.assert_array_equal(again.drawn, estimate.drawn)
    assert not np.array_equal(regress(rounds_of(), replace(QUICK, seed=1)).coefficients, estimate.coefficients)


def test_measurements_that_went_through_a_file_give_the_same_estimate(tmp_path: Path, estimate):
    rounds_of().save(tmp_path / "m.parquet")
    again = regress(MeasurementSet.load(tmp_path / "m.parquet"), QUICK)
    np.testing.assert_array_equal(again.coefficients, estimate.coefficients)


def test_the_order_of_measurements_does_not_matter(estimate):
    found = rounds_of()
    turned = MeasurementSet(found.domain, found.measurements[::-1], found.privacy, {}, private=False)
    np.testing.assert_array_equal(regress(turned, QUICK).coefficients, estimate.coefficients)


def test_probabilities_are_those_of_the_coefficients_in_original_units(estimate):
    points = np.array([[20.0, 30.0], [80.0, -45.0], [50.0, 0.0]])
    slopes = estimate.in_original_units()
    expected = 1 / (1 + np.exp(-(points @ slopes[:-1] + slopes[-1])))
    np.testing.assert_allclose(estimate.probability(points), expected)
    assert estimate.probability([[20.0, 40.0]])[0] > 0.7 > 0.3 > estimate.probability([[90.0, -40.0]])[0]
    np.testing.assert_array_equal(estimate.probability([[1e9, 50.0]]), estimate.probability([[100.0, 50.0]]))


def test_in_the_ball_probabilities_exist_and_coefficients_in_original_units_do_not():
    found = regress(rounds_of(Logistic("cured", rounds=3, region="ball")), QUICK)
    assert found.probability([[20.0, 40.0]])[0] > found.probability([[90.0, -40.0]])[0]
    with pytest.raises(DeclarationError, match="probability"):
        found.in_original_units()


def test_intervals_widen_with_the_level_and_hold_the_middle_of_the_draws(estimate):
    narrow, wide = estimate.interval(0.5), estimate.interval(0.95)
    middle = np.median(estimate.drawn, axis=0)
    assert (wide[0] < narrow[0]).all()
    assert (narrow[0] <= middle).all()
    assert (middle <= narrow[1]).all()
    assert (narrow[1] < wide[1]).all()
    with pytest.raises(DeclarationError, match="level"):
        estimate.interval(1.0)


def test_an_estimate_is_saved_and_read_back(tmp_path: Path, estimate):
    estimate.save(tmp_path / "e.json")
    again = RegressionEstimate.load(tmp_path / "e.json")
    assert again.to_json() == json.loads(json.dumps(estimate.to_json()))
    np.testing.assert_array_equal(again.interval()[0], estimate.interval()[0])
    assert again.attributes == ("age", "dose")
    assert again.label == "cured"


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"format": "regression", "version": 1}', b"\xff\xfe"])
def test_a_file_that_is_no_estimate_is_refused(tmp_path: Path, content):
    (tmp_path / "e.json").write_bytes(content)
    with pytest.raises(FileFormatError, match="holds no regression"):
        RegressionEstimate.load(tmp_path / "e.json")
    with pytest.raises(FileFormatError, match="cannot read"):
        RegressionEstimate.load(tmp_path / "missing.json")


@pytest.mark.parametrize(("name", "value"), [("drawn", [[1.0]]), ("coefficients", [1e999, 0, 0]), ("region", "cube")])
def test_an_estimate_whose_parts_do_not_fit_is_refused(tmp_path: Path, estimate, name, value):
    (tmp_path / "e.json").write_text(json.dumps(estimate.to_json() | {name: value}))
    with pytest.raises(FileFormatError, match="holds no regression"):
        RegressionEstimate.load(tmp_path / "e.json")


def test_noise_that_drowns_everything_has_a_defined_result():
    found = regress(rounds_of(records=5, epsilon=0.001), QUICK)
    assert np.isfinite(found.coefficients).all()
    assert found.records >= 1
    assert ((found.probability([[0.0, 0.0], [100.0, 50.0]]) >= 0) & (found.probability([[0.0, 0.0]]) <= 1)).all()


def altered(change, places=slice(None)):
    """The rounds with some measurements replaced."""
    found = rounds_of(Logistic("cured", rounds=3))
    parts = list(found.measurements)
    parts[places] = [change(each) for each in parts[places]]
    return MeasurementSet(found.domain, tuple(each for each in parts if each), found.privacy, {}, private=False)


def left_out(measurement):
    """Nothing in the place of a measurement."""


def described(**words):
    return lambda each: replace(each, extra={"statistic": {**each.extra["statistic"], **words}})


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (lambda: altered(left_out), "no measurements"),
        (lambda: altered(left_out, slice(2, 3)), "round 2 of 3 lacks its count"),
        (lambda: altered(lambda each: replace(each, round=1), slice(2, 4)), "twice"),
        (lambda: altered(described(algorithm="k-means"), slice(0, 1)), "no round of logistic"),
        (lambda: altered(described(clip=9.0), slice(3, 4)), "round 2"),
        (lambda: altered(described(region="cube")), "no gradients of points"),
        (lambda: altered(described(coefficients=[1.0])), "do not fit"),
        (lambda: altered(described(clip_norm=7)), "norm 7"),
        (lambda: altered(described(bounds=[[0, 1]])), "do not fit"),
        (lambda: altered(described(bounds=[[0, 0]] * 3)), "no gradients of points"),
        (lambda: altered(described(step=None)), "how they step"),
        (lambda: altered(lambda each: replace(each, values=np.zeros(9)), slice(1, 2)), "9 values"),
        (lambda: altered(lambda each: replace(each, noise=Gaussian(3.0)), slice(1, 2)), "gaussian and laplace"),
        (lambda: altered(lambda each: replace(each, noise=Exact())), "exact"),
    ],
)
def test_what_is_no_whole_run_is_refused(measured, words):
    with pytest.raises(MeasurementError, match=words):
        regress(measured(), QUICK)


def test_queries_of_cells_are_refused():
    domain = Domain("d", (Attribute.categorical("sex", ["Female", "Male"]),))
    counts = Measurement(Query.marginal("sex"), np.array([1.0, 2.0]), noise=Laplace(1.0))
    found = rounds_of()
    with pytest.raises(MeasurementError, match="nothing else"):
        regress(MeasurementSet(domain, (counts,), found.privacy, {}, private=False))


def test_settings_that_mean_nothing_here_are_refused():
    with pytest.raises(DeclarationError, match="no totals"):
        regress(rounds_of(), Iterates(target="corrected"))
    for ridge in (0.0, float("nan")):
        with pytest.raises(DeclarationError, match="ridge"):
            regress(rounds_of(), QUICK, ridge=ridge)


def test_the_best_dataset_alone_is_an_option(estimate):
    found = regress(rounds_of(), replace(QUICK, use="best"))
    assert np.isfinite(found.coefficients).all()
    assert not np.array_equal(found.coefficients, estimate.coefficients)


def test_the_published_chain_runs_on_regressions_too():
    found = regress(rounds_of(records=500), Iterates.as_published(steps=3000, target="released"))
    assert found.diagnostics["acceptance_by_move"]["walk"] == 0
    assert np.isfinite(found.coefficients).all()

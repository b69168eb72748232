"""Intervals: exact ones against dense algebra, refitted ones against the laws of the noise, and what they refuse."""

import itertools

import numpy as np
import pytest

import consilience as cs
from consilience.domain import Domain, Query
from consilience.errors import ConsilienceError, DeclarationError, TooLarge
from consilience.estimators import Residual, Table, Tree
from consilience.measurements import Exact, Measurement, MeasurementSet, PrivacyStatement
from consilience.publication.intervals import ADAPTIVE, MODELLED, NEXT_TO_ZERO, SPENDS_NOTHING, interval, intervals
from consilience.publication.intervals import refits as replicates

DOMAIN = Domain.from_sizes({"a": 3, "b": 2, "c": 2}, name="intervals")
TRUTH = np.array([[[400.0, 300.0], [500.0, 350.0]], [[250.0, 600.0], [700.0, 450.0]], [[330.0, 540.0], [280.0, 610.0]]])
PAIRS = [("a", "b"), ("b", "c")]
NOISE = cs.Gaussian(4.0)


def measured(law=NOISE, *, seed: int = 0, scopes=PAIRS, truth=TRUTH) -> MeasurementSet:
    rng, found = np.random.default_rng(seed), []
    for names in scopes:
        query = Query.marginal(*names)
        exact = query.bind(DOMAIN).answer_full(truth).ravel()
        found.append(Measurement(query, exact + law.simulate(exact.size, rng), law))
    return MeasurementSet(DOMAIN, tuple(found), PrivacyStatement(), {}, private=False)


def written_out(query: Query) -> np.ndarray:
    units = np.eye(DOMAIN.cells).reshape(-1, *DOMAIN.shape)
    return np.stack([query.bind(DOMAIN).answer_full(unit).ravel() for unit in units], axis=1)


@pytest.mark.parametrize("method", [Table(nonnegative=False), Residual(nonnegative=False)])
@pytest.mark.parametrize("query", ["by a, b", "by b", "total", "b=0 by a"])
def test_linear_estimates_have_the_widths_of_generalised_least_squares(method, query):
    asked = Query.parse(query)
    rows = np.vstack([written_out(each.query) for each in measured()])
    covariance = written_out(asked) @ np.linalg.pinv(rows.T @ rows / 16.0) @ written_out(asked).T
    found = interval(cs.estimate(measured(), method=method), asked, 0.9)
    assert found.how == "covariances"
    np.testing.assert_allclose(found.high - found.low, 2 * 1.6448536 * np.sqrt(np.diag(covariance)), rtol=1e-6)


def test_one_measured_marginal_has_the_interval_of_its_noise():
    law = cs.Laplace(5.0)
    estimate = cs.estimate(measured(law, scopes=[("a", "b")]), method="table")
    found = interval(estimate, "by a, b", 0.9, refits=200)
    half = float(law.quantile(0.95))
    np.testing.assert_allclose((found.high - found.low) / 2, half, rtol=0.25)
    assert np.all(np.abs((found.high + found.low) / 2 - found.estimates) < 1e-9)


@pytest.mark.parametrize("method", ["tree", "table", "matrix", "graphical", "residual", "views"])
def test_every_estimator_has_intervals_and_twice_the_noise_makes_them_twice_as_wide(method):
    scopes = [("a", "b", "c")] if method == "tree" else PAIRS
    widths = []
    for stddev in (2.0, 4.0):
        estimate = cs.estimate(measured(cs.Gaussian(stddev), scopes=scopes), method=method)
        found = interval(estimate, "by a, b", refits=20)
        assert found.covers == "measured"
        assert np.all(found.low <= found.estimates)
        assert np.all(found.estimates <= found.high)
        widths.append(np.median(found.high - found.low))
    assert 1.6 < widths[1] / widths[0] < 2.4


@pytest.mark.slow
def test_coverage_is_near_the_level_and_half_the_noise_would_show():
    held, held_by_half = [], []
    exact = Query.marginal("a", "b").bind(DOMAIN).answer_full(TRUTH).ravel()
    for seed in range(60):
        estimate = cs.estimate(measured(cs.Laplace(6.0), seed=seed), method="table")
        found = interval(estimate, "by a, b", 0.9, refits=40, seed=seed)
        width = (found.high - found.low) / 2
        held.append(np.abs(found.estimates - exact) <= width)
        held_by_half.append(np.abs(found.estimates - exact) <= width / 2)
    # 360 answers, correlated in pairs: the standard deviation of a mean of 0.9 is about 0.02.
    assert 0.84 < np.mean(held) < 0.97
    assert np.mean(held_by_half) < 0.8


def test_queries_share_the_refits_and_answer_as_they_do_alone():
    estimate = cs.estimate(measured(), method="table")
    together = intervals(estimate, ["by a", "by b"], refits=30, seed=3)
    alone = interval(estimate, "by b", refits=30, seed=3)
    np.testing.assert_array_equal(together[1].low, alone.low)
    np.testing.assert_array_equal(together[1].high, alone.high)


def test_results_do_not_depend_on_threads(monkeypatch):
    alone = interval(cs.estimate(measured(), method="graphical"), "by a", refits=30)
    monkeypatch.setattr(replicates, "QUICK", 0.0)
    threaded = interval(cs.estimate(measured(), method="graphical"), "by a", refits=30)
    np.testing.assert_array_equal(alone.high, threaded.high)


def test_counts_that_cannot_be_negative_have_no_negative_ends():
    sparse = np.zeros(DOMAIN.shape)
    sparse[0, 0, 0] = 500.0
    estimate = cs.estimate(measured(cs.Laplace(8.0), truth=sparse), method="table")
    found = interval(estimate, "by a, b", refits=40)
    assert found.low.min() == 0.0
    assert found.uncertain[found.estimates < 1.0].all()
    assert not found.uncertain[int(np.argmax(found.estimates))]


@pytest.mark.parametrize("method", ["table", cs.estimators.Graphical(stop="converged")])
def test_low_ends_next_to_zero_are_zero_and_others_stay_as_far_below_as_high_ends_are_above(method):
    at_zero = 0
    for seed in range(3):
        few = np.random.default_rng(seed).poisson(1.5 * np.arange(12.0)).reshape(DOMAIN.shape).astype(float)
        estimate = cs.estimate(measured(cs.Laplace(4.0), truth=few, seed=seed), method=method)
        found = interval(estimate, "by a, b", refits=39, seed=seed)
        width = found.high - found.estimates
        zero = found.low == 0.0
        np.testing.assert_allclose(found.low[~zero], (found.estimates - width)[~zero], rtol=1e-12)
        assert np.all(found.low[~zero] > NEXT_TO_ZERO * width[~zero])
        assert np.all((found.estimates - width)[zero] <= NEXT_TO_ZERO * width[zero])
        at_zero += int(np.sum(zero & (found.estimates > 0.0)))
    assert at_zero > 0


def test_intervals_by_covariances_end_where_the_noise_says_also_next_to_zero():
    few = np.random.default_rng(0).poisson(3.0 * np.arange(12.0)).reshape(DOMAIN.shape).astype(float)
    estimate = cs.estimate(measured(truth=few), method=Table(nonnegative=False))
    found = interval(estimate, "by a, b")
    width = found.high - found.estimates
    np.testing.assert_allclose(
        found.low, np.maximum(found.estimates - width, np.minimum(found.estimates, 0.0)), rtol=1e-12
    )


def test_ratios_and_means():
    estimate = cs.estimate(measured(cs.Gaussian(3.0)), method="table")
    share = interval(estimate, "a=0", per="total", refits=60)
    assert share.estimates == pytest.approx(estimate.answer("a=0") / estimate.total)
    assert 0 < share.high[0] - share.low[0] < 0.02
    rows = interval(estimate, "by a, b", per="by a, b", refits=30)
    np.testing.assert_allclose(rows.high - rows.low, 0.0, atol=1e-12)
    with pytest.raises(DeclarationError, match="6 answers and 'c' has 2"):
        interval(estimate, "by a, b", per="by c")


def test_nothing_to_divide_by_is_no_number_and_no_crash():
    empty = np.zeros(DOMAIN.shape)
    estimate = cs.estimate(measured(cs.Gaussian(0.5), truth=empty).with_public(total=0), method="table")
    found = interval(estimate, "a=0", per="total", refits=30)
    assert np.isnan(found.estimates).all()


def test_exact_facts_have_no_width():
    estimate = cs.estimate(measured().with_public(total=TRUTH.sum()), method="table")
    found = interval(estimate, "total", refits=30)
    assert found.high - found.low == pytest.approx(0.0, abs=1e-3)
    assert found.covers == "measured"


@pytest.mark.parametrize(
    ("query", "basis"),
    [
        ("by a, b", "measured"),
        ("by c", "measured"),
        ("a=0|1", "measured"),
        ("total", "measured"),
        ("by a, c", "modelled"),
        ("by a, b, c", "modelled"),
    ],
)
def test_an_interval_says_what_its_answers_stand_on(query, basis):
    found = interval(cs.estimate(measured(), method="graphical"), query, refits=20)
    assert found.covers == basis
    assert (MODELLED in found.notes) is (basis == "modelled")
    assert SPENDS_NOTHING in found.notes


def test_the_notes_say_where_the_choice_of_queries_looked_at_the_data():
    adaptive = MeasurementSet(
        DOMAIN, measured().measurements, PrivacyStatement(), {"plan": {"plan": "aim"}}, private=False
    )
    assert ADAPTIVE in interval(cs.estimate(adaptive, method="table"), "by a", refits=20).notes
    assert ADAPTIVE not in interval(cs.estimate(measured(), method="table"), "by a", refits=20).notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1.0}, "the level is 1.0"),
        ({"level": float("nan")}, "the level is nan"),
        ({"refits": 3}, "refits is 3"),
        ({"refits": 50.0}, "refits is 50.0"),
        ({"seed": -1}, "the seed is -1"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(DeclarationError, match=message):
        interval(cs.estimate(measured(), method="table"), "by a", **options)


def test_more_replicates_than_fit_in_memory_are_refused_before_any_refit(monkeypatch):
    monkeypatch.setattr(replicates, "MOST_BYTES", 1000)
    with pytest.raises(TooLarge, match="fewer answers at a time"):
        interval(cs.estimate(measured(), method="table"), "by a, b")


def test_a_loss_of_ones_own_cannot_be_refitted():
    loss = cs.estimators.MarginalLoss([("a",)], lambda tables: (0.0, [np.zeros_like(table) for table in tables]))
    estimate = cs.estimators.Graphical(loss=loss, total=100.0).fit(measured())
    with pytest.raises(ConsilienceError, match="cannot be fitted again"):
        interval(estimate, "by a")


def test_intervals_of_an_opened_release_are_those_of_its_estimate(tmp_path):
    from consilience.publication import open_release

    estimate = cs.estimate(measured(), method="graphical")
    cs.write_bundle(estimate, tmp_path / "release")
    opened = open_release(tmp_path / "release").estimate
    before, after = interval(estimate, "by a", refits=20), interval(opened, "by a", refits=20)
    np.testing.assert_allclose(after.low, before.low, rtol=1e-9)
    np.testing.assert_allclose(after.high, before.high, rtol=1e-9)


def test_clipped_and_withheld_answers_are_clipped_and_withheld_again():
    from consilience.kernels.rng import generator
    from consilience.publication.intervals.refits import noisy_answers, simulated

    law, query = cs.Laplace(5.0), Query.marginal("a")
    values = np.array([30.0, 0.0, 12.0])
    clipped = Measurement(query, values, law, clipped=True)
    withheld = Measurement(query, values + 1, law, threshold=1.0, id="withheld")
    fact = Measurement(Query.marginal(), [42.0], Exact(), id="fact")
    given = MeasurementSet(DOMAIN, (clipped, withheld, fact), PrivacyStatement(), {}, private=True)
    estimate = cs.estimate(given, method="table")
    draws = [simulated(given, noisy_answers(estimate), generator(seed)) for seed in range(20)]
    assert all(not each.private for each in draws)
    first = np.array([each.measurements[0].values for each in draws])
    assert first.min() == 0.0
    assert (first > 0).any()
    assert any(each.measurements[1].censored is not None for each in draws)
    assert all(each.measurements[2].values.tolist() == [42.0] for each in draws)


def test_trees_without_nonnegativity_are_linear_too():
    estimate = cs.estimate(measured(scopes=[("a",), ("a", "b")]), method=Tree(loss="l2", nonnegative=False))
    assert interval(estimate, "by a").how == "covariances"
    assert interval(cs.estimate(measured(), method="table"), "by a", refits=20).how == "refits"


def test_every_pair_of_ends_is_ordered_at_every_level():
    estimate = cs.estimate(measured(), method="table")
    widths = [interval(estimate, "by a", level, refits=29).high for level in (0.5, 0.8, 0.95, 0.99)]
    for narrower, wider in itertools.pairwise(widths):
        assert np.all(narrower <= wider)


def test_answers_that_were_not_measured_have_no_interval():
    fitted = cs.estimate(measured(scopes=[("a", "b")]), method="table")
    for query in ("by c", "by a, c"):
        found = interval(fitted, query, refits=20)
        assert found.covers == "not measured"
        assert np.isnan([found.estimates, found.low, found.high]).all()
        assert not found.uncertain.any()

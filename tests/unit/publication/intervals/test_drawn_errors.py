"""Errors of models where they fill in: as strong as what was measured, within the measured margins, and honest."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import consilience as cs
from consilience.domain import Domain, Query
from consilience.domain.domains import ImpossibleCells
from consilience.kernels.rng import generator
from consilience.measurements import Measurement, MeasurementSet, PrivacyStatement
from consilience.publication.intervals import BETWEEN, MODELLED, UNKNOWN, drawn_errors, interval, intervals
from consilience.publication.intervals.drawn_errors import ModelErrors, drawn_tables
from consilience.publication.intervals.refits import estimator_of

NOISE = cs.Gaussian(10.0)
FLAGS = Domain.from_sizes(dict.fromkeys("abcde", 2), name="flags")
PAIRS = tuple(itertools.combinations("abcde", 2))
TRIPLES = [Query.marginal(*names) for names in itertools.combinations("abcde", 3)]


def hidden_groups() -> np.ndarray:
    """20,000 records of three groups, within which flags are independent: interactions of every order."""
    rates = np.random.default_rng(5).beta(0.4, 0.6, size=(3, 5))
    ones = np.array(list(np.ndindex(FLAGS.shape)))
    shares = sum(np.prod(np.where(ones > 0, rate, 1 - rate), axis=1) for rate in rates) / 3
    return np.random.default_rng(6).multinomial(20_000, shares / shares.sum()).reshape(FLAGS.shape).astype(float)


def independent_flags() -> np.ndarray:
    shares = np.array([1.0])
    for rate in (0.3, 0.5, 0.6, 0.2, 0.4):
        shares = np.outer(shares, [1 - rate, rate]).ravel()
    return np.random.default_rng(7).multinomial(20_000, shares).reshape(FLAGS.shape).astype(float)


def pairs_of(truth: np.ndarray, law: cs.Gaussian = NOISE) -> MeasurementSet:
    rng, found = np.random.default_rng(0), []
    for names in PAIRS:
        exact = Query.marginal(*names).bind(FLAGS).answer_full(truth).ravel()
        found.append(Measurement(Query.marginal(*names), exact + law.simulate(exact.size, rng), law))
    return MeasurementSet(FLAGS, tuple(found), PrivacyStatement(), {}, private=False)


def held(found, truth: np.ndarray) -> np.ndarray:
    exact = [each.query.bind(FLAGS).answer_full(truth).ravel() for each in found]
    return np.concatenate([(e.low <= t) & (t <= e.high) for e, t in zip(found, exact, strict=True)])


def test_where_three_attributes_interact_the_models_error_is_in_the_interval_and_noise_alone_misses(monkeypatch):
    truth = hidden_groups()
    estimate = cs.estimate(pairs_of(truth), method="graphical")
    found = intervals(estimate, TRIPLES, refits=20)
    monkeypatch.setattr(ModelErrors, "draws", lambda *asked: [np.zeros((asked[3], 8))])
    by_noise = intervals(estimate, TRIPLES, refits=20)
    for wide, narrow in zip(found, by_noise, strict=True):
        assert wide.covers == "modelled"
        assert MODELLED in wide.notes
        assert np.all(wide.high >= narrow.high)
        assert np.all(wide.low <= narrow.low)
    assert held(by_noise, truth).mean() < 0.7
    assert held(found, truth).mean() > 0.9


def test_strengths_are_nothing_where_attributes_are_independent_and_much_where_they_are_not():
    alike = ModelErrors(cs.estimate(pairs_of(independent_flags()), method="graphical"), 0)
    grouped = ModelErrors(cs.estimate(pairs_of(hidden_groups()), method="graphical"), 0)
    assert np.median(list(alike.strengths_of(2).values())) < 0.1
    assert np.median(list(grouped.strengths_of(2).values())) > 0.3


def test_drawn_tables_keep_the_measured_margins_and_are_never_negative():
    model = np.random.default_rng(0).gamma(1.0, 50.0, size=(3, 4, 2))
    drawn = drawn_tables(model, [(0, 1), (1, 2)], [((0, 2), np.full(30, 0.5))], 30, generator(1))
    assert drawn.min() >= 0.0
    for axes in ((2,), (0,)):
        wanted = np.broadcast_to(model.sum(axis=axes), (30, *model.sum(axis=axes).shape))
        np.testing.assert_allclose(drawn.sum(axis=tuple(1 + a for a in axes)), wanted, rtol=0.05, atol=0.5)
    assert np.std(drawn.sum(axis=3)[:, 0, 0]) < 1.0
    assert np.std(drawn.sum(axis=2)[:, 0, 0]) > 5.0


def test_where_the_models_error_cannot_be_said_there_is_a_number_and_no_interval(monkeypatch):
    monkeypatch.setattr(drawn_errors, "LARGEST_TABLE", 4)
    estimate = cs.estimate(pairs_of(hidden_groups()), method="graphical")
    found = interval(estimate, "by a, b, c", refits=20)
    assert np.isfinite(found.estimates).all()
    assert np.isnan(found.low).all()
    assert np.isnan(found.high).all()
    assert UNKNOWN in found.notes
    assert np.isfinite(interval(estimate, "by a, b", refits=20).high).all()


def test_what_nobody_measured_has_no_interval():
    law = cs.Gaussian(5.0)
    tables = {("a",): [900.0, 100.0], ("b",): [400.0, 600.0]}
    estimate = cs.estimate(MeasurementSet.from_marginals(FLAGS, tables, noise=law), method="graphical")
    found = interval(estimate, "by a, b", refits=20)
    assert found.covers == "not measured"
    assert np.isnan(found.high).all()
    assert np.isfinite(interval(estimate, "by a", refits=20).high).all()


def test_shares_of_modelled_answers_have_the_models_error_too():
    estimate = cs.estimate(pairs_of(hidden_groups()), method="graphical")
    counts, shares = (
        interval(estimate, "by a, b, c", refits=20),
        interval(estimate, "by a, b, c", per="total", refits=20),
    )
    np.testing.assert_allclose(shares.high - shares.low, (counts.high - counts.low) / estimate.total, rtol=0.1)


def test_signed_least_squares_are_no_model_and_have_intervals_of_measured_answers_only():
    estimate = cs.estimate(pairs_of(hidden_groups()), method=cs.estimators.Table(nonnegative=False))
    modelled, measured = intervals(estimate, ["by a, b, c", "by a, b"])
    assert modelled.how == "covariances"
    assert UNKNOWN in modelled.notes
    assert np.isnan(modelled.high).all()
    assert np.isfinite(measured.high).all()


@pytest.mark.slow
def test_a_small_count_among_zeros_is_held_as_often_as_said_and_was_not_before():
    domain, law = Domain.from_sizes({"x": 64}), cs.Laplace(10.0)
    truth = np.zeros(64)
    truth[:4], truth[10] = 1000.0, 20.0
    rng, right = np.random.default_rng(0), 0
    for seed in range(200):
        noisy = Measurement(Query.marginal("x"), truth + law.simulate(64, rng), law)
        measured = MeasurementSet(domain, (noisy,), PrivacyStatement(), {}, private=False).with_public(total=4020)
        found = interval(cs.estimate(measured, method="table"), "by x", refits=39, seed=seed)
        right += bool(found.low[10] <= 20.0 <= found.high[10])
    # A coverage of 95 % gives 190 ± 3.1.
    assert right > 190 - 4 * math.sqrt(200 * 0.05 * 0.95)


def test_next_to_zero_the_high_end_is_no_lower_than_the_answers_own_measurement_says():
    domain, law = Domain.from_sizes({"x": 64}), cs.Laplace(10.0)
    truth = np.zeros(64)
    truth[:4] = 1000.0
    values = truth + law.simulate(64, np.random.default_rng(1))
    measured = MeasurementSet(
        domain, (Measurement(Query.marginal("x"), values, law),), PrivacyStatement(), {}, private=False
    )
    found = interval(cs.estimate(measured.with_public(total=4000), method="table"), "by x", refits=20)
    at_zero = found.low == 0.0
    assert at_zero.sum() > 40
    assert np.all(found.high[at_zero] >= (values + law.quantile(0.975))[at_zero] - 1e-9)


def test_where_a_fit_stayed_at_its_beginning_the_account_that_stands_in_went_on():
    # With so much noise the optimum is out of the question, whatever rounding says of its estimated error.
    estimate = cs.estimate(pairs_of(hidden_groups(), law=cs.Gaussian(800.0)), method="graphical")
    stayed = replace(estimate, stats={**estimate.stats, "effort": 0.0})
    independent = np.outer(estimate.marginal("a"), estimate.marginal("b")) / estimate.total
    apart = np.abs(stayed.stand_in(estimator_of(stayed)).marginal("a", "b") - independent).max()
    assert apart > 0.5 * np.abs(estimate.marginal("a", "b") - independent).max()


# ----------------------------------------------------------------------------------------------------------------------
# Least squares in place of estimates that smooth.


def test_least_squares_in_place_of_an_estimate_are_those_of_dense_algebra():
    domain = Domain.from_sizes({"a": 3, "b": 2, "c": 2})
    rng, queries = (
        np.random.default_rng(3),
        [Query.marginal("a", "b"), Query.parse("prefix(a)"), Query.parse("by b, c")],
    )
    laws = [cs.Gaussian(4.0), cs.Laplace(2.0), cs.Gaussian(9.0)]
    table = rng.uniform(20.0, 200.0, domain.shape)
    exact = [np.ravel(query.bind(domain).answer_full(table)) for query in queries]
    measurements = [
        Measurement(query, found + law.simulate(found.size, rng), law)
        for query, found, law in zip(queries, exact, laws, strict=True)
    ]
    measured = MeasurementSet(domain, tuple(measurements), PrivacyStatement(), {}, private=False)
    rows = np.vstack([query.bind(domain).written_out() for query in queries])
    scale = np.concatenate([np.full(each.values.size, each.noise.variance**-0.5) for each in measurements])
    values = np.concatenate([np.ravel(each.values) for each in measurements])
    cells = np.linalg.pinv(rows * scale[:, None]) @ (values * scale)
    found = drawn_errors.unbiased(cs.estimate(measured, method="residual"))
    assert found is not None
    for text in ("by a, b", "by b", "total", "a=1..2 by b"):
        query = Query.parse(text)
        np.testing.assert_allclose(np.ravel(found.answer(query)), query.bind(domain).written_out() @ cells, atol=1e-6)


def test_a_measured_count_that_stands_out_is_held_as_often_as_said_though_the_model_smooths_it_away():
    names, law, away, draws = "abcdefgh", cs.Gaussian(60.0), 60.0, 24
    domain, rates = Domain.from_sizes(dict.fromkeys(names, 2)), np.random.default_rng(1).uniform(0.2, 0.6, 8)
    shares = {name: np.array([1 - rate, rate]) for name, rate in zip(names, rates, strict=True)}
    exact = {pair: 20_000 * np.outer(*(shares[name] for name in pair)) for pair in itertools.combinations(names, 2)}
    exact["a", "b"] += away * np.array([[1.0, -1.0], [-1.0, 1.0]])
    rows = np.vstack([Query.marginal(*pair).bind(domain).written_out() for pair in exact])
    asked = Query.marginal("a", "b")
    told = asked.bind(domain).written_out()
    deviations = 60.0 * np.sqrt(np.diag(told @ np.linalg.pinv(rows.T @ rows) @ told.T))
    held, errors, widths = np.zeros(4), [], []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        tables = {pair: table + law.simulate(4, rng).reshape(2, 2) for pair, table in exact.items()}
        estimate = cs.estimate(MeasurementSet.from_marginals(domain, tables, noise=law), method="graphical")
        found = interval(estimate, asked, refits=39, seed=seed)
        held += (found.low <= exact["a", "b"].ravel()) & (exact["a", "b"].ravel() <= found.high)
        errors.append(found.estimates - exact["a", "b"].ravel())
        widths.append((found.high - found.low) / 2.0)
    assert np.abs(np.mean(errors, axis=0)).min() > away / 2.0  # smoothed away, in all draws alike
    assert held.min() >= 19  # 95 % of 24 are 22.8 ± 1.1
    np.testing.assert_allclose(np.mean(widths, axis=0), 1.96 * deviations, rtol=0.25)


def test_where_least_squares_are_not_to_be_had_a_smooth_estimate_has_the_intervals_of_its_own_measurements():
    measured, law = pairs_of(hidden_groups(), law=cs.Gaussian(800.0)), cs.Gaussian(800.0)
    alone = Measurement(Query.parse("a=0 by c, d"), np.array([900.0, 1400.0, 700.0, 2000.0]), law)
    estimate = cs.estimate(replace(measured, measurements=(*measured.measurements, alone)), method="graphical")
    assert estimate.smooths
    assert drawn_errors.unbiased(estimate) is None
    found, reach = interval(estimate, "a=0 by c, d", refits=20), 1.959964 * 800.0
    np.testing.assert_allclose(found.high, np.maximum(found.estimates, alone.values + reach), rtol=1e-5)
    np.testing.assert_allclose(found.low, np.minimum(found.estimates, np.maximum(alone.values - reach, 0.0)), rtol=1e-5)


def test_intervals_of_measured_answers_fit_no_smooth_model_again(monkeypatch):
    estimate = cs.estimate(pairs_of(hidden_groups(), law=cs.Gaussian(800.0)), method="graphical")
    monkeypatch.setattr(cs.estimators.Graphical, "refit", None)
    found = interval(estimate, "by a, b", refits=20)
    assert found.how == "least squares"
    assert np.all((found.low <= found.estimates) & (found.estimates <= found.high))
    shares = interval(estimate, "by a, b", per="total", refits=20)
    assert np.isfinite(shares.high).all()


def test_a_cell_that_cannot_occur_is_certain():
    rule = cs.Domain("flags", FLAGS.attributes, impossible=(ImpossibleCells((("a", (1,)), ("b", (1,)))),))
    truth = hidden_groups()
    truth[1, 1] = 0.0
    measured = replace(pairs_of(truth, law=cs.Gaussian(800.0)), domain=rule)
    found = interval(cs.estimate(measured, method="graphical"), "by a, b", refits=20)
    assert (found.low[3], found.high[3]) == (0.0, 0.0)
    assert np.all(found.high[:3] > found.low[:3])


BINS = Domain.from_sizes({"x": 12, "s": 2}, name="bins")
DAWA = {"plan": {"plan": "dawa", "attribute": "x"}}
CUTS = cs.domain.factors.Matrix.of(np.repeat(np.eye(3), 4, axis=1).tolist())


@pytest.mark.parametrize("method", ["table", "tree", "matrix"])
def test_values_that_were_measured_together_have_intervals_that_hold_however_the_records_are_spread(method):
    counts = np.array([400.0, 0, 0, 0, 0, 0, 0, 90, 30, 0, 200, 0])
    domain = Domain.from_sizes({"x": 12}) if method == "tree" else BINS
    held, widths = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        noisy = [(Query.of({"x": CUTS}), counts.reshape(3, 4).sum(axis=1))]
        if method != "tree":
            noisy.append((Query.marginal("s"), np.array([500.0, 220.0])))
        measured = [Measurement(query, exact + NOISE.simulate(exact.size, rng), NOISE) for query, exact in noisy]
        known = MeasurementSet(domain, tuple(measured), PrivacyStatement(), DAWA, private=False)
        prefixes, values = intervals(cs.estimate(known, method=method), ["prefix(x)", "by x"], refits=20)
        assert prefixes.covers == "modelled"
        assert BETWEEN in prefixes.notes
        assert np.isfinite([prefixes.low, prefixes.high]).all()
        assert (values.low == 0.0).all()
        truth = np.cumsum(counts)
        held.append((prefixes.low <= truth) & (truth <= prefixes.high) & (counts <= values.high))
        widths.append(prefixes.high - prefixes.low)
    assert np.mean(held) >= 0.93
    # A prefix within the second group may hold nothing of its 90 records, or all of them.
    assert 80 < np.mean(widths, axis=0)[5] < 220


def test_prefixes_after_values_were_joined_privately_have_intervals_beside_another_attribute():
    x = cs.domain.Attribute.numeric("x", list(range(1101)))
    domain = Domain("town", (x, cs.domain.Attribute.categorical("s", ["a", "b"])))
    starts = [0, 300, 500]
    asked = Query.of({"x": cs.domain.factors.Intervals.from_codes(x, starts)})
    found = [Measurement(asked, np.array([40.0, 900.0, 20.0]), NOISE)]
    found.append(Measurement(Query.marginal("s"), np.array([500.0, 470.0]), NOISE))
    known = MeasurementSet(domain, tuple(found), PrivacyStatement(), DAWA, private=False)
    prefixes = interval(cs.estimate(known), "prefix(x)", refits=20)
    assert np.isfinite([prefixes.low, prefixes.high]).all()
    inside = slice(300, 499)
    assert (prefixes.low[inside] < 120).all()
    assert (prefixes.high[inside] > 880).all()

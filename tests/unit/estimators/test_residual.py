"""Residual: consistent marginals of many attributes, facts, clipped and withheld answers, and what it refuses."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Domain, Query, factors
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts
from consilience.errors import DeclarationError, FileFormatError, MeasurementError, TooLarge
from consilience.estimators.base import SavedModel
from consilience.estimators.marginals import MarginalsEstimate
from consilience.estimators.residual import Residual
from consilience.kernels.rng import generator
from consilience.measurements import Exact, Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.solvers.fit import Infeasible, Status

NAMES = tuple(f"a{i}" for i in range(9))
SIZES = (2, 3, 4, 5, 3, 2, 6, 4, 3)
DOMAIN = Domain.from_sizes(dict(zip(NAMES, SIZES, strict=True)), name="many")


def records(count: int = 3000, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, count)
    columns = []
    for size in SIZES:
        cumulated = rng.dirichlet(np.full(size, 0.5), 3).cumsum(axis=1)[group]
        columns.append((rng.random(count)[:, None] > cumulated).sum(axis=1).clip(max=size - 1))
    return np.stack(columns, axis=1)


ROWS = records()


def exact(*names: str, rows: np.ndarray = ROWS) -> np.ndarray:
    places = [NAMES.index(name) for name in names]
    shape = tuple(SIZES[place] for place in places)
    cells = np.ravel_multi_index(tuple(rows[:, place] for place in places), shape)
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape).astype(float)


PAIRS = list(itertools.combinations(NAMES, 2))


def noisy(marginals=PAIRS, *, sigma: float = 20.0, seed: int = 0, domain: Domain = DOMAIN) -> MeasurementSet:
    rng = np.random.default_rng(seed)
    tables = {names: exact(*names) + rng.normal(0, sigma, exact(*names).shape) for names in marginals}
    return MeasurementSet.from_marginals(domain, tables, noise=Gaussian(sigma), private=False)


def collected(*measurements: Measurement, domain: Domain = DOMAIN) -> MeasurementSet:
    return MeasurementSet(domain, measurements, PrivacyStatement(), {}, private=False)


def error(estimate: MarginalsEstimate, marginals=PAIRS) -> float:
    distances = [np.abs(estimate.marginal(*names) - exact(*names)).sum() for names in marginals]
    return float(np.mean(distances)) / (2 * len(ROWS))


def test_marginals_are_consistent_not_negative_and_better_than_clipping() -> None:
    measured = noisy()
    fitted = Residual().fit(measured)
    assert fitted.status is Status.CONVERGED
    clipped = []
    for each in measured:
        values = np.maximum(each.values, 0)
        truth = exact(*each.query.attributes).ravel()
        clipped.append(np.abs(values * len(ROWS) / values.sum() - truth).sum() / (2 * len(ROWS)))
    assert error(fitted) < 0.8 * np.mean(clipped)
    for one, two, three in itertools.permutations(NAMES[:4], 3):
        left, right = fitted.marginal(one, two), fitted.marginal(three, one)
        assert left.min() >= 0
        assert np.allclose(left.sum(axis=1), right.sum(axis=0), atol=1e-6 * fitted.total)
        assert left.sum() == pytest.approx(fitted.total)


def test_the_prior_helps_and_can_be_left_out() -> None:
    measured = noisy(sigma=60.0)
    assert error(Residual().fit(measured)) < error(Residual(prior=False).fit(measured))


def test_little_noise_is_followed_closely() -> None:
    fitted = Residual().fit(noisy(sigma=0.01))
    for names in PAIRS[:5]:
        assert np.allclose(fitted.marginal(*names), exact(*names), atol=0.1)


def test_the_order_of_measurements_and_axes_does_not_matter() -> None:
    measured = noisy()
    turned = [
        Measurement(
            Query.marginal(*reversed(each.query.attributes)),
            each.values.reshape(exact(*each.query.attributes).shape).T.ravel(),
            each.noise,
        )
        for each in reversed(list(measured))
    ]
    one, two = Residual().fit(measured), Residual().fit(collected(*turned))
    for names in PAIRS[:10]:
        assert np.allclose(one.marginal(*names), two.marginal(*names), atol=1e-6 * one.total)


@given(st.floats(0.01, 1000.0))
@settings(max_examples=8, deadline=None)
def test_counts_and_noise_in_other_units_give_the_same_account(unit: float) -> None:
    measured = noisy(PAIRS[:6])
    scaled = [Measurement(each.query, each.values * unit, Gaussian(20.0 * unit)) for each in measured]
    one, two = Residual().fit(measured), Residual().fit(collected(*scaled))
    for names in PAIRS[:6]:
        assert np.allclose(unit * one.marginal(*names), two.marginal(*names), atol=1e-3 * two.total)


def test_unequal_noise_is_weighed() -> None:
    rng = np.random.default_rng(3)
    truth = exact("a0", "a1")
    precise = Measurement(Query.marginal("a0", "a1"), truth.ravel() + rng.normal(0, 0.1, 6), Gaussian(0.1))
    rough = Measurement(Query.marginal("a1", "a2"), rng.normal(300, 200, 12), Gaussian(200.0))
    again = Measurement(Query.marginal("a0", "a1"), rng.normal(300, 200, 6), Gaussian(200.0))
    fitted = Residual().fit(collected(precise, rough, again))
    assert np.allclose(fitted.marginal("a0", "a1"), truth, atol=2.0)


def test_a_marginal_nobody_measured_has_greatest_entropy() -> None:
    fitted = Residual().fit(noisy([("a0", "a1"), ("a1", "a2"), ("a3", "a4"), ("a5", "a6"), ("a7", "a8")], sigma=1.0))
    apart = fitted.marginal("a0", "a3")
    product = np.outer(fitted.marginal("a0"), fitted.marginal("a3")) / fitted.total
    assert np.allclose(apart, product)
    assert np.allclose(fitted.marginal("a2", "a0", "a1").sum(axis=0), fitted.marginal("a0", "a1"), atol=1e-5)


def test_wanted_marginals_join_the_tables() -> None:
    measured = noisy([("a0", "a1"), ("a1", "a2"), ("a0", "a2"), ("a5", "a6"), ("a7", "a8"), ("a3", "a4")])
    fitted = Residual(marginals=(("a2", "a1", "a0"),)).fit(measured)
    assert (0, 1, 2) in {tuple(sorted(scope)) for scope in fitted.scopes}
    wanted = fitted.marginal("a0", "a1", "a2")
    assert wanted.min() >= 0
    assert np.allclose(wanted.sum(axis=2), fitted.marginal("a0", "a1"))
    assert fitted.method["marginals"] == [["a2", "a1", "a0"]]


def test_a_small_joint_table_makes_everything_consistent() -> None:
    fitted = Residual().fit(noisy([("a0", "a1"), ("a1", "a5"), ("a0", "a5")], sigma=200.0))
    joint = fitted.marginal("a0", "a1", "a5")
    assert joint.min() >= 0
    for axis, names in enumerate((("a1", "a5"), ("a0", "a5"), ("a0", "a1"))):
        assert np.allclose(joint.sum(axis=axis), fitted.marginal(*names), atol=1e-8 * fitted.total)


def test_public_facts_are_kept() -> None:
    measured = noisy(sigma=30.0).with_public(
        total=len(ROWS), margins={"a2": exact("a2"), ("a3", "a6"): exact("a3", "a6")}
    )
    fitted = Residual().fit(measured)
    assert fitted.total == len(ROWS)
    assert np.allclose(fitted.marginal("a2"), exact("a2"), atol=1e-6)
    assert np.allclose(fitted.marginal("a6", "a3").T, exact("a3", "a6"), atol=1e-6)
    assert fitted.marginal("a2", "a3").min() >= 0


def test_exact_answers_to_other_queries_are_kept() -> None:
    prefix = Query.of({"a6": factors.Prefix()})
    known = Measurement(prefix, np.cumsum(exact("a6")), Exact())
    fitted = Residual().fit(collected(*noisy(), known))
    assert np.allclose(fitted.marginal("a6"), exact("a6"), atol=1e-6)
    wrong = Measurement(Query.marginal("a6"), exact("a6") + np.array([5, 0, 0, 0, 0, 0.0]), Exact())
    with pytest.raises(Infeasible, match=r"a6.*contradict"):
        Residual().fit(collected(*noisy(), known, wrong))


def test_facts_that_no_counts_can_meet_are_refused() -> None:
    # a0 = a1 always, a1 = a5 always, and yet a0 ≠ a5 always.
    domain = Domain.from_sizes({"x": 2, "y": 2, "z": 2}, name="frustrated")
    same, other = np.array([50.0, 0, 0, 50.0]), np.array([0, 50.0, 50.0, 0])
    facts = [
        Measurement(Query.marginal("x", "y"), same, Exact()),
        Measurement(Query.marginal("y", "z"), same, Exact()),
        Measurement(Query.marginal("x", "z"), other, Exact()),
    ]
    rough = Measurement(Query.marginal("x"), np.array([52.0, 49.0]), Laplace(2.0))
    with pytest.raises(Infeasible):
        Residual(max_steps=300).fit(collected(*facts, rough, domain=domain))


def test_impossible_cells_stay_empty() -> None:
    rule = ImpossibleCells((("a3", (0, 1)), ("a6", (2,))))
    domain = Domain("many", DOMAIN.attributes, (rule,))
    measured = noisy(sigma=30.0, domain=domain)
    fitted = Residual().fit(measured)
    assert fitted.status is Status.CONVERGED
    assert fitted.marginal("a3", "a6")[:2, 2].max() == 0.0
    assert fitted.marginal("a3", "a6").min() >= 0
    free = Residual().fit(noisy(sigma=30.0))
    assert free.marginal("a3", "a6")[:2, 2].sum() > 0


@pytest.mark.parametrize("law", [Laplace, Gaussian])
def test_clipped_values_do_not_push_counts_up(law) -> None:
    domain = Domain.from_sizes({"x": 20, "y": 20, "z": 2}, name="sparse")
    rng = np.random.default_rng(5)
    truth = np.zeros((20, 20))
    truth[0, 0], truth[3, 7] = 400.0, 600.0
    noise = rng.laplace(0, 10, truth.shape) if law is Laplace else rng.normal(0, 10, truth.shape)
    values = np.maximum(truth + noise, 0.0).ravel()
    clipped = Measurement(Query.marginal("x", "y"), values, law(10.0), clipped=True)
    fitted = Residual().fit(collected(clipped, domain=domain))
    assert values.sum() > 2000
    assert fitted.total == pytest.approx(1000, abs=500)


def test_withheld_values_count_as_small() -> None:
    domain = Domain.from_sizes({"x": 6, "y": 5}, name="withheld")
    truth = np.zeros((6, 5))
    truth[0], truth[:, 0] = 100.0, 80.0
    rng = np.random.default_rng(2)
    values = (truth + rng.laplace(0, 2, truth.shape)).ravel()
    hidden = values < 20
    found = Measurement(Query.marginal("x", "y"), values, Laplace(2.0), censored=hidden, threshold=20.0)
    fitted = Residual().fit(collected(found, domain=domain))
    assert fitted.total == pytest.approx(truth.sum(), rel=0.1)
    assert fitted.marginal("x", "y")[2:, 2:].max() < 20


def test_queries_that_determine_their_marginal_are_fitted() -> None:
    rng = np.random.default_rng(7)
    sums = np.cumsum(exact("a6", "a0"), axis=0)
    query = Query.of({"a6": factors.Prefix(), "a0": factors.Identity()})
    prefix = Measurement(query, (sums + rng.normal(0, 3, sums.shape)).ravel(), Gaussian(3.0))
    fitted = Residual().fit(collected(prefix, *noisy([("a0", "a3"), ("a3", "a6")], sigma=40.0)))
    assert np.abs(fitted.marginal("a6", "a0") - exact("a6", "a0")).max() < 25
    assert float(fitted.stats["least_squares_remainder"]) < 1e-6


def test_what_does_not_suit_is_told() -> None:
    some = Measurement(Query.of({"a3": factors.Value("1")}), np.array([12.0]), Laplace(1.0))
    suitable = Residual().suitability(collected(some))
    assert not suitable.possible
    assert "does not determine" in suitable.reason
    sides = Query.of({"a0": factors.Matrix.of([[1.0, -1.0]])})
    difference = Measurement(sides, np.array([12.0]), Laplace(1.0))
    total = Measurement(Query(()), np.array([100.0]), Laplace(1.0))
    assert "differences alone" in Residual().suitability(collected(difference)).reason
    assert Residual().suitability(collected(difference, total)).possible
    assert np.allclose(Residual().fit(collected(difference, total)).marginal("a0"), [56.0, 44.0])
    with pytest.raises(TooLarge, match="residual cannot fit"):
        Residual().fit(collected(some))
    small = Residual(memory_limit=1000).suitability(noisy())
    assert not small.possible
    assert "the limit is 1 kB" in small.reason
    assert small.predicted_bytes > 1000
    with pytest.raises(MeasurementError, match="no noisy measurement"):
        Residual().suitability(collected())


def test_bad_options_are_refused() -> None:
    with pytest.raises(DeclarationError, match="tolerance"):
        Residual(tolerance=0.0)
    with pytest.raises(DeclarationError, match="max_steps"):
        Residual(max_steps=0)
    with pytest.raises(DeclarationError, match="nowhere"):
        Residual(marginals=(("a0", "nowhere"),)).fit(noisy())


def test_marginals_that_would_not_fit_are_refused() -> None:
    domain = Domain.from_sizes({f"x{i}": 100 for i in range(6)}, name="wide")
    marginals: dict[str | tuple[str, ...], Any] = {f"x{i}": np.full(100, 10.0) for i in range(6)}
    fitted = Residual().fit(MeasurementSet.from_marginals(domain, marginals, noise=Laplace(1.0), private=False))
    with pytest.raises(TooLarge, match="100,000,000 cells"):
        fitted.marginal("x0", "x1", "x2", "x3")
    with pytest.raises(DeclarationError, match="twice"):
        fitted.marginal("x0", "x0")
    assert fitted.answer(Query.of({"x0": factors.Prefix()}))[-1] == pytest.approx(fitted.total)


def test_no_records_give_empty_tables() -> None:
    found = Measurement(Query.marginal("a0", "a1"), np.full(6, -4.0), Laplace(1.0))
    fitted = Residual().fit(collected(found))
    assert fitted.total == 0
    assert not fitted.marginal("a0", "a1").any()
    assert fitted.sample(10, generator(0)).shape == (10, 9)


def test_synthetic_records_follow_single_attributes_and_strong_pairs() -> None:
    fitted = Residual().fit(noisy(sigma=5.0))
    rows = fitted.sample(3000, generator(2))
    assert rows.shape == (3000, 9)
    for name in NAMES:
        counts = np.bincount(rows[:, NAMES.index(name)], minlength=SIZES[NAMES.index(name)])
        assert np.abs(counts - fitted.marginal(name) * 3000 / fitted.total).max() < 15
    distances = [np.abs(exact(*names, rows=rows) - exact(*names)).sum() / 6000 for names in PAIRS]
    alone = [np.abs(np.outer(exact(a), exact(b)) / 3000 - exact(a, b)).sum() / 6000 for a, b in PAIRS]
    assert np.mean(distances) < np.mean(alone)


def test_a_saved_account_is_restored_and_a_foreign_one_refused() -> None:
    measured = noisy()
    fitted = Residual().fit(measured)
    saved = SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays())
    again = MarginalsEstimate.restore(saved, measured)
    assert np.array_equal(again.marginal("a3", "a1"), fitted.marginal("a3", "a1"))
    assert again.total == fitted.total
    with pytest.raises(FileFormatError, match="holds"):
        MarginalsEstimate.restore(SavedModel({}, Status.CONVERGED, {}, {"counts": np.zeros(3)}), measured)
    other = noisy([("a0", "a1")], domain=DOMAIN.project(["a0", "a1"]))
    with pytest.raises(FileFormatError, match="does not fit"):
        MarginalsEstimate.restore(saved, other)


def test_limits_are_told() -> None:
    assert Residual(max_steps=10, tolerance=1e-9).fit(noisy(sigma=100.0)).status is Status.STEP_LIMIT
    fitted = Residual(time_limit=0.0, tolerance=1e-9).fit(noisy(sigma=100.0))
    assert fitted.status is Status.TIME_LIMIT
    assert fitted.marginal("a0", "a1").min() >= 0


def test_public_total_alone_scales_everything() -> None:
    domain = Domain("many", DOMAIN.attributes, (), PublicFacts(total=1234.0))
    fitted = Residual().fit(noisy(sigma=30.0, domain=domain))
    assert fitted.total == 1234.0
    assert fitted.marginal("a3", "a4").sum() == pytest.approx(1234.0)


@pytest.mark.slow
def test_a_hundred_attributes_take_less_than_a_minute() -> None:
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(100)]
    group = rng.integers(0, 4, 20_000)
    weights = rng.dirichlet(np.full(10, 0.5), (100, 4)).cumsum(axis=2)
    codes = np.stack([(rng.random(20_000)[:, None] > w[group]).sum(axis=1).clip(max=9) for w in weights], axis=1)
    domain = Domain.from_sizes(dict.fromkeys(names, 10), name="hundred")
    marginals = {}
    for i, j in itertools.combinations(range(100), 2):
        counts = np.bincount(codes[:, i] * 10 + codes[:, j], minlength=100)
        marginals[names[i], names[j]] = counts + rng.normal(0, 30, 100)
    measured = MeasurementSet.from_marginals(domain, marginals, noise=Gaussian(30.0), private=False)
    fitted = Residual().fit(measured)
    assert fitted.status is Status.CONVERGED
    assert float(fitted.stats["seconds"]) < 60
    noise = missed = 0.0
    for i, j in itertools.combinations(range(0, 100, 10), 2):
        truth = np.bincount(codes[:, i] * 10 + codes[:, j], minlength=100)
        noise += np.abs(marginals[names[i], names[j]] - truth).sum()
        missed += np.abs(fitted.marginal(names[i], names[j]).ravel() - truth).sum()
    assert missed < 0.8 * noise


def test_without_nonnegativity_the_fit_is_weighted_least_squares_of_least_norm() -> None:
    domain = Domain.from_sizes({"a": 2, "b": 3, "c": 2}, name="signed")
    rng = np.random.default_rng(8)
    scopes = [("a", "b"), ("b", "c"), ("c",)]
    scales = [1.0, 2.0, 0.5]
    rows, values = [], []
    found = []
    for names, scale in zip(scopes, scales, strict=True):
        query = Query.marginal(*names)
        bound = query.bind(domain)
        noisy = rng.normal(0.0, 5.0, bound.size)
        found.append(Measurement(query=query, values=noisy, noise=Gaussian(scale)))
        rows.append(np.stack([bound.answer_full(unit.reshape(2, 3, 2)).ravel() for unit in np.eye(12)], axis=1) / scale)
        values.append(noisy / scale)
    measured = MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)
    fit = Residual(nonnegative=False).fit(measured)
    table = np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=None)[0].reshape(2, 3, 2)
    assert table.min() < 0
    assert fit.total == pytest.approx(table.sum())
    assert fit.marginal("a", "b") == pytest.approx(table.sum(2))
    assert fit.marginal("c", "a") == pytest.approx(table.sum(1).T)
    assert fit.marginal("a", "b", "c") == pytest.approx(table)
    assert fit.sample(20, generator(0)).shape == (20, 3)

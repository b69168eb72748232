"""The account of a run of DualQuery: its records as published, and the model under which its draws are most likely."""

import dataclasses
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.domain.workloads import Workload
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError, MeasurementError, ModelTooLarge
from consilience.estimators import choose, estimate
from consilience.estimators.published.dual_query import DualQuery, DualQueryRun, SyntheticRecords
from consilience.estimators.published.dual_query_model import (
    DualQueryModel,
    DualQueryModelEstimate,
    SignedChoices,
    draws_loss,
)
from consilience.kernels.rng import generator
from consilience.measurements import MeasurementSet
from consilience.measuring import measure
from consilience.plans.published.dual_query import DualQuery as DualQueryPlan
from consilience.publication.model_files import load_model, save_model
from consilience.source import open_table

RULE = ImpossibleCells((("x", (1,)), ("z", (0,))))
ATTRIBUTES = (
    Attribute.categorical("x", ["0", "1"]),
    Attribute.numeric("y", [0, 1, 2, 3, 4]),
    Attribute.categorical("z", ["0", "1", "2"]),
)
DOMAIN = Domain("table", ATTRIBUTES, public=PublicFacts(total=3000))
RULED = Domain("table", ATTRIBUTES, impossible=(RULE,), public=PublicFacts(total=3000))
WORKLOAD = Workload.of(
    [
        Query.of({"x": factors.Identity(), "y": factors.Prefix()}),
        Query.of({"z": factors.Identity(), "y": factors.Prefix()}),
        Query.marginal("y", "x"),
    ]
)


def records() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = (rng.random(3000) < 0.2).astype(int)
    y = np.minimum(rng.geometric(0.5, 3000) - 1 + x, 3)
    return np.stack([x, y, np.where(rng.random(3000) < 0.7, 2, 1)], axis=1)


CODES = records()
TRUTH = np.zeros((2, 4, 3))
np.add.at(TRUTH, tuple(CODES.T), 1.0)


def run(domain: Domain = DOMAIN, *, seed: int = 0, epsilon: float = 1.0, **options) -> MeasurementSet:
    table = pa.table({name: [str(code) for code in CODES[:, i]] for i, name in enumerate("xyz")})
    table = table.set_column(1, "y", pa.array(CODES[:, 1]))
    plan = DualQueryPlan(WORKLOAD, **options)
    source = open_table(table, domain)
    return measure(source, plan, epsilon=epsilon, delta=1e-3, neighbours="replace-one", simulate=seed)


MEASURED = run(draws=10, rounds=30)


def error(estimate) -> float:
    pairs = [(estimate.answer(query), query.bind(DOMAIN).answer_full(TRUTH)) for query in WORKLOAD.queries]
    return float(np.mean([np.abs(one - other).sum() / (2 * other.sum()) for one, other in pairs]))


def test_the_records_are_evenly_weighted() -> None:
    fitted = DualQuery().fit(MEASURED)
    found = DualQueryRun.of(MEASURED).found
    assert found.shape == (30, 3)
    full = np.zeros((2, 4, 3))
    for codes in found:
        full[tuple(codes)] += 100.0
    np.testing.assert_allclose(fitted.marginal("x", "y", "z"), full)
    np.testing.assert_allclose(fitted.marginal("z", "x"), full.sum(axis=1).T)
    assert float(fitted.marginal()) == fitted.total == 3000.0
    assert not fitted.private


def test_synthetic_rows_are_records_that_were_found_in_their_shares() -> None:
    fitted = DualQuery().fit(MEASURED)
    rows = fitted.sample(61, generator(0))
    shares = 61 * fitted.marginal("x", "y", "z") / 3000
    counts = np.zeros((2, 4, 3))
    np.add.at(counts, tuple(rows.T), 1.0)
    assert (np.abs(counts - shares) < 1).all()
    assert len(rows) == 61


@pytest.mark.slow
def test_the_model_is_closer_to_the_truth_than_the_records() -> None:
    records, models = [], []
    for seed in range(3):
        measured = run(seed=seed)
        records.append(error(DualQuery().fit(measured)))
        models.append(error(DualQueryModel(max_steps=150).fit(measured)))
    assert np.median(models) < 0.8 * np.median(records)


def test_the_loss_has_the_gradient_of_differences() -> None:
    chosen = DualQueryRun.of(MEASURED)
    loss = draws_loss(chosen)
    rng = np.random.default_rng(1)
    assert [set(names) for names in loss.marginals] == [{"x", "y"}, {"y", "z"}]
    tables = [rng.random(DOMAIN.sizes(names)) * 1000 for names in loss.marginals]
    _, gradients = loss.evaluate(tables)
    for which, table in enumerate(tables):
        for cell in np.ndindex(*table.shape):
            ends = []
            for sign in (1.0, -1.0):
                moved = [each.copy() for each in tables]
                moved[which][cell] += sign * 0.1
                ends.append(loss.evaluate(moved)[0])
            assert gradients[which][cell] == pytest.approx((ends[0] - ends[1]) / 0.2, abs=1e-6)


def test_the_loss_is_the_negative_log_likelihood_of_algorithm_five() -> None:
    chosen = DualQueryRun.of(MEASURED)
    loss = draws_loss(chosen)
    tables = [Query.marginal(*names).bind(DOMAIN).answer_full(TRUTH) for names in loss.marginals]
    shares = chosen.sets.answers([Query.marginal(*n).bind(DOMAIN).answer_full(TRUTH) for n in chosen.sets.marginals])
    shares = np.concatenate([shares, 3000 - shares]) / 3000
    logs, expected = np.zeros(shares.size), 0.0
    for found, drawn in zip(chosen.found[:-1], chosen.drawn, strict=True):
        held = chosen.sets.holding(found).astype(float)
        logs = logs - chosen.rate * (shares - np.concatenate([held, 1 - held]))
        logs = logs - np.log(np.exp(logs).sum())
        expected -= logs[drawn].sum()
    assert loss.evaluate(tables)[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("method", [DualQuery(), DualQueryModel(max_steps=30)])
def test_accounts_are_saved_and_restored(method, tmp_path: Path) -> None:
    fitted = method.fit(MEASURED)
    save_model(fitted, tmp_path / "model.parquet")
    MEASURED.save(tmp_path / "m.parquet")
    saved, measured = load_model(tmp_path / "model.parquet"), MeasurementSet.load(tmp_path / "m.parquet")
    again = type(fitted).restore(saved, measured)
    for names in (("x",), ("z", "y"), ("x", "y", "z"), ()):
        np.testing.assert_allclose(again.marginal(*names), fitted.marginal(*names))
    with pytest.raises(FileFormatError):
        type(fitted).restore(dataclasses.replace(saved, arrays={}), measured)


def test_a_model_of_records_that_the_domain_does_not_have_is_refused() -> None:
    fitted = DualQuery().fit(MEASURED)
    for codes in (fitted.codes[:, :2], fitted.codes + 0.5, fitted.codes + 9, fitted.codes[:0]):
        broken = dataclasses.replace(fitted, codes=codes)  # type: ignore[arg-type]
        saved = load_arrays(broken)
        with pytest.raises(FileFormatError):
            SyntheticRecords.restore(saved, MEASURED)


def load_arrays(fitted):
    from consilience.estimators.base import SavedModel

    return SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays())


def test_impossible_cells_stay_empty() -> None:
    measured = run(RULED, draws=10, rounds=20)
    assert not (DualQueryRun.of(measured).found[:, [0, 2]] == [1, 0]).all(axis=1).any()
    for account in (DualQuery().fit(measured), DualQueryModel(max_steps=20).fit(measured)):
        assert account.marginal("x", "z")[1, 0] == 0.0
        assert account.total == pytest.approx(3000)


def test_a_measured_total_is_the_total() -> None:
    measured = run(Domain("table", ATTRIBUTES), draws=10, rounds=12)
    total = max(1, round(float(measured.measurements[0].values[0])))
    assert DualQuery().fit(measured).total == total == DualQueryRun.of(measured).records
    assert DualQueryModel(max_steps=20).fit(measured).total == pytest.approx(total)


def test_the_model_answers_as_graphical_models_do_and_says_what_it_did() -> None:
    fitted = DualQueryModel(max_steps=50).fit(MEASURED)
    assert isinstance(fitted, DualQueryModelEstimate)
    assert fitted.method["method"] == "dual-query-model"
    assert fitted.stats["draws"] == 290
    np.testing.assert_allclose(fitted.answers([WORKLOAD.queries[0]])[0], fitted.answer(WORKLOAD.queries[0]))
    assert fitted.sample(10, generator(0)).shape == (10, 3)
    assert fitted.marginal("x", "y", "z").min() >= 0


def broken(**changes) -> MeasurementSet:
    (draws,) = MEASURED.measurements
    selection = {**draws.extra["selection"], **{k: v for k, v in changes.items() if k != "values"}}
    values = changes.get("values", draws.values)
    made = dataclasses.replace(draws, values=values, extra={"selection": selection})
    return MeasurementSet(DOMAIN, (made,), MEASURED.privacy, {}, private=False)


@pytest.mark.parametrize(
    "changes",
    [
        {"records": 0},
        {"records": 2.5},
        {"draws": 9},
        {"draws": True},
        {"found": [[0, 0, 0]]},
        {"found": [[0, 0]] * 30},
        {"found": [[0, 0, 9]] * 30},
        {"found": [[0, 0, "a"]] * 30},
        {"found": [[0, 0, -1]] * 30},
        {"found": [[0, 0], [0]]},
        {"values": [1e6] * 290},
        {"more": 1},
        {"workload": {"queries": [{"ask": "unknown"}]}},
        {"workload": 3},
    ],
)
def test_files_that_are_no_run_are_refused(changes) -> None:
    with pytest.raises(ConsilienceError):
        DualQuery().fit(broken(**changes))


def test_what_holds_no_run_or_two_is_refused() -> None:
    twice = tuple(replace(each, id=f"{copy}-{each.id}") for copy in range(2) for each in MEASURED)
    for measurements in ((), twice):
        with pytest.raises(MeasurementError, match="one run at a time"):
            DualQuery().fit(MeasurementSet(DOMAIN, measurements, MEASURED.privacy, {}, private=False))


def test_exact_facts_beyond_the_total_are_refused_by_name() -> None:
    known = MEASURED.with_public(margins={"x": TRUTH.sum(axis=(1, 2))})
    declared = Domain("t", ATTRIBUTES, public=PublicFacts(3000, (PublicMargin(("x",), (2000.0, 1000.0)),)))
    for measured in (known, MeasurementSet(declared, MEASURED.measurements, MEASURED.privacy, {}, private=False)):
        for method in (DualQuery(), DualQueryModel()):
            with pytest.raises(MeasurementError, match="x is known exactly"):
                method.fit(measured)


def test_a_model_too_large_is_refused_before_it_is_made() -> None:
    with pytest.raises(ModelTooLarge, match="dual-query"):
        DualQueryModel(largest_tree=3).fit(MEASURED)


def test_auto_reads_draws_by_a_model_and_by_the_records_found_where_that_is_too_large(monkeypatch) -> None:
    measured = run()
    fitted = estimate(measured)
    assert fitted.method["method"] == "dual-query-model"
    assert fitted.method["chosen"] == "auto"
    monkeypatch.setattr(sys.modules["consilience.estimators.choose"], "LONGEST_FIT", -1.0)
    chosen = choose(measured)
    assert isinstance(chosen.estimator, DualQuery)
    assert "not dual-query-model" in chosen.reason


# ----------------------------------------------------------------------------------------------------------------------
# The likelihood of signed choices: against the sum written out, with a gradient that differences confirm.


def drawn_choices(seed: int, *, rows: int = 5, steps: int = 6, draws: int = 4, rate: float = 0.7) -> SignedChoices:
    rng = np.random.default_rng(seed)
    met = (rng.random((steps, rows)) < 0.4).astype(np.uint8)
    return SignedChoices(met, rng.integers(0, 2 * rows, (steps, draws)), rate)


def written_out(choices: SignedChoices, shares: np.ndarray) -> float:
    steps, rows = choices.met.shape
    loss = 0.0
    for t in range(steps):
        history = choices.met[: t + 1].sum(axis=0)
        exponents = [choices.rate * (history[q] - (t + 1) * shares[q]) for q in range(rows)]
        weights = [math.exp(v) for v in exponents] + [math.exp(-v) for v in exponents]
        loss -= sum(math.log(weights[place] / sum(weights)) for place in choices.drawn[t])
    return loss


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), rate=st.sampled_from([0.01, 0.7, 3.0]))
def test_the_loss_is_the_one_written_out(seed, rate) -> None:
    choices = drawn_choices(seed, rate=rate)
    shares = np.random.default_rng(seed + 1).random(5)
    assert choices.loss_and_gradient(shares)[0] == pytest.approx(written_out(choices, shares), rel=1e-10)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_gradient_is_that_of_differences(seed) -> None:
    choices = drawn_choices(seed)
    shares = np.random.default_rng(seed + 1).random(5)
    _, gradient = choices.loss_and_gradient(shares)
    for q in range(5):
        step = np.zeros(5)
        step[q] = 1e-5
        difference = written_out(choices, shares + step) - written_out(choices, shares - step)
        assert gradient[q] == pytest.approx(difference / 2e-5, abs=1e-5)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_loss_is_convex(seed) -> None:
    choices = drawn_choices(seed)
    one, other = np.random.default_rng(seed + 1).random((2, 5))
    ends = choices.loss_and_gradient(one)[0] + choices.loss_and_gradient(other)[0]
    assert choices.loss_and_gradient((one + other) / 2)[0] <= ends / 2 + 1e-9


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_kernel_agrees_with_the_formula(seed) -> None:
    choices = drawn_choices(seed, rows=30, steps=25, rate=2.0)
    shares = np.random.default_rng(seed + 1).random(30)
    logs, slopes = choices._by_kernel(shares)
    expected_logs, expected_slopes = choices._by_formula(shares)
    np.testing.assert_allclose(logs, expected_logs, rtol=1e-12)
    np.testing.assert_allclose(slopes, expected_slopes, rtol=1e-9, atol=1e-12)


def test_exponents_too_large_for_floats_are_no_trouble() -> None:
    choices = drawn_choices(0, steps=40, rate=500.0)
    loss, gradient = choices.loss_and_gradient(np.linspace(0.1, 0.9, 5))
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()


def test_draws_from_the_law_have_their_least_loss_near_the_truth() -> None:
    rng = np.random.default_rng(0)
    rows, steps, draws, rate = 4, 30, 2000, 0.5
    truth = np.array([0.1, 0.3, 0.5, 0.8])
    met = (rng.random((steps, rows)) < 0.5).astype(np.uint8)
    drawn = []
    for t in range(steps):
        v = rate * (met[: t + 1].sum(axis=0) - (t + 1) * truth)
        weights = np.exp(np.concatenate([v, -v]))
        drawn.append(rng.choice(2 * rows, draws, p=weights / weights.sum()))
    choices = SignedChoices(met, np.array(drawn), rate)
    found = minimize(choices.loss_and_gradient, np.full(rows, 0.5), jac=True, method="L-BFGS-B")
    assert found.x == pytest.approx(truth, abs=0.03)


def test_what_does_not_fit_together_is_refused() -> None:
    met = np.zeros((2, 3), np.uint8)
    fine = np.zeros((2, 4), np.int64)
    for parts in (
        (met, np.zeros((3, 4), np.int64), 1.0),
        (met, fine + 6, 1.0),
        (met, fine - 1, 1.0),
        (met, fine, 0.0),
        (met[:0], fine[:0], 1.0),
    ):
        with pytest.raises(DeclarationError):
            SignedChoices(*parts)

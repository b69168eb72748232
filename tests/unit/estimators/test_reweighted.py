"""Public records that are reweighted, and as the prior of a graphical model."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, nnls

from consilience.domain import Attribute, Domain, Query
from consilience.domain.domains import ImpossibleCells
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError, MeasurementError, PoorFit
from consilience.estimators import Graphical, estimate, restore
from consilience.estimators.base import SavedModel
from consilience.estimators.choose import judged
from consilience.estimators.reweighted import PublicRecords, RecordOracle, Reweighted, largest_by_noise, public_check
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, Laplace, Measurement, MeasurementSet
from consilience.models.junction_trees import junction_tree
from consilience.models.oracle import MarginalOracle
from consilience.models.tables import TableLayout
from consilience.publication import interval
from consilience.publication.intervals.refits import estimator_of, refit
from consilience.solvers.fit import Status

DOMAIN = Domain.from_sizes({"a": 3, "b": 4, "c": 2}, name="people")
PAIRS = [("a", "b"), ("b", "c")]


def public(rows: int = 400, seed: int = 0, domain: Domain = DOMAIN) -> PublicRecords:
    codes = np.random.default_rng(seed).integers(0, domain.shape, (rows, len(domain.shape)))
    return PublicRecords.of(domain, codes, name="Census 2021")


def measured(
    truth: np.ndarray, scopes: list[tuple[str, ...]] = PAIRS, *, stddev: float = 5.0, seed: int = 1, law: Any = Gaussian
) -> MeasurementSet:
    rng, noise = generator(seed), law(stddev if law is Gaussian else stddev / np.sqrt(2.0))
    made = []
    for names in scopes:
        exact = Query.marginal(*names).bind(DOMAIN).answer_full(truth).ravel()
        made.append(Measurement(Query.marginal(*names), exact + noise.simulate(exact.size, rng), noise))
    return MeasurementSet(DOMAIN, tuple(made), private=False)


def table_like(records: PublicRecords, total: float, seed: int = 3) -> np.ndarray:
    """A table that has records in the public cells alone, and other shares there."""
    shares = records.table(DOMAIN.names) * np.random.default_rng(seed).gamma(2.0, size=DOMAIN.shape)
    return total * shares / shares.sum()


def dense_rows(found: MeasurementSet, records: PublicRecords) -> tuple[np.ndarray, np.ndarray]:
    """The measured rows over records, in units of the noise, and the observed values."""
    rows = [each.query.bind(DOMAIN).written_out() / each.noise.stddev_of_noise for each in found]
    cells = np.ravel_multi_index(tuple(records.codes.T), DOMAIN.shape)
    observed = [each.values / each.noise.stddev_of_noise for each in found]
    return np.concatenate(rows)[:, cells], np.concatenate(observed)


@pytest.mark.parametrize("few", [3, 8, 400])
def test_the_converged_fit_is_the_dense_least_squares_weighting(few: int) -> None:
    records = public(few)
    found = measured(table_like(public(), 1000.0))
    fitted = Reweighted(records, stop="converged", tolerance=1e-6).fit(found)
    rows, observed = dense_rows(found, records)
    held = 1e4  # the total is held as a row of next to no noise
    weights, _ = nnls(np.vstack([rows, held * np.ones(len(records))]), np.append(observed, held * fitted.total))
    least = 0.5 * float(np.sum((rows @ weights - observed) ** 2))
    own = 0.5 * float(np.sum((rows @ fitted.weights - observed) ** 2))
    assert fitted.status is Status.CONVERGED
    assert own == pytest.approx(float(fitted.stats["objective"]), rel=1e-6)
    assert least * (1 - 1e-4) - 1e-4 <= own <= least + float(fitted.stats["gap"]) + 1e-3 * max(least, 1.0)


def nearest(shares: np.ndarray, rows: np.ndarray, answers: np.ndarray, total: float) -> np.ndarray:
    """The weights of least relative entropy to the shares with these answers: a dense dual solver."""

    def dual(potentials: np.ndarray) -> tuple[float, np.ndarray]:
        logs = np.log(shares) + rows.T @ potentials
        peak = logs.max()
        weights = np.exp(logs - peak)
        whole = weights.sum()
        value = peak + np.log(whole) - potentials @ answers / total
        return value, rows @ weights / whole - answers / total

    options = {"maxiter": 20_000, "ftol": 0.0, "gtol": 1e-11}
    found = minimize(dual, np.zeros(len(answers)), jac=True, method="L-BFGS-B", options=options).x
    logs = np.log(shares) + rows.T @ found
    weights = np.exp(logs - logs.max())
    return total * weights / weights.sum()


def test_of_all_weightings_of_least_loss_it_is_the_one_nearest_to_the_public_shares() -> None:
    records = public()
    found = measured(table_like(records, 1000.0), stddev=0.5)
    fitted = Reweighted(records, stop="converged", tolerance=1e-8).fit(found)
    rows, _ = dense_rows(found, records)
    twin = nearest(records.counts / records.counts.sum(), rows, rows @ fitted.weights, fitted.total)
    assert np.allclose(fitted.weights, twin, rtol=1e-3, atol=0.05)
    assert np.abs(fitted.weights - records.counts * 1000.0 / 400.0).max() > 10.0


def test_a_prior_is_left_only_where_measurements_say_so() -> None:
    """Over the whole table a graphical model with a prior is the same projection of that."""
    records = PublicRecords.of(DOMAIN, np.argwhere(np.ones(DOMAIN.shape, dtype=bool)), name="every cell")
    shares = np.random.default_rng(4).gamma(2.0, size=DOMAIN.shape)
    known = MeasurementSet.from_marginals(
        DOMAIN, {DOMAIN.names: 1e6 * shares / shares.sum()}, noise=Gaussian(1.0), public="Census 2021"
    )
    prior = Graphical(stop="converged", tolerance=1e-8).fit(known)
    found = measured(table_like(records, 1000.0), stddev=0.5)
    fitted = Graphical(prior=prior, stop="converged", tolerance=1e-8).fit(found)
    rows, _ = dense_rows(found, records)
    counts = fitted.marginal(*DOMAIN.names).ravel()
    begun = prior.marginal(*DOMAIN.names).ravel()
    assert np.allclose(counts, nearest(begun / begun.sum(), rows, rows @ counts, fitted.total), rtol=0.01, atol=0.1)
    without = Graphical(stop="converged").fit(found).marginal(*DOMAIN.names).ravel()
    assert np.abs(counts - without).max() > 5.0


def test_the_oracle_of_every_cell_is_that_of_the_model() -> None:
    scopes, sizes = [(0, 1), (2, 1)], DOMAIN.shape
    layout = TableLayout(sizes, scopes)
    every = np.argwhere(np.ones(sizes, dtype=bool))
    ours = RecordOracle(layout, every, np.ones(len(every)), 7.0)
    model = MarginalOracle(junction_tree(sizes, scopes), scopes, total=7.0)
    rng = np.random.default_rng(2)
    potentials, direction = rng.normal(0, 2, layout.size), rng.normal(0, 1, layout.size)
    assert np.allclose(ours.marginals(potentials).values, model.marginals(potentials).values)
    assert ours.largest(potentials) == pytest.approx(model.largest(potentials))
    assert np.allclose(ours.derivative(potentials, direction), model.derivative(potentials, direction))
    logs = [[each.marginals(at).log_partition for at in (potentials, 0 * potentials)] for each in (ours, model)]
    assert np.subtract(*logs[0]) == pytest.approx(np.subtract(*logs[1]))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), factor=st.floats(0.01, 100.0), stop=st.sampled_from(["converged", "auto"]))
def test_neither_the_order_of_records_nor_the_size_of_the_public_table_matters(
    seed: int, factor: float, stop: Any
) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, DOMAIN.shape, (60, 3))
    weights = rng.integers(1, 4, 60)
    found = measured(table_like(public(), 500.0), seed=seed)
    one = Reweighted(PublicRecords.of(DOMAIN, codes, name="x", weights=weights), stop=stop).fit(found)
    order = rng.permutation(60)
    others = [
        PublicRecords.of(DOMAIN, codes[order], name="x", weights=weights[order]),
        PublicRecords.of(DOMAIN, codes, name="x", weights=factor * weights),
        PublicRecords.of(DOMAIN, np.repeat(codes, weights, axis=0), name="x"),
    ]
    for each in others:
        assert np.allclose(Reweighted(each, stop=stop).fit(found).weights, one.weights, rtol=1e-6, atol=1e-6)


def test_the_order_of_attributes_does_not_matter() -> None:
    records, found = public(), measured(table_like(public(), 500.0))
    names = ("c", "a", "b")
    turned = replace(found, domain=Domain("people", tuple(DOMAIN[name] for name in names)))
    one, two = Reweighted(records).fit(found), Reweighted(records).fit(turned)
    assert np.allclose(one.marginal("a", "c"), two.marginal("a", "c"), atol=0.05)
    prior = [Graphical(prior=records).fit(each).marginal("b", "a") for each in (found, turned)]
    assert np.allclose(*prior, atol=1.0)


def test_records_of_the_same_people_make_the_account_more_accurate() -> None:
    truth = table_like(public(), 2000.0)
    codes = np.argwhere(truth > 0)
    same = PublicRecords.of(DOMAIN, codes, name="last year", weights=truth[tuple(codes.T)])
    errors = dict.fromkeys(("without", "reweighted", "prior"), 0.0)
    for seed in range(5):
        found = measured(truth, stddev=60.0, seed=seed, law=Laplace)
        ways = {"without": Graphical(), "reweighted": Reweighted(same), "prior": Graphical(prior=same)}
        for way, estimator in ways.items():
            errors[way] += float(np.abs(estimator.fit(found).marginal(*DOMAIN.names) - truth).sum())
    assert errors["reweighted"] < 0.6 * errors["without"]
    assert errors["prior"] < errors["without"]


def test_what_no_public_record_has_stays_empty_and_has_no_interval_of_nothing() -> None:
    codes = [[a, b, c] for a in range(3) for b in range(4) for c in range(2) if (a, c) != (0, 1)]
    records = PublicRecords.of(DOMAIN, codes, name="Census 2021")
    fitted = estimate(measured(np.full(DOMAIN.shape, 40.0), PAIRS), method=Reweighted(records))
    assert fitted.marginal("a", "c")[0, 1] == 0.0
    bars = interval(fitted, "by a, c", refits=20)
    assert bars.covers == "modelled"
    assert np.isnan(bars.high.reshape(3, 2)[0, 1])
    assert np.isfinite(bars.high.reshape(3, 2)[1, 1])
    assert any("Census 2021" in note for note in bars.notes)
    seen = interval(fitted, "by a, b", refits=20)
    assert np.isfinite(seen.high).all()
    assert (seen.low <= 80.0).mean() > 0.7  # measured answers have the interval of least squares


def test_every_answer_says_whether_it_is_measured_modelled_or_public() -> None:
    found = measured(table_like(public(), 500.0), [("a", "b"), ("b",)])
    fitted = Reweighted(public()).fit(found)
    assert [fitted.basis(text).worst for text in ("by a", "by a, b", "by c", "by a, c")] == [
        "measured", "measured", "public", "public",
    ]  # fmt: skip
    bars = interval(fitted, "by c", refits=20)
    assert bars.covers == "public"
    assert np.isnan(bars.low).all()
    assert np.isfinite(bars.estimates).all()
    assert fitted.columns_basis.columns["c"] == "public"
    assert fitted.columns_basis.linked == (("a", "b", "c"),)
    known = {("b", "c"): np.full((4, 2), 100.0)}
    prior = Graphical().fit(MeasurementSet.from_marginals(DOMAIN, known, noise=Gaussian(1.0), public="Census 2021"))
    begun = Graphical(prior=prior).fit(measured(table_like(public(), 500.0), [("a",), ("b",)]))
    bases = [begun.basis(text).worst for text in ("by a", "by b, c", "by a, c")]
    assert bases == ["measured", "public", "not measured"]
    assert begun.public_tables.name == "Census 2021"


@pytest.mark.parametrize("way", [lambda: Reweighted(public()), lambda: Graphical(prior=public())])
def test_it_is_restored_refitted_and_named_in_the_statement(way: Any) -> None:
    found = measured(table_like(public(), 500.0))
    fitted = way().fit(found)
    assert any("Census 2021" in fact for fact in fitted.measurements.privacy.public_facts)
    saved = SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays())
    again = restore(saved, fitted.measurements)
    assert np.array_equal(again.marginal("a", "b"), fitted.marginal("a", "b"))
    assert again.basis("by a, c").worst == fitted.basis("by a, c").worst
    assert type(estimator_of(again)) is type(way())
    other = measured(table_like(public(), 500.0), seed=9)
    assert np.allclose(refit(again, other).marginal("a", "b"), refit(fitted, other).marginal("a", "b"), rtol=1e-6)
    assert interval(again, "by a", refits=20).high == pytest.approx(interval(fitted, "by a", refits=20).high)
    arrays = dict(saved.arrays)
    arrays.pop(next(name for name in arrays if name in ("weights", "prior 0")))
    with pytest.raises(FileFormatError):
        restore(replace(saved, arrays=arrays), found)


def test_synthetic_records_are_public_ones() -> None:
    fitted = Reweighted(public(20)).fit(measured(table_like(public(), 500.0)))
    rows = fitted.sample(300, generator(1))
    known = {tuple(each) for each in fitted.public.codes.tolist()}
    assert {tuple(each) for each in rows.tolist()} <= known
    counts = np.bincount(rows[:, 1], minlength=4)
    assert np.abs(counts - 300 * fitted.marginal("b") / fitted.total).max() <= 21


def test_the_check_tells_records_of_the_same_people_from_others() -> None:
    truth = table_like(public(), 20_000.0)
    found = measured(truth, [("a", "b"), ("b", "c"), ("a", "c")], stddev=20.0)
    same = judged(Reweighted(public()).fit(found))
    assert public_check(same)["tables_outside"] == 0
    assert "Census 2021 explains the measurements: all 3 tables" in str(public_check(same)["public_check"])
    cut = PublicRecords.of(DOMAIN, public().codes[public().codes[:, 0] != 1], name="elsewhere")
    said = public_check(Reweighted(cut).fit(found))
    assert said["tables_outside"] == 3
    assert "elsewhere does not explain the measurements: 3 of 3 tables lie outside" in str(said["public_check"])
    assert "leave it out" in str(said["public_check"])
    with pytest.raises(PoorFit, match=r"elsewhere does not explain"):
        estimate(found, method="reweighted", public=cut)


def test_the_check_says_whether_the_error_is_smaller_without() -> None:
    domain, rng = Domain.from_sizes({"a": 20, "b": 20}, name="people"), np.random.default_rng(0)
    codes = np.argwhere(np.ones((20, 20), dtype=bool))

    def said(truth: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
        noisy = {("a", "b"): truth + generator(1).normal(0, 20, (20, 20))}
        found = MeasurementSet.from_marginals(domain, noisy, noise=Gaussian(20.0), private=False)
        records = PublicRecords.of(domain, codes, name="last year", weights=weights.ravel())
        return public_check(Reweighted(records).fit(found))

    independent = 4.0 * np.outer(rng.gamma(3.0, size=20), rng.gamma(3.0, size=20))
    strange = said(independent, rng.gamma(0.3, size=400) + 0.05)
    assert strange["error_ratio"] > 1.2
    assert "leave it out" in strange["public_check"]
    tied = 50.0 * rng.gamma(0.5, size=(20, 20)) + 1.0
    alike = said(tied, tied)
    assert alike["error_ratio"] < 0.8
    assert "leave" not in alike["public_check"]


@pytest.mark.parametrize("answers", [1, 12, 300])
@pytest.mark.parametrize("law", [Gaussian(1.0), Laplace(np.sqrt(0.5))])
def test_noise_lies_within_its_limit_and_larger_noise_does_not(law: Any, answers: int) -> None:
    draws = np.mean(law.simulate((20_000, answers), generator(5, answers)) ** 2, axis=1)
    limit = largest_by_noise(answers, 0.01, gaussian=isinstance(law, Gaussian))
    assert np.mean(draws > limit) <= 0.012
    if answers == 300:
        assert np.mean(1.69 * draws > limit) > 0.9  # noise that is 30 % larger


def test_auto_begins_a_model_with_the_records_and_other_methods_refuse_them() -> None:
    found = measured(table_like(public(), 500.0))
    fitted = estimate(found, public=public())
    assert fitted.method["method"] == "graphical"
    assert fitted.method["prior"]["name"] == "Census 2021"
    assert "Census 2021" in str(fitted.stats["public_check"])
    assert estimate(found, method="reweighted", public=public()).method["public"] == "Census 2021"
    with pytest.raises(DeclarationError, match=r"reweighted and graphical, or auto; the method is 'table'"):
        estimate(found, method="table", public=public())
    with pytest.raises(ConsilienceError, match="there are no public records"):
        estimate(found, method="reweighted")


def test_an_estimate_of_other_measurements_is_a_prior_and_what_it_spent_is_told() -> None:
    truth = table_like(public(), 2000.0)
    older = measured(truth, stddev=1.0)
    older = replace(older, privacy=replace(older.privacy, spent={"epsilon": "0.5"}), private=True)
    fitted = Graphical(prior=Graphical().fit(older)).fit(measured(truth, stddev=50.0))
    facts = " ".join(fitted.measurements.privacy.public_facts)
    assert "an estimate of people, which spent epsilon 0.5" in facts
    begun = Graphical(prior=Graphical(prior=public()).fit(older)).fit(replace(older, private=True))
    assert begun.private
    assert "Census 2021" in " ".join(begun.measurements.privacy.public_facts)
    simulated = Graphical().fit(replace(older, private=False))
    assert not Graphical(prior=simulated).fit(older).private
    assert np.abs(fitted.marginal("a") - truth.sum((1, 2))).max() < 40
    other = Domain.from_sizes({"a": 3, "b": 5, "c": 2}, name="others")
    strange = Graphical().fit(MeasurementSet.from_marginals(other, {"a": [1.0, 2.0, 3.0]}, noise=Laplace(1.0)))
    with pytest.raises(DeclarationError, match=r"of others, the measurements are of a, b, c of 'people'|'others'"):
        Graphical(prior=strange).fit(older)


def test_records_that_cannot_be_are_left_out_and_what_is_no_record_is_refused() -> None:
    attributes = (Attribute.categorical("x", ["0", "1"]), Attribute.categorical("y", ["0", "1"]))
    rule = ImpossibleCells((("x", (0,)), ("y", (1,))))
    domain = Domain("ruled", attributes, impossible=(rule,))
    assert PublicRecords.of(domain, [[0, 0], [0, 1], [1, 1]], name="x").counts.tolist() == [1.0, 1.0]
    known = PublicRecords.of(domain, [[0, 0], [1, 1]], name="x")
    found = MeasurementSet.from_marginals(domain, {"x": [5.0, 9.0]}, noise=Laplace(1.0)).with_public(
        margins={"y": [0.0, 14.0]}
    )
    assert Reweighted(known).fit(found).weights.tolist() == pytest.approx([0.0, 14.0])
    only = PublicRecords.of(domain, [[0, 0]], name="x")
    with pytest.raises(MeasurementError, match="leaves no record of 'x' possible"):
        Reweighted(only).fit(found)
    for codes, why in (([[0, 1]], "no record that"), ([[0, 2]], "codes that"), ([[0.5, 0]], "whole codes")):
        with pytest.raises(DeclarationError, match=why):
            PublicRecords.of(domain, codes, name="x")
    with pytest.raises(DeclarationError, match="one weight from 0 up"):
        PublicRecords.of(domain, [[0, 0]], name="x", weights=[-1.0])
    with pytest.raises(DeclarationError, match="have a name"):
        PublicRecords.of(domain, [[0, 0]], name=" ")
    with pytest.raises(DeclarationError, match="were coded by a, b, c"):
        Reweighted(public()).fit(found)


def test_a_survey_of_unequal_weights_says_less_than_its_records() -> None:
    codes = public().codes
    equal, unequal = np.ones(len(codes)), np.where(np.arange(len(codes)) < 2, 1000.0, 1.0)
    assert PublicRecords.of(DOMAIN, codes, name="x", weights=equal).size == pytest.approx(len(codes))
    assert PublicRecords.of(DOMAIN, codes, name="x", weights=unequal).size < 4

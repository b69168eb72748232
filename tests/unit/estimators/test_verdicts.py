"""A status is a verdict: what is called a success explains its measurements, at any ratio of counts to noise."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.problems.contingency_tables import CZECH, EDWARDS, ROCHDALE, ContingencyTable
from consilience.cli.main import app
from consilience.domain import Domain, Query, factors
from consilience.errors import ConsilienceError, PoorFit
from consilience.estimators import Graphical, Table, estimate, judged
from consilience.estimators.choose import ESTIMATORS, PUBLISHED, misfit
from consilience.measurements import Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.publication import open_release
from consilience.solvers.fit import Infeasible, Status

SIZES = {"a": 6, "b": 5, "c": 4, "d": 3, "e": 2}
DOMAIN = Domain.from_sizes(SIZES, name="verdicts")
SCOPES = {
    "chain": [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")],
    "loop": [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d", "e")],
    "nested": [("a", "b", "c"), ("a", "b"), ()],
}
FITTED = [name for name in ESTIMATORS if name not in PUBLISHED]


def people(total: float, *, empty: float = 0.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    table = np.where(rng.random(DOMAIN.shape) < empty, 0.0, rng.gamma(0.4, 1.0, DOMAIN.shape))
    return np.round(table * total / table.sum())


def measured(
    scopes: str, scale: float, truth: np.ndarray, *, law: type = Gaussian, prefixes: bool = False, seed: int = 1
) -> MeasurementSet:
    rng, found = np.random.default_rng(seed), []
    for names in SCOPES[scopes]:
        kinds = {name: factors.Prefix() if prefixes and SIZES[name] > 4 else factors.Identity() for name in names}
        exact = Query.of(kinds).bind(DOMAIN).answer_full(truth).ravel()
        noise = rng.normal(0, scale, exact.size) if law is Gaussian else rng.laplace(0, scale, exact.size)
        found.append(Measurement(query=Query.of(kinds), values=exact + noise, noise=law(scale)))
    return MeasurementSet(DOMAIN, tuple(found), PrivacyStatement(), {}, private=False)


def errors(answers: MeasurementSet, truth: np.ndarray, found: list[np.ndarray]) -> float:
    """The root of the summed squared errors of the measured answers, each in units of its noise."""
    exact = [each.query.bind(DOMAIN).answer_full(truth).ravel() for each in answers]
    pairs = zip(answers, exact, found, strict=True)
    return float(
        np.sqrt(sum(np.sum(((got.ravel() - true) / each.noise.stddev_of_noise) ** 2) for each, true, got in pairs))
    )


def least_squares(answers: MeasurementSet) -> list[np.ndarray]:
    """The answers of the dense least-squares table."""
    names = DOMAIN.counted_names
    rows = [each.query.bind(DOMAIN).written_out(names) / each.noise.stddev_of_noise for each in answers]
    values = np.concatenate([each.values / each.noise.stddev_of_noise for each in answers])
    table = np.linalg.lstsq(np.concatenate(rows), values, rcond=None)[0]
    return [row @ table * each.noise.stddev_of_noise for row, each in zip(rows, answers, strict=True)]


@pytest.mark.parametrize("prefixes", [False, True], ids=["marginals", "prefixes"])
def test_with_next_to_no_noise_a_graphical_fit_is_as_close_as_dense_least_squares(prefixes: bool) -> None:
    truth = people(1e5)
    answers = measured("chain", 1e-3, truth, prefixes=prefixes)
    fitted = Graphical().fit(answers)
    assert misfit(fitted).mean < 3.0
    reference = errors(answers, truth, least_squares(answers))
    assert errors(answers, truth, fitted.answers([each.query for each in answers])) <= 2.0 * reference


def test_least_risk_goes_on_where_it_would_leave_the_fit_outside_the_noise() -> None:
    answers = measured("chain", 1.0, people(1e5), prefixes=True)
    assert misfit(Graphical(stop="least-risk").fit(answers)).is_explained


def test_facts_that_contradict_the_measurements_are_refused_unless_asked_not_to() -> None:
    truth = people(1e4)
    answers = measured("chain", 1.0, truth).with_public(total=2e4)
    with pytest.raises(PoorFit, match=r"none comes closer.*total.*allow_misfit"):
        estimate(answers)
    fitted = estimate(answers, allow_misfit=True)
    assert fitted.status is Status.MISFIT
    assert not fitted.status.on_purpose
    assert fitted.stats["stopped"] == "converged"


def test_what_an_estimator_fitted_by_itself_can_be_judged_as_well() -> None:
    answers = measured("chain", 1.0, people(1e4)).with_public(total=2e4)
    for method in (Graphical(), Table()):
        fitted = method.fit(answers)
        verdict = judged(fitted)
        assert fitted.status is not Status.MISFIT
        assert verdict.status is Status.MISFIT
        again = estimate(answers, method=method, allow_misfit=True)
        assert verdict.stats["misfit"] == pytest.approx(float(again.stats["misfit"]))


def test_a_search_that_was_cut_short_is_no_success_and_says_so() -> None:
    answers = measured("loop", 1.0, people(1e6))
    with pytest.raises(PoorFit, match="the search ended too early"):
        estimate(answers, method=Graphical(stop="converged", max_steps=3))


@pytest.mark.parametrize("total", [1e6, 1e9])
def test_next_to_no_noise_ends_where_rounding_breaks_the_factors(total: float) -> None:
    """Diagonals that differ by thirty decades leave nothing of a matrix that is eliminated in one order."""
    answers = measured("loop", 1e-3, people(total, seed=608), law=Gaussian, prefixes=True, seed=609)
    fitted = estimate(answers, method="matrix", allow_misfit=True)
    assert np.all(np.isfinite(fitted.marginal("a", "b")))


@pytest.mark.parametrize("seed", [0, 1, 4])
@pytest.mark.parametrize(("total", "scale"), [(1e3, 0.01), (1e6, 0.01), (1e5, 300.0)])
def test_long_sums_of_mostly_empty_tables_are_not_worse_for_counts_that_are_not_negative(
    total: float, scale: float, seed: int
) -> None:
    """What prefixes tell well stays well told: cells alone had up to 2.3 times the error of least squares here."""
    truth = people(total, empty=0.8, seed=seed)
    answers = measured("nested", scale, truth, prefixes=True, seed=seed + 1)
    found = estimate(answers, method="residual").answers([each.query for each in answers])
    assert errors(answers, truth, found) <= 1.05 * errors(answers, truth, least_squares(answers))


@pytest.mark.parametrize("law", [Gaussian, Laplace])
def test_zeros_that_the_noise_tells_from_one_record_in_a_trillion_are_found(law: type) -> None:
    truth = people(1e9, empty=0.8, seed=3)
    answers = measured("nested", 1e-3, truth, law=law, prefixes=True, seed=4)
    fitted = estimate(answers, method="graphical")
    found = fitted.answers([each.query for each in answers])
    assert errors(answers, truth, found) <= 1.5 * errors(answers, truth, least_squares(answers))


@pytest.mark.parametrize("method", ["table", "residual", "matrix", "graphical", "local-squares"])
@pytest.mark.parametrize("seed", [0, 1])
def test_long_sums_are_kept_where_counts_are_a_trillion_times_their_noise(method: str, seed: int) -> None:
    """What is nothing beside the counts is a thousand times the noise here: Table and Residual were up to 97 off."""
    rng, domain = np.random.default_rng(seed), Domain.from_sizes({"x": 12, "y": 11})
    table = np.where(rng.random(domain.shape) < 0.8, 0.0, rng.gamma(0.4, 1.0, domain.shape))
    table = np.round(table * 1e9 / table.sum()).ravel()
    queries = [Query.of({"x": factors.Prefix(), "y": factors.Prefix()}), Query.marginal("x")]
    rows = [query.bind(domain).written_out(("x", "y")) for query in queries]
    values = [each @ table + rng.normal(0, 1e-3, len(each)) for each in rows]
    found = [Measurement(query, each, Gaussian(1e-3)) for query, each in zip(queries, values, strict=True)]
    fitted = estimate(MeasurementSet(domain, tuple(found), private=False), method=method)
    every, least = np.concatenate(rows), np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=None)[0]
    missed = np.concatenate([each.ravel() for each in fitted.answers(queries)]) - every @ table
    assert np.linalg.norm(missed) <= 1.5 * np.linalg.norm(every @ (least - table))


@pytest.mark.parametrize("scopes", ["nested", "chain", "loop"])
@pytest.mark.parametrize("empty", [0.0, 0.8])
def test_views_are_kept_where_counts_are_a_trillion_times_their_noise(scopes: str, empty: float) -> None:
    truth = people(1e9, empty=empty, seed=5)
    answers = measured(scopes, 1e-3, truth, seed=6)
    found = estimate(answers, method="views").answers([each.query for each in answers])
    assert errors(answers, truth, found) <= 1.5 * errors(answers, truth, least_squares(answers))


def test_published_mechanisms_are_labelled_and_not_refused() -> None:
    fitted = estimate(measured("chain", 1.0, people(1e6)), method="uniform")
    assert fitted.status is Status.MISFIT


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(["auto", *FITTED]),
    scopes=st.sampled_from(sorted(SCOPES)),
    exponent=st.floats(-3, 6),
    total=st.sampled_from([1e3, 1e6, 1e9]),
    law=st.sampled_from([Gaussian, Laplace]),
    prefixes=st.booleans(),
    empty=st.sampled_from([0.0, 0.8]),
    seed=st.integers(0, 1000),
)
def test_no_success_costs_more_than_noise_explains(
    method: str, scopes: str, exponent: float, total: float, law: type, prefixes: bool, empty: float, seed: int
) -> None:
    truth, scale = people(total, empty=empty, seed=seed), 10.0**exponent
    answers = measured(scopes, scale, truth, law=law, prefixes=prefixes, seed=seed + 1)
    if method != "auto" and not ESTIMATORS[method]().suitability(answers).possible:
        return
    fitted = estimate(answers, method=method, allow_misfit=True)
    found = fitted.answers([each.query for each in answers])
    residuals = [
        (got.ravel() - each.values) / each.noise.stddev_of_noise for each, got in zip(answers, found, strict=True)
    ]
    mean = float(np.mean(np.concatenate(residuals) ** 2))
    assert fitted.status is Status.MISFIT or mean <= misfit(fitted).largest_explained
    if scale <= 0.1:
        assert errors(answers, truth, found) <= 2.0 * errors(answers, truth, least_squares(answers))


@pytest.mark.slow
def test_with_next_to_no_noise_a_large_model_is_as_close_as_local_least_squares() -> None:
    """Prefixes of triples along a chain of ten attributes: ten million cells."""
    rng, values = np.random.default_rng(0), 5
    domain = Domain.from_sizes({f"x{place}": values for place in range(10)}, name="chain")
    codes = np.zeros((20_000, 10), dtype=np.int64)
    for place in range(1, 10):
        codes[:, place] = np.where(rng.random(20_000) < 0.6, codes[:, place - 1], rng.integers(0, values, 20_000))
    answers, exact = [], []
    for first in range(8):
        names = tuple(f"x{first + step}" for step in range(3))
        flat = np.ravel_multi_index(tuple(codes[:, first : first + 3].T), (values,) * 3)
        exact.append(np.bincount(flat, minlength=values**3).reshape((values,) * 3).astype(float))
        query = Query.of(dict(zip(names, (factors.Prefix(), factors.Identity(), factors.Prefix()), strict=True)))
        truth = query.bind(domain).answer(exact[-1]).ravel()
        answers.append(Measurement(query=query, values=truth + rng.normal(0, 1e-3, truth.size), noise=Gaussian(1e-3)))
    found = MeasurementSet(domain, tuple(answers), PrivacyStatement(), {}, private=False)
    away = []
    for method in ("graphical", "local-squares"):
        fitted = estimate(found, method=method)
        tables = [fitted.marginal(*each.query.attributes) for each in answers]
        away.append(float(np.linalg.norm(np.subtract(tables, exact))))
    assert away[0] <= 2.0 * away[1]


def with_margins(table: ContingencyTable, known: int, ways: int, epsilon: float, seed: int) -> MeasurementSet:
    """All marginals of some order with Laplace noise, and all margins of another order known exactly."""
    rng = np.random.default_rng([seed, ways, known, round(10 * epsilon)])
    domain, names, found = table.domain, table.domain.counted_names, []
    scopes = list(itertools.combinations(names, ways))
    for scope in scopes:
        exact = Query.marginal(*scope).bind(domain).answer_full(table.counts).ravel()
        scale = len(scopes) / epsilon
        noise = rng.laplace(0, scale, exact.size)
        found.append(Measurement(query=Query.marginal(*scope), values=exact + noise, noise=Laplace(scale)))
    margins: dict[str | tuple[str, ...], np.ndarray] = {
        scope: Query.marginal(*scope).bind(domain).answer_full(table.counts)
        for scope in itertools.combinations(names, known)
    }
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False).with_public(margins=margins)


def assert_fits_and_agrees(table: ContingencyTable, known: int, ways: int, epsilon: float, seed: int) -> None:
    fitted = estimate(with_margins(table, known, ways, epsilon, seed), method="graphical")
    assert fitted.status is Status.CONVERGED
    for scope in itertools.combinations(table.domain.counted_names, known):
        exact = Query.marginal(*scope).bind(table.domain).answer_full(table.counts)
        assert fitted.marginal(*scope) == pytest.approx(exact, abs=1e-6 * table.counts.sum())


@pytest.mark.parametrize(
    ("table", "known", "ways", "epsilon", "seed"),
    [(CZECH, 2, 1, 0.1, 0), (ROCHDALE, 2, 1, 0.1, 0), (ROCHDALE, 1, 2, 0.1, 1), (EDWARDS, 2, 3, 0.1, 1)],
    ids=["czech", "rochdale", "rochdale, implied rows", "edwards, many zeros"],
)
def test_consistent_public_margins_are_facts(table, known, ways, epsilon, seed) -> None:
    assert_fits_and_agrees(table, known, ways, epsilon, seed)


@pytest.mark.slow
@pytest.mark.parametrize("table", [EDWARDS, CZECH, ROCHDALE], ids=lambda table: table.name)
@pytest.mark.parametrize("known", [1, 2])
def test_all_public_margins_of_the_papers_tables_are_facts(table, known) -> None:
    for ways, epsilon, seed in itertools.product((1, 2, 3), (0.1, 1.0), (0, 1)):
        assert_fits_and_agrees(table, known, ways, epsilon, seed)


def test_margins_that_no_table_has_are_named_with_the_least_violation() -> None:
    """Three pairs of yes and no that all differ: each two can be had together, not all three."""
    domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2}, name="frustrated")
    differ = np.array([[0.0, 50.0], [50.0, 0.0]])
    answers = Measurement(query=Query.marginal("a", "b"), values=differ.ravel(), noise=Laplace(1.0))
    found = MeasurementSet(domain, (answers,), PrivacyStatement(), {}, private=False)
    soft = np.array([[1.0, 49.0], [49.0, 1.0]])
    with pytest.raises(Infeasible, match=r"a, b.*misses one of them by") as caught:
        Graphical().fit(found.with_public(margins={("a", "b"): soft, ("b", "c"): soft, ("a", "c"): soft}))
    assert 5.0 < caught.value.violation < 50.0
    assert len(caught.value.constraints) == 3
    assert isinstance(caught.value, ConsilienceError)


@pytest.mark.slow
@pytest.mark.parametrize("table", [EDWARDS, CZECH, ROCHDALE], ids=lambda table: table.name)
@pytest.mark.parametrize("known", [1, 2])
def test_the_command_line_keeps_the_public_margins_of_the_papers_tables(table, known, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names, lines = table.variables, [f'name = "{table.name}"']
    for name in names:
        lines.append(f'[attributes.{name}]\nkind = "categorical"\nvalues = ["{table.levels[0]}", "{table.levels[1]}"]')
    for scope in itertools.combinations(names, known):
        counts = Query.marginal(*scope).bind(table.domain).answer_full(table.counts).ravel()
        lines.append(f"[[public.margins]]\nattributes = {list(scope)}\ncounts = {counts.astype(int).tolist()}")
    (tmp_path / "domain.toml").write_text("\n".join(lines).replace("'", '"'))
    rows = [cell for cell, count in np.ndenumerate(table.counts) for _ in range(count)]
    body = [",".join(table.levels[code] for code in cell) for cell in rows]
    (tmp_path / "data.csv").write_text("\n".join([",".join(names), *body]) + "\n")
    words = ["release", "data.csv", "--domain", "domain.toml", "--epsilon", "1", "--budget", "1", "--out", "out"]
    outcome = CliRunner().invoke(app, [*words, "--simulate", "0"])
    assert outcome.exit_code == 0, outcome.output
    fitted = open_release(tmp_path / "out").estimate
    assert fitted.status.on_purpose
    for scope in itertools.combinations(names, known):
        exact = Query.marginal(*scope).bind(table.domain).answer_full(table.counts)
        assert fitted.marginal(*scope) == pytest.approx(exact, abs=1e-6 * table.counts.sum())


@pytest.mark.parametrize("scopes", ["loop", "chain"])
@pytest.mark.parametrize("law", [Gaussian, Laplace])
def test_the_matrix_estimator_is_right_where_answers_exceed_their_noise_by_twelve_decades(law, scopes: str) -> None:
    truth = people(1e9, empty=0.8, seed=600)
    answers = measured(scopes, 1e-3, truth, law=law, prefixes=True, seed=601)
    fitted = estimate(answers, method="matrix")
    found = fitted.answers([each.query for each in answers])
    assert errors(answers, truth, found) <= 2.0 * errors(answers, truth, least_squares(answers))

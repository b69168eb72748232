"""Queries about several attributes together, from the gate through every estimator to answers."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import consilience as cs
from consilience.cli.main import app
from consilience.domain import Attribute, Domain, Query
from consilience.errors import ConsilienceError, DeclarationError
from consilience.estimators import Graphical, Matrix, Table
from consilience.estimators.choose import ESTIMATORS
from consilience.measurements import Exact, Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.measurements.basis import basis
from consilience.privacy.gate import Gate
from consilience.publication import answer_table, interval, write_bundle
from consilience.publication.answers.whole_numbers import whole_answers

DOMAIN = Domain(
    "commuters",
    (
        Attribute.categorical("home", ["A", "B", "C"]),
        Attribute.categorical("sex", ["f", "m"]),
        Attribute.categorical("work", ["B", "A", "X"]),
    ),
)
TRUTH = np.random.default_rng(0).integers(5, 60, DOMAIN.shape)
ROSE = Query.matrix(("home", "work"), np.triu(np.ones((3, 3)), 1), names=["rose"])
ASKED = [Query.marginal("home"), Query.marginal("work", "sex"), Query.parse("home==work by sex"), ROSE]


def measured(queries: list[Query] = ASKED, *, noise: object = None, exact: tuple[Query, ...] = ()) -> MeasurementSet:
    law = Gaussian(2.0) if noise is None else noise
    rng = np.random.default_rng(1)
    made = []
    for query in (*queries, *exact):
        values = query.bind(DOMAIN).answer_full(TRUTH).ravel().astype(float)
        known = query in exact
        drawn = 0.0 if known else rng.normal(0.0, 2.0, values.size)
        made.append(Measurement(query, values + drawn, Exact() if known else law))
    return MeasurementSet(DOMAIN, tuple(made), PrivacyStatement(), {}, private=False)


def stacked(found: MeasurementSet) -> tuple[np.ndarray, np.ndarray]:
    """The measured queries as one matrix over the cells, and their values."""
    rows = [each.query.bind(DOMAIN).written_out() for each in found]
    return np.concatenate(rows), np.concatenate([each.values for each in found])


def test_least_squares_are_those_of_the_written_out_matrix() -> None:
    found = measured()
    matrix, values = stacked(found)
    shortest = np.linalg.lstsq(matrix, values, rcond=None)[0]
    fitted = Matrix(loss="l2", nonnegative=False).fit(found)
    np.testing.assert_allclose(fitted.marginal(*DOMAIN.counted_names).ravel(), shortest, atol=1e-6)


@pytest.mark.parametrize("noise", [Gaussian(2.0), Laplace(2.0)], ids=["gaussian", "laplace"])
def test_table_matrix_and_model_fit_joint_queries_equally_well(noise: object) -> None:
    found = measured(noise=noise)
    total = float(TRUTH.sum())
    found = found.with_public(total=total)
    loss = "l2" if isinstance(noise, Gaussian) else "l1"
    matrix, values = stacked(found)

    def cost(cells: np.ndarray) -> float:
        missed = np.abs(matrix @ cells.ravel() - values)
        return float((missed**2).sum() if loss == "l2" else missed.sum())

    names = DOMAIN.counted_names
    fitted = [
        Table(loss=loss, tolerance=1e-8).fit(found),
        Matrix(loss=loss).fit(found),
        Graphical(loss=loss, stop="converged", tolerance=1e-6).fit(found),
    ]
    table, other, model = (cost(each.marginal(*names)) for each in fitted)
    assert table == pytest.approx(other, rel=1e-3, abs=1e-3)
    assert model == pytest.approx(other, rel=1e-2, abs=1e-2)


@pytest.mark.parametrize("method", ["table", "matrix", "graphical"])
def test_exact_joint_facts_are_met(method: str) -> None:
    fact = Query.equal("work", "home")
    fitted = cs.estimate(measured(ASKED[:2], exact=(fact,)), method=method, allow_misfit=True)
    expected = fact.bind(DOMAIN).answer_full(TRUTH).item()
    assert fitted.answer(fact).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("method", ["auto", "table", "matrix", "graphical", "uniform"])
def test_answers_are_sums_of_the_marginal(method: str) -> None:
    fitted = cs.estimate(measured(), method=method, allow_misfit=True)
    for query in (*ASKED, Query.parse("work==home"), Query.parse("sex where work==home")):
        cells = fitted.marginal(*query.attributes)
        np.testing.assert_allclose(fitted.answer(query), query.bind(DOMAIN).answer(cells), atol=1e-8)
    together = fitted.answers([*ASKED, "home==work"])
    for query, answers in zip([*ASKED, Query.parse("home==work")], together, strict=True):
        np.testing.assert_allclose(answers, fitted.answer(query), atol=1e-6)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("residual", "Residual takes products"),
        ("tree", "sets are nested attribute by attribute"),
        ("views", "is no marginal"),
        ("local-squares", "it takes products"),
        ("fourier", "no coefficient"),
    ],
)
def test_estimators_of_products_refuse_joint_queries(method: str, message: str) -> None:
    with pytest.raises(ConsilienceError) as caught:
        cs.estimate(measured(ASKED[2:]), method=method)
    assert message in str(caught.value)


def test_a_model_does_not_condition_on_joint_queries() -> None:
    fitted = Graphical().fit(measured())
    with pytest.raises(DeclarationError, match="compares attributes with each other"):
        fitted.conditional("sex", given="home==work")


@pytest.mark.parametrize(
    ("known", "asked", "expected"),
    [
        (["home==work by sex"], "home==work by sex", ["measured"] * 2),
        (["home==work by sex"], "work==home", ["measured"]),
        (["by home, work"], "home==work", ["measured"]),
        (["by home", "by work"], "home==work", ["not measured"]),
        (["by home", "by work", "home==work"], "by home, work", ["modelled"] * 9),
        (["by home, sex", "by sex, work"], "home==work", ["modelled"]),
        (["home==work"], "home==work by sex", ["not measured"] * 2),
        (["home==work", "by sex"], "home==work by sex", ["not measured"] * 2),
    ],
)
def test_what_joint_answers_stand_on(known: list[str], asked: str, expected: list[str]) -> None:
    found = measured([Query.parse(text) for text in known])
    assert list(basis(found, asked).names) == expected


def test_intervals_hold_measured_joint_answers() -> None:
    fitted = Graphical().fit(measured())
    found = interval(fitted, "home==work by sex", refits=20)
    assert found.covers == "measured"
    assert (found.low < found.estimates).all()
    assert (found.estimates < found.high).all()


def test_whole_numbers_of_joint_answers_add_up() -> None:
    fitted = Table().fit(measured())
    queries = [Query.parse("home==work by sex"), Query.parse("work==home"), Query.marginal("sex", "home")]
    found = whole_answers(fitted, queries)
    assert found.together
    for query, whole in zip(queries, found.answers, strict=True):
        assert np.abs(whole.ravel() - fitted.answer(query).ravel()).max() <= 1.0
    assert found.answers[0].sum() == found.answers[1].sum()


def test_tables_of_joint_answers_have_a_column_for_the_factor() -> None:
    table = answer_table(Table().fit(measured()), "home==work by sex")
    assert table.columns == ("home × work", "sex")
    assert table.labels == (("equal", "f"), ("equal", "m"))


@pytest.fixture(scope="module")
def records() -> pa.Table:
    codes = np.repeat(np.argwhere(TRUTH >= 0), TRUTH.ravel(), axis=0)
    labels = [np.array(DOMAIN[name].labels)[codes[:, place]] for place, name in enumerate(DOMAIN.counted_names)]
    return pa.table(dict(zip(DOMAIN.counted_names, labels, strict=True)))


class Asked:
    """A plan that measures these queries with equal shares."""

    def run(self, gate: Gate) -> None:
        gate.measure([*ASKED, REAL], gate.budget)

    def to_json(self) -> dict[str, object]:
        return {"plan": "asked"}


REAL = Query.matrix(("work", "home"), np.linspace(0.1, 0.9, 9).reshape(3, 3), names=["weighed"])


@pytest.fixture(scope="module")
def release(records: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joint")
    made = cs.measure(cs.open_table(records, DOMAIN), Asked(), epsilon=1000.0, simulate=3)
    made.save(folder / "measured.parquet")
    return write_bundle(cs.estimate(MeasurementSet.load(folder / "measured.parquet")), folder / "release")


def test_a_joint_query_is_measured_through_the_gate_saved_and_answered(release: Path) -> None:
    outcome = CliRunner().invoke(app, ["answer", str(release), "home==work by sex", "--json"])
    assert outcome.exit_code == 0, outcome.output
    rows = json.loads(outcome.stdout)["answers"]
    expected = ASKED[2].bind(DOMAIN).answer_full(TRUTH).ravel()
    assert [row["estimate"] for row in rows] == pytest.approx(expected, abs=1.0)
    assert {row["basis"] for row in rows} == {"measured"}


def test_real_weights_are_measured_on_a_lattice_with_noise_of_their_scale(records: pa.Table) -> None:
    made = cs.measure(cs.open_table(records, DOMAIN), Asked(), epsilon=1000.0, simulate=3)
    weighed = made.measurements[-1]
    assert weighed.query.describe() == "matrix(work, home)"
    assert weighed.values[0] == pytest.approx(REAL.bind(DOMAIN).answer_full(TRUTH).item(), abs=1.0)


def test_records_can_be_drawn_from_a_release_with_joint_queries() -> None:
    drawn = Graphical().fit(measured()).sample(200, np.random.default_rng(0))
    assert drawn.shape == (200, 3)


@pytest.mark.parametrize("plan", [cs.plans.Hdmm, cs.plans.DualQuery], ids=["hdmm", "dual-query"])
def test_plans_of_products_refuse_joint_queries_before_anything_is_spent(plan: type, records: pa.Table) -> None:
    workload = cs.Workload.of([Query.parse("home==work by sex")])
    with pytest.raises(ConsilienceError, match="compares attributes with each other"):
        cs.measure(cs.open_table(records, DOMAIN), plan(workload), epsilon=1.0, simulate=1)


TAKES_QUERIES = {"table", "matrix", "graphical", "multiplicative-weights", "factored-weights", "uniform"}


def test_whoever_takes_what_the_plan_of_queries_measured_explains_it_and_the_others_say_why_not(records) -> None:
    """Uniform takes everything, as the one that fits nothing but the total."""
    plan = cs.plans.plan_from_text("queries home==work by sex; home; prefix(work)")
    found = cs.measure(cs.open_table(records, DOMAIN), plan, epsilon=2.0, simulate=0)
    methods = {name: kind() for name, kind in ESTIMATORS.items()}
    suited = {name: method.suitability(found) for name, method in methods.items()}
    assert {name for name, each in suited.items() if each.possible} == TAKES_QUERIES
    assert all(each.reason for each in suited.values())
    for name in TAKES_QUERIES - {"uniform"}:
        fitted = cs.estimate(found, method=methods[name])
        for each in found:
            missed = (fitted.answer(each.query).ravel() - each.values) / np.sqrt(each.noise.variance)
            assert np.abs(missed).max() < 5, (name, each.name)

"""PrivGene: what it spends, what it finds where there is much budget, and how its choice is read again."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.problems.clusterings import wcss
from consilience.domain import Attribute, Domain
from consilience.domain.public_facts import PublicFacts
from consilience.errors import DeclarationError, MeasurementError
from consilience.estimators.clusters import cluster
from consilience.estimators.logistic import RegressionEstimate, regress
from consilience.kernels.regions import Region
from consilience.kernels.rng import generator
from consilience.measurements import MeasurementSet
from consilience.measuring import PricingGate, measure
from consilience.plans import PrivGene
from consilience.plans.published.privgene import _uniform_in_ball
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

ATTRIBUTES = (Attribute.continuous("x", (0.0, 100.0)), Attribute.continuous("y", (-1.0, 1.0)))
DOMAIN = Domain("plane", (*ATTRIBUTES, Attribute.continuous("far", (0.0, 1.0))))
COUNTED = Domain("plane", DOMAIN.attributes, public=PublicFacts(total=3000))
CENTRES = np.array([[20.0, -0.5], [50.0, 0.6], [85.0, -0.1]])
POINTS = (CENTRES[:, None] + np.random.default_rng(0).normal(0, (2.0, 0.03), (3, 1000, 2))).reshape(-1, 2)
QUICK = {"candidates": 60, "survivors": 5, "generations": 12}
CLUSTERS = PrivGene(clusters=3, attributes=("x", "y"), **QUICK)
REGRESSION = PrivGene(label="far", **QUICK)


def table(domain: Domain = DOMAIN):
    far = (POINTS[:, 0] > 60).astype(float)
    return open_table(pa.table({"x": POINTS[:, 0], "y": POINTS[:, 1], "far": far}), domain)


def normalised(points: np.ndarray) -> np.ndarray:
    return points / (50.0, 1.0) - (1.0, 0.0)


@pytest.mark.parametrize(
    "plan", [CLUSTERS, REGRESSION, PrivGene(clusters=2)], ids=["clusters", "regression", "default"]
)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("amounts", [{"epsilon": 0.7}, {"rho": 0.1}])
@pytest.mark.parametrize("domain", [DOMAIN, COUNTED], ids=["measured", "public"])
def test_selections_and_the_count_cost_the_budget_and_no_more(plan, relation, amounts, domain) -> None:
    whole = budget(**amounts)
    gate = PricingGate(domain, whole, neighbours=relation, rows_per_unit=2)
    plan.run(gate)
    prices = [price.budget for price in gate.prices] + gate.selections
    spent = float(sum(each.amount for each in prices))
    assert spent <= float(whole.amount)
    assert spent == pytest.approx(float(whole.amount), rel=1e-12)
    assert (len(gate.prices), len(gate.kept)) == (0 if domain is COUNTED else 1, 1)


@pytest.mark.parametrize("region", ["box", "ball", "radial-ball"])
def test_clusters_are_found_where_there_is_much_budget_and_not_where_there_is_none(region: str) -> None:
    plan = PrivGene(clusters=3, attributes=("x", "y"), region=region, **QUICK)
    inside = Region(region, 2).project(normalised(POINTS))
    costs = []
    for epsilon in (1e4, 1e-6):
        found = normalised(plan.centroids(measure(table(), plan, epsilon=epsilon, simulate=0)))
        assert Region(region, 2).contains(found, tolerance=1e-9).all()
        costs.append(wcss(inside, found))
    assert costs[0] < 0.3 * costs[1]


def test_a_regression_is_found_where_there_is_much_budget() -> None:
    found = regress(measure(table(COUNTED), REGRESSION, epsilon=1e4, simulate=0))
    assert (found.terms, found.label, found.records) == (("x", "y", "(intercept)"), "far", 3000)
    right = (found.probability(POINTS) > 0.5) == (POINTS[:, 0] > 60)
    assert right.mean() > 0.95


def test_the_ledger_is_charged_once_and_answers_again(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "plane.ledger", epsilon=1.0)
    first, again = (measure(table(), CLUSTERS, ledger=ledger, epsilon=0.5) for _ in range(2))
    assert [float(entry.cost) for entry in ledger.entries()] == [0.5]
    assert again.provenance["replayed"]
    assert [each.extra for each in first] == [each.extra for each in again]
    np.testing.assert_array_equal(cluster(first).centroids, cluster(again).centroids)


@pytest.mark.parametrize("plan", [CLUSTERS, REGRESSION], ids=["clusters", "regression"])
def test_what_was_chosen_is_read_again_from_a_file_and_has_no_intervals(plan, tmp_path: Path) -> None:
    measured = measure(table(), plan, epsilon=1.0, simulate=0)
    measured.save(tmp_path / "m.parquet")
    read, other = (cluster, regress) if plan is CLUSTERS else (regress, cluster)
    found, again = read(measured), read(MeasurementSet.load(tmp_path / "m.parquet"))
    assert found.to_json() == again.to_json()
    assert "no error bars" in found.no_intervals
    ends = found.interval(0.9).centroids if plan is CLUSTERS else found.interval(0.9)
    assert np.isnan(ends).all()
    with pytest.raises(MeasurementError, match="chose"):
        other(measured)
    if plan is REGRESSION:
        found.save(tmp_path / "r.json")
        assert RegressionEstimate.load(tmp_path / "r.json").to_json() == found.to_json()
        assert found.records == pytest.approx(3000, rel=0.2)


def test_a_file_that_describes_no_model_is_refused() -> None:
    measured = measure(table(), CLUSTERS, epsilon=1.0, simulate=0)
    chosen = measured.measurements[-1]
    for wrong in ({"found": [[0.0]]}, {"bounds": [[0, 1]]}, {"region": "disc"}, {"found": [["a", "b"]]}):
        described = dict(chosen.extra["selection"]) | wrong
        other = type(chosen)(
            chosen.query, chosen.values, chosen.noise, kind="selections", extra={"selection": described}
        )
        with pytest.raises(MeasurementError, match="describes no clusters"):
            cluster(MeasurementSet(measured.domain, (other,), measured.privacy, {}, private=False))


def test_more_records_and_budget_make_more_generations() -> None:
    plan = PrivGene(clusters=3)
    asked = ((100, 1), (48_842, 1), (10**6, 1), (10**6, 0.5), (10**9, 1))
    found = [plan._suggested(records, budget(epsilon=epsilon)) for records, epsilon in asked]
    assert found == [8, 8, 125, 62, 500]
    assert plan._suggested(10**6, budget(rho=0.25)) == 125


def test_first_candidates_are_uniform_in_the_ball() -> None:
    """The L1 norm of a uniform point of d dimensions has the distribution r^d."""
    points = _uniform_in_ball((4000, 1, 3), generator(0))[:, 0]
    norms = np.sort(np.abs(points).sum(axis=1) ** 3)
    assert np.abs(norms - np.linspace(0, 1, 4000)).max() < 1.95 / np.sqrt(4000)
    assert np.abs(points.mean(axis=0)).max() < 5 * points.std() / np.sqrt(4000)


BOTH = {"clusters": 2, "label": "far"}
WRONG = [{"survivors": 200}, {"step": 0}, {"cooling": 1.5}, {"region": "disc"}, {"total_share": 1.0}, {"clusters": 0}]


@pytest.mark.parametrize("options", [{}, BOTH, *({"clusters": 2} | each for each in WRONG)])
def test_options_that_make_no_run_are_refused(options) -> None:
    with pytest.raises(DeclarationError):
        PrivGene(**options)

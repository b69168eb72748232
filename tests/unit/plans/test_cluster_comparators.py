"""Grid, hybrid, and sample and aggregate: what they spend, what they find, and what they never need to know."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain
from consilience.domain.public_facts import PublicFacts
from consilience.errors import ConsilienceError, DeclarationError, MeasurementError, TooLarge
from consilience.estimators.cell_clusters import measured_total
from consilience.measurements import MeasurementSet
from consilience.measuring import PricingGate, measure
from consilience.plans.published.clusters import ClusterGrid, HybridClusters, SampleAndAggregate
from consilience.plans.rounds import KMeans
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

ATTRIBUTES = (Attribute.continuous("x", (0.0, 100.0)), Attribute.continuous("y", (-1.0, 1.0)))
DOMAIN = Domain("plane", ATTRIBUTES)
COUNTED = Domain("plane", ATTRIBUTES, public=PublicFacts(total=3000))
CENTRES = np.array([[20.0, -0.5], [50.0, 0.6], [85.0, -0.1]])
POINTS = (CENTRES[:, None] + np.random.default_rng(0).normal(0, (2.0, 0.03), (3, 1000, 2))).reshape(-1, 2)
PLANS = (ClusterGrid(3), HybridClusters(3), SampleAndAggregate(3))
GIVEN = (ClusterGrid(3, divisions=5), HybridClusters(3, divisions=5), SampleAndAggregate(3, blocks=30))


def table(points: np.ndarray = POINTS, domain: Domain = DOMAIN):
    return open_table(pa.table({"x": points[:, 0], "y": points[:, 1]}), domain)


def farthest(found: np.ndarray) -> float:
    """The largest distance from a true centre to the nearest centroid, in units of the bounds."""
    gaps = (CENTRES[:, None] - found[None]) / (100.0, 2.0)
    return float(np.sqrt((gaps**2).sum(axis=2)).min(axis=1).max())


def loss_of_noise(measured: MeasurementSet, sensitivities: dict[tuple[str, str], float]) -> float:
    """Σ Δ₁/scale: the ε that the noise of all measurements gives away, for the Δ₁ of each part."""
    total = 0.0
    for each in measured.measurements:
        about = each.statistic
        assert about is not None
        total += sensitivities[about["algorithm"], about["part"]] / each.noise.scale_parameter
    return total


@pytest.mark.parametrize("plan", [*PLANS, *GIVEN], ids=lambda plan: plan.to_json()["plan"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("amounts", [{"epsilon": 0.7}, {"rho": 0.1}])
def test_steps_never_cost_more_than_the_budget_and_leave_nothing_of_it(plan, relation, amounts) -> None:
    whole = budget(**amounts)
    gate = PricingGate(DOMAIN, whole, neighbours=relation, rows_per_unit=2)
    plan.run(gate)
    spent = sum(price.budget.amount for price in gate.prices)
    assert spent == whole.amount


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.to_json()["plan"])
def test_the_ledger_is_charged_what_the_noise_gives_away(plan, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "plane.ledger", epsilon=1.0)
    measured = measure(table(), plan, ledger=ledger, epsilon=0.5)
    # Bounds mapped to the box: sums of two coordinates move by 2, and K = 3 centroids of a block by 2·3·2.
    known = {
        ("cell-grid", "counts"): 1.0,
        ("k-means", "counts"): 1.0,
        ("k-means", "sums"): 2.0,
        ("sample-and-aggregate", "centroids"): 12.0,
    }
    assert loss_of_noise(measured, known) == pytest.approx(0.5, rel=1e-9)
    assert [float(entry.cost) for entry in ledger.entries()] == [0.5]
    again = measure(table(), plan, ledger=ledger, epsilon=0.5)
    assert [each.values.tolist() for each in again.measurements] == [
        each.values.tolist() for each in measured.measurements
    ]
    assert float(ledger.spent) == 0.5


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.to_json()["plan"])
@pytest.mark.parametrize("region", ["box", "ball"])
def test_clusters_are_found_where_there_is_much_budget(plan, region: str, tmp_path: Path) -> None:
    chosen = type(plan)(3, region=region)
    measured = measure(table(), chosen, epsilon=200.0, simulate=1)
    found = chosen.centroids(measured)
    assert found.shape == (3, 2)
    assert farthest(found) < (0.05 if region == "box" else 0.2)
    measured.save(tmp_path / "clusters.parquet")
    again = chosen.centroids(MeasurementSet.load(tmp_path / "clusters.parquet"))
    np.testing.assert_array_equal(found, again)


@pytest.mark.parametrize("plan", [*PLANS, *GIVEN], ids=lambda plan: plan.to_json()["plan"])
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_records_and_much_noise_have_a_result_within_the_bounds(plan, rows: int) -> None:
    for seed in range(5):
        measured = measure(table(POINTS[:rows]), plan, epsilon=0.01, simulate=seed)
        found = plan.centroids(measured)
        assert found.shape == (3, 2)
        assert (np.abs((found - (50.0, 0.0)) / (50.0, 1.0)) <= 1.0 + 1e-9).all()


def test_a_public_total_is_used_in_place_of_a_noisy_one() -> None:
    for plan in (ClusterGrid(3), SampleAndAggregate(3)):
        (only,) = measure(table(domain=COUNTED), plan, epsilon=1.0, simulate=0).measurements
        total, _ = measure(table(), plan, epsilon=1.0, simulate=0).measurements
        assert total.values.size == 1
        assert only.values.size > 1
    about = measure(table(domain=COUNTED), SampleAndAggregate(3), epsilon=1.0, simulate=0).measurements[0].statistic
    assert about is not None
    assert about["blocks"] == round(3000**0.4)


def test_a_preview_says_what_it_cannot_know() -> None:
    preview = measure(DOMAIN, ClusterGrid(3), epsilon=1.0, dry_run=True)
    assert "a preview shows the coarsest one" in preview.notes[0]
    assert "8 parts" in measure(DOMAIN, ClusterGrid(3, divisions=8), epsilon=1.0, dry_run=True).notes[0]
    assert "public number" in measure(COUNTED, ClusterGrid(3), epsilon=1.0, dry_run=True).notes[0]
    assert "share of 0.5" in measure(DOMAIN, HybridClusters(3), epsilon=1.0, dry_run=True).notes[0]
    assert measure(COUNTED, SampleAndAggregate(3), epsilon=1.0, dry_run=True).notes[0] == "There are 25 blocks."
    # Δ₁ = 2·3·2 at ε = 0.95: a standard deviation of √2·12/0.95 on the sum, half of it in widths of the bounds.
    assert "of 8.93/ℓ" in measure(DOMAIN, SampleAndAggregate(3), epsilon=1.0, dry_run=True).notes[1]


def test_totals_are_weighted_by_their_noise() -> None:
    measured = measure(table(), ClusterGrid(3), epsilon=1.0, simulate=3)
    first, cells = measured.measurements
    own, summed = float(first.values[0]), float(cells.values.sum())
    variances = (first.noise.variance, cells.values.size * cells.noise.variance)
    expected = (own / variances[0] + summed / variances[1]) / (1 / variances[0] + 1 / variances[1])
    assert measured_total(measured.measurements) == pytest.approx(expected)


def test_wrong_options_are_refused_from_declarations_alone() -> None:
    with pytest.raises(DeclarationError, match="clusters is 0"):
        ClusterGrid(0)
    with pytest.raises(DeclarationError, match="-1 parts"):
        ClusterGrid(3, divisions=-1)
    with pytest.raises(DeclarationError, match="project, zero"):
        ClusterGrid(3, negatives="drop")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="the grid is 1"):
        HybridClusters(3, grid_share=1.0)
    with pytest.raises(DeclarationError, match="0 blocks"):
        SampleAndAggregate(3, blocks=0)
    wide = Domain("wide", tuple(Attribute.continuous(f"a{i}", (0.0, 1.0)) for i in range(30)))
    with pytest.raises(TooLarge, match="fewer attributes"):
        measure(wide, ClusterGrid(3), epsilon=1.0, dry_run=True)
    with pytest.raises(ConsilienceError):
        measure(Domain.from_sizes({"a": 3}), SampleAndAggregate(3), epsilon=1.0, dry_run=True)


def test_measurements_of_another_plan_are_refused() -> None:
    measured = measure(table(), KMeans(3), epsilon=1.0, simulate=0)
    for plan in (ClusterGrid(3), SampleAndAggregate(3)):
        with pytest.raises(MeasurementError, match="give what such a plan measured"):
            plan.centroids(measured)


def test_more_budget_cuts_the_grid_finer() -> None:
    sizes = [
        measure(table(domain=COUNTED), ClusterGrid(3), epsilon=epsilon, simulate=0).measurements[0].values.size
        for epsilon in (0.05, 0.2, 1.0)
    ]
    assert sizes == [round(math.sqrt(3000 * epsilon / 10)) ** 2 for epsilon in (0.05, 0.2, 1.0)]

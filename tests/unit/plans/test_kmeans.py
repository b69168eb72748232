"""K-means in rounds: what it spends, what it keeps, and that no data can make it fail."""

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.errors import BudgetExceeded, ConsilienceError, DeclarationError, TooLarge
from consilience.iterates.clustering import initial_centroids, next_centroids
from consilience.kernels.regions import REGION_KINDS, Region
from consilience.measurements import MeasurementSet
from consilience.measuring import measure
from consilience.plans.rounds import KMeans
from consilience.privacy.budgets import Budget, budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

DOMAIN = Domain(
    "city",
    (
        Attribute.categorical("kind", ["house", "shop"]),
        Attribute.continuous("east", (0.0, 100.0)),
        Attribute.continuous("north", (-50.0, 50.0), unlisted="drop"),
    ),
)
PLANE = Domain("plane", (Attribute.continuous("east", (0.0, 100.0)), Attribute.continuous("north", (-50.0, 50.0))))
CENTRES = np.array([[20.0, -30.0], [80.0, -20.0], [50.0, 35.0]])


def city(records=3000, seed=0):
    """Three towns of houses."""
    rng = np.random.default_rng(seed)
    points = CENTRES[rng.integers(3, size=records)] + rng.normal(0, 4, (records, 2))
    table = pa.table({"kind": ["house"] * records, "east": points[:, 0], "north": points[:, 1]})
    return open_table(table, DOMAIN)


def final_centroids(measured: MeasurementSet, region="box"):
    """The centroids after the last round, in original units."""
    counts, sums = measured.measurements[-2:]
    described = sums.extra["statistic"]
    previous = np.array(described["centroids"])
    found = next_centroids(counts.values, sums.values.reshape(previous.shape), previous, Region(region, 2))
    low, high = np.array(described["bounds"]).T
    return low + (found + 1) / 2 * (high - low)


@pytest.mark.parametrize("region", REGION_KINDS)
def test_clusters_are_found_where_the_budget_is_ample(region):
    measured = measure(city(), KMeans(3, region=region, seed=3), epsilon=200.0, simulate=1)
    found = final_centroids(measured, region)
    distances = np.linalg.norm(found[:, None] - CENTRES, axis=2)
    assert sorted(distances.argmin(axis=1).tolist()) == [0, 1, 2]
    assert distances.min(axis=1).max() < (2.0 if region == "box" else 15.0)


def test_every_round_keeps_the_centroids_it_asked_with_and_the_next_follow_from_it():
    plan = KMeans(4, rounds=6, count_share=0.25, seed=5)
    measured = measure(city(), plan, epsilon=1.0, simulate=0)
    assert [each.round for each in measured] == [t for t in range(1, 7) for _ in range(2)]
    assert [each.extra["statistic"]["part"] for each in measured] == ["counts", "sums"] * 6
    centroids = initial_centroids(4, 2, "box", 5)
    for counts, sums in zip(measured.measurements[::2], measured.measurements[1::2], strict=True):
        for each in (counts, sums):
            np.testing.assert_array_equal(each.extra["statistic"]["centroids"], centroids)
        assert counts.noise.scale == pytest.approx(1 / (1 / 6 * 0.25))
        assert sums.noise.scale == pytest.approx(2 / (1 / 6 * 0.75))
        centroids = next_centroids(counts.values, sums.values.reshape(4, 2), centroids, Region("box", 2))
        assert Region("box", 2).contains(centroids).all()


@pytest.mark.parametrize("amounts", [{"epsilon": 0.7}, {"rho": 0.05}, {"epsilon": 1.0, "delta": 1e-6}])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("region", ["box", "ball"])
def test_the_total_of_a_run_follows_from_its_measurements_and_the_ledger(tmp_path: Path, amounts, neighbours, region):
    ledger = Ledger.create(tmp_path / "l", dataset="city", total=budget(**amounts))
    plan = KMeans(3, rounds=7, count_share=0.3, region=region)
    measured = measure(city(200), plan, ledger=ledger, neighbours=neighbours, **amounts)
    whole = float(budget(**amounts).amount)
    # What one record can move, written down anew: a count, and a point of the region.
    pure = "rho" not in amounts and "delta" not in amounts
    replacing = neighbours == "replace-one"
    point = (2.0 if pure else math.sqrt(2)) if region == "box" else 1.0
    sensitivity = {
        "counts": (2.0 if pure else math.sqrt(2)) if replacing else 1.0,
        "sums": point * (2 if replacing else 1),
    }
    losses = []
    for each in measured:
        moved = sensitivity[each.extra["statistic"]["part"]]
        losses.append(moved / each.noise.scale if pure else moved**2 / (2 * each.noise.stddev**2))
    assert len(losses) == 14
    assert whole * (1 - 1e-9) <= math.fsum(losses) <= whole
    assert sum(losses[::2]) == pytest.approx(0.3 * whole)
    entries = list(ledger.entries())
    assert [entry.cost for entry in entries] == [budget(**amounts).amount]
    assert ledger.spent == budget(**amounts).amount
    assert measured.privacy.spent == budget(**amounts).to_json()
    with pytest.raises(BudgetExceeded):
        measure(city(200), plan, ledger=ledger, neighbours=neighbours, id="another", **amounts)


@given(st.integers(1, 12), st.sampled_from([0.1, 0.5, 1 / 3]), st.decimals("0.001", "5", places=3))
@settings(deadline=None, max_examples=40)
def test_the_dry_run_prices_every_round_and_never_more_than_the_budget(rounds, count_share, amount):
    for cost in ({"epsilon": amount}, {"rho": amount}):
        preview = measure(PLANE, KMeans(3, rounds=rounds, count_share=count_share), dry_run=True, **cost)
        spent = [price.budget.amount for price in preview.prices]
        assert len(spent) == rounds
        assert amount * (1 - Decimal("1e-15")) <= sum(spent) <= amount
        assert preview.answers == rounds * 9
        assert len(preview.notes) == 3
        assert {row["query"] for row in preview.rows()} == {"k-means counts", "k-means sums"}


def test_the_dry_run_and_the_run_ask_for_the_same_noise():
    plan = KMeans(3, ["east"], rounds=2)
    preview = measure(DOMAIN, plan, epsilon=0.5, dry_run=True)
    measured = measure(city(50), plan, epsilon=0.5, simulate=0)
    assert [each.noise for each in preview.example()] == [each.noise for each in measured]
    assert [each.values.size for each in preview.example()] == [each.values.size for each in measured] == [3, 3] * 2


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
            st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
        ),
        max_size=6,
    ),
    st.integers(1, 9),
    st.sampled_from(REGION_KINDS),
)
@settings(deadline=None, max_examples=40)
def test_no_data_makes_it_fail_or_changes_its_shape(records, clusters, region):
    columns = {
        "east": pa.array([record[0] for record in records], pa.float64()),
        "north": pa.array([record[1] for record in records], pa.float64()),
    }
    measured = measure(
        open_table(pa.table(columns), PLANE), KMeans(clusters, region=region, rounds=3), epsilon=0.01, simulate=0
    )
    assert [each.values.size for each in measured] == [clusters, 2 * clusters] * 3
    assert np.isfinite(final_centroids(measured, region)).all()


def test_noise_that_makes_every_count_negative_leaves_the_centroids():
    empty = open_table(pa.table({"east": pa.array([], pa.float64()), "north": pa.array([], pa.float64())}), PLANE)
    for seed in range(200):
        measured = measure(empty, KMeans(2, rounds=2), epsilon=0.1, simulate=seed)
        if (measured.measurements[0].values < 1).all():
            break
    else:
        pytest.fail("no seed made all counts negative")
    first, second = (measured.measurements[i].extra["statistic"]["centroids"] for i in (0, 2))
    assert first == second


def test_records_follow_the_public_rule_of_their_attributes():
    rows = {"kind": ["house"] * 5, "east": [10.0, 1e300, math.nan, 30.0, 40.0], "north": [0.0, 0.0, 0.0, 51.0, None]}
    measured = measure(open_table(pa.table(rows), DOMAIN), KMeans(1, rounds=1), epsilon=1e9, simulate=0)
    counts, sums = measured.measurements
    assert counts.values.tolist() == [2.0]  # one as it is and one clipped; missing and beyond `drop` are not there
    np.testing.assert_allclose(sums.values, [(10 - 50) / 50 + 1.0, 0.0], atol=1e-5)


def test_a_run_is_repeatable_from_the_ledger(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", dataset="city", total=budget(epsilon=1))
    first = measure(city(500), KMeans(3), ledger=ledger, epsilon=1.0)
    again = measure(city(500), KMeans(3), ledger=ledger, epsilon=1.0)
    assert first.measurements == again.measurements
    assert again.provenance["replayed"]
    assert ledger.spent == 1


def test_measurements_are_saved_and_loaded_whole(tmp_path: Path):
    measured = measure(city(500), KMeans(3, region="ball"), epsilon=1.0, simulate=4)
    measured.save(tmp_path / "m.parquet")
    assert MeasurementSet.load(tmp_path / "m.parquet").measurements == measured.measurements


def test_the_initial_centroids_can_be_given_in_original_units():
    plan = KMeans(2, initial=[[0.0, -50.0], [100.0, 0.0]])
    np.testing.assert_array_equal(plan.start(PLANE), [[-1.0, -1.0], [1.0, 0.0]])
    ball = KMeans(2, region="ball", initial=np.array([[0.0, -50.0], [100.0, 0.0]]))
    np.testing.assert_allclose(ball.start(PLANE), [[-0.5, -0.5], [1.0, 0.0]])


def test_equal_plans_are_equal_and_their_json_tells_all_choices():
    assert KMeans(2, ["east"], initial=[[1], [2]]) == KMeans(2, ("east",), initial=np.array([[1.0], [2.0]]))
    plans = [
        KMeans(2),
        KMeans(3),
        KMeans(2, rounds=4),
        KMeans(2, region="ball"),
        KMeans(2, count_share=0.4),
        KMeans(2, seed=1),
        KMeans(2, ["east"]),
        KMeans(2, initial=[[1, 2], [3, 4]]),
    ]
    assert len({str(plan.to_json()) for plan in plans}) == len(set(plans)) == len(plans)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"clusters": 0}, "clusters"),
        ({"clusters": 2.5}, "clusters"),
        ({"clusters": True}, "clusters"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": "5"}, "rounds"),
        ({"seed": -1}, "seed"),
        ({"region": "sphere"}, "sphere"),
        ({"count_share": 0.0}, "share"),
        ({"count_share": 1.0}, "share"),
        ({"count_share": math.nan}, "share"),
        ({"attributes": "east"}, "one text"),
        ({"attributes": []}, "each once"),
        ({"attributes": ["east", "east"]}, "each once"),
        ({"initial": [[1.0, 2.0]]}, "2 clusters"),
        ({"initial": [[1.0, math.inf], [0.0, 0.0]]}, "finite"),
        ({"initial": [[1.0], [0.0, 0.0]]}, "rows of numbers"),
    ],
)
def test_wrong_declarations_are_refused_at_once(arguments, said):
    with pytest.raises(DeclarationError, match=said):
        KMeans(**({"clusters": 2} | arguments))


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (KMeans(2, ["east", "west"]), "west"),
        (KMeans(2, ["kind"]), "categorical"),
        (KMeans(2, initial=[[1.0], [2.0]]), "coordinates"),
        (KMeans(2, initial=[[1.0, 0.0], [2.0, 51.0]]), "north"),
        (KMeans(60_000), "60,000 clusters"),
    ],
)
def test_what_does_not_fit_the_domain_is_refused_before_anything_is_read_or_spent(tmp_path, monkeypatch, plan, said):
    ledger = Ledger.create(tmp_path / "l", dataset="city", total=budget(epsilon=1))
    monkeypatch.setattr("consilience.source.local.LocalSource.exact_points", lambda *_: pytest.fail("data was read"))
    with pytest.raises((DeclarationError, TooLarge), match=said):
        measure(city(10), plan, ledger=ledger, epsilon=1.0)
    assert ledger.spent == 0


def test_a_domain_without_points_is_refused():
    with pytest.raises(ConsilienceError, match="no continuous attribute"):
        measure(Domain.from_sizes({"a": 2}), KMeans(2), epsilon=1.0, dry_run=True)


def test_rounds_share_the_budget_exactly():
    third = Budget(epsilon=Decimal(1)).scaled(Fraction(1, 3))
    preview = measure(PLANE, KMeans(2, rounds=3), epsilon=1.0, dry_run=True)
    assert [price.budget for price in preview.prices] == [third] * 3

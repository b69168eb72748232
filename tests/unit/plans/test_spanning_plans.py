"""Independent, Mst and Forest: what they spend, what they select, and what they leave alone."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Domain, Query
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.measuring import PricingGate, measure, price
from consilience.plans import spanning_pairs
from consilience.plans.forest import Forest, Independent, Mst, balanced_shares
from consilience.plans.spanning_pairs import Forest as Components
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

ROWS = 3000
SIZES = {"a": 4, "b": 4, "c": 3, "d": 12, "e": 2}
DOMAIN = Domain.from_sizes(SIZES, name="five")
RNG = np.random.default_rng(0)
CODES = np.stack([RNG.integers(0, size, ROWS) for size in SIZES.values()], axis=1)
CODES[:, 1] = CODES[:, 0]  # b is a
CODES[:, 4] = CODES[:, 2] > 0  # e follows from c
CODES[:, 3] = np.minimum(RNG.geometric(0.5, ROWS) - 1, 11)  # d has rare values, and says nothing of others
TABLE = pa.table({name: CODES[:, i].astype(str) for i, name in enumerate(SIZES)})
SOURCE = open_table(TABLE, DOMAIN)
PLANS = [Independent(), Mst(), Mst(rare=0.0), Forest(), Forest(care=0), Forest(wary=False)]
AMOUNTS = [{"epsilon": 1.0}, {"rho": 0.1}, {"epsilon": 1.0, "delta": 1e-6}]


@pytest.fixture(autouse=True, params=[spanning_pairs.MOST_SCORED_ANEW, 0], ids=["a score each", "one score"])
def how_rounds_score(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs twice: with a score for each round, and as where pairs are very many."""
    monkeypatch.setattr(spanning_pairs, "MOST_SCORED_ANEW", request.param)


def pairs_of(measured) -> set[tuple[str, ...]]:
    return {each.query.attributes for each in measured if len(each.query.attributes) == 2}


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: str(plan.to_json())[:60])
@pytest.mark.parametrize("amounts", AMOUNTS)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_steps_add_up_to_the_budget_and_not_beyond(plan, amounts, relation) -> None:
    whole = budget(**amounts)
    gate = PricingGate(DOMAIN, whole, neighbours=relation, rows_per_unit=1)
    plan.run(gate)
    parts = [*gate.selections, *(each.budget for each in gate.prices)]
    spent = sum(part.amount for part in parts)
    assert spent <= whole.amount
    assert float(spent) == pytest.approx(float(whole.amount), rel=0.1 if isinstance(plan, Mst) else 1e-9)


@pytest.mark.parametrize("plan", PLANS[1:], ids=lambda plan: str(plan.to_json())[:60])
@pytest.mark.parametrize("amounts", [{"epsilon": 2.0}, {"rho": 0.1}])
def test_what_the_data_holds_together_is_selected(plan, amounts) -> None:
    found = pairs_of(measure(SOURCE, plan, **amounts, simulate=3))
    assert {("a", "b"), ("c", "e")} <= found


def test_a_tree_joins_all_and_a_careful_forest_leaves_out_what_tells_nothing() -> None:
    tree, forest = (pairs_of(measure(SOURCE, plan, rho=0.02, simulate=1)) for plan in (Mst(), Forest(care=10.0)))
    assert len(tree) == len(SIZES) - 1
    assert forest == {("a", "b"), ("c", "e")}


def test_independent_records_get_no_pairs() -> None:
    domain = Domain.from_sizes(dict.fromkeys("abcd", 12))
    codes = RNG.integers(0, 12, (20_000, 4))
    source = open_table(pa.table({name: codes[:, i].astype(str) for i, name in enumerate("abcd")}), domain)
    measured = measure(source, Forest(), rho=0.01, simulate=0)
    assert not pairs_of(measured)
    assert len(measured) == 8


def test_where_no_pair_is_worth_anything_nothing_is_as_likely_as_all_pairs() -> None:
    """Noise far above all scores: the greatest of 28 noisy ones used to win nearly always."""
    domain = Domain.from_sizes(dict.fromkeys("abcdefgh", 3))
    codes = RNG.integers(0, 3, (300, 8))
    source = open_table(pa.table({name: codes[:, i].astype(str) for i, name in enumerate("abcdefgh")}), domain)
    ended = {
        wary: [not pairs_of(measure(source, Forest(wary=wary), rho=1e-7, simulate=seed)) for seed in range(60)]
        for wary in (True, False)
    }
    assert 0.3 < np.mean(ended[True]) < 0.7
    assert np.mean(ended[False]) < 0.15


def test_attributes_without_a_pair_are_measured_again() -> None:
    measured = measure(SOURCE, Forest(care=10.0), rho=0.02, simulate=1)
    singles = [each.query.attributes[0] for each in measured if len(each.query.attributes) == 1]
    assert {name: singles.count(name) for name in SIZES} == {"a": 1, "b": 1, "c": 1, "d": 2, "e": 1}
    earlier = Forest(care=10.0).earlier
    assert earlier is not None
    assert earlier.earlier is None
    assert "wary" not in earlier.to_json()
    assert len(measure(SOURCE, earlier, rho=0.02, simulate=1)) == len(measured) - 1


def test_cells_of_a_pair_stand_out_from_noise() -> None:
    rho = 0.0005
    measured = measure(SOURCE, Forest(care=0), rho=rho, simulate=0)
    stddev = math.sqrt(4 / (2 * rho * 0.6))
    sizes = {each.query.attributes: each.values.size for each in measured if len(each.query.attributes) == 2}
    assert all(size <= 1.2 * ROWS / (2 * stddev) for size in sizes.values())
    assert any("d" in names for names in sizes)


@pytest.mark.parametrize("plan", [Mst(), Forest()], ids=["mst", "forest"])
def test_the_estimate_knows_dependent_attributes(plan) -> None:
    estimate = plan.estimator().fit(measure(SOURCE, plan, rho=0.1, simulate=2))
    truth = np.zeros((4, 4))
    np.add.at(truth, (CODES[:, 0], CODES[:, 1]), 1)
    assert np.abs(estimate.marginal("a", "b") - truth).sum() / (2 * ROWS) < 0.05
    alone = Independent().estimator().fit(measure(SOURCE, Independent(), rho=0.1, simulate=2))
    assert np.abs(alone.marginal("a", "b") - truth).sum() / (2 * ROWS) > 0.5


def test_shares_are_those_of_least_noise() -> None:
    cells = [3.0, 40.0, 7.0]
    for unit, noise in (("rho", lambda s: s**-0.5), ("epsilon", lambda s: 1 / s)):
        shares = np.array(balanced_shares(cells, unit))
        shares /= shares.sum()
        least = sum(n * noise(s) for n, s in zip(cells, shares, strict=True))
        for other in np.random.default_rng(0).dirichlet(np.ones(3) * 5, 200):
            assert sum(n * noise(s) for n, s in zip(cells, other, strict=True)) >= least - 1e-9


def test_a_workload_bounds_what_is_measured() -> None:
    asked = Workload.of([Query.marginal("a", "b"), Query.marginal("d")])
    measured = measure(SOURCE, Forest(asked), rho=0.1, simulate=0)
    assert {name for each in measured for name in each.query.attributes} == {"a", "b", "d"}
    assert pairs_of(measured) <= {("a", "b")}
    assert {each.query.attributes for each in measure(SOURCE, Independent(asked), rho=0.1, simulate=0)} == {
        ("a",),
        ("b",),
        ("d",),
    }


def test_components_grow_together() -> None:
    forest = Components("abcd")
    forest.join(("a", "b"))
    forest.join(("c", "d"))
    assert not forest.joins(("a", "b"))
    assert forest.joins(("b", "c"))
    forest.join(("b", "c"))
    assert not forest.joins(("a", "d"))


@pytest.mark.parametrize("plan", [Mst(), Forest()], ids=["mst", "forest"])
def test_the_ledger_holds_the_budget_and_replays(plan, tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="five", total=budget(rho=0.5))
    first = measure(SOURCE, plan, ledger=ledger, rho=0.2)
    again = measure(SOURCE, plan, ledger=ledger, rho=0.2)
    assert [each.query for each in first] == [each.query for each in again]
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in again]
    assert str(ledger.spent) == "0.2"


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: str(plan.to_json())[:60])
def test_impossible_cells_public_facts_and_odd_domains_are_taken(plan) -> None:
    rules = (ImpossibleCells((("a", (0,)), ("b", (1, 2, 3)))),)
    facts = PublicFacts(total=ROWS)
    ruled = replace(DOMAIN, impossible=rules, public=facts)
    estimate = plan.estimator().fit(measure(open_table(TABLE, ruled), plan, rho=0.1, simulate=0))
    assert estimate.marginal("a", "b")[0, 1:].sum() == pytest.approx(0.0, abs=1e-9)
    assert estimate.total == pytest.approx(ROWS)
    lone = Domain.from_sizes({"a": 4, "only": 1})
    assert price(lone, plan, rho=0.1).answers == 4
    with pytest.raises(DeclarationError, match="nothing to tell apart"):
        price(Domain.from_sizes({"only": 1}), plan, rho=0.1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Mst(rare=-1), "from 0 up"),
        (lambda: Forest(one_way_share=0.0), "between 0 and 1"),
        (lambda: Forest(one_way_share=0.7, selection_share=0.4), "leave some"),
        (lambda: Forest(care=float("nan")), "care"),
    ],
)
def test_wrong_settings_are_refused(wrong, message) -> None:
    with pytest.raises(DeclarationError, match=message):
        wrong()


def test_dry_runs_tell_what_is_measured() -> None:
    for plan in PLANS:
        found = price(DOMAIN, plan, epsilon=1.0)
        assert found.notes
        assert len(found.selections) == (0 if isinstance(plan, Independent) else pytest.approx(4, abs=1))

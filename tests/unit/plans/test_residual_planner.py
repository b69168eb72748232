"""ResidualPlanner: what it measures costs the budget, no more, and has the variances that the closed form says."""

import itertools
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.domains import ImpossibleCells
from consilience.domain.workloads import Workload
from consilience.errors import ConsilienceError, DeclarationError, TooLarge
from consilience.estimators.residual import Residual
from consilience.measuring import PricingGate, measure, price
from consilience.plans.residual_planner import ResidualPlanner
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

DOMAIN = Domain.from_sizes({"a": 2, "b": 3, "c": 2}, name="three")
CODES = np.random.default_rng(0).integers(0, [2, 3, 2], (50, 3))
SOURCE = open_table(pa.table({name: [str(code) for code in CODES[:, i]] for i, name in enumerate("abc")}), DOMAIN)
PLANS = {
    "pairs": ResidualPlanner(Workload.marginals(DOMAIN, ways=2)),
    "pairs, largest": ResidualPlanner(Workload.marginals(DOMAIN, ways=2), objective="max"),
    "singles": ResidualPlanner(Workload.marginals(DOMAIN, ways=1)),
    "weighted": ResidualPlanner(Workload.of(["a, b", "c", "total"], weights=[1.0, 5.0, 2.0])),
}


def dense(query: Query) -> np.ndarray:
    """The query's matrix over all cells of the domain."""
    maps = dict(zip(query.attributes, query.bind(DOMAIN).maps, strict=True))
    found = np.ones((1, 1))
    for name in DOMAIN.names:
        found = np.kron(found, maps[name].dense() if name in maps else np.ones((1, DOMAIN[name].size)))
    return found


def priced(plan: ResidualPlanner, relation: str = "add-remove", **amount: float):
    spent = budget(**(amount or {"rho": 0.1}))
    gate = PricingGate(DOMAIN, spent, neighbours=relation, rows_per_unit=1)  # type: ignore[arg-type]
    plan.run(gate)
    ((queries,),) = [[price.queries for price in gate.prices]]
    return [(dense(each.bound.query), each.noise.scale_parameter) for each in queries]


def renyi(shift: int, stddev: float, order: float) -> float:
    """The Rényi divergence between discrete Gaussian noise and the same noise moved, summed term by term."""
    reach = abs(shift) * math.ceil(order) + math.ceil(40 * stddev)
    z = np.arange(-reach, reach + 1, dtype=np.float64)
    log_mass = -(z**2) / (2 * stddev**2)
    log_mass -= np.log(np.exp(log_mass).sum())
    moved = -((z - shift) ** 2) / (2 * stddev**2)
    moved -= np.log(np.exp(moved).sum())
    exponents = order * moved + (1 - order) * log_mass
    return float(np.log(np.exp(exponents - exponents.max()).sum()) + exponents.max()) / (order - 1)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_no_neighbour_costs_more_than_the_budget(name: str, relation: str) -> None:
    measured = priced(PLANS[name], relation)
    stacked = np.concatenate([matrix / stddev for matrix, stddev in measured]).T
    costs = (stacked**2).sum(axis=1) / 2
    if relation == "replace-one":
        pairs = itertools.combinations(stacked, 2)
        costs = np.array([*costs, *(((one - two) ** 2).sum() / 2 for one, two in pairs)])
    else:
        assert np.allclose(costs, 0.1)  # every record costs the same, and all of the budget
    assert costs.max() <= 0.1
    assert costs.max() >= 0.1 * (1 - 1e-9)


@pytest.mark.parametrize("name", ["pairs", "weighted"])
def test_the_divergence_of_the_noise_itself_stays_within_the_budget(name: str) -> None:
    """Enumerated for the discrete law, answer by answer, for every record that comes; with half the noise it is not."""
    rho = 0.4
    measured = priced(PLANS[name], rho=rho)
    for order in (1.5, 2.0, 6.0):
        for cell in range(12):
            shifts = [(round(entry), stddev) for matrix, stddev in measured for entry in matrix[:, cell] if entry]
            assert sum(renyi(shift, stddev, order) for shift, stddev in shifts) <= order * rho * (1 + 1e-9)
            assert sum(renyi(shift, stddev / 2, order) for shift, stddev in shifts) > order * rho


@pytest.mark.parametrize("name", PLANS)
def test_least_squares_has_the_variances_of_the_closed_form(name: str) -> None:
    measured = priced(PLANS[name])
    told = sum(matrix.T @ matrix / stddev**2 for matrix, stddev in measured)
    covariance = np.linalg.pinv(told, rcond=1e-10)
    for names, variance in PLANS[name].variances(DOMAIN, budget(rho=0.1)).items():
        rows = dense(Query.marginal(*names))
        assert np.allclose(np.diag(rows @ covariance @ rows.T), variance, rtol=1e-6)


@pytest.mark.parametrize("name", ["pairs", "singles", "weighted"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_under_a_pure_epsilon_no_neighbour_costs_more(name: str, relation: str) -> None:
    measured = priced(PLANS[name], relation, epsilon=0.7)
    stacked = np.concatenate([matrix / scale for matrix, scale in measured]).T
    if relation == "add-remove":
        costs = np.abs(stacked).sum(axis=1)
        assert np.allclose(costs, 0.7)  # every record costs the same, and all of the budget
    else:
        costs = np.array([np.abs(one - two).sum() for one, two in itertools.combinations(stacked, 2)])
    assert 0.7 * (1 - 1e-9) <= costs.max() <= 0.7


@pytest.mark.parametrize("name", ["pairs", "singles", "weighted"])
def test_under_a_pure_epsilon_least_squares_has_the_variances_that_are_told(name: str) -> None:
    measured = priced(PLANS[name], epsilon=0.01)  # so much noise that its law is Laplace's to many digits
    told = sum(matrix.T @ matrix / (2 * scale**2) for matrix, scale in measured)
    covariance = np.linalg.pinv(told, rcond=1e-10)
    for names, variance in PLANS[name].variances(DOMAIN, budget(epsilon=0.01)).items():
        rows = dense(Query.marginal(*names))
        assert np.allclose(np.diag(rows @ covariance @ rows.T), variance, rtol=1e-6)


@pytest.mark.slow
def test_the_estimator_is_unbiased_with_that_variance() -> None:
    plan, runs = PLANS["pairs"], 60
    truth = np.histogramdd(CODES, bins=[range(3), range(4), range(3)])[0]
    errors = []
    for seed in range(runs):
        estimate = plan.estimator().fit(measure(SOURCE, plan, rho=0.05, simulate=seed))
        errors.append(
            [
                *(estimate.marginal("a", "b") - truth.sum(axis=2)).ravel(),
                *(estimate.marginal("b", "c") - truth.sum(axis=0)).ravel(),
            ]
        )
    variance = plan.variances(DOMAIN, budget(rho=0.05))["a", "b"]
    assert np.abs(np.mean(errors, axis=0)).max() < 4 * math.sqrt(variance / runs)
    ratio = np.mean(np.square(errors)) / variance
    assert 0.85 < ratio < 1.15


def test_it_beats_equal_noise_on_the_marginals_themselves() -> None:
    """All pairs of flags: equal noise on 28 pairs has the variance 28, before least squares join them."""
    flags = Domain.from_sizes({f"f{i}": 2 for i in range(8)}, name="flags")
    plan = ResidualPlanner(Workload.marginals(flags, ways=2))
    ((_, variance), *_) = plan.variances(flags, budget(rho=0.5)).items()
    assert variance < 9


def test_the_ledger_holds_what_was_spent_and_replays_it(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="three", total=budget(epsilon=2, delta=1e-6))
    first = measure(SOURCE, PLANS["pairs"], ledger=ledger, epsilon=1, delta=1e-6)
    again = measure(SOURCE, PLANS["pairs"], ledger=ledger, epsilon=1, delta=1e-6)
    assert ledger.spent == budget(epsilon=1, delta=1e-6).amount
    assert all(np.array_equal(one.values, two.values) for one, two in zip(first, again, strict=True))
    rows = np.concatenate([dense(each.query) / each.noise.scale_parameter for each in first])
    assert float((rows**2).sum(axis=0).max()) / 2 <= float(ledger.spent)
    assert all(np.array_equal(each.values, np.round(each.values)) for each in first)


def test_measurements_are_saved_and_read_back(tmp_path: Path) -> None:
    measured = measure(SOURCE, PLANS["pairs"], rho=0.1, simulate=1)
    measured.save(tmp_path / "m.parquet")
    again = type(measured).load(tmp_path / "m.parquet")
    assert np.allclose(
        Residual(nonnegative=False).fit(again).marginal("a"), Residual(nonnegative=False).fit(measured).marginal("a")
    )


def test_impossible_cells_are_left_to_an_estimator_that_keeps_them() -> None:
    rule = ImpossibleCells((("a", (0,)), ("b", (1,))))
    domain = Domain("three", DOMAIN.attributes, impossible=(rule,))
    source = open_table(pa.table({"a": ["1"] * 9, "b": ["0", "1", "2"] * 3, "c": ["0"] * 9}), domain)
    measured = measure(source, PLANS["pairs"], rho=0.5, simulate=1)
    with pytest.raises(TooLarge, match="impossible"):
        PLANS["pairs"].estimator().fit(measured)
    assert Residual().fit(measured).marginal("a", "b")[0, 1] == 0


def test_it_says_what_to_expect() -> None:
    notes = price(DOMAIN, PLANS["pairs, largest"], rho=0.1).notes
    assert "largest variance" in notes[0]
    assert "standard deviation" in notes[1]


def test_marginals_named_twice_and_attributes_of_one_value_are_no_trouble() -> None:
    domain = Domain.from_sizes({"one": 1, "b": 3}, name="one")
    twice = ResidualPlanner(Workload.of(["one, b", "b", "b"]))
    queries, shares = twice.queries(domain)
    assert [query.attributes for query in queries] == [("b",)]
    assert len(shares) == 1
    assert twice.variances(domain, budget(rho=0.5))["one", "b"] == pytest.approx(1.0)


def test_what_cannot_be_planned_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="three", total=budget(epsilon=2))
    with pytest.raises(DeclarationError, match="Gaussian"):
        measure(SOURCE, PLANS["pairs, largest"], ledger=ledger, epsilon=1.0)
    assert ledger.spent == 0
    for make in (
        lambda: ResidualPlanner(Workload.of([])),
        lambda: ResidualPlanner(Workload.of([Query.of({"b": factors.Prefix()})])),
        lambda: ResidualPlanner(Workload.of(["a"]), objective="least"),  # type: ignore[arg-type]
        lambda: price(DOMAIN, ResidualPlanner(Workload.of(["z"])), rho=0.1),
        lambda: price(Domain("x", (Attribute.continuous("x", (0, 1)),)), ResidualPlanner(Workload.of(["x"])), rho=0.1),
    ):
        with pytest.raises(ConsilienceError):
            make()
    large = Domain.from_sizes({"a": 10_000, "b": 10_000}, name="large")
    with pytest.raises(TooLarge):
        price(large, ResidualPlanner(Workload.of(["a, b"])), rho=0.1)


def test_plans_are_told_apart() -> None:
    assert len({str(plan.to_json()) for plan in PLANS.values()}) == len(PLANS)

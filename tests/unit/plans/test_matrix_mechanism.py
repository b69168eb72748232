"""The matrix mechanism and the low-rank mechanism: their measured rows have the errors that the theory derives."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.problems.random_workloads import random_predicates, random_signs
from benchmarks.strategy_errors import strategy_error
from consilience.domain import Domain, Query, factors
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.linear_maps import AllRangesMap, PrefixMap
from consilience.measuring import PricingGate, measure
from consilience.plans.matrix_mechanism import (
    AttributeWorkload,
    LowRank,
    LowRankAsPublished,
    MatrixMechanism,
)
from consilience.privacy.budgets import budget
from consilience.privacy.gate import DataGate
from consilience.privacy.noise import SimulatedNoise
from consilience.source import open_table
from consilience.strategies.attribute_strategies import gram_matrix

SIZE = 16
DOMAIN = Domain.from_sizes({"a": SIZE, "b": 2}, name="pair")
CODES = np.random.default_rng(0).integers(0, SIZE, 60)
COUNTS = np.bincount(CODES, minlength=SIZE)
SOURCE = open_table(pa.table({"a": [str(code) for code in CODES], "b": ["0", "1"] * 30}), DOMAIN)


class Counted:
    """The same source, counted once and for all."""

    domain = DOMAIN
    max_rows_per_unit = 1
    runs_code = False

    def exact_counts(self, marginals, *, amount=None) -> list[np.ndarray]:
        return [COUNTS for _ in marginals]


PLANS = {
    "p-identity": MatrixMechanism("prefix", "a", strategy="p-identity"),
    "eigen": MatrixMechanism("prefix", "a", strategy="eigen"),
    "yuan": MatrixMechanism("prefix", "a", strategy="yuan"),
    "own": MatrixMechanism("prefix", "a", strategy=np.eye(SIZE)),
    "low-rank": LowRank("prefix", "a"),
    "low-rank as published": LowRankAsPublished("prefix", "a"),
}
PREFIXES = np.tril(np.ones((SIZE, SIZE)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "amounts"),
    list(itertools.product(PLANS, ({"epsilon": 0.5}, {"rho": 0.05}))),
)
def test_answers_have_the_derived_error_and_not_one_a_fifth_off(name: str, amounts: dict[str, float]) -> None:
    """Measured through the gate with its own noise, fitted by least squares; bias and variance both show."""
    plan, cost = PLANS[name], budget(**amounts)
    errors = []
    fit = None
    noise = SimulatedNoise(1)
    for _ in range(400):
        gate = DataGate(Counted(), cost, neighbours="add-remove", noise=noise, release_id="r")  # type: ignore[arg-type]
        plan.run(gate)
        (measurement,) = gate.measurements
        if fit is None:
            fit = PREFIXES @ np.linalg.pinv(measurement.query.bind(DOMAIN).maps[0].dense(), rcond=1e-9)
        errors.append(float(((fit @ measurement.values - PREFIXES @ COUNTS) ** 2).sum()))
    unit, norm = ("epsilon", 1) if "epsilon" in amounts else ("rho", 2)
    strategy = plan.matrix(DOMAIN) if isinstance(plan, LowRank) else plan.matrix(DOMAIN, unit)  # type: ignore[arg-type]
    derived = strategy_error(gram_matrix(PrefixMap(SIZE)), strategy, norm=norm)  # type: ignore[arg-type]
    derived /= amounts["epsilon"] ** 2 if norm == 1 else 2 * amounts["rho"]
    ratio = np.mean(errors) / derived
    assert abs(ratio - 1) < 0.12
    assert abs(ratio / 1.2 - 1) > 0.06
    assert abs(ratio / 0.8 - 1) > 0.06


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("amounts", [{"epsilon": 0.7}, {"rho": 0.02}])
def test_no_neighbour_makes_the_noise_cost_more_than_the_budget(plan, relation, amounts) -> None:
    cost = budget(**amounts)
    gate = PricingGate(DOMAIN, cost, neighbours=relation, rows_per_unit=1)
    plan.run(gate)
    ((priced,),) = [price.queries for price in gate.prices]
    columns = priced.bound.maps[0].dense().T
    moves = columns if relation == "add-remove" else (columns[:, None] - columns[None, :]).reshape(-1, columns.shape[1])
    scale = priced.noise.scale_parameter
    losses = np.abs(moves).sum(axis=1) / scale if "epsilon" in amounts else (moves**2).sum(axis=1) / (2 * scale**2)
    assert losses.max() <= float(cost.amount)
    assert losses.max() >= float(cost.amount) * (1 - 1e-9)


def test_the_rounded_strategy_is_the_strategy_to_six_digits() -> None:
    for plan in PLANS.values():
        gate = PricingGate(DOMAIN, budget(epsilon=1), neighbours="add-remove", rows_per_unit=1)
        plan.run(gate)
        measured = gate.prices[0].queries[0].bound.maps[0].dense()
        wanted = plan.matrix(DOMAIN)
        wanted = wanted[np.abs(wanted).max(axis=1) > 1e-6]
        assert np.allclose(measured, wanted, atol=2e-6 * np.abs(wanted).max())


def test_low_rank_answers_are_those_of_the_least_squares_counts_of_least_norm() -> None:
    workload = random_signs(DOMAIN, "a", queries=3, seed=2)
    W = workload.queries[0].bind(DOMAIN).maps[0].dense()
    L = LowRank(workload).matrix(DOMAIN)
    B = np.linalg.lstsq(L.T, W.T, rcond=None)[0].T
    assert np.allclose(B @ L, W, atol=1e-6)
    noisy = L @ COUNTS + np.random.default_rng(1).laplace(size=len(L))
    least_norm = np.linalg.lstsq(L, noisy, rcond=None)[0]
    assert np.allclose(B @ noisy, W @ least_norm, atol=1e-6)
    assert len(L) < SIZE


def test_a_low_rank_pays_where_queries_are_few() -> None:
    workload = random_signs(DOMAIN, "a", queries=2, seed=2)
    gram = AttributeWorkload.of(workload, None).gram(DOMAIN)
    assert strategy_error(gram, LowRank(workload).matrix(DOMAIN), norm=1) < 0.5 * strategy_error(
        gram, np.eye(SIZE), norm=1
    )


def test_auto_is_the_strategy_that_suits_the_noise() -> None:
    auto = MatrixMechanism("ranges", "a")
    gram = gram_matrix(AllRangesMap(SIZE))
    for unit, norm, name in (("epsilon", 1, "p-identity"), ("rho", 2, "yuan")):
        chosen = auto.matrix(DOMAIN, unit)  # type: ignore[arg-type]
        assert np.array_equal(chosen, MatrixMechanism("ranges", "a", strategy=name).matrix(DOMAIN, unit))  # type: ignore[arg-type]
        errors = {
            other: strategy_error(
                gram,
                MatrixMechanism("ranges", "a", strategy=other).matrix(DOMAIN, unit),  # type: ignore[arg-type]
                norm=norm,  # type: ignore[arg-type]
            )
            for other in ("p-identity", "yuan", "eigen")
        }
        assert min(errors, key=errors.__getitem__) == name


def test_weights_say_how_much_an_error_counts() -> None:
    values, prefixes = Query.marginal("a"), Query.of({"a": factors.Prefix()})
    target = AttributeWorkload.of(Workload.of([values, prefixes, Query(())], weights=[1.0, 3.0, 2.0]), None)
    expected = np.eye(SIZE) + 3 * PREFIXES.T @ PREFIXES + 2 * np.ones((SIZE, SIZE))
    assert np.allclose(target.gram(DOMAIN), expected)


def test_strategies_are_found_once_and_never_depend_on_the_data() -> None:
    first = PLANS["p-identity"].matrix(DOMAIN)
    other = Domain.from_sizes({"a": SIZE, "c": 3}, name="elsewhere")
    assert MatrixMechanism("prefix", "a", strategy="p-identity").matrix(other) is first
    measured = measure(SOURCE, PLANS["low-rank"], epsilon=1.0, simulate=0)
    assert measured.measurements[0].query.attributes == ("a",)


def test_what_is_no_strategy_is_refused() -> None:
    two = Workload.of([Query.marginal("a"), Query.marginal("b")])
    for make in (
        lambda: MatrixMechanism("prefix"),
        lambda: MatrixMechanism("prefixes", "a"),
        lambda: MatrixMechanism(two),
        lambda: MatrixMechanism(random_predicates(DOMAIN, "a", queries=2, seed=0), "b"),
        lambda: MatrixMechanism("prefix", "a", strategy="best"),
        lambda: MatrixMechanism("prefix", "a", strategy=[[np.inf]]),
        lambda: MatrixMechanism("prefix", "a", strategy=np.zeros((2, 2))),
        lambda: MatrixMechanism("prefix", "a", strategy=np.eye(3)).matrix(DOMAIN),
        lambda: LowRank(two),
        lambda: LowRank("prefix", "a", rank=0),
    ):
        with pytest.raises(DeclarationError):
            make()
    with pytest.raises(TooLarge):
        LowRank("prefix", "a").matrix(Domain.from_sizes({"a": 5000}, name="large"))


def test_plans_are_told_apart() -> None:
    described = [str(plan.to_json()) for plan in PLANS.values()] + [
        str(MatrixMechanism("prefix", "a", strategy=2 * np.eye(SIZE)).to_json()),
        str(MatrixMechanism("ranges", "a", strategy="yuan").to_json()),
        str(LowRank("prefix", "a", rank=20).to_json()),
    ]
    assert len(set(described)) == len(described)

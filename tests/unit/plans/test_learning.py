"""The plan Learning measures marginals in the shares of the polynomial's weights, at the price of the budget."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.reproduce.qardaji2014.expected_errors import direct_error, learning_noise_error
from consilience.domain import Domain
from consilience.errors import DeclarationError, TooLarge
from consilience.measuring import PricingGate, measure
from consilience.plans.published.marginals import Learning
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

FLAGS = Domain.from_sizes(dict.fromkeys("abcde", 2), name="flags")
MIXED = Domain.from_sizes({"a": 2, "b": 3, "c": 4}, name="mixed")
CODES = (np.random.default_rng(0).random((300, 5)) < [0.2, 0.5, 0.8, 0.4, 0.6]).astype(int)
SOURCE = open_table(pa.table({name: CODES[:, i].astype(str) for i, name in enumerate("abcde")}), FLAGS)


def priced(plan: Learning, domain: Domain = FLAGS, relation="add-remove", **amounts):
    gate = PricingGate(domain, budget(**amounts), neighbours=relation, rows_per_unit=1)
    plan.run(gate)
    (price,) = gate.prices
    return price


@pytest.mark.parametrize("literals", ["matched", "missed"])
@pytest.mark.parametrize("gamma", [1 / 2, 1 / 4, 1 / 8])
@pytest.mark.parametrize("ways", [2, 3, 4])
def test_every_weighted_cell_has_the_same_noise_and_together_they_cost_the_budget(ways, gamma, literals) -> None:
    plan = Learning(ways, gamma, literals)
    weights = plan.estimator().weights
    price = priced(plan, epsilon=0.7)
    stack = sum(abs(weight) * math.comb(5, size) for size, weight in enumerate(weights))
    loss = 0.0
    for each in price.queries:
        size = len(each.bound.attributes)
        assert abs(weights[size]) * each.noise.scale_parameter == pytest.approx(stack / 0.7)
        loss += 1.0 / each.noise.scale_parameter  # a record is in one cell of every marginal
    assert loss <= 0.7
    assert loss == pytest.approx(0.7)
    expected = [
        names for size, weight in enumerate(weights) if weight for names in itertools.combinations("abcde", size)
    ]
    assert [each.bound.attributes for each in price.queries] == expected


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_gaussian_noise_and_replaced_records_cost_the_budget(relation) -> None:
    price = priced(Learning(4, 1 / 4), relation=relation, rho=0.1)
    moved = 1 if relation == "add-remove" else 2
    losses = [
        (moved if each.bound.attributes or relation == "add-remove" else 0) / (2 * each.noise.scale_parameter**2)
        for each in price.queries
    ]
    assert sum(losses) == pytest.approx(0.1)


def test_all_literals_together_are_the_plan_direct() -> None:
    plan = Learning(2, gamma=1 / 8)
    assert [query.attributes for query, _ in plan.weighted(FLAGS)] == list(itertools.combinations("abcde", 2))
    assert learning_noise_error(5, plan) == pytest.approx(direct_error(5, 2))


def test_literals_matched_have_less_noise_than_literals_missed() -> None:
    for ways, gamma in itertools.product((2, 3, 4, 6), (1 / 2, 1 / 4, 1 / 8)):
        matched, missed = (Learning(ways, gamma, literals) for literals in ("matched", "missed"))
        assert learning_noise_error(9, matched) < learning_noise_error(9, missed)


@pytest.mark.parametrize("literals", ["matched", "missed"])
@pytest.mark.parametrize("gamma", [1 / 2, 1 / 4, 1 / 8])
def test_without_noise_each_cell_is_the_sum_of_the_polynomial_over_the_records(gamma, literals) -> None:
    plan = Learning(4, gamma, literals)
    fitted = plan.estimator().fit(measure(SOURCE, plan, epsilon=1e7, simulate=0))
    values = plan.estimator().polynomial.values
    for places in ((0, 1, 2, 3), (4, 2, 0, 1)):
        found = fitted.marginal(*("abcde"[place] for place in places))
        for cell in np.ndindex(found.shape):
            missed = (CODES[:, places] != cell).sum(axis=1)
            assert found[cell] == pytest.approx(values[missed].sum(), abs=1e-3)
            assert abs(found[cell] - (missed == 0).sum()) <= gamma * len(CODES) + 1e-3


def test_attributes_of_several_values_take_literals_matched() -> None:
    assert len(priced(Learning(2, 1 / 2), MIXED, epsilon=1.0).queries) == 4
    with pytest.raises(DeclarationError, match="'b' has 3 values"):
        priced(Learning(2, 1 / 2, "missed"), MIXED, epsilon=1.0)


def test_the_real_path_charges_the_ledger_once(tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="flags", total=budget(epsilon=1))
    first = measure(SOURCE, Learning(3, 1 / 4), ledger=ledger, epsilon=0.5)
    again = measure(SOURCE, Learning(3, 1 / 4), ledger=ledger, epsilon=0.5)
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in again]
    assert str(ledger.spent) == "0.5"


def test_what_makes_no_sense_is_refused() -> None:
    for make in (
        lambda: Learning(0),
        lambda: Learning(2.5),  # type: ignore[arg-type]
        lambda: Learning(2, 0.0),
        lambda: Learning(2, 1.0),
        lambda: Learning(2, 0.5, "both"),  # type: ignore[arg-type]
        lambda: priced(Learning(4), MIXED, epsilon=1.0),
    ):
        with pytest.raises(DeclarationError):
            make()
    many = Domain.from_sizes({f"a{i}": 2 for i in range(64)})
    with pytest.raises(TooLarge, match="Views"):
        priced(Learning(8, 1 / 8), many, epsilon=1.0)


def test_plans_are_told_apart() -> None:
    plans = [
        Learning(2),
        Learning(3),
        Learning(2, 0.1),
        Learning(2, literals="missed"),
        Learning(2, exact_at_zero=False),
    ]
    assert len({str(plan.to_json()) for plan in plans}) == len(plans)

"""MWEM with models: what it spends, that large models are left out or refused, and that it learns."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Domain, Query, factors
from consilience.domain.public_facts import PublicFacts
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, TooLarge
from consilience.measuring import PricingGate, measure, price
from consilience.plans.published.mwem import MwemModels
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

ROWS = 2000
NAMES = "abcdef"
DOMAIN = Domain.from_sizes(dict.fromkeys(NAMES, 3), name="six")
PUBLIC = Domain("six", DOMAIN.attributes, public=PublicFacts(total=ROWS))
RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 3, (ROWS, 6))
CODES[:, 1] = CODES[:, 0]
CODES[:, 3] = CODES[:, 2]
TABLE = pa.table({name: CODES[:, i].astype(str) for i, name in enumerate(NAMES)})
PAIRS = Workload.marginals(DOMAIN, ways=2)


def mean_error(estimate) -> float:
    errors = []
    for i, j in itertools.combinations(range(6), 2):
        truth = np.zeros((3, 3))
        np.add.at(truth, (CODES[:, i], CODES[:, j]), 1)
        errors.append(np.abs(estimate.marginal(NAMES[i], NAMES[j]) - truth).sum() / (2 * ROWS))
    return float(np.mean(errors))


@pytest.mark.parametrize("estimation", ["graphical", "factored"])
@pytest.mark.parametrize("candidates", ["marginals", "answers"])
@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"rho": 0.1}])
@pytest.mark.parametrize("domain", [DOMAIN, PUBLIC], ids=["unknown total", "public total"])
def test_the_rounds_add_up_to_the_budget(estimation, candidates, amounts, domain) -> None:
    whole = budget(**amounts)
    gate = PricingGate(domain, whole, neighbours="add-remove", rows_per_unit=1)
    MwemModels(PAIRS, rounds=4, estimation=estimation, candidates=candidates).run(gate)
    parts = [*gate.selections, *(each.budget for each in gate.prices)]
    assert len(parts) == 8 + (domain is DOMAIN)
    assert sum(part.amount for part in parts) <= whole.amount
    assert float(sum(part.amount for part in parts)) == pytest.approx(float(whole.amount), rel=1e-9)


@pytest.mark.parametrize("estimation", ["graphical", "factored"])
def test_dependent_pairs_are_found_first_and_learnt(estimation) -> None:
    plan = MwemModels(PAIRS, rounds=3, estimation=estimation)
    measured = measure(open_table(TABLE, PUBLIC), plan, rho=0.5, simulate=1)
    assert {each.query.attributes for each in measured} >= {("a", "b"), ("c", "d")}
    assert mean_error(plan.estimator().fit(measured)) < 0.04


def test_single_answers_are_measured_as_published() -> None:
    prefixes = Workload.of([Query.of({"a": factors.Prefix(), "b": factors.Identity()}), Query.marginal("c", "d")])
    plan = MwemModels(prefixes, rounds=5, candidates="answers", estimation="factored")
    measured = measure(open_table(TABLE, PUBLIC), plan, epsilon=5.0, simulate=0)
    assert [each.values.size for each in measured] == [1] * 5


def test_parts_of_queries_are_candidates_unless_left_out() -> None:
    triples = Workload.marginals(DOMAIN, ways=3)
    source = open_table(TABLE, DOMAIN)
    whole = measure(source, MwemModels(triples, rounds=3, parts=False), rho=0.5, simulate=0)
    assert [len(each.query.attributes) for each in whole] == [0, 3, 3, 3]
    found = price(DOMAIN, MwemModels(triples, rounds=3), rho=0.5)
    assert [row["answers"] for row in found.rows()] == [1, 3, 3, 3]


def test_models_stay_within_their_size_by_leaving_out() -> None:
    plan = MwemModels(PAIRS, rounds=12, largest_model=40)
    measured = measure(open_table(TABLE, PUBLIC), plan, rho=0.5, simulate=0)
    assert len(measured) == 12
    estimate = plan.estimator().fit(measured)
    assert estimate.stats["junction_tree_cells"] <= 40


def test_factored_models_stay_within_their_size_or_are_refused_when_selected() -> None:
    chain = Workload.of([Query.marginal("a", "b"), Query.marginal("b", "c")])
    options = {"rounds": 6, "estimation": "factored", "parts": False, "largest_model": (9 * 6 + 4) * 9}
    kept = measure(open_table(TABLE, PUBLIC), MwemModels(chain, **options), rho=0.5, simulate=0)
    assert len({each.query.attributes for each in kept}) == 1
    ends = Workload.of([Query.marginal("a", "b"), Query.marginal("b", "d"), Query.marginal("c", "d")])
    strict = MwemModels(ends, rounds=40, estimation="factored", largest_model=(9 * 40 + 4) * 9, beyond="refuse")
    with pytest.raises(TooLarge, match="leaves such queries out"):
        measure(open_table(TABLE, PUBLIC), strict, rho=0.01, simulate=0)


def test_nothing_that_fits_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(TooLarge, match="raise largest_model"):
        price(DOMAIN, MwemModels(PAIRS, largest_model=2), rho=0.1)


def test_domains_of_any_size_run() -> None:
    wide = Domain.from_sizes({f"x{i}": 9 for i in range(40)})
    codes = RNG.integers(0, 9, (500, 40))
    source = open_table(pa.table({f"x{i}": codes[:, i].astype(str) for i in range(40)}), wide)
    workload = Workload.of([Query.marginal(f"x{i}", f"x{i + 1}") for i in range(39)])
    for estimation in ("graphical", "factored"):
        plan = MwemModels(workload, rounds=3, estimation=estimation)
        estimate = plan.estimator().fit(measure(source, plan, rho=0.5, simulate=0))
        assert estimate.marginal("x0", "x39").sum() == pytest.approx(estimate.total)


def test_the_ledger_holds_the_budget_and_replays(tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="six", total=budget(epsilon=1))
    plan = MwemModels(PAIRS, rounds=3)
    first = measure(open_table(TABLE, DOMAIN), plan, ledger=ledger, epsilon=0.5)
    again = measure(open_table(TABLE, DOMAIN), plan, ledger=ledger, epsilon=0.5)
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in again]
    assert str(ledger.spent) == "0.5"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimation": "table"}, "graphical"),
        ({"candidates": "cells"}, "marginals"),
        ({"beyond": "crash"}, "leave-out"),
        ({"rounds": 0}, "from 1 up"),
        ({"largest_model": True}, "from 1 up"),
        ({"total_share": 1.0}, "between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(options, message) -> None:
    with pytest.raises(DeclarationError, match=message):
        MwemModels(PAIRS, **options)
    with pytest.raises(DeclarationError, match="nothing but the total"):
        MwemModels(Workload.of([Query(())]))

"""The rule that chooses a plan: what it says, and that noisy facts decide inside the plan."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Domain, Query, factors
from consilience.domain.domains import PublicFacts
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.plans.best_buy import BestBuy
from consilience.plans.chosen import chosen_plan
from consilience.plans.independent import Independent
from consilience.plans.matrix_mechanism import MatrixMechanism
from consilience.privacy.budgets import budget
from consilience.privacy.gate import PricingGate
from consilience.privacy.measure import measure, price
from consilience.source import open_table

DOMAIN = Domain.from_sizes({"a": 4, "b": 3, "c": 5, "d": 2}, name="four")
TRIPLES = Workload.marginals(DOMAIN, ways=3)
RHO = budget(rho=0.05)


def source_of(rows: int, domain: Domain = DOMAIN):
    codes = np.random.default_rng(rows).integers(0, domain.shape, (rows, len(domain.shape)))
    return open_table(pa.table({name: codes[:, i].astype(str) for i, name in enumerate(domain.names)}), domain)


def test_each_rule_is_taken_where_it_says() -> None:
    ranges = Workload.of([Query.of({"c": factors.AllRanges()})])
    plan, reasons = chosen_plan(DOMAIN, ranges, RHO)
    assert isinstance(plan, MatrixMechanism)
    assert "c alone" in reasons[0]
    plan, _ = chosen_plan(DOMAIN, Workload.of([Query.marginal("a"), Query.of({"b": factors.Prefix()})]), RHO)
    assert isinstance(plan, Independent)
    plan, reasons = chosen_plan(DOMAIN, TRIPLES, RHO)
    assert isinstance(plan, BestBuy)
    assert "a noisy total decides" in reasons[0]
    known = replace(DOMAIN, public=PublicFacts(total=100))
    assert "by public knowledge" in chosen_plan(known, TRIPLES, RHO)[1][0]


def test_the_predicted_noise_is_that_of_the_gate() -> None:
    for amounts, relation in (({"rho": 0.05}, "add-remove"), ({"epsilon": 1.0}, "replace-one")):
        plan = BestBuy(TRIPLES, neighbours=relation)
        direct = plan.considered(DOMAIN)[0]
        records = plan.needed_records(direct, budget(**amounts))
        gate = PricingGate(DOMAIN, budget(**amounts), neighbours=relation, rows_per_unit=1)
        found = gate.measure([Query.marginal(*names) for names in direct.tables], gate.budget)
        deviation = found[0].noise.variance ** 0.5
        mean = deviation * ((2 / np.pi) ** 0.5 if "rho" in amounts else 0.5**0.5)
        error = direct.cells / len(direct.tables) * mean / (2 * records)
        assert error == pytest.approx(plan.most_noise, rel=0.02)


def test_the_noisy_number_of_records_decides() -> None:
    plan = BestBuy(TRIPLES)
    triples, pairs = plan.considered(DOMAIN)
    many, some = (plan.needed_records(each, RHO) for each in (triples, pairs))
    assert some < many
    ways = [
        {len(each.query.attributes) for each in measure(source_of(round(rows)), plan, rho=0.05, simulate=0)}
        for rows in (1.1 * many, (many + some) / 2, 0.01 * some)
    ]
    assert ways[0] == {0, 3}
    assert ways[1] == {0, 2}
    assert 1 in ways[2]


def test_pairs_that_drown_in_noise_get_a_forest_and_others_rounds(monkeypatch) -> None:
    taken = []
    monkeypatch.setattr("consilience.plans.aim.Aim.run", lambda _, gate: taken.append(("aim", gate.budget)))
    monkeypatch.setattr("consilience.plans.forest.Forest.run", lambda _, gate: taken.append(("forest", gate.budget)))
    plan = BestBuy(TRIPLES)
    needed = plan.needed_records(plan.joining_pairs(DOMAIN), RHO, plan.most_pair_noise)
    for rows in (2 * needed, 0.3 * needed):
        measure(source_of(max(1, round(rows))), plan, rho=0.05, simulate=0)
    kinds = [kind for kind, _ in taken if kind]
    assert kinds.count("aim") == 1
    assert all(float(part.amount) == pytest.approx(0.99 * 0.05) for _, part in taken)


@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"rho": 0.1}, {"epsilon": 1.0, "delta": 1e-6}])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("total", [None, 10, 10**9])
def test_the_whole_is_never_overspent(amounts, relation, total) -> None:
    domain = replace(DOMAIN, public=PublicFacts(total=total))
    plan, _ = chosen_plan(domain, TRIPLES, budget(**amounts), relation)
    gate = PricingGate(domain, budget(**amounts), neighbours=relation, rows_per_unit=1)
    plan.run(gate)
    parts = [*gate.selections, *(each.budget for each in gate.prices)]
    assert sum(part.amount for part in parts) <= budget(**amounts).amount
    assert float(sum(part.amount for part in parts)) == pytest.approx(float(budget(**amounts).amount), rel=1e-6)


def test_the_dry_run_tells_the_rule() -> None:
    notes = " ".join(price(DOMAIN, BestBuy(TRIPLES), rho=0.05).notes)
    assert "measured first, with 1 %" in notes
    assert "rounds select tables" in notes


def test_nothing_asked_is_refused() -> None:
    with pytest.raises(DeclarationError, match="empty"):
        chosen_plan(DOMAIN, Workload.of([]), RHO)
    with pytest.raises(DeclarationError, match="nothing to tell apart"):
        chosen_plan(DOMAIN, Workload.of([Query(())]), RHO)
    for wrong in ({"most_noise": 0.0}, {"most_pair_noise": float("inf")}, {"ways": 0}, {"total_share": 0.0}):
        with pytest.raises(DeclarationError):
            BestBuy(TRIPLES, **wrong)

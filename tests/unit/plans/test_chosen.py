"""The rule that chooses a plan: what it says, and that noisy facts decide inside the plan."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.public_facts import PublicFacts
from consilience.domain.source_format import Summand
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators import estimate
from consilience.measuring import PricingGate, measure, price
from consilience.plans import Aim, Direct, Forest, KMeans, Mst, plan_from_text
from consilience.plans.best_buy import BestBuy
from consilience.plans.chosen import chosen_plan
from consilience.plans.forest import Independent
from consilience.plans.marginals import Marginals
from consilience.plans.matrix_mechanism import MatrixMechanism
from consilience.plans.published.histograms import Dawa
from consilience.privacy.budgets import budget
from consilience.publication import synthesize
from consilience.source import open_table

DOMAIN = Domain.from_sizes({"a": 4, "b": 3, "c": 5, "d": 2}, name="four")
TRIPLES = Workload.marginals(DOMAIN, ways=3)
RHO = budget(rho=0.05)


def source_of(rows: int, domain: Domain = DOMAIN):
    sizes = domain.sizes(domain.names)
    codes = np.random.default_rng(rows).integers(0, sizes, (rows, len(sizes)))
    return open_table(pa.table({name: codes[:, i].astype(str) for i, name in enumerate(domain.names)}), domain)


def test_each_rule_is_taken_where_it_says() -> None:
    ranges = Workload.of([Query.of({"c": factors.AllRanges()})])
    plan, reasons = chosen_plan(DOMAIN.project(["c"]), ranges, RHO)
    assert isinstance(plan, MatrixMechanism)
    assert "c alone" in reasons[0]
    wide = Domain.from_sizes({"c": 2000, "d": 2})
    plan, reasons = chosen_plan(wide.project(["c"]), ranges, RHO)
    assert isinstance(plan, Dawa)
    assert (plan.intervals, plan.partition_share, plan.workload) == ("nested", 0.1, ranges)
    assert "has 2,000 values" in reasons[0]
    one_way = Workload.of([Query.marginal("a"), Query.of({"b": factors.Prefix()})])
    plan, _ = chosen_plan(DOMAIN.project(["a", "b"]), one_way, RHO)
    assert isinstance(plan, Independent)
    plan, reasons = chosen_plan(DOMAIN, TRIPLES, RHO)
    assert isinstance(plan, BestBuy)
    assert "a noisy total decides" in reasons[0]
    known = replace(DOMAIN, public=PublicFacts(total=100))
    assert "by public knowledge" in chosen_plan(known, TRIPLES, RHO)[1][0]


def test_a_large_attribute_among_others_gets_a_tree_for_the_ranges_asked_of_it() -> None:
    domain = Domain.from_sizes({"x": 2000, "b": 3}, name="wide")
    asked = Workload.of([Query.of({"x": factors.Prefix()}), Query.marginal("b")])
    plan, reasons = chosen_plan(domain, asked, budget(epsilon=1))
    assert plan == Independent(asked, ("x",))
    assert "of x, asked for ranges" in reasons[-1]
    assert chosen_plan(domain, Workload.of(["x", "b"]), RHO)[0].to_json().keys() == {"plan", "workload"}
    with pytest.raises(DeclarationError, match="need a workload"):
        Independent(trees=["x"])
    source = source_of(20_000, domain)
    truth = np.cumsum(source_counts(source, "x"))
    errors = []
    for each in (plan, Independent(asked)):
        measured = measure(source, each, epsilon=1.0, simulate=2)
        fitted = estimate(measured, method=each.estimator())
        assert fitted.marginal("b").sum() == pytest.approx(fitted.total)
        errors.append(np.mean((np.cumsum(fitted.marginal("x")) - truth) ** 2))
    assert errors[0] < 0.5 * errors[1]


def source_counts(source, name: str) -> np.ndarray:
    """Exact counts, by measuring with next to no noise."""
    (counts,) = measure(source, Marginals([(name,)]), epsilon=1e6, simulate=0)
    return np.round(counts.values)


@pytest.mark.parametrize("split", ["optimal", "even"])
def test_the_predicted_noise_is_that_of_the_gate(split) -> None:
    """By dense algebra over what the Gate would measure."""
    for amounts, relation in (({"rho": 0.05}, "add-remove"), ({"epsilon": 1.0}, "replace-one")):
        plan = BestBuy(TRIPLES, neighbours=relation, split=split)
        direct = plan.considered(DOMAIN)[0]
        records = plan.needed_records(direct, budget(**amounts))
        gate = PricingGate(DOMAIN, budget(**amounts), neighbours=relation, rows_per_unit=1)
        (Marginals(direct.tables) if split == "even" else direct.plan).run(gate)
        parts = [(each.bound.query, each.noise.variance) for price in gate.prices for each in price.queries]
        told = sum(dense(query).T @ dense(query) / variance for query, variance in parts)
        covariance = np.linalg.pinv(told, rcond=1e-10)
        errors = []
        for names in direct.tables:
            rows = dense(Query.marginal(*names))
            own = [variance for query, variance in parts if query == Query.marginal(*names)]
            deviations = np.sqrt(own[0] if split == "even" else np.diag(rows @ covariance @ rows.T))
            errors.append(0.75 * float(np.sum(np.broadcast_to(deviations, rows.shape[0]))) / (2 * records))
        assert np.mean(errors) == pytest.approx(plan.noise_allowed, rel=0.02 if relation == "add-remove" else 0.3)


def dense(query: Query) -> np.ndarray:
    """The query's matrix over all cells of the domain."""
    maps = dict(zip(query.attributes, query.bind(DOMAIN).maps, strict=True))
    found = np.ones((1, 1))
    for name in DOMAIN.names:
        found = np.kron(found, maps[name].dense() if name in maps else np.ones((1, DOMAIN[name].size)))
    return found


def test_tables_measured_themselves_share_the_budget_for_the_least_error() -> None:
    """Under either unit, and the even split is there by name; recorded requests of earlier versions are that one."""
    for amounts in ({"rho": 0.05}, {"epsilon": 1.0}):
        triples, pairs = BestBuy(TRIPLES).considered(DOMAIN)
        for direct in (triples, pairs):
            assert direct.spread(budget(**amounts)) <= direct.spread(budget(**amounts), "even") * (1 + 1e-9)
    earlier = BestBuy(TRIPLES).earlier
    assert earlier is not None
    assert "split" not in earlier.to_json()
    assert earlier.to_json()["most_noise"] == 0.06
    assert not earlier.forest().wary
    assert earlier.earlier is None
    plan, _ = chosen_plan(DOMAIN, Workload.of(["a by b"]), RHO)
    later = {key: value for key, value in plan.to_json().items() if key not in ("split", "one_way_share")}
    assert plan.earlier.to_json() == later | {"most_noise": 0.06}


def test_weights_of_the_workload_count() -> None:
    heavy = Workload.of([Query.marginal("a", "b"), Query.marginal("c", "d")], weights=[50.0, 1.0])
    light = Workload.of([Query.marginal("a", "b"), Query.marginal("c", "d")])
    one, two = (BestBuy(each).considered(DOMAIN)[0].plan.variances(DOMAIN, RHO) for each in (heavy, light))
    assert one["a", "b"] < two["a", "b"]
    assert one["c", "d"] > two["c", "d"]


def test_the_noisy_number_of_records_decides_by_the_rule_of_earlier_versions() -> None:
    plan = BestBuy(TRIPLES, split="even")
    triples, pairs = plan.considered(DOMAIN)
    many, some = (plan.needed_records(each, RHO) for each in (triples, pairs))
    assert some < many
    ways = [
        {len(each.query.attributes) for each in measure(source_of(round(rows)), plan, rho=0.05, simulate=0)}
        for rows in (1.1 * many, (many + some) / 2, 0.01 * some)
    ]
    assert max(ways[0]) == 3
    assert max(ways[1]) == 2
    assert 1 in ways[2]


@pytest.fixture
def taken(monkeypatch) -> list[tuple[str, float]]:
    """The names of the plans that were taken at last, with their budgets."""
    found = []
    for place in ("aim.Aim", "forest.Forest", "residual_planner.ResidualPlanner"):
        name = place.rpartition(".")[2]

        def run(_: object, gate, name: str = name) -> None:
            found.append((name, float(gate.budget.amount)))

        monkeypatch.setattr(f"consilience.plans.{place}.run", run)
    return found


def test_records_decide_and_one_way_marginals_are_bought_only_where_records_do_not(taken) -> None:
    plan = BestBuy(TRIPLES)
    triples, pairs = plan.considered(DOMAIN)
    enough = plan.needed_records(triples, RHO)
    between = 1.2 * plan.needed_records(pairs, RHO)
    assert between < 0.7 * enough
    for rows in (1.2 * enough, between, 0.02 * enough):
        measure(source_of(max(1, round(rows))), plan, rho=0.05, simulate=0)
    left = 0.99 * 0.97 * 0.05
    assert dict(taken) == pytest.approx({"ResidualPlanner": 0.99 * 0.05, "Aim": left, "Forest": left})


def test_tables_of_which_most_cells_are_empty_are_measured_with_fewer_records(taken) -> None:
    """Of 900 cells four hold nearly everything; noise in the others is known to be noise."""
    domain = Domain.from_sizes({"a": 30, "b": 30}, name="empty")
    plan, rows = BestBuy(Workload.of(["a by b"])), 40_000
    whole = plan.considered(domain)[0]
    amount = 0.05 * (0.3 * plan.needed_records(whole, RHO) / rows) ** 2 * 4
    few = np.random.default_rng(0).integers(0, 2, (rows, 2))
    even = np.random.default_rng(0).integers(0, 30, (rows, 2))
    assert rows < plan.needed_records(whole, budget(rho=amount))
    for codes, expected in ((few, "ResidualPlanner"), (even, "Forest")):
        source = open_table(pa.table({name: codes[:, i].astype(str) for i, name in enumerate("ab")}), domain)
        taken.clear()
        measure(source, plan, rho=amount, simulate=1)
        assert taken[-1][0] == expected


def test_what_a_fit_leaves_is_the_smaller_of_noise_and_what_is_there() -> None:
    """By a loop over cells."""
    plan = BestBuy(TRIPLES)
    counts = {"a": [50.0, 30.0, 20.0, 0.0], "b": [90.0, 10.0, 0.0], "c": [20.0] * 5, "d": [99.0, 1.0]}
    known = SimpleNamespace(records=100.0, counts={name: np.array(each) for name, each in counts.items()})
    for direct in plan.considered(DOMAIN):
        left = []
        for names in direct.tables:
            noise = 0.75 * 1.5 * math.sqrt(direct.plan.variances(DOMAIN, RHO)[names])
            cells = itertools.product(*(counts[name] for name in names))
            left.append(sum(min(noise, math.prod(cell) / 100.0 ** (len(names) - 1)) for cell in cells) / 200.0)
        assert direct.left(RHO, known, 1.5) == pytest.approx(np.mean(left))


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
    assert "3 % of the budget measures one-way marginals" in notes
    assert "rounds select tables" in notes


def test_nothing_asked_is_refused() -> None:
    with pytest.raises(DeclarationError, match="empty"):
        chosen_plan(DOMAIN, Workload.of([]), RHO)
    with pytest.raises(DeclarationError, match="nothing to tell apart"):
        chosen_plan(DOMAIN, Workload.of([Query(())]), RHO)
    for wrong in (
        {"most_noise": 0.0},
        {"most_pair_noise": float("inf")},
        {"ways": 0},
        {"total_share": 0.0},
        {"split": "odd"},
    ):
        with pytest.raises(DeclarationError):
            BestBuy(TRIPLES, **wrong)


def test_attributes_that_the_workload_does_not_name_are_measured_with_a_small_share() -> None:
    pairs = Workload.of(["a by b"])
    plan, reasons = chosen_plan(DOMAIN, pairs, RHO)
    assert plan.to_json()["plan"] == "best-buy"
    assert plan.to_json()["unnamed"] == {"attributes": ["c", "d"], "share": 0.05}
    assert "does not name c and d: 5 % of the budget" in reasons[-1]
    dry = price(DOMAIN, plan, rho=0.05)
    first = dry.prices[0]
    assert [each.asks for each in first.parts] == ["c", "d"]
    assert first.budget.amount == RHO.scaled(0.05).amount
    assert sum(each.budget.amount for each in dry.prices) <= RHO.amount
    assert any("table of c (5 values) will be off by about" in note for note in dry.notes)
    measured = measure(source_of(3000), plan, rho=0.05, simulate=1)
    assert {name for each in measured for name in each.query.attributes} == {"a", "b", "c", "d"}


def test_the_share_can_be_another_or_nothing() -> None:
    pairs = Workload.of(["a by b"])
    assert chosen_plan(DOMAIN, pairs, RHO, unnamed_share=0.2)[0].to_json()["unnamed"]["share"] == 0.2
    plan, reasons = chosen_plan(DOMAIN, pairs, RHO, unnamed_share=0)
    assert isinstance(plan, BestBuy)
    assert "nothing is measured of c and d" in reasons[-1]
    with pytest.raises(DeclarationError, match="between 0 and 1"):
        chosen_plan(DOMAIN, pairs, RHO, unnamed_share=1.5)


def test_a_wide_attribute_takes_nothing_from_others_and_is_called_noise_where_it_is() -> None:
    wide = Domain.from_sizes({"a": 4, "b": 3, "c": 5, "wide": 30_000}, name="wide")
    plan, _ = chosen_plan(replace(wide, public=PublicFacts(total=1000)), Workload.of(["a by b"]), budget(epsilon=1))
    dry = price(replace(wide, public=PublicFacts(total=1000)), plan, epsilon=1)
    narrow, broad = dry.prices[0].parts
    assert narrow.noise == broad.noise
    assert any("wide (30,000 values)" in note and "it is noise and tells nothing" in note for note in dry.notes)
    assert any("c (5 values)" in note and note.endswith("of 1,000") for note in dry.notes)


def test_an_attribute_that_is_not_to_be_released_is_never_measured() -> None:
    kept = replace(DOMAIN, attributes=tuple(replace(each, release=each.name != "d") for each in DOMAIN.attributes))
    assert kept.counted_names == ("a", "b", "c")
    plan, _ = chosen_plan(kept, Workload.of(["a by b"]), RHO)
    assert plan.to_json()["unnamed"]["attributes"] == ["c"]
    both = r"names 'd', and domain 'four' says release = false for it"
    with pytest.raises(DeclarationError, match=both):
        chosen_plan(kept, Workload.of(["a by d"]), RHO)
    for named in ("marginals a,d", "histogram d", "mwem a,b; c,d", "dawa d"):
        with pytest.raises(DeclarationError, match=both):
            price(kept, plan_from_text(named), rho=0.05)
    measured = measure(source_of(3000, kept), Direct(ways=2), rho=0.05, simulate=1)
    assert {name for each in measured for name in each.query.attributes} == {"a", "b", "c"}
    made = synthesize(estimate(measured), rows=20, seed=1)
    assert made.column_names == ["a", "b", "c"]
    with pytest.raises(DeclarationError, match=both):
        estimate(measured).answer("by d")


def test_weighted_records_are_measured_without_private_choices_at_any_size() -> None:
    """The noise that decides is in weighted units, and every branch runs on a weighted table."""
    weighted = replace(DOMAIN, weight=Summand("w", (0.0, 8.0)))
    workload = Workload.marginals(DOMAIN, ways=2)
    plan, reasons = chosen_plan(weighted, workload, RHO)
    assert "by the sum of weights" in reasons[0]
    assert isinstance(plan, BestBuy)
    direct = plan.considered(weighted)[0]
    needed = plan.needed_records(direct, RHO)
    assert needed == pytest.approx(8 * plan.needed_records(replace(direct, domain=DOMAIN), RHO))
    for records, queries in ((needed * 2, 2), (needed / 40, 1)):
        rows, rng = round(records / 4), np.random.default_rng(0)
        codes = rng.integers(0, weighted.shape, (rows, len(weighted.shape)))
        columns = {name: codes[:, place].astype(str) for place, name in enumerate(weighted.names)}
        source = open_table(pa.table({**columns, "w": np.full(rows, 4.0)}), weighted)
        found = measure(source, plan, rho=0.05, simulate=1)
        assert max(len(each.query.attributes) for each in found) == queries
        assert estimate(found).total == pytest.approx(4 * rows, abs=100)


@pytest.mark.parametrize("plan", [Aim(), Forest(), Mst(), Dawa("a"), KMeans(2)])
def test_plans_that_choose_among_records_refuse_weights_before_anything_is_spent(plan) -> None:
    attributes = (Attribute.numeric("a", list(range(9))), *DOMAIN.attributes[1:])
    if isinstance(plan, KMeans):
        attributes = (Attribute.continuous("x", (0, 1)),)
    weighted = Domain("d", attributes, weight=Summand("w", (0.0, 8.0)))
    with pytest.raises(DeclarationError, match="has no weighted form here, and domain 'd' weights its records by 'w'"):
        measure(weighted, plan, epsilon=1, dry_run=True)

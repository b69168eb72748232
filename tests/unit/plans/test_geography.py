"""Geography: what it measures costs the budget along every path, and has the variances that it tells beforehand."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain, Query, Workload, factors
from consilience.errors import ConsilienceError
from consilience.estimators.geographic import Geographic
from consilience.measuring import measure, price
from consilience.plans import Geography, plan_from_text
from consilience.privacy.budgets import budget
from consilience.source import open_table

PARENTS = {f"c{s}{c}": f"s{s}" for s in range(3) for c in range(2)}
PARENTS |= {
    f"b{s}{c}{b}": f"c{s}{c}" for s, c, b in itertools.product(range(3), range(2), range(2)) if (s, c) != (2, 1)
}
PLACE = Attribute.hierarchy("place", PARENTS, levels=["State", "County", "Block"], geography=True)
DOMAIN = Domain("places", (Attribute.categorical("sex", ["F", "M"]), PLACE, Attribute.numeric("age", [0, 18, 65, 99])))
TABLES = Workload.of(["by sex, age", "by age", "total"])


ADULT = Query.of({"age": factors.Buckets.of({"child": ["0..17"], "adult": ["18..64", "65..98"]})})
GROUPED = Workload.of(["by sex, age", "by age", ADULT.by("sex"), Query.of({"age": factors.Range("65", None)}), "total"])


def columns(plan: Geography, relation: str, **amount: float) -> tuple[np.ndarray, list[int]]:
    """Each cell's answers in units of the noise, and how many answers each query has."""
    found = price(DOMAIN, plan, neighbours=relation, **amount)  # type: ignore[arg-type]
    blocks = []
    for each in found.example():
        rows = each.query.bind(DOMAIN).written_out()
        blocks.append(rows / each.noise.scale_parameter)
    return np.concatenate(blocks), [len(block) for block in blocks]


@pytest.mark.parametrize(
    "plan", [Geography(TABLES), Geography(TABLES, levels={"State": 1, "Block": 3}), Geography(GROUPED)]
)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_a_record_costs_the_budget_and_a_move_at_most_twice_it(plan: Geography, unit: str) -> None:
    norm, amount = (1, 0.7) if unit == "epsilon" else (2, 0.7)
    found, _ = columns(plan, "add-remove", **{unit: amount})
    costs = (np.abs(found) ** norm).sum(axis=0) / (1 if unit == "epsilon" else 2)
    assert costs == pytest.approx(np.full(DOMAIN.cells, amount), rel=1e-9)
    assert costs.max() <= amount
    moves = max(
        (np.abs(found[:, x] - found[:, y]) ** norm).sum() / (1 if unit == "epsilon" else 2)
        for x, y in itertools.combinations(range(DOMAIN.cells), 2)
    )
    assert moves == pytest.approx(2 * amount, rel=1e-9)
    assert moves <= 2 * amount


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_a_move_costs_the_budget_where_it_is_priced(unit: str) -> None:
    norm, amount = (1, 0.7) if unit == "epsilon" else (2, 0.7)
    found, _ = columns(Geography(TABLES), "replace-one", **{unit: amount})
    moves = max(
        (np.abs(found[:, x] - found[:, y]) ** norm).sum() / (1 if unit == "epsilon" else 2)
        for x, y in itertools.combinations(range(DOMAIN.cells), 2)
    )
    assert moves == pytest.approx(amount, rel=1e-9)


def test_more_rows_of_a_unit_take_so_much_more_noise() -> None:
    one, three = (price(DOMAIN, Geography(TABLES), rho=0.5, rows_per_unit=m).example() for m in (1, 3))
    for a, b in zip(one, three, strict=True):
        assert b.noise.variance == pytest.approx(9 * a.noise.variance, rel=1e-6)


@pytest.mark.parametrize("tables", [TABLES, GROUPED])
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_the_variances_are_those_of_dense_least_squares(unit: str, tables: Workload) -> None:
    plan = Geography(tables, levels={"State": 1, "County": 0.5, "Block": 2})
    found, sizes = columns(plan, "add-remove", **{unit: 0.3})
    deviations = np.repeat(
        [
            math.sqrt(each.noise.variance) / each.noise.scale_parameter
            for each in price(DOMAIN, plan, **{unit: 0.3}).example()
        ],
        sizes,
    )
    rows = found / deviations[:, None]
    covariance = np.linalg.pinv(rows.T @ rows)
    expected = plan.variances(DOMAIN, budget(**{unit: 0.3}))
    asked_for = itertools.product(PLACE.levels, tables.over(DOMAIN).queries)
    for (level, table), variance in zip(asked_for, expected.values(), strict=True):
        query = Query((("place", factors.Level(level)), *table.factors))
        asked = query.bind(DOMAIN).written_out()
        each = np.einsum("ij,jk,ik->i", asked, covariance, asked)
        assert variance == pytest.approx(each.mean(), rel=0.01)  # discrete noise is a little off its parameter


def test_the_best_shares_beat_others() -> None:
    best = Geography(TABLES)

    def cost(plan: Geography) -> float:
        return sum(plan.variances(DOMAIN, budget(rho=0.5)).values())

    rng = np.random.default_rng(1)
    for _ in range(20):
        shares = rng.dirichlet(np.ones(3))
        other = Geography(TABLES, levels=dict(zip(PLACE.levels, shares.tolist(), strict=True)))
        assert cost(best) <= cost(other) * (1 + 1e-3)


def test_wanted_errors_move_the_budget_to_their_level() -> None:
    plain, wanted = Geography(TABLES), Geography(TABLES, errors={"County": 0.05})
    before, after = (plan.variances(DOMAIN, budget(rho=0.5)) for plan in (plain, wanted))
    assert after["County", ("age",)] < before["County", ("age",)]
    assert after["Block", ("age",)] > before["Block", ("age",)]


def test_the_dry_run_tells_shares_and_errors_of_each_level() -> None:
    notes = price(DOMAIN, Geography(TABLES, errors={"County": 9}), rho=0.5).notes
    assert notes[0].startswith("shares of the budget: State")
    assert any("County (6 places), by sex, age: standard deviation" in note and "wanted 9" in note for note in notes)
    assert len(notes) == 1 + 3 * 3


def test_texts_name_plans() -> None:
    plan = plan_from_text("geography sex,age; total at State 1, Block 2.5")
    assert plan == Geography(Workload.of(["by sex, age", "total"]), levels={"State": 1, "Block": 2.5})
    assert plan_from_text("geography age").to_json() == Geography(Workload.of(["by age"])).to_json()
    assert plan_from_text("geography", TABLES) == Geography(TABLES)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Geography(Workload.of([])), "no marginal"),
        (lambda: Geography(Workload.of([Query.equal("sex", "age")])), "is no marginal"),
        (lambda: price(DOMAIN, Geography(Workload.of(["by sex", "age=7 by sex"])), rho=1), "7"),
        (lambda: Geography(TABLES, levels={"State": 0}), "above 0"),
        (lambda: Geography(TABLES, levels={}), "names no level"),
        (lambda: Geography(TABLES, levels={"State": 1}, errors={"State": 1}), "give one of them"),
        (lambda: price(DOMAIN, Geography(TABLES, levels={"Tract": 1}), rho=1), "Tract"),
        (lambda: price(DOMAIN, Geography(Workload.of(["by place"])), rho=1), "take 'place' out"),
        (lambda: price(DOMAIN, Geography(TABLES, attribute="age"), rho=1), "is no hierarchy"),
        (lambda: price(Domain.from_sizes({"a": 2}), Geography(Workload.of(["by a"])), rho=1), "named levels"),
        (lambda: plan_from_text("geography sex at State"), "State 1, County 3"),
        (lambda: plan_from_text("geography at State 1"), "names no table"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_next_step(make, words: str) -> None:
    with pytest.raises(ConsilienceError, match=words):
        make()


def test_from_records_to_tables_of_every_place() -> None:
    rng = np.random.default_rng(2)
    records = {
        "sex": rng.choice(["F", "M"], 3000),
        "place": rng.choice(list(PLACE.labels), 3000),
        "age": rng.integers(0, 99, 3000),
    }
    table = open_table(pa.table({name: pa.array(column) for name, column in records.items()}), DOMAIN)
    plan = Geography(TABLES)
    measured = measure(table, plan, rho=2, simulate=5)
    fitted = plan.estimator().fit(measured)
    assert isinstance(plan.estimator(), Geographic)
    exact = [sum(PLACE.path(place)[-1] == state for place in records["place"]) for state in PLACE.groups("State")]
    assert fitted.answer("by State") == pytest.approx(np.array(exact), abs=15)

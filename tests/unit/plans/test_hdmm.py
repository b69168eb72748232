"""HDMM: what it measures costs the budget, and answers the workload with the error it promises."""

import itertools
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.workloads import Workload
from consilience.errors import ConsilienceError, DeclarationError, TooLarge
from consilience.estimators.graphical import Graphical
from consilience.estimators.matrix import Matrix
from consilience.estimators.published.local_squares import LocalSquares
from consilience.measuring import PricingGate, measure, price
from consilience.plans.matrix_mechanism import Hdmm, on_lattice, product_workload
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

DOMAIN = Domain(
    "mixed", (Attribute.numeric("n", edges=list(range(9))), *Domain.from_sizes({"b": 3, "c": 2}).attributes)
)
CODES = np.random.default_rng(0).integers(0, [8, 3, 2], (80, 3))
SOURCE = open_table(
    pa.table({name: [int(x) if name == "n" else str(x) for x in CODES[:, i]] for i, name in enumerate("nbc")}), DOMAIN
)
WORKLOAD = Workload.of(
    [
        Query.of({"n": factors.Prefix(), "b": factors.Identity()}),
        Query.of({"c": factors.Identity(), "n": factors.AllRanges()}),
        Query.of({"b": factors.Identity(), "n": factors.Total()}),
    ],
    weights=[1.0, 0.5, 2.0],
)
PLANS = {name: Hdmm(WORKLOAD, operators=(name,)) for name in ("product", "union", "marginals")} | {
    "all": Hdmm(WORKLOAD)
}


def dense(query: Query, domain: Domain = DOMAIN) -> np.ndarray:
    """The query's matrix over all cells of the domain, rows in the domain's order of attributes."""
    maps = dict(zip(query.attributes, query.bind(domain).maps, strict=True))
    found = np.ones((1, 1))
    for name in domain.names:
        found = np.kron(found, maps[name].dense() if name in maps else np.ones((1, domain[name].size)))
    return found


def priced(plan: Hdmm, relation: str, amounts: dict[str, float]) -> list[tuple[np.ndarray, float, float]]:
    gate = PricingGate(DOMAIN, budget(**amounts), neighbours=relation, rows_per_unit=1)  # type: ignore[arg-type]
    plan.run(gate)
    ((queries,),) = [[price.queries for price in gate.prices]]
    return [(dense(each.bound.query), each.noise.scale_parameter, each.noise.variance) for each in queries]


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("amounts", [{"epsilon": 0.7}, {"rho": 0.02}])
def test_no_neighbour_costs_more_than_the_budget(name, relation, amounts) -> None:
    measured = priced(PLANS[name], relation, amounts)
    columns = np.concatenate([matrix / scale for matrix, scale, _ in measured]).T
    moves = list(columns)
    if relation == "replace-one":
        moves += [one - two for one, two in itertools.combinations(columns, 2)]
    losses = [np.abs(move).sum() if "epsilon" in amounts else (move**2).sum() / 2 for move in moves]
    amount = next(iter(amounts.values()))
    assert amount * (1 - 1e-9) <= max(losses) <= amount


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("amounts", [{"epsilon": 0.1}, {"rho": 0.002}])
def test_dense_least_squares_on_the_rounded_queries_has_the_promised_error(name, amounts) -> None:
    measured = priced(PLANS[name], "add-remove", amounts)
    told = sum(matrix.T @ matrix / variance for matrix, _, variance in measured)
    covariance = np.linalg.pinv(told, rcond=1e-10)
    error = sum(weight * np.trace(dense(query) @ covariance @ dense(query).T) for query, weight in WORKLOAD)
    promised = PLANS[name].expected_error(DOMAIN, budget(**amounts))
    if name in ("product", "marginals"):
        assert error == pytest.approx(promised, rel=2e-3)
    else:
        assert error <= promised * 1.002


@pytest.mark.slow
@pytest.mark.parametrize("name", ["product", "marginals"])
def test_its_estimator_answers_with_that_error(name) -> None:
    plan, runs = PLANS[name], 40
    table = np.histogramdd(CODES, bins=[range(9), range(4), range(3)])[0]
    errors = []
    for seed in range(runs):
        fitted = plan.estimator().fit(measure(SOURCE, plan, epsilon=0.5, simulate=seed))
        missed = (
            weight * ((fitted.answer(query) - query.bind(DOMAIN).answer_full(table)) ** 2).sum()
            for query, weight in WORKLOAD
        )
        errors.append(sum(missed))
    promised = plan.expected_error(DOMAIN, budget(epsilon=0.5))
    assert np.mean(errors) == pytest.approx(promised, rel=max(0.15, 4 * np.std(errors) / np.mean(errors) / runs**0.5))


def test_the_best_kind_is_chosen_and_said() -> None:
    errors = {name: plan.expected_error(DOMAIN, budget(epsilon=1)) for name, plan in PLANS.items()}
    assert errors["all"] == pytest.approx(min(errors.values()))
    notes = price(DOMAIN, PLANS["all"], epsilon=1).notes
    assert "measured together" in notes[0]
    assert "root mean squared error" in notes[1]
    assert "times that" in notes[2]


def test_one_attribute_is_the_matrix_mechanism() -> None:
    plan = Hdmm(Workload.of([Query.of({"n": factors.Prefix()})]), operators=("product",))
    queries, shares = plan.queries(DOMAIN)
    assert [query.attributes for query in queries] == [("n",)]
    assert shares == (1.0,)


@pytest.mark.parametrize("real", [1, 2, 3])
def test_rounded_columns_keep_their_norm_and_the_gate_leaves_them_as_they_are(real: int) -> None:
    rng = np.random.default_rng(real)
    matrix = np.concatenate([np.eye(5), rng.random((2, 5))])
    rounded = on_lattice(matrix / matrix.sum(axis=0), real, 1)
    assert np.array_equal(rounded.sum(axis=0), np.ones(5))
    assert np.allclose(rounded, matrix / matrix.sum(axis=0), atol=0.01)
    names = [f"a{i}" for i in range(real)]
    domain = Domain.from_sizes(dict.fromkeys(names, 5), name="five")
    query = Query.of({name: factors.Matrix.of(rounded) for name in names})
    assert query.bind(domain).rounded().query == query


def test_workloads_become_gram_matrices_and_sums_are_left_out() -> None:
    found = product_workload(WORKLOAD, DOMAIN)
    assert [term.scope for term in found.terms] == [(0, 1), (0, 2), (1,)]
    assert [term.weight for term in found.terms] == [1.0, 0.5, 2.0]
    prefix = np.tril(np.ones((8, 8)))
    assert np.allclose(found.terms[0].grams[0], prefix.T @ prefix)


def large() -> tuple[Domain, Workload]:
    """Triples over a domain that fits in no memory, with prefixes of its numeric attributes."""
    attributes = [Attribute.numeric(f"n{i}", edges=list(range(21))) for i in range(4)]
    attributes += [Attribute.categorical(f"c{i}", ["x", "y", "z"]) for i in range(16)]
    domain = Domain("large", tuple(attributes))
    triples = [("n0", "c0", "c1"), ("n1", "n2", "c2"), ("n0", "n3", "c3"), ("c4", "c5", "n1")]
    queries = [
        Query(tuple((name, factors.Prefix() if name[0] == "n" else factors.Identity()) for name in names))
        for names in triples
    ]
    return domain, Workload.of(queries)


@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"rho": 0.1}])
def test_large_domains_are_measured_by_small_tables(amounts) -> None:
    domain, workload = large()
    plan = Hdmm(workload, operators=("union",))
    rng = np.random.default_rng(0)
    rows = {each.name: rng.integers(0, each.size, 400) for each in domain.attributes}
    columns = {
        name: codes.tolist() if name[0] == "n" else [domain[name].labels[code] for code in codes]
        for name, codes in rows.items()
    }
    measured = measure(open_table(pa.table(columns), domain), plan, simulate=1, **amounts)
    assert isinstance(plan.estimator(domain), LocalSquares)
    assert isinstance(plan.estimator(DOMAIN), Matrix)
    errors = {}
    for method in (plan.estimator(domain), Graphical(loss="l2")):
        fitted = method.fit(measured)
        missed = 0.0
        for query in workload.queries:
            exact = np.zeros(domain.sizes(query.attributes))
            np.add.at(exact, tuple(rows[name] for name in query.attributes), 1)
            missed += np.abs(fitted.answer(query) - query.bind(domain).answer(exact)).sum()
        errors[method.name] = missed
    assert errors["graphical"] < errors["local-squares"]


def test_the_ledger_holds_what_was_spent_and_replays_it(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="mixed", total=budget(epsilon=2))
    first = measure(SOURCE, PLANS["all"], ledger=ledger, epsilon=0.5)
    again = measure(SOURCE, PLANS["all"], ledger=ledger, epsilon=0.5)
    assert str(ledger.spent) == "0.5"
    assert all(np.array_equal(one.values, two.values) for one, two in zip(first, again, strict=True))
    rows = np.concatenate([dense(each.query) / each.noise.scale_parameter for each in first])
    assert float(np.abs(rows).sum(axis=0).max()) <= 0.5
    first.save(tmp_path / "m.parquet")
    assert [each.query for each in type(first).load(tmp_path / "m.parquet")] == [each.query for each in first]


def test_what_cannot_be_planned_is_refused(tmp_path: Path) -> None:
    for make in (
        lambda: Hdmm(Workload.of([])),
        lambda: Hdmm(WORKLOAD, operators=()),
        lambda: Hdmm(WORKLOAD, operators=("best",)),  # type: ignore[arg-type]
        lambda: Hdmm(WORKLOAD, restarts=0),
        lambda: price(DOMAIN, Hdmm(Workload.of(["z"])), epsilon=1),
    ):
        with pytest.raises(ConsilienceError):
            make()
    ledger = Ledger.create(tmp_path / "l", dataset="mixed", total=budget(epsilon=2))
    with pytest.raises(TooLarge, match="most_cells"):
        measure(SOURCE, Hdmm(WORKLOAD, most_cells=5), ledger=ledger, epsilon=1)
    assert ledger.spent == 0
    wide = Domain.from_sizes({"a": 5000}, name="wide")
    with pytest.raises(TooLarge, match="coarser"):
        price(wide, Hdmm(Workload.of([Query.of({"a": factors.Prefix()})])), epsilon=1)
    with pytest.raises(DeclarationError):
        price(Domain("x", (Attribute.continuous("x", (0, 1)),)), Hdmm(Workload.of(["x"])), epsilon=1)


def test_plans_are_told_apart_and_strategies_depend_on_declarations_alone() -> None:
    assert len({str(plan.to_json()) for plan in PLANS.values()}) == len(PLANS)
    assert PLANS["all"].strategy(DOMAIN) is Hdmm(WORKLOAD).strategy(DOMAIN)
    assert math.isfinite(PLANS["all"].strategy(DOMAIN, "rho").error)

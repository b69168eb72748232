"""Tables behind measured rows: against linear programmes, against written-out matrices, and against themselves."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog, nnls

from consilience.domain import Domain, Query, factors
from consilience.estimators.measured_table import MeasuredOperator
from consilience.solvers.fit import Fit, Infeasible, Status
from consilience.solvers.tables.measured_fit import Facts, fit_measured_table
from consilience.solvers.tables.row_costs import RowCosts, RowProducts, Rows, are_affordable
from consilience.solvers.tables.signed_fit import fit_signed_table

DOMAIN = Domain.from_sizes({"a": 3, "b": 4, "c": 2})
QUERIES = [
    Query.marginal("a", "b"),
    Query.of({"c": factors.Identity(), "b": factors.Prefix()}),
    Query.of({"b": factors.Haar()}),
    Query.of({"a": factors.AllRanges(), "c": factors.Total()}),
]


def operator(queries: list[Query], weight: float = 1.0) -> MeasuredOperator:
    bound = [query.bind(DOMAIN) for query in queries]
    return MeasuredOperator(DOMAIN, bound, [np.full(each.size, weight) for each in bound])


def costs(observed: np.ndarray, slope: float, curvature: float, facts: int = 0) -> RowCosts:
    exact = np.arange(observed.size) < facts
    costed = np.where(exact, 0.0, 1.0)
    return RowCosts(observed, slope * costed, curvature * costed, exact, np.zeros(observed.size, dtype=np.bool_))


def noisy_values(which: MeasuredOperator, seed: int, noise: float = 2.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    answers = which.apply(rng.poisson(4, DOMAIN.shape).astype(float))
    return answers + rng.laplace(0, noise, answers.size)


def least_absolute_cost(matrix: np.ndarray, values: np.ndarray, facts: int = 0) -> float:
    """The optimum of Σ|Bx − c| over x ≥ 0 with the first rows exact, by HiGHS."""
    rows, cells = matrix.shape
    slack = np.eye(rows)[:, facts:]
    cost = np.concatenate([np.zeros(cells), np.ones(2 * (rows - facts))])
    return linprog(cost, A_eq=np.hstack([matrix, -slack, slack]), b_eq=values, bounds=(0, None)).fun


def as_facts(queries: list[Query], values: np.ndarray) -> Facts:
    which = operator(queries)
    return Facts(which, values, [query.describe() for query in queries], which.ends, which.products())


@pytest.mark.parametrize("seed", range(3))
def test_row_products_are_those_of_the_written_out_matrix(seed: int) -> None:
    which = operator(QUERIES, 0.5)
    table = np.random.default_rng(seed).random(DOMAIN.shape)
    matrix, products = which.matrix(), which.products()
    assert products is not None
    assert products.of(table) == pytest.approx((matrix * table.ravel()) @ matrix.T)


def test_row_products_are_not_made_of_too_many_rows() -> None:
    big = Domain.from_sizes({"a": 80, "b": 80})
    bound = Query.marginal("a", "b").bind(big)
    assert not are_affordable(big.shape, [Rows((0, 1), bound.maps, np.ones(bound.size))])
    assert isinstance(operator(QUERIES).products(), RowProducts)


def test_row_products_are_not_made_where_a_map_between_rows_would_not_fit_into_memory() -> None:
    long = Domain.from_sizes({"a": 2_000})
    bound = Query.of({"a": factors.Prefix()}).bind(long)
    assert not are_affordable(long.shape, [Rows((0,), bound.maps, np.ones(bound.size))])


def test_squares_of_many_rows_are_not_factored_although_they_could_be() -> None:
    domain = Domain.from_sizes({"a": 45, "b": 45})
    bound = Query.marginal("a", "b").bind(domain)
    which = MeasuredOperator(domain, [bound], [np.ones(bound.size)])
    assert which.has_products()
    assert not which.has_products(squares=True)
    assert operator(QUERIES).has_products(squares=True)


@pytest.mark.parametrize("total", [None, 90.0])
@pytest.mark.parametrize("seed", range(3))
def test_squares_agree_whether_systems_are_factored_or_roughly_iterated(seed: int, total: float | None) -> None:
    which = operator(QUERIES)
    values = noisy_values(which, seed)
    fits = [
        fit_measured_table(
            which, costs(values, 0.0, 1.0), products=products, cover=which.cover(), total=total, tolerance=1e-8
        )
        for products in (which.products(), None)
    ]
    assert {fit.status for fit in fits} == {Status.CONVERGED}
    assert fits[0].objective == pytest.approx(fits[1].objective, rel=3e-8, abs=3e-8 * values.size)
    assert which.apply(fits[0].counts) == pytest.approx(which.apply(fits[1].counts), abs=2e-3)


def test_a_limit_on_the_way_to_absolute_values_is_reported_in_their_own_cost() -> None:
    which = operator(QUERIES)
    values = noisy_values(which, 3)
    fit = fit_measured_table(which, costs(values, 1.0, 0.0), cover=which.cover(), max_steps=1)
    assert fit.status is Status.STEP_LIMIT
    assert fit.objective == pytest.approx(float(np.abs(which.apply(fit.counts) - values).sum()))
    assert fit.gap == pytest.approx(fit.objective)


@pytest.mark.parametrize(("factored", "tolerance"), [(True, 1e-5), (False, 1e-4)], ids=["factored", "iterated"])
@pytest.mark.parametrize("seed", range(4))
def test_absolute_values_reach_the_linear_programmes_optimum(seed: int, factored: bool, tolerance: float) -> None:
    which = operator(QUERIES)
    values = noisy_values(which, seed)
    fit = fit_measured_table(
        which,
        costs(values, 1.0, 0.0),
        products=which.products() if factored else None,
        cover=which.cover(),
        tolerance=tolerance,
    )
    best = least_absolute_cost(which.matrix(), values)
    assert fit.status is Status.CONVERGED
    assert fit.counts.min() >= 0
    assert best - 1e-7 <= fit.objective <= best + 1.1 * tolerance * max(best, values.size)
    assert fit.objective - fit.gap <= best + 1e-7


@pytest.mark.parametrize("seed", range(4))
def test_exact_rows_are_met_and_the_rest_is_optimal(seed: int) -> None:
    truth = np.random.default_rng(seed).poisson(4, DOMAIN.shape).astype(float)
    known = [Query.marginal("b"), Query.of({"a": factors.Prefix(), "c": factors.Value("1")})]
    values = np.concatenate([operator(known).apply(truth), noisy_values(operator(QUERIES), seed)])
    which, facts = operator(known + QUERIES), operator(known).apply(truth)
    fit = fit_measured_table(
        which,
        costs(values, 1.0, 0.0, facts.size),
        products=which.products(),
        facts=as_facts(known, facts),
        total=truth.sum(),
    )
    best = least_absolute_cost(which.matrix(), values, facts.size)
    assert operator(known).apply(fit.counts) == pytest.approx(facts, rel=1e-9, abs=1e-8)
    assert fit.objective <= best + 1.1e-4 * max(best, values.size)
    assert fit.objective - fit.gap <= best + 1e-6


def test_squares_agree_with_a_dense_solver() -> None:
    which = operator(QUERIES)
    values = noisy_values(which, 5)
    fit = fit_measured_table(
        which, costs(values, 0.0, 1.0), products=which.products(), cover=which.cover(), tolerance=1e-8
    )
    best = nnls(which.matrix(), values)[1] ** 2 / 2
    assert fit.objective == pytest.approx(best, rel=1e-7)


def test_a_mixture_of_laws_lies_between_its_parts() -> None:
    """Half the rows squared, half absolute: no table does better than the bound, which is that of the mixture."""
    which = operator(QUERIES)
    values = noisy_values(which, 6)
    absolute = np.arange(values.size) % 2 == 0
    nobody = np.zeros(values.size, dtype=np.bool_)
    mixed = RowCosts(values, absolute.astype(float), (~absolute).astype(float), nobody, nobody)
    fit = fit_measured_table(which, mixed, products=which.products(), cover=which.cover(), tolerance=1e-6)
    assert fit.status is Status.CONVERGED
    rng = np.random.default_rng(0)
    for _ in range(200):
        other = np.maximum(fit.counts + rng.normal(0, 0.3, DOMAIN.shape), 0.0)
        assert mixed.value(which.apply(other) - values) >= fit.objective - fit.gap


def test_one_sided_rows_cost_nothing_below_their_bound() -> None:
    which = operator([Query.marginal("a"), Query.marginal("b")])
    values = np.array([10.0, 20.0, 30.0, 25.0, 25.0, 5.0, 100.0])
    one_sided = np.array([False] * 3 + [False, False, True, True])
    nobody = np.zeros(7, dtype=np.bool_)
    for slope, curvature in ((1.0, 0.0), (0.0, 1.0)):
        costed = RowCosts(values, np.full(7, slope), np.full(7, curvature), nobody, one_sided)
        fit = fit_measured_table(which, costed, products=which.products(), cover=which.cover(), tolerance=1e-6)
        fitted = which.apply(fit.counts)
        assert fit.objective == pytest.approx(0.0, abs=1e-4)
        assert fitted[5] <= 5 + 1e-2
        assert fitted[6] <= 10 + 1e-2


def test_contradictory_facts_are_refused_with_the_least_violation_and_their_names() -> None:
    known = [Query.marginal("a"), Query.marginal("b")]
    values = np.array([10.0, 10.0, 10.0, 8.0, 8.0, 8.0, 8.0])
    which = operator(known + QUERIES)
    observed = np.concatenate([values, noisy_values(operator(QUERIES), 0)])
    with pytest.raises(Infeasible, match="a; b") as caught:
        fit_measured_table(which, costs(observed, 1.0, 0.0, 7), facts=as_facts(known, values))
    # Both marginals miss Σ30 against Σ32 by shares that add up to 2: e on each of 3 cells and f on each of 4.
    assert 0.2 < caught.value.violation < 0.7
    assert caught.value.constraints == ("a", "b")


def test_limits_end_the_search_with_an_honest_gap() -> None:
    which = operator(QUERIES)
    values = noisy_values(which, 7)
    best = least_absolute_cost(which.matrix(), values)
    fit = fit_measured_table(which, costs(values, 1.0, 0.0), cover=which.cover(), max_steps=30)
    assert fit.status is Status.STEP_LIMIT
    assert fit.objective - fit.gap <= best + 1e-7 <= fit.objective + 2e-7
    late = fit_measured_table(which, costs(values, 1.0, 0.0), cover=which.cover(), time_limit=0.0)
    assert late.status is Status.TIME_LIMIT


def signed(known: list[Query], values: np.ndarray, facts: np.ndarray) -> Fit:
    which = operator(QUERIES)
    return fit_signed_table(which, values, facts=as_facts(known, facts) if known else None)


def test_signed_tables_are_the_shortest_of_least_squares() -> None:
    values = noisy_values(operator(QUERIES), 8)
    free = signed([], values, np.zeros(0))
    matrix = operator(QUERIES).matrix()
    assert free.counts.ravel() == pytest.approx(np.linalg.lstsq(matrix, values, rcond=None)[0], abs=1e-8)
    known = [Query.marginal("c"), Query.marginal("a")]
    exact = operator(known).matrix()
    facts = np.array([20.0, 22.0, 10.0, 20.0, 12.0])
    fit = signed(known, values, facts)
    # The same by the null space of the facts, written out.
    base = np.linalg.lstsq(exact, facts, rcond=None)[0]
    _, sizes, directions = np.linalg.svd(exact)
    null = directions[int(np.sum(sizes > 1e-9)) :].T
    best = base + null @ np.linalg.lstsq(matrix @ null, values - matrix @ base, rcond=None)[0]
    assert exact @ fit.counts.ravel() == pytest.approx(facts)
    assert fit.counts.ravel() == pytest.approx(best, abs=1e-7)
    assert fit.status is Status.CONVERGED
    with pytest.raises(Infeasible, match="c; a"):
        signed(known, values, facts + np.array([1.0, 0, 0, 0, 0]))


def test_gaps_are_never_below_the_true_distance() -> None:
    """Any duals prove a bound that the linear programme's optimum does not fall below."""
    rng = np.random.default_rng(9)
    which = operator(QUERIES)
    values = noisy_values(which, 9)
    best = least_absolute_cost(which.matrix(), values)
    costed = costs(values, 1.0, 0.0)
    for _ in range(50):
        duals = rng.uniform(-1.5, 1.5, values.size)
        image = which.adjoint(duals)
        table = rng.random(DOMAIN.shape) * 8
        if image.min() < 0:
            duals = duals + which.adjoint(duals).min() * -1.0 * (np.arange(values.size) < 12)
            image = which.adjoint(duals)
        residual = which.apply(table) - values
        gap = costed.gap(residual, duals, float(np.sum(image * table)))
        assert costed.value(residual) - gap <= best + 1e-7
        assert math.isfinite(gap)

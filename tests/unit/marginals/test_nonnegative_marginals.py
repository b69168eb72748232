"""Local non-negativity against a quadratic programme that SciPy solves over the full table."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from consilience.marginals.decomposition import Decomposition, residual_of
from consilience.marginals.level_fits import raked
from consilience.marginals.nonnegative_marginals import NonnegativeProblem, fit_nonnegative
from consilience.marginals.table_stacks import summed
from consilience.solvers.fit import Status

SIZES = (2, 3, 2)
CYCLE = [(0, 1), (1, 2), (0, 2)]


def problem_of(seed: int, *, noise: float, scopes=CYCLE, sizes=SIZES, empty=None) -> NonnegativeProblem:
    rng = np.random.default_rng(seed)
    decomposition = Decomposition(sizes, scopes)
    table = rng.poisson(2.0, sizes) + rng.normal(0, noise, sizes)
    stack = decomposition.residuals
    wished = np.empty(stack.size)
    for scope in stack.scopes:
        stack.table(wished, scope)[...] = residual_of(summed(table, tuple(range(len(sizes))), scope))
    stack.table(wished, ())[...] = 20.0
    weights = stack.spread({scope: float(rng.uniform(0.2, 5.0)) for scope in stack.scopes} | {(): np.inf})
    return NonnegativeProblem(decomposition, wished, weights, empty)


def quadratic_programme(problem: NonnegativeProblem) -> float:
    """The least objective over signed full tables with the wished total and non-negative marginals."""
    stack, tables = problem.decomposition.residuals, problem.decomposition.tables
    every = tuple(range(len(stack.sizes)))
    shape = stack.sizes

    def residuals(flat: np.ndarray) -> np.ndarray:
        found = np.empty(stack.size)
        for scope in stack.scopes:
            stack.table(found, scope)[...] = residual_of(summed(flat.reshape(shape), every, scope))
        return found

    matrix = np.stack([residuals(unit) for unit in np.eye(int(np.prod(shape)))], axis=1)
    marginals = np.stack([problem.decomposition.marginals(column) for column in matrix.T], axis=1)
    weights = np.where(np.isfinite(problem.weights), problem.weights, 0.0)

    def slope(change: np.ndarray) -> np.ndarray:
        return weights * change if problem.precision is None else problem.precision(change)

    conditions = [
        {"type": "ineq", "fun": lambda x: marginals @ x, "jac": lambda _: marginals},
        {"type": "eq", "fun": lambda x: x.sum() - problem.total, "jac": lambda x: np.ones_like(x)},
    ]
    if problem.empty is not None:
        held = marginals[problem.empty]
        conditions.append({"type": "eq", "fun": lambda x: held @ x, "jac": lambda _: held})
    found = minimize(
        lambda x: problem.objective(matrix @ x - problem.wished),
        np.full(int(np.prod(shape)), problem.total / np.prod(shape)),
        jac=lambda x: matrix.T @ slope(matrix @ x - problem.wished),
        constraints=conditions,
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert tables.size == len(marginals)
    return float(found.fun)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 3.0, 20.0]))
@settings(max_examples=25, deadline=None)
def test_the_optimum_is_that_of_a_quadratic_programme(seed: int, noise: float) -> None:
    problem = problem_of(seed, noise=noise)
    best = quadratic_programme(problem)
    fit = fit_nonnegative(problem, tolerance=1e-6)
    assert fit.status is Status.CONVERGED
    assert fit.violation == 0 or fit.violation < 1e-3
    assert fit.objective == pytest.approx(best, rel=1e-3, abs=1e-3)
    assert fit.objective - fit.gap <= best + 1e-6 * max(1.0, best)


def test_a_proven_result_is_not_negative_and_made_of_its_residuals() -> None:
    problem = problem_of(5, noise=3.0)
    fit = fit_nonnegative(problem, tolerance=1e-4)
    assert fit.violation == 0
    assert fit.marginals.min() >= 0
    assert np.allclose(problem.decomposition.marginals(fit.residuals), fit.marginals, atol=1e-9)


def test_wishes_without_negative_counts_are_granted() -> None:
    decomposition = Decomposition((2, 2), [(0, 1)])
    wished = np.empty(decomposition.residuals.size)
    table = np.array([[4.0, 3.0], [2.0, 1.0]])
    for scope in decomposition.residuals.scopes:
        decomposition.residuals.table(wished, scope)[...] = residual_of(summed(table, (0, 1), scope))
    weights = np.where(np.arange(wished.size) == 0, np.inf, 1.0)
    fit = fit_nonnegative(NonnegativeProblem(decomposition, wished, weights))
    assert (fit.steps, fit.gap) == (0, 0)
    assert np.allclose(fit.marginals.reshape(2, 2), table)


def test_empty_cells_are_kept_empty() -> None:
    decomposition = Decomposition(SIZES, CYCLE)
    empty = np.zeros(decomposition.tables.size, dtype=bool)
    place = decomposition.tables.places[(0, 2)]
    empty[decomposition.tables.groups[place[0]].start] = True
    problem = problem_of(8, noise=2.0, empty=empty)
    best = quadratic_programme(problem)
    fit = fit_nonnegative(problem, tolerance=1e-5)
    assert fit.status is Status.CONVERGED
    assert np.abs(fit.marginals[empty]).max() <= 1e-3 * problem.total
    assert fit.objective == pytest.approx(best, rel=1e-2, abs=1e-2)


def test_limits_are_told() -> None:
    problem = problem_of(3, noise=50.0)
    assert fit_nonnegative(problem, tolerance=1e-12, max_steps=10).status is Status.STEP_LIMIT
    assert fit_nonnegative(problem, tolerance=1e-12, time_limit=0.0).status is Status.TIME_LIMIT


def test_weights_of_very_different_sizes_converge() -> None:
    problem = problem_of(11, noise=10.0)
    stack = problem.decomposition.residuals
    weights = stack.spread({scope: 10.0 ** (3 * len(scope) - 4) for scope in stack.scopes} | {(): np.inf})
    fit = fit_nonnegative(NonnegativeProblem(problem.decomposition, problem.wished, weights), tolerance=1e-4)
    assert fit.status is Status.CONVERGED


@pytest.mark.parametrize("seed", range(4))
def test_noise_that_is_not_alike_in_all_directions_has_the_optimum_of_its_own_squares(seed: int) -> None:
    rng, problem = np.random.default_rng(seed), problem_of(seed, noise=6.0)
    decomposition = problem.decomposition
    answers = rng.normal(0, 1, (3 * decomposition.tables.size, decomposition.tables.size))
    free = np.isfinite(problem.weights)

    def precision(change: np.ndarray) -> np.ndarray:
        missed = answers @ decomposition.marginals(change)
        return np.where(free, decomposition.adjoint(answers.T @ missed), 0.0)

    whole = NonnegativeProblem(decomposition, problem.wished, problem.weights, precision=precision)
    fit, best = fit_nonnegative(whole, tolerance=1e-5), quadratic_programme(whole)
    assert fit.status is Status.CONVERGED
    assert fit.marginals.min() >= -1e-3 * whole.total
    assert fit.objective == pytest.approx(best, rel=1e-3)
    alike = fit_nonnegative(problem, tolerance=1e-5)
    assert whole.objective(alike.residuals - whole.wished) > 1.01 * best


def test_negative_counts_that_the_noise_does_not_explain_are_not_left() -> None:
    """One cell is a thousandth of a record below 0: nothing beside much noise, and a lot beside next to none."""
    problem = problem_of(2, noise=0.0)
    stack, tables = problem.decomposition.residuals, problem.decomposition.tables
    wished = problem.wished * 1.1115
    stack.table(wished, ())[...] = problem.total
    assert -2e-3 < problem.decomposition.marginals(wished).min() < -1e-3
    for scale in (1e-3, 1e6):
        weights = stack.spread(dict.fromkeys(stack.scopes, scale) | {(): np.inf})
        fit = fit_nonnegative(NonnegativeProblem(problem.decomposition, wished, weights), tolerance=1e-3)
        assert fit.status is Status.CONVERGED
        below = float(np.maximum(-fit.marginals, 0.0).max())
        assert scale * below**2 <= 1e-3 * tables.size


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_raking_removes_negative_counts_and_disagreement(seed: int) -> None:
    problem = problem_of(seed, noise=5.0)
    fit = fit_nonnegative(problem, tolerance=0.01)
    residuals = fit.residuals + 1e-3 * (problem.wished - fit.residuals)
    tables, violation = raked(problem.decomposition, residuals, lambda _: None)
    stack = problem.decomposition.tables
    assert tables.min() >= 0
    assert violation < 1e-6 * problem.total
    for one in CYCLE:
        for other in CYCLE:
            for shared in set(one) & set(other):
                left = summed(stack.table(tables, _stored(one)), _stored(one), (shared,))
                right = summed(stack.table(tables, _stored(other)), _stored(other), (shared,))
                assert np.allclose(left, right, atol=1e-6 * problem.total)


def _stored(scope: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(scope, key=lambda attribute: (SIZES[attribute], attribute)))

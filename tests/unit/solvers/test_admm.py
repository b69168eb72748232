"""ADMM against linear programs, a dense interior point, and the paper's algorithms written out step by step."""

import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from consilience.errors import ConsilienceError, DeclarationError, MeasurementError, TooLarge
from consilience.solvers.admm.fit import admm
from consilience.solvers.fit import Infeasible, Status
from consilience.solvers.projections import affine as graph
from consilience.solvers.projections.affine import Affine
from consilience.solvers.projections.cells import Box, Isotonic, NonNegative, Projection, Simplex, Zeros
from consilience.solvers.projections.sums import MarginalsEqual, TreeConsistency

LOSSES = ["l1", "l2", "elastic"]
SHARES = {"l1": (1.0, 0.0), "l2": (0.0, 1.0), "elastic": (0.9, 0.1)}


@dataclass
class Case:
    """A small problem, its constraints as sets and as (in)equalities: equations · x = values, bounds, rises ≥ 0."""

    name: str
    noisy: np.ndarray
    sets: list
    equations: np.ndarray
    values: np.ndarray
    nonnegative: bool = True
    rises: np.ndarray | None = None
    strategy: np.ndarray | None = None
    weights: np.ndarray | None = None


def tree_case(parent: list[int], seed: int, **options: object) -> Case:
    rng = np.random.default_rng(seed)
    matrix = np.array([np.eye(len(parent))[v] - (np.array(parent) == v) for v in range(len(parent)) if v in parent])
    noisy = rng.poisson(3, len(parent)) + rng.laplace(0, 6, len(parent))
    sets = [TreeConsistency(parent), NonNegative()]
    return Case(f"tree of {len(parent)}", noisy, sets, matrix, np.zeros(len(matrix)), **options)  # type: ignore[arg-type]


def table_case(shape: tuple[int, ...], ways: int, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    table = rng.poisson(np.exp(rng.normal(0, 1.3, shape))).astype(float)
    rows, values, known = [], [], {}
    for axes in itertools.combinations(range(len(shape)), ways):
        away = tuple(set(range(len(shape))) - set(axes))
        known[axes] = table.sum(away)
        rows.append(np.array([unit.reshape(shape).sum(away).ravel() for unit in np.eye(table.size)]).T)
        values.append(known[axes].ravel())
    noisy = table + rng.laplace(0, 3, shape)
    sets = [MarginalsEqual(shape, known), NonNegative()]
    return Case(f"table {shape} by {ways}", noisy, sets, np.vstack(rows), np.concatenate(values))


def order_case(size: int, seed: int, *, total: float | None = None) -> Case:
    rng = np.random.default_rng(seed)
    noisy = np.sort(rng.poisson(8, size)) + rng.laplace(0, 4, size)
    sets: list = [Isotonic(), NonNegative()]
    equations = np.zeros((0, size))
    if total is not None:
        equations = np.ones((1, size))
        sets.append(Affine(equations, [total]))
    values = np.full(len(equations), total if total is not None else 0.0)
    rises = np.diff(np.eye(size), axis=0)
    return Case(f"order with {len(sets)} sets", noisy, sets, equations, values, rises=rises)


def strategy_case(rows: int, cells: int, seed: int, *, nonnegative: bool = True, total: float | None = None) -> Case:
    rng = np.random.default_rng(seed)
    strategy = rng.choice([-1.0, 1.0], (rows, cells))
    noisy = strategy @ rng.poisson(2, cells) + rng.laplace(0, 6, rows)
    equations = np.ones((0 if total is None else 1, cells))
    values = np.full(len(equations), total if total is not None else 0.0)
    sets: list = [NonNegative()] if nonnegative else []
    sets += [] if total is None else [Affine(equations, values)]
    name = f"strategy {rows} × {cells} with {len(sets)} sets"
    return Case(name, noisy, sets, equations, values, nonnegative=nonnegative, strategy=strategy)


CASES = [
    tree_case([-1, 0, 0, 1, 1, 2, 2], 1),
    tree_case([-1, 0, 0, 0, 1, 1, 3, 3, 3, 5, 5], 2, weights=np.linspace(0.2, 2, 11)),
    table_case((3, 4), 1, 3),
    table_case((2, 3, 2), 2, 4),
    order_case(8, 5),
    order_case(8, 6, total=50.0),
    strategy_case(12, 6, 7),
    strategy_case(12, 6, 8, nonnegative=False),
    strategy_case(12, 6, 9, total=10.0),
    strategy_case(4, 7, 10),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_loss = pytest.mark.parametrize("loss", LOSSES)


def optimum(case: Case, loss: str) -> float:
    """The least loss, by a linear program where the loss is one and by an interior point on the dense problem else.

    Variables are x and t ≥ |A x − y|; minimised is Σ a·t + q·(A x − y)².
    """
    cells = case.equations.shape[1]
    strategy = np.eye(cells) if case.strategy is None else case.strategy
    noisy = case.noisy.ravel()
    weights = np.ones(noisy.size) if case.weights is None else case.weights
    linear, square = SHARES[loss][0] * weights, SHARES[loss][1] * weights**2
    rows = len(strategy)
    above = [np.hstack([strategy, -np.eye(rows)]), np.hstack([-strategy, -np.eye(rows)])]
    limits = [noisy, -noisy]
    for extra in [np.eye(cells) if case.nonnegative else None, case.rises]:
        if extra is not None:
            above.append(np.hstack([-extra, np.zeros((len(extra), rows))]))
            limits.append(np.zeros(len(extra)))
    equations = np.hstack([case.equations, np.zeros((len(case.equations), rows))])
    cost = np.concatenate([-2 * strategy.T @ (square * noisy), linear])
    constant = float(np.sum(square * noisy**2))
    if loss == "l1":
        solved = linprog(cost, np.vstack(above), np.concatenate(limits), equations, case.values, bounds=(None, None))
        return float(solved.fun)
    curvature = np.zeros((cells + rows,) * 2)
    curvature[:cells, :cells] = 2 * strategy.T @ (square[:, None] * strategy)
    inner = interior_point(curvature, cost, np.vstack(above), np.concatenate(limits), equations, case.values)
    return inner + constant


def interior_point(P: np.ndarray, c: np.ndarray, G: np.ndarray, h: np.ndarray, A: np.ndarray, b: np.ndarray) -> float:
    """min ½vᵀPv + cᵀv with G v ≤ h and A v = b, by a plain primal-dual interior point."""
    size, equations = len(c), len(b)
    v, s, z, y = np.zeros(size), np.ones(len(h)), np.ones(len(h)), np.zeros(equations)
    for _ in range(200):
        gap = s @ z / len(h)
        residuals = P @ v + c + G.T @ z + A.T @ y, A @ v - b, G @ v + s - h
        if gap < 1e-13 and max(np.abs(each).max(initial=0) for each in residuals) < 1e-10:
            break
        system = np.block([[P + G.T @ (G * (z / s)[:, None]), A.T], [A, np.zeros((equations, equations))]])
        centring = 0.1 * gap - s * z
        right = np.concatenate([-residuals[0] - G.T @ ((centring + z * residuals[2]) / s), -residuals[1]])
        step = np.linalg.lstsq(system, right, rcond=1e-14)[0]
        dv, dy = step[:size], step[size:]
        ds = -residuals[2] - G @ dv
        dz = (centring - z * ds) / s
        shrinking = [
            0.99 * -value / change
            for value, change in [*zip(s, ds, strict=True), *zip(z, dz, strict=True)]
            if change < 0
        ]
        length = min([1.0, *shrinking])
        v, s, z, y = v + length * dv, s + length * ds, z + length * dz, y + length * dy
    return float(0.5 * v @ P @ v + c @ v)


def fitted(case: Case, loss: str, **options: object):
    return admm(case.noisy, case.sets, loss=loss, strategy=case.strategy, weights=case.weights, **options)  # type: ignore[arg-type]


@every_case
@every_loss
def test_reaches_the_optimum_and_proves_it(case: Case, loss: str) -> None:
    best = optimum(case, loss)
    fit = fitted(case, loss)
    scale = max(best, 1e-3)
    assert fit.status is Status.CONVERGED
    assert fit.stats["rule"] == "gap" or best < 1e-9
    assert fit.objective == pytest.approx(best, rel=1e-5, abs=1e-6)
    assert fit.gap <= 1e-5 * scale
    assert fit.objective - best <= fit.gap + 1e-7 * scale
    assert all(each.violation(fit.counts) <= 1e-6 for each in case.sets)
    assert fit.counts.shape == (case.noisy.shape if case.strategy is None else (case.strategy.shape[1],))
    if case.nonnegative:
        assert fit.counts.min() >= 0


@every_case
@every_loss
@pytest.mark.parametrize("preset", [None, "paper"])
def test_the_gap_is_never_too_small_however_early_the_iteration_ends(case: Case, loss: str, preset: str) -> None:
    best = optimum(case, loss)
    for steps in [1, 7, 30]:
        fit = fitted(case, loss, max_steps=steps, preset=preset)
        assert fit.objective - fit.gap <= best + 1e-6 * max(best, 1.0)
        assert fit.gap >= 0


@every_case
@every_loss
def test_the_paper_s_settings_reach_the_same_optimum(case: Case, loss: str) -> None:
    best = optimum(case, loss)
    fit = fitted(case, loss, preset="paper", tolerance=1e-8, max_steps=60_000)
    if case.name == "strategy 4 × 7 with 1 sets":
        assert fit.objective == pytest.approx(best, abs=1e-4)
        return
    assert fit.status is Status.CONVERGED
    assert fit.objective == pytest.approx(best, rel=1e-5)
    assert fit.stats["rho"] == 2.0


@every_case
def test_textbook_iteration_without_adaptation_reaches_the_same_optimum(case: Case) -> None:
    fit = fitted(case, "elastic", adaptive=False, relaxation=1.0)
    assert fit.objective == pytest.approx(optimum(case, "elastic"), rel=1e-5, abs=1e-6)


# The paper's algorithms, line by line, with S and Θ as printed.


def theta(v: np.ndarray, alpha: float, rho: float) -> np.ndarray:
    kept = np.abs(v) > alpha / rho
    return np.where(kept, rho * (v - alpha / rho * np.sign(v)) / (2 * (1 - alpha) + rho), 0.0)


def soft(v: np.ndarray, tau: float) -> np.ndarray:
    return np.where(np.abs(v) > tau, v - tau * np.sign(v), 0.0)


def htree_by_least_squares(v: np.ndarray) -> np.ndarray:
    leaves = np.vstack([np.ones(4), [1, 1, 0, 0], [0, 0, 1, 1], np.eye(4)])
    return leaves @ np.linalg.lstsq(leaves, v, rcond=None)[0]


def algorithm_3(noisy: np.ndarray, steps: int, alpha: float = 0.9, rho: float = 2.0) -> np.ndarray:
    x, mu, nu, eta = noisy.copy(), np.zeros(7), np.zeros(7), np.zeros(7)
    for _ in range(steps):
        y = theta(x - noisy + mu, alpha, rho)
        z = htree_by_least_squares(x + nu)
        w = np.maximum(x + eta, 0)
        x = ((y + noisy - mu) + (z - nu) + (w - eta)) / 3
        mu, nu, eta = mu + x - y - noisy, nu + x - z, eta + x - w
    return x


def algorithm_4(A: np.ndarray, r: np.ndarray, steps: int, alpha: float = 0.9, rho: float = 2.0) -> np.ndarray:
    x, mu, nu = np.zeros(A.shape[1]), np.zeros(len(r)), np.zeros(A.shape[1])
    for _ in range(steps):
        y = theta(r - A @ x - mu, alpha, rho)
        z = np.maximum(x + nu, 0)
        x = np.linalg.solve(A.T @ A + np.eye(len(x)), A.T @ (r - y - mu) + (z - nu))
        mu, nu = mu + A @ x - r + y, nu + x - z
    return x


def algorithm_1_and_2(
    A: np.ndarray, b: np.ndarray, noisy: np.ndarray, steps: int, update: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    x, mu, nu, eta = noisy.copy(), np.zeros_like(noisy), np.zeros_like(noisy), np.zeros(len(b))
    for _ in range(steps):
        y = update(x - noisy + mu)
        z = np.maximum(x + nu, 0)
        right = (y + noisy - mu) + (z - nu) + A.T @ (b - eta)
        x = np.linalg.solve(A.T @ A + 2 * np.eye(len(x)), right)
        mu, nu, eta = mu + x - noisy - y, nu + x - z, eta + A @ x - b
    return x


STEPS = pytest.mark.parametrize("steps", [1, 2, 3, 25])


@STEPS
def test_the_paper_s_preset_takes_the_steps_of_algorithm_3(steps: int) -> None:
    noisy = np.array([14.0, 9.0, -3.0, 6.0, 1.0, -4.0, 2.0])
    fit = admm(noisy, [TreeConsistency(2), NonNegative()], preset="paper", max_steps=steps)
    assert fit.status is Status.STEP_LIMIT
    assert_allclose(fit.counts, algorithm_3(noisy, steps), atol=1e-12)


@STEPS
@pytest.mark.parametrize("sparse", [False, True])
def test_the_paper_s_preset_takes_the_steps_of_algorithm_4(steps: int, sparse: bool) -> None:
    rng = np.random.default_rng(4)
    strategy = rng.normal(size=(9, 5))
    noisy = rng.normal(0, 10, 9)
    given = sp.csr_array(strategy) if sparse else strategy
    fit = admm(noisy, NonNegative(), strategy=given, preset="paper", max_steps=steps)
    assert_allclose(fit.counts, algorithm_4(strategy, noisy, steps), atol=1e-10)


@STEPS
@pytest.mark.parametrize(
    ("loss", "update"),
    [
        ("l1", lambda v: soft(v, 1 / 2.0)),
        ("elastic", lambda v: theta(v, 0.9, 2.0)),
        ("l2", lambda v: 2.0 / (1 + 2.0) * v),  # equation (25), the y-block's update with the factor ρ/(1 + ρ)
    ],
)
def test_the_paper_s_preset_takes_the_steps_of_algorithms_1_and_2(steps: int, loss: str, update: Callable) -> None:
    rng = np.random.default_rng(12)
    matrix = np.array([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 0, 1, 0, 0]])
    values, noisy = np.array([5.0, 7.0, 3.0]), rng.normal(2, 4, 6)
    fit = admm(noisy, [NonNegative(), Affine(matrix, values)], loss=loss, preset="paper", max_steps=steps)
    assert_allclose(fit.counts, algorithm_1_and_2(matrix, values, noisy, steps, update), atol=1e-11)


def test_the_paper_s_preset_keeps_a_penalty_that_is_given() -> None:
    noisy = np.array([14.0, 9.0, -3.0, 6.0, 1.0, -4.0, 2.0])
    fit = admm(noisy, [TreeConsistency(2), NonNegative()], preset="paper", rho=0.3, alpha=0.5, max_steps=9)
    assert_allclose(fit.counts, algorithm_3(noisy, 9, alpha=0.5, rho=0.3), atol=1e-12)


def test_the_paper_s_preset_stops_by_rule_22_and_not_a_step_later() -> None:
    noisy = np.array([14.0, 9.0, -3.0, 6.0, 1.0, -4.0, 2.0])
    fit = admm(noisy, [TreeConsistency(2), NonNegative()], preset="paper", tolerance=1e-4, history=True)
    assert fit.status is Status.CONVERGED
    assert fit.stats["rule"] == "residuals (22)"
    met = [max(entry.primal, entry.dual) <= 1e-4 for entry in fit.history]
    assert met.index(True) == len(met) - 1


def test_two_blocks_need_fewer_steps_than_the_printed_algorithm() -> None:
    rng = np.random.default_rng(1)
    leaves = np.where(rng.random(256) < 0.7, 0, rng.poisson(20, 256))
    levels = [leaves.astype(float)]
    while levels[0].size > 1:
        levels.insert(0, levels[0].reshape(-1, 2).sum(axis=1))
    truth = np.concatenate(levels)
    noisy = truth + rng.laplace(0, 9, truth.size)
    sets = [TreeConsistency(2), NonNegative()]
    ours = admm(noisy, sets, loss="l1", max_steps=1000)
    printed = admm(noisy, sets, loss="l1", preset="paper", max_steps=1000)
    assert ours.status is Status.CONVERGED
    assert ours.gap <= 1e-6 * ours.objective
    assert printed.status is Status.STEP_LIMIT


def test_history_records_every_step() -> None:
    case = CASES[0]
    fit = fitted(case, "l1", history=True)
    assert [entry.step for entry in fit.history] == list(range(1, int(fit.stats["steps"]) + 1))
    last = fit.history[-1]
    assert last.objective == pytest.approx(fit.objective, rel=1e-4)
    assert (last.primal, last.dual, last.rho) == (fit.stats["primal"], fit.stats["dual"], fit.stats["rho"])
    assert fitted(case, "l1").history == ()


def test_a_start_at_the_answer_shortens_the_way_and_leads_to_the_same_place() -> None:
    case = table_case((4, 5), 1, 21)
    cold = fitted(case, "elastic", adaptive=False)
    warm = fitted(case, "elastic", adaptive=False, start=cold.counts)
    assert_allclose(warm.counts, cold.counts, atol=1e-4)
    begun = fitted(case, "elastic", preset="paper", start=cold.counts, max_steps=1)
    assert_allclose(begun.counts, cold.counts, atol=3.0)


def test_functions_of_the_user_constrain_and_certify_like_built_in_sets() -> None:
    noisy = np.array([3.0, -1.0, 2.0, 9.0])

    def all_equal(x: np.ndarray) -> np.ndarray:
        return np.full_like(x, x.mean())

    fit = admm(noisy, [all_equal, NonNegative()], loss="l1")
    assert np.ptp(fit.counts) <= 1e-6
    assert fit.objective == pytest.approx(np.abs(noisy - 2.5).sum(), rel=1e-6)
    assert fit.gap <= 1e-5
    ball = Projection(lambda x: x * min(1.0, 2 / np.linalg.norm(x)), name="ball of radius 2")
    inside = admm([3.0, 4.0], ball, loss="l2")
    assert_allclose(inside.counts, [1.2, 1.6], atol=1e-5)


def test_tables_keep_their_shape_also_for_functions_of_the_user() -> None:
    seen = []

    def rows_sum_to_two(table: np.ndarray) -> np.ndarray:
        seen.append(table.shape)
        return table + (2.0 - table.sum(axis=1, keepdims=True)) / table.shape[1]

    fit = admm(np.arange(6.0).reshape(2, 3), [rows_sum_to_two, NonNegative()])
    assert set(seen) == {(2, 3)}
    assert fit.counts.shape == (2, 3)
    assert_allclose(fit.counts.sum(axis=1), 2.0, atol=1e-6)


def test_structural_zeros_and_boxes_hold_exactly() -> None:
    noisy = np.array([9.0, 4.0, 7.0, 1.0])
    sets = [TreeConsistency([-1, 0, 0, 0]), Zeros([False, False, True, False]), Box(0, [20, 3, 20, 20])]
    fit = admm(noisy, sets, loss="l2")
    assert fit.counts[2] == 0
    assert fit.counts[1] <= 3
    assert fit.counts[0] == pytest.approx(fit.counts[1] + fit.counts[3], abs=1e-9)


def test_without_sets_that_couple_cells_the_answer_is_immediate() -> None:
    fit = admm([3.0, -2.0], NonNegative(), loss="l1")
    assert fit.counts.tolist() == [3.0, 0.0]
    assert (fit.objective, fit.gap, fit.stats["steps"]) == (2.0, 0.0, 0)
    assert admm([3.0, -2.0], []).counts.tolist() == [3.0, -2.0]
    consistent = admm([5.0, 2.0, 3.0], [TreeConsistency(2), NonNegative()])
    assert (consistent.counts.tolist(), consistent.objective, consistent.gap) == ([5.0, 2.0, 3.0], 0.0, 0.0)


@pytest.mark.parametrize("preset", [None, "paper"])
def test_no_cells_and_single_cells(preset: str) -> None:
    sets = [NonNegative(), TreeConsistency(2), Isotonic()]
    nothing = admm(np.zeros(0), sets, preset=preset)  # type: ignore[arg-type]
    assert (nothing.counts.shape, nothing.objective, nothing.gap) == ((0,), 0.0, 0.0)
    one = admm([-3.0], sets, loss="l1", preset=preset)  # type: ignore[arg-type]
    assert_allclose(one.counts, [0.0], atol=1e-5)
    assert one.objective == pytest.approx(3.0, abs=1e-4)
    fixed = admm([-3.0], Simplex(2.0), loss="l1", preset=preset)  # type: ignore[arg-type]
    assert_allclose(fixed.counts, [2.0], atol=1e-5)


def test_values_of_weight_zero_are_not_looked_at() -> None:
    sets = [TreeConsistency([-1, 0, 0]), NonNegative()]
    one = admm([9.0, 4.0, np.nan], sets, weights=[1, 1, 0], loss="l2")
    assert_allclose(one.counts, [9.0, 4.0, 5.0], atol=1e-5)
    two = admm([4.0, 9.0, np.nan], sets, weights=[1, 1, 0], loss="l1")
    assert two.objective == pytest.approx(5.0, rel=1e-5)
    assert two.gap <= 1e-4
    assert two.counts[2] == pytest.approx(0.0, abs=1e-5)


def test_a_compact_set_certifies_cells_that_were_not_measured() -> None:
    fit = admm([9.0, 4.0, 0.0, 0.0], Simplex(10.0), weights=[1, 1, 0, 0], loss="l1")
    assert fit.objective == pytest.approx(3.0)
    assert fit.gap <= 1e-5


def test_without_a_certificate_the_residuals_stop_the_iteration_and_the_gap_says_so() -> None:
    def first_and_last_equal(x: np.ndarray) -> np.ndarray:
        mean = (x[0] + x[-1]) / 2
        return np.array([mean, *x[1:-1], mean])

    def sum_of_first_two_is_four(x: np.ndarray) -> np.ndarray:
        miss = (4 - x[0] - x[1]) / 2
        return np.array([x[0] + miss, x[1] + miss, *x[2:]])

    fit = admm([1.0, 0.0, 5.0], [first_and_last_equal, sum_of_first_two_is_four], weights=[1, 0, 1], loss="l1")
    assert fit.objective == pytest.approx(4.0, rel=1e-5)
    assert fit.gap >= fit.objective - 4.0
    assert fit.status is Status.CONVERGED


@pytest.mark.parametrize("preset", [None, "paper"])
@pytest.mark.parametrize(
    ("sets", "names", "violation"),
    [
        ([Affine(np.ones((1, 7)), [-5.0]), NonNegative()], {"Affine", "NonNegative"}, 2.5),
        ([Affine(np.ones((1, 7)), [50.0]), Simplex(51.0)], {"Affine", "Simplex"}, 0.5),
        ([Affine(np.ones((1, 7)), [50.0], name="census"), Simplex(50.001)], {"census", "Simplex"}, 0.0005),
        ([TreeConsistency(2), Box([10] + [-9] * 6, [20] + [1, 1] + [9] * 4)], {"TreeConsistency", "Box"}, 4.0),
        (
            [MarginalsEqual((7,), {(0,): [-2.0, 1, 1, 1, 1, 1, 1]}), Isotonic(), NonNegative()],
            {"MarginalsEqual", "NonNegative"},
            1.0,
        ),
    ],
)
def test_disjoint_sets_are_named_with_their_least_violation(
    sets: list, names: set, violation: float, preset: str
) -> None:
    noisy = np.random.default_rng(1).normal(7, 3, 7)
    with pytest.raises(Infeasible, match="no numbers satisfy") as refused:
        admm(noisy, sets, preset=preset)  # type: ignore[arg-type]
    assert names <= set(refused.value.constraints)
    assert refused.value.violation == pytest.approx(violation, rel=1e-3)


def test_disjoint_sets_below_a_strategy_are_found_too() -> None:
    strategy = np.random.default_rng(2).normal(size=(6, 3))
    with pytest.raises(Infeasible) as refused:
        admm(np.ones(6), [Affine(np.ones((1, 3)), [-5.0]), NonNegative()], strategy=strategy)
    assert set(refused.value.constraints) == {"Affine", "NonNegative"}


def test_bounds_that_leave_a_cell_no_value_are_named_at_once() -> None:
    with pytest.raises(Infeasible, match=r"Box wants cell \(1,\) to be at least 3, Zeros at most 0") as refused:
        admm([1.0, 2.0], [Box([0, 3], 9), Zeros([False, True])])
    assert (refused.value.violation, refused.value.constraints) == (1.5, ("Box", "Zeros"))


def test_sets_that_meet_at_a_sharp_angle_are_not_called_disjoint() -> None:
    sets = [Affine([[1.0, -1.0]], [0.0]), Affine([[1.0, -1.01]], [0.5])]
    fit = admm([3.0, 4.0], sets)
    assert_allclose(fit.counts, [-50.0, -50.0], rtol=1e-4)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_units_do_not_matter(scale: float) -> None:
    case = CASES[0]
    usual = admm(case.noisy, case.sets, loss="elastic")
    scaled = admm(scale * case.noisy, case.sets, loss="elastic", weights=1 / scale)
    assert scaled.status is Status.CONVERGED
    assert_allclose(scaled.counts / scale, usual.counts, atol=1e-4)


def test_too_few_steps_are_reported_as_such() -> None:
    case = CASES[3]
    fit = fitted(case, "l1", max_steps=2)
    assert fit.status is Status.STEP_LIMIT
    assert fit.gap >= fit.objective - optimum(case, "l1") - 1e-9
    assert fit.stats["steps"] == 2


@pytest.mark.parametrize(
    ("arguments", "text", "error"),
    [
        ({"rho": 0.0}, "rho is 0.0", DeclarationError),
        ({"rho": "best"}, "rho is 'best'", DeclarationError),
        ({"relaxation": 2.0}, "between 0 and 2", DeclarationError),
        ({"tolerance": 0.0}, "tolerance", DeclarationError),
        ({"max_steps": 0}, "at least one step", DeclarationError),
        ({"preset": "boyd"}, "no preset 'boyd'", DeclarationError),
        ({"loss": "huber"}, "huber", DeclarationError),
        ({"alpha": 1.5}, "alpha", DeclarationError),
        ({"weights": [1.0, -1.0, 1.0]}, "weight", MeasurementError),
        ({"weights": [1.0]}, "weights", MeasurementError),
        ({"noisy": [1.0, np.nan, 2.0]}, "nan", MeasurementError),
        ({"start": [1.0]}, "shape", DeclarationError),
        ({"start": [1.0, np.inf, 1.0]}, "finite", DeclarationError),
        ({"strategy": np.ones((2, 3))}, "one answer for each row", DeclarationError),
        ({"strategy": np.full((3, 2), np.nan)}, "finite", DeclarationError),
        ({"constraints": TreeConsistency(3)}, "branching 3", DeclarationError),
        ({"constraints": lambda x: 0.5 * x}, "does not project", DeclarationError),
        ({"constraints": lambda x: x[:2]}, "shape", DeclarationError),
        ({"constraints": "nonnegative"}, "str is neither", DeclarationError),
    ],
)
def test_mistakes_are_refused_before_the_first_step(arguments: dict, text: str, error: type[ConsilienceError]) -> None:
    given = {"noisy": [3.0, 1.0, 1.0], "constraints": [TreeConsistency(2), NonNegative()], **arguments}
    with pytest.raises(error, match=text):
        admm(**given)


def hierarchy(leaves: int) -> sp.csr_array:
    """The sums of all nodes of a binary tree over the leaves."""
    widths = [leaves >> level for level in range(leaves.bit_length())]
    return sp.csr_array(sp.vstack([sp.kron(sp.eye_array(leaves // width), np.ones((1, width))) for width in widths]))


@every_loss
def test_sparse_strategies_equal_dense_ones_and_the_tree_they_describe(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "SETTINGS", replace(graph.SETTINGS, dense_cells=0))
    strategy = hierarchy(16)
    rng = np.random.default_rng(3)
    noisy = strategy @ rng.poisson(2, 16) + rng.laplace(0, 4, strategy.shape[0])
    sparse = admm(noisy, NonNegative(), strategy=strategy, loss=loss)
    dense = admm(noisy, NonNegative(), strategy=strategy.toarray(), loss=loss)
    tree = admm(noisy, [TreeConsistency(2), NonNegative()], loss=loss)
    for fit in [sparse, dense]:
        assert fit.objective == pytest.approx(tree.objective, rel=1e-5)
        assert fit.gap <= 1e-5 * fit.objective


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (5, 5), (0, 4)])
@pytest.mark.parametrize("sparse", [False, True])
def test_square_systems_are_solved_by_rows_or_by_columns(shape: tuple[int, int], sparse: bool) -> None:
    rng = np.random.default_rng(5)
    matrix, right = rng.normal(size=shape), rng.normal(size=shape[1])
    solver = graph.SquareSolver(sp.csr_array(matrix) if sparse else matrix, 1.5)
    expected = np.linalg.solve(matrix.T @ matrix + 1.5 * np.eye(shape[1]), right)
    assert_allclose(solver.solve(right), expected, atol=1e-10)


def test_what_would_not_fit_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "SETTINGS", replace(graph.SETTINGS, largest_factor=1000))
    with pytest.raises(TooLarge, match="20 × 10"):
        admm(np.ones(20), NonNegative(), strategy=np.ones((20, 10)))
    solver = importlib.import_module("consilience.solvers.admm.fit")
    monkeypatch.setattr(solver, "SETTINGS", replace(solver.SETTINGS, largest_work=1000))
    with pytest.raises(TooLarge, match="3 cells"):
        admm([3.0, 1.0, 1.0], TreeConsistency(2))


@pytest.mark.slow
def test_two_hundred_random_tables_and_trees_reach_the_linear_program_s_optimum() -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        shape = tuple(int(size) for size in rng.integers(2, 5, rng.integers(2, 4)))
        cases = [table_case(shape, int(rng.integers(1, len(shape))), seed)]
        cases.append(tree_case([-1, *(int(rng.integers(0, node)) for node in range(1, 30))], seed))
        for case in cases:
            fit = fitted(case, "l1")
            assert fit.objective == pytest.approx(optimum(case, "l1"), rel=1e-5, abs=1e-6)
            assert fit.status is Status.CONVERGED

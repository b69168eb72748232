"""Models of least cost: against dense solvers over all cells, and against each other."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import IdentityMap, Kronecker, PrefixMap
from consilience.models.fitting.first_order import (
    AcceleratedDescent,
    Direct,
    DualAveraging,
    MirrorDescent,
)
from consilience.models.fitting.fit_model import ModelFit, fit_model
from consilience.models.fitting.objective import MeasuredQuery, MeasuredRows
from consilience.models.oracle import Marginals
from consilience.models.tables import TableLayout
from consilience.solvers.fit import Infeasible, Status
from consilience.solvers.tables.measured_fit import fit_measured_table
from consilience.solvers.tables.row_costs import RowCosts

Array = NDArray[np.float64]

SIZES = [2, 3, 2, 3]
CHAIN = [(0, 1), (1, 2), (2, 3)]
CYCLE = [(0, 1), (1, 2), (2, 3), (0, 3)]
NESTED = [(0, 1), (1, 2, 3), (1,), (3, 2)]
TOTAL = 60.0


class EveryCell:
    """The slow twin of the oracle: all cells of the joint table, one by one."""

    def __init__(self, sizes: Sequence[int], scopes: Sequence[Sequence[int]], total: float = TOTAL) -> None:
        self.layout = TableLayout(sizes, scopes)
        self.total = total
        cells = list(itertools.product(*(range(size) for size in sizes)))
        self.members = np.zeros((len(cells), self.layout.size))
        for place, cell in enumerate(cells):
            tables = [np.zeros([sizes[a] for a in scope]) for scope in scopes]
            for table, scope in zip(tables, scopes, strict=True):
                table[tuple(cell[a] for a in scope)] = 1.0
            self.members[place] = self.layout.pack(tables)

    def joint(self, potentials: Array) -> Array:
        logarithms = self.members @ potentials
        table = np.exp(logarithms - logarithms.max())
        return self.total * table / table.sum()

    def marginals(self, potentials: Array) -> Marginals:
        logarithms = self.members @ potentials
        peak = float(logarithms.max())
        partition = peak + float(np.log(np.exp(logarithms - peak).sum()))
        return Marginals(self.members.T @ self.joint(potentials), partition)

    def largest(self, potentials: Array) -> float:
        return float((self.members @ potentials).max())

    def derivative(self, potentials: Array, direction: Array) -> Array:
        joint, change = self.joint(potentials), self.members @ direction
        return self.members.T @ (joint * (change - joint @ change / self.total))


class Problem:
    """A model of the given scopes, measured on each of them, and the same as a matrix over all cells."""

    def __init__(self, scopes: Sequence[Sequence[int]], seed: int, scale: float = 3.0) -> None:
        self.oracle = EveryCell(SIZES, scopes)
        rng = np.random.default_rng(seed)
        queries = [
            MeasuredQuery(k, tuple(scope), np.full(int(np.prod([SIZES[a] for a in scope])), 1.0 / scale))
            for k, scope in enumerate(scopes)
        ]
        # One query sums an attribute away and one is not a marginal.
        first = tuple(scopes[0])
        queries.append(MeasuredQuery(0, first[1:], np.full(SIZES[first[1]], 2.0 / scale)))
        prefix = Kronecker((PrefixMap(SIZES[first[1]]), IdentityMap(SIZES[first[0]])))
        queries.append(MeasuredQuery(0, (first[1], first[0]), np.full(6, 0.5 / scale), prefix))
        self.rows = MeasuredRows(self.oracle.layout, queries)
        self.matrix = np.array([self.rows.apply(cell) for cell in self.oracle.members]).T
        truth = rng.dirichlet(np.full(self.matrix.shape[1], 0.3)) * TOTAL
        self.truth = truth
        self.noise = rng.laplace(size=self.rows.size)
        self.observed = self.matrix @ truth + self.noise

    def costs(self, slope: float = 0.0, curvature: float = 0.0) -> RowCosts:
        nobody = np.zeros(self.rows.size, dtype=np.bool_)
        ones = np.ones(self.rows.size)
        return RowCosts(self.observed, slope * ones, curvature * ones, nobody, nobody)

    def mixed(self, seed: int, *, exact: bool) -> RowCosts:
        """Absolute values, squares, both, one side of them, and exact rows, row by row."""
        rng = np.random.default_rng(seed)
        kind = rng.integers(0, 3, self.rows.size)
        one_sided = rng.random(self.rows.size) < 0.2
        facts = np.zeros(self.rows.size, dtype=np.bool_)
        observed = self.observed.copy()
        if exact:
            facts[self.rows.slices[0]] = True
            observed[facts] = (self.matrix @ self.truth)[facts]
        slope = np.where(facts, 0.0, np.where(kind != 1, 0.7, 0.0))
        curvature = np.where(facts, 0.0, np.where(kind != 0, 1.3, 0.0))
        return RowCosts(observed, slope, curvature, facts, one_sided & ~facts)


def least_cost(matrix: Array, costs: RowCosts, total: float) -> float:
    """The least cost over all tables, by linear programmes: s bounds each residual that costs something, t its square.

    Tangents of the squares are added where the last solution was too low (Kelley 1960), until it is not.
    """
    rows, cells = matrix.shape
    inexact, nothing = ~costs.exact, np.zeros((rows, rows))
    two_sided = inexact & ~costs.one_sided
    above = np.hstack([matrix, -np.eye(rows), nothing])[inexact]
    below = np.hstack([-matrix, -np.eye(rows), nothing])[two_sided]
    A, b = np.vstack([above, below]), np.concatenate([costs.observed[inexact], -costs.observed[two_sided]])
    everything = np.hstack([np.ones(cells), np.zeros(2 * rows)])
    equal = np.vstack([everything, np.hstack([matrix, nothing, nothing])[costs.exact]])
    equals = np.concatenate([[total], costs.observed[costs.exact]])
    cost = np.concatenate(
        [np.zeros(cells), np.where(inexact, costs.slope, 0.0), np.where(inexact, costs.curvature, 0.0)]
    )
    idle, last = 0, -np.inf
    while True:
        found = linprog(cost, A_ub=A, b_ub=b, A_eq=equal, b_eq=equals, bounds=(0, None))
        s, t = found.x[cells : cells + rows], found.x[cells + rows :]
        idle = idle + 1 if found.fun <= last + 1e-8 * max(found.fun, 1.0) else 0
        if not costs.curvature.any() or idle == 4:
            return float(found.fun)
        last = found.fun
        cuts = np.flatnonzero((costs.curvature > 0) & (0.5 * s**2 > t))
        tangents = np.hstack([np.zeros((rows, cells)), np.diag(s), -np.eye(rows)])[cuts]
        A, b = np.vstack([A, tangents]), np.concatenate([b, 0.5 * s[cuts] ** 2])


def check_is_model(problem: Problem, fit: ModelFit) -> None:
    assert problem.oracle.marginals(fit.potentials).values == pytest.approx(fit.marginals, abs=1e-9 * TOTAL)


@pytest.mark.parametrize("scopes", [CHAIN, CYCLE, NESTED], ids=["chain", "cycle", "nested"])
@pytest.mark.parametrize("seed", range(3))
def test_squares_reach_the_dense_optimum(scopes: list[tuple[int, ...]], seed: int) -> None:
    problem = Problem(scopes, seed)
    costs = problem.costs(curvature=1.0)
    fit = fit_model(problem.oracle, problem.rows, costs, tolerance=1e-4)
    best = least_cost(problem.matrix, costs, TOTAL)
    assert fit.status is Status.CONVERGED
    assert fit.objective <= best + 1.1e-4 * max(best, costs.expected)
    assert fit.objective - fit.gap <= best + 1e-6 * costs.expected
    check_is_model(problem, fit)


@pytest.mark.parametrize("scopes", [CHAIN, CYCLE, NESTED], ids=["chain", "cycle", "nested"])
@pytest.mark.parametrize("seed", range(3))
def test_absolute_values_reach_the_linear_programmes_optimum(scopes: list[tuple[int, ...]], seed: int) -> None:
    problem = Problem(scopes, seed)
    costs = problem.costs(slope=1.0)
    fit = fit_model(problem.oracle, problem.rows, costs, tolerance=5e-4)
    best = least_cost(problem.matrix, costs, TOTAL)
    assert fit.status is Status.CONVERGED
    assert fit.objective <= best + 6e-4 * max(best, costs.expected)
    assert fit.objective - fit.gap <= best + 1e-6 * costs.expected
    check_is_model(problem, fit)


@pytest.mark.parametrize("exact", [False, True], ids=["noisy", "with facts"])
@pytest.mark.parametrize("seed", range(4))
def test_mixed_costs_reach_the_dense_optimum(seed: int, exact: bool) -> None:
    problem = Problem(CYCLE, seed)
    costs = problem.mixed(seed, exact=exact)
    fit = fit_model(problem.oracle, problem.rows, costs, tolerance=5e-4)
    best = least_cost(problem.matrix, costs, TOTAL)
    assert fit.status is Status.CONVERGED
    assert fit.objective <= best + 6e-4 * max(best, costs.expected)
    assert fit.objective - fit.gap <= best + 1e-5 * costs.expected
    missed = np.abs(problem.rows.apply(fit.marginals) - costs.observed)[costs.exact]
    assert missed.max(initial=0.0) <= 1e-8 * TOTAL
    check_is_model(problem, fit)


@pytest.mark.parametrize("scopes", [CHAIN, CYCLE], ids=["chain", "cycle"])
def test_the_model_is_the_one_of_greatest_entropy(scopes: list[tuple[int, ...]]) -> None:
    """Many tables have the same marginals; the dense solver of all cells keeps the one of greatest entropy, too."""
    problem = Problem(scopes, 7, scale=1.0)
    problem.observed = problem.matrix @ (0.9 * problem.truth + 0.1 * TOTAL / problem.truth.size)

    class Dense:
        shape_in = (problem.truth.size,)
        apply = staticmethod(lambda table: problem.matrix @ table)
        adjoint = staticmethod(lambda rows: problem.matrix.T @ rows)
        apply_squared = staticmethod(lambda table: problem.matrix**2 @ table)

    fit = fit_model(problem.oracle, problem.rows, problem.costs(curvature=1.0), tolerance=1e-9)
    uniform = np.full(problem.truth.size, TOTAL / problem.truth.size)
    squares = RowCosts.squares(problem.observed)
    dense = fit_measured_table(Dense(), squares, start=uniform, total=TOTAL, tolerance=1e-9, noise_energy=0.0)
    joint = problem.oracle.joint(fit.potentials)
    assert joint == pytest.approx(np.asarray(dense.counts), abs=2e-3 * TOTAL / problem.truth.size)
    # And it is another table than the one measured, which the same marginals fit just as well.
    assert np.abs(joint - problem.truth).max() > 0.1


@pytest.mark.parametrize(
    "optimiser",
    [MirrorDescent(), AcceleratedDescent(), DualAveraging(), Direct()],
    ids=lambda optimiser: optimiser.name,
)
def test_every_optimiser_approaches_the_same_optimum(optimiser: object) -> None:
    problem = Problem(CYCLE, 1)
    costs = problem.costs(curvature=1.0)
    best = least_cost(problem.matrix, costs, TOTAL)
    fit = fit_model(problem.oracle, problem.rows, costs, optimiser=optimiser, tolerance=1e-2, max_steps=4000)  # type: ignore[arg-type]
    assert fit.objective <= best + 1.1e-2 * max(best, costs.expected)
    assert fit.objective - fit.gap <= best + 1e-9
    assert fit.status in (Status.CONVERGED, Status.STEP_LIMIT)
    check_is_model(problem, fit)


def test_one_answer_moves_the_model_as_it_moves_a_weighted_table() -> None:
    from consilience.estimators.published.multiplicative_weights import WeightedTable

    oracle = EveryCell([6], [(0,)])
    query = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    table = WeightedTable(np.ones(6), TOTAL)
    table.add(query, 50.0)
    table.sweep(1)
    gradient = query * (query @ np.full(6, TOTAL / 6) - 50.0)
    assert oracle.marginals(-gradient / (2 * TOTAL)).values == pytest.approx(table.counts(), rel=1e-12)


def test_the_noise_level_is_met_and_not_passed() -> None:
    problem = Problem(CHAIN, 3)
    costs = problem.costs(curvature=1.0)
    level = costs.expected
    converged = fit_model(problem.oracle, problem.rows, costs)
    stopped = fit_model(problem.oracle, problem.rows, costs, stop="noise")
    assert converged.objective < 0.97 * level
    assert 0.97 * level <= stopped.objective <= level
    assert stopped.stats["stop"] == "noise level"
    assert stopped.objective - stopped.gap <= converged.objective
    check_is_model(problem, stopped)


class Deviance:
    """Σ r − y·log r over rows: the loss of counts with Poisson noise."""

    def __init__(self, observed: Array, spoilt: float = 1.0) -> None:
        self.observed, self.spoilt = observed, spoilt

    def value_and_gradient(self, answers: Array) -> tuple[float, Array]:
        answers = answers + 1e-3
        return self.spoilt * float(np.sum(answers - self.observed * np.log(answers))), 1.0 - self.observed / answers


def test_any_convex_loss_can_be_made_small() -> None:
    """The loss of Poisson counts of all cells of one scope is least where the marginal is the counts, scaled."""
    oracle = EveryCell([3, 4], [(0, 1)])
    counts = np.random.default_rng(0).poisson(5, 12) + 1.0
    fit = fit_model(oracle, None, Deviance(counts), tolerance=1e-6, max_steps=5000)
    expected = counts * (TOTAL + 12e-3) / counts.sum() - 1e-3
    assert fit.marginals == pytest.approx(expected, rel=2e-2)
    assert fit.status is Status.CONVERGED


@pytest.mark.parametrize("spoilt", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_is_refused(spoilt: float) -> None:
    oracle = EveryCell([3, 4], [(0, 1)])
    with pytest.raises(DeclarationError, match="must be finite"):
        fit_model(oracle, None, Deviance(np.ones(12), spoilt))


def test_facts_that_contradict_each_other_are_named() -> None:
    oracle = EveryCell([2, 2], [(0, 1)])
    rows = MeasuredRows(oracle.layout, [MeasuredQuery(0, (a,), np.ones(2)) for a in (0, 0, 1)])
    exact = np.array([True, True, True, True, False, False])
    observed = np.array([10.0, 50.0, 20.0, 40.0, 30.0, 30.0])
    costs = RowCosts(observed, np.zeros(6), np.where(exact, 0.0, 1.0), exact, np.zeros(6, dtype=np.bool_))
    with pytest.raises(Infeasible, match="the first; the second") as error:
        fit_model(oracle, rows, costs, names=["the first", "the second", "the noisy one"])
    assert error.value.constraints == ("the first", "the second")
    assert error.value.violation == pytest.approx(5.0, rel=0.1)


def test_facts_that_contradict_the_total_are_refused() -> None:
    oracle = EveryCell([2, 2], [(0, 1)])
    rows = MeasuredRows(oracle.layout, [MeasuredQuery(0, (0,), np.ones(2)), MeasuredQuery(0, (0, 1), np.ones(4))])
    exact = np.arange(6) < 2
    costs = RowCosts(np.full(6, 20.0), np.zeros(6), np.where(exact, 0.0, 1.0), exact, np.zeros(6, dtype=np.bool_))
    with pytest.raises(Infeasible, match="total 60"):
        fit_model(oracle, rows, costs)


def test_facts_with_zeros_are_met() -> None:
    oracle = EveryCell([2, 3], [(0, 1)])
    rows = MeasuredRows(oracle.layout, [MeasuredQuery(0, (1,), np.ones(3)), MeasuredQuery(0, (0, 1), np.ones(6))])
    exact = np.arange(9) < 3
    observed = np.array([0.0, 25.0, 35.0, 3.0, 9.0, 20.0, -1.0, 14.0, 17.0])
    costs = RowCosts(observed, np.zeros(9), np.where(exact, 0.0, 1.0), exact, np.zeros(9, dtype=np.bool_))
    fit = fit_model(oracle, rows, costs)
    assert rows.apply(fit.marginals)[:3] == pytest.approx(observed[:3], abs=1e-6)


def test_unmeasured_rows_do_not_matter() -> None:
    problem = Problem(CHAIN, 4)
    costs = problem.costs(curvature=1.0)
    costs.curvature[::3] = 0.0
    fit = fit_model(problem.oracle, problem.rows, costs)
    costs.observed[::3] = np.nan
    again = fit_model(problem.oracle, problem.rows, costs)
    assert again.objective == pytest.approx(fit.objective, rel=1e-9)
    known = RowCosts(np.nan_to_num(costs.observed), costs.slope, costs.curvature, costs.exact, costs.one_sided)
    best = least_cost(problem.matrix, known, TOTAL)
    assert fit.objective <= best + 1.1e-3 * max(best, costs.expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observed": np.nan}, "not a finite number"),
        ({"curvature": -1.0}, "below 0"),
        ({"curvature": 0.0}, "nothing was measured"),
    ],
)
def test_costs_that_make_no_sense_are_refused(change: dict[str, float], message: str) -> None:
    problem = Problem(CHAIN, 5)
    parts = {"observed": problem.observed, "curvature": np.ones(problem.rows.size)}
    parts |= {name: np.full(problem.rows.size, value) for name, value in change.items()}
    nobody = np.zeros(problem.rows.size, dtype=np.bool_)
    costs = RowCosts(parts["observed"], np.zeros(problem.rows.size), parts["curvature"], nobody, nobody)
    with pytest.raises(DeclarationError, match=message):
        fit_model(problem.oracle, problem.rows, costs)


def test_limits_are_kept_and_reported() -> None:
    problem = Problem(CYCLE, 6)
    costs = problem.costs(slope=1.0)
    few = fit_model(problem.oracle, problem.rows, costs, max_steps=20, tolerance=1e-9)
    assert few.status is Status.STEP_LIMIT
    assert few.stats["oracle_calls"] <= 2 * 20
    assert few.objective - few.gap <= least_cost(problem.matrix, costs, TOTAL) + 1e-9
    soon = fit_model(problem.oracle, problem.rows, costs, time_limit=0.0, tolerance=1e-9)
    assert soon.status is Status.TIME_LIMIT
    check_is_model(problem, soon)


def test_progress_is_reported_with_falling_objectives() -> None:
    problem = Problem(CYCLE, 8)
    seen: list[tuple[int, float, float]] = []
    fit = fit_model(problem.oracle, problem.rows, problem.costs(slope=1.0), progress=lambda *each: seen.append(each))
    calls, objectives, gaps = zip(*seen, strict=True)
    assert list(calls) == sorted(calls)
    assert list(objectives) == sorted(objectives, reverse=True)
    assert objectives[-1] == fit.objective
    assert gaps[-1] == fit.gap


def test_mirror_descent_on_all_cells_is_multiplicative_weights_with_all_answers_at_once() -> None:
    """Appendix E.2 of McKenna et al. (2019): x ← x·exp(−∇L/2N), scaled back to N; the paper prints the other sign."""
    observed = np.random.default_rng(0).poisson(5, 12).astype(float)
    oracle = EveryCell([3, 4], [(0, 1)])
    rows = MeasuredRows(oracle.layout, [MeasuredQuery(0, (0, 1), np.ones(12))])
    nobody = np.zeros(12, dtype=np.bool_)
    costs = RowCosts(observed, np.zeros(12), np.ones(12), nobody, nobody)
    steps, optimiser = 7, MirrorDescent(1 / (2 * TOTAL))
    fit = fit_model(oracle, rows, costs, optimiser=optimiser, max_steps=steps, tolerance=0.0)
    table = np.full(12, TOTAL / 12)
    for _ in range(steps - 1):
        table = table * np.exp((observed - table) / (2 * TOTAL))
        table *= TOTAL / table.sum()
    assert fit.status is Status.STEP_LIMIT
    assert oracle.layout.unpack(fit.marginals)[0].ravel() == pytest.approx(table, rel=1e-12)


def test_decreasing_steps_come_close_to_the_least_loss_with_kinks() -> None:
    problem = Problem(CHAIN, 2)
    costs = problem.costs(slope=1.0)
    fit = fit_model(problem.oracle, problem.rows, costs, optimiser=MirrorDescent("decreasing"), max_steps=1500)
    assert fit.objective <= 1.1 * least_cost(problem.matrix, costs, TOTAL)

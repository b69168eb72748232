"""`fit_table` against linear programmes: its optima, its optimality conditions, and its choice among optima."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from consilience.errors import DeclarationError, MeasurementError, TooLarge
from consilience.solvers.fit import Fit, Status
from consilience.solvers.marginal_tables.dual_methods import SETTINGS, NormalEquations
from consilience.solvers.marginal_tables.table_fit import fit_table

LOSSES = ("l1", "l2", "elastic")


@dataclass
class Case:
    noisy: np.ndarray
    marginals: dict[tuple[int, ...], np.ndarray]
    weights: np.ndarray | None
    zeros: np.ndarray | None

    def fit(self, loss: str, **options) -> Fit:
        return fit_table(self.noisy, self.marginals, loss=loss, weights=self.weights, zeros=self.zeros, **options)

    @property
    def weight(self) -> np.ndarray:
        return np.ones(self.noisy.size) if self.weights is None else self.weights.ravel()

    @property
    def impossible(self) -> np.ndarray:
        return np.zeros(self.noisy.size, dtype=bool) if self.zeros is None else self.zeros.ravel()


def marginal(table: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The sums over the other axes, with axes in the given order."""
    kept = table.sum(axis=tuple(axis for axis in range(table.ndim) if axis not in axes))
    return np.transpose(kept, [sorted(axes).index(axis) for axis in axes]) if axes else kept


def all_marginals(table: np.ndarray, order: int) -> dict[tuple[int, ...], np.ndarray]:
    return {axes: marginal(table, axes) for axes in itertools.combinations(range(table.ndim), order)}


def equations(case: Case) -> tuple[sp.csr_array, np.ndarray]:
    """One row for each value of each marginal."""
    shape, size = case.noisy.shape, case.noisy.size
    codes = np.array(np.unravel_index(np.arange(size), shape)).reshape(len(shape), -1)
    blocks, values = [], []
    for axes, given in case.marginals.items():
        given = np.asarray(given, dtype=float)
        row = np.zeros(size, dtype=int)
        for axis in axes:
            row = row * shape[axis] + codes[axis]
        blocks.append(sp.csr_array((np.ones(size), (row, np.arange(size))), shape=(given.size, size)))
        values.append(given.ravel())
    return sp.csr_array(sp.vstack(blocks)), np.concatenate(values)


def random_case(seed: int) -> Case:
    """A random categorical table: sparse or full, with weights, structural zeros, overlapping marginals."""
    rng = np.random.default_rng(seed)
    dimensions = int(rng.integers(2, 6))
    shape = tuple(int(size) for size in rng.integers(2, 6 if dimensions < 4 else 4, dimensions))
    scale = 10 ** rng.uniform(-1, 3)
    table = rng.poisson(rng.gamma(0.3, scale, shape)).astype(float)
    if rng.random() < 0.3:
        table = (rng.random(shape) < 0.2) * rng.integers(0, 5, shape).astype(float)
    noisy = table + rng.laplace(0, 10 ** rng.uniform(-1, 2), shape)
    if rng.random() < 0.2:
        noisy = np.round(noisy)
    weights = {0: 10 ** rng.uniform(-1.5, 1.5, shape), 1: rng.choice([0.5, 1.0, 2.0], shape)}.get(int(rng.integers(4)))
    zeros = (rng.random(shape) < 0.3) & (table == 0) if rng.random() < 0.25 else None
    subsets = [axes for k in range(min(dimensions, 4)) for axes in itertools.combinations(range(dimensions), k)]
    count = int(rng.integers(min(3, len(subsets)), min(8, len(subsets)) + 1))
    chosen = [subsets[i] for i in rng.choice(len(subsets), count, replace=False)]
    shuffled = [tuple(int(axis) for axis in rng.permutation(axes)) for axes in chosen]
    return Case(noisy, {axes: marginal(table, axes) for axes in shuffled}, weights, zeros)


def least_l1(case: Case, *, nonnegative: bool) -> float:
    """The optimum of the linear programme min Σ w(p + m) with x − p + m = y."""
    matrix, values = equations(case)
    size, noisy = case.noisy.size, case.noisy.ravel()
    unit = sp.eye_array(size)
    system = sp.vstack([sp.hstack([matrix, sp.csr_array((matrix.shape[0], 2 * size))]), sp.hstack([unit, -unit, unit])])
    scale = max(1.0, np.abs(values).max(), np.abs(noisy).max())
    cost = np.concatenate([np.zeros(size), case.weight, case.weight])
    low = np.where(case.impossible | nonnegative, 0.0, -np.inf)
    high = np.where(case.impossible, 0.0, np.inf)
    bounds = [*zip(low, high, strict=True), *[(0, None)] * (2 * size)]
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    right = np.concatenate([values, noisy]) / scale
    found = scipy.optimize.linprog(cost, A_eq=system.tocsr(), b_eq=right, bounds=bounds, options=options)
    return float(found.fun) * scale


def kkt_residual(case: Case, counts: np.ndarray, slope: float, curvature: float, *, ties: bool = False) -> float:
    """The least t for which duals exist that make these counts stationary up to t·w, by a linear programme.

    Stationary: Aᵀλ lies in the subdifferential of the loss at x, or below its upper end where x = 0. With `ties` the
    loss is τ·L1 + L2 for some τ ≥ 0 that the programme may choose: the conditions of least squares among L1 optima.
    """
    matrix, _ = equations(case)
    free = ~case.impossible & (ceilings(case) > 0)
    if not free.any():
        return 0.0
    x, y, w = counts.ravel()[free], case.noisy.ravel()[free], case.weight[free]
    move = np.where(np.abs(x - y) <= 1e-9 * np.maximum(1.0, np.abs(y)), 0.0, x - y)
    highest, lowest = np.where(move < 0, -1.0, 1.0), np.where(move > 0, 1.0, -1.0)
    smooth = 2 * curvature * w * move
    positive = x > 1e-9 * max(1.0, float(x.max()))
    image = sp.csr_array(matrix.T.tocsr()[free] / w[:, None])
    t = -np.ones((w.size, 1))
    tau_above, tau_below = (-highest[:, None], lowest[:, None]) if ties else (np.zeros((w.size, 0)),) * 2
    fixed_above, fixed_below = (0.0, 0.0) if ties else (slope * highest, slope * lowest)
    above = sp.csr_array(sp.hstack([image, tau_above, t]))
    below = sp.csr_array(sp.hstack([-image, tau_below, t]))[positive]
    right = np.concatenate([smooth + fixed_above, -(smooth + fixed_below)[positive]])
    cost = np.eye(above.shape[1])[-1]
    bounds = [(None, None)] * image.shape[1] + [(0, None)] * (2 if ties else 1)
    conditions = sp.csr_array(sp.vstack([above, below]))
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = scipy.optimize.linprog(cost, A_ub=conditions, b_ub=right, bounds=bounds, options=options)
    duals = np.append(found.x[:-1], 0.0)  # what the solver tolerates is counted too
    return float((conditions @ duals - right).max(initial=0.0))


def ceilings(case: Case) -> np.ndarray:
    """The least marginal around each cell."""
    matrix, values = equations(case)
    return np.array([values[matrix[:, [cell]].nonzero()[0]].min() for cell in range(case.noisy.size)])


def assert_within_constraints(case: Case, fit: Fit, *, nonnegative: bool = True) -> None:
    matrix, values = equations(case)
    np.testing.assert_allclose(matrix @ fit.counts.ravel(), values, atol=1e-9 * max(1.0, np.abs(values).max()))
    assert not nonnegative or fit.counts.min() >= 0
    assert not np.any(fit.counts.ravel()[case.impossible])


def assert_l1_optimal(seed: int) -> None:
    case = random_case(seed)
    nonnegative = seed % 5 != 0
    fit = case.fit("l1", nonnegative=nonnegative)
    assert_within_constraints(case, fit, nonnegative=nonnegative)
    reference = max(fit.objective, 1e-6 * float(case.weight @ np.abs(case.noisy.ravel())))
    assert fit.gap <= 1e-7 * reference
    assert abs(fit.objective - least_l1(case, nonnegative=nonnegative)) <= 1e-7 * reference
    assert fit.status is Status.CONVERGED


@pytest.mark.parametrize("seed", range(80))
def test_l1_objectives_equal_those_of_a_linear_programme(seed):
    assert_l1_optimal(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(80, 200), *range(1000, 2500)])
def test_l1_objectives_equal_those_of_a_linear_programme_on_many_more(seed):
    assert_l1_optimal(seed)


@pytest.mark.parametrize("shape", [(12, 9, 4), (20, 3, 3), (6, 5, 4, 3)])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_l1_optima_of_few_large_marginals_equal_those_of_a_linear_programme(shape, missing):
    rng = np.random.default_rng(sum(shape))
    zeros = rng.random(shape) < missing
    table = np.where(zeros, 0.0, rng.poisson(3.0, shape))
    weights = rng.choice([0.5, 1.0, 2.0], shape)
    case = Case(table + rng.laplace(0, 2.0, shape), all_marginals(table, 2), weights, zeros if missing else None)
    fit = case.fit("l1")
    assert fit.status is Status.CONVERGED
    assert_within_constraints(case, fit)
    assert fit.objective == pytest.approx(least_l1(case, nonnegative=True), rel=1e-7)
    assert fit.stats["ties"] == "min-l2"
    noise = float(np.abs(fit.counts - case.noisy).max() * weights.max())
    assert kkt_residual(case, fit.counts, 1.0, 1.0, ties=True) <= 1e-8 * noise


SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] if seed >= 40 else []) for seed in range(200)]
"""Two hundred tables, of which the first forty are looked at in every run of the tests."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("loss", "slope", "curvature"), [("l2", 0.0, 1.0), ("elastic", 0.9, 0.1)])
def test_square_losses_satisfy_their_optimality_conditions(loss, slope, curvature, seed):
    case = random_case(seed)
    fit = case.fit(loss)
    assert_within_constraints(case, fit)
    size = case.weight * np.abs(case.noisy.ravel())
    assert fit.gap <= 1e-7 * max(fit.objective, 1e-6 * float(np.sum(slope * size + curvature * size**2)))
    noise = max(float(np.abs(fit.counts - case.noisy).max() * case.weight.max()), 1.0)
    assert kkt_residual(case, fit.counts, slope, curvature) <= 1e-8 * noise


@pytest.mark.parametrize("seed", SEEDS)
def test_l1_ties_are_broken_by_least_squares(seed):
    case = random_case(seed)
    fit = case.fit("l1")
    assert fit.stats["ties"] in ("min-l2", "unique")
    noise = max(float(np.abs(fit.counts - case.noisy).max() * case.weight.max()), 1.0)
    assert kkt_residual(case, fit.counts, 1.0, 1.0, ties=True) <= 1e-8 * noise


@pytest.mark.parametrize("loss", LOSSES)
def test_no_random_table_with_the_same_marginals_beats_the_fit(loss):
    rng = np.random.default_rng(3)
    table = rng.poisson(4, (3, 3, 3)).astype(float)
    noisy = table + rng.laplace(0, 2, table.shape)
    fit = fit_table(noisy, all_marginals(table, 2), loss=loss)
    step = np.einsum("i,j,k->ijk", [1, -1, 0], [1, 0, -1], [0, 1, -1])

    def cost(counts):
        size = np.abs(counts - noisy)
        return {"l1": size.sum(), "l2": (size**2).sum(), "elastic": 0.9 * size.sum() + 0.1 * (size**2).sum()}[loss]

    for length in (-0.5, -1e-3, 1e-3, 0.5):
        other = fit.counts + length * step
        if other.min() >= 0:
            assert cost(other) >= fit.objective - 1e-9
    assert fit.objective == pytest.approx(cost(fit.counts))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("order", [0, 1, 2])
def test_binary_and_relabelled_categorical_tables_agree(loss, order):
    """A table with two values per attribute goes through another transform than the same table with an empty third."""
    rng = np.random.default_rng(order)
    table = rng.poisson(3, (2, 2, 2, 2)).astype(float)
    noisy = table + rng.laplace(0, 2, table.shape)
    wider, zeros = np.zeros((3, 2, 3, 2)), np.ones((3, 2, 3, 2), dtype=bool)
    wide_noisy = rng.normal(size=wider.shape)
    wide_noisy[:2, :, :2], wider[:2, :, :2], zeros[:2, :, :2] = noisy, table, False
    weights = np.where(zeros, 0.0, 1.0)
    first = fit_table(noisy, all_marginals(table, order), loss=loss)
    second = fit_table(wide_noisy, all_marginals(wider, order), loss=loss, weights=weights, zeros=zeros)
    np.testing.assert_allclose(second.counts[:2, :, :2], first.counts, atol=1e-6)
    assert not second.counts[zeros].any()


@pytest.mark.parametrize("loss", LOSSES)
def test_one_cell(loss):
    assert fit_table([[7.3]], {(): 4}, loss=loss).counts == pytest.approx(4.0)
    assert fit_table(7.3, {(): 4}, loss=loss).counts == pytest.approx(4.0)


@pytest.mark.parametrize("loss", LOSSES)
def test_one_axis_with_its_total_is_projected_on_the_simplex(loss):
    fit = fit_table([3.0, -1.0, 5.0], {(): 6.0}, loss=loss)
    np.testing.assert_allclose(fit.counts, [2.0, 0.0, 4.0], atol=1e-12)
    assert fit.gap <= 1e-12
    assert fit.stats["solver"] == "closed form"


@pytest.mark.parametrize("loss", LOSSES)
def test_a_total_of_0_leaves_no_count(loss):
    noisy = np.random.default_rng(0).normal(size=(2, 3, 2))
    for marginals in ({(): 0.0}, {(0,): [0, 0], (1,): [0, 0, 0]}):
        fit = fit_table(noisy, marginals, loss=loss)
        assert not fit.counts.any()
        assert fit.status is Status.CONVERGED


@pytest.mark.parametrize("loss", LOSSES)
def test_all_zero_data_and_marginals(loss):
    fit = fit_table(np.zeros((3, 2, 2)), all_marginals(np.zeros((3, 2, 2)), 2), loss=loss)
    assert not fit.counts.any()
    assert fit.objective == 0.0


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("nonnegative", [True, False])
def test_marginals_that_fix_the_table(loss, nonnegative):
    rng = np.random.default_rng(1)
    table = rng.poisson(5, (3, 4)).astype(float)
    noisy = table + rng.normal(size=table.shape)
    whole = {(1, 0): table.T, (0,): table.sum(axis=1)}
    np.testing.assert_allclose(fit_table(noisy, whole, loss=loss, nonnegative=nonnegative).counts, table, atol=1e-9)
    zeros = ~np.eye(3, dtype=bool)
    square = rng.normal(size=(3, 3))
    sums = {(0,): [1.0, 2.0, 3.0], (1,): [1.0, 2.0, 3.0]}
    fixed = fit_table(square, sums, loss=loss, zeros=zeros, nonnegative=nonnegative)
    np.testing.assert_allclose(fixed.counts, np.diag([1.0, 2.0, 3.0]), atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_noisy_table_that_already_fits_is_returned(loss):
    table = np.random.default_rng(2).poisson(3, (3, 4, 2)).astype(float)
    fit = fit_table(table, all_marginals(table, 2), loss=loss)
    np.testing.assert_allclose(fit.counts, table, atol=1e-12)
    assert fit.objective <= 1e-10


def test_multipliers_that_vanish_end_the_iteration():
    """One cell's multiplier shrinks with every step until the scaling of the equations overflows, if it may."""
    table = np.array([[0.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    noisy = table + np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    fit = fit_table(noisy, all_marginals(table, 1), loss="l1", weights=np.full((3, 2), 0.25))
    assert fit.objective == pytest.approx(0.25)
    assert fit.gap <= 1e-9
    for seed in (1712, 1909):
        assert_l1_optimal(seed)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("noise", [1e6, 10.0])
def test_counts_of_a_million_millions(loss, noise):
    rng = np.random.default_rng(4)
    table = rng.poisson(5, (4, 5, 3)) * 1e12
    case = Case(
        table + rng.laplace(0, noise, table.shape), all_marginals(table, 2), np.full(table.shape, 1 / noise), None
    )
    fit = case.fit(loss)
    assert_within_constraints(case, fit)
    assert fit.status is Status.CONVERGED
    small = rng.poisson(5, (4, 5, 3)) * 100.0
    assert fit.objective < fit_table(small, all_marginals(table, 2), loss=loss, weights=case.weights).objective


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_that_differ_a_millionfold(loss):
    rng = np.random.default_rng(5)
    table = rng.poisson(5, (4, 5, 3)).astype(float)
    weights = 10 ** rng.uniform(-3, 3, table.shape)
    case = Case(table + rng.laplace(0, 1 / weights), all_marginals(table, 2), weights, None)
    fit = case.fit(loss)
    assert_within_constraints(case, fit)
    assert fit.gap <= 1e-7 * fit.objective
    if loss == "l1":
        assert fit.objective == pytest.approx(least_l1(case, nonnegative=True), rel=1e-7)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("nonnegative", [True, False])
def test_cells_without_weight_are_not_looked_at(loss, nonnegative):
    rng = np.random.default_rng(6)
    table = rng.poisson(5, (4, 3, 3)).astype(float)
    noisy, weights = table + rng.laplace(0, 2, table.shape), rng.choice([0.0, 1.0], table.shape)
    fit = fit_table(noisy, all_marginals(table, 2), loss=loss, weights=weights, nonnegative=nonnegative)
    other = np.where(weights > 0, noisy, np.nan)
    again = fit_table(other, all_marginals(table, 2), loss=loss, weights=weights, nonnegative=nonnegative)
    np.testing.assert_allclose(again.counts, fit.counts)
    assert fit.gap <= 1e-7 * max(fit.objective, 1.0)
    if loss == "l1":
        case = Case(np.where(weights > 0, noisy, 0.0), all_marginals(table, 2), weights, None)
        assert fit.objective == pytest.approx(least_l1(case, nonnegative=nonnegative), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_was_measured(loss):
    table = np.random.default_rng(7).poisson(5, (3, 4)).astype(float)
    for nonnegative in (True, False):
        fit = fit_table(table, all_marginals(table, 1), loss=loss, weights=np.zeros((3, 4)), nonnegative=nonnegative)
        np.testing.assert_allclose(fit.counts.sum(axis=0), table.sum(axis=0), atol=1e-9)
        assert fit.objective == fit.gap == 0.0


def test_no_marginal_leaves_the_positive_parts():
    noisy = np.array([[1.5, -2.0], [0.0, 3.0]])
    np.testing.assert_array_equal(fit_table(noisy, {}).counts, np.maximum(noisy, 0))
    np.testing.assert_array_equal(fit_table(noisy, {}, nonnegative=False).counts, noisy)


def test_axes_of_one_value_change_nothing():
    rng = np.random.default_rng(8)
    table = rng.poisson(4, (3, 4)).astype(float)
    noisy = table + rng.laplace(0, 1, table.shape)
    plain = fit_table(noisy, all_marginals(table, 1), loss="l1").counts
    marginals = {(2, 0): table.sum(axis=1)[None, :], (3, 1): table.sum(axis=0)[:, None].T.reshape(1, 4)}
    wide = fit_table(noisy.reshape(3, 4, 1, 1), marginals, loss="l1").counts
    np.testing.assert_allclose(wide.reshape(3, 4), plain, atol=1e-9)


def test_clipped_zeros_count_as_zeros_where_counts_are_not_negative():
    rng = np.random.default_rng(9)
    table = rng.poisson(1, (3, 4)).astype(float)
    noisy = np.maximum(table + rng.laplace(0, 2, table.shape), 0.0)
    marked = fit_table(noisy, all_marginals(table, 1), clipped=noisy == 0)
    np.testing.assert_array_equal(marked.counts, fit_table(noisy, all_marginals(table, 1)).counts)
    with pytest.raises(DeclarationError, match="nonnegative=True"):
        fit_table(noisy, all_marginals(table, 1), clipped=noisy == 0, nonnegative=False)


def test_elastic_net_ends_are_l1_and_l2():
    case = random_case(11)
    for alpha, loss in ((1.0, "l1"), (0.0, "l2")):
        np.testing.assert_allclose(case.fit("elastic", alpha=alpha).counts, case.fit(loss).counts, atol=1e-9)


@pytest.mark.parametrize(
    ("marginals", "message"),
    [
        ({(0, 3): np.zeros((2, 2))}, "axes 0 to 2"),
        ({(0, 0): np.zeros((2, 2))}, "twice"),
        ({("a",): [1, 2]}, "tuple of whole numbers"),
        ({(0,): [1, 2, 3]}, "one value per cell"),
        ({(0,): [1, np.nan]}, "not a finite number"),
        ([((0,), [1, 2])], "mapping"),
    ],
)
def test_marginals_that_do_not_fit_the_table_are_refused(marginals, message):
    with pytest.raises(DeclarationError, match=message):
        fit_table(np.zeros((2, 2, 2)), marginals)


def test_bad_options_are_refused():
    noisy, marginals = np.zeros((2, 2)), {(): 1.0}
    with pytest.raises(DeclarationError, match="choose one of"):
        fit_table(noisy, marginals, loss="l3")
    with pytest.raises(DeclarationError, match="tolerance"):
        fit_table(noisy, marginals, tolerance=0.0)
    with pytest.raises(DeclarationError, match="True or False"):
        fit_table(noisy, marginals, zeros=np.zeros((2, 2)))
    with pytest.raises(DeclarationError, match="no cell"):
        fit_table(np.zeros((0, 2)), marginals)
    with pytest.raises(MeasurementError):
        fit_table([[np.nan, 1.0], [1.0, 1.0]], marginals)


def test_tables_beyond_the_memory_limit_are_refused_before_they_are_tried():
    table = np.ones((50, 50))
    with pytest.raises(TooLarge, match="2,500 cells to 99 independent"):
        fit_table(table, all_marginals(table, 1), memory_limit=100_000)


@pytest.mark.parametrize("size", [*range(1, 14), 50, SETTINGS.plain_loop + 1])
def test_systems_are_solved_as_by_elimination(size):
    rng = np.random.default_rng(size)
    roots = rng.normal(size=(size, size + 3))
    matrix, right = roots @ roots.T, rng.normal(size=size)
    expected = np.linalg.solve(matrix + np.diag(np.full(size, 0.5)), right)
    np.testing.assert_allclose(NormalEquations(matrix, 0.5).solve(right), expected, rtol=1e-9, atol=1e-12)


def test_a_system_that_is_singular_gets_a_solution_if_there_is_one():
    roots = np.random.default_rng(3).normal(size=(9, 4))
    right = roots @ np.arange(4.0)
    solution = NormalEquations(roots @ roots.T).solve(right)
    np.testing.assert_allclose(roots @ (roots.T @ solution), right, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_a_table_of_65_536_cells_with_all_pairs(loss):
    rng = np.random.default_rng(10)
    table = np.where(rng.random((2,) * 16) < 0.05, rng.poisson(20, (2,) * 16), 0).astype(float)
    fit = fit_table(table + rng.laplace(0, 1, table.shape), all_marginals(table, 2), loss=loss)
    assert fit.status is Status.CONVERGED
    assert fit.gap <= 1e-9 * fit.objective
    for axes, values in all_marginals(table, 2).items():
        np.testing.assert_allclose(marginal(fit.counts, axes), values, atol=1e-6)

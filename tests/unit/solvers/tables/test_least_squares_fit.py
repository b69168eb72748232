"""Non-negative least squares against an exhaustive search over supports, and the laws of its certificate."""

import itertools
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.optimize import nnls

from consilience.errors import DeclarationError, MeasurementError
from consilience.solvers.fit import Fit, Status
from consilience.solvers.tables.measured_fit import fit_measured_table, predicted_bytes
from consilience.solvers.tables.row_costs import RowCosts
from consilience.solvers.tables.table_problem import Operator

Array = NDArray[np.float64]


def fit_squares(operator: Operator, observed: Array, **options) -> Fit:
    """Least squares by iteration, to 10⁻⁶ of the objective, however small, unless the options say otherwise."""
    return fit_measured_table(
        operator, RowCosts.squares(observed), **{"tolerance": 1e-6, "noise_energy": 0.0, **options}
    )


class Dense:
    """A matrix as an operator."""

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix
        self.shape_in = (matrix.shape[1],)

    def apply(self, x: Array) -> Array:
        return self.matrix @ x

    def adjoint(self, r: Array) -> Array:
        return self.matrix.T @ r

    def apply_squared(self, x: Array) -> Array:
        return self.matrix**2 @ x


class Marginals:
    """Marginals of a table, each row divided by one standard deviation."""

    def __init__(self, shape: tuple[int, ...], ways: int, stddev: float = 1.0) -> None:
        self.shape_in = shape
        axes = range(len(shape))
        self.away = [tuple(sorted(set(axes) - set(kept))) for kept in itertools.combinations(axes, ways)]
        self.stddev = stddev

    def apply(self, x: Array) -> Array:
        return np.concatenate([x.sum(axis=away).ravel() for away in self.away]) / self.stddev

    def apply_squared(self, x: Array) -> Array:
        return self.apply(x) / self.stddev

    def adjoint(self, r: Array) -> Array:
        result, place = np.zeros(self.shape_in), 0
        for away in self.away:
            shape = [1 if axis in away else size for axis, size in enumerate(self.shape_in)]
            rows = int(np.prod(shape))
            result += r[place : place + rows].reshape(shape) / self.stddev
            place += rows
        return result


@dataclass(frozen=True)
class Small:
    """A problem small enough to be solved by trying every support."""

    matrix: Array
    observed: Array
    total: float | None
    allowed: NDArray[np.bool_] | None

    def fit(self, **options) -> Fit:
        options = {"tolerance": 1e-9, **options}
        return fit_squares(Dense(self.matrix), self.observed, total=self.total, allowed=self.allowed, **options)

    @property
    def energy(self) -> float:
        """The objective of a table of zeros or of a uniform one: the size that rounding is measured against."""
        cells = self.matrix.shape[1]
        return max(self.objective(np.zeros(cells)), self.objective(np.full(cells, (self.total or 0.0) / cells)))

    def objective(self, x: Array) -> float:
        return 0.5 * float(np.sum((self.matrix @ x - self.observed) ** 2))

    def optimum(self) -> Array:
        """The best table, by least squares on every set of cells; some optimum has independent columns."""
        cells = np.flatnonzero(np.ones(self.matrix.shape[1]) if self.allowed is None else self.allowed)
        candidates = [np.zeros(self.matrix.shape[1])] if self.total is None else []
        for size in range(1, len(cells) + 1):
            for support in itertools.combinations(cells, size):
                part = self._fit_support(self.matrix[:, support])
                if part.min() >= -1e-9 * max(1.0, np.abs(part).max()):
                    table = np.zeros(self.matrix.shape[1])
                    table[list(support)] = np.maximum(part, 0.0)
                    candidates.append(table)
        return min(candidates, key=self.objective)

    def _fit_support(self, columns: Array) -> Array:
        size = columns.shape[1]
        if self.total is None:
            return least_squares(columns, self.observed)
        middle = np.full(size, self.total / size)
        moves = np.vstack([np.eye(size - 1), -np.ones(size - 1)])
        return middle + moves @ least_squares(columns @ moves, self.observed - columns @ middle)


def least_squares(matrix: Array, observed: Array) -> Array:
    return np.asarray(np.linalg.lstsq(matrix, observed, rcond=None)[0], dtype=np.float64)


KINDS = ("positive", "binary", "signed with a total", "rank two", "rows of unequal weight")


def random_matrix(kind: str, rows: int, cells: int, rng: np.random.Generator) -> Array:
    if kind == "binary":
        return (rng.random((rows, cells)) < 0.5).astype(float)
    if kind == "signed with a total":
        return np.vstack([rng.normal(size=(rows, cells)), np.full(cells, rng.choice([0.1, 1.0, 10.0]))])
    if kind == "rank two":
        return rng.random((rows, 2)) @ rng.random((2, cells))
    weight = 10.0 ** rng.integers(-2, 3, size=(rows, 1)) if kind == "rows of unequal weight" else 1.0
    return weight * rng.random((rows, cells))


@st.composite
def small_problems(draw: st.DrawFn) -> Small:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, cells = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    matrix = random_matrix(draw(st.sampled_from(KINDS)), rows, cells, rng)
    exact_counts = np.maximum(rng.normal(size=cells), 0) * draw(st.sampled_from([1.0, 100.0]))
    noise = rng.normal(size=len(matrix)) * draw(st.sampled_from([0.1, 1.0, 30.0]))
    total = draw(st.sampled_from([None, float(exact_counts.sum()) + 0.5, 1.0, 100.0]))
    allowed = rng.random(cells) < 0.7 if draw(st.booleans()) else None
    if allowed is not None and total is not None:
        allowed[draw(st.integers(0, cells - 1))] = True
    return Small(matrix, matrix @ exact_counts + noise, total, allowed)


def noisy_marginals(shape: tuple[int, ...], ways: int, people: int, stddev: float) -> tuple[Marginals, Array]:
    """Marginals of people whose attributes hang together, with Gaussian noise."""
    rng = np.random.default_rng(7)
    first = rng.integers(0, shape[0], size=people)
    places = [np.minimum(rng.poisson((first + 1) / 2), size - 1) for size in shape]
    exact_counts = np.zeros(shape)
    np.add.at(exact_counts, tuple(places), 1.0)
    operator = Marginals(shape, ways, stddev)
    answers = operator.apply(exact_counts)
    return operator, answers + rng.normal(size=answers.size)


@settings(max_examples=60, deadline=None)
@given(small_problems())
def test_objective_equals_the_best_of_all_supports(problem: Small) -> None:
    fit, best = problem.fit(), problem.objective(problem.optimum())
    assert fit.status is Status.CONVERGED
    assert fit.gap <= 1e-9 * max(fit.objective, 1e-11 * problem.energy)
    assert fit.objective == pytest.approx(problem.objective(fit.counts), rel=1e-9, abs=1e-15 * problem.energy)
    assert fit.objective == pytest.approx(best, rel=2e-9, abs=1e-14 * problem.energy)


@settings(max_examples=60, deadline=None)
@given(small_problems())
def test_fitted_values_equal_those_of_the_best_table(problem: Small) -> None:
    fit, best = problem.fit(tolerance=1e-13), problem.optimum()
    distance = float(np.linalg.norm(problem.matrix @ (fit.counts - best)))
    assert distance <= 1e-6 * np.sqrt(2 * max(problem.energy, fit.objective))
    assert 0.5 * distance**2 <= fit.gap + 1e-13 * max(problem.energy, fit.objective)


@settings(max_examples=40, deadline=None)
@given(small_problems())
def test_every_table_on_the_way_has_a_gap_that_covers_the_distance_to_the_optimum(problem: Small) -> None:
    optimum, seen = problem.objective(problem.optimum()), []
    fit = problem.fit(progress=lambda _, objective, gap: seen.append((objective, gap)))
    seen.append((fit.objective, fit.gap))
    for objective, gap in seen:
        assert gap >= 0
        assert objective - gap <= optimum * (1 + 1e-9) + 1e-14 * problem.energy


@settings(max_examples=40, deadline=None)
@given(small_problems())
def test_constraints_hold_exactly(problem: Small) -> None:
    fit = problem.fit(tolerance=1e-3)
    assert fit.counts.min() >= 0
    if problem.allowed is not None:
        assert_array_equal(fit.counts[~problem.allowed], 0.0)
    if problem.total is not None:
        assert fit.counts.sum() == pytest.approx(problem.total, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(small_problems(), st.sampled_from([1e-6, 0.5, 1e9]))
def test_scaled_data_give_scaled_tables(problem: Small, factor: float) -> None:
    total = None if problem.total is None else factor * problem.total
    fit, scaled = problem.fit(), Small(problem.matrix, factor * problem.observed, total, problem.allowed).fit()
    assert scaled.objective == pytest.approx(
        factor**2 * fit.objective, rel=1e-6, abs=1e-12 * factor**2 * problem.energy
    )
    size = np.sqrt(2 * problem.energy)
    fitted = problem.matrix @ fit.counts
    assert_allclose(problem.matrix @ scaled.counts / factor, fitted, rtol=1e-6, atol=1e-4 * size)


@settings(max_examples=40, deadline=None)
@given(small_problems(), st.integers(0, 2**32 - 1))
def test_permuted_cells_give_permuted_tables(problem: Small, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(problem.matrix.shape[1])
    allowed = None if problem.allowed is None else problem.allowed[order]
    fit, permuted = problem.fit(), Small(problem.matrix[:, order], problem.observed, problem.total, allowed).fit()
    assert permuted.objective == pytest.approx(fit.objective, rel=1e-6, abs=1e-12 * problem.energy)
    assert_allclose(
        problem.matrix[:, order] @ permuted.counts,
        problem.matrix @ fit.counts,
        rtol=1e-6,
        atol=1e-4 * np.sqrt(2 * problem.energy),
    )


@pytest.mark.parametrize(("rows", "cells"), [(30, 60), (60, 30), (100, 100)])
def test_medium_problems_agree_with_an_active_set_method(rows: int, cells: int) -> None:
    rng = np.random.default_rng(rows)
    matrix = rng.random((rows, cells))
    observed = matrix @ np.maximum(rng.normal(size=cells), 0) * 10 + 3 * rng.normal(size=rows)
    fit = fit_squares(Dense(matrix), observed, tolerance=1e-9)
    best, distance = nnls(matrix, observed)
    assert fit.status is Status.CONVERGED
    assert fit.objective == pytest.approx(0.5 * distance**2, rel=1e-8, abs=1e-12)
    assert_allclose(matrix @ fit.counts, matrix @ best, atol=1e-3)


def test_prefix_sums_and_trees_converge_although_their_rows_are_nearly_collinear() -> None:
    rng = np.random.default_rng(1)
    exact_counts = rng.multinomial(10_000, rng.dirichlet(np.full(128, 0.05))).astype(float)
    prefixes: Array = np.tril(np.ones((128, 128)))
    tree = np.asarray(
        np.vstack([np.kron(np.eye(2**level), np.ones(128 >> level)) for level in range(8)]), dtype=np.float64
    )
    for matrix in (prefixes, tree):
        observed = matrix @ exact_counts + 3 * rng.normal(size=len(matrix))
        fit = fit_squares(Dense(matrix), observed, tolerance=1e-7)
        assert fit.status is Status.CONVERGED
        assert fit.objective == pytest.approx(0.5 * nnls(matrix, observed)[1] ** 2, rel=2e-7)


@pytest.mark.slow
@pytest.mark.parametrize("total", [None, 20_000.0])
def test_a_hundred_thousand_cells_converge_within_ten_thousand_steps(total: float | None) -> None:
    """Some hundred are enough; the limit is that of a solver whose steps do not grow with the number of cells."""
    operator, observed = noisy_marginals((10,) * 5, 2, people=20_000, stddev=10.0)
    noise_energy = observed.size / 2
    fit = fit_squares(operator, observed, total=total, tolerance=1e-4, noise_energy=noise_energy, max_steps=10_000)
    assert fit.status is Status.CONVERGED
    assert fit.gap <= 1e-4 * noise_energy
    residual = operator.apply(fit.counts) - observed
    assert fit.objective == pytest.approx(0.5 * residual @ residual)


def test_memory_stays_below_the_prediction() -> None:
    operator, observed = noisy_marginals((20, 20, 20, 10), 1, people=5_000, stddev=3.0)
    for total in (None, 5_000.0):
        tracemalloc.start()
        fit_squares(operator, observed, total=total, tolerance=1e-4, max_steps=100)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= predicted_bytes(80_000, observed.size)


def test_one_way_marginals_alone_give_their_product() -> None:
    operator, observed = noisy_marginals((5, 4, 3), 1, people=1_000, stddev=2.0)
    counts = fit_squares(operator, observed).counts
    margins = [counts.sum(axis=away) for away in operator.away]
    product = np.einsum("i,j,k->ijk", *margins) / counts.sum() ** 2
    assert_allclose(counts, product, rtol=1e-9)


def test_of_all_best_tables_the_one_nearest_to_the_start_is_chosen() -> None:
    start = np.array([[4.0, 1.0], [1.0, 2.0]])
    operator = Marginals((2, 2), 1)
    counts = fit_squares(operator, np.array([6.0, 4.0, 5.0, 5.0]), start=start).counts
    assert_allclose(counts.sum(axis=1), [6.0, 4.0], rtol=1e-6)
    assert_allclose(counts.sum(axis=0), [5.0, 5.0], rtol=1e-6)
    odds = counts[0, 0] * counts[1, 1] / (counts[0, 1] * counts[1, 0])
    assert odds == pytest.approx(8.0)


def test_cells_that_no_row_touches_keep_their_start() -> None:
    operator = Dense(np.array([[1.0, 1.0, 0.0]]))
    fit = fit_squares(operator, np.array([6.0]), start=np.array([1.0, 2.0, 7.0]))
    assert fit.status is Status.CONVERGED
    assert_allclose(fit.counts, [2.0, 4.0, 7.0], rtol=1e-6)


def test_a_cell_that_starts_at_zero_can_grow() -> None:
    fit = fit_squares(Dense(np.eye(2)), np.array([3.0, 4.0]), start=np.array([5.0, 0.0]))
    assert_allclose(fit.counts, [3.0, 4.0], rtol=1e-6)


def test_without_anything_that_bounds_the_total_the_fit_says_that_it_is_uncertified() -> None:
    operator = Dense(np.array([[1.0, -1.0], [1.0, -1.0]]))
    fit = fit_squares(operator, np.array([2.0, -2.0]), start=np.array([3.0, 1.0]))
    assert fit.status is Status.UNCERTIFIED
    assert "cover" in fit.status.explanation
    assert fit.objective == pytest.approx(4.0)
    assert fit.gap == pytest.approx(fit.objective)
    assert float(fit.stats["restricted_gap"]) <= 1e-5
    assert fit.counts[0] == pytest.approx(fit.counts[1])


def test_a_cover_of_the_caller_certifies_the_gap() -> None:
    rng = np.random.default_rng(5)
    matrix = np.vstack([rng.normal(size=(6, 4)), np.full(4, 0.5)])
    observed = rng.normal(size=7) + matrix @ np.array([3.0, 0.0, 1.0, 0.0])
    cover = np.array([0.0] * 6 + [1.0])
    fit = fit_squares(Dense(matrix), observed, cover=cover, tolerance=1e-9)
    assert fit.status is Status.CONVERGED
    assert fit.objective == pytest.approx(0.5 * nnls(matrix, observed)[1] ** 2)


def test_a_cover_that_leaves_cells_uncovered_is_completed() -> None:
    matrix = np.array([[1.0, 0.0], [0.0, 1.0]])
    fit = fit_squares(Dense(matrix), np.array([3.0, -2.0]), cover=np.array([1.0, 0.0]))
    assert fit.status is Status.CONVERGED
    assert fit.objective == pytest.approx(2.0)


def test_a_cover_with_a_negative_image_is_refused() -> None:
    with pytest.raises(DeclarationError, match="negative on an allowed cell"):
        fit_squares(Dense(np.eye(2)), np.array([1.0, 1.0]), cover=np.array([1.0, -1.0]))


def test_limits_are_reported_with_a_table_and_its_gap() -> None:
    operator, observed = noisy_marginals((6, 6, 6), 2, people=500, stddev=5.0)
    best = fit_squares(operator, observed, tolerance=1e-9).objective
    limited = [fit_squares(operator, observed, tolerance=1e-9, max_steps=steps) for steps in (0, 3, 10, 40)]
    assert {fit.status for fit in limited} == {Status.STEP_LIMIT}
    timed = fit_squares(operator, observed, tolerance=1e-9, time_limit=0.0)
    assert timed.status is Status.TIME_LIMIT
    for fit in [*limited, timed]:
        assert 1e-9 * fit.objective < fit.gap < np.inf
        assert fit.objective - fit.gap <= best <= fit.objective
        assert fit.status.explanation.startswith("The ")


def test_an_unreachable_tolerance_stalls_near_the_optimum() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.random((8, 5))
    observed = 1e6 * matrix @ rng.random(5) + rng.normal(size=8)
    fit = fit_squares(Dense(matrix), observed, tolerance=0.0)
    assert fit.status in (Status.STALLED, Status.CONVERGED)
    assert fit.objective == pytest.approx(0.5 * nnls(matrix, observed)[1] ** 2, rel=1e-6)


@pytest.mark.parametrize("total", [None, 0.0])
def test_a_table_without_cells_fits_nothing(total: float | None) -> None:
    fit = fit_squares(Dense(np.zeros((2, 0))), np.array([1.0, 2.0]), total=total)
    assert (fit.counts.shape, fit.objective, fit.gap, fit.status) == ((0,), 2.5, 0.0, Status.CONVERGED)


def test_a_table_without_measurements_is_zero_or_uniform() -> None:
    operator, nothing = Dense(np.zeros((0, 4))), np.zeros(0)
    assert_array_equal(fit_squares(operator, nothing).counts, np.zeros(4))
    assert_allclose(fit_squares(operator, nothing, total=8.0).counts, np.full(4, 2.0))


def test_one_cell_is_the_weighted_mean_of_its_measurements_or_zero() -> None:
    operator = Dense(np.array([[1.0], [2.0]]))
    fit = fit_squares(operator, np.array([3.0, 10.0]), tolerance=1e-12)
    assert_allclose(fit.counts, [4.6], rtol=1e-6)
    assert_array_equal(fit_squares(operator, np.array([-3.0, -1.0])).counts, [0.0])
    assert_allclose(fit_squares(operator, np.array([3.0, 10.0]), total=7.0).counts, [7.0])


def test_data_of_zeros_give_a_table_of_zeros() -> None:
    fit = fit_squares(Marginals((3, 4), 1), np.zeros(7))
    assert_array_equal(fit.counts, np.zeros((3, 4)))
    assert (fit.objective, fit.gap) == (0.0, 0.0)


def test_a_total_of_zero_gives_a_table_of_zeros() -> None:
    fit = fit_squares(Marginals((3, 4), 1), np.ones(7), total=0.0)
    assert_array_equal(fit.counts, np.zeros((3, 4)))
    assert (fit.objective, fit.gap) == (3.5, 0.0)


@pytest.mark.parametrize("total", [None, 1e12])
def test_counts_of_a_million_million_are_fitted(total: float | None) -> None:
    operator = Marginals((3, 3), 1, stddev=1e3)
    shares = np.array([0.5, 0.3, 0.2, 0.6, 0.3, 0.1])
    observed = 1e12 * shares / 1e3
    fit = fit_squares(operator, observed, total=total, noise_energy=3.0)
    assert fit.status is Status.CONVERGED
    # A gap of 10⁻⁶ · 10⁻¹² of the objective at zero is good enough.
    assert float(np.linalg.norm(operator.apply(fit.counts) - observed)) <= 1e-9 * float(np.linalg.norm(observed))


def test_a_mask_that_forbids_everything_leaves_zeros_or_is_infeasible() -> None:
    nothing = np.zeros((3, 4), dtype=bool)
    fit = fit_squares(Marginals((3, 4), 1), np.ones(7), allowed=nothing)
    assert_array_equal(fit.counts, np.zeros((3, 4)))
    with pytest.raises(DeclarationError, match=r"total is 5\.0.*infeasible"):
        fit_squares(Marginals((3, 4), 1), np.ones(7), allowed=nothing, total=5.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_missing_or_infinite_observations_are_refused_before_the_operator_is_touched(bad: float) -> None:
    class Untouchable(Dense):
        def apply(self, x: Array) -> Array:
            raise AssertionError("applied")

        def adjoint(self, r: Array) -> Array:
            raise AssertionError("applied")

    with pytest.raises(MeasurementError, match="1 of the 2 observed values"):
        fit_squares(Untouchable(np.eye(2)), np.array([1.0, bad]))


def test_wrong_lengths_and_shapes_name_both_sides() -> None:
    operator: Operator = Dense(np.eye(2))
    with pytest.raises(MeasurementError, match=r"2 rows.*3 values"):
        fit_squares(operator, np.ones(3), total=1.0)
    with pytest.raises(MeasurementError, match=r"\(2, 1\)"):
        fit_squares(operator, np.ones((2, 1)))
    with pytest.raises(MeasurementError, match=r"start.*\(3,\).*\(2,\)"):
        fit_squares(operator, np.ones(2), start=np.ones(3))
    with pytest.raises(MeasurementError, match=r"cover.*\(3,\).*\(2,\)"):
        fit_squares(operator, np.ones(2), cover=np.ones(3))
    with pytest.raises(DeclarationError, match=r"\(3,\).*\(2,\)"):
        fit_squares(operator, np.ones(2), allowed=np.ones(3, dtype=bool))


@pytest.mark.parametrize("start", [np.array([1.0, -1.0]), np.zeros(2)])
def test_a_start_below_or_at_zero_is_refused(start: Array) -> None:
    with pytest.raises(DeclarationError, match="non-negative and not all zero"):
        fit_squares(Dense(np.eye(2)), np.ones(2), start=start)


@pytest.mark.parametrize("total", [-1.0, np.nan, np.inf])
def test_impossible_totals_are_refused(total: float) -> None:
    with pytest.raises(DeclarationError, match="total is"):
        fit_squares(Dense(np.eye(2)), np.ones(2), total=total)


@pytest.mark.parametrize("option", ["tolerance", "noise_energy", "max_steps", "time_limit"])
def test_options_below_zero_are_refused(option: str) -> None:
    with pytest.raises(DeclarationError, match=option):
        fit_squares(Dense(np.eye(2)), np.ones(2), **{option: -1})  # pyright: ignore[reportArgumentType]


def test_counts_are_read_only_and_stats_tell_what_was_done() -> None:
    fit = fit_squares(Dense(np.eye(2)), np.array([1.0, -1.0]))
    with pytest.raises(ValueError, match="read-only"):
        fit.counts[0] = 5.0
    assert {"steps", "operator_applications", "stages", "newton_steps", "solver", "seconds"} <= set(fit.stats)


def test_nearly_collinear_rows_are_covered_by_moderate_weights() -> None:
    """Weights of 10⁷ that measure the total once were the cover, and no gap could be proven with them."""
    matrix = np.array(
        [
            [0.7165188, 0.04913387, 0.77900788, 0.16747177],
            [0.04548787, 0.00301538, 0.04939718, 0.01032519],
            [1.32950649, 0.16255779, 1.48517276, 0.5215359],
            [1.02720709, 0.12980144, 1.14981816, 0.41536831],
            [1.12579907, 0.16573944, 1.2732412, 0.52456341],
        ]
    )
    observed = np.array([0.50848832, 0.07112778, 1.51974091, 1.1351364, 1.27864568])
    fit = fit_squares(Dense(matrix), observed, allowed=np.array([False, True, True, True]), tolerance=1e-4)
    assert fit.status is Status.CONVERGED

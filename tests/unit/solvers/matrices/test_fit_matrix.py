"""`fit_matrix` against linear programmes, active sets and other ways through itself."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from consilience.errors import DeclarationError, MeasurementError, TooLarge
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, Kronecker, PrefixMap, SparseMap, SumMap
from consilience.solvers.fit import Status
from consilience.solvers.matrices import matrix_fit
from consilience.solvers.matrices.matrix_fit import fit_matrix

LOSSES = ("l1", "l2", "elastic")


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """A matrix, noisy answers and weights, of many kinds: signs, sums, real numbers, tall, wide and rank deficient."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(size) for size in (rng.integers(1, 40), rng.integers(1, 30)))
    matrix = [
        rng.choice([-1.0, 1.0], (rows, columns)),
        (rng.random((rows, columns)) < 0.3) * 1.0,
        rng.normal(size=(rows, columns)),
        (rng.random((rows, columns)) < 0.15) * rng.integers(-2, 3, (rows, columns)) * 1.0,
        rng.normal(size=(rows, 3)) @ rng.normal(size=(3, columns)),
    ][seed % 5]
    scale = 10 ** rng.uniform(-2, 4)
    cells = (rng.random(columns) < 0.5) * rng.gamma(1, scale, columns)
    noise = 0.1 * scale * 10 ** rng.uniform(-1, 1)
    noisy = matrix @ cells + rng.laplace(0, noise, rows)
    weights = [None, 10 ** rng.uniform(-1.5, 1.5, rows) / noise, rng.choice([0.0, 1.0], rows)][seed % 3]
    return matrix, noisy, weights


def cost(residual: np.ndarray, weights: np.ndarray, loss: str) -> float:
    size = weights * np.abs(residual)
    return float({"l1": size, "l2": size**2, "elastic": 0.9 * size + 0.1 * size**2}[loss].sum())


def least_l1(matrix: np.ndarray, noisy: np.ndarray, weights: np.ndarray, *, nonnegative: bool) -> float:
    rows, columns = matrix.shape
    scale = max(float(np.abs(noisy).max()), 1e-300)
    costs = np.concatenate([np.zeros(columns), weights, weights])
    bounds = [(0 if nonnegative else None, None)] * columns + [(0, None)] * (2 * rows)
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    system = np.hstack([matrix, -np.eye(rows), np.eye(rows)])
    found = scipy.optimize.linprog(costs, A_eq=system, b_eq=noisy / scale, bounds=bounds, options=options)
    return float(found.fun) * scale


def least_squares(matrix: np.ndarray, noisy: np.ndarray, weights: np.ndarray, *, nonnegative: bool) -> float:
    weighted, right = weights[:, None] * matrix, weights * noisy
    if nonnegative:
        return float(scipy.optimize.nnls(weighted, right)[1]) ** 2
    return float(np.sum((weighted @ np.linalg.lstsq(weighted, right, rcond=None)[0] - right) ** 2))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", ["l1", "l2"])
@pytest.mark.parametrize("seed", range(40))
def test_objectives_equal_those_of_other_solvers(seed, loss, sparse):
    matrix, noisy, weights = random_case(seed)
    nonnegative = seed % 4 != 0
    strategy = sp.csr_matrix(matrix) if sparse else matrix
    fit = fit_matrix(strategy, noisy, loss=loss, weights=weights, nonnegative=nonnegative)
    weight = np.ones(noisy.size) if weights is None else weights
    twin = {"l1": least_l1, "l2": least_squares}[loss](matrix, noisy, weight, nonnegative=nonnegative)
    size = cost(noisy, weight, loss)
    assert fit.objective == pytest.approx(cost(matrix @ fit.counts - noisy, weight, loss), rel=1e-9, abs=1e-11 * size)
    assert fit.objective == pytest.approx(twin, rel=1e-7, abs=1e-9 * size)
    assert fit.gap >= fit.objective - twin - 1e-8 * max(twin, 1e-3 * size)
    assert fit.gap <= 1e-7 * fit.objective + 1e-10 * size
    assert not nonnegative or fit.counts.min() >= 0


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_the_elastic_net_has_no_direction_down(seed, nonnegative):
    matrix, noisy, weights = random_case(seed)
    fit = fit_matrix(matrix, noisy, weights=weights, nonnegative=nonnegative)
    weight = np.ones(noisy.size) if weights is None else weights
    assert fit.gap <= 1e-7 * fit.objective + 1e-10 * cost(noisy, weight, "elastic")
    rng = np.random.default_rng(seed)
    size = float(np.abs(fit.counts).max()) + 1.0
    for length in (1e-4, 1e-2, 1.0):
        other = fit.counts + length * size * rng.normal(size=fit.counts.size)
        other = np.maximum(other, 0.0) if nonnegative else other
        assert cost(matrix @ other - noisy, weight, "elastic") >= fit.objective - fit.gap


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(10))
def test_sparse_and_dense_ways_agree(seed, loss):
    rng = np.random.default_rng(seed)
    matrix = (rng.random((60, 40)) < 0.1) * rng.choice([-1.0, 1.0, 2.0], (60, 40))
    noisy = matrix @ rng.poisson(3, 40) + rng.laplace(0, 2, 60)
    dense = fit_matrix(np.where(matrix == 0.0, 1e-300, matrix), noisy, loss=loss)
    sparse = fit_matrix(sp.csr_array(matrix), noisy, loss=loss)
    assert "dense" in dense.stats["solver"]
    assert "dense" not in sparse.stats["solver"]
    assert sparse.objective == pytest.approx(dense.objective, rel=1e-7)


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("kind", ["wavelets", "overlapping sums", "few entries"])
def test_sparse_strategies_have_the_least_l1_of_the_primal_programme(kind, nonnegative):
    rng = np.random.default_rng(21)
    halves = [np.kron(np.eye(2**k), np.repeat([[1.0, -1.0]], 32 // 2**k, axis=1)) for k in range(6)]
    sums = [np.kron(np.eye(64 // width), np.ones((1, width))) for width in (32, 16, 8, 4, 2, 1)]
    matrix = {
        "wavelets": np.vstack([np.ones((1, 64)), *halves]),
        "overlapping sums": np.vstack([*sums, np.roll(np.vstack(sums), 21, axis=1)]),
        "few entries": (rng.random((90, 64)) < 0.04) * rng.choice([-1.0, 0.5, 2.0], (90, 64)),
    }[kind]
    counts = np.where(rng.random(64) < 0.2, rng.gamma(1, 50, 64), 0.0)
    noisy, weights = matrix @ counts + rng.laplace(0, 8, len(matrix)), rng.choice([0.0, 0.1, 0.2], len(matrix))
    fit = fit_matrix(sp.csr_array(matrix), noisy, loss="l1", weights=weights, nonnegative=nonnegative)
    least = least_l1(matrix, noisy, weights, nonnegative=nonnegative)
    assert fit.objective == pytest.approx(least, rel=1e-8, abs=1e-8)
    assert fit.gap <= 1e-8 * fit.objective + 1e-8
    assert not nonnegative or fit.counts.min() >= 0.0


@pytest.mark.parametrize(
    ("matrix", "loss", "solver"),
    [
        (np.random.default_rng(0).choice([-1.0, 1.0], (30, 20)), "l1", "interior point, dense"),
        (np.random.default_rng(0).choice([-1.0, 1.0], (30, 20)), "l2", "interior point, dense"),
        (sp.random(60, 80, 0.05, random_state=0, format="csr"), "l1", "linear programme (HiGHS)"),
        (sp.random(60, 80, 0.05, random_state=0, format="csr"), "elastic", "interior point, sparse"),
        (-sp.random(60, 80, 0.05, random_state=0, format="csr"), "l1", "interior point, sparse"),
        (np.vstack([np.ones((1, 8)), np.kron(np.eye(2), np.ones((1, 4))), np.eye(8)]), "l1", "forest"),
        (sp.csr_array(np.tril(np.ones((9, 9)))), "elastic", "forest"),
    ],
)
def test_the_structure_chooses_the_solver(matrix, loss, solver):
    noisy = np.random.default_rng(1).normal(size=matrix.shape[0]) + 5.0
    fit = fit_matrix(matrix, noisy, loss=loss)
    assert fit.stats["solver"] == solver
    assert fit.status is Status.CONVERGED


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("nonnegative", [True, False])
def test_hierarchies_agree_with_general_solvers(loss, nonnegative, monkeypatch):
    rng = np.random.default_rng(2)
    groups = np.kron(np.eye(3), np.ones((1, 4)))
    matrix = np.vstack([np.ones((1, 12)), groups, np.eye(12)[[0, 1, 2, 3, 4, 5, 8]], groups[1:2]])
    noisy, weights = rng.laplace(0, 2, matrix.shape[0]) + 3.0, rng.choice([0.0, 0.5, 2.0], matrix.shape[0])
    fit = fit_matrix(matrix, noisy, loss=loss, weights=weights, nonnegative=nonnegative)
    monkeypatch.setattr(matrix_fit, "find_hierarchy", lambda *_: None)
    general = fit_matrix(matrix, noisy, loss=loss, weights=weights, nonnegative=nonnegative)
    assert fit.stats["solver"] == "forest"
    assert fit.objective == pytest.approx(general.objective, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
def test_clipped_answers_cost_nothing_below_0(loss, sparse):
    rng = np.random.default_rng(3)
    matrix = rng.choice([-1.0, 0.0, 1.0], (30, 10))
    noisy = matrix @ rng.poisson(2, 10) + rng.laplace(0, 3, 30)
    clipped = noisy < 0
    noisy = np.maximum(noisy, 0.0)
    fit = fit_matrix(sp.csr_array(matrix) if sparse else matrix, noisy, loss=loss, clipped=clipped)
    residual = matrix @ fit.counts - noisy
    felt = np.where(clipped, np.maximum(residual, 0.0), residual)
    assert fit.objective == pytest.approx(cost(felt, np.ones(30), loss))
    assert fit.gap <= 1e-7 * fit.objective
    assert fit.objective < fit_matrix(matrix, noisy, loss=loss).objective


@pytest.mark.parametrize("loss", LOSSES)
def test_cells_that_no_answer_touches_are_0(loss):
    matrix = np.array([[1.0, 0.0, 2.0], [1.0, 0.0, -1.0]])
    fit = fit_matrix(matrix, [4.0, 1.0], loss=loss)
    np.testing.assert_allclose(fit.counts, [2.0, 0.0, 1.0], atol=1e-5)
    nothing = fit_matrix(np.zeros((2, 3)), [4.0, 1.0], loss=loss)
    assert not nothing.counts.any()
    assert nothing.gap == 0.0
    unmeasured = fit_matrix(matrix, [4.0, 1.0], loss=loss, weights=[0.0, 0.0])
    assert unmeasured.objective == 0.0


@pytest.mark.parametrize("loss", LOSSES)
def test_one_row_and_one_column(loss):
    assert fit_matrix([[2.0]], [6.0], loss=loss).counts == pytest.approx([3.0], abs=1e-6)
    assert fit_matrix([[2.0]], [-6.0], loss=loss).counts == pytest.approx([0.0], abs=1e-6)
    assert fit_matrix([[2.0]], [-6.0], loss=loss, nonnegative=False).counts == pytest.approx([-3.0], abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_huge_and_tiny_answers(loss):
    rng = np.random.default_rng(4)
    matrix = rng.choice([-1.0, 1.0], (40, 20))
    cells = rng.poisson(5, 20).astype(float)
    for scale in (1e12, 1e-12):
        noisy = scale * (matrix @ cells + rng.laplace(0, 1, 40))
        fit = fit_matrix(matrix, noisy, loss=loss, weights=np.full(40, 1 / scale))
        assert fit.status is Status.CONVERGED


def test_bad_strategies_are_refused():
    with pytest.raises(DeclarationError, match="one row for each answer"):
        fit_matrix(np.ones((2, 2)), [1.0, 2.0, 3.0])
    with pytest.raises(DeclarationError, match="finite"):
        fit_matrix([[1.0, np.inf]], [1.0])
    with pytest.raises(DeclarationError, match="matrix of numbers"):
        fit_matrix([["a", "b"]], [1.0])
    with pytest.raises(DeclarationError, match="one axis for each factor"):
        fit_matrix(Kronecker((IdentityMap(2), SumMap(3))), [1.0, 2.0])
    with pytest.raises(DeclarationError, match="tolerance"):
        fit_matrix([[1.0]], [1.0], tolerance=2.0)
    with pytest.raises(DeclarationError, match="at least one step"):
        fit_matrix([[1.0]], [1.0], max_steps=0)
    with pytest.raises(MeasurementError):
        fit_matrix([[1.0]], [np.nan])
    with pytest.raises(TooLarge, match="memory_limit"):
        fit_matrix(np.random.default_rng(0).normal(size=(100, 100)), np.zeros(100), memory_limit=1000)


HAAR = SparseMap(sp.csr_array([[1.0, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]))
TREE = SparseMap(sp.csr_array(np.vstack([np.ones((1, 4)), np.kron(np.eye(2), np.ones((1, 2))), np.eye(4)])))
PRODUCTS = [
    Kronecker((PrefixMap(4), IdentityMap(3))),
    Kronecker((AllRangesMap(4), SumMap(2), HAAR)),
    Kronecker((TREE, HAAR)),
    Kronecker((TREE, TREE)),
]


def matrix_of(product: Kronecker) -> np.ndarray:
    columns = np.eye(int(np.prod(product.shape_in))).reshape(-1, *product.shape_in)
    return np.stack([product.apply(column).ravel() for column in columns], axis=1)


@pytest.mark.parametrize("way", ["written out", "factored", "iterated"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("product", PRODUCTS, ids=range(len(PRODUCTS)))
def test_kronecker_products_equal_their_matrices(product, loss, way, monkeypatch):
    if way != "written out":
        monkeypatch.setattr(matrix_fit, "SETTINGS", replace(matrix_fit.SETTINGS, written_out=0))
    if way == "iterated":
        monkeypatch.setattr(matrix_fit, "SETTINGS", replace(matrix_fit.SETTINGS, factored=0))
    rng = np.random.default_rng(5)
    noisy = product.apply(rng.poisson(2, product.shape_in).astype(float)) + rng.laplace(0, 2, product.shape_out)
    weights = rng.choice([0.5, 1.0], product.shape_out)
    for nonnegative in (True, False):
        fit = fit_matrix(product, noisy, loss=loss, weights=weights, nonnegative=nonnegative)
        flat = fit_matrix(
            matrix_of(product), noisy.ravel(), loss=loss, weights=weights.ravel(), nonnegative=nonnegative
        )
        tolerance = 2e-4 if way == "iterated" else 1e-7
        assert fit.counts.shape == product.shape_in
        assert fit.objective == pytest.approx(flat.objective, rel=tolerance, abs=1e-6)
        assert fit.gap >= fit.objective - flat.objective - 1e-7 * max(flat.objective, 1.0)
        assert fit.gap <= tolerance * fit.objective + 1e-6
        assert fit.status is Status.CONVERGED
        expected = {"written out": "", "factored": "interior point, Kronecker", "iterated": "alternating directions"}[
            way
        ]
        assert expected in fit.stats["solver"] or "least squares" in fit.stats["solver"]


def test_steps_that_run_out_are_reported(monkeypatch):
    monkeypatch.setattr(matrix_fit, "SETTINGS", replace(matrix_fit.SETTINGS, written_out=0))
    monkeypatch.setattr(matrix_fit, "SETTINGS", replace(matrix_fit.SETTINGS, factored=0))
    rng = np.random.default_rng(6)
    product = PRODUCTS[0]
    fit = fit_matrix(product, rng.normal(size=product.shape_out), loss="l1", tolerance=1e-9, max_steps=3)
    assert fit.status is Status.STEP_LIMIT
    assert fit.gap > 1e-9 * fit.objective


def test_a_product_with_many_more_rows_than_cells_is_solved_exactly(monkeypatch):
    monkeypatch.setattr(matrix_fit, "SETTINGS", replace(matrix_fit.SETTINGS, written_out=1_000_000))
    rng = np.random.default_rng(7)
    product = Kronecker((AllRangesMap(9), AllRangesMap(9), IdentityMap(2)))
    cells = rng.poisson(1, product.shape_in).astype(float)
    noisy = product.apply(cells) + rng.laplace(0, 3, product.shape_out)
    fit = fit_matrix(product, noisy, loss="l1")
    assert int(np.prod(product.shape_out)) * int(np.prod(product.shape_in)) > matrix_fit.SETTINGS.written_out / 2
    assert fit.gap <= 1e-8 * fit.objective
    assert fit.objective <= float(np.abs(product.apply(cells) - noisy).sum())


def test_no_cover_means_an_exact_fit_or_a_bound_all_the_same():
    """Columns that can cancel each other leave no room in the dual; bounds must hold nevertheless."""
    for seed, nonnegative in itertools.product(range(10), (True, False)):
        rng = np.random.default_rng(seed)
        half = rng.normal(size=(12, 4))
        matrix, noisy = np.hstack([half, -half]), rng.normal(size=12)
        for loss in ("l1", "l2"):
            fit = fit_matrix(matrix, noisy, loss=loss, nonnegative=nonnegative)
            twin = {"l1": least_l1, "l2": least_squares}[loss](matrix, noisy, np.ones(12), nonnegative=nonnegative)
            assert fit.objective == pytest.approx(twin, rel=1e-6)
            assert fit.gap >= fit.objective - twin - 1e-9


@pytest.mark.slow
def test_a_matrix_of_1024_signs():
    rng = np.random.default_rng(8)
    matrix = rng.choice([-1.0, 1.0], (1024, 1024))
    noisy = matrix @ rng.poisson(1, 1024) + rng.laplace(0, 1000, 1024)
    for loss in LOSSES:
        fit = fit_matrix(matrix, noisy, loss=loss, weights=np.full(1024, 1e-3))
        assert fit.status is Status.CONVERGED

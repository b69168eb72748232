"""`fit_matrix` with answers that are known exactly: met, optimal all the same, and refused where they contradict."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, Kronecker, PrefixMap
from consilience.solvers.fit import Infeasible, Status
from consilience.solvers.matrices.matrix_fit import fit_matrix

LOSSES = ("l1", "l2", "elastic")


def random_case(seed: int):
    """A matrix, noisy answers, weights and equations that some cells satisfy: sums, some of them 0 or repeated."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 40)), int(rng.integers(2, 25))
    matrix = [
        rng.choice([-1.0, 1.0], (rows, columns)),
        (rng.random((rows, columns)) < 0.3) * 1.0,
        rng.normal(size=(rows, columns)),
        rng.normal(size=(rows, 2)) @ rng.normal(size=(2, columns)),
    ][seed % 4]
    nonnegative = seed % 3 != 0
    cells = (rng.random(columns) < 0.6) * rng.gamma(1, 20, columns) - (0 if nonnegative else 5)
    groups = rng.integers(0, int(rng.integers(1, 5)), columns)
    exact = np.array([groups == group for group in range(groups.max() + 1)], dtype=float)
    exact = np.vstack([exact, np.ones(columns)]) if seed % 2 else exact[:1] * rng.integers(1, 4, columns)
    noisy = matrix @ cells + rng.laplace(0, 5, rows)
    weights = [None, 10 ** rng.uniform(-1.5, 1.5, rows)][seed % 2]
    return matrix, noisy, weights, (exact, exact @ cells), nonnegative


def cost(residual, weights, loss):
    size = (1.0 if weights is None else weights) * np.abs(residual)
    return float({"l1": size, "l2": size**2, "elastic": 0.9 * size + 0.1 * size**2}[loss].sum())


def least_l1(matrix, noisy, weights, equations, nonnegative) -> float:
    """The least Σ w|Ax − y| with Ex = e, by HiGHS."""
    rows, columns = matrix.shape
    weights = np.ones(rows) if weights is None else weights
    system = np.block([[matrix, -np.eye(rows), np.eye(rows)], [equations[0], np.zeros((len(equations[1]), 2 * rows))]])
    bounds = [(0 if nonnegative else None, None)] * columns + [(0, None)] * (2 * rows)
    cost = np.concatenate([np.zeros(columns), weights, weights])
    found = scipy.optimize.linprog(cost, A_eq=system, b_eq=np.concatenate([noisy, equations[1]]), bounds=bounds)
    assert found.status == 0
    return float(found.fun)


def least_squares(matrix, noisy, weights, equations, nonnegative) -> float:
    """The least Σ w²(Ax − y)² with Ex = e: by the null space, or over x ≥ 0 by a general solver started there."""
    weights = np.ones(len(noisy)) if weights is None else weights
    weighted, right = weights[:, None] * matrix, weights * noisy
    start = np.linalg.lstsq(equations[0], equations[1], rcond=None)[0]
    *_, singular, rotations = np.linalg.svd(equations[0])
    free = rotations[int(np.sum(singular > 1e-9)) :].T
    best = start + free @ np.linalg.lstsq(weighted @ free, right - weighted @ start, rcond=None)[0]
    if nonnegative:
        heavy = 1e5 * max(1.0, float(np.abs(weighted).max()))
        best = scipy.optimize.nnls(
            np.vstack([weighted, heavy * equations[0]]), np.concatenate([right, heavy * equations[1]]), maxiter=10_000
        )[0]
    return float(np.sum((weighted @ best - right) ** 2))


def assert_met(fit, equations):
    size = max(1.0, float(np.abs(equations[1]).max()))
    np.testing.assert_allclose(equations[0] @ fit.counts, equations[1], atol=1e-9 * size)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", ["l1", "l2"])
@pytest.mark.parametrize("seed", range(36))
def test_objectives_equal_those_of_other_solvers(seed, loss, sparse):
    matrix, noisy, weights, equations, nonnegative = random_case(seed)
    strategy = sp.csr_array(matrix) if sparse else matrix
    fit = fit_matrix(strategy, noisy, loss=loss, weights=weights, nonnegative=nonnegative, equations=equations)
    twin = {"l1": least_l1, "l2": least_squares}[loss](matrix, noisy, weights, equations, nonnegative)
    size = cost(noisy, weights, loss)
    assert fit.objective == pytest.approx(cost(matrix @ fit.counts - noisy, weights, loss), rel=1e-9, abs=1e-9 * size)
    assert fit.objective == pytest.approx(twin, rel=2e-5, abs=1e-7 * size)
    assert fit.gap <= 1e-6 * fit.objective + 1e-9 * size
    assert fit.gap >= fit.objective - twin - 2e-5 * max(twin, 1e-3 * size)
    assert_met(fit, equations)
    assert not nonnegative or fit.counts.min() >= 0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", range(24))
def test_the_elastic_net_is_certified(seed, sparse):
    """The certificate is checked by the other losses; here it must be small."""
    matrix, noisy, weights, equations, nonnegative = random_case(seed)
    strategy = sp.csr_array(matrix) if sparse else matrix
    fit = fit_matrix(strategy, noisy, weights=weights, nonnegative=nonnegative, equations=equations)
    assert fit.gap <= 1e-6 * fit.objective + 1e-9 * cost(noisy, weights, "elastic")
    assert_met(fit, equations)


@pytest.mark.parametrize("loss", LOSSES)
def test_equations_on_a_hierarchy_go_to_the_forest(loss):
    matrix = np.vstack([np.kron(np.eye(3), np.ones((1, 4))), np.eye(12)])
    noisy = np.random.default_rng(0).normal(5, 3, 15)
    fit = fit_matrix(matrix, noisy, loss=loss, equations=(np.ones((1, 12)), [70.0]))
    assert fit.stats["solver"] == "forest"
    assert fit.counts.sum() == pytest.approx(70.0)
    with pytest.raises(Infeasible) as caught:
        fit_matrix(matrix, noisy, loss=loss, equations=(np.vstack([np.ones(12), matrix[0]]), [5.0, 8.0]))
    assert caught.value.rows == (0, 1)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("product", [Kronecker((PrefixMap(40), IdentityMap(3))), Kronecker((AllRangesMap(9),))])
def test_equations_on_a_product_are_met(loss, product):
    rng = np.random.default_rng(1)
    truth = rng.poisson(4, product.shape_in).astype(float)
    noisy = product.apply(truth) + rng.laplace(0, 2, product.shape_out)
    fit = fit_matrix(product, noisy, loss=loss, equations=(np.ones((1, truth.size)), [truth.sum()]))
    assert fit.counts.shape == product.shape_in
    assert fit.counts.sum() == pytest.approx(truth.sum(), rel=1e-12)
    assert fit.status is Status.CONVERGED


@pytest.mark.parametrize("seed", range(10))
def test_free_least_squares_are_the_shortest(seed):
    matrix, noisy, weights, equations, _ = random_case(3 * seed)
    for given in (None, equations):
        for strategy in (matrix, sp.csr_array(matrix)):
            fit = fit_matrix(strategy, noisy, loss="l2", weights=weights, nonnegative=False, equations=given)
            unseen = matrix if given is None else np.vstack([matrix, given[0]])
            _, singular, rotations = np.linalg.svd(unseen)
            kernel = rotations[int(np.sum(singular > 1e-9 * singular[0])) :]
            np.testing.assert_allclose(kernel @ fit.counts, 0.0, atol=1e-6 * max(1.0, np.abs(fit.counts).max()))


@pytest.mark.parametrize(
    ("equations", "rows"),
    [
        (([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]], [3.0, 5.0]), (0, 1)),
        (([[1.0, 2.0, 0.0]], [-4.0]), (0,)),
        (([[1.0, 0.0, 0.0], [1.0, 1.0, 2.0], [0.0, 1.0, 2.0]], [4.0, 3.0, 2.0]), (0, 1, 2)),
        (([[0.0, 0.0, 0.0]], [1.0]), (0,)),
    ],
)
def test_contradictions_are_refused_with_the_least_violation(equations, rows):
    matrix = np.random.default_rng(0).normal(size=(5, 3))
    exact, values = (np.array(part) for part in equations)
    nearest = scipy.optimize.nnls(exact, values)[0]
    with pytest.raises(Infeasible, match="contradict each other") as caught:
        fit_matrix(matrix, np.zeros(5), equations=equations)
    assert caught.value.rows == rows
    assert caught.value.violation == pytest.approx(np.abs(exact @ nearest - values).max(), rel=1e-6)


def test_bad_equations_are_refused():
    with pytest.raises(DeclarationError, match="a column for each cell"):
        fit_matrix([[1.0, 2.0]], [1.0], equations=([[1.0]], [1.0]))
    with pytest.raises(DeclarationError, match="not finite"):
        fit_matrix([[1.0, 2.0]], [1.0], equations=([[1.0, np.nan]], [1.0]))
    with pytest.raises(TooLarge, match="exact answers"):
        fit_matrix([[1.0, 2.0]], [1.0], equations=(np.ones((3000, 2)), np.ones(3000)))


def test_equations_that_settle_everything_leave_nothing_to_fit():
    fit = fit_matrix([[1.0, -1.0], [2.0, 1.0]], [5.0, 1.0], equations=(np.eye(2), [4.0, 0.0]))
    np.testing.assert_allclose(fit.counts, [4.0, 0.0], atol=1e-12)
    empty = fit_matrix([[1.0, -1.0], [2.0, 1.0]], [5.0, 1.0], equations=(np.ones((1, 2)), [0.0]))
    assert not empty.counts.any()

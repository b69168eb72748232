"""Factors of sparse quasi-definite systems against dense linear algebra, and their patterns against elimination."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from consilience.solvers.matrices import matrix_fit, strategies
from consilience.solvers.matrices.matrix_fit import fit_matrix
from consilience.solvers.matrices.sparse_factor import Pattern, SparseFactor, find_pattern, minimum_degree
from consilience.solvers.matrices.strategies import SparseStrategy


def random_system(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The part below the diagonal, and a diagonal that makes the whole quasi-definite."""
    rng = np.random.default_rng(seed)
    columns, rows = int(rng.integers(1, 40)), int(rng.integers(1, 60))
    matrix = (rng.random((rows, columns)) < rng.choice([0.02, 0.1, 0.5])) * rng.normal(size=(rows, columns))
    if seed % 3 == 0:
        matrix[0] = 1.0
    lower = np.zeros((columns + rows, columns + rows))
    lower[columns:, :columns] = matrix
    return lower, np.concatenate([10.0 ** rng.uniform(-3, 3, columns), -(10.0 ** rng.uniform(-3, 3, rows))])


def pattern_of(lower: np.ndarray, positive: int) -> Pattern | None:
    matrix = lower[positive:, :positive]
    return find_pattern(sp.csr_array(matrix), sp.csr_array(matrix.T), np.inf)


def entries_by_elimination(system: np.ndarray, order: np.ndarray) -> list[int]:
    """How many unknowns each one touches when it is eliminated in this order: with sets, one after the other."""
    touching = [set(np.flatnonzero(line)) - {place} for place, line in enumerate(system)]
    found = []
    for unknown in order:
        neighbours = touching[unknown]
        found.append(len(neighbours))
        for other in neighbours:
            touching[other] = (touching[other] | neighbours) - {other, unknown}
    return found


@pytest.mark.parametrize("seed", range(30))
def test_systems_are_solved_and_have_the_entries_that_elimination_leaves(seed):
    lower, diagonal = random_system(seed)
    whole = lower + lower.T + np.diag(diagonal)
    pattern = pattern_of(lower, int((diagonal > 0.0).sum()))
    assert pattern is not None
    assert sorted(pattern.order) == list(range(len(whole)))
    entries = entries_by_elimination(whole, pattern.order)
    assert np.diff(pattern.columns).tolist() == entries[: pattern.tail]
    assert np.all(diagonal[pattern.order[pattern.tail :]][: pattern.positive] > 0.0)
    assert np.all(diagonal[pattern.order[pattern.tail :]][pattern.positive :] < 0.0)
    right = np.random.default_rng(seed).normal(size=len(whole))
    found = SparseFactor.of(pattern, diagonal).solve(right)
    assert whole @ found == pytest.approx(right, abs=1e-9 * float(np.abs(found).max() * np.abs(whole).max()))


@pytest.mark.parametrize("seed", range(10))
def test_the_order_is_nearly_as_good_as_that_of_exact_degrees(seed):
    lower, diagonal = random_system(100 + seed)
    whole = lower + lower.T + np.diag(diagonal)
    pattern = pattern_of(lower, int((diagonal > 0.0).sum()))
    assert pattern is not None
    touching = {place: set(np.flatnonzero(line)) - {place} for place, line in enumerate(whole)}
    exact = 0
    while touching:
        unknown = min(touching, key=lambda each: len(touching[each]))
        neighbours = touching.pop(unknown)
        exact += len(neighbours)
        for other in neighbours:
            touching[other] = (touching[other] | neighbours) - {other, unknown}
    tail = len(whole) - pattern.tail
    assert pattern.columns[-1] + tail * (tail - 1) / 2 <= 1.2 * exact + 10


def test_an_order_that_takes_too_much_work_is_given_up_and_what_is_dense_is_left_to_the_tail():
    path = sp.csc_array(sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(50, 50)))
    starts, rows = path.indptr.astype(np.int64), path.indices.astype(np.int32)
    assert minimum_degree(starts, rows, 48.0)[1] == 48
    assert minimum_degree(starts, rows, 47.0)[1] == -1
    whole = sp.csc_array(np.ones((50, 50)) - np.eye(50))
    assert minimum_degree(whole.indptr.astype(np.int64), whole.indices.astype(np.int32), 1.0)[1] == 0


@pytest.mark.parametrize("seed", range(5))
def test_slopes_are_lifted_by_the_shortest_change(seed):
    rng = np.random.default_rng(seed)
    matrix = (rng.random((50, 30)) < 0.2) * rng.choice([-1.0, 1.0], (50, 30))
    lengths = np.sqrt((matrix**2).sum(axis=0))
    matrix /= np.where(lengths > 0.0, lengths, 1.0)
    slopes = matrix.T @ rng.normal(size=50)
    lifted = SparseStrategy(sp.csr_array(matrix)).lift(slopes)
    assert lifted == pytest.approx(np.linalg.pinv(matrix.T) @ slopes, abs=1e-8)


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("loss", ["l1", "elastic"])
@pytest.mark.parametrize("signed", [True, False])
def test_what_factors_a_sparse_strategy_does_not_change_the_optimum(signed, loss, nonnegative, monkeypatch):
    rng = np.random.default_rng(5)
    signs = rng.choice([-1.0, 1.0], (120, 80)) if signed else 1.0
    matrix = sp.csr_array((rng.random((120, 80)) < 0.04) * signs)
    noisy, weights = matrix @ rng.poisson(3, 80) + rng.laplace(0, 4, 120), rng.choice([0.0, 0.2, 0.3], 120)
    found = []
    for trial, work in ((0.0, np.inf), (0.0, 0.0), (np.inf, 0.0)):
        monkeypatch.setattr(matrix_fit, "SETTINGS", replace(matrix_fit.SETTINGS, trial=min(trial, 1e6), light=np.inf))
        monkeypatch.setattr(strategies, "SETTINGS", replace(strategies.SETTINGS, most_work=work))
        found.append(fit_matrix(matrix, noisy, loss=loss, weights=weights, nonnegative=nonnegative))
        assert found[-1].gap <= 1e-8 * found[-1].objective
    assert found[0].stats["solver"] == "interior point, sparse"
    assert found[1].stats["solver"] == ("linear programme (HiGHS)" if loss == "l1" else "interior point, sparse")
    assert [each.objective for each in found] == pytest.approx([found[0].objective] * 3, rel=1e-8)

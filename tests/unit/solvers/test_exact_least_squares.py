"""The exact fit of small tables, against a brute-force search over which cells are empty."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.solvers.tables.signed_fit import determines_every_cell, fit_exactly


def best_of_all_supports(matrix: np.ndarray, observed: np.ndarray, total: float | None) -> float:
    """The least ½‖Bx − c‖² over x ≥ 0, by trying every set of cells that may be positive."""
    cells, least = matrix.shape[1], np.inf
    for size in range(cells + 1):
        for chosen in itertools.combinations(range(cells), size):
            x = np.zeros(cells)
            if size:
                part = matrix[:, chosen]
                if total is None:
                    x[list(chosen)] = np.linalg.lstsq(part, observed, rcond=None)[0]
                else:
                    system = np.block([[part.T @ part, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
                    x[list(chosen)] = np.linalg.solve(system, np.append(part.T @ observed, total))[:size]
            elif total:
                continue
            if x.min() >= -1e-12:
                least = min(least, 0.5 * float(np.sum((matrix @ x - observed) ** 2)))
    return least


@given(seed=st.integers(0, 10_000), cells=st.integers(1, 7), known=st.booleans())
def test_no_choice_of_empty_cells_does_better(seed: int, cells: int, known: bool):
    rng = np.random.default_rng(seed)
    matrix = np.vstack([np.eye(cells), rng.integers(0, 2, (3, cells))])
    observed = rng.normal(0.5, 3.0, len(matrix))
    total = 4.0 if known else None
    fit = fit_exactly(matrix, observed, total=total)
    assert fit is not None
    assert fit.counts.min() >= 0
    assert fit.objective == pytest.approx(best_of_all_supports(matrix, observed, total), rel=1e-9, abs=1e-9)
    assert 0 <= fit.gap < 1e-9 * max(1.0, fit.objective)
    if known:
        assert fit.counts.sum() == pytest.approx(4.0)


def test_cells_that_are_not_told_apart_are_left_to_others():
    assert fit_exactly(np.ones((1, 2)), np.array([3.0])) is None
    assert not determines_every_cell(np.diag([1.0, 1e-13]))


def test_impossible_cells_stay_empty_and_need_not_be_determined():
    matrix = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    fit = fit_exactly(matrix, np.array([2.0, 5.0]), allowed=np.array([True, True, False]))
    assert fit is not None
    np.testing.assert_allclose(fit.counts, [2.0, 5.0, 0.0])


def test_a_total_of_nothing_is_an_empty_table():
    fit = fit_exactly(np.eye(3), np.array([2.0, 5.0, -1.0]), total=0.0)
    assert fit is not None
    assert fit.counts.tolist() == [0.0, 0.0, 0.0]

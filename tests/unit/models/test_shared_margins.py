"""Coarse corrections and balanced potentials, against written-out matrices and joint tables."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.models.fitting.shared_margins import CoarseCorrection, SharedMargins

SIZES = [3, 2, 4, 2, 3]
TABLES = st.lists(
    st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True).map(tuple),
    min_size=1,
    max_size=5,
    unique_by=frozenset,
)


def begins_of(tables: list[tuple[int, ...]]) -> list[int]:
    cells = [int(np.prod([SIZES[a] for a in table])) for table in tables]
    return np.cumsum([0, *cells]).tolist()


def members(tables: list[tuple[int, ...]]) -> np.ndarray:
    """For each cell of the joint table, which cells of the tables it belongs to."""
    rows = []
    for cell in itertools.product(*(range(size) for size in SIZES)):
        row = []
        for table in tables:
            own = np.zeros([SIZES[a] for a in table])
            own[tuple(cell[a] for a in table)] = 1.0
            row.append(own.ravel())
        rows.append(np.concatenate(row))
    return np.array(rows)


@given(tables=TABLES, seed=st.integers(0, 100))
def test_balancing_changes_no_model(tables: list[tuple[int, ...]], seed: int) -> None:
    begins = begins_of(tables)
    potentials = 5 * np.random.default_rng(seed).normal(size=begins[-1])
    balanced = potentials.copy()
    SharedMargins.of(SIZES, tables, begins[:-1]).balance(balanced)
    joint = members(tables)
    assert joint @ balanced == pytest.approx(joint @ potentials, abs=1e-10)


def test_balancing_undoes_what_cancels() -> None:
    """+100 for one value in one table and −100 in the other say nothing."""
    tables = [(0, 1), (1, 2)]
    begins = begins_of(tables)
    potentials = np.zeros(begins[-1])
    potentials[: begins[1]].reshape(3, 2)[:, 1] += 100.0
    potentials[begins[1] :].reshape(2, 4)[1] -= 100.0
    SharedMargins.of(SIZES, tables, begins[:-1]).balance(potentials)
    assert potentials == pytest.approx(np.zeros(begins[-1]), abs=1e-12)


def equations(tables: list[tuple[int, ...]], seed: int, rho: float) -> tuple[np.ndarray, CoarseCorrection]:
    """diag(h) + ρ·WCW of a random joint table, written out, and its approximate inverse."""
    rng = np.random.default_rng(seed)
    joint, begins = members(tables), begins_of(tables)
    table = 1000.0 * rng.dirichlet(np.full(len(joint), 0.3))
    cells = joint.T @ table
    covariance = (joint.T * table) @ joint - np.outer(cells, cells) / table.sum()
    weights, stiffness = rng.uniform(0.5, 2.0, begins[-1]), rng.uniform(0.5, 2.0, begins[-1])
    matrix = np.diag(stiffness) + rho * weights[:, None] * covariance * weights
    correction = CoarseCorrection(SharedMargins.of(SIZES, tables, begins[:-1]), weights)
    variances = weights**2 * np.diag(covariance)
    correction.move_to(stiffness, cells, variances, rho=rho, total=table.sum(), ridge=0.0)
    return matrix, correction


def inverse_of(correction: CoarseCorrection, size: int) -> np.ndarray:
    columns = np.empty((size, size))
    for place in range(size):
        out = np.empty(size)
        correction(np.eye(size)[place], out)
        columns[:, place] = out
    return columns


@pytest.mark.parametrize("seed", range(3))
def test_the_correction_is_symmetric_and_positive(seed: int) -> None:
    tables = [(0, 1), (1, 2), (2, 3), (0, 4)]
    matrix, correction = equations(tables, seed, 10.0)
    inverse = inverse_of(correction, len(matrix))
    assert inverse == pytest.approx(inverse.T)
    assert np.linalg.eigvalsh(inverse).min() > 0
    target = np.random.default_rng(seed).normal(size=len(matrix))
    out = np.empty(len(matrix))
    assert correction(target, out) == pytest.approx(target @ inverse @ target)


@pytest.mark.parametrize("rho", [1.0, 1e2, 1e4])
def test_the_corrected_equations_stay_well_conditioned_where_the_diagonal_alone_does_not(rho: float) -> None:
    tables = [(0, 1), (1, 2), (2, 3), (3, 4)]
    matrix, correction = equations(tables, 0, rho)
    inverse = inverse_of(correction, len(matrix))
    values = np.linalg.eigvals(inverse @ matrix).real
    alone = np.linalg.eigvals(matrix / np.diag(matrix)[:, None]).real
    assert values.max() / values.min() < 60
    if rho > 10:
        assert values.max() / values.min() < 0.5 * alone.max() / alone.min()

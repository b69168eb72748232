"""Fast transforms against the matrix that they stand for."""

import itertools

import numpy as np
import pytest

from consilience.solvers.marginal_tables.dual_methods import normal_equations
from consilience.solvers.marginal_tables.marginal_basis import (
    CellLayout,
    IndicatorBasis,
    MarginalBasis,
    frequencies_of,
    hartley,
)

SHAPES = [(2, 3, 4), (2, 2, 2), (5,), (3, 1, 2, 2), (4, 6), (3, 3, 3), (7, 2, 5, 2), (2,), (1,), ()]


def written_out(layout: CellLayout, frequencies: np.ndarray) -> np.ndarray:
    """The rows cas θ_u, by the definition."""
    sizes = layout.sizes or (1,)
    cells, waves = np.unravel_index(np.arange(layout.cells), sizes), np.unravel_index(frequencies, sizes)
    angle = np.zeros((frequencies.size, layout.cells))
    for axis, size in enumerate(sizes):
        angle += 2 * np.pi * np.outer(waves[axis], cells[axis]) / size
    return np.cos(angle) + np.sin(angle)


def pairwise(shape: tuple[int, ...]) -> tuple[CellLayout, np.ndarray]:
    """The frequencies that all marginals of two attributes fix."""
    layout = CellLayout(shape)
    sets = itertools.combinations(range(len(shape)), min(2, len(shape)))
    return layout, np.unique(np.concatenate([frequencies_of(layout, layout.places(axes)) for axes in sets]))


@pytest.mark.parametrize("shape", SHAPES)
def test_products_equal_those_of_the_matrix(shape):
    rng = np.random.default_rng(0)
    layout, frequencies = pairwise(shape)
    basis, matrix = MarginalBasis(layout, frequencies), written_out(layout, frequencies)
    cells, duals = rng.normal(size=layout.cells), rng.normal(size=frequencies.size)
    np.testing.assert_allclose(basis.apply(cells), matrix @ cells, atol=1e-12)
    np.testing.assert_allclose(basis.adjoint(duals), matrix.T @ duals, atol=1e-12)
    np.testing.assert_allclose(basis.gram(cells), (matrix * cells) @ matrix.T, atol=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_orthogonal(shape):
    layout, frequencies = pairwise(shape)
    gram = MarginalBasis(layout, frequencies).gram(np.ones(layout.cells))
    np.testing.assert_allclose(gram, layout.cells * np.eye(frequencies.size), atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_marginal_fixes_its_own_frequencies(shape):
    rng = np.random.default_rng(1)
    layout = CellLayout(shape)
    cells = rng.random(layout.cells)
    for count in range(len(layout.sizes) + 1):
        places = tuple(range(count))
        coordinates = written_out(layout, frequencies_of(layout, places)) @ cells
        np.testing.assert_allclose(hartley([layout.marginal(cells, places)])[0], coordinates, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_layout_keeps_every_cell(shape):
    table = np.arange(float(np.prod(shape))).reshape(shape)
    layout = CellLayout(shape)
    np.testing.assert_array_equal(layout.table(layout.flat(table)), table)


def test_hartley_is_its_own_inverse():
    values = np.random.default_rng(2).normal(size=(3, 4, 2))
    np.testing.assert_allclose(hartley([hartley([values])[0].reshape(3, 4, 2)])[0] / 24, values.ravel(), atol=1e-14)


def test_restricted_rows_are_some_of_the_rows():
    layout, frequencies = pairwise((3, 4, 2))
    basis, kept = MarginalBasis(layout, frequencies), np.array([0, 3, 5])
    cells = np.random.default_rng(3).random(layout.cells)
    np.testing.assert_allclose(basis.restricted(kept).apply(cells), basis.apply(cells)[kept])
    np.testing.assert_allclose(basis.restricted(kept).gram(cells), basis.gram(cells)[np.ix_(kept, kept)])


SETS = [[(0, 1), (1, 2)], [(0,), (2, 1)], [(0, 1), (0, 2), (1, 2)], [(), (0,)], [(0, 1, 2), (2, 3), (0, 3), (1,)]]


def indicators(shape: tuple[int, ...], sets: list[tuple[int, ...]]) -> tuple[IndicatorBasis, np.ndarray, np.ndarray]:
    """The basis for these marginals, its rows written out, and a table with what its marginals say of them."""
    layout, table = CellLayout(shape), np.random.default_rng(4).random(shape)
    cells = layout.flat(table)
    known = [(places, layout.marginal(cells, places)) for places in map(layout.places, sets)]
    basis, target = IndicatorBasis.of(layout, known)
    matrix = np.zeros((basis.rows, layout.cells))
    for cell, rows in enumerate(basis.row_of):
        matrix[rows[rows >= 0], cell] = 1.0
    np.testing.assert_allclose(matrix @ cells, target, atol=1e-12)
    return basis, matrix, cells


@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("shape", [(3, 4, 2, 3), (2, 2, 2, 2), (5, 1, 3, 2)])
def test_indicators_span_what_the_frequencies_of_the_marginals_span(shape, sets):
    basis, matrix, _ = indicators(shape, sets)
    layout = basis.layout
    waves = written_out(layout, np.unique(np.concatenate([frequencies_of(layout, layout.places(s)) for s in sets])))
    assert basis.rows == len(waves) == np.linalg.matrix_rank(matrix)
    assert np.linalg.matrix_rank(np.vstack([matrix, waves])) == basis.rows


@pytest.mark.parametrize("sets", SETS)
def test_products_with_indicators_equal_those_of_the_matrix(sets):
    basis, matrix, cells = indicators((3, 4, 2, 3), sets)
    for kept in (np.arange(basis.rows), np.arange(1, basis.rows, 2)):
        part, rows = basis.restricted(kept), matrix[kept]
        duals = np.random.default_rng(5).normal(size=len(rows))
        np.testing.assert_allclose(part.apply(cells), rows @ cells, atol=1e-12)
        np.testing.assert_allclose(part.adjoint(duals), rows.T @ duals, atol=1e-12)
        np.testing.assert_allclose(part.gram(cells), (rows * cells) @ rows.T, atol=1e-12)
        solved = normal_equations(part, cells).solve(duals)
        np.testing.assert_allclose((rows * cells) @ rows.T @ solved, duals, atol=1e-9)

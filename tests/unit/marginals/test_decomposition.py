"""The residual decomposition against sums over a full table written out."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.marginals.decomposition import Decomposition, residual_of
from consilience.marginals.table_stacks import TableStack, maximal, stored_order, summed


@st.composite
def families(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    sizes = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=5)))
    every = [c for k in range(4) for c in itertools.combinations(range(len(sizes)), min(k, len(sizes)))]
    return sizes, draw(st.lists(st.sampled_from(every), min_size=1, max_size=5))


def marginals_of(table: np.ndarray, stack: TableStack) -> np.ndarray:
    found = np.empty(stack.size)
    for scope in stack.scopes:
        stack.table(found, scope)[...] = summed(table, tuple(range(table.ndim)), scope)
    return found


def residuals_of(table: np.ndarray, decomposition: Decomposition) -> np.ndarray:
    found = marginals_of(table, decomposition.residuals)
    for scope in decomposition.residuals.scopes:
        part = decomposition.residuals.table(found, scope)
        part[...] = residual_of(part)
    return found


@given(families(), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_marginals_are_made_of_their_residuals(family, seed: int) -> None:
    sizes, scopes = family
    table = np.random.default_rng(seed).normal(size=sizes)
    decomposition = Decomposition(sizes, scopes)
    made = decomposition.marginals(residuals_of(table, decomposition))
    assert np.allclose(made, marginals_of(table, decomposition.tables), atol=1e-10)


@given(families(), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_the_adjoint_is_the_transpose_on_residuals(family, seed: int) -> None:
    sizes, scopes = family
    rng = np.random.default_rng(seed)
    decomposition = Decomposition(sizes, scopes)
    residuals = residuals_of(rng.normal(size=sizes), decomposition)
    tables = rng.normal(size=decomposition.tables.size)
    one = decomposition.marginals(residuals) @ tables
    other = residuals @ decomposition.adjoint(tables)
    assert np.isclose(one, other, atol=1e-9)


@given(families(), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_weighted_squares_of_tables_are_weighted_squares_of_residuals(family, seed: int) -> None:
    sizes, scopes = family
    rng = np.random.default_rng(seed)
    decomposition = Decomposition(sizes, scopes)
    weights = {scope: float(rng.uniform(0.1, 5.0)) for scope in decomposition.tables.scopes}
    residuals = residuals_of(rng.normal(size=sizes), decomposition)
    tables = decomposition.marginals(residuals)
    squares = np.sum(decomposition.tables.spread(weights) * tables**2)
    precisions = decomposition.residuals.spread(decomposition.precisions(weights))
    assert np.isclose(squares, np.sum(precisions * residuals**2))
    pulled = decomposition.adjoint(decomposition.tables.spread(weights) * tables)
    assert np.allclose(pulled, precisions * residuals, atol=1e-9)


def test_tables_of_one_shape_form_one_group() -> None:
    stack = TableStack((3, 2, 3, 3), [stored_order((3, 2, 3, 3), c) for c in itertools.combinations(range(4), 2)])
    assert [(group.shape, len(group.scopes)) for group in stack.groups] == [((2, 3), 3), ((3, 3), 3)]


def test_only_the_largest_scopes_stay() -> None:
    assert maximal([(0, 1), (1,), (), (2,), (2, 1, 0), (3, 0)]) == [(3, 0), (2, 1, 0)]
    assert maximal([()]) == [()]

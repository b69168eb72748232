"""Margins of a target, read from views."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import DeclarationError
from consilience.marginals.margin_layouts import MarginLayout
from consilience.marginals.margins import ViewReader, largest_masks
from consilience.marginals.table_stacks import TableStack, summed

SIZES = (2, 3, 2, 4, 2, 3)


@st.composite
def stacks(draw: st.DrawFn) -> tuple[TableStack, np.ndarray, tuple[int, ...]]:
    scope = st.lists(st.integers(0, 5), unique=True, max_size=4).map(tuple)
    scopes = draw(st.lists(scope, min_size=1, max_size=6, unique_by=frozenset))
    target = draw(st.lists(st.integers(0, 5), unique=True, max_size=4).map(tuple))
    stack = TableStack(SIZES, scopes)
    return stack, np.random.default_rng(len(scopes)).normal(size=stack.size), target


@settings(max_examples=25, deadline=None)
@given(stacks())
def test_every_view_tells_its_sum_over_the_common_attributes(case) -> None:
    stack, flat, target = case
    found = ViewReader(stack, flat).margins(target, maximal=False)
    meeting = [scope for scope in stack.scopes if set(scope) & set(target)]
    expected = []
    for scope in meeting:
        kept = tuple(attribute for attribute in target if attribute in scope)
        expected.append((tuple(target.index(each) for each in kept), summed(stack.table(flat, scope), scope, kept)))
    assert len(found) == len(expected)
    for axes, table in found:
        assert any(
            axes == other and table.shape == values.shape and np.allclose(table, values) for other, values in expected
        )


@settings(max_examples=40, deadline=None)
@given(stacks())
def test_the_largest_intersections_are_told_once_each(case) -> None:
    stack, flat, target = case
    every = ViewReader(stack, flat).margins(target, maximal=False)
    largest = ViewReader(stack, flat).margins(target)
    distinct = {axes for axes, _ in every}
    kept = {axes for axes in distinct if not any(set(axes) < set(other) for other in distinct)}
    assert sorted(axes for axes, _ in largest) == sorted(kept)
    for axes, table in largest:
        assert any(axes == other and np.allclose(table, values) for other, values in every)


def test_views_of_one_table_tell_its_margins() -> None:
    table = np.random.default_rng(0).gamma(1.0, 1.0, SIZES)
    scopes = [(0, 1, 2), (2, 3), (4, 5, 0), (1, 4)]
    stack = TableStack(SIZES, scopes)
    flat = np.empty(stack.size)
    for scope in stack.scopes:
        stack.table(flat, scope)[...] = summed(table, tuple(range(6)), scope)
    reader = ViewReader(stack, flat)
    for target in itertools.permutations(range(6), 3):
        whole = summed(table, tuple(range(6)), target)
        for axes, values in reader.margins(target):
            assert np.allclose(values, whole.sum(axis=tuple(axis for axis in range(3) if axis not in axes)))


def test_targets_and_vectors_that_do_not_fit_are_refused() -> None:
    stack = TableStack(SIZES, [(0, 1)])
    with pytest.raises(DeclarationError, match="distinct"):
        ViewReader(stack, np.zeros(stack.size)).margins((0, 0))
    with pytest.raises(DeclarationError, match="between 0 and 5"):
        ViewReader(stack, np.zeros(stack.size)).margins((0, 6))
    with pytest.raises(DeclarationError, match="6 cells"):
        ViewReader(stack, np.zeros(5)).margins((0,))


def test_largest_masks_are_part_of_no_other() -> None:
    assert largest_masks([]) == []
    assert largest_masks([0]) == []
    assert largest_masks([0b0110, 0b0010, 0b1000, 0b0110, 0b1100]) == [0b0110, 0b1100]


@pytest.mark.parametrize("shape", [(2, 2, 2, 2), (3, 2, 4), (5, 3), (1, 2, 3), (70, 2)])
def test_coefficients_are_orthogonal_and_made_once(shape: tuple[int, ...]) -> None:
    axis_sets = list(itertools.combinations(range(len(shape)), len(shape) - 1))
    layout = MarginLayout.of(shape, axis_sets)
    rng = np.random.default_rng(0)
    table = rng.normal(size=layout.cells)
    gathered = layout.margins(table)
    every = range(len(shape))
    whole = table.reshape(shape)
    expected = [whole.sum(axis=tuple(axis for axis in every if axis not in axes)).ravel() for axes in axis_sets]
    assert np.allclose(gathered, np.concatenate(expected))
    coefficients = layout.coefficients(gathered)
    assert np.allclose(layout.of_coefficients(coefficients), gathered)
    contrasts = np.array([layout.energies(row) for row in np.eye(layout.rows)])
    assert np.allclose(contrasts @ contrasts.T, layout.cells * np.eye(layout.rows))
    assert np.allclose(contrasts @ table, coefficients)
    added = rng.normal(size=gathered.size)
    assert np.allclose(layout.energies(layout.parameters(added)), layout.spread(added))

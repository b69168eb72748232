"""Residuals of least squares against a dense fit over the full table."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, LinearMap, PrefixMap, SparseMap
from consilience.marginals.decomposition import Decomposition
from consilience.marginals.least_squares import (
    KnownTable,
    NoisyTable,
    axis_precision,
    determines_differences,
    determines_its_axis,
    fit_residuals,
    known_residuals,
)
from consilience.marginals.table_stacks import stored_order, summed
from consilience.solvers.fit import Infeasible

SIZES = (2, 3, 4)
EVERY = [c for k in range(4) for c in itertools.combinations(range(3), k)]


def rows_of(each: NoisyTable) -> np.ndarray:
    """The answers' matrix over the cells of the full table."""
    cells = math.prod(SIZES)
    columns = []
    for unit in np.eye(cells):
        table = summed(unit.reshape(SIZES), (0, 1, 2), each.scope)
        for axis, map_ in enumerate(each.maps):
            table = map_.apply(table, axis)
        columns.append(np.asarray(table).ravel())
    return np.stack(columns, axis=1)


def identities(scope: tuple[int, ...]) -> tuple[LinearMap, ...]:
    return tuple(IdentityMap(SIZES[attribute]) for attribute in scope)


def dense_table(noisy: list[NoisyTable], facts: Sequence[KnownTable] = ()) -> np.ndarray:
    """Weighted least squares over all cells; facts as rows of enormous weight."""
    exact = [
        NoisyTable(each.scope, identities(each.scope), each.table.ravel(), np.full(each.table.size, 1e12))
        for each in facts
    ]
    every = [*noisy, *exact]
    matrix = np.concatenate([rows_of(each) * np.sqrt(each.precisions)[:, None] for each in every])
    values = np.concatenate([each.values * np.sqrt(each.precisions) for each in every])
    return np.linalg.lstsq(matrix, values, rcond=1e-13)[0].reshape(SIZES)


def noisy_table(scope, rng, *, maps: tuple[LinearMap, ...] | None = None, precision=None) -> NoisyTable:
    maps = identities(scope) if maps is None else maps
    rows = math.prod(each.rows for each in maps)
    precision = float(rng.uniform(0.2, 4.0)) if precision is None else precision
    return NoisyTable(scope, maps, rng.normal(20, 10, rows), np.broadcast_to(precision, rows).copy())


def check_against_dense(noisy: list[NoisyTable], facts: Sequence[KnownTable] = ()) -> None:
    scopes = dict.fromkeys(stored_order(SIZES, each.scope) for each in noisy)
    decomposition = Decomposition(SIZES, scopes, also=[each.scope for each in facts])
    fitted = fit_residuals(decomposition, noisy, known_residuals(decomposition, facts))
    tables = decomposition.marginals(fitted.residuals)
    dense = dense_table(noisy, facts)
    for scope in decomposition.tables.scopes:
        expected = summed(dense, (0, 1, 2), scope)
        assert np.allclose(decomposition.tables.table(tables, scope), expected, atol=1e-4)


@given(st.lists(st.sampled_from(EVERY), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_noisy_marginals_have_the_dense_fit(scopes, seed: int) -> None:
    rng = np.random.default_rng(seed)
    check_against_dense([noisy_table(tuple(rng.permutation(scope)), rng) for scope in scopes])


def test_queries_of_full_rank_have_the_dense_fit() -> None:
    rng = np.random.default_rng(1)
    tree = SparseMap(sp.csr_array(np.array([[1.0, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]])))
    noisy = [
        noisy_table((2, 0), rng, maps=(PrefixMap(4), IdentityMap(2))),
        noisy_table((1, 2), rng, maps=(IdentityMap(3), AllRangesMap(4))),
        noisy_table((2,), rng, maps=(tree,)),
        noisy_table((0, 1), rng),
    ]
    check_against_dense(noisy)


def test_unequal_variances_in_one_table_have_the_dense_fit() -> None:
    rng = np.random.default_rng(2)
    noisy = [noisy_table((0, 1), rng, precision=rng.uniform(0.1, 3.0, 6)), noisy_table((1, 2), rng)]
    check_against_dense(noisy)


def test_exact_tables_are_kept_and_the_rest_fits_best() -> None:
    rng = np.random.default_rng(3)
    truth = rng.uniform(1, 9, SIZES)
    facts = [
        KnownTable((1, 0), summed(truth, (0, 1, 2), (1, 0)), "counts by b, a"),
        KnownTable((2,), summed(truth, (0, 1, 2), (2,)), "counts by c"),
    ]
    check_against_dense([noisy_table((0, 1), rng), noisy_table((1, 2), rng), noisy_table((), rng)], facts)


def test_precisions_are_those_of_the_residuals_noise() -> None:
    rng = np.random.default_rng(4)
    decomposition = Decomposition(SIZES, [(0, 1), (1, 2)])
    draws, precision = [], 0.0
    for _ in range(2000):
        noisy = [
            NoisyTable((0, 1), (IdentityMap(2), IdentityMap(3)), rng.normal(0, 2, 6), np.full(6, 0.25)),
            NoisyTable((1, 2), (IdentityMap(3), IdentityMap(4)), rng.normal(0, 1, 12), np.full(12, 1.0)),
        ]
        fitted = fit_residuals(decomposition, noisy, {})
        precision = fitted.precisions[(1,)]
        draws.append(float(np.sum(decomposition.residuals.table(fitted.residuals, (1,)) ** 2)))
    assert precision == pytest.approx(0.25 / 2 + 1 / 4)
    assert np.mean(draws) * precision == pytest.approx(2.0, rel=0.1)  # two degrees of freedom


def test_contradicting_facts_are_named() -> None:
    decomposition = Decomposition(SIZES, [(0, 1), (1, 2)])
    facts = [
        KnownTable((0,), np.array([4.0, 6.0]), "counts by a"),
        KnownTable((1,), np.array([4.0, 4.0, 4.0]), "counts by b"),
    ]
    with pytest.raises(Infeasible, match=r"counts by a and counts by b.*10 and the other 12") as caught:
        known_residuals(decomposition, facts)
    assert caught.value.violation == pytest.approx(1.0)
    with pytest.raises(Infeasible, match="-3"):
        known_residuals(decomposition, [KnownTable((0,), np.array([-3.0, 6.0]), "counts by a")])


def test_maps_that_leave_something_open_are_told() -> None:
    assert determines_its_axis(PrefixMap(5))
    assert determines_its_axis(AllRangesMap(5))
    assert not determines_its_axis(SparseMap(sp.csr_array(np.eye(3)[:2])))
    assert not determines_its_axis(SparseMap(sp.csr_array(np.ones((4, 3)))))
    assert determines_its_axis(AllRangesMap(5000)) is None
    assert axis_precision(IdentityMap(4)) == (0.25, 1.0)
    assert axis_precision(SparseMap(sp.csr_array(2.0 * np.eye(4))))[1] == pytest.approx(4.0)


def test_differences_alone_are_told_apart_from_sums_and_from_everything() -> None:
    assert determines_differences(SparseMap(sp.csr_array([[1.0, -1.0]])))
    assert determines_differences(SparseMap(sp.csr_array(np.eye(3) - 1.0 / 3.0)))
    assert not determines_differences(SparseMap(sp.csr_array([[1.0, -1.0, 0.0]])))
    assert not determines_differences(IdentityMap(3))
    assert not determines_differences(SparseMap(sp.csr_array([[1.0, 1.0]])))
    assert determines_differences(AllRangesMap(5000)) is None


@pytest.mark.parametrize("seed", range(5))
def test_answers_about_differences_are_fitted_as_by_dense_algebra(seed: int) -> None:
    """A flag is told by its difference alone; the other attributes by their counts."""
    rng = np.random.default_rng(seed)
    flag: LinearMap = SparseMap(sp.csr_array([[1.0, -1.0]]))
    noisy = [
        noisy_table(
            scope,
            rng,
            maps=tuple(flag if attribute == 0 else IdentityMap(SIZES[attribute]) for attribute in scope),
            precision=rng.uniform(0.5, 2.0),
        )
        for scope in EVERY
    ]
    check_against_dense(noisy)

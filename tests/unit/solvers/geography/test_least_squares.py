"""Least squares for a table at every place, against the dense equations."""

import itertools
import math

import numpy as np
import pytest

from consilience.kernels.rng import generator
from consilience.solvers.geography.least_squares import (
    CellBasis,
    NodeEvidence,
    SignedFit,
    draw_errors,
    expected_variances,
    fit_signed,
)
from consilience.solvers.trees.layout import forest

Marginal = tuple[int, tuple[int, ...], np.ndarray, float]


class Small:
    """A random ragged geography with marginals of some places, and the same problem as one dense matrix."""

    def __init__(self, seed: int, *, complete: float = 0.9, other: float = 0.4) -> None:
        rng = np.random.default_rng(seed)
        self.nodes = int(rng.integers(1, 12))
        self.parent = [-1, *(int(rng.integers(0, v)) for v in range(1, self.nodes))]
        if self.nodes > 3 and rng.random() < 0.2:
            self.parent[1] = -1
        self.sizes = tuple(int(size) for size in rng.integers(1, 4, int(rng.integers(1, 4))))
        axes = range(len(self.sizes))
        self.scopes = [s for k in range(len(axes) + 1) for s in itertools.combinations(axes, k)]
        self.measured: list[Marginal] = []
        for v, scope in itertools.product(range(self.nodes), self.scopes):
            detailed = len(scope) == len(axes) and v not in self.parent
            if rng.random() < (complete if detailed else other):
                cells = math.prod(self.sizes[axis] for axis in scope)
                self.measured.append((v, scope, rng.normal(0, 10, cells), float(rng.uniform(0.1, 10))))
        self.layout = forest(self.parent, self.nodes)
        order = np.arange(self.nodes) if self.layout.order is None else self.layout.order
        self.place = np.argsort(order)

    def fit(self) -> SignedFit:
        evidence = NodeEvidence(self.nodes, CellBasis(self.sizes))
        for v, scope, values, variance in self.measured:
            evidence.add(self.place[[v]], scope, values[None, :], variance)
        return fit_signed(self.layout, evidence)

    def rows(self, v: int, scope: tuple[int, ...]) -> np.ndarray:
        """The marginal of a place as rows over the cells of all leaves."""
        leaves = [u for u in range(self.nodes) if u not in self.parent]
        below = np.zeros((1, len(leaves)))
        for column, leaf in enumerate(leaves):
            while leaf >= 0:
                below[0, column] += leaf == v
                leaf = self.parent[leaf]
        matrix = below
        for axis, size in enumerate(self.sizes):
            matrix = np.kron(matrix, np.eye(size) if axis in scope else np.ones((1, size)))
        return matrix

    def dense(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The least-squares cells, their covariance, and the projection to what is measured."""
        scale = np.concatenate([np.full(len(values), variance**-0.5) for _, _, values, variance in self.measured])
        rows = np.concatenate([self.rows(v, scope) for v, scope, _, _ in self.measured]) * scale[:, None]
        values = np.concatenate([values for _, _, values, _ in self.measured]) * scale
        inverse = np.linalg.pinv(rows, rcond=1e-12)
        return inverse @ values, inverse @ inverse.T, inverse @ rows


def marginal(table: np.ndarray, sizes: tuple[int, ...], scope: tuple[int, ...]) -> np.ndarray:
    return table.reshape(sizes).sum(axis=tuple(axis for axis in range(len(sizes)) if axis not in scope)).ravel()


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_all_that_is_measured_equals_dense_generalised_least_squares(first: int) -> None:
    compared = 0
    for seed in range(first, first + 50):
        small = Small(seed)
        if not small.measured:
            continue
        fit, (cells, covariance, projection) = small.fit(), small.dense()
        for v, scope in itertools.product(range(small.nodes), small.scopes):
            rows = small.rows(v, scope)
            if np.abs(rows @ projection - rows).max() > 1e-8:
                continue
            found = marginal(fit.tables[small.place[v]], small.sizes, scope)
            assert np.allclose(found, rows @ cells, rtol=0, atol=1e-9)
            variances = fit.marginal_variances(scope)[small.place[v]]
            assert np.allclose(variances, np.diag(rows @ covariance @ rows.T), rtol=1e-9, atol=1e-9)
            compared += 1
    assert compared > 500


def test_covariances_of_places_are_those_of_dense_least_squares() -> None:
    for seed in range(300, 340):
        small = Small(seed, complete=1.0)
        fit, (_, covariance, _) = small.fit(), small.dense()
        weights = fit.basis.cell_weights(())
        for one, other in itertools.product(range(small.nodes), repeat=2):
            expected = float((small.rows(one, ()) @ covariance @ small.rows(other, ()).T).item())
            found = fit.covariance(int(small.place[one]), int(small.place[other])) @ weights
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_variances_are_known_before_anything_is_measured() -> None:
    small = Small(7)
    evidence = NodeEvidence(small.nodes, CellBasis(small.sizes))
    for v, scope, values, variance in small.measured:
        evidence.add(small.place[[v]], scope, values[None, :], variance)
    expected = expected_variances(small.layout, evidence.precisions.copy())
    assert np.array_equal(expected, fit_signed(small.layout, evidence).variances)


def test_exact_marginals_are_met_and_sharpen_the_rest() -> None:
    rng = np.random.default_rng(4)
    layout = forest([-1, 0, 0, 1, 1, 2], 6)
    truth = rng.poisson(9, (3, 6)).astype(float)
    tables = np.array([truth.sum(0), truth[:2].sum(0), truth[2], *truth])
    evidence = NodeEvidence(6, CellBasis((2, 3)))
    evidence.add(np.arange(6), (0, 1), tables + rng.normal(0, 2, tables.shape), 4.0)
    loose = fit_signed(layout, copied(evidence))
    evidence.add(np.array([1]), (0,), tables[1].reshape(1, 2, 3).sum(2), 0.0)
    fit = fit_signed(layout, evidence)
    assert marginal(fit.tables[1], (2, 3), (0,)) == pytest.approx(marginal(tables[1], (2, 3), (0,)), abs=1e-9)
    assert fit.tables[3] + fit.tables[4] == pytest.approx(fit.tables[1], abs=1e-9)
    assert fit.marginal_variances((0,))[1] == pytest.approx(0, abs=1e-12)
    assert np.all(fit.marginal_variances((0, 1)) <= loose.marginal_variances((0, 1)) + 1e-12)


def copied(evidence: NodeEvidence) -> NodeEvidence:
    copy = NodeEvidence(len(evidence.weighted), evidence.basis)
    copy.weighted[:], copy.precisions[:] = evidence.weighted, evidence.precisions
    return copy


def test_what_nobody_measured_is_divided_evenly_over_leaves_and_cells() -> None:
    layout = forest([-1, 0, 0, 2, 2], 5)
    evidence = NodeEvidence(5, CellBasis((2,)))
    evidence.add(np.array([0]), (), np.array([[30.0]]), 1.0)
    fit = fit_signed(layout, evidence)
    assert fit.tables == pytest.approx(np.array([[15.0, 15.0], [5.0, 5.0], [10.0, 10.0], [5.0, 5.0], [5.0, 5.0]]))
    assert np.isinf(fit.variances[1:, 0]).all()


def test_errors_are_drawn_with_the_covariance_of_the_fit() -> None:
    layout = forest([-1, 0, 0, 0, 1, 1], 6)
    basis = CellBasis((2,))
    evidence = NodeEvidence(6, basis)
    rng = np.random.default_rng(5)
    evidence.add(np.arange(6), (0,), rng.normal(0, 1, (6, 2)), rng.uniform(0.5, 4, 6))
    evidence.add(np.array([0, 2]), (), rng.normal(0, 1, (2, 1)), 0.3)
    fit = fit_signed(layout, evidence)
    drawn = draw_errors(fit, range(6), 40_000, generator(1))
    totals = np.array([drawn[node].sum(axis=1) for node in range(6)])
    expected = [[float(fit.covariance(u, w) @ basis.cell_weights(())) for w in range(6)] for u in range(6)]
    assert np.cov(totals) == pytest.approx(np.array(expected), abs=0.12)
    assert totals[4] + totals[5] == pytest.approx(totals[1], abs=1e-9)

"""Least squares for a table at every place, against the dense equations."""

import copy
import itertools
import math

import numpy as np
import pytest

from consilience.errors import DeclarationError
from consilience.kernels.rng import generator
from consilience.solvers.geography.cell_basis import CellBasis, Scope, told_apart
from consilience.solvers.geography.least_squares import NodeEvidence, SignedFit, Upward, draw_errors, fit_signed
from consilience.solvers.geography.subtrees import Classes
from consilience.solvers.trees.layout import forest

Marginal = tuple[int, Scope, np.ndarray, float]
GROUPS = ([[1, 1, 0, 0], [0, 0, 1, 1]], [[1, 0, 0, 0], [0, 1, 1, 1]], [[0, 0, 0, 1]], [[1, 1, 1, 0], [0, 0, 1, 1]])


def as_maps(scope: Scope, sizes: tuple[int, ...]) -> dict[int, np.ndarray]:
    """The matrix of each attribute that is told apart."""
    maps = scope if isinstance(scope, dict) else dict.fromkeys(scope)
    return {axis: np.eye(sizes[axis]) if each is None else each for axis, each in maps.items()}


class Small:
    """A random ragged geography with marginals of some places, and the same problem as one dense matrix.

    With `groups`, the first attribute has nested and crossing groups of its values, of unequal sizes.
    """

    def __init__(self, seed: int, *, complete: float = 0.9, other: float = 0.4, groups: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.nodes = int(rng.integers(1, 12))
        self.parent = [-1, *(int(rng.integers(0, v)) for v in range(1, self.nodes))]
        if self.nodes > 3 and rng.random() < 0.2:
            self.parent[1] = -1
        self.sizes = tuple(int(size) for size in rng.integers(1, 4, int(rng.integers(1, 4))))
        axes = range(len(self.sizes))
        self.scopes: list[Scope] = [s for k in range(len(axes) + 1) for s in itertools.combinations(axes, k)]
        self.basis = CellBasis(self.sizes)
        if groups:
            self.sizes = (4, *self.sizes[1:])
            some = [np.array(each, dtype=float) for each in GROUPS if rng.random() < 0.5] or [np.array(GROUPS[0])]
            others: list[Scope] = [s for s in self.scopes if not isinstance(s, dict) and 0 not in s]
            self.scopes += [{0: each} | dict.fromkeys(s) for each, s in itertools.product(some, others)]
            self.basis = CellBasis(self.sizes, {0: told_apart(some)})
        self.measured: list[Marginal] = []
        for v, scope in itertools.product(range(self.nodes), self.scopes):
            detailed = not isinstance(scope, dict) and len(scope) == len(axes) and v not in self.parent
            if rng.random() < (complete if detailed else other):
                cells = math.prod(len(each) for each in as_maps(scope, self.sizes).values())
                self.measured.append((v, scope, rng.normal(0, 10, cells), float(rng.uniform(0.1, 10))))
        self.layout = forest(self.parent, self.nodes)
        order = np.arange(self.nodes) if self.layout.order is None else self.layout.order
        self.place = np.argsort(order)

    def evidence(self) -> NodeEvidence:
        evidence = NodeEvidence(self.nodes, self.basis)
        for v, scope, values, variance in self.measured:
            evidence.add(self.place[[v]], scope, values[None, :], variance)
        return evidence

    def fit(self) -> SignedFit:
        return fit_signed(self.layout, self.evidence())

    def rows(self, v: int, scope: Scope) -> np.ndarray:
        """The marginal of a place as rows over the cells of all leaves."""
        leaves = [u for u in range(self.nodes) if u not in self.parent]
        below = np.zeros((1, len(leaves)))
        for column, leaf in enumerate(leaves):
            while leaf >= 0:
                below[0, column] += leaf == v
                leaf = self.parent[leaf]
        matrix = below
        for axis, size in enumerate(self.sizes):
            matrix = np.kron(matrix, as_maps(scope, self.sizes).get(axis, np.ones((1, size))))
        return matrix

    def dense(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The least-squares cells, their covariance, and the projection to what is measured."""
        scale = np.concatenate([np.full(len(values), variance**-0.5) for _, _, values, variance in self.measured])
        rows = np.concatenate([self.rows(v, scope) for v, scope, _, _ in self.measured]) * scale[:, None]
        values = np.concatenate([values for _, _, values, _ in self.measured]) * scale
        inverse = np.linalg.pinv(rows, rcond=1e-12)
        return inverse @ values, inverse @ inverse.T, inverse @ rows


def answers(table: np.ndarray, sizes: tuple[int, ...], scope: Scope) -> np.ndarray:
    found, maps = table.reshape(sizes), as_maps(scope, sizes)
    for axis, size in enumerate(sizes):
        found = np.moveaxis(np.tensordot(maps.get(axis, np.ones((1, size))), found, axes=([1], [axis])), 0, axis)
    return found.ravel()


def total_variance(fit: SignedFit, blocks: tuple[np.ndarray, ...]) -> float:
    return float(fit.basis.marginal(()).variances([each[None] for each in blocks]).item())


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_all_that_is_measured_equals_dense_generalised_least_squares(first: int, groups: bool) -> None:
    compared = 0
    for seed in range(first, first + 50):
        small = Small(seed, groups=groups)
        if not small.measured:
            continue
        fit, (cells, covariance, projection) = small.fit(), small.dense()
        found_variances = [fit.marginal_variances(scope) for scope in small.scopes]
        for (at, scope), v in itertools.product(enumerate(small.scopes), range(small.nodes)):
            rows = small.rows(v, scope)
            if np.abs(rows @ projection - rows).max() > 1e-8:
                continue
            found = answers(fit.tables[small.place[v]], small.sizes, scope)
            assert np.allclose(found, rows @ cells, rtol=0, atol=1e-9)
            expected = np.diag(rows @ covariance @ rows.T)
            assert np.allclose(found_variances[at][small.place[v]], expected, rtol=1e-9, atol=1e-9)
            compared += 1
    assert compared > 500


@pytest.mark.parametrize("groups", [False, True])
def test_children_sum_to_their_parents_whatever_is_told(groups: bool) -> None:
    for seed in range(400, 430):
        small = Small(seed, complete=0.4, groups=groups)
        fit = small.fit()
        inner = [v for v in range(small.nodes) if v in small.parent]
        for v in inner:
            below = [small.place[c] for c in range(small.nodes) if small.parent[c] == v]
            assert np.allclose(fit.tables[below].sum(axis=0), fit.tables[small.place[v]], atol=1e-9)


@pytest.mark.parametrize("groups", [False, True])
def test_covariances_of_places_are_those_of_dense_least_squares(groups: bool) -> None:
    for seed in range(300, 340):
        small = Small(seed, complete=1.0, groups=groups)
        fit, (_, covariance, _) = small.fit(), small.dense()
        for one, other in itertools.product(range(small.nodes), repeat=2):
            expected = float((small.rows(one, ()) @ covariance @ small.rows(other, ()).T).item())
            found = total_variance(fit, fit.covariance(int(small.place[one]), int(small.place[other])))
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_groups_are_made_of_whole_sets_of_values() -> None:
    assert told_apart([GROUPS[0], GROUPS[1]]).tolist() == [0, 1, 2, 2]
    basis = CellBasis((4,), {0: told_apart([GROUPS[0]])})
    with pytest.raises(DeclarationError, match="cut through"):
        basis.marginal({0: np.array(GROUPS[1])}).refuse_cuts()


def test_places_that_were_measured_alike_share_their_variances() -> None:
    layout = forest([-1, 0, 0, 1, 1, 2, 2], 7)
    alike = Classes.of_nodes(layout, np.array([0, 1, 1, 2, 3, 3, 2]))
    of = alike.of.tolist()
    assert (of[1], of[3], of[4]) == (of[2], of[6], of[5])
    assert len(set(of)) == 4
    assert len(set(Classes.of_nodes(layout, np.array([0, 1, 1, 2, 3, 3, 3])).of)) == 5


@pytest.mark.parametrize("groups", [False, True])
def test_a_subtree_that_is_fitted_apart_gives_the_same_tables(groups: bool) -> None:
    """What a subtree says of its root, given to the rest of the tree, and its own fit to what that finds."""
    for seed in range(500, 530):
        small = Small(seed, complete=0.7, groups=groups)
        if 1 not in small.parent or small.parent[1] != 0:
            continue
        inside = [v for v in range(1, small.nodes) if 1 in _line(small.parent, v)]
        outside = [v for v in range(small.nodes) if v not in inside[1:]]
        whole = small.fit()
        lower, upper = _cut(small, inside), _cut(small, outside)
        up = Upward(lower[0], lower[1])
        root = upper[2][1]
        upper[1].weighted[root], upper[1].kinds[root] = 0.0, 0
        upper[1].give(root, *up.said_of_roots()[0])
        above = fit_signed(upper[0], upper[1])
        below = up.downward(above.basis.coefficients(above.tables[[root]]), above.variances(np.array([root])))
        for nodes, fit, place in ((outside, above, upper[2]), (inside, below, lower[2])):
            for v in nodes:
                assert fit.tables[place[v]] == pytest.approx(whole.tables[small.place[v]], abs=1e-9)
                found, expected = (f.marginal_variances((), [p[v]]) for f, p in ((fit, place), (whole, small.place)))
                assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def _line(parent: list[int], node: int) -> list[int]:
    return [node, *_line(parent, parent[node])] if node >= 0 else []


def _cut(small: Small, nodes: list[int]) -> tuple:
    """The forest of some nodes, with what was measured of them, and the place of each."""
    number = {v: at for at, v in enumerate(nodes)}
    layout = forest([number.get(small.parent[v], -1) for v in nodes], len(nodes))
    order = np.arange(len(nodes)) if layout.order is None else layout.order
    place = dict(zip(np.array(nodes)[order].tolist(), range(len(nodes)), strict=True))
    evidence = NodeEvidence(len(nodes), small.basis)
    for v, scope, values, variance in small.measured:
        if v in number:
            evidence.add(np.array([place[v]]), scope, values[None, :], variance)
    return layout, evidence, place


def marginal(table: np.ndarray, sizes: tuple[int, ...], scope: tuple[int, ...]) -> np.ndarray:
    return answers(table, sizes, scope)


def test_exact_marginals_are_met_and_sharpen_the_rest() -> None:
    rng = np.random.default_rng(4)
    layout = forest([-1, 0, 0, 1, 1, 2], 6)
    truth = rng.poisson(9, (3, 6)).astype(float)
    tables = np.array([truth.sum(0), truth[:2].sum(0), truth[2], *truth])
    evidence = NodeEvidence(6, CellBasis((2, 3)))
    evidence.add(np.arange(6), (0, 1), tables + rng.normal(0, 2, tables.shape), 4.0)
    loose = fit_signed(layout, copy.deepcopy(evidence))
    evidence.add(np.array([1]), (0,), tables[1].reshape(1, 2, 3).sum(2), 0.0)
    fit = fit_signed(layout, evidence)
    assert marginal(fit.tables[1], (2, 3), (0,)) == pytest.approx(marginal(tables[1], (2, 3), (0,)), abs=1e-9)
    assert fit.tables[3] + fit.tables[4] == pytest.approx(fit.tables[1], abs=1e-9)
    assert fit.marginal_variances((0,), [1])[0] == pytest.approx(0, abs=1e-12)
    assert np.all(fit.marginal_variances((0, 1)) <= loose.marginal_variances((0, 1)) + 1e-12)


def test_what_nobody_measured_is_divided_evenly_over_leaves_and_cells() -> None:
    layout = forest([-1, 0, 0, 2, 2], 5)
    evidence = NodeEvidence(5, CellBasis((2,)))
    evidence.add(np.array([0]), (), np.array([[30.0]]), 1.0)
    fit = fit_signed(layout, evidence)
    assert fit.tables == pytest.approx(np.array([[15.0, 15.0], [5.0, 5.0], [10.0, 10.0], [5.0, 5.0], [5.0, 5.0]]))
    assert np.isinf(fit.marginal_variances((), [1, 2, 3, 4])).all()


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
    expected = [[total_variance(fit, fit.covariance(u, w)) for w in range(6)] for u in range(6)]
    assert np.cov(totals) == pytest.approx(np.array(expected), abs=0.12)
    assert totals[4] + totals[5] == pytest.approx(totals[1], abs=1e-9)

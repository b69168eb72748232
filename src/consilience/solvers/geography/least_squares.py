"""Generalised least squares for a table at every node of a forest: a scalar two-pass fit for each residual coefficient.

Node v has a table x_v of H cells over some attributes, and the tables of its children sum to it. Marginals of some
nodes were measured, S at node v with independent noise of variance σ² in each cell. Let Q be the Kronecker product of
Helmert matrices, orthogonal with a constant first row, and z = Q x. The marginal over S is, in its own basis,

    Q_S (M_S x) = √(Π_{i∉S} n_i) · (z of the residuals τ ⊆ S),

so that each measurement tells coefficients one by one, with the precision Π_{i∉S} n_i / σ² for each coefficient of a
residual τ ⊆ S. Summing over children acts on each coefficient alone, too. So the least-squares fit over all nodes and
cells falls apart into H fits of one number per node (Hay et al. 2010 for equal noise and regular trees), and all
coefficients of one residual have the same variances. With m_c, v_c what the subtree of child c alone says of it,

    up:    the node's own answer and Σ m_c, of variance Σ v_c, are averaged by their precisions;
    down:  x_c = m_c + (v_c / Σ v) (x_v − Σ m),      Var x_c = v_c − v_c²/Σv + (v_c/Σv)² Var x_v.

The errors of the children of v, given that of v, are those of independent m_c that were made to sum to it; this is how
`draw_errors` draws them, and where the covariance of any two nodes comes from. Variance 0 is a fact, infinite variance
says that nothing is known. What nothing tells apart is divided evenly over cells and over leaves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.kernels.kernel_cache import njit
from consilience.kernels.rng import Generator
from consilience.solvers.fit import Array
from consilience.solvers.trees.layout import Layout

NUMBERS_AT_ONCE = 1 << 20
"""Numbers that are transformed at a time."""


def helmert(size: int) -> Array:
    """The orthogonal matrix whose first row is constant, and whose row i tells value i from those before it.

    >>> bool(np.allclose(helmert(3) @ helmert(3).T, np.eye(3)))
    True
    """
    found = np.zeros((size, size))
    found[0] = 1.0 / math.sqrt(size)
    for row in range(1, size):
        found[row, :row] = 1.0
        found[row, row] = -row
        found[row] /= math.sqrt(row * (row + 1.0))
    return found


@dataclass(frozen=True)
class CellBasis:
    """The residual basis of the cells of a table with these sizes.

    Residuals are numbered by the attributes they are about, as bits: 5 is that of attributes 0 and 2.
    """

    sizes: tuple[int, ...]

    @property
    def cells(self) -> int:
        return math.prod(self.sizes)

    @property
    def residuals(self) -> int:
        return 1 << len(self.sizes)

    @cached_property
    def residual_of(self) -> NDArray[np.int64]:
        """The residual that each coefficient belongs to."""
        found = np.zeros(self.sizes, dtype=np.int64)
        for axis, size in enumerate(self.sizes):
            bit = np.zeros(size, dtype=np.int64)
            bit[1:] = 1 << axis
            found += np.expand_dims(bit, tuple(other for other in range(len(self.sizes)) if other != axis))
        return found.reshape(-1)

    @cached_property
    def dimensions(self) -> NDArray[np.int64]:
        """How many coefficients each residual has."""
        return np.bincount(self.residual_of, minlength=self.residuals)

    def within(self, scope: Sequence[int]) -> NDArray[np.bool_]:
        """The residuals that the marginal over these attributes tells."""
        bits = sum(1 << axis for axis in scope)
        return (np.arange(self.residuals) & ~bits) == 0

    def away(self, scope: Sequence[int]) -> int:
        """How many cells are summed for each cell of a marginal."""
        return self.cells // math.prod(self.sizes[axis] for axis in scope)

    def coefficients(self, tables: Array, scope: Sequence[int] | None = None) -> Array:
        """Q_S of marginals over ascending attributes, a row each; of whole tables by default."""
        return self._turned(tables, scope, back=False)

    def tables(self, coefficients: Array, scope: Sequence[int] | None = None) -> Array:
        """The tables with these coefficients."""
        return self._turned(coefficients, scope, back=True)

    def _turned(self, rows: Array, scope: Sequence[int] | None, *, back: bool) -> Array:
        sizes = [self.sizes[axis] for axis in (range(len(self.sizes)) if scope is None else scope)]
        matrices = [helmert(size).T if back else helmert(size) for size in sizes]
        found = np.empty_like(rows, dtype=np.float64)
        step = max(1, NUMBERS_AT_ONCE // max(1, rows.shape[1]))
        for first in range(0, len(rows), step):
            part = rows[first : first + step].reshape(-1, *sizes)
            for axis, matrix in enumerate(matrices, 1):
                part = np.moveaxis(np.tensordot(part, matrix, axes=([axis], [1])), -1, axis)
            found[first : first + step] = part.reshape(-1, rows.shape[1])
        return found

    def marginal_variances(self, variances: Array, scope: Sequence[int]) -> Array:
        """The variance of a cell of a marginal, from those of the residuals' coefficients; a row for each node.

        Σ_{τ⊆S} (Π_{i∉S} n_i) v_τ · Π_{i∈τ} (1 − 1/n_i) · Π_{i∈S∖τ} 1/n_i, the same for every cell.
        """
        weights = self.cell_weights(scope)
        told = weights > 0.0
        return variances[:, told] @ weights[told]

    def cell_weights(self, scope: Sequence[int]) -> Array:
        """How much each residual's variance counts in that of a cell of a marginal."""
        weights = np.where(self.within(scope), float(self.away(scope)), 0.0)
        for axis in scope:
            about = (np.arange(self.residuals) >> axis) & 1 == 1
            size = self.sizes[axis]
            weights *= np.where(about, 1.0 - 1.0 / size, 1.0 / size)
        return weights


class NodeEvidence:
    """What was measured of the nodes of a forest, added up: the mean and the variance of every coefficient."""

    def __init__(self, nodes: int, basis: CellBasis) -> None:
        self.basis = basis
        self.weighted: Array = np.zeros((nodes, basis.cells))
        """Σ precision × value of each coefficient; the value itself where the precision is infinite."""
        self.precisions: Array = np.zeros((nodes, basis.residuals))

    def add(self, nodes: NDArray[np.intp], scope: Sequence[int], values: Array, variances: ArrayLike) -> None:
        """Marginals over ascending attributes, a row for each of these nodes, with noise of these variances in a cell.

        A node is named once at most. Variance 0 says that the marginal is known exactly.
        """
        noise = np.broadcast_to(np.asarray(variances, dtype=np.float64), (len(nodes),))
        exact = noise == 0.0
        if exact.any():
            self._add_exact(nodes[exact], scope, values[exact])
            self.add(nodes[~exact], scope, values[~exact], noise[~exact])
            return
        told = self.basis.within(scope)
        columns = np.flatnonzero(told[self.basis.residual_of])
        away = float(self.basis.away(scope))
        found = self.basis.coefficients(np.asarray(values, dtype=np.float64), scope)
        found *= math.sqrt(away) / noise[:, None]
        open_ones = np.isfinite(self.precisions[np.ix_(nodes, self.basis.residual_of[columns])])
        self.weighted[np.ix_(nodes, columns)] += np.where(open_ones, found, 0.0)
        self.precisions[np.ix_(nodes, np.flatnonzero(told))] += (away / noise)[:, None]

    def _add_exact(self, nodes: NDArray[np.intp], scope: Sequence[int], values: Array) -> None:
        told = self.basis.within(scope)
        columns = np.flatnonzero(told[self.basis.residual_of])
        found = self.basis.coefficients(np.asarray(values, dtype=np.float64), scope)
        self.weighted[np.ix_(nodes, columns)] = found / math.sqrt(self.basis.away(scope))
        self.precisions[np.ix_(nodes, np.flatnonzero(told))] = np.inf


@dataclass(frozen=True, eq=False)
class SignedFit:
    """The best unbiased tables of all nodes, and how far their coefficients are off.

    >>> from consilience.solvers.trees.layout import forest
    >>> evidence = NodeEvidence(3, CellBasis((2,)))
    >>> evidence.add(np.arange(3), (0,), np.array([[9.0, 6.0], [4.0, 1.0], [2.0, 2.0]]), 1.0)
    >>> fit_signed(forest([-1, 0, 0], 3), evidence).tables.round(6).tolist()
    [[8.0, 5.0], [5.0, 2.0], [3.0, 3.0]]
    """

    layout: Layout
    basis: CellBasis
    tables: Array
    """A row of cells for each node."""
    below: Array
    """v: the variance that each node's own subtree leaves its coefficients with, by residual; infinite: not told."""
    variances: Array
    """The variance of the fitted coefficients, by residual."""

    def marginal_variances(self, scope: Sequence[int]) -> Array:
        """The variance of a cell of each node's marginal over these attributes."""
        return self.basis.marginal_variances(self.variances, scope)

    @cached_property
    def parent(self) -> NDArray[np.int64]:
        """The parent of each node, −1 for roots."""
        found = np.full(self.layout.nodes, -1, dtype=np.int64)
        children = np.diff(self.layout.first)
        found[self.layout.roots :] = np.repeat(np.arange(self.layout.nodes), children)
        return found

    def path(self, node: int) -> list[int]:
        """The node and those above it, up to its root."""
        nodes = [node]
        while self.parent[nodes[-1]] >= 0:
            nodes.append(int(self.parent[nodes[-1]]))
        return nodes

    def covariance(self, one: int, other: int) -> Array:
        """The covariance of a coefficient of two nodes, by residual."""
        above, beside = self.path(one), self.path(other)
        if above[-1] != beside[-1]:
            return np.zeros(self.basis.residuals)
        shared = above[-1]
        while above and beside and above[-1] == beside[-1]:
            shared = above.pop()
            beside.pop()
        found = self.variances[shared]
        if above and beside:
            u, w = above.pop(), beside.pop()
            total = self._children_sum(shared)
            a, b = self._share(u, total), self._share(w, total)
            found = a * b * found - a * self.below[w]
        for node in (*above, *beside):
            found = found * self._share(node, self._children_sum(int(self.parent[node])))
        return found

    def _children_sum(self, node: int) -> Array:
        return self.below[self.layout.first[node] : self.layout.first[node + 1]].sum(axis=0)

    def _share(self, node: int, total: Array) -> Array:
        """v_c / Σ v: how much of its parent's error a node has; 0 where nothing or everything is known of the sum."""
        known = np.isfinite(total) & (total > 0.0)
        return np.where(known, self.below[node] / np.where(known, total, 1.0), 0.0)


def fit_signed(layout: Layout, evidence: NodeEvidence) -> SignedFit:
    """The least-squares tables; the evidence is used up."""
    basis, means = evidence.basis, evidence.weighted
    below, variances = np.empty_like(evidence.precisions), np.empty_like(evidence.precisions)
    leaves = np.ones(layout.nodes)
    _up(layout.first, basis.residual_of, evidence.precisions, means, below, leaves)
    _down(layout.first, layout.roots, basis.residual_of, means, below, variances, leaves)
    return SignedFit(layout, basis, basis.tables(means), below, variances)


def expected_variances(layout: Layout, precisions: Array) -> Array:
    """The variances of a fit to noise of these precisions, found without any values."""
    below, variances = np.empty_like(precisions), np.empty_like(precisions)
    means, leaves = np.zeros((len(precisions), 1)), np.ones(len(precisions))
    residual_of = np.zeros(1, dtype=np.int64)
    _up(layout.first, residual_of, precisions, means, below, leaves)
    _down(layout.first, layout.roots, residual_of, means, below, variances, leaves)
    return variances


def sums_of_leaves(layout: Layout, tables: Array) -> Array:
    """The tables with those of inner nodes replaced by the sums of their children's, in place.

    >>> from consilience.solvers.trees.layout import forest
    >>> sums_of_leaves(forest([-1, 0, 0], 3), np.array([[0.0], [2.0], [3.0]])).ravel()
    array([5., 2., 3.])
    """
    _sum_up(layout.first, tables)
    return tables


@njit(nogil=True, cache=True, error_model="numpy")
def _sum_up(first, tables):  # pragma: no cover - compiled
    for v in range(len(tables) - 1, -1, -1):
        if first[v] < first[v + 1]:
            tables[v] = 0.0
        for c in range(first[v], first[v + 1]):
            for h in range(tables.shape[1]):
                tables[v, h] += tables[c, h]


@njit(nogil=True, cache=True, error_model="numpy")
def _up(first, residual_of, precisions, means, below, leaves):  # pragma: no cover - compiled
    """Replace precision × value by what each subtree says, and write its variance and number of leaves."""
    nodes, cells = means.shape
    residuals = precisions.shape[1]
    spread = np.empty(residuals)
    for v in range(nodes - 1, -1, -1):
        begin, end = first[v], first[v + 1]
        spread[:] = 0.0 if end > begin else np.inf
        if end > begin:
            leaves[v] = 0.0
        for c in range(begin, end):
            leaves[v] += leaves[c]
            for k in range(residuals):
                spread[k] += below[c, k]
        for k in range(residuals):
            if precisions[v, k] == np.inf or spread[k] == 0.0:
                below[v, k] = 0.0
            else:
                own = precisions[v, k] + 1.0 / spread[k]
                below[v, k] = 1.0 / own if own > 0.0 else np.inf
        for h in range(cells):
            k = residual_of[h]
            if precisions[v, k] == np.inf:
                continue
            summed = 0.0
            for c in range(begin, end):
                summed += means[c, h]
            if below[v, k] == 0.0 or below[v, k] == np.inf:
                means[v, h] = summed
            else:
                means[v, h] = (means[v, h] + summed / spread[k]) * below[v, k]


@njit(nogil=True, cache=True, error_model="numpy")
def _down(first, roots, residual_of, means, below, variances, leaves):  # pragma: no cover - compiled
    """Replace what each subtree says by what all nodes together say, and write its variance."""
    nodes, cells = means.shape
    residuals = below.shape[1]
    spread, untold, others = np.empty(residuals), np.empty(residuals), np.empty(residuals)
    number = np.empty(residuals)
    variances[:roots] = below[:roots]
    for v in range(nodes):
        begin, end = first[v], first[v + 1]
        if begin == end:
            continue
        spread[:], untold[:], others[:], number[:] = 0.0, 0.0, 0.0, 0.0
        for c in range(begin, end):
            for k in range(residuals):
                spread[k] += below[c, k]
                if below[c, k] == np.inf:
                    untold[k] += leaves[c]
                    number[k] += 1.0
                else:
                    others[k] += below[c, k]
        for c in range(begin, end):
            for k in range(residuals):
                variances[c, k] = _variance(below[c, k], spread[k], others[k], number[k], variances[v, k])
        for h in range(cells):
            k = residual_of[h]
            rest = means[v, h]
            for c in range(begin, end):
                rest -= means[c, h]
            for c in range(begin, end):
                if number[k] > 0.0:
                    if below[c, k] == np.inf:
                        means[c, h] += rest * leaves[c] / untold[k]
                elif spread[k] > 0.0:
                    means[c, h] += rest * below[c, k] / spread[k]


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _variance(below, spread, others, untold, above):  # pragma: no cover - compiled
    """The variance of a child's coefficient, from that of its parent."""
    if untold > 0.0:
        if below < np.inf:
            return below
        return above + others if untold == 1.0 else np.inf
    if spread == 0.0:
        return 0.0
    share = below / spread
    return below - share * below + share * share * above


def draw_errors(fit: SignedFit, nodes: Sequence[int], draws: int, rng: Generator) -> dict[int, Array]:
    """Errors of the fitted tables of these nodes as Gaussian noise would make them: draws × cells for each.

    Every node but a root comes after its parent, and with all its siblings: the errors of the children of one node are
    drawn together. Coefficients that nothing tells have no error.
    """
    errors: dict[int, Array] = {}
    of = fit.basis.residual_of
    chosen = set(nodes)
    for node in nodes:
        own = np.where(np.isfinite(fit.below[node]), fit.below[node], 0.0)[of]
        errors[node] = rng.standard_normal((draws, fit.basis.cells)) * np.sqrt(own)
    for node in sorted(chosen):
        children = range(int(fit.layout.first[node]), int(fit.layout.first[node + 1]))
        if not children or children[0] not in chosen:
            continue
        rest = errors[node] - sum(errors[child] for child in children)
        total = fit._children_sum(node)
        for child in children:
            errors[child] += rest * fit._share(child, total)[of]
    return {node: fit.basis.tables(errors[node]) for node in nodes}

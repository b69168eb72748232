"""Generalised least squares for a table at every node of a forest: a two-pass fit for each residual of its cells.

Node v has a table of cells over some attributes, and the tables of its children sum to it. Marginals of some nodes
were measured, over all values or over groups of them, with independent noise, equal in all cells of a node.
In the residual basis (`cell_basis`) every marginal tells the vectors of one residual with one precision matrix, which
is a number where no attribute has groups, and summing over children acts on each vector alone. So the fit over all
nodes and cells falls apart into fits of one short vector per node (Hay et al. 2010 for numbers, equal noise and regular
trees). `subtrees` has the covariances, which all places share that were measured alike; here the means go

    up:    m = G Σ m_c + H w, with w the sum of precision × value of the node's own measurements (of what is known
           exactly, the value);
    down:  z_c = m_c + A_c (X r) + B_c (C r), where r = z − Σ m_c.

The errors of the children of v, given that of v, are those of independent m_c that were made to sum to it; this is how
`draw_errors` draws them, and where the covariance of any two nodes comes from. Linear in places times cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.kernels.kernel_cache import njit
from consilience.kernels.rng import Generator
from consilience.solvers.fit import Array
from consilience.solvers.geography.cell_basis import CellBasis, MarginalInBasis, Scope
from consilience.solvers.geography.subtrees import Blocks, Classes, Labels, Precisions, Subtrees, depths
from consilience.solvers.trees.layout import Layout

ROWS_AT_ONCE = 1 << 22
"""Numbers of measurements that are turned at a time."""


class NodeEvidence:
    """What was measured of the nodes of a forest, added up: precision × value of every coefficient."""

    def __init__(self, nodes: int, basis: CellBasis) -> None:
        self.basis = basis
        self.weighted: Array = np.zeros((nodes, basis.cells))
        """Σ precision × value of each coefficient; the value itself of what is known exactly."""
        self.kinds: Labels = np.zeros(nodes, dtype=np.int64)
        """How each node was measured: a row of `precisions`."""
        self.precisions = Precisions.none(basis.block_sizes)
        self.largest = 0.0
        """The largest variance of the noise."""

    def add(self, nodes: NDArray[np.intp], scope: Scope, values: Array, variances: ArrayLike) -> None:
        """Marginals over ascending attributes, a row for each of these nodes, with noise of these variances in a cell.

        A node is named once at most. Variance 0 says that the marginal is known exactly.
        """
        marginal = self.basis.marginal(scope)
        marginal.refuse_cuts()
        noise = np.broadcast_to(np.asarray(variances, dtype=np.float64), (len(nodes),))
        exact = noise == 0.0
        if exact.any():
            self._add_exact(nodes[exact], marginal, np.asarray(values[exact], dtype=np.float64))
            nodes, values, noise = nodes[~exact], values[~exact], noise[~exact]
        if not len(nodes):
            return
        self.largest = max(self.largest, float(noise.max()))
        step = max(1, ROWS_AT_ONCE // max(marginal.cells, self.basis.cells))
        for first in range(0, len(nodes), step):
            part = slice(first, first + step)
            self._add_noisy(nodes[part], marginal, np.asarray(values[part], dtype=np.float64), noise[part])
        old, variance = self._renew(nodes, noise)
        for place, bits in enumerate(self.basis.residuals):
            if marginal.tells(bits):
                design = marginal.design(bits)
                self.precisions.noisy[place][-len(old) :] += (design.T @ design) / variance[:, None, None]

    def give(self, node: int, mean: Array, untold: Sequence[Array], told: Sequence[Array], leaves: float) -> None:
        """What a subtree that was fitted elsewhere says of its root, which is a leaf here."""
        now = self.precisions
        self.weighted[node] = mean
        self.kinds[node] = len(now.given)
        self.precisions = Precisions(
            tuple(np.concatenate([each, np.zeros_like(each[:1])]) for each in now.noisy),
            tuple(np.concatenate([each, np.zeros_like(each[:1])]) for each in now.known),
            np.append(now.given, True),
            tuple(np.concatenate([each, part[None]]) for each, part in zip(now.untold, untold, strict=True)),
            tuple(np.concatenate([each, part[None]]) for each, part in zip(now.told, told, strict=True)),
            np.append(now.leaves, leaves),
        )

    def _add_noisy(self, nodes: NDArray[np.intp], marginal: MarginalInBasis, values: Array, noise: Array) -> None:
        kinds = self.kinds[nodes]
        for place, seen in marginal.seen(values).items():
            found = seen @ marginal.design(self.basis.residuals[place])
            known = self.precisions.known[place]
            if known.any():
                found -= np.einsum("nmb,nbc->nmc", found, known[kinds])
            columns = self.basis.columns[place].reshape(-1)
            self.weighted[nodes[:, None], columns] += found.reshape(len(nodes), -1) / noise[:, None]

    def _add_exact(self, nodes: NDArray[np.intp], marginal: MarginalInBasis, values: Array) -> None:
        """Facts: what they add to what is known of a node, and what noisy measurements say of the rest."""
        old, _ = self._renew(nodes, np.zeros(len(nodes)))
        rows = self.kinds[nodes] - (len(self.precisions.given) - len(old))
        for place, seen in marginal.seen(values).items():
            design, columns = marginal.design(self.basis.residuals[place]), self.basis.columns[place]
            before = self.precisions.known[place][old]
            inverses = np.linalg.pinv(design @ (np.eye(design.shape[1]) - before), rcond=1e-9)
            added = inverses @ (design @ (np.eye(design.shape[1]) - before))
            self.precisions.known[place][-len(old) :] = before + added
            own = self.weighted[nodes[:, None, None], columns]
            held = np.einsum("nmb,nbc->nmc", own, before[rows])
            free = own - held
            free -= np.einsum("nmb,nbc->nmc", free, added[rows])
            told = np.einsum("nmp,nbp->nmb", seen - held @ design.T, inverses[rows])
            self.weighted[nodes[:, None, None], columns] = free + held + told

    def _renew(self, nodes: NDArray[np.intp], noise: Array) -> tuple[Labels, Array]:
        """New kinds for nodes that are measured once more: the old kind and the variance of each."""
        pairs = np.stack([self.kinds[nodes].astype(np.float64), noise])
        if np.all(pairs == pairs[:, :1]):
            distinct, label = pairs[:, :1], np.zeros(len(nodes), dtype=np.int64)
        else:
            distinct, label = np.unique(pairs, axis=1, return_inverse=True)
        old, now = distinct[0].astype(np.int64), self.precisions
        self.kinds[nodes] = len(now.given) + np.ravel(label)
        blocks = (now.noisy, now.known, now.untold, now.told)
        noisy, known, untold, told = (tuple(np.concatenate([each, each[old]]) for each in part) for part in blocks)
        given, leaves = np.append(now.given, now.given[old]), np.append(now.leaves, now.leaves[old])
        self.precisions = Precisions(noisy, known, given, untold, told, leaves)
        return old, distinct[1]


# ----------------------------------------------------------------------------------------------------------------------
# The fit.


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
    classes: Labels
    """The class of each node."""
    subtrees: Subtrees
    largest: float
    """The largest variance of the noise."""
    above: "RootVariances | None" = None
    """The variances of the roots, where more is known of them than what their subtrees say."""

    def marginal_variances(self, scope: Scope, nodes: Sequence[int] | None = None) -> Array:
        """The variance of each cell of the marginals of nodes over these attributes, all nodes by default.

        Infinite where nothing tells it.
        """
        chosen = np.arange(self.layout.nodes) if nodes is None else np.asarray(nodes, dtype=np.int64)
        found = self.variances(chosen)
        marginal = self.basis.marginal(scope)
        untold, told = marginal.variances(found.untold), marginal.variances(found.told)
        return np.where(untold > 1e-9, np.inf, told)[found.of]

    def variances(self, nodes: Labels) -> "NodeVariances":
        """The variances of the fitted coefficients of these nodes."""
        return node_variances(self.layout, self.parent, self.classes, self.subtrees, nodes, self.above)

    @cached_property
    def parent(self) -> NDArray[np.int64]:
        """The parent of each node, −1 for roots."""
        return parents(self.layout)

    def path(self, node: int) -> list[int]:
        """The node and those above it, up to its root."""
        nodes = [node]
        while self.parent[nodes[-1]] >= 0:
            nodes.append(int(self.parent[nodes[-1]]))
        return nodes

    def covariance(self, one: int, other: int) -> Blocks:
        """The covariances of a vector of coefficients of two nodes, a matrix for each residual."""
        above, beside = self.path(one), self.path(other)
        if above[-1] != beside[-1]:
            return tuple(np.zeros((b, b)) for b in self.basis.block_sizes)
        shared = above[-1]
        while above and beside and above[-1] == beside[-1]:
            shared = above.pop()
            beside.pop()
        variances = self.variances(np.array([shared], dtype=np.int64))
        found = []
        for place in range(len(self.basis.residuals)):
            each, of = variances.told[place][variances.of[0]], int(self.classes[shared])
            sides = [above.copy(), beside.copy()]
            gains = [
                self.subtrees.gain(place, of, int(self.classes[side.pop()])) if side else np.eye(len(each))
                for side in sides
            ]
            each = gains[0] @ each @ gains[1].T
            if above and beside:
                each -= gains[0] @ self.subtrees.told[place][self.classes[beside[-1]]]
            for turn, side in enumerate(sides):
                for node in reversed(side):
                    pair = int(self.classes[self.parent[node]]), int(self.classes[node])
                    gain = self.subtrees.gain(place, *pair)
                    each = each @ gain.T if turn else gain @ each
            found.append(each)
        return tuple(found)


@dataclass(frozen=True, eq=False)
class NodeVariances:
    """For each residual the variances of nodes, where nothing tells them and where something does."""

    of: Labels
    """The row of each node."""
    untold: Blocks
    told: Blocks


RootVariances = NodeVariances
"""Rows for the roots of a forest."""


class Upward:
    """What every subtree says of its root: the first pass of a fit, and the evidence is used up."""

    def __init__(self, layout: Layout, evidence: NodeEvidence) -> None:
        self.layout, self.basis, self.means = layout, evidence.basis, evidence.weighted
        self.largest = evidence.largest
        classes = Classes.of_nodes(layout, evidence.kinds)
        self.classes, self.subtrees = classes.of, Subtrees.of(classes, evidence.precisions)
        self._columns = np.concatenate([each.reshape(-1) for each in self.basis.columns])
        self._shape = np.array([each.shape for each in self.basis.columns], dtype=np.int64)
        maps = (self.subtrees.from_children, self.subtrees.from_own)
        _up(layout.first, self.classes, self._columns, self._shape, *map(_flat, maps), self.means)

    def said_of_roots(self) -> list[tuple[Array, list[Array], list[Array], float]]:
        """Of each root the mean of its coefficients, what is untold and told of them, and its number of leaves."""
        found = []
        for root in range(self.layout.roots):
            of = int(self.classes[root])
            parts = [[each[of] for each in part] for part in (self.subtrees.untold, self.subtrees.told)]
            found.append((self.means[root].copy(), *parts, float(self.subtrees.leaves[of])))
        return found

    def downward(self, roots: Array | None = None, above: RootVariances | None = None) -> SignedFit:
        """The fit of all nodes; `roots` are the coefficients of roots that more is known of, and their variances."""
        if roots is not None:
            self.means[: self.layout.roots] = roots
        maps = (*self.subtrees.shares, self.subtrees.untold, self.subtrees.told)
        _down(self.layout.first, self.classes, self._columns, self._shape, *map(_flat, maps), self.means)
        tables = self.basis.tables(self.means)
        return SignedFit(self.layout, self.basis, tables, self.classes, self.subtrees, self.largest, above)


def fit_signed(layout: Layout, evidence: NodeEvidence) -> SignedFit:
    """The least-squares tables; the evidence is used up."""
    return Upward(layout, evidence).downward()


def parents(layout: Layout) -> Labels:
    """The parent of each node, −1 for roots."""
    found = np.full(layout.nodes, -1, dtype=np.int64)
    found[layout.roots :] = np.repeat(np.arange(layout.nodes), np.diff(layout.first))
    return found


def node_variances(
    layout: Layout,
    parent: Labels,
    classes: Labels,
    subtrees: Subtrees,
    nodes: Labels,
    above: RootVariances | None = None,
) -> NodeVariances:
    """The variances of the coefficients of some nodes: once for all whose path to the root is through the same classes.

    They need no values.
    """
    wanted = np.zeros(layout.nodes, dtype=bool)
    wanted[nodes] = True
    levels = depths(layout)
    for begin, end in reversed(levels[1:]):
        wanted[parent[begin:end][wanted[begin:end]]] = True
    row = np.zeros(layout.nodes, dtype=np.int64)
    parts: list[tuple[Blocks, Blocks]] = []
    count = 0
    for depth, (begin, end) in enumerate(levels):
        chosen = begin + np.flatnonzero(wanted[begin:end])
        if not chosen.size:
            break
        if depth == 0 and above is not None:
            row[chosen] = above.of[chosen]
            parts.append((above.untold, above.told))
            count = len(above.told[0])
            continue
        key = classes[chosen] if depth == 0 else row[parent[chosen]] * len(subtrees.leaves) + classes[chosen]
        _, first, label = np.unique(key, return_index=True, return_inverse=True)
        of = classes[chosen[first]]
        if depth == 0:
            parts.append((tuple(each[of] for each in subtrees.untold), tuple(each[of] for each in subtrees.told)))
        else:
            begun = count - len(parts[-1][1][0])
            over = parent[chosen[first]]
            pairs = [
                subtrees.below(place, classes[over], of, (infinite[row[over] - begun], finite[row[over] - begun]))
                for place, (infinite, finite) in enumerate(zip(*parts[-1], strict=True))
            ]
            parts.append((tuple(each for each, _ in pairs), tuple(each for _, each in pairs)))
        row[chosen] = count + label
        count += len(of)
    untold, told = (tuple(map(np.concatenate, zip(*side, strict=True))) for side in zip(*parts, strict=True))
    return NodeVariances(row[nodes], untold, told)


def _flat(blocks: Blocks) -> Array:
    """The matrices of all residuals of a class side by side."""
    return np.concatenate([each.reshape(len(each), -1) for each in blocks], axis=1)


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
def _up(first, classes, columns, shapes, before, own, means):  # pragma: no cover - compiled
    """Replace precision × value by what each subtree says."""
    nodes, cells = means.shape
    summed, moved = np.empty(cells), np.empty(cells)
    for v in range(nodes - 1, -1, -1):
        of = classes[v]
        summed[:] = 0.0
        for c in range(first[v], first[v + 1]):
            for h in range(cells):
                summed[h] += means[c, h]
        start, at = 0, 0
        for block in range(len(shapes)):
            rows, b = shapes[block]
            for _ in range(rows):
                for i in range(b):
                    value = 0.0
                    for j in range(b):
                        h = columns[start + j]
                        value += before[of, at + i * b + j] * summed[h] + own[of, at + i * b + j] * means[v, h]
                    moved[columns[start + i]] = value
                start += b
            at += b * b
        for h in range(cells):
            means[v, h] = moved[h]


@njit(nogil=True, cache=True, error_model="numpy")
def _down(first, classes, columns, shapes, x, c, untold, told, means):  # pragma: no cover - compiled
    """Replace what each subtree says by what all nodes together say."""
    nodes, cells = means.shape
    rest, by_untold, by_told = np.empty(cells), np.empty(cells), np.empty(cells)
    for v in range(nodes):
        begin, end = first[v], first[v + 1]
        if begin == end:
            continue
        for h in range(cells):
            rest[h] = means[v, h]
        for child in range(begin, end):
            for h in range(cells):
                rest[h] -= means[child, h]
        _times(x, classes[v], columns, shapes, rest, by_untold)
        _times(c, classes[v], columns, shapes, rest, by_told)
        for child in range(begin, end):
            of, start, at = classes[child], 0, 0
            for block in range(len(shapes)):
                rows, b = shapes[block]
                for _ in range(rows):
                    for i in range(b):
                        value = 0.0
                        for j in range(b):
                            h = columns[start + j]
                            value += untold[of, at + i * b + j] * by_untold[h] + told[of, at + i * b + j] * by_told[h]
                        means[child, columns[start + i]] += value
                    start += b
                at += b * b


@njit(nogil=True, cache=True, error_model="numpy")
def _times(matrices, of, columns, shapes, vector, found):  # pragma: no cover - compiled
    start, at = 0, 0
    for block in range(len(shapes)):
        rows, b = shapes[block]
        for _ in range(rows):
            for i in range(b):
                value = 0.0
                for j in range(b):
                    value += matrices[of, at + i * b + j] * vector[columns[start + j]]
                found[columns[start + i]] = value
            start += b
        at += b * b


def draw_errors(fit: SignedFit, nodes: Sequence[int], draws: int, rng: Generator) -> dict[int, Array]:
    """Errors of the fitted tables of these nodes as Gaussian noise would make them: draws × cells for each.

    Every node but a root comes after its parent, and with all its siblings: the errors of the children of one node are
    drawn together. What nothing tells has no error.
    """
    errors: dict[int, Array] = {}
    chosen, basis, subtrees = set(nodes), fit.basis, fit.subtrees
    for node in nodes:
        errors[node] = rng.standard_normal((draws, basis.cells))
        for place, columns in enumerate(basis.columns):
            variance = subtrees.told[place][fit.classes[node]]
            if fit.above is not None and node < fit.layout.roots:
                variance = fit.above.told[place][fit.above.of[node]]
            values, vectors = np.linalg.eigh(variance)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            errors[node][:, columns] = errors[node][:, columns] @ root.T
    for node in sorted(chosen):
        children = range(int(fit.layout.first[node]), int(fit.layout.first[node + 1]))
        if not children or children[0] not in chosen:
            continue
        rest = errors[node] - sum(errors[child] for child in children)
        for place, columns in enumerate(basis.columns):
            for child in children:
                gain = subtrees.gain(place, int(fit.classes[node]), int(fit.classes[child]))
                errors[child][:, columns] += rest[:, columns] @ gain.T
    return {node: basis.tables(errors[node]) for node in nodes}

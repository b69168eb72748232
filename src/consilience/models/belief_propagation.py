"""Pseudo-marginals by messages between clusters and separators, for any counting numbers.

With potentials θ_k on the clusters and counting numbers c_k > 0 for clusters and c_j for separators, look for a
stationary point of

    Σ_k ⟨θ_k, b_k⟩ + Σ_k c_k H(b_k) + Σ_j c_j H(b_j)

among tables b_k, b_j that are non-negative, sum to 1 and agree: the margin of b_k on a separator j attached to it is
b_j. A multiplier λ_jk(x_j) for each such condition gives b_k ∝ exp((θ_k + Σ_j λ_jk) / c_k) and
b_j ∝ exp(−Σ_k λ_jk / c_j). Let m_jk be the margin on j of b_k with λ_jk left out. All conditions of one separator
hold at once when

    b_j ∝ Π_k m_jk^(c_k / (c_j + Σ_k c_k)),    λ_jk = c_k (log b_j − log m_jk).

That is the step taken here, for one separator after another, to and fro. With c_k = 1 and c_j = 1 − (number of attached
clusters) it is the sum-product rule, b_j ∝ Π_k m_jk (Yedidia, Freeman, Weiss 2005); with all c > 0 it is block
coordinate descent in the dual (Hazan, Peng, Shashua 2012). Work and memory are linear in the cells of the clusters.

**What pseudo-marginals are.** Where clusters and separators form a tree, the marginals. On loops two clusters that
share attributes agree on them only so far as the messages have settled (`disagreement`), and even where all agree there
may be no distribution with these marginals: answers about more than one scope can then contradict each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from consilience.errors import DeclarationError
from consilience.marginals.table_stacks import Scope
from consilience.models.region_graphs import (
    ClusterTables,
    LogTables,
    NumberTables,
    RegionGraph,
    Underflow,
    less,
    normalised,
    region_graph,
)
from consilience.models.tables import TableLayout
from consilience.solvers.fit import Status

Vector = NDArray[np.float64]
DIFFERENCE = 1e-3
"""By how much, at most, a potential moves in a difference of pseudo-marginals."""

Allowed = Sequence[tuple[Sequence[int], NDArray[np.bool_]]]


@dataclass(frozen=True, eq=False)
class PseudoMarginals:
    """Tables that stand for the marginals of a model, and how far they may be trusted."""

    values: Vector
    """The tables in the oracle's layout; each sums to the total."""
    log_partition: float
    """The variational value, which stands for the logarithm of the partition sum and equals it on trees."""
    disagreement: float
    """The largest total variation distance between what two clusters say about what they share, in parts of 1."""
    sweeps: int
    status: Status
    """`CONVERGED` if the disagreement met the tolerance, else `STEP_LIMIT`."""


@dataclass(frozen=True)
class _Tie:
    """A separator in one of its clusters: where the cluster's other axes are, and its shape among them."""

    separator: int
    cluster: int
    others: tuple[int, ...]
    shape: tuple[int, ...]


class RegionPropagation:
    """An oracle of pseudo-marginals: what two kinds of counting numbers have in common.

    Messages are kept from call to call, where they are a good start for potentials that have moved a little.
    """

    usual_damping: ClassVar[float]

    def __init__(
        self,
        sizes: Sequence[int],
        scopes: Sequence[Sequence[int]],
        *,
        total: float = 1.0,
        allowed: Allowed = (),
        damping: float | None = None,
        tolerance: float = 1e-9,
        max_sweeps: int = 500,
    ) -> None:
        """`damping` is the share of each message that stays; it is not used on trees."""
        damping = self.usual_damping if damping is None else damping
        if not 0.0 <= damping < 1.0:
            raise DeclarationError(f"damping is {damping}; it is the share of a message that stays: give 0 to below 1")
        self.layout = TableLayout(sizes, scopes)
        """Where the tables of the scopes lie."""
        self.total = float(total)
        self.graph: RegionGraph = region_graph(sizes, [*self.layout.scopes, *(scope for scope, _ in allowed)])
        self.cluster_numbers, self.separator_numbers = self.counting_numbers()
        self._tolerance, self._max_sweeps = tolerance, max_sweeps
        self._damping = 0.0 if self.graph.is_forest else damping
        self._tables = TableLayout(sizes, self.graph.clusters)
        self._homes = [self.graph.home(scope) for scope in self.layout.scopes]
        self._impossible = self._impossible_cells(allowed)
        self._ties = self._tied()
        self.forget()

    def counting_numbers(self) -> tuple[Vector, Vector]:
        """The counting numbers of the clusters and of the separators."""
        return np.ones(len(self.graph.clusters)), np.array(self.graph.counting, dtype=np.float64)

    def forget(self) -> None:
        """Let the next call start without messages."""
        cells = [int(np.prod([self.layout.sizes[a] for a in scope])) for scope in self.graph.separators]
        self._messages = [[np.zeros(cells[tie.separator]) for tie in ties] for ties in self._ties]

    def marginals(self, potentials: Vector) -> PseudoMarginals:
        """The pseudo-marginals of the model with these potentials, in this oracle's layout."""
        flat = np.asarray(potentials, dtype=np.float64)
        if flat.shape != (self.layout.size,):
            raise DeclarationError(
                f"the potentials have shape {flat.shape}; the layout has {self.layout.size} cells: pack them with it"
            )
        if not np.isfinite(flat).all():
            raise DeclarationError("a potential is not finite; say which cells are impossible with `allowed` instead")
        thetas = self._cluster_potentials(flat)
        try:
            tables = NumberTables(self._tilted(thetas))
            sweeps, converged = self._settle(tables)
        except Underflow:
            tables = LogTables(self._tilted(thetas))
            sweeps, converged = self._settle(tables)
        status = Status.CONVERGED if converged else Status.STEP_LIMIT
        beliefs = [tables.shares(k) for k in range(len(thetas))]
        return PseudoMarginals(self._collected(beliefs), *self._judged(thetas, beliefs), sweeps, status)

    # Multipliers λ_jk whose sum over k is 0 for every separator leave Σ_k ⟨θ_k + Σ_j λ_jk, b_k⟩ as it is for tables
    # that agree, so Σ_k max(θ_k + Σ_j λ_jk) bounds it. On a tree, max-margins pushed to a root make it exact. Then
    # giving every cluster of a separator the mean of their max-margins never raises it (diffusion; Werner 2007).
    def largest(self, potentials: Vector) -> float:
        """An upper bound on Σ_s ⟨θ_s, b_s⟩ for tables b that sum to 1 and agree, and so for every possible cell.

        It is the largest potential of a cell on trees. Gaps proven with it compare with the best tables that agree.
        """
        tables = self._cluster_potentials(np.asarray(potentials, dtype=np.float64))
        for j in range(len(self._ties) - 1, -1, -1):
            self._push(j, tables)
        bound = _sum_of_largest(tables)
        for _ in range(0 if self.graph.is_forest else self._max_sweeps):
            for j in range(len(self._ties)):
                self._share(j, tables)
            lower = _sum_of_largest(tables)
            if bound - lower <= 1e-4 * (1.0 + abs(lower)) / len(tables):
                return min(bound, lower)
            bound = lower
        return bound

    def derivative(self, potentials: Vector, direction: Vector) -> Vector:
        """How the pseudo-marginals change along a direction, to about four digits: a difference of two calls."""
        step = DIFFERENCE / max(float(np.abs(direction).max(initial=0.0)), np.finfo(np.float64).tiny)
        ahead, behind = (self.marginals(potentials + sign * step * direction).values for sign in (1.0, -1.0))
        return (ahead - behind) / (2.0 * step)

    def _push(self, j: int, tables: list[Vector]) -> None:
        """Move what the clusters of a separator could gain at most to the first of them."""
        first, *rest = self._ties[j]
        for tie in rest:
            margin = tables[tie.cluster].max(axis=tie.others).ravel()
            tables[tie.cluster] -= np.where(np.isneginf(margin), 0.0, margin).reshape(tie.shape)
            tables[first.cluster] += margin.reshape(first.shape)

    def _share(self, j: int, tables: list[Vector]) -> None:
        """Make what they could gain at most the same for all clusters of a separator."""
        ties = self._ties[j]
        margins = [tables[tie.cluster].max(axis=tie.others).ravel() for tie in ties]
        mean = np.mean(margins, axis=0)
        for tie, margin in zip(ties, margins, strict=True):
            tables[tie.cluster] += less(mean, margin).reshape(tie.shape)

    def _settle(self, tables: ClusterTables) -> tuple[int, bool]:
        """Sweep over the separators to and fro until all agree; how often, and whether they do."""
        for sweep in range(self._max_sweeps):
            order = range(len(self._ties)) if sweep % 2 == 0 else range(len(self._ties) - 1, -1, -1)
            worst = max((self._update(j, tables) for j in order), default=0.0)
            if worst <= self._tolerance:
                return sweep + 1, True
        return self._max_sweeps, False

    def _update(self, j: int, tables: ClusterTables) -> float:
        """Make the clusters of one separator agree; how far apart they were."""
        ties, messages = self._ties[j], self._messages[j]
        numbers = [self.cluster_numbers[tie.cluster] for tie in ties]
        margins = [tables.log_margin(tie.cluster, tie.others) for tie in ties]
        without = [less(margin, old / c) for margin, old, c in zip(margins, messages, numbers, strict=True)]
        pooled = np.sum([c * each for c, each in zip(numbers, without, strict=True)], axis=0)
        belief = normalised(pooled / (self.separator_numbers[j] + sum(numbers)))
        apart = 0.0
        for place, (tie, c) in enumerate(zip(ties, numbers, strict=True)):
            apart = max(apart, 0.5 * float(np.abs(np.exp(margins[place]) - np.exp(belief)).sum()))
            wanted, old = c * less(belief, without[place]), messages[place]
            new = wanted if self._damping == 0.0 else (1.0 - self._damping) * wanted + self._damping * old
            tables.tilt(tie.cluster, (less(new, old) / c).reshape(tie.shape))
            messages[place] = new
        return apart

    def _cluster_potentials(self, flat: Vector) -> list[Vector]:
        """For each cluster the sum of the potentials of the scopes that it is home to; −∞ where impossible."""
        thetas = [table.copy() for table in self._impossible]
        for k, home in enumerate(self._homes):
            thetas[home] += self.layout.view(flat, k).reshape(self._shape(self.layout.axes[k], home))
        return thetas

    def _tilted(self, thetas: Sequence[Vector]) -> list[Vector]:
        """The logarithms of the clusters' tables, (θ_k + Σ_j λ_jk) / c_k."""
        tilted = [theta.copy() for theta in thetas]
        for ties, messages in zip(self._ties, self._messages, strict=True):
            for tie, message in zip(ties, messages, strict=True):
                tilted[tie.cluster] += message.reshape(tie.shape)
        return [table / c for table, c in zip(tilted, self.cluster_numbers, strict=True)]

    def _collected(self, beliefs: Sequence[Vector]) -> Vector:
        """The tables of the scopes, each from its home, times the total."""
        values = np.empty(self.layout.size)
        for k, home in enumerate(self._homes):
            others = self._others(self.layout.axes[k], home)
            self.layout.view(values, k)[...] = self.total * beliefs[home].sum(axis=others)
        return values

    def _judged(self, thetas: Sequence[Vector], beliefs: Sequence[Vector]) -> tuple[float, float]:
        """The variational value of the beliefs, and how far apart two of them are at most."""
        value, apart = 0.0, 0.0
        for theta, belief, c in zip(thetas, beliefs, self.cluster_numbers, strict=True):
            value += float(np.sum(belief * np.where(belief > 0, theta, 0.0))) + c * entropy(belief)
        for ties, c in zip(self._ties, self.separator_numbers, strict=True):
            margins = [beliefs[tie.cluster].sum(axis=tie.others).ravel() for tie in ties]
            value += c * entropy(np.mean(margins, axis=0))
            apart = max(apart, 0.5 * max(float(np.abs(one - margins[0]).sum()) for one in margins))
        return value, apart

    def _impossible_cells(self, allowed: Allowed) -> list[Vector]:
        """For each cluster 0 where a cell is possible and −∞ where it is not."""
        tables = [np.zeros(self._shape(axes, k)) for k, axes in enumerate(self._tables.axes)]
        for scope, mask in allowed:
            home, own = self.graph.home(scope), TableLayout(self.layout.sizes, [scope])
            fine = own.pack([np.asarray(mask, dtype=np.float64)]).reshape(self._shape(own.axes[0], home)) > 0
            tables[home][np.broadcast_to(~fine, tables[home].shape)] = -np.inf
            if np.isneginf(tables[home]).all():
                raise DeclarationError(f"no cell of the scope {tuple(scope)} is allowed; allow at least one")
        return tables

    def _tied(self) -> list[list[_Tie]]:
        """The ties of each separator."""
        return [
            [_Tie(j, k, self._others(separator, k), self._shape(separator, k)) for k in clusters]
            for j, (separator, clusters) in enumerate(zip(self.graph.separators, self.graph.attached, strict=True))
        ]

    def _others(self, attributes: Scope, k: int) -> tuple[int, ...]:
        """The axes of cluster k, in stored order, that are not among these attributes."""
        return tuple(axis for axis, attribute in enumerate(self._tables.axes[k]) if attribute not in attributes)

    def _shape(self, attributes: Scope, k: int) -> tuple[int, ...]:
        """The shape of a table over these attributes that broadcasts over cluster k."""
        axes = self._tables.axes[k]
        return tuple(self.layout.sizes[attribute] if attribute in attributes else 1 for attribute in axes)


def _sum_of_largest(tables: Sequence[Vector]) -> float:
    return float(sum(table.max() for table in tables))


def entropy(shares: Vector) -> float:
    """−Σ p log p, with 0 log 0 = 0.

    >>> round(entropy(np.array([0.5, 0.5, 0.0])), 6)
    0.693147
    """
    some = shares[shares > 0]
    return float(-np.sum(some * np.log(some)))


# ----------------------------------------------------------------------------------------------------------------------
# Loopy belief propagation: marginals by local messages, exact on trees, without a bound on how far off on loops.
#
# Messages run between the scopes of a model and what scopes share, as if the graph had no loops (Pearl 1988). What they
# settle on is a stationary point of the free energy of Kikuchi, with Bethe's where scopes share single attributes
# (Yedidia, Freeman, Weiss 2005); there may be several, and the messages need not settle: `damping` helps, and the
# status of the result tells. Work is linear in the cells of the scopes, however large a junction tree would be.
# McKenna, Sheldon and Miklau (2019, §5.2) name it as the way out where a junction tree is too large.


class LoopyOracle(RegionPropagation):
    """Pseudo-marginals by loopy belief propagation, with the interface of `MarginalOracle`.

    >>> import numpy as np
    >>> oracle = LoopyOracle([2, 2], [(0, 1)], total=10.0)
    >>> found = oracle.marginals(np.log([1.0, 2.0, 3.0, 4.0]))
    >>> found.values.round(9), found.status.value
    (array([1., 2., 3., 4.]), 'converged')
    """

    usual_damping = 0.5


# ----------------------------------------------------------------------------------------------------------------------
# Convex generalised belief propagation: pseudo-marginals that are the one optimum of a concave problem.
#
# Loopy belief propagation looks for a stationary point of a free energy that is not convex. Here the counting numbers
# are changed as little as is needed to make the entropy concave (Heskes 2006; Meltzer, Globerson, Weiss 2009). An
# entropy
#
#     Σ_k c_k H_k + Σ_j c_j H_j = Σ_k α_k H_k + Σ_j β_j H_j + Σ_jk γ_jk (H_k − H_j),    α, β, γ ≥ 0,
#
# with a γ for each separator j in a cluster k, is a sum of entropies and conditional entropies, and each of those is
# concave. So c_k = α_k + Σ_j γ_jk and c_j = β_j − Σ_k γ_jk. Among such numbers those are taken that count every
# attribute once as nearly as possible, and besides are near Kikuchi's, in the sense of least squares. On a tree these
# are Kikuchi's own, and the marginals are exact. On loops there is one optimum, whatever the messages start from. It
# pays for that: where loops are many, a cluster counts for little of the entropy, and its table leans towards its own
# potentials.


LEAST = 0.02
"""The least α: with a little of every cluster's entropy the optimum is unique."""

COUNT_ONCE = 10.0
"""How much more it weighs to count an attribute once than to stay near Kikuchi's numbers."""


class ConvexOracle(RegionPropagation):
    """Pseudo-marginals by convex belief propagation, with the interface of `MarginalOracle`.

    >>> oracle = ConvexOracle([2, 2, 2], [(0, 1), (1, 2), (0, 2)])
    >>> found = oracle.marginals(np.zeros(12))
    >>> bool(np.allclose(found.values, 0.25)), found.status.value
    (True, 'converged')
    """

    usual_damping = 0.0

    def counting_numbers(self) -> tuple[Vector, Vector]:
        """The concave counting numbers of the clusters and of the separators."""
        return super().counting_numbers() if self.graph.is_forest else concave_numbers(self.graph)


def concave_numbers(graph: RegionGraph) -> tuple[Vector, Vector]:
    """Counting numbers of clusters and separators, near Kikuchi's, with which the entropy is concave."""
    clusters = len(graph.clusters)
    wanted = np.concatenate([np.ones(clusters), np.array(graph.counting, dtype=np.float64)])
    parts, attributes = _parts(graph), _attributes(graph)
    system: Any = sp.vstack([parts, COUNT_ONCE * (attributes @ parts)]).tocsr()
    right = np.concatenate([wanted, np.full(attributes.shape[0], COUNT_ONCE)])
    least = np.zeros(parts.shape[1])
    least[:clusters] = LEAST
    found: Any = lsq_linear(system, right, bounds=(least, np.inf), lsmr_tol="auto")
    numbers: Vector = parts @ np.maximum(found.x, least)
    return numbers[:clusters], numbers[clusters:]


def _parts(graph: RegionGraph) -> Any:
    """The matrix that takes (α, β, γ) to (c of clusters, c of separators)."""
    clusters, separators = len(graph.clusters), len(graph.separators)
    pairs = [(k, j) for j, attached in enumerate(graph.attached) for k in attached]
    column = np.arange(len(pairs))
    shape = (clusters + separators, len(pairs))
    adding = sp.csr_matrix((np.ones(len(pairs)), ([k for k, _ in pairs], column)), shape=shape)
    taking = sp.csr_matrix((np.ones(len(pairs)), ([clusters + j for _, j in pairs], column)), shape=shape)
    return sp.hstack([sp.identity(clusters + separators, format="csr"), adding - taking]).tocsr()


def _attributes(graph: RegionGraph) -> Any:
    """The matrix that says for each attribute which regions hold it."""
    regions = [*graph.clusters, *graph.separators]
    held = [(attribute, place) for place, region in enumerate(regions) for attribute in region]
    rows, columns = [attribute for attribute, _ in held], [place for _, place in held]
    matrix = sp.csr_matrix((np.ones(len(held)), (rows, columns)), shape=(len(graph.sizes), len(regions)))
    return matrix[np.diff(matrix.indptr) > 0]

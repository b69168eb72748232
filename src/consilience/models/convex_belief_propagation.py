"""Convex generalised belief propagation: pseudo-marginals that are the one optimum of a concave problem.

Loopy belief propagation looks for a stationary point of a free energy that is not convex. Here the counting numbers are
changed as little as is needed to make the entropy concave (Heskes 2006; Meltzer, Globerson, Weiss 2009). An entropy

    Σ_k c_k H_k + Σ_j c_j H_j = Σ_k α_k H_k + Σ_j β_j H_j + Σ_jk γ_jk (H_k − H_j),    α, β, γ ≥ 0,

with a γ for each separator j in a cluster k, is a sum of entropies and conditional entropies, and each of those is
concave. So c_k = α_k + Σ_j γ_jk and c_j = β_j − Σ_k γ_jk. Among such numbers those are taken that count every
attribute once as nearly as possible, and besides are near Kikuchi's, in the sense of least squares. On a tree these are
Kikuchi's own, and the marginals are exact. On loops there is one optimum, whatever the messages start from. It pays for
that: where loops are many, a cluster counts for little of the entropy, and its table leans towards its own potentials.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import lsq_linear

from consilience.models.region_graphs import RegionGraph
from consilience.models.region_propagation import RegionPropagation, Vector

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

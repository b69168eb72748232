"""Strategies that are hierarchies: sums over sets of cells of which any two are nested or disjoint.

Such a strategy is a forest with the rows as nodes and the cells as leaves, and the tree solver fits it exactly in
near-linear time. Taking sets from large to small, a set that fits must lie inside the smallest one so far that holds
any of its cells, so one look at every entry finds the forest or shows that there is none.
"""

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.numerics.compilation import announce
from consilience.numerics.fit import Fit
from consilience.numerics.trees.fit import fit_forest

ROOT = -1


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The forest behind a strategy: a node for each row, then one for each cell without a row of its own."""

    parent: NDArray[np.int64]
    node_of_cell: NDArray[np.int64]
    rows: int

    def fit(
        self,
        noisy: NDArray[np.float64],
        weights: NDArray[np.float64],
        *,
        clipped: NDArray[np.bool_] | None,
        **options: Any,
    ) -> Fit:
        """The fitted cells; `options` are those of `fit_forest`."""
        added = np.zeros(self.parent.size - self.rows)
        everything = fit_forest(
            np.concatenate([noisy, added]),
            self.parent,
            weights=np.concatenate([weights, added]),
            clipped=None if clipped is None else np.concatenate([clipped, added > 0.0]),
            **options,
        )
        cells = everything.counts[self.node_of_cell]
        stats = {**everything.stats, "solver": "forest"}
        return Fit(cells, everything.objective, everything.gap, everything.status, stats)


def find_hierarchy(matrix: Any) -> Hierarchy | None:
    """The hierarchy that a matrix of zeros and ones is, with every column in some row; None where it is none."""
    entries = matrix.data if sp.issparse(matrix) else matrix
    if not np.all((entries == 0.0) | (entries == 1.0)):
        return None
    rows: Any = sp.csr_array(matrix)
    rows.eliminate_zeros()
    sizes = np.diff(rows.indptr)
    if not sizes.all():
        return None
    parent = np.full(sizes.size, ROOT, dtype=np.int64)
    owner = np.full(rows.shape[1], ROOT, dtype=np.int64)
    announce(_nest)
    if not _nest(np.argsort(-sizes, kind="stable"), rows.indptr, rows.indices, parent, owner) or np.any(owner == ROOT):
        return None
    alone = sizes[owner] == 1
    leaves = np.flatnonzero(~alone)
    node_of_cell = owner.copy()
    node_of_cell[leaves] = sizes.size + np.arange(leaves.size)
    return Hierarchy(np.concatenate([parent, owner[leaves]]), node_of_cell, sizes.size)


@numba.njit(nogil=True, cache=True)
def _nest(order, begins, cells, parent, owner):  # pragma: no cover - compiled
    """Fills the parent of each row and the smallest row around each cell; False when two rows overlap."""
    for row in order:
        above = owner[cells[begins[row]]]
        for place in range(begins[row], begins[row + 1]):
            if owner[cells[place]] != above:
                return False
            owner[cells[place]] = row
        parent[row] = above
    return True

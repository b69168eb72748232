"""Strategies that are hierarchies: sums over sets of cells of which any two are nested or disjoint.

Such a strategy is a forest (see `solvers.trees.laminar`), and the tree solver fits it exactly in near-linear time.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.solvers.fit import Fit
from consilience.solvers.trees.fit import fit_forest
from consilience.solvers.trees.laminar import Crossing, SetForest, forest_of_lists


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The forest behind a strategy, and how many cells share the count of each node."""

    forest: SetForest
    cells: NDArray[np.int64]

    def fit(
        self,
        noisy: NDArray[np.float64],
        weights: NDArray[np.float64],
        *,
        clipped: NDArray[np.bool_] | None,
        exact: NDArray[np.bool_] | None,
        **options: Any,
    ) -> Fit:
        """The fitted cells; `options` are those of `fit_forest`."""
        forest = self.forest
        found = fit_forest(
            forest.of_sets(noisy),
            forest.parent,
            weights=forest.of_sets(weights),
            clipped=None if clipped is None else forest.of_sets(clipped),
            exact=None if exact is None else forest.of_sets(exact),
            **options,
        )
        shares = np.append(found.counts / np.maximum(self.cells, 1), 0.0)
        cells = shares[forest.node_of_cell]
        return Fit(cells, found.objective, found.gap, found.status, {**found.stats, "solver": "forest"})


def find_hierarchy(matrix: Any, measured: NDArray[np.bool_]) -> Hierarchy | None:
    """The hierarchy that the measured rows of a matrix of zeros and ones are; None where they are none.

    Rows that were not measured do not matter, and cells that are in no other row get the count 0.
    """
    entries = matrix.data if sp.issparse(matrix) else matrix
    if not np.all((entries == 0.0) | (entries == 1.0)):
        return None
    columns: Any = sp.csc_array(matrix)
    columns.eliminate_zeros()
    sizes = np.bincount(columns.indices, minlength=matrix.shape[0])
    if not measured.any() or not sizes[measured].all():
        return None
    forest = forest_of_lists(columns.indptr, columns.indices, measured=measured)
    if isinstance(forest, Crossing):
        return None
    covered = forest.node_of_cell[forest.node_of_cell >= 0]
    return Hierarchy(forest, np.bincount(covered, minlength=forest.nodes))

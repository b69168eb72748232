"""A guess between which prices the optimum lies, so that curves need not be drawn beyond.

A node's price is minus the sum of the slopes of its ancestors, and a slope is about a + 2q·|r|, where r is what is
missing between a noisy value and the sum of its children's. Slopes have both signs, so prices rarely come near the
number of ancestors times the mean slope; twice that is the guess. The curve of a large subtree reaches far beyond:
its price changes by about q for each unit of noise in each of its leaves. Left alone, all corners climb to the root,
O(n · height) steps; within the window few do, and the steps are near O(n).

A wrong guess gives wrong states, which their certificate shows.
"""

import numba
import numpy as np

from consilience.kernels.compilation import announce
from consilience.solvers.trees.costs import Costs
from consilience.solvers.trees.layout import Layout

WIDE = 2.0
"""The guess, in units of the height times the mean slope; optima of sparse and of empty histograms reach 1.4."""


def likely_window(layout: Layout, costs: Costs) -> float:
    """A price beyond which no node of the optimum is expected."""
    announce(_mean_slope)
    return WIDE * (layout.height + 1) * float(_mean_slope(costs, layout.first))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _mean_slope(costs, first):  # pragma: no cover - compiled
    """The mean of a + 2q·|r| over the nodes with children; infinite where there are none."""
    total, inner = 0.0, 0
    for v in range(len(costs)):
        if first[v] == first[v + 1]:
            continue
        missing = costs[v].noisy
        for c in range(first[v], first[v + 1]):
            missing -= min(max(costs[c].noisy, costs[c].lower), costs[c].upper)
        total += costs[v].linear + 2.0 * costs[v].square * abs(missing)
        inner += 1
    return total / inner if inner > 0 else np.inf

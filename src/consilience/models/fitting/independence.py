"""The model in which all attributes are independent, with given one-way counts: a centre to start fits from."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from consilience.models.layout import TableLayout

Array = NDArray[np.float64]


def independent_potentials(layout: TableLayout, shares: Mapping[int, Array]) -> Array:
    """Flat potentials of Π_a share_a(x_a); attributes without shares are uniform. Shares are positive.

    >>> layout = TableLayout([2, 2], [(0,), (0, 1)])
    >>> np.exp(independent_potentials(layout, {0: np.array([0.25, 0.75]), 1: np.array([0.5, 0.5])})).round(2)
    array([0.25, 0.75, 0.5 , 0.5 , 0.5 , 0.5 ])
    """
    flat = np.zeros(layout.size)
    placed: set[int] = set()
    for k, axes in enumerate(layout.axes):
        table = layout.view(flat, k)
        for place, attribute in enumerate(axes):
            if attribute not in placed and attribute in shares:
                placed.add(attribute)
                shape = [1] * len(axes)
                shape[place] = -1
                table += np.log(shares[attribute]).reshape(shape)
    return flat


def independent_marginals(layout: TableLayout, shares: Mapping[int, Array], total: float) -> Array:
    """Flat marginals of the same model.

    >>> layout = TableLayout([2, 2], [(0,), (0, 1)])
    >>> independent_marginals(layout, {0: np.array([0.25, 0.75])}, 8.0)
    array([2., 6., 1., 1., 3., 3.])
    """
    flat = np.full(layout.size, total)
    for k, axes in enumerate(layout.axes):
        table = layout.view(flat, k)
        for place, attribute in enumerate(axes):
            size = layout.sizes[attribute]
            shape = [1] * len(axes)
            shape[place] = size
            table *= shares[attribute].reshape(shape) if attribute in shares else 1.0 / size
    return flat

"""The cells of a table that its margins leave open: those that no zero of a margin forces to be 0."""

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.margin_layouts import MarginLayout
from consilience.marginals.margins import TRACE

CONTRADICTION = 1e-9
"""What a margin may hold, in parts of the total, where the zeros of others leave it no cell."""


def possible_cells(layout: MarginLayout, wanted: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which cells can hold something; all of them where the zeros of one margin contradict the others."""
    zeros = np.abs(wanted) <= TRACE
    everywhere = np.ones(layout.cells, dtype=np.bool_)
    if not zeros.any():
        return everywhere
    found = layout.spread(zeros.astype(np.float64)) == 0.0
    left = layout.margins(found.astype(np.float64))
    contradicted = np.any((left == 0.0) & (wanted > CONTRADICTION))
    return everywhere if contradicted else found

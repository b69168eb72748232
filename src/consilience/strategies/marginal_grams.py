"""The Gram matrix of all marginals of some order over the joint cells of several attributes.

A marginal over the attributes A has a row for each of its cells, and two cells x, y of the full table share that row if
they agree on A. So WᵀW counts, for all sets A of k attributes, those on which x and y agree:

    (WᵀW)_xy = C(number of attributes on which x and y agree, k).
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import comb

from consilience.errors import DeclarationError, TooLarge, readable_count
from consilience.strategies.grams import Matrix

MOST_CELLS = 4096
"""Strategies for more cells take hours to find."""


def marginal_workload_gram(sizes: Sequence[int], ways: int) -> Matrix:
    """WᵀW of all marginals over `ways` of the attributes of these sizes, cells in the table's own order.

    >>> marginal_workload_gram([2, 2], 1).astype(int).tolist()
    [[2, 1, 1, 0], [1, 2, 0, 1], [1, 0, 2, 1], [0, 1, 1, 2]]
    """
    if not 0 <= ways <= len(sizes):
        raise DeclarationError(f"{ways}-way marginals were asked for, but there are {len(sizes)} attributes")
    cells = int(np.prod(sizes, dtype=np.int64))
    if cells > MOST_CELLS:
        raise TooLarge(
            f"the attributes have {readable_count(cells)} joint cells, and strategies are found for up to "
            f"{MOST_CELLS:,}; "
            "leave out attributes"
        )
    codes = np.stack(np.unravel_index(np.arange(cells), tuple(sizes)))
    agreeing = (codes[:, :, None] == codes[:, None, :]).sum(axis=0)
    return np.asarray(comb(agreeing, ways), dtype=np.float64)

"""One step of consistency, on one set of attributes (Qardaji et al. 2014, §4.4); `consistency` takes all at once."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.marginals.scopes import Scope
from consilience.marginals.table_stacks import summed

Array = NDArray[np.float64]


def mutually_consistent(
    tables: Sequence[Array], scopes: Sequence[Scope], *, on: Scope, weights: Sequence[float] | None = None
) -> list[Array]:
    """Tables that agree on the marginal of `on`: its weighted mean over them, differences spread evenly over cells.

    With the weights 1/(variance of a cell × cells of the table), the default for equal noise, the mean is the most
    precise one. All other residuals of the tables stay as they are.

    >>> one, two = np.array([[0.3, 0.3], [0.3, 0.1]]), np.array([[0.2, 0.3], [0.1, 0.4]])
    >>> mutually_consistent([one, two], [(1, 2), (1, 3)], on=(1,))[0]
    array([[0.275, 0.275],
           [0.325, 0.125]])
    """
    for scope in scopes:
        if not set(on) <= set(scope):
            raise DeclarationError(f"a table over {scope} has no marginal on {on}; leave it out of this step")
    shares = np.array([1.0 / table.size for table in tables] if weights is None else weights, dtype=np.float64)
    marginals = [summed(table, scope, on) for table, scope in zip(tables, scopes, strict=True)]
    mean = sum(share * each for share, each in zip(shares / shares.sum(), marginals, strict=True))
    return [
        table + _spread(mean - marginal, on, table, scope)
        for table, scope, marginal in zip(tables, scopes, marginals, strict=True)
    ]


def _spread(change: Array, on: Scope, table: Array, scope: Scope) -> Array:
    """A change of a marginal, in equal parts on the cells that sum to each of its cells."""
    kept = [attribute for attribute in scope if attribute in on]
    ordered = np.asarray(change).transpose([on.index(attribute) for attribute in kept])
    shape = [size if attribute in on else 1 for attribute, size in zip(scope, table.shape, strict=True)]
    return ordered.reshape(shape) * (math.prod(shape) / table.size)

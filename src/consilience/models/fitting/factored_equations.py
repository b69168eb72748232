"""Newton's equations between the prices of rows by factorisation, for models whose full table is small.

Conjugate gradients (`price_equations`) need the more steps the more the rows' scales differ: exact rows beside noisy
ones, rows that others imply, products of prefix queries, noise that is a millionth of the counts. A factorisation does
not mind any of it. It takes the matrix B diag(x) Bᵀ of row products, and so the cells x of the full table.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.linear_maps import IdentityMap, LinearMap
from consilience.models.counted_oracle import CountedOracle
from consilience.models.fitting.monitor import Monitor
from consilience.models.fitting.price_equations import PriceEquations
from consilience.models.fitting.rows import MeasuredQuery, MeasuredRows
from consilience.models.oracle import MarginalOracle
from consilience.solvers.tables.newton_equations import factored_solution
from consilience.solvers.tables.row_costs import RowProducts, Rows, are_affordable

Array = NDArray[np.float64]

MOST_ROWS = 1_500
"""A factorisation of so many rows takes a fraction of a second, and a fit takes a hundred of them."""

MOST_CELLS = 1_000_000


class FactoredEquations(PriceEquations):
    """Solves Newton's equations at any model by factorisation, whatever accuracy is asked for."""

    def __init__(self, oracle: CountedOracle, rows: MeasuredRows, model: MarginalOracle) -> None:
        super().__init__(oracle, rows)
        self._model = model
        self._shape = _shape(model)
        self._products = RowProducts(self._shape, _queries(rows))

    @staticmethod
    def of(oracle: CountedOracle, rows: MeasuredRows) -> "FactoredEquations | None":
        """The equations of these rows; None where the rows or the cells of the full table are too many."""
        model = oracle.oracle
        if not isinstance(model, MarginalOracle) or rows.size > MOST_ROWS:
            return None
        shape = _shape(model)
        if math.prod(shape) > MOST_CELLS or not are_affordable(shape, _queries(rows)):
            return None
        return FactoredEquations(oracle, rows, model)

    def solve(
        self,
        stiffness: Array,
        rho: float,
        target: Array,
        *,
        enough: float,
        most_steps: int,
        monitor: Monitor,
    ) -> Array:
        products = self._products.of(self._table())
        return factored_solution(products, self._fitted, rho, stiffness, target, self.oracle.total)

    def _table(self) -> Array:
        """The cells of the model."""
        layout, table = self.rows.layout, np.zeros(self._shape)
        for k, scope in enumerate(layout.scopes):
            table += _spread(layout.unpack_one(self._potentials, k), scope, self._shape)
        for scope, possible in self._model.allowed:
            table += np.where(_spread(np.asarray(possible), scope, self._shape), 0.0, -np.inf)
        table -= table.max()
        np.exp(table, out=table)
        table *= self.oracle.total / float(table.sum())
        return table


def _shape(model: MarginalOracle) -> tuple[int, ...]:
    """The sizes of the attributes that the model is about; 1 for all others."""
    named = {
        attribute for scope in (*model.layout.scopes, *(scope for scope, _ in model.allowed)) for attribute in scope
    }
    return tuple(size if attribute in named else 1 for attribute, size in enumerate(model.layout.sizes))


def _queries(rows: MeasuredRows) -> list[Rows]:
    return [Rows(query.attributes, _maps(query, rows.layout.sizes), query.weights) for query in rows.queries]


def _maps(query: MeasuredQuery, sizes: tuple[int, ...]) -> tuple[LinearMap, ...]:
    if query.kronecker is not None:
        return tuple(query.kronecker.maps)
    return tuple(IdentityMap(sizes[attribute]) for attribute in query.attributes)


def _spread(table: NDArray, scope: Sequence[int], shape: tuple[int, ...]) -> NDArray:
    """A table over some attributes as one over all, constant along the others."""
    ordered = table.transpose(np.argsort(scope))
    return ordered.reshape([size if attribute in scope else 1 for attribute, size in enumerate(shape)])

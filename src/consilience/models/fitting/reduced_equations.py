"""Newton's equations between prices where queries are products of maps: solved between cells, not between answers.

Answers K·x of one table x, with K of full column rank, say of x just what its least-squares fit says, with the
precision G = KᵀK. With t the target and d the prices of the answers, (1 + ρ·KCKᵀ) d = t falls apart into

    d = t − KK⁺t + (K⁺)ᵀe,      (G⁻¹ + ρC) e = K⁺t,       where e = Kᵀd and G⁻¹ = K⁺(K⁺)ᵀ.

The second one is between cells, like that of a marginal, so that what tables share can precondition it
(`shared_margins`); between answers only the diagonal could, which for prefixes of a hundred values is next to nothing.
K⁺ is the product of the inverses of its factors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.linear_maps import IdentityMap, Kronecker
from consilience.models.counted_oracle import CountedOracle
from consilience.models.fitting.monitor import Monitor
from consilience.models.fitting.price_equations import PriceEquations, inner
from consilience.models.fitting.rows import MeasuredQuery, MeasuredRows

Array = NDArray[np.float64]

MOST_VALUES = 1_024
"""Factors are inverted for attributes of up to so many values."""

FULL_RANK = 1e-8
"""The smallest singular value of a factor, relative to its largest, at which all its columns count as independent."""


@dataclass(frozen=True, eq=False)
class _Product:
    """A product of maps, its inverse factor by factor (None for the identity), and the diagonal of G⁻¹."""

    rows: slice
    cells: slice
    maps: Kronecker
    inverses: tuple[Array | None, ...]

    def down(self, answers: Array) -> Array:
        """K⁺ times answers."""
        return _along(self.inverses, answers.reshape(self.maps.shape_out))

    def up(self, cells: Array) -> Array:
        """(K⁺)ᵀ times cells."""
        inverses = [None if each is None else each.T for each in self.inverses]
        return _along(inverses, cells.reshape(self.maps.shape_in))

    @property
    def variances(self) -> Array:
        """The diagonal of G⁻¹."""
        found = np.ones(1)
        for each, size in zip(self.inverses, self.maps.shape_in, strict=True):
            found = np.outer(found, np.ones(size) if each is None else np.einsum("ij,ij->i", each, each)).ravel()
        return found


class ReducedEquations(PriceEquations):
    """Solves Newton's equations for squares, whatever products of maps the queries are."""

    def __init__(self, oracle: CountedOracle, rows: MeasuredRows, products: Sequence[_Product]) -> None:
        super().__init__(oracle, rows)
        self._products = products
        queries = [
            replace(query, kronecker=None, weights=np.full(_cells(query, rows), query.weights[0]))
            if not query.is_marginal
            else query
            for query in rows.queries
        ]
        self._reduced = MeasuredRows(rows.layout, queries)
        self._between_cells = _CellEquations(oracle, self._reduced, products)
        kept = [place for place, query in enumerate(rows.queries) if query.is_marginal]
        self._kept = [(rows.slices[place], self._reduced.slices[place]) for place in kept]

    @staticmethod
    def of(oracle: CountedOracle, rows: MeasuredRows) -> "ReducedEquations | None":
        """The equations of these rows; None where a factor is too large or has columns that depend on each other."""
        products, start = [], 0
        for query, part in zip(rows.queries, rows.slices, strict=True):
            cells = slice(start, start := start + _cells(query, rows))
            if query.is_marginal or query.kronecker is None:
                continue
            inverses = _inverses(query.kronecker)
            if inverses is None or np.ptp(query.weights) > 0.0:
                return None
            products.append(_Product(part, cells, query.kronecker, inverses))
        return ReducedEquations(oracle, rows, products)

    def move_to(self, potentials: Array, marginals: Array, fitted: Array) -> None:
        super().move_to(potentials, marginals, fitted)
        self._between_cells.move_to(potentials, marginals, self._reduced.apply(marginals))

    def solve(
        self, stiffness: Array, rho: float, target: Array, *, enough: float, most_steps: int, monitor: Monitor
    ) -> Array:
        reduced, diagonal = np.empty(self._reduced.size), np.empty(self._reduced.size)
        for rows, cells in self._kept:
            reduced[cells], diagonal[cells] = target[rows], stiffness[rows]
        for each in self._products:
            reduced[each.cells], diagonal[each.cells] = each.down(target[each.rows]).ravel(), each.variances
        found = self._between_cells.solve(diagonal, rho, reduced, enough=enough, most_steps=most_steps, monitor=monitor)
        solution = np.array(target)
        for rows, cells in self._kept:
            solution[rows] = found[cells]
        for each in self._products:
            solution[each.rows] -= each.maps.apply(reduced[each.cells].reshape(each.maps.shape_in)).ravel()
            solution[each.rows] += each.up(found[each.cells]).ravel()
        return solution


class _CellEquations(PriceEquations):
    """(G⁻¹ + ρC) e = t, by conjugate gradients preconditioned as if G⁻¹ were its diagonal."""

    def __init__(self, oracle: CountedOracle, rows: MeasuredRows, products: Sequence[_Product]) -> None:
        super().__init__(oracle, rows)
        self._products = products

    def curve(self, search: Array, rho: float, stiffness: Array, out: Array) -> float:
        self.covariance(search, out)
        out *= rho
        stiff = stiffness * search
        for each in self._products:
            stiff[each.cells] = each.down(each.up(search[each.cells])).ravel()
        out += stiff
        return inner(out, search)


def _cells(query: MeasuredQuery, rows: MeasuredRows) -> int:
    return int(np.prod([rows.layout.sizes[attribute] for attribute in query.attributes], dtype=np.int64))


def _inverses(maps: Kronecker) -> tuple[Array | None, ...] | None:
    """The inverse of each factor, None for the identity; None where one has none."""
    found: list[Array | None] = []
    for each in maps.maps:
        if isinstance(each, IdentityMap):
            found.append(None)
            continue
        if each.columns > MOST_VALUES or each.rows < each.columns:
            return None
        left, singular, right = np.linalg.svd(each.dense(), full_matrices=False)
        if singular[-1] < FULL_RANK * singular[0]:
            return None
        found.append((right.T / singular) @ left.T)
    return tuple(found)


def _along(matrices: Sequence[Array | None], table: Array) -> Array:
    """The table with each axis multiplied by its matrix; None leaves it as it is."""
    for axis, matrix in enumerate(matrices):
        if matrix is not None:
            table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
    return table

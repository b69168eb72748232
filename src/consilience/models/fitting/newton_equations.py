"""Newton's equations between the duals of rows: (diag(h) + ρ·BCBᵀ) d = t.

C is the covariance of the cells under the model, times its total: C·v is how the marginals change as the potentials
move along v. A difference of marginals gives it for one call of the oracle, several times cheaper than the exact
derivative and, at steps of 1e-4 in the potentials, more exact than conjugate gradients can use. These are
preconditioned by the diagonal and by what measured marginals share (`shared_margins`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.linear_maps import IdentityMap, JointMap, Kronecker, LinearMap
from consilience.models.fitting import shared_margins
from consilience.models.fitting.objective import MeasuredQuery, MeasuredRows, Monitor
from consilience.models.fitting.shared_margins import CoarseCorrection, SharedMargins
from consilience.models.oracle import CountedOracle, MarginalOracle
from consilience.models.tables import cells_of
from consilience.solvers.conjugate_gradients import Iterate, conjugate_gradients
from consilience.solvers.tables.row_costs import RowProducts, Rows, are_affordable
from consilience.solvers.tables.table_problem import factored_solution, inner

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NewtonSettings:
    """How Newton's equations are solved; where nothing else is said by trial, and no figures were kept."""

    difference: float = 1e-4
    """By how much, at most, a potential moves in a difference of marginals: products are exact to about as much."""
    ridge: float = 1e-6
    """The stiffness, relative to the model's own, that the preconditioner takes exact rows to have at least."""
    most_inverted: int = 1_024
    """Factors are inverted for attributes of up to so many values."""
    full_rank: float = 1e-8
    """The smallest singular value of a factor, relative to its largest, at which all its columns are independent."""
    most_rows: int = 1_500
    """A factorisation of so many rows takes a fraction of a second, and a fit takes a hundred of them."""
    most_cells: int = 1_000_000
    """Cells of the largest full table for which the equations are factored."""


NEWTON = NewtonSettings()


class OracleEquations:
    """Solves Newton's equations at any model; it keeps its memory between models."""

    def __init__(self, oracle: CountedOracle, rows: MeasuredRows) -> None:
        self.oracle, self.rows = oracle, rows
        places = [place for place, query in enumerate(rows.queries) if query.is_marginal]
        shared = SharedMargins.of(
            rows.layout.sizes,
            [rows.queries[place].attributes for place in places],
            [rows.slices[place].start for place in places],
        )
        self._correction = CoarseCorrection(shared, rows.weights)
        self._moved = np.empty(rows.layout.size)
        self._potentials = self._marginals = self._fitted = np.empty(0)

    def move_to(self, potentials: Array, marginals: Array, fitted: Array) -> None:
        """From now on the equations are those of this model."""
        self._potentials, self._marginals, self._fitted = potentials, marginals, fitted

    def covariance(self, direction: Array, out: Array) -> Array:
        """BCBᵀ times a vector of rows."""
        change = self.rows.adjoint(direction, out=self._moved)
        size = max(float(change.max(initial=0.0)), -float(change.min(initial=0.0)))
        if size == 0.0:
            out.fill(0.0)
            return out
        step = NEWTON.difference / size
        change *= step
        change += self._potentials
        moved = self.oracle.marginals(change).values
        moved -= self._marginals
        moved /= step
        return self.rows.apply(moved, out=out)

    def product(self, direction: Array, rho: float, stiffness: Array, out: Array) -> float:
        """Write the equations' matrix times a vector; the inner product of the two."""
        return shared_margins.add_stiffness(self.covariance(direction, out), rho, stiffness, direction)

    def solve(
        self, stiffness: Array, rho: float, target: Array, *, enough: float, most_steps: int, monitor: Monitor
    ) -> Array:
        """d, until the remainder is at most `enough` times the target, both in the norm of the preconditioner."""
        self._precondition(stiffness, rho)

        def product(direction: Array, out: Array) -> float:
            return self.product(direction, rho, stiffness, out)

        def stop(at: Iterate) -> bool:
            return at.energy <= enough**2 * at.first_energy or monitor.limit() is not None

        found = conjugate_gradients(product, target, self._correction, stop, most_steps=most_steps).solution
        if not found.any():
            self._correction(target, found)
        return found if np.isfinite(found).all() else np.zeros_like(target)  # rows that others imply have no end

    def _precondition(self, stiffness: Array, rho: float) -> None:
        """Make the preconditioner that of this stiffness and ρ; B diag(μ)Bᵀ − fitted·fittedᵀ/N has C's diagonal."""
        variances = self.rows.apply_squared(self._marginals)
        variances -= self._fitted**2 / self.oracle.total
        np.maximum(variances, 0.0, out=variances)
        cells = self._fitted / self.rows.weights
        self._correction.move_to(stiffness, cells, variances, rho=rho, total=self.oracle.total, ridge=NEWTON.ridge)


# ----------------------------------------------------------------------------------------------------------------------
# Newton's equations between duals where queries are products of maps: solved between cells, not between answers.
#
# Answers K·x of one table x, with K of full column rank, say of x just what its least-squares fit says, with the
# precision G = KᵀK. With t the target and d the duals of the answers, (1 + ρ·KCKᵀ) d = t falls apart into
#
#     d = t − KK⁺t + (K⁺)ᵀe,      (G⁻¹ + ρC) e = K⁺t,       where e = Kᵀd and G⁻¹ = K⁺(K⁺)ᵀ.
#
# The second one is between cells, like that of a marginal, so that what tables share can precondition it
# (`shared_margins`); between answers only the diagonal could, which for prefixes of a hundred values is next to
# nothing. K⁺ is the product of the inverses of its factors.


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


class ReducedEquations(OracleEquations):
    """Solves Newton's equations for squares, whatever products of maps the queries are."""

    def __init__(self, oracle: CountedOracle, rows: MeasuredRows, products: Sequence[_Product]) -> None:
        super().__init__(oracle, rows)
        self._products = products
        self._reduced = MeasuredRows(rows.layout, [_of_cells(query, rows) for query in rows.queries])
        self._between_cells = _CellEquations(oracle, self._reduced, products)
        kept = [place for place, query in enumerate(rows.queries) if query.is_marginal]
        self._kept = [(rows.slices[place], self._reduced.slices[place]) for place in kept]

    @staticmethod
    def of(oracle: CountedOracle, rows: MeasuredRows) -> "ReducedEquations | None":
        """The equations of these rows; None where a factor is too large or has columns that depend on each other."""
        products, start = [], 0
        for query, part in zip(rows.queries, rows.slices, strict=True):
            cells = slice(start, start := start + cells_of(rows.layout.sizes, query.attributes))
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


class _CellEquations(OracleEquations):
    """(G⁻¹ + ρC) e = t, by conjugate gradients preconditioned as if G⁻¹ were its diagonal."""

    def __init__(self, oracle: CountedOracle, rows: MeasuredRows, products: Sequence[_Product]) -> None:
        super().__init__(oracle, rows)
        self._products = products

    def product(self, direction: Array, rho: float, stiffness: Array, out: Array) -> float:
        self.covariance(direction, out)
        out *= rho
        stiff = stiffness * direction
        for each in self._products:
            stiff[each.cells] = each.down(each.up(direction[each.cells])).ravel()
        out += stiff
        return inner(out, direction)


def _of_cells(query: MeasuredQuery, rows: MeasuredRows) -> MeasuredQuery:
    """The cells that a product of maps is about, as a query with the same weight for each."""
    if query.is_marginal:
        return query
    weights = np.full(cells_of(rows.layout.sizes, query.attributes), query.weights[0])
    return replace(query, kronecker=None, weights=weights)


def _inverses(maps: Kronecker) -> tuple[Array | None, ...] | None:
    """The inverse of each factor, None for the identity; None where one has none."""
    found: list[Array | None] = []
    for each in maps.maps:
        if isinstance(each, IdentityMap):
            found.append(None)
            continue
        if each.columns > NEWTON.most_inverted or each.rows < each.columns or isinstance(each, JointMap):
            return None
        left, singular, right = np.linalg.svd(each.dense(), full_matrices=False)
        if singular[-1] < NEWTON.full_rank * singular[0]:
            return None
        found.append((right.T / singular) @ left.T)
    return tuple(found)


def _along(matrices: Sequence[Array | None], table: Array) -> Array:
    """The table with each axis multiplied by its matrix; None leaves it as it is."""
    for axis, matrix in enumerate(matrices):
        if matrix is not None:
            table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
    return table


# ----------------------------------------------------------------------------------------------------------------------
# Newton's equations between the duals of rows by factorisation, for models whose full table is small.
#
# Conjugate gradients need the more steps the more the rows' scales differ: exact rows beside noisy
# ones, rows that others imply, products of prefix queries, noise that is a millionth of the counts. A factorisation
# does not mind any of it. It takes the matrix B diag(x) Bᵀ of row products, and so the cells x of the full table.


class FactoredEquations(OracleEquations):
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
        if not isinstance(model, MarginalOracle) or rows.size > NEWTON.most_rows:
            return None
        shape = _shape(model)
        if math.prod(shape) > NEWTON.most_cells or not are_affordable(shape, _queries(rows)):
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

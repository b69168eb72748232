"""HDMM: the products of queries that answer a workload with the least expected error (McKenna et al. 2018).

A workload of queries over several attributes is a union of Kronecker products. Three kinds of strategies are optimised
for it, and that of the least expected total squared error is measured (strategies/high_dimensional.py):

- "product" (OPT_⊗): one strategy for each attribute, and their product; over one attribute this is OPT₀;
- "union" (OPT_+): groups of queries, each with a product of its own and a share of the budget;
- "marginals" (OPT_M): weights for the marginals of all sets of attributes.

Nothing here looks at the data. Where all cells of the domain fit in memory, HDMM as published fits them by least
squares: `estimators.Matrix(loss="l2", nonnegative=False)`, the `estimator` of such domains. For large domains
strategies are unions over smaller tables, and McKenna et al. (2019, §5.1) compare least squares for each table by
itself, `estimators.LocalSquares` (HDMM+LLS), with one graphical model of all, `estimators.Graphical` (HDMM+PGM).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.domains import Domain
from consilience.domain.factors import Factor, Identity
from consilience.domain.factors import Matrix as MatrixFactor
from consilience.domain.queries import RELATIVE_LATTICE_BITS, SHARED_LATTICE_BITS, Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.matrix import Matrix
from consilience.estimators.published.local_squares import LocalSquares
from consilience.kernels.linear_maps import SumMap
from consilience.measurements import MeasurementSet
from consilience.plans.answering import AnswersWorkload
from consilience.privacy.budgets import AdditiveUnit, Budget
from consilience.privacy.gate import Gate
from consilience.strategies.high_dimensional import OPERATORS, ChosenStrategy, Operator, ProductStrategy, best_strategy
from consilience.strategies.workload_grams import LARGEST_GRAM, Norm, ProductTerm, ProductWorkload, gram_matrix

# ----------------------------------------------------------------------------------------------------------------------
# Between workloads and strategies of Kronecker products: queries as Gram matrices, strategies as queries.
#
# A strategy's rows are rounded to the public lattice before they are measured, to the digits that `BoundQuery.rounded`
# keeps. Columns of a strategy for Laplace noise have the L1 norm 1; what rounding adds to or takes from a column is
# made up for by its largest entry, so that all columns cost the same and no budget is left unused.


def product_workload(workload: Workload, domain: Domain) -> ProductWorkload:
    """The workload over a domain's counted attributes; factors that only sum are left out."""
    places = {name: place for place, name in enumerate(domain.counted_names)}
    terms = []
    for query, weight in workload:
        query.refuse_joint("the plan Hdmm")
        query.bind(domain)
        grams = {}
        for name, factor in query.factors:
            found = _gram(factor, domain[name])
            if found is not None:
                grams[places[name]] = found
        terms.append(ProductTerm(weight, grams))
    return ProductWorkload(domain.shape, tuple(terms))


@lru_cache(maxsize=256)
def _gram(factor: Factor, attribute: Attribute) -> NDArray[np.float64] | None:
    """FᵀF of a factor; None where it only sums."""
    bound = factor.bind(attribute)
    if isinstance(bound, SumMap) or bound.columns == 1 == bound.rows == bound.largest_entry:
        return None
    if attribute.size > LARGEST_GRAM:
        raise TooLarge(
            f"attribute {attribute.name!r} has {attribute.size:,} values, and strategies are found for up to "
            f"{LARGEST_GRAM:,}; use coarser bins"
        )
    return gram_matrix(bound)


def strategy_query(strategy: ProductStrategy, domain: Domain, norm: Norm) -> Query:
    """A product strategy as one query on the lattice; attributes of which only the total is measured are left out."""
    names = domain.counted_names
    measured = {place: each for place, each in strategy.strategies.items() if not each.is_total}
    real = sum(each.matrix is not None for each in measured.values())
    factors = []
    for place in sorted(measured):
        matrix = measured[place].matrix
        factor = Identity() if matrix is None else MatrixFactor.of(on_lattice(matrix, real, norm))
        factors.append((names[place], factor))
    return Query(tuple(factors))


def on_lattice(matrix: NDArray[np.float64], real: int, norm: Norm) -> NDArray[np.float64]:
    """The rows rounded as one of so many real factors; for Laplace noise every column keeps its L1 norm of 1.

    >>> on_lattice(np.array([[0.7], [0.3]]), 26, 1).tolist()
    [[0.75], [0.25]]
    """
    kept = RELATIVE_LATTICE_BITS if real <= 1 else SHARED_LATTICE_BITS // real
    bits = max(0, kept - math.floor(math.log2(float(np.abs(matrix).max()))))
    units = np.round(np.ldexp(matrix, bits))
    if norm == 1:
        columns = np.arange(units.shape[1])
        largest = np.argmax(np.abs(units), axis=0)
        units[largest, columns] += np.ldexp(1.0, bits) - np.abs(units).sum(axis=0)
    return np.ldexp(units[np.any(units != 0, axis=1)], -bits)


# ----------------------------------------------------------------------------------------------------------------------
# HDMM: the products of queries that answer a workload with the least expected error (McKenna et al. 2018).


LARGEST_PRODUCT = 10**6
"""The most cells of a table that is measured, unless asked otherwise."""

WORDS: dict[Operator, str] = {
    "product": "one product of strategies for single attributes",
    "union": "products of strategies for single attributes, in groups of queries",
    "marginals": "weighted marginals",
}


@dataclass(frozen=True)
class Hdmm(AnswersWorkload):
    """The strategy of least expected error for a workload, of the kinds in `operators`.

    A workload's weights say how much squared errors count. No table of more than `most_cells` cells is measured. The
    search is not convex; `restarts` random starts, seeded, are added to the usual ones.

    >>> domain = Domain.from_sizes({"a": 4, "b": 3})
    >>> Hdmm(Workload.marginals(domain, ways=2)).strategy(domain).error
    24.0
    """

    name = "hdmm"
    workload: Workload
    operators: tuple[Operator, ...] = OPERATORS
    most_cells: int = LARGEST_PRODUCT
    restarts: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", tuple(self.operators))
        if not self.operators or not set(self.operators) <= set(OPERATORS):
            raise DeclarationError(
                f"the operators are {', '.join(map(repr, self.operators)) or 'none'}; use some of "
                f"{', '.join(OPERATORS)}"
            )
        if not len(self.workload):
            raise DeclarationError("the workload holds no query; name at least one")
        if self.restarts < 1 or self.most_cells < 1:
            raise DeclarationError(
                f"{self.restarts} restarts and tables of {self.most_cells} cells were asked for; both are from 1 up"
            )

    def strategy(self, domain: Domain, unit: AdditiveUnit = "epsilon") -> ChosenStrategy:
        """The strategy for a domain and a kind of noise, before it is rounded to the lattice."""
        return _strategy(self, domain, unit)

    def expected_error(self, domain: Domain, budget: Budget) -> float:
        """The expected total of the workload's squared errors, weighted, when records are added or removed."""
        amount = float(budget.amount)
        pure = budget.additive_unit == "epsilon"
        return self.strategy(domain, budget.additive_unit).error / (amount**2 if pure else 2.0 * amount)

    def queries(self, domain: Domain, unit: AdditiveUnit = "epsilon") -> tuple[tuple[Query, ...], tuple[float, ...]]:
        """What is measured, and the share of the budget that each query gets."""
        found = self.strategy(domain, unit)
        norm = 1 if unit == "epsilon" else 2
        return tuple(strategy_query(part, domain, norm) for part in found.parts), found.shares

    def run(self, gate: Gate) -> None:
        queries, shares = self.queries(gate.domain, gate.budget.additive_unit)
        gate.measure(queries, gate.budget, shares=shares)

    def estimator(self, domain: Domain | None = None) -> Matrix | LocalSquares:
        """Least squares over all cells, as published; for a domain with more than `most_cells`, table by table."""
        if domain is not None and domain.cells > self.most_cells:
            return LocalSquares()
        return Matrix(loss="l2", nonnegative=False)

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """Which kind of strategy was chosen, and the error to expect."""
        domain = example.domain
        found = self.strategy(domain, budget.additive_unit)
        answers = sum(query.bind(domain).size for query in self.workload.queries)
        error = math.sqrt(self.expected_error(domain, budget) / answers)
        others = [
            f"{WORDS[operator]}: {math.sqrt(other / found.error):.3g} times that"
            for operator, other in found.considered
            if operator != found.operator
        ]
        said = (
            f"{WORDS[found.operator]}: {len(found.parts)} measured together",
            f"expected root mean squared error of the workload's {answers:,} answers: {error:.4g}, when records are "
            "added or removed",
        )
        return (*said, "; ".join(others)) if others else said


@lru_cache(maxsize=16)
def _strategy(plan: Hdmm, domain: Domain, unit: AdditiveUnit) -> ChosenStrategy:
    """The strategy, kept for the next run: a plan runs twice, once to tell its price."""
    return best_strategy(
        product_workload(plan.workload, domain),
        norm=1 if unit == "epsilon" else 2,
        operators=plan.operators,
        most_cells=plan.most_cells,
        restarts=plan.restarts,
    )

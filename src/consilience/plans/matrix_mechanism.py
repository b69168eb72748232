"""The matrix mechanism: measure a strategy that suits the workload, answer the workload from it (Li et al. 2010).

The strategy depends on the workload, the attribute's declared size and the budget's unit, never on the data. Its rows
are rounded to the public lattice and measured together; the noise follows the rounded rows' sensitivity. Fitting with
`estimators.Matrix(loss="l2", nonnegative=False)` is the mechanism as published, and with loss="l1" and non-negative
counts that of Lee, Wang, Kifer 2015, §5.3.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.domains import Domain
from consilience.domain.factors import AllRanges, Factor, Identity, Prefix
from consilience.domain.factors import Matrix as MatrixFactor
from consilience.domain.queries import RELATIVE_LATTICE_BITS, SHARED_LATTICE_BITS, Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.base import check_whole
from consilience.estimators.matrix import Matrix
from consilience.estimators.published.local_squares import LocalSquares
from consilience.kernels.linear_maps import SumMap
from consilience.measurements import MeasurementSet
from consilience.plans.answering import AnswersWorkload
from consilience.plans.base import DescribedPlan
from consilience.privacy.budgets import AdditiveUnit, Budget
from consilience.privacy.gate import Gate
from consilience.strategies.attribute_strategies import (
    LARGEST_GRAM,
    Norm,
    ProductTerm,
    ProductWorkload,
    eigen_design,
    gram_matrix,
    p_identity,
    semidefinite_strategy,
)
from consilience.strategies.high_dimensional import OPERATORS, ChosenStrategy, Operator, ProductStrategy, best_strategy
from consilience.strategies.low_rank import low_rank_factors, published_low_rank_strategy

# ----------------------------------------------------------------------------------------------------------------------
# Workloads about one attribute: its values, prefixes, ranges, and random queries that a public seed determines.


FACTOR_OF_NAME: dict[str, Factor] = {"identity": Identity(), "prefix": Prefix(), "ranges": AllRanges()}


def named_workload(name: str, attribute: str) -> Workload:
    """Every value ("identity"), every prefix ("prefix") or every range ("ranges") of an attribute.

    >>> [query.describe() for query, _ in named_workload("prefix", "age")]
    ['prefix(age)']
    """
    if name not in FACTOR_OF_NAME:
        raise DeclarationError(
            f"the workload {name!r} is not known; use one of {', '.join(FACTOR_OF_NAME)}, or give a Workload"
        )
    return Workload.of([Query.of({attribute: FACTOR_OF_NAME[name]})])


# ----------------------------------------------------------------------------------------------------------------------
# What plans that optimise a strategy for one attribute share: the Gram matrix, and the strategy as a query.


@dataclass(frozen=True)
class AttributeWorkload:
    """Queries about one attribute, with how much the squared error of each counts."""

    attribute: str
    workload: Workload

    @staticmethod
    def of(workload: Workload | str, attribute: str | None) -> "AttributeWorkload":
        """The workload that a name and an attribute give, or one whose queries all name the same attribute."""
        if isinstance(workload, str):
            if attribute is None:
                raise DeclarationError(f"the workload {workload!r} is given by name; name its attribute too")
            return AttributeWorkload(attribute, named_workload(workload, attribute))
        named = dict.fromkeys(name for query in workload.queries for name in query.attributes)
        if len(named) != 1 or (attribute is not None and attribute not in named):
            raise DeclarationError(
                f"the workload names the attributes {', '.join(named) or 'none'}; a strategy is found for the queries "
                "of one attribute: give a workload about that one"
            )
        return AttributeWorkload(next(iter(named)), workload)

    def gram(self, domain: Domain) -> NDArray[np.float64]:
        """Σ_q w_q F_qᵀF_q over the attribute's values; the total, which names no attribute, is a row of ones."""
        size = domain[self.attribute].size
        if size > LARGEST_GRAM:
            raise TooLarge(
                f"attribute {self.attribute!r} has {size:,} values, and a strategy is optimised for up to "
                f"{LARGEST_GRAM:,}; use a histogram plan, or coarser bins"
            )
        found = np.zeros((size, size))
        for query, weight in self.workload:
            maps = query.bind(domain).maps
            found += weight * (gram_matrix(maps[0]) if maps else np.ones((size, size)))
        return found


@dataclass(frozen=True, eq=False)
class _AttributePlan(DescribedPlan):
    """A plan for a `Workload` about one attribute, or for "identity", "prefix" or "ranges" of the `attribute`."""

    workload: Workload | str
    attribute: str | None = None

    def _target(self) -> AttributeWorkload:
        return AttributeWorkload.of(self.workload, self.attribute)

    def to_json(self) -> dict[str, Any]:
        target = self._target()
        return super().to_json() | {"attribute": target.attribute, "workload": target.workload.to_json()}


def strategy_query(attribute: str, strategy: NDArray[np.float64]) -> Query:
    """The rows of a strategy as one query; entries that the lattice could not hold are left out."""
    kept = np.where(np.abs(strategy) >= 2.0**-21 * np.abs(strategy).max(), strategy, 0.0)
    return Query.of({attribute: MatrixFactor.of(kept[np.any(kept != 0, axis=1)])})


# ----------------------------------------------------------------------------------------------------------------------
# The matrix mechanism: measure a strategy that suits the workload, answer the workload from it (Li et al. 2010).


STRATEGIES = ("auto", "p-identity", "eigen", "yuan")


@dataclass(frozen=True, eq=False)
class MatrixMechanism(_AttributePlan):
    """A strategy for the queries of one attribute.

    The workload is a `Workload`, or "identity", "prefix" or "ranges" with the `attribute`. A strategy is

    - "p-identity": the cells and a few more queries, found by descent (McKenna et al. 2018); for Laplace noise;
    - "eigen": the workload's eigenvectors, weighted best for the noise at hand (Li, Miklau 2012);
    - "yuan": the semidefinite optimum for L2 sensitivity (Li et al. 2010, as Yuan et al. 2012 approximate it): no
      strategy is better for Gaussian noise, and many are for Laplace noise;
    - "auto": "p-identity" for pure budgets, else "yuan";
    - or a matrix of one's own, with a column for each value.
    """

    name = "matrix-mechanism"
    strategy: str | Sequence[Sequence[float]] | NDArray[np.float64] = "auto"

    def __post_init__(self) -> None:
        self._target()
        if isinstance(self.strategy, str):
            if self.strategy not in STRATEGIES:
                raise DeclarationError(
                    f"the strategy {self.strategy!r} is not known; use one of {', '.join(STRATEGIES)}, or give a matrix"
                )
            return
        given = np.array(self.strategy, dtype=np.float64)
        if given.ndim != 2 or not given.size or not np.isfinite(given).all() or not given.any():
            raise DeclarationError(
                f"the strategy has shape {given.shape}; it must be a finite matrix, a row for each query"
            )
        given.setflags(write=False)
        object.__setattr__(self, "strategy", given)

    def matrix(self, domain: Domain, unit: AdditiveUnit = "epsilon") -> NDArray[np.float64]:
        """The strategy for a domain and a kind of noise, before it is rounded to the lattice."""
        target = self._target()
        size = domain[target.attribute].size
        if not isinstance(self.strategy, str):
            given = np.asarray(self.strategy)
            if given.shape[1] != size:
                raise DeclarationError(
                    f"the strategy has {given.shape[1]} columns and attribute {target.attribute!r} {size} values; "
                    "give a column for each value"
                )
            return given
        name = self.strategy
        if name == "auto":
            name = "p-identity" if unit == "epsilon" else "yuan"
        return optimised_strategy(target.gram(domain).tobytes(), name, 1 if unit == "epsilon" else 2)

    def run(self, gate: Gate) -> None:
        strategy = self.matrix(gate.domain, gate.budget.additive_unit)
        gate.measure(strategy_query(self._target().attribute, strategy), gate.budget)

    def to_json(self) -> dict[str, Any]:
        strategy = self.strategy if isinstance(self.strategy, str) else _digest(np.asarray(self.strategy))
        return super().to_json() | {"strategy": strategy}


@lru_cache(maxsize=8)
def optimised_strategy(gram: bytes, name: str, norm: int) -> NDArray[np.float64]:
    """The strategy of a name for a Gram matrix, kept for the next run: a plan runs twice, once to tell its price."""
    flat = np.frombuffer(gram)
    size = round(len(flat) ** 0.5)
    square = flat.reshape(size, size)
    if name == "p-identity":
        found = p_identity(square)
    elif name == "eigen":
        found = eigen_design(square, norm=1 if norm == 1 else 2)
    else:
        found = semidefinite_strategy(square, tolerance=1e-4).strategy
    found.setflags(write=False)
    return found


def _digest(strategy: NDArray[np.float64]) -> dict[str, Any]:
    digest = hashlib.sha256(np.ascontiguousarray(strategy).tobytes()).hexdigest()
    return {"shape": list(strategy.shape), "sha256": digest}


# ----------------------------------------------------------------------------------------------------------------------
# LRM, the low-rank mechanism: measure few rows L from which the workload follows as W = B L (Yuan et al. 2012).
#
# The factors depend on the workload and the attribute's declared size alone. They are found for Laplace noise, whose
# sensitivity is the L1 norm; with other budgets the same rows are measured. Answering W by B times the noisy answers, B
# = W L⁺, is W x̂ with x̂ the least-squares counts of least norm: `estimators.Matrix(loss="l2", nonnegative=False)`.


@dataclass(frozen=True)
class LowRank(_AttributePlan):
    """The rows L of a factorisation of a workload about one attribute.

    The workload is a `Workload`, or "identity", "prefix" or "ranges" with the `attribute`. `rank` is the number of
    rows; by default 1.2 times the workload's rank, as the authors have it, or the values themselves where those serve
    better.
    """

    name = "low-rank"
    rank: int | None = None

    def __post_init__(self) -> None:
        self._target()
        check_whole(self.rank, "the rank", optional=True)

    def matrix(self, domain: Domain) -> NDArray[np.float64]:
        """L for a domain, before it is rounded to the lattice."""
        return _rows(self._target().gram(domain).tobytes(), self.rank, self.name)

    def run(self, gate: Gate) -> None:
        gate.measure(strategy_query(self._target().attribute, self.matrix(gate.domain)), gate.budget)


@dataclass(frozen=True)
class LowRankAsPublished(LowRank):
    """The rows L that the authors' own search finds (Yuan et al. 2012), to be compared with `LowRank`.

    It starts from the workload's singular vectors, alternates between B and L under an augmented Lagrangian, and keeps
    what it finds where W is met up to γ = 0.01. What is left of W − B L is then removed by the least change of L, so
    that least squares answers without bias and with no more error than B has.

    What `LowRank` does differently: it lets B follow L, starts from a p-identity strategy where L has room for one, and
    takes the values or the queries themselves where those are better, as they often are.
    """

    name = "low-rank-published"


@lru_cache(maxsize=8)
def _rows(gram: bytes, rank: int | None, name: str) -> NDArray[np.float64]:
    """L for a Gram matrix, kept for the next run: a plan runs twice, once to tell its price."""
    flat = np.frombuffer(gram)
    size = round(len(flat) ** 0.5)
    square = flat.reshape(size, size)
    if name == LowRankAsPublished.name:
        found = published_low_rank_strategy(square, rank=rank)
    else:
        found = low_rank_factors(square, rank=rank).strategy
    found.setflags(write=False)
    return found


# ----------------------------------------------------------------------------------------------------------------------
# HDMM: the products of queries that answer a workload with the least expected error (McKenna et al. 2018).
#
# A workload of queries over several attributes is a union of Kronecker products. Three kinds of strategies are
# optimised for it, and that of the least expected total squared error is measured (strategies/high_dimensional.py):
#
# - "product" (OPT_⊗): one strategy for each attribute, and their product; over one attribute this is OPT₀;
# - "union" (OPT_+): groups of queries, each with a product of its own and a share of the budget;
# - "marginals" (OPT_M): weights for the marginals of all sets of attributes.
#
# Nothing here looks at the data. Where all cells of the domain fit in memory, HDMM as published fits them by least
# squares: `estimators.Matrix(loss="l2", nonnegative=False)`, the `estimator` of such domains. For large domains
# strategies are unions over smaller tables, and McKenna et al. (2019, §5.1) compare least squares for each table by
# itself, `estimators.LocalSquares` (HDMM+LLS), with one graphical model of all, `estimators.Graphical` (HDMM+PGM).


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


def product_query(strategy: ProductStrategy, domain: Domain, norm: Norm) -> Query:
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
        return tuple(product_query(part, domain, norm) for part in found.parts), found.shares

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

"""The matrix mechanism: measure a strategy that suits the workload, answer the workload from it (Li et al. 2010).

The strategy depends on the workload, the attribute's declared size and the budget's unit, never on the data. Its rows
are rounded to the public lattice and measured together; the noise follows the rounded rows' sensitivity. Fitting with
`estimators.Matrix(loss="l2", nonnegative=False)` is the mechanism as published, and with loss="l1" and non-negative
counts that of Lee, Wang, Kifer 2015, §5.3.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.factors import AllRanges, Factor, Identity, Matrix, Prefix
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.base import check_whole
from consilience.plans.base import DescribedPlan
from consilience.privacy.budgets import AdditiveUnit
from consilience.privacy.gate import Gate
from consilience.strategies.attribute_strategies import eigen_design, p_identity, semidefinite_strategy
from consilience.strategies.low_rank import low_rank_factors, published_low_rank_strategy
from consilience.strategies.workload_grams import LARGEST_GRAM, gram_matrix

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
    return Query.of({attribute: Matrix.of(kept[np.any(kept != 0, axis=1)])})


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

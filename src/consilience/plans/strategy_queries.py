"""What plans that optimise a strategy for one attribute share: the Gram matrix, and the strategy as a query."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.factors import Matrix
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload, named_workload
from consilience.errors import DeclarationError, TooLarge
from consilience.strategies.workload_grams import gram_matrix

MOST_CELLS = 4096
"""Optimising takes time with the cube of the number of values: minutes for this many."""


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
        if size > MOST_CELLS:
            raise TooLarge(
                f"attribute {self.attribute!r} has {size:,} values, and a strategy is optimised for up to "
                f"{MOST_CELLS:,}; use a histogram plan, or coarser bins"
            )
        found = np.zeros((size, size))
        for query, weight in self.workload:
            maps = query.bind(domain).maps
            found += weight * (gram_matrix(maps[0]) if maps else np.ones((size, size)))
        return found


def strategy_query(attribute: str, strategy: NDArray[np.float64]) -> Query:
    """The rows of a strategy as one query; entries that the lattice could not hold are left out."""
    kept = np.where(np.abs(strategy) >= 2.0**-21 * np.abs(strategy).max(), strategy, 0.0)
    return Query.of({attribute: Matrix.of(kept[np.any(kept != 0, axis=1)])})

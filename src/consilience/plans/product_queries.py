"""Between workloads and strategies of Kronecker products: queries as Gram matrices, strategies as queries.

A strategy's rows are rounded to the public lattice before they are measured, to the digits that `BoundQuery.rounded`
keeps. Columns of a strategy for Laplace noise have the L1 norm 1; what rounding adds to or takes from a column is made
up for by its largest entry, so that all columns cost the same and no budget is left unused.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.domains import Domain
from consilience.domain.factors import Factor, Identity, Matrix
from consilience.domain.queries import RELATIVE_LATTICE_BITS, SHARED_LATTICE_BITS, Query
from consilience.domain.workloads import Workload
from consilience.errors import TooLarge
from consilience.kernels.linear_maps import SumMap
from consilience.strategies.high_dimensional import ProductStrategy
from consilience.strategies.workload_grams import Norm, ProductTerm, ProductWorkload, gram_matrix

MOST_VALUES = 4096
"""Strategies are found for attributes of up to so many values: the time grows with the cube of their number."""


def product_workload(workload: Workload, domain: Domain) -> ProductWorkload:
    """The workload over a domain's counted attributes; factors that only sum are left out."""
    places = {name: place for place, name in enumerate(domain.counted_names)}
    terms = []
    for query, weight in workload:
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
    if attribute.size > MOST_VALUES:
        raise TooLarge(
            f"attribute {attribute.name!r} has {attribute.size:,} values, and strategies are found for up to "
            f"{MOST_VALUES:,}; use coarser bins"
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
        factor = Identity() if matrix is None else Matrix.of(on_lattice(matrix, real, norm))
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

"""Workloads about one attribute that a public seed determines, for the matrix mechanism and its kin."""

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.factors import Matrix
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.kernels.rng import generator


def random_predicates(domain: Domain, attribute: str, *, queries: int, seed: int) -> Workload:
    """Sums over random sets of values: each value is in each of the `queries` sets with probability ½."""
    return _explicit(attribute, generator(seed).integers(0, 2, _shape(domain, attribute, queries)))


def random_signs(domain: Domain, attribute: str, *, queries: int, seed: int) -> Workload:
    """Sums of all values with random signs, each +1 or −1 with probability ½."""
    return _explicit(attribute, 2 * generator(seed).integers(0, 2, _shape(domain, attribute, queries)) - 1)


def _shape(domain: Domain, attribute: str, queries: int) -> tuple[int, int]:
    if queries < 1:
        raise DeclarationError(f"{queries} random queries were asked for; ask for at least one")
    return queries, domain[attribute].size


def _explicit(attribute: str, matrix: NDArray[np.int64]) -> Workload:
    return Workload.of([Query.of({attribute: Matrix.of(matrix.astype(np.float64))})])

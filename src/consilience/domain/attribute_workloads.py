"""Workloads about one attribute: its values, prefixes, ranges, and random queries that a public seed determines."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.factors import AllRanges, Factor, Identity, Matrix, Prefix
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.kernels.rng import generator

NamedWorkload = Literal["identity", "prefix", "ranges"]

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

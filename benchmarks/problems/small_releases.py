"""Small tables and what is measured of them, on which intervals are tested: named, seeded, with known truths.

Every problem has many records in few cells: some counts are large, some small, and many are zero.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Domain, Query, factors
from consilience.measurements import DiscreteLaplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.numerics.rng import Generator, generator

Array = NDArray[np.float64]

RECORDS = 20_000


@dataclass(frozen=True, eq=False)
class SmallRelease:
    """A table, the queries measured of it, marginals that no measurement determines, and the method that fits it."""

    name: str
    domain: Domain
    truth: Array
    queries: tuple[Query, ...]
    unmeasured: tuple[Query, ...]
    method: str

    def exact(self, query: Query) -> Array:
        return np.ravel(query.bind(self.domain).answer_full(self.truth))

    def measured(self, epsilon: float, rng: Generator) -> MeasurementSet:
        """All queries with discrete Laplace noise, ε in equal parts."""
        law = DiscreteLaplace(len(self.queries) / epsilon)
        measurements = []
        for query in self.queries:
            exact = self.exact(query)
            measurements.append(Measurement(query, exact + law.simulate(exact.size, rng), law))
        return MeasurementSet(self.domain, tuple(measurements), PrivacyStatement(), {}, private=False)


def tree_of_256_leaves() -> SmallRelease:
    """Counts along a line, with all levels of the binary tree over it."""
    rng = generator(256)
    domain = Domain.from_sizes({"x": 256}, name="tree")
    truth = _counts(rng, domain, np.repeat(rng.dirichlet(np.full(32, 0.4)), 8) * rng.gamma(0.3, size=256))
    queries = tuple(Query((("x", factors.Tree(2, level)),)) for level in range(9))
    return SmallRelease("tree of 256 leaves", domain, truth, queries, (), "tree")


def table_of_8_flags() -> SmallRelease:
    """All 256 cells of eight flags, and all pairs of flags."""
    names = tuple(f"f{place}" for place in range(8))
    domain = Domain.from_sizes(dict.fromkeys(names, 2), name="table")
    truth = _counts(generator(8), domain, generator(8).dirichlet(np.full(256, 0.2)))
    queries = (Query.marginal(*names), *_marginals(names, 2))
    return SmallRelease("table of 2^8 cells", domain, truth, queries, (), "table")


def model_of_6_attributes() -> SmallRelease:
    """Six attributes in a chain, with the pairs of the chain and two others; triples are not measured."""
    sizes = {"a": 2, "b": 3, "c": 4, "d": 3, "e": 2, "f": 4}
    rng, domain = generator(6), Domain.from_sizes(sizes, name="model")
    weights = np.ones(domain.shape)
    for left, right in itertools.pairwise(range(6)):
        shape = [size if axis in (left, right) else 1 for axis, size in enumerate(domain.shape)]
        weights = weights * (rng.gamma(0.4, size=shape) + 1e-4)
    queries = (*(Query.marginal(*pair) for pair in itertools.pairwise(sizes)), Query.marginal("a", "c"))
    queries += (Query.marginal("d", "f"),)
    unmeasured = (Query.marginal("a", "d"), Query.marginal("b", "e"), Query.marginal("c", "d", "f"))
    return SmallRelease(
        "model of 6 attributes", domain, _counts(rng, domain, weights), queries, unmeasured, "graphical"
    )


def views_over_9_flags() -> SmallRelease:
    """Nine flags in three views of six, which cover all pairs; triples across views are not measured."""
    names = tuple(f"f{place}" for place in range(9))
    rng, domain = generator(9), Domain.from_sizes(dict.fromkeys(names, 2), name="views")
    blocks = (names[:3], names[3:6], names[6:])
    queries = tuple(Query.marginal(*left, *right) for left, right in itertools.combinations(blocks, 2))
    unmeasured = tuple(Query.marginal(blocks[0][place], blocks[1][place], blocks[2][place]) for place in range(3))
    truth = _counts(rng, domain, rng.dirichlet(np.full(512, 0.1)))
    return SmallRelease("views over 9 flags", domain, truth, queries, unmeasured, "views")


SMALL_RELEASES: dict[str, Callable[[], SmallRelease]] = {
    "tree": tree_of_256_leaves,
    "table": table_of_8_flags,
    "model": model_of_6_attributes,
    "views": views_over_9_flags,
}


def _counts(rng: Generator, domain: Domain, weights: Array) -> Array:
    shares = np.ravel(weights) / np.sum(weights)
    return rng.multinomial(RECORDS, shares).reshape(domain.shape).astype(np.float64)


def _marginals(names: tuple[str, ...], ways: int) -> list[Query]:
    return [Query.marginal(*chosen) for chosen in itertools.combinations(names, ways)]

"""Tables and what is measured of them, on which intervals are tested: named, seeded, with known truths.

The first problems have many records in few cells: some counts are large, some small, and many are zero. Sparse ones
have many more cells than records, or than the noise lets one see. Of some tables only pairs of attributes are measured,
and triples are answered by the model; the real ones of those were not looked at when its errors were tuned.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.histograms import dpbench_histograms
from benchmarks.problems.records import ADULT_FINE, named_records
from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.questions import Question
from consilience.kernels.rng import Generator, generator
from consilience.measurements import DiscreteLaplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.publication.questions import BoundQuestion, as_question

Array = NDArray[np.float64]

RECORDS = 20_000


@dataclass(frozen=True, eq=False)
class SmallRelease:
    """A table, the queries measured of it, queries that the model answers, and the method that fits it."""

    name: str
    domain: Domain
    truth: Array
    queries: tuple[Query, ...]
    modelled: tuple[Query, ...]
    """Marginals that no measurement determines."""
    method: str
    questions: tuple[tuple[str, str], ...] = ()
    """What is made of measured answers: "quantiles" or "differences", and the question."""

    def exact(self, asked: Query | Question) -> Array:
        question = BoundQuestion(as_question(asked), self.domain)
        return question.made([np.ravel(each.bind(self.domain).answer_full(self.truth)) for each in question.parts])

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
    modelled = (Query.marginal("a", "d"), Query.marginal("b", "e"), Query.marginal("c", "d", "f"))
    return SmallRelease("model of 6 attributes", domain, _counts(rng, domain, weights), queries, modelled, "graphical")


def views_over_9_flags() -> SmallRelease:
    """Nine flags in three views of six, which cover all pairs; triples across views are not measured.

    A triple of flags whose pairs are known has one free number: all 27 triples are asked, so that the row does not
    rest on a few.
    """
    names = tuple(f"f{place}" for place in range(9))
    rng, domain = generator(9), Domain.from_sizes(dict.fromkeys(names, 2), name="views")
    blocks = (names[:3], names[3:6], names[6:])
    queries = tuple(Query.marginal(*left, *right) for left, right in itertools.combinations(blocks, 2))
    modelled = tuple(Query.marginal(*triple) for triple in itertools.product(*blocks))
    truth = _counts(rng, domain, rng.dirichlet(np.full(512, 0.1)))
    return SmallRelease("views over 9 flags", domain, truth, queries, modelled, "views")


def line_of_32768_bins() -> SmallRelease:
    """A histogram of which one bin in twenty is occupied, with all levels of the tree of eight branches over it."""
    rng = generator(32_768)
    domain = Domain.from_sizes({"x": 32_768}, name="line")
    truth = np.zeros(domain.shape)
    occupied = rng.choice(32_768, 1_638, replace=False)
    truth[occupied] = 1.0 + rng.multinomial(335_889 - 1_638, rng.dirichlet(np.full(1_638, 0.3)))
    queries = tuple(Query((("x", factors.Tree(8, level)),)) for level in range(6))
    return SmallRelease("line of 32,768 bins", domain, truth, queries, (), "tree")


def flat_table_of_a_million_cells() -> SmallRelease:
    """100,000 records in a table of 1,000 by 1,000 cells, of which every cell is measured."""
    rng = generator(10**6)
    domain = Domain.from_sizes({"x": 1_000, "y": 1_000}, name="flat")
    truth = np.zeros(domain.cells)
    occupied = rng.choice(domain.cells, 10_000, replace=False)
    truth[occupied] = rng.multinomial(100_000, rng.dirichlet(np.full(10_000, 0.5)))
    return SmallRelease(
        "flat table of 10^6 cells", domain, truth.reshape(domain.shape), (Query.marginal("x", "y"),), (), "auto"
    )


def table_of_12_flags() -> SmallRelease:
    """All 4,096 cells of twelve flags, most of them empty."""
    domain, truth = _twelve_flags()
    return SmallRelease("table of 2^12 cells", domain, truth, (Query.marginal(*domain.names),), (), "auto")


def pairs_of_12_flags() -> SmallRelease:
    """All pairs of twelve flags; some triples are answered by the model."""
    domain, truth = _twelve_flags()
    triples = tuple(_marginals(domain.names, 3)[::11])
    return SmallRelease("pairs of 12 flags", domain, truth, tuple(_marginals(domain.names, 2)), triples, "graphical")


def _twelve_flags() -> tuple[Domain, Array]:
    rng, domain = generator(12), Domain.from_sizes({f"f{place}": 2 for place in range(12)}, name="flags")
    groups = rng.beta(0.5, 1.5, size=(6, 12))
    shares = rng.dirichlet(np.ones(6))
    ones = np.array(list(np.ndindex(domain.shape)), dtype=np.float64)
    weights = np.zeros(domain.cells)
    for share, group in zip(shares, groups, strict=True):
        weights += share * np.prod(np.where(ones > 0, group, 1.0 - group), axis=1)
    return domain, _counts(rng, domain, weights)


def pairs_of(name: str, columns: Sequence[int]) -> SmallRelease:
    """All pairs of some columns of a table of `records`; their triples are answered by the model."""
    records = named_records(name)
    domain = Domain.from_sizes({f"c{place}": records.sizes[place] for place in columns}, name=name)
    truth = records.counts(tuple(columns))
    triples = tuple(_marginals(domain.names, 3))
    return SmallRelease(
        f"pairs of {records.name}", domain, truth, tuple(_marginals(domain.names, 2)), triples, "graphical"
    )


QUESTIONS = (
    ("quantiles", "median(x) by group"),
    ("quantiles", "quantile(x, 0.1, 0.9) by group"),
    ("quantiles", "median(x)"),
    ("differences", "median(x) where group=0 minus median(x) where group=1"),
    ("differences", "mean(x) by group minus mean(x)"),
    ("differences", "group=0 by x per group=0 minus group=1 by x per group=1"),
)


def ages_of_adult() -> SmallRelease:
    """Ages in bins of five years, by sex and by race: quantiles and differences were looked at here when made."""
    records = named_records("adult-fine")
    names = list(ADULT_FINE)
    columns = [records.codes[:, names.index(name)] for name in ("age", "sex", "race")]
    age = Attribute.numeric("x", list(range(17, 107, 5)), unlisted="drop")
    groups = [
        Attribute.categorical(name, [str(code) for code in range(size)]) for name, size in (("group", 2), ("race", 5))
    ]
    domain = Domain("ages", (age, *groups))
    truth = np.zeros(domain.shape)
    np.add.at(truth, (columns[0] // 5, columns[1], columns[2]), 1.0)
    queries = (Query.marginal("x", "group"), Query.marginal("x", "race"))
    questions = (*QUESTIONS, ("quantiles", "median(x) by race"))
    return SmallRelease("ages of adult", domain, truth, queries, (), "graphical", questions)


def patents_by_group() -> SmallRelease:
    """A histogram in coarse bins, dealt to three groups at random shares; nothing was tuned on it."""
    counts = next(each for each in dpbench_histograms() if each.name.startswith("PATENT")).counts
    bins = 32
    coarse = np.asarray(counts).reshape(bins, -1).sum(axis=1)
    rng = generator(32)
    truth = np.stack([rng.multinomial(total, rng.dirichlet(np.ones(3))) for total in coarse]).astype(np.float64)
    edges = [float(edge) for edge in range(bins + 1)]
    domain = Domain(
        "histogram", (Attribute.numeric("x", edges, unlisted="drop"), Attribute.categorical("group", list("012")))
    )
    return SmallRelease("patents by group", domain, truth, (Query.marginal("x", "group"),), (), "table", QUESTIONS)


def numbers_by_group(name: str, number: int, group: int, width: int) -> SmallRelease:
    """A column of codes in bins of some width, by another column, of a table on which no quantile was tuned."""
    records = named_records(name)
    bins, groups = -(-records.sizes[number] // width), int(records.codes[:, group].max()) + 1
    truth = np.zeros((bins, groups))
    np.add.at(truth, (records.codes[:, number] // width, records.codes[:, group]), 1.0)
    edges = [float(edge) for edge in range(0, width * bins + 1, width)]
    labels = [str(code) for code in range(groups)]
    domain = Domain(name, (Attribute.numeric("x", edges, unlisted="drop"), Attribute.categorical("group", labels)))
    title = f"numbers of {records.name} by group"
    return SmallRelease(title, domain, truth, (Query.marginal("x", "group"),), (), "table", QUESTIONS)


SMALL_RELEASES: dict[str, Callable[[], SmallRelease]] = {
    "tree": tree_of_256_leaves,
    "table": table_of_8_flags,
    "model": model_of_6_attributes,
    "views": views_over_9_flags,
    "line": line_of_32768_bins,
    "flat": flat_table_of_a_million_cells,
    "flags": table_of_12_flags,
    "pairs": pairs_of_12_flags,
    "kosarak": lambda: pairs_of("kosarak", (0, 3, 6, 9, 12)),
    "loans": lambda: pairs_of("loans", (3, 6, 9, 11, 13)),
    "ages": ages_of_adult,
    "patents": patents_by_group,
    "rates": lambda: numbers_by_group("loans", 4, 3, 5),
    "patients": lambda: numbers_by_group("stroke", 4, 3, 5),
    "stroke": lambda: pairs_of("stroke", (5, 20, 24, 26, 27)),
}


def _counts(rng: Generator, domain: Domain, weights: Array) -> Array:
    shares = np.ravel(weights) / np.sum(weights)
    return rng.multinomial(RECORDS, shares).reshape(domain.shape).astype(np.float64)


def _marginals(names: Sequence[str], ways: int) -> list[Query]:
    return [Query.marginal(*chosen) for chosen in itertools.combinations(names, ways)]

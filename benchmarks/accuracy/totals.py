"""Whether totals and long ranges of sparse data are right: the bias of totals, and ranges of all lengths by one fit.

*Ranges.* On the 18 histograms of DPBench, trees of branching 2, 8 and 16, ε = 0.1 and 1, one fit by `auto` answers
ranges of 1, 16, 256 and n/4 bins. Its rivals are least squares without a sign (`HTree`, Hay et al. 2010, negative
answers set to 0), the joint non-negative fit of the elastic net with α = 0.7, and the fit divided top-down to the
leaves. A row is a tree and an ε over one half of the histograms: every second one, from the first, is the half on which
`Tree`'s block was chosen, and the others judge it. Errors are means of squares; "worst" is over the histograms.

*Totals.* On sparse data the mean error of the released total over many draws of noise, in its own standard errors, for
`auto` and for the joint fits that do not hold totals, and the error of the cells against theirs.
"""

import itertools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.histograms import NamedHistogram, dpbench_histograms
from consilience.domain import Domain, Query, factors
from consilience.estimators import Estimate, Table, Tree, estimate
from consilience.estimators.evidence import LAPLACE_ALPHA
from consilience.kernels.rng import Generator, generator
from consilience.measurements import DiscreteLaplace, Measurement, MeasurementSet, PrivacyStatement

Array = NDArray[np.float64]
Row = dict[str, Any]

EPSILONS = (0.1, 1.0)
BRANCHINGS = (2, 8, 16)
LENGTHS = (1, 16, 256, 0)
"""0 stands for a quarter of the bins."""
RANGES = 1000
WAYS: dict[str, Callable[[MeasurementSet], Estimate]] = {
    "auto": estimate,
    "HTree": Tree(loss="l2", nonnegative=False).fit,
    "elastic net": Tree(loss="elastic", alpha=LAPLACE_ALPHA).fit,
    "top-down": Tree(block=1).fit,
}
DRAWS, COMPARED = 50, 5
"""Draws of noise for totals, and how many of them the fits that do not hold totals see."""


def run(quick: bool) -> list[Row]:
    """The rows of both parts: ten and fifty draws, or two and five if quick, without the table of a million cells."""
    print("  ranges", flush=True)
    rows, totals = range_rows(2 if quick else 10), []
    for problem in sparse_problems(quick):
        print(f"  {problem.name}", flush=True)
        totals += [total_row(problem, epsilon, 5 if quick else DRAWS) for epsilon in EPSILONS]
    mean = float(np.mean([abs(row["in standard errors"]) for row in totals]))
    summary = {"part": "totals", "problem": "all, mean of sizes", "in standard errors": mean}
    return [*rows, *totals, summary | {"met": "yes" if mean <= 2 else "no"}]


def noisy(domain: Domain, truth: Array, queries: tuple[Query, ...], epsilon: float, rng: Generator) -> MeasurementSet:
    """All queries with discrete Laplace noise, ε in equal parts."""
    law = DiscreteLaplace(len(queries) / epsilon)
    exact = [np.ravel(query.bind(domain).answer_full(truth)) for query in queries]
    found = [
        Measurement(query, each + law.simulate(each.size, rng), law) for query, each in zip(queries, exact, strict=True)
    ]
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


def _drawn(name: str, epsilon: float, branching: int, seed: int) -> Generator:
    """Noise of its own for every problem and draw."""
    return generator(seed, zlib.crc32(name.encode()), branching, round(1000 * epsilon))


def tree_queries(bins: int, branching: int) -> tuple[Query, ...]:
    levels = factors.Tree(branching).levels(Domain.from_sizes({"x": bins})["x"])
    return tuple(Query.of({"x": factors.Tree(branching, level)}) for level in range(levels))


def range_rows(runs: int) -> list[Row]:
    histograms = dpbench_histograms()
    rows: list[Row] = []
    for branching, epsilon in itertools.product(BRANCHINGS, EPSILONS):
        errors = np.array([range_errors(each, branching, epsilon, runs) for each in histograms])
        for half, chosen in (("chosen on", errors[::2]), ("judged on", errors[1::2])):
            rows.append({"part": "ranges", "branching": branching, "epsilon": epsilon, "half": half} | _told(chosen))
    return rows + range_summaries(rows)


def range_summaries(rows: list[Row]) -> list[Row]:
    """For each half of the histograms, in how many cases `auto` is within 5 % of the best, and its worst length."""
    summaries: list[Row] = []
    for half in ("chosen on", "judged on"):
        chosen = [row for row in rows if row["half"] == half]
        near, cases = (sum(row[key] for row in chosen) for key in ("auto within 5 %", "histograms"))
        worst = max(row["auto, worst length"] for row in chosen)
        told = {"part": "ranges", "branching": "all", "epsilon": "all", "half": half, "histograms": cases}
        met = {"met": "yes" if near >= 0.9 * cases and worst <= 1.5 else "no"}
        summaries.append(told | {"auto within 5 %": near, "auto, worst length": worst} | met)
    return summaries


def range_errors(histogram: NamedHistogram, branching: int, epsilon: float, runs: int) -> Array:
    """The mean squared errors: a row for each way to fit, a column for each length."""
    bins, truth = histogram.counts.size, histogram.counts.astype(np.float64)
    domain, queries = Domain.from_sizes({"x": bins}), tree_queries(bins, branching)
    errors = np.zeros((len(WAYS), len(LENGTHS)))
    for seed in range(runs):
        found = noisy(domain, truth, queries, epsilon, _drawn(histogram.name, epsilon, branching, seed))
        for place, fit in enumerate(WAYS.values()):
            errors[place] += _errors(fit(found).marginal("x"), truth, generator(seed, 1)) / runs
    return errors


def _errors(counts: Array, truth: Array, rng: Generator) -> Array:
    """For each length the mean squared error; negative answers count as 0."""
    sums, true = np.concatenate([[0.0], np.cumsum(counts)]), np.concatenate([[0.0], np.cumsum(truth)])
    found = []
    for length in (length or truth.size // 4 for length in LENGTHS):
        starts = np.arange(truth.size) if length == 1 else rng.integers(0, truth.size - length + 1, RANGES)
        answers = np.maximum(sums[starts + length] - sums[starts], 0.0)
        found.append(np.mean((answers - (true[starts + length] - true[starts])) ** 2))
    return np.array(found)


def _told(errors: Array) -> Row:
    """What the errors (histogram, way, length) say of every way against the best of the rivals."""
    overall = np.exp(np.log(errors).mean(axis=2))
    overall /= overall[:, 1:].min(axis=1, keepdims=True)
    lengths = errors / errors[:, 1:].min(axis=1, keepdims=True)
    row: Row = {"histograms": len(errors), "auto within 5 %": int((overall[:, 0] <= 1.05).sum())}
    for place, way in enumerate(WAYS):
        row[f"{way} / best"] = float(np.exp(np.log(overall[:, place]).mean()))
        row[f"{way}, worst overall"] = float(overall[:, place].max())
        row[f"{way}, worst length"] = float(lengths[:, place].max())
    return row


@dataclass(frozen=True, eq=False)
class SparseProblem:
    """A table most of whose cells are empty, what is measured of it, and the fit that does not hold its total."""

    name: str
    domain: Domain
    truth: Array
    queries: tuple[Query, ...]
    free: Callable[[MeasurementSet], Estimate] | None
    fit: Callable[[MeasurementSet], Estimate] = estimate


JOINT = Tree(loss="elastic", alpha=LAPLACE_ALPHA).fit


def sparse_problems(quick: bool) -> Iterator[SparseProblem]:
    bins, rng = 32_768, generator(32_768)
    counts = np.zeros(bins)
    filled = rng.choice(bins, bins // 20, replace=False)
    counts[filled] = np.ceil(20 * rng.pareto(1.2, filled.size))
    line = Domain.from_sizes({"x": bins})
    for branching in (2, 8):
        name = f"32,768 bins, tree of branching {branching}"
        yield SparseProblem(name, line, counts, tree_queries(bins, branching), JOINT)
    if not quick:
        cube = Domain.from_sizes({"a": 100, "b": 100, "c": 100})
        shares = generator(6).pareto(1.1, cube.shape)
        people = generator(6, 1).multinomial(100_000, shares.ravel() / shares.sum()).reshape(cube.shape)
        cells = (Query.marginal("a", "b", "c"),)
        yield SparseProblem("1,000,000 cells, flat", cube, people.astype(np.float64), cells, JOINT)
    flags, table = _flags(12, 5_000)
    yield SparseProblem("12 binary attributes, flat", flags, table, (Query.marginal(*flags.names),), JOINT)
    yield SparseProblem("12 binary attributes, pairs", flags, table, _pairs(flags), None)
    flags, table = _flags(8, 500)
    free = Table(hold_total=False).fit
    yield SparseProblem("8 binary attributes, pairs, Table", flags, table, _pairs(flags), free, Table().fit)


def _flags(number: int, people: int) -> tuple[Domain, Array]:
    """Rare flags, independent but for the second, which most of those with the first have."""
    rng = generator(number)
    rows = (rng.random((people, number)) < rng.uniform(0.02, 0.3, number)).astype(np.int64)
    rows[:, 1] |= rows[:, 0] & (rng.random(people) < 0.7)
    table = np.zeros((2,) * number)
    np.add.at(table, tuple(rows.T), 1.0)
    return Domain.from_sizes({f"f{place}": 2 for place in range(number)}), table


def _pairs(domain: Domain) -> tuple[Query, ...]:
    return tuple(Query.marginal(*pair) for pair in itertools.combinations(domain.names, 2))


def total_row(problem: SparseProblem, epsilon: float, draws: int) -> Row:
    """The bias of the total, and the error of the measured cells against the fit that does not hold it."""
    true, finest = float(problem.truth.sum()), problem.queries[-1]
    exact = finest.bind(problem.domain).answer_full(problem.truth)
    errors, free, cells = np.zeros(draws), np.full(draws, np.nan), np.zeros((draws, 2))
    for seed in range(draws):
        found = noisy(problem.domain, problem.truth, problem.queries, epsilon, _drawn(problem.name, epsilon, 0, seed))
        fitted = problem.fit(found)
        errors[seed] = fitted.total - true
        if problem.free is not None and seed < COMPARED:
            before = problem.free(found)
            free[seed] = before.total - true
            cells[seed] = [np.mean((each.answer(finest) - exact) ** 2) for each in (fitted, before)]
    bias = float(errors.mean() / (errors.std(ddof=1) / draws**0.5))
    row = {"part": "totals", "problem": problem.name, "epsilon": epsilon, "draws": draws, "true total": true}
    row |= {"mean error": float(errors.mean()), "in standard errors": bias}
    if problem.free is not None:
        compared = cells[:COMPARED].sum(axis=0)
        row |= {"mean error, not held": float(np.nanmean(free)), "cells / not held": float(compared[0] / compared[1])}
    held = row.get("cells / not held", 1.0) <= 1.02
    return row | {"met": "yes" if abs(bias) <= 3.5 and held else "no"}

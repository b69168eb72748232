"""How often 95 % intervals hold the truth, and how wide they are: on releases whose truth is known.

Noise is drawn again and again; each draw is fitted, and its intervals found from refits around the fit. Answers are
told apart: the *total*, of more draws; measured ones whose truth exceeds two standard deviations of their noise
(*seen*), and the *other* measured ones; *modelled* ones, which no measurement determines; and *quantiles* and
*differences* that are made of measured ones. Targets: 92 to 98 % of totals, of what is seen, of quantiles and of
differences, at least 92 % of others and 90 % of modelled ones, of which at most a tenth may have no
interval. An answer is *clearly below 90 %* where its share of draws would be as small with a chance of less than 1 %
divided by the number of answers. Widths are medians, in units of the interval that one measured value has by itself;
of quantiles and differences in those of what is asked.
*By hindsight* is the width that the row's intervals would have, had they all been made wider or narrower by the one
factor that gives 95 %; and, in the second column, had all answers of the row the same width.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from benchmarks.problems.small_releases import SMALL_RELEASES, SmallRelease
from consilience.domain import Query
from consilience.domain.questions import Question
from consilience.estimators import estimate
from consilience.kernels.rng import generator
from consilience.measurements import DiscreteLaplace
from consilience.publication.intervals import intervals

Row = dict[str, Any]
Array = NDArray[np.float64]

EPSILONS = (0.1, 1.0)
LEVEL = 0.95
DRAWS = 100
FEWER_DRAWS = {"flat": 10}
"""Of the problem whose draws take a quarter of a minute and more."""
TOTAL_DRAWS = 1_000
"""Of the total, which is one answer and soon found. Of 100 draws, fewer than 92 hold what 95 % of all draws hold with a
chance of 6 %; of 1,000, with one of 2 in 100,000."""
QUICK_DRAWS, QUICK_CELLS = 5, 100_000
REFITS = 39
"""With 39 refits the 38th smallest error is the 95 % quantile without rounding: 38 of 40."""
SEEN = 2.0
"""Standard deviations of its noise from which a measured count is seen."""
MOST_ANSWERS = 20_000
"""Larger problems are judged on so many answers of each kind, chosen at random."""
FEWEST, SIGNIFICANT = 0.9, 0.01


def run(quick: bool, only: str | None = None) -> list[Row]:
    """Every problem, or the one of this name, at two ε, with the draws shared out among processes."""
    rows: list[Row] = []
    began = time.perf_counter()
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for name in SMALL_RELEASES if only is None else [only]:
            problem = SMALL_RELEASES[name]()
            if quick and problem.domain.cells > QUICK_CELLS:
                continue
            draws = QUICK_DRAWS if quick else FEWER_DRAWS.get(name, DRAWS)
            for epsilon in EPSILONS:
                started = time.perf_counter()
                total_draws = TOTAL_DRAWS if draws == DRAWS and not problem.questions else draws
                tasks = [(name, epsilon, seed, seed >= draws) for seed in range(total_draws)]
                found = list(pool.map(_draw, tasks, chunksize=max(1, draws // (8 * workers))))
                seconds = time.perf_counter() - started
                told = _rows(problem, epsilon, found)
                rows += [row | {"refits": REFITS, "seconds": seconds} for row in told]
                print(f"  {problem.name}, ε = {epsilon:g}: {seconds:.0f} s", flush=True)
    print(f"  {time.perf_counter() - began:.0f} seconds in all")
    return rows


def _kinds(problem: SmallRelease, epsilon: float) -> Iterator[tuple[str, Question, NDArray[np.intp]]]:
    """The kinds of answers, with the queries that they are answers to and their places among the answers."""
    deviation = DiscreteLaplace(len(problem.queries) / epsilon).variance ** 0.5
    if not problem.questions:
        yield "total", Question(Query.marginal()), np.arange(1)
    for query in problem.queries:
        truth = problem.exact(query)
        if truth.size == 1:
            continue
        for kind, chosen in (("seen", truth > SEEN * deviation), ("other", truth <= SEEN * deviation)):
            places = np.flatnonzero(chosen)
            if places.size > MOST_ANSWERS:
                places = np.sort(generator(1).choice(places, MOST_ANSWERS, replace=False))
            yield kind, Question(query), places
    for query in problem.modelled:
        yield "modelled", Question(query), np.arange(problem.exact(query).size)
    for kind, text in problem.questions:
        yield kind, Question.parse(text), np.arange(problem.exact(Question.parse(text)).size)


def _draw(task: tuple[str, float, int, bool]) -> dict[str, Array]:
    """For each kind of answers, or for the total only, a row each of estimates, low and high ends."""
    name, epsilon, seed, only_total = task
    problem = SMALL_RELEASES[name]()
    noise = generator(10**6 + seed)  # apart from the streams (seed, i) of the refits
    fitted = estimate(problem.measured(epsilon, noise), method=problem.method)
    kinds = [each for each in _kinds(problem, epsilon) if each[0] == "total" or not only_total]
    queries = list(dict.fromkeys(query for _, query, _ in kinds))
    found = dict(zip(queries, intervals(fitted, queries, LEVEL, refits=REFITS, seed=seed), strict=True))
    told: dict[str, list[Array]] = {}
    for kind, query, places in kinds:
        each = found[query]
        told.setdefault(kind, []).append(np.array([each.estimates, each.low, each.high])[:, places])
    return {kind: np.concatenate(parts, axis=1) for kind, parts in told.items()}


def _rows(problem: SmallRelease, epsilon: float, found: list[dict[str, Array]]) -> list[Row]:
    raw = 2.0 * float(DiscreteLaplace(len(problem.queries) / epsilon).quantile(0.5 + LEVEL / 2.0))
    truths: dict[str, list[Array]] = {}
    for kind, query, places in _kinds(problem, epsilon):
        truths.setdefault(kind, []).append(problem.exact(query)[places])
    rows = []
    for kind, parts in truths.items():
        truth = np.concatenate(parts)
        of_kind = [outcome[kind] for outcome in found if kind in outcome]
        estimates, low, high = np.stack(of_kind, axis=1)
        said = ~np.isnan(high)
        if truth.size == 0 or not said.any():
            continue
        slack = 1e-9 * max(1.0, float(truth.max()))
        held = (low <= truth + slack) & (truth <= high + slack)
        answers = np.flatnonzero(said.any(axis=0))
        times, right = said.sum(axis=0)[answers], held.sum(axis=0)[answers]
        chances = binom.cdf(right, times, FEWEST)
        errors, reach = np.abs(estimates - truth)[said], np.maximum(high - estimates, 0.0)[said]
        factor = float(np.quantile(errors / np.maximum(reach, 1e-12), LEVEL))
        unit = 1.0 if kind in ("quantiles", "differences") else raw
        width = float(np.median((high - low)[said])) / unit
        rows.append(
            {
                "problem": problem.name,
                "epsilon": epsilon,
                "answers": kind,
                "number": truth.size,
                "coverage": float(held[said].mean()),
                "worst answer": float((right / times).min()),
                "clearly below 90 %": int((chances * truth.size < SIGNIFICANT).sum()),
                "without interval": float(1.0 - said.mean()),
                "median width": width,
                "by hindsight": width * factor,
                "of one width": 2.0 * float(np.quantile(errors, LEVEL)) / unit,
                "draws": len(of_kind),
            }
        )
    return rows

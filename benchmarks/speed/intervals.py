"""What error bars cost: refits of a large model in units of one fit from the beginning.

The problem: 15 triples of the finer Adult, 62,876 cells, with Gaussian noise of σ = 30 and with Laplace noise of scale
15 (ε = 1). A row has the seconds of one cold fit, kernels compiled (the median of some before the refits and some after
them, as the speed of machines drifts), of 200 refits on all cores with the answers to a one-way and a two-way margin in
each, and how many cold fits they are: of three such runs the one in the middle, and how many cold fits it was in the
others. At most 40 are asked for.
"""

import statistics
import time
from typing import Any

from benchmarks.problems.noisy_marginals import Law, NoisyMarginals, adult_fine, star
from consilience.domain import Domain, Query
from consilience.estimators import Graphical
from consilience.estimators.graphical_model import GraphicalEstimate
from consilience.measurements import Gaussian, Laplace, MeasurementSet
from consilience.publication.intervals.refits import replicates

Row = dict[str, Any]

REFITS, QUICK_REFITS = 200, 20
MOST_COLD_FITS = 40.0
COLD_FITS = 3
RUNS = 3


def run(quick: bool) -> list[Row]:
    """Both laws of noise on Adult; if quick, a small star."""
    if quick:
        return [_row("star of 8", star(8), QUICK_REFITS)]
    laws: tuple[tuple[Law, float], ...] = (("gaussian", 30.0), ("laplace", 15.0))
    return [_row(f"adult-fine, {law} noise", adult_fine(law=law, scale=scale), REFITS) for law, scale in laws]


def _row(name: str, problem: NoisyMarginals, refits: int) -> Row:
    measured = _measured(problem)
    fitted = Graphical().fit(measured)  # compiles what is not compiled yet
    timed = sorted((_timed(measured, fitted, refits) for _ in range(RUNS)), key=lambda each: each["cold fits"])
    return {
        "problem": name,
        "cells": problem.cells,
        "refits": refits,
        **timed[RUNS // 2],
        "fewest": timed[0]["cold fits"],
        "most": timed[-1]["cold fits"],
        "target": f"at most {MOST_COLD_FITS:g}",
    }


def _timed(measured: MeasurementSet, fitted: GraphicalEstimate, refits: int) -> dict[str, float]:
    """The seconds of a cold fit and of refits, and how many cold fits 200 of them are."""
    cold = _cold_fits(measured)
    names = fitted.domain.counted_names
    queries = [Query.marginal(names[0]), Query.marginal(*names[1:3])]
    began = time.perf_counter()
    replicates(fitted, queries, refits=refits, seed=0)
    seconds = time.perf_counter() - began
    median = statistics.median(cold + _cold_fits(measured))
    return {"cold fit": median, "seconds": seconds, "cold fits": seconds / median * REFITS / refits}


def _cold_fits(measured: MeasurementSet) -> list[float]:
    """The seconds of some fits."""
    found = []
    for _ in range(COLD_FITS):
        began = time.perf_counter()
        Graphical().fit(measured)
        found.append(time.perf_counter() - began)
    return found


def _measured(problem: NoisyMarginals) -> MeasurementSet:
    names = tuple(f"a{place}" for place in range(len(problem.sizes)))
    domain = Domain.from_sizes(dict(zip(names, problem.sizes, strict=True)), name=problem.name)
    law = Gaussian(problem.scale) if problem.law == "gaussian" else Laplace(problem.scale)
    tables: dict[str | tuple[str, ...], Any] = {
        tuple(names[place] for place in scope): table
        for scope, table in zip(problem.scopes, problem.noisy, strict=True)
    }
    return MeasurementSet.from_marginals(domain, tables, noise=law, private=False)

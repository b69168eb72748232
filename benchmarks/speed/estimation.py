"""How long `Table` takes to a stated optimality gap: all 2-way marginals over full tables of growing size."""

import itertools
import resource
import time
from typing import Any

import numpy as np

from consilience.domain import Domain
from consilience.estimators import Table
from consilience.measurements import Laplace, MeasurementSet

SCALE = 15.0


def run(quick: bool) -> list[dict[str, Any]]:
    """One row for each size: time, steps, and the gap in units of max(objective, expected noise energy)."""
    attributes = (3, 4, 5) if quick else (3, 4, 5, 6, 7)
    return [_row(count) for count in attributes]


def _row(count: int) -> dict[str, Any]:
    measured = problem(count)
    start = time.perf_counter()
    estimate = Table(tolerance=1e-4).fit(measured)
    seconds = time.perf_counter() - start
    stats = estimate.stats
    scale = max(float(stats["objective"]), float(stats["expected_noise_energy"]))
    return {
        "cells": measured.domain.cells,
        "answers": stats["measured_answers"],
        "seconds": seconds,
        "steps": stats["steps"],
        "relative gap": float(stats["gap"]) / scale,
        "status": estimate.status.value,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }


def problem(count: int, *, size: int = 10, records: int = 100_000, seed: int = 0) -> MeasurementSet:
    """Noisy 2-way marginals of records drawn from a skewed, correlated table of `count` attributes."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 4, records)
    weights = rng.dirichlet(np.full(size, 0.5), (count, 4))
    columns = [_draw(rng, weights[i], group) for i in range(count)]
    domain = Domain.from_sizes({f"a{i}": size for i in range(count)}, name=f"skewed-{count}")
    marginals = {}
    for i, j in itertools.combinations(range(count), 2):
        exact = np.bincount(columns[i] * size + columns[j], minlength=size * size).reshape(size, size)
        marginals[f"a{i}", f"a{j}"] = exact + rng.laplace(0, SCALE, (size, size))
    return MeasurementSet.from_marginals(domain, marginals, noise=Laplace(SCALE), private=False)


def _draw(rng: np.random.Generator, weights: np.ndarray, group: np.ndarray) -> np.ndarray:
    """One value for each record, by the weights of the record's group."""
    cumulated = weights.cumsum(axis=1)[group]
    return (rng.random(len(group))[:, None] > cumulated).sum(axis=1).clip(max=weights.shape[1] - 1)

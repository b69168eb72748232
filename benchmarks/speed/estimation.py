"""How long `Table` takes to a stated optimality gap, with squares.

All 2-way marginals over full tables of growing size; then problems that ask for different linear algebra. Marginals
have few rows and well-conditioned ones, 3-way marginals thousands of rows; prefix sums and trees have as many rows as
cells or more, and nearly collinear ones.
"""

import itertools
import resource
import time
from typing import Any

import numpy as np

from consilience.domain import Domain, Query, factors
from consilience.estimators import Table
from consilience.measurements import Laplace, Measurement, MeasurementSet

SCALE = 15.0
TIME_LIMIT = 120.0
"""Seconds; the gap then tells how far a fit came."""

CATEGORICAL = (8, 6, 5, 4, 4, 3, 2)
GRID = (128, 128)
LINE = (4_096,)


def marginal_queries(attributes: int, ways: int) -> list[Query]:
    """All marginals of so many attributes."""
    return [Query.marginal(*names) for names in itertools.combinations([f"a{i}" for i in range(attributes)], ways)]


NAMED: dict[str, tuple[tuple[int, ...], list[Query]]] = {
    "2-way marginals, 23k cells": (CATEGORICAL, marginal_queries(7, 2)),
    "2-way marginals, 151k cells": ((9, 8, 7, 6, 5, 5, 2), marginal_queries(7, 2)),
    "2-way marginals, 1.1M cells": ((16, 12, 10, 8, 6, 6, 2), marginal_queries(7, 2)),
    "3-way marginals, 23k cells": (CATEGORICAL, marginal_queries(7, 3)),
    "prefix sums, 4k cells": (LINE, [Query.of({"a0": factors.Prefix()})]),
    "prefix sums along either axis, 128 x 128 cells": (
        GRID,
        [
            Query.of({"a0": factors.Prefix(), "a1": factors.Identity()}),
            Query.of({"a0": factors.Identity(), "a1": factors.Prefix()}),
        ],
    ),
    "prefix sums along both axes, 128 x 128 cells": (
        GRID,
        [Query.of({"a0": factors.Prefix(), "a1": factors.Prefix()})],
    ),
    "binary tree, 4k cells": (LINE, [Query.of({"a0": factors.Tree(2)})]),
    "product of binary trees, 128 x 128 cells": (GRID, [Query.of({"a0": factors.Tree(2), "a1": factors.Tree(2)})]),
}
"""Shape and measured queries by name."""

QUICK = ("2-way marginals, 23k cells", "binary tree, 4k cells")


def run(quick: bool) -> list[dict[str, Any]]:
    """One row for each problem: time, steps, and the gap in units of max(objective, expected noise energy)."""
    attributes = (3, 4, 5) if quick else (3, 4, 5, 6, 7)
    sizes = [_row(f"2-way marginals, {count} x 10 values", problem(count)) for count in attributes]
    return sizes + [_row(name, measured_queries(*NAMED[name])) for name in (QUICK if quick else NAMED)]


def _row(name: str, measured: MeasurementSet) -> dict[str, Any]:
    start = time.perf_counter()
    estimate = Table(tolerance=1e-4, time_limit=TIME_LIMIT).fit(measured)
    seconds = time.perf_counter() - start
    stats = estimate.stats
    scale = max(float(stats["objective"]), float(stats["expected_noise_energy"]))
    return {
        "problem": name,
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


def measured_queries(
    shape: tuple[int, ...], queries: list[Query], *, records: int = 100_000, seed: int = 0
) -> MeasurementSet:
    """Noisy answers about records that are drawn from a skewed, correlated table."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 4, records)
    columns = [_draw(rng, rng.dirichlet(np.full(size, 0.5), 4), group) for size in shape]
    exact_counts = np.zeros(shape)
    np.add.at(exact_counts, tuple(columns), 1.0)
    domain = Domain.from_sizes({f"a{i}": size for i, size in enumerate(shape)}, name="skewed")
    measurements = []
    for query in queries:
        answers = query.bind(domain).answer_full(exact_counts)
        noisy = answers.ravel() + rng.laplace(0, SCALE, answers.size)
        measurements.append(Measurement(query, noisy, noise=Laplace(SCALE)))
    return MeasurementSet(domain, tuple(measurements), private=False)


def _draw(rng: np.random.Generator, weights: np.ndarray, group: np.ndarray) -> np.ndarray:
    """One value for each record, by the weights of the record's group."""
    cumulated = weights.cumsum(axis=1)[group]
    return (rng.random(len(group))[:, None] > cumulated).sum(axis=1).clip(max=weights.shape[1] - 1)

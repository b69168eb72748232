"""`mbi` (Private-PGM, JAX): graphical models estimated from noisy marginals, in float64.

Its estimators take blocks of 50 steps, after each of which they show their marginals; the clock stands still while
these are judged. Compilation, which every new set of scopes needs, is part of the time; importing JAX is not.
"""

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.noisy_marginals import NoisyMarginals

NAME, MODULE = "mbi", "mbi"
ESTIMATORS = ("InteriorGradient", "LBFGS", "MirrorDescent", "DualAveraging")
"""Its estimators over exact marginals, the one first that we found to be fastest; it recommends MirrorDescent."""

Array = NDArray[np.float64]
Curve = list[tuple[float, float]]
"""Seconds since the start, compilation included, and the loss then."""


class _EnoughSteps(Exception):
    """Raised in a callback to end an estimation early."""


def load() -> Any:
    """The package, with JAX set to float64 before its first use."""
    import_module("jax").config.update("jax_enable_x64", True)
    return import_module(MODULE)


def loss_curve(
    problem: NoisyMarginals,
    estimator: str,
    *,
    enough: float = -math.inf,
    time_limit: float = math.inf,
    most_steps: int = 100_000,
) -> Curve:
    """How the loss of the noise law falls until it is at most `enough`, the time is over or the steps are done."""
    mbi = load()
    curve: Curve = []
    begin, paused = time.perf_counter(), 0.0

    def judge(marginals: Any) -> None:
        nonlocal paused
        import_module("jax").block_until_ready(marginals)
        stopped = time.perf_counter()
        curve.append((stopped - begin - paused, problem.loss(tables_of(problem, marginals))))
        if curve[-1][1] <= enough or curve[-1][0] > time_limit:
            raise _EnoughSteps
        paused += time.perf_counter() - stopped

    domain, measurements = _domain(mbi, problem), _measurements(mbi, problem)
    norm = "l2" if problem.law == "gaussian" else "l1"
    judged = mbi.marginal_loss.from_linear_measurements(measurements, domain, norm=norm)
    method = getattr(mbi.estimation, estimator)()
    with contextlib.suppress(_EnoughSteps):
        method.estimate(domain, judged, known_total=problem.total, iters=most_steps, callback_fn=judge)
    return curve


def estimated(problem: NoisyMarginals) -> tuple[float, list[Array]]:
    """Seconds and marginals of its default: mirror descent on squared residuals, 1,000 steps."""
    mbi = load()
    deviation = problem.scale * (1.0 if problem.law == "gaussian" else math.sqrt(2.0))
    begin = time.perf_counter()
    measurements = _measurements(mbi, problem, deviation)
    model = mbi.estimation.MirrorDescent().estimate(_domain(mbi, problem), measurements, known_total=problem.total)
    import_module("jax").block_until_ready(model.marginals)
    return time.perf_counter() - begin, tables_of(problem, model.marginals)


def compiled_oracle(problem: NoisyMarginals, potentials: Sequence[Array]) -> Callable[[], Any]:
    """A call of its default oracle at fixed potentials, compiled by the first; `tables_of` reads its marginals."""
    mbi, jax = load(), import_module("jax")
    domain = _domain(mbi, problem)
    factors = {
        scope: mbi.Factor(domain.project(scope), jax.numpy.asarray(table))
        for scope, table in zip(problem.scopes, potentials, strict=True)
    }
    vector = mbi.CliqueVector(domain, problem.scopes, factors)
    call = jax.jit(mbi.marginal_oracles.default_oracle(problem.scopes, domain, has_constraints=False))
    return lambda: jax.block_until_ready(call(vector, problem.total))


def junction_tree_cells(problem: NoisyMarginals) -> int:
    """How many cells the cliques of its junction tree have together."""
    mbi = load()
    domain = _domain(mbi, problem)
    tree = mbi.junction_tree.make_junction_tree(domain, problem.scopes)[0]
    return sum(domain.size(clique) for clique in mbi.junction_tree.maximal_cliques(tree))


def _domain(mbi: Any, problem: NoisyMarginals) -> Any:
    """The attributes that are measured, by their numbers."""
    measured = sorted({attribute for scope in problem.scopes for attribute in scope})
    return mbi.Domain(measured, [problem.sizes[attribute] for attribute in measured])


def _measurements(mbi: Any, problem: NoisyMarginals, deviation: float | None = None) -> list[Any]:
    return [
        mbi.LinearMeasurement(noisy.ravel(), scope, deviation or problem.scale)
        for scope, noisy in zip(problem.scopes, problem.noisy, strict=True)
    ]


def tables_of(problem: NoisyMarginals, marginals: Any) -> list[Array]:
    """The marginals of the scopes, each with axes in the order of its scope."""
    return [
        np.asarray((marginals.tables[scope] if scope in marginals.tables else marginals.project(scope)).values)
        for scope in problem.scopes
    ]

"""Predicted and measured memory: what `suitability` says a fit takes, and what fitting and refitting took.

Each case runs in a process of its own. It fits a small problem of the same kind first, so that imports and compiled
kernels are part of the baseline, then makes the measurements, and only then begins to count: `fit` is the largest
memory held during the fit above what was held before, `refit` the same with a refit as error bars make it. What the
measurements themselves take is part of neither. Error bars refit on every core, and take so many times the memory of a
refit. Below FLOOR megabytes the interpreter's own blocks decide, and a prediction is not judged.

`asking` is the processor time of `suitability`, asked once of measurements that nobody has looked at, and `share` the
same in parts of the fit after it, which finds the junction tree, if there is one, at hand. It is to be at most SHARE;
or MOMENT seconds, which fits of a few milliseconds are not worth more than.

Not here: `dual-query` keeps the records that are part of its measurement, some kilobytes, and nothing else;
`dual-query-model` is a graphical model, and is predicted as one.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.timing import in_own_process, peak_megabytes
from consilience.domain import Domain, Query, factors
from consilience.estimators.base import Estimate
from consilience.estimators.choose import ESTIMATORS
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.publication.intervals.refits import Refitting

Row = dict[str, Any]

WITHIN, FLOOR = 1.5, 16.0
"""By this factor a prediction may be off, where so many megabytes were predicted or taken."""

SHARE, MOMENT = 0.01, 0.001
"""What asking may take: this part of the fit, or so many seconds."""

PROGRAM = """
import json, sys
from benchmarks.speed.memory import measure_case
print(json.dumps(measure_case(*json.loads(sys.argv[1]))))
"""


def _marginals(
    sizes: Sequence[int], sets: Sequence[Sequence[int]], law: Any, *, records: float = 1e6
) -> MeasurementSet:
    """Noisy marginals of a skewed table in which attributes are independent."""
    rng = generator(0)
    names = [f"a{place}" for place in range(len(sizes))]
    shares = [rng.dirichlet(np.full(size, 0.5)) for size in sizes]
    found = []
    for axes in sets:
        exact = np.array(records)
        for axis in axes:
            exact = np.multiply.outer(exact, shares[axis])
        values = exact.ravel() + law.simulate(exact.size, rng)
        found.append(Measurement(Query.marginal(*(names[axis] for axis in axes)), values, law))
    domain = Domain.from_sizes(dict(zip(names, sizes, strict=True)), name="memory")
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


def tall(size: int, law: Any) -> MeasurementSet:
    """A histogram of very many values, with its total."""
    return _marginals([size], [(0,), ()], law)


def dense(size: int, law: Any) -> MeasurementSet:
    """One marginal of two large attributes."""
    return _marginals([size, size], [(0, 1)], law)


def wide(size: int, law: Any) -> MeasurementSet:
    """All pairs of one attribute with many others, and every attribute by itself."""
    sets = [*((0, other) for other in range(1, size)), *((each,) for each in range(size))]
    return _marginals([200] + [40] * (size - 1), sets, law)


def chain(size: int, law: Any) -> MeasurementSet:
    """Pairs of neighbours in a long row of attributes."""
    return _marginals([size] * 30, [(each, each + 1) for each in range(29)], law)


def loops(size: int, law: Any) -> MeasurementSet:
    """Triples in a ring: each shares an attribute with the next, and the last with the first."""
    return _marginals([size] * 8, [(0, 1, 2), (2, 3, 4), (4, 5, 6), (6, 7, 0)], law)


def cube(size: int, law: Any) -> MeasurementSet:
    """All pairs of four attributes: a full table that fits in memory."""
    return _marginals([size] * 4, list(itertools.combinations(range(4), 2)), law)


def margins(size: int, law: Any) -> MeasurementSet:
    """A full table and its one-way margins."""
    return _marginals([size] * 3, [(0, 1, 2), (0,), (1,), (2,)], law)


def apart(size: int, law: Any) -> MeasurementSet:
    """Three attributes, each by itself."""
    return _marginals([size] * 3, [(0,), (1,), (2,)], law)


def pairs(size: int, law: Any) -> MeasurementSet:
    """Marginals of up to two of many attributes of 16 values."""
    sets = itertools.chain.from_iterable(itertools.combinations(range(size), ways) for ways in range(3))
    return _marginals([16] * size, list(sets), law)


def flags(size: int, law: Any) -> MeasurementSet:
    """All triples of attributes of two values."""
    return _marginals([2] * size, list(itertools.combinations(range(size), 3)), law)


def hierarchy(size: int, law: Any) -> MeasurementSet:
    """A binary tree over the values of one attribute."""
    domain = Domain.from_sizes({"a0": size}, name="memory")
    rng = generator(0)
    query = Query.of({"a0": factors.Tree(2)})
    bound = query.bind(domain)
    exact = bound.answer(1e6 * rng.dirichlet(np.full(size, 0.5)))
    values = np.ravel(exact) + law.simulate(bound.size, rng)
    return MeasurementSet(domain, (Measurement(query, values, law),), PrivacyStatement(), {}, private=False)


PROBLEMS: dict[str, Callable[[int, Any], MeasurementSet]] = {
    each.__name__: each for each in (tall, dense, wide, chain, loops, cube, margins, apart, pairs, flags, hierarchy)
}
LAWS = {"laplace": Laplace(10.0), "gaussian": Gaussian(10.0)}


def measure_case(method: str, settings: dict[str, Any], problem: str, size: int, law: str, small: int) -> Row:
    """What was predicted and what was measured, in megabytes; for a process of its own."""
    build, noise = PROBLEMS[problem], LAWS[law]
    estimator = ESTIMATORS[method](**settings)
    _refit(estimator.fit(build(small, noise)))
    measured = build(size, noise)
    began = time.process_time()
    suitable = estimator.suitability(measured)
    asking = time.process_time() - began
    before = _forget_the_peak()
    began = time.process_time()
    fitted = estimator.fit(measured)
    fitting = time.process_time() - began
    fit = peak_megabytes() - before
    _refit(fitted)
    return {
        "predicted": suitable.predicted_bytes / 1e6,
        "fit": fit,
        "refit": peak_megabytes() - before,
        "asking": asking,
        "share": asking / fitting,
        "status": fitted.status.value,
    }


def _refit(fitted: Estimate) -> None:
    Refitting.of(fitted).draw(generator(0, 1)).answer(Query.marginal(fitted.domain.counted_names[0]))


def _forget_the_peak() -> float:
    """The megabytes held now, from which a new peak is counted where the system lets it be."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_megabytes()


Case = tuple[str, dict[str, Any], str, int, str, int]
"""The method with its settings; the problem, its size and the law of its noise; and a size to compile with."""

CASES: list[Case] = [
    ("graphical", {}, "dense", 700, "laplace", 30),
    ("graphical", {"stop": "converged"}, "dense", 700, "gaussian", 30),
    ("graphical", {"stop": "converged", "loss": "l1"}, "dense", 700, "laplace", 30),
    ("graphical", {}, "tall", 400_000, "laplace", 100),
    ("graphical", {}, "wide", 60, "laplace", 10),
    ("graphical", {}, "chain", 130, "gaussian", 10),
    ("graphical", {"stop": "converged"}, "chain", 130, "gaussian", 10),
    ("graphical", {}, "loops", 50, "laplace", 5),
    ("residual", {}, "dense", 700, "laplace", 30),
    ("residual", {}, "wide", 60, "laplace", 10),
    ("residual", {}, "chain", 130, "laplace", 10),
    ("residual", {"nonnegative": False}, "chain", 130, "laplace", 10),
    ("residual", {}, "loops", 50, "laplace", 5),
    ("views", {}, "dense", 700, "laplace", 30),
    ("views", {}, "chain", 130, "laplace", 10),
    ("views", {}, "loops", 50, "laplace", 5),
    ("local-squares", {}, "chain", 130, "gaussian", 10),
    ("tree", {}, "tall", 400_000, "laplace", 100),
    ("tree", {}, "tall", 400_000, "gaussian", 100),
    ("tree", {}, "hierarchy", 2**17, "laplace", 64),
    ("tree", {}, "dense", 700, "laplace", 30),
    ("table", {}, "dense", 700, "laplace", 30),
    ("table", {}, "tall", 200_000, "laplace", 100),
    ("table", {}, "tall", 400_000, "gaussian", 100),
    ("table", {}, "cube", 24, "gaussian", 4),
    ("table", {}, "margins", 80, "laplace", 4),
    ("matrix", {}, "tall", 400_000, "laplace", 100),
    ("matrix", {}, "cube", 8, "laplace", 4),
    ("matrix", {}, "cube", 12, "gaussian", 4),
    ("multiplicative-weights", {}, "tall", 1_500, "laplace", 20),
    ("factored-weights", {"sweeps": 1}, "apart", 1_000, "laplace", 20),
    ("bayesian-network", {}, "chain", 300, "laplace", 10),
    ("bayesian-network", {}, "wide", 60, "laplace", 10),
    ("bayesian-network", {}, "dense", 1_500, "laplace", 30),
    ("learning", {"ways": 3}, "pairs", 80, "laplace", 5),
    ("fourier", {}, "flags", 40, "laplace", 5),
    ("uniform", {}, "tall", 1_000_000, "laplace", 100),
    ("uniform", {}, "dense", 1_500, "laplace", 30),
    ("uniform", {}, "chain", 300, "laplace", 10),
]


HELD_OUT: list[Case] = [
    ("graphical", {}, "wide", 90, "gaussian", 10),
    ("graphical", {"stop": "converged"}, "loops", 40, "laplace", 5),
    ("graphical", {"stop": "noise"}, "dense", 900, "laplace", 30),
    ("residual", {}, "wide", 40, "gaussian", 10),
    ("views", {}, "wide", 40, "laplace", 10),
    ("tree", {}, "hierarchy", 2**16, "gaussian", 64),
    ("table", {}, "margins", 60, "gaussian", 4),
    ("matrix", {}, "hierarchy", 2**15, "laplace", 64),
    ("matrix", {}, "cube", 14, "laplace", 4),
    ("bayesian-network", {}, "loops", 50, "gaussian", 5),
    ("learning", {"ways": 3}, "pairs", 60, "gaussian", 5),
    ("fourier", {}, "flags", 36, "gaussian", 5),
    ("uniform", {}, "margins", 120, "gaussian", 4),
]
"""No constant of a prediction was set by these."""

QUICK: list[Case] = [
    ("graphical", {}, "dense", 400, "laplace", 30),
    ("tree", {}, "dense", 500, "laplace", 30),
]


def run(quick: bool) -> list[Row]:
    """One row for each case, in megabytes; if quick, two of them, smaller."""
    return [row_of(case) for case in (QUICK if quick else [*CASES, *HELD_OUT])]


def row_of(case: Case) -> Row:
    """What a process of its own found."""
    return described(case, in_own_process(PROGRAM, *case))


def described(case: Case, found: Row) -> Row:
    """The row of a case: which it is, what was found, and whether the prediction holds."""
    method, settings, problem, size, law, _ = case
    chosen = ", ".join(f"{key}={value}" for key, value in settings.items())
    taken = max(found["fit"], found["refit"])
    ratio = found["predicted"] / taken if taken else math.inf
    small = max(found["predicted"], taken) < FLOOR
    return {
        "set by": "no" if case in HELD_OUT else "yes",
        "method": f"{method} {chosen}".strip(),
        "problem": f"{problem} {size:,}, {law}",
        **found,
        "ratio": ratio,
        "met": "small" if small else "yes" if 1 / WITHIN <= ratio <= WITHIN else "no",
        "quick": "yes" if found["share"] <= SHARE or found["asking"] <= MOMENT else "no",
    }

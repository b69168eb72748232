"""Compiles kernels before they are needed: small releases of a made-up town, with noise that protects nobody.

What a first release, its answers and its records need takes seconds, and comes first. Everything else, all plans and
methods, takes minutes: `everything`. Wheels are built from what that leaves (`packaging/kernels.py`).
"""

import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from consilience.demo import write_table
from consilience.domain import Attribute, Domain
from consilience.errors import ConsilienceError
from consilience.estimators import Graphical, Matrix, Table, Tree, estimate
from consilience.estimators.base import Progress
from consilience.flow import release
from consilience.iterative import kmeans, logistic
from consilience.kernels.compilation import compilation
from consilience.kernels.rng import generator
from consilience.measurements import Laplace, MeasurementSet
from consilience.publication import synthesize

Step = tuple[str, Callable[[], object]]

FIRST_PLANS = ("2-way", "marginals age,sex; district,employment")
OTHER_PLANS = [
    *("histogram age", "histogram age 2 geometric", "wavelet age", "efpa age", "php age", "dawa age"),
    *("dawa-published age", "matrix age ranges", "low-rank age prefix", "fourier 2", "views", "independent", "forest"),
    *("mst", "aim", "hdmm age,sex", "mwem age,sex", "mwem-graphical age,sex"),
    *("dual-query age,sex", "privbayes", "queries prefix(age) by sex"),
]
METHODS = (
    "tree",
    "table",
    "matrix",
    "graphical",
    "residual",
    "views",
    "multiplicative-weights",
    *(kind(loss=loss) for kind in (Tree, Table, Matrix, Graphical) for loss in ("l1", "l2", "elastic")),
)
NOISY = {
    "nested": [("age",), ("age", "sex"), ("age", "sex", "smoker")],
    "a loop": [("age", "sex"), ("sex", "smoker"), ("age", "smoker")],
    "one table": [("age", "sex", "smoker")],
}
PEOPLE, POINTS = 2000, 1000


def warm_up(*, everything: bool = False, progress: Progress | None = None) -> int:
    """Compile what a release needs, or everything, and keep it for later processes; the number of kernels compiled.

    Where kernels came with the package, or are there from earlier, there is nothing to compile.
    """
    before = compilation.kernels
    with tempfile.TemporaryDirectory(prefix="consilience-warm-up-") as folder, _quiet():
        steps = [*_first_steps(Path(folder)), *(_other_steps(Path(folder)) if everything else [])]
        for done, (name, run) in enumerate(steps):
            if progress is not None:
                progress(name, done, len(steps))
            run()
    return compilation.kernels - before


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing is told about releases that nobody asked for."""
    logger = logging.getLogger("consilience")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _first_steps(folder: Path) -> Iterator[Step]:
    data, domain = write_table(folder / "town.csv", people=PEOPLE)
    made: list[Any] = []

    def released(plan: str) -> Callable[[], None]:
        options: dict[str, Any] = {"epsilon": 10, "plan": plan, "simulate": 0}
        return lambda: made.append(release(data, domain, out=folder / f"release-{len(made)}", **options))

    for plan in FIRST_PLANS:
        yield f"release, {plan}", released(plan)
    yield "answers", lambda: made[0].answer("age=25..34 by sex", interval=0.9, refits=20)
    yield "whole numbers", lambda: made[0].answer("by district, employment", integers=True)
    yield "synthetic records", lambda: synthesize(made[0].estimate, rows=200)


def _other_steps(folder: Path) -> Iterator[Step]:
    data, domain = folder / "town.csv", folder / "town.domain.toml"
    parquet = folder / "town.parquet"

    def converted() -> None:
        import pyarrow.csv as csv
        import pyarrow.parquet as pq

        pq.write_table(csv.read_csv(data), parquet)
        options: dict[str, Any] = {"unit": "person", "max_rows_per_unit": 2, "epsilon": 10, "simulate": 0}
        release(parquet, domain, plan="2-way", out=folder / "parquet", **options)

    yield "a Parquet file, people with several rows", converted
    plans: list[dict[str, Any]] = [{"epsilon": 10, "plan": plan} for plan in OTHER_PLANS]
    for number, asked in enumerate([*plans, {"rho": 1, "plan": "residual-planner age,sex"}, {"epsilon": 1}]):
        name = asked.get("plan", "the plan chosen")
        yield f"release, {name}", _tried(release, data, domain, out=folder / f"plan-{number}", simulate=0, **asked)
    for name, measured in _noisy_sets():
        for method in METHODS:
            shown = method if isinstance(method, str) else type(method).__name__.lower()
            yield f"estimate, {name} by {shown}", _tried(estimate, measured, method=method)
    options: dict[str, Any] = {"epsilon": 10, "simulate": 0, "steps": 20, "chains": 1, "pictures": False}
    points, box = _points()
    for method in ("rounds", "grid", "hybrid", "gupt", "privgene"):
        yield (
            f"k-means, {method}",
            _tried(kmeans, points, box, clusters=2, out=folder / f"k-means-{method}", method=method, **options),
        )
    yield "logistic regression", _tried(logistic, points, box, label="y", out=folder / "logistic", **options)


def _tried(verb: Callable[..., object], *arguments: object, **options: object) -> Callable[[], None]:
    """The call, which may refuse: not every method suits every measurement."""

    def run() -> None:
        try:
            verb(*arguments, **options)
        except ConsilienceError:
            return

    return run


def _noisy_sets() -> Iterator[tuple[str, MeasurementSet]]:
    """Three small sets of noisy marginals: one that is a tree, one that is a loop, and one table."""
    domain = Domain.from_sizes({"age": 6, "sex": 2, "smoker": 3})
    truth = generator(0).poisson(20, domain.shape).astype(float)
    for name, sets in NOISY.items():
        noisy = {
            names: truth.sum(tuple(axis for axis, each in enumerate(domain.names) if each not in names))
            + generator(1, len(names)).laplace(0, 2, [domain[each].size for each in names])
            for names in sets
        }
        yield name, MeasurementSet.from_marginals(domain, dict(noisy), noise=Laplace(2.0))


def _points() -> tuple[pa.Table, Domain]:
    """Two clouds of points, the label of each the cloud that it is of."""
    rng = generator(2)
    label = (np.arange(POINTS) % 2).astype(float)
    points = {name: np.clip(0.25 + 0.5 * label + 0.1 * rng.standard_normal(POINTS), 0, 1) for name in ("x", "z")}
    attributes = tuple(Attribute.continuous(name, (0, 1)) for name in ("x", "z", "y"))
    return pa.table({**points, "y": label}), Domain("points", attributes)

"""What suits overlapping marginals with Laplace noise: `Graphical`, and the losses of `Table`, on all 2-way marginals.

A row is a table, an ε and the number of attributes of the marginals asked for: the mean squared error of each way in
parts of the best one's, over several draws of the noise.
"""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.contingency_tables import CONTINGENCY_TABLES
from benchmarks.problems.counted import CountedTable
from consilience import plans
from consilience.domain import Domain
from consilience.estimators import Estimator, Graphical, Table
from consilience.measuring import measure

WAYS: dict[str, Estimator] = {
    "graphical": Graphical(),
    "graphical, converged": Graphical(stop="converged"),
    "l2": Table(loss="l2"),
    "l1": Table(loss="l1"),
    "elastic 0.7": Table(loss="elastic", alpha=0.7),
    "elastic 0.9": Table(loss="elastic", alpha=0.9),
}
EPSILONS = (0.1, 1.0)


def run(quick: bool) -> list[dict[str, Any]]:
    """The rows; ten draws, three if quick."""
    runs = 3 if quick else 10
    rows = []
    for name, table in tables().items():
        for epsilon in EPSILONS:
            errors = mean_errors(table, epsilon, runs)
            for ways in (1, 2, 3):
                best = min(found[ways] for found in errors.values())
                ratios = {f"{loss} / best": found[ways] / best for loss, found in errors.items()}
                rows.append({"table": name, "epsilon": epsilon, "ways": ways, "runs": runs, **ratios})
            print(f"  {name}, ε = {epsilon:g}: done", flush=True)
    return rows


def tables() -> dict[str, CountedTable]:
    """The small tables of the first paper, and one of 1,260 cells with skewed, dependent attributes."""
    small = {each.name.capitalize(): CountedTable(each.domain, each.counts) for each in CONTINGENCY_TABLES}
    rng = np.random.default_rng(4)
    shape = (7, 6, 6, 5)
    groups = rng.dirichlet(np.full(4, 1.0))
    shares = sum(
        weight * np.einsum("a,b,c,d->abcd", *(rng.dirichlet(np.full(size, 0.4)) for size in shape)) for weight in groups
    )
    counts = rng.multinomial(20_000, np.asarray(shares).ravel()).reshape(shape)
    domain = Domain.from_sizes({f"a{i}": size for i, size in enumerate(shape)}, name="skewed")
    return small | {"Skewed": CountedTable(domain, counts)}


def mean_errors(table: CountedTable, epsilon: float, runs: int) -> dict[str, dict[int, float]]:
    """Each way's mean squared error over all cells of all marginals of 1, 2 and 3 attributes."""
    names = table.domain.counted_names
    (truth,) = table.exact_counts([names])
    total: dict[str, dict[int, float]] = {loss: {1: 0.0, 2: 0.0, 3: 0.0} for loss in WAYS}
    for seed in range(runs):
        found = measure(table, plans.Direct(ways=2), epsilon=epsilon, simulate=seed)
        for loss, way in WAYS.items():
            difference = way.fit(found).marginal(*names) - truth
            for ways in total[loss]:
                total[loss][ways] += mean_square(difference, ways) / runs
    return total


def mean_square(difference: NDArray[np.float64], ways: int) -> float:
    """The mean square over all cells of all marginals of so many axes."""
    axes = range(difference.ndim)
    margins = [
        difference.sum(axis=tuple(axis for axis in axes if axis not in kept))
        for kept in itertools.combinations(axes, ways)
    ]
    return float(np.mean(np.concatenate([margin.ravel() ** 2 for margin in margins])))

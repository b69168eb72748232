"""The methods that Lee, Wang and Kifer (2015) compare in §5.3, on histograms of 1,024 bins, for a given workload.

A strategy A of L1 sensitivity 1 depends on the workload alone and is found once. Its noisy answers A x + Laplace(1/ε)
are fitted by least squares, MM(ℓ2), or with x ≥ 0 by the likelihood, MM(ℓ1). As printed that is an elastic net with
α = 0.9 on residuals in counts, where the square outweighs the absolute value; L1 alone is the likelihood of the noise.
Noise is simulated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.counted import CountedTable
from benchmarks.problems.histograms import NamedHistogram, nettrace, search_logs, social_network
from benchmarks.reproduce.figures import Rows
from benchmarks.reproduce.lee2015.methods import HAY, LEAST_SQUARES
from consilience import plans
from consilience.estimators.base import Estimator
from consilience.kernels.linear_maps import AllRangesMap
from consilience.measuring import measure
from consilience.privacy.measure import Plan
from consilience.solvers.matrices.matrix_fit import fit_matrix
from consilience.strategies.attribute_strategies import gram_matrix, p_identity, semidefinite_strategy
from consilience.strategies.low_rank import low_rank_factors

Array = NDArray[np.float64]
BINS = 1024
METHODS = (
    "MM(ℓ1), as printed",
    "MM(ℓ1), L1 alone",
    "MM(ℓ2)",
    "HTree",
    "Privlet",
    "LM",
    "LRM",
    "p-identity, elastic net",
)


METHOD_DIFFERS = (
    "Method: the strategy is the approximation by Yuan et al. that the paper names, to a tolerance of 0.001. MM(ℓ1) is "
    "the paper's elastic net at its exact optimum; `L1 alone` is the likelihood itself. LRM is this library's, which "
    "starts its search from a p-identity strategy and falls back to the cells where no factors are better; the "
    "published one starts from the singular vectors of the workload."
)


def histograms() -> list[NamedHistogram]:
    """The three of the paper, in 1,024 bins."""
    return [each.coarsened(BINS) for each in (search_logs(), nettrace(), social_network())]


@dataclass(frozen=True, eq=False)
class Task:
    """A workload: its name, its Gram matrix, its answers for given counts, and whether they are sums of counts.

    Sums of counts that come out negative are set to 0, as in the paper.
    """

    name: str
    gram: Array
    answers: Callable[[Array], Array]
    sums: bool

    def error(self, counts: Array, truth: Array) -> float:
        """The mean squared error of the workload's answers."""
        found = self.answers(counts)
        if self.sums:
            found = np.maximum(found, 0.0)
        return float(np.mean((found - self.answers(truth)) ** 2))

    @cached_property
    def matrix_mechanism(self) -> Array:
        """The strategy by the approximation that Yuan et al. (2012) use, the paper's choice."""
        return semidefinite_strategy(self.gram, tolerance=1e-3).strategy

    @cached_property
    def least_squares(self) -> Array:
        """From the answers of the matrix mechanism to the least-squares counts of least norm."""
        return pseudoinverse(self.matrix_mechanism)

    @cached_property
    def low_rank(self) -> Array:
        return low_rank_factors(self.gram).strategy

    @cached_property
    def low_rank_least_squares(self) -> Array:
        return pseudoinverse(self.low_rank)

    @cached_property
    def p_identity(self) -> Array:
        return p_identity(self.gram)


def released(task: Task, histogram: NamedHistogram, epsilon: float, seed: int) -> dict[str, Array]:
    """The counts that every method would answer the workload from."""
    truth = histogram.counts.astype(np.float64)
    table = CountedTable.histogram(histogram.counts)

    def by(plan: Plan, estimator: Estimator) -> Array:
        return estimator.fit(measure(table, plan, epsilon=epsilon, simulate=seed)).marginal("x")

    def noisy(strategy: Array) -> Array:
        return strategy @ truth + np.random.default_rng(seed).laplace(0.0, 1.0 / epsilon, len(strategy))

    weights = np.full(len(task.matrix_mechanism), epsilon)
    found = noisy(task.matrix_mechanism)
    best = noisy(task.p_identity)
    return {
        "MM(ℓ1), as printed": fit_matrix(task.matrix_mechanism, found, loss="elastic", alpha=0.9).counts,
        "MM(ℓ1), L1 alone": fit_matrix(task.matrix_mechanism, found, loss="l1", weights=weights).counts,
        "MM(ℓ2)": task.least_squares @ found,
        "HTree": by(plans.Histogram("x"), HAY),
        "Privlet": by(plans.Wavelet(["x"]), LEAST_SQUARES),
        "LM": noisy(np.eye(BINS)),
        "LRM": task.low_rank_least_squares @ noisy(task.low_rank),
        "p-identity, elastic net": fit_matrix(
            task.p_identity, best, loss="elastic", alpha=0.7, weights=np.full(len(best), epsilon)
        ).counts,
    }


def error_rows(task: Task, histogram: NamedHistogram, epsilon: float, *, seeds: range) -> Rows:
    """The error of every method, over several draws of the noise."""
    truth = histogram.counts.astype(np.float64)
    found = [released(task, histogram, epsilon, seed) for seed in seeds]
    print(f"  {task.name}, {histogram.name}, ε = {epsilon:g}: done", flush=True)
    errors = {method: [task.error(counts[method], truth) for counts in found] for method in METHODS}
    return [
        {"dataset": histogram.name, "workload": task.name, "epsilon": epsilon, "method": method}
        | {"mse": float(np.mean(values)), "values": values}
        for method, values in errors.items()
    ]


def pseudoinverse(strategy: Array) -> Array:
    """Found once for each strategy: least squares anew for every run took more than half of its time."""
    return np.asarray(np.linalg.pinv(strategy, rcond=1e-10), dtype=np.float64)


def dense_task(name: str, workload: Array, *, sums: bool) -> Task:
    return Task(name, workload.T @ workload, lambda counts: workload @ counts, sums)


def signs() -> Task:
    """1,024 queries whose entries are 1 or −1 with equal probability."""
    workload = np.random.default_rng(7).choice([-1.0, 1.0], (BINS, BINS))
    return dense_task("random signs", workload, sums=False)


def identity() -> Task:
    return Task("identity", np.eye(BINS), lambda counts: counts, sums=True)


def predicates() -> Task:
    """512 queries, each a sum over half of the bins, chosen at random."""
    workload = np.random.default_rng(8).integers(0, 2, (512, BINS)).astype(np.float64)
    return dense_task("512 predicates", workload, sums=True)


def all_ranges() -> Task:
    places = np.triu_indices(BINS + 1, 1)

    def answers(counts: Array) -> Array:
        sums = np.concatenate([[0.0], np.cumsum(counts)])
        return sums[places[1]] - sums[places[0]]

    return Task("all ranges", gram_matrix(AllRangesMap(BINS)), answers, sums=True)

"""The ways to release a histogram that Lee, Wang and Kifer (2015) compare in §5.2 and §5.3.

Each is a plan of the library and a way to fit what it measured; noise is simulated.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.counted import CountedTable
from consilience import plans
from consilience.estimators import Matrix, Tree, estimate
from consilience.estimators.base import Estimator
from consilience.measurements import Laplace, MeasurementSet
from consilience.measuring import measure
from consilience.privacy.measure import Plan

Array = NDArray[np.float64]
Places = NDArray[np.int64]
Answers = Callable[[Places, int], Array]
"""From first bins and a length to the counts of these ranges."""

EPSILONS = tuple(round(0.1 * step, 1) for step in range(1, 11))
"""The ticks of the paper's axes: 0.1, 0.2, … 1."""

METHOD_DIFFERS = (
    "Method: the paper's elastic net at its exact optimum; `auto` and ADMM fit the tree that HTree has, the branching "
    "of which is tuned on the truth, as the authors did (a release may not). LM(H) sums the leaves of a noisy binary "
    "tree. EFPA and P-HP are this library's, which differ from the published ones: EFPA has less noise (the "
    "sensitivity of the coefficients as they are, at most 2,048 of them) and selects among them by another score; P-HP "
    "is cut on at most 12 levels."
)
DATA_DIFFERS = (
    "Data: Search Logs and Nettrace are refined from DPBench's 4,096 bins, which are sums of 8 and 16 of the paper's "
    "bins: lengths, totals, largest counts and empty shares are the paper's, the order within a sum is not known; "
    "Nettrace is sorted. Social Network is a sorted stand-in with the paper's length, least and largest count."
)

LEAST_SQUARES = Matrix(loss="l2", nonnegative=False)
HAY = Tree(loss="l2", nonnegative=False)
AS_PRINTED = Tree(loss="elastic", alpha=0.9)


@dataclass(frozen=True)
class Method:
    """What is measured, with which share of ε, and how ranges are answered from it."""

    name: str
    plan: Plan
    answers: Callable[[MeasurementSet], Answers]
    share: float = 1.0

    def run(self, table: CountedTable, epsilon: float, seed: int) -> Answers:
        return self.answers(measure(table, self.plan, epsilon=epsilon * self.share, simulate=seed))


def run_all(methods: Sequence[Method], table: CountedTable, epsilon: float, seed: int) -> dict[str, Answers]:
    """The answers of each method in one run; those with the same plan see the same measurements."""
    measured: dict[tuple[Plan, float], MeasurementSet] = {}
    for each in methods:
        if (each.plan, each.share) not in measured:
            found = measure(table, each.plan, epsilon=epsilon * each.share, simulate=seed)
            measured[each.plan, each.share] = found
    return {each.name: each.answers(measured[each.plan, each.share]) for each in methods}


def from_counts(counts: Array) -> Answers:
    """Ranges as sums of counts; negative answers are set to 0, as the paper does."""
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    return lambda starts, length: np.maximum(sums[starts + length] - sums[starts], 0.0)


def fitted(estimator: Estimator) -> Callable[[MeasurementSet], Answers]:
    return lambda found: from_counts(estimator.fit(found).marginal(found.domain.names[0]))


def unfitted(found: MeasurementSet) -> Answers:
    """The noisy counts of the bins as they are."""
    return from_counts(found.measurements[-1].values)


def on_raw_counts(found: MeasurementSet) -> Answers:
    """The paper's elastic net: α = 0.9 on residuals in counts instead of noise scales, here at its exact optimum."""
    unscaled = replace(found, measurements=tuple(replace(each, noise=Laplace(1.0)) for each in found))
    return fitted(AS_PRINTED)(unscaled)


def chosen_automatically(found: MeasurementSet) -> Answers:
    return from_counts(estimate(found).marginal(found.domain.names[0]))


def histogram_methods(attribute: str, bins: int, *, branching: int) -> list[Method]:
    """All curves of Figures 5.2.1 and 5.2.2; HTree, ADMM and auto fit the same tree, of this branching.

    The leaves of a noisy binary tree, which LM(H) adds up, have the noise of a histogram with one share of ε for each
    level.
    """
    levels = math.ceil(math.log2(bins)) + 1
    tree = plans.Histogram(attribute, branching=branching)
    return [
        Method("ADMM(ℓ1), as printed", tree, on_raw_counts),
        Method("Consilience, auto", tree, chosen_automatically),
        Method("HTree", tree, fitted(HAY)),
        Method("Privlet", plans.Wavelet([attribute]), fitted(LEAST_SQUARES)),
        Method("EFPA", plans.Efpa(attribute), fitted(LEAST_SQUARES)),
        Method("P-HP", plans.Php(attribute), fitted(LEAST_SQUARES)),
        Method("LM(L)", plans.Flat(total_share=0), unfitted),
        Method("LM(H)", plans.Flat(total_share=0), unfitted, share=1 / levels),
    ]


BRANCHINGS = (2, 4, 8, 16, 32, 64)


def best_branching(table: CountedTable, epsilon: float, error: Callable[[Answers], float], *, runs: int) -> int:
    """The branching with which HTree does best on this data. Not private: it looks at the truth, as the paper did."""
    attribute = table.domain.names[0]

    def mean_error(branching: int) -> float:
        method = Method("HTree", plans.Histogram(attribute, branching=branching), fitted(HAY))
        return float(np.mean([error(method.run(table, epsilon, 10_000 + run)) for run in range(runs)]))

    return min((k for k in BRANCHINGS if k <= table.domain.shape[0]), key=mean_error)

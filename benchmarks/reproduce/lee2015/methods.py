"""The ways to release a histogram that Lee, Wang and Kifer (2015) compare in §5.2 and §5.3.

Each is a plan of the library and a way to fit what it measured; noise is simulated.
"""

from collections.abc import Callable
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

LEAST_SQUARES = Matrix(loss="l2", nonnegative=False)
HAY = Tree(loss="l2", nonnegative=False)
AS_PRINTED = Tree(loss="elastic", alpha=0.9)


@dataclass(frozen=True)
class Method:
    """What is measured, and how ranges are answered from it."""

    name: str
    plan: Plan
    answers: Callable[[MeasurementSet], Answers]

    def run(self, table: CountedTable, epsilon: float, seed: int) -> Answers:
        return self.answers(measure(table, self.plan, epsilon=epsilon, simulate=seed))


def from_counts(counts: Array) -> Answers:
    """Ranges as sums of counts; negative answers are set to 0, as the paper does."""
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    return lambda starts, length: np.maximum(sums[starts + length] - sums[starts], 0.0)


def fitted(estimator: Estimator) -> Callable[[MeasurementSet], Answers]:
    return lambda found: from_counts(estimator.fit(found).marginal(found.domain.names[0]))


def unfitted(found: MeasurementSet) -> Answers:
    """The noisy counts of the bins as they are."""
    return from_counts(found.measurements[-1].values)


def unfitted_tree(found: MeasurementSet) -> Answers:
    """The fewest noisy nodes of a binary tree that make up the range."""
    return lambda starts, length: fewest_nodes([each.values for each in found], starts, length)


def fewest_nodes(levels: list[Array], starts: Places, length: int) -> Array:
    """Sums over ranges from a binary tree's levels, root first; negative answers are set to 0."""
    answers = np.zeros(len(starts))
    low, high = starts.copy(), starts + length
    for level in reversed(levels):
        if len(level) == 1:
            answers[low < high] += level[0]
            break
        alone = (low < high) & (low % 2 == 1)
        answers[alone] += level[low[alone]]
        low[alone] += 1
        alone = (low < high) & (high % 2 == 1)
        high[alone] -= 1
        answers[alone] += level[high[alone]]
        low, high = low // 2, high // 2
    return np.maximum(answers, 0.0)


def on_raw_counts(found: MeasurementSet) -> Answers:
    """The paper's elastic net: α = 0.9 on residuals in counts instead of noise scales, here at its exact optimum."""
    unscaled = replace(found, measurements=tuple(replace(each, noise=Laplace(1.0)) for each in found))
    return fitted(AS_PRINTED)(unscaled)


def chosen_automatically(found: MeasurementSet) -> Answers:
    return from_counts(estimate(found).marginal(found.domain.names[0]))


def histogram_methods(attribute: str, *, branching: int) -> list[Method]:
    """All curves of Figures 5.2.1 and 5.2.2; HTree, ADMM and auto fit the same tree, of this branching."""
    tree = plans.Histogram(attribute, branching=branching)
    return [
        Method("ADMM(ℓ1), as printed", tree, on_raw_counts),
        Method("Consilience, auto", tree, chosen_automatically),
        Method("HTree", tree, fitted(HAY)),
        Method("Privlet", plans.Wavelet([attribute]), fitted(LEAST_SQUARES)),
        Method("EFPA", plans.Efpa(attribute), fitted(LEAST_SQUARES)),
        Method("P-HP", plans.Php(attribute), fitted(LEAST_SQUARES)),
        Method("LM(L)", plans.Flat(total_share=0), unfitted),
        Method("LM(H)", plans.Histogram(attribute, branching=2), unfitted_tree),
    ]


BRANCHINGS = (2, 4, 8, 16, 32, 64)


def best_branching(table: CountedTable, epsilon: float, error: Callable[[Answers], float], *, runs: int) -> int:
    """The branching with which HTree does best on this data. Not private: it looks at the truth, as the paper did."""
    attribute = table.domain.names[0]

    def mean_error(branching: int) -> float:
        method = Method("HTree", plans.Histogram(attribute, branching=branching), fitted(HAY))
        return float(np.mean([error(method.run(table, epsilon, 10_000 + run)) for run in range(runs)]))

    return min((k for k in BRANCHINGS if k <= table.domain.shape[0]), key=mean_error)

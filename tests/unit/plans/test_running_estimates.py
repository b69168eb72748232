"""What a plan knows between rounds: fitted when asked, from all measurements so far, and at once for zeros."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from consilience.domain import Domain, Query
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts
from consilience.errors import MeasurementError
from consilience.estimators.graphical import Graphical
from consilience.estimators.residual import Residual
from consilience.measurements import Gaussian, Measurement
from consilience.plans.answering import RunningEstimate

DOMAIN = Domain.from_sizes({"a": 2, "b": 3, "c": 4})
TABLE = np.random.default_rng(0).integers(5, 60, DOMAIN.shape).astype(float)


def noisy(*names: str, stddev: float = 2.0, seed: int = 1) -> Measurement:
    axes = tuple(axis for axis, name in enumerate("abc") if name not in names)
    exact = TABLE.sum(axis=axes)
    values = exact + np.random.default_rng(seed).normal(0.0, stddev, exact.shape)
    return Measurement(Query.marginal(*names), values.ravel(), Gaussian(stddev))


class CountedFits:
    """An estimator that counts how often it fits."""

    name = "counted"

    def __init__(self) -> None:
        self.fits = 0

    def suitability(self, measured):
        return Graphical().suitability(measured)

    def fit(self, measured, *, progress=None):
        self.fits += 1
        return Graphical().fit(measured, progress=progress)


def test_a_fit_is_made_when_asked_for_and_once_for_each_addition() -> None:
    estimator = CountedFits()
    running = RunningEstimate(DOMAIN, estimator)
    running.add([noisy("a")])
    running.add([noisy("b")])
    assert estimator.fits == 0
    running.marginal("a")
    running.marginals([("a", "b"), ("c",)])
    assert estimator.fits == 1
    running.add([])
    running.marginal("c")
    assert estimator.fits == 1
    running.add([noisy("c")])
    running.marginal("c")
    assert estimator.fits == 2


def test_a_warm_fit_to_the_optimum_is_the_cold_one() -> None:
    settings = Graphical(stop="converged", tolerance=1e-7)
    warm, cold = RunningEstimate(DOMAIN, settings), RunningEstimate(DOMAIN, settings, warm=False)
    for names in (("a",), ("b", "c"), ("a", "b")):
        for running in (warm, cold):
            running.add([noisy(*names)])
            running.marginal("a")
    assert warm.marginal("a", "b", "c") == pytest.approx(cold.marginal("a", "b", "c"), rel=1e-2)


def test_a_warm_fit_begins_nearer_to_the_optimum() -> None:
    settings = Graphical(stop="converged", tolerance=1e-7)
    objective = []
    for running in (RunningEstimate(DOMAIN, settings), RunningEstimate(DOMAIN, settings, warm=False)):
        running.add([noisy("a", "b")])
        running.marginal("a")
        running.add([noisy("b", "c", stddev=20.0)])
        running.estimator = replace(settings, max_steps=1)
        objective.append(float(running.estimate.stats["objective"]))
    assert objective[0] < 0.5 * objective[1]


def test_zeros_are_an_even_table_without_a_fit() -> None:
    estimator = CountedFits()
    public = Domain("d", DOMAIN.attributes, public=PublicFacts(total=24))
    running = RunningEstimate(public, estimator)
    running.add([Measurement(Query.marginal("a", "b"), np.zeros(6), Gaussian(1.0))])
    assert running.marginal("a", "b", "c") == pytest.approx(np.ones((2, 3, 4)))
    assert estimator.fits == 0
    running.add([noisy("a")])
    running.marginal("a")
    assert estimator.fits == 1


def test_without_measurements_and_without_a_total_there_is_nothing_to_estimate() -> None:
    with pytest.raises(MeasurementError, match="nothing was measured"):
        RunningEstimate(DOMAIN, Graphical()).marginal("a")


def test_an_estimate_between_rounds_is_not_taken_for_a_release() -> None:
    running = RunningEstimate(DOMAIN, Graphical())
    running.add([noisy("a")])
    assert not running.estimate.private


@pytest.mark.parametrize("estimator", [Graphical(), Residual()])
def test_marginals_found_together_are_those_found_one_by_one(estimator) -> None:
    sizes = {f"x{i}": 3 + i for i in range(7)}
    rule = ImpossibleCells((("x0", (0,)), ("x1", (1, 2))))
    domain = Domain("wide", Domain.from_sizes(sizes).attributes, impossible=(rule,))
    rng = np.random.default_rng(4)
    running = RunningEstimate(domain, estimator)
    for names in [*((name,) for name in sizes), ("x2", "x3"), ("x3", "x5")]:
        values = rng.integers(0, 90, domain.sizes(names)).astype(float)
        running.add([Measurement(Query.marginal(*names), values.ravel(), Gaussian(9.0))])
    sets = [*itertools.permutations(sizes, 2), ("x2", "x3", "x5"), ("x6",)]
    together = running.marginals(sets)
    assert list(together) == sets
    for names, table in together.items():
        assert table == pytest.approx(running.marginal(*names), rel=1e-4, abs=1e-3), names

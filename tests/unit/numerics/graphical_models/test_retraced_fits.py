"""Fits of least risk that are repeated with other noise, by the steps of the first."""

from dataclasses import replace

import numpy as np
import pytest

from consilience.numerics.graphical_models.junction_trees import junction_tree
from consilience.numerics.graphical_models.oracle import MarginalOracle
from consilience.numerics.graphical_models.retraced_fits import Way, fit_along, fit_with_effort
from consilience.numerics.graphical_models.rows import MeasuredQuery, MeasuredRows

SIZES = (4, 5, 6, 4)
SCOPES = ((0, 1, 2), (1, 2, 3))
SETTINGS = {"noise": 60.0, "max_steps": 400}


class Problem:
    """Marginals of a model whose attributes depend on each other, with noise of variance 1."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.oracle = MarginalOracle(junction_tree(SIZES, SCOPES), SCOPES, total=5_000.0)
        layout = self.oracle.layout
        self.rows = MeasuredRows(
            layout,
            [
                MeasuredQuery(k, axes, np.full(int(np.prod([SIZES[a] for a in axes])), 0.2))
                for k, axes in enumerate(layout.axes)
            ],
        )
        truth = self.oracle.marginals(rng.normal(size=layout.size)).values.copy()
        self.exact = self.rows.apply(truth)
        self.start = np.zeros(layout.size)

    def noisy(self, seed: int) -> np.ndarray:
        return self.exact + np.random.default_rng(seed).normal(size=self.exact.size)

    def fitted(self, potentials: np.ndarray) -> np.ndarray:
        return self.rows.apply(self.oracle.marginals(potentials).values)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem()


@pytest.fixture(scope="module")
def way(problem: Problem) -> Way:
    return fit_with_effort(problem.oracle, problem.rows, problem.exact, start=problem.start, effort=0.5, **SETTINGS)[1]


def test_a_way_is_as_long_as_asked_for(way: Way) -> None:
    assert sum(way.lengths) == pytest.approx(0.5, rel=1e-12)
    assert len(way.lengths) > 5


@pytest.mark.parametrize("seed", range(5))
def test_the_steps_of_another_noise_lead_to_where_a_search_leads(problem: Problem, way: Way, seed: int) -> None:
    observed = problem.noisy(seed)
    searched, _ = fit_with_effort(
        problem.oracle, problem.rows, observed, start=problem.start, effort=sum(way.lengths), **SETTINGS
    )
    along = fit_along(problem.oracle, problem.rows, observed, start=problem.start, way=way, **SETTINGS)
    apart = problem.fitted(along) - problem.fitted(searched)
    moved = problem.fitted(along) - problem.fitted(
        fit_along(problem.oracle, problem.rows, problem.exact, start=problem.start, way=way, **SETTINGS)
    )
    assert np.linalg.norm(apart) < 0.25 * np.linalg.norm(moved)


def test_fewer_calls_than_a_search(problem: Problem, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {"along": 0, "searched": 0}
    marginals = MarginalOracle.marginals
    for name, fit in (
        (
            "along",
            lambda: fit_along(problem.oracle, problem.rows, problem.noisy(1), start=problem.start, way=way, **SETTINGS),
        ),
        (
            "searched",
            lambda: fit_with_effort(
                problem.oracle, problem.rows, problem.noisy(1), start=problem.start, effort=0.5, **SETTINGS
            ),
        ),
    ):

        def count(oracle: MarginalOracle, potentials: np.ndarray, name: str = name):
            counted[name] += 1
            return marginals(oracle, potentials)

        monkeypatch.setattr(MarginalOracle, "marginals", count)
        fit()
    assert counted["along"] < counted["searched"]


def test_steps_that_are_too_long_are_sought_again(problem: Problem, way: Way) -> None:
    """A quarter as many steps of four times the length overshoot: the search takes over and finds its own lengths."""
    together = np.add.reduceat(np.array(way.lengths), np.arange(0, len(way.lengths), 6))
    wild = replace(way, lengths=tuple(together.tolist()))
    observed = problem.noisy(2)
    searched, _ = fit_with_effort(
        problem.oracle, problem.rows, observed, start=problem.start, effort=sum(wild.lengths), **SETTINGS
    )
    along = fit_along(problem.oracle, problem.rows, observed, start=problem.start, way=wild, **SETTINGS)
    np.testing.assert_array_equal(along, searched)

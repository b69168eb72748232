"""Fits of least risk that are repeated with other noise, by the steps of the first."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.numerics.graphical_models import retraced_fits
from consilience.numerics.graphical_models.junction_trees import junction_tree
from consilience.numerics.graphical_models.oracle import MarginalOracle
from consilience.numerics.graphical_models.retraced_fits import (
    Way,
    fewer_steps,
    fit_along,
    fit_with_effort,
    rehearse,
)
from consilience.numerics.graphical_models.rows import MeasuredQuery, MeasuredRows

SIZES = (4, 5, 6, 4)
SCOPES = ((0, 1, 2), (1, 2, 3))
EFFORT = 20.0
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
    return rehearse(problem.oracle, problem.rows, problem.exact, start=problem.start, effort=EFFORT, **SETTINGS)


def test_a_way_is_as_long_as_asked_for(way: Way) -> None:
    assert sum(way.lengths) == pytest.approx(EFFORT, rel=1e-12)
    assert len(way.lengths) > 5


@pytest.mark.parametrize("seed", range(5))
def test_the_steps_of_another_noise_lead_to_where_a_search_leads(problem: Problem, way: Way, seed: int) -> None:
    observed = problem.noisy(seed)
    searched = fit_with_effort(
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
                problem.oracle, problem.rows, problem.noisy(1), start=problem.start, effort=EFFORT, **SETTINGS
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
    searched = fit_with_effort(
        problem.oracle, problem.rows, observed, start=problem.start, effort=sum(wild.lengths), **SETTINGS
    )
    along = fit_along(problem.oracle, problem.rows, observed, start=problem.start, way=wild, **SETTINGS)
    np.testing.assert_array_equal(along, searched)


def test_a_way_has_fewer_steps_than_the_search_and_they_go_as_far(problem: Problem, way: Way) -> None:
    search, lengths = retraced_fits._search(problem.oracle, problem.rows, problem.exact, problem.start, EFFORT, 400)
    assert len(way.lengths) < len(lengths)
    assert fewer_steps(lengths) == way.lengths
    np.testing.assert_allclose(way.curvature, 0.04)
    observed, at_start = problem.exact, problem.oracle.marginals(problem.start).values
    average, _ = retraced_fits._walk(problem.oracle, problem.rows, observed, problem.start, at_start, way)  # type: ignore[misc]
    apart, went = average - search.marginals, search.marginals - at_start
    assert np.linalg.norm(apart) < 0.01 * np.linalg.norm(went)


@pytest.mark.parametrize("fewer", [0.1, 0.3])
def test_too_few_steps_are_not_taken(problem: Problem, fewer: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retraced_fits, "FEWER", fewer)
    way = rehearse(problem.oracle, problem.rows, problem.exact, start=problem.start, effort=EFFORT, **SETTINGS)
    _, lengths = retraced_fits._search(problem.oracle, problem.rows, problem.exact, problem.start, EFFORT, 400)
    assert way.lengths == lengths
    assert not way.curvature.any()


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60))
def test_fewer_steps_go_as_far_and_all_forward(lengths: list[float]) -> None:
    found = fewer_steps(tuple(lengths))
    assert sum(found) == pytest.approx(sum(lengths), rel=1e-9)
    assert min(found) > 0
    assert len(found) <= len(lengths)


def test_a_way_of_no_step_stays_at_the_start(problem: Problem) -> None:
    nowhere = Way((), np.zeros_like(problem.start), np.zeros_like(problem.start))
    along = fit_along(problem.oracle, problem.rows, problem.noisy(0), start=problem.start, way=nowhere, **SETTINGS)
    np.testing.assert_array_equal(along, problem.start)


def test_marginals_of_the_start_may_be_given(problem: Problem, way: Way) -> None:
    first = problem.oracle.marginals(problem.start).values
    settings = {"start": problem.start, "way": way, **SETTINGS}
    found = fit_along(problem.oracle, problem.rows, problem.noisy(0), **settings)
    given = fit_along(problem.oracle, problem.rows, problem.noisy(0), first=first, **settings)
    np.testing.assert_array_equal(found, given)

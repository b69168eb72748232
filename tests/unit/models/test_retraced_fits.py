"""Fits of least risk that are repeated with other noise, by the steps of the first."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.models.fitting import retraced_fits
from consilience.models.fitting.objective import MeasuredQuery, MeasuredRows
from consilience.models.fitting.retraced_fits import RetracedFit, Way, fewer_steps
from consilience.models.junction_trees import junction_tree
from consilience.models.oracle import MarginalOracle

SIZES = (4, 5, 6, 4)
SCOPES = ((0, 1, 2), (1, 2, 3))
EFFORT = 20.0


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

    def fit(self, observed: np.ndarray) -> RetracedFit:
        return RetracedFit(self.oracle, self.rows, observed, self.start, noise=60.0, max_steps=400)

    @property
    def without_noise(self) -> RetracedFit:
        return self.fit(self.exact)

    def noisy(self, seed: int) -> RetracedFit:
        return self.fit(self.exact + np.random.default_rng(seed).normal(size=self.exact.size))

    def fitted(self, potentials: np.ndarray) -> np.ndarray:
        return self.rows.apply(self.oracle.marginals(potentials).values)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem()


@pytest.fixture(scope="module")
def way(problem: Problem) -> Way:
    return problem.without_noise.rehearse(EFFORT)


def test_a_way_is_as_long_as_asked_for(way: Way) -> None:
    assert sum(way.lengths) == pytest.approx(EFFORT, rel=1e-12)
    assert len(way.lengths) > 5


@pytest.mark.parametrize("seed", range(5))
def test_the_steps_of_another_noise_lead_to_where_a_search_leads(problem: Problem, way: Way, seed: int) -> None:
    noisy = problem.noisy(seed)
    along = problem.fitted(noisy.along(way))
    apart = along - problem.fitted(noisy.searched(EFFORT))
    moved = along - problem.fitted(problem.without_noise.along(way))
    assert np.linalg.norm(apart) < 0.25 * np.linalg.norm(moved)


def test_fewer_calls_than_a_search(problem: Problem, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, marginals = {"along": 0, "searched": 0}, MarginalOracle.marginals
    noisy = problem.noisy(1)
    for name, fit in (("along", lambda: noisy.along(way)), ("searched", lambda: noisy.searched(EFFORT))):

        def count(oracle: MarginalOracle, potentials: np.ndarray, name: str = name):
            counted[name] += 1
            return marginals(oracle, potentials)

        monkeypatch.setattr(MarginalOracle, "marginals", count)
        fit()
    assert counted["along"] < counted["searched"]


def test_steps_that_are_too_long_are_sought_again(problem: Problem, way: Way) -> None:
    """A sixth as many steps of six times the length overshoot: the search takes over and finds its own lengths."""
    together = np.add.reduceat(np.array(way.lengths), np.arange(0, len(way.lengths), 6))
    wild = replace(way, lengths=tuple(together.tolist()))
    noisy = problem.noisy(2)
    np.testing.assert_array_equal(noisy.along(wild), noisy.searched(sum(wild.lengths)))


def test_a_way_has_fewer_steps_than_the_search_and_they_go_as_far(problem: Problem, way: Way) -> None:
    fit, at_start = problem.without_noise, problem.oracle.marginals(problem.start).values
    search, lengths = fit._search(EFFORT)
    assert len(way.lengths) < len(lengths)
    assert fewer_steps(lengths) == way.lengths
    np.testing.assert_allclose(way.curvature, 0.04)
    walked = fit._walk(way, at_start)
    assert walked is not None
    apart, went = walked[0] - search.marginals, search.marginals - at_start
    assert np.linalg.norm(apart) < 0.01 * np.linalg.norm(went)


@pytest.mark.parametrize("fewer", [0.1, 0.3])
def test_too_few_steps_are_not_taken(problem: Problem, fewer: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retraced_fits, "RETRACED", retraced_fits.WaySettings(fewer=fewer))
    way = problem.without_noise.rehearse(EFFORT)
    assert way.lengths == problem.without_noise._search(EFFORT)[1]
    assert not way.curvature.any()


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60))
def test_fewer_steps_go_as_far_and_all_forward(lengths: list[float]) -> None:
    found = fewer_steps(tuple(lengths))
    assert sum(found) == pytest.approx(sum(lengths), rel=1e-9)
    assert min(found) > 0
    assert len(found) <= len(lengths)


def test_a_way_of_no_step_stays_at_the_start(problem: Problem) -> None:
    nowhere = Way((), np.zeros_like(problem.start), np.zeros_like(problem.start))
    np.testing.assert_array_equal(problem.noisy(0).along(nowhere), problem.start)


def test_marginals_of_the_start_may_be_given(problem: Problem, way: Way) -> None:
    first = problem.oracle.marginals(problem.start).values
    np.testing.assert_array_equal(problem.noisy(0).along(way), problem.noisy(0).along(way, first))

"""Models with given marginals, from starts near and far, against marginals of known models and of mixtures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.models.fitting.least_risk import FAR, _Matching, match_marginals
from consilience.models.fitting.objective import MeasuredQuery, MeasuredRows
from consilience.models.junction_trees import junction_tree
from consilience.models.oracle import MarginalOracle

SIZES = (3, 4, 5, 4)
SCOPES = ((0, 1, 2), (1, 2, 3))


def oracle_of(total: float) -> MarginalOracle:
    return MarginalOracle(junction_tree(SIZES, SCOPES), SCOPES, total=total)


def whole(oracle: MarginalOracle, weight: float = 1.0) -> MeasuredRows:
    cells = [int(np.prod([SIZES[axis] for axis in axes])) for axes in oracle.layout.axes]
    queries = [
        MeasuredQuery(k, axes, np.full(size, weight))
        for k, (axes, size) in enumerate(zip(oracle.layout.axes, cells, strict=True))
    ]
    return MeasuredRows(oracle.layout, queries)


def mixture(oracle: MarginalOracle, seed: int, strength: float = 1.0) -> np.ndarray:
    """Marginals of a distribution that is no model of these scopes itself."""
    rng = np.random.default_rng(seed)
    return np.mean(
        [oracle.marginals(strength * rng.normal(size=oracle.layout.size)).values.copy() for _ in range(2)], axis=0
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.3, 1.0, 2.0]), st.sampled_from([5.0, 100.0, 1e6]))
def test_marginals_of_a_mixture_of_models_are_matched_by_one_model(seed: int, strength: float, total: float) -> None:
    oracle = oracle_of(total)
    target = mixture(oracle, seed, strength)
    start = np.zeros(oracle.layout.size)
    potentials, calls = match_marginals(oracle, whole(oracle), target, start=start, enough=1e-10 * total**2)
    missing = oracle.marginals(potentials).values - target
    assert missing @ missing <= 1e-10 * total**2
    assert 0 < calls <= 200


def test_from_a_start_that_is_near_a_few_steps_along_the_gradient_do() -> None:
    oracle = oracle_of(1000.0)
    near = np.random.default_rng(3).normal(size=oracle.layout.size)
    target = oracle.marginals(near + 0.05 * np.random.default_rng(4).normal(size=near.size)).values.copy()
    first = oracle.marginals(near).values - target
    potentials, calls = match_marginals(oracle, whole(oracle), target, start=near, enough=0.05 * float(first @ first))
    missing = oracle.marginals(potentials).values - target
    assert missing @ missing <= 0.05 * (first @ first)
    assert calls <= 5


def test_a_short_step_down_the_gradient_leads_downhill() -> None:
    oracle, short = oracle_of(100.0), 0
    for seed in range(60):
        target = mixture(oracle, seed, 0.5)
        search = _Matching(oracle, whole(oracle), target, np.zeros(oracle.layout.size))
        before, move = search.value, search.step * search.gradient
        if np.abs(move).max() <= FAR:
            short += 1
            assert search.try_out(-move)[0] < before
    assert short > 10


def test_marginals_that_match_from_the_start_are_left_as_they_are() -> None:
    """There the gradient is zero, by which a minimiser divides; with large potentials a cell or two has everything."""
    oracle = oracle_of(8.0)
    start = 400.0 * np.random.default_rng(4).normal(size=oracle.layout.size)
    rows, target = whole(oracle, 0.1), oracle.marginals(start).values.copy()
    assert (target > 0).sum() < target.size
    potentials, calls = match_marginals(oracle, rows, target, start=start, enough=0.05)
    np.testing.assert_array_equal(potentials, start)
    assert calls == 1


@pytest.mark.parametrize("most", [1, 2, 5])
def test_calls_are_limited_and_the_nearest_try_is_returned(most: int) -> None:
    oracle = oracle_of(100.0)
    target, start = mixture(oracle, 7, 2.0), np.zeros(oracle.layout.size)
    potentials, calls = match_marginals(oracle, whole(oracle), target, start=start, enough=0.0, max_calls=most)
    assert calls <= most + 20  # a line search that has begun is finished
    first, found = (oracle.marginals(each).values - target for each in (start, potentials))
    assert found @ found <= first @ first

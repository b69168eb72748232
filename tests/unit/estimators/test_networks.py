"""Conditional tables and what is drawn from them, against the full product."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.estimators.published.bayesian_network import Conditional, Network, conditional_of_counts
from consilience.kernels.rng import generator
from consilience.models.elimination import CalibratedModel


@given(st.lists(st.floats(-1e6, 1e6), min_size=12, max_size=12), st.integers(0, 2**12 - 1))
def test_rows_sum_to_one_and_forbidden_cells_stay_empty(values: list[float], mask: int) -> None:
    allowed = np.array([(mask >> i) & 1 for i in range(12)], dtype=np.bool_).reshape(2, 2, 3)
    shares = conditional_of_counts(np.array(values).reshape(2, 2, 3), [4, 7], [1], allowed).shares
    assert shares.min() >= 0
    assert shares.sum(axis=2) == pytest.approx(np.ones((2, 2)))
    possible_rows = allowed.any(axis=2)
    assert not shares[possible_rows][~allowed[possible_rows]].any()


def test_rows_without_counts_are_like_the_others_and_the_rest_is_even() -> None:
    found = conditional_of_counts(np.array([[6.0, 2.0], [-1.0, 0.0], [1.0, 3.0]]), [0], [1])
    assert found.shares == pytest.approx(np.array([[0.75, 0.25], [7 / 12, 5 / 12], [0.25, 0.75]]))
    assert conditional_of_counts(np.array([-1.0, -2.0]), [], [0]).shares.tolist() == [0.5, 0.5]
    tiny = conditional_of_counts(np.array([5e-324, 0.0]), [], [0]).shares
    assert tiny.tolist() == [1.0, 0.0]


def network() -> tuple[Network, np.ndarray]:
    rng = np.random.default_rng(3)
    first = rng.dirichlet(np.ones(6)).reshape(2, 3)
    second = rng.dirichlet(np.ones(4), (3, 2))
    second[1, 0] = [0.0, 1.0, 0.0, 0.0]
    tables = (Conditional((), (1, 0), first), Conditional((0, 1), (2,), second))
    joint = np.einsum("ba,abc->abc", first, second)
    return Network((3, 2, 4, 5), tables), np.repeat(joint[..., None] / 5, 5, axis=3)


def test_marginals_are_those_of_the_product() -> None:
    made, joint = network()
    model = CalibratedModel(made.model(50.0))
    assert model.marginal([2, 0]) == pytest.approx(50 * joint.sum(axis=(1, 3)).T)
    assert model.marginal([3, 1]) == pytest.approx(50 * joint.sum(axis=(0, 2)).T)


def test_drawn_records_follow_the_product() -> None:
    made, joint = network()
    rows = made.sample(200_000, generator(0))
    counts = np.zeros(joint.shape)
    np.add.at(counts, tuple(rows.T), 1)
    deviation = (counts - 200_000 * joint) / np.sqrt(np.maximum(200_000 * joint, 1.0))
    assert np.abs(deviation).max() < 5
    assert not counts[joint == 0].any()
    assert np.array_equal(rows[:100], made.sample(200_000, generator(0))[:100])
    assert made.sample(0, generator(0)).shape == (0, 4)

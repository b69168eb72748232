"""What must hold of ADMM whatever the numbers: units, certificates, equal sets in other clothes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from consilience.solvers.admm.fit import admm
from consilience.solvers.admm.problem import Normal, lower_bound, plain_setting
from consilience.solvers.fit import Loss, Status
from consilience.solvers.projections.affine import Affine
from consilience.solvers.projections.cells import Isotonic, NonNegative, Simplex
from consilience.solvers.projections.sums import MarginalsEqual, TreeConsistency

LOSSES = st.sampled_from(["l1", "l2", "elastic"])
SEEDS = st.integers(0, 2**32)
slowly = settings(max_examples=25, deadline=None)


def random_tree(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.array([-1, *(int(rng.integers(0, node)) for node in range(1, size))])


def summed_up(parent: np.ndarray, leaves: np.ndarray) -> np.ndarray:
    """The consistent counts with these values at the leaves."""
    counts = np.where(np.isin(np.arange(parent.size), parent), 0.0, leaves)
    for node in range(parent.size - 1, 0, -1):
        counts[parent[node]] += counts[node]
    return counts


@slowly
@given(seed=SEEDS, loss=LOSSES, factor=st.floats(1e-6, 1e6))
def test_counts_scale_with_the_noisy_values_and_against_the_weights(seed: int, loss: str, factor: float) -> None:
    rng = np.random.default_rng(seed)
    parent = random_tree(rng, 12)
    noisy, weights = rng.normal(4, 8, 12), rng.uniform(0.1, 3, 12)
    sets = [TreeConsistency(parent), NonNegative()]
    plain = admm(noisy, sets, loss=loss, weights=weights)
    scaled = admm(factor * noisy, sets, loss=loss, weights=weights / factor)
    assert plain.status is scaled.status is Status.CONVERGED
    assert scaled.objective == pytest.approx(plain.objective, rel=1e-5, abs=1e-9)
    if loss != "l1":
        assert_allclose(scaled.counts / factor, plain.counts, atol=2e-2 * np.abs(noisy - plain.counts).max())


@slowly
@given(seed=SEEDS, factor=st.floats(1e-4, 1e4))
def test_a_strategy_scales_likewise(seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    strategy, noisy = rng.normal(size=(9, 4)), rng.normal(0, 9, 9)
    plain = admm(noisy, NonNegative(), strategy=strategy)
    scaled = admm(factor * noisy, NonNegative(), strategy=strategy, weights=1 / factor)
    rescaled = admm(noisy, NonNegative(), strategy=factor * strategy)
    assert scaled.objective == pytest.approx(plain.objective, rel=1e-5)
    assert rescaled.objective == pytest.approx(plain.objective, rel=1e-5)
    assert_allclose(scaled.counts / factor, plain.counts, atol=1e-2 * (1 + np.abs(plain.counts).max()))
    assert_allclose(rescaled.counts * factor, plain.counts, atol=1e-2 * (1 + np.abs(plain.counts).max()))


@slowly
@given(seed=SEEDS, loss=LOSSES, steps=st.integers(1, 60), unmeasured=st.booleans())
def test_no_consistent_counts_have_less_loss_than_the_certificate_allows(
    seed: int, loss: str, steps: int, unmeasured: bool
) -> None:
    rng = np.random.default_rng(seed)
    parent = random_tree(rng, 10)
    truth = summed_up(parent, rng.poisson(3, 10).astype(float))
    noisy = truth + rng.laplace(0, 4, 10)
    weights = rng.uniform(0.2, 2, 10) * (rng.random(10) < (0.7 if unmeasured else 1.0))
    for preset in [None, "paper"]:
        fit = admm(
            noisy, [TreeConsistency(parent), NonNegative()], loss=loss, weights=weights, max_steps=steps, preset=preset
        )
        for _ in range(20):
            other = summed_up(parent, np.maximum(truth + rng.normal(0, 2, 10), 0))
            value = Loss.named(loss).value(other, noisy, weights)
            assert fit.objective - fit.gap <= value + 1e-9 * (1 + value)


@slowly
@given(seed=SEEDS, loss=LOSSES, strength=st.floats(0.01, 100))
def test_normals_from_anywhere_bound_the_loss_from_below(seed: int, loss: str, strength: float) -> None:
    rng = np.random.default_rng(seed)
    parent = random_tree(rng, 10)
    truth = summed_up(parent, rng.poisson(3, 10).astype(float))
    noisy, weights = truth + rng.laplace(0, 4, 10), rng.uniform(0.2, 2, 10)
    sets = [TreeConsistency(parent), Simplex(truth.sum())]
    problem = plain_setting(noisy, weights, Loss.named(loss), sets).problem
    normals = []
    for each in sets:
        aim = rng.normal(0, 10, 10)
        found = each.project(aim)
        normals.append(Normal(each, strength * (aim - found), float(strength * np.dot(aim - found, found))))
    bound = lower_bound(problem, normals, np.zeros(10))
    assert bound <= problem.value(truth) + 1e-9
    least = admm(noisy, sets, loss=loss, weights=weights)
    assert bound <= least.objective + 1e-6 * (1 + least.objective)


@slowly
@given(seed=SEEDS, loss=LOSSES)
def test_a_set_and_its_equations_give_the_same_loss(seed: int, loss: str) -> None:
    rng = np.random.default_rng(seed)
    table = rng.poisson(3, (3, 4)).astype(float)
    noisy = table + rng.laplace(0, 3, (3, 4))
    rows = [np.kron(np.eye(3)[i], np.ones(4)) for i in range(3)] + [np.kron(np.ones(3), np.eye(4)[j]) for j in range(4)]
    by_marginals = admm(noisy, [MarginalsEqual((3, 4), {0: table.sum(1), 1: table.sum(0)}), NonNegative()], loss=loss)
    by_equations = admm(noisy, [NonNegative(), Affine(np.array(rows), np.array(rows) @ table.ravel())], loss=loss)
    assert by_marginals.objective == pytest.approx(by_equations.objective, rel=1e-5, abs=1e-8)


@slowly
@given(seed=SEEDS, loss=LOSSES)
def test_a_simplex_equals_the_orthant_with_a_total(seed: int, loss: str) -> None:
    rng = np.random.default_rng(seed)
    noisy = rng.normal(2, 5, 7)
    whole = admm(noisy, Simplex(9.0), loss=loss)
    parts = admm(noisy, [Affine(np.ones((1, 7)), [9.0]), NonNegative()], loss=loss)
    assert whole.objective == pytest.approx(parts.objective, rel=1e-5)


@slowly
@given(seed=SEEDS)
def test_least_squares_under_one_set_is_its_projection(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noisy = rng.normal(2, 5, 8)
    for each in [Isotonic(), Simplex(3.0), TreeConsistency(random_tree(rng, 8))]:
        assert_allclose(admm(noisy, each, loss="l2", tolerance=1e-10).counts, each.project(noisy), atol=1e-5)


@slowly
@given(seed=SEEDS, loss=LOSSES)
def test_another_constraint_never_lowers_the_loss(seed: int, loss: str) -> None:
    rng = np.random.default_rng(seed)
    noisy = rng.normal(3, 5, 7)
    fewer = admm(noisy, [TreeConsistency(2)], loss=loss)
    more = admm(noisy, [TreeConsistency(2), NonNegative()], loss=loss)
    most = admm(noisy, [TreeConsistency(2), NonNegative(), Isotonic([[3, 4], [5, 6]])], loss=loss)
    slack = 1e-5 * (1 + most.objective)
    assert fewer.objective <= more.objective + slack <= most.objective + 2 * slack

"""Marginals outside the tables, synthetic records along a tree, and the level-by-level fit."""

import itertools

import numpy as np
import pytest

from consilience.kernels.linear_maps import IdentityMap
from consilience.kernels.rng import generator
from consilience.marginals.decomposition import Decomposition
from consilience.marginals.least_squares import NoisyTable, fit_residuals
from consilience.marginals.level_fits import LocalProblem, firm_weights, fit_locally
from consilience.marginals.local_marginals import LocalMarginals, decode_scopes, encode_scopes, mutual_information
from consilience.marginals.table_stacks import EmptyCells, TableStack, stored_order, summed

SIZES = (3, 2, 4, 2, 3)


def chain_table() -> np.ndarray:
    """A joint table in which each of the first four attributes depends on the one before alone."""
    rng = np.random.default_rng(0)
    first = rng.dirichlet(np.ones(3))
    steps = [rng.dirichlet(np.full(b, 0.4), a) for a, b in itertools.pairwise(SIZES[:4])]
    return 1000 * np.einsum("a,ab,bc,cd->abcd", first, *steps)


TABLE = chain_table()


def local(scopes) -> LocalMarginals:
    stack = TableStack(SIZES, [stored_order(SIZES, scope) for scope in scopes])
    flat = np.empty(stack.size)
    for scope in stack.scopes:
        stack.table(flat, scope)[...] = summed(TABLE, (0, 1, 2, 3), scope)
    return LocalMarginals(stack, flat, 1000.0)


def test_parts_of_tables_are_summed_and_others_have_greatest_entropy() -> None:
    tables = local([(0, 1), (1, 2), (2, 3)])
    assert np.allclose(tables.marginal((1, 0)).tables, TABLE.sum((2, 3)).T)
    assert np.allclose(tables.marginal(()).tables, 1000.0)
    assert np.allclose(tables.marginal((3, 1, 0, 2)).tables, TABLE.transpose(3, 1, 0, 2), atol=1e-6)
    alone = np.outer(TABLE.sum((1, 2, 3)), TABLE.sum((0, 1, 2))) / 1000
    assert np.allclose(tables.marginal((0, 3)).tables, alone)
    even = tables.marginal((4, 1)).tables
    assert np.allclose(even, TABLE.sum((0, 2, 3))[None, :] / 3)


def test_records_follow_the_strongest_pairs() -> None:
    tables = local([(0, 1), (1, 2), (2, 3), (0, 3)])
    rows = tables.sample(6000, generator(1), attributes=5)
    assert rows.shape == (6000, 5)
    for one, two in ((0, 1), (1, 2), (2, 3)):
        counts = np.zeros((SIZES[one], SIZES[two]))
        np.add.at(counts, (rows[:, one], rows[:, two]), 1)
        expected = 6 * tables.marginal((one, two)).tables
        assert np.abs(counts - expected).max() < 20
    assert np.array_equal(rows, tables.sample(6000, generator(1), attributes=5))


def test_mutual_information_is_zero_only_for_independence() -> None:
    assert mutual_information(np.outer([1.0, 3.0], [2.0, 5.0])) == pytest.approx(0.0, abs=1e-12)
    assert mutual_information(np.eye(2)) == pytest.approx(np.log(2))
    assert mutual_information(np.zeros((2, 2))) == 0.0


def test_scopes_survive_their_encoding() -> None:
    for scopes in ([(0, 1), (2,)], [()], [(3, 1, 2)]):
        assert decode_scopes(encode_scopes(scopes)) == scopes


def test_empty_cells_reach_every_table_that_shares_their_attributes() -> None:
    cells = EmptyCells()
    cells.add((0, 1), np.array([[True, True], [False, True], [False, False]]))
    both = cells.of((1, 0))
    assert both is not None
    assert both.tolist() == [[True, False, False], [True, True, False]]
    one = cells.of((2, 0))
    assert one is not None
    assert np.broadcast_to(one, (4, 3))[0].tolist() == [True, False, False]
    assert cells.of((2, 3)) is None
    assert cells.of((1,)) is None


def noisy_problem(scopes, sigma: float, seed: int) -> tuple[LocalProblem, np.ndarray]:
    rng = np.random.default_rng(seed)
    decomposition = Decomposition(SIZES, scopes)
    truth = np.empty(decomposition.tables.size)
    noisy = []
    for scope in decomposition.tables.scopes:
        exact = summed(TABLE, (0, 1, 2, 3), scope)
        decomposition.tables.table(truth, scope)[...] = exact
        maps = tuple(IdentityMap(SIZES[a]) for a in scope)
        noisy.append(
            NoisyTable(scope, maps, exact.ravel() + rng.normal(0, sigma, exact.size), np.full(exact.size, sigma**-2))
        )
    fitted = fit_residuals(decomposition, noisy, {})
    return LocalProblem(decomposition, fitted.residuals, fitted.precisions), truth


@pytest.mark.parametrize("use_prior", [True, False])
def test_the_fit_is_consistent_not_negative_and_closer_than_least_squares(use_prior: bool) -> None:
    raw = near = 0.0
    for seed in range(5):
        problem, truth = noisy_problem([(0, 1, 2), (1, 2, 3), (0, 3)], 25.0, seed)
        fit = fit_locally(problem, use_prior=use_prior)
        assert fit.marginals.min() >= 0
        assert fit.violation <= 1e-6
        stack = problem.decomposition.tables
        for one, other in itertools.combinations(stack.scopes, 2):
            shared = tuple(a for a in one if a in other)
            left, right = (
                summed(stack.table(fit.marginals, one), one, shared),
                summed(stack.table(fit.marginals, other), other, shared),
            )
            assert np.allclose(left, right, atol=1e-3)
        raw += float(np.abs(problem.decomposition.marginals(problem.residuals) - truth).sum())
        near += float(np.abs(fit.marginals - truth).sum())
    assert near < 0.9 * raw


def test_weights_are_firmer_for_fewer_attributes() -> None:
    weights = firm_weights({(): 4.0, (0,): 2.0, (1,): 0.0, (0, 1): 1.0})
    assert weights[()] == np.inf
    assert weights[(0,)] == 60.0
    assert weights[(0, 1)] == 1.0
    assert 0 < weights[(1,)] < 2.0

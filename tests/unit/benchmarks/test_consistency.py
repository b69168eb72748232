"""The benchmark of consistency: its problems are what they say, and its rows judge peers by what they did."""

import itertools

import numpy as np
import pytest

from benchmarks.peers import scipy_linprog
from benchmarks.speed import matrices, tables, trees
from benchmarks.speed.timing import Own, Peer, best_time, peer_row
from consilience.solvers.trees.fit import fit_tree

OWN = Own("a problem", 1e-9, 2.0, 0.0)


def peer(answer, *, module="numpy", target=10.0):
    return Peer("a peer", module, lambda: lambda: sum(range(10_000)) and answer, target)


def test_a_peer_is_judged_by_its_time_and_its_feasible_answer():
    row = peer_row(OWN, peer(np.array([3.0])), lambda counts: float(counts.sum()))
    assert row["ratio"] == pytest.approx(row["seconds"] / 1e-9)
    assert row["excess"] == pytest.approx(0.5)
    assert (row["target"], row["met"]) == (">= 10x", "yes")


def test_a_slow_target_is_not_met_and_a_time_limit_leaves_it_open():
    assert peer_row(OWN, peer(np.zeros(1), target=1e12), np.sum)["met"] == "no"
    row = peer_row(OWN, peer(None, target=1e12), np.sum)
    assert row["met"] == "unknown"
    assert "lower bound" in row["note"]
    assert "excess" not in row
    assert "met" not in peer_row(OWN, peer(np.zeros(1)), np.sum, judge=False)


def test_a_peer_that_is_not_installed_is_said_to_be_so():
    row = peer_row(OWN, peer(None, module="no_such_module"), np.sum)
    assert row == {"problem": "a problem", "solver": "a peer", "seconds": "not installed"}


def test_the_best_of_several_runs_is_taken():
    times = iter([0.0, 5.0, 10.0, 12.0, 20.0, 23.0])
    assert best_time(lambda: "result", patience=0.0, least=3, clock=lambda: next(times)) == (2.0, "result")


def test_both_forms_of_the_linear_program_find_our_optimum():
    noisy, weights = trees.noisy_tree(5), trees.weights_of(5)
    best = fit_tree(noisy, 2, loss="l1", weights=weights).objective
    for form in (scipy_linprog.least_absolute, scipy_linprog.least_absolute_as_flow):
        found = form(trees.sums(len(noisy)), noisy, weights, time_limit=60.0)()
        assert found is not None
        np.testing.assert_allclose(trees.made_consistent(found), found, atol=1e-9)
        assert float(weights @ np.abs(found - noisy)) == pytest.approx(best)


@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 2, 4)])
def test_independent_equations_know_what_all_pairs_know(shape):
    equations = tables.independent_equations(shape).toarray()
    cells = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    pairs = itertools.combinations(range(3), 2)
    sums = [cells.sum(axis=next(i + 1 for i in range(3) if i not in pair)).reshape(len(cells), -1) for pair in pairs]
    known = np.hstack(sums).T
    assert np.linalg.matrix_rank(equations) == len(equations) == np.linalg.matrix_rank(known)
    assert np.linalg.matrix_rank(np.vstack([equations, known])) == len(equations)


def test_wavelets_are_orthogonal_and_hierarchies_add_up():
    wavelets, sums = matrices.haar(8).toarray(), matrices.hierarchy(8).toarray()
    gram = wavelets @ wavelets.T
    np.testing.assert_array_equal(gram, np.diag(np.diag(gram)))
    np.testing.assert_array_equal(sums[0], np.ones(8))
    np.testing.assert_array_equal(sums[1:3].sum(axis=0), sums[0])
    np.testing.assert_array_equal(sums[-8:], np.eye(8))

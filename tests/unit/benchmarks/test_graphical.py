"""The benchmark of graphical models: curves are read as they should be, rows judge, and mbi says the same as we do."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.peers import mbi_models
from benchmarks.problems.noisy_marginals import NoisyMarginals, star
from benchmarks.speed.graphical import is_installed, judge, largest_difference, seconds_until
from consilience.models.junction_trees import junction_tree
from consilience.models.oracle import MarginalOracle

SIZES = (3, 2, 4, 2, 3)
SCOPES = {
    "tree": [(0, 1), (1, 2), (2, 3), (2, 4)],
    "cycle": [(0, 1), (1, 2), (2, 3), (0, 3)],
    "triples": list(itertools.combinations(range(5), 3))[::2],
    "two parts": [(0, 1), (2, 3)],
    "one attribute": [(2,)],
    "other order": [(2, 0), (1, 2, 3)],
}


def problem_on(scopes) -> NoisyMarginals:
    tables = tuple(np.full([SIZES[attribute] for attribute in scope], 1.0) for scope in scopes)
    return NoisyMarginals("small", SIZES, tuple(scopes), tables, tables, "gaussian", 1.0, 1000.0)


needs_mbi = pytest.mark.skipif(not is_installed(), reason="mbi is not installed")


@needs_mbi
@pytest.mark.parametrize("name", SCOPES)
def test_marginals_equal_those_of_mbi_at_the_same_potentials(name):
    problem, rng = problem_on(SCOPES[name]), np.random.default_rng(0)
    for spread in (0.1, 3.0):
        potentials = [rng.normal(0.0, spread, table.shape) for table in problem.noisy]
        theirs = mbi_models.tables_of(problem, mbi_models.compiled_oracle(problem, potentials)())
        tree = junction_tree(problem.sizes, problem.scopes)
        oracle = MarginalOracle(tree, problem.scopes, total=problem.total)
        ours = oracle.layout.unpack(oracle.marginals(oracle.layout.pack(potentials)).values)
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one / problem.total, other / problem.total, atol=1e-9)


@needs_mbi
@pytest.mark.slow
def test_the_loss_of_mbi_falls_over_time_until_it_is_enough():
    problem = star(3, rows=500)
    curve = mbi_models.loss_curve(problem, "InteriorGradient", time_limit=60.0, most_steps=200)
    seconds, losses = zip(*curve, strict=True)
    assert len(curve) == 4
    assert sorted(seconds) == list(seconds)
    assert losses[-1] < losses[0]
    shorter = mbi_models.loss_curve(problem, "InteriorGradient", enough=losses[0] * 1.01, time_limit=60.0)
    assert len(shorter) == 1
    assert shorter[0][1] == pytest.approx(losses[0])


def test_a_curve_is_read_at_the_level_asked_for():
    curve = [(2.0, 100.0), (4.0, 10.0), (6.0, 9.0)]
    assert seconds_until(curve, 200.0) == 2.0
    assert seconds_until(curve, 10.0) == pytest.approx(4.0)
    assert 4.0 < seconds_until(curve, 9.5) < 6.0
    assert seconds_until(curve, 9.5, between=False) == 6.0
    assert math.isinf(seconds_until(curve, 8.0))
    assert seconds_until([(1.0, 4.0), (3.0, 0.0)], 0.5) == 3.0


def test_a_ratio_is_judged_by_its_target():
    assert judge(2.0, 30.0, 10.0) == {"mbi": 30.0, "ratio": 15.0, "target": ">= 10x", "met": "yes"}
    assert judge(2.0, 6.0, 10.0)["met"] == "no"
    assert "met" not in judge(2.0, 6.0, None)


def test_the_largest_difference_of_two_files_is_found(tmp_path):
    one, other = tmp_path / "one.npz", tmp_path / "other.npz"
    np.savez(one, np.zeros((2, 2)), np.ones(3))
    np.savez(other, np.zeros((2, 2)), np.array([1.0, 1.5, 1.0]))
    assert largest_difference(one, other) == 0.5

"""`Tree`: every laminar measurement set, fitted as a general solver would, and refused with a reason otherwise."""

import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.errors import ConsilienceError, DeclarationError, MeasurementError, TooLarge
from consilience.estimators.base import SavedModel
from consilience.estimators.choose import choose, estimate, restore
from consilience.estimators.evidence import LAPLACE_ALPHA
from consilience.estimators.tree import BLOCK, Tree, _nested_layers, _Problem
from consilience.measurements import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    Gaussian,
    Laplace,
    Measurement,
    MeasurementSet,
    PrivacyStatement,
)
from consilience.publication.intervals.refits import estimator_of
from consilience.solvers.fit import Infeasible, Status
from consilience.solvers.trees.laminar import crossing_sets

STATES = Attribute.hierarchy("county", {"A1": "A", "A2": "A", "B1": "B", "B2": "B", "B3": "B", "A": "all", "B": "all"})
PLACES = Domain("places", (STATES, Attribute.categorical("sex", ["F", "M"])))
LINE = Domain("line", (Attribute.numeric("x", list(range(9))), Attribute.categorical("sex", ["F", "M"])))


def tree(level=None, branching: int | None = 2) -> factors.Tree:
    return factors.Tree(branching, level)


LABELS = LINE["x"].labels
BY_SEX = {"sex": factors.Identity(), "x": factors.Identity()}
ENDS = factors.Buckets.of({"low": LABELS[:3], "high": LABELS[5:]})
WOMEN = {"sex": factors.Value("F")}

CASES = {
    "one query with all levels": (LINE, [({"x": tree()}, 2.0)]),
    "one query for each level": (LINE, [({"x": tree(level)}, 1.0 + level) for level in range(4)]),
    "a hierarchy": (PLACES, [({"county": tree(branching=None)}, 2.0), ({"county": factors.Identity()}, 1.0)]),
    "a hierarchy by sex": (PLACES, [({"county": tree(branching=None), "sex": factors.Identity()}, 2.0), ({}, 1.0)]),
    "identity and total": (LINE, [({"x": factors.Identity()}, 2.0), ({"sex": factors.Total()}, 0.5)]),
    "nested margins": (LINE, [({}, 1.0), ({"x": factors.Identity()}, 3.0), (BY_SEX, 2.0)]),
    "buckets": (
        LINE,
        [({"x": ENDS}, 2.0), ({"x": tree(3)}, 1.0)],
    ),
    "repeated": (LINE, [({"x": tree(2)}, 2.0), ({"x": tree(2)}, 1.0), ({"x": tree(2)}, 5.0)]),
    "binary and quaternary": (LINE, [({"x": tree()}, 2.0), ({"x": tree(branching=4)}, 3.0)]),
    "prefixes": (LINE, [({"x": factors.Prefix()}, 2.0), ({"x": factors.Identity()}, 4.0)]),
    "a part of the table": (LINE, [({"x": tree(1)} | WOMEN, 2.0), (WOMEN, 1.0)]),
}


def measured(name: str, *, seed: int = 0, law=Laplace, factor: float = 1.0) -> MeasurementSet:
    domain, queries = CASES[name]
    rng = np.random.default_rng(seed)
    truth = rng.poisson(3, domain.shape).astype(float)
    found = []
    for given_factors, scale in queries:
        query = Query.of(given_factors)
        exact = query.bind(domain).answer_full(truth).ravel()
        values = factor * (exact + rng.laplace(0, scale, exact.size))
        found.append(Measurement(query, values, law(factor * scale)))
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


def dense(measured: MeasurementSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All queries as one matrix over the full table, the noisy answers, and 1/b."""
    units = np.eye(measured.domain.cells).reshape(-1, *measured.domain.shape)
    bounds = [each.query.bind(measured.domain) for each in measured]
    matrix = np.concatenate([np.stack([bound.answer_full(unit).ravel() for unit in units], axis=1) for bound in bounds])
    weights = [np.full(each.values.size, np.sqrt(2 / each.noise.variance)) for each in measured]
    return matrix, np.concatenate([each.values for each in measured]), np.concatenate(weights)


def least_l1(matrix, noisy, weights) -> float:
    rows, columns = matrix.shape
    price = np.concatenate([np.zeros(columns), weights, weights])
    return scipy.optimize.linprog(price, A_eq=np.hstack([matrix, -np.eye(rows), np.eye(rows)]), b_eq=noisy).fun


@pytest.mark.parametrize("name", CASES)
def test_l1_equals_a_linear_programme_and_l2_an_active_set(name):
    one = measured(name)
    matrix, noisy, weights = dense(one)
    for loss in ("l1", "l2"):
        fitted = Tree(loss=loss).fit(one)
        cells = fitted.counts.ravel()
        residual = weights * (matrix @ cells - noisy)
        assert fitted.status is Status.CONVERGED
        assert cells.min() >= 0
        if loss == "l1":
            assert np.abs(residual).sum() == pytest.approx(least_l1(matrix, noisy, weights), rel=1e-7)
        else:
            best = scipy.optimize.nnls(weights[:, None] * matrix, weights * noisy)[1] ** 2
            assert np.sum(residual**2) == pytest.approx(best, rel=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_the_unconstrained_least_squares_are_those_of_least_norm(name):
    """The twin of Hay et al.: the pseudo-inverse. Cells that nothing tells apart share equally."""
    one = measured(name)
    matrix, noisy, weights = dense(one)
    fitted = Tree(loss="l2", nonnegative=False).fit(one).counts.ravel()
    expected = np.linalg.pinv(weights[:, None] * matrix) @ (weights * noisy)
    np.testing.assert_allclose(fitted, expected, atol=1e-8)


@pytest.mark.parametrize("loss", ["by-noise", "l1", "l2", "elastic"])
@pytest.mark.parametrize("name", CASES)
def test_counts_scale_with_the_data_and_the_noise(name, loss):
    one, other = Tree(loss=loss).fit(measured(name)), Tree(loss=loss).fit(measured(name, factor=8.0))
    np.testing.assert_allclose(other.counts, 8.0 * one.counts, rtol=1e-9, atol=1e-9)
    assert other.stats["objective"] == pytest.approx(one.stats["objective"])


@pytest.mark.parametrize("name", CASES)
def test_a_saved_tree_is_restored_and_attributes_may_be_permuted(name):
    one = measured(name)
    fitted = Tree().fit(one)
    again = restore(SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays()), one)
    assert np.array_equal(again.marginal(*one.domain.names), fitted.counts)
    permuted = MeasurementSet(Domain(one.domain.name, one.domain.attributes[::-1]), one.measurements, one.privacy)
    np.testing.assert_allclose(Tree().fit(permuted).counts.T, fitted.counts, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("loss", ["l1", "l2", "elastic"])
def test_whole_counts_are_whole_in_every_cell(loss):
    one = measured("one query with all levels")
    rounded = MeasurementSet(one.domain, tuple(replace(each, values=np.round(each.values)) for each in one))
    counts = Tree(loss=loss, integers=True).fit(rounded).counts
    assert np.array_equal(counts, np.round(counts))
    assert counts.min() >= 0
    assert np.abs(counts[:, 0] - counts[:, 1]).max() <= 1


@pytest.mark.parametrize("name", CASES)
def test_by_default_the_total_of_all_measured_sets_is_that_of_least_squares(name):
    for seed in range(3):
        one = _empty(measured(name), seed)
        held, signed = Tree().fit(one), Tree(loss="l2", nonnegative=False).fit(one)
        assert held.total == pytest.approx(max(signed.total, 0.0), abs=1e-8)
        assert held.counts.min() >= 0


def _empty(one: MeasurementSet, seed: int) -> MeasurementSet:
    """The same queries of a table in which nobody is, so that every count is noise alone."""
    rng = np.random.default_rng(seed)
    return replace(one, measurements=[replace(each, values=rng.laplace(0.4, 2, each.values.size)) for each in one])


def test_what_is_fitted_jointly_is_a_setting_that_refits_and_saved_models_know():
    one = measured("one query with all levels")
    fitted = Tree().fit(one)
    assert fitted.method["block"] == BLOCK
    assert estimator_of(fitted) == Tree(loss="elastic", alpha=LAPLACE_ALPHA, block=BLOCK)
    assert estimator_of(Tree(block=1).fit(one)).block == 1
    # A loss that is asked for by name, and a model saved before there were blocks, mean the joint optimum.
    assert "block" not in Tree(loss="elastic", alpha=LAPLACE_ALPHA).fit(one).method
    joint, divided = Tree(block=None).fit(_empty(one, 1)), Tree().fit(_empty(one, 1))
    assert joint.stats["objective"] < divided.stats["objective"]
    assert np.array_equal(estimator_of(joint).fit(_empty(one, 1)).counts, joint.counts)


def test_clipped_values_leave_no_unbiased_sums_to_hold():
    one = _empty(measured("one query with all levels"), 1)
    clipped = [replace(each, values=np.maximum(each.values, 0.0), clipped=True) for each in one]
    assert "block" not in Tree().fit(replace(one, measurements=clipped)).method


def test_the_noise_decides_the_loss_and_its_variance_the_weight():
    assert Tree().fit(measured("nested margins", law=Gaussian)).method["loss"] == "l2"
    assert Tree().fit(measured("nested margins", law=DiscreteGaussian)).method["loss"] == "l2"
    assert Tree().fit(measured("nested margins")).method["loss"] == "elastic"
    one = measured("nested margins", law=DiscreteLaplace)
    same = [replace(each, noise=Laplace(np.sqrt(each.noise.variance / 2))) for each in one]
    other = Tree().fit(MeasurementSet(one.domain, tuple(same)))
    np.testing.assert_allclose(Tree().fit(one).counts, other.counts)
    tiny = [replace(each, noise=DiscreteLaplace(1e-4)) for each in one]
    assert Tree().fit(MeasurementSet(one.domain, tuple(tiny))).status is Status.CONVERGED
    with pytest.raises(DeclarationError, match="by-noise, l1, l2, elastic"):
        Tree(loss="l3").fit(one)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ([Query.marginal("x"), Query.marginal("sex")], ["'x' and 'sex' cross", "overlap"]),
        ([Query.of({"x": factors.Tree(2)}), Query.of({"x": factors.Tree(3)})], ["tree(x, 2)", "tree(x, 3)"]),
        ([Query.of({"x": factors.AllRanges()})], ["ranges(x)", "overlap"]),
        ([Query.of({"x": factors.Haar()})], ["haar(x)", "0 and 1"]),
        ([Query.of({"x": factors.Tree(2), "sex": factors.Tree(2)})], ["crosses itself"]),
    ],
)
def test_what_is_not_laminar_is_refused_by_name(queries, words):
    sets = [Measurement(query, np.zeros(query.bind(LINE).size), Laplace(1.0)) for query in queries]
    one = MeasurementSet(LINE, tuple(sets))
    suitable = Tree().suitability(one)
    assert not suitable.possible
    for word in words:
        assert word in suitable.reason
    with pytest.raises(ConsilienceError, match="Tree cannot fit"):
        Tree().fit(one)
    assert choose(one).estimator.name in ("table", "graphical")
    assert suitable.reason in choose(one).reason


def test_tables_that_are_too_large_are_refused_before_anything_is_allocated():
    domain = Domain.from_sizes({f"x{i}": 10 for i in range(300)})
    one = MeasurementSet.from_marginals(domain, {"x0": np.zeros(10)}, noise=Laplace(1.0))
    assert "cells" in Tree().suitability(one).reason
    with pytest.raises(TooLarge, match="Tree keeps up to"):
        Tree().fit(one)


def test_impossible_cells_can_make_sets_nested():
    """A county is in one state: declared so, the margins by state and by county nest."""
    state, county = Attribute.categorical("state", ["A", "B"]), Attribute.categorical("county", ["1", "2", "3"])
    elsewhere = [(("state", (0,)), ("county", (2,))), (("state", (1,)), ("county", (0, 1)))]
    rules = tuple(ImpossibleCells(codes) for codes in elsewhere)
    one = MeasurementSet.from_marginals(
        Domain("d", (state, county), rules), {"state": [5.0, 7.0], "county": [3.0, 4.0, 6.0]}, noise=Gaussian(1.0)
    )
    assert Tree().suitability(one).possible
    fitted = Tree().fit(one)
    assert np.array_equal(fitted.counts > 0, [[True, True, False], [False, False, True]])
    assert fitted.marginal("county") == pytest.approx([3 - 2 / 3, 4 - 2 / 3, 6.5])
    free = replace(one, domain=Domain("d", (state, county)))
    assert not Tree().suitability(free).possible


def test_counts_are_spread_evenly_over_the_possible_cells_of_other_attributes():
    domain = Domain.from_sizes({"a": 2, "b": 3})
    rules = (ImpossibleCells((("a", (0,)), ("b", (1, 2)))), ImpossibleCells((("a", (1,)), ("b", (0,)))))
    one = MeasurementSet.from_marginals(replace(domain, impossible=rules), {"a": [4.0, 6.0]}, noise=Laplace(1.0))
    assert Tree().fit(one).counts.tolist() == [[4.0, 0.0, 0.0], [0.0, 3.0, 3.0]]
    total = MeasurementSet.from_marginals(replace(domain, impossible=rules), {(): 9.0}, noise=Laplace(1.0))
    assert Tree().fit(total).counts.tolist() == [[3.0, 0.0, 0.0], [0.0, 3.0, 3.0]]


@pytest.mark.parametrize("loss", ["l1", "l2", "elastic"])
def test_exact_facts_are_kept(loss):
    one = measured("one query for each level").with_public(total=30.0)
    assert Tree(loss=loss).fit(one).total == pytest.approx(30.0, rel=1e-14)
    margin = PublicMargin(("x",), tuple(float(v) for v in range(8)))
    domain = replace(LINE, public=PublicFacts(28.0, (margin,)))
    declared = replace(one, domain=domain, measurements=one.measurements[:-1])
    assert Tree(loss=loss).fit(declared).marginal("x") == pytest.approx(np.arange(8.0), abs=1e-12)
    part = Measurement(Query.of({"x": factors.Tree(2, 1)}), np.array([12.0, 18.0]), Exact())
    fitted = Tree(loss=loss).fit(MeasurementSet(LINE, (*one, part)))
    assert fitted.answer(part.query) == pytest.approx([12.0, 18.0])


def test_facts_that_contradict_each_other_are_named():
    part = Measurement(Query.of({"x": factors.Tree(2, 1)}), np.array([12.0, 20.0]), Exact())
    one = measured("one query for each level").with_public(total=30.0)
    with pytest.raises(Infeasible, match=r"the total is 30, within it x=.* is 12") as caught:
        Tree().fit(MeasurementSet(LINE, (*one, part)))
    assert len(caught.value.constraints) == 3
    assert caught.value.violation == pytest.approx(2 / 3)
    rule = (ImpossibleCells((("x", (0, 1, 2, 3)),)),)
    with pytest.raises(Infeasible, match="all its cells are declared impossible"):
        Tree().fit(MeasurementSet(replace(LINE, impossible=rule), (*one, part)))


def test_censored_answers_are_left_out_and_clipped_ones_are_bounds():
    whole = MeasurementSet.from_marginals(LINE, {"x": np.arange(8.0)}, noise=Laplace(1.0)).measurements[0]
    hidden = np.arange(8) < 3
    censored = replace(whole, values=np.where(hidden, np.nan, whole.values), censored=hidden, threshold=2.5)
    total = Measurement(Query.marginal(), np.array([34.0]), Laplace(0.001))
    fitted = Tree().fit(MeasurementSet(LINE, (censored, total)))
    assert fitted.stats["measured_answers"] == 6
    assert fitted.marginal("x")[:3] == pytest.approx(np.full(3, 3.0))
    clipped = replace(whole, values=np.maximum(whole.values - 4, 0.0), clipped=True)
    few = replace(total, values=np.array([2.0]))
    low = Tree(nonnegative=False, loss="l2").fit(MeasurementSet(LINE, (clipped, few)))
    assert low.marginal("x")[5:] == pytest.approx([1, 2, 3], abs=1e-3)
    assert low.marginal("x")[:5].sum() == pytest.approx(-4.0, abs=1e-3)
    nothing = replace(censored, values=np.full(8, np.nan), censored=np.ones(8, dtype=bool))
    with pytest.raises(MeasurementError, match="no noisy measurement"):
        Tree().fit(MeasurementSet(LINE, (nothing,)))


def test_auto_takes_the_tree_and_says_why():
    fitted = estimate(measured("nested margins"))
    assert fitted.method["method"] == "tree"
    assert "nested or disjoint" in fitted.method["reason"]
    assert estimate(measured("nested margins"), method="tree").method["method"] == "tree"


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(CASES)),
    st.integers(0, 2**32),
    st.sampled_from(["l1", "l2", "elastic"]),
    st.booleans(),
    st.sampled_from(["min-l2", "proportional", "vertex"]),
)
def test_the_account_is_consistent_and_certified(name, seed, loss, nonnegative, ties):
    one = measured(name, seed=seed)
    fitted = Tree(loss=loss, nonnegative=nonnegative, ties=ties).fit(one)
    matrix, noisy, weights = dense(one)
    residual = np.abs(weights * (matrix @ fitted.counts.ravel() - noisy))
    value = {"l1": residual, "l2": residual**2, "elastic": 0.9 * residual + 0.1 * residual**2}[loss].sum()
    assert fitted.stats["objective"] == pytest.approx(value, rel=1e-9)
    assert 0 <= fitted.stats["gap"] <= 1e-8 * value + 1e-12
    assert fitted.counts.min() >= 0 or not nonnegative


def binary_tree(height: int) -> MeasurementSet:
    size = 2**height
    domain = Domain("long", (Attribute.numeric("x", list(range(size + 1))),))
    rng = np.random.default_rng(0)
    truth = rng.poisson(1, size).astype(float)
    found = []
    for level in range(height + 1):
        counts = truth.reshape(2**level, -1).sum(axis=1) + rng.laplace(0, 3, 2**level)
        found.append(Measurement(Query.of({"x": factors.Tree(2, level)}), counts, Laplace(3.0)))
    return MeasurementSet(domain, tuple(found))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["l1", "elastic"])
def test_a_long_histogram_takes_time_in_proportion_to_its_length(loss):
    Tree(loss=loss).fit(binary_tree(4))
    seconds = []
    for height in (12, 16):
        measured = binary_tree(height)
        began = time.process_time()
        fitted = Tree(loss=loss).fit(measured)
        seconds.append(time.process_time() - began)
        assert fitted.status is Status.CONVERGED
        assert loss != "l1" or fitted.stats["method"] == "breakpoints"
    assert seconds[1] < 6 * 16 * max(seconds[0], 0.01), "sixteen times the length; the square would be 256 times"


@pytest.mark.slow
def test_a_million_bins_are_fitted():
    fitted = Tree().fit(binary_tree(20))
    assert fitted.status is Status.CONVERGED


CUTS = {
    "a": [None, factors.Identity(), factors.Total(), factors.Tree(2)],
    "b": [
        None,
        factors.Identity(),
        factors.Tree(2),
        factors.Tree(2, 1),
        factors.Tree(3),
        factors.Intervals(("0", "2")),
    ],
    "c": [None, factors.Identity(), factors.Tree(2, 0), factors.Tree(2, 2)],
}


@given(
    st.lists(
        st.fixed_dictionaries({name: st.sampled_from(cuts) for name, cuts in CUTS.items()}), min_size=1, max_size=3
    )
)
def test_sets_that_are_nested_by_the_kind_of_their_queries_are_nested_cell_by_cell(asked) -> None:
    domain = Domain.from_sizes({"a": 3, "b": 4, "c": 5})
    queries = [Query.of({name: cut for name, cut in each.items() if cut is not None}) for each in asked]
    made = [Measurement(query, np.zeros(query.bind(domain).size), Laplace(1.0)) for query in queries]
    one = MeasurementSet(domain, tuple(made), PrivacyStatement(), {}, private=False)
    if _nested_layers(one) is not None:
        problem = _Problem.of(one)
        assert isinstance(problem, _Problem)
        assert crossing_sets(problem.family, measured=problem.known) is None
        assert Tree().suitability(one).predicted_bytes == problem.predicted_bytes

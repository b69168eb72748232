"""Consistency of views against the paper's procedure step by step, against least squares, and its laws."""

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from consilience.errors import DeclarationError, MeasurementError
from consilience.marginals.consistency import ViewConsistency, stacked_views
from consilience.marginals.least_squares import KnownTable
from consilience.marginals.table_stacks import TableStack, stored_order, summed
from consilience.solvers.fit import Infeasible


def mutually_consistent(
    tables: list[np.ndarray], scopes: list[tuple[int, ...]], *, on: tuple[int, ...], weights: list[float] | None = None
) -> list[np.ndarray]:
    """Tables that agree on the marginal of `on`: its weighted mean over them, differences spread evenly over cells.

    With the weights 1/(variance of a cell × cells of the table), the default for equal noise, the mean is the most
    precise one. All other residuals of the tables stay as they are.
    """
    shares = np.array([1.0 / table.size for table in tables] if weights is None else weights, dtype=np.float64)
    marginals = [summed(table, scope, on) for table, scope in zip(tables, scopes, strict=True)]
    mean = sum(share * each for share, each in zip(shares / shares.sum(), marginals, strict=True))
    return [
        table + _spread(mean - marginal, on, table, scope)
        for table, scope, marginal in zip(tables, scopes, marginals, strict=True)
    ]


def _spread(change: np.ndarray, on: tuple[int, ...], table: np.ndarray, scope: tuple[int, ...]) -> np.ndarray:
    """A change of a marginal, in equal parts on the cells that sum to each of its cells."""
    kept = [attribute for attribute in scope if attribute in on]
    ordered = np.asarray(change).transpose([on.index(attribute) for attribute in kept])
    shape = [size if attribute in on else 1 for attribute, size in zip(scope, table.shape, strict=True)]
    return ordered.reshape(shape) * (math.prod(shape) / table.size)


@st.composite
def view_sets(draw, most_attributes=6, most_size=3):
    """Sizes, distinct scopes in stored order (nested, disjoint and empty ones among them), and a generator."""
    sizes = draw(st.lists(st.integers(1, most_size), min_size=1, max_size=most_attributes))
    every = st.sets(st.integers(0, len(sizes) - 1), max_size=4)
    scopes = {stored_order(sizes, each) for each in draw(st.lists(every, min_size=1, max_size=7))}
    return tuple(sizes), sorted(scopes), np.random.default_rng(draw(st.integers(0, 2**32)))


def closure(scopes):
    """All intersections of some of the scopes and the empty set, each after its subsets."""
    found = {frozenset(), *map(frozenset, scopes)}
    while True:
        more = {a & b for a, b in itertools.combinations(found, 2)} - found
        if not more:
            return sorted(found, key=lambda each: (len(each), sorted(each)))
        found |= more


def step_by_step(tables, weights):
    """The paper's procedure: mutual consistency on every set of the closure, in topological order."""
    tables = dict(tables)
    for on in closure(tables):
        holders = [scope for scope in tables if on <= set(scope)]
        if holders:
            made = mutually_consistent(
                [tables[scope] for scope in holders],
                holders,
                on=tuple(sorted(on)),
                weights=[weights[scope] for scope in holders],
            )
            tables |= dict(zip(holders, made, strict=True))
    return tables


def marginal_rows(sizes, scope):
    """The 0/1 matrix from the joint table to a marginal."""
    cells = np.indices(sizes).reshape(len(sizes), -1)
    shape = tuple(sizes[attribute] for attribute in scope)
    place = np.ravel_multi_index(tuple(cells[list(scope)]), shape) if scope else np.zeros(cells.shape[1], dtype=int)
    return (np.arange(math.prod(shape))[:, None] == place).astype(float)


def random_problem(sizes, scopes, rng, *, size=1.0):
    stack = TableStack(sizes, scopes)
    return stack, rng.normal(size=stack.size) * size, rng.uniform(0.1, 3.0, len(scopes))


def test_the_worked_example_of_the_paper_comes_out_to_the_digit():
    stack = TableStack((2, 2, 2), [(0, 1), (0, 2)])
    found = ViewConsistency(stack, [1.0, 1.0]).consistent(np.array([0.3, 0.3, 0.3, 0.1, 0.2, 0.3, 0.1, 0.4]))
    assert_allclose(found, [0.275, 0.275, 0.325, 0.125, 0.225, 0.325, 0.075, 0.375], atol=1e-15)
    assert_allclose(summed(stack.table(found, (0, 1)), (0, 1), (0,)), [0.55, 0.45], atol=1e-15)
    assert_allclose(summed(stack.table(found, (0, 1)), (0, 1), (1,)), [0.6, 0.4], atol=1e-15)
    assert_allclose(summed(stack.table(found, (0, 2)), (0, 2), (2,)), [0.3, 0.7], atol=1e-15)


@settings(deadline=None, max_examples=150)
@given(view_sets())
def test_the_closed_form_is_the_papers_procedure_over_the_closure(problem):
    sizes, scopes, rng = problem
    stack, flat, precisions = random_problem(sizes, scopes, rng, size=100.0)
    given_tables = {scope: stack.table(flat, scope) for scope in stack.scopes}
    weights = {
        scope: precision / given_tables[scope].size for scope, precision in zip(stack.scopes, precisions, strict=True)
    }
    expected = step_by_step(given_tables, weights)
    found = ViewConsistency(stack, precisions).consistent(flat)
    for scope in stack.scopes:
        assert_allclose(stack.table(found, scope), expected[scope], atol=1e-9 * 100)


@settings(deadline=None, max_examples=60)
@given(view_sets(most_attributes=4))
def test_the_closed_form_is_weighted_least_squares(problem):
    sizes, scopes, rng = problem
    stack, flat, precisions = random_problem(sizes, scopes, rng)
    rows = np.vstack([marginal_rows(sizes, scope) for scope in stack.scopes])
    root = np.sqrt(stack.spread(dict(zip(stack.scopes, precisions, strict=True))))
    joint = np.linalg.lstsq(root[:, None] * rows, root * flat, rcond=None)[0]
    assert_allclose(ViewConsistency(stack, precisions).consistent(flat), rows @ joint, atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(view_sets(most_attributes=4), st.data())
def test_known_tables_come_out_exact_and_the_rest_is_constrained_least_squares(problem, data):
    sizes, scopes, rng = problem
    stack, flat, precisions = random_problem(sizes, scopes, rng)
    truth = rng.uniform(0, 1, sizes)
    subsets = st.sets(st.integers(0, len(sizes) - 1), max_size=2)
    facts = [
        KnownTable(tuple(each), summed(truth, tuple(range(len(sizes))), tuple(each)), f"fact {each}")
        for each in data.draw(st.lists(subsets, min_size=1, max_size=3))
    ]
    consistency = ViewConsistency(stack, precisions, facts)
    found = consistency.consistent(flat)
    rows = np.vstack([marginal_rows(sizes, scope) for scope in stack.scopes])
    fixed = np.vstack([marginal_rows(sizes, fact.scope) for fact in facts])
    known = np.concatenate([fact.table.ravel() for fact in facts])
    start = np.linalg.lstsq(fixed, known, rcond=None)[0]
    _, strengths, directions = np.linalg.svd(fixed)
    free = directions[np.count_nonzero(strengths > 1e-9) :].T
    root = np.sqrt(stack.spread(dict(zip(stack.scopes, precisions, strict=True))))
    seen = root[:, None] * rows @ free
    moved = np.linalg.lstsq(np.where(np.abs(seen) < 1e-12, 0.0, seen), root * (flat - rows @ start), rcond=None)[0]
    assert_allclose(found, rows @ (start + free @ moved), atol=1e-8)
    assert consistency.disagreement(found) < 1e-12
    for fact in facts:
        for scope in stack.scopes:
            shared = tuple(attribute for attribute in fact.scope if attribute in scope)
            exact = summed(fact.table, fact.scope, shared)
            assert_allclose(summed(stack.table(found, scope), scope, shared), exact, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(view_sets(most_attributes=5, most_size=4))
def test_disagreement_is_the_widest_difference_of_a_common_marginal(problem):
    sizes, scopes, rng = problem
    stack, flat, precisions = random_problem(sizes, scopes, rng)
    expected = 0.0
    for one, two in itertools.combinations(stack.scopes, 2):
        shared = tuple(attribute for attribute in one if attribute in two)
        apart = summed(stack.table(flat, one), one, shared) - summed(stack.table(flat, two), two, shared)
        expected = max(expected, float(np.abs(apart).max()))
    consistency = ViewConsistency(stack, precisions)
    assert consistency.disagreement(flat) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("count", [1.0, 1e6, 1e15])
@pytest.mark.parametrize("seed", range(5))
def test_random_overlapping_views_agree_to_the_ninth_digit(seed, count):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, 20)
    scopes = {stored_order(sizes, rng.choice(20, 5, replace=False).tolist()) for _ in range(30)}
    stack = TableStack(sizes.tolist(), scopes)
    flat = count * rng.uniform(size=stack.size) + rng.laplace(size=stack.size)
    consistency = ViewConsistency(stack, rng.uniform(1e-3, 1e3, len(scopes)))
    found = consistency.consistent(flat)
    total = stack.table(found, stack.scopes[0]).sum()
    assert consistency.disagreement(found) <= 1e-9 * total
    every = [stack.table(found, scope).sum() for scope in stack.scopes]
    assert_allclose(every, total, rtol=1e-12)
    assert consistency.disagreement(flat) > 0.1


@settings(deadline=None, max_examples=60)
@given(view_sets(most_attributes=5))
def test_it_is_linear_idempotent_and_scales(problem):
    sizes, scopes, rng = problem
    stack, flat, precisions = random_problem(sizes, scopes, rng)
    other = rng.normal(size=stack.size)
    consistency = ViewConsistency(stack, precisions)
    once = consistency.consistent(flat)
    assert_allclose(consistency.consistent(once), once, atol=1e-12)
    assert_allclose(
        consistency.consistent(2.0 * flat - 3.0 * other), 2.0 * once - 3.0 * consistency.consistent(other), atol=1e-11
    )
    assert_allclose(ViewConsistency(stack, 1e12 * precisions).consistent(flat), once, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(view_sets(most_attributes=5), st.randoms(use_true_random=False))
def test_neither_the_order_of_views_nor_of_attributes_nor_of_axes_matters(problem, chance):
    sizes, scopes, rng = problem
    stack, flat, precisions = random_problem(sizes, scopes, rng)
    found = ViewConsistency(stack, precisions).consistent(flat)
    renamed = list(range(len(sizes)))
    chance.shuffle(renamed)
    new_sizes = [0] * len(sizes)
    for attribute, name in enumerate(renamed):
        new_sizes[name] = sizes[attribute]
    orders = {scope: chance.sample(scope, len(scope)) for scope in stack.scopes}
    names = {scope: tuple(renamed[each] for each in orders[scope]) for scope in stack.scopes}
    other = TableStack(new_sizes, chance.sample(list(names.values()), len(names)))
    moved = np.empty(stack.size)
    for scope, name in names.items():
        other.table(moved, name)[...] = stack.table(flat, scope).transpose([scope.index(a) for a in orders[scope]])
    by_name = {names[scope]: precision for scope, precision in zip(stack.scopes, precisions, strict=True)}
    again = ViewConsistency(other, [by_name[name] for name in other.scopes]).consistent(moved)
    for scope, name in names.items():
        expected = stack.table(found, scope).transpose([scope.index(a) for a in orders[scope]])
        assert_allclose(other.table(again, name), expected, atol=1e-12)


@settings(deadline=None, max_examples=100)
@given(view_sets(), st.data())
def test_lemma_1_consistency_on_the_common_attributes_keeps_what_agreed_and_what_one_alone_has(problem, data):
    sizes, scopes, rng = problem
    assume(len(scopes) >= 2)
    one, two = scopes[-1], scopes[-2]
    common = sorted(set(one) & set(two))
    agreed = tuple(sorted(data.draw(st.sets(st.sampled_from(common))))) if common else ()
    tables = [rng.normal(size=[sizes[each] for each in scope]) for scope in (one, two)]
    weights = rng.uniform(0.1, 1.0, 2).tolist()
    before = mutually_consistent(tables, [one, two], on=agreed, weights=weights)
    after = mutually_consistent(before, [one, two], on=tuple(common), weights=weights)
    untouched = set(one) - set(two) | set(agreed)
    kept = tuple(sorted(data.draw(st.sets(st.sampled_from(sorted(untouched)))))) if untouched else ()
    assert_allclose(summed(after[0], one, kept), summed(before[0], one, kept), atol=1e-12)
    assert_allclose(summed(after[0], one, tuple(common)), summed(after[1], two, tuple(common)), atol=1e-12)


def test_a_measured_total_counts_by_its_precision():
    stack = TableStack((2, 2), [(), (0, 1)])
    found = ViewConsistency(stack, [3.0, 4.0]).consistent(np.array([10.0, 1.0, 2.0, 3.0, 4.0]))
    total = (3.0 * 10.0 + 1.0 * 10.0) / 4.0
    assert_allclose(found, [total, 1.0, 2.0, 3.0, 4.0])
    shifted = ViewConsistency(stack, [3.0, 4.0]).consistent(np.array([14.0, 1.0, 2.0, 3.0, 4.0]))
    assert_allclose(shifted, [13.0, 1.75, 2.75, 3.75, 4.75])


def test_one_view_stays_as_it_is():
    stack = TableStack((3, 2), [(1, 0)])
    flat = np.array([1.0, -2.0, 3.0, 4.0, 5.5, 6.0])
    found = ViewConsistency(stack, [2.0]).consistent(flat)
    assert_allclose(found, flat, atol=1e-14)
    assert found is not flat


def test_no_views_at_all_are_consistent():
    consistency = ViewConsistency(TableStack((2,), []), [])
    assert consistency.consistent(np.zeros(0)).size == 0
    assert consistency.disagreement(np.zeros(0)) == 0.0


def test_repeated_views_combine_by_precision_whatever_their_axes():
    first = np.arange(6.0).reshape(2, 3)
    views = stacked_views((3, 2), [(1, 0), (0, 1), ()], [first, first.T + 3.0, np.array(9.0)], [1.0, 2.0, 5.0])
    assert views.stack.scopes == [(), (1, 0)]
    assert_allclose(views.stack.table(views.flat, (1, 0)), first + 2.0)
    assert_allclose(views.precisions, [5.0, 3.0])


def test_what_cannot_be_views_is_refused_with_a_reason():
    stack = TableStack((2, 2), [(0,), (0, 1)])
    with pytest.raises(DeclarationError, match="2 views have 1 precisions"):
        ViewConsistency(stack, [1.0])
    with pytest.raises(DeclarationError, match="precision inf"):
        ViewConsistency(stack, [1.0, math.inf])
    with pytest.raises(DeclarationError, match="same attributes"):
        ViewConsistency(TableStack((2, 2), [(0, 1), (1, 0)]), [1.0, 1.0])
    with pytest.raises(DeclarationError, match="margin has the shape"):
        ViewConsistency(stack, [1.0, 1.0], [KnownTable((0,), np.ones(3), "margin")])
    with pytest.raises(MeasurementError, match="hold 6 cells"):
        ViewConsistency(stack, [1.0, 1.0]).consistent(np.zeros(5))
    with pytest.raises(DeclarationError, match="shape"):
        stacked_views((2, 2), [(0,)], [np.zeros(3)], [1.0])
    facts = [KnownTable((), np.array(5.0), "total"), KnownTable((0,), np.array([1.0, 2.0]), "margin")]
    with pytest.raises(Infeasible, match="total and margin contradict"):
        ViewConsistency(stack, [1.0, 1.0], facts)


@pytest.mark.slow
def test_hundreds_of_views_take_tens_of_milliseconds():
    rng = np.random.default_rng(0)
    scopes = {tuple(sorted(rng.choice(45, 8, replace=False).tolist())) for _ in range(326)}
    spent = []
    for _ in range(5):
        begin = time.thread_time()
        stack = TableStack((2,) * 45, scopes)
        consistency = ViewConsistency(stack, [1.0] * len(scopes))
        found = consistency.consistent(rng.normal(size=stack.size))
        spent.append(time.thread_time() - begin)
        assert consistency.disagreement(found) < 1e-9
    assert min(spent) < 0.05

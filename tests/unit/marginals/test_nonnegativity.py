"""Views without negative counts: Ripple against a slow twin and its own proof, the rivals, rounds, and exactness."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from consilience.errors import DeclarationError
from consilience.kernels.simplex import project_to_simplex
from consilience.marginals import nonnegativity
from consilience.marginals.consistency import ViewConsistency
from consilience.marginals.least_squares import KnownTable
from consilience.marginals.nonnegativity import nonnegative_views, ripple, without_negatives
from consilience.marginals.table_stacks import TableStack, summed

SHAPES = [(), (1,), (4,), (1, 3), (2, 2, 2), (2, 3, 4), (3, 1, 2), (2,) * 8]


def neighbours(cell, shape):
    """All cells that differ from one in the value of one attribute."""
    for axis, size in enumerate(shape):
        for value in range(size):
            if value != cell[axis]:
                yield (*cell[:axis], value, *cell[axis + 1 :])


def ripple_by_scanning(table, theta):
    """Ripple, read off its definition: everything below −theta is lifted at once, until nothing is."""
    table = table - min(table.sum(), 0.0) / table.size
    share = sum(size - 1 for size in table.shape)
    while share and table.min() < -theta:
        before = table.copy()
        for cell in np.ndindex(table.shape):
            if before[cell] < -theta:
                table[cell] -= before[cell]
                for other in neighbours(cell, table.shape):
                    table[other] += before[cell] / share
    return table


def one_table(shape, table, **options):
    return without_negatives(table.ravel(), TableStack(shape, [tuple(range(len(shape)))]), **options)[0].reshape(shape)


def overlapping_views(seed, *, sizes=(2, 3, 2, 2, 4, 2), total=3000.0, scale=40.0, skew=0.2):
    """Noisy views of a skewed joint table, and the table."""
    rng = np.random.default_rng(seed)
    joint = total * rng.dirichlet(np.full(int(np.prod(sizes)), skew)).reshape(sizes)
    every = tuple(range(len(sizes)))
    stack = TableStack(sizes, [each for each in itertools.combinations(every, 3) if sum(each) % 2])
    flat = np.empty(stack.size)
    for scope in stack.scopes:
        stack.table(flat, scope)[...] = summed(joint, every, scope)
    return stack, flat + rng.laplace(scale=scale, size=stack.size), joint


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [-1.0, 0.0, 0.3, 3.0, 100.0])
def test_ripple_is_what_scanning_gives(shape, mean):
    table = np.random.default_rng(7).laplace(mean, 3.0, shape)
    found = one_table(shape, np.asarray(table), method="ripple", theta=0.05)
    assert_allclose(found, ripple_by_scanning(np.asarray(table), 0.05), atol=1e-9)


def test_one_negative_cell_is_shared_by_its_neighbours_alone():
    table = np.full((2,) * 10, 50.0)
    table[(0,) * 10] = -20.0
    found = one_table(table.shape, table, method="ripple", theta=1.0)
    changed = {tuple(cell) for cell in np.argwhere(found != table).tolist()}
    assert changed == {(0,) * 10, *neighbours((0,) * 10, table.shape)}
    assert found[(0,) * 10] == 0.0
    assert found[1, 0, 0, 0, 0, 0, 0, 0, 0, 0] == 48.0


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(SHAPES),
    st.integers(0, 2**32),
    st.floats(-2, 20),
    st.floats(0.1, 1e6),
    st.sampled_from([1e-6, 1e-2, 1.0, 30.0]),
)
def test_ripple_keeps_the_total_and_leaves_nothing_below_minus_theta(shape, seed, mean, scale, theta):
    table = scale * (mean + np.random.default_rng(seed).laplace(size=shape))
    found = one_table(shape, np.asarray(table), method="ripple", theta=theta)
    assert found.min() >= -theta - 1e-12 * scale
    assert_allclose(found.sum(), max(table.sum(), 0.0), atol=1e-9 * np.abs(table).sum())


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(SHAPES[2:7]), st.integers(0, 2**32), st.floats(0, 2), st.sampled_from([0.01, 0.1, 1.0]))
def test_ripple_makes_no_more_lifts_than_its_proof_allows(shape, seed, mean, theta):
    table = mean + np.random.default_rng(seed).laplace(size=shape)
    table += max(-table.sum(), 0.0) / table.size
    cells = list(np.ndindex(shape))
    place = {cell: number for number, cell in enumerate(cells)}
    walk = np.zeros((len(cells), len(cells)))
    for cell in cells:
        for other in neighbours(cell, shape):
            walk[place[cell], place[other]] = 1.0 / sum(size - 1 for size in shape)
    potential = table.ravel() @ np.linalg.pinv(np.eye(len(cells)) - walk) @ table.ravel()
    sizes = np.array([size for size in shape if size > 1], dtype=np.int64)
    lifts, late = ripple(table.reshape(1, -1).copy(), sizes, theta, 10**6)
    assert not late.any()
    assert lifts <= potential / theta**2


@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 1, 0)])
def test_ripple_knows_no_order_of_attributes_or_values(axes):
    table = np.random.default_rng(3).laplace(0.2, 1.0, (2, 3, 4))
    found = one_table(table.shape, table, method="ripple", theta=0.01)
    turned = np.ascontiguousarray(table.transpose(axes)[:, ::-1])
    again = one_table(turned.shape, turned, method="ripple", theta=0.01)
    assert_allclose(again, found.transpose(axes)[:, ::-1], atol=1e-9)


def test_a_table_that_ripples_too_long_is_projected_and_reported(monkeypatch):
    monkeypatch.setattr(nonnegativity, "RIPPLE", nonnegativity.RippleSettings(ripples_per_gap=0.5))
    table = np.random.default_rng(0).laplace(0.05, 10.0, (2,) * 6)
    stack = TableStack(table.shape, [tuple(range(6))])
    consistency = ViewConsistency(stack, [1.0])
    found = nonnegative_views(consistency, table.ravel(), theta=1e-9, rounds=1)
    assert found.unfinished == 1
    assert found.most_negative >= -1e-9
    assert_allclose(found.flat.sum(), max(table.sum(), 0.0))


def test_the_rivals_are_what_they_say():
    table = np.array([[-6.0, 1.0, 4.0], [9.0, -1.0, 8.0]])
    assert_allclose(one_table(table.shape, table, method="none"), table)
    assert_allclose(one_table(table.shape, table, method="simple"), np.maximum(table, 0.0))
    clipped = table.copy()
    while clipped.min() < 0:
        clipped = np.maximum(clipped, 0.0)
        over = clipped.sum() - table.sum()
        clipped[clipped > 0] -= over / np.count_nonzero(clipped > 0)
    assert_allclose(one_table(table.shape, table, method="global"), clipped)
    assert_allclose(one_table(table.shape, table, method="global"), project_to_simplex(table, table.sum()))


@pytest.mark.parametrize("method", ["none", "simple", "global", "ripple"])
def test_zeros_stay_zeros_and_the_given_vector_is_not_touched(method):
    stack = TableStack((2, 2, 1), [(2,), (0, 1)])
    zeros = np.zeros(stack.size)
    assert_allclose(without_negatives(zeros, stack, method=method, theta=0.1)[0], zeros)
    flat = np.array([-3.0, -3.0, 1.0, 2.0, 8.0])
    copy = flat.copy()
    without_negatives(flat, stack, method=method, theta=0.1)
    assert_allclose(flat, copy, atol=0)


@pytest.mark.parametrize("method", ["global", "ripple"])
def test_a_negative_total_becomes_zero(method):
    found = one_table((2, 2), np.array([[-5.0, 1.0], [-2.0, 1.0]]), method=method, theta=0.01)
    assert found.min() >= -0.01
    assert found.sum() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("rounds", [0, 1, 3])
@pytest.mark.parametrize("method", ["simple", "global", "ripple"])
def test_rounds_are_the_method_and_consistency_after_a_first_consistency(method, rounds):
    stack, flat, _ = overlapping_views(1)
    consistency = ViewConsistency(stack, np.linspace(1, 2, len(stack.scopes)))
    expected = consistency.consistent(flat)
    for _ in range(rounds):
        expected = consistency.consistent(without_negatives(expected, stack, method=method, theta=4.0)[0])
    found = nonnegative_views(consistency, flat, method=method, rounds=rounds, theta=4.0)
    assert_allclose(found.flat, expected, atol=1e-9)
    assert found.rounds == rounds
    assert found.most_negative == pytest.approx(min(expected.min(), 0.0))
    assert found.disagreement < 1e-9
    assert (found.mixed, found.changed, found.unfinished) == (0.0, 0.0, 0)


def test_no_method_is_consistency_alone():
    stack, flat, _ = overlapping_views(2)
    consistency = ViewConsistency(stack, np.ones(len(stack.scopes)))
    found = nonnegative_views(consistency, flat, method="none", rounds=None, theta=4.0)
    assert found.rounds == 0
    assert_allclose(found.flat, consistency.consistent(flat), atol=0)


@pytest.mark.parametrize("seed", range(5))
def test_open_rounds_end_when_no_cell_is_below_two_thetas(seed):
    stack, flat, _ = overlapping_views(seed)
    consistency = ViewConsistency(stack, np.ones(len(stack.scopes)))
    found = nonnegative_views(consistency, flat, rounds=None, theta=0.5)
    assert -1.0 <= found.most_negative < 0
    fewer = nonnegative_views(consistency, flat, rounds=found.rounds - 1, theta=0.5)
    assert fewer.most_negative < -1.0
    limited = nonnegative_views(consistency, flat, rounds=None, theta=0.5, most_rounds=1)
    assert limited.rounds == 1


def check_exact(found, consistency, total):
    assert found.flat.min() >= 0
    assert found.most_negative == 0
    assert consistency.disagreement(found.flat) <= 1e-9 * max(total, 1.0)


@pytest.mark.parametrize("method", ["none", "simple", "global", "ripple"])
@pytest.mark.parametrize("scale", [1.0, 40.0, 2000.0])
def test_exact_views_have_no_negative_cell_and_stay_consistent(method, scale):
    stack, flat, _ = overlapping_views(4, scale=scale)
    consistency = ViewConsistency(stack, np.ones(len(stack.scopes)))
    found = nonnegative_views(consistency, flat, method=method, rounds=1, theta=scale / 10, exact=True)
    total = stack.table(found.flat, stack.scopes[0]).sum()
    check_exact(found, consistency, total)
    assert total > 0
    assert found.mixed < 1e-3
    assert found.changed <= 2 * found.mixed * total * len(stack.scopes) * (1 + 1e-9)


def test_exact_changes_nothing_where_nothing_is_negative():
    stack, flat, _ = overlapping_views(4, scale=1e-6, skew=50.0)
    consistency = ViewConsistency(stack, np.ones(len(stack.scopes)))
    found = nonnegative_views(consistency, flat, rounds=None, theta=0.1, exact=True)
    assert (found.rounds, found.mixed, found.changed) == (0, 0.0, 0.0)
    assert_allclose(found.flat, consistency.consistent(flat), atol=0)


def test_the_least_mixture_is_used_when_there_are_no_rounds_left():
    stack = TableStack((2, 2), [(0, 1)])
    consistency = ViewConsistency(stack, [1.0])
    flat = np.array([-2.0, 6.0, 6.0, 6.0])
    found = nonnegative_views(consistency, flat, method="none", rounds=0, theta=0.1, exact=True, most_rounds=0)
    assert found.flat.min() == pytest.approx(0.0, abs=1e-12)
    assert found.flat.min() >= 0
    assert found.flat.sum() == pytest.approx(16.0)
    assert 0 < found.mixed < 0.5
    assert found.changed == pytest.approx(4.0)


def test_no_records_at_all_give_zeros():
    stack, flat, _ = overlapping_views(5)
    consistency = ViewConsistency(stack, np.ones(len(stack.scopes)))
    found = nonnegative_views(consistency, flat - 1000.0, rounds=1, theta=1.0, exact=True)
    assert_allclose(found.flat, 0.0, atol=0)
    check_exact(found, consistency, 0.0)


def known(joint, *scopes):
    every = tuple(range(joint.ndim))
    return [KnownTable(scope, summed(joint, every, scope), f"known {scope}") for scope in scopes]


@pytest.mark.parametrize(
    "scopes", [[()], [(0,), (4,)], [(1, 2)], [(1, 2), (0, 4), (5,)]], ids=["total", "margins", "pair", "pairs"]
)
@pytest.mark.parametrize("seed", range(3))
def test_facts_stay_exact_when_views_are_made_exact(seed, scopes):
    stack, flat, joint = overlapping_views(seed, skew=1.0)
    consistency = ViewConsistency(stack, np.ones(len(stack.scopes)), known(joint, *scopes))
    found = nonnegative_views(consistency, flat, rounds=1, theta=4.0, exact=True)
    check_exact(found, consistency, joint.sum())
    for fact in consistency.known:
        for scope in stack.scopes:
            shared = tuple(attribute for attribute in fact.scope if attribute in scope)
            exact = summed(fact.table, fact.scope, shared)
            assert_allclose(summed(stack.table(found.flat, scope), scope, shared), exact, atol=1e-8)


def test_values_that_a_fact_says_never_occur_are_empty_exactly():
    sizes = (2, 3, 2, 2, 4, 2)
    stack, flat, joint = overlapping_views(6, sizes=sizes, skew=1.0)
    joint[:, 2] = 0.0
    consistency = ViewConsistency(stack, np.ones(len(stack.scopes)), known(joint, (1,)))
    found = nonnegative_views(consistency, flat, rounds=1, theta=4.0, exact=True)
    check_exact(found, consistency, joint.sum())
    for scope in stack.scopes:
        if 1 in scope:
            assert stack.table(found.flat, scope).take(2, axis=scope.index(1)).max() == 0.0
    assert found.mixed < 0.01


def test_settings_that_make_no_sense_are_refused():
    stack, flat, _ = overlapping_views(0)
    consistency = ViewConsistency(stack, np.ones(len(stack.scopes)))
    with pytest.raises(DeclarationError, match="Ripple needs a number above 0"):
        without_negatives(flat, stack, method="ripple", theta=0.0)
    with pytest.raises(DeclarationError, match="choose one of none, simple, global, ripple"):
        without_negatives(flat, stack, method="clip", theta=1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DeclarationError, match="rounds is -1"):
        nonnegative_views(consistency, flat, rounds=-1, theta=1.0)
    with pytest.raises(DeclarationError, match="theta is nan"):
        nonnegative_views(consistency, flat, method="global", theta=float("nan"))

"""The nearest non-negative views: against a quadratic programme over all cells, and what must hold for any views."""

import itertools

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from consilience.kernels.simplex import project_to_simplex
from consilience.marginals.consistency import ViewConsistency
from consilience.marginals.least_squares import KnownTable
from consilience.marginals.nonnegativity import nearest_views
from consilience.marginals.table_stacks import TableStack, summed


def noisy_views(seed: int, sizes=(2, 3, 2, 2), scale=15.0):
    """Noisy views of a sparse joint table over all triples of attributes but one."""
    rng = np.random.default_rng(seed)
    joint = 400.0 * rng.dirichlet(np.full(int(np.prod(sizes)), 0.2)).reshape(sizes)
    every = tuple(range(len(sizes)))
    stack = TableStack(sizes, list(itertools.combinations(every, 3))[:3])
    flat = np.concatenate([summed(joint, every, scope).ravel() for scope in stack.scopes])
    return stack, flat + rng.laplace(scale=scale, size=stack.size), joint


def one_way(stack, flat, attribute):
    scope = next(each for each in stack.scopes if attribute in each)
    return summed(stack.table(flat, scope), scope, (attribute,))


def by_quadratic_programme(stack, flat, precisions):
    """The same problem over all cells of all views, with consistency and one-way counts as equations."""
    consistency = ViewConsistency(stack, precisions)
    agreed = consistency.consistent(flat)
    total = float(stack.table(agreed, stack.scopes[0]).sum())
    rows, sides = [], []
    for one, two in itertools.combinations(stack.scopes, 2):
        common = tuple(each for each in one if each in two)
        for cell in np.ndindex(*(stack.sizes[each] for each in common)):
            rows.append(indicator(stack, one, common, cell) - indicator(stack, two, common, cell))
            sides.append(0.0)
    for attribute in {each for scope in stack.scopes for each in scope}:
        scope = next(each for each in stack.scopes if attribute in each)
        counts = project_to_simplex(one_way(stack, agreed, attribute), total)
        for value in range(stack.sizes[attribute]):
            rows.append(indicator(stack, scope, (attribute,), (value,)))
            sides.append(counts[value])
    weights = np.concatenate(
        [np.full(stack.table(flat, scope).size, each) for scope, each in zip(stack.scopes, precisions, strict=True)]
    )
    # Over what the equations leave free, x = start + Z z.
    start = np.linalg.lstsq(np.array(rows), np.array(sides), rcond=None)[0]
    free = scipy.linalg.null_space(np.array(rows))
    found = scipy.optimize.minimize(
        lambda z: 0.5 * float(weights @ (start + free @ z - flat) ** 2),
        free.T @ (agreed - start),
        jac=lambda z: free.T @ (weights * (start + free @ z - flat)),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda z: start + free @ z, "jac": lambda _: free},
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    assert found.status in (0, 8)  # 8: rounding ends the last line search
    return start + free @ found.x, weights


def indicator(stack, scope, common, cell):
    """The row that sums the cells of one view which have these values."""
    row = np.zeros(stack.size)
    view = stack.table(row, scope)
    view[tuple(cell[common.index(each)] if each in common else slice(None) for each in scope)] = 1.0
    return row


@pytest.mark.parametrize("seed", range(3))
def test_the_views_are_those_of_a_quadratic_programme(seed: int) -> None:
    stack, flat, _ = noisy_views(seed)
    precisions = [1.0, 0.25, 4.0]
    expected, weights = by_quadratic_programme(stack, flat, precisions)
    found = nearest_views(ViewConsistency(stack, precisions), flat).flat
    distances = [float(weights @ (each - flat) ** 2) for each in (found, expected)]
    assert distances[0] <= distances[1] * (1 + 1e-3)
    assert_allclose(found, expected, atol=0.3)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 1000.0))
def test_views_come_out_consistent_and_without_negative_counts(seed: int, scale: float) -> None:
    stack, flat, _ = noisy_views(seed, scale=scale)
    consistency = ViewConsistency(stack, [1.0, 2.0, 3.0])
    found = nearest_views(consistency, flat)
    size = max(1.0, float(np.abs(flat).max()))
    assert found.flat.min() >= 0
    assert found.disagreement <= 1e-9 * size
    agreed = consistency.consistent(flat)
    total = max(float(stack.table(agreed, stack.scopes[0]).sum()), 0.0)
    assert float(stack.table(found.flat, stack.scopes[0]).sum()) == pytest.approx(total, abs=1e-9 * size)


def test_views_without_negative_counts_are_only_made_consistent() -> None:
    stack, _, joint = noisy_views(0)
    flat = np.concatenate([summed(joint + 5.0, (0, 1, 2, 3), scope).ravel() for scope in stack.scopes])
    found = nearest_views(ViewConsistency(stack, [1.0] * 3), flat)
    assert_allclose(found.flat, flat, atol=1e-9)
    assert found.rounds == 0
    assert found.mixed == 0


def test_one_way_counts_are_those_of_least_squares() -> None:
    stack, flat, _ = noisy_views(4, scale=5.0)
    consistency = ViewConsistency(stack, [1.0] * 3)
    agreed, found = consistency.consistent(flat), nearest_views(consistency, flat)
    total = float(stack.table(agreed, stack.scopes[0]).sum())
    for attribute in range(4):
        counts = project_to_simplex(one_way(stack, agreed, attribute), total)
        assert_allclose(one_way(stack, found.flat, attribute), counts, atol=1e-3 * total)


def test_facts_are_kept() -> None:
    stack, flat, joint = noisy_views(2)
    facts = [
        KnownTable((), np.array(joint.sum()), "the total"),
        KnownTable((1,), joint.sum(axis=(0, 2, 3)), "the counts of attribute 1"),
    ]
    found = nearest_views(ViewConsistency(stack, [1.0] * 3, facts), flat).flat
    assert_allclose(one_way(stack, found, 1), facts[1].table, rtol=1e-9)
    assert found.min() >= 0


def test_a_total_below_nothing_gives_nothing() -> None:
    stack, flat, _ = noisy_views(1)
    assert not nearest_views(ViewConsistency(stack, [1.0] * 3), flat - 1000.0).flat.any()


def test_the_error_is_below_that_of_ripple_on_sparse_flags() -> None:
    from consilience.marginals.nonnegativity import nonnegative_views

    sizes = (2,) * 8
    stack = TableStack(sizes, [(0, 1, 2, 3, 4), (0, 1, 5, 6, 7), (2, 3, 5, 6, 7), (2, 3, 4, 6, 7)])
    errors = {"nearest": 0.0, "ripple": 0.0}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        joint = 5000.0 * rng.dirichlet(np.full(256, 0.05)).reshape(sizes)
        exact = np.concatenate([summed(joint, tuple(range(8)), scope).ravel() for scope in stack.scopes])
        flat = exact + rng.laplace(scale=20.0, size=stack.size)
        consistency = ViewConsistency(stack, [1.0] * 4)
        errors["nearest"] += float(np.sum((nearest_views(consistency, flat).flat - exact) ** 2))
        errors["ripple"] += float(np.sum((nonnegative_views(consistency, flat, theta=6.0).flat - exact) ** 2))
    assert errors["nearest"] < errors["ripple"]

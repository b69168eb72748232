"""Marginals of any attributes from views: one by one, in batches, by each method."""

import itertools

import numpy as np
import pytest

from consilience.errors import DeclarationError
from consilience.marginals.margins import ViewReader
from consilience.marginals.reconstruction import METHODS, Method, reconstruct
from consilience.marginals.table_stacks import TableStack, summed

SIZES = (2, 2, 3, 2, 4, 2)
VIEWS = [(0, 1, 2), (2, 3, 4), (0, 4), (1, 3), (0, 3)]
TABLE = np.random.default_rng(0).gamma(0.5, 30.0, SIZES)
TOTAL = float(TABLE.sum())


def views(noise: float = 0.0) -> tuple[TableStack, np.ndarray]:
    stack = TableStack(SIZES, VIEWS)
    flat = np.empty(stack.size)
    for scope in stack.scopes:
        stack.table(flat, scope)[...] = summed(TABLE, tuple(range(6)), scope)
    return stack, flat + noise * np.random.default_rng(1).normal(size=flat.size)


TARGETS = [scope for count in range(5) for scope in itertools.combinations(range(6), count)]


@pytest.mark.parametrize("method", METHODS)
def test_targets_inside_views_are_their_sums(method: Method) -> None:
    stack, flat = views()
    for target in [(0, 1), (2, 0), (4, 2, 3), (1,), ()]:
        found = reconstruct(ViewReader(stack, flat), [target], method=method, total=TOTAL)[0]
        assert np.allclose(found.table, summed(TABLE, tuple(range(6)), target))
        assert not found.relaxed


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_batches_are_the_same_as_one_by_one(method: Method, noise: float) -> None:
    stack, flat = views(noise)
    together = reconstruct(ViewReader(stack, flat), TARGETS, method=method, total=TOTAL, threads=3)
    alone = [
        reconstruct(ViewReader(stack, flat), [target], method=method, total=TOTAL, threads=1)[0] for target in TARGETS
    ]
    for target, one, other in zip(TARGETS, together, alone, strict=True):
        assert one.table.shape == tuple(SIZES[attribute] for attribute in target)
        assert np.array_equal(one.table, other.table)
        assert one.violation == other.violation
        assert one.table.min(initial=0.0) >= 0


def test_greatest_entropy_has_the_margins_of_all_views_and_uncovered_attributes_are_even() -> None:
    stack, flat = views()
    target = (5, 4, 1, 0)
    found = reconstruct(ViewReader(stack, flat), [target], method="entropy", total=TOTAL)[0].table
    for view in VIEWS:
        shared = tuple(attribute for attribute in target if attribute in view)
        if shared:
            assert np.allclose(summed(found, target, shared), summed(TABLE, tuple(range(6)), shared), rtol=1e-7)
    assert np.allclose(found[0], found[1])


def test_the_order_of_a_target_is_the_order_of_its_axes() -> None:
    stack, flat = views()
    one, other = reconstruct(ViewReader(stack, flat), [(0, 3, 4), (4, 0, 3)], method="entropy", total=TOTAL)
    assert np.allclose(one.table.transpose(2, 0, 1), other.table, atol=1e-6 * TOTAL)


def test_an_error_in_a_batch_reaches_the_caller() -> None:
    stack, flat = views()
    with pytest.raises(DeclarationError, match="distinct"):
        reconstruct(ViewReader(stack, flat), [(0,), (1, 1), (2,)], total=TOTAL, threads=2)
    with pytest.raises(DeclarationError, match="entropy, least-squares"):
        reconstruct(ViewReader(stack, flat), [(0,)], method="guess", total=TOTAL)  # type: ignore[arg-type]
    assert reconstruct(ViewReader(stack, flat), [], total=TOTAL) == []


def test_eight_attributes_of_32_are_found_from_20_views_of_eight() -> None:
    rng = np.random.default_rng(0)
    blocks = [tuple(sorted(rng.choice(32, 8, replace=False).tolist())) for _ in range(20)]
    records = (rng.random((20_000, 32)) < rng.beta(0.5, 2.0, 32)) ^ (rng.random((20_000, 1)) < 0.1)
    stack = TableStack((2,) * 32, blocks)
    flat = np.empty(stack.size)
    weights = 2 ** np.arange(7, -1, -1)
    for scope in stack.scopes:
        stack.table(flat, scope)[...] = np.bincount(records[:, scope] @ weights, minlength=256).reshape((2,) * 8)
    targets = [tuple(sorted(rng.choice(32, 8, replace=False).tolist())) for _ in range(20)]
    found = reconstruct(ViewReader(stack, flat), targets, method="entropy", total=20_000.0, threads=1)
    assert max(each.violation for each in found) <= 1e-8 * 20_000

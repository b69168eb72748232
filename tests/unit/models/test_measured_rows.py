"""Measured rows against tables summed, turned and multiplied one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, Kronecker, LinearMap, PrefixMap, SumMap
from consilience.models.fitting.objective import MeasuredQuery, MeasuredRows
from consilience.models.model import carry_potentials
from consilience.models.tables import TableLayout

SIZES = [3, 2, 4, 2]
SCOPES = [(0, 1, 2), (3, 2), (1,), (2, 0)]
MAPS: list[type[LinearMap]] = [IdentityMap, SumMap, PrefixMap, AllRangesMap]


@st.composite
def queries(draw: st.DrawFn) -> list[MeasuredQuery]:
    found = []
    for _ in range(draw(st.integers(1, 5))):
        scope = draw(st.integers(0, len(SCOPES) - 1))
        attributes = draw(st.permutations(SCOPES[scope]))[: draw(st.integers(0, len(SCOPES[scope])))]
        kronecker = None
        if draw(st.booleans()):
            maps = tuple(draw(st.sampled_from(MAPS))(SIZES[a]) for a in attributes)  # type: ignore[call-arg]
            kronecker = Kronecker(maps)
        shape = [SIZES[a] for a in attributes] if kronecker is None else kronecker.shape_out
        weights = np.linspace(0.5, 2.0, int(np.prod(shape)))
        found.append(MeasuredQuery(scope, tuple(attributes), weights, kronecker))
    return found


def one_by_one(layout: TableLayout, query: MeasuredQuery, flat: np.ndarray) -> np.ndarray:
    table = layout.unpack(flat)[query.scope]
    scope = layout.scopes[query.scope]
    for axis in reversed(range(len(scope))):
        if scope[axis] not in query.attributes:
            table = table.sum(axis=axis)
    left = [a for a in scope if a in query.attributes]
    table = table.transpose([left.index(a) for a in query.attributes])
    if query.kronecker is not None:
        for axis, each in enumerate(query.kronecker.maps):
            table = np.moveaxis(np.tensordot(each.dense(), table, (1, axis)), 0, axis)
    return table.ravel() * query.weights


@given(found=queries(), seed=st.integers(0, 1000))
def test_rows_are_those_of_the_slow_twin(found: list[MeasuredQuery], seed: int) -> None:
    layout = TableLayout(SIZES, SCOPES)
    rows = MeasuredRows(layout, found)
    rng = np.random.default_rng(seed)
    flat, duals = rng.normal(size=layout.size), rng.normal(size=rows.size)
    answers = np.concatenate([one_by_one(layout, query, flat) for query in found])
    assert rows.apply(flat) == pytest.approx(answers)
    assert rows.apply(flat, out=np.empty(rows.size)) == pytest.approx(answers)
    assert rows.adjoint(duals, out=np.full(layout.size, np.nan)) @ flat == pytest.approx(duals @ answers)
    matrix = np.array([rows.apply(cell) for cell in np.eye(layout.size)]).T
    assert rows.apply_squared(flat) == pytest.approx(matrix**2 @ flat)
    assert rows.adjoint_squared(duals) == pytest.approx((matrix**2).T @ duals)


@given(found=queries(), seed=st.integers(0, 1000))
def test_rows_in_storage_order_are_the_same_rows(found: list[MeasuredQuery], seed: int) -> None:
    layout = TableLayout(SIZES, SCOPES)
    rows = MeasuredRows(layout, found)
    stored, where = rows.in_storage_order()
    flat = np.random.default_rng(seed).normal(size=layout.size)
    assert stored.apply(flat) == pytest.approx(rows.apply(flat)[where])
    assert sorted(where) == list(range(rows.size))


def test_marginals_of_every_scope_take_one_product() -> None:
    layout = TableLayout(SIZES, SCOPES)
    rows = MeasuredRows(
        layout,
        [
            MeasuredQuery(k, s, np.ones(len(layout.unpack(np.zeros(layout.size))[k].ravel())))
            for k, s in enumerate(SCOPES)
        ],
    )
    stored, _ = rows.in_storage_order()
    flat = np.arange(layout.size, dtype=float)
    assert np.array_equal(stored.apply(flat), flat)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (MeasuredQuery(4, (0,), np.ones(3)), "there are 4 scopes"),
        (MeasuredQuery(1, (0,), np.ones(3)), "some of the scope's attributes"),
        (MeasuredQuery(0, (0, 0), np.ones(9)), "some of the scope's attributes"),
        (MeasuredQuery(0, (0,), np.ones(2)), "3 answers and 2 weights"),
        (MeasuredQuery(0, (0,), np.array([1.0, 0.0, 1.0])), "not a positive number"),
        (MeasuredQuery(0, (0,), np.array([1.0, np.nan, 1.0])), "not a positive number"),
        (MeasuredQuery(0, (0,), np.ones(3), Kronecker((IdentityMap(2),))), "one map for each attribute"),
    ],
)
def test_queries_that_do_not_fit_are_refused(query: MeasuredQuery, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        MeasuredRows(TableLayout(SIZES, SCOPES), [query])


def test_carried_potentials_are_those_of_the_same_model() -> None:
    old = TableLayout(SIZES, [(0,), (2, 0), (3, 1)])
    new = TableLayout(SIZES, [(1, 3), (0, 1, 2), (2, 0)])
    potentials = np.random.default_rng(0).normal(size=old.size)
    carried = new.unpack(carry_potentials(old, potentials, new))
    first, second, third = old.unpack(potentials)
    # The first table's home is the smallest that holds it, which is that of the second.
    assert carried[2] == pytest.approx(second + first)
    assert carried[0] == pytest.approx(third.T)
    assert not carried[1].any()


def test_potentials_without_a_home_are_refused() -> None:
    old = TableLayout(SIZES, [(0, 1)])
    with pytest.raises(DeclarationError, match="add such a scope"):
        carry_potentials(old, np.zeros(6), TableLayout(SIZES, [(0, 2), (1,)]))
    with pytest.raises(DeclarationError, match="other sizes"):
        carry_potentials(old, np.zeros(6), TableLayout([3, 3], [(0, 1)]))

"""Loopy and convex belief propagation: exact on trees, honest on loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import DeclarationError
from consilience.models.belief_propagation import ConvexOracle, LoopyOracle, entropy
from consilience.models.junction_trees import junction_tree
from consilience.models.oracle import MarginalOracle
from consilience.models.tables import TableLayout
from consilience.solvers.fit import Status

ORACLES = [LoopyOracle, ConvexOracle]
SIZES = (3, 2, 4, 2, 3, 2)
TREES = {
    "one scope": [(2, 0)],
    "pairs": [(0, 1), (2, 1), (2, 3), (3, 4), (3, 5)],
    "triples": [(0, 1, 2), (3, 1, 2), (2, 3, 4), (3, 4, 5)],
    "nested separators": [(0, 1, 2), (1, 3, 0), (0, 4), (5, 0), (1, 0), (4,)],
    "two parts": [(0, 1), (1, 2), (3, 4)],
}
LOOPS = {
    "cycle": [(0, 1), (1, 2), (2, 3), (0, 3)],
    "all pairs": list(itertools.combinations(range(5), 2)),
    "triples": [(0, 1, 2), (1, 2, 3), (2, 3, 4), (0, 4, 5), (0, 1, 5)],
}


def joint_logarithms(sizes, scopes, tables):
    """Σ θ over all cells of the full table."""
    total = np.zeros(sizes)
    for scope, table in zip(scopes, tables, strict=True):
        shape = [size if attribute in scope else 1 for attribute, size in enumerate(sizes)]
        total = total + np.transpose(table, np.argsort(scope)).reshape(shape)
    return total


def marginals_of(joint, layout):
    """The marginals of a full table on the scopes of a layout, flat."""
    tables = []
    for scope in layout.scopes:
        others = tuple(axis for axis in range(joint.ndim) if axis not in scope)
        tables.append(joint.sum(axis=others).transpose(np.argsort(np.argsort(scope))))
    return layout.pack(tables)


def brute_force(sizes, layout, flat, impossible=None):
    logarithms = joint_logarithms(sizes, layout.scopes, layout.unpack(flat))
    if impossible is not None:
        logarithms[impossible] = -np.inf
    top = logarithms.max()
    joint = np.exp(logarithms - top)
    return marginals_of(joint / joint.sum(), layout), top + np.log(joint.sum())


@st.composite
def trees(draw):
    """Scopes that hang from each other by part of an earlier one, with fresh attributes: a junction tree."""
    scopes, fresh = [tuple(range(draw(st.integers(1, 3))))], 3
    for _ in range(draw(st.integers(0, 4))):
        above = draw(st.sampled_from(scopes))
        shared = draw(st.sets(st.sampled_from(above), max_size=len(above)))
        new = [fresh + place for place in range(draw(st.integers(1, 2)))]
        fresh += 2
        scopes.append(tuple(draw(st.permutations([*shared, *new]))))
    sizes = draw(st.lists(st.integers(1, 3), min_size=fresh, max_size=fresh))
    return tuple(sizes), scopes


@pytest.mark.parametrize("kind", ORACLES)
@given(model=trees(), spread=st.sampled_from([0.1, 3.0, 40.0]), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_on_trees_the_marginals_are_exact(kind, model, spread, seed):
    sizes, scopes = model
    oracle = kind(sizes, scopes, total=7.0)
    flat = np.random.default_rng(seed).normal(0, spread, oracle.layout.size)
    exact = MarginalOracle(junction_tree(sizes, scopes), scopes, total=7.0).marginals(flat)
    found = oracle.marginals(flat)
    assert oracle.graph.is_forest
    assert found.status is Status.CONVERGED
    assert found.disagreement < 1e-9
    np.testing.assert_allclose(found.values, exact.values, atol=1e-9)
    assert found.log_partition == pytest.approx(exact.log_partition, abs=1e-7)


@pytest.mark.parametrize("kind", ORACLES)
@pytest.mark.parametrize("name", TREES)
def test_on_trees_the_marginals_equal_brute_force(kind, name):
    oracle = kind(SIZES, TREES[name])
    flat = np.random.default_rng(3).normal(0, 2, oracle.layout.size)
    values, log_partition = brute_force(SIZES, oracle.layout, flat)
    unused = set(range(len(SIZES))) - {attribute for scope in TREES[name] for attribute in scope}
    found = oracle.marginals(flat)
    np.testing.assert_allclose(found.values, values, atol=1e-12)
    assert found.log_partition == pytest.approx(log_partition - sum(np.log(SIZES[each]) for each in unused))


@pytest.mark.parametrize("kind", ORACLES)
def test_potentials_far_apart_are_taken_as_logarithms(kind):
    scopes = TREES["triples"]
    oracle = kind(SIZES, scopes)
    flat = np.random.default_rng(4).normal(0, 400, oracle.layout.size)
    values, log_partition = brute_force(SIZES, oracle.layout, flat)
    found = oracle.marginals(flat)
    np.testing.assert_allclose(found.values, values, atol=1e-9)
    assert found.log_partition == pytest.approx(log_partition)


@pytest.mark.parametrize("kind", ORACLES)
def test_impossible_cells_stay_empty(kind):
    rng = np.random.default_rng(5)
    scopes, allowed = [(0, 1), (1, 2)], rng.random((3, 4)) < 0.6
    oracle = kind(SIZES, scopes, allowed=[((0, 2), np.ones((3, 4), dtype=bool)), ((1, 2), rng.random((2, 4)) < 0.5)])
    assert not oracle.graph.is_forest
    oracle = kind(SIZES[:3], scopes, allowed=[((2, 1), allowed[:2].T)])
    flat = rng.normal(0, 1, oracle.layout.size)
    impossible = np.broadcast_to(~allowed[:2][None], SIZES[:3])
    values, log_partition = brute_force(SIZES[:3], oracle.layout, flat, impossible)
    found = oracle.marginals(flat)
    np.testing.assert_allclose(found.values, values, atol=1e-12)
    assert found.log_partition == pytest.approx(log_partition)
    assert np.count_nonzero(oracle.layout.unpack(found.values)[1]) == np.count_nonzero(allowed[:2])


@pytest.mark.parametrize("name", TREES)
def test_on_trees_the_largest_potential_of_a_cell_is_exact(name):
    rng = np.random.default_rng(11)
    scope = TREES[name][0]
    mask = rng.random([SIZES[attribute] for attribute in scope]) < 0.5
    mask.flat[0] = True
    plain = LoopyOracle(SIZES, TREES[name])
    strict = LoopyOracle(SIZES, TREES[name], allowed=[(scope, mask)])
    for _ in range(5):
        flat = rng.normal(0, 3, plain.layout.size)
        logarithms = joint_logarithms(SIZES, TREES[name], plain.layout.unpack(flat))
        assert plain.largest(flat) == pytest.approx(logarithms.max())
        zeros = joint_logarithms(SIZES, [scope], [np.where(mask, 0.0, -np.inf)])
        assert strict.largest(flat) == pytest.approx((logarithms + zeros).max())


@pytest.mark.parametrize("name", LOOPS)
def test_on_loops_the_largest_potential_is_bounded_from_above(name):
    rng = np.random.default_rng(12)
    oracle = ConvexOracle(SIZES, LOOPS[name], max_sweeps=5_000)
    for _ in range(5):
        flat = rng.normal(0, 1, oracle.layout.size)
        bound = oracle.largest(flat)
        assert bound >= joint_logarithms(SIZES, LOOPS[name], oracle.layout.unpack(flat)).max() - 1e-9
        assert bound >= flat @ oracle.marginals(3.0 * flat).values - 1e-6
        assert bound <= sum(flat[each].max() for each in oracle.layout.slices) + 1e-9


def test_the_derivative_is_that_of_the_exact_marginals_on_trees():
    oracle, rng = LoopyOracle(SIZES, TREES["triples"], total=5.0), np.random.default_rng(13)
    flat, direction = rng.normal(0, 1, oracle.layout.size), rng.normal(0, 1, oracle.layout.size)
    ahead, behind = (brute_force(SIZES, oracle.layout, flat + step * direction)[0] for step in (1e-5, -1e-5))
    np.testing.assert_allclose(oracle.derivative(flat, direction), 5.0 * (ahead - behind) / 2e-5, atol=1e-5)


def test_cells_that_exclude_each_other_are_refused():
    first, second = np.array([True, False]), np.array([[False, False], [True, True]])
    oracle = LoopyOracle([2, 2, 2], [(0, 2), (0, 1)], allowed=[((0,), first), ((0, 1), second)])
    with pytest.raises(DeclarationError, match="exclude each other"):
        oracle.marginals(np.zeros(8))
    with pytest.raises(DeclarationError, match="no cell of the scope"):
        LoopyOracle([2], [(0,)], allowed=[((0,), np.zeros(2, dtype=bool))])


@pytest.mark.parametrize("kind", ORACLES)
@pytest.mark.parametrize("name", LOOPS)
def test_on_loops_clusters_agree_on_what_they_share(kind, name):
    oracle = kind(SIZES, LOOPS[name], total=100.0, max_sweeps=5_000)
    flat = np.random.default_rng(6).normal(0, 0.4, oracle.layout.size)
    found = oracle.marginals(flat)
    assert found.status is Status.CONVERGED
    assert found.disagreement < 1e-8
    tables = oracle.layout.unpack(found.values)
    for (one, first), (other, second) in itertools.combinations(zip(LOOPS[name], tables, strict=True), 2):
        shared = sorted(set(one) & set(other))
        margins = [np.einsum(table, list(scope), shared) for scope, table in ((one, first), (other, second))]
        np.testing.assert_allclose(margins[0], margins[1], atol=1e-5)
    values, _ = brute_force(SIZES, oracle.layout, flat)
    np.testing.assert_allclose(found.values / 100.0, values, atol=0.1)


@pytest.mark.parametrize("name", LOOPS)
def test_the_convex_value_is_at_least_that_of_every_distribution(name):
    oracle = ConvexOracle(SIZES, LOOPS[name], max_sweeps=5_000)
    rng = np.random.default_rng(7)
    flat = rng.normal(0, 1, oracle.layout.size)
    best = oracle.marginals(flat).log_partition
    regions = [
        *zip(oracle.graph.clusters, oracle.cluster_numbers, strict=True),
        *zip(oracle.graph.separators, oracle.separator_numbers, strict=True),
    ]
    logarithms = joint_logarithms(SIZES, LOOPS[name], oracle.layout.unpack(flat))
    for power in (0.0, 0.5, 0.9, 1.0, 1.1, 2.0):
        joint = np.exp(power * (logarithms - logarithms.max()))
        joint /= joint.sum()
        axes = set(range(joint.ndim))
        value = flat @ marginals_of(joint, oracle.layout)
        value += sum(number * entropy(joint.sum(axis=tuple(axes - set(region)))) for region, number in regions)
        assert value <= best + 1e-7


@pytest.mark.parametrize("name", LOOPS)
def test_the_convex_optimum_does_not_depend_on_where_messages_start(name):
    rng = np.random.default_rng(8)
    oracle = ConvexOracle(SIZES, LOOPS[name], max_sweeps=5_000)
    flat = rng.normal(0, 1, oracle.layout.size)
    cold = oracle.marginals(flat)
    oracle.marginals(rng.normal(0, 1, oracle.layout.size))
    warm = oracle.marginals(flat)
    again = oracle.marginals(flat)
    np.testing.assert_allclose(warm.values, cold.values, atol=1e-6)
    assert again.sweeps < cold.sweeps
    oracle.forget()
    np.testing.assert_array_equal(oracle.marginals(flat).values, cold.values)


def test_too_few_sweeps_are_reported():
    oracle = LoopyOracle(SIZES, LOOPS["all pairs"], max_sweeps=2)
    found = oracle.marginals(np.random.default_rng(9).normal(0, 2, oracle.layout.size))
    assert found.status is Status.STEP_LIMIT
    assert found.disagreement > 1e-3
    assert found.sweeps == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ORACLES)
def test_scopes_without_a_junction_tree_that_fits_are_no_trouble(kind):
    attributes = 40
    scopes = list(itertools.combinations(range(attributes), 2))
    oracle = kind([10] * attributes, scopes, total=1000.0)
    values = oracle.marginals(np.random.default_rng(10).normal(0, 0.01, oracle.layout.size)).values
    assert all(values[each].sum() == pytest.approx(1000.0) for each in oracle.layout.slices)


def test_what_cannot_be_is_refused():
    oracle = LoopyOracle([2, 3], [(0, 1)])
    with pytest.raises(DeclarationError, match="the layout has 6 cells"):
        oracle.marginals(np.zeros(5))
    with pytest.raises(DeclarationError, match="not finite"):
        oracle.marginals(np.full(6, np.nan))
    with pytest.raises(DeclarationError, match="damping is 1"):
        LoopyOracle([2, 3], [(0, 1)], damping=1.0)


def test_the_layout_is_that_of_the_exact_oracle():
    scopes = [(1, 0), (2, 1)]
    mine, theirs = LoopyOracle([4, 3, 2], scopes).layout, TableLayout([4, 3, 2], scopes)
    assert (mine.axes, mine.scopes, mine.size) == (theirs.axes, theirs.scopes, theirs.size)

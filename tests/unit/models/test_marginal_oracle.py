"""The marginal oracle against the joint table written out."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from consilience.errors import DeclarationError
from consilience.models import junction_trees as refinement
from consilience.models import oracle as oracle_module
from consilience.models import oracle as threads
from consilience.models.junction_trees import junction_tree, predicted_bytes
from consilience.models.oracle import MarginalOracle
from consilience.solvers.fit import Infeasible

TOTAL = 40.0


@dataclass(frozen=True)
class Model:
    sizes: list[int]
    scopes: list[tuple[int, ...]]
    potentials: list[np.ndarray]
    allowed: list[tuple[tuple[int, ...], np.ndarray]]

    def oracle(self, **options) -> MarginalOracle:
        tree = junction_tree(self.sizes, [*self.scopes, *(scope for scope, _ in self.allowed)], restarts=1)
        return MarginalOracle(tree, self.scopes, total=TOTAL, allowed=self.allowed, **options)

    def spread(self, scope, table) -> np.ndarray:
        """A table as an array over all attributes."""
        shape = [self.sizes[a] if a in scope else 1 for a in range(len(self.sizes))]
        return np.transpose(table, np.argsort(scope)).reshape(shape) if scope else np.asarray(table).reshape(shape)

    def exponents(self) -> np.ndarray:
        """Σ_s θ_s of every cell of the joint table, −∞ where it is impossible."""
        joint = np.zeros(self.sizes)
        for scope, table in zip(self.scopes, self.potentials, strict=True):
            joint = joint + self.spread(scope, table)
        for scope, table in self.allowed:
            joint = np.where(self.spread(scope, table), joint, -np.inf)
        return joint

    def marginal(self, joint: np.ndarray, scope) -> np.ndarray:
        summed = joint.sum(axis=tuple(a for a in range(len(self.sizes)) if a not in scope))
        return np.transpose(summed, [sorted(scope).index(a) for a in scope])

    def answers(self) -> tuple[list[np.ndarray], float]:
        exponents = self.exponents()
        weights = np.exp(exponents - exponents.max())
        used = {a for scope in self.scopes for a in scope} | {a for scope, _ in self.allowed for a in scope}
        unused = np.prod([self.sizes[a] for a in range(len(self.sizes)) if a not in used])
        log_partition = float(exponents.max() + np.log(weights.sum()) - np.log(unused))
        joint = weights * (TOTAL / weights.sum())
        return [self.marginal(joint, scope) for scope in self.scopes], log_partition

    def covariances(self, direction: list[np.ndarray]) -> list[np.ndarray]:
        """d/dt of the marginals along a direction: E[1_c (a − E a)] · total."""
        exponents = self.exponents()
        weights = np.exp(exponents - exponents.max())
        p = weights / weights.sum()
        a = sum((self.spread(s, t) for s, t in zip(self.scopes, direction, strict=True)), np.zeros(self.sizes))
        return [self.marginal(TOTAL * p * (a - (p * a).sum()), scope) for scope in self.scopes]


@st.composite
def models(draw, *, scale=(0.0, 1.0, 30.0), impossible=False) -> Model:
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    assume(np.prod(sizes) <= 4000)
    scope = st.lists(st.integers(0, len(sizes) - 1), max_size=3, unique=True).map(tuple)
    scopes = draw(st.lists(scope, min_size=1, max_size=8, unique_by=frozenset))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    factor = draw(st.sampled_from(scale))
    potentials = [np.array(factor * rng.normal(size=[sizes[a] for a in own])) for own in scopes]
    allowed = []
    if impossible:
        masked = draw(st.lists(scope, min_size=1, max_size=2))
        allowed = [(own, np.asarray(rng.random([sizes[a] for a in own]) < 0.8)) for own in masked]
    return Model(sizes, scopes, potentials, allowed)


def assert_answers(model: Model, oracle: MarginalOracle, *, tolerance: float = 1e-9) -> None:
    found = oracle.marginals(oracle.layout.pack(model.potentials))
    expected, log_partition = model.answers()
    for own, table in zip(oracle.layout.unpack(found.values), expected, strict=True):
        np.testing.assert_allclose(own, table, rtol=0, atol=tolerance * TOTAL)
    assert found.log_partition == pytest.approx(log_partition, rel=1e-12, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(models())
def test_marginals_equal_those_of_the_joint_table(model) -> None:
    assert_answers(model, model.oracle())


@settings(max_examples=40, deadline=None)
@given(models(impossible=True))
def test_impossible_cells_get_nothing(model) -> None:
    if np.isneginf(model.exponents()).all():
        with pytest.raises(Infeasible, match="no cell of the model is possible"):
            model.oracle()
        return
    oracle = model.oracle()
    assert_answers(model, oracle)
    values = oracle.layout.unpack(oracle.marginals(oracle.layout.pack(model.potentials)).values)
    possible = np.isfinite(model.exponents())
    for scope, table in zip(model.scopes, values, strict=True):
        assert (table[~(model.marginal(possible.astype(float), scope) > 0)] == 0.0).all()


@settings(max_examples=40, deadline=None)
@given(models(scale=(300.0, 1e4)), st.booleans())
def test_extreme_potentials_are_no_different(model, excluding) -> None:
    if excluding:
        for table in model.potentials:
            table[np.random.default_rng(0).random(table.shape) < 0.2] = -np.inf
    assume(np.isfinite(model.exponents()).any())
    assert_answers(model, model.oracle(), tolerance=1e-9)


@settings(max_examples=40, deadline=None)
@given(models(impossible=True, scale=(1.0, 100.0, 1e4)))
def test_the_largest_exponent_is_exact(model) -> None:
    largest = model.exponents().max()
    assume(np.isfinite(largest))
    oracle = model.oracle()
    assert oracle.largest(oracle.layout.pack(model.potentials)) == pytest.approx(largest, rel=1e-13, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(models(impossible=True, scale=(1.0, 30.0, 1e3)))
def test_derivatives_equal_covariances_with_the_direction(model) -> None:
    assume(np.isfinite(model.exponents()).any())
    rng = np.random.default_rng(1)
    oracle = model.oracle()
    for _ in range(2):
        direction = [np.array(rng.normal(size=table.shape)) for table in model.potentials]
        found = oracle.derivative(oracle.layout.pack(model.potentials), oracle.layout.pack(direction))
        for own, expected in zip(oracle.layout.unpack(found), model.covariances(direction), strict=True):
            np.testing.assert_allclose(own, expected, rtol=0, atol=1e-9 * TOTAL)


def chain(length: int, size: int, *, scale: float, seed: int = 0) -> Model:
    rng = np.random.default_rng(seed)
    scopes = [(i, i + 1, i + 2) for i in range(length - 2)]
    return Model([size] * length, scopes, [scale * rng.normal(size=(size,) * 3) for _ in scopes], [])


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_numbers_and_logarithms_agree(scale) -> None:
    model = chain(12, 5, scale=scale)
    oracle = model.oracle()
    potentials = oracle.layout.pack(model.potentials)
    by_numbers = oracle.marginals(potentials)
    assert not oracle._logarithmic
    oracle._run_logarithms(potentials, only_largest=False)
    np.testing.assert_allclose(oracle._coming_out[: potentials.size], by_numbers.values, rtol=1e-11, atol=1e-200)
    assert oracle._log_scales() == pytest.approx(by_numbers.log_partition, rel=1e-13)


def test_logarithms_take_over_where_tables_cancel() -> None:
    # Two tables that differ by 2000 on opposite values cancel: the model is uniform, and exp(−2000) is zero.
    model = Model([2, 2, 3], [(0, 1), (1, 2)], [np.array([[0, -2e3]] * 2), np.array([[-2e3] * 3, [0] * 3])], [])
    oracle = model.oracle()
    found = oracle.marginals(oracle.layout.pack(model.potentials))
    assert oracle._logarithmic
    np.testing.assert_allclose(oracle.layout.unpack(found.values)[1], TOTAL / 6, rtol=1e-12)


def test_mass_on_raised_entries_is_noticed() -> None:
    # The message from (0, 1) has an entry of exp(−690), raised to the floor. Each of the next two tables ties its
    # attributes together and takes exp(−218) from the other value: together they would bring the raised entry back.
    tied = np.array([[-218.0, -2e3], [-2e3, 0.0]])
    tables = [np.array([[0, -690.0]] * 2), tied, np.hstack([tied, np.full((2, 1), -2e3)])]
    model = Model([2, 2, 2, 3], [(0, 1), (1, 2), (2, 3)], tables, [])
    oracle = model.oracle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle_module, "MOST_RAISED", np.inf)
        found = oracle.marginals(oracle.layout.pack(model.potentials)).values
        assert not oracle._logarithmic
        assert abs(oracle.layout.unpack(found)[0] - model.answers()[0][0]).max() > 0.4 * TOTAL
    assert_answers(model, oracle, tolerance=1e-12)
    assert oracle._logarithmic


def test_potentials_of_minus_infinity_come_and_go() -> None:
    model = chain(5, 3, scale=1.0)
    oracle = model.oracle()
    without = oracle.marginals(oracle.layout.pack(model.potentials)).values
    excluding = Model(model.sizes, model.scopes, [table.copy() for table in model.potentials], [])
    excluding.potentials[1][0] = -np.inf
    assert_answers(excluding, oracle)
    assert not oracle._logarithmic
    np.testing.assert_array_equal(oracle.marginals(oracle.layout.pack(model.potentials)).values, without)


def test_a_long_chain_keeps_its_total() -> None:
    oracle = (model := chain(1000, 3, scale=3.0)).oracle()
    found = oracle.marginals(oracle.layout.pack(model.potentials))
    sums = [table.sum() for table in oracle.layout.unpack(found.values)]
    np.testing.assert_allclose(sums, TOTAL, rtol=1e-10)
    assert np.isfinite(found.log_partition)


def test_results_belong_to_the_caller() -> None:
    oracle = (model := chain(4, 2, scale=1.0)).oracle()
    first = oracle.marginals(oracle.layout.pack(model.potentials)).values
    kept = first.copy()
    oracle.marginals(np.zeros(oracle.layout.size))
    np.testing.assert_array_equal(first, kept)


@settings(max_examples=40, deadline=None)
@given(models(impossible=True))
def test_large_steps_in_parts_give_the_same(model) -> None:
    assume(np.isfinite(model.exponents()).any())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "CELLS_WORTH_DIVIDING", 4)
        oracle = model.oracle(threads=3)
    for _ in range(2):
        assert_answers(model, oracle)


@settings(max_examples=40, deadline=None)
@given(models())
def test_tables_multiplied_in_groups_give_the_same(model) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refinement, "REFINEMENT", replace(refinement.REFINEMENT, step_cost=-100, smaller_by=1.5))
        patch.setattr(refinement._Work, "saved", lambda work, a, b: int(work.count(a.bits | b.bits) < work.own_cells))
        oracle = model.oracle()
        direction = [np.ones_like(table) * np.arange(table.size).reshape(table.shape) for table in model.potentials]
    assert_answers(model, oracle)
    potentials = oracle.layout.pack(model.potentials)
    assert oracle.largest(potentials) == pytest.approx(model.exponents().max(), rel=1e-12, abs=1e-12)
    changes = oracle.layout.unpack(oracle.derivative(potentials, oracle.layout.pack(direction)))
    for own, expected in zip(changes, model.covariances(direction), strict=True):
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-7 * TOTAL)


def test_many_tables_in_a_clique_are_grouped() -> None:
    pairs = [(i, j) for j in range(10) for i in range(j)]
    tree = junction_tree([3] * 10, pairs)
    nodes = refinement.refined(tree, pairs)
    assert len(tree.cliques) == 1
    assert len(nodes) > 1
    assert sorted(k for node in nodes for k in node.tables) == list(range(len(pairs)))
    assert sum(3 ** len(node.separator) for node in nodes) < tree.cells


@pytest.mark.parametrize(
    ("sizes", "scopes"),
    [
        ([10] * 60, [(i, i + 1, i + 2) for i in range(58)]),
        ([40] + [30] * 40, [(0, j) for j in range(1, 41)]),
        ([12] * 5, [(i, (i + 1) % 5, (i + 2) % 5) for i in range(5)]),
    ],
)
def test_an_oracle_holds_tables_and_messages_and_no_cliques(sizes, scopes) -> None:
    tree = junction_tree(sizes, scopes)
    oracle = MarginalOracle(tree, scopes)
    values = oracle.marginals(np.zeros(oracle.layout.size)).values
    held = [value for value in vars(oracle).values() if isinstance(value, np.ndarray)]
    held += [value for value in oracle._program if isinstance(value, np.ndarray)]
    tables = sum(math.prod(tree.sizes[axis] for axis in scope) for scope in scopes)
    messages = sum(math.prod(tree.sizes[axis] for axis in node.separator) for node in refinement.refined(tree, scopes))
    assert sum(array.nbytes for array in [*held, values]) == pytest.approx(8 * (3 * tables + 5 * messages), rel=0.2)


def test_cliques_take_no_memory() -> None:
    scopes = [(i, j) for j in range(6) for i in range(j)]
    tree = junction_tree([40] * 6, scopes)
    assert tree.cells == 40**6
    assert predicted_bytes(tree, scopes, 24_000, optimal=True) < tree.cells / 100


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_potentials_that_are_no_numbers_are_refused(wrong) -> None:
    oracle = chain(4, 2, scale=1.0).oracle()
    potentials = np.zeros(oracle.layout.size)
    potentials[3] = wrong
    for call in (oracle.marginals, oracle.largest):
        with pytest.raises(DeclarationError, match="first at place 3"):
            call(potentials)


def test_other_mistakes_are_refused() -> None:
    tree = junction_tree([2, 2, 2], [(0, 1), (1, 2)])
    oracle = MarginalOracle(tree, [(0, 1)])
    with pytest.raises(DeclarationError, match="4 cells in all"):
        oracle.marginals(np.zeros(5))
    with pytest.raises(DeclarationError, match="direction"):
        oracle.derivative(np.zeros(4), np.full(4, np.inf))
    with pytest.raises(DeclarationError, match=r"no clique .* holds the scope"):
        MarginalOracle(tree, [(0, 2)])
    with pytest.raises(DeclarationError, match="same attributes"):
        MarginalOracle(tree, [(0, 1), (1, 0)])
    with pytest.raises(DeclarationError, match="total"):
        MarginalOracle(tree, [(0, 1)], total=0.0)
    with pytest.raises(DeclarationError, match="truth values"):
        MarginalOracle(tree, [(0, 1)], allowed=[((0,), np.ones(2))])
    with pytest.raises(Infeasible):
        MarginalOracle(tree, [(0, 1)], allowed=[((0,), np.zeros(2, dtype=bool))])
    with pytest.raises(Infeasible):
        oracle.largest(np.full(4, -np.inf))

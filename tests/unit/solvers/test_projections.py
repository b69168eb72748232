"""Every set against a slow twin that knows it as inequalities only, and against points that are known to lie inside."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import nnls

from consilience.errors import DeclarationError, TooLarge
from consilience.solvers.fit import Infeasible
from consilience.solvers.projections import affine
from consilience.solvers.projections.affine import Affine
from consilience.solvers.projections.cells import (
    Box,
    ConvexSet,
    Isotonic,
    NonNegative,
    Projection,
    Simplex,
    SupportedSet,
    Zeros,
    as_convex_sets,
)
from consilience.solvers.projections.sums import MarginalsEqual, TreeConsistency

RNG = np.random.default_rng(20150807)


def nearest(conditions: np.ndarray, limits: np.ndarray, point: np.ndarray) -> np.ndarray:
    """The point nearest to `point` with conditions · x ≥ limits: least distance programming (Lawson, Hanson)."""
    flat = point.ravel()
    shifted = limits - conditions @ flat
    system = np.vstack([conditions.T, shifted])
    target = np.zeros(flat.size + 1)
    target[-1] = 1.0
    shares, _ = nnls(system, target, maxiter=100_000)
    residual = system @ shares - target
    return (flat - residual[:-1] / residual[-1]).reshape(point.shape)


def equal_to(matrix: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equations as pairs of inequalities."""
    return np.vstack([matrix, -matrix]), np.concatenate([values, -values])


def marginal_matrix(shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """Row by row which cells a marginal sums, its cells in the order of `axes`."""
    rows = []
    for values in itertools.product(*(range(shape[axis]) for axis in axes)):
        cells = np.zeros(shape)
        index: list = [slice(None)] * len(shape)
        for axis, value in zip(axes, values, strict=True):
            index[axis] = value
        cells[tuple(index)] = 1
        rows.append(cells.ravel())
    return np.array(rows)


def tree_matrix(parent: list[int]) -> np.ndarray:
    rows = []
    for node in range(len(parent)):
        if node in parent:
            row = -np.array([float(above == node) for above in parent])
            row[node] = 1
            rows.append(row)
    return np.array(rows).reshape(-1, len(parent))


def tree_point(parent: list[int], rng: np.random.Generator) -> np.ndarray:
    values = rng.normal(0, 5, len(parent))

    def value(node: int) -> float:
        children = [child for child, above in enumerate(parent) if above == node]
        return sum(map(value, children)) if children else float(values[node])

    return np.array([value(node) for node in range(len(parent))])


@dataclass
class Case:
    """A set, the same set as inequalities, and a way to points inside that uses neither."""

    name: str
    of: ConvexSet
    shape: tuple[int, ...]
    conditions: tuple[np.ndarray, np.ndarray]
    inside: Callable[[np.random.Generator], np.ndarray] = field(repr=False)


def case_of_tree(name: str, tree: object, parent: list[int]) -> Case:
    matrix = tree_matrix(parent)
    conditions = equal_to(matrix, np.zeros(len(matrix)))
    return Case(name, TreeConsistency(tree), (len(parent),), conditions, lambda rng: tree_point(parent, rng))


def case_of_marginals(name: str, shape: tuple[int, ...], wanted: list[tuple[int, ...]]) -> Case:
    table = RNG.poisson(4, shape).astype(float)
    known = {axes: (marginal_matrix(shape, axes) @ table.ravel()).reshape([shape[a] for a in axes]) for axes in wanted}
    matrix = np.vstack([marginal_matrix(shape, axes) for axes in wanted])
    null = np.eye(table.size) - np.linalg.pinv(matrix) @ matrix

    def inside(rng: np.random.Generator) -> np.ndarray:
        return table + (null @ rng.normal(0, 5, table.size)).reshape(shape)

    return Case(name, MarginalsEqual(shape, known), shape, equal_to(matrix, matrix @ table.ravel()), inside)


def case_of_affine(name: str, matrix: np.ndarray, *, sparse: bool = False) -> Case:
    cells = matrix.shape[1]
    middle = RNG.normal(0, 3, cells)
    null = np.eye(cells) - np.linalg.pinv(matrix) @ matrix
    values = matrix @ middle
    of = Affine(sp.csr_array(matrix) if sparse else matrix, values)
    return Case(name, of, (cells,), equal_to(matrix, values), lambda rng: middle + null @ rng.normal(0, 5, cells))


def case_of_order(name: str, of: Isotonic, size: int, pairs: list[tuple[int, int]], inside: Callable) -> Case:
    conditions = np.zeros((len(pairs), size))
    for row, (small, large) in enumerate(pairs):
        conditions[row, small], conditions[row, large] = -1, 1
    return Case(name, of, (size,), (conditions, np.zeros(len(pairs))), inside)


def rising(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.cumsum(rng.exponential(1, size)) - 3 * rng.random()


GRID_CHAINS = [[0, 1, 2], [3, 4, 5], [0, 3], [1, 4], [2, 5]]
RANK_TWO = np.array([[1.0, 1, 1, 1], [2, 2, 2, 2], [0, 1, 0, -1], [1, 2, 1, 0], [0, 0, 0, 0]])
MASK = np.array([True, False, False, True])

CASES = [
    Case("orthant", NonNegative(), (5,), (np.eye(5), np.zeros(5)), lambda rng: rng.exponential(3, 5)),
    Case(
        "box",
        Box([-1.0, 0.0, 2.0], [1.0, 4.0, 2.0]),
        (3,),
        (np.vstack([np.eye(3), -np.eye(3)]), np.array([-1.0, 0, 2, -1, -4, -2])),
        lambda rng: rng.uniform([-1, 0, 2], [1, 4, 2]),
    ),
    Case(
        "half-open box",
        Box(1.0, np.inf),
        (3,),
        (np.eye(3), np.ones(3)),
        lambda rng: 1 + rng.exponential(2, 3),
    ),
    Case(
        "structural zeros",
        Zeros(MASK),
        (4,),
        equal_to(np.eye(4)[MASK], np.zeros(2)),
        lambda rng: np.where(MASK, 0.0, rng.normal(0, 3, 4)),
    ),
    Case(
        "simplex",
        Simplex(7.5),
        (4,),
        (np.vstack([np.eye(4), np.ones(4), -np.ones(4)]), np.array([0, 0, 0, 0, 7.5, -7.5])),
        lambda rng: 7.5 * rng.dirichlet(np.ones(4)),
    ),
    case_of_affine("one equation", np.array([[1.0, 2.0, -1.0]])),
    case_of_affine("dependent equations", RANK_TWO),
    case_of_affine("dependent sparse equations", RANK_TWO, sparse=True),
    case_of_affine("as many equations as cells", RNG.normal(size=(3, 3))),
    case_of_tree("binary tree", 2, [-1, 0, 0, 1, 1, 2, 2]),
    case_of_tree("path as a tree of branching 1", 1, [-1, 0, 1, 2]),
    case_of_tree("star", [-1, 0, 0, 0, 0, 0], [-1, 0, 0, 0, 0, 0]),
    case_of_tree("uneven forest, children first", [2, 2, 5, 5, -1, -1, 4, 4], [2, 2, 5, 5, -1, -1, 4, 4]),
    case_of_marginals("total", (3, 2), [()]),
    case_of_marginals("one-way marginals", (3, 2, 2), [(0,), (1,), (2,)]),
    case_of_marginals("nested marginals, axes in any order", (2, 3, 2), [(2, 0), (1,), (0,), (1, 2), ()]),
    case_of_marginals("all two-way marginals", (3, 2, 2), [(0, 1), (0, 2), (1, 2)]),
    case_of_marginals("the whole table", (2, 2), [(0, 1)]),
    case_of_order("isotonic", Isotonic(), 6, [(i, i + 1) for i in range(5)], lambda rng: rising(rng, 6)),
    case_of_order(
        "decreasing",
        Isotonic(decreasing=True),
        5,
        [(i + 1, i) for i in range(4)],
        lambda rng: -rising(rng, 5),
    ),
    case_of_order(
        "separate chains",
        Isotonic([[4, 0, 2], [1, 5]]),
        6,
        [(4, 0), (0, 2), (1, 5)],
        lambda rng: rising(rng, 6)[[1, 0, 4, 3, 0, 5]],
    ),
    case_of_order(
        "rows and columns of a grid",
        Isotonic(GRID_CHAINS),
        6,
        [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)],
        lambda rng: rising(rng, 6),
    ),
]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@every_case
def test_projection_equals_the_slow_twin(case: Case) -> None:
    for _ in range(5):
        point = RNG.normal(0, 6, case.shape)
        assert_allclose(case.of.project(point), nearest(*case.conditions, point), atol=1e-7)


@every_case
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_point_of_the_set_is_nearer(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    point, other = rng.normal(0, 10, case.shape), case.inside(rng).reshape(case.shape)
    found = case.of.project(point)
    assert case.of.violation(found) <= 1e-9
    assert case.of.violation(other) <= 1e-9
    assert np.linalg.norm(point - found) <= np.linalg.norm(point - other) + 1e-9
    assert np.vdot(point - found, other - found) <= 1e-7


@every_case
def test_projection_is_idempotent_and_keeps_what_it_was_given(case: Case) -> None:
    point = RNG.normal(0, 6, case.shape)
    kept = point.copy()
    found = case.of.project(point)
    assert_allclose(case.of.project(found), found, atol=1e-10)
    assert np.array_equal(point, kept)


@every_case
def test_violation_is_zero_inside_and_positive_outside(case: Case) -> None:
    inside = case.inside(np.random.default_rng(3)).reshape(case.shape)
    conditions, limits = case.conditions
    for point in [inside, inside + RNG.normal(0, 1, case.shape)]:
        broken = max((limits - conditions @ point.ravel()).max(), 0.0)
        assert_allclose(case.of.violation(point), broken, atol=1e-10)


@every_case
def test_support_is_reached_at_a_projection_and_exceeded_nowhere(case: Case) -> None:
    assert isinstance(case.of, SupportedSet)
    point = RNG.normal(0, 6, case.shape)
    found = case.of.project(point)
    direction = point - found
    assert_allclose(case.of.support(direction), np.vdot(direction, found), atol=1e-7)
    rng = np.random.default_rng(5)
    anywhere = rng.normal(size=case.shape)
    for _ in range(20):
        assert np.vdot(anywhere, case.inside(rng).reshape(case.shape)) <= case.of.support(anywhere) + 1e-9


@pytest.mark.parametrize("case", [case for case in CASES if hasattr(case.of, "polar")], ids=lambda case: case.name)
def test_polar_directions_have_finite_support_and_are_nearest(case: Case) -> None:
    polar, support = case.of.polar, case.of.support  # type: ignore[attr-defined]
    direction = RNG.normal(size=case.shape)
    found = polar(direction)
    assert np.isfinite(support(found))
    assert_allclose(polar(found), found, atol=1e-9)
    for _ in range(20):
        point = RNG.normal(0, 3, case.shape)
        other = point - case.of.project(point)
        assert np.linalg.norm(direction - found) <= np.linalg.norm(direction - other) + 1e-9


@every_case
def test_flat_cells_are_projected_like_shaped_ones(case: Case) -> None:
    point = RNG.normal(0, 6, case.shape)
    assert_allclose(case.of.project(point.ravel()), case.of.project(point).ravel())


def test_directions_out_of_a_subspace_have_infinite_support() -> None:
    assert Affine([[1.0, 1.0]], [3.0]).support(np.array([1.0, 0.0])) == np.inf
    assert Affine([[1.0, 1.0]], [3.0]).support(np.array([2.0, 2.0])) == pytest.approx(6.0)
    assert TreeConsistency(2).support(np.array([1.0, 0.0, 0.0])) == np.inf
    assert MarginalsEqual((2, 2), {(): 3.0}).support(np.array([[1.0, 0.0], [0.0, 0.0]])) == np.inf
    assert NonNegative().support(np.array([-1.0, 1e-3])) == np.inf
    assert Box(-np.inf, 2.0).support(np.array([-1.0, 1.0])) == np.inf


def test_sparse_equations_agree_with_dense_ones_however_many_depend_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affine, "SETTINGS", replace(affine.SETTINGS, dense_cells=0))
    rng = np.random.default_rng(11)
    matrix = sp.random_array((60, 150), density=0.03, rng=rng, format="csr")
    matrix = sp.csr_array(sp.vstack([matrix, matrix[:20] + matrix[20:40], sp.csr_array((2, 150))]))
    point = rng.normal(0, 5, 150)
    values = matrix @ rng.normal(0, 5, 150)
    by_rows = Affine(matrix, values)
    assert_allclose(by_rows.project(point), Affine(matrix.toarray(), values).project(point), atol=1e-8)
    assert by_rows.violation(by_rows.project(point)) <= 1e-10
    expected = np.linalg.lstsq(matrix.toarray(), values - matrix @ point, rcond=None)[0]
    assert_allclose(by_rows.project(point) - point, expected, atol=1e-8)


@pytest.mark.parametrize("sparse", [False, True])
def test_contradicting_equations_are_refused_with_their_rows_and_least_violation(sparse: bool) -> None:
    matrix = np.zeros((4, 80_000 if sparse else 3))
    matrix[0, :2], matrix[1, :2], matrix[2, 2], matrix[3, 1] = 1, 1, 1, 1
    with pytest.raises(Infeasible, match="rows 0, 1") as refused:
        Affine(sp.csr_array(matrix) if sparse else matrix, [3.0, 5.0, 1.0, 1.0])
    assert refused.value.violation == pytest.approx(1.0)
    assert refused.value.constraints == ("Affine (rows 0, 1)",)


def test_an_equation_without_cells_must_read_zero() -> None:
    assert Affine([[0.0, 0.0]], [0.0]).project(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]
    with pytest.raises(Infeasible):
        Affine([[0.0, 0.0]], [1.0])


def test_contradicting_marginals_are_refused_with_the_least_squares_violation() -> None:
    rows, columns = np.array([3.0, 1.0, 1.0]), np.array([5.0, 1.0])
    matrix = np.vstack([marginal_matrix((3, 2), (0,)), marginal_matrix((3, 2), (1,)), marginal_matrix((3, 2), ())])
    wanted = np.concatenate([rows, columns, [5.0]])
    missed = np.abs(matrix @ np.linalg.lstsq(matrix, wanted, rcond=None)[0] - wanted)
    with pytest.raises(Infeasible, match="contradict") as refused:
        MarginalsEqual((3, 2), {(0,): rows, (1,): columns, (): 5.0})
    assert refused.value.violation == pytest.approx(missed.max(), abs=1e-9)
    assert refused.value.constraints == ("MarginalsEqual (0,)", "MarginalsEqual (1,)", "MarginalsEqual ()")


def test_marginals_that_agree_to_rounding_are_accepted() -> None:
    table = RNG.random((4, 5)) / 3
    known = MarginalsEqual((4, 5), {(0,): table.sum(1), (1,): table.sum(0), (): sum(table.ravel().tolist())})
    assert known.violation(known.project(np.zeros((4, 5)))) <= 1e-13


def test_marginals_of_many_attributes_need_no_matrix() -> None:
    shape = (2,) * 14
    table = RNG.poisson(1, shape).astype(float)
    pairs = list(itertools.combinations(range(14), 2))
    known = MarginalsEqual(shape, {pair: table.sum(tuple(set(range(14)) - set(pair))) for pair in pairs})
    point = RNG.normal(0, 3, shape)
    found = known.project(point)
    assert known.violation(found) <= 1e-8
    assert abs(np.vdot(point - found, found - table)) <= 1e-10 * np.linalg.norm(point) * np.linalg.norm(table)


def test_trees_of_a_hundred_thousand_nodes_in_a_row_or_around_one_are_projected() -> None:
    size = 100_000
    path = TreeConsistency(np.arange(size) - 1)
    values = RNG.normal(0, 1, size)
    assert_allclose(path.project(values), np.full(size, values.mean()), atol=1e-9)
    star = TreeConsistency(np.where(np.arange(size) == 0, -1, 0))
    found = star.project(values)
    assert found[0] == pytest.approx(found[1:].sum(), abs=1e-8)
    assert_allclose(found[1:] - values[1:], (values[0] - values[1:].sum()) / size, atol=1e-9)


@pytest.mark.parametrize(
    ("of", "cells"),
    [
        (NonNegative(), 0),
        (Box(0, 1), 0),
        (Zeros(np.zeros(0, bool)), 0),
        (Simplex(0.0), 0),
        (Affine(np.zeros((0, 0)), []), 0),
        (Affine(np.zeros((0, 3)), []), 3),
        (TreeConsistency(3), 0),
        (TreeConsistency([]), 0),
        (MarginalsEqual((0, 2), {(): 0.0}), 0),
        (MarginalsEqual((2,), {}), 2),
        (Isotonic(), 0),
        (Isotonic([]), 2),
        (Isotonic([[], [1]]), 2),
    ],
)
def test_sets_that_ask_nothing_change_nothing(of: ConvexSet, cells: int) -> None:
    point = np.arange(1.0, cells + 1)
    assert of.project(point).tolist() == point.tolist()
    assert of.violation(point) == 0


def test_single_cells() -> None:
    one = np.array([-3.0])
    assert Simplex(2.0).project(one).tolist() == [2.0]
    assert TreeConsistency(4).project(one).tolist() == [-3.0]
    assert Isotonic().project(one).tolist() == [-3.0]
    assert MarginalsEqual((1,), {(): 7.0}).project(one).tolist() == [7.0]
    assert MarginalsEqual((), {(): 7.0}).project(np.array(1.0)).tolist() == 7.0


def test_totals_over_no_cells_must_be_zero() -> None:
    with pytest.raises(Infeasible):
        Simplex(1.0).project(np.zeros(0))
    with pytest.raises(Infeasible):
        MarginalsEqual((0, 2), {(): 3.0})


def test_simplex_projection_survives_huge_offsets() -> None:
    found = Simplex(1.0).project(np.array([1e15, 1e15 - 1, 0.0]))
    assert found.sum() == pytest.approx(1.0)
    assert found[2] == 0


def test_factors_that_would_not_fit_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affine, "SETTINGS", replace(affine.SETTINGS, largest_factor=10_000))
    with pytest.raises(TooLarge, match="20 equations over 100 cells"):
        Affine(np.ones((20, 100)), np.full(20, 1.0))
    with pytest.raises(TooLarge, match="1,000 equations over 5,000 cells"):
        Affine(sp.csr_array(np.eye(1000, 5000)), np.zeros(1000))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Box(2, 1), "is empty"),
        (lambda: Box(np.inf, np.inf), "is empty"),
        (lambda: Box(np.nan, 1), "not a number"),
        (lambda: Simplex(-1.0), "cannot sum"),
        (lambda: Simplex(np.inf), "finite total"),
        (lambda: Zeros([0, 1]), "Boolean"),
        (lambda: Zeros([True]).project(np.zeros(3)), "shape"),
        (lambda: Box([1, 2], 3).project(np.zeros(3)), "shape"),
        (lambda: Affine([[1, 2]], [1, 2]), "one row for each value"),
        (lambda: Affine([[np.nan]], [1]), "finite"),
        (lambda: Affine([[1, 2]], [1]).project(np.zeros(3)), "over 2 cells and was given 3"),
        (lambda: TreeConsistency(0), "branching"),
        (lambda: TreeConsistency(2).project(np.zeros(6)), "3 or 7 nodes"),
        (lambda: TreeConsistency([0.5]), "an integer each"),
        (lambda: TreeConsistency([-1, 7]), "parent of node 1 is 7"),
        (lambda: TreeConsistency([1, 0]), "circle"),
        (lambda: TreeConsistency([-1, 0]).project(np.zeros(3)), "over 2 cells and was given 3"),
        (lambda: MarginalsEqual((2, 2), {(0, 0): np.zeros((2, 2))}), "once"),
        (lambda: MarginalsEqual((2, 2), {(2,): [1, 1]}), "from 0 to 1"),
        (lambda: MarginalsEqual((2, 2), {(0,): [1, 1, 1]}), "shape"),
        (lambda: MarginalsEqual((2, 2), {(0,): [1, np.inf]}), "finite"),
        (lambda: MarginalsEqual((2, 2), {(0, 1): np.ones((2, 2)), (1, 0): np.eye(2) + 1}), "twice"),
        (lambda: MarginalsEqual((2, 2), {}).project(np.zeros(3)), "over 4 cells and was given 3"),
        (lambda: Isotonic([[0, 0]]), "twice"),
        (lambda: Isotonic([[-1, 0]]), "negative"),
        (lambda: Isotonic([[0, 5]]).project(np.zeros(3)), "cell 5 and there are 3"),
        (lambda: Projection(lambda x: x[:1], "cut").project(np.zeros(3)), "'cut'"),
        (lambda: Projection(lambda x: x * np.nan).project(np.ones(3)), "finite"),
        (lambda: as_convex_sets(3), "not a int"),
        (lambda: as_convex_sets(["non-negative"]), "str is neither"),
    ],
)
def test_mistakes_are_refused_with_both_sides_named(make: Callable, text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        make()


def test_functions_and_foreign_classes_are_taken_as_sets() -> None:
    class Even:
        name = "even"

        def project(self, point: np.ndarray) -> np.ndarray:
            return np.full_like(point, point.mean())

        def violation(self, point: np.ndarray) -> float:
            return float(np.ptp(point))

    def clipped(point: np.ndarray) -> np.ndarray:
        return np.maximum(point, 0)

    named = as_convex_sets([Even(), clipped, NonNegative()])
    assert [each.name for each in named] == ["even", "clipped", "NonNegative"]
    assert as_convex_sets(clipped)[0].violation(np.array([-2.0, 1.0])) == 2.0
    assert as_convex_sets(NonNegative()) == (NonNegative(),)

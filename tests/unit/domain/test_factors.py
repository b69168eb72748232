"""Every factor's matrix, its row labels and its JSON are what its definition says."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.attributes import Hierarchy
from consilience.domain.declarations import Declaration
from consilience.domain.factors import FACTORS, Factor, factor_from_json
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import AllRangesMap

AGE = Attribute.numeric("age", [0, 10, 20, 30], missing="Unknown")
LENGTH = Attribute.numeric("length", [0.0, 0.5, 1.0, 2.0], unlisted="drop")
SEX = Attribute.categorical("sex", ["F", "M"])
PLACE = Attribute.hierarchy(
    "place",
    {"Bern": "Switzerland", "Basel": "Switzerland", "Lyon": "France", "Switzerland": "Europe", "France": "Europe"},
    levels=["continent", "country", "town"],
    missing="Nowhere",
)
SINGLE = Attribute.categorical("one", ["only"])
COUNTED = (AGE, LENGTH, SEX, PLACE, SINGLE)

TABLE: list[tuple[Factor, Attribute, list[list[float]], Sequence[str]]] = [
    (factors.Identity(), SEX, [[1, 0], [0, 1]], ["F", "M"]),
    (factors.Total(), AGE, [[1, 1, 1, 1]], ["all"]),
    (factors.Value("M"), SEX, [[0, 1]], ["M"]),
    (factors.Value("10..19"), AGE, [[0, 1, 0, 0]], ["10..19"]),
    (factors.Value("10..29"), AGE, [[0, 1, 1, 0]], ["10..29"]),
    (factors.Value("Unknown"), AGE, [[0, 0, 0, 1]], ["Unknown"]),
    (factors.Value("Switzerland"), PLACE, [[1, 1, 0, 0]], ["Switzerland"]),
    (factors.Value("Europe"), PLACE, [[1, 1, 1, 0]], ["Europe"]),
    (factors.Subset(("Bern", "Lyon")), PLACE, [[1, 0, 1, 0]], ["Bern|Lyon"]),
    (factors.Subset(("Bern", "Switzerland")), PLACE, [[1, 1, 0, 0]], ["Bern|Switzerland"]),
    (factors.Subset(("0..9", "20..")), AGE, [[1, 0, 1, 0]], ["0..9|20.."]),
    (factors.Range("10", "29"), AGE, [[0, 1, 1, 0]], ["10..29"]),
    (factors.Range(None, "19"), AGE, [[1, 1, 0, 0]], ["..19"]),
    (factors.Range("10", None), AGE, [[0, 1, 1, 0]], ["10.."]),
    (factors.Range(None, None), AGE, [[1, 1, 1, 0]], [".."]),
    (factors.Range("0.5", "2"), LENGTH, [[0, 1, 1]], ["0.5..2"]),
    (factors.Range("F", "M"), SEX, [[1, 1]], ["F..M"]),
    (factors.Prefix(), LENGTH, [[1, 0, 0], [1, 1, 0], [1, 1, 1]], ["up to [0, 0.5)", "up to [0.5, 1)", "up to [1, 2]"]),
    (factors.AllRanges(), SEX, [[1, 0], [1, 1], [0, 1]], ["F", "F to M", "M"]),
    (
        factors.Buckets.of({"young": ["0..9", "10..19"], "none": ["Unknown"]}),
        AGE,
        [[1, 1, 0, 0], [0, 0, 0, 1]],
        ["young", "none"],
    ),
    (factors.Level(None, factors.Range("10", "29")), AGE, [[0, 1, 0, 0], [0, 0, 1, 0]], ["10..19", "20..29"]),
    (factors.Level("country"), PLACE, [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], ["Switzerland", "France", "Nowhere"]),
    (factors.Mean(), AGE, [[4.5, 14.5, 24.5, 0]], ["sum of age"]),
    (factors.Mean(), LENGTH, [[0.25, 0.75, 1.5]], ["sum of length"]),
    (
        factors.Moments(2),
        LENGTH,
        [[0.25, 0.75, 1.5], [0.0625, 0.5625, 2.25]],
        ["sum of length^1", "sum of length^2"],
    ),
    (
        factors.Tree(2),
        LENGTH,
        [[1, 1, 1], [1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]],
        ["[0, 0.5)..[1, 2]", "[0, 0.5)..[0.5, 1)", "[1, 2]", "[0, 0.5)", "[0.5, 1)", "[1, 2]"],
    ),
    (factors.Tree(2, level=1), AGE, [[1, 1, 0, 0], [0, 0, 1, 1]], ["0..19", "20..Unknown"]),
    (factors.Tree(4, level=1), AGE, np.eye(4).tolist(), AGE.labels),
    (
        factors.Tree(),
        PLACE,
        [[1, 1, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]],
        ["Europe", "Nowhere", "Switzerland", "France", "Bern", "Basel", "Lyon"],
    ),
    (factors.Tree(level=1), PLACE, [[1, 1, 0, 0], [0, 0, 1, 0]], ["Switzerland", "France"]),
    (
        factors.Haar(),
        LENGTH,
        [[1, 1, 1], [1, 1, -1], [1, -1, 0], [0, 0, 1]],
        [
            "all",
            "[0, 0.5) to [1, 2]: left − right",
            "[0, 0.5) to [0.5, 1): left − right",
            "[1, 2] to [1, 2]: left − right",
        ],
    ),
    (factors.Haar(), SINGLE, [[1]], ["all"]),
    (
        factors.Intervals(("0..9", "20..29")),
        AGE,
        [[1, 1, 0, 0], [0, 0, 1, 1]],
        ["0..19", "20..Unknown"],
    ),
    (factors.Intervals(("only",)), SINGLE, [[1]], ["only"]),
    (
        factors.Nominal(),
        LENGTH,
        [[4, 4, 4], [2, -1, -1], [-1, 2, -1], [-1, -1, 2]],
        ["all", *(f"{label} against the mean of all" for label in LENGTH.labels)],
    ),
    (
        factors.Nominal(),
        PLACE,
        [
            [2, 2, 2, 2],
            [1, 1, 1, -1],
            [-1, -1, -1, 1],
            [1, 1, -1, 0],
            [-1, -1, 1, 0],
            [1, -1, 0, 0],
            [-1, 1, 0, 0],
        ],
        [
            "all",
            "Europe against the mean of all",
            "Nowhere against the mean of all",
            "Switzerland against the mean of Europe",
            "France against the mean of Europe",
            "Bern against the mean of Switzerland",
            "Basel against the mean of Switzerland",
        ],
    ),
    (factors.Nominal(), SINGLE, [[1]], ["all"]),
    (factors.Fourier(1), AGE, [[1, 1, 1, 1]], ["all"]),
    (factors.Fourier(2), SEX, [[1, 1], [1, -1]], ["all", "cosine 1"]),
    (
        factors.Fourier(3, bits=2),
        AGE,
        [[1, 1, 1, 1], [1.5, 0, -1.5, 0], [0, 1.5, 0, -1.5], [1, -1, 1, -1]],
        ["all", "cosine 1", "sine 1", "cosine 2"],
    ),
    (factors.Matrix.of([[0.5, -1.0], [0.0, 0.0]]), SEX, [[0.5, -1.0], [0.0, 0.0]], ["row 0", "row 1"]),
    (factors.Matrix.of([2, -3], names=["net"]), SEX, [[2, -3]], ["net"]),
]


@pytest.mark.parametrize(("factor", "attribute", "matrix", "labels"), TABLE)
def test_a_factor_is_the_matrix_its_definition_says(
    factor: Factor, attribute: Attribute, matrix: list[list[float]], labels: Sequence[str]
) -> None:
    bound = factor.bind(attribute)
    np.testing.assert_array_equal(bound.dense(), np.array(matrix, dtype=float))
    assert factor.row_labels(attribute) == tuple(labels)
    for power in (1, 2):
        np.testing.assert_allclose(bound.column_norms(power), (np.abs(matrix) ** power).sum(axis=0))


@pytest.mark.parametrize(("factor", "attribute", "matrix", "labels"), TABLE)
def test_factors_survive_json(
    factor: Factor, attribute: Attribute, matrix: list[list[float]], labels: Sequence[str]
) -> None:
    table = json.loads(json.dumps({"kind": factor.kind} | factor.to_json()))
    assert factor_from_json(Declaration(table, "factor")) == factor


def test_the_table_holds_every_kind_of_factor_of_one_attribute() -> None:
    joint = {each for each in FACTORS.values() if issubclass(each, factors.JointFactor)}
    assert {type(factor) for factor, *_ in TABLE} == set(FACTORS.values()) - joint


def tree_nodes(size: int, branching: int) -> list[set[int]]:
    """The nodes of the padded complete tree, by splitting from the root down."""
    width = 1
    while width < size:
        width *= branching
    level, nodes = [range(width)], []
    while True:
        nodes += [set(node) & set(range(size)) for node in level]
        if len(level[0]) == 1:
            return [node for node in nodes if node]
        step = len(level[0]) // branching
        level = [node[i * step : (i + 1) * step] for node in level for i in range(branching)]


@pytest.mark.parametrize("branching", [2, 3, 5])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 9, 16, 27])
def test_trees_have_the_nodes_of_the_padded_complete_tree(size: int, branching: int) -> None:
    attribute = Domain.from_sizes({"a": size})["a"]
    whole = factors.Tree(branching)
    expected = [[float(code in node) for code in range(size)] for node in tree_nodes(size, branching)]
    np.testing.assert_array_equal(whole.bind(attribute).dense(), expected)
    levels = [factors.Tree(branching, level).bind(attribute).dense() for level in range(whole.levels(attribute))]
    np.testing.assert_array_equal(np.concatenate(levels), expected)
    assert len(whole.row_labels(attribute)) == len(expected)


def haar_rows(first: int, width: int, size: int) -> list[tuple[int, list[float]]]:
    """Rows (with their depth) of the interval and all below it, by recursion."""
    if width == 1 or first >= size:
        return []
    half = width // 2
    row = [float(first <= i < first + half) - float(first + half <= i < first + width) for i in range(size)]
    below = haar_rows(first, half, size) + haar_rows(first + half, half, size)
    return [(0, row)] + [(depth + 1, each) for depth, each in below]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_haar_rows_are_half_differences_level_by_level(size: int) -> None:
    attribute = Domain.from_sizes({"a": size})["a"]
    padded = 1
    while padded < size:
        padded *= 2
    below = sorted(haar_rows(0, padded, size), key=lambda each: each[0])
    expected = [[1.0] * size] + [row for _, row in below]
    np.testing.assert_array_equal(factors.Haar().bind(attribute).dense(), expected)
    assert len(factors.Haar().row_labels(attribute)) == len(expected)


@pytest.mark.parametrize("size", [2, 8, 13])
def test_haar_determines_every_count(size: int) -> None:
    matrix = factors.Haar().bind(Domain.from_sizes({"a": size})["a"]).dense()
    assert np.linalg.matrix_rank(matrix) == size


@pytest.mark.parametrize(
    "factor",
    [factors.Haar(), factors.Tree(2), factors.Tree(16), factors.Prefix(), factors.Nominal(), factors.Fourier(5)],
)
def test_large_attributes_bind_to_sparse_structure(factor: Factor) -> None:
    size = 2**16
    attribute = Attribute.numeric("a", [*range(size + 1)])
    bound = factor.bind(attribute)
    assert len(factor.row_labels(attribute)) == bound.rows
    counts = np.arange(size)
    assert np.vdot(bound.apply(counts, 0), np.ones(bound.rows, int)) == np.vdot(
        counts, bound.adjoint(np.ones(bound.rows, int), 0)
    )
    if hasattr(bound, "matrix"):
        assert bound.matrix.nnz <= size * 18  # type: ignore[attr-defined]


def test_the_levels_of_a_large_hierarchy_bind() -> None:
    parents = {f"block {i}": f"tract {i // 16}" for i in range(2**14)}
    parents |= {f"tract {i}": f"county {i // 16}" for i in range(2**10)}
    place = Attribute.hierarchy("place", parents)
    sizes = [factors.Tree(level=level).bind(place).rows for level in range(factors.Tree().levels(place))]
    assert sizes == [2**6, 2**10, 2**14]


def test_all_ranges_of_512_values_bind() -> None:
    attribute = Attribute.numeric("a", [*range(513)])
    bound = factors.AllRanges().bind(attribute)
    assert isinstance(bound, AllRangesMap)
    assert len(factors.AllRanges().row_labels(attribute)) == bound.rows == 512 * 513 // 2
    answers = bound.apply(np.ones(512, int), 0)
    first, last = bound.ends
    np.testing.assert_array_equal(answers, last - first + 1)


def test_buckets_at_a_depth_hold_each_cell_once() -> None:
    assert isinstance(PLACE, Hierarchy)
    for depth, names in [(1, {"Europe", "Nowhere"}), (2, {"Switzerland", "France", "Nowhere"}), (3, set(PLACE.labels))]:
        buckets = factors.Buckets.at_depth(PLACE, depth)
        assert set(buckets.row_labels(PLACE)) == names
        np.testing.assert_array_equal(buckets.bind(PLACE).dense().sum(axis=0), np.ones(PLACE.size))


def test_a_label_that_only_a_rule_names_is_a_root_of_the_tree() -> None:
    roots = factors.Tree(level=0).bind(PLACE).dense()
    np.testing.assert_array_equal(roots.sum(axis=0), np.ones(PLACE.size))


BAD: list[tuple[Factor, Attribute, list[str]]] = [
    (factors.Value("X"), SEX, ["'sex'", "'X'", "F, M"]),
    (factors.Value("Basl"), PLACE, ["'Basl'", "did you mean 'Basel'?"]),
    (factors.Value("5"), AGE, ["no bin '5'"]),
    (factors.Value("tall"), AGE, ["numeric", "'tall'"]),
    (factors.Subset(()), SEX, ["'sex'", "names no values"]),
    (factors.Range("11", "29"), AGE, ["11 cuts through a bin", "10 or 20"]),
    (factors.Range("10", "28"), AGE, ["28 cuts through a bin", "19 or 29"]),
    (factors.Range("20", "9"), AGE, ["20..9", "backwards"]),
    (factors.Range("M", "F"), SEX, ["'M'..'F'", "backwards"]),
    (factors.Range("F", "X"), SEX, ["'X'"]),
    (factors.Buckets(()), SEX, ["at least one"]),
    (factors.Buckets((("x", ("F",)), ("x", ("M",)))), SEX, ["its own name"]),
    (factors.Buckets((("x", ("F",)), ("y", ("F",)))), SEX, ["'y'", "already in a bucket"]),
    (factors.Mean(), SEX, ["categorical", "no mean"]),
    (factors.Moments(0), AGE, ["order 0", "from 1"]),
    (factors.Moments(10**9), AGE, ["order 1000000000", "to 32"]),
    (factors.Tree(1), AGE, ["at least 2", "found 1"]),
    (factors.Tree(), SEX, ["no hierarchy", "branching"]),
    (factors.Tree(2, level=3), AGE, ["levels 0 to 2", "not 3"]),
    (factors.Tree(level=-1), PLACE, ["levels 0 to 2", "not -1"]),
    (factors.Intervals(()), AGE, ["no value", "'0..9'"]),
    (factors.Intervals(("10..19",)), AGE, ["start at 10..19", "the first value, '0..9'"]),
    (factors.Intervals(("0..9", "20..29", "10..19")), AGE, ["declared order"]),
    (factors.Intervals(("0..9", "0..9")), AGE, ["declared order"]),
    (factors.Intervals(("X",)), SEX, ["'X'"]),
    (factors.Fourier(0), AGE, ["0 frequencies", "1 to 3"]),
    (factors.Fourier(4), AGE, ["4 frequencies", "1 to 3"]),
    (factors.Fourier(2, bits=0), AGE, ["0 bits"]),
    (factors.Fourier(2, bits=31), AGE, ["31 bits"]),
    (factors.Matrix(0, ()), SEX, ["0 rows"]),
    (factors.Matrix(2, (), ("a",)), SEX, ["2 rows", "1 row names"]),
    (factors.Matrix(1, ((0, 2, 1.0),)), SEX, ["(0, 2)", "2 values of 'sex'"]),
    (factors.Matrix(1, ((1, 0, 1.0),)), SEX, ["(1, 0)", "1 rows"]),
    (factors.Matrix(1, ((0, 0, float("nan")),)), SEX, ["nan"]),
    (factors.Identity(), Attribute.continuous("x", (0, 1)), ["'x'", "continuous", "declare bins"]),
]


@pytest.mark.parametrize(("factor", "attribute", "fragments"), BAD)
def test_factors_that_do_not_fit_are_refused(factor: Factor, attribute: Attribute, fragments: list[str]) -> None:
    with pytest.raises(DeclarationError) as caught:
        factor.bind(attribute)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_moments_beyond_the_range_of_numbers_are_refused() -> None:
    with pytest.raises(DeclarationError, match="lower the order"):
        factors.Moments(5).bind(Attribute.numeric("x", [0.0, 1e300]))


def test_midpoints_of_extreme_edges_are_finite() -> None:
    (middle,) = Attribute.numeric("x", [1e308, 1.7e308]).midpoints()
    assert middle == pytest.approx(1.35e308)


@pytest.mark.parametrize("depth", [0, -1])
def test_depths_above_the_roots_are_refused(depth: int) -> None:
    assert isinstance(PLACE, Hierarchy)
    with pytest.raises(DeclarationError, match="roots are at depth 1"):
        factors.Buckets.at_depth(PLACE, depth)


def test_factors_act_along_any_axis_of_a_table() -> None:
    domain = Domain("all kinds", COUNTED)
    rng = np.random.default_rng(0)
    for factor, attribute, matrix, _ in TABLE:
        other = next(each for each in COUNTED if each is not attribute)
        for names in ((attribute.name, other.name), (other.name, attribute.name)):
            bound = Query.of({name: factor if name == attribute.name else factors.Identity() for name in names}).bind(
                domain
            )
            table = rng.integers(0, 100, bound.table_shape)
            axis = names.index(attribute.name)
            expected = np.moveaxis(np.tensordot(np.array(matrix), table, axes=(1, axis)), 0, axis)
            np.testing.assert_array_equal(bound.answer(table), expected)

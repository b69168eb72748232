"""Linear maps do along any axis what their dense matrices do, and keep integers exact."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import (
    AllRangesMap,
    IdentityMap,
    Kronecker,
    LinearMap,
    PrefixMap,
    SparseMap,
    SumMap,
    fractional_bits,
)


def all_ranges(size: int) -> np.ndarray:
    rows = [[first <= cell <= last for cell in range(size)] for first in range(size) for last in range(first, size)]
    return np.array(rows, dtype=float)


SIGNED = np.array([[1.0, -2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0], [-4.0, 5.0, 6.0, 0.0]])
REAL = np.array([[0.5, -0.25, 1.75, 0.0], [0.1, 2.0, 0.0, -3.3]])

CASES: dict[str, tuple[LinearMap, np.ndarray]] = {
    "identity": (IdentityMap(4), np.eye(4)),
    "sum": (SumMap(4), np.ones((1, 4))),
    "prefix": (PrefixMap(4), np.tril(np.ones((4, 4)))),
    "all ranges": (AllRangesMap(4), all_ranges(4)),
    "signed integers": (SparseMap(sp.csr_array(SIGNED)), SIGNED),
    "real": (SparseMap(sp.csr_array(REAL)), REAL),
    "one column": (AllRangesMap(1), np.ones((1, 1))),
}
INTEGRAL = [name for name in CASES if name != "real"]


def table_with(size: int, axis: int, *, integer: bool) -> np.ndarray:
    shape = [2, 3, 5]
    shape[axis] = size
    rng = np.random.default_rng(axis)
    return rng.integers(-50, 50, shape) if integer else rng.normal(size=shape)


def along(matrix: np.ndarray, table: np.ndarray, axis: int) -> np.ndarray:
    return np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("name", CASES)
def test_maps_act_as_their_matrices_along_any_axis(name: str, axis: int) -> None:
    linear_map, matrix = CASES[name]
    assert (linear_map.rows, linear_map.columns) == matrix.shape
    table = table_with(linear_map.columns, axis, integer=False)
    answers = table_with(linear_map.rows, axis, integer=False)
    np.testing.assert_allclose(linear_map.apply(table, axis), along(matrix, table, axis), atol=1e-12)
    np.testing.assert_allclose(linear_map.adjoint(answers, axis), along(matrix.T, answers, axis), atol=1e-12)
    np.testing.assert_array_equal(linear_map.dense(), matrix)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("name", INTEGRAL)
def test_integers_stay_exact_integers_under_integral_maps(name: str, axis: int) -> None:
    linear_map, matrix = CASES[name]
    table = table_with(linear_map.columns, axis, integer=True) + 2**55
    answers = table_with(linear_map.rows, axis, integer=True) + 2**55
    for found, expected in (
        (linear_map.apply(table, axis), along(matrix.astype(np.int64), table, axis)),
        (linear_map.adjoint(answers, axis), along(matrix.T.astype(np.int64), answers, axis)),
    ):
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", CASES)
def test_adjoint_passes_the_dot_product_test(name: str) -> None:
    linear_map, _ = CASES[name]
    table = table_with(linear_map.columns, 1, integer=False)
    answers = table_with(linear_map.rows, 1, integer=False)
    left = np.vdot(linear_map.apply(table, 1), answers)
    assert left == pytest.approx(np.vdot(table, linear_map.adjoint(answers, 1)), rel=1e-12)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_column_norms_are_those_of_the_matrix(name: str, power: int) -> None:
    linear_map, matrix = CASES[name]
    np.testing.assert_allclose(linear_map.column_norms(power), (np.abs(matrix) ** power).sum(axis=0))


@pytest.mark.parametrize("name", CASES)
def test_facts_about_entries_are_true_of_the_matrix(name: str) -> None:
    linear_map, matrix = CASES[name]
    assert linear_map.nonnegative == bool((matrix >= 0).all())
    assert linear_map.largest_entry == np.abs(matrix).max()
    units = matrix * 2.0**linear_map.lattice_bits
    np.testing.assert_array_equal(units, np.round(units))
    if linear_map.lattice_bits:
        halved = units / 2
        assert not np.array_equal(halved, np.round(halved)), "one bit fewer would do"


@pytest.mark.parametrize("names", list(itertools.product(CASES, repeat=2)), ids=" x ".join)
def test_kronecker_products_equal_the_built_matrix(names: tuple[str, str]) -> None:
    maps, matrices = zip(*(CASES[name] for name in names), strict=True)
    product = Kronecker(maps)
    built = np.kron(*matrices)
    rng = np.random.default_rng(7)
    table, answers = rng.normal(size=product.shape_in), rng.normal(size=product.shape_out)
    np.testing.assert_allclose(product.apply(table).ravel(), built @ table.ravel(), atol=1e-10)
    np.testing.assert_allclose(product.adjoint(answers).ravel(), built.T @ answers.ravel(), atol=1e-10)
    for power in (1, 2):
        found = np.multiply.outer(*product.column_norms(power)).ravel()
        np.testing.assert_allclose(found, (np.abs(built) ** power).sum(axis=0))


def test_a_product_of_three_equals_the_built_matrix() -> None:
    maps, matrices = zip(*(CASES[name] for name in ("prefix", "real", "sum")), strict=True)
    built = np.kron(np.kron(matrices[0], matrices[1]), matrices[2])
    table = np.random.default_rng(1).normal(size=(4, 4, 4))
    product = Kronecker(maps)
    np.testing.assert_allclose(product.apply(table).ravel(), built @ table.ravel(), atol=1e-10)


def test_the_empty_product_is_the_identity_on_one_number() -> None:
    product = Kronecker(())
    assert product.shape_in == product.shape_out == ()
    assert product.apply(np.array(7)) == 7
    assert product.adjoint(np.array(7)) == 7


@pytest.mark.parametrize(
    ("values", "bits"),
    [([], 0), ([1, -3], 0), ([0.5], 1), ([0.75, 3.0], 2), ([2.0**-40], 40), ([1e300], 0), ([-0.0], 0)],
)
def test_fractional_bits_are_the_fewest_that_suffice(values: list[float], bits: int) -> None:
    assert fractional_bits(np.array(values, dtype=float)) == bits


def test_fractional_bits_of_any_float_are_those_of_its_fraction() -> None:
    for value in np.random.default_rng(3).normal(size=50):
        assert 2 ** fractional_bits(np.array([value])) == Fraction(value).denominator


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_entries_that_are_not_finite_lie_on_no_lattice(value: float) -> None:
    with pytest.raises(DeclarationError, match="not a finite number"):
        fractional_bits(np.array([1.0, value]))


@pytest.mark.parametrize("bits", [0, 3, 20])
def test_rounding_moves_entries_to_the_nearest_lattice_point(bits: int) -> None:
    rounded: Any = SparseMap(sp.csr_array(REAL)).rounded(bits)
    assert rounded.lattice_bits <= bits
    assert np.abs(rounded.dense() - REAL).max() <= 2.0 ** -(bits + 1)

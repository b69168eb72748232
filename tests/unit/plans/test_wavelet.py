"""Privlet: rows are the paper's weighted coefficients, and ranges have the variance that the paper derives."""

import math

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain, factors
from consilience.errors import DeclarationError
from consilience.measuring import measure
from consilience.plans.published.histograms import Wavelet
from consilience.source import open_table

AGE = Attribute.numeric("age", [*range(257)])
SEX = Attribute.categorical("sex", ["F", "M", "X"])
PLACE = Attribute.hierarchy("place", {"a": "x", "b": "x", "c": "x", "d": "y", "e": "y", "f": "y", "x": "t", "y": "t"})


def haar_coefficients(counts: np.ndarray) -> list[float]:
    """The paper's weighted coefficients, from its definition: half the difference of averages, times W."""
    found = [counts.mean() * counts.size]
    width = counts.size
    while width > 1:
        for first in range(0, counts.size, width):
            half = width // 2
            left, right = counts[first : first + half], counts[first + half : first + width]
            found.append((left.mean() - right.mean()) / 2 * width)
        width //= 2
    return found


def test_haar_rows_are_the_weighted_coefficients_of_the_paper() -> None:
    counts = np.random.default_rng(0).integers(0, 50, 16)
    matrix = factors.Haar().bind(Domain.from_sizes({"a": 16})["a"]).dense()
    np.testing.assert_allclose(matrix @ counts, haar_coefficients(counts))


def test_nominal_rows_are_the_weighted_coefficients_of_the_paper() -> None:
    counts = np.array([3.0, 5, 7, 11, 0, 1])
    found = factors.Nominal().bind(PLACE).dense() @ counts
    total, x, y = 27.0, 15.0, 12.0
    top = [2 / 2 * (x - total / 2), 2 / 2 * (y - total / 2)]
    leaves = [3 / 4 * (count - total / 3) for count, total in zip(counts, [x] * 3 + [y] * 3, strict=True)]
    np.testing.assert_allclose(found / 4, [total, *top, *leaves], rtol=1e-12)  # 4 is the lcm of 2(2 − 1) and 2(3 − 1)


def test_kinds_of_attributes_get_their_wavelets() -> None:
    domain = Domain("d", (AGE, SEX, PLACE))
    shown = measure(domain, Wavelet(), epsilon=1.0, dry_run=True)
    ((priced,),) = [price.queries for price in shown.prices]
    assert [type(factor) for _, factor in priced.bound.query.factors] == [
        factors.Haar,
        factors.Nominal,
        factors.Nominal,
    ]
    assert priced.noise.scale_parameter == pytest.approx(9 * (2 * 4) * (3 * 4))
    some = measure(domain, Wavelet(("place", "age")), epsilon=1.0, dry_run=True)
    assert [each.bound.query.attributes for price in some.prices for each in price.queries] == [("place", "age")]


@pytest.mark.parametrize(("amount", "power"), [({"epsilon": 0.5}, 1), ({"rho": 0.02}, 2)])
def test_the_noise_is_that_of_the_number_of_levels(amount, power: int) -> None:
    shown = measure(Domain("d", (AGE,)), Wavelet(), dry_run=True, **amount)
    expected = 9 / 0.5 if power == 1 else math.sqrt(9 / (2 * 0.02))
    assert shown.rows()[0]["scale"] == pytest.approx(expected)


@pytest.mark.slow
def test_ranges_have_the_variance_of_the_formula() -> None:
    domain, size = Domain("d", (AGE,)), 256
    source = open_table(pa.table({"age": np.arange(256).repeat(2)}), domain)
    bound = factors.Haar().bind(AGE)
    matrix = bound.dense()
    squares = (matrix**2).sum(axis=1)
    inverse = matrix.T / squares
    np.testing.assert_allclose(inverse @ matrix, np.eye(size), atol=1e-12)
    first, last = np.triu_indices(size)

    summed = np.concatenate([np.zeros((1, size)), np.cumsum(inverse, axis=0)])
    per_range = ((summed[last + 1] - summed[first]) ** 2).sum(axis=1)
    assert per_range.max() <= 1 + math.log2(size) / 2

    measured = [measure(source, Wavelet(), epsilon=1.0, simulate=seed).measurements[0] for seed in range(60)]
    assert measured[0].noise.scale_parameter == pytest.approx(9.0)
    variance = 2 * 9.0**2
    errors = []
    for each in measured:
        wrong = np.concatenate([[0.0], np.cumsum(inverse @ each.values - 2.0)])
        errors.append((wrong[last + 1] - wrong[first]) ** 2)
    assert np.mean(errors) / (variance * per_range.mean()) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("size", [3, 5, 11, 13])
def test_lengths_that_are_no_powers_of_two_are_no_worse_than_padding(size: int) -> None:
    padded = 2 ** math.ceil(math.log2(size))
    own = factors.Haar().bind(Domain.from_sizes({"a": size})["a"]).dense()
    wide = factors.Haar().bind(Domain.from_sizes({"a": padded})["a"]).dense()
    assert np.abs(own).sum(axis=0).max() == np.abs(wide).sum(axis=0).max()
    mine = np.linalg.inv(own.T @ own)
    theirs = np.linalg.inv(wide.T @ wide)[:size, :size]
    assert np.linalg.eigvalsh(theirs - mine).min() >= -1e-12


@pytest.mark.parametrize("values", [2, 3, 10])
def test_flat_nominal_wavelets_have_the_derived_variance(values: int) -> None:
    """x_v = (d_v + total)/f with d_v from rows of noise σ/q less their mean: σ² (4(f−1)³/f³ + 1/f²), at most 4σ²."""
    attribute = Attribute.categorical("a", [str(i) for i in range(values)])
    matrix = factors.Nominal().bind(attribute).dense()
    covariance = np.linalg.inv(matrix.T @ matrix)
    expected = 4 * (values - 1) ** 3 / values**3 + 1 / values**2
    scale = 2 * (values - 1)
    np.testing.assert_allclose(np.diag(covariance) * scale**2, expected)
    assert expected <= 4


@pytest.mark.slow
@pytest.mark.parametrize("values", [2, 3, 10])
def test_measured_nominal_wavelets_have_the_derived_variance(values: int) -> None:
    attribute = Attribute.categorical("a", [str(i) for i in range(values)])
    inverse = np.linalg.pinv(factors.Nominal().bind(attribute).dense())
    expected = 4 * (values - 1) ** 3 / values**3 + 1 / values**2
    source = open_table(pa.table({"a": ["0"] * 20}), Domain("d", (attribute,)))
    truth = np.where(np.arange(values) == 0, 20, 0)
    errors = [
        inverse @ measure(source, Wavelet(), epsilon=0.2, simulate=seed).measurements[0].values - truth
        for seed in range(300)
    ]
    assert np.mean(np.square(errors)) / (2 * 10.0**2 * expected) == pytest.approx(1.0, abs=0.25)


def test_every_node_of_a_hierarchy_has_at_most_four_times_the_variance_of_a_row() -> None:
    matrix = factors.Nominal().bind(PLACE).dense()
    covariance = np.linalg.inv(matrix.T @ matrix) * matrix[0, 0] ** 2
    nodes = factors.Tree().bind(PLACE).dense()
    assert np.einsum("ni,ij,nj->n", nodes, covariance, nodes).max() <= 4


def test_products_of_wavelets_invert_axis_by_axis() -> None:
    domain = Domain("d", (Attribute.numeric("n", [0, 1, 2, 3]), SEX))
    source = open_table(pa.table({"n": [0, 0, 1, 2], "sex": ["F", "M", "M", "X"]}), domain)
    (each,) = measure(source, Wavelet(), epsilon=1e7, simulate=0)
    maps = each.bind(domain).maps
    inverse = np.kron(*(np.linalg.pinv(part.dense()) for part in maps))
    np.testing.assert_allclose(inverse @ each.values, [1, 1, 0, 0, 1, 0, 0, 0, 1], atol=1e-3)


def test_many_nominal_attributes_stay_exact() -> None:
    domain = Domain.from_sizes({f"a{i}": 4 for i in range(6)})
    shown = measure(domain, Wavelet(), epsilon=1.0, dry_run=True)
    assert shown.answers == 5**6
    assert shown.rows()[0]["scale"] == pytest.approx((2 * 6) ** 6)


def test_a_wavelet_of_nothing_is_refused() -> None:
    with pytest.raises(DeclarationError):
        Wavelet(())
    assert Wavelet("age") == Wavelet(["age"])

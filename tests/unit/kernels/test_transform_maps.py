"""The Fourier and nominal maps are their matrices on a lattice, and exact in integers."""

import numpy as np
import pytest
import scipy.sparse as sp

from consilience.domain import Attribute, Domain
from consilience.domain.factors import Nominal
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import LinearMap, SparseMap
from consilience.kernels.transforms import (
    FourierMap,
    exact_coefficients,
    lattice_tables,
    most_frequencies,
    rows_of,
    whole_scale,
)

GEOGRAPHY = Attribute.hierarchy(
    "place", {"a": "x", "b": "x", "c": "x", "d": "y", "e": "y", "f": "z", "x": "top", "y": "top", "z": "top"}
)


def orthogonal_basis(cells: int) -> np.ndarray:
    """The real Fourier basis with squared norm n, from its definition."""
    place = np.arange(cells)
    rows = [np.ones(cells)]
    for j in range(1, cells // 2 + 1):
        if 2 * j == cells:
            rows.append((-1.0) ** place)
        else:
            rows += [np.sqrt(2) * wave(2 * np.pi * j * place / cells) for wave in (np.cos, np.sin)]
    return np.array(rows)


MAPS: dict[str, LinearMap] = {
    f"fourier {cells} {frequencies}": FourierMap.on_lattice(cells, frequencies, 20)
    for cells in (1, 2, 3, 4, 5, 8, 9)
    for frequencies in range(1, most_frequencies(cells) + 1)
} | {
    "nominal flat 5": Nominal().bind(Domain.from_sizes({"a": 5})["a"]),
    "nominal single": Nominal().bind(Domain.from_sizes({"a": 1})["a"]),
    "nominal tree": Nominal().bind(GEOGRAPHY),
    "sparse": SparseMap(sp.csr_array([[0.5, -1.25], [0.0, 3.0]])),
}


@pytest.mark.parametrize("cells", [1, 2, 3, 4, 5, 8, 9, 30])
@pytest.mark.parametrize("bits", [8, 20])
def test_fourier_rows_are_the_orthogonal_basis_rounded(cells: int, bits: int) -> None:
    found = FourierMap.on_lattice(cells, most_frequencies(cells), bits).dense()
    assert np.abs(found - orthogonal_basis(cells)).max() <= 0.5000001 * 2.0**-bits
    np.testing.assert_array_equal(found * 2.0**bits, np.round(found * 2.0**bits))
    for frequencies in range(1, most_frequencies(cells)):
        fewer = FourierMap.on_lattice(cells, frequencies, bits)
        np.testing.assert_array_equal(fewer.dense(), found[: rows_of(cells, frequencies)])


@pytest.mark.parametrize("cells", [1, 2, 3, 4, 7, 12])
def test_lattice_tables_are_exactly_even_and_odd(cells: int) -> None:
    cosines, sines = lattice_tables(cells, 14)
    mirrored = -np.arange(cells) % cells
    np.testing.assert_array_equal(cosines, cosines[mirrored])
    np.testing.assert_array_equal(sines, -sines[mirrored])


@pytest.mark.parametrize("name", MAPS)
def test_maps_act_as_their_matrices_along_any_axis(name: str) -> None:
    each = MAPS[name]
    matrix = each.dense()
    rng = np.random.default_rng(0)
    assert matrix.shape == (each.rows, each.columns)
    for axis, shape in ((0, (each.columns, 3)), (1, (2, each.columns))):
        table = rng.normal(size=shape)
        expected = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
        np.testing.assert_allclose(each.apply(table, axis), expected, atol=1e-12)
        answers = rng.normal(size=tuple(each.rows if i == axis else n for i, n in enumerate(shape)))
        back = np.moveaxis(np.tensordot(matrix.T, answers, axes=(1, axis)), 0, axis)
        np.testing.assert_allclose(each.adjoint(answers, axis), back, atol=1e-12)
    np.testing.assert_allclose(each.squared().dense(), matrix**2, rtol=1e-14)
    for power in (1, 2):
        np.testing.assert_allclose(each.column_norms(power), (np.abs(matrix) ** power).sum(axis=0))


@pytest.mark.parametrize("name", MAPS)
def test_facts_about_entries_are_true_of_the_matrix(name: str) -> None:
    each, matrix = MAPS[name], MAPS[name].dense()
    assert each.nonnegative == bool((matrix >= 0).all())
    assert each.largest_entry == np.abs(matrix).max()
    units = matrix * 2.0**each.lattice_bits
    np.testing.assert_array_equal(units, np.round(units))
    if each.lattice_bits:
        assert not np.array_equal(units / 2, np.round(units / 2)), "one bit fewer would do"


@pytest.mark.parametrize("name", MAPS)
def test_answers_in_lattice_units_are_exact_integers(name: str) -> None:
    whole = MAPS[name].in_lattice_units()
    expected = np.round(MAPS[name].dense() * 2.0 ** MAPS[name].lattice_bits).astype(np.int64)
    counts = np.random.default_rng(1).integers(0, 2**33, (whole.columns, 2))
    found = whole.apply(counts, 0)
    assert found.dtype == np.int64
    assert found.tolist() == (expected.astype(object) @ counts.astype(object)).tolist()
    assert whole.lattice_bits == 0


@pytest.mark.parametrize("cells", [1, 2, 3, 6, 11, 16])
def test_folded_coefficients_are_the_rows_times_the_counts(cells: int) -> None:
    counts = np.random.default_rng(cells).integers(0, 2**40, cells)
    for frequencies in range(1, most_frequencies(cells) + 1):
        basis = FourierMap.on_lattice(cells, frequencies, 14).dense() * 2**14
        expected = basis.astype(np.int64).astype(object) @ counts.astype(object)
        assert exact_coefficients(counts, frequencies, 14).tolist() == expected.tolist()


@pytest.mark.parametrize("frequencies", [0, 4])
def test_frequencies_that_do_not_exist_are_refused(frequencies: int) -> None:
    with pytest.raises(DeclarationError, match="1 to 3"):
        FourierMap.on_lattice(5, frequencies, 20)


def test_no_record_adds_more_than_the_scale_per_level_to_nominal_rows() -> None:
    scale = MAPS["nominal tree"].dense()[0, 0]
    np.testing.assert_array_equal(MAPS["nominal tree"].column_norms(1) / scale, [3, 3, 3, 3, 3, 2])


def test_rows_of_siblings_sum_to_zero_exactly() -> None:
    matrix = MAPS["nominal tree"].dense()
    np.testing.assert_array_equal(matrix[1:4].sum(axis=0), np.zeros(6))
    np.testing.assert_array_equal(matrix[4:7].sum(axis=0), np.zeros(6))


@pytest.mark.parametrize("fanouts", [[], [2], [2, 3, 7], [1000], list(range(2, 60))])
def test_the_scale_of_a_nominal_wavelet_keeps_its_weights(fanouts: list[int]) -> None:
    scale = whole_scale(fanouts)
    for fanout in fanouts:
        kept = (scale // (2 * (fanout - 1))) / (scale / (2 * (fanout - 1)))
        assert 31 / 32 <= kept <= 1
    assert scale <= 128 * max(fanouts, default=1)


def test_large_fourier_maps_hold_tables_alone() -> None:
    each = FourierMap.on_lattice(2**16, 20, 20)
    counts = np.random.default_rng(0).integers(0, 100, 2**16)
    spectrum = np.fft.rfft(counts)[:20]
    expected = np.concatenate([[spectrum[0].real], np.sqrt(2) * np.ravel([spectrum[1:].real, -spectrum[1:].imag], "F")])
    np.testing.assert_allclose(each.apply(counts, 0), expected, atol=2.0**-20 * counts.sum())

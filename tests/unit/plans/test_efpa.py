"""EFPA keeps as many frequencies as are worth their noise, and its error is what it leaves out plus that noise."""

import math

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain, Query
from consilience.domain.factors import Fourier
from consilience.errors import DeclarationError
from consilience.kernels.transforms import FourierMap, most_frequencies, rows_of
from consilience.measuring import measure
from consilience.plans.published.histograms import Efpa, noise_norm
from consilience.privacy.budgets import budget
from consilience.privacy.pricing import price_queries
from consilience.source import open_table

SIZE = 64
DOMAIN = Domain("d", (Attribute.numeric("a", [*range(SIZE + 1)]),))
PLACE = np.arange(SIZE)
SMOOTH = np.round(200 + 120 * np.cos(2 * np.pi * PLACE / SIZE) + 60 * np.sin(4 * np.pi * PLACE / SIZE)).astype(int)


def source_of(counts: np.ndarray):
    return open_table(pa.table({"a": np.repeat(np.arange(counts.size), counts)}), DOMAIN)


def kept(measured) -> int:
    (each,) = measured
    ((_, factor),) = each.query.factors
    assert isinstance(factor, Fourier)
    return factor.frequencies


def test_smooth_data_keeps_its_few_frequencies_and_rough_data_many() -> None:
    smooth = [kept(measure(source_of(SMOOTH), Efpa("a"), epsilon=2.0, simulate=seed)) for seed in range(5)]
    assert min(smooth) >= 3
    assert max(smooth) <= 8
    spikes = np.where(PLACE % 17 == 0, 100_000, 0)
    rough = [kept(measure(source_of(spikes), Efpa("a"), epsilon=2.0, simulate=seed)) for seed in range(5)]
    assert min(rough) > 20


@pytest.mark.slow
@pytest.mark.parametrize(("amount", "draws"), [({"epsilon": 1.0}, 150), ({"rho": 0.05}, 150)])
def test_the_squared_error_is_what_is_left_out_plus_the_noise(amount, draws: int) -> None:
    source = source_of(SMOOTH)
    ratios = []
    for seed in range(draws):
        (each,) = measure(source, Efpa("a"), simulate=seed, **amount)
        frequencies = kept([each])
        rows = FourierMap.on_lattice(SIZE, frequencies, 20).dense()
        estimate = np.linalg.pinv(rows) @ each.values
        spectrum = np.fft.fft(SMOOTH)
        spectrum[np.abs(np.fft.fftfreq(SIZE) * SIZE).round() < frequencies] = 0
        left_out = (np.abs(spectrum) ** 2).sum() / SIZE
        if "epsilon" in amount:
            variance = 2 * (np.abs(rows).sum(axis=0).max() / 0.5) ** 2
        else:
            variance = len(rows) / (2 * 0.025)
        expected = left_out + len(rows) * variance / SIZE
        ratios.append(((estimate - SMOOTH) ** 2).sum() / expected)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("size", [5, 64, 101])
@pytest.mark.parametrize("amount", [{"epsilon": 0.7}, {"rho": 0.3}])
def test_the_penalty_is_the_norm_of_the_noise(size: int, amount) -> None:
    domain = Domain.from_sizes({"a": size})
    for frequencies in (1, 2, most_frequencies(size) // 2, most_frequencies(size)):
        priced = price_queries([Query.of({"a": Fourier(frequencies)})], domain, budget(**amount)).queries[0]
        rows = rows_of(size, frequencies)
        scale = priced.noise.scale_parameter
        variance = 2 * scale**2 if "epsilon" in amount else scale**2
        assert noise_norm(size, frequencies, budget(**amount)) == pytest.approx(
            math.sqrt(rows * variance / size), rel=0.2 if "epsilon" in amount else 1e-4
        )


def test_the_noise_is_never_more_than_the_published_one() -> None:
    for size in (7, 64, 1000):
        for frequencies in {1, 2, 5 if size > 9 else 3, most_frequencies(size)}:
            rows = FourierMap.on_lattice(size, frequencies, 20)
            published = math.sqrt(rows.rows * size)  # √k in an orthonormal basis, whose rows are shorter by √n
            assert rows.column_norms(1).max() <= min(published, rows.rows) * (1 + 1e-5)


def test_candidates_end_where_they_are_told() -> None:
    spikes = np.where(PLACE % 17 == 0, 100_000, 0)
    assert kept(measure(source_of(spikes), Efpa("a", largest=4), epsilon=2.0, simulate=0)) == 4


def test_shares_and_limits_that_make_no_sense_are_refused() -> None:
    for wrong in ({"selection_share": 0.0}, {"selection_share": 1.0}, {"selection_share": math.nan}, {"largest": 1}):
        with pytest.raises(DeclarationError):
            Efpa("a", **wrong)

"""The diagnostic of the noise on a made-up table: its level, its power, and p-values that are not too small.

A thousand releases: half of them were at hand when the level and the tails were chosen (even seeds), the others not.
"""

import functools
import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import kstest

from consilience.domain import Domain
from consilience.measurements import DiscreteGaussian, DiscreteLaplace, Laplace, MeasurementSet, NoiseLaw, noise_law
from consilience.measuring import measure
from consilience.plans import Direct
from consilience.privacy.ledger import Ledger
from consilience.publication.diagnostics import LEVEL, NoiseReport, check_noise
from consilience.source import open_table

SIZES = (24, 20, 18, 16, 14, 11)
DOMAIN = Domain.from_sizes({f"x{i}": size for i, size in enumerate(SIZES)})


@functools.cache
def margins() -> dict[tuple[str, ...], np.ndarray]:
    """The 2-way margins of 2,000 records whose values are mostly small: most cells are empty."""
    rng = np.random.default_rng(0)
    codes = [np.minimum(rng.geometric(0.6, 2_000) - 1, size - 1) for size in SIZES]
    found = {}
    for i, j in itertools.combinations(range(len(SIZES)), 2):
        counts = np.zeros((SIZES[i], SIZES[j]))
        np.add.at(counts, (codes[i], codes[j]), 1.0)
        found[f"x{i}", f"x{j}"] = counts
    return found


def reports(law: NoiseLaw, declared: float, runs: int, *, clip: bool = False) -> list[NoiseReport]:
    said = noise_law(law.law, declared * law.scale_parameter, step=law.lattice_step)
    exact = margins()
    found = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        noisy = {names: counts + law.simulate(counts.shape, rng) for names, counts in exact.items()}
        measured = MeasurementSet.from_marginals(DOMAIN, noisy, noise=said)
        if clip:
            kept = [replace(each, values=np.maximum(each.values, 0.0)) for each in measured]
            measured = replace(measured, measurements=tuple(kept))
        found.append(check_noise(measured, seed=seed, simulations=199))
    return found


LAWS = [DiscreteLaplace(10.0), DiscreteGaussian(14.0)]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_thousand_files_from_elsewhere_whose_noise_is_right_raise_no_alarm(law) -> None:
    found = reports(law, 1.0, 1000)
    assert [each.verdict for each in found if not each.as_declared] == []
    rejected = sum(each.p_value < 0.05 for each in found)
    assert rejected <= 50 + 3 * np.sqrt(1000 * 0.05 * 0.95)
    # The p-values of the spread are uniform: a test that never rejects would fail here.
    spread = [check.p_value for each in found for check in each.checks if check.name == "spread"]
    assert kstest(spread, "uniform").pvalue > 1e-3
    shape = [check.p_value for each in found for check in each.checks if check.name == "shape"]
    assert np.mean(np.array(shape) <= 0.2) == pytest.approx(0.2, abs=0.07)


FEW = [Laplace(1.0), DiscreteLaplace(0.4), DiscreteLaplace(30.0), DiscreteGaussian(0.4), DiscreteGaussian(20.0)]


@pytest.mark.slow
@pytest.mark.parametrize("law", FEW, ids=str)
def test_few_contrasts_of_heavy_tails_raise_no_alarm_either(law) -> None:
    """Eight attributes measured one by one: the total is all that they have in common."""
    domain = Domain.from_sizes({f"x{i}": 3 for i in range(8)})
    exact = np.array([50.0, 8.0, 0.0])
    for seed in range(400):
        rng = np.random.default_rng(seed)
        noisy = {name: exact + law.simulate(3, rng) for name in domain.names}
        found = check_noise(MeasurementSet.from_marginals(domain, noisy, noise=law), seed=seed, simulations=199)
        assert found.testable
        assert found.as_declared, (seed, found.verdict)


@pytest.mark.slow
def test_a_thousand_releases_of_our_own_raise_no_alarm(tmp_path) -> None:
    """Genuine noise cannot be repeated: right code fails here once in some hundred runs, by the tests of 1000 files."""
    sizes = {"a": 6, "b": 5, "c": 4}
    rng = np.random.default_rng(0)
    records = pa.table({name: rng.integers(0, size, 400).astype(str) for name, size in sizes.items()})
    source = open_table(records, Domain.from_sizes(sizes))
    for number in range(1000):
        ledger = Ledger.open(tmp_path / f"{number // 50}.ledger", epsilon=100)
        measured = measure(source, Direct(ways=2), ledger=ledger, epsilon=0.5, id=f"release-{number}")
        assert check_noise(measured).as_declared
        elsewhere = check_noise(replace(measured, provenance={}), simulations=199)  # as if there were no checksum
        assert elsewhere.as_declared, elsewhere.verdict


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("declared", [1.3, 1 / 1.3])
def test_a_scale_wrong_by_a_factor_of_1_3_is_rejected(law, declared: float) -> None:
    found = reports(law, declared, 60)
    assert np.mean([each.p_value < LEVEL for each in found]) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_clipping_is_rejected_and_named(law) -> None:
    found = reports(law, 1.0, 30, clip=True)
    assert all(each.p_value < LEVEL for each in found)
    assert np.mean([each.worst is not None and each.worst.name == "zeros" for each in found]) > 0.9

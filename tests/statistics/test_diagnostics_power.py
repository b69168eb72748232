"""The diagnostic of the noise on a made-up table: its level, its power, and p-values that are not too small."""

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from consilience.domain import Domain
from consilience.measurements import DiscreteGaussian, DiscreteLaplace, MeasurementSet, NoiseLaw, noise_law
from consilience.publication.diagnostics import LEVEL, NoiseReport, check_noise

SIZES = (14, 12, 10, 8, 6, 4)
DOMAIN = Domain.from_sizes({f"x{i}": size for i, size in enumerate(SIZES)})
RUNS = 400


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
def test_the_right_noise_is_rejected_in_one_of_twenty_runs_at_most(law) -> None:
    found = reports(law, 1.0, RUNS)
    rejected = sum(each.p_value < LEVEL for each in found)
    assert rejected <= LEVEL * RUNS + 3 * np.sqrt(RUNS * LEVEL * (1 - LEVEL))
    # The p-values of the spread are uniform: a test that never rejects would fail here.
    spread = [check.p_value for each in found for check in each.checks if check.name == "spread"]
    assert kstest(spread, "uniform").pvalue > 1e-3
    shape = [check.p_value for each in found for check in each.checks if check.name == "shape"]
    assert np.mean(np.array(shape) <= 0.2) == pytest.approx(0.2, abs=0.07)


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

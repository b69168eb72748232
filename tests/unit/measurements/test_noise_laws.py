"""The noise laws agree with their definitions, with their simulations, and with files."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from consilience.errors import MeasurementError
from consilience.measurements import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    Gaussian,
    Laplace,
    NoiseLaw,
    noise_law,
    noise_law_from_json,
)

SEED = 20_240_501
LATTICE = [
    DiscreteLaplace(0.3),
    DiscreteLaplace(1.0),
    DiscreteLaplace(7.5, step=0.25),
    DiscreteGaussian(0.3),
    DiscreteGaussian(1.0),
    DiscreteGaussian(4.0, step=0.5),
    DiscreteGaussian(40.0, step=0.1),
]
CONTINUOUS = [Laplace(0.2), Laplace(3.0), Gaussian(0.2), Gaussian(5.0)]


def probabilities(law: NoiseLaw) -> tuple[np.ndarray, np.ndarray]:
    """Lattice points and their probabilities, from the defining formula and by plain summation."""
    step = law.lattice_step
    assert step is not None
    reach = math.ceil(60 * max(law.scale_parameter / step, 1.0))
    points = np.arange(-reach, reach + 1) * step
    if isinstance(law, DiscreteLaplace):
        weights = np.exp(-np.abs(points) / law.scale)
    else:
        weights = np.exp(-(points**2) / (2 * law.scale_parameter**2))
    return points, weights / weights.sum()


@pytest.mark.parametrize("law", LATTICE, ids=str)
def test_discrete_laws_agree_with_plain_summation(law: NoiseLaw) -> None:
    points, masses = probabilities(law)
    seen = masses > 1e-290
    np.testing.assert_allclose(law.log_density(points[seen]), np.log(masses[seen]), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(law.variance, (masses * points**2).sum(), rtol=1e-10)
    np.testing.assert_allclose(law.cdf(points), np.cumsum(masses), atol=1e-12)
    assert law.stddev_of_noise == math.sqrt(law.variance)


@pytest.mark.parametrize("law", LATTICE, ids=str)
def test_discrete_quantile_is_the_least_point_that_reaches_the_probability(law: NoiseLaw) -> None:
    points, masses = probabilities(law)
    cumulated = np.cumsum(masses)
    wanted = np.random.default_rng(SEED).random(300)
    expected = points[np.searchsorted(cumulated, wanted)]
    np.testing.assert_allclose(law.quantile(wanted), expected, atol=1e-9)


@pytest.mark.parametrize("law", LATTICE, ids=str)
def test_discrete_cdf_jumps_at_lattice_points_only(law: NoiseLaw) -> None:
    step = law.lattice_step or 0.0
    np.testing.assert_array_equal(law.cdf([0.0, 3 * step]), law.cdf([0.7 * step, 3.9 * step]))
    assert law.cdf(-0.1 * step) == law.cdf(-step) < law.cdf(0.0)
    np.testing.assert_array_equal(law.cdf([-np.inf, np.inf]), [0.0, 1.0])


@pytest.mark.parametrize("law", CONTINUOUS, ids=str)
def test_continuous_laws_agree_with_integration(law: NoiseLaw) -> None:
    def density(x: float) -> float:
        return float(np.exp(law.log_density(x)))

    ends = [-40 * law.scale_parameter, 0.0, 0.7 * law.scale_parameter, 40 * law.scale_parameter]
    below = [integrate.quad(density, low, high)[0] for low, high in itertools.pairwise(ends)]
    second = sum(integrate.quad(lambda x: x * x * density(x), low, high)[0] for low, high in itertools.pairwise(ends))
    assert sum(below) == pytest.approx(1.0)
    assert law.cdf(ends[2]) == pytest.approx(below[0] + below[1])
    assert law.variance == pytest.approx(second)
    p = np.array([0.001, 0.25, 0.5, 0.9])
    np.testing.assert_allclose(law.cdf(law.quantile(p)), p)


@pytest.mark.parametrize("law", [*CONTINUOUS, *LATTICE], ids=str)
def test_certain_probabilities_have_infinite_quantiles(law: NoiseLaw) -> None:
    np.testing.assert_array_equal(law.quantile([0.0, 1.0]), [-np.inf, np.inf])


def test_wide_discrete_gaussian_agrees_across_its_two_formulas() -> None:
    narrow, wide = DiscreteGaussian(1000.0), DiscreteGaussian(1000.0 * (1 + 1e-15))
    x = np.array([-9000.0, -3456.0, -1000.0, -1.0, 0.0, 17.0, 2500.0])
    assert narrow._width <= 1000 < wide._width
    np.testing.assert_allclose(wide.cdf(x), narrow.cdf(x), rtol=1e-11)


def test_discrete_laws_approach_their_continuous_namesakes() -> None:
    for discrete, continuous in (
        (DiscreteLaplace(50.0, step=1e-4), Laplace(50.0)),
        (DiscreteGaussian(50.0, step=1e-4), Gaussian(50.0)),
    ):
        assert discrete.variance == pytest.approx(continuous.variance, rel=1e-9)
        np.testing.assert_allclose(discrete.cdf([-30.0, 80.0]), continuous.cdf([-30.0, 80.0]), atol=1e-5)
        np.testing.assert_allclose(discrete.quantile([0.1, 0.99]), continuous.quantile([0.1, 0.99]), atol=2e-4)


def fits(draws: np.ndarray, law: NoiseLaw) -> bool:
    """Whether the draws could come from the law: a test at level 10⁻⁴."""
    if not law.discrete:
        return stats.kstest(draws, law.cdf).pvalue > 1e-4
    points, masses = probabilities(law)
    expected = masses * len(draws)
    common = expected >= 10
    observed = np.array([np.isclose(draws, point).sum() for point in points[common]], dtype=float)
    counts = np.append(observed, len(draws) - observed.sum())
    weights = np.append(expected[common], len(draws) - expected[common].sum())
    return stats.chisquare(counts, weights * counts.sum() / weights.sum()).pvalue > 1e-4


@pytest.mark.parametrize(
    "law",
    [
        Laplace(2.0),
        Gaussian(2.0),
        DiscreteLaplace(2.0),
        DiscreteLaplace(0.7, step=0.5),
        DiscreteGaussian(2.0),
        DiscreteGaussian(0.7, step=0.5),
    ],
    ids=str,
)
def test_simulation_follows_the_law_and_no_law_20_percent_off(law: NoiseLaw) -> None:
    draws = law.simulate(20_000, np.random.default_rng(SEED))
    assert fits(draws, law)
    for factor in (0.8, 1.2):
        other = noise_law(law.law, law.scale_parameter * factor, step=law.lattice_step)
        assert not fits(draws, other)


def test_simulation_has_the_asked_shape_and_repeats_by_seed() -> None:
    for law in (*CONTINUOUS, *LATTICE, Exact()):
        first, second = (law.simulate((2, 3), np.random.default_rng(1)) for _ in range(2))
        assert first.shape == (2, 3)
        np.testing.assert_array_equal(first, second)


def test_exact_allows_no_deviation() -> None:
    law = Exact()
    assert (law.variance, law.stddev_of_noise, law.scale_parameter) == (0.0, 0.0, 0.0)
    np.testing.assert_array_equal(law.log_density([0.0, 1e-9]), [0.0, -np.inf])
    np.testing.assert_array_equal(law.cdf([-1.0, 0.0]), [0.0, 1.0])
    np.testing.assert_array_equal(law.quantile([0.0, 0.3]), [0.0, 0.0])


@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, 1e60, "2", None, True, 10**400])
@pytest.mark.parametrize("law", [Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian])
def test_scales_that_no_noise_has_are_refused(law: type[NoiseLaw], scale: object) -> None:
    with pytest.raises(MeasurementError) as refusal:
        law(scale)  # type: ignore[call-arg]
    assert law.law in str(refusal.value)
    assert repr(scale) in str(refusal.value)
    assert "above 0" in str(refusal.value)


def test_zero_scale_points_to_exact() -> None:
    with pytest.raises(MeasurementError, match=r"Exact\(\)"):
        Laplace(0.0)


@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian])
def test_impossible_steps_are_refused(law: type) -> None:
    with pytest.raises(MeasurementError, match="the step -1"):
        law(2.0, step=-1)


@pytest.mark.parametrize("p", [-0.1, 1.5, math.nan])
def test_quantiles_of_no_probability_are_refused(p: float) -> None:
    for law in (Laplace(1.0), DiscreteLaplace(1.0), DiscreteGaussian(1.0), Exact()):
        with pytest.raises(MeasurementError, match="is not a probability"):
            law.quantile([0.5, p])


scales = st.floats(min_value=1e-40, max_value=1e40)


@given(st.one_of(
    st.builds(Laplace, scales),
    st.builds(Gaussian, scales),
    st.builds(DiscreteLaplace, scales, scales),
    st.builds(DiscreteGaussian, scales, scales),
    st.just(Exact()),
))  # fmt: skip
def test_json_round_trip_and_finite_numbers_at_any_scale(law: NoiseLaw) -> None:
    assert noise_law_from_json(law.to_json()) == law
    assert math.isfinite(law.variance)
    assert law.variance >= 0
    p = np.array([1e-12, 0.2, 0.5, 0.8])
    quantiles = law.quantile(p)
    assert np.all(np.isfinite(quantiles))
    assert np.all(np.diff(quantiles) >= 0)
    assert np.all(law.cdf(quantiles) >= p - 1e-9)


@pytest.mark.parametrize(
    ("mapping", "problem"),
    [
        ({"law": "laplas", "scale": 1.0}, "did you mean 'laplace'"),
        ({"law": "laplace", "scale": -1.0}, "-1.0"),
        ({"law": "laplace", "scale": 1.0, "step": 1.0}, "no step"),
        ({"law": "exact", "scale": 1.0}, "scale 0"),
        ({"law": "laplace"}, "'scale' is missing"),
        ({"law": "laplace", "scale": 1.0, "stddev": 2.0}, "'stddev' is not known"),
        ([1], "expected a table"),
    ],
)
def test_json_of_no_law_is_refused(mapping: object, problem: str) -> None:
    with pytest.raises(MeasurementError, match=problem):
        noise_law_from_json(mapping)

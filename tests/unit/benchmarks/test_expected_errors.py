"""The expected errors are those of the plans themselves, and the numbers that the paper prints."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.reproduce.qardaji2014.expected_errors import (
    block_criterion,
    direct_beats_flat_from,
    direct_error,
    expected_squared_error,
    flat_error,
    fourier_coefficients,
    fourier_error,
    learning_noise_error,
    normalised_error,
    published_fourier_error,
    unit_variance,
    view_noise_error,
)
from consilience.domain import Domain
from consilience.errors import DeclarationError
from consilience.measuring import PricingGate
from consilience.plans.marginals import Direct, Flat, Marginals
from consilience.plans.published.marginals import Fourier, Learning
from consilience.privacy.budgets import budget

EPSILON = 0.2
FLAGS = Domain.from_sizes(dict.fromkeys("abcde", 2), name="flags")
PAIRS = list(itertools.combinations(FLAGS.names, 2))


def noise_of(plan, *, runs: int = 4000, seed: int = 3) -> dict[tuple[str, ...], np.ndarray]:
    """The noise of every query that the plan measures, at the scale that the gate gives it, so many times over."""
    gate = PricingGate(FLAGS, budget(epsilon=EPSILON), neighbours="add-remove", rows_per_unit=1)
    plan.run(gate)
    rng = np.random.default_rng(seed)
    return {
        each.bound.attributes: rng.laplace(0.0, each.noise.scale_parameter, (runs, *each.bound.shape))
        for each in gate.prices[0].queries
    }


def from_full_table(noise, first: str, second: str) -> np.ndarray:
    away = tuple(1 + place for place, name in enumerate(FLAGS.names) if name not in (first, second))
    return noise[FLAGS.names].sum(axis=away)


def as_measured(noise, first: str, second: str) -> np.ndarray:
    return noise[first, second]


def by_inverse_transform(noise, first: str, second: str) -> np.ndarray:
    none, one, two, both = (noise[names].ravel() for names in ((), (first,), (second,), (first, second)))
    return (
        np.stack([none + one + two + both, none + one - two - both, none - one + two - both, none - one - two + both])
        / 4
    )


def by_polynomial(noise, first: str, second: str) -> np.ndarray:
    """g = −1/3 + 2/3 · literals matched, which is 1 at two, and ±1/3 elsewhere."""
    return 2 / 3 * (noise[(first,)][:, :, None] + noise[(second,)][:, None, :]) - noise[()][:, None, None] / 3


@pytest.mark.parametrize(
    ("plan", "answer", "expected"),
    [
        (Flat(), from_full_table, flat_error(5, epsilon=EPSILON)),
        (Direct(2), as_measured, direct_error(5, 2, epsilon=EPSILON)),
        (Fourier(2), by_inverse_transform, fourier_error(5, 2, epsilon=EPSILON)),
        (Learning(2, gamma=0.5), by_polynomial, learning_noise_error(5, Learning(2, gamma=0.5), epsilon=EPSILON)),
        (Marginals([FLAGS.names, "a"]), from_full_table, expected_squared_error([32], views=2, epsilon=EPSILON)),
    ],
    ids=["flat", "direct", "fourier", "learning", "views"],
)
def test_plans_have_the_error_that_is_told_and_not_one_a_tenth_off(plan, answer, expected: float) -> None:
    noise = noise_of(plan)
    squared = [(answer(noise, *pair) ** 2).sum() / 4000 for pair in PAIRS]
    assert abs(np.mean(squared) / expected - 1) < 0.04


def test_the_published_error_of_fourier_is_too_small_for_few_flags() -> None:
    assert fourier_error(5, 2) > 2 * published_fourier_error(5, 2)
    assert published_fourier_error(9, 4) == pytest.approx(direct_error(9, 4) / 16)
    assert 1 < fourier_error(32, 8) / published_fourier_error(32, 8) < 2.2


FANO = [tuple(sorted((i + j) % 7 for j in (0, 1, 3))) for i in range(7)]
REST = [tuple(sorted(set(range(7)) - set(block))) for block in FANO]


@pytest.mark.parametrize(("blocks", "strength", "held"), [(FANO, 2, 1), (REST, 2, 2), (REST, 1, 4)])
def test_means_over_the_views_that_hold_a_set_have_the_noise_error_of_equation_5(blocks, strength, held) -> None:
    """Seven flags; every pair is part of one block of Fano's plane, and of two of the blocks' complements."""
    rng = np.random.default_rng(1)
    records, epsilon, runs = 10_000, 0.5, 1500
    noise = rng.laplace(0.0, len(blocks) / epsilon, (runs, len(blocks), 2 ** len(blocks[0])))
    squared = []
    for wanted in itertools.combinations(range(7), strength):
        holding = [i for i, block in enumerate(blocks) if set(wanted) <= set(block)]
        assert len(holding) == held
        tables = []
        for i in holding:
            cube = noise[:, i].reshape(runs, *(2 for _ in blocks[i]))
            away = tuple(1 + axis for axis, point in enumerate(blocks[i]) if point not in wanted)
            tables.append(cube.sum(axis=away).reshape(runs, -1))
        squared.append((np.mean(tables, axis=0) ** 2).sum(axis=1).mean())
    told = view_noise_error(7, len(blocks[0]), 7, records, epsilon, strength=strength)
    assert math.sqrt(np.mean(squared)) / records == pytest.approx(told, rel=0.04)
    cells = [2 ** len(blocks[0])] * held
    assert normalised_error(expected_squared_error(cells, views=7, epsilon=epsilon), records) == pytest.approx(told)


def test_views_of_different_sizes_are_best_averaged_by_their_cells() -> None:
    """Two views of 12 and 48 cells, three measured: of all weights, those by 1/cells have the least error."""
    rng = np.random.default_rng(2)
    small = rng.laplace(0, 3.0, (20_000, 4, 3)).sum(axis=2)
    large = rng.laplace(0, 3.0, (20_000, 4, 12)).sum(axis=2)
    errors = {w: ((w * small + (1 - w) * large) ** 2).sum(axis=1).mean() for w in (0.5, 0.7, 0.8, 0.9, 1.0)}
    told = expected_squared_error([12, 48], views=3)
    assert min(errors, key=errors.__getitem__) == 0.8
    assert errors[0.8] == pytest.approx(told, rel=0.04)
    assert expected_squared_error([12], views=3) == pytest.approx(12 * 9 * 2)


def test_the_tables_of_the_paper() -> None:
    assert [direct_beats_flat_from(ways) for ways in (2, 3, 4, 5)] == [16, 26, 36, 46]
    printed = {
        5: (0.283, 0.094),
        6: (0.267, 0.067),
        7: (0.269, 0.054),
        8: (0.286, 0.048),
        9: (0.314, 0.045),
        10: (0.356, 0.044),
        11: (0.411, 0.046),
        12: (0.485, 0.048),
    }
    for block, (pairs, triples) in printed.items():
        assert block_criterion(block, 2) == pytest.approx(pairs, abs=6e-4)
        assert block_criterion(block, 3) == pytest.approx(triples, abs=6e-4)
    for views, error in ((20, 0.00047), (106, 0.0011), (620, 0.0026)):
        assert view_noise_error(32, 8, views, 900_000, 1.0) == pytest.approx(error, rel=0.03)
        assert view_noise_error(32, 8, views, 900_000, 0.1) == pytest.approx(10 * error, rel=0.03)


def test_the_example_of_sixteen_flags() -> None:
    unit = unit_variance()
    assert flat_error(16) / unit == 65_536
    assert direct_error(16, 2) / unit == 57_600
    assert expected_squared_error([2**8], views=6) / unit == 9_216


@pytest.mark.parametrize("ways", range(1, 9))
def test_direct_beats_flat_from_there_on_and_not_one_before(ways: int) -> None:
    start = direct_beats_flat_from(ways)
    assert all(direct_error(d, ways) < flat_error(d) for d in range(start, start + 100))
    assert direct_error(start - 1, ways) >= flat_error(start - 1)


def test_coefficients_are_counted_and_a_triple_is_held_more_rarely_than_a_pair() -> None:
    assert fourier_coefficients(32, 2) == 1 + 32 + 496
    assert view_noise_error(32, 8, 106, 1e6, strength=3) > view_noise_error(32, 8, 106, 1e6)
    ratio = view_noise_error(32, 8, 106, 1e6, strength=3) / view_noise_error(32, 8, 106, 1e6)
    assert ratio == pytest.approx(math.sqrt(30 / 6))


def test_errors_are_in_parts_of_the_records_and_may_be_capped() -> None:
    assert normalised_error(4.0, 10) == pytest.approx(0.2)
    assert normalised_error(1e20, 10, largest=1.0) == 1.0


def test_what_makes_no_sense_is_refused() -> None:
    for call in (
        lambda: unit_variance(0.0),
        lambda: flat_error(2000),
        lambda: direct_error(5, 6),
        lambda: direct_error(5, -1),
        lambda: view_noise_error(5, 6, 3, 100),
        lambda: view_noise_error(6, 5, 0, 100),
        lambda: view_noise_error(6, 2, 3, 100, strength=3),
        lambda: normalised_error(1.0, 0),
        lambda: expected_squared_error([], views=3),
        lambda: expected_squared_error([4, 4], views=1),
        lambda: direct_beats_flat_from(0),
        lambda: block_criterion(2, 3),
    ):
        with pytest.raises(DeclarationError):
            call()

"""The spectral score is the norm beyond a frequency, exact, and moves by no more than it declares."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.problems.selection_laws import selection_probabilities
from consilience.domain import Domain
from consilience.errors import DeclarationError
from consilience.kernels.transforms import most_frequencies, rows_of
from consilience.privacy.network_scores import BITS, SpectralTail
from consilience.privacy.noise import SimulatedNoise
from consilience.privacy.scores import select


def score_over(size: int, penalties: tuple[float, ...] | None = None) -> SpectralTail:
    return SpectralTail("a", size, penalties or (0.0,) * most_frequencies(size))


@pytest.mark.parametrize("size", [1, 2, 5, 8, 31])
def test_scores_are_minus_the_norm_beyond_and_the_penalty(size: int) -> None:
    counts = np.random.default_rng(size).integers(0, 1000, size)
    penalties = tuple(float(k) for k in range(1, most_frequencies(size) + 1))
    found = score_over(size, penalties).values([counts]) / (math.sqrt(size) * 2**BITS)
    spectrum = np.fft.fft(counts) / math.sqrt(size)
    frequency = np.abs(np.fft.fftfreq(size) * size).round()
    for kept in range(1, most_frequencies(size) + 1):
        beyond = np.linalg.norm(spectrum[frequency >= kept])
        assert found[kept - 1] == pytest.approx(-(beyond + kept), abs=2.0 ** (1 - BITS) * (1 + np.linalg.norm(counts)))


def test_what_lies_beyond_the_last_candidate_counts_for_none() -> None:
    counts = np.random.default_rng(0).integers(0, 50, 16)
    assert score_over(16, (0.0,) * 4).values([counts])[-1] == 0


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("size", [2, 3, 6, 9])
def test_no_neighbouring_table_moves_a_score_by_more_than_declared(size: int, neighbours: str) -> None:
    score = score_over(size)
    declared = score.sensitivity(neighbours)  # type: ignore[arg-type]
    rng = np.random.default_rng(size)
    unit = np.eye(size, dtype=np.int64)
    tables = [rng.integers(0, 4, size) for _ in range(40)] + [rng.integers(0, 10**6, size) for _ in range(10)]
    tables += [40 * unit[s] for s in range(size)]
    tables += [50 + 40 * (unit[s] - unit[t]) for s, t in itertools.permutations(range(size), 2)]
    largest = 0
    for table in tables:
        before = score.values([table])
        if neighbours == "add-remove":
            others = [table + unit[s] for s in range(size)]
        else:
            pairs = itertools.permutations(range(size), 2)
            others = [table + unit[s] - unit[t] for s, t in pairs if table[t] > 0]
        largest = max([largest, *(int(np.abs(score.values([other]) - before).max()) for other in others)])
    assert largest <= declared
    # Frequency 0 is always kept, so a single column loses 1/n of its square.
    tightest = math.sqrt((size - 1) / size) if neighbours == "add-remove" else 1.0
    assert largest >= 0.999 * tightest * (declared - 2 * math.sqrt(size) - 2)


def test_selection_follows_the_law_of_the_declared_sensitivity() -> None:
    size, epsilon, draws = 8, 1.0, 6000
    counts = np.array([3, 28, 5, 9, 2, 7, 1, 2])
    score = score_over(size, (1.0, 3.0, 7.0, 10.0, 20.0))
    values, sensitivity = score.values([counts]), score.sensitivity("add-remove")
    noise = SimulatedNoise(0)
    chosen = [select(values, sensitivity=sensitivity, epsilon=epsilon, noise=noise) for _ in range(draws)]
    found = np.bincount(chosen, minlength=values.size) / draws

    def distance(scale: float) -> float:
        law = selection_probabilities(
            values, sensitivity=sensitivity, epsilon=epsilon * scale, selector="permute-and-flip"
        )
        return 0.5 * float(np.abs(found - law).sum())

    assert distance(1.0) < 0.03
    assert distance(1.3) > 0.03
    assert distance(0.7) > 0.03


def test_candidates_may_begin_with_more_frequencies() -> None:
    counts = np.random.default_rng(0).integers(0, 50, 16)
    later = SpectralTail("a", 16, (0.0,) * 3, fewest=2)
    assert list(later.candidates) == [2, 3, 4]
    np.testing.assert_array_equal(later.values([counts]), score_over(16, (0.0,) * 4).values([counts])[1:])


def test_a_score_that_does_not_fit_the_domain_is_refused() -> None:
    domain = Domain.from_sizes({"a": 5})
    score_over(5).check(domain)
    for wrong in (score_over(6), SpectralTail("a", 5, ()), score_over(5, (0.0,) * 4), score_over(5, (math.nan,))):
        with pytest.raises(DeclarationError):
            wrong.check(domain)


def test_huge_penalties_and_counts_leave_room_in_the_scores() -> None:
    score = score_over(4, (1e300, 0.0, 1.0))
    values = score.values([np.full(4, 2**31)])
    assert values[0] < values[1] <= 0
    assert rows_of(4, 3) == 4

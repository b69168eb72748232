"""Partitions by the distance to the mean: exact costs, the sensitivity that is declared, and laws that keep it."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.problems.selection_laws import selection_probabilities
from consilience.domain import Domain
from consilience.errors import DeclarationError
from consilience.privacy.mean_partitions import (
    LeastMeanCostPartition,
    NestedBisection,
    mean_deviation_sensitivity,
    prefix_mean_deviations,
    window_mean_deviations,
)
from consilience.privacy.noise import SimulatedNoise
from consilience.privacy.partitions import Bisection, LeastCostPartition, interval_family

BITS = 3


def deviation(counts: list[int], bits: int = BITS) -> int:
    """The definition."""
    mean = Fraction(sum(counts), max(len(counts), 1))
    return math.floor(2**bits * sum((abs(count - mean) for count in counts), Fraction(0)))


@settings(deadline=None, max_examples=30)  # the first example compiles a kernel
@given(st.lists(st.integers(0, 40), min_size=1, max_size=10))
def test_prefixes_and_windows_have_the_deviation_of_the_definition(counts: list[int]) -> None:
    found = prefix_mean_deviations(np.array(counts), BITS)
    assert found.tolist() == [deviation(counts[:i]) for i in range(len(counts) + 1)]
    for width in range(1, len(counts) + 1):
        windows = [deviation(counts[i : i + width]) for i in range(len(counts) - width + 1)]
        assert window_mean_deviations(np.array(counts), width, BITS).tolist() == windows


def test_large_counts_stay_exact() -> None:
    counts = np.random.default_rng(0).integers(0, 2**31, 1000)
    assert prefix_mean_deviations(counts, 10)[-1] == deviation(counts.tolist(), 10)


@pytest.mark.parametrize("width", range(1, 6))
def test_one_record_changes_a_deviation_by_no_more_than_is_declared(width: int) -> None:
    rng = np.random.default_rng(width)
    largest = 0
    for table in rng.integers(0, 8, (60, width)).tolist():
        for code in range(width):
            more = [count + (place == code) for place, count in enumerate(table)]
            largest = max(largest, abs(deviation(more) - deviation(table)))
    assert largest <= mean_deviation_sensitivity(width, BITS) <= 2 * 2**BITS
    assert width == 1 or largest >= 2**BITS * (1 - 1 / width)


def test_the_noise_of_the_least_cost_is_made_for_the_mean_which_has_up_to_twice_the_sensitivity() -> None:
    by_mean, by_median = LeastMeanCostPartition("a", 2.0), LeastCostPartition("a", 2.0)
    assert [by_median.sensitivity(width) for width in (1, 2, 64)] == [0, 1024, 1024]
    assert [by_mean.sensitivity(width) for width in (1, 2, 64)] == [0, 1024, 2016]
    assert by_mean.fingerprint() != by_median.fingerprint()


def test_buckets_cost_what_an_even_spread_gets_wrong() -> None:
    counts = np.array([0, 0, 0, 8])
    family = interval_family(4, "dyadic")
    by_mean = LeastMeanCostPartition("a", 0.0, bits=0).costs(counts, family)
    by_median = LeastCostPartition("a", 0.0, bits=0).costs(counts, family)
    assert [costs.tolist() for costs in by_mean] == [[0, 0, 0, 0], [0, 0, 8], [12]]
    assert [costs.tolist() for costs in by_median] == [[0, 0, 0, 0], [0, 0, 8], [8]]
    assert NestedBisection("a", 1, 0.0, bits=0).costs(counts).tolist() == [12, 10, 8, 0]
    assert Bisection("a", 1, 0.0, bits=0).costs(counts).tolist() == [8, 8, 8, 0]


def nested_law(rule: NestedBisection, counts: np.ndarray, epsilon: float) -> dict[tuple[int, ...], float]:
    """The law of the starts over three codes with two levels, by all ways to cut them."""

    def chances(costs: list[int] | np.ndarray, share: float) -> np.ndarray:
        unit = 2.0 * 2**rule.bits
        return selection_probabilities(-np.array(costs), sensitivity=unit, epsilon=share, selector="exponential")

    law: dict[tuple[int, ...], float] = {}

    def ends(cuts: list[int], costs: list[int], chance: float) -> None:
        kept = chances(costs, epsilon / 2) if cuts else np.ones(1)
        for number, part in enumerate(kept.tolist()):
            key = (0, *sorted(cuts[:number]))
            law[key] = law.get(key, 0.0) + chance * part

    whole = rule.costs(counts)
    first = chances(whole, epsilon / 4)
    ends([], [int(whole[0])], float(first[0]))
    for cut in (1, 2):
        after = int(whole[cut])
        pair, start = (counts[1:], 1) if cut == 1 else (counts[:2], 0)
        costs = rule.costs(pair)
        keep, again = chances(costs, epsilon / 4).tolist()
        ends([cut], [int(whole[0]), after], float(first[cut]) * keep)
        total = after + int(costs[1] - costs[0])
        ends([cut, start + 1], [int(whole[0]), after, total], float(first[cut]) * again)
    return law


def test_nested_bisection_never_loses_more_than_epsilon() -> None:
    epsilon, rule, worst = 2.0, NestedBisection("a", 2, bucket_noise=0.4, bits=2), 0.0
    for table in itertools.product(range(4), repeat=3):
        for code in range(3):
            here, there = (
                nested_law(rule, counts, epsilon)
                for counts in (np.array(table), np.array(table) + (np.arange(3) == code))
            )
            assert sum(here.values()) == pytest.approx(1.0)
            worst = max(worst, *(abs(math.log(here[key] / there[key])) for key in here))
    assert epsilon / 20 <= worst <= epsilon


class Branches(Exception):
    """A selection that the script does not reach."""


@dataclass
class Scripted:
    """A noise source that selects what its script says, and knows how probable that was."""

    script: tuple[int, ...]
    factor: float
    chance: float = 1.0
    asked: int = 0

    def noisy_argmax(self, scores: np.ndarray, scale: float, *, law: str) -> int:
        assert law == "gumbel"
        if self.asked == len(self.script):
            raise Branches(scores.size)
        options = {"sensitivity": 0.5, "epsilon": 1 / (scale * self.factor)}  # the noise has this scale
        chosen = self.script[self.asked]
        self.chance *= float(selection_probabilities(scores, selector="exponential", **options)[chosen])
        self.asked += 1
        return chosen


def drawn_law(rule: NestedBisection, counts: np.ndarray, epsilon: float, factor: float) -> dict[tuple[int, ...], float]:
    """The law of what the rule draws, by a run for every way to answer its selections; `factor` scales their noise."""
    law: dict[tuple[int, ...], float] = {}
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        noise = Scripted(scripts.pop(), factor)
        try:
            starts = rule.draw(counts, epsilon=epsilon, neighbours="add-remove", noise=noise)  # type: ignore[arg-type]
        except Branches as branches:
            scripts += [(*noise.script, choice) for choice in range(branches.args[0])]
        else:
            law[tuple(starts)] = law.get(tuple(starts), 0.0) + noise.chance
    return law


# One record in the last but one place: above the mean of all, which pulls "keep" away, and below the mean of the right
# side, which pulls the cut between small and large counts closer. Both move by nearly the sensitivity.
REVEALING = np.array([0] * 20 + [10, 10, 10, 10, 9, 10])


def worst_loss(rule: NestedBisection, epsilon: float, factor: float) -> float:
    """The largest |log-ratio| of any partition, with one record less in the place that tells most, or with it."""
    here, there = (drawn_law(rule, REVEALING - less * (np.arange(26) == 24), epsilon, factor) for less in (0, 1))
    assert sum(here.values()) == pytest.approx(1.0)
    return max(abs(math.log(here[key] / there[key])) for key in here)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_nested_bisection_keeps_its_promise_and_breaks_it_with_a_quarter_of_the_noise(epsilon: float) -> None:
    rule = NestedBisection("a", 1, bucket_noise=0.2)
    assert epsilon / 4 < worst_loss(rule, epsilon, 1.0) <= epsilon
    assert worst_loss(rule, epsilon, 0.25) > epsilon


def test_one_record_changes_costs_by_no_more_than_selections_are_made_for_and_by_more_than_half_of_it() -> None:
    rule, largest = NestedBisection("a", 2, bucket_noise=0.4, bits=6), 0
    for table in np.random.default_rng(0).integers(0, 8, (60, 5)):
        for code in range(5):
            moved = rule.costs(table + (np.arange(5) == code)) - rule.costs(table)
            largest = max(largest, int(np.abs(moved).max()))
    assert 1.5 * 2**6 < largest <= 2 * 2**6


def test_nested_bisection_is_drawn_by_its_law() -> None:
    epsilon, draws, counts = 6.0, 600, np.array([1, 5, 4])
    rule, noise = NestedBisection("a", 2, bucket_noise=0.3), SimulatedNoise(1)
    found: dict[tuple[int, ...], int] = {}
    for _ in range(draws):
        key = tuple(rule.draw(counts, epsilon=epsilon, neighbours="add-remove", noise=noise))
        found[key] = found.get(key, 0) + 1

    def distance(scale: float) -> float:
        law = nested_law(rule, counts, scale * epsilon)
        return 0.5 * sum(abs(found.get(key, 0) / draws - chance) for key, chance in law.items())

    assert distance(1.0) < 0.08
    assert distance(2.5) > 0.08
    assert distance(0.4) > 0.08


@pytest.mark.parametrize("kind", ["bisection", "least cost"])
def test_with_ample_budget_steps_are_found(kind: str) -> None:
    counts = np.repeat([10, 500, 40, 900], [8, 16, 4, 4])
    rule = NestedBisection("a", 4, 0.01) if kind == "bisection" else LeastMeanCostPartition("a", 0.01)
    starts = rule.draw(counts, epsilon=1e4, neighbours="add-remove", noise=SimulatedNoise(0))
    assert list(starts) == [0, 8, 24, 28]


def test_levels_that_the_values_do_not_have_are_refused() -> None:
    with pytest.raises(DeclarationError, match="levels"):
        NestedBisection("a", 9, 1.0).check(Domain.from_sizes({"a": 8}))

"""Private partitions: their exact laws, computed for small tables, keep the promise under both relations."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from benchmarks.problems.selection_laws import selection_probabilities
from consilience.domain import Domain
from consilience.errors import DeclarationError
from consilience.privacy.mean_partitions import LeastMeanCostPartition
from consilience.privacy.noise import SimulatedNoise
from consilience.privacy.partitions import (
    Bisection,
    LeastCostPartition,
    NestedCostPartition,
    deviation_sensitivity,
    interval_family,
    nested_deviations,
    nested_widths,
    window_deviations,
)

Law = dict[tuple[int, ...], float]


def neighbours_of(table: tuple[int, ...], relation: str) -> Iterator[tuple[int, ...]]:
    """Tables one record away."""
    unit = np.eye(len(table), dtype=int)
    for s, t in itertools.product(range(len(table)), repeat=2):
        if relation == "add-remove" and s == t:
            yield tuple((np.array(table) + unit[s]).tolist())
        if relation == "replace-one" and s != t and table[t] > 0:
            yield tuple((np.array(table) + unit[s] - unit[t]).tolist())


def largest_loss(law_of: Callable[[tuple[int, ...]], Law], size: int, most: int, relation: str) -> float:
    """max |log Pr(P | x) − log Pr(P | x')| over all small tables, their neighbours and all partitions."""
    known: dict[tuple[int, ...], Law] = {}

    def law(table: tuple[int, ...]) -> Law:
        if table not in known:
            known[table] = law_of(table)
        return known[table]

    worst = 0.0
    for table in itertools.product(range(most), repeat=size):
        for other in neighbours_of(table, relation):
            first, second = law(table), law(other)
            assert first.keys() == second.keys()
            worst = max(worst, *(abs(math.log(first[key] / second[key])) for key in first))
    return worst


def bisection_law(rule: Bisection, counts: np.ndarray, epsilon: float, levels: int, first: int = 0) -> Law:
    """The law of the starts inside one bucket, with so many levels to go and this ε on each of them."""
    if levels == 0 or counts.size == 1:
        return {(first,): 1.0}
    chances = selection_probabilities(
        -rule.costs(counts),
        sensitivity=deviation_sensitivity(counts.size) * 2**rule.bits,
        epsilon=epsilon,
        selector="permute-and-flip",
    )
    law: Law = {(first,): float(chances[0])}
    for cut in range(1, counts.size):
        left = bisection_law(rule, counts[:cut], epsilon, levels - 1, first)
        right = bisection_law(rule, counts[cut:], epsilon, levels - 1, first + cut)
        for (a, p), (b, q) in itertools.product(left.items(), right.items()):
            law[a + b] = law.get(a + b, 0.0) + float(chances[cut]) * p * q
    return law


@pytest.mark.parametrize(("relation", "share"), [("add-remove", 1.0), ("replace-one", 0.5)])
@pytest.mark.parametrize("levels", [1, 2])
def test_bisection_never_loses_more_than_epsilon(levels: int, relation: str, share: float) -> None:
    epsilon = 2.0
    rule = Bisection("a", levels, bucket_noise=0.4, bits=2)

    def law_of(table: tuple[int, ...]) -> Law:
        return bisection_law(rule, np.array(table), share * epsilon / levels, levels)

    worst = largest_loss(law_of, 4, 4, relation)
    assert worst <= epsilon * (1 + 1e-9)
    assert worst >= epsilon / 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("levels", "relation", "share"),
    [(1, "add-remove", 1.0), (2, "add-remove", 1.0), (1, "replace-one", 0.5), (2, "replace-one", 0.5)],
)
def test_bisection_is_drawn_by_its_law(levels: int, relation: str, share: float) -> None:
    epsilon, draws, counts = 3.0, 4000, np.array([1, 1, 4, 3])
    rule, noise = Bisection("a", levels, bucket_noise=0.3), SimulatedNoise(1)
    found = Counter(
        tuple(rule.draw(counts, epsilon=epsilon, neighbours=relation, noise=noise))  # type: ignore[arg-type]
        for _ in range(draws)
    )

    def distance(scale: float) -> float:
        law = bisection_law(rule, counts, scale * share * epsilon / levels, levels)
        assert math.isclose(sum(law.values()), 1.0)
        return 0.5 * sum(abs(found.get(key, 0) / draws - chance) for key, chance in law.items())

    assert distance(1.0) < 0.04
    assert distance(1.6) > 0.04
    assert distance(0.5) > 0.04


def test_costs_of_a_bisection_are_deviations_and_noise() -> None:
    rule = Bisection("a", 1, bucket_noise=0.25, bits=4)
    assert (rule.costs(np.array([1, 5, 6])) / 16).tolist() == [5.25, 1.5, 4.5]


@pytest.mark.parametrize("kind", ["bisection", "least cost"])
def test_with_ample_budget_steps_are_found(kind: str) -> None:
    counts = np.repeat([10, 500, 40, 900], [8, 16, 4, 4])
    rule = Bisection("a", 4, 0.01) if kind == "bisection" else LeastCostPartition("a", 0.01)
    starts = rule.draw(counts, epsilon=1e4, neighbours="add-remove", noise=SimulatedNoise(0))
    assert list(starts) == [0, 8, 24, 28]


REACH = 400


def noisy(cost: int, scale: float) -> np.ndarray:
    """The law of a cost after discrete Laplace noise, on −REACH … REACH."""
    ratio = math.exp(-1.0 / scale)
    return ratio ** np.abs(np.arange(-REACH, REACH + 1) - cost) * (1 - ratio) / (1 + ratio)


def difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The law of the difference of two such variables."""
    return np.convolve(first, second[::-1])[REACH:-REACH]


def at_least(law: np.ndarray) -> np.ndarray:
    return np.cumsum(law[::-1])[::-1]


def least_cost_law(rule: LeastCostPartition, table: tuple[int, ...], epsilon: float) -> Law:
    """The law over three codes with intervals of one and two.

    With the noisy costs a, b, c of single codes and d, e of {0,1} and {1,2}, let u = d − a and v = e − c, independent
    of each other and of b. Compared with single codes, {0,1}{2} costs u − b more and {0}{1,2} v − b more. Ties go to
    {0}{1,2}, then to {0,1}{2}: the longest last bucket wins.
    """
    family = interval_family(3, "dyadic")
    scales = [2**rule.bits / epsilon, 2 * 2**rule.bits / epsilon]
    single, pair = rule.costs(np.array(table), family)
    a, b, c = (noisy(int(cost), scales[0]) for cost in single)
    u, v = (difference(noisy(int(cost), scales[1]), other) for cost, other in zip(pair, (a, c), strict=True))
    u_above, v_above = at_least(u) - u, at_least(v) - v
    return {
        (0, 1, 2): float((b * u_above * v_above).sum()),
        (0, 2): float((u * at_least(b) * v_above).sum()),
        (0, 1): float((v * at_least(b) * at_least(u)).sum()),
    }


def test_the_law_of_the_least_cost_sums_to_one() -> None:
    law = least_cost_law(LeastCostPartition("a", 1.0, bits=0), (0, 3, 1), 1.0)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)


RULES = pytest.mark.parametrize("kind", [LeastCostPartition, LeastMeanCostPartition], ids=["ours", "as published"])


@RULES
@pytest.mark.parametrize(("relation", "share"), [("add-remove", 1.0), ("replace-one", 0.5)])
def test_the_least_cost_partition_never_loses_more_than_epsilon(
    kind: type[LeastCostPartition], relation: str, share: float
) -> None:
    epsilon = 2.0
    rule = kind("a", bucket_noise=1.0, bits=0)

    worst = largest_loss(lambda table: least_cost_law(rule, table, share * epsilon), 3, 5, relation)
    assert worst <= epsilon * (1 + 1e-9)
    assert worst >= epsilon / 2
    careless = largest_loss(lambda table: least_cost_law(rule, table, 2 * share * epsilon), 3, 5, relation)
    assert careless > epsilon


@pytest.mark.slow
@RULES
@pytest.mark.parametrize(("relation", "share"), [("add-remove", 1.0), ("replace-one", 0.5)])
def test_the_least_cost_partition_is_drawn_by_its_law(
    kind: type[LeastCostPartition], relation: str, share: float
) -> None:
    epsilon, draws, table = 4.0, 4000, (0, 3, 1)
    rule, noise = kind("a", bucket_noise=1.0, bits=0), SimulatedNoise(2)
    found = Counter(
        tuple(rule.draw(np.array(table), epsilon=epsilon, neighbours=relation, noise=noise))  # type: ignore[arg-type]
        for _ in range(draws)
    )

    def distance(scale: float) -> float:
        law = least_cost_law(rule, table, scale * share * epsilon)
        return 0.5 * sum(abs(found.get(key, 0) / draws - chance) for key, chance in law.items())

    assert distance(1.0) < 0.025
    assert distance(1.5) > 0.025
    assert distance(0.6) > 0.025


@pytest.mark.parametrize("intervals", ["dyadic", "all"])
def test_bucket_costs_move_by_no_more_than_the_noise_is_made_for(intervals: str) -> None:
    rng = np.random.default_rng(0)
    rule = LeastCostPartition("a", 2.0, intervals, bits=5)  # type: ignore[arg-type]
    family = interval_family(7, rule.intervals)
    for _ in range(30):
        table = rng.integers(0, 6, 7)
        before = rule.costs(table, family)
        for code in range(7):
            after = rule.costs(table + (np.arange(7) == code), family)
            for (width, step), old, new in zip(family, before, after, strict=True):
                firsts = step * np.arange(old.size)
                holds = (firsts <= code) & (code < firsts + width)
                assert np.abs(new - old)[holds].max(initial=0) <= 2**5 * deviation_sensitivity(width)
                np.testing.assert_array_equal(new[~holds], old[~holds])


def test_both_families_of_intervals_have_the_same_costs() -> None:
    counts = np.random.default_rng(3).integers(0, 100, 20)
    dyadic, every = LeastCostPartition("a", 1.0), LeastCostPartition("a", 1.0, "all")
    few, many = interval_family(20, "dyadic"), interval_family(20, "all")
    costs = dict(zip([width for width, _ in many], every.costs(counts, many), strict=True))
    for (width, step), found in zip(few, dyadic.costs(counts, few), strict=True):
        np.testing.assert_array_equal(found, costs[width][::step])


def test_tiny_budgets_leave_all_values_in_one_bucket_without_failing() -> None:
    counts = np.array([0, 10**9, 0, 5])
    for rule in (LeastCostPartition("a", 1.0), Bisection("a", 2, 1.0)):
        starts = rule.draw(counts, epsilon=1e-30, neighbours="replace-one", noise=SimulatedNoise(0))
        assert starts[0] == 0
    rule = LeastCostPartition("a", 1.0)
    assert list(rule.draw(counts, epsilon=1e-9, neighbours="add-remove", noise=SimulatedNoise(0))) == [0]


def test_rules_that_do_not_fit_are_refused() -> None:
    domain = Domain.from_sizes({"a": 5, "wide": 1000})
    Bisection("a", 2, 1.0).check(domain)
    LeastCostPartition("wide", 1.0).check(domain)
    for wrong in (
        Bisection("a", 0, 1.0),
        Bisection("a", 6, 1.0),
        Bisection("a", 1, math.inf),
        Bisection("b", 1, 1.0),
        LeastCostPartition("a", -1.0),
        LeastCostPartition("a", math.nan),
        LeastCostPartition("wide", 1.0, "all"),
        LeastCostPartition("a", 1.0, "some"),  # type: ignore[arg-type]
        NestedCostPartition("a", -1.0),
        NestedCostPartition("b", 1.0),
    ):
        with pytest.raises(DeclarationError):
            wrong.check(domain)


def nested_law(table: tuple[int, ...], epsilon: float) -> Law:
    """The law over five codes with intervals of two and of four, where a cut costs one record and bits are 0.

    A pair costs 0 where its noisy M is at most 0, and else 1; it is kept whole up to 1. The first four are kept whole
    where their noisy M is at most one more than the mean of both pairs' costs, rounded down.
    """
    scale = 2.0 / epsilon
    pairs = [np.cumsum(noisy(int(cost), scale)) for cost in nested_deviations(np.array(table), 2)[:2]]
    four = np.cumsum(noisy(int(nested_deviations(np.array(table), 4)[0]), scale))
    states = [
        [(0, True, below[REACH]), (1, True, below[REACH + 1] - below[REACH]), (1, False, 1 - below[REACH + 1])]
        for below in pairs
    ]
    law: Law = {}
    for (cost, kept, chance), (other_cost, other_kept, other) in itertools.product(*states):
        whole = float(four[REACH + 1 + (cost + other_cost) // 2])
        starts = (0, *(() if kept else (1,)), 2, *(() if other_kept else (3,)), 4)
        law[starts] = law.get(starts, 0.0) + chance * other * (1 - whole)
        law[0, 4] = law.get((0, 4), 0.0) + chance * other * whole
    return law


def test_nested_widths_are_about_the_roots_of_the_size() -> None:
    for size in range(1, 5000, 7):
        widths = nested_widths(size)
        assert all(1 < width < size for width in widths)
        assert len(widths) == 2 or size <= 16
        for inner, outer in itertools.pairwise(widths):
            assert outer == inner * inner
            assert size <= outer * inner <= 8 * size


def test_nested_deviations_are_those_of_windows() -> None:
    counts = np.random.default_rng(5).integers(0, 50, 37)
    for width in (2, 5, 8):
        found = nested_deviations(counts, width)
        np.testing.assert_array_equal(found[: 37 // width], window_deviations(counts, width)[::width][: 37 // width])
        rest = counts[37 // width * width :]
        assert found[-1] == np.abs(rest - np.median(rest)).sum()


@pytest.mark.parametrize(("relation", "share"), [("add-remove", 1.0), ("replace-one", 0.5)])
def test_the_nested_partition_never_loses_more_than_epsilon(relation: str, share: float) -> None:
    epsilon = 2.0
    worst = largest_loss(lambda table: nested_law(table, share * epsilon), 5, 3, relation)
    assert worst <= epsilon * (1 + 1e-9)
    assert worst >= epsilon / 4


def test_one_record_moves_one_deviation_of_each_width_by_at_most_one() -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        table, code = rng.integers(0, 6, 23), int(rng.integers(23))
        for width in nested_widths(23):
            moved = nested_deviations(table + (np.arange(23) == code), width) - nested_deviations(table, width)
            assert np.abs(moved).sum() <= 1
            assert not np.delete(moved, code // width).any()


@pytest.mark.parametrize(("relation", "share"), [("add-remove", 1.0), ("replace-one", 0.5)])
def test_the_nested_partition_is_drawn_by_its_law(relation: str, share: float) -> None:
    epsilon, draws, table = 3.0, 3000, (0, 2, 1, 1, 0)
    rule, noise = NestedCostPartition("a", cut_price=1.0, bits=0), SimulatedNoise(4)
    found = Counter(
        tuple(rule.draw(np.array(table), epsilon=epsilon, neighbours=relation, noise=noise))  # type: ignore[arg-type]
        for _ in range(draws)
    )

    def distance(scale: float) -> float:
        law = nested_law(table, scale * share * epsilon)
        assert sum(law.values()) == pytest.approx(1.0)
        return 0.5 * sum(abs(found.get(key, 0) / draws - chance) for key, chance in law.items())

    assert distance(1.0) < 0.035
    assert distance(1.6) > 0.035
    assert distance(0.5) > 0.035


def test_the_nested_partition_has_the_least_cost_of_all() -> None:
    """Against every partition of forty codes into nested intervals, by recursion."""
    rng, rule, size = np.random.default_rng(2), NestedCostPartition("a", 3.0, bits=0), 40
    assert nested_widths(size) == (4, 16)

    def best(costs: dict[int, np.ndarray], first: int, width: int) -> tuple[int, list[int]]:
        """What an interval costs, and where its buckets start."""
        if width == 1:
            return 0, [first]
        inner = 1 if width == 4 else 4
        parts = [best(costs, at, inner) for at in range(first, min(first + width, size), inner)]
        cut = 3 + sum(cost for cost, _ in parts) // len(parts)
        whole = max(0, int(costs[width][first // width]))
        return (whole, [first]) if whole <= cut else (cut, [start for _, starts in parts for start in starts])

    for _ in range(30):
        costs = {width: rng.integers(-5, 5 + 2 * width // 4, -(-size // width)) for width in (4, 16)}
        expected = [start for first in range(0, size, 16) for start in best(costs, first, 16)[1]]
        assert rule.least_cost_starts(size, list(costs.values())) == expected


def test_nested_partitions_find_steps_and_leave_tiny_budgets_whole() -> None:
    counts = np.repeat([10, 500, 40, 900], [8, 16, 4, 4])
    rule = NestedCostPartition("a", 0.01)
    assert list(rule.draw(counts, epsilon=1e4, neighbours="add-remove", noise=SimulatedNoise(0))) == [*range(0, 32, 4)]
    assert list(rule.draw(counts, epsilon=1e-9, neighbours="add-remove", noise=SimulatedNoise(0))) == [0, 16]
    assert list(rule.draw(counts[:1], epsilon=1.0, neighbours="add-remove", noise=SimulatedNoise(0))) == [0]

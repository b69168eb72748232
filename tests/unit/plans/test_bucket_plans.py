"""P-HP and DAWA: buckets chosen privately, their totals or a tree over them measured with the rest."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain
from consilience.domain.factors import Intervals
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.measuring import measure
from consilience.plans.histogram import AskedRanges, best_tree
from consilience.plans.published.histograms import Dawa, Php
from consilience.source import open_table
from consilience.strategies.count_trees import WeightedRanges, branching_for, greedy_level_shares, levels_of

SIZE = 64
DOMAIN = Domain("d", (Attribute.numeric("a", [*range(SIZE + 1)]),))
STEPS = np.repeat([20, 400, 90, 250], [16, 16, 24, 8])


def source_of(counts: np.ndarray):
    return open_table(pa.table({"a": np.repeat(np.arange(counts.size), counts)}), DOMAIN)


def starts_of(each) -> list[int]:
    ((_, factor),) = each.query.factors
    assert isinstance(factor, Intervals)
    return [DOMAIN["a"].code(label) for label in factor.starts]


def spread_evenly(measured) -> np.ndarray:
    """Least squares of least norm, weighted by precision."""
    rows = [np.asarray(each.bind(DOMAIN).maps[0].dense()) / np.sqrt(each.noise.variance) for each in measured]
    values = [each.values / np.sqrt(each.noise.variance) for each in measured]
    return np.linalg.pinv(np.concatenate(rows)) @ np.concatenate(values)


@pytest.mark.parametrize("plan", [Php("a"), Dawa("a")], ids=["php", "dawa"])
@pytest.mark.parametrize("amount", [{"epsilon": 20.0}, {"rho": 40.0}], ids=["epsilon", "rho"])
def test_every_step_is_cut_and_filled(plan, amount) -> None:
    measured = measure(source_of(STEPS), plan, simulate=3, **amount)
    assert {16, 32, 56} <= set(starts_of(measured.measurements[-1]))
    np.testing.assert_allclose(spread_evenly(measured), STEPS, atol=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "rest"), [(Php("a"), 0.5), (Php("a", partition_share=0.2, levels=2), 0.8)], ids=["half", "fifth"]
)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_php_measures_bucket_totals_with_the_rest_of_the_budget(plan, rest: float, unit: str) -> None:
    errors = []
    for seed in range(60):
        (each,) = measure(source_of(STEPS), plan, **{unit: 0.5}, simulate=seed)
        totals = np.add.reduceat(STEPS, starts_of(each))
        errors.append((each.values - totals).tolist())
    variance = 2 / (0.5 * rest) ** 2 if unit == "epsilon" else 1 / (2 * 0.5 * rest)
    found = np.mean(np.square(list(itertools.chain(*errors))))
    assert found / variance == pytest.approx(1.0, abs=0.35 if unit == "epsilon" else 0.25)


@pytest.mark.slow
def test_php_has_the_error_of_its_buckets_and_their_noise() -> None:
    """Σ squared error = Σ over buckets of (counts − mean)² + noise²/w, w the number of values in the bucket."""
    counts = np.random.default_rng(0).integers(0, 60, SIZE) + STEPS
    source, ratios = source_of(counts), []
    for seed in range(120):
        measured = measure(source, Php("a"), epsilon=0.4, simulate=seed)
        bounds = [*starts_of(measured.measurements[0]), SIZE]
        inside = sum(counts[i:j].var() * (j - i) for i, j in itertools.pairwise(bounds))
        noise = sum(2 / 0.2**2 / (j - i) for i, j in itertools.pairwise(bounds))
        ratios.append((((spread_evenly(measured) - counts) ** 2).sum() - inside) / noise)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.2)


def test_php_has_at_most_as_many_buckets_as_its_levels_make() -> None:
    for levels in (1, 2, 3):
        (each,) = measure(source_of(STEPS), Php("a", levels=levels), epsilon=1.0, simulate=0)
        assert 1 <= each.values.size <= 2**levels


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_dawa_measures_a_tree_over_its_buckets(unit) -> None:
    measured = measure(source_of(STEPS), Dawa("a"), **{unit: 1.0}, simulate=0)
    levels = [starts_of(each) for each in measured]
    buckets = len(levels[-1])
    branching = branching_for(buckets, unit=unit)
    assert len(levels) == levels_of(buckets, branching)
    for above, below in itertools.pairwise(levels):
        assert above == below[::branching]
    assert levels[0] == [0]


@pytest.mark.slow
def test_dawa_has_the_variance_of_its_tree_on_whole_buckets() -> None:
    source, ratios = source_of(STEPS), []
    for seed in range(80):
        measured = measure(source, Dawa("a"), epsilon=1.0, simulate=seed)
        starts = starts_of(measured.measurements[-1])
        totals = np.add.reduceat(STEPS, starts)
        estimate = np.add.reduceat(spread_evenly(measured), starts)
        height = len(measured.measurements)
        branching = branching_for(len(starts))
        information = sum(
            np.kron(np.eye(-(-len(starts) // width)), np.ones((width, width)))[: len(starts), : len(starts)]
            for width in (branching**power for power in range(height))
        )
        variance = 2 * (height / 0.75) ** 2 * np.trace(np.linalg.inv(information))
        ratios.append(((estimate - totals) ** 2).sum() / variance)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.2)


def test_dawa_joins_values_that_are_alike() -> None:
    alike, rough = np.full(SIZE, 30), np.where(np.arange(SIZE) % 2, 400, 0)
    for counts, fewest, most in ((alike, 1, 45), (rough, 60, SIZE)):
        for seed in range(10):
            measured = measure(source_of(counts), Dawa("a"), epsilon=0.5, simulate=seed)
            assert fewest <= measured.measurements[-1].values.size <= most


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_ranges_move_the_shares_of_the_levels(unit) -> None:
    long = Dawa("a", ranges=[("0", "31"), ("0", "63")])
    short = Dawa("a", ranges=[(str(i), str(i)) for i in range(SIZE)])
    for plan in (long, short):
        measured = measure(source_of(STEPS), plan, **{unit: 50.0}, simulate=1)
        sizes = [each.values.size for each in measured]
        assert sizes == sorted(sizes)
    leaves = [
        measure(source_of(STEPS), plan, **{unit: 50.0}, simulate=1).measurements[-1].noise.variance
        for plan in (long, short)
    ]
    assert leaves[1] < leaves[0]


@pytest.mark.parametrize(("unit", "power"), [("epsilon", 2), ("rho", 1)])
def test_greedy_shares_have_the_error_of_the_dense_inverse(unit, power: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        size = int(rng.integers(2, 40))
        starts = [0, *sorted(rng.choice(np.arange(1, size), int(rng.integers(0, size)), replace=False).tolist())]
        ranges = [tuple(sorted(rng.integers(0, size, 2).tolist())) for _ in range(5)]
        branching = int(rng.integers(2, 5))
        weighted = WeightedRanges.of_codes(ranges, starts, size)
        shares, error = greedy_level_shares(weighted, len(starts), branching, unit=unit)
        assert sum(shares) == pytest.approx(1.0)
        assert error == pytest.approx(dense_error(ranges, starts, size, branching, [s**power for s in shares]))
        top = [dense_error_at(ranges, starts, size, branching, shares, p, power) for p in np.linspace(0.05, 1, 20)]
        assert error <= min(top) * (1 + 1e-9)


def dense_error(ranges, starts, size, branching, precisions) -> float:
    """Σ rᵀ(AᵀWA)⁻¹r over the ranges, spread evenly inside buckets."""
    bounds, buckets = [*starts, size], len(starts)
    information = np.zeros((buckets, buckets))
    for level, precision in enumerate(precisions):
        width = branching ** (len(precisions) - 1 - level)
        for first in range(0, buckets, width):
            information[first : first + width, first : first + width] += precision
    covariance = np.linalg.inv(information)
    total = 0.0
    for low, high in ranges:
        held = [max(0, min(high + 1, j) - max(low, i)) / (j - i) for i, j in itertools.pairwise(bounds)]
        total += np.array(held) @ covariance @ np.array(held)
    return float(total)


def dense_error_at(ranges, starts, size, branching, shares, below, power) -> float:
    """The error when the root gets 1 − below, and the levels below it keep their proportions."""
    if len(shares) == 1:
        return dense_error(ranges, starts, size, branching, [1.0])
    rest = sum(shares[1:])
    moved = [1 - below, *(share / rest * below for share in shares[1:])]
    return dense_error(ranges, starts, size, branching, [share**power for share in moved])


@pytest.mark.parametrize("intervals", ["dyadic", "nested"])
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_a_workload_chooses_the_tree_over_the_buckets(unit, intervals) -> None:
    plan = Dawa("a", intervals=intervals, workload=Workload.of(["prefix(a)"]))
    measured = measure(source_of(STEPS), plan, **{unit: 1.0}, simulate=0)
    levels = [starts_of(each) for each in measured]
    branching, shares = best_tree(AskedRanges(prefixes=1.0), tuple(levels[-1]), SIZE, unit)
    widths = [branching**power for power in range(len(shares))][::-1]
    assert levels == [levels[-1][::width] for width, share in zip(widths, shares, strict=True) if share > 0]
    assert "workload" not in Dawa("a").to_json()
    assert plan.to_json()["workload"]["queries"]


def test_told_ranges_have_less_error_than_by_the_published_shares() -> None:
    """The expected error over all values, and over steps, of all ranges."""
    every = [(i, j) for i in range(SIZE) for j in range(i, SIZE)]
    for starts in (range(SIZE), (0, 16, 32, 56)):
        greedy, _ = greedy_level_shares(WeightedRanges.of_codes(every, starts, SIZE), len(starts), 2)
        single = AskedRanges(single=tuple((i, j, 1.0) for i, j in every))
        branching, shares = best_tree(single, tuple(starts), SIZE)
        errors = [
            dense_error(every, starts, SIZE, each, [share**2 for share in found])
            for each, found in ((2, greedy), (branching, shares))
        ]
        assert errors[1] <= errors[0]


def test_arguments_that_make_no_sense_are_refused() -> None:
    prefixes = Workload.of(["prefix(a)"])
    for make in (
        lambda: Dawa("a", ranges=[("0", "1")], workload=prefixes),
        lambda: Php("a", partition_share=1.0),
        lambda: Php("a", levels=0),
        lambda: Dawa("a", partition_share=0.0),
        lambda: Dawa("a", branching=1),
        lambda: Dawa("a", ranges=[]),
    ):
        with pytest.raises(DeclarationError):
            make()
    for plan in (Php("a", levels=65), Dawa("a", intervals="some"), Dawa("a", ranges=[("0", "99")])):  # type: ignore[arg-type]
        with pytest.raises(DeclarationError):
            measure(DOMAIN, plan, epsilon=1.0, dry_run=True)

"""The branching of a histogram minimises the average variance of its ranges, computed exactly."""

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.measuring import measure, price
from consilience.plans.histogram import AskedRanges, Histogram, best_tree
from consilience.source import open_table
from consilience.strategies.count_trees import average_range_variance, branching_for, level_precisions, levels_of


def covariance(bins: int, branching: int, precisions: list[float]) -> np.ndarray:
    """(AᵀWA)⁻¹ of the tree, built densely."""
    attribute = Domain.from_sizes({"a": bins})["a"]
    information = np.zeros((bins, bins))
    for level, precision in enumerate(precisions):
        nodes = factors.Tree(branching, level).bind(attribute).dense()
        information += precision * nodes.T @ nodes
    return np.linalg.inv(information)


def mean_over_ranges(matrix: np.ndarray) -> float:
    """The mean of rᵀMr over all ranges."""
    bins = len(matrix)
    summed = np.zeros((bins + 1, bins + 1))
    summed[1:, 1:] = matrix.cumsum(axis=0).cumsum(axis=1)
    first, last = np.triu_indices(bins)
    blocks = summed[last + 1, last + 1] - summed[first, last + 1] - summed[last + 1, first] + summed[first, first]
    return float(blocks.mean())


@pytest.mark.parametrize("branching", [2, 3, 4, 7, 50])
@pytest.mark.parametrize("bins", [1, 2, 3, 4, 7, 8, 9, 16, 27, 30, 49])
def test_the_average_variance_is_that_of_the_dense_inverse(bins: int, branching: int) -> None:
    levels = levels_of(bins, branching)
    assert levels == factors.Tree(branching).levels(Domain.from_sizes({"a": bins})["a"])
    precisions = np.random.default_rng(bins).uniform(0.2, 3, levels).tolist()
    found = average_range_variance(bins, branching, precisions)
    assert found == pytest.approx(mean_over_ranges(covariance(bins, branching, precisions)), rel=1e-10)


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("level_budgets", ["uniform", "geometric"])
@pytest.mark.parametrize("bins", [1, 2, 5, 17, 64, 300, 1000])
def test_no_branching_is_better_than_the_one_chosen(bins: int, level_budgets, unit) -> None:
    def variance(branching: int) -> float:
        return average_range_variance(
            bins, branching, level_precisions(levels_of(bins, branching), level_budgets, unit)
        )

    best = variance(branching_for(bins, level_budgets=level_budgets, unit=unit))
    assert best <= min(variance(branching) for branching in range(2, max(bins, 2) + 1)) * (1 + 1e-12)


def test_large_histograms_get_wide_trees_under_epsilon_and_narrow_ones_under_rho() -> None:
    assert 8 <= branching_for(2**16) <= 20
    assert branching_for(2**16, unit="rho") == 2
    with pytest.raises(DeclarationError):
        branching_for(0)


@pytest.mark.parametrize(("amount", "unit"), [({"epsilon": 1.0}, "epsilon"), ({"rho": 0.5}, "rho")])
def test_the_default_branching_looks_at_the_bins_and_the_unit_alone(amount, unit) -> None:
    domain = Domain.from_sizes({"a": 100})
    shown = measure(domain, Histogram("a"), dry_run=True, **amount)
    queries = [each.bound.query for price in shown.prices for each in price.queries]
    branching = branching_for(100, unit=unit)
    assert [query.factors[0][1] for query in queries] == [
        factors.Tree(branching, level) for level in range(levels_of(100, branching))
    ]
    assert Histogram("a").to_json() == {
        "plan": "histogram",
        "attribute": "a",
        "branching": None,
        "level_budgets": "uniform",
    }


def test_a_hierarchy_keeps_its_own_nodes() -> None:
    place = Attribute.hierarchy("place", {"a": "x", "b": "x", "c": "y"})
    shown = measure(Domain("d", (place,)), Histogram("place"), epsilon=1.0, dry_run=True)
    assert [each.bound.query.factors[0][1] for price in shown.prices for each in price.queries] == [
        factors.Tree(None, 0),
        factors.Tree(None, 1),
    ]


@pytest.mark.slow
def test_simulated_trees_have_the_variance_that_chose_their_branching() -> None:
    domain = Domain.from_sizes({"a": 40})
    source = open_table(pa.table({"a": ["3"] * 50}), domain)
    truth = np.where(np.arange(40) == 3, 50, 0)
    branching = branching_for(40)
    attribute = domain["a"]
    matrix = factors.Tree(branching).bind(attribute).dense()
    inverse = np.linalg.pinv(matrix)
    errors = []
    for seed in range(250):
        noisy = np.concatenate([m.values for m in measure(source, Histogram("a"), epsilon=1.0, simulate=seed)])
        summed = np.concatenate([[0.0], np.cumsum(inverse @ noisy - truth)])
        first, last = np.triu_indices(40)
        errors.append(np.mean((summed[last + 1] - summed[first]) ** 2))
    levels = levels_of(40, branching)
    # A scale of h for h levels: the discrete Laplace variance, per unit of precision of a level.
    scale = np.exp(-1 / levels)
    variance = 2 * scale / (1 - scale) ** 2
    expected = variance * average_range_variance(40, branching, [1.0] * levels)
    assert np.mean(errors) / expected == pytest.approx(1.0, abs=0.2)


# ----------------------------------------------------------------------------------------------------------------------
# The tree of the least expected error for a workload.


def workload_matrix(asked: AskedRanges, starts: list[int], size: int) -> np.ndarray:
    """The rows over the leaves, each times the root of its weight."""
    leaves, bounds = len(starts), np.array([*starts, size])
    domain = Domain.from_sizes({"a": leaves})
    kinds = (
        (asked.ranges, factors.AllRanges()),
        (asked.prefixes, factors.Prefix()),
        (asked.values, factors.Identity()),
    )
    rows = [np.sqrt(weight) * factor.bind(domain["a"]).dense() for weight, factor in kinds if weight]
    for first, last, weight in asked.single:
        held = np.minimum(bounds[1:], last + 1) - np.maximum(bounds[:-1], first)
        rows.append(np.sqrt(weight) * np.maximum(held, 0)[None] / np.diff(bounds))
    return np.concatenate(rows)


def dense_variance(asked: AskedRanges, starts: list[int], size: int, branching: int, precisions: list[float]) -> float:
    rows = workload_matrix(asked, starts, size)
    return float(np.trace(rows @ covariance(len(starts), branching, precisions) @ rows.T))


MIXED = AskedRanges(0.5, 2.0, 3.0, ((0, 0, 1.0), (2, 9, 4.0), (1, 20, 0.5), (5, 6, 1.0)))


@pytest.mark.parametrize("branching", [2, 3, 8])
@pytest.mark.parametrize("starts", [[0], [0, 1, 2, 3, 4, 9], [*range(21)], [0, 4, 5, 6, 13, 14, 15, 16, 17, 20]])
def test_the_error_of_a_workload_is_that_of_the_dense_inverse(branching: int, starts: list[int]) -> None:
    precisions = np.random.default_rng(len(starts)).uniform(0.2, 3, levels_of(len(starts), branching)).tolist()
    if len(precisions) > 2:
        precisions[1] = 0.0  # a level that is left out
    for asked in (AskedRanges(1.0), AskedRanges(prefixes=1.0), AskedRanges(values=2.0), MIXED):
        found = asked.variance(starts, 21, branching, precisions)
        assert found == pytest.approx(dense_variance(asked, starts, 21, branching, precisions), rel=1e-9)


@pytest.mark.parametrize(("unit", "power"), [("epsilon", 2), ("rho", 1)])
@pytest.mark.parametrize("asked", [AskedRanges(1.0), AskedRanges(prefixes=1.0), AskedRanges(values=1.0), MIXED])
def test_the_best_tree_is_no_worse_than_any_of_its_neighbours_and_even_shares(asked, unit, power: int) -> None:
    starts, size = [*range(21)], 21
    branching, shares = best_tree(asked, tuple(starts), size, unit)
    assert sum(shares) == pytest.approx(1.0)

    def error(shares: np.ndarray, branching: int) -> float:
        return dense_variance(asked, starts, size, branching, (shares**power).tolist())

    least, rng = error(np.array(shares), branching), np.random.default_rng(0)
    for other in (2, 4, 8, 16):
        levels = levels_of(size, other)
        assert least <= error(np.full(levels, 1 / levels), other) * (1 + 1e-9)
    for _ in range(20):
        moved = np.array(shares) * np.exp(rng.normal(0, 0.2, len(shares)))
        assert least <= error(moved / moved.sum(), branching) * (1 + 2e-3)


def test_values_alone_are_best_measured_one_by_one() -> None:
    _, shares = best_tree(AskedRanges(values=1.0), tuple(range(64)), 64)
    assert shares[-1] > 0.9
    assert best_tree(AskedRanges(1.0), (0,), 9) == (2, (1.0,))
    assert best_tree(AskedRanges(1.0), tuple(range(30)), 30, "epsilon", 5)[0] == 5


def test_a_workload_is_read_as_ranges() -> None:
    domain = Domain("d", (Attribute.numeric("a", [*range(11)]), Attribute.categorical("b", ["x", "y"])))
    asked = Workload.of(["prefix(a)", "by a", "a=3..5", "a by b", "b"], weights=[1, 2, 3, 4, 5])
    assert AskedRanges.of(asked, domain, "a") == AskedRanges(0.0, 1.0, 2.0, ((3, 5, 3.0),))
    with pytest.raises(DeclarationError, match="asks nothing of 'a' alone"):
        AskedRanges.of(Workload.of(["b"]), domain, "a")


@pytest.mark.parametrize("amount", [{"epsilon": 0.5}, {"rho": 0.1}])
def test_a_histogram_for_a_workload_has_the_noise_that_was_predicted(amount) -> None:
    domain = Domain.from_sizes({"a": 40})
    plan = Histogram("a", workload=Workload.of([Query.of({"a": factors.Prefix()})]))
    (shown,) = price(domain, plan, **amount).prices
    information = np.zeros((40, 40))
    for each in shown.queries:
        nodes = each.bound.maps[0].dense()
        information += nodes.T @ nodes / each.noise.variance
    sums = np.tril(np.ones((40, 40)))
    found = np.trace(sums @ np.linalg.inv(information) @ sums.T)
    unit = "rho" if "rho" in amount else "epsilon"
    branching, shares = best_tree(AskedRanges(prefixes=1.0), range(40), 40, unit)
    precisions = [(0.25 * share**2 / 2) if unit == "epsilon" else 2 * 0.1 * share for share in shares]
    expected = AskedRanges(prefixes=1.0).variance(range(40), 40, branching, precisions)
    assert found == pytest.approx(expected, rel=0.01)
    assert plan.to_json()["workload"]["queries"]

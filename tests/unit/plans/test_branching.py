"""The branching of a histogram minimises the average variance of its ranges, computed exactly."""

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain, factors
from consilience.errors import DeclarationError
from consilience.measuring import measure
from consilience.plans.histogram import Histogram, average_range_variance, branching_for, level_precisions, levels_of
from consilience.source import open_table


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

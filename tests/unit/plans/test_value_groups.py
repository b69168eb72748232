"""Joined values: every value in one group, groups that reach their count, and queries that ask for them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain, Query
from consilience.plans.spanning_pairs import Joining, group_factor, joined_below, joined_table, joined_to, separate

COUNTS = st.lists(st.floats(0, 1000), min_size=1, max_size=30).map(np.array)


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.floats(0.1, 2000))
def test_groups_hold_every_value_once_and_reach_the_least_count(counts, least) -> None:
    groups = joined_to(counts, least)
    assert sorted(set(groups.tolist())) == list(range(groups.max() + 1))
    sums = np.bincount(groups, counts)
    sizes = np.bincount(groups)
    assert (sums[sums < least * (1 - 1e-9)].size) <= 1
    common = counts >= least
    assert (sizes[groups[common]] == 1).all()
    if (~common).any() and counts[~common].sum() >= least * (1 + 1e-9):
        assert (sums >= least * (1 - 1e-9)).all()


@settings(max_examples=40, deadline=None)
@given(COUNTS, COUNTS, st.floats(1, 500))
def test_a_joined_table_has_no_more_cells_than_allowed(first, second, most) -> None:
    values = joined_table([Joining(first, first.sum()), Joining(second, second.sum())], most)
    assert values.cells <= most
    if first.size * second.size <= most:
        assert values.shape == (first.size, second.size)


def test_values_below_the_noise_are_joined_into_one() -> None:
    counts = np.array([5.0, 90.0, 1.0, 30.0])
    assert joined_below(counts, 10.0).tolist() == [2, 0, 2, 1]
    assert joined_below(counts, 2.0).tolist() == separate(4).tolist()
    assert joined_below(counts, 1000.0).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "attribute",
    [
        Attribute.categorical("a", ["x", "y", "z", "x and 1 more"]),
        Attribute.numeric("a", [0, 1, 2, 5, 9]),
        Attribute.hierarchy("a", {"x": "top", "y": "top", "z": "other", "w": "other"}),
    ],
    ids=["categorical", "numeric", "hierarchy"],
)
def test_factors_add_up_the_groups(attribute) -> None:
    groups = np.array([0, 1, 0, 2])
    domain = Domain("d", (attribute,))
    answers = Query((("a", group_factor(attribute, groups)),)).bind(domain).answer(np.array([1.0, 2.0, 4.0, 8.0]))
    assert answers.tolist() == [5.0, 2.0, 8.0]
    whole = Query((("a", group_factor(attribute, separate(4))),))
    assert whole == Query.marginal("a")

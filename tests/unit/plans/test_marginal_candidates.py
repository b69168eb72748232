"""What there is to select from: the parts of a workload, by declared sizes, with the weights of the paper."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.domain import Domain, Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.plans.aim import CandidateLimits, candidates_of_ways, candidates_of_workload

DOMAIN = Domain.from_sizes({"a": 2, "b": 3, "c": 4, "d": 5, "e": 1})
OPEN = CandidateLimits(most_attributes=5, most_cells=10**9, most_candidates=10**6)

scopes = st.lists(st.tuples(st.sets(st.sampled_from("abcd"), min_size=1), st.floats(0.1, 10.0)), min_size=1, max_size=6)


@given(scopes)
def test_weights_are_the_overlap_with_every_query_and_parts_are_all_there(described) -> None:
    workload = Workload.of([Query.marginal(*sorted(s)) for s, _ in described], weights=[w for _, w in described])
    found = candidates_of_workload(workload, DOMAIN, OPEN)
    slow = {each.names: sum(w * len(set(each.names) & s) for s, w in described) for each in found}
    largest = max(slow.values())
    for each in found:
        assert each.weight == pytest.approx(slow[each.names] / largest)
    parts = {n for s, _ in described for n in map(frozenset, _subsets(sorted(s))) if n}
    assert {frozenset(each.names) for each in found} == parts
    assert len(found) == len(parts)


def _subsets(names):
    return [[name for i, name in enumerate(names) if bits >> i & 1] for bits in range(1 << len(names))]


def test_sizes_that_are_declared_decide_what_is_left_out() -> None:
    assert all(each.cells <= 12 for each in candidates_of_ways(DOMAIN, 3, replace(OPEN, most_cells=12)))
    pairs = candidates_of_ways(DOMAIN, 3, replace(OPEN, most_attributes=2))
    assert max(len(each.names) for each in pairs) == 2
    few = candidates_of_ways(DOMAIN, 3, replace(OPEN, most_candidates=6))
    assert [each.names for each in few] == [("a",), ("b",), ("c",), ("d",), ("a", "b"), ("a", "c")]
    assert max(each.weight for each in few) == 1.0
    with pytest.raises(DeclarationError, match="more than 1 cells"):
        candidates_of_ways(DOMAIN, 3, replace(OPEN, most_cells=1))


@pytest.mark.parametrize("ways", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("limits", [OPEN, replace(OPEN, most_attributes=2), replace(OPEN, most_candidates=7)])
def test_all_marginals_of_some_ways_are_the_workload_of_them(ways, limits) -> None:
    several = [name for name in DOMAIN.names if DOMAIN[name].size > 1]
    workload = Workload.marginals(DOMAIN, ways=min(ways, 4), among=several)
    slow = candidates_of_workload(workload, DOMAIN, limits)
    fast = candidates_of_ways(DOMAIN, ways, limits)
    assert [(each.names, each.cells) for each in fast] == [(each.names, each.cells) for each in slow]
    assert [each.weight for each in fast] == pytest.approx([each.weight for each in slow])


def test_an_attribute_of_one_value_tells_nothing_and_is_no_candidate() -> None:
    found = candidates_of_workload(Workload.of([Query.marginal("e", "a")]), DOMAIN, OPEN)
    assert [each.names for each in found] == [("a",)]
    with pytest.raises(DeclarationError, match="nothing but the total"):
        candidates_of_workload(Workload.of([Query.marginal("e")]), DOMAIN, OPEN)
    with pytest.raises(DeclarationError, match="has two values"):
        candidates_of_ways(Domain.from_sizes({"e": 1}), 2, OPEN)


def test_queries_of_too_many_parts_are_refused() -> None:
    wide = Domain.from_sizes({f"x{i}": 2 for i in range(60)})
    whole = Workload.of([Query.marginal(*wide.names)])
    with pytest.raises(DeclarationError, match="lower most_attributes"):
        candidates_of_workload(whole, wide, OPEN)
    assert len(candidates_of_workload(whole, wide, replace(OPEN, most_attributes=2))) == 60 + 60 * 59 // 2

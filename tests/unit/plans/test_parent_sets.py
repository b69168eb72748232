"""Maximal sets of parents against all sets there are, and what is drawn where they are too many."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from consilience.kernels.rng import generator
from consilience.plans.published.privbayes import (
    CandidateLimits,
    all_maximal_sets,
    candidate_families,
    sets_of_degree,
    some_maximal_sets,
)

SIZES = st.lists(st.integers(1, 6), max_size=6)


def slow_maximal(sizes: list[int], limit: float, degree: int | None) -> list[tuple[int, ...]]:
    most = len(sizes) if degree is None else degree
    sets = [each for k in range(len(sizes) + 1) for each in itertools.combinations(range(len(sizes)), k)]
    fit = [set(each) for each in sets if len(each) <= most and math.prod(sizes[i] for i in each) <= limit]
    return sorted(tuple(sorted(one)) for one in fit if not any(one < other for other in fit)) or [()]


@given(SIZES, st.floats(0.5, 60), st.none() | st.integers(0, 4))
def test_all_maximal_sets_are_found_once(sizes: list[int], limit: float, degree: int | None) -> None:
    found = all_maximal_sets(sizes, limit, most=100, degree=degree)
    assert found is not None
    assert sorted(found) == slow_maximal(sizes, limit, degree)


@given(SIZES, st.floats(0.5, 60), st.none() | st.integers(0, 4), st.integers(0, 99))
def test_drawn_sets_are_maximal_and_different(sizes: list[int], limit: float, degree: int | None, seed: int) -> None:
    found = some_maximal_sets(sizes, limit, count=5, rng=generator(seed), degree=degree)
    assert 1 <= len(found) <= 5
    assert len(set(found)) == len(found)
    assert set(found) <= set(slow_maximal(sizes, limit, degree))


def test_many_sets_are_noticed_without_listing_them() -> None:
    assert all_maximal_sets([2] * 200, 2**20, most=1000) is None
    assert len(some_maximal_sets([2] * 200, 2**20, count=50, rng=generator(0))) == 50
    drawn = sets_of_degree(200, 5, most=40, rng=generator(0))
    assert len(set(drawn)) == 40
    assert all(len(set(each)) == 5 for each in drawn)
    assert sets_of_degree(4, 2, most=6, rng=generator(0)) == list(itertools.combinations(range(4), 2))


def test_every_child_gets_its_part_of_the_candidates() -> None:
    sizes = [2] * 40
    limits = CandidateLimits(cells=16, families=100, cells_together=10**6)
    found = candidate_families(sizes, range(20), range(20, 40), limits, generator(0))
    assert len(found) == len(set(found)) == 100
    assert {child for child, _ in found} == set(range(20, 40))
    assert all(len(parents) == 3 and max(parents) < 20 for _, parents in found)
    assert found == candidate_families(sizes, range(20), range(20, 40), limits, generator(0))


def test_tables_that_are_too_large_together_are_thinned_out() -> None:
    limits = CandidateLimits(cells=16, families=100, cells_together=320)
    found = candidate_families([2] * 40, range(20), range(20, 40), limits, generator(0))
    assert len(found) == 20
    tiny = CandidateLimits(cells=16, families=100, cells_together=1)
    assert len(candidate_families([2] * 40, range(20), range(20, 40), tiny, generator(0))) == 1

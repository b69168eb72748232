"""The best record: the exact search against all records, and what either search may return."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import DeclarationError
from consilience.kernels.rng import generator
from consilience.plans.published.record_search import Conjunction, best_record


def weight_of(codes, conjunctions: list[Conjunction]) -> float:
    return sum(each.weight for each in conjunctions if each.holds(codes))


def best_of_all(sizes: list[int], conjunctions: list[Conjunction]) -> float:
    return max(weight_of(codes, conjunctions) for codes in itertools.product(*map(range, sizes)))


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], list[Conjunction]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    found = []
    for _ in range(draw(st.integers(1, 12))):
        places = rng.permutation(len(sizes))[: rng.integers(1, min(3, len(sizes)) + 1)]
        members = tuple((int(place), rng.random(sizes[place]) < 0.6) for place in places)
        found.append(Conjunction(float(rng.integers(-2, 3)), members))
    return sizes, found


@settings(max_examples=60, deadline=None)
@given(problem=problems(), seed=st.integers(0, 100))
def test_no_record_weighs_more_than_the_one_found(problem, seed) -> None:
    sizes, conjunctions = problem
    found = best_record(sizes, conjunctions, generator(seed))
    assert found.exact
    assert all(0 <= code < size for code, size in zip(found.codes, sizes, strict=True))
    assert found.weight == weight_of(found.codes, conjunctions) == best_of_all(sizes, conjunctions)


@settings(max_examples=40, deadline=None)
@given(problem=problems(), seed=st.integers(0, 100))
def test_the_local_search_weighs_what_it_says_and_no_single_change_gains(problem, seed) -> None:
    sizes, conjunctions = problem
    found = best_record(sizes, conjunctions, generator(seed), largest_table=0, restarts=3)
    assert not found.exact
    assert found.weight == weight_of(found.codes, conjunctions) <= best_of_all(sizes, conjunctions)
    for place, size in enumerate(sizes):
        for code in range(size):
            moved = found.codes.copy()
            moved[place] = code
            assert weight_of(moved, conjunctions) <= found.weight


@settings(max_examples=40, deadline=None)
@given(problem=problems(), seed=st.integers(0, 100), largest=st.sampled_from([0, 2**20]))
def test_forbidden_records_are_never_found(problem, seed, largest) -> None:
    sizes, conjunctions = problem
    sizes = [max(2, size) for size in sizes]
    everything_but_last = [(place, np.arange(size) < size - 1) for place, size in enumerate(sizes)]
    rules = [Conjunction(-np.inf, (each,)) for each in everything_but_last[:2]]
    kept = [each for each in conjunctions if all(members.size == sizes[place] for place, members in each.members)]
    found = best_record(sizes, [*kept, *rules], generator(seed), largest_table=largest)
    assert all(found.codes[place] == sizes[place] - 1 for place in range(min(2, len(sizes))))


def test_where_everything_is_forbidden_nothing_is_found() -> None:
    with pytest.raises(DeclarationError, match="not forbidden"):
        best_record([2], [Conjunction(-np.inf, ((0, np.array([True, True])),))], generator(0))


def test_values_that_nothing_tells_apart_are_drawn_evenly_and_repeatably() -> None:
    asked = [Conjunction(1.0, ((0, np.arange(10) < 4),))]
    rng = generator(3)
    codes = np.array([best_record([10, 5], asked, rng).codes for _ in range(2000)])
    assert np.bincount(codes[:, 0], minlength=10)[:4] == pytest.approx([500] * 4, abs=100)
    assert np.bincount(codes[:, 1]) == pytest.approx([400] * 5, abs=90)
    assert codes[:, 0].max() == 3
    again = generator(3)
    assert np.array_equal(codes[:50], [best_record([10, 5], asked, again).codes for _ in range(50)])


def test_many_attributes_with_hundreds_of_values_are_searched_by_their_few_classes() -> None:
    rng = np.random.default_rng(0)
    sizes = [500] * 40
    asked = []
    for first in range(38):
        places = (first, first + 1, first + 2)
        asked.append(Conjunction(1.0, tuple((p, np.arange(500) <= rng.integers(100, 500)) for p in places)))
    found = best_record(sizes, asked, generator(0))
    assert found.exact
    assert found.weight == 38.0 == weight_of(found.codes, asked)


@pytest.mark.parametrize(
    "wrong",
    [
        Conjunction(1.0, ()),
        Conjunction(1.0, ((0, np.ones(2, bool)), (0, np.ones(2, bool)))),
        Conjunction(1.0, ((1, np.ones(2, bool)),)),
        Conjunction(1.0, ((0, np.ones(3, bool)),)),
        Conjunction(np.inf, ((0, np.ones(2, bool)),)),
        Conjunction(np.nan, ((0, np.ones(2, bool)),)),
    ],
)
def test_what_is_no_conjunction_is_refused(wrong) -> None:
    with pytest.raises(DeclarationError):
        best_record([2], [wrong], generator(0))

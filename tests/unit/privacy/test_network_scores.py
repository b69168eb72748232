"""Scores of families: no neighbouring pair of tiny tables moves one by more than its sensitivity."""

import itertools

import numpy as np
import pytest

from consilience.domain import Domain
from consilience.errors import DeclarationError, TooLarge
from consilience.privacy.network_scores import R_BITS, Family, FamilyDependence

TINY = [((2, 2), 7), ((2, 3), 5), ((3, 2), 5), ((3, 3), 4)]


def all_tables(shape: tuple[int, int], most: int) -> dict[tuple[int, ...], int]:
    """Every table with at most so many records, numbered."""
    cells = shape[0] * shape[1]
    found = [()]
    for _ in range(cells):
        found = [(*one, n) for one in found for n in range(most - sum(one) + 1)]
    return {each: number for number, each in enumerate(found)}


def moves(scores: np.ndarray, tables: dict[tuple[int, ...], int]) -> tuple[int, int]:
    """The most that a score moves when a record is added, and when one is replaced or dropped."""
    added = replaced = 0
    for table, number in tables.items():
        after = []
        for cell in range(len(table)):
            larger = (*table[:cell], table[cell] + 1, *table[cell + 1 :])
            if larger in tables:
                after.append(int(scores[tables[larger]]))
        added = max([added, *(abs(each - int(scores[number])) for each in after)])
        replaced = max([replaced, max(after) - min(after)]) if after else replaced
    return added, max(added, replaced)


def score_of(dependence, records: int, tables: dict[tuple[int, ...], int], shape: tuple[int, int]):
    families = (Family("x", ("p",)),) * len(tables)
    score = FamilyDependence(families, dependence, records)
    return score, score.values([np.array(each).reshape(shape) for each in tables])


@pytest.mark.parametrize(("shape", "most"), TINY)
def test_the_distance_from_independence_moves_by_less_than_two_or_three_records(shape, most) -> None:
    tables = all_tables(shape, most)
    score, values = score_of("R", 1, tables, shape)
    added, replaced = moves(values, tables)
    assert 0.7 * score.sensitivity("add-remove") < added <= score.sensitivity("add-remove") == 2 << R_BITS
    assert replaced <= score.sensitivity("replace-one") == 3 << R_BITS


def test_large_tables_come_near_the_bounds() -> None:
    """A record alone in its row and column is as dependent as can be; one that fills the only hole, as little."""
    size, each = 50, 10
    common = np.zeros((size + 1, size + 1), dtype=np.int64)
    common[:size, :size] = each
    common[0, 0] = 0
    alone, filling = common.copy(), common.copy()
    alone[size, size] += 1
    filling[0, 0] += 1
    score = FamilyDependence((Family("x", ("p",)),) * 3, "R")
    without, first, second = (int(found) for found in score.values([common, alone, filling]))
    assert 2.9 * 2**R_BITS < first - second < score.sensitivity("replace-one")
    assert 1.9 * 2**R_BITS < without - second < score.sensitivity("add-remove")


@pytest.mark.parametrize("records", [1, 2, 5, 8])
@pytest.mark.parametrize(("shape", "most"), [case for case in TINY if case[0][1] == 2])
def test_the_distance_to_dependence_moves_by_at_most_two(shape, most, records) -> None:
    tables = all_tables(shape, most)
    score, values = score_of("F", records, tables, shape)
    added, replaced = moves(values, tables)
    assert added <= score.sensitivity("add-remove") == 2
    assert replaced <= score.sensitivity("replace-one") == 2
    assert added == min(2, records)


@pytest.mark.parametrize("records", [1, 3, 6, 50])
@pytest.mark.parametrize(("shape", "most"), TINY)
def test_information_moves_by_at_most_its_last_step_wherever_the_public_number_lies(shape, most, records) -> None:
    tables = all_tables(shape, most)
    score, values = score_of("I", records, tables, shape)
    added, replaced = moves(values, tables)
    assert added <= score.sensitivity("add-remove")
    assert replaced <= score.sensitivity("replace-one") == 2 * score.sensitivity("add-remove")
    if records == most - 1:
        assert added == score.sensitivity("add-remove")


def test_half_the_sensitivity_would_be_too_little() -> None:
    tables = all_tables((2, 2), 6)
    for dependence in ("R", "F", "I"):
        score, values = score_of(dependence, 5, tables, (2, 2))
        assert moves(values, tables)[0] > score.sensitivity("add-remove") / 2


def test_large_random_neighbours_stay_within_the_sensitivity() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        shape = tuple(rng.integers(2, 30, 2))
        table = rng.poisson(rng.gamma(0.2, 5.0, shape))
        one, other = table.copy(), table.copy()
        one[tuple(rng.integers(0, shape))] += 1
        other[tuple(rng.integers(0, shape))] += 1
        for dependence in ("R", "I"):
            score = FamilyDependence((Family("x", ("p",)),) * 3, dependence, 100)
            common, first, second = (int(each) for each in score.values([table, one, other]))
            assert abs(first - common) <= score.sensitivity("add-remove")
            assert abs(first - second) <= score.sensitivity("replace-one")


def test_parents_of_several_axes_are_the_rows() -> None:
    rng = np.random.default_rng(1)
    table = rng.integers(0, 9, (3, 2, 4))
    flat = table.reshape(6, 4)
    score = FamilyDependence((Family("x", ("p", "q")), Family("x", ("p",))), "R")
    both = score.values([table, flat])
    assert both[0] == both[1]
    alone = FamilyDependence((Family("x"),), "R")
    assert alone.marginals == (("x",),)
    assert alone.values([np.array([3, 4])]).tolist() == [0]


DOMAIN = Domain.from_sizes({"a": 2, "b": 3, "c": 2})


def test_families_that_do_not_fit_are_refused() -> None:
    FamilyDependence((Family("a", ("c", "b")),), "F", 5).check(DOMAIN)
    for families, dependence, records, words in [
        ((), "R", 1, "no family"),
        ((Family("b", ("a",)),), "F", 5, "two values"),
        ((Family("z"),), "R", 1, "no attribute"),
        ((Family("a", ("a",)),), "R", 1, "twice"),
        ((Family("a"),), "Q", 1, "choose R, F or I"),
        ((Family("a"),), "F", 0, "1 or more"),
        ((Family("a"),), "I", 2**30, "use R"),
    ]:
        with pytest.raises(DeclarationError, match=words):
            FamilyDependence(families, dependence, records).check(DOMAIN)
    large = Domain.from_sizes({f"a{i}": 100 for i in range(4)})
    with pytest.raises(TooLarge, match="100,000,000 cells"):
        FamilyDependence((Family("a0", ("a1", "a2", "a3")),), "R").check(large)


def test_every_difference_between_scores_shows_in_the_fingerprint() -> None:
    settings = itertools.product([Family("a"), Family("a", ("b",)), Family("b", ("a",))], ["R", "I"], [1, 2])
    scores = [FamilyDependence((family,), dependence, records) for family, dependence, records in settings]
    assert len({str(score.fingerprint()) for score in scores}) == 12

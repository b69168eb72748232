"""Records of flags: they count right, and generated ones are what they are said to be."""

import itertools

import numpy as np
import pytest

from benchmarks.problems import flags
from benchmarks.problems.flags import FlagRecords


def some_records(rows: int = 200, count: int = 10) -> FlagRecords:
    columns = np.random.default_rng(1).integers(0, 2, (count, rows), dtype=np.uint8)
    return FlagRecords("some", columns)


def counted_slowly(records: FlagRecords, scope: tuple[int, ...]) -> np.ndarray:
    found = dict.fromkeys(itertools.product((0, 1), repeat=len(scope)), 0)
    for record in records.written_out().T.tolist():
        found[tuple(record[flag] for flag in scope)] += 1
    return np.array(list(found.values()), dtype=np.float64)


@pytest.mark.parametrize("scope", [(), (3,), (2, 7), (7, 2), (0, 1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3, 4, 5, 6, 7, 9)])
def test_marginals_count_the_records(scope: tuple[int, ...]) -> None:
    records = some_records()
    np.testing.assert_array_equal(records.counts(scope), counted_slowly(records, scope))


def test_more_flags_than_cells_can_number_are_refused() -> None:
    with pytest.raises(ValueError, match="17 flags; at most 16"):
        some_records(count=20).counts(range(17))


def test_distinct_records_count_the_same() -> None:
    records = some_records(rows=300, count=4)
    once = records.distinct()
    assert once.columns.shape == (4, 16)
    assert once.total == records.total == 300
    assert once.distinct().columns.shape == (4, 16)
    np.testing.assert_array_equal(once.counts((0, 2, 3)), records.counts((0, 2, 3)))
    np.testing.assert_allclose(once.shares(), records.columns.mean(axis=1))
    assert once.written_out().shape == (4, 300)


@pytest.mark.parametrize("order", [1, 3])
def test_chains_follow_their_rule_from_the_first_flag_on(order: int) -> None:
    chain = flags.markov_chain(order, rows=200_000, flags=order + 2)
    for begin in (0, 1):
        table = chain.counts(range(begin, begin + order + 1)).reshape(-1, 2)
        ones = np.array([bin(cell).count("1") for cell in range(2**order)])
        found = table[:, 1] / table.sum(axis=1)
        np.testing.assert_allclose(found, 0.5 + (1 - 2 * ones / order) / 4, atol=0.012)


def test_generated_searches_are_many_skewed_and_dependent() -> None:
    searches = flags.aol_sized(rows=20_000)
    assert "generated" in searches.name
    assert (searches.flags, searches.total) == (45, 20_000)
    shares = searches.shares()
    assert shares[0] > 5 * shares[-1]
    assert np.median(searches.columns.sum(axis=0)) >= 3
    correlation = np.corrcoef(searches.columns)
    of_topics = np.arange(searches.flags) % flags.AOL_TOPICS
    same = of_topics[:, None] == of_topics
    np.fill_diagonal(same, False)
    assert correlation[same].mean() > 1.3 * correlation[of_topics[:, None] != of_topics].mean() > 0.1


def test_missing_data_becomes_a_stand_in_of_the_same_size(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    part, whole = flags.kosarak(), flags.kosarak_sized()
    assert (part.name, part.flags, part.total) == ("Kosarak, part (stand-in)", 32, 36_682)
    assert (whole.name, whole.flags, whole.total) == ("Kosarak, resampled (stand-in)", 32, 912_627)
    np.testing.assert_allclose(whole.shares(), part.shares(), atol=0.003)

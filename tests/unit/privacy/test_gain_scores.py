"""Scores of joined tables: what they add up, the sensitivity by brute force, and what is refused."""

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Domain
from consilience.errors import DeclarationError
from consilience.privacy.scores import LATTICE_BITS, JoinedTable, JoinedValues, MarginalGain

UNIT = 4**LATTICE_BITS
DOMAIN = Domain.from_sizes({"a": 3, "b": 2})
GROUPS = (np.array([0, 1, 0]), np.array([0, 1]))


def table(hidden: float = 0.0, weight: float = 1.0, penalty: float = 0.0, level: float = 0.7) -> JoinedTable:
    return JoinedTable(JoinedValues(GROUPS), np.full((2, 2), level), hidden, weight, penalty)


def slow_score(exact: np.ndarray, of: JoinedTable) -> float:
    joined = np.zeros(of.values.shape)
    for i, j in itertools.product(range(3), range(2)):
        joined[GROUPS[0][i], GROUPS[1][j]] += exact[i, j]
    return of.weight * np.maximum(np.abs(joined - of.estimate) - of.hidden, 0).sum() - of.penalty


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 50), min_size=6, max_size=6),
    st.floats(0, 20),
    st.floats(0.01, 1),
    st.floats(0, 30),
    st.floats(0, 40),
)
def test_scores_are_those_of_the_formula(cells, hidden, weight, penalty, level) -> None:
    one = table(hidden, weight, penalty, level)
    exact = np.array(cells).reshape(3, 2)
    found = MarginalGain({("a", "b"): one}, nothing=2.5).values([exact])
    assert found[0] / UNIT == pytest.approx(slow_score(exact, one), abs=0.6)
    assert found[1] / UNIT == pytest.approx(2.5)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("hidden", "level"), [(0.0, 0.5), (0.6, 0.5), (1.0, 1.3)])
def test_no_record_moves_a_score_further_than_the_sensitivity_and_some_record_does(relation, hidden, level) -> None:
    uneven = np.array([[5.3, level], [level, 5.3]])
    score = MarginalGain({("a", "b"): JoinedTable(JoinedValues(GROUPS), uneven, hidden)}, nothing=1.0)
    steps = [np.eye(6, dtype=np.int64)[k].reshape(3, 2) for k in range(6)]
    moves = steps if relation == "add-remove" else [*steps, *(t - s for s, t in itertools.permutations(steps, 2))]
    values = cache(lambda cells: score.values([np.array(cells).reshape(3, 2)]))
    farthest = 0
    for cells in itertools.product(range(3), repeat=6):
        exact = np.array(cells).reshape(3, 2)
        before = values(cells)
        for move in moves:
            if (exact + move).min() >= 0:
                farthest = max(farthest, int(np.abs(values(tuple((exact + move).ravel().tolist())) - before).max()))
    assert farthest == score.sensitivity(relation)


def test_joining_keeps_whole_numbers_whole() -> None:
    counts = np.random.default_rng(0).integers(0, 2**32, (3, 2))
    joined = JoinedValues(GROUPS).joined(counts)
    assert joined.tolist() == [(counts[0] + counts[2]).tolist(), counts[1].tolist()]


def test_nothing_is_the_last_candidate_where_it_has_a_score() -> None:
    assert MarginalGain({("a", "b"): table()}).candidates == (("a", "b"),)
    assert MarginalGain({("a", "b"): table()}, nothing=0.0).candidates == (("a", "b"), None)


def test_fingerprints_tell_scores_apart() -> None:
    variants = [table(), table(hidden=1.0), table(weight=0.5), table(penalty=1.0), table(level=0.8)]
    found = [tuple(map(str, MarginalGain({("a", "b"): each}).fingerprint())) for each in variants]
    found.append(tuple(map(str, MarginalGain({("a", "b"): table()}, nothing=0.0).fingerprint())))
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (JoinedTable(JoinedValues((np.array([0, 1]), GROUPS[1])), np.zeros((2, 2))), "every value"),
        (JoinedTable(JoinedValues((np.array([0, 2, 0]), GROUPS[1])), np.zeros((3, 2))), "without a gap"),
        (JoinedTable(JoinedValues(GROUPS), np.zeros((3, 2))), "each joined cell"),
        (JoinedTable(JoinedValues(GROUPS), np.full((2, 2), np.nan)), "not finite"),
        (table(weight=2.0), "lies in"),
        (table(hidden=-1.0), "from 0 up"),
        (table(penalty=2.0**41), "too large"),
    ],
)
def test_what_is_no_table_of_the_domain_is_refused(one, message) -> None:
    with pytest.raises(DeclarationError, match=message):
        MarginalGain({("a", "b"): one}).check(DOMAIN)


def test_no_table_is_no_choice() -> None:
    with pytest.raises(DeclarationError, match="no table"):
        MarginalGain({}).check(DOMAIN)

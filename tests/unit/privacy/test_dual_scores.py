"""Scores of DualQuery: exact, opposite for complements, with a sensitivity no neighbour exceeds and each can attain."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Domain, Query, factors
from consilience.domain.answer_sets import AnswerSets
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.privacy.budgets import budget
from consilience.privacy.gate import DataGate
from consilience.privacy.noise import SimulatedNoise
from consilience.privacy.query_scores import DualScore

DOMAIN = Domain.from_sizes({"a": 3, "b": 2}, name="tiny")
WORKLOADS = [
    Workload.of([Query.marginal("a", "b")]),
    Workload.of([Query.marginal("a"), Query.marginal("b")]),
    Workload.of([Query.of({"a": factors.Prefix(), "b": factors.Identity()})]),
    Workload.of([Query.of({"b": factors.Identity(), "a": factors.AllRanges()}), Query.of({"a": factors.Value("1")})]),
]


def drawn_score(workload: Workload, seed: int, found: int = 3, records: int = 20) -> DualScore:
    rng = np.random.default_rng(seed)
    sets = AnswerSets(workload, DOMAIN)
    held = sum(sets.holding([rng.integers(3), rng.integers(2)]).astype(np.int64) for _ in range(found))
    return DualScore(sets, np.asarray(held), found=found, records=records)


def values_of(score: DualScore, table: np.ndarray) -> np.ndarray:
    return score.values([Query.marginal(*names).bind(DOMAIN).answer_full(table) for names in score.marginals])


def neighbours_of(table: np.ndarray, relation: str) -> list[np.ndarray]:
    cells = list(np.ndindex(*table.shape))
    found = []
    for cell, change in itertools.product(cells, (1, -1)):  # also where a replaced record is dropped, or was
        moved = table.copy()
        moved[cell] += change
        found.append(moved)
    if relation == "replace-one":
        for first, second in itertools.permutations(cells, 2):
            moved = table.copy()
            moved[first] -= 1
            moved[second] += 1
            found.append(moved)
    return found


@settings(max_examples=40, deadline=None)
@given(
    workload=st.sampled_from(WORKLOADS),
    seed=st.integers(0, 1000),
    found=st.integers(1, 5),
    relation=st.sampled_from(["add-remove", "replace-one"]),
)
def test_no_neighbour_moves_a_score_further_and_one_moves_each_as_far(workload, seed, found, relation) -> None:
    table = np.random.default_rng(seed).integers(1, 9, (3, 2))
    score = drawn_score(workload, seed, found)
    score.check(DOMAIN)
    here = values_of(score, table)
    moves = np.array([np.abs(values_of(score, other) - here) for other in neighbours_of(table, relation)])
    assert moves.max() <= score.sensitivity(relation) == found
    assert (moves.max(axis=0) == found).all()


@settings(max_examples=40, deadline=None)
@given(workload=st.sampled_from(WORKLOADS), seed=st.integers(0, 1000), found=st.integers(1, 5))
def test_scores_are_the_exponents_of_the_published_distribution_times_the_number_of_records(workload, seed, found):
    rng = np.random.default_rng(seed)
    table = rng.multinomial(20, np.full(6, 1 / 6)).reshape(3, 2)
    sets = AnswerSets(workload, DOMAIN)
    records = [(int(rng.integers(3)), int(rng.integers(2))) for _ in range(found)]
    held = sum(sets.holding(each).astype(np.int64) for each in records)
    scores = values_of(DualScore(sets, np.asarray(held), found=found, records=20), table)
    members = [dict(sets.members(q)) for q in range(len(sets))]
    cells = list(np.ndindex(3, 2))
    inside = [[all(chosen[cell[place]] for place, chosen in each.items()) for cell in cells] for each in members]
    inside += [[not each for each in row] for row in inside]
    for row, score in zip(inside, scores, strict=True):
        share = float(np.array(row) @ table.ravel()) / 20
        exponent = sum(row[cells.index(record)] - share for record in records)
        assert score == pytest.approx(20 * exponent)
    assert scores.dtype == np.int64


class Counted:
    """A source of which the counts are known."""

    domain = DOMAIN
    max_rows_per_unit = 1
    runs_code = False

    def exact_counts(self, marginals, *, amount=None) -> list[np.ndarray]:
        return [np.array([[4, 0], [1, 3], [9, 3]]) for _ in marginals]


def test_a_selection_through_the_gate_is_a_draw_from_the_published_distribution() -> None:
    score = drawn_score(WORKLOADS[0], 1, found=2)
    table = np.array([[4, 0], [1, 3], [9, 3]])
    epsilon = 1.5
    noise = SimulatedNoise(0)
    drawn = []
    for _ in range(4000):
        gate = DataGate(Counted(), budget(epsilon=1.5), neighbours="replace-one", noise=noise, release_id="r")  # type: ignore[arg-type]
        drawn.append(gate.select(score, gate.budget, selector="exponential"))
    found = np.bincount(drawn, minlength=12) / len(drawn)
    for factor, fits in ((1.0, True), (1.6, False), (0.6, False)):
        rate = factor * 20 * epsilon / (2 * 2)  # ε = 2ηk/N
        weights = np.exp(rate * values_of(score, table) / 20)
        assert bool(np.abs(found - weights / weights.sum()).max() < 0.03) is fits


def test_what_does_not_fit_is_refused() -> None:
    sets = AnswerSets(WORKLOADS[0], DOMAIN)
    held = np.zeros(6, np.int64)
    for score, domain in (
        (DualScore(sets, held[:5], found=1, records=9), DOMAIN),
        (DualScore(sets, held.astype(float), found=1, records=9), DOMAIN),  # type: ignore[arg-type]
        (DualScore(sets, held + 2, found=1, records=9), DOMAIN),
        (DualScore(sets, held - 1, found=1, records=9), DOMAIN),
        (DualScore(sets, held, found=0, records=9), DOMAIN),
        (DualScore(sets, held, found=1, records=0), DOMAIN),
        (DualScore(sets, held, found=2**29, records=9), DOMAIN),
        (DualScore(sets, held, found=1, records=9), Domain.from_sizes({"a": 3, "b": 2}, name="other")),
    ):
        with pytest.raises(DeclarationError):
            score.check(domain)


def test_fingerprints_tell_histories_and_numbers_of_records_apart() -> None:
    sets = AnswerSets(WORKLOADS[0], DOMAIN)
    held = np.zeros(6, np.int64)
    scores = [
        DualScore(sets, held, found=1, records=9),
        DualScore(sets, held, found=2, records=9),
        DualScore(sets, held, found=1, records=8),
        DualScore(sets, held + 1, found=1, records=9),
        DualScore(AnswerSets(WORKLOADS[2], DOMAIN), held[:5], found=1, records=9),
    ]
    assert len({str(each.fingerprint()) for each in scores}) == len(scores)
    assert scores[0].fingerprint() == DualScore(sets, held.copy(), found=1, records=9).fingerprint()

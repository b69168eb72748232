"""Losses of candidates: exact, as slow sums have them, and none tells two candidates further apart than is said."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.problems.selection_laws import selection_probabilities
from consilience.domain import Attribute, Domain
from consilience.errors import DeclarationError
from consilience.kernels.regions import Region, lattice_points
from consilience.plans.published.privgene import largest_difference
from consilience.privacy.model_statistics import LOSS_BITS, RecordLosses

BOUNDS = ((-1.0, 1.0), (0.0, 4.0))
LABELLED = (*BOUNDS, (0.0, 1.0))
UNIT = 2.0**-LOSS_BITS


def candidates_of(kind: str, region: str, seed: int, spread: float = 1.0) -> RecordLosses:
    """Four candidates, near to each other where the spread is small."""
    rng = np.random.default_rng(seed)
    if kind == "regression":
        return score_of(rng.uniform(-2, 2, 3) + rng.uniform(-2, 2, (4, 3)) * spread, region)
    found = rng.uniform(-0.5, 0.5, (3, 2)) + rng.uniform(-0.5, 0.5, (4, 3, 2)) * spread
    return score_of(Region(region, 2).project(found), region)


def score_of(candidates: np.ndarray, region: str = "box", cut: float | None = None) -> RecordLosses:
    names, bounds = (("x", "y"), BOUNDS) if candidates.ndim == 3 else (("x", "y", "label"), LABELLED)
    least = largest_difference(candidates, region) if cut is None else cut
    return RecordLosses(names, bounds, region, candidates, least)


def scored(score: RecordLosses, points: np.ndarray) -> np.ndarray:
    return score.values([points])


def records_of(kind: str, seed: int, count: int) -> np.ndarray:
    """Records within the bounds, at corners, and far out."""
    rng = np.random.default_rng(seed)
    points = rng.uniform((-1, 0, 0), (1, 4, 1), (count, 3))
    corners = rng.random(count) < 0.5
    points[corners] = np.where(rng.random((int(corners.sum()), 3)) < 0.5, (-9.0, -9.0, 0.0), (9.0, 9.0, 1.0))
    return points if kind == "regression" else points[:, :2]


def slow_losses(score: RecordLosses, point: np.ndarray) -> np.ndarray:
    """The loss of one record under each candidate, written out."""
    region = Region(score.region, 2)
    place = lattice_points(point[None, :2], score.bounds[:2], region)[0] * 2.0**-20
    if score.parameters.ndim == 3:
        return np.array([min(((place - c) ** 2).sum() for c in each) for each in score.parameters])
    sign = 1 if point[2] >= 0.5 else -1
    return np.array([math.log1p(math.exp(-sign * (each[:2] @ place + each[2]))) for each in score.parameters])


CASES = pytest.mark.parametrize(
    ("kind", "region"), [(k, r) for k in ("clusters", "regression") for r in ("box", "ball", "radial-ball")]
)


@CASES
def test_scores_are_minus_the_losses_beyond_what_all_candidates_lose(kind: str, region: str) -> None:
    score, points = candidates_of(kind, region, 0), records_of(kind, 1, 60)
    losses = np.array([slow_losses(score, each) for each in points])
    expected = -(losses - losses.min(axis=1, keepdims=True)).sum(axis=0)
    np.testing.assert_allclose(scored(score, points) * UNIT, expected, atol=2 * len(points) * UNIT)


@CASES
def test_records_with_a_missing_value_count_for_nothing(kind: str, region: str) -> None:
    score, points = candidates_of(kind, region, 0), records_of(kind, 1, 10)
    holes = np.repeat(points[:3], 3, axis=0)
    holes[np.arange(9), np.arange(9) % points.shape[1]] = np.nan
    np.testing.assert_array_equal(scored(score, np.vstack([points, holes])), scored(score, points))
    assert not scored(score, points[:0]).any()


@CASES
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), spread=st.sampled_from([1.0, 0.1, 1e-3]))
def test_no_record_moves_the_difference_of_two_scores_further_than_is_said(kind, region, seed, spread) -> None:
    """Each record by itself is a neighbour of none; two of them are a record replaced."""
    score = candidates_of(kind, region, seed, spread)
    points = records_of(kind, seed + 1, 8)
    alone = np.array([scored(score, each[None]) for each in points])
    assert np.ptp(alone, axis=1).max() <= 2 * score.sensitivity("add-remove") == score.limit
    replaced = alone[:, None] - alone[None]
    assert np.ptp(replaced, axis=2).max() <= 2 * score.sensitivity("replace-one")


@CASES
def test_no_record_moves_a_difference_further_than_a_small_cut(kind: str, region: str) -> None:
    """Where the losses are further apart than that, whatever the cut is."""
    score = candidates_of(kind, region, 0)
    small = score_of(score.parameters, region, cut=score.cut / 50)
    points = records_of(kind, 1, 30)
    moves = [np.ptp(scored(small, each[None])) for each in points]
    assert max(moves) == small.limit == 2 * small.sensitivity("add-remove")
    np.testing.assert_array_equal(scored(small, points), sum(scored(small, each[None]) for each in points))


@CASES
@pytest.mark.parametrize("spread", [1.0, 0.05])
def test_nothing_is_cut_off(kind: str, region: str, spread: float) -> None:
    """The bound is one of the losses themselves: no record loses more than it beyond the best candidate."""
    for seed in range(20):
        score = candidates_of(kind, region, seed, spread)
        losses = np.array([slow_losses(score, each) for each in records_of(kind, seed, 50)])
        assert np.ptp(losses, axis=1).max() <= (score.limit - 1) * UNIT * (1 + 1e-12)


def test_the_bound_is_attained_at_a_corner() -> None:
    """One cluster, two places: the record in the corner behind one of them is as far from the other as can be."""
    score = score_of(np.array([[[0.5, 0.0]], [[-0.5, 0.0]]]))
    moved = np.ptp(scored(score, np.array([[1.0, 2.0]])))
    assert moved == pytest.approx(2.0 / UNIT, rel=1e-4)
    assert moved <= score.limit <= moved + 2
    alike = score_of(score.parameters * 0.01)
    assert alike.limit < score.limit / 90


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_selection_tells_as_much_as_it_costs_and_half_the_noise_twice_as_much(factor: float) -> None:
    """Many records on one side of two candidates: one more of them has the whole ε, and no record has more."""
    score = score_of(np.array([[[0.5, 0.0]], [[-0.5, 0.0]]]))
    side = np.tile([[1.0, 2.0]], (40, 1))
    scale = {"sensitivity": score.sensitivity("add-remove") * factor, "epsilon": 0.7, "selector": "exponential"}
    here, there = (selection_probabilities(scored(score, each), **scale) for each in (side, side[1:]))
    lost = float(np.abs(np.log(here / there)).max())
    assert lost == pytest.approx(0.7 / factor, rel=1e-3)
    assert lost <= 0.7 / factor


def test_candidates_that_do_not_fit_are_refused() -> None:
    domain = Domain("p", (Attribute.continuous("x", BOUNDS[0]), Attribute.continuous("y", BOUNDS[1])))
    good = np.zeros((2, 1, 2))
    score_of(good).check(domain)
    for wrong in (good[:, :, :1], good[:0], good[0, :, :1], good[0, 0], good + np.nan, good + 1e5):
        with pytest.raises(DeclarationError, match="do not fit 2 attributes"):
            RecordLosses(("x", "y"), BOUNDS, "box", wrong, 1.0).check(domain)
    for cut in (-1.0, 1e5, np.nan):
        with pytest.raises(DeclarationError, match="cut off at"):
            score_of(good, cut=cut).check(domain)
    with pytest.raises(DeclarationError, match="declared as"):
        RecordLosses(("x", "y"), (BOUNDS[0], (0.0, 5.0)), "box", good, 1.0).check(domain)


def test_scores_with_other_candidates_are_told_apart() -> None:
    one, same, other = (candidates_of("clusters", "box", seed) for seed in (0, 0, 1))
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()
    assert list(one.candidates) == [0, 1, 2, 3]

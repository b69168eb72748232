"""A claim holds, does not hold, or cannot be told, by intervals over runs and a threshold that is printed."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.reproduce import per_run
from benchmarks.reproduce.verdicts import BETTER, ORDER, SAME, TRUE, Claim, Outcome, Threshold, factor, interval


def claim(places: dict[str, list[float]], threshold: Threshold = BETTER, **options) -> Claim:
    return Claim("one is better", "ratio", threshold, places, **options)


def outcome(places: dict[str, list[float]], threshold: Threshold = BETTER, **options) -> Outcome:
    return claim(places, threshold, **options).judged().outcome


def test_the_interval_is_students() -> None:
    values = [1.0, 2.0, 4.0, 3.0]
    found = interval(values, ratio=False)
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    drawn = [interval(rng.normal(size=5).tolist(), ratio=False) for _ in range(400)]
    held = [found.low <= 0.0 <= found.high for found in drawn]
    assert 0.91 < np.mean(held) < 0.985


def test_ratios_are_averaged_as_logarithms() -> None:
    found = interval([1.0, 4.0, 2.0])
    assert found.estimate == pytest.approx(2.0)
    assert found.low * found.high == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2.0, 2.1, 1.9], Outcome.HELD),
        ([0.5, 0.51, 0.49], Outcome.NOT),
        ([2.0, 0.5, 1.1], Outcome.UNTOLD),
        ([1.0, 1.0, 1.0], Outcome.NOT),
        ([1.004, 1.005, 1.006], Outcome.NOT),
        ([5.0], Outcome.UNTOLD),
    ],
)
def test_there_are_three_outcomes_and_a_tie_is_not_better(values: list[float], expected: Outcome) -> None:
    assert outcome({"here": values}) is expected


def test_every_place_has_to_hold_and_one_is_enough_to_fail() -> None:
    good, bad, unclear = [2.0, 2.1, 1.9], [0.5, 0.51, 0.49], [3.0, 0.6, 1.1]
    assert outcome({"a": good, "b": good}) is Outcome.HELD
    assert outcome({"a": good, "b": unclear}) is Outcome.UNTOLD
    assert outcome({"a": good, "b": bad, "c": unclear}) is Outcome.NOT


def test_failing_in_one_of_many_places_takes_more_evidence() -> None:
    almost = [0.8, 0.85, 0.9, 0.97, 0.75]
    assert outcome({"a": almost}) is Outcome.NOT
    many = {f"good {i}": [2.0, 2.1, 1.9, 2.0, 2.0] for i in range(40)}
    assert outcome(many | {"a": almost}) is Outcome.UNTOLD


def test_words_mean_what_they_say() -> None:
    assert outcome({"a": [5.7, 6.0, 5.9, 6.1]}, ORDER) is Outcome.NOT
    assert outcome({"a": [1.2, 1.19, 1.21]}, SAME) is Outcome.HELD
    assert outcome({"a": [1.4, 1.41, 1.39]}, SAME) is Outcome.NOT
    assert factor(6.0).low == pytest.approx(4.8)
    assert factor(1.2).low == pytest.approx(BETTER.low)


def test_numbers_that_no_run_changes_are_exact() -> None:
    assert outcome({"a": [1.0]}, TRUE, exact=True) is Outcome.HELD
    assert outcome({"a": [0.966]}, TRUE, exact=True) is Outcome.NOT
    assert claim({"a": [1.0]}, TRUE, exact=True).judged().evidence() == "1"


def test_evidence_names_the_place_that_decides_with_its_interval() -> None:
    verdict = claim({"far": [9.0, 9.0, 9.0], "near": [1.5, 1.5, 1.5]}).judged()
    assert verdict.evidence() == "1.5 to 9 in 2 places; the closest is near: 1.5 [1.5, 1.5]"
    verdict = claim({"fine": [9.0, 9.0, 9.0], "off": [0.5, 0.5, 0.5]}).judged()
    assert verdict.evidence() == "0.5 to 9 in 2 places; 1 did not hold, the farthest off being off: 0.5 [0.5, 0.5]"


def test_a_verdict_is_json_even_where_an_end_is_infinite() -> None:
    document = claim({"a": [2.0]}).judged().to_json()
    assert json.loads(json.dumps(document, allow_nan=False))["places"]["a"]["high"] == "inf"
    assert document["threshold"] == "at least 1.01"


def test_a_claim_without_places_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        claim({}).judged()


def test_an_error_of_zero_has_a_ratio() -> None:
    assert per_run.ratio([1.0, 0.0], [0.0, 0.0]) == [math.inf, 1.0]
    assert outcome({"a": [math.inf, math.inf]}) is Outcome.HELD


def test_statistics_are_taken_run_by_run() -> None:
    assert per_run.least([[1.0, 5.0], [2.0, 3.0]]) == [1.0, 3.0]
    assert per_run.greatest([[1.0, 5.0], [2.0, 3.0]]) == [2.0, 5.0]
    assert per_run.geometric([[1.0, 4.0], [4.0, 4.0]]) == pytest.approx([2.0, 4.0])
    assert per_run.slope([1.0, 2.0], [[1.0, 1.0], [2.0, 8.0]]) == pytest.approx([1.0, 3.0])

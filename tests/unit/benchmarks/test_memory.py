"""The memory that suitability predicts is what a process of its own takes, within a factor of 1.5."""

import sys

import pytest

from benchmarks.speed.memory import HELD_OUT, QUICK, described, row_of


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets a peak, so that the fit's own can be told")
@pytest.mark.parametrize("case", QUICK, ids=lambda case: case[0])
def test_predicted_memory_is_what_a_fit_and_a_refit_take(case) -> None:
    row = row_of(case)
    assert row["met"] == "yes", row


def test_a_row_says_whether_the_prediction_holds_and_whether_it_was_set_by_the_case() -> None:
    found = {"predicted": 30.0, "fit": 10.0, "refit": 19.0, "asking": 0.002, "share": 0.001, "status": "converged"}
    row = described(HELD_OUT[0], found)
    assert (row["met"], row["set by"], row["quick"]) == ("no", "no", "yes")
    assert described(QUICK[0], found | {"refit": 21.0})["met"] == "yes"


def test_small_memory_is_not_judged_and_asking_may_take_a_moment() -> None:
    found = {"predicted": 3.0, "fit": 7.0, "refit": 7.0, "asking": 0.0009, "share": 0.2, "status": "converged"}
    assert described(QUICK[0], found)["met"] == "small"
    assert described(QUICK[0], found | {"predicted": 17.0})["met"] == "no"
    assert described(QUICK[0], found)["quick"] == "yes"
    assert described(QUICK[0], found | {"asking": 0.002})["quick"] == "no"

"""Figures 1 and 2a of McKenna et al. (2019): claims follow from the rows, and what fails is told."""

import math

import pytest

from benchmarks.problems.triples import triple_problem
from benchmarks.reproduce.mckenna2019 import figure_1, figure_1a, figure_1b, figure_1c, figure_1d, figure_2a
from benchmarks.reproduce.mckenna2019.with_and_without import WAYS, WITH, WITHOUT, groups, run_apart

PANELS = {"a": figure_1a, "b": figure_1b, "c": figure_1c, "d": figure_1d}


def rows_of(without: dict[str, float], graphical: dict[str, float]) -> list[dict]:
    found = []
    for method, errors in ((WITHOUT, without), (WITH, graphical)):
        for records, error in errors.items():
            done = math.isfinite(error)
            row = {"mechanism": "x", "records": records, "method": method, "error": error}
            row |= {"failed": "" if done else "over 2 GB, 5 of 5 runs", "values": [error] * 5 if done else []}
            found.append(row | {"finished": 5 if done else 0, "tried": 5})
    return found


def with_factors(factors: dict[str, float]) -> list[dict]:
    return rows_of(factors, dict.fromkeys(factors, 1.0))


def outcomes(claims: list) -> list[str]:
    return [str(claim.judged().outcome) for claim in claims]


def held(*flags: bool) -> list[str]:
    return ["held" if flag else "did not hold" for flag in flags]


def test_privbayes_is_judged_on_the_tables_that_the_paper_names() -> None:
    rows = with_factors({"titanic": 0.5, "adult-fine": 1.4, "loans": 3.9, "stroke": 5.7})
    assert outcomes(figure_1a.claims(rows)) == held(False, True, False, True)


def test_dual_query_is_judged_on_all_tables_by_the_printed_factors() -> None:
    rows = with_factors({"titanic": 1.05, "adult-fine": 1.5, "loans": 2.7, "stroke": 4.0})
    assert outcomes(figure_1b.claims(rows)) == held(True, True, True, False, True)


def test_mwem_has_to_run_with_graphical_estimation_and_to_fail_without() -> None:
    rows = rows_of(
        {"titanic": math.nan, "adult-fine": math.nan, "loans": math.nan, "stroke": 0.2},
        {"titanic": 0.1, "adult-fine": 0.1, "loans": 0.1, "stroke": 0.3},
    )
    claims = figure_1c.claims(rows)
    assert outcomes(claims) == held(True, True, True)
    assert "Titanic: over 2 GB" in claims[1].more
    rows = rows_of({"titanic": 0.3, "stroke": math.nan}, {"titanic": 0.1, "stroke": math.nan})
    assert outcomes(figure_1c.claims(rows)) == held(False, False, False)
    some = [row | {"finished": 2} for row in rows if row["records"] == "titanic"]
    assert outcomes(figure_1c.claims(some)) == held(False, False)


def test_hdmm_has_to_gain_by_the_printed_factors() -> None:
    rows = with_factors({"titanic": 6.0, "adult-fine": 2.0, "loans": 22.0, "stroke": 5.1})
    assert outcomes(figure_1d.claims(rows)) == held(True, True, False, True, True, True)
    rows = with_factors({"titanic": 6.0, "adult-fine": 3.0, "loans": 22.0, "stroke": 7.0})
    assert outcomes(figure_1d.claims(rows))[-1:] == held(False)


@pytest.mark.parametrize("panel", "abcd")
def test_a_quick_look_at_one_table_can_be_judged(panel: str) -> None:
    for claim in PANELS[panel].claims(rows_of({"titanic": 0.4}, {"titanic": 0.1})):
        assert claim.judged().evidence()


def results_of(monkeypatch: pytest.MonkeyPatch, *found: dict) -> None:
    """Let the runs with seeds 0, 1, … find these."""
    monkeypatch.setattr(figure_1, "run_apart", lambda _mechanism, _methods, _records, seed: {WITH: found[seed]})


def test_medians_are_of_the_runs_that_finish_and_failures_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = [{"records": "titanic", "error": error, "seconds": 1.0} for error in (0.1, 0.9, 0.2)]
    too_large = {"note": "TooLarge: 9 GB", "failed": "memory"}
    results_of(monkeypatch, *ran)
    (row,) = figure_1.median_rows("HDMM", [WITH], "titanic", seeds=range(3))
    assert (row["error"], row["values"], row["note"], row["failed"]) == (0.2, [0.1, 0.9, 0.2], "", "")
    results_of(monkeypatch, too_large, ran[0], too_large)
    (row,) = figure_1.median_rows("HDMM", [WITH], "titanic", seeds=range(3))
    assert (row["error"], row["note"]) == (0.1, "TooLarge: 9 GB")
    assert (row["failed"], row["finished"], row["tried"]) == ("over 2 GB, 2 of 3 runs", 1, 3)


def test_after_a_run_that_takes_too_long_there_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    results_of(monkeypatch, {"note": "not done after 300 s", "failed": "time"})
    (row,) = figure_1.median_rows("MWEM", [WITH], "titanic", seeds=range(3))
    assert math.isnan(row["error"])
    assert (row["failed"], row["tried"]) == ("over 5 minutes, 1 of 1 runs", 1)


def test_a_run_that_has_used_its_processor_time_is_ended() -> None:
    found = run_apart("HDMM", [WITH], "titanic", 0, patience=0.0)
    assert found == {WITH: {"note": "not done after 0 s", "failed": "time"}}


def test_a_stand_in_is_named_in_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"records": "loans (stand-in)", "error": 0.1, "seconds": 1.0}
    monkeypatch.setattr(figure_1, "run_apart", lambda *_: {WITH: found})
    (row,) = figure_1.median_rows("HDMM", [WITH], "loans", seeds=range(1))
    assert "stand-in" in row["note"]


def test_every_mechanism_has_both_ways() -> None:
    assert list(WAYS) == ["PrivBayes", "DualQuery", "MWEM", "HDMM"]
    assert all({WITHOUT, WITH} <= set(ways) for ways in WAYS.values())
    for mechanism, ways in WAYS.items():
        assert sorted(method for methods in groups(mechanism) for method in methods) == sorted(ways)
    assert len(groups("MWEM")) == 3
    assert len(groups("HDMM")) == 1


def test_mwem_as_published_selects_single_answers_in_ten_rounds() -> None:
    problem = triple_problem("titanic")
    plan = WAYS["MWEM"][WITHOUT].plan(problem)
    assert (plan.candidates, plan.rounds, plan.estimation) == ("answers", 10, "factored")
    assert WAYS["MWEM"][WITH].plan(problem).candidates == "answers"


def test_the_constants_of_dual_query_are_told() -> None:
    assert "Adult s = 50, T = 162" in figure_1b.constants()


def rows_2a(gains: dict[float, float], *, squares_at_most: float, measured_gain: float) -> list[dict]:
    rows = []
    for epsilon, gain in gains.items():
        model = squares_at_most / epsilon / gain
        values = {
            (figure_2a.WORKLOAD, figure_2a.SQUARES): model * gain,
            (figure_2a.WORKLOAD, figure_2a.MODEL): model,
            (figure_2a.MEASURED, figure_2a.SQUARES): measured_gain,
            (figure_2a.MEASURED, figure_2a.MODEL): 1.0,
            (figure_2a.WORKLOAD, figure_2a.EVEN): 0.4,
        }
        rows += [figure_2a.row_of(*place, epsilon, [value] * 5) for place, value in values.items()]
    return rows


def test_claims_over_epsilon_follow_from_the_errors() -> None:
    as_published = rows_2a({0.1: 8.0, 0.3: 5.0, 1.0: 3.0, 10.0: 0.9}, squares_at_most=0.1, measured_gain=4.0)
    assert outcomes(figure_2a.claims(as_published)) == held(True, True, True, True)
    otherwise = rows_2a({0.1: 4.0, 0.3: 5.0, 1.0: 3.0, 10.0: 0.5}, squares_at_most=0.01, measured_gain=2.0)
    assert outcomes(figure_2a.claims(otherwise)) == held(False, False, False, False)

"""Figures 1 and 2a of McKenna et al. (2019): claims follow from the rows, and what fails is told."""

import math

import pytest

from benchmarks.reproduce.mckenna2019 import figure_1, figure_1a, figure_1b, figure_1c, figure_1d, figure_2a
from benchmarks.reproduce.mckenna2019.with_and_without import WAYS, WITH, WITHOUT, groups

PANELS = {"a": figure_1a, "b": figure_1b, "c": figure_1c, "d": figure_1d}


def rows_of(without: dict[str, float], graphical: dict[str, float]) -> list[dict]:
    found = []
    for method, errors in ((WITHOUT, without), (WITH, graphical)):
        for records, error in errors.items():
            note = "" if math.isfinite(error) else "not done after 9 s"
            found.append({"mechanism": "x", "records": records, "method": method, "error": error, "note": note})
    return found


def with_factors(factors: dict[str, float]) -> list[dict]:
    return rows_of(factors, dict.fromkeys(factors, 1.0))


def test_privbayes_is_judged_on_the_tables_that_the_paper_names() -> None:
    rows = with_factors({"titanic": 0.5, "adult-fine": 1.4, "loans": 3.9, "stroke": 4.1})
    assert [claim.held for claim in figure_1a.claims(rows)] == [True, False, True]


def test_dual_query_is_judged_on_all_tables() -> None:
    rows = with_factors({"titanic": 1.0, "adult-fine": 1.01, "loans": 3.0, "stroke": 0.9})
    assert [claim.held for claim in figure_1b.claims(rows)] == [False, True, True, False]


def test_mwem_has_to_run_with_graphical_estimation_and_to_fail_without() -> None:
    rows = rows_of(
        {"titanic": math.nan, "adult-fine": math.nan, "loans": math.nan, "stroke": 0.2},
        {"titanic": 0.1, "adult-fine": 0.1, "loans": 0.1, "stroke": 0.3},
    )
    assert [claim.held for claim in figure_1c.claims(rows)] == [True, True, False]
    assert "titanic: not done after 9 s" in figure_1c.claims(rows)[1].evidence
    rows = rows_of({"titanic": 0.3, "stroke": math.nan}, {"titanic": 0.1, "stroke": math.nan})
    assert [claim.held for claim in figure_1c.claims(rows)] == [False, False, True]


@pytest.mark.parametrize(("loans", "held"), [(3.0, True), (2.9, False)])
def test_hdmm_has_to_gain_on_three_tables(loans: float, held: bool) -> None:
    rows = with_factors({"titanic": 6.0, "adult-fine": 2.0, "loans": loans, "stroke": 3.5})
    (claim,) = figure_1d.claims(rows)
    assert claim.held is held


@pytest.mark.parametrize("panel", "abcd")
def test_a_quick_look_at_one_table_can_be_judged(panel: str) -> None:
    for claim in PANELS[panel].claims(rows_of({"titanic": 0.4}, {"titanic": 0.1})):
        assert claim.line()


def test_medians_are_taken_and_a_failure_ends_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = {0: 0.1, 1: 0.9, 2: 0.2}
    monkeypatch.setattr(
        figure_1,
        "run_apart",
        lambda _mechanism, methods, records, seed: {
            method: {"records": records, "error": errors[seed], "seconds": 1.0} for method in methods
        },
    )
    (row,) = figure_1.median_rows("HDMM", [WITH], "titanic", seeds=range(3))
    assert (row["error"], row["runs"], row["note"]) == (0.2, 3, "")
    monkeypatch.setattr(figure_1, "run_apart", lambda *_: {WITH: {"note": "TooLarge: it would take 9 GB"}})
    (row,) = figure_1.median_rows("HDMM", [WITH], "titanic", seeds=range(3))
    assert math.isnan(row["error"])
    assert row["note"].startswith("TooLarge")


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
    assert len(groups("MWEM")) == 2
    assert len(groups("HDMM")) == 1


def rows_2a(gains: dict[float, float], *, squares_at_most: float, measured_gain: float) -> list[dict]:
    rows = []
    for epsilon, gain in gains.items():
        model = squares_at_most / epsilon / gain
        rows.append(figure_2a.row_of(figure_2a.WORKLOAD, figure_2a.SQUARES, epsilon, model * gain, 5))
        rows.append(figure_2a.row_of(figure_2a.WORKLOAD, figure_2a.MODEL, epsilon, model, 5))
        rows.append(figure_2a.row_of(figure_2a.MEASURED, figure_2a.SQUARES, epsilon, measured_gain, 5))
        rows.append(figure_2a.row_of(figure_2a.MEASURED, figure_2a.MODEL, epsilon, 1.0, 5))
        rows.append(figure_2a.row_of(figure_2a.WORKLOAD, figure_2a.EVEN, epsilon, 0.5, 1))
    return rows


def test_claims_over_epsilon_follow_from_the_errors() -> None:
    as_published = rows_2a({0.1: 8.0, 0.3: 5.0, 1.0: 3.0, 10.0: 0.9}, squares_at_most=0.1, measured_gain=4.0)
    assert [claim.held for claim in figure_2a.claims(as_published)] == [True] * 4
    otherwise = rows_2a({0.1: 4.0, 0.3: 5.0, 1.0: 3.0, 10.0: 1.1}, squares_at_most=0.01, measured_gain=2.0)
    assert [claim.held for claim in figure_2a.claims(otherwise)] == [False] * 4

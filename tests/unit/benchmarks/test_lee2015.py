"""The reproductions of Lee, Wang and Kifer (2015): methods have the noise that they should, claims follow from rows."""

import numpy as np
import pytest

from benchmarks.problems.contingency_tables import EDWARDS
from benchmarks.problems.counted import CountedTable
from benchmarks.reproduce.lee2015 import (
    figure_5_1_1,
    figure_5_2_1,
    figure_5_2_2,
    figure_5_3_1,
    figure_5_3_2,
    linear_programs,
)
from benchmarks.reproduce.lee2015.methods import EPSILONS, histogram_methods, run_all

METHODS = ("ADMM(ℓ1), as printed", "Consilience, auto", "HTree", "Privlet", "EFPA", "P-HP", "LM(L)", "LM(H)")
SETS = ("Search Logs (refined)", "Nettrace (refined)", "Social Network (stand-in)")


def outcomes(claims: list) -> list[bool]:
    found = [claim.judged().outcome for claim in claims]
    assert "cannot be told" not in found
    return [each == "held" for each in found]


def test_the_grid_of_epsilon_is_that_of_the_papers_axes() -> None:
    assert EPSILONS == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def test_leaves_of_a_noisy_tree_have_one_share_of_epsilon_for_each_level() -> None:
    counts = np.full(4096, 1000, dtype=np.int64)
    table = CountedTable.histogram(counts)
    methods = [each for each in histogram_methods("x", 4096, branching=2) if each.name.startswith("LM")]
    answers = run_all(methods, table, 1.0, seed=0)
    errors = {name: np.mean((found(np.arange(4096), 1) - 1000) ** 2) for name, found in answers.items()}
    assert errors["LM(L)"] == pytest.approx(2.0, rel=0.2)
    assert errors["LM(H)"] == pytest.approx(2.0 * 13**2, rel=0.2)


def test_methods_with_the_same_plan_see_the_same_measurements() -> None:
    table = CountedTable.histogram(np.arange(16))
    twice = [each for each in histogram_methods("x", 16, branching=2) if each.name == "HTree"] * 2
    found = run_all([twice[0], twice[1]], table, 1.0, seed=3)
    again = twice[0].run(table, 1.0, 3)
    np.testing.assert_array_equal(found["HTree"](np.arange(16), 1), again(np.arange(16), 1))


def test_privlet_transforms_the_vector_of_cells() -> None:
    found = figure_5_1_1.wavelet_of_cells(EDWARDS, 1e6, seed=0)
    assert found.shape == EDWARDS.counts.shape
    np.testing.assert_allclose(found, EDWARDS.counts, atol=1e-2)


def rows_5_1_1(squares: float) -> list[dict]:
    errors = {figure_5_1_1.ADMM_1: 1.0, figure_5_1_1.ADMM_2: squares, "LM": 2.0, "Privlet": 9.0, "MWEM": 5.0}
    return [
        {"known": known, "dataset": name, "epsilon": epsilon, "method": method}
        | {"values": [error * (0.6 if name == "Czech" and method == "LM" else 1.0)] * 3}
        for known in figure_5_1_1.KNOWN
        for name in ("Edwards", "Czech", "Rochdale")
        for epsilon in (0.1, 1.0)
        for method, error in errors.items()
    ]


def test_claims_about_tables_follow_from_the_errors() -> None:
    assert outcomes(figure_5_1_1.claims(rows_5_1_1(1.1))) == [True, True, True]
    assert outcomes(figure_5_1_1.claims(rows_5_1_1(1.005))) == [True, True, False]


def test_claims_about_bins_follow_from_the_errors() -> None:
    def rows(sparse: float, social: float) -> list[dict]:
        return [
            {"dataset": name, "epsilon": 0.1, "method": method, "values": [error] * 3}
            for name in SETS
            for method, error in (
                ("HTree", social if name.startswith("Social") else sparse),
                ("ADMM(ℓ1), as printed", 1.0),
                ("Consilience, auto", 1.0),
            )
        ]

    assert outcomes(figure_5_2_1.claims(rows(1.8, 1.1))) == [True, True, True]
    assert outcomes(figure_5_2_1.claims(rows(1.3, 1.6))) == [False, False, True]


def test_claims_about_ranges_follow_from_the_curves() -> None:
    def rows(exponent: float, longest: float) -> list[dict]:
        made = []
        for panel in ("ε = 0.1", "ε = 1"):
            for name in SETS:
                for length in (2, 64, 2048):
                    errors = dict.fromkeys(METHODS, 100.0) | {"LM(L)": 1.0 * length**exponent, "LM(H)": 50.0 * length}
                    errors["ADMM(ℓ1), as printed"] = 10.0 if length < 2048 else longest
                    errors["P-HP"] = 50.0 if name.startswith("Social") else 1e5
                    made += [
                        {"panel": panel, "dataset": name, "length": length, "method": method, "values": [error] * 3}
                        for method, error in errors.items()
                    ]
        return made

    assert outcomes(figure_5_2_2.claims(rows(1.0, 150.0))) == [True] * 8
    assert outcomes(figure_5_2_2.claims(rows(0.3, 90.0))) == [True, False, True, False, *[True] * 4]


def test_claims_about_the_matrix_mechanism_follow_from_the_errors() -> None:
    def rows(printed: float) -> list[dict]:
        errors = {"MM(ℓ2)": 10.0, "MM(ℓ1), as printed": printed, "HTree": 1.0, "Privlet": 1.0, "LM": 1.0, "LRM": 1.0}
        return [
            {"dataset": name, "epsilon": 0.1, "method": method, "values": [error] * 3}
            for name in SETS
            for method, error in errors.items()
        ]

    assert outcomes(figure_5_3_1.claims(rows(9.0))) == [True, True]
    assert outcomes(figure_5_3_1.claims(rows(9.99))) == [True, False]


def test_the_exception_of_the_matrix_mechanism_is_judged_by_itself() -> None:
    rows = [
        {"dataset": name, "workload": workload, "method": method, "values": [error] * 3}
        for name in SETS
        for workload in ("identity", "all ranges")
        for method, error in (
            ("MM(ℓ2)", 1.0),
            ("MM(ℓ1), as printed", 1.2 if (workload, name[:3]) == ("all ranges", "Net") else 0.5),
            ("MM(ℓ1), L1 alone", 2.0),
        )
    ]
    assert outcomes(figure_5_3_2.claims(rows)) == [True, True, False]


def test_solvers_of_a_small_tree_agree_and_are_compared() -> None:
    rows = linear_programs.compare(4, range(1))
    excess = {row["solver"]: row["values"] for row in rows if row["quantity"] == linear_programs.EXCESS}
    assert max(excess["HiGHS, dual simplex"]) < 1e-6
    assert max(excess[linear_programs.OWN]) < 1e-9
    assert max(excess[linear_programs.TIGHT]) < 1e-2
    assert len(
        linear_programs.claims([row | {"bins": 2**12} for row in rows] + [row | {"bins": 2**14} for row in rows])
    )

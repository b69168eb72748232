"""`consilience logistic` end to end: records in, a folder out, nothing spent that was not asked for."""

import csv
import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import consilience as cs
from consilience.cli.main import run
from consilience.estimators.logistic import RegressionEstimate
from consilience.measurements import MeasurementSet

BOUNDS = "age=0:100,dose=-50:50,cured=0:1"
LOGISTIC = ["logistic", "clinic.csv", "--label", "cured", "--epsilon", "2", "--bounds", BOUNDS]
QUICK = ["--steps", "600", "--chains", "2"]
TRUE_SLOPES = (-1 / 20, 1 / 15)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Patients of whom the young with a high dose are cured."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    age, dose = rng.uniform(0, 100, 4000), rng.uniform(-50, 50, 4000)
    cured = rng.random(4000) < 1 / (1 + np.exp((age - 50) / 20 - dose / 15))
    lines = [f"{a:.2f},{d:.2f},{int(c)},n{i}" for i, (a, d, c) in enumerate(zip(age, dose, cured, strict=True))]
    (tmp_path / "clinic.csv").write_text("\n".join(["age,dose,cured,name", *lines, ",5,1,missing", "1e9,nan,0,odd\n"]))
    return tmp_path


def call(*words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command, run in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["consilience", *words])
        try:
            run()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


def succeed(*words: str) -> str:
    code, out, err = call(*words)
    assert code == 0, err
    return out


@pytest.fixture
def refused(place: Path) -> Callable[..., Any]:
    """Exit code and standard error of a command that fails early; nothing may be left behind."""

    def call_here(*words: str) -> tuple[int, str]:
        code, _, err = call(*words)
        assert sorted(each.name for each in place.iterdir()) == ["clinic.csv"]
        return code, err

    return call_here


def test_records_become_coefficients_with_error_bars_and_the_budget_is_told(place: Path) -> None:
    out = succeed(*LOGISTIC, *QUICK, "--out", "regression")
    assert "Spent: epsilon 2" in out
    assert {each.name for each in (place / "regression").iterdir()} == {
        "coefficients.csv",
        "regression.json",
        "measurements.parquet",
        "coefficients.png",
        "chain.png",
    }
    rows = list(csv.DictReader((place / "regression" / "coefficients.csv").open()))
    assert [row["term"] for row in rows] == ["age", "dose", "(intercept)"]
    for row, slope in zip(rows, TRUE_SLOPES, strict=False):
        assert float(row["per_unit_low"]) <= float(row["per_unit"]) <= float(row["per_unit_high"])
        assert np.sign(float(row["coefficient"])) == np.sign(slope)
        assert float(row["per_unit"]) == pytest.approx(float(row["coefficient"]) / 50, rel=1e-4)
    found = RegressionEstimate.load(place / "regression" / "regression.json")
    assert found.private
    assert found.records == pytest.approx(4000, rel=0.1)
    assert (place / "regression" / "coefficients.png").read_bytes().startswith(b"\x89PNG")
    spent = json.loads(succeed("ledger", "show", "clinic.csv", "--json"))
    assert (spent["spent"], spent["remaining"]) == ("2", "0")
    checked = cs.check("regression", ledger="clinic.csv.ledger")
    assert (checked.kind, checked.private, checked.warning) == ("regression", True, "")


def test_a_genetic_algorithm_is_charged_shown_and_read_again_without_error_bars(place: Path) -> None:
    words = [*LOGISTIC, "--method", "privgene"]
    out = json.loads(succeed(*words, "--out", "regression", "--json"))
    assert out["low"] == out["high"] == out["per_unit_low"] == [None] * 3
    assert "no error bars" in out["no_intervals"]
    assert not (place / "regression" / "chain.png").exists()
    rows = list(csv.DictReader((place / "regression" / "coefficients.csv").open()))
    assert [float(row["coefficient"]) for row in rows] == pytest.approx(out["coefficients"], rel=1e-5)
    assert {row["coefficient_low"] for row in rows} == {""}
    again = ["logistic", "--measurements", "regression/measurements.parquet", "--no-pictures"]
    code, shown, err = call(*again, "--out", "again")
    assert code == 0
    assert "no error bars" in err
    assert "—" in shown
    assert json.loads(succeed("ledger", "show", "clinic.csv", "--json"))["spent"] == "2"
    code, _, err = call(*words, "--rounds", "4", "--out", "other")
    assert code == 1
    assert "has neither rounds nor a step" in err


def test_rounds_of_an_earlier_run_cost_nothing_and_another_request_is_refused(place: Path) -> None:
    succeed(*LOGISTIC, *QUICK, "--no-pictures", "--out", "first")
    words = ["logistic", "--measurements", "first/measurements.parquet", "--no-pictures", "--json", *QUICK]
    again = json.loads(succeed(*words, "--level", "0.5", "--out", "again"))
    assert again["level"] == 0.5
    assert again["terms"] == ["age", "dose", "(intercept)"]
    for low, value, high in (("low", "coefficients", "high"), ("per_unit_low", "per_unit", "per_unit_high")):
        assert np.all(np.array(again[low]) <= np.array(again[value]))
        assert np.all(np.array(again[value]) <= np.array(again[high]))
    first, second = (MeasurementSet.load(place / name / "measurements.parquet") for name in ("first", "again"))
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in second]
    code, _, err = call(*LOGISTIC, *QUICK, "--no-pictures", "--out", "first", "--overwrite")
    assert code == 0
    assert "made before" in err
    code, _, err = call(*LOGISTIC, "--rounds", "4", *QUICK, "--out", "other")
    assert code == 1
    assert "0 of 2 remains" in err
    assert not (place / "other").exists()


def test_the_command_and_the_function_of_the_same_name_measure_the_same(place: Path) -> None:
    words = [*LOGISTIC, *QUICK, "--features", "dose", "--rounds", "5", "--simulate", "3", "--no-pictures"]
    code, _, err = call(*words, "--out", "typed")
    assert code == 0
    assert "NOT PRIVATE" in err
    ends = {"age": (0, 100), "dose": (-50, 50), "cured": (0, 1)}
    domain = cs.Domain("clinic", tuple(cs.Attribute.continuous(name, bounds) for name, bounds in ends.items()))
    options: dict[str, Any] = {"steps": 600, "chains": 2, "rounds": 5, "simulate": 3, "pictures": False}
    called = cs.logistic("clinic.csv", domain, label="cured", features=["dose"], epsilon=2, out="called", **options)
    typed = RegressionEstimate.load("typed/regression.json")
    assert typed.attributes == called.attributes == ("dose",)
    assert not typed.private
    np.testing.assert_allclose(typed.coefficients, called.coefficients)
    assert cs.check("typed").private is False
    assert Path("typed/coefficients.csv").read_text().startswith("NOT PRIVATE,term")


def test_a_region_that_moves_points_has_no_coefficients_per_unit(place: Path) -> None:
    words = [*LOGISTIC, *QUICK, "--rounds", "3", "--region", "ball", "--simulate", "1", "--no-pictures", "--json"]
    assert "per_unit" not in json.loads(succeed(*words, "--out", "ball"))
    rows = list(csv.DictReader((place / "ball" / "coefficients.csv").open()))
    assert all(row["per_unit"] == row["per_unit_low"] == "" and row["coefficient_low"] for row in rows)


def test_a_dry_run_touches_nothing(place: Path) -> None:
    out = succeed(*LOGISTIC, "--dry-run")
    assert "20 rounds spend epsilon 0.1 each" in out
    assert sorted(each.name for each in place.iterdir()) == ["clinic.csv"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*LOGISTIC, "--rounds", "0", "--out", "c"], "rounds is 0"),
        ([*LOGISTIC, "--step-size", "0", "--out", "c"], "step is 0"),
        ([*LOGISTIC, "--region", "disc", "--out", "c"], "disc"),
        ([*LOGISTIC, "--ridge", "0", "--out", "c"], "ridge is 0"),
        ([*LOGISTIC, "--ridge", "nan", "--out", "c"], "ridge is nan"),
        ([*LOGISTIC, "--level", "1", "--out", "c"], "level"),
        ([*LOGISTIC, "--steps", "0", "--out", "c"], "steps"),
        ([*LOGISTIC, "--features", "age,cured", "--out", "c"], "also among the attributes"),
        ([*LOGISTIC, "--features", "weight", "--out", "c"], "weight"),
        ([*LOGISTIC, "--out", "no/such/folder"], "no folder"),
        ([*LOGISTIC, "--out", "."], "exists already"),
        (["logistic", "--measurements", "clinic.csv", "--out", "c"], "clinic.csv"),
        (["logistic", "clinic.csv", "--label", "y", "--epsilon", "1", "--bounds", BOUNDS, "--out", "c"], "'y'"),
        (["logistic", "clinic.csv", "--label", "age", "--epsilon", "1", "--bounds", "age=0:9", "--out", "c"], "age"),
    ],
)
def test_mistakes_are_refused_before_anything_is_spent(
    refused: Callable[..., Any], words: list[str], message: str
) -> None:
    code, err = refused(*words)
    assert code == 1
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["logistic", "clinic.csv", "--epsilon", "1", "--bounds", BOUNDS, "--out", "c"],
        ["logistic", "clinic.csv", "--label", "cured", "--epsilon", "1", "--out", "c"],
        ["logistic", "--label", "cured", "--epsilon", "1", "--bounds", BOUNDS, "--out", "c"],
        [*LOGISTIC, "--measurements", "m.parquet", "--out", "c"],
        LOGISTIC,
    ],
)
def test_what_is_missing_is_wrong_usage(refused: Callable[..., Any], words: list[str]) -> None:
    assert refused(*words)[0] == 2

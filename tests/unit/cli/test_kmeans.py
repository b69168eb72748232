"""`consilience kmeans` end to end: points in, a folder out, nothing spent that was not asked for."""

import csv
import io
import json
import math
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.cli.main import run
from consilience.cli.options import domain_of_bounds
from consilience.errors import DeclarationError
from consilience.estimators.clusters import ClusterEstimate
from consilience.measurements import MeasurementSet

CENTRES = np.array([[20.0, -30.0], [80.0, -20.0], [50.0, 30.0]])
KMEANS = ["kmeans", "points.csv", "--clusters", "3", "--epsilon", "1", "--bounds", "x=0:100,y=-50:50"]
QUICK = ["--steps", "1000", "--chains", "2"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    points = CENTRES[rng.integers(0, 3, 3000)] + rng.normal(0, 3, (3000, 2))
    lines = ["x,y,name", *(f"{x:.3f},{y:.3f},n{i}" for i, (x, y) in enumerate(points)), ",5,missing", "1e9,nan,odd"]
    (tmp_path / "points.csv").write_text("\n".join(lines) + "\n")
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


@pytest.fixture
def refused(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Exit code and standard error of a command that fails early, run in this process; nothing may be left behind."""

    def call_here(*words: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["consilience", *words])
        with pytest.raises(SystemExit) as ended:
            run()
        assert sorted(each.name for each in place.iterdir()) == ["points.csv"]
        return ended.value.code, capsys.readouterr().err

    return call_here


def succeed(*words: str) -> str:
    code, out, err = call(*words)
    assert code == 0, err
    return out


def test_points_become_clusters_with_error_bars_and_the_budget_is_told(place: Path) -> None:
    out = succeed(*KMEANS, "--method", "rounds", *QUICK, "--out", "clusters")
    assert "Spent: epsilon 1" in out
    assert {each.name for each in (place / "clusters").iterdir()} == {
        "centroids.csv",
        "clusters.json",
        "measurements.parquet",
        "clusters.png",
        "chain.png",
    }
    rows = list(csv.DictReader((place / "clusters" / "centroids.csv").open()))
    found = np.array([[float(row["x"]), float(row["y"])] for row in rows])
    for centre in CENTRES:
        assert np.linalg.norm(found - centre, axis=1).min() < 5
    for row in rows:
        for name in ("size", "x", "y"):
            assert float(row[f"{name}_low"]) <= float(row[f"{name}_high"])
    estimate = ClusterEstimate.load(place / "clusters" / "clusters.json")
    assert estimate.private
    assert estimate.total == pytest.approx(3000, rel=0.1)
    assert (place / "clusters" / "clusters.png").read_bytes().startswith(b"\x89PNG")
    spent = json.loads(succeed("ledger", "show", "points.csv", "--json"))
    assert (spent["spent"], spent["remaining"]) == ("1", "0")


@pytest.mark.parametrize("method", ["auto", "grid", "hybrid", "gupt", "privgene"])
def test_other_methods_are_charged_shown_and_read_again(place: Path, method: str) -> None:
    words = [*KMEANS, "--method", method, *QUICK]
    out = json.loads(succeed(*words, "--out", "clusters", "--no-pictures", "--json"))
    assert len(out["centroids"]) == 3
    if method in ("gupt", "privgene"):
        about, says = ("no_intervals", "no error bars") if method == "privgene" else ("intervals_of", "the blocks'")
        assert says in out[about]
        assert out["sizes"] == out["sizes_low"] == [None] * 3
        assert out["determined"] == [method == "gupt"] * 3
        assert says in call(*words, "--out", "clusters", "--overwrite")[2]
    else:
        assert sum(out["sizes"]) == pytest.approx(3000, rel=0.2)
        assert np.all(np.array(out["sizes_low"]) <= np.array(out["sizes_high"]))
    again = ["kmeans", "--measurements", "clusters/measurements.parquet", *QUICK, "--json", "--no-pictures"]
    assert json.loads(succeed(*again, "--out", "again"))["centroids"] == out["centroids"]
    assert json.loads(succeed("ledger", "show", "points.csv", "--json"))["spent"] == "1"


def test_rounds_of_an_earlier_run_cost_nothing(place: Path) -> None:
    succeed(*KMEANS, *QUICK, "--no-pictures", "--out", "clusters")
    again = json.loads(
        succeed(
            "kmeans", "--measurements", "clusters/measurements.parquet", *QUICK, "--level", "0.5", "--no-pictures",
            "--out", "again", "--json",
        )
    )  # fmt: skip
    assert again["level"] == 0.5
    assert len(again["centroids"]) == 3
    assert np.all(np.array(again["sizes_low"]) <= np.array(again["sizes_high"]))
    first, second = (MeasurementSet.load(place / name / "measurements.parquet") for name in ("clusters", "again"))
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in second]


def test_the_same_request_again_is_free_and_another_is_refused(place: Path) -> None:
    succeed(*KMEANS, *QUICK, "--no-pictures", "--out", "clusters")
    code, _, err = call(*KMEANS, *QUICK, "--no-pictures", "--out", "clusters", "--overwrite")
    assert code == 0
    assert "made before" in err
    code, _, err = call(*KMEANS, "--method", "rounds", *QUICK, "--out", "other")
    assert code == 1
    assert "0 of 1 remains" in err
    assert not (place / "other").exists()


def test_a_dry_run_touches_nothing(place: Path) -> None:
    assert "5 rounds spend epsilon 0.2 each" in succeed(*KMEANS, "--method", "rounds", "--dry-run")
    assert "5 rounds of k-means are chosen" in " ".join(succeed(*KMEANS, "--dry-run").split())
    assert sorted(each.name for each in place.iterdir()) == ["points.csv"]


def test_simulated_noise_is_stamped(place: Path) -> None:
    code, _, err = call(*KMEANS, *QUICK, "--simulate", "1", "--no-pictures", "--out", "clusters")
    assert code == 0
    assert "NOT PRIVATE" in err
    assert not ClusterEstimate.load(place / "clusters" / "clusters.json").private
    assert not (place / "points.csv.ledger").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["kmeans", "points.csv", "--clusters", "0", "--epsilon", "1", "--bounds", "x=0:1", "--out", "c"],
            "clusters is 0",
        ),
        (["kmeans", "points.csv", "--clusters", "2", "--epsilon", "1", "--bounds", "x=0", "--out", "c"], "column=low"),
        (["kmeans", "points.csv", "--clusters", "2", "--epsilon", "1", "--bounds", "x=5:1", "--out", "c"], "5"),
        (["kmeans", "points.csv", "--clusters", "2", "--epsilon", "1", "--bounds", "x=0:nan", "--out", "c"], "nan"),
        (["kmeans", "points.csv", "--clusters", "2", "--epsilon", "1", "--bounds", "z=0:1", "--out", "c"], "z"),
        ([*KMEANS, "--rounds", "0", "--out", "c"], "rounds is 0"),
        ([*KMEANS, "--region", "disc", "--out", "c"], "disc"),
        ([*KMEANS, "--method", "tree", "--out", "c"], "tree"),
        ([*KMEANS, "--method", "grid", "--rounds", "3", "--out", "c"], "leave --rounds 3 out"),
        ([*KMEANS, "--level", "1", "--out", "c"], "level"),
        ([*KMEANS, "--steps", "0", "--out", "c"], "steps"),
        ([*KMEANS, "--out", "no/such/folder"], "no folder"),
        ([*KMEANS, "--out", "."], "exists already"),
        (["kmeans", "--measurements", "points.csv", "--out", "c"], "points.csv"),
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
        ["kmeans", "points.csv", "--epsilon", "1", "--bounds", "x=0:1", "--out", "c"],
        ["kmeans", "points.csv", "--clusters", "2", "--epsilon", "1", "--out", "c"],
        ["kmeans", "--clusters", "2", "--epsilon", "1", "--bounds", "x=0:1", "--out", "c"],
        [*KMEANS, "--measurements", "m.parquet", "--out", "c"],
        KMEANS,
    ],
)
def test_what_is_missing_is_wrong_usage(refused: Callable[..., Any], words: list[str]) -> None:
    assert refused(*words)[0] == 2


def test_bounds_are_read_as_typed() -> None:
    found = domain_of_bounds(" hours per week = 0:99.5 , a=b=-1e3:-5", name="w")
    assert [(each.name, each.to_declaration()["bounds"]) for each in found.attributes] == [
        ("hours per week", [0.0, 99.5]),
        ("a=b", [-1000.0, -5.0]),
    ]
    assert math.isclose(found.attributes[0].bounds[1], 99.5)  # type: ignore[attr-defined]
    with pytest.raises(DeclarationError):
        domain_of_bounds("", name="w")

"""Reproductions leave a table, a picture and a verdict."""

from pathlib import Path

import pytest

from benchmarks.reproduce import figures
from benchmarks.reproduce.figures import Claim, Picture, publish

ROWS = [
    {"dataset": data, "epsilon": epsilon, "method": method, "mse": 1 / epsilon}
    for data in ("one", "two")
    for epsilon in (0.1, 1.0)
    for method in ("a", "b")
]


@pytest.mark.parametrize("bars", [False, True])
def test_a_figure_is_written_with_its_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bars: bool) -> None:
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "benchmarks" / "results")
    (tmp_path / "benchmarks").mkdir()
    picture = Picture("A title", "epsilon", "ε", "dataset", bars=bars)
    claims = [Claim("water is wet", True, "measured"), Claim("the earth is flat", False, "it is not")]
    assert publish("figure", ROWS, picture, claims, quick=False) is False
    folder = tmp_path / "benchmarks" / "results"
    assert (folder / "figure.csv").read_text().splitlines()[:2] == ["dataset,epsilon,method,mse", "one,0.1,a,10"]
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "figure.txt").read_text().splitlines() == [
        "HELD     water is wet (measured)",
        "NOT HELD the earth is flat (it is not)",
    ]


def test_a_quick_look_does_not_replace_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "benchmarks" / "results")
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    assert publish("figure", ROWS, Picture("A", "epsilon", "ε", "dataset"), [], quick=True) is True
    assert [path.name for path in (tmp_path / "benchmarks" / "results").iterdir()] == ["quick"]

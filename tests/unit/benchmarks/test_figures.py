"""Reproductions leave a table, a picture and verdicts; runs with other seeds are compared."""

import importlib
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.reproduce import comparison, figures
from benchmarks.reproduce.__main__ import REPRODUCTIONS
from benchmarks.reproduce.figures import About, Extent, judge_again, read_csv, reproduce
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.verdicts import BETTER, Claim

ROWS = [
    {"dataset": data, "epsilon": epsilon, "method": method, "mse": 1 / epsilon, "values": [2.0, 2.5, 2.25]}
    for data in ("one", "two")
    for epsilon in (0.1, 1.0)
    for method in ("a", "b")
]
PICTURE = Picture("A title", "epsilon", "ε", "dataset")


def module(picture: Picture | None = PICTURE, rows: list[dict[str, Any]] = ROWS) -> Any:
    return SimpleNamespace(
        ABOUT=About("An item", ("Data: other.",), runs="Three runs."),
        PICTURE=picture,
        run=lambda _extent: rows,
        claims=lambda rows: [
            Claim("water is wet", "wetness", BETTER, {"here": rows[0]["values"]}, paper="2 times"),
            Claim("the earth is flat", "flatness", BETTER, {"here": [0.1, 0.1, 0.1]}, ours=True),
        ],
    )


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.mark.parametrize("bars", [False, True])
def test_a_figure_is_written_with_its_verdicts(results: Path, bars: bool) -> None:
    failed = ROWS[0] | {"mse": float("nan"), "failed": "over 2 GB"}
    picture = Picture("A title", "epsilon", "ε", "dataset", bars=bars, own_scale=True)
    assert reproduce("figure", module(picture, [*ROWS, failed]), Extent()) is False
    first, second = (results / "figure.csv").read_text().splitlines()[:2]
    assert (first, second) == ("dataset,epsilon,method,mse,values,failed", "one,0.1,a,10,2 2.5 2.25,")
    assert (results / "figure.png").read_bytes().startswith(b"\x89PNG")
    text = (results / "figure.txt").read_text()
    assert "HELD: water is wet" in text
    assert "DID NOT HOLD: ours, not the paper's: the earth is flat" in text
    assert "holds if at least 1.01; the paper: 2 times" in text
    assert "differs: Data: other." in text
    document = json.loads((results / "figure.json").read_text())
    assert document["provenance"]["first seed"] == 0
    assert document["provenance"]["commit"]
    assert document["provenance"]["processor seconds"] >= 0
    assert [claim["outcome"] for claim in document["claims"]] == ["held", "did not hold"]


def test_the_commit_of_the_code_is_told_and_what_was_changed_since(tmp_path: Path) -> None:
    assert figures.commit(tmp_path) == "unknown"

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    code = tmp_path / "src" / "code.py"
    code.parent.mkdir()
    for path in (code, results / "figure.csv"):
        path.write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    here = git("rev-parse", "--short=10", "HEAD")
    (results / "figure.csv").write_text("2")
    assert figures.commit(tmp_path) == here
    git("commit", "-q", "-a", "-m", "results are not code")
    assert figures.commit(tmp_path) == here
    code.write_text("2")
    assert figures.commit(tmp_path) == f"{here} and changes"


def test_verdicts_are_made_again_from_the_csv(results: Path) -> None:
    reproduce("figure", module(None), Extent())
    before = (results / "figure.json").read_text()
    later = module(None)
    later.ABOUT = About("An item", ("Data: other.",), runs="Thirty runs.")
    judge_again("figure", later, Extent())
    assert (results / "figure.json").read_text() == before
    assert read_csv(results / "figure.csv")[0]["values"] == [2.0, 2.5, 2.25]


def test_a_quick_look_and_other_seeds_do_not_replace_the_results(results: Path) -> None:
    reproduce("figure", module(None), Extent(quick=True))
    reproduce("figure", module(None), Extent(first_seed=7))
    assert sorted(path.name for path in results.iterdir()) == ["quick", "seed-7"]
    assert list(Extent(first_seed=7).seeds(3)) == [7, 8, 9]
    assert list(Extent(quick=True, first_seed=7).seeds(10)) == [7, 8]


def test_other_seeds_are_compared(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduce("figure", module(None), Extent())
    reproduce("figure", module(None), Extent(first_seed=100))
    assert comparison.compare(["figure", "not run"], 100) == 0
    assert "2 claims: 0 changed, 0 into the opposite" in capsys.readouterr().out
    dry = [ROWS[0] | {"values": [0.5, 0.5, 0.5]}]
    reproduce("figure", module(None, dry), Extent(first_seed=100))
    assert comparison.compare(["figure"], 100) == 1
    summary = json.loads((results / comparison.SUMMARY).read_text())
    assert summary["changes"] == [
        {"name": "figure", "words": "water is wet", "first": "held", "second": "did not hold"}
    ]
    assert comparison.compare(["figure"], 55) == 1


def test_a_picture_has_its_own_scales_and_is_cut_off(tmp_path: Path) -> None:
    rows = [row | {"_": 0} for row in ROWS]
    picture = Picture(
        "A", "epsilon", "ε", "dataset", y_log=False, own_scale=True, zoom={"one": 1.1}, dashed="b", x_log=False
    )
    picture.draw(tmp_path / "picture.png", rows)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_every_reproduction_has_what_the_machine_needs() -> None:
    for name, path in REPRODUCTIONS.items():
        found = importlib.import_module(path)
        assert found.ABOUT.item, name
        assert found.ABOUT.differs, name
        assert callable(found.run), name
        assert callable(found.claims), name


JUDGED = [name for name in REPRODUCTIONS if (figures.RESULTS / f"{name}.json").exists()]


@pytest.mark.parametrize("name", JUDGED)
def test_published_verdicts_follow_from_the_csv_beside_them(name: str) -> None:
    """Run `python -m benchmarks.reproduce --from-csv NAME` where they do not."""
    document = json.loads((figures.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    claims = importlib.import_module(REPRODUCTIONS[name]).claims(read_csv(figures.RESULTS / f"{name}.csv"))
    found = [(claim.words, str(claim.judged().outcome)) for claim in claims]
    assert found == [(claim["words"], claim["outcome"]) for claim in document["claims"]]

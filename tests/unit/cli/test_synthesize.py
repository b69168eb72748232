"""`consilience synthesize`: records in a file, warnings beside it, refusals before any work."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.main import app
from consilience.domain import Attribute, Domain
from consilience.errors import ConsilienceError
from consilience.estimators import estimate
from consilience.measurements import Laplace, MeasurementSet
from consilience.publication import write_bundle

DOMAIN = Domain(
    "people",
    (
        Attribute.numeric("age", [0, 18, 65, 100], missing="Unknown"),
        Attribute.categorical("sex", ["F", "M"]),
        Attribute.continuous("height", (0.0, 3.0)),
    ),
)


def fitted(*, private: bool):
    tables = {("age", "sex"): [[40.2, 35.1], [3.4, 90.7], [20.5, 22.2], [1.5, 2.5]]}
    return estimate(MeasurementSet.from_marginals(DOMAIN, tables, noise=Laplace(3.0), private=private))


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_bundle(fitted(private=True), tmp_path / "release")


def call(*words: str):
    return CliRunner().invoke(app, ["synthesize", "release", *words])


def test_as_many_records_as_were_estimated(bundle: Path) -> None:
    outcome = call("--out", "people.csv")
    assert outcome.exit_code == 0, outcome.exception
    lines = Path("people.csv").read_text().splitlines()
    assert lines[0] == "age,sex"
    assert len(lines) - 1 == round(fitted(private=True).total)
    assert f"wrote {len(lines) - 1:,} synthetic records" in outcome.stdout
    assert "warning" not in outcome.stderr
    assert "left out, because they have no cells: height" in outcome.stderr


def test_more_rows_than_records_are_warned_of(bundle: Path) -> None:
    outcome = call("--out", "people.parquet", "--rows", "1000", "--spread", "midpoint", "--json")
    assert "more rows add no information" in outcome.stderr
    assert json.loads(outcome.stdout) == {
        "basis": {"columns": {"age": "measured", "sex": "measured"}, "linked": [["age", "sex"]]},
        "filled": [],
        "left_out": [],
        "file": "people.parquet",
        "rows": 1000,
        "seed": 0,
        "spread": "midpoint",
        "private": True,
    }
    assert set(pq.read_table("people.parquet").column("age").to_pylist()) == {8, 41, 82, None}


def test_a_seed_repeats_the_records(bundle: Path) -> None:
    for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        call("--out", f"{name}.csv", "--seed", seed)
    assert Path("a.csv").read_text() == Path("b.csv").read_text() != Path("c.csv").read_text()


def test_simulated_noise_is_said_beside_the_file_and_in_it(bundle: Path, tmp_path: Path) -> None:
    write_bundle(fitted(private=False), bundle, overwrite=True)
    outcome = call("--out", "play.csv")
    assert "NOT PRIVATE" in outcome.stderr
    assert Path("play.csv").read_text().startswith("NOT PRIVATE,age,sex\nsimulated noise,")
    call("--out", "play.parquet")
    assert pq.read_schema("play.parquet").metadata[b"consilience.private"] == b"false"


def test_a_measurement_file_is_fitted_on_the_spot(bundle: Path) -> None:
    outcome = CliRunner().invoke(app, ["synthesize", "release/measurements.parquet", "--out", "people.csv"])
    assert outcome.exit_code == 0
    assert Path("people.csv").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "people.txt"], "neither in .csv nor in .parquet"),
        (["--out", "there.csv"], "--overwrite"),
        (["--out", "none/people.csv"], "there is no folder none"),
        (["--out", "people.csv", "--rows", "-1"], "-1 synthetic rows"),
        (["--out", "people.csv", "--spread", "wild"], "even, midpoint, lower"),
        (["--out", "people.csv", "--seed", "-1"], "seed"),
    ],
)
def test_refusals_come_before_the_release_is_opened(
    bundle: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("there.csv").write_text("mine")
    monkeypatch.setattr("consilience.cli.after_release.open_estimate", lambda _: pytest.fail("opened"))
    outcome = call(*words)
    assert isinstance(outcome.exception, ConsilienceError)
    assert message in str(outcome.exception)
    assert Path("there.csv").read_text() == "mine"


def test_too_many_rows_are_refused_and_overwriting_is_a_wish(bundle: Path) -> None:
    outcome = call("--out", "people.csv", "--rows", "1000000000")
    assert "the limit is 4 GB" in str(outcome.exception)
    assert not Path("people.csv").exists()
    Path("people.csv").write_text("mine")
    assert call("--out", "people.csv", "--overwrite").exit_code == 0
    assert Path("people.csv").read_text().startswith("age,sex\n")


def test_a_file_of_records_is_checked_page_by_page(bundle: Path) -> None:
    from consilience.file_checks import check
    from consilience.publication.bundle import Finding

    call("--out", "people.parquet", "--rows", "50")
    assert check(Path("people.parquet")) == Finding("synthetic records", "50 rows.", private=True)
    contents = Path("people.parquet").read_bytes()
    Path("cut.parquet").write_bytes(contents[: len(contents) // 2])
    with pytest.raises(ConsilienceError, match="cut short"):
        check(Path("cut.parquet"))

"""`consilience report`: files in, files out, and both faces of the result."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from consilience.cli.main import app
from consilience.domain import Domain
from consilience.errors import ConsilienceError
from consilience.estimators import estimate
from consilience.measurements import Laplace, MeasurementSet
from consilience.publication import write_bundle
from consilience.publication.bundle import check_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    domain = Domain.from_sizes({"age": 3, "sex": 2}, name="people")
    margins = {("age", "sex"): [[30.0, 41.0], [22.0, 18.5], [-1.0, 7.0]], "age": [70.0, 40.0, 8.0]}
    measured = MeasurementSet.from_marginals(domain, margins, noise=Laplace(2.0), private=False)
    return write_bundle(estimate(measured), tmp_path / "release")


def call(*words: object):
    return CliRunner().invoke(app, ["report", *map(str, words)])


def test_the_report_goes_into_the_bundle(bundle: Path) -> None:
    outcome = call(bundle, "--refits", 20)
    assert outcome.exit_code == 0, outcome.output
    drawn = len(list((bundle / "pictures").iterdir()))
    assert f"wrote {bundle / 'report.html'} and {drawn} pictures" in outcome.stdout
    assert drawn > 3
    assert "noise" in outcome.stdout
    assert "NOT PRIVATE" in outcome.stderr
    assert "report.html" in check_bundle(bundle)["files"]


def test_json_and_a_page_elsewhere(bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    outcome = call(bundle, "--refits", 20, "--out", out, "--json")
    document = json.loads(outcome.stdout)
    assert document["report"] == str(out)
    assert document["private"] is False
    assert document["error_bars"] is True
    assert set(document["noise"]) == {"as_drawn", "as_declared", "p_value", "checks"}
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    again = call(bundle, "--refits", 20, "--out", out)
    assert isinstance(again.exception, ConsilienceError)
    assert "exists already" in str(again.exception)
    assert call(bundle, "--refits", 20, "--out", out, "--overwrite").exit_code == 0


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    outcome = call(tmp_path)
    assert isinstance(outcome.exception, ConsilienceError)
    assert "no release bundle" in str(outcome.exception)

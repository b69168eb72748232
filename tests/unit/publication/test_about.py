"""What a publisher says of a release is read strictly, kept in the bundle, and can be corrected."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from consilience.cli.main import app
from consilience.domain import Domain
from consilience.errors import DeclarationError, FileFormatError
from consilience.estimators import estimate
from consilience.file_checks import check
from consilience.measurements import Laplace, MeasurementSet
from consilience.publication import open_release, write_bundle
from consilience.publication.about import PUBLICATION, Contact, Named, Period, Publication
from consilience.publication.report import report

EVERYTHING = """
title = "Population of the town, 2024"
description = "Counts by age and sex.\\nMade with differential privacy."
publisher = { name = "Statistical Office", url = "https://example.org/" }
contact = { name = "Information desk", email = "desk@example.org", url = "https://example.org/desk" }
period = { start = 2024-01-01, end = "2024" }
region = { name = "Springfield", url = "https://www.geonames.org/4409896" }
licence = "CC-BY-4.0"
intended_use = "Planning of schools."
language = "en"
keywords = ["population", "age"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / PUBLICATION
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def fitted():
    domain = Domain.from_sizes({"age": 3, "sex": 2})
    return estimate(
        MeasurementSet.from_marginals(domain, {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}, noise=Laplace(2.0))
    )


def test_everything_is_read_and_written_back(tmp_path: Path) -> None:
    told = Publication.load(written(tmp_path, EVERYTHING))
    assert told.publisher == Named("Statistical Office", "https://example.org/")
    assert told.period == Period("2024-01-01", "2024")
    assert told.licence == Named("CC-BY-4.0", "https://creativecommons.org/licenses/by/4.0/")
    assert told.contact == Contact("Information desk", "desk@example.org", "https://example.org/desk")
    (tmp_path / PUBLICATION).write_bytes(told.to_toml())
    assert Publication.load(tmp_path / PUBLICATION) == told


def test_every_key_may_be_left_out(tmp_path: Path) -> None:
    nothing = Publication.load(written(tmp_path, ""))
    assert nothing == Publication()
    assert not nothing
    for line in re.findall(r"^\w+ = .*$", EVERYTHING, re.MULTILINE):
        assert Publication.load(written(tmp_path, line))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("publishr = 'x'", "'publishr' is not known here; did you mean 'publisher'?"),
        ("title = 3", "'title' must be a text, found 3"),
        ("title = ' '", "'title' is empty; write a text, or leave the line out"),
        ("title = 'a\\u001bb'".replace("'", '"'), "'title' holds a control character"),
        ("region = []", "publication.toml.region: expected a table of named values, found a list"),
        ("licence = { url = 'https://a.b' }", "licence: 'name' is missing; it must be a text"),
        ("publisher = { name = 'x', url = 'javascript:alert(1)' }", "'url' must be a full address"),
        ("contact = {}", "nobody is named; write a name, an email or a url"),
        ("contact = { email = 'nobody' }", "'email' must be an address such as desk@example.org, found 'nobody'"),
        ("period = {}", "neither 'start' nor 'end' is there"),
        ("period = { start = 2025, end = '2024-12' }", "it ends, 2024-12, before it starts, 2025"),
        ("period = { start = '2024-02-30' }", "'start' must be a day, month or year"),
        ("period = { start = true }", "'start' must be a day, month or year"),
        ("language = 'English'", "'language' must be a code"),
        ("keywords = ['a', '']", "'keywords' is empty"),
    ],
)
def test_what_is_wrong_is_named_with_the_next_step(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(error)):
        Publication.load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("2024", "2024", "2024"),
        ("2023", "2024-05", "2023 to 2024-05"),
        (None, "2024", "until 2024"),
        ("2024", None, "since 2024"),
    ],
)
def test_a_period_in_words(start: str | None, end: str | None, words: str) -> None:
    assert str(Period(start, end)) == words


def test_a_bundle_keeps_it(fitted, tmp_path: Path) -> None:
    told = Publication.load(written(tmp_path, EVERYTHING))
    path = write_bundle(fitted, tmp_path / "release", publication=tmp_path / PUBLICATION)
    assert open_release(path).publication == told
    assert check(path / PUBLICATION).kind == "publication file"
    assert not open_release(write_bundle(fitted, tmp_path / "plain")).publication


def test_a_bundle_with_another_file_in_its_place_is_refused(fitted, tmp_path: Path) -> None:
    path = write_bundle(fitted, tmp_path / "release", publication=Publication(title="Town"))
    (path / PUBLICATION).write_text("title = 'Other'")
    with pytest.raises(FileFormatError, match="differs from what was released"):
        open_release(path)


def test_a_report_corrects_it(fitted, tmp_path: Path) -> None:
    path = write_bundle(fitted, tmp_path / "release", publication=Publication(title="Twon"))
    made = report(path, refits=20, publication=Publication(title="Town"))
    assert made.facts.release.publication.title == open_release(path).publication.title == "Town"
    report(path, refits=20)
    assert open_release(path).publication.title == "Town"


def test_a_wrong_file_is_told_before_anything_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("sex\nF\nM\n")
    declared = 'name = "people"\n[attributes.sex]\nkind = "categorical"\nvalues = ["F", "M"]\n'
    Path("people.domain.toml").write_text(declared)
    asked = "release people.csv --domain people.domain.toml --epsilon 1 --out release --publication publication.toml"
    written(tmp_path, "lisence = 'CC0-1.0'")
    assert CliRunner().invoke(app, asked.split()).exit_code != 0
    assert not Path("people.csv.ledger").exists()
    written(tmp_path, "licence = 'CC0-1.0'")
    assert CliRunner().invoke(app, asked.split()).exit_code == 0
    licence = open_release("release").publication.licence
    assert licence is not None
    assert licence.name == "CC0-1.0"

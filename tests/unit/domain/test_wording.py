"""Titles, units and labels: read, written back, used in questions and answers, and no part of what a request is."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from consilience import Attribute, Domain, Query, estimate
from consilience.cli.answer import print_answers
from consilience.domain import factors
from consilience.errors import DeclarationError
from consilience.measurements import Laplace, Measurement, MeasurementSet
from consilience.publication import answer_table, cross_table, make_report, write_bundle

PLAIN = """
name = "survey"

[attributes.race]
kind = "categorical"
values = [1, 2, 3]
missing = "NA"

[attributes.income]
kind = "numeric"
edges = [0, 10, 20, 50]

[attributes.place]
kind = "hierarchy"
parents = { "08001" = "08", "08003" = "08", "09001" = "09" }
"""

WORDS = {
    "race": 'title = "Race"\nlabels = { 1 = "White alone", 2 = "Black alone", NA = "not stated" }\n',
    "income": 'title = "Income"\nunit = "dollars"\nlabels = { "20..49" = "20 or more" }\n',
    "place": 'title = "County"\nlabels = { "08" = "Baden", "08001" = "North" }\n',
}


def worded_text() -> str:
    """The declaration with titles and labels."""
    text = PLAIN
    for name, words in WORDS.items():
        text = text.replace(f"[attributes.{name}]\n", f"[attributes.{name}]\n{words}")
    return text


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    path = tmp_path / "d.toml"
    path.write_text(worded_text(), encoding="utf-8")
    return Domain.load(path)


def test_words_are_read_and_written_back_as_they_were(domain: Domain, tmp_path: Path) -> None:
    assert (domain["race"].heading, domain["income"].heading) == ("Race", "Income (dollars)")
    assert [domain["race"].say(value) for value in domain["race"].labels] == [
        "White alone",
        "Black alone",
        "3",
        "not stated",
    ]
    domain.save(tmp_path / "again.toml")
    again = Domain.load(tmp_path / "again.toml")
    assert again == domain
    assert again.to_declaration() == domain.to_declaration()
    assert [each.wording for each in again.attributes] == [each.wording for each in domain.attributes]


def test_a_domain_without_words_has_the_identity_that_it_had_and_words_do_not_change_it(
    domain: Domain, tmp_path: Path
) -> None:
    path = tmp_path / "plain.toml"
    path.write_text(PLAIN, encoding="utf-8")
    plain = Domain.load(path)
    assert "title" not in json.dumps(plain.to_declaration())
    assert plain.fingerprint == domain.fingerprint
    assert plain.fingerprint == "19fc97e7f516626d11ff77d9ac4567e10dcdfece1731d4c5b9ddb5041070b39c"
    assert plain == domain
    other = replace(domain["race"], values=("1", "2"))
    assert replace(domain, attributes=(other, *domain.attributes[1:])).fingerprint != domain.fingerprint


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("race=White alone", "race=1"),
        ("race=White alone|3", "race=1|3"),
        ("race in (not stated)", "race in (NA)"),
        ("race=White alone..Black alone by income", "race=1..2 by income"),
        ("place=Baden", "place=08"),
        ("income=20 or more", 'income="20..49"'),
    ],
)
def test_a_label_asks_for_its_value(domain: Domain, label: str, value: str) -> None:
    by_label, by_value = Query.parse(label).bind(domain), Query.parse(value).bind(domain)
    assert by_label.query == Query.parse(value)
    np.testing.assert_array_equal(by_label.written_out(), by_value.written_out())


def test_a_value_goes_before_a_label_and_a_label_of_several_values_is_refused() -> None:
    swapped = Attribute.categorical("a", ["1", "2", "8", "9"]).worded(
        labels={"1": "2", "2": "1", "8": "Other", "9": "Other"}
    )
    domain = Domain("d", (swapped,))
    assert Query.parse("a=2").bind(domain).written_out().tolist() == [[0, 1, 0, 0]]
    with pytest.raises(DeclarationError, match=r"'Other' is the label of 2 values, '8', '9'"):
        Query.parse("a=Other").bind(domain)
    with pytest.raises(DeclarationError, match=r"did you mean 'Other'\?"):
        Query.parse("a=Othr").bind(domain)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ('labels = { 4 = "x" }', r"'labels' names '4', which is none of its values; there is: 1, 2, 3, NA"),
        ('labels = { 1 = " " }', "the label of '1' is empty"),
        ('labels = ["x"]', "race.labels: expected a table"),
        ("title = 3", "'title' must be a text"),
        ('unit = "a\\u0007b"', "control character"),
        ('labels = { 1 = "a\\u202eb" }', "control character"),
    ],
)
def test_words_that_say_nothing_are_refused(tmp_path: Path, words: str, complaint: str) -> None:
    path = tmp_path / "d.toml"
    path.write_text(PLAIN.replace("[attributes.race]\n", f"[attributes.race]\n{words}\n"), encoding="utf-8")
    with pytest.raises(DeclarationError, match=complaint):
        Domain.load(path)


def test_rows_of_every_kind_are_said_in_words(domain: Domain) -> None:
    race = [domain["race"]]
    assert factors.Prefix().worded_over(race)[1] == "up to Black alone"
    assert factors.AllRanges().worded_over(race)[1] == "White alone to Black alone"
    assert factors.Subset(("1", "3")).worded_over(race) == ("White alone|3",)
    assert factors.Range("1", None).worded_over(race) == ("White alone..",)
    assert factors.Mean().worded_over([domain["income"]]) == ("sum of Income (dollars)",)
    assert factors.Tree().worded_over([domain["place"]])[:2] == ("Baden", "09")
    groups = factors.Buckets.of({"one": ["White alone"], "rest": ["2", "3"]})
    assert groups.in_values(domain["race"]) == factors.Buckets.of({"one": ["1"], "rest": ["2", "3"]})
    assert groups.worded_over(race) == ("one", "rest")


@pytest.fixture
def account(domain: Domain):
    query = Query.parse("by race, income")
    counts = np.arange(1.0, 13.0).reshape(4, 3)
    measured = MeasurementSet(domain, (Measurement(query, counts.ravel(), Laplace(1.0), id="t"),))
    return estimate(measured)


def test_files_carry_value_and_label_and_people_read_labels(account, capsys: pytest.CaptureFixture[str]) -> None:
    table = answer_table(account, "by race, income")
    assert table.to_csv().splitlines()[0] == "race,race_label,income,income_label,estimate,noisy,basis"
    assert table.to_csv().splitlines()[3].startswith("1,White alone,20..49,20 or more,3.0,")
    first = json.loads(table.to_json())["answers"][0]
    assert (first["race"], first["race_label"]) == ("1", "White alone")
    print_answers(table)
    shown = capsys.readouterr().out
    assert "Race" in shown
    assert "Income (dollars)" in shown
    assert "20 or more" in shown
    assert answer_table(account, "race=White alone by income").noisy is None
    mean = answer_table(account, "mean(income) by race")
    assert mean.shown_axes[0] == ("mean of Income (dollars)",)
    assert mean.axes[0] == ("mean of income",)


def test_what_was_measured_is_found_by_label(account, domain: Domain) -> None:
    measured = MeasurementSet(domain, (Measurement(Query.parse("race=1"), np.array([5.0]), Laplace(1.0), id="t"),))
    np.testing.assert_array_equal(answer_table(estimate(measured), "race=White alone").noisy, [5.0])


def test_a_cross_table_has_titles_and_labels(account, capsys: pytest.CaptureFixture[str]) -> None:
    table = cross_table(answer_table(account, "by race, income"))
    lines = table.to_csv().splitlines()
    assert lines[0] == ",,0..9,10..19,20..49,Total"
    assert lines[1] == "race,race_label,0..9,10..19,20 or more,Total"
    assert lines[2].startswith("1,White alone,1.0,")
    assert lines[-1].startswith("Total,Total,")
    plain = json.loads(table.to_json())
    assert plain["row_labels"][0] == ["1"]
    assert plain["row_words"][0] == ["White alone"]
    assert plain["down_headings"] == ["Race"]
    print_answers(table)
    shown = capsys.readouterr().out
    assert "White alone" in shown
    assert "(Income (dollars) across)" in shown


def test_a_report_speaks_in_words(account, tmp_path: Path) -> None:
    write_bundle(account, tmp_path / "release")
    page = make_report(tmp_path / "release", refits=20).html
    assert "White alone" in page
    assert "Income (dollars): estimated counts" in page
    written = (tmp_path / "release" / "tables" / "race.csv").read_text(encoding="utf-8")
    assert written.splitlines()[1].startswith("1,White alone,")

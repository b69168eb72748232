"""A draft is gone through attribute by attribute: marks and telling comments go, everything else stays as it was."""

import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from consilience.cli.main import app
from consilience.curation import draft_domain
from consilience.curation.review import Review, with_values, with_words
from consilience.domain import Attribute, Domain
from consilience.domain.domains import QUOTES_DATA
from consilience.errors import DeclarationError

OWN = """\
# about the survey of 2020
draft = true
name = "survey"            # the ledger's name

# what the questionnaire has
# NOT PRIVATE: category: values (2 different).
[attributes.sex]
reviewed = false           # to do
kind = "categorical"
values = [
    "F", # women
    "M",
]

[attributes."marital status"]
reviewed = false
kind = "categorical"
values = ["single", "married"]

[attributes."marital status".labels]
single = "Single"

[attributes.age]
kind = "numeric"
edges = [0, 18, 65]

[[impossible]]             # no child is married
age = [0, 18]
"marital status" = ["married"]
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "survey.domain.toml"
    path.write_text(OWN)
    return path


@pytest.fixture
def made(tmp_path: Path) -> Path:
    columns = {"id": range(300), "sex": ["F", "M", None] * 100, "age": [i * 7 % 90 for i in range(300)]}
    path = tmp_path / "people.domain.toml"
    path.write_text(draft_domain(pa.table(columns), name="people").to_toml())
    return path


def go_through(path: Path, typed: str) -> str:
    outcome = CliRunner().invoke(app, ["domain", "review", str(path)], input=typed)
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def test_what_is_kept_loses_its_mark_and_the_rest_of_the_file_stays(own: Path) -> None:
    Review(own).keep("sex")
    expected = OWN.replace("# NOT PRIVATE: category: values (2 different).\n", "")
    assert own.read_text() == expected.replace("reviewed = false           # to do\n", "")


def test_what_is_dropped_goes_with_all_its_tables(own: Path) -> None:
    own.write_text(OWN.split("[[impossible]]")[0])
    Review(own).drop("marital status")
    assert Domain.load(own).names == ("sex", "age")
    assert "single" not in own.read_text().lower()


def test_a_drop_that_rules_speak_against_changes_nothing(own: Path) -> None:
    with pytest.raises(DeclarationError, match="impossible cells or public facts name 'age'"):
        Review(own).drop("age")
    assert own.read_text() == OWN


def test_other_values_and_words_take_the_place_of_the_old_ones(own: Path) -> None:
    review = Review(own)
    review.put(with_words(with_values(review.domain["sex"], 'F, M, "no, other"'), "no, other", "Another"))
    review.keep("sex")
    again = Domain.load(own)
    assert again["sex"].labels == ("F", "M", "no, other")
    assert again["sex"].say("no, other") == "Another"
    assert "# what the questionnaire has" in own.read_text()


def test_edges_and_bounds_are_typed_with_commas() -> None:
    age = Attribute.numeric("age", [0, 10, 20]).worded(labels={"10..19": "teens", "0..9": "children"})
    assert with_values(age, "0, 10, 30").wording.by_value == {"0..9": "children"}
    assert with_values(Attribute.continuous("x", (0, 1)), "-1, 2.5").to_declaration()["bounds"] == [-1, 2.5]
    for text in ("0, many", "5"):
        with pytest.raises(DeclarationError):
            with_values(age, text)
    assert with_words(age, "title", "Age").heading == "Age"
    assert with_words(with_words(age, "unit", "years"), "unit", "").wording.unit == ""
    with pytest.raises(DeclarationError, match="none of its values"):
        with_words(age, "90", "old")


def test_after_everything_was_decided_nothing_of_the_data_is_left(made: Path) -> None:
    output = go_through(made, "k\nv\n0, 18, 65, 100\nk\n")
    assert "left out, id: it holds whole numbers that count the rows" in output
    assert "nothing is left to review" in output
    text = made.read_text()
    assert "#" not in text
    domain = Domain.load(made)
    assert domain.left_to_review == ""
    assert domain["age"].labels == ("0..17", "18..64", "65..99")
    assert domain["sex"].labels == ("F", "M", "Unknown")


def test_a_review_goes_on_where_it_was_left(made: Path) -> None:
    assert "1 attributes are left" in go_through(made, "k\nq\n")
    assert Domain.load(made).unreviewed == ("age",)
    assert QUOTES_DATA in made.read_text()
    assert "1 of 2 attributes are left to review" in go_through(made, "d\n")
    assert Domain.load(made).names == ("sex",)


def test_without_anybody_to_answer_nothing_changes(made: Path) -> None:
    before = made.read_text()
    assert "2 attributes are left" in go_through(made, "")
    assert "answer with one of the letters" in go_through(made, "hello\n")
    assert made.read_text() == before


def test_a_refused_change_is_said_and_asked_again(made: Path) -> None:
    output = go_through(made, "n\nv\n9, 3\nw\n3 = three\n\nk\n")
    assert output.count("not done") == 2
    assert Domain.load(made).unreviewed == ("sex",)


def test_words_are_typed_value_by_value(made: Path) -> None:
    go_through(made, "w\nF = Women\nM = Men\ntitle = Sex at birth\nnonsense\n\nk\nq\n")
    sex = Domain.load(made)["sex"]
    assert (sex.heading, sex.say("F"), sex.say("M")) == ("Sex at birth", "Women", "Men")


def test_a_layout_that_is_not_understood_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "inline.toml"
    path.write_text('name = "d"\n[attributes]\nsex = {kind = "categorical", values = ["F"], reviewed = false}\n')
    with pytest.raises(DeclarationError, match="under a header"):
        Review(path)


def test_a_file_without_marks_has_nothing_to_review(tmp_path: Path) -> None:
    Domain("d", (Attribute.categorical("sex", ["F", "M"]),)).save(tmp_path / "d.toml")
    before = (tmp_path / "d.toml").read_text()
    assert "nothing is left to review" in go_through(tmp_path / "d.toml", "")
    assert Domain.load(tmp_path / "d.toml") == Domain.from_declaration(tomllib.loads(before))

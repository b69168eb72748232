"""Code books of every format say the same, and a draft takes titles, labels and values from them."""

import json
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from consilience.cli.main import app
from consilience.curation import draft_domain
from consilience.curation.code_books import Entry, entry_of, read_code_book, spelled
from consilience.errors import DeclarationError, FileFormatError

SEX = (("1", "Male"), ("2", "Female"), ("9", "Refused"))
PEOPLE = [f"{i % 2 + 1 if i % 17 else 9},{i * 37 % 3000 if i % 11 else 9999},{i % 3:02d}" for i in range(400)]
DDI = """\
<?xml version="1.0"?>
<codeBook xmlns="ddi:codebook:2_5"><dataDscr>
<var name="SEX"><labl>Sex
  of the person</labl>
<catgry><catValu>1</catValu><labl>Male</labl></catgry><catgry><catValu>2</catValu><labl>Female</labl></catgry>
<catgry missing="Y"><catValu>9</catValu><labl>Refused</labl></catgry></var>
<var name="INCOME"><labl>Income</labl><invalrng><item VALUE="9999"/></invalrng></var>
<var name="PW" wgt="wgt"><labl>Weight</labl></var>
</dataDscr></codeBook>
"""


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["sex,income,region", *PEOPLE]) + "\n")
    return path


def ddi(folder: Path) -> Path:
    (folder / "book.xml").write_text(DDI)
    return folder / "book.xml"


def plain(folder: Path) -> Path:
    rows = ["variable;value;label", "sex;;Sex of the person", *(f"sex;{code};{label}" for code, label in SEX)]
    (folder / "book.csv").write_text(
        "\n".join([*rows, "region;0;Nord-Süd", "region;1;Ost", "region;2;West", "region;3;Insel"])
    )
    return folder / "book.csv"


def csvw(folder: Path) -> Path:
    columns = [
        {"name": "sex", "titles": {"en": ["Sex of the person"]}, "dp:publicPartitions": [1, 2], "null": "9"},
        {"name": "income", "titles": "Income", "datatype": {"minimum": 0, "maximum": 5000}, "null": ["9999"]},
    ]
    document = {"@context": "http://www.w3.org/ns/csvw", "url": "people.csv", "tableSchema": {"columns": columns}}
    (folder / "book.json").write_text(json.dumps(document))
    return folder / "book.json"


def test_ddi_tells_titles_labels_missing_codes_and_weights(tmp_path: Path) -> None:
    book = read_code_book(ddi(tmp_path))
    assert book["SEX"] == Entry("Sex of the person", SEX, ("9",))
    assert book["INCOME"] == Entry("Income", (), ("9999",))
    assert book["PW"].weight


def test_a_draft_takes_values_labels_and_missing_codes_from_ddi(people: Path, tmp_path: Path) -> None:
    domain = draft_domain(people, code_book=ddi(tmp_path)).domain
    sex = domain["sex"]
    assert sex.ordinary_labels == ("1", "2")
    assert (sex.heading, sex.say("1"), sex.missing) == ("Sex of the person", "Male", "Unknown")
    assert domain.source_format.notation_of("sex").missing_tokens == ("9",)
    assert domain["income"].heading == "Income"
    assert domain["income"].to_declaration()["edges"][-1] < 9999
    assert domain.draft
    assert "sex" in domain.unreviewed


def test_codes_that_nobody_has_are_listed_as_the_data_writes_them(people: Path, tmp_path: Path) -> None:
    region = draft_domain(people, code_book=plain(tmp_path)).domain["region"]
    assert region.ordinary_labels == ("00", "01", "02", "03")
    assert region.say("00") == "Nord-Süd"


def test_bounds_and_values_that_are_public_take_the_place_of_what_was_seen(people: Path, tmp_path: Path) -> None:
    domain = draft_domain(people, code_book=csvw(tmp_path)).domain
    edges = domain["income"].to_declaration()["edges"]
    assert (edges[0], edges[-1]) == (0, 5001)
    assert domain["sex"].ordinary_labels == ("1", "2")
    assert domain["sex"].heading == "Sex of the person"


@pytest.mark.parametrize("kind", ["sav", "dta", "por", "xpt"])
def test_files_of_statistics_packages(kind: str, tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat")
    frame, path = pd.DataFrame({"sex": [1.0, 2.0, 9.0], "income": [5.0, 6.0, 7.0]}), str(tmp_path / f"book.{kind}")
    titles, labels = ["Sex", "Income"], {"sex": {int(code): label for code, label in SEX}}
    if kind == "sav":
        pyreadstat.write_sav(
            frame, path, column_labels=titles, variable_value_labels=labels, missing_ranges={"sex": [9]}
        )
    elif kind == "dta":
        pyreadstat.write_dta(frame, path, column_labels=titles, variable_value_labels=labels)
    elif kind == "por":
        pyreadstat.write_por(frame, path, column_labels=titles)
    else:
        pyreadstat.write_xport(frame, path, column_labels=titles)
    book = read_code_book(path)
    entry = entry_of(book, "SEX")
    assert entry is not None
    assert entry.title == "Sex"
    assert entry.labels == (SEX if kind in ("sav", "dta") else ())
    assert entry.missing == (("9",) if kind == "sav" else ())


def test_codes_are_spelled_as_in_the_data() -> None:
    entry = Entry(labels=(("01", "a"), ("2", "b")), missing=("99",))
    assert spelled(entry, ["1", "2", "99"]).labels == (("1", "a"), ("2", "b"))
    assert spelled(entry, ["001", "002"]).missing == ("099",)


def test_the_command_takes_a_code_book(people: Path, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["domain", "draft", str(people), "--codebook", str(ddi(tmp_path))])
    assert 'title = "Sex of the person"' in outcome.stdout
    assert "codes of the code book" in outcome.stdout


@pytest.mark.parametrize(
    ("name", "content", "refusal"),
    [
        ("book.docx", "", "is not known by its name; files end in .csv, .tsv, .xml"),
        ("book.xml", "<a>", "is not valid XML"),
        ("book.json", "[1]", "is not valid JSON"),
        ("book.csv", "a,b\n1,2\n", "a header that names attribute, code and label"),
        ("book.xml", "<a/>", "describes no column"),
        ("book.sav", "no such file", "cannot be read"),
    ],
)
def test_what_is_no_code_book_is_refused(name: str, content: str, refusal: str, tmp_path: Path) -> None:
    if name.endswith("sav"):
        pytest.importorskip("pyreadstat")
    (tmp_path / name).write_text(content)
    with pytest.raises((DeclarationError, FileFormatError), match=refusal):
        read_code_book(tmp_path / name)


def test_a_code_book_of_another_table_is_refused(people: Path, tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text("attribute,code,label\nincme,1,low\n")
    with pytest.raises(DeclarationError, match="describes no column of the table; its first is 'incme': did you mean"):
        draft_domain(people, code_book=tmp_path / "book.csv")
    with pytest.raises(FileFormatError, match="there is no code book"):
        draft_domain(people, code_book=tmp_path / "absent.csv")


def test_without_pyreadstat_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyreadstat", None)
    (tmp_path / "book.sav").write_bytes(b"")
    with pytest.raises(DeclarationError, match=r"install it, or consilience\[codebooks\]"):
        read_code_book(tmp_path / "book.sav")

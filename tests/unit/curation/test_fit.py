"""What `check_domain` tells a curator: the rows that rules drop or move, and the lines under which the domain fits."""

import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.curation import check_domain
from consilience.curation.fit_report import NOTICE, DomainFit, Effect
from consilience.domain import Attribute, Domain
from consilience.errors import DeclarationError, SourceError
from consilience.source import open_table

PEOPLE = 9611
CITIES = ("León", "Ávila", "Jaén", "Madrid")
CITY = Attribute.categorical("ciudad", CITIES)
SEX = Attribute.categorical("sexo", ["1", "2"], missing="NS")
INCOME = Attribute.numeric("renta", [0.0, 500.0, 1000.0, 5000.0])
AGE = Attribute.numeric("edad", [0, 18, 65, 100])
SURVEY = Domain("encuesta", (CITY, SEX, INCOME, AGE))


def survey(decimal: str = ".", people: int = PEOPLE) -> dict[str, list[str]]:
    """Made-up people: 13 without a sex, 5 with a whole income."""
    fractions = [f"{(i * 37) % 5000}{decimal}{i % 99 + 1:02d}" for i in range(people)]
    return {
        "ciudad": [CITIES[i % 4] for i in range(people)],
        "sexo": ["" if i < 13 else str(i % 2 + 1) for i in range(people)],
        "renta": [str(i) if i < 5 else fractions[i] for i in range(people)],
        "edad": [str(i % 100) for i in range(people)],
    }


def text(columns: dict[str, list[str]], delimiter: str = ";") -> str:
    return "\n".join(delimiter.join(row) for row in [tuple(columns), *zip(*columns.values(), strict=True)])


def written(path: Path, columns: dict[str, list[str]], *, encoding: str = "utf-8", delimiter: str = ";") -> Path:
    path.write_bytes(text(columns, delimiter).encode(encoding))
    return path


def counted(data: object, domain: Domain) -> int:
    return int(open_table(data, domain).exact_counts([domain.counted_names[:1]])[0].sum())


def corrected(domain: Domain, fit: DomainFit) -> Domain:
    """The domain after a person wrote the lines into its file, reviewed them and removed the marks."""
    declared, lines = domain.to_declaration(), tomllib.loads(fit.lines.to_toml())
    declared["source"] = declared.get("source", {}) | lines.get("source", {})
    for name, keys in lines.get("attributes", {}).items():
        declared["attributes"][name] |= {key: value for key, value in keys.items() if key != "reviewed"}
    return Domain.from_declaration(declared)


def labelled(**attributes: Attribute) -> Domain:
    return Domain("encuesta", tuple(attributes.get(each.name, each) for each in SURVEY.attributes))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "encuesta.csv"


def test_a_decimal_comma_is_found(path: Path) -> None:
    written(path, survey(","))
    assert counted(path, SURVEY) == 5
    fit = check_domain(path, SURVEY)
    assert fit.lines.to_toml() == '[source]\ndecimal = ","'
    assert "5 of 9,611 rows are counted" in fit.describe()
    assert Effect("renta", "no number", "dropped", 9606) in fit.effects
    assert "With these lines 9,611 of 9,611 rows would be counted" in fit.describe()
    assert counted(path, corrected(SURVEY, fit)) == PEOPLE


def test_labels_where_the_data_has_codes_are_found(path: Path) -> None:
    written(path, survey())
    domain = labelled(sexo=Attribute.categorical("sexo", ["Mujer", "Hombre"], missing="NS"))
    assert counted(path, domain) == 13
    fit = check_domain(path, domain)
    assert fit.lines.to_toml() == '[attributes.sexo]\nreviewed = false\nvalues = ["1", "2"]'
    assert "sexo, not listed: 1 (4,799 rows), 2 (4,799 rows)" in fit.describe()
    assert "sexo, listed and never there: Mujer, Hombre" in fit.describe()
    assert "reviewed = false, and nothing can be measured" in fit.describe()
    assert counted(path, corrected(domain, fit)) == PEOPLE


def test_a_line_with_values_cannot_be_used_before_its_review(path: Path) -> None:
    written(path, survey(people=400))
    domain = labelled(sexo=Attribute.categorical("sexo", ["Mujer", "Hombre"]))
    applied = check_domain(path, domain).lines.applied(domain)
    assert applied is not None
    assert applied.unreviewed == ("sexo",)
    with pytest.raises(DeclarationError, match="reviewed = false in 'sexo'"):
        open_table(path, applied)
    assert check_domain(path, applied).fits  # the curator may go on checking


@pytest.mark.parametrize("encoding", ["latin-1", "cp850", "utf-16", "utf-16-le"])
def test_another_encoding_is_found(path: Path, encoding: str) -> None:
    written(path, survey(people=400), encoding=encoding)
    fit = check_domain(path, SURVEY)
    assert fit.lines.to_toml() == f'[source]\nencoding = "{encoding}"'
    assert counted(path, corrected(SURVEY, fit)) == 400


def test_a_latin_1_file_read_as_utf_8_has_no_accented_label(path: Path) -> None:
    written(path, survey(), encoding="latin-1")
    fit = check_domain(path, SURVEY)
    assert fit.found is not None
    assert fit.found.columns["ciudad"].never == ("León", "Ávila", "Jaén")
    assert "Le\\xf3n (2,403 rows)" in fit.describe()
    assert "2,402 of 9,611 rows are counted" in fit.describe()


def test_quotes_of_windows_tell_cp1252_from_latin_1(path: Path) -> None:
    columns = {"ciudad": ["León", "“León”"] * 50, "x": ["1"] * 100}
    written(path, columns, encoding="cp1252")
    domain = Domain("d", (Attribute.categorical("ciudad", ["León", "“León”"]),))
    assert check_domain(path, domain).lines.source == {"encoding": "cp1252"}


def test_utf_8_declared_as_something_else_is_found(path: Path) -> None:
    written(path, survey(people=400))
    fit = check_domain(path, SURVEY.read_as(encoding="latin-1"))
    assert fit.lines.to_toml() == '[source]\nencoding = "utf-8"'
    assert corrected(SURVEY, fit) == SURVEY


def test_a_file_that_is_no_utf_8_gets_an_encoding_though_no_label_has_an_accent(path: Path) -> None:
    written(path, {"ciudad": ["León", "Madrid"] * 50}, encoding="latin-1")
    fit = check_domain(path, Domain("d", (Attribute.categorical("ciudad", ["Leon", "Madrid"]),)))
    assert fit.lines.source == {"encoding": "latin-1"}
    assert fit.lines.attributes["ciudad"]["values"] == ["Leon", "Madrid", "León"]


def test_columns_with_accents_are_found_in_another_encoding(path: Path) -> None:
    written(path, {"año": ["1", "2"], "x": ["1", "2"]}, encoding="latin-1")
    domain = Domain("d", (Attribute.categorical("año", ["1", "2"]),))
    fit = check_domain(path, domain)
    assert fit.lines.source == {"encoding": "latin-1"}
    assert "no column 'año'" in fit.describe()
    assert counted(path, corrected(domain, fit)) == 2


def test_all_mistakes_at_once_are_found_at_once(path: Path) -> None:
    written(path, survey(",", 400), encoding="latin-1", delimiter="^")
    domain = labelled(
        sexo=Attribute.categorical("sexo", ["Mujer", "Hombre"], missing="NS"),
        edad=Attribute.numeric("edad", [0, 18, 65, 80]),
    )
    fit = check_domain(path, domain)
    assert fit.lines.source == {"encoding": "latin-1", "delimiter": "^", "decimal": ","}
    assert fit.lines.attributes == {
        "sexo": {"reviewed": False, "values": ["1", "2"]},
        "edad": {"reviewed": False, "edges": [0, 18, 65, 80, 100]},
    }
    assert counted(path, corrected(domain, fit)) == 400


@pytest.mark.parametrize(
    ("texts", "marks"),
    [
        (["1.234,5", "12,5", "1.000.000,0"], {"decimal": ",", "thousands": "."}),
        (["1,234.5", "12.5", "1,000,000.0"], {"thousands": ","}),
        (["1 234,5", "12,5"], {"decimal": ",", "thousands": " "}),
        (["1'234.5", "12.5"], {"thousands": "'"}),
        (["1.234.567", "12"], {"decimal": ",", "thousands": "."}),
        (["12.5", "13"], {}),
    ],
)
def test_marks_of_numbers_are_found(texts: list[str], marks: dict[str, str]) -> None:
    domain = Domain("d", (Attribute.numeric("x", [0.0, 1000.0, 2e6]),))
    assert check_domain(pd.DataFrame({"x": texts}), domain).lines.source == marks


def test_marks_that_were_declared_wrongly_are_taken_back() -> None:
    domain = Domain("d", (Attribute.numeric("x", [0.0, 10.0, 20.0]),)).read_as(decimal=",", thousands=".")
    frame = pd.DataFrame({"x": ["12.5", "13.25"]})
    fit = check_domain(frame, domain)
    assert fit.lines.source == {"decimal": ".", "thousands": ""}
    assert counted(frame, corrected(domain, fit)) == 2


def test_a_column_that_is_written_in_its_own_way_gets_its_own_line() -> None:
    frame = pd.DataFrame({"x": ["1,5", "2,5"], "y": ["1.5", "2.5"]})
    domain = Domain("d", (Attribute.numeric("x", [0.0, 2.0, 4.0]), Attribute.numeric("y", [0.0, 2.0, 4.0])))
    fit = check_domain(frame, domain)
    assert fit.lines.to_toml() == '[attributes.x]\ndecimal = ","'
    assert counted(frame, corrected(domain, fit)) == 2


def test_texts_for_missing_values_are_found() -> None:
    frame = pd.DataFrame({"sexo": ["1", "2", "NA", "NA", "?"], "edad": ["17", "20", "-9", "30", "40"]})
    domain = Domain("d", (Attribute.categorical("sexo", ["1", "2"]), Attribute.numeric("edad", [0, 18, 65])))
    fit = check_domain(frame, domain)
    assert fit.lines.attributes == {
        "sexo": {"missing_tokens": ["?", "NA"], "missing": "Unknown"},
        "edad": {"missing_tokens": ["-9"], "missing": "Unknown"},
    }
    assert counted(frame, corrected(domain, fit)) == 5
    blank = pd.DataFrame({"sexo": ["1", "2", ""], "edad": ["17", "20", "30"]})
    assert check_domain(blank, domain).lines.source == {"missing_tokens": [""]}
    only = Domain("d", (domain["sexo"],))
    assert check_domain(frame, only).lines.source == {"missing_tokens": ["?", "NA"]}


def test_values_are_added_where_most_are_listed_and_gathered_where_they_are_many() -> None:
    domain = Domain("d", (Attribute.categorical("x", ["a", "b", "c"]),))
    added = check_domain(pd.DataFrame({"x": ["a"] * 90 + ["d"] * 10}), domain)
    assert added.lines.attributes == {"x": {"reviewed": False, "values": ["a", "b", "c", "d"]}}
    many = check_domain(pd.DataFrame({"x": [f"name {i}" for i in range(60)]}), domain)
    assert many.lines.attributes == {"x": {"unlisted": "Other"}}
    rare = check_domain(pd.DataFrame({"x": ["a"] * 999 + ["Ann Smith"]}), domain)
    assert rare.lines.attributes == {"x": {"unlisted": "Other"}}


def test_even_steps_are_continued_unless_they_become_too_many() -> None:
    domain = Domain("d", (Attribute.numeric("n", list(range(0, 101, 5))),))
    fit = check_domain(pd.DataFrame({"n": [-3, 50, 119, 120]}), domain)
    assert fit.lines.attributes == {"n": {"reviewed": False, "from": -5, "to": 125}}
    assert fit.then is not None
    assert not fit.then.columns["n"].unlisted
    assert not check_domain(pd.DataFrame({"n": [50, 100_000]}), domain).lines


def test_a_domain_that_fits_has_nothing_to_write(path: Path) -> None:
    fit = check_domain(written(path, survey(people=400)), SURVEY)
    assert fit.fits
    assert "Nothing to write: the domain fits the data" in fit.describe()
    assert fit.describe().startswith("NOT PRIVATE, for the curator's eyes only")


def test_every_kind_of_source_is_checked_alike(tmp_path: Path) -> None:
    columns: dict[str, Any] = survey(",", 500)
    expected = {"decimal": ","}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    rows = list(zip(*columns.values(), strict=True))
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE t (ciudad, sexo, renta, edad)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    connection.close()
    with duckdb.connect(str(tmp_path / "t.duckdb")) as database:
        database.execute("CREATE TABLE t AS SELECT * FROM read_parquet(?)", [str(tmp_path / "t.parquet")])
    domain = SURVEY.read_as(missing_tokens=[""])
    for data, where in [
        (tmp_path / "t.parquet", {}),
        (tmp_path / "t.sqlite", {"table": "t"}),
        (tmp_path / "t.sqlite", {"query": "SELECT * FROM t"}),
        (tmp_path / "t.duckdb", {"table": "t"}),
        (pl.DataFrame(columns), {}),
        (pd.DataFrame(columns), {}),
    ]:
        fit = check_domain(data, domain, **where)
        assert (fit.lines.source, fit.lines.attributes) == (expected, {})
        assert fit.found is not None
        assert (fit.found.rows, fit.found.counted) == (500, 5)


def test_rows_are_counted_rule_by_rule() -> None:
    domain = Domain.from_declaration(
        {
            "name": "d",
            "attributes": {
                "x": {"kind": "categorical", "values": ["a", "b"], "missing": "none", "unlisted": "other"},
                "n": {"kind": "numeric", "edges": [0, 10, 20]},
                "p": {"kind": "continuous", "bounds": [0, 1], "unlisted": "drop"},
            },
            "impossible": [{"x": ["b"], "n": [10, 20]}],
        }
    )
    frame = pd.DataFrame(
        {
            "x": ["a", None, "c", "b", "a", "a", "b"],
            "n": [5.0, 5, 5, 15, -1, 25, None],
            "p": [0.5, 0.5, 0.5, 0.5, 0.5, 2, 0.5],
            "who": [1, 1, 2, 3, None, 4, 5],
        }
    )
    fit = check_domain(frame, domain, unit="who", max_rows_per_unit=1)
    found = [(each.attribute, each.values, each.becomes, each.rows) for each in fit.effects]
    assert found == [
        ("x", "missing", "counted as none", 1),
        ("x", "not listed", "counted as other", 1),
        ("n", "missing", "dropped", 1),
        ("n", "below 0", "counted as 0..9", 1),
        ("n", "20 or above", "counted as 10..19", 1),
        ("p", "above 1", "dropped", 1),
        ("x and n", "in cells declared impossible", "dropped", 1),
        ("unit", "rows without a unit", "dropped", 1),
        ("unit", "rows beyond the limit of their unit", "dropped", 1),
    ]
    assert fit.found is not None
    assert fit.found.counted == 2


ODD = ["a", "b", "NA", "", "1", "1,5", "1.234,5", "12.5", "-9", "é", "\x1b[31m", "drop", '"', "inf", "nan", None]


@settings(deadline=None, max_examples=20)
@given(
    rows=st.lists(st.tuples(st.sampled_from(ODD), st.sampled_from(ODD)), max_size=12),
    missing=st.sampled_from([None, "none", "drop"]),
    unlisted=st.sampled_from(["drop", "other"]),
    decimal=st.sampled_from(".,"),
    tokens=st.sampled_from([[], ["NA"], ["-9", ""]]),
)
def test_what_is_said_to_be_counted_is_counted(rows, missing, unlisted, decimal, tokens) -> None:
    attributes = (
        Attribute.categorical("x", ["a", "é"], missing=missing, unlisted=unlisted),
        Attribute.numeric("n", [0, 1, 2, 1000], integer=False, missing=missing, unlisted=unlisted),
    )
    domain = Domain("d", attributes).read_as(decimal=decimal, missing_tokens=tokens)
    table = pa.table(
        {"x": pa.array([row[0] for row in rows], pa.string()), "n": pa.array([row[1] for row in rows], pa.string())}
    )
    fit = check_domain(table, domain)
    assert fit.found is not None
    assert fit.found.counted == counted(table, domain)
    if fit.lines:
        assert fit.then is not None
        assert fit.then.counted == counted(table, corrected(domain, fit))


def test_an_absent_column_is_named_with_the_nearest_there_is() -> None:
    fit = check_domain(pd.DataFrame({"Sexo": ["1"]}), Domain("d", (SEX,)))
    assert "no column 'sexo': did you mean 'Sexo'?" in fit.describe()
    assert not fit.fits


def test_what_cannot_be_read_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no file"):
        check_domain(tmp_path / "nothing.csv", SURVEY)
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(SourceError, match="does not begin with a header"):
        check_domain(tmp_path / "empty.csv", SURVEY)


def test_the_json_says_that_it_is_not_private(path: Path) -> None:
    document = check_domain(written(path, survey(",", 400)), SURVEY).to_json()
    assert document["private"] is False
    assert document["notice"] == NOTICE
    assert (document["rows"], document["counted"], document["would_count"]) == (400, 5, 400)
    assert document["write"] == {"source": {"decimal": ","}, "attributes": {}}

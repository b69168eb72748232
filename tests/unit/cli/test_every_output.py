"""Every output of a release with unmeasured attributes and pairs: what nobody measured is a number in none of them.

The account has a number for everything, because a model has. All numbers that it assumes without a measurement are
listed, and every output is searched for them, as they are and as they are rounded in print. To show that the search
can find them, it is given the same outputs with guesses: there they are all found, and all marked.
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vl_convert
from typer.testing import CliRunner

import consilience as cs
from consilience.cli.main import app
from consilience.domain import Attribute, Domain, Query
from consilience.measurements import Measurement, MeasurementSet
from consilience.publication import answer_table, open_release, write_bundle, write_synthetic
from consilience.publication.report import Report
from consilience.publication.report import report as written_report

DOMAIN = Domain(
    "people",
    (
        *Domain.from_sizes({"a": 2, "b": 3, "c": 2, "d": 2, "u": 2}).attributes,
        Attribute.numeric("n", edges=[0, 1, 2, 3, 4], unlisted="clip"),
    ),
)
KNOWN = {
    "by a, b": [10007.0, 21013.0, 5009.0, 17021.0, 31019.0, 16033.0],
    "by b, c": [11003.0, 16025.0, 31033.0, 20999.0, 13009.0, 8033.0],
    "by d": [61027.0, 39075.0],
    "n=0..1": [23017.0],
}
"""b links a with c; nothing links d with them; u was never measured; of n only 0..1 was told from the rest."""

WITHOUT_BASIS = [
    "by u", "by n", "by a, d", "by c, d", "by a, u", "by d, u", "by a, b, d", "by a, c, u", "u=0", "n=2", "sum(n)",
    "n=0..1 by u", "a=0 and d=1",
]  # fmt: skip
WITH_BASIS = ["total", "by a", "by a, b", "by d", "n=0..1", "by a, c", "by a, b, c"]
FORMS = [[], ["--json"], ["--csv"]]
BARS = ["--interval", "--refits", "20"]
SHAPES = [
    ([], FORMS),
    (["--cross"], FORMS),
    (["--integers"], FORMS),
    (BARS, FORMS[2:]),
    (["--cross", *BARS], FORMS[:2]),
]


MADE_OF_THEM = [
    "median(n)", "quantile(n, 0.25) by a", "mean(n)", "mean(n) by a", "u=0 minus u=1", "d=0 by a minus d=1 by a",
    "median(n) by a minus median(n)", "mean(n) by u minus mean(n)", "u=0 per d=0", "d=0 per u=0", "n=2 per total",
    "top 1 of by u", "top 2 of by n", "top 1 of by a, d", "top 1 of median(n) by a",
]  # fmt: skip
"""Questions whose answers are made of some that have no basis."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released(tmp_path_factory.mktemp("outputs"), 0.0)


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The next release of the series."""
    return released(tmp_path_factory.mktemp("later"), 2000.0)


def released(folder: Path, more: float) -> Path:
    noisy = [Measurement(Query.parse(q), np.array(values) + more, cs.Gaussian(3.0)) for q, values in KNOWN.items()]
    fitted = cs.estimate(MeasurementSet(DOMAIN, tuple(noisy), private=False), method="table", allow_misfit=True)
    return write_bundle(fitted, folder / "release", interval=0.9, refits=20)


@pytest.fixture(scope="module")
def assumed(bundle: Path) -> list[float]:
    """The numbers that the account assumes, without those that some answer with a basis has, too."""
    fitted = open_release(bundle).estimate
    known = np.concatenate([fitted.answer(text).ravel() for text in WITH_BASIS] + [np.array(v) for v in KNOWN.values()])
    answers = [(fitted.answer(text).ravel(), fitted.basis(text).not_measured) for text in WITHOUT_BASIS]
    asked = np.unique(np.concatenate([found[missing] for found, missing in answers]))
    found = [float(each) for each in asked if each > 1000 and np.abs(known - each).min() > 30]
    assert len(found) > 25
    return found


def numbers(text: str) -> list[str]:
    return re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", text)


def found_in(text: str, assumed: list[float]) -> list[str]:
    """The numbers of a text that are one of these, up to how far they are rounded in print."""
    sizes = np.array(assumed)
    found = []
    for token in numbers(text):
        plain = token.replace(",", "")
        step = 10.0 ** -len(plain.partition(".")[2])
        # Whole numbers are rounded down or up.
        if np.abs(sizes - float(plain)).min() <= max(step, 1.0 if step == 1.0 else 0.0):
            found.append(token)
    return found


def call(*words: object) -> str:
    outcome = CliRunner().invoke(app, [str(word) for word in words])
    assert outcome.exit_code == 0, outcome.exception
    return outcome.stdout + outcome.stderr


def read(*words: object) -> Any:
    """What a command prints as JSON."""
    return json.loads(CliRunner().invoke(app, [str(word) for word in words]).stdout)


@pytest.mark.parametrize(("shape", "forms"), SHAPES)
def test_answers_show_no_number_without_a_basis(bundle, assumed, shape, forms):
    queries = [text for text in WITHOUT_BASIS if not (text.startswith("sum") and "--integers" in shape)]
    for form in forms:
        assert found_in(call("answer", bundle, *queries, *shape, *form), assumed) == []


def test_shares_without_a_basis_are_no_numbers(bundle):
    assert "0.5" not in call("answer", bundle, "by u", "--per", "total")
    assert all(row["estimate"] is None for row in read("answer", bundle, "d=0", "--per", "u=0", "--json")["answers"])


@pytest.mark.parametrize("bars", [[], ["--interval", "--refits", "20"]], ids=["plain", "bars"])
def test_what_is_made_of_answers_without_a_basis_is_no_number(bundle, assumed, bars):
    for table in read("answer", bundle, *MADE_OF_THEM, *bars, "--json"):
        assert table["answers"] or table["query"].startswith("top")
        assert all(is_nothing(row) for row in table["answers"]), table["query"]
        assert table["answers"] or "The order is not known" in table["notes"][0]
    for form in ([], ["--csv"]):
        assert found_in(call("answer", bundle, *MADE_OF_THEM, *bars, *form), assumed) == []


def is_nothing(row: dict[str, Any]) -> bool:
    """Whether a row says that its answer was not measured, and has no number or remark."""
    told = {name for name, value in row.items() if not isinstance(value, str) and value is not None}
    return row["basis"] == "not measured" and not told and not row.get("note")


@pytest.mark.parametrize("share", ["row", "column", "total"])
def test_percentages_without_a_basis_are_no_numbers(bundle, share):
    for table in read("answer", bundle, "by a, d", "by c, d", "--percent", share, "--json"):
        assert all(is_nothing(row) for row in table["answers"])
    crossed = read("answer", bundle, "by a, d", "--percent", share, "--cross", "--json")
    cells = [cell for row in crossed["cells"] for cell in row]
    assert all((cell["estimate"] is None) == (cell["basis"] == "not measured") for cell in cells)


def test_the_order_is_not_known_where_some_answers_are_not_measured():
    """Of four values two are told: the others may hold more than both."""
    noisy = [Measurement(Query.parse(q), np.array([v]), cs.Gaussian(3.0)) for q, v in (("n=0", 100.0), ("n=1", 50.0))]
    rest = Measurement(Query.parse("by a"), np.array([400.0, 600.0]), cs.Gaussian(3.0))
    table = cs.answer(cs.estimate(MeasurementSet(DOMAIN, (*noisy, rest))), "top 2 of by n", refits=20)
    assert [label for (label,) in table.labels] == ["0", "1"]
    assert table.order is None
    assert "2 of 4 answers are not measured" in table.notes[0]


def test_a_file_of_queries_shows_no_number_without_a_basis(bundle, assumed, tmp_path):
    (tmp_path / "queries.txt").write_text("\n".join(WITHOUT_BASIS))
    assert found_in(call("answer", bundle, "--queries", tmp_path / "queries.txt"), assumed) == []


def sheets_of(path: Path) -> list[list[tuple[Any, ...]]]:
    return [list(sheet.iter_rows(values_only=True)) for sheet in openpyxl.load_workbook(path)]


@pytest.mark.parametrize("more", [[], BARS, ["--cross"], ["--cross", *BARS]], ids=" ".join)
def test_workbooks_show_no_number_without_a_basis(bundle, assumed, tmp_path, more):
    call("answer", bundle, *WITHOUT_BASIS, *more, "--out", tmp_path / "answers.xlsx")
    text = "\n".join(repr(row) for sheet in sheets_of(tmp_path / "answers.xlsx") for row in sheet)
    assert "not measured" in text
    assert found_in(text, assumed) == []


@pytest.mark.parametrize("more", [[], ["--cross"]], ids=" ".join)
def test_guesses_in_workbooks_stand_under_their_name(bundle, assumed, tmp_path, more):
    call("answer", bundle, "by a, d", "by a, u", "--guess", *more, "--out", tmp_path / "answers.xlsx")
    for sheet in sheets_of(tmp_path / "answers.xlsx"):
        guesses = False
        for row in sheet:
            if more:  # a part of its own, which ends with an empty line
                guesses = row[0] == "guess" or (guesses and row[0] is not None)
            found = found_in(repr(row), assumed)
            assert not found or guesses or row[-1] == "not measured"
        assert found_in(repr(sheet), assumed)


def test_changes_of_what_nobody_measured_are_no_numbers(bundle, later, assumed, tmp_path):
    queries = [text for text in (*WITHOUT_BASIS, *MADE_OF_THEM) if "top" not in text and "minus" not in text]
    pair = ["compare", bundle, later, *queries, "--refits", "20"]
    for table in read(*pair, "--json"):
        assert all(is_nothing(row) for row in table["answers"]), table["query"]
    for form in ([], ["--csv"]):
        shown = call(*pair, *form)
        assert found_in(shown, assumed) == []
        assert "--guess" not in shown
    call(*pair, "--out", tmp_path / "changes.xlsx")
    assert found_in(repr(sheets_of(tmp_path / "changes.xlsx")), assumed) == []


def test_of_means_without_a_basis_nothing_is_said(bundle):
    for query in ("mean(n)", "mean(n) by a"):
        shown = call("answer", bundle, query)
        assert "not measured" in shown
        assert "±" not in shown
        assert "%" not in shown


def test_the_search_finds_guesses_and_all_of_them_are_marked(bundle, assumed):
    for table in read("answer", bundle, *WITHOUT_BASIS, "--guess", "--json"):
        for row in table["answers"]:
            assert (row["guess"] is None) == (row["basis"] != "not measured") == (row["estimate"] is not None)
    text = CliRunner().invoke(app, ["answer", str(bundle), "by a, d", "--guess", "--csv"]).stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert any(found_in(row["guess"], assumed) for row in rows)
    assert all(row["guess"] and row["basis"] == "not measured" for row in rows)
    assert not any(row["estimate"] for row in rows)
    everything = call("answer", bundle, *WITHOUT_BASIS, "--guess")
    assert len(found_in(everything, assumed)) > 25
    crossed = call("answer", bundle, "by a, d", "by a, u", "--cross", "--guess")
    assert found_in(crossed, assumed)
    assert found_in(re.sub(r"guess [\d,.]+", "", crossed), assumed) == []


def test_what_a_notebook_shows_has_no_number_without_a_basis(bundle, assumed):
    """Texts, pages, tables of other libraries and pictures of answers, and of what they are made of."""
    release = open_release(bundle)
    for each in (release, release.estimate, release.estimate.domain):
        assert found_in(repr(each) + each._repr_html_(), assumed) == []
    unknown = [query for query in WITHOUT_BASIS if "by" in query]
    for table in map(release.answer, unknown):
        frames = [
            table.to_dict(),
            table.to_pandas().to_csv(),
            table.to_polars().write_csv(),
            pa.table(table).to_pydict(),
        ]
        shown = [repr(table), table._repr_html_(), table.describe(), table.plot().to_json(), *map(str, frames)]
        assert found_in("\n".join(shown), assumed) == [], table.title
    for query in ("by a, d", "by a, u"):
        crossed = release.answer(query, cross=True)
        assert found_in(repr(crossed) + crossed._repr_html_(), assumed) == []
    bars = release.interval("by d, u", refits=20)
    assert found_in(repr(bars) + bars._repr_html_(), assumed) == []
    guesses = answer_table(release.estimate, "by a, d", guess=True)
    assert found_in(guesses.to_pandas().to_csv(), assumed)  # the search sees them where they are asked for
    assert guesses.to_dict()["estimate"] == [None] * len(guesses)


def test_the_files_of_a_bundle_show_no_number_without_a_basis(bundle, assumed):
    metadata = [path for path in (bundle / "metadata").rglob("*") if path.is_file()]
    written = [*(bundle / "tables").iterdir(), bundle / "release.json", bundle / "domain.toml", *metadata]
    assert {"u.csv", "n.csv", "dcat.jsonld"} <= {path.name for path in written}
    for path in written:
        assert found_in(path.read_text(encoding="utf-8"), assumed) == [], path.name
    rows = list(csv.DictReader((bundle / "tables" / "u.csv").open(encoding="utf-8")))
    assert {(row["estimate"], row["low"], row["basis"]) for row in rows} == {("", "", "not measured")}
    manifest = json.loads((bundle / "release.json").read_text(encoding="utf-8"))
    assert manifest["basis"]["linked"] == [["a", "b", "c"], ["d"], ["n"]]
    assert {name for name, word in manifest["basis"]["columns"].items() if word == "not measured"} == {"u", "n"}


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[str]]:
    """The specifications that were drawn as SVG and as PNG while the report was written, in order."""
    return {"vegalite_to_svg": [], "vegalite_to_png": []}


@pytest.fixture(scope="module")
def report(bundle: Path, drawn: dict[str, list[str]]) -> Report:
    with pytest.MonkeyPatch.context() as patch:
        for name, specifications in drawn.items():
            patch.setattr(vl_convert, name, recording(getattr(vl_convert, name), specifications))
        made = written_report(bundle, refits=20, out=bundle.parent / "page.html")
        assert all(picture.png for picture in made.pictures.values())
        return made


def recording(convert: Callable[..., Any], specifications: list[str]) -> Callable[..., Any]:
    def recorded(specification: str, **options: object) -> Any:
        specifications.append(specification)
        return convert(specification, **options)

    return recorded


def test_the_report_and_its_pictures_show_no_number_without_a_basis(report, assumed):
    page = re.sub(r'src="data:[^"]*"', "", report.html)
    assert found_in(page, assumed) == []
    assert "not measured" in page
    for name, drawn in report.pictures.items():
        assert found_in(re.sub(r"<[^>]*>", " ", drawn.svg) + drawn.description + drawn.title, assumed) == [], name
    assert set(report.pictures) & {f"margin-{number:02d}" for number in (5, 6)} == set()
    assert "margin-04" in report.pictures


def test_both_files_of_a_picture_are_drawn_from_one_specification_without_such_numbers(report, drawn, assumed):
    """So that a PNG, whose letters cannot be searched, shows what the SVG shows."""
    specifications = drawn["vegalite_to_png"]
    assert specifications == drawn["vegalite_to_svg"]
    assert len(specifications) == len(report.pictures) > 4
    for specification in specifications:
        assert found_in(specification, assumed) == []
    assert found_in(specifications[0] + f' "estimate": {assumed[0]}', assumed)


def test_nothing_without_a_basis_has_a_rank_or_an_association(report):
    facts = report.facts
    assert {each.asks for each in facts.certainty}.isdisjoint({"u", "n"})
    assert facts.associations is not None
    assert facts.associations.attributes == ("a", "b", "c")
    pairs = {frozenset(pair[:2]) for pair in facts.associations.strongest()}
    assert pairs == {frozenset(pair) for pair in itertools.combinations("abc", 2)}
    assert facts.associations.measured == {frozenset("ab"), frozenset("bc")}
    for margin in facts.margins:
        missing = margin.basis.not_measured
        assert np.isnan(margin.estimates[missing]).all()
        assert margin.interval is None or np.isnan(margin.interval.high[missing]).all()


def test_what_python_prints_shows_no_number_without_a_basis(bundle, assumed):
    fitted = open_release(bundle).estimate
    for query in WITHOUT_BASIS:
        table = answer_table(fitted, query)
        assert found_in(f"{table!r}{table.basis!r}{list(table.rows())}{table.estimates}", assumed) == []
        bars = cs.interval(fitted, query, refits=20)
        assert not np.isfinite([bars.estimates, bars.low, bars.high])[:, bars_basis(fitted, query)].any()


def bars_basis(fitted: cs.Estimate, query: str) -> np.ndarray:
    return fitted.basis(query).not_measured


def test_records_have_no_unmeasured_column_unless_it_says_so(bundle, tmp_path):
    said = call("synthesize", bundle, "--out", tmp_path / "plain.csv", "--rows", 50)
    assert "not measured: u, n" in said
    assert "no measurement links them: a, b, c | d" in said
    assert (tmp_path / "plain.csv").read_text().splitlines()[0].endswith(",a,b,c,d")
    said = call("synthesize", bundle, "--out", tmp_path / "filled.csv", "--rows", 50, "--fill-unmeasured")
    assert "NOT MEASURED: u, n" in said
    assert (tmp_path / "filled.csv").read_text().splitlines()[0].endswith(",d,u (not measured),n (not measured)")
    write_synthetic(open_release(bundle).estimate, tmp_path / "filled.parquet", 50, fill_unmeasured=True)
    schema = pq.read_schema(tmp_path / "filled.parquet")
    assert json.loads(schema.metadata[b"consilience.filled"]) == ["u", "n"]
    marked = {field.name for field in schema if field.metadata[b"consilience.basis"] == b"not measured"}
    assert marked == {"u", "n"}


def test_the_command_that_estimates_says_what_is_not_published(bundle, tmp_path):
    measurements = bundle / "measurements.parquet"
    said = call("estimate", measurements, "--out", tmp_path / "again", "--method", "table")
    assert "not measured, and not published: u, n" in said
    document = read("estimate", measurements, "--out", tmp_path / "third", "--json")
    assert document["total_basis"] == "measured"
    assert document["basis"]["columns"]["u"] == "not measured"

"""Excel workbooks: the numbers of the tables, marks of what is not private, and no text that runs."""

import io

import openpyxl
import pytest

import consilience as cs
from consilience.domain import Attribute, Domain
from consilience.measurements import MeasurementSet
from consilience.publication.answers.workbook import NOT_PRIVATE, workbook
from consilience.publication.release import Answers, answers

DOMAIN = Domain(
    "town",
    (
        Attribute.numeric("age", [0, 18, 65, 100], unlisted="drop"),
        Attribute.categorical("work", ["=1+2", "@SUM(A1)", "none/[other]"]),
    ),
)


@pytest.fixture(scope="module", params=[True, False])
def fitted(request) -> cs.Estimate:
    tables = {("age", "work"): [[40.2, 35.1, 9.0], [3.4, 90.7, 8.0], [20.5, 22.2, 7.0]]}
    return cs.estimate(MeasurementSet.from_marginals(DOMAIN, tables, noise=cs.Laplace(3.0), private=request.param))


def opened(found: Answers):
    return openpyxl.load_workbook(io.BytesIO(workbook(found)))


def rows_of(sheet) -> list[list]:
    return [[cell.value for cell in row] for row in sheet.iter_rows()]


def test_a_sheet_for_each_question_has_the_numbers_of_its_table(fitted) -> None:
    found = answers(fitted, ["by work", "median(age) by work", "top 2 of work"], interval=0.9, refits=20)
    book = opened(found)
    assert book.sheetnames == ["1 work", "2 median(age) by work", "3 top 2 of work"]
    for sheet, table in zip(book, found.tables, strict=True):
        rows = rows_of(sheet)
        at = next(place for place, row in enumerate(rows) if tuple(row[: len(table.header)]) == table.header)
        wanted = list(table.rows())
        for place, row in enumerate(wanted, start=at + 1):
            assert rows[place][len(table.columns)] == pytest.approx(row["estimate"])
        texts = [cell for row in rows[at + len(wanted) :] for cell in row if cell]
        assert "low and high: 90 % intervals" in texts
    assert (rows_of(book.worksheets[0])[0][0] == NOT_PRIVATE) is not fitted.private


def test_text_is_never_a_formula(fitted) -> None:
    for cross in (False, True):
        for sheet in opened(answers(fitted, ["by age, work"], cross=cross)):
            cells = [cell for row in sheet.iter_rows() for cell in row if isinstance(cell.value, str)]
            assert {"=1+2", "@SUM(A1)"} <= {cell.value for cell in cells}
            assert all(cell.data_type == "s" for cell in cells)
            assert all(cell.quotePrefix for cell in cells if cell.value)


def test_shares_of_a_cross_table_have_the_percent_of_excel_and_intervals_in_the_same_places(fitted) -> None:
    found = answers(fitted, ["by age, work"], percent="row", cross=True, interval=0.9, refits=20)
    (sheet,) = opened(found)
    (table,) = found.tables
    starts = [row[0].row for row in sheet.iter_rows() if row[0].value in ("estimate", "low", "high", "basis")]
    assert len(starts) == 4
    first = sheet.cell(starts[0] + 2, 2)
    assert (first.value, first.number_format) == (pytest.approx(table.cells[0][0].estimate), "0.0%")
    assert sheet.cell(starts[1] + 2, 2).value == pytest.approx(table.cells[0][0].low)
    assert sheet.cell(starts[2] + 2, 2).value == pytest.approx(table.cells[0][0].high)
    assert sheet.cell(starts[3] + 2, 2).value == "measured"


def test_what_could_not_be_answered_says_why() -> None:
    assert rows_of(opened(Answers((), {"by age": "too large"}))["No answer"])[1] == ["by age", "too large"]

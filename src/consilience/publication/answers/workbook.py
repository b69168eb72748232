"""Answers as an Excel workbook: a sheet for each question, with intervals, what each answer stands on, and notes.

Numbers are numbers, in full, shown with as many decimals as on a terminal; shares have Excel's own percent. Text is
written as text and never as a formula, whatever it begins with. Of simulated noise every sheet says so first.
"""

import io
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from consilience.domain.declarations import visible
from consilience.errors import MeasurementError
from consilience.publication.answers.cross_tables import Answers, CrossTable
from consilience.publication.answers.tables import AnswerTable
from consilience.publication.answers.writing import Style

NOT_PRIVATE = "NOT PRIVATE: these numbers come from simulated noise"
LONGEST_NAME = 31
"""Letters of a sheet's name that Excel takes."""
WIDEST = 60
_NOT_IN_NAMES = re.compile(r"[][:*?/\\'\x00-\x1f]")

Row = Sequence[Any]


def workbook(found: Answers) -> bytes:
    """The file of all tables, and of what could not be answered and why."""
    try:
        from openpyxl import Workbook
    except ImportError:
        raise MeasurementError(
            "Excel files need one more library; install it with: pip install 'consilience[excel]', or write .csv"
        ) from None
    book: Any = Workbook()
    book.remove(book.active)
    for number, table in enumerate(found.tables, start=1):
        sheet = book.create_sheet(_sheet_name(number, table.title))
        _write(sheet, _head(table.title, private=table.private), Style(), bold=True)
        if isinstance(table, CrossTable):
            _write_cross_table(sheet, table)
        else:
            _write_long_table(sheet, table)
        _set_widths(sheet)
    if found.unanswered:
        sheet = book.create_sheet("No answer")
        _write(sheet, [["question", "why there is no answer"]], Style(), bold=True)
        _write(sheet, found.unanswered.items(), Style())
        _set_widths(sheet)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def _head(title: str, *, private: bool) -> list[Row]:
    return [*([[NOT_PRIVATE]] if not private else []), [title], []]


def _write_long_table(sheet: Any, table: AnswerTable) -> None:
    from openpyxl.utils import get_column_letter

    labels = [name for name, _, _ in table.label_columns]
    _write(sheet, [table.header], Style(), bold=True)
    sheet.freeze_panes = f"{get_column_letter(len(labels) + 1)}{sheet.max_row + 1}"
    cells = table.label_cells()
    numbers = table.header[len(labels) :]
    rows = ([*own, *(row[name] for name in numbers)] for own, row in zip(cells, table.rows(), strict=True))
    _write(sheet, rows, table.style)
    notes = [f"* {table.doubt}"] * bool(table.uncertain.any()) + list(table.notes)
    notes += [] if table.interval is None else [_of_level(table.interval.level), *table.interval.notes]
    _write_notes(sheet, [*notes, table.basis.explain()])


def _write_cross_table(sheet: Any, table: CrossTable) -> None:
    """The estimates, and below them the ends of the intervals and what the cells stand on, in the same places."""
    parts: list[tuple[str, list[list[Any]]]] = [("estimate", [[each.estimate for each in row] for row in table.cells])]
    if any(each.guess is not None for row in table.cells for each in row):
        parts.append(("guess", [[each.guess for each in row] for row in table.cells]))
    if table.interval is not None:
        parts += [
            ("low", [[each.low for each in row] for row in table.cells]),
            ("high", [[each.high for each in row] for row in table.cells]),
        ]
    parts.append(("basis", [[each.basis for each in row] for row in table.cells]))
    for name, cells in parts:
        blank = [""] * len(table.shown_down)
        heads = [[*(table.shown_down if row is table.shown_header[-1] else blank), *row] for row in table.shown_header]
        _write(sheet, [[name], *heads], Style(), bold=True)
        rows = zip(table.shown_row_labels, cells, strict=True)
        _write(sheet, [[*labels, *row] for labels, row in rows] + [[]], table.style)
    interval = table.interval or {}
    level = [_of_level(interval["level"])] if interval else []
    _write_notes(sheet, [*level, *table.notes, *interval.get("notes", ()), table.basis.explain()])


def _of_level(level: float) -> str:
    return f"low and high: {100 * level:g} % intervals"


def _write_notes(sheet: Any, notes: Sequence[str]) -> None:
    _write(sheet, [[], *([note] for note in dict.fromkeys(notes) if note)], Style())


def _write(sheet: Any, rows: Iterable[Row], style: Style, *, bold: bool = False) -> None:
    from openpyxl.styles import Font

    for row in rows:
        at = sheet.max_row + 1 if sheet.max_row > 1 or sheet.cell(1, 1).value is not None else 1
        if not len(row):
            sheet.cell(at, 1).value = ""
        for place, value in enumerate(row, start=1):
            cell = sheet.cell(at, place)
            value = style.value(value) if isinstance(value, float) else value
            if isinstance(value, int | float) and math.isfinite(value):
                cell.value = value
                cell.number_format = _format(style)
            else:
                cell.value = visible(style.text(value) if value is None or isinstance(value, float) else str(value))
                cell.data_type, cell.quotePrefix = "s", True
            if bold:
                cell.font = Font(bold=True)


def _format(style: Style) -> str:
    decimals = "." * bool(style.decimals) + "0" * style.decimals
    return f"0{decimals}%" if style.percent else f"#,##0{decimals}"


def _sheet_name(number: int, title: str) -> str:
    """A name that Excel takes and that no other sheet has.

    >>> _sheet_name(2, "age=25..34 [by] sex/district and a long rest")
    '2 age=25..34 by sexdistrict and'
    """
    return f"{number} {_NOT_IN_NAMES.sub('', title)}"[:LONGEST_NAME].strip()


def _set_widths(sheet: Any) -> None:
    """Each column as wide as its texts, but for notes, which run on over empty cells."""
    for column in sheet.columns:
        texts = [
            len(str(cell.value)) for cell in column if cell.value is not None and not isinstance(cell.value, float)
        ]
        short = [length for length in texts if length <= WIDEST]
        sheet.column_dimensions[column[0].column_letter].width = max([10, *short]) + 2

"""Answers as people read them.

question ──► answer_table ──► to_csv, to_json             (tables)
(questions)      │        ──► to_arrow, to_pandas, plot   (frames)
                 ├── whole_numbers   the same in whole numbers that add up
                 ├── cross_tables    the same crossed, with totals and percentages
                 └── workbook        several of them as a file of a spreadsheet
"""

from consilience.publication.answers.tables import (
    AnswerTable,
    Change,
    CsvWriter,
    Style,
    answer_table,
    cell,
    heading,
    in_order,
    in_whole_numbers,
    is_marked,
    likely,
    table_of,
)

__all__ = [
    "AnswerTable",
    "Change",
    "CsvWriter",
    "Style",
    "answer_table",
    "cell",
    "heading",
    "in_order",
    "in_whole_numbers",
    "is_marked",
    "likely",
    "table_of",
]

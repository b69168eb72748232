"""Answers as people read them.

question ──► answer_table ──► to_csv, to_json             (tables, writing)
(questions)      │        ──► to_arrow, to_pandas, plot   (frames)
                 ├── bins            what is to be said where records are known by their bins alone
                 ├── largest         the largest answers, and how sure their order is
                 ├── whole_numbers   the same in whole numbers that add up
                 ├── cross_tables    the same crossed, with totals and percentages
                 └── workbook        several of them as a file of a spreadsheet
"""

from consilience.publication.answers.largest import in_order
from consilience.publication.answers.tables import AnswerTable, Change, answer_table, in_whole_numbers, table_of
from consilience.publication.answers.writing import CsvWriter, Style, cell, heading, is_marked, likely

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

"""What is published: answers with labels and error bars, cross-tables, synthetic records, reports, and the bundle."""

from consilience.publication.answers import AnswerTable, answer_table, in_whole_numbers
from consilience.publication.answers.cross_tables import Cell, CrossTable, cross_table, margin_queries
from consilience.publication.answers.whole_numbers import WholeAnswers, whole_answers
from consilience.publication.bundle import write_bundle
from consilience.publication.diagnostics import Diagnosis, diagnose
from consilience.publication.intervals import Interval, interval
from consilience.publication.record_files import write_synthetic
from consilience.publication.release import Release, open_release
from consilience.publication.report import Report, make_report
from consilience.publication.synthetic import synthesize

__all__ = [
    "AnswerTable",
    "Cell",
    "CrossTable",
    "Diagnosis",
    "Interval",
    "Release",
    "Report",
    "WholeAnswers",
    "answer_table",
    "cross_table",
    "diagnose",
    "in_whole_numbers",
    "interval",
    "make_report",
    "margin_queries",
    "open_release",
    "synthesize",
    "whole_answers",
    "write_bundle",
    "write_synthetic",
]

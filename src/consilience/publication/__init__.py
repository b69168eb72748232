"""What is published: answers with labels, and the release bundle."""

from consilience.publication.answers import AnswerTable, answer_table
from consilience.publication.bundle import Release, open_release, release

__all__ = ["AnswerTable", "Release", "answer_table", "open_release", "release"]

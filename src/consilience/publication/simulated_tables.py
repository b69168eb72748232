"""Comma-separated text has no place for a privacy statement: of simulated noise its first column says so."""

import re

HEADING = "NOT PRIVATE"
CELL = "simulated noise"
_MARKED = re.compile(rb'(\xef\xbb\xbf)?"?' + HEADING.encode() + rb'"?[,;\t\r\n]')


def heading(*, private: bool) -> list[str]:
    """What stands first in the header: nothing where the noise is real."""
    return [] if private else [HEADING]


def cell(*, private: bool) -> list[str]:
    """What stands first in every other line."""
    return [] if private else [CELL]


def is_marked(start: bytes) -> bool:
    """Whether a file that begins so is comma-separated text of simulated noise.

    >>> is_marked(b"NOT PRIVATE,age,estimate"), is_marked(b"age,estimate")
    (True, False)
    """
    return _MARKED.match(start) is not None

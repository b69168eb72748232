"""How answers are written: numbers and dates for people, and comma-separated text that says what protects nobody."""

import csv
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

import numpy as np

from consilience.domain.attributes import Numeric
from consilience.domain.dates import label_of
from consilience.domain.declarations import format_number, guarded
from consilience.publication.questions import BoundQuestion

# ----------------------------------------------------------------------------------------------------------------------
# Comma-separated text. It has no place for a privacy statement: of simulated noise its first column says so.


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


class CsvWriter:
    """Writes lines of CSV in which no text is a formula to a spreadsheet; see `declarations.guarded`."""

    def __init__(self, stream: IO[str]) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")

    def writerow(self, cells: Iterable[object]) -> None:
        self._writer.writerow([guarded(cell) if isinstance(cell, str) else cell for cell in cells])


# ----------------------------------------------------------------------------------------------------------------------
# Numbers, dates and shares for people.


MISSING = "–"


@dataclass(frozen=True)
class Style:
    """How numbers are written for people."""

    decimals: int = 1
    percent: bool = False
    """As 9.9 %, where the number is 0.099."""
    beyond: tuple[str, str] = ("−∞", "∞")
    """What stands for a number below, or above, all that can be told."""
    days: tuple[int, int] | None = None
    """The first and the last day, where numbers are dates: days since 1 January 1970."""

    @staticmethod
    def of(asked: BoundQuestion, *, percent: bool = False) -> "Style":
        """One decimal of counts and percentages, four of ratios, and of means and quantiles a hundredth of a bin."""
        decimals, beyond, days = 1, Style.beyond, None
        if not percent and (asked.question.word == "per" or asked.question.per is not None):
            decimals = 4
        for side in asked.sides if asked.question.word != "per" else ():
            attribute = asked.domain[side.of_numbers] if side.of_numbers is not None else None
            if isinstance(attribute, Numeric):
                decimals = min(max(math.ceil(2.0 - math.log10(np.diff(attribute.edges).min())), 0), 9)
                if attribute.clips and side.quantiles is not None and len(asked.sides) == 1:
                    below, above = (format_number(edge) for edge in (attribute.edges[1], attribute.edges[-2]))
                    beyond = f"under {below}", f"{above}+"
            elif side.quantiles is not None and len(asked.sides) == 1:
                edges = side.quantiles.edges
                days = int(edges[0]), int(edges[-1]) - 1
                beyond = f"before {_day(edges[1])}", f"from {_day(edges[-2])}"
        return Style(decimals, percent, beyond, days)

    def value(self, number: float) -> "float | str":
        """The number as it stands in files: a date where it is one.

        >>> Style().value(2.5), Style(days=(0, 30)).value(2.5), Style(days=(0, 30)).value(31.0)
        (2.5, '1970-01-03', '1970-01-31')
        """
        if self.days is None or not math.isfinite(number):
            return number
        return _day(min(max(number, self.days[0]), self.days[1]))

    def shown(self, number: float) -> float:
        """The number in the units that are written, rounded."""
        return round(100.0 * number if self.percent else number, self.decimals) + 0.0  # and no minus before nothing

    def text(self, number: "float | str | None") -> str:
        """
        >>> Style(1, percent=True).text(0.09876), Style(0).text(1234.0), Style().text(None), Style().text(-0.01)
        ('9.9 %', '1,234', '–', '0.0')
        """
        if isinstance(number, str):
            return number
        if number is None or math.isnan(number):
            return MISSING
        if math.isinf(number):
            return self.beyond[int(number > 0.0)]
        if self.days is not None:
            return str(self.value(number))
        return f"{self.shown(number):,.{self.decimals}f}" + " %" * self.percent


def _day(number: float) -> str:
    """The day that so many days since 1 January 1970 lie in."""
    return label_of("day", math.floor(number))


LIKELY = ((0.99, "as good as certain"), (0.9, "very likely"), (2 / 3, "likely"), (1 / 3, "open"), (0.0, "unlikely"))


def likely(share: float) -> str:
    """A share of the draws in words; a few hundred draws tell no more than "over 99 %".

    >>> likely(0.931), likely(1.0), likely(0.4)
    ('93 %, very likely', 'over 99 %, as good as certain', '40 %, open')
    """
    word = next(word for least, word in LIKELY if share >= least)
    return f"{'over 99' if share >= 0.995 else f'{100 * share:.0f}'} %, {word}"


def outward(low: float, high: float) -> tuple[float, float]:
    """The interval between whole numbers around this one.

    >>> outward(-0.5, 3.2)
    (-1, 4)
    """
    return (
        math.floor(low) if math.isfinite(low) else low,
        math.ceil(high) if math.isfinite(high) else high,
    )

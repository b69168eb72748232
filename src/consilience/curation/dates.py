"""Dates among texts: in which way they are written, and which periods to count them by."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from consilience.domain.attributes import Attribute
from consilience.domain.dates import NO_DAY, Date, DateTexts, Days

DAYS = (
    *("%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y", "%b %d %Y", "%d-%b-%y"),
)
MONTHS = ("%Y/%m", "%m/%Y", "%m.%Y", "%b %Y", "%b-%Y", "%YM%m")
TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S %p", " %H:%M %p", "T%H:%M:%S")
EPOCH = date(1970, 1, 1)
FIRST_YEAR, LAST_YEAR = 1850, 2150
"""Dates of people, and of what happens to them; numbers that only look like dates are mostly outside."""
MOST_CELLS = 24
"""Months, else quarters, are counted if there are at most so many; else years."""


@dataclass(frozen=True)
class Dates:
    """How the dates of a column are written, and the first and the last."""

    format: str | None
    """As a domain file says it; None for ISO 8601."""
    first: date
    last: date
    finest: str
    """What they tell: the day, the month or the quarter."""
    ambiguous: bool
    """Whether they could as well have day and month the other way round."""
    strays: bool
    """Whether a few texts are no such dates."""

    @property
    def by(self) -> str:
        """The unit to count by, so that there are few cells."""
        months = 12 * (self.last.year - self.first.year) + self.last.month - self.first.month + 1
        if self.finest == "day" and self.last - self.first < timedelta(days=31):
            return "day"
        if self.finest != "quarter" and months <= MOST_CELLS:
            return "month"
        return "quarter" if months <= 3 * MOST_CELLS else "year"

    def attribute(self, name: str, missing: str | None) -> Attribute:
        """The periods of whole years that hold them, or the days of whole months."""
        first, last = (f"{end.year:04}" for end in (self.first, self.last))
        if self.by == "day":
            first, last = (f"{end:%Y-%m}" for end in (self.first, self.last))
        return Date.between(name, first, last, self.by, format=self.format, missing=missing)


def written_as(texts: Sequence[str], *, exact: float) -> Dates | None:
    """How nearly all of these texts are dates, or None where they are not.

    >>> found = written_as(["31.12.2019", "1.2.2020"], exact=1)
    >>> found.format, found.by
    ('%d.%m.%Y', 'month')
    """
    if not any(re.search(r"\d", text) for text in texts[:100]):
        return None
    best: tuple[int, str | None, str, Days] | None = None
    ambiguous = False
    for format_, finest in _formats(texts):
        reader = DateTexts("", format_, finest)
        if np.mean(reader.days(texts[:: len(texts) // 30 + 1]) != NO_DAY) < min(exact, 0.9):
            continue
        read = reader.days(texts)
        days = read[read != NO_DAY]
        count = len(days)
        if count < max(1, exact * len(texts)) or not _of_people(days):
            continue
        if best is None or count > best[0]:
            best, ambiguous = (count, format_, finest, days), False
        elif count == best[0] and finest == best[2]:
            ambiguous = True
    if best is None:
        return None
    _, format_, finest, days = best
    first, last = (EPOCH + timedelta(days=int(day)) for day in (days.min(), days.max()))
    return Dates(format_, first, last, finest, ambiguous, len(days) < len(texts))


def _of_people(days: Days) -> bool:
    """Whether nearly all days are of years that people write down."""
    ends = [(date(year, 1, 1) - EPOCH).days for year in (FIRST_YEAR, LAST_YEAR)]
    return bool(np.mean((days >= ends[0]) & (days < ends[1])) > 0.99)


def _formats(texts: Sequence[str]) -> Iterator[tuple[str | None, str]]:
    """The formats that texts of such a shape may have, each with what it tells."""
    sample = next(iter(texts))
    if re.match(r"\d{4}-\d{2}-\d{2}", sample):
        yield None, "day"
    elif re.fullmatch(r"\d{4}-\d{2}", sample):
        yield None, "month"
    elif re.fullmatch(r"\d{4}-Q[1-4]", sample):
        yield None, "quarter"
    else:
        signs = re.sub(r"[A-Za-z\d]+", "", re.split(r"[ T]\d{1,2}:", sample)[0])
        shaped = [form for form in DAYS if re.sub(r"%[A-Za-z]", "", form) == signs]
        yield from ((form + time, "day") for form in shaped for time in TIMES)
        yield from ((form, "month") for form in MONTHS)


def quarters(texts: Iterable[str]) -> list[str] | None:
    """The texts in order where all are quarters in a spelling of their own, such as 2019Q3 or Q3 2019.

    >>> quarters(["Q2 2019", "Q3 2018"]), quarters(["a"])
    (['Q3 2018', 'Q2 2019'], None)
    """
    found = {}
    for text in texts:
        year, quarter = re.search(r"(?<!\d)(?:19|20)\d{2}(?!\d)", text), re.search(r"Q([1-4])", text)
        if year is None or quarter is None or len(text) > 8:
            return None
        found[text] = (year[0], quarter[1])
    return sorted(found, key=found.__getitem__)


def is_time_of_day(text: str) -> bool:
    """Whether a text is a time of day, such as 14:30 or 2:05 pm."""
    return re.fullmatch(r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?\s*(?:[AaPp]\.?[Mm]\.?)?", text) is not None

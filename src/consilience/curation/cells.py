"""Cells as a statistician would cut them: bins of numbers with round edges, and periods of dates.

Numbers are counted in buckets that keep their leading twelve binary digits: whole numbers up to 4,096 are exact, and
every quantile is to 0.05 %. Bins lie near the quantiles, with one open bin for a long tail: edges are multiples of 1,
2, 2.5 or 5 times a power of ten. Of all numbers near a quantile the roundest is taken, so that bins hold about equally
many records and still have edges that people would write.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.dates import NO_DAY, Date, DateTexts, Days

DROPPED_BITS = 52 - 11
"""Of the 52 binary digits that a double keeps after its first, all but eleven are forgotten."""
FACTORS = (Decimal(5), Decimal("2.5"), Decimal(2), Decimal(1))
AGE_BANDS = (0, 15, 25, 35, 45, 55, 65, 75, 85)
"""Bands of ten years as statistical offices publish ages; public, where quantiles are the data's own."""


class Numbers:
    """The numbers of a column: their range, whether all are whole, and where any share of them lies."""

    def __init__(self) -> None:
        self.count = 0
        self.low, self.high = np.inf, -np.inf
        self.whole = True
        self._keys, self._rows = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    def add(self, numbers: NDArray[np.float64]) -> None:
        """Take in the finite numbers of a batch."""
        numbers = numbers[np.isfinite(numbers)]
        if not numbers.size:
            return
        self.count += numbers.size
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        self.whole &= bool((numbers == np.floor(numbers)).all())
        keys, rows = np.unique(_bucket(numbers), return_counts=True)
        self._keys, places = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        self._rows = np.bincount(places, np.concatenate([self._rows, rows])).astype(np.int64)

    @property
    def values(self) -> NDArray[np.float64]:
        """The buckets in order, each by its number nearest to zero."""
        return _number(self._keys)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of each bucket."""
        return self._rows

    def at(self, share: float) -> float:
        """The number below which this share of all lies, ends included."""
        if share <= 0 or share >= 1:
            return self.low if share <= 0 else self.high
        place = np.searchsorted(np.cumsum(self._rows), share * self.count, side="left")
        return float(np.clip(self.values[min(place, len(self._keys) - 1)], self.low, self.high))

    def share(self, low: float, high: float) -> float:
        """The share of numbers from low to high, both included, as far as buckets tell them apart."""
        inside = (self.values >= low) & (self.values <= high)
        return float(self._rows[inside].sum()) / max(self.count, 1)


def _bucket(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """A whole number for each number that keeps their order: its sign, its exponent and eleven binary digits."""
    magnitude = np.abs(numbers).view(np.int64) >> DROPPED_BITS
    return np.where(numbers < 0, -magnitude, magnitude)


def _number(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.copysign((np.abs(keys) << DROPPED_BITS).view(np.float64), keys)


@dataclass(frozen=True)
class Cutting:
    """How numbers are cut into bins."""

    bins: int = 8
    """How many bins to aim at. A table of three such attributes has 512 cells, of which a few thousand records are
    still seen at epsilon 1; with twenty each it would have 8,000."""
    reach: float = 0.35
    """How far an edge may lie from its quantile, in bins."""
    tail: float = 0.01
    """The share of records that an open bin at an end may cut off in thought; 1 % is where published tables stop."""
    long_tail: float = 0.4
    """A tail is long if that share takes more than this part of the range of all others. Heights and temperatures
    stay below 0.3, incomes, fares and counts of events lie above 0.5."""
    spike: float = 0.1
    """A zero that this share of all has is a bin of its own."""
    fewest: float = 0.5
    """A bin that holds less than this part of its share is joined with its neighbour, at the rounder edge."""
    to_zero: float = 0.2
    """Bins begin with 0 where the least number is below this part of the range."""
    counts: int = 10
    """Whole numbers of which 98 % lie within so many get a bin each, and the last one is open."""


class Cut(NamedTuple):
    """Edges, and whether the first and the last bin are open: they also hold what is beyond."""

    edges: Sequence[float]
    open_below: bool
    open_above: bool


def cut(numbers: Numbers, cutting: Cutting) -> Cut:
    """The bins of these numbers: edges between which about equally many lie, and which are round.

    >>> import numpy as np
    >>> fares = Numbers()
    >>> fares.add(np.exp(np.linspace(1, 6, 1000)).round(4))
    >>> cut(fares, Cutting()).edges
    [0, 5, 10, 20, 40, 100, 250, 420]
    """
    whole = numbers.whole
    low, high = numbers.low, numbers.high
    end = numbers.at(0.98)
    if whole and end - low <= cutting.counts:
        return Cut([int(low) + place for place in range(int(end - low) + 2)], False, high > end)
    first, last = numbers.at(cutting.tail), numbers.at(1 - cutting.tail)
    middle = last - first
    open_above = high - last > cutting.long_tail * middle > 0
    open_below = first - low > cutting.long_tail * middle > 0 and low < 0
    top = _above(last if open_above else high, middle or high - low, whole=whole)
    bottom = first if open_below else low
    bottom = -_above(-bottom, middle or high - low, whole=False) if bottom < 0 else bottom
    if 0 < bottom <= cutting.to_zero * (top - bottom) or 0 < bottom < 1:
        bottom = 0.0
    elif bottom > 0:
        bottom = roundest(bottom - 0.1 * (top - bottom), bottom, whole=whole)
    edges = {bottom, top} | ({0.0} if bottom < 0 < top else set())
    start = 0.0
    if low >= 0 and numbers.share(0, 0) >= cutting.spike:
        start = numbers.share(0, 0)
        least = numbers.at(min(1.0, start + 0.01 * (1 - start) + 1e-9))
        edges |= {0.0, 1.0 if whole else roundest(0.5 * least, least, whole=False)}
    share = (1 - start) / cutting.bins
    coarse = whole or middle >= 20
    for place in range(1, cutting.bins):
        at = start + place * share
        near, far = numbers.at(at - cutting.reach * share), numbers.at(at + cutting.reach * share)
        edges.add(_near(near, far, middle or high - low, whole=coarse))
    kept = _joined(sorted(edge for edge in edges if bottom <= edge <= top), numbers, cutting.fewest * share)
    if whole or all(edge == int(edge) for edge in kept):
        kept = [int(edge) for edge in kept]
    return Cut(kept, open_below, open_above)


def _joined(edges: list[float], numbers: Numbers, fewest: float) -> list[float]:
    """The edges without those that leave fewer than this share between them; of two the rounder one stays."""
    kept = edges[:1]
    for edge in edges[1:]:
        if edge > 1 and len(kept) > 1 and numbers.share(kept[-1], math.nextafter(edge, -math.inf)) < fewest:
            if edge != edges[-1] and _size(edge) <= _size(kept[-1]):
                continue
            kept.pop()
        kept.append(edge)
    return kept


def _size(edge: float) -> float:
    """How round a number is: the largest step of which it is a multiple."""
    return next(
        step * 10.0**power
        for power in range(18, -20, -1)
        for step in (5, 2.5, 2, 1)
        if abs(math.remainder(edge, step * 10.0**power)) <= 1e-9 * step * 10.0**power
    )


def _near(low: float, high: float, spread: float, *, whole: bool) -> float:
    """The roundest number from low to high, or near them where they are closer together than a hundredth of all.

    Never further than a fiftieth of themselves: a long tail makes the spread large.
    """
    room = max(0.0, min(0.01 * spread, 0.02 * abs(low + high)) - (high - low)) / 2
    return roundest(low - room, high + room, whole=whole)


def _above(number: float, spread: float, *, whole: bool) -> float:
    """A round number just above."""
    least = number + 1 if whole else number
    return roundest(least, least + 0.05 * abs(spread), whole=whole)


def roundest(low: float, high: float, *, whole: bool = False) -> float:
    """The number from low to high that is a multiple of the largest of 1, 2, 2.5 or 5 times a power of ten.

    >>> roundest(17.3, 23.9), roundest(40.51, 40.58), roundest(-3, 2), roundest(61, 88, whole=True)
    (20.0, 40.55, 0.0, 75.0)
    """
    if low <= 0 <= high:
        return 0.0
    least, most = Decimal(repr(float(low))), Decimal(repr(float(high)))
    power = math.floor(math.log10(max(abs(low), abs(high)))) + 1
    for exponent in range(power, power - 20, -1):
        for factor in FACTORS:
            step = factor * Decimal(10) ** exponent
            if whole and step != int(step):
                continue
            multiple = (least / step).to_integral_value(rounding="ROUND_CEILING") * step
            if multiple <= most:
                return float(multiple)
        if whole and exponent < 0:
            break
    return float(math.ceil(low)) if whole else float(high)


def age_bands(numbers: Numbers) -> Cut | None:
    """The usual bands of ages where the numbers look like ages of people of all ages."""
    if numbers.low < 0 or numbers.high > 125 or numbers.at(0.9) <= 35:
        return None
    first = max(edge for edge in AGE_BANDS if edge <= numbers.low)
    last = next((edge for edge in AGE_BANDS if edge > numbers.at(0.99)), AGE_BANDS[-1])
    last = max(last, AGE_BANDS[AGE_BANDS.index(first) + 1])
    edges: list[float] = [edge for edge in AGE_BANDS if first <= edge <= last]
    if last == AGE_BANDS[-1]:
        edges.append(100)
    return Cut(edges, False, numbers.high >= last)


# ----------------------------------------------------------------------------------------------------------------------
# Dates among texts: in which way they are written, and which periods to count them by.


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


def periods(texts: Iterable[str]) -> tuple[str, list[str]] | None:
    """What periods the texts are, and they in order, where all are quarters, half-years or weeks in a spelling of their
    own, such as 2019Q3, H1 2019, 2021-W07 or KW 07/2021.

    >>> periods(["Q2 2019", "Q3 2018"]), periods(["2021-W10", "2021-W09"]), periods(["a"])
    (('quarters', ['Q3 2018', 'Q2 2019']), ('weeks', ['2021-W09', '2021-W10']), None)
    """
    signs, found = set(), {}
    for text in texts:
        year = re.search(r"(?<!\d)(?:19|20)\d{2}(?!\d)", text)
        part = re.search(r"(?<![A-Z])(Q|H|KW|W|S)[ .-]?(\d{1,2})(?!\d)", text)
        if year is None or part is None or len(text) > 11 or not 1 <= int(part[2]) <= _PERIODS[part[1]][1]:
            return None
        signs.add(_PERIODS[part[1]][0])
        found[text] = (year[0], int(part[2]))
    return (signs.pop(), sorted(found, key=found.__getitem__)) if len(signs) == 1 else None


_PERIODS = {
    "Q": ("quarters", 4), "H": ("half-years", 2), "S": ("half-years", 2), "KW": ("weeks", 53), "W": ("weeks", 53)
}  # fmt: skip
"""The sign of a period, what it is, and how many a year has."""


def is_time_of_day(text: str) -> bool:
    """Whether a text is a time of day, such as 14:30 or 2:05 pm."""
    return re.fullmatch(r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?\s*(?:[AaPp]\.?[Mm]\.?)?", text) is not None

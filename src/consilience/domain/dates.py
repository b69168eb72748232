"""Dates: attributes whose cells are days, weeks, months, quarters or years.

A period of a unit has a number, counted from the one that holds 1 January 1970, which is 0:

    day d,  week ⌊(d + 3) / 7⌋ (from Monday on, as ISO 8601 counts them),  month m = 12 (year − 1970) + month − 1,
    quarter ⌊m / 3⌋,  year ⌊m / 12⌋.

Its label is 2019-03-07, 2019-W10, 2019-03, 2019-Q1 or 2019.
"""

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.declarations import Declaration, suggestion
from consilience.errors import DeclarationError

Days = NDArray[np.int64]

UNITS = ("day", "week", "month", "quarter", "year")
COARSER = {
    "day": ("week", "month", "quarter", "year"),
    "week": (),
    "month": ("quarter", "year"),
    "quarter": ("year",),
    "year": (),
}
"""The units whose periods are whole numbers of another unit's: a week may lie in two months, and in two years."""
MOST_PERIODS = 100_000
"""Cells of one attribute: days of almost 300 years."""
FIRST_YEAR, LAST_YEAR = 1, 9998

_LABELS = {
    "day": re.compile(r"(\d{4})-(\d{2})-(\d{2})"),
    "week": re.compile(r"(\d{4})-W(\d{2})"),
    "month": re.compile(r"(\d{4})-(\d{2})"),
    "quarter": re.compile(r"(\d{4})-Q([1-4])"),
    "year": re.compile(r"(\d{4})"),
}
_EPOCH = datetime.date(1970, 1, 1)


def periods_of(days: Days, unit: str) -> Days:
    """The number of the period of a unit that each day lies in; days are counted from 1 January 1970.

    >>> periods_of(np.array([0, 31, 365]), "month").tolist()
    [0, 1, 12]
    """
    if unit == "day":
        return days
    if unit == "week":
        return (days + 3) // 7
    months = days.astype("M8[D]").astype("M8[M]").astype(np.int64)
    return months // {"month": 1, "quarter": 3, "year": 12}[unit]


def first_day(unit: str, period: int) -> int:
    """The day that a period begins with; that of the next period is the day after its last."""
    if unit == "day":
        return period
    if unit == "week":
        return 7 * period - 3
    months = period * {"month": 1, "quarter": 3, "year": 12}[unit]
    return int(np.datetime64(months, "M").astype("M8[D]").astype(np.int64))


def label_of(unit: str, period: int) -> str:
    """The text by which a period is known.

    >>> label_of("week", 2566), label_of("quarter", 196), label_of("month", 0)
    ('2019-W10', '2019-Q1', '1970-01')
    """
    if unit == "week":
        year, week, _ = (_EPOCH + datetime.timedelta(days=first_day(unit, period))).isocalendar()
        return f"{year:04}-W{week:02}"
    if unit == "quarter":
        return f"{1970 + period // 4:04}-Q{period % 4 + 1}"
    code: Any = {"day": "D", "month": "M", "year": "Y"}[unit]
    return str(np.datetime64(period, code))


def span_of(label: str) -> tuple[str, int, int] | None:
    """The unit of a period's label, its first day and the day after its last; None of what is no such label.

    >>> span_of("1970-Q1"), span_of("1970-02-30")
    (('quarter', 0, 90), None)
    """
    for unit, pattern in _LABELS.items():
        found = pattern.fullmatch(label)
        if found is None:
            continue
        parts = [int(part) for part in found.groups()]
        try:
            if unit == "week":
                day = datetime.date.fromisocalendar(parts[0], parts[1], 1)
            else:
                month = 3 * parts[1] - 2 if unit == "quarter" else (parts[1:2] or [1])[0]
                day = datetime.date(parts[0], month, parts[2] if unit == "day" else 1)
        except ValueError:
            return None
        if not FIRST_YEAR <= day.year <= LAST_YEAR:
            return None
        begin = (day - _EPOCH).days
        period = int(periods_of(np.array([begin]), unit)[0])
        return unit, begin, first_day(unit, period + 1)
    return None


@dataclass(frozen=True)
class Date(Attribute):
    """Periods from the first to the last. Outside them: "drop", "clip" to the end periods, or the value it becomes.

    >>> Date.between("seen", "2019-12-24", "2020-02", "month").labels
    ('2019-12', '2020-01', '2020-02')
    """

    first: int = 0
    """The numbers of the first and the last period."""
    last: int = 0
    by: str = "day"
    format: str | None = None
    """How texts write a date, as in "%d.%m.%Y"; None means ISO 8601."""
    kind: ClassVar[str] = "date"
    is_ordered: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.last - self.first >= MOST_PERIODS:
            raise DeclarationError(
                f"attribute {self.name!r} has {self.last - self.first + 1:,} periods of a {self.by}, and at most "
                f"{MOST_PERIODS:,} are possible; declare fewer years, or coarser periods"
            )
        DateTexts(self.name, self.format, self.by)

    @staticmethod
    def between(
        name: str,
        first: str | datetime.date,
        last: str | datetime.date,
        by: str,
        *,
        format: str | None = None,  # noqa: A002
        missing: str | None = None,
        unlisted: str = "drop",
    ) -> "Date":
        """The periods from the one in which `first` begins to the one in which `last` ends."""
        if by not in UNITS:
            raise DeclarationError(f"attribute {name!r}: 'by' is {by!r}; {suggestion(str(by), UNITS)}")
        spans = []
        for end in (first, last):
            span = span_of(end.isoformat()[:10] if isinstance(end, datetime.date) else str(end))
            if span is None:
                raise DeclarationError(
                    f"attribute {name!r}: {str(end)!r} is no date; write 2019-03-07, 2019-03, 2019-Q1, 2019-W10 or 2019"
                )
            spans.append(span)
        low, high = (int(periods_of(np.array([day]), by)[0]) for day in (spans[0][1], spans[1][2] - 1))
        if high < low:
            raise DeclarationError(f"attribute {name!r} runs from {first} to {last}: 'to' must not be before 'from'")
        return Date(name, missing, unlisted, first=low, last=high, by=by, format=format)

    @cached_property
    def _periods(self) -> tuple[str, ...]:
        return tuple(label_of(self.by, period) for period in range(self.first, self.last + 1))

    @property
    def ordinary_labels(self) -> tuple[str, ...]:
        return self._periods

    @property
    def levels(self) -> tuple[str, ...]:
        return (*COARSER[self.by][::-1], self.by)

    def groups(self, level: str) -> dict[str, tuple[int, ...]]:
        if level not in self.levels:
            return super().groups(level)
        days = np.array([first_day(self.by, period) for period in range(self.first, self.last + 1)])
        found: dict[str, list[int]] = {}
        for code, period in enumerate(periods_of(days, level).tolist()):
            found.setdefault(label_of(level, period), []).append(code)
        for code, label in enumerate(self.labels[len(days) :], len(days)):
            found.setdefault(label, []).append(code)
        return {label: tuple(codes) for label, codes in found.items()}

    def codes(self, label: str) -> tuple[int, ...]:
        """The codes of a period, or of all periods in a longer one: of 2019 all its months."""
        if label in self.codes_by_label or span_of(str(label)) is None:
            return super().codes(label)
        return self.codes_between(label, label)

    def codes_between(self, low: str | None, high: str | None) -> tuple[int, ...]:
        """The codes of the periods from the first day of one to the last day of another, whatever their units."""
        begin = self._days[0] if low is None else self._span(low)[0]
        end = self._days[1] if high is None else self._span(high)[1]
        if end <= begin:
            raise DeclarationError(f"attribute {self.name!r}: the range {low}..{high} runs backwards")
        first, last = (int(periods_of(np.array([day]), self.by)[0]) for day in (begin, end - 1))
        if first_day(self.by, first) != begin:
            self._refuse_cut(str(low), first)
        if first_day(self.by, last + 1) != end:
            self._refuse_cut(str(high), last)
        return tuple(range(first - self.first, last - self.first + 1))

    @cached_property
    def _days(self) -> tuple[int, int]:
        """The first day, and the day after the last."""
        return first_day(self.by, self.first), first_day(self.by, self.last + 1)

    def _span(self, label: str) -> tuple[int, int]:
        """The days of a period, as far as they are declared."""
        span = span_of(label)
        if span is None:
            raise DeclarationError(
                f"attribute {self.name!r} is a date; {label!r} is none: write 2019-03-07, 2019-03, 2019-Q1 or 2019"
            )
        begin, end = max(span[1], self._days[0]), min(span[2], self._days[1])
        if end <= begin:
            raise DeclarationError(
                f"attribute {self.name!r} runs from {self._periods[0]} to {self._periods[-1]}; {label} lies outside"
            )
        return begin, end

    def _refuse_cut(self, text: str, period: int) -> NoReturn:
        raise DeclarationError(
            f"attribute {self.name!r} has a cell for each {self.by}; {text} cuts through {label_of(self.by, period)}"
        )

    def _own_declaration(self) -> dict[str, Any]:
        declared = {"from": self._periods[0], "to": self._periods[-1], "by": self.by}
        return declared | ({} if self.format is None else {"format": self.format})

    @staticmethod
    def read(name: str, declared: Declaration, rules: dict[str, Any]) -> "Date":
        """The attribute that a table of a domain file declares; TOML's own dates serve as well as texts."""
        ends = [declared.raw(key) for key in ("from", "to")]
        for key, end in zip(("from", "to"), ends, strict=True):
            if not isinstance(end, str | datetime.date) and not (isinstance(end, int) and not isinstance(end, bool)):
                declared.refuse(f'{key!r} must be a date, such as 2019-03-07 or "2019-03", found {end!r:.60}')
        first, last = (str(end) if isinstance(end, int) else end for end in ends)
        return Date.between(name, first, last, declared.text("by"), format=declared.optional_text("format"), **rules)


# ----------------------------------------------------------------------------------------------------------------------
# How texts write dates.

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PARTS = {
    "Y": r"(?P<year>\d{4})",
    "y": r"(?P<short>\d{2})",
    "m": r"(?P<month>\d{1,2})",
    "d": r"(?P<day>\d{1,2})",
    "b": r"(?P<name>[A-Za-z]{3})[a-z]*",
    "H": r"\d{1,2}",
    "M": r"\d{1,2}",
    "S": r"\d{1,2}(?:\.\d*)?",
    "p": r"[AaPp][Mm]",
    "%": "%",
}
_ISO = re.compile(r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})(?:[T ].*)?")
NO_DAY = np.iinfo(np.int64).min
"""Stands for what is no date."""


class DateTexts:
    """Reads the days of texts: year, month and day where the format says, the rest of a time passed over.

    >>> DateTexts("seen", "%d.%m.%Y", "day").days(["02.01.1970", "31.02.1970"]).tolist() == [1, NO_DAY]
    True
    """

    def __init__(self, name: str, format: str | None, by: str) -> None:  # noqa: A002
        self._by = by
        if format is None:
            self._pattern = _ISO
            return
        parts = re.split(r"%(.)", format)
        unknown = [part for part in parts[1::2] if part not in _PARTS]
        if unknown:
            raise DeclarationError(
                f"attribute {name!r}: the format {format!r} has %{unknown[0]}; known are %Y %y %m %b %d %H %M %S %p"
            )
        if any(parts[1::2].count(part) > 1 for part in "Yymbd"):
            raise DeclarationError(f"attribute {name!r}: the format {format!r} names a part twice; name each once")
        pattern = "".join(_PARTS[part] if i % 2 else re.escape(part) for i, part in enumerate(parts))
        # Where nothing stands between two parts, each has two digits; else one will do.
        self._pattern = re.compile(pattern.replace("{1,2}", "{2}") if "" in parts[2:-1:2] else pattern)
        has = set(self._pattern.groupindex)
        finest = "day" if "day" in has else "month" if has & {"month", "name"} else "year"
        if not has & {"year", "short"} or ("day" in has and not has & {"month", "name"}):
            raise DeclarationError(
                f"attribute {name!r}: the format {format!r} tells no date; it needs %Y or %y, and %m or %b beside %d"
            )
        if by != finest and by not in COARSER[finest]:
            raise DeclarationError(
                f"attribute {name!r} has a cell for each {by}, and the format {format!r} tells only the {finest}"
            )

    def days(self, texts: Iterable[str]) -> Days:
        """The day of each text, counted from 1 January 1970; NO_DAY of what is no date."""
        return np.array([self._day(text.strip()) for text in texts], dtype=np.int64)

    def _day(self, text: str) -> int:
        found = self._pattern.fullmatch(text)
        if found is None:
            # A label of the attribute's own, as our files write it, or a coarser date than its format's.
            span = span_of(text)
            return span[1] if span is not None and (span[0] == self._by or self._by in COARSER[span[0]]) else NO_DAY
        parts = found.groupdict()
        if parts.get("year") is None:
            short = int(parts["short"])
            parts["year"] = str(short + (2000 if short < 69 else 1900))
        name = parts.get("name")
        if name is not None and name.lower() not in _MONTHS:
            return NO_DAY
        month = _MONTHS.index(name.lower()) + 1 if name is not None else int(parts.get("month") or 1)
        try:
            return (datetime.date(int(parts["year"]), month, int(parts.get("day") or 1)) - _EPOCH).days
        except ValueError:
            return NO_DAY

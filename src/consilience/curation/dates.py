"""Dates among texts: in which way they are written, and the periods between the first and the last of them."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, timedelta

MONTHS = {
    name: place % 12 + 1
    for names in (
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "january february march april may june july august september october november december",
        "jan feb mär apr mai jun jul aug sep okt nov dez",
    )
    for place, name in enumerate(names.split())
}
_TIME = r"(?:[T ]+\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\s*(?:[AaPp]\.?[Mm]\.?)?\s*(?:Z|UTC|[+-]\d{2}:?\d{2})?)?"
_YEAR, _MONTH, _DAY = r"(?P<y>(?:1[5-9]|20|21)\d{2})", r"(?P<m>0?[1-9]|1[0-2])", r"(?P<d>0?[1-9]|[12]\d|3[01])"
_WORD = r"(?P<w>[A-Za-zä]{3,9})\.?"
_SHORT = r"(?P<s>\d{2})"

FORMS: dict[str, re.Pattern[str]] = {
    shown: re.compile(pattern)
    for shown, pattern in {
        "YYYY-MM-DD": rf"{_YEAR}-{_MONTH}-{_DAY}(?P<t>{_TIME})",
        "YYYY/MM/DD": rf"{_YEAR}/{_MONTH}/{_DAY}(?P<t>{_TIME})",
        "YYYY.MM.DD": rf"{_YEAR}\.{_MONTH}\.{_DAY}(?P<t>{_TIME})",
        "YYYYMMDD": r"(?P<y>(?:19|20)\d{2})(?P<m>0[1-9]|1[0-2])(?P<d>0[1-9]|[12]\d|3[01])(?P<t>)",
        "DD.MM.YYYY": rf"{_DAY}\.{_MONTH}\.{_YEAR}(?P<t>{_TIME})",
        "DD/MM/YYYY": rf"{_DAY}/{_MONTH}/{_YEAR}(?P<t>{_TIME})",
        "MM/DD/YYYY": rf"{_MONTH}/{_DAY}/{_YEAR}(?P<t>{_TIME})",
        "DD-MM-YYYY": rf"{_DAY}-{_MONTH}-{_YEAR}(?P<t>{_TIME})",
        "MM-DD-YYYY": rf"{_MONTH}-{_DAY}-{_YEAR}(?P<t>{_TIME})",
        "DD.MM.YY": rf"{_DAY}\.{_MONTH}\.{_SHORT}(?P<t>{_TIME})",
        "DD/MM/YY": rf"{_DAY}/{_MONTH}/{_SHORT}(?P<t>{_TIME})",
        "MM/DD/YY": rf"{_MONTH}/{_DAY}/{_SHORT}(?P<t>{_TIME})",
        "DD-MON-YYYY": rf"{_DAY}[ -]{_WORD}[ -,]*(?:{_YEAR}|{_SHORT})(?P<t>{_TIME})",
        "MON DD, YYYY": rf"{_WORD} {_DAY},? {_YEAR}(?P<t>{_TIME})",
        "YYYY-MM": rf"{_YEAR}-(?P<m>0[1-9]|1[0-2])",
        "YYYY/MM": rf"{_YEAR}/(?P<m>0[1-9]|1[0-2])",
        "MM/YYYY": rf"(?P<m>0[1-9]|1[0-2])/{_YEAR}",
        "YYYYMm": rf"{_YEAR}M(?P<m>0[1-9]|1[0-2])",
        "YYYYQq": rf"{_YEAR}(?P<g>[- ]?)Q(?P<q>[1-4])",
        "Qq YYYY": rf"Q(?P<q>[1-4])(?P<g>[- ]?){_YEAR}",
    }.items()
}
TWINS = {
    f"{a}{sign}{b}{sign}{year}": f"{b}{sign}{a}{sign}{year}"
    for sign in "/-"
    for year in ("YYYY", "YY")
    for a, b in (("DD", "MM"), ("MM", "DD"))
}
"""Forms that only a day above 12 tells apart."""


@dataclass(frozen=True)
class Dates:
    """How the dates of a column are written, and the first and the last."""

    described: str
    first: date
    last: date
    timed: bool
    """Whether they have a time of day."""
    padded: bool
    """Whether days and months have two digits."""
    regular: bool
    """Whether all are written in one way that can be written again."""
    ambiguous: bool
    gap: str = ""

    @property
    def digits(self) -> bool:
        """Whether they are numbers, which bins can hold."""
        return self.described == "YYYYMMDD"

    @property
    def unit(self) -> str:
        if "q" in self.described:
            return "quarter"
        return "day" if "D" in self.described else "month"

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    def written(self, day: date) -> str:
        """A day, a month or a quarter as the column writes it."""
        parts = {
            "YYYY": f"{day.year}",
            "YY": f"{day.year % 100:02d}",
            "MM": f"{day.month:02d}" if self.padded else f"{day.month}",
            "DD": f"{day.day:02d}" if self.padded else f"{day.day}",
            "Mm": f"M{day.month:02d}",
            "Qq": f"{self.gap}Q{(day.month + 2) // 3}" if self.described == "YYYYQq" else f"Q{(day.month + 2) // 3}",
        }
        text = self.described.replace(" ", self.gap) if self.described == "Qq YYYY" else self.described
        return re.sub("YYYY|YY|MM|DD|Mm|Qq", lambda found: parts[found[0]], text)

    def months(self) -> Iterator[date]:
        """The first day of each month from the first to the last."""
        place = self.first.year * 12 + self.first.month - 1
        while place <= self.last.year * 12 + self.last.month - 1:
            yield date(place // 12, place % 12 + 1, 1)
            place += 1

    def periods(self) -> list[str]:
        """All months or quarters from the first to the last, as the column writes them."""
        return list(dict.fromkeys(self.written(month) for month in self.months()))

    def parents(self) -> dict[str, str]:
        """All days of these months below their months, and months below their years."""
        months = list(self.months())
        found: dict[str, str] = {}
        for month in months:
            day = month
            while (day.year, day.month) == (month.year, month.month):
                found[self.written(day)] = f"{day:%Y-%m}"
                day += timedelta(days=1)
        return found | {f"{month:%Y-%m}": f"{month:%Y}" for month in months}

    def edges(self) -> tuple[list[int], list[str]]:
        """Numbers of the first days of at most 24 months, quarters, years or more, and what the periods are called."""
        count = (self.last.year - self.first.year) * 12 + self.last.month - self.first.month + 1
        step = next((step for step in (1, 3, 12, 60, 120) if count <= 24 * step), 1200)
        place = (self.first.year * 12 + self.first.month - 1) // step * step
        edges, labels = [], []
        while True:
            year, month = divmod(place, 12)
            edges.append(year * 10000 + (month + 1) * 100 + 1)
            if date(year, month + 1, 1) > self.last:
                return edges, labels
            names = {1: f"{year}-{month + 1:02d}", 3: f"{year}Q{month // 3 + 1}", 12: f"{year}"}
            labels.append(names.get(step, f"{year} to {year + step // 12 - 1}"))
            place += step


def written_as(texts: Collection[str], *, exact: float) -> Dates | None:
    """How nearly all of these texts are dates, or None where they are not."""
    found = {shown: days for shown in FORMS if (days := _days(shown, texts)) and len(days) >= exact * len(texts)}
    if not found:
        return None
    best = max(found, key=lambda shown: len(found[shown]))
    twin = TWINS.get(best)
    ambiguous = twin in found and len(found[twin]) == len(found[best])
    days = found[best]
    parts = [FORMS[best].fullmatch(text) for text in days]
    groups = [part.groupdict() for part in parts if part is not None]
    padded = not any(len(group.get(key) or "00") == 1 for group in groups for key in "md")
    timed = any(re.search(r"[1-9]", group.get("t") or "") for group in groups)
    gaps = {group.get("g") or "" for group in groups}
    first, last = min(days.values()), max(days.values())
    dates = Dates(best, first, last, timed, padded, True, ambiguous, gaps.pop() if len(gaps) == 1 else "")
    again = sum(dates.written(day) == text for text, day in days.items())
    return Dates(best, first, last, timed, padded, again >= exact * len(texts), ambiguous, dates.gap)


def _days(shown: str, texts: Collection[str]) -> dict[str, date]:
    """The texts of this form and the days, or first days of periods, that they are."""
    found = {}
    for text in texts:
        part = FORMS[shown].fullmatch(text)
        group = part.groupdict() if part else {}
        if not group:
            continue
        month = int(group.get("m") or 0) or MONTHS.get((group.get("w") or "").lower(), 0)
        month = month or (int(group["q"]) * 3 - 2 if group.get("q") else 0)
        short = int(group.get("s") or 0)
        year = int(group.get("y") or 0) or short + (2000 if short < 50 else 1900)
        try:
            found[text] = date(year, month, int(group.get("d") or 1))
        except ValueError:
            continue
    return found


def is_time_of_day(text: str) -> bool:
    """Whether a text is a time of day, such as 14:30 or 2:05 pm."""
    return re.fullmatch(r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?\s*(?:[AaPp]\.?[Mm]\.?)?", text) is not None

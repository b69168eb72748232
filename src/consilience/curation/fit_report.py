"""What `domain check --against` tells the curator. NOT PRIVATE: every number is exact and values are the data's own."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from consilience.curation.fit import ColumnFit, Observation, Opened, ends, observe
from consilience.curation.fit_lines import Lines, fitting_lines
from consilience.domain.attributes import Continuous
from consilience.domain.declarations import format_number, suggestion
from consilience.domain.domains import Domain
from consilience.errors import DeclarationError, SourceError
from consilience.source.base import declared_unit
from consilience.source.values import TRUTH_TEXTS

NOTICE = (
    "NOT PRIVATE, for the curator's eyes only: these are exact numbers and values of the confidential table. Do not "
    "publish them or pass them on"
)
MOST_SHOWN = 12
"""Values of one attribute that a line of text shows; JSON has up to ten times as many."""


@dataclass(frozen=True)
class Effect:
    """What one rule does to how many rows."""

    attribute: str
    values: str
    becomes: str
    rows: int


@dataclass(frozen=True)
class DomainFit:
    """How a domain fits the data, and what to write so that it does. NOT PRIVATE."""

    domain: Domain
    found: Observation | None
    """None where the source cannot be read as it is declared; `refusal` says why."""
    refusal: str
    lines: Lines
    then: Observation | None
    """What would become of the rows with these lines."""

    @property
    def fits(self) -> bool:
        """Whether there is nothing to write and no column is absent."""
        return self.found is not None and not self.lines and not self.found.absent

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What every rule that concerns a row does, in the order of the domain; a row may be in several."""
        if self.found is None:
            return ()
        effects = [each for column in self.found.columns.values() for each in column_effects(column)]
        for (attributes, because), rows in self.found.impossible.items():
            what = f"against {because}" if because else "in cells declared impossible"
            effects.append(Effect(" and ".join(attributes), what, "dropped", rows))
        effects.append(Effect("unit", "rows without a unit", "dropped", self.found.without_unit))
        over = self.found.kept - self.found.counted - self.found.without_unit
        effects.append(Effect("unit", "rows beyond the limit of their unit", "dropped", max(over, 0)))
        return tuple(each for each in effects if each.rows)

    def describe(self) -> str:
        """The report as text, which says first and last that it is not private."""
        return "\n".join([f"{NOTICE}.", "", *self._rows(), *self._values(), *self._lines()])

    def _rows(self) -> Iterable[str]:
        if self.found is None:
            yield f"With the domain as it is nothing can be counted: {self.refusal}"
            return
        if self.found.absent:
            for name in self.found.absent:
                yield f"no column {name!r}: {suggestion(name, self.found.there)}"
            yield "With a declared column absent nothing can be counted. Of the others:"
        else:
            yield f"{self.found.counted:,} of {self.found.rows:,} rows are counted."
        effects = self.effects
        if not effects:
            yield "No rule drops or moves a row." if self.found.rows else "The source has no rows."
            return
        yield ""
        cells = [(each.attribute, each.values, each.becomes, f"{each.rows:,}") for each in effects]
        table = [("attribute", "values", "become", "rows"), *cells]
        widths = [max(len(row[place]) for row in table) for place in range(4)]
        for row in table:
            yield "  " + "  ".join([*(row[i].ljust(widths[i]) for i in range(3)), row[3].rjust(widths[3])])

    def _values(self) -> Iterable[str]:
        for column in self.found.columns.values() if self.found else ():
            name = column.attribute.name
            odd = unlisted(column, self.domain)
            if odd:
                most = MOST_SHOWN // 2 if column.numeric else MOST_SHOWN
                more = "" if len(odd) <= most and column.complete else ", and others"
                listed = ", ".join(f"{text} ({_rows(rows)})" for text, rows in odd[:most])
                yield f"\n{name}, {'no numbers' if column.numeric else 'not listed'}: {listed}{more}"
            if column.numeric and column.unlisted:
                low, high = (format_number(end) for end in (column.low, column.high))
                yield f"\n{name}: its numbers lie between {low} and {high}"
            if column.never and not column.numeric:
                more = "" if len(column.never) <= MOST_SHOWN else f", and {len(column.never) - MOST_SHOWN} others"
                yield f"\n{name}, listed and never there: {', '.join(column.never[:MOST_SHOWN])}{more}"
            elif column.never and column.counts.any():
                yield f"\n{name}: {len(column.never)} of {len(column.counts)} bins are empty"

    def _lines(self) -> Iterable[str]:
        if self.lines:
            yield "\nWhat to write into the domain file (in place of such lines as it has):\n"
            yield from (f"    {line}".rstrip() for line in self.lines.to_toml().split("\n"))
            yield ""
            if self.then is not None and not self.then.absent:
                yield f"With these lines {self.then.counted:,} of {self.then.rows:,} rows would be counted."
            else:
                yield "Other declarations name what these lines replace; change them too, and check again."
            if any("reviewed" in keys for keys in self.lines.attributes.values()):
                yield (
                    "Lines with values or edges were read off the data. They say reviewed = false, and nothing can be "
                    "measured until you\nhave put public knowledge in their place and removed that mark. Such a change "
                    "is your own act, outside epsilon."
                )
        elif self.fits:
            yield "\nNothing to write: the domain fits the data."

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, which says that it is not private."""
        document: dict[str, Any] = {"private": False, "notice": NOTICE, "domain": self.domain.name, "fits": self.fits}
        if self.found is None:
            document["refusal"] = self.refusal
        else:
            document |= {"rows": self.found.rows, "counted": None if self.found.absent else self.found.counted}
            document["absent"] = list(self.found.absent)
            document["effects"] = [vars(each) for each in self.effects]
            document["attributes"] = {name: column_json(each, self.domain) for name, each in self.found.columns.items()}
        counted = None if self.then is None or self.then.absent else self.then.counted
        written = {"source": self.lines.source, "attributes": self.lines.attributes}
        return document | {"write": written, "toml": self.lines.to_toml(), "would_count": counted}

    def __str__(self) -> str:
        return self.describe()


def check_domain(
    data: object,
    domain: Domain,
    *,
    table: str | None = None,
    query: str | None = None,
    unit: str | None = None,
    max_rows_per_unit: int | None = None,
) -> DomainFit:
    """How the domain fits the data, and what to write so that it does. NOT PRIVATE, for the curator's eyes only.

    Takes whatever `open_table` takes, and drafts of domains as well. It spends nothing, because it protects nothing.

    >>> import consilience as cs
    >>> import pyarrow as pa
    >>> domain = cs.Domain("people", (cs.Attribute.categorical("sex", ["F", "M"]),))
    >>> people = pa.table({"sex": ["F", "M", "F"]})
    >>> check_domain(people, domain).fits
    True
    """
    declared_unit(unit, max_rows_per_unit)
    opened = Opened(data, table, query, unit, max_rows_per_unit)
    found, refusal = None, ""
    try:
        found = observe(opened, domain)
    except SourceError as error:
        refusal = str(error)
    lines = fitting_lines(opened, domain, found)
    if found is None and not lines:
        raise SourceError(refusal)
    then, applied = None, lines.applied(domain)
    if lines and applied is not None:
        try:
            then = observe(opened, applied)
        except (SourceError, DeclarationError):
            then = None
    return DomainFit(domain, found, refusal, lines, then)


def column_effects(column: ColumnFit) -> Iterable[Effect]:
    """What the rules of one attribute do."""
    attribute, name = column.attribute, column.attribute.name
    continuous = isinstance(attribute, Continuous)
    lost = continuous or attribute.missing_code < 0
    absent = "dropped" if lost else f"counted as {attribute.labels[attribute.missing_code]}"
    yield Effect(name, "missing", absent, column.missing)
    if not column.numeric:
        kept = attribute.unlisted_code >= 0
        becomes = f"counted as {attribute.labels[attribute.unlisted_code]}" if kept else "dropped"
        yield Effect(name, "not listed", becomes, column.unlisted)
        return
    yield Effect(name, "no number", absent, column.not_numbers)
    low, high = (format_number(end) for end in ends(attribute))
    if attribute.unlisted == "clip":
        first, last = (low, high) if continuous else (attribute.ordinary_labels[0], attribute.ordinary_labels[-1])
    else:
        first = last = "" if attribute.unlisted == "drop" else attribute.unlisted
    beyond = f"{high} or above" if getattr(attribute, "integer", False) else f"above {high}"
    for values, label, rows in ((f"below {low}", first, column.below), (beyond, last, column.above)):
        yield Effect(name, values, f"counted as {label}" if label else "dropped", rows)


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def unlisted(column: ColumnFit, domain: Domain) -> list[tuple[str, int]]:
    """The texts that the attribute does not list, or that are no numbers, the most frequent first."""
    notation = domain.source_format.notation_of(column.attribute.name)
    texts = column.no_numbers(notation) if column.numeric else column.texts
    order = sorted(texts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(_readable(text), rows) for text, rows in order[: 10 * MOST_SHOWN]]


def _readable(text: bytes) -> str:
    if text in TRUTH_TEXTS:
        return ("false", "true")[TRUTH_TEXTS.index(text)]
    return text.decode("utf-8", "backslashreplace") or '""'


def column_json(column: ColumnFit, domain: Domain) -> dict[str, Any]:
    """What was found of one column, as plain data."""
    found = {"missing": column.missing, "unlisted": column.unlisted, "dropped": column.dropped}
    if column.numeric:
        inside = column.low <= column.high
        found |= {"no_numbers": column.not_numbers, "below": column.below, "above": column.above}
        found |= {"low": column.low if inside else None, "high": column.high if inside else None}
    return found | {"unlisted_values": dict(unlisted(column, domain)), "never": list(column.never)}

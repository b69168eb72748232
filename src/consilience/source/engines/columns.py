"""Columns as an engine's catalogue describes them, and the code of each value as an expression of SQL."""

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from sqlglot import exp

from consilience.domain.attributes import DROP, Attribute, Continuous, Numeric
from consilience.domain.dates import Date, first_day
from consilience.domain.declarations import guarded
from consilience.domain.domains import Domain
from consilience.errors import SourceError
from consilience.source.coding import TRUTH_LABELS
from consilience.source.engines.dialects import Engine, Kind, Written, literal
from consilience.source.values import float_text

MOST_DIGITS = 15
"""A decimal number of so many digits has one nearest double, which every engine finds."""


class Column(NamedTuple):
    """One column of the table."""

    name: str
    kind: Kind | None
    """None for a type whose values are not coded in the engine."""
    type: str
    digits: int | None = None
    places: int | None = None

    @property
    def sql(self) -> Written:
        return exp.column(exp.to_identifier(self.name, quoted=True))


REASONS = {
    "numbers in text": "is a text, and engines read numbers in texts differently; make it a number in a view",
    "dates in text": "is a text, and engines read dates in texts differently; make it a date in a view",
    "dates": "holds dates or times, but is declared as numbers; declare it as dates",
    "numbers": "holds no dates, but is declared as dates; declare it as what it is",
    "digits": f"has more than {MOST_DIGITS} digits, or none declared, and engines round such numbers differently; "
    "make it a double precision number in a view",
    "tiny label": "is declared with a label below a millionth, which engines write differently; declare it as numeric",
    "backslash": "is declared with a backslash in a label, which a setting of the server may read in two ways; change "
    "the label in a view",
    "unit": "names the units, and is neither a text nor a whole number; make it one in a view",
}


class ColumnRules:
    """The codes of one attribute's column as an expression, and which of them are kept."""

    def __init__(self, engine: Engine, column: Column, attribute: Attribute, domain: Domain) -> None:
        self._engine = engine
        self._column = column
        self._attribute = attribute
        self.size = 1 if isinstance(attribute, Continuous) else attribute.size
        missing = attribute.missing_code
        self.missing = self.size if missing == DROP or isinstance(attribute, Continuous) else missing
        unlisted = DROP if isinstance(attribute, Continuous) else attribute.unlisted_code
        self.unlisted = self.size if unlisted == DROP else unlisted
        self.drops = self.size in (self.missing, self.unlisted)
        tokens = [self._is(token) for token in domain.source_format.notation_of(attribute.name).missing_tokens]
        absent: list[Written] = [exp.Is(this=column.sql, expression=exp.null())]
        if column.kind in engine.with_nan and engine.is_nan is not None:
            absent.append(engine.is_nan(column.sql))
        absent += [each for each in tokens if each is not None]
        self.code = _case([(exp.or_(*absent), numeral(self.missing))], self._code_of_value())

    def _refused(self, why: str) -> SourceError:
        return SourceError(
            f"the column {self._column.name!r} of the table in {self._engine.name} {REASONS[why]}, or measure an "
            "export of the table"
        )

    def _code_of_value(self) -> Written:
        attribute, kind = self._attribute, self._column.kind
        if isinstance(attribute, Date):
            return self._code_of_day(attribute)
        if isinstance(attribute, Numeric | Continuous):
            if kind == "text":
                raise self._refused("numbers in text")
            if kind in ("day", "moment"):
                raise self._refused("dates")
            return self._code_of_number(attribute)
        labels = dict(attribute.codes_by_label)
        if kind == "truth":
            pair = next((pair for pair in TRUTH_LABELS if labels.keys() & set(pair)), TRUTH_LABELS[0])
            no, yes = (numeral(labels.get(text, self.unlisted)) for text in pair)
            return _case([(self._column.sql, yes)], no)
        labels |= {guarded(label): code for label, code in labels.items() if guarded(label) not in labels}
        matches = [(self._is(label), numeral(code)) for label, code in labels.items()]
        return _case([(match, code) for match, code in matches if match is not None], numeral(self.unlisted))

    def _code_of_number(self, attribute: Numeric | Continuous) -> Written:
        """The bin, by halving: a comparison with a double for each step."""
        number = self._as_double()
        if isinstance(attribute, Continuous):
            edges, codes = list(attribute.bounds), [0 if attribute.unlisted == "clip" else 1, 0]
            codes.append(codes[0])
            closed = True
        else:
            edges, bins = list(attribute.edges), len(attribute.edges) - 1
            below, above = (0, bins - 1) if attribute.clips else (self.unlisted, self.unlisted)
            codes, closed = [below, *range(bins), above], not attribute.integer
        tests: list[Written] = [exp.LT(this=number.copy(), expression=self._double(edge)) for edge in edges]
        if closed:
            tests[-1] = exp.LTE(this=number.copy(), expression=self._double(edges[-1]))
        return _halving(tests, codes)

    def _code_of_day(self, attribute: Date) -> Written:
        if self._column.kind == "text":
            raise self._refused("dates in text")
        if self._column.kind not in ("day", "moment"):
            raise self._refused("numbers")
        periods = len(attribute.ordinary_labels)
        below, above = (0, periods - 1) if attribute.clips else (self.unlisted, self.unlisted)
        firsts = [first_day(attribute.by, attribute.first + place) for place in range(periods + 1)]
        days = [date(1970, 1, 1) + timedelta(days=day) for day in firsts]
        tests: list[Written] = [
            exp.LT(this=self._column.sql, expression=self._moment(each.isoformat())) for each in days
        ]
        return _halving(tests, [below, *range(periods), above])

    def _moment(self, text: str) -> Written:
        return exp.cast(literal(text), "date" if self._column.kind == "day" else "timestampntz")

    def _double(self, number: float) -> Written:
        if self._engine.dialect == "oracle":
            return exp.Cast(this=numeral(number), to=exp.DataType.build("BINARY_DOUBLE", dialect="oracle"))
        return exp.cast(literal("Infinity" if number == math.inf else repr(float(number))), "double")

    def _as_double(self) -> Written:
        if self._column.kind == "truth":
            return exp.cast(_case([(self._column.sql, numeral(1))], numeral(0)), "double")
        if self._column.kind == "decimal" and not 0 < (self._column.digits or 0) <= MOST_DIGITS:
            raise self._refused("digits")
        kind = "BINARY_DOUBLE" if self._engine.dialect == "oracle" else "double"
        return exp.Cast(this=self._column.sql, to=exp.DataType.build(kind, dialect=self._engine.dialect, udt=True))

    def _is(self, text: str) -> Written | None:
        """That the value has this text, as `source.values` writes it; None where no value of its type has."""
        column, kind = self._column.sql, self._column.kind
        if kind == "text":
            if "\\" in text and self._engine.escapes_vary:
                raise self._refused("backslash")
            return self._engine.same_text(column, text) if is_unicode(text) else None
        value: Written | None = None
        if kind == "whole" and re.fullmatch(r"-?[1-9][0-9]{0,19}|0", text) and -(2**63) <= int(text) < 2**64:
            value = numeral(int(text))
        if kind == "decimal" and re.fullmatch(r"-?[1-9][0-9]{0,37}|0|-?(0|[1-9][0-9]*)\.[0-9]*[1-9]", text):
            if 0 < abs(float(text)) < 1e-6:
                raise self._refused("tiny label")
            value = exp.Neg(this=exp.Literal.number(text[1:])) if text[0] == "-" else exp.Literal.number(text)
        if kind in ("single", "double"):
            value = self._float_literal(text, np.float32 if kind == "single" else np.float64)
        if kind in ("day", "moment") and _is_moment(text, day=kind == "day"):
            value = self._moment(text.replace("T", " "))
        return None if value is None else exp.EQ(this=column, expression=value)

    def _float_literal(self, text: str, kind: type[np.floating[Any]]) -> Written | None:
        try:
            number = kind(text)
        except ValueError:
            return None
        if np.isnan(number) or float_text(number) != text:
            return None
        sign = "-" if number < 0 else ""
        written = f"{sign}Infinity" if np.isinf(number) else text
        return exp.cast(literal(written), "float" if kind is np.float32 else "double")


def is_unicode(text: str) -> bool:
    """Whether the text can be in a query: lone surrogates and NUL cannot, and no text of an engine has them."""
    return "\x00" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)


def _is_moment(text: str, *, day: bool) -> bool:
    """Whether this is the text of a date, or of a timestamp in microseconds.

    >>> [_is_moment(text, day=False) for text in ("2020-01-31", "2020-01-31T12:30:00.5", "2020-01-31T00:00:00")]
    [True, True, False]
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return False
    whole = moment.isoformat()
    plain = (whole.rstrip("0") if "." in whole else whole).removesuffix("T00:00:00")
    return moment.tzinfo is None and text == plain and (not day or len(text) == 10)


def numeral(number: float) -> Written:
    written = exp.Literal.number(str(abs(number)))
    return exp.Neg(this=written) if number < 0 else written


def _case(branches: Sequence[tuple[Written, Written]], otherwise: Written) -> Written:
    if not branches:
        return otherwise
    found = exp.Case()
    for condition, value in branches:
        found = found.when(condition, value, copy=False)
    return found.else_(otherwise, copy=False)


def _halving(tests: Sequence[Written], codes: Sequence[int]) -> Written:
    """The code before the first test that holds, the last one where none does; tests hold from some place on."""
    if len(set(codes)) == 1:
        return numeral(codes[0])
    middle = (len(tests) - 1) // 2
    before, after = _halving(tests[:middle], codes[: middle + 1]), _halving(tests[middle + 1 :], codes[middle + 1 :])
    return _case([(tests[middle], before)], after)

"""A first domain read off the data: NOT private, for its owner to review and correct.

A column of numbers with many values becomes ten bins between round edges; a column with few values a list; a column
with many different texts, such as a name or an address, is left out and named.
"""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from consilience.domain.attributes import Attribute
from consilience.domain.domains import Domain
from consilience.domain.files import write_atomically
from consilience.domain.source_format import SourceFormat
from consilience.errors import SourceError
from consilience.source.records import Writing
from consilience.source.tables import reader_of
from consilience.source.values import decoded, numbers_of, texts_of

MOST_VALUES = 50
FEWEST_NUMBERS_TO_BIN = 13
BINS = 10


HEADING = """\
# DRAFT, read off the data, which is not private. Go through the attributes one by one: replace every value
# and edge by what is publicly known, then remove the attribute's mark. At last remove the mark below, and
# this comment. Until then nothing can be measured or published with this file.

"""


class Draft(NamedTuple):
    """A drafted domain, marked as such and every attribute of it as unreviewed; and the columns left out of it."""

    domain: Domain
    left_out: tuple[str, ...]

    def to_toml(self) -> str:
        """The domain file, which says that it is a draft and what is to be done with it."""
        return HEADING + self.domain.to_toml()


class _Column:
    """What has been seen of one column: its distinct texts up to a limit, and the range of its numbers."""

    def __init__(self, marks: Writing) -> None:
        self._marks = marks
        self.texts: set[str] = set()
        self.low, self.high = math.inf, -math.inf
        self.numeric = self.whole = True
        self.missing = False

    def add(self, array: object) -> None:
        values = decoded(array)
        self.missing |= values.null_count > 0
        present = values.drop_null()
        if len(self.texts) <= MOST_VALUES:
            self.texts |= {
                text.decode("utf-8", "surrogateescape") for text in texts_of(present).unique().to_pylist() if text
            }
        numbers = numbers_of(decoded(self._marks.meant(present)))
        self.numeric &= bool(np.isfinite(numbers).all())
        if self.numeric and numbers.size:
            self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
            self.whole &= bool((numbers == np.floor(numbers)).all())

    def _number(self, text: str) -> float:
        return float(numbers_of(decoded(self._marks.meant(pa.array([text.encode()]))))[0])

    def attribute(self, name: str) -> Attribute | None:
        """The drafted attribute, or None for a column that looks like names or free text."""
        missing = "Unknown" if self.missing else None
        if self.numeric and self.texts and len(self.texts) >= FEWEST_NUMBERS_TO_BIN:
            edges = round_edges(self.low, self.high, whole=self.whole)
            return Attribute.numeric(name, edges, missing=missing)
        if not self.texts or len(self.texts) > MOST_VALUES:
            return None
        if any("\udc80" <= sign <= "\udcff" for text in self.texts for sign in text):
            raise SourceError(
                f"the column {name!r} is no text in UTF-8; say in which encoding it is, such as encoding=latin-1"
            )
        order = sorted(self.texts, key=self._number) if self.numeric else sorted(self.texts)
        return Attribute.categorical(name, order, missing=missing)


def draft_domain(
    data: str | os.PathLike[str],
    *,
    name: str | None = None,
    how: SourceFormat = SourceFormat(),  # noqa: B008 (frozen)
    table: str | None = None,
    query: str | None = None,
) -> Draft:
    """A domain with an attribute for each column that looks like one. Reads the data, and is not private.

    Without a `name` the dataset is called as the file is, up to its first dot.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "people.csv"
    ...     _ = path.write_text("sex\\n" + "F\\nM\\n" * 30)
    ...     draft_domain(path).domain["sex"].labels
    ('F', 'M')
    """
    data = os.fspath(data)
    name = Path(data).name.partition(".")[0] if name is None else name
    columns = reader_of(data, {}, how, table=table, query=query).columns
    reader = reader_of(data, dict.fromkeys(columns), how, table=table, query=query)
    marks = Writing(how.notation, numeric=True)
    seen = {column: _Column(marks) for column in columns}
    for batch in reader.batches(columns):
        for column, found in seen.items():
            found.add(batch.column(column))
    drafted = {column: found.attribute(column) for column, found in seen.items()}
    attributes = tuple(attribute for attribute in drafted.values() if attribute is not None)
    if not attributes:
        raise SourceError("no column looks like an attribute; write the domain file by hand")
    names = tuple(attribute.name for attribute in attributes)
    domain = Domain(name, attributes, draft=True, unreviewed=names, source_format=how)
    return Draft(domain, tuple(column for column, found in drafted.items() if found is None))


def round_edges(low: float, high: float, *, whole: bool) -> Sequence[float]:
    """About ten bins between round numbers that hold everything from low to high.

    >>> list(round_edges(17, 90, whole=True))
    [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    """
    width = max((high - low) / BINS, 1.0 if whole else 1e-12 * max(1.0, abs(high)))
    power = 10.0 ** math.floor(math.log10(width))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= width * (1 - 1e-9))
    if whole:
        step = max(1, math.ceil(step))
    first, last = math.floor(low / step), math.floor(high / step) + 1
    return [step * i for i in range(first, last + 1)]


# ----------------------------------------------------------------------------------------------------------------------
# That a curator compared a domain with the data: noted beside the ledger, so that it need not be suggested.
#
# The note holds the domain's fingerprint and a date, and nothing of what was found.


def note_check(ledger: Path, domain: Domain) -> None:
    """The domain counts as checked against the data of this ledger, whether or not that exists yet."""
    date = datetime.now(UTC).date().isoformat()
    checks = _checks(ledger) | {_reviewed_fingerprint(domain): date}
    write_atomically(_checks_beside(ledger), (json.dumps({"checked": checks}, indent=2) + "\n").encode())


def was_checked(ledger: Path, domain: Domain) -> bool:
    """Whether somebody compared this domain, marks of review aside, with the data of this ledger."""
    return _reviewed_fingerprint(domain) in _checks(ledger)


def _checks_beside(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".checks")


def _checks(ledger: Path) -> dict[str, str]:
    try:
        return dict(json.loads(_checks_beside(ledger).read_text(encoding="utf-8"))["checked"])
    except (OSError, ValueError, TypeError, KeyError):  # nobody checked, or somebody else's file
        return {}


def _reviewed_fingerprint(domain: Domain) -> str:
    return replace(domain, draft=False, unreviewed=()).fingerprint

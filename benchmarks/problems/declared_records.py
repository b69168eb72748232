"""Tables of records with a declared domain, ready to be measured: `measure(problem.source(), plan, simulate=seed)`.

Columns have the names of their file; those of a stand-in are x0, x1, …. Attributes that are called numeric get one bin
for each code, so that prefixes and ranges of them mean something.
"""

import functools
import gzip
from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.problems.data_folder import find_data
from benchmarks.problems.records import ADULT_FINE, FILES, SHAPES, NamedRecords, named_records
from consilience.domain import Attribute, Domain
from consilience.domain.public_facts import PublicFacts
from consilience.source import Source, open_table


@dataclass(frozen=True, eq=False)
class DeclaredRecords:
    """Records and the domain that describes them."""

    name: str
    domain: Domain
    table: pa.Table
    """A column of integer codes for each attribute."""

    @property
    def rows(self) -> int:
        return self.table.num_rows

    def source(self) -> Source:
        """The records as what a plan measures. There is nobody to protect here."""
        return open_table(self.table, self.domain)


def declared_records(name: str, *, numeric: Collection[int] = (), public_total: bool = False) -> DeclaredRecords:
    """A table of `records.SHAPES` by name; the columns at the places `numeric` are ordered.

    `public_total` declares the number of records a public fact, as it is where neighbours have the same number.
    """
    return declared(named_records(name), column_names(name), numeric=numeric, public_total=public_total)


def declared(
    records: NamedRecords, names: tuple[str, ...], *, numeric: Collection[int] = (), public_total: bool = False
) -> DeclaredRecords:
    """Records of integer codes with names for their columns."""
    attributes = tuple(
        _ordered(name, size) if place in numeric else _unordered(name, size)
        for place, (name, size) in enumerate(zip(names, records.sizes, strict=True))
    )
    facts = PublicFacts(total=len(records.codes)) if public_total else PublicFacts()
    table = pa.table({name: pa.array(records.codes[:, place]) for place, name in enumerate(names)})
    return DeclaredRecords(records.name, Domain(records.name, attributes, public=facts), table)


@functools.cache
def column_names(name: str) -> tuple[str, ...]:
    """The names of a table's columns: the header of its file, or x0, x1, … of flags and of a stand-in."""
    if name == "adult-fine":
        return tuple(ADULT_FINE)
    path = None if name in FILES else find_data("records", f"{name}.csv.gz")
    if path is None:
        return tuple(f"x{place}" for place in range(len(SHAPES[name][1])))
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return tuple(file.readline().strip().split(","))


def _ordered(name: str, size: int) -> Attribute:
    return Attribute.numeric(name, list(range(size + 1)))


def _unordered(name: str, size: int) -> Attribute:
    return Attribute.categorical(name, [str(code) for code in range(size)])

"""Noisy tables of the places of a geography too large for memory: a folder with a file for each region.

The domain of such measurements is that of the other attributes alone: places are rows of the files (`regions` has the
layout). For each table there is a column of its noisy numbers and one of the variance of their noise, 0 where they are
known exactly.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consilience.domain.domains import Domain
from consilience.domain.factors import Total
from consilience.domain.queries import Query
from consilience.errors import DeclarationError, FileFormatError
from consilience.measurements.privacy_statement import PrivacyStatement
from consilience.measurements.regions import PlaceRows, RegionFolder, RegionWriter

KIND = "consilience-regional-measurements"


def variance_of(table: str) -> str:
    """The column of a table's variances."""
    return f"{table} variance"


@dataclass(frozen=True, eq=False)
class RegionalMeasurements:
    """What was measured of the places of a geography, read region by region."""

    folder: RegionFolder
    domain: Domain
    """The attributes of the tables of places."""
    geography: str
    tables: Mapping[str, Query]
    privacy: PrivacyStatement
    private: bool

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> "RegionalMeasurements":
        """The measurements that a folder holds; only its manifest is read."""
        found = RegionFolder.open(folder, kind=KIND)
        about = found.manifest
        try:
            return RegionalMeasurements(
                found,
                Domain.from_declaration(about["domain"]),
                str(about["geography"]),
                {each["column"]: Query.from_json(each["query"]) for each in about["tables"]},
                PrivacyStatement.from_json(about["privacy"]),
                bool(about["private"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(f"the manifest of {folder} lacks what it should say: {error}") from None

    @staticmethod
    def writer(
        folder: str | os.PathLike[str],
        domain: Domain,
        geography: str,
        tables: Mapping[str, Query],
        *,
        privacy: PrivacyStatement,
        private: bool = True,
        provenance: Mapping[str, Any] | None = None,
    ) -> RegionWriter:
        """Writes such a folder. `tables` says which query over `domain` each column answers.

        Answers are in the order of the domain's attributes, the last one varying fastest.
        """
        for column, query in tables.items():
            check_table(domain, column, query)
        about = {
            "domain": domain.to_declaration(),
            "geography": geography,
            "tables": [{"column": column, "query": query.to_json()} for column, query in tables.items()],
            "privacy": privacy.to_json(),
            "private": private,
            "provenance": dict(provenance or {}),
        }
        return RegionWriter(folder, kind=KIND, about=about)

    def describe(self) -> str:
        """How many places there are, and what was measured of them."""
        number, what = len(self.folder.regions), ", ".join(query.describe() for query in self.tables.values())
        return f"{self.folder.places:,} places in {number:,} regions, of each some of: {what}"

    def above(self) -> PlaceRows:
        return self.folder.above()

    def region(self, region: str) -> PlaceRows:
        return self.folder.region(region)


def check_table(domain: Domain, column: str, query: Query) -> None:
    """Refuse what is no table over values of attributes, or groups of them, in the order of the domain."""
    names = [name for name, factor in query.factors if not isinstance(factor, Total)]
    if not query.is_product or names != [name for name in domain.counted_names if name in names]:
        raise DeclarationError(
            f"table {column!r} asks for {query.describe()!r}; it is to be a product of attributes in the order of the "
            f"domain: {', '.join(domain.counted_names)}"
        )
    query.bind(domain)


def answers_of(domain: Domain, query: Query) -> int:
    """How many numbers a table has."""
    return query.bind(domain).size


def in_domain_order(domain: Domain, factors: Sequence[tuple[str, Any]]) -> tuple[Query, list[int]]:
    """The query with its attributes in the order of the domain, and the axes of its answers in that order."""
    order = sorted(range(len(factors)), key=lambda place: domain.counted_names.index(factors[place][0]))
    return Query(tuple(factors[place] for place in order)), order

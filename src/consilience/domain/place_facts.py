"""What is known from outside of single places of a geography: exact counts, and bounds on them.

Such facts are the population of each state, a block that is empty, or the number of beds of a dormitory, which
nobody counted there exceeds. Places of any level can be named, and places left out are not known.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consilience.domain.attributes import Attribute, Hierarchy
from consilience.domain.declarations import Declaration, is_number, label_text, suggestion
from consilience.errors import DeclarationError

NUMBERS = ("count", "at_least", "at_most")
"""The columns of numbers that a file of facts may have."""


@dataclass(frozen=True)
class PlaceFacts:
    """Between which numbers the counts of some places lie: of their totals, or of cells by other attributes.

    >>> facts = PlaceFacts((), (("Bern",), ("Lyon",)), (5.0, 0.0), (5.0, 9.0))
    >>> facts.describe()
    'bounds on the number of records of 2 places'
    """

    by: tuple[str, ...]
    """The attributes that tell cells of a place apart; none for totals."""
    cells: tuple[tuple[str, ...], ...]
    """A place, and a value of each of these attributes."""
    least: tuple[float, ...]
    most: tuple[float, ...]
    """Infinite where nothing is known."""

    def describe(self) -> str:
        """What is known, without the numbers: for privacy statements."""
        exact = all(low == high for low, high in zip(self.least, self.most, strict=True))
        what = f"counts by {', '.join(self.by)}" if self.by else "number of records"
        number = len({cell[0] for cell in self.cells})
        places = "1 place" if number == 1 else f"{number:,} places"
        return f"{'the exact' if exact else 'bounds on the'} {what} of {places}"

    def check(self, where: str, attributes: Mapping[str, Attribute]) -> None:
        """Refuse facts about places or values that the domain does not have, and bounds that nothing can be within."""
        geography = next((a for a in attributes.values() if isinstance(a, Hierarchy) and a.geography), None)
        if geography is None:
            raise DeclarationError(f"{where}: facts about places need an attribute with geography = true; mark one")
        for name in self.by:
            if name not in attributes or name == geography.name:
                raise DeclarationError(f"{where}: there is no other attribute {name!r}; {suggestion(name, attributes)}")
        known = [frozenset(geography.nodes), *(frozenset(attributes[name].labels) for name in self.by)]
        seen: set[tuple[str, ...]] = set()
        for cell, low, high in zip(self.cells, self.least, self.most, strict=True):
            said = ", ".join(cell)
            for value, values in zip(cell, known, strict=True):
                if value not in values:
                    raise DeclarationError(f"{where}: {value!r} is not declared; {suggestion(value, sorted(values))}")
            if cell in seen:
                raise DeclarationError(f"{where}: {said} is named twice; keep one")
            seen.add(cell)
            if not (is_number(low) and 0 <= low <= high) or math.isnan(high):
                raise DeclarationError(f"{where}: {said} has at least {low} and at most {high} records; correct one")

    def to_declaration(self) -> dict[str, Any]:
        most = {"most": [_plain(high) if math.isfinite(high) else "" for high in self.most]}
        exact = self.least == self.most
        numbers = {"counts": [_plain(low) for low in self.least]} if exact else {"least": [*map(_plain, self.least)]}
        return {"by": list(self.by), "cells": [list(cell) for cell in self.cells]} | numbers | ({} if exact else most)

    @staticmethod
    def read(declared: Declaration, geography: Hierarchy | None, folder: Path | None) -> "PlaceFacts":
        """The facts of one `[[public.places]]` table: written out, or in a CSV or Parquet file beside the domain's."""
        if "file" in declared:
            if geography is None:
                declared.refuse("facts about places need an attribute with geography = true; mark one")
            found = _from_file(declared, geography, folder)
        else:
            by = declared.texts("by") if "by" in declared else ()
            raw = declared.raw("cells")
            if not isinstance(raw, list) or not all(isinstance(cell, list) for cell in raw):
                declared.refuse("'cells' must be a list of lists: a place, and a value of each attribute in 'by'")
            cells = tuple(tuple(str(label_text(value)) for value in cell) for cell in raw)
            if any(len(cell) != 1 + len(by) for cell in cells):
                declared.refuse(f"each of 'cells' is a place and a value of each of {list(by)}")
            if "counts" in declared:
                least = most = declared.numbers("counts")
            else:
                least = declared.numbers("least")
                ends = declared.raw("most")
                most = tuple(math.inf if end == "" else end for end in ends) if isinstance(ends, list) else ()
            if not len(cells) == len(least) == len(most) or not all(map(_is_end, most)):
                declared.refuse(f"{len(cells)} cells need as many numbers, found {len(least)} and {len(most)}")
            found = PlaceFacts(by, cells, tuple(map(float, least)), tuple(map(float, most)))
        declared.close()
        return found


def _is_end(value: object) -> bool:
    return value == math.inf or is_number(value)


def _plain(count: float) -> int | float:
    return int(count) if count == int(count) else float(count)


def _from_file(declared: Declaration, geography: Hierarchy, folder: Path | None) -> PlaceFacts:
    """A row for each cell: the place, values of other attributes, and `count`, or `at_least` and `at_most`."""
    named = declared.text("file")
    if folder is None:
        declared.refuse(f"'file' names {named!r}, which only a domain file can; write the facts out")
    try:
        header, rows = _parquet(folder / named) if named.endswith(".parquet") else _csv(folder / named)
    except (OSError, ValueError, UnicodeDecodeError, csv.Error) as error:
        declared.refuse(f"the file of facts {named!r} cannot be read: {type(error).__name__}")
    places = [name for name in header if name in ("place", geography.name, *geography.level_names)]
    numbers = [name for name in header if name in NUMBERS]
    if len(places) != 1 or not numbers or len(set(header)) != len(header) or {"count"} < set(numbers):
        declared.refuse(
            f"{named!r} has the columns {', '.join(header)}; it needs one with places (place, {geography.name!r} or a "
            "level), and count, or at_least and at_most, or one of them"
        )
    by = tuple(name for name in header if name not in (*places, *numbers))
    cells, least, most = [], [], []
    for line, row in enumerate(rows, 2):
        if len(row) != len(header):
            declared.refuse(f"line {line} of {named!r} has {len(row)} fields, and its header {len(header)}")
        told = dict(zip(header, row, strict=True))
        cells.append((told[places[0]], *(told[name] for name in by)))
        try:
            exact = _number(told.get("count", ""))
            low, high = _number(told.get("at_least", "")), _number(told.get("at_most", ""))
        except ValueError:
            declared.refuse(f"line {line} of {named!r} has a number that is none")
        least.append(exact if exact is not None else low or 0.0)
        most.append(exact if exact is not None else math.inf if high is None else high)
    return PlaceFacts(by, tuple(cells), tuple(least), tuple(most))


def _number(text: str) -> float | None:
    return float(text) if text else None


def _csv(path: Path) -> tuple[list[str], Sequence[Sequence[str]]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = [[field.strip() for field in row] for row in csv.reader(stream) if any(row)]
    if not rows:
        raise ValueError("empty")
    return rows[0], rows[1:]


def _parquet(path: Path) -> tuple[list[str], Sequence[Sequence[str]]]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    columns = [[label_text(value) or "" for value in table.column(name).to_pylist()] for name in table.column_names]
    return list(table.column_names), list(zip(*columns, strict=True))

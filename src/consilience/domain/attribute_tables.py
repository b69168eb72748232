"""From the `[attributes.NAME]` tables of a domain file to attributes."""

import csv
import itertools
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from consilience.domain.attributes import Attribute
from consilience.domain.dates import Date
from consilience.domain.declarations import Declaration, Wording, suggestion
from consilience.domain.undiscovered import is_open, read_open_bins, read_open_bounds, read_open_list

MOST_BINS = 1_000_000
"""An attribute declared by from, to and step has at most this many bins."""
MOST_BINS_TOGETHER = 2_000_000
"""And all such attributes of a domain together: a few letters stand for each million of them."""


def attributes_from_declarations(tables: Mapping[str, Declaration], folder: Path | None) -> tuple[Attribute, ...]:
    """The attributes that the `[attributes.NAME]` tables declare; files that they name lie in the folder."""
    attributes: list[Attribute] = []
    stepped = 0
    for name, declared in tables.items():
        attributes.append(attribute_from_declaration(name, declared, folder))
        if "step" in declared and "edges" not in declared:
            stepped += attributes[-1].size
        if stepped > MOST_BINS_TOGETHER:
            declared.refuse(
                f"the attributes up to {name!r} have more than {MOST_BINS_TOGETHER:,} bins by 'from', 'to' and 'step'; "
                "take wider steps"
            )
    return tuple(attributes)


def attribute_from_declaration(name: str, declared: Declaration, folder: Path | None = None) -> Attribute:
    """The attribute that one `[attributes.NAME]` table of a domain file declares."""
    kind = declared.text("kind")
    readers = {
        "categorical": _read_categorical,
        "numeric": _read_numeric,
        "hierarchy": lambda name, declared: _read_hierarchy(name, declared, folder),
        "continuous": _read_continuous,
        "date": lambda name, declared: Date.read(name, declared, _read_rules(declared, "drop")),
    }
    if kind not in readers:
        declared.refuse(f"kind {kind!r} is not known; {suggestion(kind, readers)}")
    attribute = readers[kind](name, declared)
    release = declared.flag("release") if "release" in declared else True
    attribute = replace(attribute, release=release, wording=Wording.read(declared, attribute))
    declared.close()
    return attribute


def _read_categorical(name: str, declared: Declaration) -> Attribute:
    if is_open(declared, "values"):
        return read_open_list(name, _read_rules(declared, "Other"))
    return Attribute.categorical(name, declared.labels("values"), **_read_rules(declared, "drop"))


def _read_numeric(name: str, declared: Declaration) -> Attribute:
    if is_open(declared, "edges"):
        return read_open_bins(name, declared, _read_rules(declared, "clip"))
    if "edges" in declared:
        edges = declared.numbers("edges")
    else:
        edges = _even_edges(declared)
    integer = declared.flag("integer") if "integer" in declared else None
    amount: tuple[float, ...] | bool = False
    if "amount" in declared:
        is_flag = isinstance(declared.raw("amount"), bool)
        amount = declared.flag("amount") if is_flag else declared.numbers("amount")
    return Attribute.numeric(name, edges, integer=integer, amount=amount, **_read_rules(declared, "clip"))


def _even_edges(declared: Declaration) -> tuple[float, ...]:
    """The edges from, from + step, …, to; the last must be met exactly."""
    if "from" not in declared:
        declared.refuse("a numeric attribute needs 'edges', or 'from', 'to' and 'step'")
    low, high, step = declared.number("from"), declared.number("to"), declared.number("step")
    if step <= 0 or high <= low:
        declared.refuse(f"from {low} to {high} by {step} makes no bins; 'to' must exceed 'from' and 'step' 0")
    wanted = (float(high) - float(low)) / float(step)
    if not wanted <= MOST_BINS:
        declared.refuse(f"from {low} to {high} by {step} makes {wanted:.3g} bins and at most {MOST_BINS} are possible")
    bins = round(wanted)
    whole = isinstance(low, int) and isinstance(step, int)
    tolerance = 0 if whole else 1e-9 * max(abs(high), step)
    if bins < 1 or abs(low + bins * step - high) > tolerance:
        declared.refuse(f"steps of {step} from {low} do not end at {high}; choose a step that divides {high - low}")
    if whole:
        return (*(low + i * step for i in range(bins)), high)
    # Decimal steps, as they were written: three steps of 0.1 make 0.3, where floating point makes 0.30000000000000004.
    start, width = Decimal(str(low)), Decimal(str(step))
    return (*(float(start + i * width) for i in range(bins)), float(high))


def _read_hierarchy(name: str, declared: Declaration, folder: Path | None) -> Attribute:
    levels = declared.labels("levels") if "levels" in declared else ()
    if isinstance(declared.raw("parents"), str):
        above, header = _read_parents(declared, folder)
        levels = levels or header
    else:
        parents = declared.table("parents")
        above = {child: parents.label(child) for child in parents.keys()}
    geography = declared.flag("geography") if "geography" in declared else False
    return Attribute.hierarchy(name, above, levels=levels, geography=geography, **_read_rules(declared, "drop"))


def _read_parents(declared: Declaration, folder: Path | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """The parent of each value by a CSV file beside the domain file, and the names of the levels where it has them.

    A file of two columns whose first is called "value" has a value and its parent in each row. Any other has a column
    for each level, the roots first, and a row for each value; its header names the levels.
    """
    named = declared.text("parents")
    if folder is None:
        declared.refuse(f"'parents' names the file {named!r}, which only a domain file can; write it out")
    path = folder / named
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = [tuple(field.strip() for field in row) for row in csv.reader(stream) if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        declared.refuse(f"the file of parents {named!r} cannot be read: {error}")
    if len(rows) < 2 or len(rows[0]) < 2:
        declared.refuse(
            f"the file of parents {named!r} needs a header and rows of two columns or more: value,parent, or a column "
            "for each level, the roots first"
        )
    header, *body = rows
    two = len(header) == 2 and header[0].lower() == "value"
    above: dict[str, str] = {}
    for line, row in enumerate(body, 2):
        if len(row) != len(header):
            declared.refuse(f"line {line} of {named!r} has {len(row)} fields, and its header {len(header)}")
        path_down = [each for each in (row[::-1] if two else row) if each]
        if len(path_down) < 2:
            declared.refuse(f"line {line} of {named!r} has {path_down[0]!r} alone; every value needs a parent")
        for parent, value in itertools.pairwise(path_down):
            if above.setdefault(value, parent) != parent:
                declared.refuse(
                    f"line {line} of {named!r}: {value!r} has the parent {parent!r} there and {above[value]!r} before; "
                    "values of one name under several parents need names of their own"
                )
    return above, () if two else header


def _read_continuous(name: str, declared: Declaration) -> Attribute:
    unlisted = declared.text("unlisted") if "unlisted" in declared else "clip"
    if is_open(declared, "bounds"):
        return read_open_bounds(name, declared, unlisted)
    bounds = declared.numbers("bounds")
    if len(bounds) != 2:
        declared.refuse(f"'bounds' must be two numbers, found {len(bounds)}")
    return Attribute.continuous(name, (bounds[0], bounds[1]), unlisted=unlisted)


def _read_rules(declared: Declaration, default: str) -> dict[str, Any]:
    unlisted = declared.label("unlisted") if "unlisted" in declared else default
    return {"missing": declared.optional_label("missing"), "unlisted": unlisted}

"""Code books: titles of columns, labels of their codes, and which codes mean that there is no answer.

Read from what offices publish beside their tables: files of SPSS, Stata and SAS, whose records are not read, DDI
Codebook, CSV on the Web, and a plain CSV with a row for each code. A code book is public, where a table is not: what it
lists takes the place of what the data happened to hold.
"""

import csv
import importlib
import io
import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from consilience.domain.declarations import label_text, suggestion, visible
from consilience.errors import DeclarationError, FileFormatError

LARGEST = 2**28
"""Bytes of the largest code book; those of a census have a few million."""
PACKAGES = {".sav": "sav", ".zsav": "sav", ".por": "por", ".dta": "dta", ".sas7bdat": "sas7bdat", ".xpt": "xport"}
HEADERS = {
    "attribute": ("attribute", "variable", "column", "name", "var", "field"),
    "code": ("code", "value", "category", "val"),
    "label": ("label", "title", "description", "meaning", "value label"),
}


@dataclass(frozen=True)
class Entry:
    """What a code book says of one column."""

    title: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """Codes with their labels, in the order of the book."""
    missing: tuple[str, ...] = ()
    """Codes that mean that there is no answer."""
    bounds: tuple[float, float] | None = None
    weight: bool = False


def read_code_book(path: str | os.PathLike[str]) -> dict[str, Entry]:
    """What a code book says of each column, by the column's name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book = Path(folder) / "book.csv"
    ...     _ = book.write_text("attribute,code,label\\nsex,,Sex\\nsex,1,Male\\nsex,2,Female\\n")
    ...     read_code_book(book)["sex"]
    Entry(title='Sex', labels=(('1', 'Male'), ('2', 'Female')), missing=(), bounds=None, weight=False)
    """
    path = Path(path)
    readers = {".csv": _plain, ".tsv": _plain, ".xml": _ddi, ".json": _csvw}
    suffix = path.suffix.lower()
    if suffix not in readers and suffix not in PACKAGES:
        known = ", ".join((*readers, *PACKAGES))
        raise DeclarationError(f"the kind of code book {path.name!r} is not known by its name; files end in {known}")
    if not path.is_file():
        raise FileFormatError(f"there is no code book {path}; check the path")
    if suffix in PACKAGES:
        entries = _package(path, PACKAGES[suffix])
    else:
        if path.stat().st_size > LARGEST:
            raise FileFormatError(f"{path} is larger than {LARGEST / 1e6:,.0f} MB, which no code book is")
        entries = readers[suffix](path)
    if not entries:
        raise FileFormatError(f"{path} describes no column; check that it is a code book")
    return {name: _shown(entry) for name, entry in entries.items()}


def _shown(entry: Entry) -> Entry:
    """The entry with texts of one line that can be shown."""

    def line(text: str) -> str:
        return visible(" ".join(text.split()))

    labels = {code: line(label) for code, label in entry.labels if visible(code) == code}
    return replace(entry, title=line(entry.title), labels=tuple((code, label) for code, label in labels.items()))


def entry_of(book: Mapping[str, Entry], column: str) -> Entry | None:
    """The entry of a column: by its name, or else by its name whatever the capitals."""
    if column in book:
        return book[column]
    alike = [entry for name, entry in book.items() if name.casefold() == column.casefold()]
    return alike[0] if len(alike) == 1 else None


def refuse_strange(book: Mapping[str, Entry], columns: Iterable[str]) -> None:
    """Refuse a code book that describes no column of the table."""
    columns = list(columns)
    if not any(entry_of(book, column) for column in columns):
        name = next(iter(book))
        raise DeclarationError(
            f"the code book describes no column of the table; its first is {name!r}: {suggestion(name, columns)}"
        )


def spelled(entry: Entry, texts: Iterable[str]) -> Entry:
    """The entry with its codes as the data writes them: 1 as 01, or 01 as 1.

    >>> spelled(Entry(labels=(("1", "a"), ("12", "b"))), ["01", "12"]).labels
    (('01', 'a'), ('12', 'b'))
    """
    seen = set(texts)
    longest = max((len(text) for text in seen if text.isdigit()), default=0)
    ways = (
        lambda code: code,
        lambda code: code.zfill(longest) if code.isdigit() else code,
        lambda code: code.lstrip("0") or "0" if code.isdigit() else code,
        lambda code: code.removesuffix(".0"),
    )
    codes = {code for code, _ in entry.labels} | set(entry.missing)
    way = max(ways, key=lambda way: len({way(code) for code in codes} & seen))
    labels = {way(code): label for code, label in entry.labels}
    return replace(entry, labels=tuple(labels.items()), missing=tuple(dict.fromkeys(map(way, entry.missing))))


# ----------------------------------------------------------------------------------------------------------------------
# The formats.


def _plain(path: Path) -> dict[str, Entry]:
    """A row for each code: attribute, code, label. A row without a code has the attribute's title."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    sign = max(",;\t|", key=text.partition("\n")[0].count)
    rows = csv.reader(io.StringIO(text), delimiter=sign)
    header = [name.strip().casefold() for name in next(rows, [])]
    places = {
        what: next((header.index(name) for name in names if name in header), None) for what, names in HEADERS.items()
    }
    if None in places.values():
        raise FileFormatError(
            f"{path} does not begin with a header that names attribute, code and label; a plain code book has a row "
            "for each code, and one without a code for the title"
        )
    found: dict[str, Entry] = {}
    for row in rows:
        cells = {what: row[at].strip() if at is not None and at < len(row) else "" for what, at in places.items()}
        if not cells["attribute"] or not cells["label"]:
            continue
        entry = found.get(cells["attribute"], Entry())
        pair = (cells["code"], cells["label"])
        found[cells["attribute"]] = (
            replace(entry, labels=(*entry.labels, pair)) if cells["code"] else replace(entry, title=cells["label"])
        )
    return found


def _ddi(path: Path) -> dict[str, Entry]:
    """The variables of DDI Codebook, whichever its version: `var`, with `labl`, `catgry` and `valrng`."""
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, ValueError):
        root = None
    if root is None:
        raise FileFormatError(f"{path} is not valid XML; export the code book as DDI Codebook 2.5 again")
    found = {}
    for variable in root.iter():
        if _tag(variable) != "var" or not variable.get("name"):
            continue
        labels, missing = [], []
        for category in (each for each in variable if _tag(each) == "catgry"):
            code, label = _inner(category, "catValu"), _inner(category, "labl")
            if code and label:
                labels.append((code, label))
            if code and category.get("missing", "").upper() in ("Y", "YES", "TRUE"):
                missing.append(code)
        ranges = [each for each in variable.iter() if _tag(each) == "invalrng"]
        items = (item for each in ranges for item in each.iter() if _tag(item) == "item")
        missing += [str(item.get("VALUE")) for item in items if item.get("VALUE")]
        title = _inner(variable, "labl")
        weight = variable.get("wgt") == "wgt"
        found[str(variable.get("name"))] = Entry(title, tuple(labels), tuple(dict.fromkeys(missing)), None, weight)
    return found


def _tag(element: Any) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _inner(element: Any, tag: str) -> str:
    """The text of the first child of that name."""
    return next(("".join(child.itertext()).strip() for child in element if _tag(child) == tag), "")


def _csvw(path: Path) -> dict[str, Entry]:
    """The columns of CSV on the Web; its extensions for privacy may list values and bounds, which are public."""
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise FileFormatError(f"{path} is not valid JSON; a code book in JSON is metadata of CSV on the Web")
    tables = document.get("tables", [document])
    schemas = [table.get("tableSchema", {}) for table in tables if isinstance(table, dict)]
    columns = [each for schema in schemas if isinstance(schema, dict) for each in schema.get("columns", [])]
    return {
        str(column.get("name") or _first(column.get("titles"))): _csvw_entry(column)
        for column in columns
        if isinstance(column, dict) and (column.get("name") or column.get("titles"))
    }


def _csvw_entry(column: Mapping[str, Any]) -> Entry:
    kind = column.get("datatype")
    facets = {**(kind if isinstance(kind, dict) else {}), **column}
    plain = {key.rpartition(":")[2]: value for key, value in column.items() if ":" in key}
    listed = plain.get("publicPartitions") or plain.get("publicKeys") or plain.get("values") or ()
    values = [label_text(value) for value in listed if not isinstance(value, dict)] if isinstance(listed, list) else []
    nulls = column.get("null", ())
    missing = [nulls] if isinstance(nulls, str) else [each for each in nulls if isinstance(each, str)]
    title = _first(column.get("titles")) if column.get("name") else ""
    ends = [facets.get("minimum"), facets.get("maximum")]
    try:
        low, high = (float(end) for end in ends)  # type: ignore[arg-type]
        bounds = (low, high) if low < high else None
    except (TypeError, ValueError):
        bounds = None
    labels = tuple((value, value) for value in values if value)
    return Entry(title, labels, tuple(each for each in missing if each), bounds)


def _first(titles: object) -> str:
    """The first of the titles that CSV on the Web may give as a text, as a list, or by language."""
    if isinstance(titles, dict):
        titles = next(iter(titles.values()), "")
    if isinstance(titles, list):
        titles = next(iter(titles), "")
    return titles if isinstance(titles, str) else ""


def _package(path: Path, kind: str) -> dict[str, Entry]:
    """The labels within a file of SPSS, Stata or SAS; its records are not read. SAS keeps those of codes beside it."""
    try:
        pyreadstat: Any = importlib.import_module("pyreadstat")
    except ImportError:
        raise DeclarationError(
            "code books of SPSS, Stata and SAS need pyreadstat; install it, or consilience[codebooks]"
        ) from None
    catalogue = path.with_suffix(".sas7bcat")
    beside = {"catalog_file": str(catalogue)} if kind == "sas7bdat" and catalogue.exists() else {}
    try:
        if kind == "sas7bdat":
            _, meta = pyreadstat.read_sas7bdat(str(path), metadataonly=True, **beside)
        elif kind in ("sav", "dta"):
            _, meta = getattr(pyreadstat, f"read_{kind}")(str(path), metadataonly=True, user_missing=True)
        else:
            _, meta = getattr(pyreadstat, f"read_{kind}")(str(path), metadataonly=True)
    except Exception:
        meta = None
    if meta is None:
        raise FileFormatError(f"{path} cannot be read; check that it is whole, and of the package that its name says")
    labels, ranges = meta.variable_value_labels, meta.missing_ranges
    found = {}
    for name in meta.column_names:
        pairs = tuple((str(label_text(code)), str(label)) for code, label in labels.get(name, {}).items())
        ends = [(each["lo"], each["hi"]) for each in ranges.get(name, ())]
        missing = [code for code, _ in pairs if any(_within(code, low, high) for low, high in ends)]
        missing += [str(label_text(low)) for low, high in ends if low == high]
        missing += [str(code) for code in meta.missing_user_values.get(name, ())]
        title = meta.column_names_to_labels.get(name) or ""
        found[name] = Entry(title, pairs, tuple(dict.fromkeys(missing)))
    return found


def _within(code: str, low: object, high: object) -> bool:
    """Whether a code lies in a range of codes that mean no answer."""
    if isinstance(low, str) or isinstance(high, str):
        return code in (low, high)
    try:
        return float(low) <= float(code) <= float(high)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False

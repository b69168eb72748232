"""CSV on the Web (W3C): what the tables of a release are, column by column, beside them as `csv-metadata.json`.

Readers of CSVW find the file by its name. It has a code list for each attribute, with the domain's labels and, of
hierarchies, what each value is part of; a column of values refers to its list.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from consilience.domain.attributes import Attribute, Hierarchy
from consilience.domain.declarations import Declaration, guarded
from consilience.domain.domains import Domain
from consilience.measurements.measurement_set import NOT_PRIVATE
from consilience.publication.answers import AnswerTable, heading

NAME = "csv-metadata.json"
MOST_CODES = 10_000
"""Values of one attribute; longer lists are in the domain file alone."""

NUMBERS = ("estimate", "low", "high", "noisy")
MEANINGS = {
    "NOT PRIVATE": "The noise was simulated: these numbers protect nobody.",
    "estimate": "The answer of the estimate; empty where nothing was measured.",
    "low": "The lower end of the interval.",
    "high": "The upper end of the interval.",
    "noisy": "The measured value, with its noise.",
    "basis": "What the estimate stands on: measured, modelled, public or not measured.",
    "note": "What there is to say against the answer.",
    "table": "Which table the row belongs to.",
}


def variable(name: str, taken: set[str]) -> str:
    """The name of a column as CSVW allows it: letters, digits and `_`, anything else by its bytes; unique.

    >>> variable("age group", set()), variable("_x", set()), variable("age", {"age"})
    ('age%20group', '%5Fx', 'age.2')
    """
    plain = quote(name, safe="").replace("-", "%2D").replace("~", "%7E").replace(".", "%2E")
    plain = f"%5F{plain[1:]}" if plain.startswith("_") else plain
    found, copy = plain, 2
    while found in taken:
        found, copy = f"{plain}.{copy}", copy + 1
    taken.add(found)
    return found


def code_list(attribute: Attribute, number: int) -> dict[str, Any]:
    """The values of an attribute: as files have them, as people read them, and what they are part of."""
    parents = dict(attribute.parents) if isinstance(attribute, Hierarchy) else {}
    codes = []
    for value in values_of(attribute):
        code: dict[str, Any] = {"skos:notation": value}
        if attribute.say(value) != value:
            code["skos:prefLabel"] = attribute.say(value)
        if value in parents:
            code["skos:broader"] = {"skos:notation": parents[value]}
        codes.append(code)
    return {
        "@id": f"#attribute-{number}",
        "@type": "skos:ConceptScheme",
        "dc:title": attribute.heading,
        "skos:notation": attribute.name,
        "skos:hasTopConcept": codes,
    }


def values_of(attribute: Attribute) -> tuple[str, ...]:
    """Everything that a column of an attribute may hold: its values, and of hierarchies their parents."""
    return (*dict.fromkeys((*attribute.labels, *(attribute.nodes if isinstance(attribute, Hierarchy) else ()))),)


def table_group(domain: Domain, files: Sequence[tuple[str, Sequence[AnswerTable], Sequence[str]]]) -> bytes:
    """The metadata of some CSV files, each with its tables and its header."""
    numbers = {attribute.name: place for place, attribute in enumerate(domain.attributes, start=1)}
    private = all(table.private for _, tables, _ in files for table in tables)
    coded = [each for each in domain.counted if len(values_of(each)) <= MOST_CODES]
    known = {each.name: frozenset(values_of(each)) for each in coded}
    document: dict[str, Any] = {
        "@context": "http://www.w3.org/ns/csvw",
        "dc:title": domain.name if private else f"NOT PRIVATE: {domain.name}",
        "dc:description": "Tables of a release with differential privacy." if private else NOT_PRIVATE,
        "qb:codeList": [code_list(each, numbers[each.name]) for each in coded],
        "tables": [],
    }
    for name, tables, header in files:
        columns = _columns(tables[0], numbers, known) if len(tables) == 1 else _columns_of_many(header)
        title = tables[0].title if len(tables) == 1 else f"{len(tables)} tables, one below the other"
        document["tables"].append({"url": name, "dc:title": title, "tableSchema": {"columns": columns}})
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _columns(
    table: AnswerTable, numbers: Mapping[str, int], known: Mapping[str, frozenset[str]]
) -> list[dict[str, Any]]:
    taken: set[str] = set()
    columns = [_own(name, taken) for name in heading(private=table.private)]
    for name, axis, worded in table.label_columns:
        attribute, shown = table.columns[axis], table.shown_columns[axis]
        column: dict[str, Any] = {"name": variable(name, taken), "titles": guarded(name), "datatype": "string"}
        column |= {"dc:title": f"{shown}, in words" if worded else shown}
        if worded:
            column["propertyUrl"] = "skos:prefLabel"
        elif known.get(attribute, frozenset()).issuperset(table.axes[axis]):
            column["qb:codeList"] = {"@id": f"#attribute-{numbers[attribute]}"}
        columns.append(column)
    return [*columns, *(_own(name, taken) for name in table.header[len(table.label_columns) :])]


def _columns_of_many(header: Sequence[str]) -> list[dict[str, Any]]:
    taken: set[str] = set()
    return [_own(name, taken) for name in header]


def _own(name: str, taken: set[str]) -> dict[str, Any]:
    """A column of numbers or words that is ours."""
    column: dict[str, Any] = {"name": variable(name, taken), "titles": guarded(name)}
    column["datatype"] = "number" if name in NUMBERS else "string"
    if name in MEANINGS:
        column["dc:description"] = MEANINGS[name]
    return column


def check(text: str, folder: Path, *, private: bool) -> None:
    """Refuse metadata that do not have the form of CSVW, or that do not fit the CSV files beside them."""
    declared = Declaration(json.loads(text), NAME)
    if declared.raw("@context") != "http://www.w3.org/ns/csvw":
        declared.refuse("'@context' must be that of CSV on the Web")
    if private == declared.text("dc:title").startswith("NOT PRIVATE"):
        declared.refuse("the title must begin with NOT PRIVATE where the noise was simulated, and only there")
    described = set()
    for table in declared.tables("tables"):
        url = table.text("url")
        described.add(url)
        columns = table.table("tableSchema").tables("columns")
        names = [column.text("name") for column in columns]
        if len(set(names)) != len(names):
            table.refuse("two columns have one name")
        if any(column.text("datatype") not in ("number", "string") for column in columns):
            table.refuse("'datatype' must be number or string")
        if [column.text("titles") for column in columns] != first_line(folder / Path(url).name):
            table.refuse(f"its columns are not those of {url}")
    present = {each.name for each in folder.glob("*.csv")}
    if described != present:
        other = sorted(described ^ present)[0]
        declared.refuse(f"{other} is not both described and there; write the bundle anew")


def first_line(path: Path) -> list[str]:
    """The header of a CSV file; nothing where there is no such file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as stream:
        return next(csv.reader(stream), [])

"""SDMX-CSV 2.0 with its structures in SDMX-JSON 2.0: tables of places and times as statistical offices exchange them.

A table is exchanged where its place and its time are known. The place is an attribute that the domain declares to be a
geography, else the region of `publication.toml`; the time an attribute of dates, else its period. Every value of an
attribute is a code of a list; where it is no word of SDMX it gets one, and keeps its own words as the code's name.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from consilience.domain.attributes import Attribute, Hierarchy
from consilience.domain.dates import Date, span_of
from consilience.domain.declarations import Declaration, guarded
from consilience.publication.about import Period
from consilience.publication.metadata import csvw
from consilience.publication.metadata.facts import MARK, Facts

STRUCTURES = "structures.json"
SCHEMA = "https://raw.githubusercontent.com/sdmx-twg/sdmx-json/master/structure-message/tools/schemas/2.0.0/sdmx-json-structure-schema.json"
VERSION = "1.0.0"
MOST_ROWS = 200_000
"""Rows of all exchanged tables together; later ones are left out."""
STATUS = {"measured": "A", "public": "A", "modelled": "E", "not measured": "L"}
"""Observation status, by the code list that SDMX has for it: normal, estimated, not collected."""
UNRELIABLE = "U"
STATUS_NAMES = {
    "A": "Normal value",
    "E": "Estimated value",
    "L": "Missing value; data exist but were not collected",
    "U": "Low reliability",
}
OWN = {
    "REF_AREA": "Reference area",
    "TIME_PERIOD": "Time period",
    "OBS_VALUE": "Observation value",
    "OBS_STATUS": "Observation status",
    "LOWER_BOUND": "The lower end of the interval",
    "UPPER_BOUND": "The upper end of the interval",
    "BASIS": "What the value stands on",
    "COMMENT_DSET": "What is to be known of all values",
}
_WORD = re.compile(r"[^A-Za-z0-9_]+")


def word(text: str, taken: set[str], *, begins_with_letter: bool = False) -> str:
    """A word of SDMX for a text: letters, digits and `_`, unlike those that are taken.

    >>> word("Ferry Lane", set()), word("0..15", set()), word("1", set(), begins_with_letter=True)
    ('Ferry_Lane', '0_15', 'V1')
    """
    plain = _WORD.sub("_", text).strip("_")[:60] or "V"
    plain = f"V{plain}" if begins_with_letter and not plain[0].isalpha() else plain
    found, copy = plain, 2
    while found.casefold() in taken:
        found, copy = f"{plain}_{copy}", copy + 1
    taken.add(found.casefold())
    return found


def period_of(told: Period) -> str | None:
    """The period as SDMX writes it: a year, a month or a day, or a first day with the number of days.

    >>> period_of(Period("2024-01-01", "2024-12-31")), period_of(Period("2023", "2024")), period_of(Period("2024-05"))
    ('2024', '2023-01-01/P731D', None)
    """
    if told.start is None or told.end is None:
        return None
    first, last = span_of(told.start), span_of(told.end)
    if first is None or last is None:
        return None
    for text in (told.start, told.start[:7], told.start[:4]):
        whole = span_of(text)
        if whole is not None and whole[1:] == (first[1], last[2]):
            return text
    return f"{date.fromordinal(date(1970, 1, 1).toordinal() + first[1])}/P{last[2] - first[1]}D"


@dataclass(frozen=True)
class Codes:
    """The codes of an attribute's values."""

    attribute: Attribute
    component: str
    """What the dimension is called."""
    by_label: Mapping[str, str]

    @staticmethod
    def of(attribute: Attribute, taken: set[str]) -> "Codes":
        own: set[str] = set()
        words = {value: word(value, own) for value in csvw.values_of(attribute)}
        return Codes(attribute, word(attribute.name.upper(), taken, begins_with_letter=True), words)

    @property
    def is_time(self) -> bool:
        return isinstance(self.attribute, Date) and all(span_of(label) is not None for label in self.attribute.labels)

    @property
    def is_place(self) -> bool:
        return isinstance(self.attribute, Hierarchy) and self.attribute.geography

    def to_json(self) -> list[dict[str, Any]]:
        parents = dict(self.attribute.parents) if isinstance(self.attribute, Hierarchy) else {}
        found = []
        for value, code in self.by_label.items():
            part_of = {"parent": self.by_label[parents[value]]} if parents.get(value) in self.by_label else {}
            found.append({"id": code, "name": self.attribute.say(value)} | part_of)
        return found


@dataclass(frozen=True)
class Exchanged:
    """One table as it is exchanged: what its columns of values become, and what holds for all of its rows."""

    url: str
    title: str
    identifier: str
    columns: tuple[Codes, ...]
    """Of the columns of values, by their order."""
    places: tuple[int, ...]
    """Where these columns stand in the CSV file."""
    numbers: Mapping[str, int]
    """Where `estimate`, `low`, `high`, `basis`, `note` and others stand, as far as they are there."""
    fixed: Mapping[str, str]
    """Place and time, where no column says them."""

    @property
    def area(self) -> int | None:
        return next((place for place, each in enumerate(self.columns) if each.is_place), None)

    @property
    def time(self) -> int | None:
        return next((place for place, each in enumerate(self.columns) if each.is_time), None)

    @property
    def dimensions(self) -> list[tuple[str, int | None]]:
        """The dimensions but for time, in their order, with the column that each comes from."""
        others = [
            (each.component, place) for place, each in enumerate(self.columns) if place not in (self.area, self.time)
        ]
        return [("REF_AREA", self.area), *others]


def exchange(facts: Facts, directory: Path) -> dict[str, bytes]:
    """The files of the tables whose place and time are known; none where there is no such table."""
    names: set[str] = {name.casefold() for name in OWN}
    found = list(_exchanged(facts, directory, names))
    if not found:
        return {}
    agency = word(facts.publisher if facts.publication.publisher else "CONSILIENCE", set(), begins_with_letter=True)
    region = facts.publication.region.name if facts.publication.region is not None else None
    files = {STRUCTURES: _structures(facts, found, agency, region)}
    for each in found:
        files[each.url] = _data(each, directory / "tables", agency, private=facts.private)
    return files


def _exchanged(facts: Facts, directory: Path, names: set[str]) -> Iterator[Exchanged]:
    document = json.loads((directory / "tables" / csvw.NAME).read_text(encoding="utf-8"))
    codes = {
        f"#attribute-{number}": Codes.of(attribute, names)
        for number, attribute in enumerate(facts.domain.attributes, start=1)
        if attribute in facts.domain.counted
    }
    told, region = facts.publication.period, facts.publication.region
    period = None if told is None else period_of(told)
    identifiers: set[str] = set()
    rows = 0
    for table in document["tables"]:
        columns = table["tableSchema"]["columns"]
        coded = {place: codes[each["qb:codeList"]["@id"]] for place, each in enumerate(columns) if _is_coded(each)}
        if not all(_is_coded(each) or "propertyUrl" in each or _is_own(each) for each in columns):
            continue
        here = tuple(coded.values())
        fixed = {}
        if not any(each.is_place for each in here):
            if region is None:
                continue
            fixed["REF_AREA"] = word(region.name, set())
        if not any(each.is_time for each in here):
            if period is None:
                continue
            fixed["TIME_PERIOD"] = period
        rows += _lines(directory / "tables" / table["url"])
        if rows > MOST_ROWS:
            return
        where = {each["titles"]: place for place, each in enumerate(columns) if _is_own(each)}
        yield Exchanged(
            table["url"],
            table["dc:title"],
            word(Path(table["url"]).stem.upper(), identifiers, begins_with_letter=True),
            here,
            tuple(coded),
            where,
            fixed,
        )


def _is_coded(column: Mapping[str, Any]) -> bool:
    return "qb:codeList" in column


def _is_own(column: Mapping[str, Any]) -> bool:
    """True of a column of numbers or remarks."""
    return "dc:title" not in column and column["titles"] in (*csvw.NUMBERS, "basis", "note", MARK)


def _lines(path: Path) -> int:
    with path.open("rb") as stream:
        return sum(1 for _ in stream)


def _data(table: Exchanged, folder: Path, agency: str, *, private: bool) -> bytes:
    """The rows of a CSV file as SDMX-CSV."""
    bars = "low" in table.numbers
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    dimensions = table.dimensions
    attributes = ["OBS_STATUS", *(["LOWER_BOUND", "UPPER_BOUND"] if bars else []), "BASIS"]
    attributes += [] if private else ["COMMENT_DSET"]
    header = ["STRUCTURE", "STRUCTURE_ID", "ACTION", *(name for name, _ in dimensions)]
    writer.writerow([*header, "TIME_PERIOD", "OBS_VALUE", *attributes])
    start = ["datastructure", f"{agency}:DSD_{table.identifier}({VERSION})", "I"]
    written = [{guarded(label): code for label, code in each.by_label.items()} for each in table.columns]
    with (folder / table.url).open(encoding="utf-8", newline="") as lines:
        reader = csv.reader(lines)
        next(reader)
        for row in reader:
            codes = [known[row[place]] for known, place in zip(written, table.places, strict=True)]
            key = [table.fixed[name] if place is None else codes[place] for name, place in dimensions]
            time = table.fixed["TIME_PERIOD"] if table.time is None else row[table.places[table.time]]
            said = {name: row[place] for name, place in table.numbers.items()}
            status = UNRELIABLE if said.get("note") else STATUS[said["basis"]]
            ends = [said["low"], said["high"]] if bars else []
            comment = [] if private else [f"{MARK}: simulated noise"]
            writer.writerow([*start, *key, time, said["estimate"], status, *ends, said["basis"], *comment])
    return stream.getvalue().encode()


def _structures(facts: Facts, tables: Sequence[Exchanged], agency: str, region: str | None) -> bytes:
    """The code lists, the concepts, and a structure for each table."""
    used = {each.component: each for table in tables for each in table.columns}
    urn = f"{agency}:{{}}({VERSION})"
    lists = {f"CL_{name}": (each.attribute.heading, each.to_json()) for name, each in used.items() if not each.is_time}
    lists["CL_OBS_STATUS"] = ("Observation status", [{"id": key, "name": name} for key, name in STATUS_NAMES.items()])
    if region is not None and any("REF_AREA" in table.fixed for table in tables):
        lists["CL_REGION"] = ("Region", [{"id": word(region, set()), "name": region}])
    concepts = dict(OWN) | {name: each.attribute.heading for name, each in used.items()}
    shared = {"agencyID": agency, "version": VERSION}
    document = {
        "meta": {
            "schema": SCHEMA,
            "id": "structures",
            "prepared": facts.published,
            "test": not facts.private,
            "contentLanguages": [facts.publication.language or "en"],
            "sender": {"id": agency},
        },
        "data": {
            "codelists": [
                {"id": name, "name": title, "isPartial": False, "codes": codes} | shared
                for name, (title, codes) in lists.items()
            ],
            "conceptSchemes": [
                {
                    "id": "CS_RELEASE",
                    "name": facts.title,
                    "isPartial": False,
                    "concepts": [{"id": key, "name": name} for key, name in concepts.items()],
                }
                | shared
            ],
            "dataStructures": [
                {
                    "id": f"DSD_{table.identifier}",
                    "name": table.title if facts.private else f"{MARK}: {table.title}",
                    "dataStructureComponents": _components(table, urn, private=facts.private),
                }
                | shared
                for table in tables
            ],
        },
    }
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _components(table: Exchanged, urn: str, *, private: bool) -> dict[str, Any]:
    def component(name: str, representation: Mapping[str, Any]) -> dict[str, Any]:
        concept = "urn:sdmx:org.sdmx.infomodel.conceptscheme.Concept=" + urn.format("CS_RELEASE") + f".{name}"
        return {"id": name, "conceptIdentity": concept, "localRepresentation": dict(representation)}

    def listed(name: str) -> dict[str, str]:
        return {"enumeration": "urn:sdmx:org.sdmx.infomodel.codelist.Codelist=" + urn.format(name)}

    def lists_of(place: int | None) -> dict[str, str]:
        return listed("CL_REGION" if place is None else f"CL_{table.columns[place].component}")

    number, text = {"format": {"dataType": "Double"}}, {"format": {"dataType": "String"}}
    kinds: dict[str, Mapping[str, Any]] = {"OBS_STATUS": listed("CL_OBS_STATUS")}
    kinds |= {"LOWER_BOUND": number, "UPPER_BOUND": number} if "low" in table.numbers else {}
    kinds |= {"BASIS": text} | ({} if private else {"COMMENT_DSET": text})
    attributes = [
        component(name, kind) | {"attributeRelationship": {"observation": {}}} for name, kind in kinds.items()
    ]
    dimensions = [
        component(name, lists_of(place)) | {"position": number} for number, (name, place) in enumerate(table.dimensions)
    ]
    time = component("TIME_PERIOD", {"format": {"dataType": "ObservationalTimePeriod"}})
    return {
        "dimensionList": {"id": "DimensionDescriptor", "dimensions": dimensions, "timeDimension": time},
        "measureList": {"id": "MeasureDescriptor", "measures": [component("OBS_VALUE", number)]},
        "attributeList": {"id": "AttributeDescriptor", "attributes": attributes},
    }


def check(files: Mapping[str, str], facts: Facts) -> None:
    """Refuse SDMX files whose structures are not there, or whose rows are not of their structure."""
    if not files:
        return
    declared = Declaration(json.loads(files.get(STRUCTURES, "{}")), STRUCTURES)
    meta, data = declared.table("meta"), declared.table("data")
    if meta.flag("test") == facts.private:
        meta.refuse("'test' must be true where the noise was simulated, and only there")
    known = {each.text("id"): {code.text("id") for code in each.tables("codes")} for each in data.tables("codelists")}
    structures = {}
    for each in data.tables("dataStructures"):
        components = each.table("dataStructureComponents")
        dimensions = components.table("dimensionList").tables("dimensions")
        codes = {one.text("id"): known[_named(one)] for one in dimensions}
        structures[f"{each.text('agencyID')}:{each.text('id')}({each.text('version')})"] = codes
    for name, text in files.items():
        if name == STRUCTURES:
            continue
        rows = list(csv.DictReader(io.StringIO(text)))
        identifier = rows[0]["STRUCTURE_ID"] if rows else ""
        if identifier not in structures:
            declared.refuse(f"{name} is of the structure {identifier!r}, which is not there")
        for row in rows:
            for dimension, codes in structures[identifier].items():
                if row.get(dimension) not in codes:
                    declared.refuse(f"{name}: {row.get(dimension)!r} is no code of {dimension}")


def _named(component: Declaration) -> str:
    urn = component.table("localRepresentation").text("enumeration")
    return urn.partition("=")[2].partition(":")[2].partition("(")[0]

"""Croissant 1.0 (MLCommons): what a file of synthetic records holds, beside it as `people.csv.croissant.json`."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from consilience.domain.declarations import Declaration
from consilience.errors import ConsilienceError, FileFormatError
from consilience.measurements.measurement_set import NOT_PRIVATE
from consilience.publication.about import Publication
from consilience.publication.answers import heading

if TYPE_CHECKING:
    import pyarrow as pa

    from consilience.estimators import Estimate

ENDING = ".croissant.json"
MARK = "NOT PRIVATE"
CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
FORMATS = {".csv": "text/csv", ".parquet": "application/x-parquet"}

_OWN_WORDS = (
    "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet", "format",
    "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex",
    "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
} | {word: f"cr:{word}" for word in _OWN_WORDS}
"""The words of Croissant, as its specification has them."""


def path_beside(records: Path) -> Path:
    """Where the description of a file of records lies."""
    return records.with_name(records.name + ENDING)


def description(
    estimate: "Estimate",
    schema: "pa.Schema",
    columns: tuple[str, ...],
    records: Path,
    *,
    publication: Publication,
    seed: int,
) -> bytes:
    """The description of a file that is written: `columns` are what its columns of `schema` are called in it."""
    name = f"{publication.title or estimate.domain.name}: synthetic records"
    said = [] if estimate.private else [NOT_PRIVATE]
    said += [publication.description] if publication.description else []
    said.append(
        "Synthetic records: nobody in them exists. They were drawn from an estimate that was fitted to noisy "
        f"measurements, with the public seed {seed}. {estimate.measurements.privacy.describe()}"
        if estimate.private
        else f"Synthetic records, drawn from an estimate that was fitted to simulated measurements; seed {seed}."
    )
    created = estimate.measurements.provenance.get("created")
    document: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": name if estimate.private else f"{MARK}: {name}",
        "description": "\n".join(said),
        "citeAs": f"{publication.publisher.name}: {name}" if publication.publisher is not None else name,
        "version": "1.0.0",
        "isLiveDataset": False,
    }
    document |= {"datePublished": created[:10]} if isinstance(created, str) else {}
    document |= _publisher(publication)
    file = {
        "@type": "cr:FileObject",
        "@id": "records-file",
        "name": records.name,
        "contentUrl": quote(records.name),
        "encodingFormat": FORMATS[records.suffix.lower()],
        "sha256": _digest(records),
    }
    marks = heading(private=estimate.private) if records.suffix.lower() == ".csv" else []
    fields = [_field(mark, mark, "sc:Text", "The noise was simulated.") for mark in marks]
    for name, written, kind in zip(schema.names, columns, schema.types, strict=True):
        fields.append(_field(name, written, _type(kind), estimate.domain[name].heading))
    record_set = {"@type": "cr:RecordSet", "@id": "records", "name": "records", "field": fields}
    text = json.dumps(document | {"distribution": [file], "recordSet": [record_set]}, indent=1, ensure_ascii=False)
    return (text + "\n").encode()


def _publisher(publication: Publication) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if publication.publisher is not None:
        told["creator"] = {"@type": "sc:Organization", "name": publication.publisher.name}
        if publication.publisher.url is not None:
            told["creator"]["url"] = told["url"] = publication.publisher.url
    if publication.licence is not None:
        told["license"] = publication.licence.url or publication.licence.name
    if publication.keywords:
        told["keywords"] = list(publication.keywords)
    return told


def _field(name: str, column: str, kind: str, meaning: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"records/{quote(name, safe='')}",
        "name": name,
        "description": meaning,
        "dataType": kind,
        "source": {"fileObject": {"@id": "records-file"}, "extract": {"column": column}},
    }


def _type(kind: "pa.DataType") -> str:
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return "sc:Integer"
    return "sc:Float" if pa.types.is_floating(kind) else "sc:Text"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(path: Path) -> bool:
    """Whether the noise of the records was real; a description that is broken, or not of its file, is refused."""
    try:
        declared = Declaration(json.loads(path.read_text(encoding="utf-8")), path.name)
        if declared.text("conformsTo") != CONFORMS_TO:
            declared.refuse(f"it must conform to {CONFORMS_TO}")
        name, (file,), (records,) = declared.text("name"), declared.tables("distribution"), declared.tables("recordSet")
        columns = [each.table("source").table("extract").text("column") for each in records.tables("field")]
        described = path.with_name(unquote(file.text("contentUrl")))
        if not described.is_file() or _digest(described) != file.text("sha256"):
            declared.refuse(f"{described.name} is not the file that it describes")
        if described.suffix.lower() == ".csv":
            from consilience.publication.metadata.csvw import first_line

            if columns != first_line(described):
                declared.refuse(f"its columns are not those of {described.name}")
    except (ConsilienceError, OSError, ValueError, RecursionError) as error:
        raise FileFormatError(f"the metadata {path} are broken: {error}; write the records anew") from None
    return not name.startswith(MARK)

"""DCAT-AP 3 with PROV, as JSON-LD: the release as an entry of a data catalogue, and where it comes from.

    ledger ──► measuring ──► measurements.parquet ──► estimating ──► model.parquet ──► tables
    (what was spent)         (noise was added)        (nothing is spent)

The confidential table is there as an entity without a name or a place. Every file of the bundle is a distribution with
its checksum. Addresses are relative to the file, so that they hold wherever the bundle is published.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from consilience.domain.declarations import Declaration
from consilience.publication.about import Named
from consilience.publication.metadata.facts import MARK, Facts

CONTEXT = {
    "adms": "http://www.w3.org/ns/adms#",
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "dpv": "https://w3id.org/dpv#",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "owl": "http://www.w3.org/2002/07/owl#",
    "prov": "http://www.w3.org/ns/prov#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "spdx": "http://spdx.org/rdf/terms#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
MEDIA_TYPES = {
    ".csv": "text/csv",
    ".html": "text/html",
    ".json": "application/json",
    ".jsonld": "application/ld+json",
    ".parquet": "application/vnd.apache.parquet",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".yaml": "application/yaml",
}
"""By the names that IANA gives them."""
MEANINGS = {
    "domain.toml": "The public description of the table: attributes and the values that they may have",
    "explorer.html": "A page to explore the release in a browser",
    "measurements.parquet": "The noisy measurements",
    "model.parquet": "The estimate",
    "publication.toml": "Who publishes the release",
    "refits.parquet": "Refits that error bars rest on",
    "report.html": "The report of the release",
}
LANGUAGES = "http://publications.europa.eu/resource/authority/language/"
LANGUAGE_CODES = {
    "bg": "BUL", "cs": "CES", "da": "DAN", "de": "DEU", "el": "ELL", "en": "ENG", "es": "SPA", "et": "EST",
    "fi": "FIN", "fr": "FRA", "ga": "GLE", "hr": "HRV", "hu": "HUN", "is": "ISL", "it": "ITA", "ja": "JPN",
    "ko": "KOR", "lt": "LIT", "lv": "LAV", "mt": "MLT", "nl": "NLD", "no": "NOR", "pl": "POL", "pt": "POR",
    "ro": "RON", "sk": "SLK", "sl": "SLV", "sv": "SWE", "tr": "TUR", "uk": "UKR", "zh": "ZHO",
}  # fmt: skip
"""Codes of the authority table of languages, by those of ISO 639-1."""


def catalogue_entry(facts: Facts, directory: Path, files: Mapping[str, str]) -> bytes:
    """The entry as JSON-LD; `files` are those of the bundle with their checksums, without this one."""
    nodes = [_dataset(facts, files), *(_distribution(facts, directory, *each) for each in files.items())]
    nodes += [*_people(facts), *_history(facts)]
    text = json.dumps({"@context": CONTEXT, "@graph": nodes}, indent=1, ensure_ascii=False)
    return (text + "\n").encode()


def _dataset(facts: Facts, files: Mapping[str, str]) -> dict[str, Any]:
    told = facts.publication
    privacy = facts.privacy
    node: dict[str, Any] = {
        "@id": "#dataset",
        "@type": ["dcat:Dataset", "prov:Entity"],
        "dct:title": _text(facts, facts.title),
        "dct:description": _text(facts, facts.description),
        "dct:identifier": facts.manifest["files"]["measurements.parquet"],
        "dct:issued": _time(facts.published),
        "dcat:keyword": list(told.keywords) or ["differential privacy"],
        "dct:accessRights": {
            "@id": "http://publications.europa.eu/resource/authority/access-right/PUBLIC",
            "@type": "dct:RightsStatement",
        },
        "dct:provenance": {"@type": "dct:ProvenanceStatement", "rdfs:label": facts.promise},
        "prov:wasGeneratedBy": {"@id": "#estimating"},
        "dcat:distribution": [{"@id": _address(name)} for name in files],
    }
    if told.publisher is not None:
        node["dct:publisher"] = {"@id": "#publisher"}
    if told.contact is not None:
        node["dcat:contactPoint"] = {"@id": "#contact"}
    if told.period is not None:
        ends = {"dcat:startDate": told.period.start, "dcat:endDate": told.period.end}
        days = {key: _day(text) for key, text in ends.items() if text is not None}
        node["dct:temporal"] = {"@type": "dct:PeriodOfTime"} | days
    if told.region is not None:
        node["dct:spatial"] = _concept(told.region, "dct:Location", "skos:prefLabel")
    if (code := LANGUAGE_CODES.get((told.language or "")[:2])) is not None:
        node["dct:language"] = {"@id": LANGUAGES + code, "@type": "dct:LinguisticSystem"}
    if told.intended_use is not None:
        node["skos:scopeNote"] = _text(facts, told.intended_use)
    if facts.private and privacy.spent is not None:
        node["dpv:hasTechnicalMeasure"] = {"@id": "dpv:DifferentialPrivacy"}
    return node


def _distribution(facts: Facts, directory: Path, name: str, digest: str) -> dict[str, Any]:
    path, told = directory / name, facts.publication
    node: dict[str, Any] = {
        "@id": _address(name),
        "@type": ["dcat:Distribution", "prov:Entity"],
        "dct:title": MEANINGS.get(name, name),
        "dcat:accessURL": {"@id": _address(name), "@type": "rdfs:Resource"},
        "dcat:downloadURL": {"@id": _address(name), "@type": "rdfs:Resource"},
        "dcat:byteSize": {"@value": str(path.stat().st_size), "@type": "xsd:nonNegativeInteger"},
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256", "@type": "spdx:ChecksumAlgorithm"},
            "spdx:checksumValue": {"@value": digest, "@type": "xsd:hexBinary"},
        },
    }
    if (media := MEDIA_TYPES.get(path.suffix)) is not None:
        iana = f"https://www.iana.org/assignments/media-types/{media}"
        node["dcat:mediaType"] = {"@id": iana, "@type": "dct:MediaType"}
    if told.licence is not None:
        node["dct:license"] = _concept(told.licence, "dct:LicenseDocument", "dct:title")
    if name == "measurements.parquet":
        node["prov:wasGeneratedBy"] = {"@id": "#measuring"}
    elif name == "model.parquet" or name.startswith("tables/"):
        node["prov:wasGeneratedBy"] = {"@id": "#estimating"}
        node["prov:wasDerivedFrom"] = {"@id": _address("measurements.parquet")}
    return node


def _people(facts: Facts) -> list[dict[str, Any]]:
    told, nodes = facts.publication, []
    if told.publisher is not None:
        agent: dict[str, Any] = {"@id": "#publisher", "@type": ["foaf:Agent", "prov:Agent"]}
        nodes.append(agent | {"foaf:name": told.publisher.name})
        if told.publisher.url is not None:
            nodes[-1]["foaf:homepage"] = {"@id": told.publisher.url, "@type": "foaf:Document"}
    if told.contact is not None:
        card: dict[str, Any] = {"@id": "#contact", "@type": "vcard:Kind"}
        card["vcard:fn"] = told.contact.name or facts.publisher
        if told.contact.email is not None:
            card["vcard:hasEmail"] = {"@id": f"mailto:{told.contact.email}"}
        if told.contact.url is not None:
            card["vcard:hasURL"] = {"@id": told.contact.url}
        nodes.append(card)
    software = {"@id": "#software", "@type": ["prov:SoftwareAgent", "prov:Agent"], "foaf:name": facts.tool}
    return [*nodes, software]


def _history(facts: Facts) -> list[dict[str, Any]]:
    """From what the ledger paid for to the model: who did what, when, with which budget."""
    provenance = facts.manifest["provenance"]
    responsible = [{"@id": "#software"}, *([{"@id": "#publisher"}] if facts.publication.publisher is not None else [])]
    plan = f" by the plan {facts.plan!r}" if facts.plan is not None else ""
    measuring: dict[str, Any] = {
        "@id": "#measuring",
        "@type": "prov:Activity",
        "rdfs:label": f"Measured with noise{plan}" if facts.private else f"{MARK}: simulated{plan}",
        "rdfs:comment": facts.promise,
        "prov:used": [{"@id": "#confidential"}],
        "prov:wasAssociatedWith": responsible,
    }
    if facts.measured is not None:
        measuring["prov:endedAtTime"] = _time(facts.measured)
    nodes = [measuring]
    if provenance.get("ledger") is not None and facts.private:
        measuring["prov:used"].append({"@id": "#ledger"})
        paid = f"The ledger that paid for it, {provenance['ledger']}, and its entry {provenance.get('release')}"
        nodes.append({"@id": "#ledger", "@type": "prov:Entity", "rdfs:label": paid})
    hidden = "The confidential table. It is not published."
    estimating = {
        "@id": "#estimating",
        "@type": "prov:Activity",
        "rdfs:label": f"Estimated by {facts.manifest['method'].get('method')}, which spends nothing",
        "prov:used": [{"@id": _address("measurements.parquet")}, {"@id": _address("domain.toml")}],
        "prov:wasInformedBy": {"@id": "#measuring"},
        "prov:wasAssociatedWith": responsible,
        "prov:endedAtTime": _time(facts.published),
    }
    return [*nodes, {"@id": "#confidential", "@type": "prov:Entity", "rdfs:label": hidden}, estimating]


def _text(facts: Facts, text: str) -> dict[str, str] | str:
    """A text with its language, where that is known."""
    language = facts.publication.language
    return text if language is None else {"@value": text, "@language": language}


def _concept(named: Named, kind: str, label: str) -> dict[str, Any]:
    return ({} if named.url is None else {"@id": named.url}) | {"@type": kind, label: named.name}


def _time(text: str) -> dict[str, str]:
    return {"@value": text, "@type": "xsd:dateTime"}


def _day(text: str) -> dict[str, str]:
    return {"@value": text, "@type": {4: "xsd:gYear", 7: "xsd:gYearMonth"}.get(len(text), "xsd:date")}


def _address(name: str) -> str:
    """The address of a file of the bundle, from the folder of the metadata."""
    return f"../{quote(name)}"


def check(text: str, facts: Facts, files: Mapping[str, str]) -> None:
    """Refuse an entry that lacks what DCAT-AP asks for, or that names other files than the bundle has."""
    declared = Declaration(json.loads(text), "dcat.jsonld")
    declared.table("@context")
    nodes = {node.text("@id"): node for node in declared.tables("@graph")}
    if "#dataset" not in nodes:
        declared.refuse("there is no dataset in it")
    dataset = nodes["#dataset"]
    for key in ("dct:title", "dct:description"):
        said = dataset.raw(key)
        words = said.get("@value") if isinstance(said, Mapping) else said
        if not isinstance(words, str) or not words.strip():
            dataset.refuse(f"{key!r} must be a text")
        if facts.private == words.startswith(MARK):
            dataset.refuse(f"{key!r} must begin with {MARK!r} where the noise was simulated, and only there")
    listed = {each.text("@id") for each in dataset.tables("dcat:distribution")}
    if listed != {_address(name) for name in files}:
        other = sorted(listed ^ {_address(name) for name in files})[0]
        dataset.refuse(f"{other} is not both a distribution and a file of the bundle")
    for name, digest in files.items():
        if _address(name) not in nodes:
            declared.refuse(f"{name} is not described")
        distribution = nodes[_address(name)]
        distribution.table("dcat:accessURL").text("@id")
        found = distribution.table("spdx:checksum").table("spdx:checksumValue").text("@value")
        if found != digest:
            distribution.refuse(f"its checksum is {found}, and that of {name} is {digest}")
    for missing in sorted(set(_referred(json.loads(text)["@graph"])) - nodes.keys()):
        declared.refuse(f"it refers to {missing}, which is not there")
    for activity in ("#measuring", "#estimating"):
        if activity not in nodes or nodes[activity].text("@type") != "prov:Activity":
            declared.refuse(f"the activity {activity} is missing")


def _referred(value: Any) -> Iterator[str]:
    """The nodes of this file that it refers to."""
    if isinstance(value, Mapping):
        if str(value.get("@id")).startswith("#"):
            yield value["@id"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _referred(each)

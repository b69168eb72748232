"""Metadata of a bundle: readers of other people take them, they say what it says, and broken ones are refused."""

import csv
import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Attribute, Date, Domain
from consilience.errors import FileFormatError
from consilience.estimators import estimate
from consilience.file_checks import check
from consilience.measurements import DiscreteLaplace, MeasurementSet
from consilience.publication import open_release, write_bundle, write_synthetic
from consilience.publication.about import Contact, Named, Period, Publication
from consilience.publication.bundle import add_to_bundle
from consilience.publication.metadata import deployments, sdmx
from consilience.publication.report import report

STANDARDS = os.environ.get("CONSILIENCE_STANDARDS")
"""A folder with `deployments-schema.yaml` of the registry's data and `dcat-ap-SHACL.ttl` of DCAT-AP 3.0.1."""

TOLD = Publication(
    title="Population of the town, 2024",
    description="Counts of people.",
    publisher=Named("Statistical Office", "https://example.org/"),
    contact=Contact("Information desk", "desk@example.org", "https://example.org/desk"),
    period=Period("2024-01-01", "2024-12-31"),
    region=Named("Springfield", "https://www.geonames.org/4409896/"),
    licence=Named("CC-BY-4.0", "https://creativecommons.org/licenses/by/4.0/"),
    intended_use="Planning of schools.",
    language="en",
    keywords=("population",),
)
HOSTILE = "=1+2 \"a\" | ü-~_x: {'b'}"

DOMAIN = Domain(
    "town",
    (
        Attribute.categorical("sex", ["1", "2"]).worded(title="Sex", labels={"1": "Female", "2": "Male"}),
        Attribute.hierarchy("place", {"Harbour": "North", "Hill": "North", "Mill": "South"}, levels=["Half", "Ward"],
                            geography=True),
        Date.between("seen", "2024-01", "2024-03", "month"),
        Attribute.categorical(HOSTILE, ["=cmd|' /C calc'!A0", "estimate", "a\"b,c", "ß"]),
        Attribute.categorical("estimate", ["yes", "no"]),
    ),
)  # fmt: skip


def fitted(*, private: bool = True):
    rng = np.random.default_rng(5)
    sets = ["sex", "place", "seen", HOSTILE, "estimate", ("sex", "place"), ("place", "seen"), (HOSTILE, "estimate")]
    noisy = {key: rng.normal(50, 20, DOMAIN.sizes((key,) if isinstance(key, str) else key)).round() for key in sets}
    measured = MeasurementSet.from_marginals(DOMAIN, noisy, noise=DiscreteLaplace(3.0), spent={"epsilon": "0.5"})
    return estimate(measured if private else replace(measured, private=False), allow_misfit=True)


@pytest.fixture(scope="module", params=[True, False], ids=["private", "simulated"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("metadata") / "release"
    return write_bundle(fitted(private=request.param), place, interval=0.9, refits=20, publication=TOLD)


def private(bundle: Path) -> bool:
    return bool(json.loads((bundle / "release.json").read_text(encoding="utf-8"))["private"])


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_a_bundle_and_each_file_of_it_pass_the_check(bundle: Path) -> None:
    assert check(bundle).private == private(bundle)
    for path in (bundle / "metadata").rglob("*.*"):
        assert check(path).kind in ("part of a release bundle", "comma-separated table")


def test_the_same_files_have_the_same_metadata(bundle: Path, tmp_path: Path) -> None:
    def metadata() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (copy / "metadata").rglob("*.*")}

    copy = tmp_path / "release"
    shutil.copytree(bundle, copy)
    before = metadata()
    add_to_bundle(copy, {"report.html": b"<p>1</p>"}, about={})
    with_report = metadata()
    assert {name for name in before if before[name] != with_report[name]} == {"dcat.jsonld"}
    add_to_bundle(copy, {"report.html": b"<p>2</p>"}, about={}, in_place_of=("report.html",))
    assert metadata()["dcat.jsonld"] != with_report["dcat.jsonld"]
    add_to_bundle(copy, {}, about={}, in_place_of=("report.html",))
    assert metadata() == before


def test_a_simulated_release_is_marked_everywhere(bundle: Path) -> None:
    files = ["metadata/dcat.jsonld", "metadata/deployment.yaml", "tables/csv-metadata.json"]
    files += [f"metadata/sdmx/{path.name}" for path in (bundle / "metadata" / "sdmx").iterdir()]
    for name in files:
        assert ("NOT PRIVATE" in text(bundle / name)) != private(bundle), name
    entry = deployments.read(text(bundle / "metadata" / "deployment.yaml"))
    assert ("privacy_loss" in entry["deployment"]) == private(bundle)


@pytest.mark.slow
def test_corrections_of_the_publisher_reach_the_metadata(tmp_path: Path) -> None:
    made = write_bundle(fitted(), tmp_path / "release")
    assert not (made / "metadata" / "sdmx" / "sex.csv").exists()  # nobody said of what place and time
    report(made, refits=20, publication=TOLD)
    assert "Population of the town, 2024" in text(made / "metadata" / "dcat.jsonld")
    assert (made / "metadata" / "sdmx" / "sex.csv").exists()
    assert check(made).private


def test_nothing_of_the_source_is_told(bundle: Path) -> None:
    for path in (bundle / "metadata").rglob("*.*"):
        for secret in ("source", os.environ.get("USER") or "no user", str(Path.cwd())):
            assert f'"{secret}"' not in text(path)


def test_what_the_publisher_did_not_say_is_called_so(tmp_path: Path) -> None:
    entry = deployments.read(text(write_bundle(fitted(), tmp_path / "release") / "metadata" / "deployment.yaml"))
    assert entry["deployment"]["basic"]["intended_use"] == "not stated"
    assert entry["tier"] == 1


# ----------------------------------------------------------------------------------------------------------------------
# What `check` refuses.


def replaced(bundle: Path, name: str, old: str, new: str, place: Path) -> Path:
    """A copy of the bundle with a changed file whose checksum was changed, too."""
    shutil.copytree(bundle, place)
    before = text(place / name)
    assert old in before
    (place / name).write_text(before.replace(old, new, 1), encoding="utf-8")
    manifest = json.loads(text(place / "release.json"))
    manifest["files"][name] = hashlib.sha256((place / name).read_bytes()).hexdigest()
    (place / "release.json").write_text(json.dumps(manifest), encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tables/csv-metadata.json", '"url": "sex.csv"', '"url": "sexes.csv"'),
        ("tables/csv-metadata.json", '"titles": "sex"', '"titles": "gender"'),
        ("tables/csv-metadata.json", '"datatype": "number"', '"datatype": "numbr"'),
        ("tables/csv-metadata.json", "{", "["),
        ("tables/csv-metadata.json", "NOT PRIVATE", "Private"),
        ("metadata/dcat.jsonld", '"dct:title"', '"dct:titel"'),
        ("metadata/dcat.jsonld", '"dcat:accessURL"', '"dcat:url"'),
        ("metadata/dcat.jsonld", '"#measuring"', '"#measured"'),
        ("metadata/dcat.jsonld", "../model.parquet", "../modal.parquet"),
        ("metadata/dcat.jsonld", "NOT PRIVATE", "Private"),
        ("metadata/deployment.yaml", "tier: ", "tier: 7"),
        ("metadata/deployment.yaml", "  intended_use", "  use"),
        ("metadata/deployment.yaml", "epsilon: 0.5", "epsilon: 0.1"),
        ("metadata/deployment.yaml", "NOT PRIVATE", "Private"),
        ("metadata/deployment.yaml", "deployment:", "deployment"),
        ("metadata/sdmx/structures.json", '"id": "Harbour"', '"id": "Harbor"'),
        ("metadata/sdmx/structures.json", '"test": true', '"test": false'),
        ("metadata/sdmx/sex-place.csv", ",Harbour,", ",Harbor,"),
        ("metadata/sdmx/sex-place.csv", "DSD_SEX_PLACE(", "DSD_SEX(2"),
    ],
)
def test_broken_metadata_are_refused(bundle: Path, tmp_path: Path, name: str, old: str, new: str) -> None:
    if old not in text(bundle / name):
        assert ("PRIVATE" in old or "true" in old) == private(bundle)
        return
    with pytest.raises(FileFormatError, match=r"metadata|cannot be read|differs"):
        check(replaced(bundle, name, old, new, tmp_path / "changed"))


# ----------------------------------------------------------------------------------------------------------------------
# Other people's readers.


def test_a_reader_of_csv_on_the_web_takes_every_table(bundle: Path) -> None:
    csvw = pytest.importorskip("csvw")
    path = bundle / "tables" / "csv-metadata.json"
    assert csvw.CSVW(str(path)).is_valid
    group = csvw.TableGroup.from_file(path)
    assert {str(table.url) for table in group.tables} == {each["url"] for each in json.loads(text(path))["tables"]}
    for table in group.tables:
        rows = list(table.iterdicts(strict=True))
        with (bundle / "tables" / str(table.local_name)).open(encoding="utf-8", newline="") as stream:
            plain = list(csv.reader(stream))[1:]
        assert len(rows) == len(plain)
        numbers = [column.name for column in table.tableSchema.columns if column.datatype.base == "number"]
        assert "estimate" in numbers or "estimate.2" in numbers
        for row in rows:
            assert all(row[name] is None or isinstance(float(row[name]), float) for name in numbers)


@pytest.mark.slow
def test_a_reader_of_sdmx_takes_structures_and_data(bundle: Path) -> None:
    io = pytest.importorskip("pysdmx.io")
    structures = bundle / "metadata" / "sdmx" / "structures.json"
    assert io.read_sdmx(structures).structures
    files = sorted((bundle / "metadata" / "sdmx").glob("*.csv"))
    assert {"sex-place.csv", "place-seen.csv", "sex.csv"} <= {path.name for path in files}
    for path in files:
        (data,) = io.get_datasets(path, structures)
        dimensions = {each.id: each for each in data.structure.components.dimensions}
        assert {"REF_AREA", "TIME_PERIOD"} <= dimensions.keys() <= set(data.data.columns)
        for name, each in dimensions.items():
            if each.enumeration is not None:
                assert set(data.data[name]) <= {code.id for code in each.enumeration.codes}
        assert not data.data[list(dimensions)].duplicated().any()
    (places,) = io.get_datasets(files[[path.name for path in files].index("place-seen.csv")], structures)
    assert set(places.data["TIME_PERIOD"]) == {"2024-01", "2024-02", "2024-03"}
    (codes,) = (each for each in io.read_sdmx(structures).structures if each.id == "CL_PLACE")
    assert {"North", "South", "Harbour"} <= {code.id for code in codes.codes}


@pytest.mark.slow
def test_the_shapes_of_dcat_ap_hold(bundle: Path) -> None:
    rdflib, pyshacl = pytest.importorskip("rdflib"), pytest.importorskip("pyshacl")
    path = bundle / "metadata" / "dcat.jsonld"
    graph = rdflib.Graph().parse(path, format="json-ld", publicID=path.as_uri())
    dcat, prov = rdflib.Namespace("http://www.w3.org/ns/dcat#"), rdflib.Namespace("http://www.w3.org/ns/prov#")
    model = rdflib.URIRef((bundle / "model.parquet").as_uri())
    measured = rdflib.URIRef((bundle / "measurements.parquet").as_uri())
    assert (model, prov.wasDerivedFrom, measured) in graph
    (measuring,) = graph.objects(measured, prov.wasGeneratedBy)
    assert list(graph.objects(measuring, prov.used))
    described = {str(each) for each in graph.subjects(rdflib.RDF.type, dcat.Distribution)}
    files = {path for path in bundle.rglob("*") if path.is_file()} - {path, bundle / "release.json"}
    assert described == {each.as_uri() for each in files}
    shapes = Path(STANDARDS) / "dcat-ap-SHACL.ttl" if STANDARDS else SHAPES
    conforms, _, words = pyshacl.validate(graph, shacl_graph=str(shapes), shacl_graph_format="turtle")
    assert conforms, words
    graph.remove((None, rdflib.DCTERMS.title, None))
    assert not pyshacl.validate(graph, shacl_graph=str(shapes), shacl_graph_format="turtle")[0]


SHAPES = """
@prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix dcat: <http://www.w3.org/ns/dcat#> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix vcard: <http://www.w3.org/2006/vcard/ns#> .
@prefix spdx: <http://spdx.org/rdf/terms#> .

[] a sh:NodeShape ; sh:targetClass dcat:Dataset ;
  sh:property [ sh:path dct:title ; sh:minCount 1 ; sh:nodeKind sh:Literal ] ,
    [ sh:path dct:description ; sh:minCount 1 ; sh:nodeKind sh:Literal ] ,
    [ sh:path dct:publisher ; sh:maxCount 1 ; sh:class foaf:Agent ] ,
    [ sh:path dcat:contactPoint ; sh:class vcard:Kind ] ,
    [ sh:path dcat:distribution ; sh:minCount 1 ; sh:class dcat:Distribution ] ,
    [ sh:path dct:temporal ; sh:class dct:PeriodOfTime ] ,
    [ sh:path dct:spatial ; sh:class dct:Location ] .
[] a sh:NodeShape ; sh:targetClass dcat:Distribution ;
  sh:property [ sh:path dcat:accessURL ; sh:minCount 1 ; sh:nodeKind sh:IRI ] ,
    [ sh:path dct:license ; sh:maxCount 1 ; sh:class dct:LicenseDocument ] ,
    [ sh:path spdx:checksum ; sh:maxCount 1 ; sh:class spdx:Checksum ] .
"""
"""What DCAT-AP 3 demands of these classes, where its own shapes are not at hand."""


def test_the_registry_takes_the_entry(bundle: Path) -> None:
    yaml = pytest.importorskip("yaml")
    entry = yaml.safe_load(text(bundle / "metadata" / "deployment.yaml"))
    assert entry == deployments.read(text(bundle / "metadata" / "deployment.yaml"))
    assert text(bundle / "metadata" / "deployment.yaml").startswith("url_slug: " + entry["url_slug"] + "\n")
    if STANDARDS:
        jsonschema = pytest.importorskip("jsonschema")
        schema = yaml.safe_load(text(Path(STANDARDS) / "deployments-schema.yaml"))
        jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker()).validate(entry)


def test_texts_of_an_entry_are_read_back(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    told = {"a": {"b": 'ü "x": #\n- y\t\\', "c": [": ", "- "], "d": {"e": 1e-9, "f": 2, "g": 0.5}}, "h": "\U0001f600"}
    assert yaml.safe_load(deployments.write(told)) == deployments.read(deployments.write(told)) == told


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_reader_of_croissant_loads_synthetic_records(bundle: Path, tmp_path: Path, ending: str) -> None:
    made = write_synthetic(open_release(bundle), tmp_path / f"people.{ending}", 50)
    about = tmp_path / f"people.{ending}.croissant.json"
    assert check(about).private == private(bundle)
    mlcroissant = pytest.importorskip("mlcroissant")
    dataset = mlcroissant.Dataset(jsonld=str(about))
    assert not dataset.metadata.issues.errors
    rows = list(dataset.records("records"))
    assert len(rows) == 50
    names = {f"records/{name}" for name in ("sex", "place", "seen", "estimate")}
    assert names <= rows[0].keys()
    made.write_bytes(made.read_bytes() + b"\n")
    with pytest.raises(FileFormatError, match="is not the file that it describes"):
        check(about)


@pytest.mark.parametrize(
    ("start", "end", "written"),
    [
        ("2024", "2024", "2024"),
        ("2024-01-01", "2024-12-31", "2024"),
        ("2024-02", "2024-02-29", "2024-02"),
        ("2024-05-01", "2024-05-01", "2024-05-01"),
        ("2024-05-01", "2024-05-02", "2024-05-01/P2D"),
        ("2024", None, None),
    ],
)
def test_a_period_as_sdmx_writes_it(start: str | None, end: str | None, written: str | None) -> None:
    assert sdmx.period_of(Period(start, end)) == written

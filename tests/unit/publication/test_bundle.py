"""The release bundle: whole or not at all, checked when opened, and free of what must stay."""

import csv
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Attribute, Domain, Query, factors
from consilience.errors import ConsilienceError, FileFormatError
from consilience.estimators import Residual, estimate
from consilience.measurements import Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.publication import answer_table, bundle, open_release, write_bundle
from consilience.publication.bundle import check_bundle

DOMAIN = Domain(
    "people",
    (
        Attribute.numeric("age", [0, 18, 65, 100], missing="Unknown"),
        Attribute.categorical("a/b: odd name", ["F", "M"]),
    ),
)


@pytest.fixture
def fitted():
    table = {("age", "a/b: odd name"): np.arange(8.0).reshape(4, 2), "age": [1.0, 5.0, 9.0, 13.0]}
    return estimate(MeasurementSet.from_marginals(DOMAIN, table, noise=Laplace(1.0)))


def test_a_bundle_opens_to_the_same_estimate(fitted, tmp_path: Path) -> None:
    path = write_bundle(fitted, tmp_path / "deep" / "release")
    opened = open_release(path).estimate
    assert np.array_equal(opened.marginal(*DOMAIN.names), fitted.marginal(*DOMAIN.names))
    assert opened.status == fitted.status
    assert dict(opened.method) == dict(fitted.method)
    assert opened.domain == DOMAIN
    assert [m.values.tolist() for m in opened.measurements] == [m.values.tolist() for m in fitted.measurements]


def test_tables_hold_labels_estimates_and_noisy_values(fitted, tmp_path: Path) -> None:
    path = write_bundle(fitted, tmp_path / "release")
    names = sorted(each.name for each in (path / "tables").glob("*.csv"))
    assert "age.csv" in names
    assert "total.csv" in names
    lines = (path / "tables" / "age.csv").read_text().splitlines()
    assert lines[0] == "age,estimate,noisy,basis"
    assert [line.split(",")[0] for line in lines[1:]] == ["0..17", "18..64", "65..99", "Unknown"]
    assert lines[1].endswith(",1.0,measured")


def test_an_existing_place_is_not_overwritten_by_accident(fitted, tmp_path: Path) -> None:
    path = write_bundle(fitted, tmp_path / "release")
    with pytest.raises(FileFormatError, match="exists already"):
        write_bundle(fitted, path)
    write_bundle(fitted, path, overwrite=True)
    assert [each.name for each in tmp_path.iterdir()] == ["release"]
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileFormatError, match="exists already"):
        write_bundle(fitted, tmp_path / "mine", overwrite=True)


def test_a_failure_leaves_nothing_behind(fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("consilience.publication.bundle.save_model", full)
    with pytest.raises(FileFormatError, match="no space"):
        write_bundle(fitted, tmp_path / "release")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        "extra file",
        "extra ledger",
        "changed table",
        "missing model",
        "no manifest",
        "foreign manifest",
        "newer version",
    ],
)
def test_a_damaged_bundle_is_refused(fitted, tmp_path: Path, damage: str) -> None:
    path = write_bundle(fitted, tmp_path / "release")
    manifest = json.loads((path / "release.json").read_text())
    if damage == "extra file":
        (path / "tables" / "notes.txt").write_text("hello")
    elif damage == "extra ledger":
        (path / "data.csv.ledger").write_text("")
    elif damage == "changed table":
        (path / "tables" / "age.csv").write_text("age,estimate\n")
    elif damage == "missing model":
        (path / "model.parquet").unlink()
    elif damage == "no manifest":
        (path / "release.json").unlink()
    elif damage == "foreign manifest":
        (path / "release.json").write_text("[1, 2")
    else:
        (path / "release.json").write_text(json.dumps(manifest | {"version": 2}))
    with pytest.raises(FileFormatError):
        check_bundle(path)
    with pytest.raises(FileFormatError):
        open_release(path)


GOLDEN = Path(__file__).parents[2] / "golden" / "bundles"


def rewritten(bundle: Path, **changes: object) -> Path:
    """The bundle with these entries in its manifest, and the checksums of the files that it holds now."""
    manifest = json.loads((bundle / "release.json").read_text()) | changes
    digests = {name: hashlib.sha256((bundle / name).read_bytes()).hexdigest() for name in manifest["files"]}
    (bundle / "release.json").write_text(json.dumps(manifest | {"files": digests}))
    return bundle


STATED = {"neighbours": "add-remove", "unit": "row", "spent": {"epsilon": "0.5"}, "public_facts": [], "notes": []}


@pytest.mark.parametrize(
    ("changes", "both_sides"),
    [
        ({"private": False}, r"release\.json says private false, and measurements\.parquet says true"),
        ({"dataset": "other"}, r'release\.json says dataset "other", and measurements\.parquet says "town"'),
        (
            {"privacy": STATED | {"spent": {"epsilon": "0.1"}}},
            r'release\.json says spent {"epsilon": "0.1"}, and measurements\.parquet says {"epsilon": "0.5"}',
        ),
        ({"privacy": STATED | {"unit": "person"}}, r'says unit "person", and measurements\.parquet says "row"'),
        ({"privacy": STATED | {"neighbours": "replace-one"}}, r'neighbours "replace-one", .* says "add-remove"'),
        ({"provenance": {"release": "mine"}}, r'release "mine", and measurements\.parquet says "request-8beba9'),
        ({"domain": "0" * 64}, r'release\.json says domain "0+", and measurements\.parquet says "2590d1'),
        ({"method": {"method": "tree"}}, r'release\.json says method {"method": "tree"}, and model\.parquet says'),
        ({"status": "converged"}, r'status "converged", and model\.parquet says "least risk"'),
        ({"privacy": 3}, r"release\.json cannot be read"),
        ({"provenance": None}, r"release\.json cannot be read"),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, dict) else "",
)
def test_a_manifest_that_says_other_than_the_measurements_or_the_model_is_refused(
    changes, both_sides, tmp_path
) -> None:
    bundle = Path(shutil.copytree(GOLDEN / "town", tmp_path / "town"))
    open_release(rewritten(bundle))
    with pytest.raises(FileFormatError, match=both_sides):
        open_release(rewritten(bundle, **changes))


def people(*, spent: str = "1", unit: str = "row", private: bool = True, domain: Domain = DOMAIN):
    table = {"age": [1.0, 5.0, 9.0, 13.0]}
    return estimate(
        MeasurementSet.from_marginals(
            domain, table, noise=Laplace(1.0), spent={"epsilon": spent}, unit=unit, private=private
        )
    )


RENAMED = Domain("people", (DOMAIN["age"], Attribute.categorical("a/b: odd name", ["F", "X"])))


@pytest.mark.parametrize(
    ("other", "file", "both_sides"),
    [
        (
            {"spent": "2"},
            "model.parquet",
            r'model\.parquet says spent {"epsilon": "2"}, and measurements\.parquet says',
        ),
        ({"unit": "person"}, "model.parquet", r'model\.parquet says unit "person"'),
        ({"private": False}, "model.parquet", r"model\.parquet says private false"),
        ({"domain": RENAMED}, "model.parquet", r"model\.parquet says domain"),
        ({"domain": RENAMED}, "domain.toml", r"domain\.toml says domain"),
        ({"private": False}, "measurements.parquet", r"release\.json says private true, .* says false"),
    ],
    ids=["budget", "unit", "simulated", "domain", "domain file", "measurements"],
)
def test_a_file_of_another_release_is_refused(other, file: str, both_sides: str, tmp_path: Path) -> None:
    bundle = write_bundle(people(), tmp_path / "release")
    shutil.copy(write_bundle(people(**other), tmp_path / "other") / file, bundle / file)
    with pytest.raises(FileFormatError, match=both_sides):
        open_release(rewritten(bundle))


def test_a_model_file_with_other_contents_is_refused(fitted, tmp_path: Path) -> None:
    from consilience.publication.model_files import is_model, load_model, save_model

    path = tmp_path / "model.parquet"
    save_model(fitted, path)
    assert is_model(path)
    whole = path.read_bytes()
    for cut in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(FileFormatError):
            load_model(path)
    fitted.measurements.save(tmp_path / "m.parquet")
    assert not is_model(tmp_path / "m.parquet")
    with pytest.raises(ConsilienceError):
        load_model(tmp_path / "m.parquet")


def test_answers_show_the_noisy_value_only_where_that_query_was_measured(fitted) -> None:
    assert answer_table(fitted, "by age").noisy is not None
    assert answer_table(fitted, "age=18..64").noisy is None
    table = answer_table(fitted, "by age")
    document = json.loads(table.to_json())
    assert document["answers"][0]["age"] == "0..17"
    assert document["private"] is True
    assert table.to_csv().startswith("age,estimate,noisy,basis\n0..17,")


def test_tables_have_error_bars_where_they_are_asked_for(fitted, tmp_path: Path) -> None:
    write_bundle(fitted, tmp_path / "plain")
    write_bundle(fitted, tmp_path / "barred", interval=0.9, refits=20)
    plain, barred = ((tmp_path / name / "tables").glob("*.csv") for name in ("plain", "barred"))
    headers = {path.name: path.read_text().splitlines()[0].split(",") for path in barred}
    assert headers
    assert all({"low", "high"} <= set(header) for header in headers.values())
    assert all("low" not in path.read_text().splitlines()[0] for path in plain)
    manifest = open_release(tmp_path / "barred").manifest
    assert manifest["intervals"] == {"level": 0.9, "refits": 20, "seed": 0}


def test_later_tables_go_without_bars_where_rows_are_too_many(fitted, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("consilience.publication.bundle.MOST_WITH_BARS", 1)
    write_bundle(fitted, tmp_path / "release", interval=0.9, refits=20)
    barred = [path.name for path in (tmp_path / "release" / "tables").glob("*.csv") if "low" in path.read_text()]
    assert barred == ["total.csv"]


def test_of_measured_coefficients_the_tables_are_shown_that_they_are_about(tmp_path: Path) -> None:
    domain = Domain.from_sizes({"a": 2, "b": 2, "c": 3}, name="flags")
    difference = factors.Matrix.of([[1.0, -1.0]])
    queries = [Query(()), *(Query.of({name: difference}) for name in "ab"), Query.marginal("c")]
    queries += [Query.of({"a": difference, "b": difference})]
    measured = MeasurementSet(
        domain,
        tuple(Measurement(query, np.full(query.bind(domain).size, 40.0), Laplace(1.0)) for query in queries),
        PrivacyStatement(),
        {},
        private=True,
    )
    write_bundle(Residual().fit(measured), tmp_path / "release")
    names = {path.stem for path in (tmp_path / "release" / "tables").glob("*.csv")}
    assert names == {"total", "a", "b", "c", "a-b"}
    assert "matrix" not in (tmp_path / "release" / "tables" / "a-b.csv").read_text()


def test_many_tables_stand_below_each_other_in_few_files(fitted, tmp_path: Path, monkeypatch) -> None:
    apart = write_bundle(fitted, tmp_path / "apart", interval=0.9, refits=20)
    monkeypatch.setattr(bundle, "MOST_TABLE_FILES", 2)
    together = write_bundle(fitted, tmp_path / "together", interval=0.9, refits=20)
    files = sorted(each.name for each in (together / "tables").glob("*.csv"))
    assert files == ["0-way.csv", "1-way.csv", "2-way.csv"]
    check_bundle(together)
    numbers = ("estimate", "low", "high", "noisy", "basis")
    expected = []
    for file in (apart / "tables").glob("*.csv"):
        with file.open(encoding="utf-8", newline="") as text:
            for row in csv.DictReader(text):
                labels = [(name, value) for name, value in row.items() if name in DOMAIN.names]
                expected.append((sorted(labels), [row.get(name) or "" for name in numbers]))
    found = []
    for file in files:
        with (together / "tables" / file).open(encoding="utf-8", newline="") as text:
            for row in csv.DictReader(text):
                ways = int(file[0])
                labels = [(row[f"attribute_{i}"], row[f"value_{i}"]) for i in range(1, ways + 1)]
                found.append((sorted(labels), [row.get(name) or "" for name in numbers]))
                assert row["table"] == (", ".join(name for name, _ in labels) or "total")
    assert sorted(found) == sorted(expected)

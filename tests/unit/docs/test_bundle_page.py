"""The page about the release bundle names what a real bundle holds, and nothing that it does not."""

import csv
import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from consilience.domain import Domain
from consilience.estimators import Table, estimate
from consilience.measurements import Laplace, MeasurementSet
from consilience.publication import Release, open_release, write_bundle
from consilience.publication.about import Named, Period, Publication
from consilience.publication.explorer import explore
from consilience.publication.report import report

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "release-bundle.md"
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def named(section: str) -> list[str]:
    """The code spans that begin the rows of a section's table."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    found = ROW.findall(rest.partition("\n## ")[0])
    assert found, section
    return found


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A bundle with everything: error bars in its tables, a report and an explorer."""
    domain = Domain.from_sizes({"age": 3, "sex": 2})
    noisy = {"age": [40.0, 31.0, 55.0], ("age", "sex"): [[22.0, 17.0], [15.0, 14.0], [30.0, 29.0]]}
    measured = MeasurementSet.from_marginals(domain, noisy, noise=Laplace(2.0), spent={"epsilon": "1"})
    place = tmp_path_factory.mktemp("bundle") / "release"
    told = Publication(title="Town", period=Period("2024", "2024"), region=Named("Springfield"))
    path = write_bundle(estimate(measured, method=Table()), place, interval=0.95, refits=20, publication=told)
    report(path, refits=20)
    explore(path, refits=20)
    return open_release(path)


def test_files(bundle: Release) -> None:
    present = {str(each.relative_to(bundle.path)) for each in bundle.path.rglob("*") if each.is_file()}
    patterns = named("Files")
    for name in present:
        assert any(fnmatch(name, pattern) for pattern in patterns), f"the page says nothing about {name}"
    for pattern in patterns:
        assert any(fnmatch(name, pattern) for name in present), f"no bundle has {pattern}"


def test_pictures(bundle: Release) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for path in (bundle.path / "pictures").iterdir():
        name = re.sub(r"\d+$", "01", path.stem)
        assert f"`{name}`" in text, f"the page says nothing about {path.name}"


def test_keys_of_the_manifest(bundle: Release) -> None:
    manifest = json.loads((bundle.path / "release.json").read_text(encoding="utf-8"))
    assert sorted(named("release.json")) == sorted(manifest)


def test_columns_of_the_tables(bundle: Release) -> None:
    mark, *columns = named("Tables")
    assert mark == "NOT PRIVATE"  # it stands in tables of simulated noise, and in no other
    names = set(bundle.estimate.domain.names)
    for path in (bundle.path / "tables").glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as stream:
            header = [each for each in next(csv.reader(stream)) if each not in names]
        measured = path.name in ("age.csv", "age-sex.csv")
        assert header == [each for each in columns if measured or each != "noisy"], path.name


def test_without_error_bars_two_columns_and_a_key_are_missing(bundle: Release, tmp_path: Path) -> None:
    plain = open_release(write_bundle(bundle.estimate, tmp_path / "plain"))
    assert set(bundle.manifest) - set(plain.manifest) == {"intervals", "report", "explorer"}
    assert (plain.path / "tables" / "age.csv").read_text(encoding="utf-8").startswith("age,estimate,noisy,basis\n")

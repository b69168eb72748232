"""`consilience check`: what must not be published is said first, and told by the exit code."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow
import pytest
from typer.testing import CliRunner

from consilience.cli.main import app
from consilience.domain import Attribute, Domain
from consilience.errors import FileFormatError, LedgerError
from consilience.estimators import estimate
from consilience.estimators.base import Estimate
from consilience.measurements import Laplace, MeasurementSet
from consilience.measurements.measurement import checksum
from consilience.measuring import measure
from consilience.plans import Direct
from consilience.privacy.ledger import Ledger
from consilience.publication import write_bundle, write_synthetic
from consilience.source import open_table

GOLDEN = Path(__file__).parents[2] / "golden"
DOMAIN = Domain(
    "people", (Attribute.numeric("age", [0, 18, 65, 100]), Attribute.categorical("sex", ["F", "M"], missing="Unknown"))
)
ONE = Domain("people", (Attribute.categorical("sex", ["F", "M"]),))
NOT_PRIVATE = "NOT PRIVATE: made by a simulation whose noise can be repeated. It protects nobody."


def check(*words: object) -> tuple[int, str]:
    outcome = CliRunner().invoke(app, ["check", *map(str, words)])
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome.exit_code, outcome.stdout


def fitted(*, private: bool, domain: Domain = DOMAIN) -> Estimate:
    marginals = {"sex": [5.0, 9.0, 2.0][: domain["sex"].size]}
    marginals |= {"age": [1.0, 5.0, 9.0]} if "age" in domain else {}
    return estimate(MeasurementSet.from_marginals(domain, marginals, noise=Laplace(1.0), private=private))


@pytest.fixture(scope="module", params=[True, False], ids=["private", "simulated"])
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bool]:
    """A bundle and synthetic files."""
    place, made = tmp_path_factory.mktemp("published"), fitted(private=request.param)
    write_bundle(made, place / "release", interval=0.9, refits=20)
    write_synthetic(made, place / "people.parquet")
    write_synthetic(made, place / "people.csv")
    return place, request.param


@pytest.mark.parametrize(
    "file",
    ["release", "release/measurements.parquet", "release/model.parquet", "release/tables/age.csv", "people.parquet"],
)
def test_simulated_noise_is_told_first_and_by_the_exit_code(file: str, published: tuple[Path, bool]) -> None:
    place, private = published
    code, out = check(place / file)
    assert (code, out.startswith(f"{NOT_PRIVATE}\n")) == ((0, False) if private else (1, True))
    assert "valid" in out
    code, out = check(place / file, "--json")
    document = json.loads(out)
    assert code == (0 if private else 1)
    assert document["private"] is private
    assert document["valid"] is True
    assert document.get("notice") == (None if private else NOT_PRIVATE)
    assert next(iter(document)) == ("private" if private else "notice")
    assert check(place / file, "--allow-simulated")[0] == 0


def test_a_simulated_file_states_no_promise(published: tuple[Path, bool]) -> None:
    place, private = published
    assert ("Unit of protection" in check(place / "release" / "measurements.parquet")[1]) is private


def test_comma_separated_records_are_known_by_their_mark(published: tuple[Path, bool]) -> None:
    place, private = published
    if private:
        with pytest.raises(FileFormatError, match="check the bundle or the file that it was made from"):
            check(place / "people.csv")
    else:
        code, out = check(place / "people.csv")
        assert code == 1
        assert out.startswith(NOT_PRIVATE)


def test_the_first_column_of_every_simulated_table_says_so(published: tuple[Path, bool]) -> None:
    place, private = published
    for path in [*(place / "release" / "tables").glob("*.csv"), place / "people.csv"]:
        with path.open(newline="", encoding="utf-8") as stream:
            header, *rows = csv.reader(stream)
        assert (header[0] == "NOT PRIVATE") is not private, path
        assert ({row[0] for row in rows} == {"simulated noise"}) is not private, path
        assert {len(row) for row in rows} == {len(header)}, path


@pytest.mark.parametrize(
    "words", [["by age"], ["by age, sex", "--cross"], ["by sex", "total", "--interval", "--refits", "20"]]
)
def test_the_first_column_of_simulated_answers_says_so(words: list[str], published: tuple[Path, bool]) -> None:
    place, private = published
    outcome = CliRunner().invoke(app, ["answer", str(place / "release"), *words, "--csv"])
    first = {row[0] for row in csv.reader(outcome.stdout.splitlines()) if row}
    assert (first == {"NOT PRIVATE", "simulated noise"}) is not private
    assert ("NOT PRIVATE" in outcome.stdout) is not private


def test_records_of_a_single_attribute_are_marked_too(tmp_path: Path) -> None:
    write_synthetic(fitted(private=False, domain=ONE), tmp_path / "people.csv", rows=3)
    lines = (tmp_path / "people.csv").read_text().splitlines()
    assert lines[0] == "NOT PRIVATE,sex"
    assert all(line in ("simulated noise,F", "simulated noise,M") for line in lines[1:])


@pytest.mark.parametrize("file", ["", "tables/age.csv", "model.parquet", "measurements.parquet", "release.json"])
def test_simulated_bundles_of_earlier_versions_are_told_as_well(file: str) -> None:
    code, out = check(GOLDEN / "bundles" / "simulated" / file)
    assert code == 1
    assert out.startswith(NOT_PRIVATE)


def test_a_model_of_an_earlier_version_that_does_not_say_is_not_vouched_for() -> None:
    code, out = check(GOLDEN / "models" / "table.model.parquet", "--allow-simulated")
    assert code == 1
    assert out.startswith("PRIVACY NOT KNOWN")


def test_simulated_clusters_are_told_and_must_agree_with_their_rounds(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "models" / "clusters", tmp_path / "clusters"))
    code, out = check(folder)
    assert code == 1
    assert out.startswith(NOT_PRIVATE)
    text = (folder / "clusters.json").read_text()
    (folder / "clusters.json").write_text(text.replace('"private": false', '"private": true'))
    with pytest.raises(
        FileFormatError, match=r"clusters.json calls itself private, and measurements.parquet not private"
    ):
        check(folder)


def test_what_is_left_of_a_draft_is_named(tmp_path: Path) -> None:
    Domain("people", DOMAIN.attributes, draft=True, unreviewed=("sex",)).save(tmp_path / "draft.toml")
    code, out = check(tmp_path / "draft.toml")
    assert code == 1
    assert out.startswith("DRAFT: read off the data, which is not private. Left to review: draft = true, and reviewed")
    assert "reviewed = false in 'sex'." in out
    assert json.loads(check(tmp_path / "draft.toml", "--json")[1])["notice"].startswith("DRAFT")
    DOMAIN.save(tmp_path / "reviewed.toml")
    assert check(tmp_path / "reviewed.toml")[0] == 0


def test_measurements_that_were_changed_are_told_and_the_ledger_knows_even_where_the_checksum_was_made_anew(
    tmp_path: Path,
) -> None:
    rows = pyarrow.table({"sex": ["F", "M"] * 30})
    domain = Domain("town", (Attribute.categorical("sex", ["F", "M"]),))
    ledger = tmp_path / "town.ledger"
    drawn = measure(open_table(rows, domain), Direct(ways=1), ledger=Ledger.open(ledger, epsilon=1), epsilon=1)
    drawn.save(tmp_path / "drawn.parquet")
    assert check(tmp_path / "drawn.parquet", "--ledger", ledger)[0] == 0
    moved = tuple(replace(each, values=each.values + 1) for each in drawn)
    changed = replace(drawn, measurements=moved)
    changed.save(tmp_path / "changed.parquet")
    code, out = check(tmp_path / "changed.parquet")
    assert (code, "changed after they were drawn" in out) == (1, True)
    forged = replace(changed, provenance={**drawn.provenance, "checksum": checksum(moved)})
    forged.save(tmp_path / "forged.parquet")
    assert check(tmp_path / "forged.parquet")[0] == 0
    code, out = check(tmp_path / "forged.parquet", "--ledger", ledger)
    assert (code, "another one" in out) == (1, True)
    with pytest.raises(LedgerError, match="no checksum of the release"):
        check(GOLDEN / "v1-laplace.parquet", "--ledger", ledger)

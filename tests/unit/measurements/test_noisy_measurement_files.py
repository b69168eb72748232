"""Files in the shape of the Census' noisy measurements, generated here, against the same numbers in memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.domain import Attribute, Domain, Query, factors
from consilience.errors import ConsilienceError
from consilience.estimators.geographic import Geographic
from consilience.estimators.regions import estimate_regions
from consilience.measurements import Gaussian, Measurement, MeasurementSet, PrivacyStatement
from consilience.measurements.noisy_measurement_files import from_noisy_measurement_files
from consilience.measurements.regional import RegionalMeasurements

BLOCKS = [f"{s:02d}{c:03d}{b:04d}" for s in (1, 2, 6) for c in (1, 3) for b in range(1, 5)]
PARENTS = {block: block[:5] for block in BLOCKS} | {block[:5]: block[:2] for block in BLOCKS}
PARENTS |= {block[:2]: "0" for block in BLOCKS}
LEVELS = ["US", "State", "County", "Block"]
RACE, AGE = Attribute.categorical("race", ["a", "b", "c"]), Attribute.numeric("age", [0, 5, 18, 65, 100])
VOTING = factors.Buckets.of({"minor": ["0..4", "5..17"], "adult": ["18..64", "65..99"]})
TABLES = {
    "total": Query(()),
    "race * age": Query.marginal("race", "age"),
    "votingage * race": Query((("age", VOTING), ("race", factors.Identity()))),
}
PLACE = Attribute.hierarchy("place", PARENTS, levels=LEVELS, geography=True)
DOMAIN, OTHERS = Domain("census", (PLACE, AGE, RACE)), Domain("census", (AGE, RACE))
ASKED = {"votingage * race": TABLES["votingage * race"]}


def make(folder: Path, rng: np.random.Generator) -> tuple[dict[str, Path], MeasurementSet]:
    """A file for each level, and the same measurements in memory."""
    truth = rng.poisson(20, DOMAIN.shape).astype(float)
    files, measured = {}, []
    for number, level in enumerate(LEVELS):
        codes = list(PLACE.groups(level))
        rows: dict[str, list] = {name: [] for name in ("geocode", "query_name", "value", "variance")}
        for name, table in TABLES.items():
            query = Query((("place", factors.Level(level)), *table.factors))
            exact = query.bind(DOMAIN).answer_full(truth).reshape(len(codes), -1)
            noisy = np.rint(exact + rng.normal(0, 2 + number, exact.shape)).astype(int)
            measured.append(Measurement(query, noisy.ravel().astype(float), Gaussian(2.0 + number)))
            rows["geocode"] += codes
            rows["query_name"] += [name] * len(codes)
            rows["value"] += noisy.tolist()
            rows["variance"] += [(2.0 + number) ** 2] * len(codes)
        files[level] = folder / f"{level}.parquet"
        order = np.argsort(rows["geocode"], kind="stable")
        pq.write_table(pa.table(rows).take(order), files[level])
    return files, MeasurementSet(DOMAIN, tuple(measured), PrivacyStatement("replace-one"), {}, private=False)


def read(files: dict[str, Path], folder: Path, **changes) -> RegionalMeasurements:
    settings = {"regions": "State", "neighbours": "replace-one", "queries": ASKED} | changes
    return from_noisy_measurement_files(files, folder, OTHERS, **settings)


@pytest.mark.parametrize("regions", ["State", "County"])
def test_the_files_give_the_tables_of_the_same_numbers_in_memory(tmp_path: Path, regions: str) -> None:
    files, measured = make(tmp_path, np.random.default_rng(1))
    found = read(files, tmp_path / "measured", regions=regions, spent={"rho": 2.56})
    assert found.privacy == PrivacyStatement("replace-one", spent={"rho": "2.56"})
    account = estimate_regions(found, tmp_path / "account")
    counts = Geographic().fit(measured).counts
    for place in PLACE.nodes:
        expected = counts[list(PLACE.codes(place))].sum(axis=0)
        assert account.table(place) == pytest.approx(expected, abs=1e-7)


def test_names_of_columns_and_queries_can_differ_and_queries_be_left_out(tmp_path: Path) -> None:
    files, _ = make(tmp_path, np.random.default_rng(2))
    for path in files.values():
        table = pq.read_table(path)
        pq.write_table(table.rename_columns(["geoid", "query_name", "value", "variance"]), path)
    found = read(files, tmp_path / "m", columns={"geocode": "geoid"}, queries={"votingage * race": None})
    assert set(found.tables) == {"total", "race * age"}
    assert found.region("02").names[:3].to_pylist() == ["02", "02001", "02003"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queries": {}}, "is no product of attributes"),
        ({"queries": ASKED | {"households": "total"}}, "no file has a query 'households'"),
        ({"queries": ASKED | {"total": "by race"}}, "'total' has 3 answers"),
        ({"regions": "Tract"}, "no file is of: 'Tract'"),
        ({"columns": {"value": "noisy"}}, "cannot be read"),
    ],
)
def test_what_does_not_fit_is_said_and_nothing_is_left(tmp_path: Path, changes: dict, words: str) -> None:
    files, _ = make(tmp_path, np.random.default_rng(3))
    with pytest.raises(ConsilienceError, match=words):
        read(files, tmp_path / "measured", **changes)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".parquet"] * 4


def test_places_without_one_above_them_are_named(tmp_path: Path) -> None:
    files, _ = make(tmp_path, np.random.default_rng(4))
    county = pq.read_table(files["County"])
    kept = [code != "02003" for code in county.column("geocode").to_pylist()]
    pq.write_table(county.filter(pa.array(kept)), files["County"])
    pq.write_table(pq.read_table(files["Block"]), files["Block"])
    with pytest.raises(ConsilienceError, match="begins the code 020030001"):
        read(files, tmp_path / "measured", regions="US")

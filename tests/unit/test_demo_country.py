"""The country of the demo is what it claims to be: places that nest, blocks of real sizes, shapes that fit together."""

import json
from pathlib import Path

import numpy as np
import pytest

from consilience.demo import country
from consilience.domain import Domain
from consilience.publication.maps.shapes import Shapes, read_shapes, signed_area


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("country")
    country.write_country(place / "people.csv", people=20_000)
    return place


def area(shapes: Shapes) -> float:
    return sum(
        -signed_area(np.array(ring))
        for each in shapes.every
        for part in each.geometry()["coordinates"]
        for ring in part
    )


def test_is_the_same_bytes_twice_and_other_bytes_for_another_seed(folder: Path, tmp_path: Path) -> None:
    country.write_country(tmp_path / "people.csv", people=20_000)
    for name in ("people.csv", "places.csv", "counties.geojson"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    country.write_country(tmp_path / "people.csv", people=20_000, seed=2)
    assert (tmp_path / "people.csv").read_bytes() != (folder / "people.csv").read_bytes()


def test_places_nest_and_every_person_lives_in_one(folder: Path) -> None:
    domain = Domain.load(folder / "people.domain.toml")
    places = domain["block"]
    assert places.levels == country.LEVELS
    counts = [len(places.groups(level)) for level in country.LEVELS]
    assert counts == sorted(counts)
    assert counts[-1] == 400
    rows = (folder / "people.csv").read_text().splitlines()[1:]
    assert len(rows) == 20_000
    assert {row.split(",")[0] for row in rows} <= set(places.labels)


def test_half_of_all_blocks_have_below_thirty_people() -> None:
    land = country.make_country(200_000)
    people = country.make_people(land, 200_000)
    sizes = np.bincount(people["block"], minlength=land.blocks)
    assert 0.45 < (sizes < 30).mean() < 0.6
    assert sizes.max() > 300
    assert 0 < (sizes == 0).mean() < 0.1


def test_shapes_of_each_level_cover_the_same_land_without_overlap(folder: Path) -> None:
    areas = [area(read_shapes(folder / f"{country.PLURAL[level]}.geojson")) for level in country.LEVELS]
    assert areas[0] > 10.0
    np.testing.assert_allclose(areas, areas[0], rtol=1e-9)


def test_shapes_are_called_as_the_places_are(folder: Path) -> None:
    places = Domain.load(folder / "people.domain.toml")["block"]
    for level in country.LEVELS:
        document = json.loads((folder / f"{country.PLURAL[level]}.geojson").read_text())
        codes = {each["properties"]["GEOID"] for each in document["features"]}
        assert codes == set(places.groups(level))
        for each in document["features"]:
            outer = [signed_area(np.array(part[0])) for part in each["geometry"]["coordinates"]]
            assert outer
            assert min(outer) > 0  # as RFC 7946 wants them

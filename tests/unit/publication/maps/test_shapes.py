"""Files of shapes are read as they are meant, neighbours stay neighbours, and what does not fit is named."""

import json
from pathlib import Path

import numpy as np
import pytest

from consilience.errors import ConsilienceError
from consilience.publication.maps.shapes import Shape, Shapes, read_shapes, signed_area

SQUARE = [[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]
HOLE = [[1, 1], [1, 3], [3, 3], [3, 1], [1, 1]]


def feature(name: object, *rings: list[list[float]]) -> dict[str, object]:
    geometry = {"type": "Polygon", "coordinates": list(rings)}
    return {"type": "Feature", "properties": {"GEOID": name, "name": f"County {name}"}, "geometry": geometry}


def written(folder: Path, *features: dict[str, object]) -> Path:
    path = folder / "shapes.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": list(features)}))
    return path


def test_geojson_and_topojson_of_the_same_places_are_the_same_shapes(tmp_path: Path) -> None:
    east = [[4, 0], [8, 0], [8, 4], [4, 4], [4, 0]]
    plain = read_shapes(written(tmp_path, feature("01", SQUARE), feature("02", east)))
    # The border between both is one arc, which the other one runs through backwards; positions are steps on a grid.
    arcs = [[[8, 0], [0, 8]], [[8, 8], [-8, 0], [0, -8], [8, 0]], [[8, 0], [8, 0], [0, 8], [-8, 0]]]
    polygons = [("01", [[0, 1]]), ("02", [[2, -1]])]
    several = [{"type": "Polygon", "arcs": rings, "properties": {"GEOID": name}} for name, rings in polygons]
    topology = {
        "type": "Topology",
        "transform": {"scale": [0.5, 0.5], "translate": [0, 0]},
        "arcs": arcs,
        "objects": {"counties": {"type": "GeometryCollection", "geometries": several}},
    }
    (tmp_path / "shapes.topojson").write_text(json.dumps(topology))
    coded = read_shapes(tmp_path / "shapes.topojson")
    for one, other in zip(plain.every, coded.every, strict=True):
        assert one.properties["GEOID"] == other.properties["GEOID"]
        corners = [{tuple(point) for ring in each.rings for point in ring.tolist()} for each in (one, other)]
        assert corners[0] == corners[1]
        assert [abs(signed_area(ring)) for ring in one.rings] == [abs(signed_area(ring)) for ring in other.rings]


def test_outer_rings_run_with_the_clock_and_holes_against_it_however_the_file_has_them(tmp_path: Path) -> None:
    for outer in (SQUARE, SQUARE[::-1]):
        for hole in (HOLE, HOLE[::-1]):
            (shape,) = read_shapes(written(tmp_path, feature("01", outer, hole))).every
            ((one, other),) = shape.geometry()["coordinates"]
            assert signed_area(np.array(one)) == -16.0
            assert signed_area(np.array(other)) == 4.0


def test_hatching_lies_inside_and_leaves_holes_out(tmp_path: Path) -> None:
    (shape,) = read_shapes(written(tmp_path, feature("01", SQUARE, HOLE))).every
    lines = shape.hatching(0.25)["coordinates"]
    assert len(lines) > 20
    for (x1, y1), (x2, y2) in lines:
        assert y2 - x2 == pytest.approx(y1 - x1)
        middle = np.array([(x1 + x2) / 2, (y1 + y2) / 2])
        assert np.all((middle >= 0) & (middle <= 4))
        assert not np.all((middle > 1 + 1e-9) & (middle < 3 - 1e-9))
    lengths = sum(x2 - x1 for (x1, _), (x2, _) in lines)
    assert lengths * 0.25 == pytest.approx(16 - 4, rel=0.1)  # lines so far apart cover the area


def test_simplified_neighbours_still_share_their_border() -> None:
    rng = np.random.default_rng(3)
    border = np.stack([np.full(400, 5.0) + rng.normal(0, 0.001, 400), np.linspace(0, 10, 400)], axis=1)
    west = np.concatenate([border, [[0.0, 10.0], [0.0, 0.0]], border[:1]])
    east = np.concatenate([border[::-1], [[10.0, 0.0], [10.0, 10.0]], border[-1:]])
    shapes = Shapes("two", (Shape({}, ((west,),)), Shape({}, ((east,),))))
    coarse = shapes.simplified()
    sides = [{tuple(point) for ring in each.rings for point in ring.tolist()} for each in coarse.every]
    outer = {(0.0, 10.0), (0.0, 0.0), (10.0, 0.0), (10.0, 10.0)}
    assert sides[0] - outer == sides[1] - outer
    assert sum(abs(signed_area(ring)) for each in coarse.every for ring in each.rings) == pytest.approx(100.0, rel=1e-3)


def test_a_place_too_small_for_the_grid_keeps_its_shape() -> None:
    large = np.array(SQUARE, dtype=float) * 25
    small = np.array(SQUARE, dtype=float) * 1e-3 + 200
    shapes = Shapes("two", (Shape({}, ((large,),)), Shape({}, ((small,),)))).simplified()
    assert len(shapes.every[1].polygons[0][0]) == 5


def test_places_on_both_sides_of_180_degrees_are_a_narrow_area() -> None:
    rings = [np.array(SQUARE, dtype=float) + np.array([shift, 0]) for shift in (-180, 176)]
    west, _, east, _ = Shapes("fiji", tuple(Shape({}, ((ring,),)) for ring in rings)).extent
    assert (west, east) == (176.0, 184.0)


def test_the_property_that_names_places_is_found(tmp_path: Path) -> None:
    shapes = read_shapes(written(tmp_path, feature("01", SQUARE), feature("02", SQUARE)))
    key, found = shapes.by_key(None, ["02", "03"])
    assert key == "GEOID"
    assert set(found) == {"01", "02"}


@pytest.mark.parametrize(
    ("key", "places", "said"),
    [
        ("GEOID", ["001", "002"], ["'1'", "'001'", "without its leading zeros", "codes of the shapes as texts"]),
        ("GEOID", ["Bern", "Lyon"], ["none of the places has a shape", "'1'", "'Bern'"]),
        ("GEOI", ["1"], ["no property 'GEOI'", "GEOID"]),
        (None, ["Bern"], ["no property of the shapes", "'Bern'", "GEOID=1"]),
    ],
)
def test_shapes_and_places_that_do_not_meet_are_named_on_both_sides(key, places, said, tmp_path: Path) -> None:
    shapes = read_shapes(written(tmp_path, feature(1, SQUARE), feature(2, SQUARE)))
    with pytest.raises(ConsilienceError) as refused:
        shapes.by_key(key, places)
    for each in said:
        assert each in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no json",
        "[]",
        "{}",
        '{"type": "Point", "coordinates": [0, 0]}',
        '{"type": "FeatureCollection", "features": []}',
        '{"type": "FeatureCollection", "features": [3]}',
        '{"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}}',
        '{"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": [[["a"]]]}}',
        '{"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": '
        "[[[0, 0], [0, 1], [NaN, 1], [0, 0]]]}}",
        '{"type": "Topology", "objects": {"a": {"type": "Polygon", "arcs": [[7]]}}, "arcs": []}',
        "[" * 100_000,
    ],
)
def test_what_is_no_file_of_shapes_is_refused_in_our_words(content: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.geojson"
    path.write_text(content)
    with pytest.raises(ConsilienceError):
        read_shapes(path)
    with pytest.raises(ConsilienceError, match="there is no file"):
        read_shapes(tmp_path / "nothing.geojson")

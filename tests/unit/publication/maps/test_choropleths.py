"""A map shows every answer in its class, says what it leaves out, and hatches what was not measured."""

import json
from pathlib import Path

import numpy as np
import pytest

import consilience as cs
from consilience.errors import ConsilienceError
from consilience.publication.maps.classes import Classes

PLACES = [f"{number:02d}" for number in range(1, 10)]


@pytest.fixture(scope="module")
def account() -> cs.Estimate:
    place = cs.Attribute.hierarchy(
        "place", {code: "N" if code < "05" else "S" for code in PLACES}, levels=["Half", "Town"]
    )
    others = [cs.Attribute.categorical("sex", ["F", "M"]), cs.Attribute.categorical("work", ["yes", "no"])]
    domain = cs.Domain("land", (place, *others))
    rng = np.random.default_rng(0)
    by_sex = 50.0 * np.arange(1, 10)[:, None] * [0.8, 1.2] + rng.normal(0, 3, (9, 2))
    tables = {"place": 100.0 * np.arange(1, 10) + rng.normal(0, 3, 9), ("place", "sex"): by_sex.ravel()}
    return cs.estimate(cs.MeasurementSet.from_marginals(domain, tables, noise=cs.Gaussian(3.0)))


def shapes(folder: Path, codes: list[str], shift: float = 0.0) -> Path:
    features = []
    for number, code in enumerate(codes):
        x, y = number % 3 + shift, number // 3 + 40.0
        ring = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]
        geometry = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "properties": {"GEOID": code}, "geometry": geometry})
    path = folder / "towns.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def drawn(made: cs.publication.maps.Map) -> tuple[dict, list[dict]]:
    document = json.loads(made.picture.specification)
    return document, [each["properties"] for each in document["datasets"]["places"]]


def test_every_place_has_the_class_and_the_words_of_its_answer(account: cs.Estimate, tmp_path: Path) -> None:
    made = cs.map(account, "by place", shapes(tmp_path, PLACES[::-1]), key="GEOID", refits=20)
    document, places = drawn(made)
    answers = dict(zip(PLACES, made.answers.estimates, strict=True))
    scale = document["vconcat"][0]["hconcat"][0]["layer"][0]["encoding"]["color"]["condition"]["scale"]
    order = [scale["domain"].index(each["v0"]) for each in sorted(places, key=lambda each: answers[each["place"]])]
    assert order == sorted(order)
    assert len(set(order)) >= 3
    for each in places:
        assert each["t0"].startswith(f"{answers[each['place']]:,.1f} (")
    assert made.notes == ()
    assert "records" in made.picture.svg
    assert "95" in made.picture.svg
    assert made.picture.png.startswith(b"\x89PNG")


def test_groups_have_a_row_each_and_share_their_classes(account: cs.Estimate, tmp_path: Path) -> None:
    made = cs.map(account, "by place, sex", shapes(tmp_path, PLACES), refits=20)
    document, places = drawn(made)
    rows = document["vconcat"]
    assert [row["hconcat"][0]["title"]["text"] for row in rows] == ["F (records)", "M (records)"]
    scales = [row["hconcat"][0]["layer"][0]["encoding"]["color"]["condition"]["scale"] for row in rows]
    assert scales[0] == scales[1]
    assert {"v0", "v1", "d0", "d1"} <= set(places[0])


def test_what_was_not_measured_is_hatched_and_said(account: cs.Estimate, tmp_path: Path) -> None:
    made = cs.map(account, "by place, work", shapes(tmp_path, PLACES), refits=20)
    document, places = drawn(made)
    assert made.notes == ("Hatched: not measured (18 of 18 places in 2 maps).",)
    assert "Hatched: not measured" in made.picture.svg
    assert len(document["datasets"]["hatches 0"]) == 9
    assert {each["v0"] for each in places} == {None}
    assert {each["t0"] for each in places} == {"not measured"}


def test_places_without_shapes_and_shapes_without_places_are_both_named(account: cs.Estimate, tmp_path: Path) -> None:
    made = cs.map(account, "by place", shapes(tmp_path, [*PLACES[:7], "77"]), refits=20)
    assert made.notes == (
        "2 places without a shape in towns.geojson, not drawn: 08, 09.",
        "1 shape of no place of the domain, left out: 77.",
    )
    part = cs.map(account, "Half=N by place", shapes(tmp_path, PLACES), refits=20)
    assert part.notes == ()  # shapes of places that were not asked about need no word
    assert len(drawn(part)[1]) == 4


def test_simulated_noise_is_said_in_the_picture(account: cs.Estimate, tmp_path: Path) -> None:
    measured = account.measurements
    simulated = cs.MeasurementSet(measured.domain, measured.measurements, measured.privacy, {}, private=False)
    made = cs.map(cs.estimate(simulated), "by place", shapes(tmp_path, PLACES), refits=20)
    assert "NOT PRIVATE" in made.picture.svg
    assert "NOT PRIVATE" in made.picture.description
    assert "NOT PRIVATE" not in cs.map(account, "by place", shapes(tmp_path, PLACES), refits=20).picture.svg


def test_projections_fit_the_area(account: cs.Estimate, tmp_path: Path) -> None:
    def projection(path: Path, **given: str) -> dict:
        made = cs.map(account, "by place", path, refits=20, **given)
        return drawn(made)[0]["vconcat"][0]["hconcat"][0]["projection"]

    assert projection(shapes(tmp_path, PLACES))["type"] == "conicEqualArea"  # three degrees high
    assert projection(shapes(tmp_path, PLACES[:6]))["type"] == "mercator"
    assert projection(shapes(tmp_path, PLACES, shift=500_000))["type"] == "identity"
    assert projection(shapes(tmp_path, PLACES), projection="albers-usa")["type"] == "albersUsa"


def test_files_are_written_whole_and_never_over_others(account: cs.Estimate, tmp_path: Path) -> None:
    path = shapes(tmp_path, PLACES)
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<svg"), (".html", b"<!DOCTYPE html>")):
        made = cs.map(account, "by place", path, refits=20, out=tmp_path / f"map{suffix}")
        assert made.path is not None
        assert made.path.read_bytes().lstrip()[: len(start)].lower() == start.lower()
    page = (tmp_path / "map.html").read_text()
    assert "<title>land: by place</title>" in page
    assert 'src="http' not in page
    with pytest.raises(ConsilienceError, match="exists already"):
        cs.map(account, "by place", path, out=tmp_path / "map.png")
    with pytest.raises(ConsilienceError, match=r"neither \.png"):
        cs.map(account, "by place", path, out=tmp_path / "map.pdf")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("top 3 of place", "a map shows all places"),
        ("total", "no property of the shapes|has no places"),
        ("by Half", "no property of the shapes"),
    ],
)
def test_questions_that_make_no_map_are_refused(query: str, said: str, account: cs.Estimate, tmp_path: Path) -> None:
    with pytest.raises(ConsilienceError, match=said):
        cs.map(account, query, shapes(tmp_path, PLACES), refits=20)


def test_classes_are_round_in_order_and_hold_every_number(account: cs.Estimate) -> None:
    table = account_table(account)
    rng = np.random.default_rng(1)
    for values in (rng.lognormal(3, 2, 500), np.array([5.0]), np.zeros(4), np.arange(3.0), np.array([np.nan])):
        classes = Classes.of_values([values], table)
        assert list(classes.breaks) == sorted(set(classes.breaks))
        assert len(classes.names) == len(classes.breaks) + 1 == len(set(classes.colours))
        for value, name in zip(values, classes.of(values), strict=True):
            assert name == (None if np.isnan(value) else classes.names[sum(each <= value for each in classes.breaks)])


def account_table(account: cs.Estimate):
    from consilience.publication.answers import answer_table

    return answer_table(account, "by place")

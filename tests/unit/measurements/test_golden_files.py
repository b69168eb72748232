"""Files of format v1 stay readable for ever: the golden files keep their bytes and their meaning."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.domain import Query
from consilience.measurements import DiscreteGaussian, DiscreteLaplace, Exact, Gaussian, Laplace, MeasurementSet

GOLDEN = Path(__file__).parents[2] / "golden"

SMALL = {
    "name": "small",
    "attributes": {
        "sex": {"kind": "categorical", "values": ["Female", "Male"], "unlisted": "drop"},
        "age": {"kind": "numeric", "edges": [0, 18, 65, 100], "unlisted": "clip"},
    },
}
SEX = {"factors": [{"kind": "identity", "attribute": "sex"}]}
AGE = {"factors": [{"kind": "identity", "attribute": "age"}]}


def load(name: str) -> MeasurementSet:
    return MeasurementSet.load(GOLDEN / f"{name}.parquet")


def test_golden_files_are_never_rewritten() -> None:
    listed = dict(reversed(line.split(maxsplit=1)) for line in (GOLDEN / "SHA256SUMS").read_text().splitlines())
    files = [path for path in GOLDEN.rglob("*") if path.is_file() and path.suffix not in (".md", ".py", ".pyc")]
    found = {path.relative_to(GOLDEN).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    del found["SHA256SUMS"]
    assert found == listed


@pytest.mark.parametrize(
    ("name", "noise", "values", "query"),
    [
        ("v1-laplace", Laplace(2.5), [12.25, -3.5], SEX),
        ("v1-gaussian", Gaussian(1.75), [12.25, -3.5], SEX),
        ("v1-discrete-laplace", DiscreteLaplace(2.5, step=1.0), [12.0, -3.0], SEX),
        ("v1-discrete-laplace-step", DiscreteLaplace(0.75, step=0.25), [12.25, -3.5], SEX),
        ("v1-discrete-gaussian", DiscreteGaussian(1.5, step=0.5), [12.0, -3.0], SEX),
        ("v1-censored", Laplace(2.0), [12.0, np.nan, 15.5], AGE),
        ("v1-clipped", DiscreteLaplace(2.0), [0.0, 7.0, 0.0], AGE),
    ],
)
def test_single_measurements_mean_what_they_meant(name: str, noise: Any, values: list[float], query: Any) -> None:
    found = load(name)
    (measurement,) = found
    assert found.domain.to_declaration() == SMALL
    assert measurement.noise == noise
    assert measurement.kind == "linear"
    np.testing.assert_array_equal(measurement.values, values)
    assert measurement.query.to_json() == query
    assert measurement.clipped == (name == "v1-clipped")
    assert (measurement.censored is not None) == (measurement.threshold is not None) == (name == "v1-censored")


def test_ids_and_provenance_mean_what_they_meant() -> None:
    found = load("v1-laplace")
    assert found.measurements[0].id == "m1"
    assert found.provenance == {"tool": "golden", "ledger": "ledger-1", "release": "r1"}
    assert load("v1-gaussian").measurements[0].id == ""
    assert load("v1-gaussian").provenance == {}


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("v1-laplace", ("add-remove", "row", {"epsilon": "0.5"}, [])),
        ("v1-gaussian", ("replace-one", "person, at most 3 rows", {"rho": "0.01"}, ["A note."])),
        ("v1-discrete-gaussian", ("add-remove", "row", {"epsilon": "1", "delta": "1e-9"}, [])),
        ("v1-empty", ("add-remove", "row", None, [])),
    ],
)
def test_privacy_statements_mean_what_they_meant(name: str, statement: tuple[Any, ...]) -> None:
    neighbours, unit, spent, notes = statement
    assert load(name).privacy.to_json() == {
        "neighbours": neighbours,
        "unit": unit,
        "spent": spent,
        "public_facts": [],
        "notes": notes,
    }


def test_simulations_stay_marked() -> None:
    marked = {path.stem for path in GOLDEN.glob("v1-*.parquet") if not load(path.stem).private}
    assert marked == {"v1-discrete-gaussian"}


def test_censored_places_mean_what_they_meant() -> None:
    (measurement,) = load("v1-censored")
    assert measurement.censored is not None
    assert measurement.censored.tolist() == [False, True, False]
    assert measurement.threshold == 10.0


def test_public_facts_mean_what_they_meant() -> None:
    found = load("v1-exact")
    assert found.privacy.public_facts == ("the exact total", "the exact counts by age, sex")
    assert [(m.id, m.noise, m.query.attributes) for m in found] == [
        ("m1", Laplace(1.0), ("sex",)),
        ("public:total", Exact(), ()),
        ("public:age, sex", Exact(), ("age", "sex")),
    ]
    np.testing.assert_array_equal(found.measurements[1].values, [100.0])
    np.testing.assert_allclose(found.measurements[2].values * 6, [25, 55, 85, 115, 145, 175])


def test_rounds_and_extras_mean_what_they_meant() -> None:
    found = load("v1-rounds")
    assert [(m.id, m.round, m.extra, m.values.tolist()) for m in found] == [
        ("round-0", 0, {"picked": [0, "x"]}, [0.0, 1.0]),
        ("round-1", 1, {"picked": [1, "x"]}, [1.0, 0.0]),
        ("round-2", 2, {"picked": [2, "x"]}, [2.0, -1.0]),
    ]


def test_sums_over_records_mean_what_they_meant() -> None:
    counts, sums = load("v1-record-sums")
    assert [(m.kind, m.round, m.query, m.values.tolist(), m.noise) for m in (counts, sums)] == [
        ("record-sums", 1, Query(()), [57.0, 61.0], DiscreteLaplace(4.0)),
        ("record-sums", 1, Query(()), [-28.5, 15.25], DiscreteLaplace(4.0, step=2.0**-20)),
    ]
    assert counts.statistic is not None
    assert sums.statistic == {**counts.statistic, "part": "sums"}
    assert counts.statistic == {
        "algorithm": "k-means",
        "part": "counts",
        "attributes": ["weight"],
        "bounds": [[0.0, 250.5]],
        "region": "box",
        "bits": 20,
        "centroids": [[-0.5], [0.25]],
    }


def test_a_set_without_measurements_means_what_it_meant() -> None:
    assert len(load("v1-empty")) == 0


def test_domains_mean_what_they_meant() -> None:
    assert load("v1-every-factor").domain.to_declaration() == {
        "name": "town",
        "attributes": {
            "sex": {"kind": "categorical", "values": ["Female", "Male"], "missing": "Unknown", "unlisted": "drop"},
            "age": {"kind": "numeric", "edges": [0, 18, 65, 100], "unlisted": "clip"},
            "height": {"kind": "numeric", "edges": [1.0, 1.5, 2.25], "integer": False, "unlisted": "drop"},
            "place": {
                "kind": "hierarchy",
                "parents": {"Basel": "Swiss", "Bern": "Swiss", "Köln": "German"},
                "unlisted": "drop",
            },
            "weight": {"kind": "continuous", "bounds": [0.0, 250.5], "unlisted": "clip"},
        },
        "impossible": [{"age": ["0..17"], "place": ["Köln"]}],
        "public": {"total": 120},
    }


EVERY_FACTOR = [
    ([("sex", {"kind": "identity"}), ("age", {"kind": "prefix"})], 9),
    ([("sex", {"kind": "total"})], 1),
    ([("place", {"kind": "value", "label": "Swiss"})], 1),
    ([("sex", {"kind": "subset", "labels": ["Male", "Unknown"]})], 1),
    ([("age", {"kind": "range", "low": "18..64"})], 1),
    ([("age", {"kind": "ranges"})], 6),
    (
        [
            (
                "place",
                {
                    "kind": "buckets",
                    "groups": [{"name": "south", "labels": ["Basel", "Bern"]}, {"name": "north", "labels": ["Köln"]}],
                },
            )
        ],
        2,
    ),
    ([("age", {"kind": "mean"})], 1),
    ([("height", {"kind": "moments", "order": 2})], 2),
    ([("age", {"kind": "tree", "branching": 2})], 6),
    ([("place", {"kind": "tree", "level": 0})], 2),
    ([("age", {"kind": "haar"})], 4),
    (
        [
            (
                "sex",
                {
                    "kind": "matrix",
                    "rows": 2,
                    "entries": [[0, 0, 1.0], [0, 1, -0.5], [1, 2, 2.0]],
                    "names": ["contrast", "twice"],
                },
            )
        ],
        2,
    ),
    ([], 1),
]


def test_every_factor_means_what_it_meant() -> None:
    found = load("v1-every-factor")
    assert [measurement.query.to_json() for measurement in found] == [
        {"factors": [{"attribute": name} | fields for name, fields in factors]} for factors, _ in EVERY_FACTOR
    ]
    for measurement, (_, size) in zip(found, EVERY_FACTOR, strict=True):
        np.testing.assert_array_equal(measurement.values, np.arange(size) + 0.5)


def test_factors_still_ask_what_they_asked() -> None:
    """The answers of the golden queries on one table, worked out by hand from the specification."""
    found = load("v1-every-factor")
    by_age, by_sex, by_place = np.array([1.0, 2.0, 4.0]), np.array([3.0, 2.0, 2.0]), np.array([1.0, 5.0, 1.0])
    by_height, by_sex_and_age = np.array([3.0, 4.0]), np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 2.0]])
    expected = [
        (by_sex_and_age, [1, 2, 3, 0, 1, 2, 0, 0, 2]),
        (by_sex, [7]),
        (by_place, [6]),
        (by_sex, [4]),
        (by_age, [6]),
        (by_age, [1, 3, 7, 2, 6, 4]),
        (by_place, [6, 1]),
        (by_age, [1 * 8.5 + 2 * 41 + 4 * 82]),
        (by_height, [3 * 1.25 + 4 * 1.875, 3 * 1.25**2 + 4 * 1.875**2]),
        (by_age, [7, 3, 4, 1, 2, 4]),
        (by_place, [6, 1]),
        (by_age, [7, 3 - 4, 1 - 2, 4 - 0]),
        (by_sex, [3 - 0.5 * 2, 2 * 2]),
        (np.array(7.0), [7]),
    ]
    for measurement, (table, answers) in zip(found, expected, strict=True):
        np.testing.assert_allclose(measurement.bind(found.domain).answer(table).ravel(), answers)

"""Models, bundles, synthetic files and domains stay readable for ever: they mean what they meant."""

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from consilience.domain import Domain
from consilience.estimators import restore
from consilience.estimators.choose import ESTIMATES
from consilience.estimators.clusters import ClusterEstimate
from consilience.estimators.logistic import RegressionEstimate
from consilience.measurements import MeasurementSet
from consilience.publication import open_release
from consilience.publication.model_files import load_model

GOLDEN = Path(__file__).parents[2] / "golden"

MODELS = {
    "bayesian-network": ("converged", [56.544862, 67.784026], [18.815243, 20.431094, 17.298525]),
    "dual-query": ("converged", [66.0, 54.0], [18.0, 24.0, 24.0]),
    "dual-query-model": ("converged", [64.632342, 55.367658], [15.224308, 18.229414, 31.17862]),
    "factored-weights": ("converged", [55.126, 64.874], [14.851567, 22.127175, 18.147258]),
    "fourier": ("converged", [15.835, 23.865], [10.025, 5.81]),
    "geographic": ("converged", [59.29, 65.73], [18.653333, 26.1, 14.536667]),
    "graphical": ("least risk", [56.953399, 68.079934], [15.994799, 21.826107, 19.132494]),
    "graphical-prior": ("least risk", [57.447143, 67.58619], [16.036353, 22.433968, 18.976822]),
    "learning": ("converged", [56.97, 70.98], [17.27, 21.59, 16.71]),
    "local-squares": ("converged", [57.65, 67.28], [15.7, 22.97, 18.98]),
    "matrix": ("converged", [56.04, 64.59], [18.68, 18.68, 18.68]),
    "multiplicative-weights": ("converged", [57.700672, 67.332662], [15.333043, 22.80075, 19.566878]),
    "reweighted": ("least risk", [59.363498, 65.669835], [15.064155, 23.464915, 20.834428]),
    "residual": ("converged", [57.701667, 67.331667], [15.346667, 22.8, 19.555]),
    "table": ("converged", [57.701667, 67.331667], [15.346667, 22.8, 19.555]),
    "tree": ("converged", [56.9525, 68.7475], [13.834167, 24.674167, 18.444167]),
    "uniform": ("converged", [62.516667, 62.516667], [20.838889, 20.838889, 20.838889]),
    "views": ("converged", [57.701667, 67.331667], [15.346667, 22.8, 19.555]),
}
"""Of each model how its fit ended, the counts by a, and those by b where a is 0."""


def test_every_estimate_that_can_be_saved_has_a_golden_model() -> None:
    assert set(MODELS) - {"graphical-prior"} == set(ESTIMATES)


@pytest.mark.parametrize("name", MODELS)
def test_models_answer_what_they_answered(name: str) -> None:
    saved = load_model(GOLDEN / "models" / f"{name}.model.parquet")
    found = restore(saved, MeasurementSet.load(GOLDEN / "models" / f"{name}.measurements.parquet"))
    status, by_a, by_b = MODELS[name]
    assert found.method["method"] == name.removesuffix("-prior")
    assert found.public_tables.name == ("Census 2021" if name in ("graphical-prior", "reweighted") else "")
    assert found.status.value == status
    assert found.marginal("a") == pytest.approx(by_a, abs=1e-5)
    assert found.answer("a=0 by b").ravel() == pytest.approx(by_b, abs=1e-5)


def test_clusters_and_regressions_mean_what_they_meant() -> None:
    clusters = ClusterEstimate.load(GOLDEN / "models" / "clusters" / "clusters.json")
    assert clusters.attributes == ("x", "y")
    assert clusters.private is False
    assert clusters.centroids == pytest.approx(np.array([[3.901106, 3.080645], [5.739954, 7.523616]]), abs=1e-5)
    assert clusters.sizes == pytest.approx([109.92366, 90.157643], abs=1e-5)
    regression = RegressionEstimate.load(GOLDEN / "models" / "regression.json")
    assert (regression.label, regression.attributes, regression.private) == ("label", ("x", "y"), False)
    assert regression.coefficients == pytest.approx([1.201837, -0.284063, -0.109987], abs=1e-5)


def test_bundles_hold_what_they_held() -> None:
    found = open_release(GOLDEN / "bundles" / "town")
    assert found.manifest["private"] is True
    assert found.manifest["privacy"] == {
        "neighbours": "add-remove",
        "unit": "row",
        "spent": {"epsilon": "0.5"},
        "public_facts": [],
        "notes": [],
    }
    assert found.manifest["intervals"] == {"level": 0.9, "refits": 20, "seed": 0}
    assert found.manifest["provenance"]["release"] == "request-8beba993098219ed"
    assert [each.values.tolist() for each in found.estimate.measurements] == [[9, 29, 22], [21, 2, 4, 12, 5, 20]]
    assert found.estimate.marginal("sex", "district") == pytest.approx(
        np.array([[15.665149, 6.83132], [5.692429, 8.974059], [7.712192, 16.458185]]), abs=1e-5
    )


def test_simulated_bundles_stay_marked() -> None:
    found = open_release(GOLDEN / "bundles" / "simulated")
    assert found.manifest["private"] is False
    assert found.estimate.private is False
    assert found.manifest["provenance"]["simulation_seed"] == 1
    assert found.estimate.total == pytest.approx(58.333333, abs=1e-5)


@pytest.mark.parametrize(("name", "private", "rows"), [("town", b"true", 61), ("simulated", b"false", 58)])
def test_synthetic_files_say_what_they_said(name: str, private: bytes, rows: int) -> None:
    table = pq.read_table(GOLDEN / "synthetic" / f"{name}.parquet")
    assert table.schema.metadata[b"consilience.format"] == b"synthetic records"
    assert table.schema.metadata[b"consilience.private"] == private
    with (GOLDEN / "synthetic" / f"{name}.csv").open(newline="", encoding="utf-8") as stream:
        lines = list(csv.reader(stream))
    assert lines[0] == table.column_names == ["sex", "age", "district"]
    assert lines[1:] == [[str(value or "") for value in row.values()] for row in table.to_pylist()]
    assert table.num_rows == rows


def test_domain_files_declare_what_they_declared() -> None:
    domain = Domain.load(GOLDEN / "domains" / "town.toml")
    assert domain.fingerprint == "2590d11fb1e0c4c706a158761e26ffbdedbf0e9105821f4753f0df431d1ee879"
    assert domain.to_declaration() == {
        "name": "town",
        "attributes": {
            "sex": {"kind": "categorical", "values": ["Female", "Male"], "missing": "Unknown", "unlisted": "drop"},
            "age": {"kind": "numeric", "edges": [0, 18, 65, 100], "unlisted": "clip"},
            "district": {"kind": "categorical", "values": ["North", "South"], "unlisted": "drop"},
        },
    }


def test_drafts_of_the_time_before_they_were_marked_stay_readable() -> None:
    domain = Domain.load(GOLDEN / "domains" / "drafted.toml")
    assert domain.names == ("person", "sex", "age", "district")

"""The benchmark of reconstruction on records made here."""

import numpy as np
import pytest

from benchmarks.accuracy import reconstruction
from benchmarks.problems.noisy_marginals import measured
from benchmarks.problems.records import hundred_attributes, most_visited, stand_in


def problem():
    records = stand_in("small", rows=500, sizes=(3, 4, 2, 5), seed=1)
    return measured(records, [(0, 1), (1, 2), (2, 3)], law="laplace", scale=4.0, seed=0)


def test_measurements_are_the_noisy_marginals_in_order() -> None:
    found = reconstruction.as_measurements(problem())
    for each, noisy in zip(found, problem().noisy, strict=True):
        assert each.values == pytest.approx(noisy.ravel())
        assert each.noise.scale == 4.0
    assert not found.private


def test_clipped_marginals_have_no_negative_counts_and_the_total() -> None:
    for table in reconstruction.clipped(problem()):
        assert table.min() >= 0
        assert table.sum() == pytest.approx(500)


def test_a_task_is_judged_against_its_target_and_the_raw_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    task = reconstruction.Task("small", "pairs", 4.0, ("graphical", "residual"), {"graphical": 1e-9})
    monkeypatch.setattr(reconstruction.Task, "problem", lambda *_: problem())
    raw, graphical, residual = reconstruction.judged(task, draws=2)
    assert raw["way"] == "clipped and rescaled"
    assert graphical["met"] is False
    assert residual["target"] == f"<= {raw['error']:.3g}"
    assert graphical["error"] < raw["error"]


def test_the_most_visited_pages_are_flags(tmp_path) -> None:
    import gzip

    path = tmp_path / "visits.gz"
    path.write_bytes(gzip.compress(b"1 2\n2 1\n2\n9 9 9 cut"))
    assert most_visited(path, 2).tolist() == [[1, 1], [1, 1], [1, 0]]


def test_the_wide_table_has_a_hundred_attributes_of_ten_values() -> None:
    records = hundred_attributes(200)
    assert records.codes.shape == (200, 100)
    assert records.sizes == (10,) * 100
    assert np.all((records.codes >= 0) & (records.codes < 10))

"""The sets of points for clustering have the published sizes, and say what stands in for what."""

import numpy as np
import pytest

from benchmarks.problems.points import GOWALLA_POINTS, NamedPoints, gowalla, image, mixture, published_points, s1


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))


@pytest.mark.usefixtures("no_data")
def test_missing_files_are_replaced_by_sets_of_the_same_size_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = published_points()
    assert [(each.name, *each.points.shape, each.clusters) for each in found] == [
        ("S1 (generated stand-in)", 5_000, 2, 15),
        ("TIGER (generated stand-in)", 13_467, 2, 2),
        ("Gowalla (generated stand-in)", GOWALLA_POINTS, 2, 5),
        ("Image (generated stand-in)", 34_112, 3, 3),
        ("Adult (numeric) (generated stand-in)", 48_842, 6, 5),
        ("Lifesci (generated stand-in)", 26_733, 10, 3),
    ]
    said = capsys.readouterr().err
    assert "missing: points/s1.txt" in said
    assert "missing: grids/checkin_256_256.npy" in said


def test_files_are_read_where_they_lie(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "points").mkdir()
    (tmp_path / "points" / "s1.txt").write_text("    1    2\n    3    5\n")
    (tmp_path / "grids").mkdir()
    counts = np.zeros((4, 4))
    counts[1, 2] = 7.0
    np.save(tmp_path / "grids" / "checkin_256_256.npy", counts)
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    assert s1().name == "S1"
    assert s1().points.tolist() == [[1.0, 2.0], [3.0, 5.0]]
    drawn = gowalla()
    assert "stand-in" in drawn.name
    assert drawn.points.shape == (GOWALLA_POINTS, 2)
    assert np.floor(drawn.points).tolist()[0] == [1.0, 2.0]
    assert (np.floor(drawn.points) == [1.0, 2.0]).all()


def test_points_are_mapped_by_their_bounds_and_projected_onto_the_ball() -> None:
    named = NamedPoints("three", np.array([[0.0, 10.0], [4.0, 30.0], [2.0, 25.0]]), 1)
    assert named.bounds == ((0.0, 4.0), (10.0, 30.0))
    np.testing.assert_allclose(named.normalised(named.points), [[-1, -1], [1, 1], [0, 0.5]])
    np.testing.assert_allclose(named.projected, [[-0.5, -0.5], [0.5, 0.5], [0.0, 0.5]])
    assert np.abs(image().projected).sum(axis=1).max() <= 1 + 1e-12


def test_a_table_of_points_gives_out_points_and_their_number() -> None:
    named = mixture("some", (50, 3, 2))
    table = named.table()
    first, last = named.attributes[0], named.attributes[2]
    np.testing.assert_array_equal(table.exact_points((last, first)), named.points[:, [2, 0]])
    assert table.exact_counts([()])[0] == 50


def test_fewer_points_are_some_of_them() -> None:
    named = mixture("some", (50, 3, 2))
    fewer = named.first(10)
    assert len(fewer.points) == 10
    assert all((named.points == row).all(axis=1).any() for row in fewer.points)
    assert named.first(50) is named

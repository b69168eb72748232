"""The problems for graphical models have the shapes that the papers and the benchmarks state."""

import numpy as np
import pytest

from benchmarks.problems.noisy_marginals import (
    ADULT_TRIPLES,
    NoisyMarginals,
    adult_fine,
    chain,
    random_triples,
    star,
)
from benchmarks.problems.records import SHAPES, named_records


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))


def test_a_chain_is_measured_on_adjacent_triples() -> None:
    problem = chain(12, rows=2_000)
    assert problem.sizes == (10,) * 12
    assert problem.scopes == tuple((j, j + 1, j + 2) for j in range(10))
    assert problem.cells == 10_000
    assert all(table.sum() == 2_000 for table in problem.exact)
    assert chain(12, rows=2_000).noisy[3] == pytest.approx(problem.noisy[3])


def test_neighbours_in_a_chain_depend_on_each_other() -> None:
    pair = chain(3, rows=5_000).exact[0].sum(axis=2) / 5_000
    independent = np.outer(pair.sum(axis=1), pair.sum(axis=0))
    assert np.abs(pair - independent).sum() > 0.5


def test_a_star_is_measured_on_pairs_with_its_centre() -> None:
    problem = star(30, rows=1_000)
    assert problem.scopes == tuple((0, j) for j in range(1, 30))
    assert problem.cells == problem.sizes[0] * sum(problem.sizes[1:])
    assert min(problem.sizes) >= 2
    assert max(problem.sizes) <= 50


@pytest.mark.usefixtures("no_data")
def test_the_triples_of_adult_have_the_cells_that_the_paper_prints(capsys: pytest.CaptureFixture[str]) -> None:
    problem = adult_fine()
    assert "missing: records/adult-fine.csv.gz" in capsys.readouterr().err
    assert problem.name == "adult-fine (stand-in)"
    assert problem.cells == 62_876
    assert (len(problem.scopes), problem.total) == (len(ADULT_TRIPLES), 48_842)
    spread = np.concatenate([(a - b).ravel() for a, b in zip(problem.noisy, problem.exact, strict=True)]).std()
    assert spread == pytest.approx(30.0, rel=0.02)


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(
    ("name", "columns"),
    [("titanic", 9), ("adult", 15), ("stroke", 110), pytest.param("loans", 48, marks=pytest.mark.slow)],
)
def test_stand_ins_have_the_shape_of_the_files(name: str, columns: int) -> None:
    table = named_records(name)
    assert table.codes.shape == (SHAPES[name][0], columns)
    assert np.all(table.codes.min(axis=0) >= 0)
    assert np.all(table.codes.max(axis=0) < table.sizes)


@pytest.mark.usefixtures("no_data")
def test_random_triples_are_the_same_for_every_seed_of_the_noise() -> None:
    one, two = random_triples("titanic", seed=0), random_triples("titanic", seed=1)
    assert one.scopes == two.scopes
    assert one.scopes == tuple(sorted(set(one.scopes)))
    assert len(one.scopes) == 15
    assert not np.allclose(one.noisy[0], two.noisy[0])
    np.testing.assert_array_equal(one.exact[0], two.exact[0])


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_loss_and_error_are_what_they_say(law) -> None:
    exact = (np.array([[3.0, 1.0], [0.0, 4.0]]), np.array([3.0, 5.0]))
    noisy = (exact[0] + 2.0, exact[1] - 4.0)
    problem = NoisyMarginals("small", (2, 2), ((0, 1), (0,)), exact, noisy, law, 2.0, 8.0)
    assert problem.loss(exact) == pytest.approx(6.0 if law == "gaussian" else 8.0)
    assert problem.error(exact) == 0.0
    assert problem.error([exact[0][::-1], exact[1]]) == pytest.approx((3 + 3 + 3 + 3) / 16 / 2)


def test_a_problem_survives_being_written(tmp_path) -> None:
    problem = star(4, rows=100)
    problem.save(tmp_path / "problem.npz")
    again = NoisyMarginals.load(tmp_path / "problem.npz")
    assert (again.name, again.sizes, again.scopes, again.law) == (
        problem.name,
        problem.sizes,
        problem.scopes,
        "gaussian",
    )
    assert again.loss(problem.exact) == problem.loss(problem.exact)

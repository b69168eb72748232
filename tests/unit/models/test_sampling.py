"""Synthetic rows follow the model as closely as whole rows can, and are random where the model says so."""

import itertools

import numpy as np
import pytest

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.rng import generator
from consilience.models.elimination import CalibratedModel
from consilience.models.model import GraphicalModel
from consilience.models.sampling import sample

SCOPES = {
    "chain": [(a, a + 1) for a in range(5)],
    "cycle": [(a, (a + 1) % 6) for a in range(6)],
    "star": [(0, a) for a in range(1, 6)],
    "triples": [(0, 1, 2), (2, 3, 4), (1, 4, 5)],
    "two parts": [(0, 1, 2), (3, 4), (4, 5)],
    "whole": [(0, 1, 2, 3, 4, 5)],
}
SIZES = (3, 7, 4, 5, 2, 6)


def random_model(scopes: list[tuple[int, ...]], sizes: tuple[int, ...], *, spread: float = 1.0) -> CalibratedModel:
    rng = np.random.default_rng(len(scopes))
    tables = [spread * rng.normal(size=[sizes[a] for a in scope]) for scope in scopes]
    return CalibratedModel(GraphicalModel.of(sizes, scopes, tables))


def counts(rows: np.ndarray, attributes: tuple[int, ...], sizes: tuple[int, ...]) -> np.ndarray:
    shape = [sizes[a] for a in attributes]
    cells = np.ravel_multi_index([rows[:, a] for a in attributes], shape)
    return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)


def errors(model: CalibratedModel, rows: np.ndarray, sets: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """For each set the L1 error of the rows' marginal, and that of plain draws."""
    rng, found, plain = np.random.default_rng(0), [], []
    for attributes in sets:
        p = model.marginal(attributes)
        found.append(np.abs(counts(rows, attributes, model.model.sizes) - len(rows) * p).sum())
        draws = rng.multinomial(len(rows), p.ravel() / p.sum(), size=5)
        plain.append(np.abs(draws - len(rows) * p.ravel()).sum(axis=1).mean())
    return np.array(found), np.array(plain)


@pytest.mark.parametrize("name", SCOPES)
def test_scopes_are_matched_far_better_than_by_plain_draws(name: str) -> None:
    model = random_model(SCOPES[name], SIZES)
    rows = sample(model, 20_000, generator(1))
    assert rows.shape == (20_000, 6)
    found, plain = errors(model, rows, SCOPES[name])
    assert found.sum() < plain.sum() / (3 if name != "whole" else 1.5)
    alone, plain_alone = errors(model, rows, [(a,) for a in range(6)])
    assert (alone < plain_alone / 5).all()


@pytest.mark.parametrize("name", SCOPES)
@pytest.mark.parametrize("rows", [1, 10, 3_000])
def test_every_cell_of_a_root_clique_is_its_share_rounded_down_or_up(name: str, rows: int) -> None:
    model = random_model(SCOPES[name], SIZES)
    drawn = sample(model, rows, generator(rows))
    for clique, parent in zip(model.forest.cliques, model.forest.parents, strict=True):
        if parent < 0:
            axes = tuple(sorted(clique))
            assert np.abs(counts(drawn, axes, SIZES) - rows * model.marginal(axes)).max() < 1 + 1e-9


def test_counts_are_right_on_average() -> None:
    sizes, scopes = (3, 4, 3), [(0, 1), (1, 2)]
    model = random_model(scopes, sizes)
    drawn = np.concatenate([sample(model, 40, generator(seed)) for seed in range(800)])
    p = model.marginal((0, 1, 2))
    deviations = (counts(drawn, (0, 1, 2), sizes) - len(drawn) * p) / np.sqrt(len(drawn) * p)
    assert np.abs(deviations).max() < 5


def test_leaves_of_a_star_are_independent_given_the_hub() -> None:
    model = random_model([(0, 1), (0, 2)], (2, 4, 4))
    rows = sample(model, 40_000, generator(3))
    found = counts(rows, (0, 1, 2), (2, 4, 4))
    expected = len(rows) * model.marginal((0, 1, 2))
    statistic = ((found - expected) ** 2 / expected).sum()
    # 18 cells are free given the margins, so random pairing has mean 18; one order for both leaves has thousands.
    assert 3 < statistic < 60


def test_parts_of_the_model_and_unmodelled_attributes_are_paired_at_random() -> None:
    sizes = (4, 5, 3, 1)
    model = CalibratedModel(GraphicalModel.of(sizes, [(0,), (1,)], [np.arange(4.0) / 3, np.arange(5.0) / 4]))
    rows = sample(model, 30_000, generator(5))
    assert (np.abs(counts(rows, (2,), sizes) - 10_000) <= 1).all()
    assert (rows[:, 3] == 0).all()
    for pair in itertools.combinations(range(3), 2):
        expected = 30_000 * model.marginal(pair)
        statistic = ((counts(rows, pair, sizes) - expected) ** 2 / expected).sum()
        assert statistic < 45


def test_rows_come_in_random_order() -> None:
    model = random_model(SCOPES["chain"], SIZES)
    rows = sample(model, 10_000, generator(2))
    half = counts(rows[:5_000], (1,), SIZES) - counts(rows[5_000:], (1,), SIZES)
    assert 0 < np.abs(half).max() < 500


def test_impossible_cells_stay_empty() -> None:
    rng = np.random.default_rng(7)
    sizes, scopes = (5, 6, 5, 4), [(0, 1), (1, 2), (2, 3), (3, 0)]
    tables = [3 * rng.normal(size=[sizes[a] for a in scope]) for scope in scopes]
    for table in tables:
        table[rng.random(table.shape) < 0.3] = -np.inf
        table[0, 0] = 0.0
    possible = rng.random((5, 5)) < 0.8
    possible[0, 0] = True
    model = CalibratedModel(GraphicalModel.of(sizes, scopes, tables, allowed=[((0, 2), possible)]))
    rows = sample(model, 20_000, generator(8))
    assert (model.log_probabilities(rows) > -np.inf).all()


def test_equal_seeds_give_equal_rows() -> None:
    model = random_model(SCOPES["triples"], SIZES)
    first, again, other = (sample(model, 500, generator(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_tables_in_parts_give_the_rows_of_whole_tables() -> None:
    model = random_model(SCOPES["triples"], SIZES)
    whole = sample(model, 5_000, generator(4))
    parts = sample(model, 5_000, generator(4), cells_at_once=10)
    # Sums in another order may tip single draws.
    assert (whole == parts).all(axis=1).mean() > 0.9
    found, plain = errors(model, parts, SCOPES["triples"])
    assert found.sum() < plain.sum() / 3


def test_errors_do_not_add_up_along_a_chain_of_200() -> None:
    sizes, scopes = (4,) * 200, [(a, a + 1) for a in range(199)]
    model = random_model(scopes, sizes, spread=2.0)
    rows = sample(model, 2_000, generator(6))
    found, plain = errors(model, rows, scopes)
    assert found.sum() < plain.sum() / 6
    assert found[-50:].sum() < 1.5 * found[:50].sum()


def test_extreme_potentials_are_sampled_without_warnings() -> None:
    model = random_model(SCOPES["cycle"], SIZES, spread=2_000.0)
    rows = sample(model, 1_000, generator(9))
    found, _ = errors(model, rows, SCOPES["cycle"])
    assert found.max() < 20


def test_no_rows_and_too_many_rows() -> None:
    model = random_model(SCOPES["chain"], SIZES)
    assert sample(model, 0, generator(0)).shape == (0, 6)
    with pytest.raises(DeclarationError, match="-1 synthetic rows"):
        sample(model, -1, generator(0))
    with pytest.raises(TooLarge, match=r"10,000,000,000 rows.*limit is 4\.0 GB.*raise memory_limit"):
        sample(model, 10**10, generator(0))


@pytest.mark.slow
def test_a_million_rows_of_large_cliques() -> None:
    sizes = (9, 16, 15, 5, 100, 2, 50, 40)
    scopes = [(0, 1, 2), (1, 3, 4), (2, 4, 5), (0, 3, 5), (4, 5, 6), (6, 7)]
    model = random_model(scopes, sizes, spread=2.0)
    rows = sample(model, 1_000_000, generator(1))
    found, plain = errors(model, rows, scopes)
    assert (found < plain / 3).all()

"""Following classes of like cells gives what following every cell would."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import DeclarationError
from consilience.estimators.published.multiplicative_weights import WeightedTable


def cell_by_cell(prior, total, rounds, sweeps):
    """The slow twin: the update of the paper, on every cell."""
    x = total * prior / prior.sum()
    for t in range(1, len(rounds) + 1):
        for _ in range(sweeps):
            for query, answer in rounds[:t]:
                full = np.broadcast_to(query, prior.shape)
                scale = max(1.0, np.abs(query).max())
                step = (answer - (full * x).sum()) / scale / (2 * total)
                x = x * np.exp(full / scale * np.clip(step, -16, 16))
                x *= total / x.sum()
    return x


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), kind=st.sampled_from(["0/1", "signs", "real"]))
def test_classes_follow_what_cells_would(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    prior = rng.random((4, 5)) * (rng.random((4, 5)) < 0.8) + 1e-3
    draw = {
        "0/1": lambda: rng.integers(0, 2, (4, 1)).astype(float),
        "signs": lambda: rng.integers(0, 2, (4, 5)) * 2.0 - 1.0,
        "real": lambda: 3 * rng.normal(size=(1, 5)),
    }[kind]
    rounds = [(draw(), float(rng.normal(20, 20))) for _ in range(4)]
    table = WeightedTable(prior, 50.0)
    for query, answer in rounds:
        table.add(query, answer)
        table.sweep(7)
    assert np.allclose(table.counts(), cell_by_cell(prior, 50.0, rounds, 7), rtol=1e-9, atol=1e-12)
    assert table.counts().sum() == pytest.approx(50.0)
    assert table.classes <= 20


def test_consistent_answers_are_met() -> None:
    truth = np.random.default_rng(0).random(32) * 10
    table = WeightedTable(np.ones(32), truth.sum())
    for first, last in ((0, 7), (4, 20), (10, 31)):
        query = np.zeros(32)
        query[first : last + 1] = 1
        table.add(query, query @ truth)
        table.sweep(3000)
    for first, last in ((0, 7), (4, 20), (10, 31)):
        assert table.counts()[first : last + 1].sum() == pytest.approx(truth[first : last + 1].sum(), abs=1e-3)
    assert table.classes == 5
    objective, gap = table.squared_residuals(np.ones(3))
    assert objective < 1e-5
    assert gap < 0.1


def test_the_gap_bounds_the_distance_from_the_best_table() -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(1)
    table = WeightedTable(np.ones(5), 10.0)
    queries, answers = rng.integers(0, 2, (4, 5)).astype(float), rng.normal(5, 5, 4)
    for query, answer in zip(queries, answers, strict=True):
        table.add(query, answer)
    table.sweep(5)
    weights = np.array([1.0, 2.0, 0.5, 1.0])
    objective, gap = table.squared_residuals(weights)
    best = minimize(
        lambda x: 0.5 * float((weights * (queries @ x - answers) ** 2).sum()),
        np.full(5, 2.0),
        bounds=[(0, None)] * 5,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 10.0},
        options={"ftol": 1e-12, "maxiter": 500},
    ).fun
    assert objective - gap <= best + 1e-6
    assert best <= objective + 1e-9


def test_cells_without_prior_stay_empty_and_wild_answers_stay_finite() -> None:
    table = WeightedTable(np.array([1.0, 0.0, 1.0]), 3.0)
    table.add(np.array([1.0, 1.0, 0.0]), 1e12)
    table.sweep(10)
    table.add(np.array([1.0, 0.0, 0.0]), -1e12)
    table.sweep(10)
    assert np.isfinite(table.counts()).all()
    assert table.counts()[1] == 0
    assert table.counts().sum() == pytest.approx(3.0)


def test_an_empty_table_stays_empty() -> None:
    table = WeightedTable(np.ones(3), 0.0)
    table.add(np.array([1.0, 0.0, 0.0]), 5.0)
    table.sweep(3)
    assert not table.counts().any()


@pytest.mark.parametrize(("prior", "total"), [([0.0, 0.0], 1.0), ([1.0, -1.0], 1.0), ([1.0], -1.0), ([1.0], np.inf)])
def test_impossible_tables_are_refused(prior, total) -> None:
    with pytest.raises(DeclarationError):
        WeightedTable(prior, total)

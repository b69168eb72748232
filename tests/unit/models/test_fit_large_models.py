"""Models on junction trees: refits that begin with a given model, impossible cells, and long chains."""

import numpy as np
import pytest
from numpy.typing import NDArray

from consilience.models.fitting.fit_model import fit_model
from consilience.models.fitting.objective import MeasuredQuery, MeasuredRows
from consilience.models.junction_trees import junction_tree
from consilience.models.model import carry_potentials
from consilience.models.oracle import MarginalOracle
from consilience.solvers.fit import Status
from consilience.solvers.tables.row_costs import RowCosts

Array = NDArray[np.float64]


def chain(length: int, values: int, records: int, seed: int) -> tuple[list[int], list[tuple[int, ...]], list[Array]]:
    """Noisy triples along a chain of attributes, as counts with noise of scale 10."""
    rng = np.random.default_rng(seed)
    data = np.empty((records, length), dtype=np.int64)
    data[:, 0] = rng.integers(0, values, records)
    for j in range(1, length):
        steps = rng.dirichlet(np.full(values, 0.3), values).cumsum(axis=1)
        data[:, j] = np.minimum((rng.random(records)[:, None] > steps[data[:, j - 1]]).sum(axis=1), values - 1)
    scopes = [(i, i + 1, i + 2) for i in range(length - 2)]
    counts = [
        np.bincount(np.ravel_multi_index(tuple(data[:, a] for a in scope), [values] * 3), minlength=values**3)
        for scope in scopes
    ]
    return [values] * length, scopes, [each + rng.normal(0, 10, each.size) for each in counts]


def measured(
    sizes: list[int], scopes: list[tuple[int, ...]], values: list[Array], total: float
) -> tuple[MarginalOracle, MeasuredRows, RowCosts]:
    oracle = MarginalOracle(junction_tree(sizes, scopes), scopes, total=total)
    queries = [MeasuredQuery(k, scope, np.full(values[k].size, 0.1)) for k, scope in enumerate(scopes)]
    observed = np.concatenate(values) / 10
    nobody = np.zeros(observed.size, dtype=np.bool_)
    return (
        oracle,
        MeasuredRows(oracle.layout, queries),
        RowCosts(observed, np.zeros(observed.size), np.ones(observed.size), nobody, nobody),
    )


def test_a_refit_with_one_more_measurement_is_far_nearer_to_the_optimum_after_as_many_calls() -> None:
    sizes, scopes, values = chain(30, 4, 20_000, seed=0)
    before, rows, costs = measured(sizes, scopes[:-1], values[:-1], 20_000.0)
    first = fit_model(before, rows, costs)
    after, rows, costs = measured(sizes, scopes, values, 20_000.0)
    carried = carry_potentials(before.layout, first.potentials, after.layout)
    cold = fit_model(after, rows, costs)
    warm = fit_model(after, rows, costs, start=carried)
    assert warm.status is cold.status is Status.CONVERGED
    assert warm.objective == pytest.approx(cold.objective, rel=2e-3)
    soon_cold = fit_model(after, rows, costs, max_steps=20)
    soon_warm = fit_model(after, rows, costs, start=carried, max_steps=20)
    assert soon_warm.objective - cold.objective < 0.1 * (soon_cold.objective - cold.objective)


def test_impossible_cells_stay_empty_and_the_rest_is_optimal() -> None:
    """One table with impossible cells: the best is to project the counts onto the others, by one shift for all."""
    counts = np.array([[30.0, -4.0, 12.0], [9.0, 15.0, 2.0]])
    allowed = np.array([[True, True, False], [True, True, True]])
    scopes = [(0, 1)]
    oracle = MarginalOracle(junction_tree([2, 3], scopes), scopes, total=60.0, allowed=[((0, 1), allowed)])
    rows = MeasuredRows(oracle.layout, [MeasuredQuery(0, (0, 1), np.ones(6))])
    nobody = np.zeros(6, dtype=np.bool_)
    costs = RowCosts(counts.ravel(), np.zeros(6), np.ones(6), nobody, nobody)
    fit = fit_model(oracle, rows, costs, tolerance=1e-6)
    kept = allowed & (counts > 0)
    expected = np.where(kept, counts + (60.0 - counts[kept].sum()) / kept.sum(), 0.0)
    assert oracle.layout.unpack(fit.marginals)[0] == pytest.approx(expected, abs=1e-2)
    assert fit.status is Status.CONVERGED


@pytest.mark.slow
def test_a_chain_of_a_thousand_attributes_converges() -> None:
    sizes, scopes, values = chain(1000, 10, 20_000, seed=0)
    oracle, rows, costs = measured(sizes, scopes, values, 20_000.0)
    fit = fit_model(oracle, rows, costs, tolerance=1e-2, time_limit=600)
    assert fit.status is Status.CONVERGED
    assert fit.gap <= 1e-2 * max(fit.objective, costs.expected)

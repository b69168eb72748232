"""Newton's equations between duals: by factorisation and between cells, against the matrix written out."""

import numpy as np
import pytest

from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, Kronecker, PrefixMap, SumMap
from consilience.models.fitting.newton_equations import FactoredEquations, OracleEquations, ReducedEquations
from consilience.models.fitting.objective import MeasuredQuery, MeasuredRows, Monitor
from consilience.models.junction_trees import junction_tree
from consilience.models.oracle import CountedOracle, MarginalOracle

SIZES = (5, 3, 2, 2)
SCOPES = [(0, 1), (1, 2)]
IMPOSSIBLE = ((1, 2), np.array([[True, True], [True, False], [True, True]]))


def problem(*, impossible: bool = False) -> tuple[CountedOracle, MeasuredRows, np.ndarray]:
    """Prefixes by all ranges on one table, a weighted marginal on the other, and some potentials."""
    allowed = (IMPOSSIBLE,) if impossible else ()
    oracle = MarginalOracle(junction_tree(SIZES, SCOPES), SCOPES, total=50.0, allowed=allowed)
    maps = Kronecker((PrefixMap(5), AllRangesMap(3)))
    answers = int(np.prod(maps.shape_out))
    queries = [
        MeasuredQuery(0, (0, 1), np.full(answers, 0.7), maps),
        MeasuredQuery(1, (1, 2), np.linspace(0.5, 2.0, 6)),
    ]
    potentials = np.random.default_rng(0).normal(0.0, 1.0, oracle.layout.size)
    return CountedOracle(oracle), MeasuredRows(oracle.layout, queries), potentials


def written_out(oracle: CountedOracle, rows: MeasuredRows, potentials: np.ndarray, rho: float) -> np.ndarray:
    """1 + ρ·BCBᵀ, column by column from exact derivatives."""
    columns = [rows.apply(oracle.derivative(potentials, rows.adjoint(unit))) for unit in np.eye(rows.size)]
    return np.eye(rows.size) + rho * np.array(columns).T


@pytest.mark.parametrize("equations", [FactoredEquations, ReducedEquations])
@pytest.mark.parametrize("impossible", [False, True], ids=["all cells possible", "some impossible"])
@pytest.mark.parametrize("rho", [1e-4, 1.0, 1e4])
def test_the_solution_is_that_of_the_matrix_written_out(
    equations: type[FactoredEquations | ReducedEquations], impossible: bool, rho: float
) -> None:
    oracle, rows, potentials = problem(impossible=impossible)
    found = equations.of(oracle, rows)
    assert found is not None
    marginals = oracle.marginals(potentials).values
    found.move_to(potentials, marginals, rows.apply(marginals))
    target = np.random.default_rng(1).normal(size=rows.size)
    monitor = Monitor(oracle, 1e-3, 0.0, 100_000, np.inf)
    solution = found.solve(np.ones(rows.size), rho, target, enough=1e-9, most_steps=500, monitor=monitor)
    matrix = written_out(oracle, rows, potentials, rho)
    assert np.abs(matrix @ solution - target).max() < 1e-3


def test_answers_that_do_not_determine_their_table_are_left_to_other_equations() -> None:
    oracle, rows, _ = problem()
    sums = Kronecker((SumMap(5), IdentityMap(3)))
    some = MeasuredRows(rows.layout, [MeasuredQuery(0, (0, 1), np.ones(3), sums)])
    assert ReducedEquations.of(oracle, some) is None
    assert isinstance(FactoredEquations.of(oracle, some), OracleEquations)

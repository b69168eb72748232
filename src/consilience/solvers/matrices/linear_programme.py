"""L1 with a sparse strategy as a linear programme, solved by HiGHS.

    min Σ a·p + ā·m   with   Ax − p + m = y,   p ≥ 0,   m ≥ 0,   x ≥ 0 or free.

The optimal price of row i of the equation is −l_i, so the programme hands over its own certificate. Rows that must be
met come last, and have no p and m.
"""

import numpy as np
import scipy.optimize
import scipy.sparse as sp

from consilience.solvers.matrices.certificates import Certifier
from consilience.solvers.matrices.equations import Equations
from consilience.solvers.matrices.interior_point import Solution
from consilience.solvers.matrices.row_costs import RowCosts
from consilience.solvers.matrices.strategies import SparseStrategy

FEASIBILITY = 1e-10


def solve_by_linear_programme(
    strategy: SparseStrategy,
    costs: RowCosts,
    certifier: Certifier,
    *,
    nonnegative: bool,
    equations: Equations | None = None,
) -> Solution | None:
    """The optimum and its proof; None where HiGHS gives up.

    With equations, their rows are the last ones of the strategy, and of the certifier's costs.
    """
    rows, columns = costs.noisy.size, strategy.shape[1]
    ones = sp.eye_array(strategy.shape[0], rows)
    system = sp.csc_array(sp.hstack([strategy.matrix, -ones, ones]))
    right = costs.noisy if equations is None else np.concatenate([costs.noisy, equations.values])
    cost = np.concatenate([np.zeros(columns), costs.up.slope, costs.down.slope])
    lower = np.concatenate([np.full(columns, 0.0 if nonnegative else -np.inf), np.zeros(2 * rows)])
    found = scipy.optimize.linprog(
        cost,
        A_eq=system,
        b_eq=right,
        bounds=np.stack([lower, np.full_like(lower, np.inf)], axis=1),
        method="highs",
        options={"primal_feasibility_tolerance": FEASIBILITY, "dual_feasibility_tolerance": FEASIBILITY},
    )
    if found.x is None:
        return None
    cells = np.asarray(found.x[:columns], dtype=np.float64)
    if nonnegative:
        cells = np.maximum(cells, 0.0)
    if equations is not None:
        restored = equations.restored(cells, nonnegative=nonnegative)
        if restored is None:
            return None
        cells = restored
    objective = costs.cost(strategy.apply(cells)[:rows] - costs.noisy)
    bound = certifier.bound(-np.asarray(found.eqlin.marginals, dtype=np.float64), cells)
    return Solution(cells, objective, bound, int(found.nit))

"""Moves that nearly give the right marginals, corrected the last bit.

The correction diag(softness) Φᵀ dλ with Φ diag(softness) Φᵀ dλ = r − Φδ is the least one that removes the misfit,
each cell's square divided by its softness. It is computed from the small misfit itself, so it is accurate where moves
that are recomputed from prices are not.
"""

import numpy as np

from consilience.solvers.marginal_tables.marginal_basis import Vector
from consilience.solvers.marginal_tables.normal_equations import NormalEquations
from consilience.solvers.marginal_tables.problem import TableProblem

ROUNDS = 4


def restore(problem: TableProblem, moves: Vector, softness: Vector) -> Vector:
    """Moves whose marginals fit as well as rounding allows, corrected only where cells are soft."""
    best, least = moves, problem.misfit(moves)
    if least <= 1e-15 or not softness.any():
        return moves
    equations = NormalEquations(problem.basis.gram(softness))
    for _ in range(ROUNDS):
        residual = problem.target - problem.basis.apply(best)
        corrected = best + softness * problem.basis.adjoint(equations.solve(residual))
        np.maximum(corrected, problem.low, out=corrected)
        misfit = problem.misfit(corrected)
        if not misfit < 0.5 * least:
            return corrected if misfit < least else best
        best, least = corrected, misfit
    return best

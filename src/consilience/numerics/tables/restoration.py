"""Cells that nearly have the right marginals, moved the last bit.

The move dx = diag(softness) Φᵀ dλ with Φ diag(softness) Φᵀ dλ = b − Φx is the least one with Φ(x + dx) = b, each cell's square
divided by its softness. It is computed from the small misfit itself, so it is accurate where cells that are
recomputed from prices are not.
"""

import numpy as np

from consilience.numerics.tables.normal_equations import NormalEquations
from consilience.numerics.tables.problem import TableProblem, Vector

ROUNDS = 4


def restore(problem: TableProblem, cells: Vector, softness: Vector) -> Vector:
    """Cells whose marginals fit as well as rounding allows, moved only where they are soft."""
    best, least = cells, problem.misfit(cells)
    if least <= 1e-15 or not softness.any():
        return cells
    equations = NormalEquations(problem.basis.gram(softness))
    for _ in range(ROUNDS):
        residual = problem.target - problem.basis.apply(best)
        moved = best + softness * problem.basis.adjoint(equations.solve(residual))
        if problem.floor:
            np.maximum(moved, 0.0, out=moved)
        misfit = problem.misfit(moved)
        if not misfit < 0.5 * least:
            return moved if misfit < least else best
        best, least = moved, misfit
    return best

"""Marginals through their residuals: least squares in closed form, then local non-negativity.

`Decomposition` turns residuals into marginals and back, `fit_residuals` finds the residuals of least squares, and
`fit_locally` the consistent, non-negative marginals near them. No step is exponential in the number of attributes.
"""

from consilience.marginals.decomposition import Decomposition
from consilience.marginals.least_squares import KnownTable, NoisyTable, fit_residuals, known_residuals
from consilience.marginals.level_fits import LocalProblem, fit_locally

__all__ = [
    "Decomposition",
    "KnownTable",
    "LocalProblem",
    "NoisyTable",
    "fit_locally",
    "fit_residuals",
    "known_residuals",
]

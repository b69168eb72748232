"""Noisy answers to the rows of a matrix: the most likely cells behind them."""

from consilience.solvers.matrices.matrix_fit import fit_matrix

__all__ = ["fit_matrix"]

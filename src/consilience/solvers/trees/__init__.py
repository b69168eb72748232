"""Exact solvers for noisy values on trees and forests."""

from consilience.solvers.trees.fit import fit_forest, fit_tree
from consilience.solvers.trees.layout import histogram_parents

__all__ = ["fit_forest", "fit_tree", "histogram_parents"]

"""Exact solvers for noisy values on trees and forests."""

from consilience.numerics.trees.fit import fit_forest, fit_tree
from consilience.numerics.trees.layout import histogram_parents

__all__ = ["fit_forest", "fit_tree", "histogram_parents"]

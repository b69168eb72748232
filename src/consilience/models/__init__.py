"""Graphical models on plain arrays: junction trees, and the marginals of a model by belief propagation."""

from consilience.models.junction_trees import JunctionTree, WorstClique, junction_tree, predicted_bytes, worst_cliques
from consilience.models.layout import TableLayout
from consilience.models.oracle import MarginalOracle, Marginals

__all__ = [
    "JunctionTree",
    "MarginalOracle",
    "Marginals",
    "TableLayout",
    "WorstClique",
    "junction_tree",
    "predicted_bytes",
    "worst_cliques",
]

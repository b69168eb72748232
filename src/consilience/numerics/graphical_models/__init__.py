"""Graphical models on plain arrays: junction trees, and the marginals of a model by belief propagation."""

from consilience.numerics.graphical_models.junction_trees import (
    JunctionTree,
    WorstClique,
    junction_tree,
    predicted_bytes,
    worst_cliques,
)
from consilience.numerics.graphical_models.layout import TableLayout
from consilience.numerics.graphical_models.oracle import MarginalOracle, Marginals

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

"""Convex sets that constrain counts, each known by its Euclidean projection."""

from consilience.solvers.projections.affine import Affine
from consilience.solvers.projections.convex_set import (
    AffineOrCone,
    ConvexSet,
    Projection,
    SeparableSet,
    SupportedSet,
    as_convex_sets,
)
from consilience.solvers.projections.marginals import MarginalsEqual
from consilience.solvers.projections.order import Isotonic
from consilience.solvers.projections.separable import Box, NonNegative, Zeros
from consilience.solvers.projections.simplex import Simplex
from consilience.solvers.projections.trees import TreeConsistency

__all__ = [
    "Affine",
    "AffineOrCone",
    "Box",
    "ConvexSet",
    "Isotonic",
    "MarginalsEqual",
    "NonNegative",
    "Projection",
    "SeparableSet",
    "Simplex",
    "SupportedSet",
    "TreeConsistency",
    "Zeros",
    "as_convex_sets",
]

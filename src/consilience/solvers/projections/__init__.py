"""Convex sets that constrain counts, each known by its Euclidean projection."""

from consilience.solvers.projections.affine import Affine
from consilience.solvers.projections.cells import (
    AffineOrCone,
    Box,
    ConvexSet,
    Isotonic,
    NonNegative,
    Projection,
    SeparableSet,
    Simplex,
    SupportedSet,
    Zeros,
    as_convex_sets,
)
from consilience.solvers.projections.sums import MarginalsEqual, TreeConsistency

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

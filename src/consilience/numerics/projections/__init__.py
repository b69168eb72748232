"""Convex sets that constrain counts, each known by its Euclidean projection."""

from consilience.numerics.projections.affine import Affine
from consilience.numerics.projections.convex_set import (
    AffineOrCone,
    ConvexSet,
    Projection,
    SeparableSet,
    SupportedSet,
    as_convex_sets,
)
from consilience.numerics.projections.marginals import MarginalsEqual
from consilience.numerics.projections.order import Isotonic
from consilience.numerics.projections.separable import Box, NonNegative, Zeros
from consilience.numerics.projections.simplex import Simplex
from consilience.numerics.projections.trees import TreeConsistency

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

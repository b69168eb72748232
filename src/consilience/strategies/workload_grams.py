"""Gram matrices of workloads, in closed form where the workload has structure.

With columns i and j counted from 0, and n of them:

    identity     (WᵀW)ᵢⱼ = 1 if i = j
    total        (WᵀW)ᵢⱼ = 1
    prefixes     (WᵀW)ᵢⱼ = n − max(i, j)                     prefixes that hold both cells
    all ranges   (WᵀW)ᵢⱼ = (min(i, j) + 1)(n − max(i, j))    ranges that hold both cells
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, LinearMap, PrefixMap, SumMap
from consilience.marginals.table_stacks import Scope

Matrix = NDArray[np.float64]
Norm = Literal[1, 2]

LARGEST_GRAM = 4096
"""Strategies are found for up to so many values: the time grows with the cube of their number, to minutes for these."""

GRAM_ROUNDING = 1e-10
"""Eigenvalues and diagonals of Gram matrices below this share of the largest are zeros that rounding blurred."""


def gram_matrix(workload: LinearMap) -> Matrix:
    """WᵀW of a workload over one attribute; structured workloads are never built.

    >>> gram_matrix(AllRangesMap(3)).tolist()
    [[3.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 3.0]]
    """
    size = workload.columns
    cell = np.arange(size, dtype=np.float64)
    if isinstance(workload, IdentityMap):
        return np.eye(size)
    if isinstance(workload, SumMap):
        return np.ones((size, size))
    if isinstance(workload, PrefixMap):
        return size - np.maximum.outer(cell, cell)
    if isinstance(workload, AllRangesMap):
        return (np.minimum.outer(cell, cell) + 1.0) * (size - np.maximum.outer(cell, cell))
    dense = workload.dense()
    return dense.T @ dense


def checked_gram(gram: ArrayLike) -> Matrix:
    """The Gram matrix as floats; refused where it is no Gram matrix of a workload that asks something."""
    found = np.asarray(gram, dtype=np.float64)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or not np.isfinite(found).all():
        raise DeclarationError(
            f"a Gram matrix is square and finite, this one has shape {found.shape}; give WᵀW of the workload W"
        )
    diagonal = np.diag(found)
    if diagonal.size == 0 or diagonal.max() <= 0 or diagonal.min() < 0:
        raise DeclarationError("a Gram matrix has no negative diagonal and at least one positive entry; give WᵀW")
    if np.abs(found - found.T).max() > 1e-9 * diagonal.max():
        raise DeclarationError("the Gram matrix is not symmetric; give WᵀW of the workload W")
    return (found + found.T) / 2.0


def asked_cells(gram: Matrix) -> NDArray[np.bool_]:
    """The cells that some query of the workload touches."""
    diagonal = np.diag(gram)
    return diagonal > GRAM_ROUNDING * diagonal.max()


def gram_root(gram: ArrayLike) -> Matrix:
    """A matrix R of full row rank with RᵀR = WᵀW: the workload up to a rotation of its queries.

    For every strategy that can answer W, the expected errors of W and R are the same; R has at most n rows.
    """
    values, vectors = np.linalg.eigh(checked_gram(gram))
    kept = values > GRAM_ROUNDING * values[-1]
    return np.sqrt(values[kept])[::-1, None] * vectors[:, kept].T[::-1]


def column_norm(strategy: Matrix, *, norm: Norm) -> float:
    """The largest L1 or L2 norm of a column: the sensitivity of the strategy when one record is added or removed."""
    if norm == 1:
        return float(np.abs(strategy).sum(axis=0).max())
    return math.sqrt(float((strategy**2).sum(axis=0).max()))


# ----------------------------------------------------------------------------------------------------------------------
# Workloads that are unions of weighted Kronecker products, known by the Gram matrices of their factors.
#
# With terms j and attributes i,
#
#     WᵀW = Σ_j w_j ⊗_i G_ji,        G_ji = F_jiᵀF_ji,
#
# where an attribute that a term sums over has the factor 1ᵀ, and so G = J, the matrix of ones. A strategy that is a
# product ⊗_i A_i answers it with the cost (McKenna et al. 2018)
#
#     tr(WᵀW (AᵀA)⁻¹) = Σ_j w_j Π_i tr(G_ji (A_iᵀA_i)⁻¹).


@dataclass(frozen=True, eq=False)
class ProductTerm:
    """One Kronecker product and how much its squared error counts."""

    weight: float
    grams: Mapping[int, Matrix]
    """The Gram matrices of the attributes that it tells apart; all others are summed over."""

    @cached_property
    def scope(self) -> Scope:
        return tuple(sorted(self.grams))


@dataclass(frozen=True, eq=False)
class ProductWorkload:
    """Weighted products over attributes of these sizes."""

    sizes: tuple[int, ...]
    terms: tuple[ProductTerm, ...]

    def __post_init__(self) -> None:
        if not self.terms:
            raise DeclarationError("the workload holds no query; name at least one")

    @cached_property
    def scope(self) -> Scope:
        """The attributes that some term tells apart."""
        return tuple(sorted({place for term in self.terms for place in term.grams}))

    @property
    def cells(self) -> int:
        """The cells of all those attributes together."""
        return self.cells_of(self.scope)

    def cells_of(self, scope: Scope) -> int:
        return math.prod(self.sizes[place] for place in scope)

    def by_scope(self) -> list["ProductWorkload"]:
        """The terms of each scope by themselves, in the order of their first terms."""
        groups: dict[Scope, list[ProductTerm]] = {}
        for term in self.terms:
            groups.setdefault(term.scope, []).append(term)
        return [ProductWorkload(self.sizes, tuple(group)) for group in groups.values()]

    def joined(self, other: "ProductWorkload") -> "ProductWorkload":
        return ProductWorkload(self.sizes, self.terms + other.terms)

"""Workloads that are unions of weighted Kronecker products, known by the Gram matrices of their factors.

With terms j and attributes i,

    WᵀW = Σ_j w_j ⊗_i G_ji,        G_ji = F_jiᵀF_ji,

where an attribute that a term sums over has the factor 1ᵀ, and so G = J, the matrix of ones. A strategy that is a
product ⊗_i A_i answers it with the cost (McKenna et al. 2018)

    tr(WᵀW (AᵀA)⁻¹) = Σ_j w_j Π_i tr(G_ji (A_iᵀA_i)⁻¹).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from consilience.errors import DeclarationError
from consilience.marginals.table_stacks import Scope
from consilience.strategies.grams import Matrix


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

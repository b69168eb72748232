"""Residuals told by whole-number queries with independent noise, at no extra cost.

The noise that `residual_noise` finds is correlated: within a residual its covariance is the projection I − J/n along
every axis. Independent noise on other queries gives the same. For attribute i of n values and a whole number s ≥ 0 let

    F_s = (s n + 1) I − s J,        F_sᵀF_s = (s n + 1)² (I − J/n) + J/n.

It is symmetric, of whole numbers, and can be inverted. Its answers with noise of one variance tell differences between
values (s n + 1)² times as precisely as the mean; s = 0 is the table itself, and for s → ∞ differences alone are told,
as by the subtraction matrices of Xiao et al. A product ⊗_{i∈A} F_{s_i} that tells the residual of A with precision r
tells that of C ⊂ A (which lies in the table divided by Π n_i) with precision

    r Π_{i∈A∖C} ℓ_i,        ℓ_i = 1 / (n_i (s_i n_i + 1)²),

so products for all A together tell τ with Σ_{A⊇τ} r_A Π_{A∖τ} ℓ_i. For this to be the wanted precision q_τ,

    r_C = Σ_{A⊇C} q_A Π_{i∈A∖C} (−ℓ_i).

Where no r_C is negative, the products measured with these precisions have the same information matrix QᵀΣ⁻¹Q as the
residual mechanism, Σ_τ q_τ Π_τ up to scale. Its diagonal is what a record costs, its inverse the covariance of least
squares: so cost and variances are the same, to the last digit. (The cost: a column of F_s has the squared norm
(s n + 1)²(1 − 1/n) + 1/n, and Σ_A r_A Π_{i∈A} (1 − 1/n_i + ℓ_i) = Σ_τ q_τ p_τ.) As ℓ → 0, r → q > 0: from some s on all
is well. The search starts with plain marginals, s = 0, and raises s where the leakage ℓ is largest.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.table_stacks import Scope, subsets

NEGLIGIBLE = 1e-9
"""A query that adds less than this part to what others tell of its residual is left out."""


@dataclass(frozen=True, eq=False)
class ResidualQueries:
    """The products to measure: s for each attribute, and the variance of each product's independent noise."""

    levels: tuple[int, ...]
    variances: Mapping[Scope, float]

    def matrix(self, place: int, size: int) -> NDArray[np.float64]:
        """F_s of an attribute of this size."""
        return difference_matrix(size, self.levels[place])


def difference_matrix(size: int, level: int) -> NDArray[np.float64]:
    """F_s: the counts times s n + 1, each less s times the total.

    >>> difference_matrix(2, 1).tolist()
    [[2.0, -1.0], [-1.0, 2.0]]
    """
    return (level * size + 1.0) * np.eye(size) - float(level)


def residual_queries(sizes: Sequence[int], precisions: Mapping[Scope, float]) -> ResidualQueries:
    """Whole-number products whose independent noise tells every residual with the wanted precision.

    The scopes are closed: with each of them all its parts are there.

    >>> sorted(residual_queries([3, 4], {(): 1 / 12, (0,): 1 / 4, (1,): 1 / 3, (0, 1): 1.0}).variances.items())
    [((0, 1), 1.0)]
    """
    levels = [0] * len(sizes)
    while True:
        leaks = [1.0 / (size * (level * size + 1.0) ** 2) for size, level in zip(sizes, levels, strict=True)]
        remaining = _remaining(precisions, leaks)
        lacking = {part for part, each in remaining.items() if each < -NEGLIGIBLE * precisions[part]}
        if not lacking:
            break
        levels[max(_leaking_into(lacking, precisions), key=lambda place: leaks[place])] += 1
    variances = {
        scope: math.prod((levels[place] * sizes[place] + 1.0) ** 2 for place in scope) / each
        for scope, each in remaining.items()
        if each > NEGLIGIBLE * precisions[scope]
    }
    return ResidualQueries(tuple(levels), variances)


def _leaking_into(lacking: set[Scope], scopes: Iterable[Scope]) -> list[int]:
    """The attributes over which larger products are summed on the way to these parts."""
    found: set[int] = set()
    for scope in scopes:
        for part in subsets(scope):
            if part in lacking:
                found.update(set(scope) - set(part))
    return sorted(found)


def _remaining(precisions: Mapping[Scope, float], leaks: Sequence[float]) -> dict[Scope, float]:
    """r_C for all scopes: the wanted precision less what the larger products tell, the largest first."""
    found = dict(precisions)
    for scope in sorted(found, key=lambda each: (-len(each), each)):
        for part in subsets(scope):
            if len(part) < len(scope):
                found[part] -= found[scope] * math.prod(leaks[place] for place in scope if place not in part)
    return found

"""OPT_M: how to weigh all 2^d marginals as one strategy (McKenna et al. 2018).

The strategy M(θ) stacks the marginals of all sets A of attributes, each times θ_A ≥ 0. Its sensitivity is Σ θ_A in the
L1 norm and √(Σ θ_A²) in the L2 norm, and MᵀM = Σ_A θ_A² ⊗_i (I if i ∈ A else J). These matrices commute: their common
eigenspaces are those of the residuals τ ⊆ {1 … d} (marginals/decomposition.py), where

    MᵀM = λ_τ,        λ_τ = Σ_{A⊇τ} θ_A² Π_{i∉A} n_i,
    WᵀW has the trace g_τ = Σ_j w_j Π_{i∈τ} (tr G_ji − ē_ji) Π_{i∉τ} ē_ji,        ē = 1ᵀG1/n,

so that tr(WᵀW (MᵀM)⁺) = Σ_τ g_τ/λ_τ: sums over supersets take the place of the inverse of a matrix with a row for each
cell. (The authors solve a triangular system of 2^d equations in the algebra of the matrices themselves.) Any workload
of products has such g, not marginals only. With S = Σ θ_A (L1) and u = θ², h = Σ g_τ/λ_τ(u),

    ∂h/∂u_A = −Π_{i∉A} n_i · Σ_{τ⊆A} g_τ/λ_τ²,

and S²h, or for the L2 norm (Σ u)h, is lowered by L-BFGS from several starts. Sets are bit masks over the attributes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from consilience.errors import TooLarge
from consilience.kernels.rng import generator
from consilience.marginals.table_stacks import Scope
from consilience.strategies.workload_grams import Norm, ProductTerm, ProductWorkload

Array = NDArray[np.float64]

MOST_ATTRIBUTES = 12
"""The most attributes: weights are found for all their sets."""

FEW_ATTRIBUTES = 10
"""Up to so many attributes every size of sets gives a start of its own; with more, the least and the greatest."""

SMALLEST = 1e-8
"""No weight goes below this during the search, so that every residual stays told."""

HARMLESS = 1e-3
"""Weights are left out as long as that costs no more than this part."""


@dataclass(frozen=True, eq=False)
class MarginalStrategy:
    """The scopes of the marginals to measure, each with its weight θ, of sensitivity 1 together."""

    scopes: tuple[Scope, ...]
    weights: tuple[float, ...]
    cost: float


def marginal_strategy(
    workload: ProductWorkload, *, norm: Norm, most_cells: int, restarts: int = 1, seed: int = 0
) -> MarginalStrategy | None:
    """The best weights found for marginals of up to `most_cells` cells; None where those cannot answer the workload."""
    places = workload.scope
    if len(places) > MOST_ATTRIBUTES:
        raise TooLarge(
            f"the workload tells {len(places)} attributes apart, and marginals are weighed for up to {MOST_ATTRIBUTES}"
        )
    sizes = [workload.sizes[place] for place in places]
    problem = _Problem(sizes, energies(workload), norm, most_cells)
    if not problem.answerable(problem.allowed):
        return None
    found = [problem.optimised(start) for start in problem.starts(restarts, seed)]
    theta = problem.pruned(min(found, key=problem.cost))
    theta = theta / problem.sensitivity(theta)
    kept = np.flatnonzero(theta)
    scopes = tuple(tuple(place for bit, place in enumerate(places) if mask >> bit & 1) for mask in kept.tolist())
    return MarginalStrategy(scopes, tuple(theta[kept].tolist()), problem.cost(theta))


def energies(workload: ProductWorkload) -> Array:
    """g_τ for all sets τ of the attributes that the workload tells apart."""
    found = np.zeros(1 << len(workload.scope))
    for term in workload.terms:
        product = np.array([term.weight])
        for place in workload.scope:
            even, rest = _split(term, place, workload.sizes[place])
            product = np.concatenate([product * even, product * rest])
        found += product
    return found


def _split(term: ProductTerm, place: int, size: int) -> tuple[float, float]:
    """How much of tr G lies along the even vector, and how much at right angles to it."""
    gram = term.grams.get(place)
    if gram is None:
        return float(size), 0.0
    even = float(gram.sum()) / size
    return even, max(float(np.trace(gram)) - even, 0.0)


class _Problem:
    """S²h of the module's head over all masks."""

    def __init__(self, sizes: Sequence[int], asked: Array, norm: Norm, most_cells: int) -> None:
        self.bits = len(sizes)
        self.asked = np.where(asked > 1e-12 * asked.max(), asked, 0.0)
        self.norm: Norm = norm
        cells = np.ones(1)
        for size in sizes:
            cells = np.concatenate([cells, cells * size])
        self.behind = cells[-1] / cells
        """Π_{i∉A} n_i."""
        self.allowed = cells <= most_cells

    def sensitivity(self, theta: Array) -> float:
        return float(theta.sum()) if self.norm == 1 else math.sqrt(float((theta**2).sum()))

    def answerable(self, measured: NDArray[np.bool_]) -> bool:
        """Whether every residual that is asked for is part of a measured marginal."""
        return bool((self.over_supersets(measured.astype(np.float64))[self.asked > 0] > 0).all())

    def cost(self, theta: Array) -> float:
        return self.objective(theta)[0] if self.answerable(theta > 0) else math.inf

    def objective(self, theta: Array) -> tuple[float, Array]:
        """S²h, or (Σ θ²)h, and its gradient in θ."""
        told = self.over_supersets(theta**2 * self.behind)
        wanted = self.asked > 0
        ratio = np.divide(self.asked, told, out=np.zeros_like(told), where=wanted)
        slope = -self.behind * self.over_subsets(np.divide(ratio, told, out=np.zeros_like(told), where=wanted))
        value, total = float(ratio.sum()), self.sensitivity(theta)
        through_sensitivity = 2.0 * total * value if self.norm == 1 else 2.0 * theta * value
        return total**2 * value, through_sensitivity + total**2 * slope * 2.0 * theta

    def over_supersets(self, values: Array) -> Array:
        """For each set the sum over all sets that hold it."""
        table = values.reshape([2] * self.bits)
        for axis in range(self.bits):
            table = np.flip(np.cumsum(np.flip(table, axis), axis=axis), axis)
        return table.ravel()

    def over_subsets(self, values: Array) -> Array:
        """For each set the sum over all its subsets."""
        table = values.reshape([2] * self.bits)
        for axis in range(self.bits):
            table = np.cumsum(table, axis=axis)
        return table.ravel()

    def starts(self, restarts: int, seed: int) -> list[Array]:
        """Weights that follow what is asked for, those with most on the sets of one size each, and random ones."""
        rng = generator(seed)
        lengths = np.zeros(1)
        for _ in range(self.bits):
            lengths = np.concatenate([lengths, lengths + 1.0])
        least = int(lengths[self.asked > 0].max())
        asked = np.where(self.asked > 0, np.sqrt(self.asked / self.asked.max()), 0.0)
        tried = range(least, self.bits + 1) if self.bits <= FEW_ATTRIBUTES else (least, self.bits)
        levels = [(lengths == length).astype(np.float64) for length in tried]
        random = [rng.random(len(asked)) for _ in range(restarts)]
        found = [np.where(self.allowed, start + 0.01, 0.0) for start in (asked, *levels, *random)]
        return [start for start in found if start.max() > 0.01]

    def optimised(self, start: Array) -> Array:
        """The weights that L-BFGS-B reaches."""
        free = np.flatnonzero(start)
        unit = self.cost(start)

        def evaluate(weights: Array) -> tuple[float, Array]:
            theta = np.zeros_like(start)
            theta[free] = weights
            value, gradient = self.objective(theta)
            return value / unit, gradient[free] / unit

        scaled = np.maximum(start[free] / self.sensitivity(start), SMALLEST)
        result = minimize(
            evaluate,
            scaled,
            jac=True,
            method="L-BFGS-B",
            bounds=[(SMALLEST, None)] * len(free),
            options={"maxiter": 2000, "maxfun": 4000, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-10},
        )
        theta = np.zeros_like(start)
        theta[free] = result.x
        return theta

    def pruned(self, theta: Array) -> Array:
        """The weights without the smallest ones, as many as can be missed, and the others found anew."""
        limit = (1.0 + HARMLESS) * self.cost(theta)
        for threshold in (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5):
            kept = np.where(theta > threshold * theta.max(), theta, 0.0)
            if self.answerable(kept > 0):
                again = self.optimised(kept)
                if self.cost(again) <= limit:
                    return again
        return theta

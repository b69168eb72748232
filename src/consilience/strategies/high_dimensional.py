"""OPT_HDMM: the strategy of least expected error among products, unions of them and marginals (McKenna et al. 2018).

The expected total squared error is the noise's variance times the cost tr(WᵀW (AᵀA)⁺) of a strategy of sensitivity 1:
2/ε² for Laplace noise, 1/(2ρ) for Gaussian noise.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.rng import generator
from consilience.strategies.attribute_strategies import (
    AttributeStrategy,
    Matrix,
    Norm,
    ProductTerm,
    ProductWorkload,
    attribute_strategy,
)

Array = NDArray[np.float64]
Operator = Literal["product", "union", "marginals"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)


@dataclass(frozen=True, eq=False)
class ProductStrategy:
    """⊗ A_i over the attributes named, of sensitivity 1; the others are summed over."""

    strategies: Mapping[int, AttributeStrategy]

    def cost(self, workload: ProductWorkload) -> float:
        """tr(WᵀW (AᵀA)⁺)."""
        return math.fsum(term.weight * math.prod(self._costs(term).values()) for term in workload.terms)

    def _costs(self, term: ProductTerm) -> dict[int, float]:
        return {place: each.cost(term.grams.get(place)) for place, each in self.strategies.items()}

    def seen_by(self, place: int, workload: ProductWorkload) -> Matrix:
        """Ĝ of one attribute while the others stay."""
        size = workload.sizes[place]
        found = np.zeros((size, size))
        for term in workload.terms:
            others = math.prod(cost for other, cost in self._costs(term).items() if other != place)
            gram = term.grams.get(place)
            found += term.weight * others * (1.0 if gram is None else gram)
        return found


@dataclass(frozen=True, eq=False)
class ChosenStrategy:
    """Products to measure together, their shares of the budget, and the error to expect."""

    operator: Operator
    parts: tuple[ProductStrategy, ...]
    shares: tuple[float, ...]
    """Of ε or of ρ."""
    error: float
    """The expected total squared error at ε = 1, or at ρ = ½; of a union, a bound on it."""
    considered: tuple[tuple[Operator, float], ...] = ()
    """The error of the best strategy of each kind that can be measured."""


# ----------------------------------------------------------------------------------------------------------------------
# OPT_M: how to weigh all 2^d marginals as one strategy (McKenna et al. 2018).
#
# The strategy M(θ) stacks the marginals of all sets A of attributes, each times θ_A ≥ 0. Its sensitivity is Σ θ_A in
# the L1 norm and √(Σ θ_A²) in the L2 norm, and MᵀM = Σ_A θ_A² ⊗_i (I if i ∈ A else J). These matrices commute: their
# common eigenspaces are those of the residuals τ ⊆ {1 … d} (marginals/decomposition.py), where
#
#     MᵀM = λ_τ,        λ_τ = Σ_{A⊇τ} θ_A² Π_{i∉A} n_i,
#     WᵀW has the trace g_τ = Σ_j w_j Π_{i∈τ} (tr G_ji − ē_ji) Π_{i∉τ} ē_ji,        ē = 1ᵀG1/n,
#
# so that tr(WᵀW (MᵀM)⁺) = Σ_τ g_τ/λ_τ: sums over supersets take the place of the inverse of a matrix with a row for
# each cell. (The authors solve a triangular system of 2^d equations in the algebra of the matrices themselves.) Any
# workload of products has such g, not marginals only. With S = Σ θ_A (L1) and u = θ², h = Σ g_τ/λ_τ(u),
#
#     ∂h/∂u_A = −Π_{i∉A} n_i · Σ_{τ⊆A} g_τ/λ_τ²,
#
# and S²h, or for the L2 norm (Σ u)h, is lowered by L-BFGS from several starts. Sets are bit masks over the attributes.


@dataclass(frozen=True)
class MarginalWeightSettings:
    """How weights of marginals are searched for; by trial, and no figures were kept."""

    most_attributes: int = 12
    """The most attributes: weights are found for all their sets, 4,096."""
    few_attributes: int = 10
    """Up to so many attributes every size of sets gives a start of its own; with more, the least and the greatest."""
    least_weight: float = 1e-8
    """No weight goes below this during the search, so that every residual stays told; the start has sensitivity 1."""
    harmless: float = 1e-3
    """Weights are left out as long as that costs no more than this part."""


MARGINAL_WEIGHTS = MarginalWeightSettings()


def marginal_strategy(
    workload: ProductWorkload, *, norm: Norm, most_cells: int, restarts: int = 1
) -> ChosenStrategy | None:
    """The best weights found for marginals of up to `most_cells` cells.

    None where those cannot answer the workload, and where it tells more than 12 attributes apart.
    """
    places = workload.scope
    if len(places) > MARGINAL_WEIGHTS.most_attributes:
        return None
    sizes = [workload.sizes[place] for place in places]
    problem = _Problem(sizes, energies(workload), norm, most_cells)
    if not problem.answerable(problem.allowed):
        return None
    found = [problem.optimised(start) for start in problem.starts(restarts)]
    theta = problem.pruned(min(found, key=problem.cost))
    theta = theta / problem.sensitivity(theta)
    kept = np.flatnonzero(theta)
    scopes = (tuple(place for bit, place in enumerate(places) if mask >> bit & 1) for mask in kept.tolist())
    parts = tuple(
        ProductStrategy({place: AttributeStrategy(workload.sizes[place]) for place in each}) for each in scopes
    )
    return ChosenStrategy("marginals", parts, tuple((theta[kept] ** norm).tolist()), _error(problem.cost(theta), norm))


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

    def starts(self, restarts: int) -> list[Array]:
        """Weights that follow what is asked for, those with most on the sets of one size each, and random ones."""
        rng = generator(0)
        lengths = np.zeros(1)
        for _ in range(self.bits):
            lengths = np.concatenate([lengths, lengths + 1.0])
        least = int(lengths[self.asked > 0].max())
        asked = np.where(self.asked > 0, np.sqrt(self.asked / self.asked.max()), 0.0)
        tried = range(least, self.bits + 1) if self.bits <= MARGINAL_WEIGHTS.few_attributes else (least, self.bits)
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

        scaled = np.maximum(start[free] / self.sensitivity(start), MARGINAL_WEIGHTS.least_weight)
        result = minimize(
            evaluate,
            scaled,
            jac=True,
            method="L-BFGS-B",
            bounds=[(MARGINAL_WEIGHTS.least_weight, None)] * len(free),
            options={"maxiter": 2000, "maxfun": 4000, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-10},
        )
        theta = np.zeros_like(start)
        theta[free] = result.x
        return theta

    def pruned(self, theta: Array) -> Array:
        """The weights without the smallest ones, as many as can be missed, and the others found anew."""
        limit = (1.0 + MARGINAL_WEIGHTS.harmless) * self.cost(theta)
        for threshold in (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5):
            kept = np.where(theta > threshold * theta.max(), theta, 0.0)
            if self.answerable(kept > 0):
                again = self.optimised(kept)
                if self.cost(again) <= limit:
                    return again
        return theta


# ----------------------------------------------------------------------------------------------------------------------
# OPT_⊗ and OPT_+: products of strategies for single attributes, and several of them side by side.
#
# *OPT_⊗* (McKenna et al. 2018). For a union of products the cost of ⊗ A_i is a sum of products over attributes.
# With all strategies but that of attribute i fixed it is tr(Ĝ_i (A_iᵀA_i)⁻¹), the cost of one attribute with
#
#     Ĝ_i = Σ_j w_j (Π_{k≠i} tr(G_jk (A_kᵀA_k)⁻¹)) G_ji.
#
# So attributes are improved in turn until nothing gains. One product needs one turn.
#
# *OPT_+* (ibid.). Terms in groups g, each with its own product strategy and the share s_g of the budget. Laplace
# noise on a share s has the variance 1/s² of that on the whole, Gaussian noise 1/s. With costs E_g the best shares are
#
#     s_g ∝ E_g^(1/3), in all (Σ E_g^(1/3))³    (Laplace)        s_g ∝ E_g^(1/2), in all (Σ E_g^(1/2))²    (Gaussian).
#
# Each group is taken to be answered by itself; least squares over all of them can only be better. Groups start as the
# terms of one scope, and two are joined while that lowers the total.


@dataclass(frozen=True)
class ProductSettings:
    """How products of strategies are searched for; by trial, and no figures were kept."""

    most_turns: int = 8
    """Turns through all attributes."""
    least_gain: float = 1e-3
    """A turn that gains less than this part of the cost is the last one, and no two groups are joined for less."""
    most_joined: int = 16
    """Up to so many groups are tried in pairs."""
    hopeless: float = 1.2
    """A pair that costs so many times as much, before it is optimised together, is not tried."""


PRODUCT_STRATEGIES = ProductSettings()


def product_strategy(workload: ProductWorkload, *, norm: Norm, restarts: int = 1) -> ProductStrategy:
    """The best product of strategies found for all terms together."""
    strategies = {place: AttributeStrategy(workload.sizes[place]) for place in workload.scope}
    current = ProductStrategy(strategies)
    cost = current.cost(workload)
    for _ in range(1 if len(workload.terms) == 1 else PRODUCT_STRATEGIES.most_turns):
        for place in workload.scope:
            found = attribute_strategy(current.seen_by(place, workload), norm=norm, restarts=restarts)
            moved = ProductStrategy({**current.strategies, place: found})
            current = moved if moved.cost(workload) < current.cost(workload) else current
        before, cost = cost, current.cost(workload)
        if cost > (1.0 - PRODUCT_STRATEGIES.least_gain) * before:
            break
    return current


@dataclass(frozen=True, eq=False)
class _Group:
    """Terms that are answered together, and how."""

    workload: ProductWorkload
    strategy: ProductStrategy
    cost: float


def union_strategy(workload: ProductWorkload, *, norm: Norm, most_cells: int, restarts: int = 1) -> ChosenStrategy:
    """Groups of terms with the best shares; scopes are joined to no more than `most_cells` cells."""
    known: dict[frozenset[int], _Group] = {}

    def solved(group: ProductWorkload) -> _Group:
        key = frozenset(id(term) for term in group.terms)
        if key not in known:
            found = product_strategy(group, norm=norm, restarts=restarts)
            known[key] = _Group(group, found, found.cost(group))
        return known[key]

    groups = [solved(each) for each in workload.by_scope()]
    while len(groups) <= PRODUCT_STRATEGIES.most_joined:
        joined = _joined_once(groups, solved, norm, most_cells)
        if joined is None:
            break
        groups = joined
    costs = [group.cost for group in groups]
    parts, error = tuple(group.strategy for group in groups), _error(_shared_cost(costs, norm), norm)
    return ChosenStrategy("union", parts, _shares(costs, norm), error)


def _joined_once(
    groups: list[_Group], solved: Callable[[ProductWorkload], _Group], norm: Norm, most_cells: int
) -> list[_Group] | None:
    """The groups with the best pair joined; None where no pair gains."""
    least, best = (1.0 - PRODUCT_STRATEGIES.least_gain) * _shared_cost([group.cost for group in groups], norm), None
    for one, two in itertools.combinations(groups, 2):
        together = one.workload.joined(two.workload)
        rest = [group for group in groups if group is not one and group is not two]
        costs = [group.cost for group in rest]
        most = PRODUCT_STRATEGIES.hopeless * least
        if together.cells > most_cells or _shared_cost([*costs, _rough_cost(one, two)], norm) > most:
            continue
        candidate = solved(together)
        cost = _shared_cost([*costs, candidate.cost], norm)
        if cost < least:
            least, best = cost, [*rest, candidate]
    return best


def _rough_cost(one: _Group, two: _Group) -> float:
    """What both groups cost through one product of the strategies that they have already."""
    together = one.workload.joined(two.workload)
    merged = (
        {**one.strategy.strategies, **two.strategy.strategies},
        {**two.strategy.strategies, **one.strategy.strategies},
    )
    return min(ProductStrategy(strategies).cost(together) for strategies in merged)


def _shares(costs: Sequence[float], norm: Norm) -> tuple[float, ...]:
    roots = [cost ** (1.0 / 3.0 if norm == 1 else 0.5) for cost in costs]
    return tuple(root / math.fsum(roots) for root in roots)


def _shared_cost(costs: Sequence[float], norm: Norm) -> float:
    power = 3.0 if norm == 1 else 2.0
    return math.fsum(cost ** (1.0 / power) for cost in costs) ** power


# ----------------------------------------------------------------------------------------------------------------------
# OPT_HDMM: the strategy of least expected error among products, unions of them and marginals (McKenna et al. 2018).


def best_strategy(
    workload: ProductWorkload,
    *,
    norm: Norm,
    operators: Sequence[Operator] = OPERATORS,
    most_cells: int = 10**6,
    restarts: int = 1,
) -> ChosenStrategy:
    """The strategy of least expected error; none asks for a table of more than `most_cells` cells.

    `norm` is 1 for Laplace and 2 for Gaussian noise.
    """
    for operator in operators:
        if operator not in OPERATORS:
            raise DeclarationError(f"the operator {operator!r} is not known; use some of {', '.join(OPERATORS)}")
    _refuse_large(workload, most_cells)
    tried = [_tried(operator, workload, norm, most_cells, restarts) for operator in dict.fromkeys(operators)]
    found = [each for each in tried if each is not None]
    if not found:
        raise TooLarge(
            f"no strategy of the kinds {', '.join(operators)} answers a workload over {len(workload.scope)} attributes "
            f"with {workload.cells:,} cells from tables of up to {most_cells:,}; allow the operator 'union'"
        )
    best = min(found, key=lambda each: each.error)
    considered: tuple[tuple[Operator, float], ...] = tuple((each.operator, each.error) for each in found)
    return ChosenStrategy(best.operator, best.parts, best.shares, best.error, considered)


def _tried(
    operator: Operator, workload: ProductWorkload, norm: Norm, most_cells: int, restarts: int
) -> ChosenStrategy | None:
    """The best strategy of one kind; None where it cannot be measured."""
    if operator == "union":
        return union_strategy(workload, norm=norm, most_cells=most_cells, restarts=restarts)
    if operator == "marginals":
        return marginal_strategy(workload, norm=norm, most_cells=most_cells, restarts=restarts)
    if workload.cells > most_cells:
        return None
    found = product_strategy(workload, norm=norm, restarts=restarts)
    return ChosenStrategy(operator, (found,), (1.0,), _error(found.cost(workload), norm))


def _error(cost: float, norm: Norm) -> float:
    """The expected error at ε = 1, or at ρ = ½."""
    return (2.0 if norm == 1 else 1.0) * cost


def _refuse_large(workload: ProductWorkload, most_cells: int) -> None:
    for term in workload.terms:
        if workload.cells_of(term.scope) > most_cells:
            raise TooLarge(
                f"a query of the workload tells {len(term.scope)} attributes apart, with "
                f"{workload.cells_of(term.scope):,} cells; {most_cells:,} are allowed: use coarser attributes, "
                "or raise most_cells"
            )

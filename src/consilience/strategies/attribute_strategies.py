"""Strategies for the queries of one attribute, and the Gram matrices WᵀW of workloads, which is all they need."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, LinearMap, PrefixMap, SumMap
from consilience.kernels.rng import generator
from consilience.marginals.table_stacks import Scope

# ----------------------------------------------------------------------------------------------------------------------
# Gram matrices of workloads, in closed form where the workload has structure.
#
# With columns i and j counted from 0, and n of them:
#
#     identity     (WᵀW)ᵢⱼ = 1 if i = j
#     total        (WᵀW)ᵢⱼ = 1
#     prefixes     (WᵀW)ᵢⱼ = n − max(i, j)                     prefixes that hold both cells
#     all ranges   (WᵀW)ᵢⱼ = (min(i, j) + 1)(n − max(i, j))    ranges that hold both cells


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


# ----------------------------------------------------------------------------------------------------------------------
# OPT₀: the strategy for the queries of one attribute, by the noise at hand (McKenna et al. 2018).
#
# Every strategy has sensitivity 1: the largest L1 norm of a column for Laplace noise, the largest L2 norm for Gaussian
# noise. For Laplace noise it is the cells, the total, or a p-identity strategy, whichever costs least. For Gaussian
# noise the semidefinite programme has the optimum itself.


# ----------------------------------------------------------------------------------------------------------------------
# p-identity strategies: every cell, and p further queries that the optimiser finds (McKenna et al. 2018, OPT₀).
#
# For a matrix Θ ≥ 0 of p rows let tⱼ = 1 + Σₖ Θₖⱼ and A(Θ) = [I; Θ] diag(t)⁻¹: every column has L1 norm 1 whatever Θ.
# With G = WᵀW and the matrix inversion lemma,
#
#     tr(G (AᵀA)⁻¹) = tr(G′ X),   G′ = diag(t) G diag(t),   X = (I + ΘᵀΘ)⁻¹ = I − Y Θ,   Y = Θᵀ K,  K = (I_p + ΘΘᵀ)⁻¹.
#
# With P = G diag(t) Θᵀ, the one product of n²p operations, and H = diag(t) P = G′Θᵀ,
#
#     objective = Σⱼ tⱼ² Gⱼⱼ − ⟨H, Y⟩
#     gradient  = −2 (Kᵀ Hᵀ − (Kᵀ HᵀY) Θ)  +  2 (tⱼ Gⱼⱼ − Σₖ Pⱼₖ Yⱼₖ) on every row   (through Θ, and through t).
#
# The problem is not convex. The starts are seeded, so that a workload has one strategy.


def p_identity(gram: ArrayLike, *, rows: int | None = None, restarts: int = 1) -> Matrix:
    """The strategy of cells and `rows` more queries with the least error found, of L1 sensitivity 1.

    By default there is one further query for every 16 cells (ibid., §8), at least one. The first start is a tree of
    intervals, further ones are random; the best result is kept, and the cells alone where nothing is better.

    >>> p_identity(np.eye(3), rows=1).round(3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    workload = checked_gram(gram)
    size = len(workload)
    count = max(1, round(size / 16)) if rows is None else rows
    if count < 1 or restarts < 1:
        raise DeclarationError(
            f"a p-identity strategy with {count} more rows and {restarts} starts was asked for; both are from 1 up"
        )
    scaled = workload / np.trace(workload)
    # A first guess with intervals of halving lengths, and random ones.
    rng = generator(0)
    starts = [_intervals(count, size)] + [rng.random((count, size)) for _ in range(restarts - 1)]
    found = [_optimised_rows(scaled, start) for start in starts]
    best, theta = min(found, key=lambda pair: pair[0])
    if best >= 1.0 - 1e-9:  # the error of the cells alone, in these units
        return np.eye(size)
    theta = theta[theta.max(axis=1) > 1e-9]
    return np.concatenate([np.eye(size), theta]) / (1.0 + theta.sum(axis=0))


def _intervals(rows: int, size: int) -> Matrix:
    """Row k = 2^l + r − 1 marks the r-th of 2^l equal intervals; a little of everything else keeps it free to move."""
    start = np.full((rows, size), 0.01)
    for row in range(rows):
        level = (row + 1).bit_length() - 1
        place = row + 1 - 2**level
        start[row, place * size // 2**level : (place + 1) * size // 2**level] = 1.0
    return start


def _optimised_rows(gram: Matrix, start: Matrix) -> tuple[float, Matrix]:
    """The least objective that L-BFGS-B reaches from a start, and its Θ."""

    def evaluate(flat: Matrix) -> tuple[float, Matrix]:
        value, gradient = objective_and_gradient(gram, flat.reshape(start.shape))
        return value, gradient.ravel()

    result = minimize(
        evaluate,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * start.size,
        options={"maxiter": 500, "maxfun": 1000, "maxcor": 20, "ftol": 1e-7, "gtol": 1e-9},
    )
    return float(result.fun), np.asarray(result.x, dtype=np.float64).reshape(start.shape)


def objective_and_gradient(gram: Matrix, theta: Matrix) -> tuple[float, Matrix]:
    """tr(WᵀW (AᵀA)⁻¹) of A(Θ), and its derivative in Θ, as the module's head has them."""
    scale = 1.0 + theta.sum(axis=0)
    factor = cho_factor(np.eye(len(theta)) + theta @ theta.T)
    inner = np.asarray(cho_solve(factor, theta)).T
    product = gram @ (scale * theta).T
    scaled = scale[:, None] * product
    diagonal = np.diag(gram)
    value = float((scale**2 * diagonal).sum() - (scaled * inner).sum())
    lifted = np.asarray(cho_solve(factor, scaled.T))
    through_theta = lifted - (lifted @ inner) @ theta
    through_scale = scale * diagonal - (product * inner).sum(axis=1)
    return value, 2.0 * (through_scale - through_theta)


# ----------------------------------------------------------------------------------------------------------------------
# Eigen-design: the workload's own eigenvectors as strategy, with the best weights (Li, Miklau 2012).
#
# Let G = WᵀW = Σᵢ sᵢ² qᵢ qᵢᵀ. The strategy has the rows λᵢ qᵢᵀ, whose error is Σᵢ sᵢ²/λᵢ² times the squared
# sensitivity. With p = 1 for Laplace and 2 for Gaussian noise, and uᵢ = λᵢᵖ, the best weights solve the convex problem
#
#     minimise Σᵢ cᵢ uᵢ^(−a)   over u > 0 with B u ≤ 1,       cᵢ = sᵢ², a = 2/p, Bⱼᵢ = |qᵢⱼ|ᵖ.
#
# Given multipliers v ≥ 0 and s = Bᵀv the minimiser is uᵢ = (a cᵢ/sᵢ)^(1/(1+a)), and the dual function is a sum of
# multiples of sᵢ^θ, θ = a/(1 + a), less Σ vⱼ. By the concavity of t ↦ t^θ, sᵢ^θ ≥ Σⱼ (Bⱼᵢvⱼ/sᵢ) sᵢ^θ (v′ⱼ/vⱼ)^θ;
# maximising that lower bound gives v′ⱼ = vⱼ (B u)ⱼ^(1+a), a step that never lowers the dual. u / maxⱼ (B u)ⱼ is
# feasible and tells how far the optimum can be.
#
# Columns whose norm stays below the largest get a row of their own for the difference, which costs no privacy (ibid.,
# §4.1, step 4).


@dataclass(frozen=True)
class EigenSettings:
    """When the weights of eigenvectors are good enough; by trial, and no figures were kept."""

    most_steps: int = 2000
    """Steps of the multipliers."""
    tolerance: float = 1e-4
    """The relative distance from the optimum at which the weights are good enough."""


EIGEN = EigenSettings()


def eigen_design(gram: ArrayLike, *, norm: Norm = 1) -> Matrix:
    """The best weighting of the workload's eigenvectors for L1 or L2 noise, scaled to that sensitivity 1.

    >>> abs(eigen_design(np.ones((3, 3)))).round(6).tolist()
    [[1.0, 1.0, 1.0]]
    """
    workload = checked_gram(gram)
    values, vectors = np.linalg.eigh(workload)
    kept = values > GRAM_ROUNDING * values[-1]
    weights = _weights(values[kept], np.abs(vectors[:, kept]) ** norm, 2.0 / norm) ** (1.0 / norm)
    designed = (weights * vectors[:, kept]).T
    completed = _completed(designed / column_norm(designed, norm=norm), asked_cells(workload), norm)
    return completed / column_norm(completed, norm=norm)


def _weights(costs: Matrix, shares: Matrix, power: float) -> Matrix:
    """The u of the module's head."""
    touched = shares.sum(axis=1) > GRAM_ROUNDING
    shares = shares[touched]
    multipliers = np.full(len(shares), costs.sum() / len(shares))
    best_bound, weights = 0.0, np.ones_like(costs)
    for _ in range(EIGEN.most_steps):
        pressure = np.maximum(shares.T @ multipliers, 1e-300)
        weights = (power * costs / pressure) ** (1.0 / (1.0 + power))
        used = shares @ weights
        objective = float((costs * weights**-power).sum())
        best_bound = max(best_bound, objective + float(pressure @ weights) - float(multipliers.sum()))
        reachable = objective * float(used.max()) ** power
        if reachable - best_bound <= EIGEN.tolerance * reachable:
            break
        multipliers = np.maximum(multipliers * used ** (1.0 + power), 1e-14 * float(multipliers.max()))
    return weights


def _completed(strategy: Matrix, asked: NDArray[np.bool_], norm: Norm) -> Matrix:
    """The strategy with a row for each asked cell whose column is shorter than the longest, filling it up."""
    room = np.where(asked, 1.0 - (np.abs(strategy) ** norm).sum(axis=0), 0.0)
    short = np.flatnonzero(room > 1e-6)
    rows = np.zeros((len(short), strategy.shape[1]))
    rows[np.arange(len(short)), short] = room[short] ** (1.0 / norm)
    return np.concatenate([strategy, rows])


# ----------------------------------------------------------------------------------------------------------------------
# The best strategy for noise of L2 sensitivity, in the semidefinite form of Li et al. 2010 and Yuan et al. 2012.
#
# Write M = AᵀA. The squared L2 sensitivity of A is the largest diagonal entry of M, and the error of a workload with
# Gram matrix G is maxᵢ Mᵢᵢ · tr(G M⁻¹): with the scale of M fixed, a convex problem,
#
#     minimise tr(G M⁻¹)   over M ≻ 0 with Mᵢᵢ ≤ 1.                                                  (P)
#
# For Laplace noise the sensitivity is the L1 norm, which is no function of M. Yuan et al. 2012 (their implementation of
# the matrix mechanism) solve the L2 problem in its place, take A = M^½, and pay A's L1 norm. They smooth the maximum
# and descend along projected gradients. The same optimum is reached faster through the dual. With multipliers v > 0 and
# D = diag(v), stationarity is M D M = G, so that M = D^(−½) (D^½ G D^½)^½ D^(−½), and the dual function is
#
#     d(v) = 2 tr (D^½ G D^½)^½ − Σ vᵢ = 2 ‖R D^½‖_* − Σ vᵢ,      G = RᵀR.
#
# The nuclear norm is the largest inner product with a matrix of spectral norm 1. Taking the polar factor of R D^½ at
# the current v for that matrix gives the lower bound d(v′) ≥ Σᵢ (2 Mᵢᵢ √(vᵢ v′ᵢ) − v′ᵢ), with equality at v′ = v, whose
# maximum is v′ᵢ = vᵢ Mᵢᵢ². That is the iteration: d never falls, and M / maxᵢ Mᵢᵢ is feasible with value Σ vᵢ Mᵢᵢ ·
# maxᵢ Mᵢᵢ, so that every step knows its distance from the optimum. (Denisov, McMahan et al. 2022 use vᵢ Mᵢᵢ for the
# same problem.)


MOST_SEMIDEFINITE_STEPS = 200
"""Steps of the multipliers, an eigendecomposition each; by trial, no figure kept."""


@dataclass(frozen=True, eq=False)
class SemidefiniteStrategy:
    """A strategy, the L2 error it has (Gaussian noise at ρ = ½), and a proven lower bound on that of every strategy."""

    strategy: Matrix
    objective: float
    lower_bound: float
    steps: int


def semidefinite_strategy(gram: ArrayLike, *, tolerance: float = 1e-6) -> SemidefiniteStrategy:
    """The strategy of least error under L2 noise, symmetric, scaled to L1 sensitivity 1.

    `tolerance` is the relative distance from the optimum at which it stops. Cells that no query touches are not
    measured.

    >>> semidefinite_strategy(np.eye(2)).strategy.round(6).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    workload = checked_gram(gram)
    asked = asked_cells(workload)
    found = _solve(workload[np.ix_(asked, asked)], tolerance)
    strategy = np.zeros_like(workload)
    strategy[np.ix_(asked, asked)] = found.strategy
    return SemidefiniteStrategy(
        strategy / column_norm(strategy, norm=1), found.objective, found.lower_bound, found.steps
    )


def _solve(gram: Matrix, tolerance: float) -> SemidefiniteStrategy:
    """The iteration of the module's head, from multipliers that balance the diagonal of G."""
    multipliers = np.sqrt(np.diag(gram))
    best_bound, steps = 0.0, 0
    while True:
        roots = np.sqrt(multipliers)
        values, vectors = np.linalg.eigh(roots[:, None] * gram * roots)
        singular = np.sqrt(np.maximum(values, 0.0))
        middle = (vectors * singular) @ vectors.T
        diagonal = np.diag(middle) / multipliers
        best_bound = max(best_bound, 2.0 * float(singular.sum()) - float(multipliers.sum()))
        objective = float(singular.sum()) * float(diagonal.max())
        steps += 1
        if objective - best_bound <= tolerance * objective or steps >= MOST_SEMIDEFINITE_STEPS:
            return SemidefiniteStrategy(_root(middle / np.outer(roots, roots)), objective, best_bound, steps)
        multipliers = np.maximum(multipliers * diagonal**2, 1e-14 * float(multipliers.max()))


def _root(matrix: Matrix) -> Matrix:
    """The symmetric square root."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


# ----------------------------------------------------------------------------------------------------------------------
# OPT₀: the strategy for the queries of one attribute, by the noise at hand (McKenna et al. 2018).


SAME_DIGITS = 12
"""Gram matrices that agree in so many digits have the same strategy, found once."""

FEW_VALUES = 64
"""Up to so many values more than the usual number of further queries are tried; they cost little there."""


@dataclass(frozen=True, eq=False)
class AttributeStrategy:
    """The cells, the total, or the rows of a matrix, of sensitivity 1."""

    size: int
    matrix: Matrix | None = None
    is_total: bool = False

    @property
    def is_identity(self) -> bool:
        return self.matrix is None and not self.is_total

    def dense(self) -> Matrix:
        """The rows that are measured."""
        if self.matrix is not None:
            return self.matrix
        return np.ones((1, self.size)) if self.is_total else np.eye(self.size)

    @cached_property
    def inverse(self) -> Matrix:
        """(AᵀA)⁺."""
        matrix = self.dense()
        return np.asarray(np.linalg.pinv(matrix.T @ matrix, rcond=GRAM_ROUNDING, hermitian=True), dtype=np.float64)

    def cost(self, gram: Matrix | None) -> float:
        """tr(G (AᵀA)⁺); without a Gram matrix that of the total, G = J. Infinite where A does not tell what G asks."""
        if self.is_total:
            return 1.0 if gram is None else float(gram[0, 0]) if _is_constant(gram) else math.inf
        if self.is_identity:
            return float(self.size) if gram is None else float(np.trace(gram))
        return float(self.inverse.sum()) if gram is None else float((self.inverse * gram).sum())


def attribute_strategy(gram: Matrix, *, norm: Norm, restarts: int = 1) -> AttributeStrategy:
    """The best strategy found for queries of one attribute with the Gram matrix WᵀW.

    >>> attribute_strategy(np.ones((4, 4)), norm=1).is_total, attribute_strategy(np.eye(4), norm=2).is_identity
    (True, True)
    """
    workload = checked_gram(gram)
    scaled = np.round(workload / workload.max(), SAME_DIGITS)
    return _optimised(scaled.tobytes(), norm, restarts)


@lru_cache(maxsize=256)
def _optimised(gram: bytes, norm: Norm, restarts: int) -> AttributeStrategy:
    flat = np.frombuffer(gram)
    size = round(math.sqrt(len(flat)))
    workload = flat.reshape(size, size)
    if _is_constant(workload):
        return AttributeStrategy(size, is_total=True) if size > 1 else AttributeStrategy(size)
    if _is_even_diagonal(workload):
        return AttributeStrategy(size)
    if norm == 2:
        found = semidefinite_strategy(workload, tolerance=1e-4).strategy
        candidates = [found / column_norm(found, norm=2)]
    else:
        rows = {max(1, round(size / 16))} | ({2, max(1, size // 4)} if size <= FEW_VALUES else set())
        candidates = [p_identity(workload, rows=count, restarts=restarts) for count in sorted(rows) if count < size]
    strategies = [AttributeStrategy(size), *(AttributeStrategy(size, each) for each in candidates)]
    best = min(strategies, key=lambda each: each.cost(workload))
    if best.matrix is not None:
        best.matrix.setflags(write=False)
    return best


def _is_constant(gram: Matrix) -> bool:
    """Whether only the total is asked for."""
    return bool(np.ptp(gram) <= GRAM_ROUNDING * abs(float(gram[0, 0])))


def _is_even_diagonal(gram: Matrix) -> bool:
    """Whether all cells are asked for alike and nothing else, where the cells are best."""
    return bool(np.abs(gram - gram[0, 0] * np.eye(len(gram))).max() <= GRAM_ROUNDING * abs(float(gram[0, 0])))

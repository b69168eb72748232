"""How large the error of a marginal will be, by plan, before anything is measured (Qardaji, Yang, Li 2014, §3, §4.5).

The error of a marginal table is the sum of its cells' squared errors; what is told here is its expectation under
Laplace noise at ε, when records are added or removed, before any correction of negative counts. d flags (attributes of
two values) and marginals of k of them are meant where nothing else is said. The unit is the variance of Laplace noise
of scale 1/ε,

    V = 2/ε²                                                                                        (2)

- *Flat*, every cell of the full table: a cell of the marginal sums 2^(d−k) noisy cells, and there are 2^k:  2^d V  (3)
- *Direct*, all C(d, k) marginals, each at ε/C(d, k):  2^k C(d, k)² V                                             (4)
- *Fourier*, all m = Σ_{j≤k} C(d, j) coefficients of sets of up to k flags. A record changes each of them by 1 in
  absolute value, so each gets noise of scale m/ε. A cell is 2^−k times a sum of 2^k coefficients with signs, its
  variance 2^−k m² V, and that of all 2^k cells together  m² V. The paper says that Direct's error is divided by 2^k,
  which is C(d, k)² V: the same with m for its largest term.
- *Views*: w marginals of s cells each, each at ε/w. A marginal of M cells that is summed from one of them has s/M noisy
  cells in each of its own: M · (s/M) · w² V = s w² V, whatever M is. The best mean of several views that hold it weighs
  them by 1/s and has  w² V / Σ 1/s.  With d flags and views of ℓ, a set of t flags is part of w C(ℓ, t)/C(d, t) views
  on average, and the root of the error in parts of the N records is

      (1/N) √( 2^ℓ w² V · C(d, t) / (w C(ℓ, t)) ),

  which is (5) for pairs, t = 2; t = 3 is its analogue for triples. It is exact where all sets are held equally often.

Six views of 8 of 16 flags that hold every pair have 2^8 · 36 V = 9216 V (the paper's text says 9126).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from benchmarks.strategy_errors import strategy_error
from consilience.errors import DeclarationError, TooLarge, readable_count
from consilience.plans.matrix_mechanism import STRATEGIES, optimised_strategy
from consilience.plans.published.marginals import Learning, fourier_coefficients
from consilience.strategies.attribute_strategies import LARGEST_GRAM

MOST_POINTS = 1000
"""With more attributes than this, the errors exceed the range of numbers."""


def unit_variance(epsilon: float = 1.0) -> float:
    """The variance of Laplace noise of scale 1/ε, equation (2).

    >>> unit_variance(0.1)
    200.0
    """
    if not 0 < epsilon < math.inf:
        raise DeclarationError(f"epsilon is {epsilon}; give a finite number above 0, such as 1.0")
    return 2.0 / epsilon / epsilon


def flat_error(points: int, *, epsilon: float = 1.0) -> float:
    """The expected squared error of any marginal from the full table of so many flags, equation (3).

    >>> flat_error(16) / unit_variance()
    65536.0
    """
    _check_sets(points, 0)
    return math.ldexp(unit_variance(epsilon), points)


def direct_error(points: int, ways: int, *, epsilon: float = 1.0) -> float:
    """The expected squared error of one of all marginals of `ways` of the flags, measured together, equation (4).

    >>> direct_error(16, 2) / unit_variance()
    57600.0
    """
    _check_sets(points, ways)
    return 2.0**ways * math.comb(points, ways) ** 2 * unit_variance(epsilon)


def fourier_error(points: int, ways: int, *, epsilon: float = 1.0) -> float:
    """The expected squared error of a marginal of `ways` flags from the plan `Fourier(ways)`: m² V.

    >>> fourier_error(9, 2) / unit_variance(), published_fourier_error(9, 2) / unit_variance()
    (2116.0, 1296.0)
    """
    _check_sets(points, ways)
    return fourier_coefficients(points, ways) ** 2 * unit_variance(epsilon)


def published_fourier_error(points: int, ways: int, *, epsilon: float = 1.0) -> float:
    """Direct's expected squared error divided by 2^k, as §3.3 has it; less than what the plan has."""
    return direct_error(points, ways, epsilon=epsilon) / 2.0**ways


def expected_squared_error(holding_cells: Sequence[int], *, views: int, epsilon: float = 1.0) -> float:
    """The expected squared error of a marginal, as the best mean over the views that hold it: w² V / Σ 1/s.

    `holding_cells` are the cells s of those of the `views` measured together that hold the marginal. Attributes may
    have any numbers of values.

    >>> expected_squared_error([2**8], views=6) / unit_variance()
    9216.0
    """
    if not holding_cells or min(holding_cells) < 1:
        raise DeclarationError(
            f"the marginal is held by views of {list(holding_cells)} cells; name at least one view, of at least 1 cell"
        )
    if views < len(holding_cells):
        raise DeclarationError(
            f"{len(holding_cells)} views hold the marginal, and {views} are measured; count all that are measured"
        )
    return views**2 * unit_variance(epsilon) / math.fsum(1.0 / cells for cells in holding_cells)


def view_noise_error(
    points: int, block: int, views: int, records: float, epsilon: float = 1.0, *, strength: int = 2
) -> float:
    """The noise error of a pair of `points` flags from `views` views of `block` flags, in parts of N, equation (5).

    `strength=3` is the analogue for triples.

    >>> [round(view_noise_error(32, 8, views, 900_000), 5) for views in (20, 106, 620)]
    [0.00047, 0.00109, 0.00263]
    """
    _check_sets(points, block)
    if not 0 <= strength <= block or views < 1:
        raise DeclarationError(
            f"{views} views of {block} attributes were asked about sets of {strength}; give at least 1 view, and sets "
            "that fit into one"
        )
    held = views * math.comb(block, strength) / math.comb(points, strength)
    return normalised_error(2.0**block * views**2 * unit_variance(epsilon) / held, records)


def normalised_error(squared_error: float, records: float, *, largest: float = math.inf) -> float:
    """The root of an expected squared error in parts of the number of records, and at most `largest`.

    The paper plots Flat like this with `largest=1`, for a table that is set right has no larger error to speak of.

    >>> round(normalised_error(flat_error(32), 912_627), 3), normalised_error(flat_error(45), 647_377, largest=1.0)
    (0.102, 1.0)
    """
    if not records > 0:
        raise DeclarationError(f"an error in parts of {records} records was asked for; give a number above 0")
    return min(largest, math.sqrt(squared_error) / records)


def direct_beats_flat_from(ways: int) -> int:
    """The least number of flags from which on Direct has less error than Flat: the table of §3.2.

    C(d, k)² grows like a power of d and 2^(d−k) doubles with every flag. Their ratio falls once ((d+1)/(d+1−k))² < 2,
    and from there on the first d at which it is below 1 is the answer.

    >>> [direct_beats_flat_from(ways) for ways in (2, 3, 4, 5)]
    [16, 26, 36, 46]
    """
    if not 1 <= ways <= MOST_POINTS // 16:
        raise DeclarationError(f"marginals of {ways} attributes were asked for; give 1 to {MOST_POINTS // 16}")
    points = ways
    while not (
        (points + 1) ** 2 < 2 * (points + 1 - ways) ** 2 and math.comb(points, ways) ** 2 < 2 ** (points - ways)
    ):
        points += 1
    return points


def block_criterion(block: int, strength: int = 2) -> float:
    """2^(ℓ/2) / (ℓ (ℓ−1) … (ℓ−t+1)): what the noise error of t-sets is proportional to when w ℓ(ℓ−1)… is fixed (§4.5).

    >>> [round(block_criterion(8, strength), 3) for strength in (2, 3)]
    [0.286, 0.048]
    """
    if not 0 <= strength <= block:
        raise DeclarationError(f"sets of {strength} do not fit into views of {block}; give a view at least as large")
    return 2.0 ** (block / 2) / math.perm(block, strength)


def learning_noise_error(points: int, plan: Learning, *, epsilon: float = 1.0) -> float:
    """The expected squared error that noise brings to a marginal of `ways` of so many flags, apart from g's own error.

    2^k cells, each with Σ_{j: c_j ≠ 0} C(k, j) terms of variance S² · 2/ε².

    >>> learning_noise_error(9, Learning(2, gamma=1 / 8)) / unit_variance()
    5184.0
    """
    weights = plan.estimator().weights
    stack = math.fsum(abs(weight) * math.comb(points, size) for size, weight in enumerate(weights))
    terms = sum(math.comb(plan.ways, size) for size, weight in enumerate(weights) if weight)
    return 2.0**plan.ways * terms * stack**2 * unit_variance(epsilon)


def marginal_workload_gram(sizes: Sequence[int], ways: int) -> NDArray[np.float64]:
    """WᵀW of all marginals over `ways` of the attributes of these sizes, cells in the table's own order.

    >>> marginal_workload_gram([2, 2], 1).astype(int).tolist()
    [[2, 1, 1, 0], [1, 2, 0, 1], [1, 0, 2, 1], [0, 1, 1, 2]]
    """
    if not 0 <= ways <= len(sizes):
        raise DeclarationError(f"{ways}-way marginals were asked for, but there are {len(sizes)} attributes")
    cells = int(np.prod(sizes, dtype=np.int64))
    if cells > LARGEST_GRAM:
        raise TooLarge(
            f"the attributes have {readable_count(cells)} joint cells, and strategies are found for up to "
            f"{LARGEST_GRAM:,}; "
            "leave out attributes"
        )
    codes = np.stack(np.unravel_index(np.arange(cells), tuple(sizes)))
    agreeing = (codes[:, :, None] == codes[:, None, :]).sum(axis=0)
    return np.asarray(comb(agreeing, ways), dtype=np.float64)


def expected_marginal_error(sizes: Sequence[int], ways: int, *, strategy: str = "eigen", epsilon: float = 1.0) -> float:
    """The expected squared error of a marginal, the mean over all of `ways` attributes, through a strategy for them.

    The strategy is over the joint cells of attributes of these sizes: "eigen", "p-identity", "yuan", or "identity", the
    full table. Such a strategy is no product of queries about single attributes, so that no plan can measure it; its
    error under Laplace noise is found by examining it, as Qardaji, Yang and Li (2014, §5.1) do. Attributes of one size
    leave the workload's eigenvectors open, and with them the error of "eigen": for all pairs of nine flags it is about
    1,000 · 2/ε² with those that LAPACK happens to give, and 1,307 with Walsh functions.

    >>> expected_marginal_error([2, 2, 2], 2, strategy="identity")
    16.0
    """
    if strategy not in ("identity", *STRATEGIES[1:]):
        raise DeclarationError(
            f"the strategy {strategy!r} is not known; use one of identity, {', '.join(STRATEGIES[1:])}"
        )
    if not 0 < epsilon < math.inf:
        raise DeclarationError(f"epsilon is {epsilon}; give a finite number above 0, such as 1.0")
    gram = marginal_workload_gram(sizes, ways)
    found = np.eye(len(gram)) if strategy == "identity" else optimised_strategy(gram.tobytes(), strategy, 1)
    return strategy_error(gram, found, norm=1) / math.comb(len(sizes), ways) / epsilon**2


def marginal_rounds(attributes: int) -> int:
    """⌈4 log₂ d⌉ + 2, the rounds that Qardaji, Yang and Li (2014, §5.1) take for marginals of d attributes.

    >>> marginal_rounds(9)
    15
    """
    if attributes < 1:
        raise DeclarationError(f"rounds for {attributes} attributes were asked for; give 1 or more")
    return math.ceil(4 * math.log2(attributes)) + 2


def _check_sets(points: int, size: int) -> None:
    if not 0 <= size <= points <= MOST_POINTS:
        raise DeclarationError(
            f"sets of {size} out of {points} attributes were asked for; give up to {MOST_POINTS} attributes, and sets "
            "of 0 to that many"
        )

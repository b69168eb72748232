"""Fourier: the Walsh–Hadamard coefficients of a table of flags, from which marginals follow (Barak et al. 2007).

For a set S of flags (attributes of two values) the coefficient of a table n is

    f_S = Σ_x (−1)^(number of flags in S whose code is 1 in x) · n(x),

the number of records with an even number of these flags less the number with an odd one; f_∅ is the total. The marginal
over A, |A| = k, follows from the 2^k coefficients of the subsets of A:

    n_A(a) = 2^−k Σ_{S ⊆ A} (−1)^(ones of a in S) · f_S.

So all marginals of up to k flags follow from the m = Σ_{j≤k} C(d, j) coefficients of sets of up to k flags, and as they
come from one set of numbers they agree with each other. A record adds +1 or −1 to every coefficient: measured together
their L1 sensitivity is m, and each gets noise of scale m/ε. (The paper writes the same with coefficients divided by
2^(d/2).) The expected squared error of a marginal is m² · 2/ε²: benchmarks/reproduce/qardaji2014/expected_errors.py.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.factors import Matrix
from consilience.domain.queries import Query
from consilience.domain.workloads import attribute_sets
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.base import check_whole, named_marginals
from consilience.estimators.published.learning import Learning as LearningEstimator
from consilience.estimators.published.learning import Literals
from consilience.plans.base import DescribedPlan
from consilience.privacy.gate import Gate

MOST_MEASURED = 10_000
"""Each coefficient or marginal is a query of its own; more than this many take minutes to price, count and record."""


def fourier_coefficients(points: int, ways: int) -> int:
    """How many sets of up to `ways` of the flags there are: the coefficients from which all those marginals follow.

    >>> fourier_coefficients(9, 4)
    256
    """
    return sum(math.comb(points, size) for size in range(ways + 1))


@dataclass(frozen=True)
class Fourier(DescribedPlan):
    """The coefficients of all sets of up to `ways` flags, with equal noise; for tables whose attributes are all flags.

    Fit with `estimators.Fourier`, which gives marginals of up to `ways` attributes.
    """

    name = "fourier"
    ways: int = 2

    def __post_init__(self) -> None:
        check_whole(self.ways, "the number of ways")

    def run(self, gate: Gate) -> None:
        gate.measure(self.queries(gate.domain), gate.budget)

    def queries(self, domain: Domain) -> list[Query]:
        """A query for each coefficient, smaller sets first; refused for other attributes than flags and for too many.

        >>> flags = Domain.from_sizes({"a": 2, "b": 2, "c": 2})
        >>> [query.attributes for query in Fourier(2).queries(flags)]
        [(), ('a',), ('b',), ('c',), ('a', 'b'), ('a', 'c'), ('b', 'c')]
        """
        others = [attribute for attribute in domain.counted if attribute.size != 2]
        if others:
            raise DeclarationError(
                f"attribute {others[0].name!r} has {others[0].size} values, and Fourier coefficients are for "
                "attributes of two; project the domain to those, or use the plan Direct or Views"
            )
        ways = min(self.ways, len(domain.counted))
        count = fourier_coefficients(len(domain.counted), ways)
        if count > MOST_MEASURED:
            raise TooLarge(
                f"{count:,} coefficients of up to {ways} of {len(domain.counted)} attributes would be measured, and "
                f"{MOST_MEASURED:,} are allowed; ask for fewer ways, or use the plan Views"
            )
        signs = {
            attribute.name: Matrix.of([[1.0, -1.0]], names=(" minus ".join(attribute.labels),))
            for attribute in domain.counted
        }
        sets = (names for size in range(ways + 1) for names in itertools.combinations(signs, size))
        return [Query.of({name: signs[name] for name in names}) for names in sets]


# ----------------------------------------------------------------------------------------------------------------------
# Learning: cells of wide marginals from narrow ones, by a polynomial (Thaler, Ullman, Vadhan 2012; Gupta et al. 2011).
#
# A cell of a marginal over k attributes is a conjunction of k literals, "this attribute has this value". A polynomial g
# of degree D in the number of literals that a record misses is 1 where none is missed and within γ of 0 elsewhere, so
# that
#
#     Σ_records g(literals missed) = Σ_{j≤D} c_j Σ_{|T|=j} n_T,                 off by at most γ times the records,
#
# with T the sets of j of the literals, n_T the number of records that match all of T (a cell of a marginal of j
# attributes), and weights c (see `estimators.Learning`). So all k-way marginals follow, nearly, from those of up to D
# attributes. With a share of the budget in proportion to |c_j| for every marginal of j attributes the
# noise on every term c_|T| n_T is the same, of scale S/ε with
#
#     S = Σ_j |c_j| C(d, j),
#
# for a record is in one cell of each marginal: S is the L1 sensitivity of all the weighted cells together. A cell of
# the answer has Σ_{j: c_j ≠ 0} C(k, j) such terms.
#
# *How this relates to the published algorithm.* Thaler, Ullman and Vadhan expand, for every record, the polynomial of
# g(z) in the d variables that say which literals the query has, sum its coefficients over the records, and release all
# of them with equal Laplace noise scaled to the L1 sensitivity of the whole vector. The coefficient of the monomial T
# is b_|T| times the number of records that *miss* all of T. That is the stack above with `literals="missed"`: the same
# numbers, the same noise, and the same answers. What is different, as far as the paper is remembered rightly:
#
# - their polynomial comes from Chebyshev's and has degree O(√k log(1/γ)); here it has the least degree there is, and of
#   that degree the least error, on the points 0, …, k. Both have g(0) = 1. `exact_at_zero=False` gives up that
#     condition
#   for the best uniform approximation at all points; for γ = ½ it is the constant ½, of no use;
# - they speak of conjunctions without negations, and of those with negations by 2d attributes. The conjunctions of an
#   attribute with its own negation, which no record satisfies, are not measured;
# - `literals="matched"`, which is the default, writes the same g in the number of literals matched. Its weights are
#   smaller, so there is less noise for the same approximation. It suits attributes of any numbers of values, and with
#   D = k it is the plan Direct.


@dataclass(frozen=True)
class Learning(DescribedPlan):
    """All marginals of up to D attributes, in shares that suit the polynomial of error γ for `ways` literals.

    >>> flags = Domain.from_sizes({"a": 2, "b": 2, "c": 2})
    >>> [(query.attributes, round(share, 3)) for query, share in Learning(2, gamma=1 / 2).weighted(flags)]
    [((), 0.333), (('a',), 0.667), (('b',), 0.667), (('c',), 0.667)]
    """

    name = "learning"
    ways: int = 2
    gamma: float = 0.25
    literals: Literals = "matched"
    exact_at_zero: bool = True

    def __post_init__(self) -> None:
        self.estimator()

    def estimator(self) -> LearningEstimator:
        """The estimator that answers from what this plan measures."""
        return LearningEstimator(self.ways, self.gamma, self.literals, self.exact_at_zero)

    def run(self, gate: Gate) -> None:
        queries, shares = zip(*self.weighted(gate.domain), strict=True)
        gate.measure(list(queries), gate.budget, shares=list(shares))

    def weighted(self, domain: Domain) -> list[tuple[Query, float]]:
        """The marginals to measure, smaller ones first, each with its weight."""
        names = domain.counted_names
        if self.ways > len(names):
            raise DeclarationError(f"{self.ways}-way marginals were asked for, but there are {len(names)} attributes")
        others = [attribute for attribute in domain.counted if attribute.size != 2]
        if self.literals == "missed" and others:
            raise DeclarationError(
                f"attribute {others[0].name!r} has {others[0].size} values, and literals missed are counted for "
                'attributes of two; use literals="matched"'
            )
        weights = self.estimator().weights
        count = sum(math.comb(len(names), size) for size, weight in enumerate(weights) if weight)
        if count > MOST_MEASURED:
            raise TooLarge(
                f"{count:,} marginals of up to {len(weights) - 1} of {len(names)} attributes would be measured, and "
                f"{MOST_MEASURED:,} are allowed; raise gamma, ask for fewer ways, or use the plan Views"
            )
        return [
            (Query.marginal(*members), abs(float(weight)))
            for size, weight in enumerate(weights)
            if weight
            for members in itertools.combinations(names, size)
        ]


# ----------------------------------------------------------------------------------------------------------------------
# DataCube: which marginals to measure so that the marginals of a workload come out best (Ding et al. 2011).
#
# Marginals are ordered in a lattice: one over C′ ⊇ C holds the one over C, whose cells each sum mag(C, C′) of its own,
# the product of the sizes of the attributes in C′ but not in C. With s marginals measured together a cell has the noise
# variance 2s²/ε² (for ρ-zCDP: s/2ρ), so the best of them gives C with the variance
#
#     2s²/ε² · min { mag(C, C′) : C′ measured, C′ ⊇ C }.
#
# The plan bounds the largest of these variances over the workload ("bound max variance"). That is NP-hard, and Ding et
# al. solve it to within (ln |workload| + 1)²: for a number s and a bound on the variance, each marginal of the lattice
# covers those of the workload that it would give within the bound, and greedy set cover tells whether about s of them
# cover all; the bound is searched by bisection, for each s. Here a bound on mag takes the place of the two: for every
# value M that a magnitude can have, greedy set cover finds few marginals that give each of the workload with mag ≤ M,
# and of all M that with the least s² M (s M for ρ) is taken. Bisection for an s ends at one of these covers. (Where
# magnitudes have more than 64 values, 64 of them are tried.) Two steps are added that can only help: a marginal whose
# part the others do is dropped, and M is what the cover attains.
#
# This is written from memory of the paper, which also has a second objective (as many marginals as possible within a
# given variance) and its own ways to consistency. Here the measured marginals are fitted by
# `estimators.Residual(nonnegative=False)`, least squares in closed form, or by `Table`.
#
# The choice looks at the domain, the workload and the budget's unit, never at the data. It goes through all marginals
# of the lattice, 2^d of them: for few attributes. There, the full table alone is often best: all pairs of 9 flags come
# from it with variance 128, in units of 2/ε²; from all 36 pairs with 1296; and from three views of six flags with 144.


MOST_LATTICE_PAIRS = 2**23
"""How many pairs of a marginal of the lattice and one of the workload are gone through."""

MOST_BOUNDS = 64
"""So many bounds on the magnitude are tried, spread evenly over all where there are more."""


@dataclass(frozen=True)
class DataCube(DescribedPlan):
    """The marginals from which those of a workload follow with the least largest variance, in equal shares.

    The workload is all marginals over `ways` attributes, or those named in `marginals`.

    >>> flags = Domain.from_sizes({name: 2 for name in "abcd"})
    >>> DataCube(ways=2).chosen(flags)
    (('a', 'b', 'c', 'd'),)
    """

    name = "data-cube"
    ways: int = 2
    marginals: Sequence[tuple[str, ...] | str] | None = None

    def __post_init__(self) -> None:
        check_whole(self.ways, "the number of ways")
        if self.marginals is None:
            return
        named = named_marginals(self.marginals)
        object.__setattr__(self, "marginals", named)
        if not any(named):
            raise DeclarationError("no marginals were named; name at least one, such as [('age', 'sex')]")

    def chosen(self, domain: Domain, *, pure: bool = True) -> tuple[tuple[str, ...], ...]:
        """The marginals to measure; `pure` says that noise grows with their number and not with its root."""
        names = domain.counted_names
        if self.marginals is None:
            wanted = attribute_sets(domain, min(self.ways, len(names)))
        else:
            wanted = [domain.ordered(each) for each in named_marginals(self.marginals)]
        places = {name: place for place, name in enumerate(names)}
        for name in (name for each in wanted for name in each if name not in places):
            raise DeclarationError(f"the attribute {name!r} is continuous and has no cells; leave it out")
        masks = tuple(sorted({sum(1 << places[name] for name in each) for each in wanted}))
        found = least_variance_cover(domain.shape, masks, 2 if pure else 1)
        return tuple(tuple(name for name, place in places.items() if mask >> place & 1) for mask in found)

    def run(self, gate: Gate) -> None:
        chosen = self.chosen(gate.domain, pure=gate.budget.additive_unit == "epsilon")
        gate.measure([Query.marginal(*names) for names in chosen], gate.budget)

    def to_json(self) -> dict[str, Any]:
        described = super().to_json()
        del described["marginals" if self.marginals is None else "ways"]
        return described


@lru_cache(maxsize=32)
def least_variance_cover(sizes: tuple[int, ...], wanted: tuple[int, ...], power: int) -> tuple[int, ...]:
    """The sets to measure, as bit masks over attributes of these sizes, by the search of the module's head.

    `power` is that of the number of sets in the variance: 2 for Laplace, 1 for Gaussian noise.
    """
    if len(sizes) > 40 or len(wanted) << len(sizes) > MOST_LATTICE_PAIRS:
        raise TooLarge(
            f"{len(wanted):,} marginals of {len(sizes)} attributes have a lattice of 2^{len(sizes)} to choose from, "
            f"and {MOST_LATTICE_PAIRS:,} pairs are gone through at most; use the plan Views, or fewer attributes"
        )
    magnitudes = _magnitudes(sizes, wanted)
    best, least = (), math.inf
    for bound in _bounds(magnitudes):
        cover = _without_idle(magnitudes, _greedy_cover(magnitudes <= bound), bound)
        variance = float(len(cover)) ** power * _attained(magnitudes, cover)
        if variance < least:
            best, least = cover, variance
    return tuple(best)


def _magnitudes(sizes: tuple[int, ...], wanted: tuple[int, ...]) -> NDArray[np.float64]:
    """mag(C, C′) for each set C′ of the lattice (rows, by mask) and wanted C; infinite where C′ does not hold C."""
    masks = np.arange(1 << len(sizes), dtype=np.int64)
    cells = np.ones(masks.size)
    for place, size in enumerate(sizes):
        cells *= np.where(masks >> place & 1, float(size), 1.0)
    targets = np.array(wanted, dtype=np.int64)
    found = cells[:, None] / cells[targets][None, :]
    found[(targets[None, :] & ~masks[:, None]) != 0] = np.inf
    return found


def _bounds(magnitudes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The magnitudes to try as bounds, ascending."""
    distinct = np.unique(magnitudes[np.isfinite(magnitudes)])
    if distinct.size <= MOST_BOUNDS:
        return distinct
    return distinct[np.unique(np.linspace(0, distinct.size - 1, MOST_BOUNDS).round().astype(np.intp))]


def _greedy_cover(covers: NDArray[np.bool_]) -> list[int]:
    """Rows that together cover all columns, each time the one that covers most of what is left; ties to the smallest.

    Every column is covered by some row: each wanted set holds itself.
    """
    gains = covers.sum(axis=1, dtype=np.int64)
    left = np.ones(covers.shape[1], dtype=np.bool_)
    chosen = []
    while left.any():
        row = int(np.argmax(gains))
        chosen.append(row)
        newly = np.flatnonzero(covers[row] & left)
        left[newly] = False
        gains -= covers[:, newly].sum(axis=1, dtype=np.int64)
    return chosen


def _without_idle(magnitudes: NDArray[np.float64], cover: list[int], bound: float) -> list[int]:
    """The cover without rows whose columns the others cover, too; earlier choices are kept first."""
    kept = list(cover)
    for row in reversed(cover):
        others = [each for each in kept if each != row]
        if others and bool(np.all(magnitudes[others].min(axis=0) <= bound)):
            kept = others
    return kept


def _attained(magnitudes: NDArray[np.float64], cover: list[int]) -> float:
    """The largest of the least magnitudes with which the cover gives each wanted set."""
    return float(magnitudes[cover].min(axis=0).max())

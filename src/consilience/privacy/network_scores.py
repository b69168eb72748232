"""Scores for private selection: which attribute depends most on which others? (Zhang et al. 2017, section 4)

A candidate is a child X with parents Π, and its score is one of R, F and I on the table of counts n(π, x), M records in
all. The paper divides by a public number of records and takes neighbours with the same number. In records, the scores
need neither. Write a record in cell (π, x) as added to a table with row sums r, column sums c and M records, and
E = r c / M for the table that independence would give.

**R** = ½ Σ |n − E|. *One record added.* n − E changes by

    (x, π itself)  (M − r_π)(M − c_x) / (M (M + 1))        and by the same amount in total, with the other sign,
    in the rest of row π and in the rest of column x, and with this sign in all other cells:

multiply out (r_π + 1)(c_x + 1)/(M + 1) − r_π c_x/M, and sum over the cells of each group, in which the change has one
sign. So Σ|change| = 4 (M − r_π)(M − c_x) / (M (M + 1)) < 4, and R moves by less than **2**. (From an empty table to one
record R stays 0.)

*One record replaced.* Both tables have the same M − 1 other records, with sums r and c. The table with the record in
(π, x) has n − E = what is common − r c/M + e, where e is 1 − (1 + r_π + c_x)/M in the cell, −c/M along the rest of the
row and −r/M along the rest of the column. Where the cell's part is not negative, Σ|e| =
(3(M − 1) − 2 r_π − 2 c_x)/M, else (M − 1)/M: at most 3(M − 1)/M. What is common cancels, two such e remain, and R moves
by at most half of 6(M − 1)/M, less than **3**. The paper has 3 + 2/M. A record replaced by one that the domain drops is
removed: 2. Both bounds are approached by large tables.

R is computed as ⌊2^b R⌋ from exact integers. A floor moves by no more than d if what is under it moves by no more than
a whole d, so that the sensitivity in units is 2 · 2^b and 3 · 2^b.

**F**, doubled: −min over halves (N − 2K₀)₊ + (N − 2K₁)₊, with a public whole number N, declared or measured before.
For given halves a record adds 1 to K₀ or to K₁ or to neither: added or removed it moves the sum by at most **2**;
replaced it may lower one part by 2 and raise the other by 2, or move one of them by 2: again at most **2**. A minimum
over halves moves by no more than the most that one of its terms does. This needs no assumption on M.

**I** = H(M) + Σ H(n) − Σ H(r) − Σ H(c), where H is the sum of whole steps 0 = γ(0) ≤ γ(1) ≤ … ≤ γ(N) that follow
n log n up to a public N and are γ(N) from there on. One record added to (π, x) moves it by
γ(M) + γ(n_πx) − γ(r_π) − γ(c_x). As n_πx ≤ c_x and γ(r_π) ≥ 0 that is at most γ(M), and as M ≥ c_x and γ(n_πx) ≥ 0 it
is at least −γ(r_π): between **±γ(N)**. One record replaced is one removed and one added: **2 γ(N)**. In natural
logarithms γ(N) is about 1 + log N. The paper's bounds for replaced records, about 2 + 2 log(N/2), or half that where
the child or the parents have two values, assume that N is right; these assume nothing. Only that steps are whole and do
not fall enters, so that rounding in logarithms has no influence on privacy.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.kernel_cache import njit
from consilience.kernels.transforms import exact_coefficients, most_frequencies, rows_of

# ----------------------------------------------------------------------------------------------------------------------
# How much one attribute depends on others, in whole numbers (Zhang et al. 2017, section 4).
#
# Tables are counts n(π, x), a row for each combination π of the parents' values and a column for each value x of the
# child; n(π) and n(x) are the sums of rows and columns, and M is the sum of all. Three measures of dependence:
#
#     R = ½ Σ |n(π, x) − n(π) n(x) / M|                 the distance from independence, in records
#     F = −min over halves (½N − K₀)₊ + (½N − K₁)₊      the distance to the nearest perfect dependence, for two columns
#     I = Σ n(π, x) log(n(π, x) M / (n(π) n(x)))        the mutual information, times M
#
# In F every row π belongs to one of two halves, and K_x is the sum of n(π, x) over the rows of half x: a table in which
# one half has x = 0 alone and the other x = 1 alone, with N/2 records each, is as dependent as can be. N is a public
# number. The paper divides all three by the number of records; as counts they need not know it.
#
# Each is an exact whole number of units, so that a sensitivity proven for it is the sensitivity of what is computed.


Integers = NDArray[np.int64]

MOST_RECORDS_IN_WORDS = 2**30
"""Up to so many records M · n(π, x), summed over all cells, fits in 63 bits; more are counted in unbounded integers."""

LONGEST_LADDER = 2**24


def distances_from_independence(tables: Sequence[Integers], bits: int) -> Integers:
    """⌊2^bits R⌋ of each table, exactly.

    >>> distances_from_independence([np.array([[2, 0], [0, 2]]), np.array([[1, 1], [1, 1]])], 3).tolist()
    [16, 0]
    """
    found = np.zeros(len(tables), dtype=np.int64)
    for places, stack in _by_shape(tables):
        records = stack.sum(axis=(1, 2))
        wide = int(records.max(initial=0)) > MOST_RECORDS_IN_WORDS
        exact = stack.astype(object) if wide else stack
        products = exact.sum(axis=2, keepdims=True) * exact.sum(axis=1, keepdims=True)
        twice = np.abs(exact.sum(axis=(1, 2), keepdims=True) * exact - products).sum(axis=(1, 2))
        # 2^bits · Σ|M n − n n| needs more than 63 bits for many records: the quotient is taken in unbounded integers.
        pairs = zip(twice.tolist(), records.tolist(), strict=True)
        found[places] = [(int(sum_) << bits) // (2 * total) if total else 0 for sum_, total in pairs]
    return found


def ladder(records: int, bits: int) -> Integers:
    """Whole steps γ(0) ≤ γ(1) ≤ …, one for each number up to `records`, of about 2^bits (h(n + 1) − h(n)).

    Here h(n) = n log n. The steps never fall and begin at 0, whatever floating point did to them: that is all a proof
    of sensitivity needs.
    """
    if records > LONGEST_LADDER:
        raise TooLarge(
            f"mutual information looks up n log n for up to {records:,} records, and {LONGEST_LADDER:,} are allowed; "
            'use the score "R"'
        )
    numbers = np.arange(1, records + 1, dtype=np.float64)
    steps = numbers * np.log1p(1.0 / numbers) + np.log(numbers)
    steps = np.concatenate([[0.0], steps + np.log1p(1.0 / numbers)])
    return np.maximum.accumulate(np.rint(np.ldexp(steps, bits)).astype(np.int64))


def informations(tables: Sequence[Integers], steps: Integers) -> Integers:
    """I of each table in the units of the ladder: H(M) + Σ H(n(π, x)) − Σ H(n(π)) − Σ H(n(x)), H the sum of steps.

    Beyond the last step all steps are alike.
    """
    heights = np.concatenate([[0], np.cumsum(steps)])
    last = len(steps)

    def height(counts: Integers) -> Integers:
        return heights[np.minimum(counts, last)] + np.maximum(counts - last, 0) * steps[-1]

    found = np.zeros(len(tables), dtype=np.int64)
    for places, stack in _by_shape(tables):
        found[places] = (
            height(stack.sum(axis=(1, 2)))
            + height(stack).sum(axis=(1, 2))
            - height(stack.sum(axis=2)).sum(axis=1)
            - height(stack.sum(axis=1)).sum(axis=1)
        )
    return found


def distances_to_dependence(tables: Sequence[Integers], records: int) -> Integers:
    """2F of each table of two columns, in records: −min over halves (N − 2K₀)₊ + (N − 2K₁)₊ with N = `records`.

    Row by row, the greatest K₁ that goes with each K₀ is kept (K₀ beyond N/2 is worth no more than N/2), which takes
    rows · N/2 steps where trying all halves takes 2^rows. Where a table has few rows, all halves are tried.

    >>> distances_to_dependence([np.array([[2, 0], [0, 2]]), np.array([[1, 1], [1, 1]])], 4).tolist()
    [0, -4]
    """
    return np.array([-_nearest_dependence(np.ascontiguousarray(each), records) for each in tables], dtype=np.int64)


@njit(nogil=True, cache=True)
def _nearest_dependence(table: Integers, records: int) -> int:  # pragma: no cover - compiled
    rows, enough = table.shape[0], (records + 1) // 2
    if rows < 62 and rows * enough > (1 << rows) * rows:
        least = 2 * records
        for halves in range(1 << rows):
            first, second = 0, 0
            for row in range(rows):
                if (halves >> row) & 1:
                    second += table[row, 1]
                else:
                    first += table[row, 0]
            least = min(least, max(records - 2 * first, 0) + max(records - 2 * second, 0))
        return least
    # best[K₀] is the greatest K₁ that goes with K₀, below 0 where none does; K₀ stands for itself or more at the end.
    best = np.full(enough + 1, -(1 << 60), dtype=np.int64)
    after = np.empty(enough + 1, dtype=np.int64)
    best[0] = 0
    for row in range(rows):
        zeros, ones = min(table[row, 0], enough), table[row, 1]
        for first in range(zeros):
            after[first] = best[first] + ones
        kept, moved = best[zeros:], best[: enough + 1 - zeros]
        target = after[zeros:]
        for place in range(target.shape[0]):
            target[place] = max(kept[place] + ones, moved[place])
        beyond = best[enough] + ones
        for first in range(enough - zeros, enough + 1):
            beyond = max(beyond, best[first])
        after[enough] = beyond
        best, after = after, best
    least = 2 * records
    for first in range(enough + 1):
        if best[first] >= 0:
            least = min(least, max(records - 2 * first, 0) + max(records - 2 * best[first], 0))
    return least


def _by_shape(tables: Sequence[Integers]) -> list[tuple[Integers, Integers]]:
    """The tables of each shape in one array, with their places, so that thousands of small ones are few operations."""
    places: dict[tuple[int, ...], list[int]] = {}
    for place, table in enumerate(tables):
        places.setdefault(table.shape, []).append(place)
    return [
        (np.array(found, dtype=np.int64), np.stack([tables[place] for place in found])) for found in places.values()
    ]


# ----------------------------------------------------------------------------------------------------------------------
# Scores for private selection: which attribute depends most on which others? (Zhang et al. 2017, section 4)


Dependence = Literal["R", "F", "I"]

R_BITS = 10
I_BITS = 16

MOST_CELLS = 10_000_000
"""Cells of all candidates' tables together: 80 MB of counts, and some times that for their scores."""


@dataclass(frozen=True)
class Family:
    """An attribute and those it may depend on."""

    child: str
    parents: tuple[str, ...] = ()

    @property
    def attributes(self) -> tuple[str, ...]:
        """The parents, then the child: the axes of the family's table."""
        return (*self.parents, self.child)


@dataclass(frozen=True)
class FamilyDependence:
    """How much the child of each family depends on its parents.

    `records` is a public number of records, exact or rough: what F compares halves with, and up to where I follows the
    logarithm. R does not use it.
    """

    families: tuple[Family, ...]
    dependence: Dependence = "R"
    records: int = 1

    @property
    def candidates(self) -> tuple[Family, ...]:
        return self.families

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        return tuple(family.attributes for family in self.families)

    @cached_property
    def _steps(self) -> Integers:
        return ladder(self.records, I_BITS)

    def sensitivity(self, neighbours: Neighbours) -> float:
        added = neighbours == "add-remove"
        if self.dependence == "R":
            return float((2 if added else 3) << R_BITS)
        if self.dependence == "F":
            return 2.0
        return float(int(self._steps[-1]) * (1 if added else 2))

    def values(self, exact_counts: Sequence[Integers]) -> Integers:
        tables = [counts.reshape(-1, counts.shape[-1]) for counts in exact_counts]
        if self.dependence == "R":
            return distances_from_independence(tables, R_BITS)
        if self.dependence == "F":
            return distances_to_dependence(tables, self.records)
        return informations(tables, self._steps)

    def check(self, domain: Domain) -> None:
        if not self.families:
            raise DeclarationError("there is no family to select from; name at least one child")
        if self.dependence not in ("R", "F", "I"):
            raise DeclarationError(f"the score is {self.dependence!r}; choose R, F or I")
        if self.records < 1 or (self.dependence == "I" and self.records > LONGEST_LADDER):
            raise DeclarationError(
                f"the score {self.dependence} was given {self.records:,} records; it takes 1 or more, and I up to "
                f"{LONGEST_LADDER:,}: use R"
            )
        for family in self.families:
            if len(set(family.attributes)) < len(family.attributes):
                raise DeclarationError(
                    f"the family ({', '.join(family.attributes)}) names an attribute twice; name it once"
                )
        cells = sum(math.prod(domain.sizes(family.attributes)) for family in self.families)
        if cells > MOST_CELLS:
            raise TooLarge(
                f"the tables of {len(self.families):,} families have {cells:,} cells, and {MOST_CELLS:,} are counted "
                "at once; name fewer families, or smaller ones"
            )
        if self.dependence == "F":
            for family in self.families:
                if domain[family.child].size != 2:
                    raise DeclarationError(
                        f"the score F is for children of two values, and {family.child!r} has "
                        f"{domain[family.child].size}; use R"
                    )

    def fingerprint(self) -> Sequence[object]:
        named = json.dumps([[family.child, list(family.parents)] for family in self.families])
        return ["family-dependence", self.dependence, self.records, hashlib.sha256(named.encode()).hexdigest()]


# ----------------------------------------------------------------------------------------------------------------------
# A score for private selection: how much of a histogram lies beyond its lowest frequencies.
#
# For the counts x of an attribute with n values and the rounded Fourier rows u₀, u₁, … of `kernels.transforms`, the
# coefficients c_j = u_j · x are exact integers in units of 2^−b. With k rows kept of K, the score of a candidate is
#
#     −( ⌊√(Σ_{k ≤ j < K} c_j²)⌋ + penalty ),
#
# in units of 2^−b √n records. The square root is the norm of T_k x, where T_k is a matrix of integers, and is computed
# from exact sums of squares.
#
# **Sensitivity.** Over to a neighbouring table x moves by ±e_s, or by e_s − e_t, and the norm by at most the norm of
# that column, or of that difference of columns, of T_k. The rows without rounding are part of a basis that is
# orthogonal with squared norm n: in units, the columns of T_k are at most 2^b √n long, and their differences at most √2
# · 2^b √n. Rounding moves each of at most n entries of a column by at most one unit, so a column by at most √n:
#
#     add-remove:  √n (2^b + 1) + 1,         replace-one:  √n (√2 · 2^b + 2) + 1,
#
# where the last 1 is for the floor. The penalty is public and the same on both sides.


BITS = 14
"""Rounding adds 2^−14 to the sensitivity, relatively."""

_LARGEST_PENALTY = 2**61


@dataclass(frozen=True)
class SpectralTail:
    """The candidates are numbers of frequencies from `fewest` up, one for each penalty; penalties are in records."""

    attribute: str
    size: int
    penalties: tuple[float, ...]
    fewest: int = 1

    @property
    def candidates(self) -> Sequence[int]:
        return range(self.fewest, self.fewest + len(self.penalties))

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        return ((self.attribute,),)

    def sensitivity(self, neighbours: Neighbours) -> float:
        root = math.sqrt(self.size)
        moved = root * (2**BITS + 1) if neighbours == "add-remove" else root * (math.sqrt(2) * 2**BITS + 2)
        return float(math.ceil(moved * (1 + 1e-12)) + 1)

    def values(self, exact_counts: Sequence[Integers]) -> Integers:
        coefficients = exact_coefficients(exact_counts[0], self.candidates[-1], BITS)
        squares = [each * each for each in coefficients.tolist()]
        beyond = [*itertools.accumulate(reversed(squares), initial=0)][::-1]
        tails = [math.isqrt(beyond[rows_of(self.size, frequencies)]) for frequencies in self.candidates]
        return -np.array([tail + penalty for tail, penalty in zip(tails, self._units, strict=True)], dtype=np.int64)

    @property
    def _units(self) -> list[int]:
        """The penalties in lattice units."""
        unit = math.sqrt(self.size) * 2**BITS
        return [round(min(penalty * unit, _LARGEST_PENALTY)) for penalty in self.penalties]

    def check(self, domain: Domain) -> None:
        size = domain[self.attribute].size
        last = self.fewest + len(self.penalties) - 1
        if size != self.size or not 1 <= self.fewest <= last <= most_frequencies(size):
            raise DeclarationError(
                f"{self.fewest} to {last} frequencies over {self.size} values were given for {self.attribute!r}, which "
                f"has {size} values and 1 to {most_frequencies(size)} frequencies; stay within these"
            )
        if not all(penalty >= 0 for penalty in self.penalties):
            raise DeclarationError("a penalty is negative or no number; a norm is 0 or more")

    def fingerprint(self) -> Sequence[object]:
        return ["spectral-tail", self.attribute, self.size, BITS, self.fewest, self._units]

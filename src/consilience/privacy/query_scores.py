"""Scores of single answers: which answer of a workload does the estimate get most wrong? (Hardt, Ligett, McSherry 2012)

A candidate is one row q of a workload's queries, and its score is w·|q·x − e|, with x the exact table, e the public
estimate's answer and w the public weight of the query.

Sensitivity. Between tables x and x′ the score of q moves by at most w·|q·x − q·x′|, by the triangle inequality. A
record added or removed in cell c moves q·x by q_c: the most is w·max_c |q_c|. A record moved from c to c′ moves it by
q_c′ − q_c: the most is w·(max_c q_c − min_c q_c). A record replaced by one that the domain drops is removed, so that
under replace-one the larger of the two counts. All are attained. Zeros and ones give w in either case; signs ±1 give w
and 2w. The entries of a row are products of one entry from each factor's row, chosen independently, and the
total's 1 for attributes that the query does not name; a product is greatest and least at ends of its factors'
intervals.

Rows with the same coefficient everywhere ask for the total, or for nothing, and are no candidates: replacing a record
does not move them, so that no noise could be scaled to them.

Scores are exact. Queries are on the public lattice 2^−b on which they would be measured, so that q·x is a whole
number of units; e is rounded to the same lattice, which changes what is compared with and not the argument above; w
is a whole number, in the proportions of the declared weights as far as 62 bits hold them.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.domain.answer_sets import AnswerSets, WeightedQueries
from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.linear_maps import (
    AllRangesMap,
    IdentityMap,
    Kronecker,
    LinearMap,
    PrefixMap,
    SparseMap,
    SumMap,
)
from consilience.privacy.pricing import LARGEST_RECORDS
from consilience.privacy.scores import LATTICE_BITS, Integers

MOST_CANDIDATES = 5_000_000
MOST_INTERVALS = 1_000_000
WEIGHT_BITS = 6

Interval = tuple[float, float]


class WorkloadRows:
    """Every single answer of a workload that tells records apart.

    >>> from consilience import Workload
    >>> domain = Domain.from_sizes({"a": 2, "b": 3})
    >>> rows = WorkloadRows(Workload.marginals(domain, ways=2), domain)
    >>> len(rows), rows.answer(4)[1]
    (6, 4)
    """

    def __init__(self, workload: WeightedQueries, domain: Domain) -> None:
        self.domain = domain
        self.workload = workload
        self.bounds = tuple(_on_lattice(query.bind(domain)) for query in workload.queries)
        answers = sum(bound.size for bound in self.bounds)
        if answers > MOST_CANDIDATES:
            raise TooLarge(
                f"the workload has {answers:,} single answers, and up to {MOST_CANDIDATES:,} can be selected from; "
                "name fewer queries, or coarser ones"
            )
        self.kept = tuple(_rows_that_vary(bound) for bound in self.bounds)
        self.starts = tuple(itertools.accumulate((each.size for each in self.kept), initial=0))
        if not len(self):
            raise DeclarationError("the workload asks for nothing but the total; name queries that tell records apart")
        room = 61 - max(bound_units(bound, self.bits) for bound in self.bounds).bit_length()
        self.weight_units = _whole_weights(workload.weights, min(WEIGHT_BITS, max(0, room)))

    def __len__(self) -> int:
        return self.starts[-1]

    def answer(self, place: int) -> tuple[BoundQuery, int]:
        """The query that one of them belongs to, and its place among the answers of that."""
        which = int(np.searchsorted(self.starts, place, side="right")) - 1
        return self.bounds[which], int(self.kept[which][place - self.starts[which]])

    @property
    def bits(self) -> int:
        """All scores are in units of 2^−bits."""
        return max(LATTICE_BITS, *(bound.lattice_bits for bound in self.bounds))

    @cached_property
    def intervals(self) -> tuple[frozenset[Interval], ...]:
        """For each query, the least and greatest coefficient of its rows that vary, each pair once."""
        return tuple(_row_intervals(bound) for bound in self.bounds)


@dataclass(frozen=True, eq=False)
class QueryError:
    """The weighted distance of each single answer of a workload from its estimate; candidates are their places."""

    rows: WorkloadRows
    estimates: Sequence[NDArray[np.float64]]
    """The estimated answers of each query, in its shape or flat."""

    @property
    def candidates(self) -> range:
        return range(len(self.rows))

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        return tuple(dict.fromkeys(bound.attributes for bound in self.rows.bounds))

    def sensitivity(self, neighbours: Neighbours) -> float:
        reach = max(
            weight * _reach(interval, neighbours)
            for weight, intervals in zip(self.rows.weight_units, self.rows.intervals, strict=True)
            for interval in intervals
        )
        return math.ldexp(reach, self.rows.bits)

    def values(self, exact_counts: Sequence[Integers]) -> Integers:
        tables = dict(zip(self.marginals, exact_counts, strict=True))
        scores = []
        parts = zip(self.rows.bounds, self.rows.weight_units, self.rows.kept, self._estimated_units(), strict=True)
        for bound, weight, kept, estimate in parts:
            operator = Kronecker(tuple(each.in_lattice_units() for each in bound.maps))
            exact = np.asarray(operator.apply(tables[bound.attributes]), dtype=np.int64).ravel()
            exact = exact << (self.rows.bits - bound.lattice_bits)
            scores.append(weight * np.abs(exact - estimate)[kept])
        return np.concatenate(scores)

    def check(self, domain: Domain) -> None:
        if domain != self.rows.domain:
            raise DeclarationError(
                f"the candidates are over the domain {self.rows.domain.name!r}, the data over {domain.name!r}; "
                "bind the workload to the data's domain"
            )
        if len(self.estimates) != len(self.rows.bounds):
            raise DeclarationError(
                f"{len(self.rows.bounds)} queries were given {len(self.estimates)} estimates; give one for each"
            )
        for bound, weight, estimate in zip(self.rows.bounds, self.rows.weight_units, self.estimates, strict=True):
            if np.size(estimate) != bound.size or not np.isfinite(estimate).all():
                raise DeclarationError(
                    f"the estimate of {bound.query.describe()!r} has {np.size(estimate)} numbers for {bound.size} "
                    "answers, or one that is not finite; give one finite number for each"
                )
            if weight * bound_units(bound, self.rows.bits) >= 2**61:
                raise DeclarationError(
                    f"the query {bound.query.describe()!r} has entries up to {bound.largest_entry:.3g}, too large for "
                    "exact scores; use coarser units"
                )

    def _estimated_units(self) -> list[Integers]:
        """The estimates on the lattice, held where no exact answer can lie beyond, so that no score overflows."""
        found = []
        for bound, estimate in zip(self.rows.bounds, self.estimates, strict=True):
            units = np.ldexp(np.asarray(estimate, dtype=np.float64).ravel(), self.rows.bits)
            limit = float(bound_units(bound, self.rows.bits))
            found.append(np.rint(np.clip(units, -limit, limit)).astype(np.int64))
        return found

    def fingerprint(self) -> Sequence[object]:
        digest = hashlib.sha256(json.dumps(self.rows.workload.to_json(), sort_keys=True).encode())
        for units in self._estimated_units():
            digest.update(units.tobytes())
        return ["query-error", self.rows.bits, digest.hexdigest()]


def _on_lattice(bound: BoundQuery) -> BoundQuery:
    return bound.rounded() if bound.lattice_bits else bound


def bound_units(bound: BoundQuery, bits: int) -> int:
    """No answer has more units of 2^−bits than this."""
    return math.ceil(math.ldexp(max(1.0, bound.largest_entry) * LARGEST_RECORDS, bits))


def _whole_weights(weights: Sequence[float], bits: int) -> tuple[int, ...]:
    """Weights as whole numbers of so many bits in their proportions, at least 1; all 1 where they are equal."""
    if len(set(weights)) <= 1:
        return (1,) * len(weights)
    return tuple(max(1, round(weight / max(weights) * 2**bits)) for weight in weights)


def _reach(interval: Interval, neighbours: Neighbours) -> float:
    """How far one record moves an answer whose coefficients span this interval."""
    least, greatest = interval
    removed = max(-least, greatest)
    return removed if neighbours == "add-remove" else max(removed, greatest - least)


def _rows_that_vary(bound: BoundQuery) -> NDArray[np.intp]:
    """The rows whose coefficients are not all the same: those with no zero factor row and not all constant ones."""
    constant, zero = np.ones(1, dtype=np.bool_), np.zeros(1, dtype=np.bool_)
    for each in bound.maps:
        least, greatest = _row_ends(each)
        level = least == greatest
        constant = np.logical_and.outer(constant, level).ravel()
        zero = np.logical_or.outer(zero, level & (least == 0)).ravel()
    return np.flatnonzero(~(constant | zero))


def _row_intervals(bound: BoundQuery) -> frozenset[Interval]:
    """The least and greatest coefficient of each row that varies, each pair once; a bound on all where too many."""
    found: frozenset[Interval] = frozenset({(1.0, 1.0)})
    for each in bound.maps:
        least, greatest = _row_ends(each)
        own = set(zip(least.tolist(), greatest.tolist(), strict=True))
        if len(found) * len(own) > MOST_INTERVALS:
            largest = bound.largest_entry
            return frozenset({(0.0 if all(one.nonnegative for one in bound.maps) else -largest, largest)})
        found = frozenset(_product(left, right) for left in found for right in own)
    return frozenset((least, greatest) for least, greatest in found if least < greatest)


def _product(left: Interval, right: Interval) -> Interval:
    ends = [one * other for one in left for other in right]
    return min(ends), max(ends)


def _row_ends(each: LinearMap) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least and the greatest coefficient of each row."""
    ones = np.ones(each.rows)
    if isinstance(each, SumMap):
        return ones, ones
    if isinstance(each, IdentityMap | PrefixMap | AllRangesMap):
        return _covers_all(each).astype(np.float64), ones
    if isinstance(each, SparseMap):
        least = np.asarray(each.matrix.min(axis=1).todense(), dtype=np.float64).ravel()
        return least, np.asarray(each.matrix.max(axis=1).todense(), dtype=np.float64).ravel()
    dense = each.dense()
    return dense.min(axis=1), dense.max(axis=1)


def _covers_all(each: IdentityMap | PrefixMap | AllRangesMap) -> NDArray[np.bool_]:
    """Which rows add up every cell."""
    last = each.columns - 1
    if isinstance(each, AllRangesMap):
        first, final = each.ends
        return (first == 0) & (final == last)
    return np.arange(each.rows) == last if isinstance(each, PrefixMap) or last == 0 else np.zeros(each.rows, np.bool_)


# ----------------------------------------------------------------------------------------------------------------------
# Scores of DualQuery: which single answers of a workload do the synthetic records get most wrong, and which way?
#
# A candidate is a single answer q of the workload, a set of records, or its complement. After k synthetic records, h_q
# of which are in q, and with n_q of the data's records in q and N the number of records (public, or noisy and released
# before), the score of q is
#
#     u_q = N·h_q − k·n_q,    and that of its complement is −u_q.
#
# Divided by N it is Σ_τ (q(x^τ) − q(D)), the exponent of DualQuery's distribution over queries but for its learning
# rate (Gaboardi et al. 2014): a selection with probability ∝ exp(η·u/N) is a draw from it. For the complement q̄ of
# fractions q̄(D) = 1 − q(D), so that its sum is the negative; where N is noisy, −u_q is its score by definition.
#
# Sensitivity. N, h and k are public. One record added or removed changes n_q by at most 1, and one record replaced
# takes at most 1 from it or adds at most 1: under either relation no score moves by more than k. It is attained by
# every candidate, because a row that is neither empty nor everything can gain a record.
#
# Everything is a whole number: rows are sets, and N is whole.


@dataclass(frozen=True, eq=False)
class DualScore:
    """N·h − k·n for each single answer of a workload, and after them the negative of each for the complements."""

    sets: AnswerSets
    held: Integers
    """h: how many of the synthetic records are in each single answer."""
    found: int
    """k: how many synthetic records there are, at least one; before that all candidates are alike."""
    records: int
    """N: the number of records, public or noisy."""

    @property
    def candidates(self) -> range:
        """The places of the single answers, and after them those of their complements."""
        return range(2 * len(self.sets))

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        return self.sets.marginals

    def sensitivity(self, neighbours: Neighbours) -> float:
        return float(self.found)

    def values(self, exact_counts: Sequence[Integers]) -> Integers:
        exact = np.asarray(self.sets.answers(exact_counts), dtype=np.int64)
        scores = self.records * self.held - self.found * exact
        return np.concatenate([scores, -scores])

    def check(self, domain: Domain) -> None:
        if domain != self.sets.domain:
            raise DeclarationError(
                f"the candidates are over the domain {self.sets.domain.name!r}, the data over {domain.name!r}; "
                "bind the workload to the data's domain"
            )
        if self.held.shape != (len(self.sets),) or self.held.dtype != np.int64:
            raise DeclarationError(
                f"{len(self.sets)} single answers were given {self.held.shape} numbers of synthetic records of type "
                f"{self.held.dtype}; give one whole number for each"
            )
        least, most = self._ends
        if self.found < 1 or least < 0 or most > self.found:
            raise DeclarationError(
                f"{self.found} synthetic records are said to be between {least} and {most} times in an answer; there "
                "is at least one record, and each is in an answer once or not at all"
            )
        if not 1 <= self.records <= LARGEST_RECORDS or self.found * LARGEST_RECORDS >= 2**61:
            raise DeclarationError(
                f"{self.records} records and {self.found} synthetic ones are too many for exact scores, or none; give "
                f"between 1 and {LARGEST_RECORDS} records, and fewer rounds"
            )

    @cached_property
    def _ends(self) -> tuple[int, int]:
        return int(self.held.min()), int(self.held.max())

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256(json.dumps(self.sets.workload.to_json(), sort_keys=True).encode())
        digest.update(np.ascontiguousarray(self.held).tobytes())
        return digest.hexdigest()

    def fingerprint(self) -> Sequence[object]:
        return ["dual-query", self.records, self.found, self._digest]

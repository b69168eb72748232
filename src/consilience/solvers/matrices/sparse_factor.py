"""Sparse symmetric systems K = LDLᵀ that are solved again and again with another diagonal.

K is quasi-definite (Vanderbei 1995): some of its diagonal is positive, the rest negative, and rows that share a sign
meet in no other entry. Then a factorisation exists in every order, without pivoting; the order decides only how many
entries L has. So order and pattern are found once:

- `minimum_degree` eliminates next what then has fewest neighbours (George and Liu 1989, with the bounds on degrees of
  Amestoy, Davis and Duff 1996). An eliminated unknown becomes an *element*, the list of its neighbours; elements that a
  new one contains are dropped.
- `elimination_tree` gives each column the first row below the diagonal in which it has an entry, and how many it has
  (Liu 1990).
- `factored_rows` fills L row by row: row k is the solution of a triangular system whose entries lie on the paths of the
  tree from the neighbours of k up to k (Davis 2005).

Where each unknown that is left touches all others, what is left is a dense matrix, the *tail*. With its positive part P
first,

    (P  Bᵀ)
    (B −N),     it takes the Cholesky factors of P and of N + B P⁻¹Bᵀ.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.linalg.lapack
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit

Array = NDArray[np.float64]
Places = NDArray[np.int32]


@dataclass(frozen=True)
class SparseFactorSettings:
    """What factors take, and what makes a tail regular; by trial, no figures kept, unless a reason is named."""

    in_the_tail: float = 0.05
    """What a multiplication in a dense matrix takes, in units of one among sparse columns."""
    growth_of_diagonal: float = 1e-15
    """By how much diagonal entries grow, relatively, so that a factorisation exists; more if it must be. About five
    units in the last place."""
    largest_growth: float = 1e3
    """By how much at most: a diagonal that is a thousand times larger has nothing to do with the matrix."""


SETTINGS = SparseFactorSettings()

factorise, substitute = scipy.linalg.lapack.get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)
"""LAPACK as it is: what SciPy wraps around it takes longer than small matrices do."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """The order in which a system is eliminated, and where its factor has entries."""

    order: Places
    """What is eliminated first, second, …"""
    starts: Places
    """Of each column among the entries above the diagonal, in that order."""
    rows: Places
    values: Array
    parents: Places
    columns: NDArray[np.int64]
    """Where each column of L before the tail begins."""
    positive: int
    """The number of unknowns in the tail with a positive diagonal, which come first there."""

    @property
    def tail(self) -> int:
        """Where the tail begins."""
        return self.columns.size - 1

    @cached_property
    def work(self) -> float:
        """Multiplications of a factorisation, twice over, in units of those among sparse columns."""
        tail = self.order.size - self.tail
        return float(np.sum(np.diff(self.columns) ** 2.0)) + SETTINGS.in_the_tail * tail**3 / 3.0

    @cached_property
    def places(self) -> Places:
        """When each unknown is eliminated: the inverse of the order."""
        places = np.empty_like(self.order)
        places[self.order] = np.arange(self.order.size, dtype=np.int32)
        return places


def find_pattern(matrix: Any, transposed: Any, most_work: float) -> Pattern | None:
    """The pattern for the system whose entries below the diagonal are a matrix, given by rows, as is its transpose.

    The unknowns of its columns come first, and have a positive diagonal. None where the factors take more than so many
    multiplications.
    """
    positive = matrix.shape[1]
    starts = np.concatenate([transposed.indptr, transposed.nnz + matrix.indptr[1:]]).astype(np.int64)
    neighbours = np.concatenate([transposed.indices + positive, matrix.indices]).astype(np.int32)
    order, tail = minimum_degree(starts, neighbours, most_work)
    if tail < 0:
        return None
    order[tail:] = np.sort(order[tail:])
    entries = np.concatenate([transposed.data, matrix.data])
    above, rows, values = entries_above(starts, neighbours, entries, order)
    parents, counts = elimination_tree(above, rows, tail)
    columns = np.concatenate([[0], np.cumsum(counts)])
    found = Pattern(order, above, rows, values, parents, columns, int(np.sum(order[tail:] < positive)))
    return found if found.work <= most_work else None


@dataclass(frozen=True, eq=False)
class SparseFactor:
    """L and D before the tail, and the factors of the tail, for one diagonal."""

    pattern: Pattern
    rows: Places
    values: Array
    pivots: Array
    tail: "_Tail"

    @staticmethod
    def of(pattern: Pattern, diagonal: Array) -> "SparseFactor":
        entries = int(pattern.columns[-1])
        rows, values, pivots = np.empty(entries, dtype=np.int32), np.empty(entries), diagonal[pattern.order]
        size = pattern.order.size - pattern.tail
        dense = np.zeros((size, size))
        factored_rows(
            pattern.starts, pattern.rows, pattern.values, pattern.parents, pattern.columns, rows, values, pivots, dense
        )
        return SparseFactor(pattern, rows, values, pivots, _Tail(dense, pattern.positive))

    @property
    def exists(self) -> bool:
        """Whether rounding has left a factor."""
        return self.tail.exists

    def solve(self, right: Array) -> Array:
        found, tail = right[self.pattern.order], self.pattern.tail
        go_down(self.pattern.columns, self.rows, self.values, found)
        found[tail:] = self.tail.solve(found[tail:])
        go_up(self.pattern.columns, self.rows, self.values, self.pivots, found)
        return found[self.pattern.places]


class _Tail:
    """A dense quasi-definite matrix, of which the lower triangle is given, with its positive part first."""

    def __init__(self, matrix: Array, positive: int) -> None:
        self._positive, self._border = positive, matrix[positive:, :positive]
        rest = -matrix[positive:, positive:]
        self._first = cholesky(matrix[:positive, :positive]) if positive else None
        if self._first is not None and rest.size:
            half = scipy.linalg.solve_triangular(self._first[0], self._border.T, lower=True, check_finite=False)
            rest = rest + half.T @ half
        self._second = cholesky(rest) if rest.size else None

    @property
    def exists(self) -> bool:
        return all(factor is None or not np.isnan(factor[0][0, 0]) for factor in (self._first, self._second))

    def solve(self, right: Array) -> Array:
        one, other = right[: self._positive], right[self._positive :]
        if self._first is not None:
            one = solved(self._first, one)
            other = other - self._border @ one
        if self._second is not None:
            other = -solved(self._second, other)
            if self._first is not None:
                one = one - solved(self._first, self._border.T @ other)
        return np.concatenate([one, other])


def solved(factor: tuple[Array, bool], right: Array) -> Array:
    """The solution of a system whose matrix `cholesky` factored."""
    return np.asarray(substitute(factor[0], right, lower=1)[0])


def cholesky(matrix: Array) -> tuple[Array, bool]:
    """The factor of a positive definite matrix of which the lower triangle is given, regularised if necessary.

    Diagonal entries grow in proportion, because those of cells on their way to 0 exceed the others by far. Where even
    much growth does not help, rounding has left nothing of the matrix, and its factor is no number.
    """
    amount = SETTINGS.growth_of_diagonal
    while amount <= SETTINGS.largest_growth:
        regular = np.array(matrix, order="F")
        np.einsum("ii->i", regular)[:] *= 1.0 + amount
        factor, failed = factorise(regular, lower=1, overwrite_a=1, clean=0)
        if not failed:
            return factor, True
        amount *= 10.0
    return np.full_like(matrix, np.nan), True


@njit(nogil=True, cache=True)
def minimum_degree(starts, neighbours, most_work):  # pragma: no cover - compiled
    """The order of elimination, and where the tail begins; −1 where it takes more than so many multiplications."""
    number = starts.size - 1
    unknowns, lengths = neighbours.copy(), starts[1:] - starts[:-1]  # neighbours as given, some of them eliminated
    living, degrees = lengths.copy(), lengths.copy()
    elements, held = np.empty_like(neighbours), np.zeros(number, dtype=np.int64)  # neighbours by way of an element
    members = np.empty(max(2 * neighbours.size, 16), dtype=np.int32)  # of the elements, one after the other
    begins, ends = np.zeros(number, dtype=np.int64), np.zeros(number, dtype=np.int64)
    used = 0
    gone, alive = np.zeros(number, dtype=np.bool_), np.ones(number, dtype=np.bool_)  # as an unknown; as an element
    seen = np.full(number, -1, dtype=np.int32)  # the last step at which it was a neighbour of the pivot
    outside = np.zeros(number, dtype=np.int64)  # of an element: its members that are no neighbours of the pivot
    counted = np.full(number, -1, dtype=np.int32)  # the last step at which they were counted
    head = np.full(number + 1, -1, dtype=np.int32)  # unknowns by degree, in lists with two ends
    following, before = np.full(number, -1, dtype=np.int32), np.full(number, -1, dtype=np.int32)
    for i in range(number - 1, -1, -1):
        _enter(i, degrees[i], head, following, before)
    order = np.empty(number, dtype=np.int32)
    work, least = 0.0, 0
    for step in range(number):
        while head[least] < 0:
            least += 1
        pivot = head[least]
        if least >= number - step - 1:
            place = step
            for i in range(number):
                if not gone[i]:
                    order[place] = i
                    place += 1
            return order, step
        _leave(pivot, degrees[pivot], head, following, before)
        order[step] = pivot
        gone[pivot] = True
        seen[pivot] = step
        # The neighbours of the pivot are a new element, which contains those that it was in.
        first, need = starts[pivot], lengths[pivot]
        for place in range(first, first + held[pivot]):
            need += ends[elements[place]] - begins[elements[place]]
        if used + need > members.size:
            larger = np.empty(2 * (used + need), dtype=np.int32)
            larger[:used] = members[:used]
            members = larger
        begin = used
        for place in range(first, first + lengths[pivot]):
            other = unknowns[place]
            if not gone[other]:
                living[other] = max(living[other] - 1, 0)
                seen[other] = step
                members[used] = other
                used += 1
        for place in range(first, first + held[pivot]):
            element = elements[place]
            for at in range(begins[element], ends[element]):
                other = members[at]
                if not gone[other] and seen[other] != step:
                    seen[other] = step
                    members[used] = other
                    used += 1
            alive[element] = False
        begins[pivot], ends[pivot] = begin, used
        size = used - begin
        work += float(size) * size
        if work > most_work:
            return order, -1
        for at in range(begin, used):
            i = members[at]
            for place in range(starts[i], starts[i] + held[i]):
                element = elements[place]
                if alive[element]:
                    if counted[element] != step:
                        counted[element] = step
                        outside[element] = _living(element, begins, ends, members, gone)
                    outside[element] -= 1
        for at in range(begin, used):
            i = members[at]
            first, kept, degree = starts[i], starts[i], size - 1
            for place in range(first, first + held[i]):
                element = elements[place]
                if alive[element]:
                    if outside[element] == 0:
                        alive[element] = False
                    else:
                        degree += outside[element]
                        elements[kept] = element
                        kept += 1
            elements[kept] = pivot
            held[i] = kept + 1 - first
            # A long list is cleared when half of it is gone, so that all clearing takes as long as the lists are.
            if lengths[i] <= 16 or 2 * living[i] <= lengths[i]:
                kept = first
                for place in range(first, first + lengths[i]):
                    other = unknowns[place]
                    if not gone[other] and seen[other] != step:
                        unknowns[kept] = other
                        kept += 1
                lengths[i] = living[i] = kept - first
            degree = min(degree + living[i], degrees[i] + size - 1, number - step - 1)
            _leave(i, degrees[i], head, following, before)
            degrees[i] = degree
            _enter(i, degree, head, following, before)
            least = min(least, degree)
    return order, number


@njit(nogil=True, cache=True)
def _living(element, begins, ends, members, gone):  # pragma: no cover - compiled
    """The members of an element that are not eliminated; the others are removed from it."""
    kept = begins[element]
    for place in range(begins[element], ends[element]):
        if not gone[members[place]]:
            members[kept] = members[place]
            kept += 1
    ends[element] = kept
    return kept - begins[element]


@njit(nogil=True, cache=True)
def _enter(unknown, degree, head, following, before):  # pragma: no cover - compiled
    other = head[degree]
    following[unknown], before[unknown] = other, -1
    if other >= 0:
        before[other] = unknown
    head[degree] = unknown


@njit(nogil=True, cache=True)
def _leave(unknown, degree, head, following, before):  # pragma: no cover - compiled
    one, other = before[unknown], following[unknown]
    if one >= 0:
        following[one] = other
    else:
        head[degree] = other
    if other >= 0:
        before[other] = one


@njit(nogil=True, cache=True)
def entries_above(starts, neighbours, entries, order):  # pragma: no cover - compiled
    """The entries above the diagonal of a symmetric matrix in this order, by columns: starts, rows and values."""
    number = order.size
    places = np.empty(number, dtype=np.int32)
    for place in range(number):
        places[order[place]] = place
    above = np.zeros(number + 1, dtype=np.int32)
    rows, values = np.empty(neighbours.size, dtype=np.int32), np.empty(neighbours.size)
    used = 0
    for place in range(number):
        for entry in range(starts[order[place]], starts[order[place] + 1]):
            if places[neighbours[entry]] < place:
                rows[used], values[used] = places[neighbours[entry]], entries[entry]
                used += 1
        above[place + 1] = used
    return above, rows[:used].copy(), values[:used].copy()


@njit(nogil=True, cache=True)
def elimination_tree(starts, rows, tail):  # pragma: no cover - compiled
    """The parent of each column before the tail, −1 at roots, and the number of entries below its diagonal."""
    number = starts.size - 1
    parents = np.full(tail, -1, dtype=np.int32)
    counts = np.zeros(tail, dtype=np.int64)
    seen = np.full(number, -1, dtype=np.int32)
    for k in range(number):
        seen[k] = k
        for place in range(starts[k], starts[k + 1]):
            i = rows[place]
            while i < tail and seen[i] != k:
                if parents[i] < 0:
                    parents[i] = k
                counts[i] += 1
                seen[i] = k
                i = parents[i]
    return parents, counts


@njit(nogil=True, cache=True, error_model="numpy")
def factored_rows(
    starts, rows, values, parents, columns, found_rows, found, pivots, dense
):  # pragma: no cover - compiled
    """L by columns, D in `pivots`, which holds the diagonal of K, and the tail in `dense`."""
    number = pivots.size
    tail = number - dense.shape[0]
    filled = columns[:-1].copy()
    work = np.zeros(number)
    seen = np.full(number, -1, dtype=np.int32)
    path, stack = np.empty(number, dtype=np.int32), np.empty(number, dtype=np.int32)
    for k in range(number):
        seen[k] = k
        top = number
        for place in range(starts[k], starts[k + 1]):
            i = rows[place]
            work[i] = values[place]
            length = 0
            while i < tail and seen[i] != k:
                path[length] = i
                length += 1
                seen[i] = k
                i = parents[i]
            while length > 0:
                length -= 1
                top -= 1
                stack[top] = path[length]
        pivot = pivots[k]
        for place in range(top, number):
            i = stack[place]
            value = work[i]
            work[i] = 0.0
            for entry in range(columns[i], filled[i]):
                work[found_rows[entry]] -= found[entry] * value
            share = value / pivots[i]
            pivot -= share * value
            found_rows[filled[i]] = k
            found[filled[i]] = share
            filled[i] += 1
        pivots[k] = pivot
        if k >= tail:
            dense[k - tail, k - tail] = pivot
            for j in range(tail, k):
                dense[k - tail, j - tail] = work[j]
                work[j] = 0.0


@njit(nogil=True, cache=True)
def go_down(columns, rows, values, right):  # pragma: no cover - compiled
    """Solves L x = b in place, as far as the tail."""
    for j in range(columns.size - 1):
        value = right[j]
        for entry in range(columns[j], columns[j + 1]):
            right[rows[entry]] -= values[entry] * value


@njit(nogil=True, cache=True, error_model="numpy")
def go_up(columns, rows, values, pivots, right):  # pragma: no cover - compiled
    """Solves DLᵀ x = b in place, once the tail is solved."""
    for j in range(columns.size - 2, -1, -1):
        value = right[j] / pivots[j]
        for entry in range(columns[j], columns[j + 1]):
            value -= values[entry] * right[rows[entry]]
        right[j] = value

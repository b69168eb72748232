"""A score for private selection: how much of a histogram lies beyond its lowest frequencies.

For the counts x of an attribute with n values and the rounded Fourier rows u₀, u₁, … of `kernels.transforms`, the
coefficients c_j = u_j · x are exact integers in units of 2^−b. With k rows kept of K, the score of a candidate is

    −( ⌊√(Σ_{k ≤ j < K} c_j²)⌋ + penalty ),

in units of 2^−b √n records. The square root is the norm of T_k x, where T_k is a matrix of integers, and is computed
from exact sums of squares.

**Sensitivity.** Over to a neighbouring table x moves by ±e_s, or by e_s − e_t, and the norm by at most the norm of that
column, or of that difference of columns, of T_k. The rows without rounding are part of a basis that is orthogonal with
squared norm n: in units, the columns of T_k are at most 2^b √n long, and their differences at most √2 · 2^b √n.
Rounding moves each of at most n entries of a column by at most one unit, so a column by at most √n:

    add-remove:  √n (2^b + 1) + 1,         replace-one:  √n (√2 · 2^b + 2) + 1,

where the last 1 is for the floor. The penalty is public and the same on both sides.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.kernels.transforms import exact_coefficients, most_frequencies, rows_of

Integers = NDArray[np.int64]

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
